/// Stand-ins for the arguments of one call, the call, and the memory of its answer. Start at require_accepted.
#include "tracer/frontends/acceptance.h"

#include <algorithm>
#include <unordered_map>

#include "cpython/pending_error.h"
#include "cpython/tuples.h"
#include "segment/library_calls/extern_prediction.h"
#include "segment/library_calls/numpy_prediction.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/torch/torch.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/nesting.h"

namespace fj {
namespace {

/// The functions compute: elements of a stand-in, and of what numbers among the arguments may ask for.
constexpr std::int64_t kMostElements = 4096;
/// Forgotten all at once when it is full.
constexpr std::size_t kMostAnswers = 20000;

/// What the library looks at can't be told, or calls code that is not the library's.
struct NotAsked {};

/// A tensor of this layout. Beside the first one it is full of zeros, which are places in any other; else of ones. (Of
/// the meta device it would need no memory, but many kernels there are Python code, which torch imports with its
/// compiler: 2 s at the first call.) Null with an error set.
Ref<> torch_stand_in(const ExternArray& array, bool first) {
  std::int64_t reach = 1;
  Ref<> shape = Ref<>::steal(PyTuple_New(Py_ssize_t(array.shape.size())));
  Ref<> strides = Ref<>::steal(PyTuple_New(Py_ssize_t(array.shape.size())));
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    reach += std::max<std::int64_t>(array.shape[i] - 1, 0) * array.strides[i];
    PyTuple_SET_ITEM(shape.get(), Py_ssize_t(i), PyLong_FromLongLong(array.shape[i]));
    PyTuple_SET_ITEM(strides.get(), Py_ssize_t(i), PyLong_FromLongLong(array.strides[i]));
  }
  const Ref<> make = torch_object(first ? "ones" : "zeros"), dtype = dtype_object(Library::Torch, array.dtype);
  const Ref<> size = Ref<>::steal(Py_BuildValue("(L)", static_cast<long long>(reach)));
  const Ref<> names = dtype ? Ref<>::steal(Py_BuildValue("{sOss}", "dtype", dtype.get(), "device", "cpu")) : Ref<>();
  if (!make || !size || !names) return {};
  const Ref<> memory = Ref<>::steal(PyObject_Call(make.get(), size.get(), names.get()));
  if (!memory) return {};
  return Ref<>::steal(PyObject_CallMethod(memory.get(), "as_strided", "OO", shape.get(), strides.get()));
}

/// The arguments of a call as objects, and a text that two calls have in common if the library tells them apart by
/// contents alone.
struct StandIns {
  Tracer& tracer;
  const Library library;
  const bool making;         // false: the text alone
  std::string key;
  Ref<> positional = Ref<>::steal(PyTuple_New(0)), keywords = Ref<>::steal(PyDict_New());
  std::vector<std::int64_t> hints;
  std::unordered_map<const Value*, Ref<>> arrays;
  bool only_arrays = true;   // no argument is anything else
  bool others = false;       // contents of arrays beside the first argument, or of numbers, may decide
  bool late = false;         // a size is a guess
  bool smaller = false;      // sizes are not the arrays' own
  std::int64_t asked = 1;    // the product of all whole numbers among the arguments

  /// Throws NotAsked.
  StandIns(Tracer& tracer, Library library, const Arguments& arguments, bool making)
      : tracer(tracer), library(library), making(making) {
    hints = symbol_hints(tracer.graph().symbols);
    std::vector<Ref<>> given;
    for (const V& value : arguments.positional) given.push_back(required(of(value)));
    positional = tuple_of(given);
    for (const auto& [name, value] : arguments.keywords) {
      key += ";" + name;
      Ref<> object = required(of(value));
      // The stand-ins are the host's.
      if (library == Library::Torch && name == "device" && object.get() != Py_None)
        object = Ref<>::steal(PyUnicode_FromString("cpu"));
      PyDict_SetItemString(keywords.get(), name.c_str(), object.get());
    }
  }

  static Ref<> required(Ref<> object) {
    if (object) return object;
    PyErr_Clear();
    throw NotAsked();
  }

  void multiply(std::int64_t number) {
    number = std::abs(number);
    if (number > 1) asked = number > kMostElements ? kMostElements + 1 : std::min(asked * number, kMostElements + 1);
  }

  Ref<> of_array(const ArrayValue& array) {
    // A scalar of NumPy's is a number to torch as well.
    if (array.library != library && !array.numpy_scalar) throw NotAsked();
    key += array.numpy_scalar ? "s" : "a";
    key += name(array.dtype);
    ExternArray about{array.dtype, {}, {}};
    for (const SymDim& size : array.shape) about.shape.push_back(size.evaluate(hints));
    for (const SymDim& stride : array.strides) about.strides.push_back(stride.evaluate(hints));
    for (std::size_t i = 0; i < about.shape.size(); ++i)
      key += " " + std::to_string(about.shape[i]) + "/" + std::to_string(about.strides[i]);
    for (const SymDim& size : array.shape) late = late || tracer.graph().is_late(size);
    const bool first = arrays.empty();
    if (library == Library::Numpy && !first && !arrays.count(&array)) others = true;
    auto [known, fresh] = arrays.try_emplace(&array);
    if (!fresh) return known->second;
    key += "'";
    if (!making) return known->second = Ref<>::borrow(Py_None);
    if (array.numpy_scalar) {
      const Ref<> dtype = dtype_object(Library::Numpy, array.dtype);
      const Ref<> type = dtype ? Ref<>::steal(PyObject_GetAttrString(dtype.get(), "type")) : Ref<>();
      others = true;
      return known->second = type ? Ref<>::steal(PyObject_CallNoArgs(type.get())) : Ref<>();
    }
    std::int64_t reach = 1, most = kMostElements;
    for (std::size_t i = 0; i < about.shape.size(); ++i)
      reach += std::max<std::int64_t>(about.shape[i] - 1, 0) * std::abs(about.strides[i]);
    if (reach > kMostElements) {
      smaller = true;
      // Sizes that are equal stay equal; of 0 and of 1 they stay what they are.
      auto elements = [&] {
        std::int64_t count = 1;
        for (std::int64_t size : about.shape) count = std::min(kMostElements + 1, count * std::min(size, most));
        return count;
      };
      while (most > 2 && elements() > kMostElements) most /= 2;
      std::int64_t stride = 1;
      for (std::size_t i = about.shape.size(); i-- > 0;) {
        about.shape[i] = std::min(about.shape[i], most);
        about.strides[i] = stride;
        stride *= std::max<std::int64_t>(about.shape[i], 1);
      }
      if (stride > kMostElements) throw NotAsked();
    }
    return known->second = library == Library::Numpy ? numpy_stand_in(about, true) : torch_stand_in(about, first);
  }

  Ref<> of_object(PyObject* object) {
    const std::string_view type = Py_TYPE(object)->tp_name;
    const bool of_library = type.starts_with("torch.") || type.starts_with("numpy.");
    const bool static_class =
        PyType_Check(object) && !(reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    // A generator would be moved on; anything else that is called is the program's.
    if (type == "torch.Generator" || PyCallable_Check(object) != static_class) throw NotAsked();
    if (array_library(object)) throw NotAsked();
    if (!is_plain(object) && !of_library && !static_class) throw NotAsked();
    if (PyLong_CheckExact(object)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
      multiply(overflow ? kMostElements + 1 : std::max<long long>(number, -kMostElements));
    }
    const Ref<> repr = required(Ref<>::steal(PyObject_Repr(object)));
    key += type;
    key += text_of(repr.get());
    return Ref<>::borrow(object);
  }

  Ref<> of(const V& value) {
    key += ",";
    if (auto* array = as<ArrayValue>(value)) return of_array(*array);
    only_arrays = false;
    switch (value->kind) {
      case ValueKind::Object: return of_object(as<ObjectValue>(value)->object.get());
      case ValueKind::SymInt: {
        const std::int64_t now = as<SymIntValue>(value)->expression.evaluate(hints);
        late = late || tracer.graph().is_late(as<SymIntValue>(value)->expression);
        multiply(now);
        key += "int" + std::to_string(now);
        return Ref<>::steal(PyLong_FromLongLong(now));
      }
      case ValueKind::Number: {
        others = true;
        const DType dtype = as<NumberValue>(value)->dtype;
        key += "number";
        key += name(dtype);
        if (dtype == DType::Bool) return Ref<>::borrow(Py_True);
        if (dtype == DType::I64) return Ref<>::steal(PyLong_FromLong(1));
        return dtype == DType::F64 ? Ref<>::steal(PyFloat_FromDouble(1)) : throw NotAsked();
      }
      case ValueKind::Set: {
        key += "set";
        return Ref<>::borrow(as<SetValue>(value)->real.get());
      }
      case ValueKind::Slice: {
        auto& slice = *as<SliceValue>(value);
        Ref<> part[3] = {of(slice.start), of(slice.stop), of(slice.step)};
        return Ref<>::steal(PySlice_New(part[0].get(), part[1].get(), part[2].get()));
      }
      case ValueKind::Tuple: case ValueKind::List: return of_sequence(value);
      default: throw NotAsked();
    }
  }

  Ref<> of_sequence(const V& value) {
    constexpr std::size_t kMostItems = 64;
    const Nesting nesting;
    const bool tuple = value->kind == ValueKind::Tuple;
    // Of a list from outside nobody may have asked for the items; a row that reads numbers has its own way.
    if (auto* list = dynamic_cast<ListValue*>(value.get()); list && (list->unopened || list->type)) throw NotAsked();
    if (auto* known = as<TupleValue>(value); known && known->view_of) throw NotAsked();
    const std::vector<V> items = tracer.sequence_items(value);
    if (items.size() > kMostItems && !as<ArrayValue>(items[0])) throw NotAsked();
    key += tuple ? "(" : "[";
    std::vector<Ref<>> made;
    for (const V& item : items) made.push_back(required(of(item)));
    key += ")";
    return tuple ? tuple_of(made) : list_of(made);
  }
};

/// Takes the error that is set: "" if it says nothing of the arguments as such.
std::string refusal(const StandIns& made) {
  bool counts = PyErr_ExceptionMatches(PyExc_TypeError) ||
                std::string_view(reinterpret_cast<PyTypeObject*>(PyErr_Occurred())->tp_name).ends_with("AxisError");
  // Other errors may be about contents and sizes that are not the arrays' own.
  counts = counts || (!made.others && !made.late && !made.smaller && !PyErr_ExceptionMatches(PyExc_Warning));
  const std::string text = take_error();
  return counts && text.find("ZeroDivisionError") == std::string::npos ? text : "";
}

std::string ask(const StandIns& made, PyObject* callable) {
  const auto call = made.library == Library::Torch ? call_on_tensors : try_on_stand_ins;
  // A function that draws random numbers draws them from torch's own generator.
  const Ref<> generator = made.library == Library::Torch ? torch_object("default_generator") : Ref<>();
  const Ref<> state = generator ? Ref<>::steal(PyObject_CallMethod(generator.get(), "get_state", nullptr)) : Ref<>();
  const Ref<> returned = call(callable, made.positional.get(), made.keywords.get());
  if (state) {
    const PendingError pending;
    Ref<>::steal(PyObject_CallMethod(generator.get(), "set_state", "O", state.get()));
  }
  return returned ? "" : refusal(made);
}

/// What these do is no function of their arguments alone.
bool is_asked(Handler handler) {
  static constexpr Handler kLeftOut[] = {torch_backward,      torch_autograd_backward, torch_autograd_grad,
                                         torch_requires_grad, torch_parameter,         torch_cuda,
                                         torch_no_override};
  return std::find(std::begin(kLeftOut), std::end(kLeftOut), handler) == std::end(kLeftOut);
}

/// Refused by contents of the second argument, which stand-ins do not have: the lengths of packed sequences.
bool is_packed(Handler handler, const Arguments& arguments) {
  if (handler == torch_pack_padded_sequence || handler == torch_pad_packed_sequence) return true;
  const bool recurrent =
      handler == torch_lstm || handler == torch_gru || handler == torch_rnn_tanh || handler == torch_rnn_relu;
  return recurrent && arguments.positional.size() > 1 && array_of(arguments.positional[1]) &&
         array_of(arguments.positional[1])->dtype == DType::I64;
}

/// Never destroyed: a thread may still trace when the process ends.
std::unordered_map<std::string, std::string>& answers() {
  static auto* instance = new std::unordered_map<std::string, std::string>;
  return *instance;
}

}  // namespace

/// A scalar of NumPy's has the methods of an array under descriptors of its own: the array's refuse it.
static bool is_scalars_method(PyObject* callable, const Arguments& arguments) {
  if (!PyObject_TypeCheck(callable, &PyMethodDescr_Type) || arguments.positional.empty()) return false;
  const V& self = arguments.positional[0];
  return self->kind == ValueKind::Array && as<ArrayValue>(self)->numpy_scalar;
}

void require_accepted(Tracer& tracer, Library library, Handler handler, PyObject* callable, const std::string& identity,
                      const Arguments& arguments) {
  if (!is_asked(handler) || is_packed(handler, arguments) || is_scalars_method(callable, arguments)) return;
  try {
    const StandIns text(tracer, library, arguments, false);
    if (text.only_arrays && !text.arrays.empty() && arguments.keywords.empty()) return;
    if (text.asked > kMostElements) return;
    if (library == Library::Torch && text.arrays.empty() && extern_use(callable) != ExternUse::Always) return;
    auto& known = answers();
    if (known.size() >= kMostAnswers) known.clear();
    const std::string key = identity + "@" + std::to_string(library == Library::Numpy ? 0 : torch_modes()) + text.key;
    auto found = known.find(key);
    // Asking runs Python code, which may let another thread ask.
    const std::string answer =
        found != known.end() ? found->second : ask(StandIns(tracer, library, arguments, true), callable);
    if (found == known.end()) known.emplace(key, answer);
    if (!answer.empty()) unsupported(kRefused + answer);
  } catch (NotAsked) {
  }
}

}  // namespace fj
