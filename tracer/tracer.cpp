/// Values of new Python objects.
#include "tracer/tracer.h"

namespace fj {

V Tracer::integer(std::int64_t value) {
  return std::make_shared<ObjectValue>(Ref<>::steal(PyLong_FromLongLong(value)));
}

V Tracer::real(double value) { return std::make_shared<ObjectValue>(Ref<>::steal(PyFloat_FromDouble(value))); }

V Tracer::string(std::string_view text) {
  return std::make_shared<ObjectValue>(Ref<>::steal(PyUnicode_FromStringAndSize(text.data(), text.size())));
}

V Tracer::tuple(std::vector<V> items) {
  auto value = std::make_shared<TupleValue>();
  value->items = std::move(items);
  return value;
}

V Tracer::list(std::vector<V> items) {
  auto value = std::make_shared<ListValue>();
  value->items = std::move(items);
  return value;
}

}  // namespace fj
