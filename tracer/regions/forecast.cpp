// The builder looks at objects of the types that the trace's values have: what they hold does not matter to it.
#include "tracer/regions/forecast.h"

#include <new>

#include "arrays/arrays.h"
#include "segment/library_calls/numpy_prediction.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/regions/loop_region.h"

namespace fj {

namespace {

constexpr int kLevels = 4;  // of objects in attributes of others

Ref<> stand_in(TraceRun& t, const V& value, int levels = kLevels);

/// An object of a plain class that the trace has made. None is made whose end could be seen.
Ref<> instance_like(TraceRun& t, const InstanceValue& instance, int levels) {
  PyTypeObject* const type = instance.type.get();
  const bool plain = type->tp_new == PyBaseObject_Type.tp_new && type->tp_getattro == PyObject_GenericGetAttr &&
                     type->tp_finalize == nullptr && !instance.contents && instance.args.empty();
  Ref<> made = plain && levels > 0 ? Ref<>::steal(type->tp_alloc(type, 0)) : Ref<>();
  if (!made) return {};
  for (const auto& [name, value] : instance.attributes) {
    const Ref<> attribute = value ? stand_in(t, value, levels - 1) : Ref<>();
    if (attribute && PyObject_GenericSetAttr(made.get(), name.get(), attribute.get()) != 0) PyErr_Clear();
  }
  return made;
}

/// One from outside is itself; of one that the trace has made some items tell what it holds.
Ref<> list_like(TraceRun& t, const V& value, int levels) {
  constexpr std::size_t kItems = 16;
  if (value->source != nullptr) return t.sources().fetch(value->source, t.request.values);
  if (unopened_list(value) || levels == 0) return {};
  const ListValue& list = *as<ListValue>(value);
  if (list.type) return {};
  Ref<> made = Ref<>::steal(PyList_New(0));
  const std::size_t count = list.items.size(), looks = std::min(count, kItems);
  for (std::size_t i = 0; made && i < looks; ++i) {
    const Ref<> item = stand_in(t, list.items[i * count / looks], levels - 1);
    if (!item || PyList_Append(made.get(), item.get()) != 0) return {};
  }
  return made;
}

Ref<> iterator_over(TraceRun& t, const IteratorValue& iterator) {
  if (iterator.maker) {
    const Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(iterator.arguments.size())));
    for (std::size_t i = 0; i < iterator.arguments.size(); ++i) {
      Ref<> argument = stand_in(t, iterator.arguments[i]);
      if (!argument) return {};
      PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), argument.release());
    }
    return Ref<>::steal(PyObject_CallObject(iterator.maker.get(), arguments.get()));
  }
  const V rest = iterator.over ? iterator.over : iterator.remaining ? iterator.remaining() : nullptr;
  if (!rest) return {};
  const Ref<> over = rest->kind == ValueKind::Range
                         ? Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "i", 3))
                         : stand_in(t, rest);
  return over ? Ref<>::steal(PyObject_GetIter(over.get())) : Ref<>();
}

/// A tensor of one element in memory. Null: regions know none such.
Ref<> tensor_like(TraceRun& t, const ArrayValue& array) {
  if (t.requires_gradient(array) || array.storage->device != kHost || is_complex(array.dtype)) return {};
  const Ref<> one = allocate(Library::Torch, array.dtype, {}, {});
  const std::vector<std::int64_t> still(array.shape.size(), 0);
  std::vector<std::int64_t> sizes;
  for (const SymDim& size : array.shape) sizes.push_back(hint(size, t.graph().symbols));
  return one ? view_of(one.get(), array.dtype, sizes, still, 0) : Ref<>();
}

/// Null: nothing is known of it.
Ref<> stand_in(TraceRun& t, const V& value, int levels) {
  switch (value->kind) {
    case ValueKind::Object: return as<ObjectValue>(value)->object;
    case ValueKind::SymInt: return Ref<>::steal(PyLong_FromLong(1));
    case ValueKind::Number: {
      const DType dtype = as<NumberValue>(value)->dtype;
      if (dtype == DType::F64) return Ref<>::steal(PyFloat_FromDouble(1));
      if (dtype == DType::I64) return Ref<>::steal(PyLong_FromLong(1));
      return dtype == DType::Bool ? Ref<>::borrow(Py_True) : Ref<>();
    }
    case ValueKind::Array: {
      const auto& array = *as<ArrayValue>(value);
      if (array.library == Library::Torch) return tensor_like(t, array);
      if (array.numpy_scalar) {
        const std::uint64_t zero[2] = {};
        return numpy_scalar(array.dtype, zero);
      }
      const std::vector<std::int64_t> ones(array.shape.size(), 1), still(array.shape.size(), 0);
      std::vector<std::int64_t> sizes;
      for (const SymDim& size : array.shape) sizes.push_back(hint(size, t.graph().symbols));
      const Ref<> one = numpy_stand_in({array.dtype, ones, ones}, true);
      return one ? view_of(one.get(), array.dtype, sizes, still, 0) : Ref<>();
    }
    case ValueKind::Range:
      return Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "i", 3));
    case ValueKind::Cell: {
      const auto& cell = *as<CellValue>(value);
      if (cell.real) return cell.real;
      const Ref<> contents = cell.contents ? stand_in(t, cell.contents, levels) : Ref<>();
      return contents ? Ref<>::steal(PyCell_New(contents.get())) : Ref<>();
    }
    case ValueKind::List: return list_like(t, value, levels);
    case ValueKind::Instance: return instance_like(t, *as<InstanceValue>(value), levels);
    case ValueKind::Iterator: return iterator_over(t, *as<IteratorValue>(value));
    default: return {};
  }
}

}  // namespace

bool will_be_region(TraceRun& t, const Frame& frame, const Loop& loop, bool elements) {
  PyObject* const anything = once([] { return PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)); });
  std::vector<Ref<>> held;
  std::vector<PyObject*> objects;
  const auto add = [&](const V& value) {
    if (!value || value->kind == ValueKind::Null) return objects.push_back(nullptr);
    Ref<> object = stand_in(t, value);
    PyErr_Clear();
    objects.push_back(object ? object.get() : anything);
    // An iterator is held by the frame alone.
    held.push_back(std::move(object));
  };
  for (std::size_t i = 0; i < frame.slots.size(); ++i) {
    const auto& given = t.request.values.slots;
    if (frame.outermost && frame.initial[i]) objects.push_back(i < given.size() ? given[i] : nullptr);
    else add(frame.slots[i]);
  }
  for (const V& value : frame.stack) add(value);
  Ref<> function = Ref<>::borrow(reinterpret_cast<PyObject*>(t.request.function));
  if (!frame.outermost)
    function = Ref<>::steal(PyFunction_New(reinterpret_cast<PyObject*>(frame.co), frame.globals.get()));
  if (!function) throw std::bad_alloc();
  const FrameValues values{reinterpret_cast<PyFunctionObject*>(function.get()), objects};
  std::string why;
  const std::optional<LoopRegion> region = build_region(*frame.code, loop, values, why);
  PyErr_Clear();
  return region && !(elements && region->memories.empty() && !region->has_lists) && region->elements <= kMostElements;
}

}  // namespace fj
