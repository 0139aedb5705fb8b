/// NumPy's random functions as nodes of the graph: methods of Generator and RandomState, and the functions of np.random, which are
/// methods of one RandomState.
///
/// The library's own method runs on the user's own generator, in program order, and the generator's state is put back if the
/// program fails (host.h: RandomStates). Sizes are arguments, so nothing is predicted but the dtype: a generator of our own is asked
/// for a few numbers. A call without a size gives one Python number, which only a break can hand to Python code.
#include <cstring>
#include <unordered_map>

#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

namespace {

constexpr int kDims = -2;

struct RandomMethod {
  const char* name;
  int size;            // position of the argument
  bool legacy;         // RandomState's
};

/// By the function in the class.
const std::unordered_map<PyObject*, RandomMethod>& methods() {
  static const auto* table = [] {
    struct Row {
      const char* name;
      int generator, legacy;
    };
    constexpr Row rows[] = {
#define FJ_RANDOM(name, generator, legacy) {name, generator, legacy},
#include "tracer/random.def"
    };
    auto* known = new std::unordered_map<PyObject*, RandomMethod>;
    Ref<> module = Ref<>::steal(PyImport_ImportModule("numpy.random"));
    for (const Row& row : rows)
      for (bool legacy : {false, true}) {
        const int size = legacy ? row.legacy : row.generator;
        Ref<> type = module && size != -1 ? Ref<>::steal(PyObject_GetAttrString(module.get(), legacy ? "RandomState" : "Generator")) : Ref<>();
        Ref<> method = type ? Ref<>::steal(PyObject_GetAttrString(type.get(), row.name)) : Ref<>();
        if (method) known->emplace(method.release(), RandomMethod{row.name, size, legacy});  // held for ever, as its class is
        PyErr_Clear();
      }
    return known;
  }();
  return *table;
}

/// Whose state is not the user's.
PyObject* own_generator(bool legacy) {
  static PyObject* const made[] = {
      [] { Ref<> m = Ref<>::steal(PyImport_ImportModule("numpy.random")); return m ? PyObject_CallMethod(m.get(), "default_rng", "i", 1) : nullptr; }(),
      [] { Ref<> m = Ref<>::steal(PyImport_ImportModule("numpy.random")); return m ? PyObject_CallMethod(m.get(), "RandomState", "i", 1) : nullptr; }()};
  PyErr_Clear();
  return made[legacy];
}

[[noreturn]] void give_up(const std::string& what) { break_graph(BreakReason::RandomState, what); }

}  // namespace

bool is_random_method(PyObject* callable) {
  // Cython's functions: nothing else gets a look into the table, so that NumPy's random module is not imported for it.
  return !std::strncmp(Py_TYPE(callable)->tp_name, "_cython_", 8) && methods().count(callable);
}

V TracerImpl::call_random(PyObject* callable, std::vector<V> positional, const Keywords& keywords) {
  const RandomMethod& method = methods().at(callable);
  const std::string name = method.name;
  auto* generator = positional.empty() ? nullptr : as<ObjectValue>(positional[0]);
  if (!generator || !generator->object) give_up("`" + name + "` of no generator");
  if (batch_depth > 0) break_graph(BreakReason::OneExample, "`" + name + "` draws once for all examples");
  if (!request.generalise.float_inputs) give_up("`" + name + "` for a back end that runs nodes without the frame they are from");
  // Exactly NumPy's classes: others may draw in another way.
  PyTypeObject* type = type_of(positional[0]);
  if (type->tp_flags & Py_TPFLAGS_BASETYPE && fj_type_lookup(type, keep(Ref<>::steal(PyUnicode_InternFromString("__dict__"))).get()))
    give_up("`" + name + "` of a derived generator");
  if (!generator->source) generator->source = sources->constant(generator->object.get());

  ExternCall call;
  call.name = name;
  call.callable = Ref<>::borrow(callable);
  call.library = Library::Numpy;
  call.random = true;
  const Location where = location();
  call.place = where.file + ":" + std::to_string(where.line) + ":";
  ExternArgument held;
  held.kind = ExternArgument::Kind::Held;
  held.index = externs->hold(generator->source);
  call.positional.push_back(std::move(held));

  Dims shape;
  bool sized = false;
  auto size = [&](const V& value) {
    std::optional<SymDim> dim = int_expression(value);
    if (!dim) give_up("`" + name + "` with a size that is " + describe(value));
    if (!decide(*dim, Py_GE, 0)) give_up("`" + name + "` with a negative size");
    shape.push_back(*dim);
    sized = true;
    ExternArgument argument;
    argument.kind = ExternArgument::Kind::Size;
    argument.expression = *dim;
    return argument;
  };
  auto sizes = [&](const V& value) {
    if (value->kind != ValueKind::Tuple && value->kind != ValueKind::List) return size(value);
    ExternArgument argument;
    argument.kind = ExternArgument::Kind::Tuple;
    sized = true;
    for (const V& item : sequence_items(value)) argument.items.push_back(size(item));
    return argument;
  };
  auto constant = [&](const V& value) {
    ExternArgument argument;
    argument.object = Ref<>::borrow(constant_object(value));
    if (!argument.object) give_up("`" + name + "` of " + describe(value));
    return argument;
  };
  auto is_none_value = [&](const V& value) { return value->kind == ValueKind::Object && is_none(value); };
  for (std::size_t i = 1; i < positional.size(); ++i) {
    const bool is_size = method.size == kDims || int(i) - 1 == method.size;
    call.positional.push_back(is_size && !is_none_value(positional[i]) ? (method.size == kDims ? size(positional[i]) : sizes(positional[i])) : constant(positional[i]));
  }
  for (auto& [key, value] : keywords) {
    if (key == "out" && !is_none_value(value)) give_up("`" + name + "` into an array");
    const bool is_size = key == "size" && !is_none_value(value);
    call.keywords.emplace_back(Ref<>::steal(PyUnicode_InternFromString(key.c_str())), is_size ? sizes(value) : constant(value));
  }
  if (!sized) give_up("`" + name + "` of one number");

  // The dtype, and whether the arguments are right at all.
  auto probe = [&](const ExternArgument& argument) -> Ref<> {
    if (argument.kind == ExternArgument::Kind::Held) return Ref<>::borrow(own_generator(method.legacy));
    if (argument.kind == ExternArgument::Kind::Constant) return argument.object;
    if (method.size == kDims) return Ref<>::steal(PyLong_FromLong(1));
    Ref<> ones = Ref<>::steal(PyTuple_New(Py_ssize_t(shape.size())));
    for (std::size_t i = 0; i < shape.size(); ++i) PyTuple_SET_ITEM(ones.get(), Py_ssize_t(i), PyLong_FromLong(1));
    return ones;
  };
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(call.positional.size()))), names = Ref<>::steal(PyDict_New());
  for (std::size_t i = 0; i < call.positional.size(); ++i) PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), probe(call.positional[i]).release());
  for (auto& [key, argument] : call.keywords) PyDict_SetItem(names.get(), key.get(), probe(argument).get());
  Ref<> drawn = Ref<>::steal(PyObject_Call(callable, arguments.get(), names.get()));
  if (!drawn) give_up("`" + name + "`: " + take_error());
  const ArrayInfo info = array_library(drawn.get()) ? describe(drawn.get()) : ArrayInfo{};
  if (!array_library(drawn.get()) || !info.unsupported.empty() || info.shape.size() != shape.size()) give_up("`" + name + "` that gives no array");

  call.structure.kind = ExternStructure::Kind::Array;
  const Strides strides = contiguous_strides(shape);
  call.results.push_back({info.dtype, shape, strides, -1, 0});
  Attrs attrs;
  attrs.set("callee", name);
  attrs.set("handle", externs->add(call));
  attrs.set("operand_strides", std::vector<std::optional<Dims>>{});
  attrs.set("result_strides", std::vector<std::optional<Dims>>{strides});
  const ValueId value = graph->add_extern({}, attrs, {Type{info.dtype, shape}}, where)[0];
  return tracer.new_array(Library::Numpy, value, strides);
}

}  // namespace fj
