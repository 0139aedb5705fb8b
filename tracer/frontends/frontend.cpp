/// The registry of handlers, by identity of the real callable, and the dispatch of operators between libraries.
///
/// Rows of numpy.def and torch.def are resolved to the objects they name once per library, when that library is first
/// found in sys.modules: an attribute walk from the module, no import. A name that this version of the library lacks
/// has no entry. The objects are kept alive, so an address can't come to mean another callable.
/// Operators follow Python's binary protocol as the two libraries take part in it: a Tensor on the left takes
/// everything; an ndarray on the left takes everything but Tensors, whose meeting is left to the libraries.
#include "tracer/frontends/frontend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "cpython/cpython.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"
#include "tracer/frontends/acceptance.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/numpy/calls.h"

namespace fj {
namespace {

constexpr std::string_view kNumpyMethods = "numpy.ndarray.", kTorchMethods = "torch.Tensor.";

/// `np.add.reduce` is a new bound method each time: its identity is the ufunc's and the name.
std::string bound_name(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return {};
  PyObject* self = PyCFunction_GET_SELF(callable);
  if (!self || PyModule_Check(self)) return {};
  return std::to_string(reinterpret_cast<std::uintptr_t>(self)) + "." +
         reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
}

struct Row {
  Handler handler;
  Library library;
};

struct Registry {
  std::unordered_map<PyObject*, Row> by_object;
  std::unordered_map<std::string, Row> by_bound_name;
  std::unordered_map<std::string, Handler> methods[2];   // by Library
  std::vector<Ref<>> alive;
  bool resolved[2] = {false, false};

  void resolve(Library library, PyObject* module, std::span<const HandlerRow> rows) {
    resolved[int(library)] = true;
    for (const HandlerRow& row : rows) {
      std::string_view path = row.name;
      const std::string_view methods_prefix = library == Library::Numpy ? kNumpyMethods : kTorchMethods;
      if (path.substr(0, methods_prefix.size()) == methods_prefix)
        methods[int(library)].emplace(std::string(path.substr(methods_prefix.size())), row.handler);
      path.remove_prefix(path.find('.') + 1);
      Ref<> object = Ref<>::borrow(module);
      while (object && !path.empty()) {
        const std::size_t dot = path.find('.');
        const std::string part(path.substr(0, dot));
        path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
        object = Ref<>::steal(PyObject_GetAttrString(object.get(), part.c_str()));
      }
      if (!object) {
        PyErr_Clear();
        continue;
      }
      if (std::string bound = bound_name(object.get()); !bound.empty())
        by_bound_name.emplace(std::move(bound), Row{row.handler, library});
      else by_object.emplace(object.get(), Row{row.handler, library});
      alive.push_back(std::move(object));
    }
  }

  void refresh() {
    if (!resolved[0])
      if (PyObject* module = numpy_module()) resolve(Library::Numpy, module, numpy_rows());
    if (!resolved[1])
      if (PyObject* module = torch_module()) resolve(Library::Torch, module, torch_rows());
  }
};

/// Never destroyed: it owns Python objects, which may not be released after the interpreter is gone.
Registry& registry() {
  Registry& instance = once([] { return Registry(); });
  instance.refresh();
  return instance;
}

bool is_torch(const V& value) {
  auto* array = as<ArrayValue>(value);
  return array && array->library == Library::Torch;
}

bool is_numpy(const V& value) {
  if (auto* array = as<ArrayValue>(value)) return array->library == Library::Numpy;
  auto* object = as<ObjectValue>(value);
  return object && numpy_scalar_dtype(object->object.get()).has_value();
}

/// True if torch's rules apply. A NumPy operand on the left of a tensor is decided by NumPy's __array_priority__ and
/// __array_ufunc__ protocol, which may end in either library or in TypeError: the libraries sort it out.
bool torch_decides(const V& a, const V& b) {
  if (is_torch(a)) return true;
  if (!is_torch(b)) return false;
  if (is_numpy(a)) unsupported("an operator between a NumPy array and a tensor");
  return true;
}

/// Borrowed; null: there is none.
PyObject* tensor_method(const std::string& name) {
  PyObject* const tensor = once([] { return imported("torch", "Tensor").release(); });
  const Ref<> text = Ref<>::steal(PyUnicode_InternFromString(name.c_str()));
  PyObject* found = tensor && text ? fj_type_lookup(reinterpret_cast<PyTypeObject*>(tensor), text.get()) : nullptr;
  return found && PyCallable_Check(found) ? found : nullptr;
}

Array require_array(const V& value) {
  Array array = array_of(value);
  FJ_CHECK(array, "not an array value");
  return array;
}

const Row* find_row(PyObject* callable) {
  Registry& known = registry();
  auto found = known.by_object.find(callable);
  if (found != known.by_object.end()) return &found->second;
  const std::string name = bound_name(callable);
  if (name.empty()) return nullptr;
  auto bound = known.by_bound_name.find(name);
  return bound == known.by_bound_name.end() ? nullptr : &bound->second;
}

/// `callable` is the object of a row for ever, or a method of one.
void ask_library(Tracer& tracer, Library library, Handler handler, PyObject* callable, const Arguments& arguments) {
  const std::string bound = bound_name(callable);
  const std::string address = std::to_string(reinterpret_cast<std::uintptr_t>(callable));
  require_accepted(tracer, library, handler, callable, bound.empty() ? address : bound, arguments);
}

}  // namespace

Handler find_handler(PyObject* callable) {
  const Row* row = find_row(callable);
  return row ? row->handler : nullptr;
}

void require_no_gradient(Tracer& tracer, std::size_t first) {
  const Graph& graph = tracer.graph();
  for (std::size_t i = first; i < graph.nodes.size(); ++i) {
    // Nor does a library call need a rule: it comes with its own.
    if (row(graph.nodes[i].op).lowering == Lowering::IndexMap || graph.nodes[i].op == Op::extern_call) continue;
    for (ValueId result : graph.nodes[i].results)
      if (tracer.requires_gradient(result))
        break_graph(BreakReason::Gradient, "a torch function whose derivative is left to torch");
  }
}

V run_handler(Tracer& tracer, Handler handler, const Arguments& arguments, PyObject* callable) {
  const DeviceScope scope(tracer, arguments.positional, arguments.keywords);
  const std::size_t first = tracer.graph().nodes.size();
  if (const Row* row = callable ? find_row(callable) : nullptr)
    ask_library(tracer, row->library, handler, callable, arguments);
  LibraryChoice choice(tracer);
  if (V written = callable ? torch_into(tracer, handler, arguments, callable) : nullptr) return written;
  const std::optional<Arguments> cast = torch_autocast(tracer, handler, arguments);
  const Arguments& given = cast ? *cast : arguments;
  V result = handler(tracer, given);
  choice.done();
  if (!torch_gradient_known(handler)) require_no_gradient(tracer, first);
  torch_note_saved(tracer, handler, given, result);
  if (callable && !arguments.positional.empty())
    torch_note_views(tracer, arguments.positional[0], callable,
                     {arguments.positional.begin() + 1, arguments.positional.end()}, arguments.keywords, result);
  return result;
}

ExternUse extern_use(PyObject* callable) { return torch_module() ? torch_extern_use(callable) : ExternUse::No; }

bool is_left_to_library(BreakReason reason) {
  return reason == BreakReason::UnsupportedOperation || reason == BreakReason::Gradient ||
         reason == BreakReason::DataDependentShape;
}

bool goes_on_without_row(PyObject* callable) {
  if (!std::strcmp(Py_TYPE(callable)->tp_name, "numpy._ArrayFunctionDispatcher"))
    return true;  // NumPy's own Python code
  if (find_numpy_call(callable)) return true;
  if (PyObject* torch = torch_module(); !torch || (!PyCFunction_Check(callable) && !PyFunction_Check(callable) &&
                                                   Py_TYPE(callable) != &PyMethodDescr_Type))
    return false;
  if (extern_use(callable) != ExternUse::No) return true;
  if (Py_TYPE(callable) == &PyMethodDescr_Type) return true;  // leads to array_method
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(callable, "__module__"));
  PyErr_Clear();
  const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
  return PyFunction_Check(callable) && text && std::string_view(text).substr(0, 5) == "torch";
}

namespace {

/// What the rows do not cover of torch's syntax, by torch's own operator in the program.
template <class Row>
V with_syntax_fallback(Tracer& tracer, const char* name, const std::vector<V>& operands, Row row) {
  const DeviceScope scope(tracer, operands);
  const Tracer::Mark before = tracer.mark();
  try {
    return row();
  } catch (const BreakGraph& refused) {
    if (tracer.written_since(before)) throw;
    if ((refused.reason != BreakReason::UnsupportedOperation && refused.reason != BreakReason::Gradient) ||
        name == nullptr)
      throw;
    try {
      return torch_syntax(tracer, name, operands);
    } catch (const BreakGraph& again) {
      if (again.reason != BreakReason::UnsupportedOperation) throw;
    }
    throw;
  }
}

/// By NB_ADD... NB_INPLACE_XOR.
constexpr const char* kBinaryNames[] = {"add",  "and_",      "floordiv", "lshift",   "matmul",  "mul",  "mod",
                                        "or_",  "pow",       "rshift",   "sub",      "truediv", "xor",  "iadd",
                                        "iand", "ifloordiv", "ilshift",  "imatmul",  "imul",    "imod", "ior",
                                        "ipow", "irshift",   "isub",     "itruediv", "ixor"};
/// By Py_LT... Py_GE.
constexpr const char* kCompareNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};

}  // namespace

V array_binary(Tracer& tracer, int nb_op, const V& a, const V& b) {
  if (!torch_decides(a, b)) {
    const DeviceScope scope(tracer, {a, b});
    return numpy_binary(tracer, nb_op, a, b);
  }
  return with_syntax_fallback(tracer, kBinaryNames[nb_op], {a, b}, [&] { return torch_binary(tracer, nb_op, a, b); });
}

V array_compare(Tracer& tracer, int comparison, const V& a, const V& b) {
  if (!torch_decides(a, b)) {
    const DeviceScope scope(tracer, {a, b});
    return numpy_compare(tracer, comparison, a, b);
  }
  return with_syntax_fallback(tracer, kCompareNames[comparison], {a, b},
                              [&] { return torch_compare(tracer, comparison, a, b); });
}

V array_unary(Tracer& tracer, int opcode, const V& a) {
  Array array = require_array(a);
  const DeviceScope scope(tracer, {a});
  if (!is_torch(a)) return numpy_unary(tracer, opcode, array);
  const char* name = opcode == FJ_UNARY_NEGATIVE   ? "neg"
                     : opcode == FJ_UNARY_POSITIVE ? "pos"
                     : opcode == FJ_UNARY_INVERT   ? "invert"
                                                   : nullptr;
  return with_syntax_fallback(tracer, name, {a}, [&] { return torch_unary(tracer, opcode, array); });
}

V array_get_item(Tracer& tracer, const V& array, const V& key) {
  const DeviceScope scope(tracer, {array, key});
  if (!is_torch(array)) return numpy_get_item(tracer, require_array(array), key);
  V result = with_syntax_fallback(tracer, "getitem", {array, key},
                                  [&] { return torch_get_item(tracer, require_array(array), key); });
  PyObject* const function = once([] { return imported("operator", "getitem").release(); });
  torch_note_views(tracer, array, function, {key}, {}, result);
  return result;
}

void array_set_item(Tracer& tracer, const V& array, const V& key, const V& value) {
  const DeviceScope scope(tracer, {array, key, value});
  if (!is_torch(array)) return numpy_set_item(tracer, require_array(array), key, value);
  with_syntax_fallback(tracer, "setitem", {array, key, value}, [&] {
    torch_set_item(tracer, require_array(array), key, value);
    return array;
  });
}

V array_attribute(Tracer& tracer, const V& value, std::string_view name) {
  Array array = require_array(value);
  const DeviceScope scope(tracer, {value});
  const bool torch = is_torch(value);
  if (V answer = torch ? torch_attribute(tracer, array, name) : numpy_attribute(tracer, array, name)) {
    if (torch && array_of(answer)) {
      PyObject* const function = once([] { return imported("builtins", "getattr").release(); });
      torch_note_views(tracer, value, function, {tracer.string(name)}, {}, answer);
    }
    return answer;
  }
  // Anything callable that has no row is still a method: the call decides whether it runs as an extern node or breaks.
  const auto& methods = registry().methods[int(array->library)];
  PyTypeObject* type = tracer.type_of(value);
  bool method = methods.count(std::string(name)) != 0;
  if (!method && type) {
    Ref<> text = Ref<>::steal(PyUnicode_FromStringAndSize(name.data(), Py_ssize_t(name.size())));
    PyObject* member = text ? fj_type_lookup(type, text.get()) : nullptr;
    PyErr_Clear();
    method = member && (PyCallable_Check(member) || Py_TYPE(member) == &PyMethodDescr_Type);
  }
  if (!method && torch &&
      (name == "mH" || name == "H" || name == "real" || name == "imag" || name == "T" || name == "mT"))
    return torch_builtin(tracer, "getattr", {value, tracer.string(name)});
  if (!method) unsupported("the attribute " + std::string(name) + " of an array");
  auto bound = std::make_shared<BuiltinValue>();
  bound->owner = value;
  bound->name = std::string(name);
  return bound;
}

namespace {

/// What they give is decided by the whole part.
constexpr std::string_view kRoundingMethods[] = {"__int__",   "__floor__",  "__ceil__",   "__trunc__",
                                                 "__round__", "is_integer", "__divmod__", "__rdivmod__"};

/// The method as a call of the graph. Throws `refused` if it can't be one.
V numpy_method_fallback(Tracer& tracer, const std::string& name, const Arguments& with_self,
                        const BreakGraph& refused) {
  PyObject* method = ndarray_method(name.c_str());
  if (refused.reason != BreakReason::UnsupportedOperation || !method || !find_numpy_call(method)) throw refused;
  try {
    return tracer.extern_call(tracer.constant(Ref<>::borrow(method)), with_self.positional, with_self.keywords);
  } catch (const BreakGraph& again) {
    if (again.reason != BreakReason::UnsupportedOperation) throw;
  }
  throw refused;
}

}  // namespace

V array_method(Tracer& tracer, const V& value, std::string_view name, const Arguments& arguments) {
  Array array = require_array(value);
  const DeviceScope scope(tracer, std::span(&value, 1));
  const auto& methods = registry().methods[int(array->library)];
  auto found = methods.find(std::string(name));
  if (found == methods.end() && is_torch(value)) return torch_method_fallback(tracer, array, name, arguments);
  Arguments with_self;
  with_self.positional.reserve(arguments.positional.size() + 1);
  with_self.positional.push_back(value);
  with_self.positional.insert(with_self.positional.end(), arguments.positional.begin(), arguments.positional.end());
  with_self.keywords = arguments.keywords;
  if (!is_torch(value)) {
    const Tracer::Mark before = tracer.mark();
    try {
      if (std::find(std::begin(kRoundingMethods), std::end(kRoundingMethods), name) != std::end(kRoundingMethods))
        tracer.round_as_library(value);
      if (found == methods.end()) unsupported("the method numpy.ndarray." + std::string(name));
      if (PyObject* method = ndarray_method(std::string(name).c_str()))
        ask_library(tracer, Library::Numpy, found->second, method, with_self);
      const DeviceScope all(tracer, with_self.positional, with_self.keywords);
      LibraryChoice choice(tracer);
      V result = found->second(tracer, with_self);
      choice.done();
      return result;
    } catch (const BreakGraph& refused) {
      if (tracer.written_since(before)) throw;
      return numpy_method_fallback(tracer, std::string(name), with_self, refused);
    }
  }
  const Tracer::Mark before = tracer.mark();
  try {
    PyObject* method = tensor_method(std::string(name));
    if (method) ask_library(tracer, Library::Torch, found->second, method, with_self);
    V result = run_handler(tracer, found->second, with_self);
    torch_note_views(tracer, value, method, arguments.positional, arguments.keywords, result);
    return result;
  } catch (const BreakGraph& refused) {
    if (tracer.written_since(before)) throw;
    if (!is_left_to_library(refused.reason) && refused.reason != BreakReason::RandomState) throw;
    try {
      return torch_method_fallback(tracer, array, name, arguments);
    } catch (const BreakGraph& again) {
      if (again.reason != BreakReason::UnsupportedOperation) throw;
    }
    throw;
  }
}

V array_length(Tracer& tracer, const V& value) {
  Array array = require_array(value);
  if (array->shape.empty()) refuse("len() of unsized object");
  return tracer.integer(array->shape[0]);
}

std::int64_t rows_to_unroll(Tracer& tracer, const V& value) {
  Array array = require_array(value);
  if (array->shape.empty()) refuse("iteration over a 0-d array");
  const std::int64_t count = concrete(tracer, array->shape[0]);
  // A loop over more rows than this is not worth unrolling; FOR_ITER's own loop handling compiles its body once.
  constexpr std::int64_t kUnrollLimit = 256;
  if (count > kUnrollLimit) break_graph(BreakReason::LoopTooLong, "iteration over " + std::to_string(count) + " rows");
  return count;
}

std::vector<V> array_iterate(Tracer& tracer, const V& value) {
  Array array = require_array(value);
  const DeviceScope scope(tracer, {value});
  const std::int64_t count = rows_to_unroll(tracer, value);
  std::vector<V> rows;
  for (std::int64_t i = 0; i < count; ++i)
    rows.push_back(is_torch(value) ? torch_get_item(tracer, array, tracer.integer(i))
                                   : array_get_item(tracer, value, tracer.integer(i)));
  if (is_torch(value)) torch_note_views(tracer, value, tensor_method("unbind"), {}, {}, tracer.tuple(rows));
  return rows;
}

}  // namespace fj
