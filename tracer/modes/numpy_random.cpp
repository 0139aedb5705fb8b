/// NumPy's random functions as nodes of the graph: methods of Generator and RandomState, and the functions of
/// np.random, which are methods of one RandomState.
///
/// The library's own method runs on the user's own generator, in program order, and the generator's state is put back
/// if the program fails (library_host.h: RandomStates). Sizes are arguments, so nothing is predicted but the dtype. A
/// call without a size gives one number, mostly a Python number that the program computes.
#include "tracer/modes/numpy_random.h"

#include <cstring>
#include <unordered_map>

#include "runtime/base/error.h"
#include "tracer/frontends/numpy/numpy.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/devices.h"
#include "tracer/state/transform_ledger.h"

namespace fj {

namespace {

constexpr int kDims = -2;

enum class Draws { Floats, Integers, Chosen, Permuted };

struct RandomMethod {
  const char* name;
  int size;            // position of the argument
  bool legacy;         // RandomState's
  Draws draws;
};

/// By the function in the class.
const std::unordered_map<PyObject*, RandomMethod>& methods() {
  const auto* table = once([] {
    struct Row {
      const char* name;
      int generator, legacy;
      Draws draws;
    };
    constexpr Row rows[] = {
#define FJ_RANDOM(name, generator, legacy, draws) {name, generator, legacy, Draws::draws},
#include "tracer/modes/numpy_random.def"
    };
    auto* known = new std::unordered_map<PyObject*, RandomMethod>;
    Ref<> module = Ref<>::steal(PyImport_ImportModule("numpy.random"));
    for (const Row& row : rows)
      for (bool legacy : {false, true}) {
        const int size = legacy ? row.legacy : row.generator;
        Ref<> type = module && size != -1
                         ? Ref<>::steal(PyObject_GetAttrString(module.get(), legacy ? "RandomState" : "Generator"))
                         : Ref<>();
        Ref<> method = type ? Ref<>::steal(PyObject_GetAttrString(type.get(), row.name)) : Ref<>();
        if (method)
          known->emplace(method.release(),
                         RandomMethod{row.name, size, legacy, row.draws});  // held for ever, as its class is
        PyErr_Clear();
      }
    return known;
  });
  return *table;
}

[[noreturn]] void give_up(const std::string& what) { break_graph(BreakReason::RandomState, what); }

DType integers(const RandomMethod& method) { return method.legacy && sizeof(long) == 4 ? DType::I32 : DType::I64; }

/// Of the elements of what choice() is given.
DType dtype_of_elements(const RandomMethod& method, PyObject* from) {
  if (PyLong_Check(from)) return integers(method);
  Ref<> function = imported("numpy", "asarray");
  Ref<> array = function ? Ref<>::steal(PyObject_CallOneArg(function.get(), from)) : Ref<>();
  if (!array) give_up(std::string("`") + method.name + "`: " + take_error());
  const ArrayInfo info = array_library(array.get()) ? describe(array.get()) : ArrayInfo{};
  if (!array_library(array.get()) || !info.unsupported.empty() || info.shape.size() != 1)
    give_up(std::string("`") + method.name + "` that gives no array");
  return info.dtype;
}

}  // namespace

bool is_random_method(PyObject* callable) {
  // Cython's functions: nothing else gets a look into the table, so that NumPy's random module is not imported for it.
  return !std::strncmp(Py_TYPE(callable)->tp_name, "_cython_", 8) && methods().count(callable);
}

ExternCall drawing_call(TraceRun& t, const std::string& name, PyObject* method, ObjectValue& generator) {
  ExternCall call;
  call.name = name;
  call.callable = Ref<>::borrow(method);
  call.library = Library::Numpy;  // whose arrays hold what is drawn
  call.random = true;
  const Location where = t.location();
  call.place = where.file + ":" + std::to_string(where.line) + ":";
  if (!generator.source) generator.source = t.sources().constant(generator.object.get());
  ExternArgument held;
  held.kind = ExternArgument::Kind::Held;
  held.index = t.externs->hold(generator.source);
  call.positional.push_back(std::move(held));
  return call;
}

ValueId draw(TraceRun& t, ExternCall call, DType dtype, const Dims& shape) {
  const Strides strides = contiguous_strides(shape);
  call.results.push_back({dtype, shape, strides, -1, 0});
  Attrs attrs;
  t.externs->put(attrs, t.graph(), std::move(call));
  attrs.set("operand_strides", std::vector<std::optional<Dims>>{});
  attrs.set("result_strides", std::vector<std::optional<Dims>>{strides});
  place_graph(t, kHost);  // the numbers are drawn into its memory
  return t.graph().add_extern({}, std::move(attrs), {Type{dtype, shape}}, t.location())[0];
}

V call_random(TraceRun& t, PyObject* callable, std::vector<V> positional, const Keywords& keywords) {
  const RandomMethod& method = methods().at(callable);
  const std::string name = method.name;
  auto* generator = positional.empty() ? nullptr : as<ObjectValue>(positional[0]);
  if (!generator || !generator->object) give_up("`" + name + "` of no generator");
  if (t.transforms->depth > 0) break_graph(BreakReason::OneExample, "`" + name + "` draws once for all examples");
  if (!t.request.generalise.builtin_backend)
    give_up("`" + name + "` for a back end that runs nodes without the frame they are from");
  // Exactly NumPy's classes: others may draw in another way.
  PyTypeObject* type = t.type_of(positional[0]);
  if (type->tp_flags & Py_TPFLAGS_BASETYPE &&
      fj_type_lookup(type, t.keep(Ref<>::steal(PyUnicode_InternFromString("__dict__"))).get()))
    give_up("`" + name + "` of a derived generator");

  ExternCall call = drawing_call(t, name, callable, *generator);
  Dims shape;
  bool sized = false;
  auto size = [&](const V& value) {
    std::optional<SymDim> dim = t.int_expression(value);
    if (!dim) give_up("`" + name + "` with a size that is " + describe(value));
    if (!t.decide(*dim, Py_GE, 0)) give_up("`" + name + "` with a negative size");
    shape.push_back(*dim);
    ExternArgument argument;
    argument.kind = ExternArgument::Kind::Size;
    argument.expression = *dim;
    return argument;
  };
  auto sizes = [&](const V& value) {
    sized = true;
    // A sequence to permute is no size.
    if ((value->kind != ValueKind::Tuple && value->kind != ValueKind::List) || method.draws == Draws::Permuted)
      return size(value);
    ExternArgument argument;
    argument.kind = ExternArgument::Kind::Tuple;
    for (const V& item : t.sequence_items(value)) argument.items.push_back(size(item));
    return argument;
  };
  // NumPy makes an array of either.
  auto fixed = [&](const V& value) -> V {
    auto* list = as<ListValue>(value);
    return list && !list->type ? t.tuple(t.sequence_items(value)) : value;
  };
  bool numbers = true;  // and no sequences, which say how many are drawn
  auto constant = [&](const V& value) {
    ExternArgument argument;
    // A parameter under a schedule: fetched for each run, as the generator.
    if (value->kind == ValueKind::Object && t.float_input(value).valid()) {
      argument.kind = ExternArgument::Kind::Held;
      argument.index = t.externs->hold(value->source);
      return argument;
    }
    Ref<> held = t.constant_object(fixed(value));
    PyObject* object = held.get();
    if (!object) give_up("`" + name + "` of " + describe(value));
    numbers = numbers && (object == Py_None || PyLong_Check(object) || PyFloat_Check(object));
    argument.object = Ref<>::borrow(object);
    return argument;
  };
  auto is_none_value = [&](const V& value) { return value->kind == ValueKind::Object && t.is_none(value); };
  for (std::size_t i = 1; i < positional.size(); ++i) {
    const bool is_size = method.size == kDims || int(i) - 1 == method.size;
    call.positional.push_back(is_size && !is_none_value(positional[i])
                                  ? (method.size == kDims ? size(positional[i]) : sizes(positional[i]))
                                  : constant(positional[i]));
  }
  for (auto& [key, value] : keywords) {
    if (key == "out" && !is_none_value(value)) give_up("`" + name + "` into an array");
    const bool is_size = key == "size" && !is_none_value(value);
    call.keywords.emplace_back(Ref<>::steal(PyUnicode_InternFromString(key.c_str())),
                               is_size ? sizes(value) : constant(value));
  }
  auto argument = [&](const char* key, std::size_t position) -> V {
    for (auto& [name, value] : keywords)
      if (name == key) return value;
    return position < positional.size() ? positional[position] : nullptr;
  };
  const auto dtype_of_draws = [&] {
    if (method.draws == Draws::Chosen) {
      const V from = argument("a", 1);
      Ref<> object = from ? t.constant_object(fixed(from)) : Ref<>();
      if (!object) give_up("`" + name + "` of unknown elements");
      return dtype_of_elements(method, object.get());
    }
    if (method.draws == Draws::Permuted) return integers(method);
    const V given = method.size == kDims ? nullptr : argument("dtype", std::size_t(method.size) + 2);
    return numpy_dtype_argument(t, given).value_or(method.draws == Draws::Integers ? integers(method) : DType::F64);
  };
  const DType dtype = dtype_of_draws();

  call.structure.kind = ExternStructure::Kind::Array;
  const bool one = shape.empty() && !sized;
  // Only Generator.integers gives one of NumPy's scalars. Where this is wrong the program fails, and Python calls the
  // method.
  const bool of_numpy = !method.legacy && name == "integers";
  if (one) {
    const bool given_dtype = method.size != kDims && argument("dtype", std::size_t(method.size) + 2);
    if (given_dtype || !numbers || method.draws == Draws::Chosen || method.draws == Draws::Permuted ||
        name == "random_integers" || (dtype != DType::F64 && dtype != DType::I64))
      give_up("`" + name + "` of one number");
    call.structure.kind = ExternStructure::Kind::Number;
    call.structure.type =
        of_numpy ? Ref<>(imported("numpy", "int64"))
                 : Ref<>::borrow(reinterpret_cast<PyObject*>(dtype == DType::F64 ? &PyFloat_Type : &PyLong_Type));
  }
  const ValueId value = draw(t, std::move(call), dtype, shape);
  if (one && !of_numpy) return std::make_shared<NumberValue>(value, dtype);
  V array = t.new_array(Library::Numpy, value, contiguous_strides(shape));
  as<ArrayValue>(array)->numpy_scalar = one;
  return array;
}

}  // namespace fj
