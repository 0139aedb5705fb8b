/// Predictions: running a call on meta tensors, describing what came back, and remembering both under the call's
/// signature.
#include "segment/library_calls/extern_prediction.h"

#include <algorithm>
#include <unordered_map>

#include "arrays/torch_modes.h"
#include "cpython/objects.h"
#include "cpython/pending_error.h"
#include "cpython/tuples.h"
#include "runtime/base/error.h"
#include "segment/library_calls/extern_schema.h"
#include "segment/library_calls/numpy_prediction.h"

namespace fj {
namespace {

/// Forgotten all at once when it is full: predictions are cheap to make again.
constexpr std::size_t kMaximumPredictions = 20000;
constexpr int kMaximumCorrections = 3;

struct Memory {
  std::unordered_map<std::string, Prediction> by_signature;
  std::unordered_map<std::string, ExternSaved> saved;
  std::unordered_map<std::string, int> wrong_at;  // by place
  std::vector<Ref<>> alive;                       // objects whose addresses are part of signatures
};
/// Never destroyed: it owns Python objects.
Memory& memory() {
  return once([] { return Memory(); });
}

void append_address(std::string& text, PyObject* object) {
  text += std::to_string(reinterpret_cast<std::uintptr_t>(object));
}

void append(std::string& text, const ExternArgument& argument, std::span<const ExternArray> operands,
            std::span<const std::int64_t> symbols, std::vector<Ref<>>& alive) {
  switch (argument.kind) {
    case ExternArgument::Kind::Constant: {
      PyObject* object = argument.object.get();
      // A trace may have made the scalar: it is another one each time.
      if (is_plain(object) || numpy_scalar_dtype(object)) {
        Ref<> repr = Ref<>::steal(PyObject_Repr(object));
        text += Py_TYPE(object)->tp_name;
        text += text_of(repr.get());
      } else {
        append_address(text, object);
        alive.push_back(argument.object);
      }
      break;
    }
    case ExternArgument::Kind::Operand: text += "%" + std::to_string(argument.index); break;
    case ExternArgument::Kind::Size: text += "int" + std::to_string(argument.expression.evaluate(symbols)); break;
    default:
      text += argument.kind == ExternArgument::Kind::Tuple  ? "("
              : argument.kind == ExternArgument::Kind::List ? "["
                                                            : "slice(";
      for (const ExternArgument& item : argument.items) {
        append(text, item, operands, symbols, alive);
        text += ",";
      }
      text += ")";
  }
}

std::string signature(const ExternCall& call, std::span<const ExternArray> operands,
                      std::span<const std::int64_t> symbols, std::vector<Ref<>>& alive) {
  std::string text;
  append_address(text, call.callable.get());
  alive.push_back(call.callable);
  if (call.rule) append_address(text, call.rule.get());
  alive.push_back(call.rule);
  text += "@" + std::to_string(call.library == Library::Numpy ? 0 : torch_modes());
  if (call.device != kHost) text += "@" + device_text(call.device);
  for (const ExternArray& operand : operands) {
    text += ";";
    text += name(operand.dtype);
    for (std::size_t i = 0; i < operand.shape.size(); ++i)
      text += " " + std::to_string(operand.shape[i]) + "/" + std::to_string(operand.strides[i]);
  }
  for (const ExternArgument& argument : call.positional) {
    text += "|";
    append(text, argument, operands, symbols, alive);
  }
  for (auto& [name, argument] : call.keywords) {
    text += "|" + text_of(name.get()) + "=";
    append(text, argument, operands, symbols, alive);
  }
  return text;
}

std::vector<std::int64_t> numbers(PyObject* owner, const char* method) {
  Ref<> tuple = Ref<>::steal(PyObject_CallMethod(owner, method, nullptr));
  std::vector<std::int64_t> result;
  for (Py_ssize_t i = 0; tuple && PyTuple_Check(tuple.get()) && i < PyTuple_GET_SIZE(tuple.get()); ++i)
    result.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.get(), i)));
  return result;
}

std::int64_t number(Ref<> object) {
  const std::int64_t value = object ? PyLong_AsLongLong(object.get()) : -1;
  PyErr_Clear();
  return value;
}

std::int64_t attribute_number(PyObject* owner, const char* name) {
  return number(Ref<>::steal(PyObject_GetAttrString(owner, name)));
}
std::int64_t method_number(PyObject* owner, const char* name) {
  return number(Ref<>::steal(PyObject_CallMethod(owner, name, nullptr)));
}

/// Identity of a tensor's memory, also of one on the meta device.
std::int64_t storage_of(PyObject* tensor) {
  Ref<> storage = Ref<>::steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  return storage ? attribute_number(storage.get(), "_cdata") : -1;
}

/// Describes what a call on `operands` returned. Throws the reason as a string if that can't be done.
struct Reader {
  std::span<const Ref<>> operands;
  Prediction& prediction;
  std::vector<std::int64_t> storages;  // of the arrays so far

  ExternStructure read(PyObject* object) {
    ExternStructure structure;
    if (object == Py_None) return structure;
    if (array_library(object)) {
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (operands[i].get() != object) continue;
        structure.kind = ExternStructure::Kind::Operand;
        structure.index = int(i);
        return structure;
      }
      structure.kind = ExternStructure::Kind::Array;
      structure.index = int(prediction.arrays.size());
      ExternArray array;
      if (!describe_tensor(object, array)) throw std::string("returns a tensor framejit does not compile");
      const std::int64_t storage = storage_of(object);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (storage == -1 || storage_of(operands[i].get()) != storage) continue;
        array.view_of = int(i);
        // In elements of the view, which may be of another dtype.
        array.offset = method_number(object, "storage_offset") - method_number(operands[i].get(), "storage_offset") *
                                                                     method_number(operands[i].get(), "element_size") /
                                                                     method_number(object, "element_size");
        break;
      }
      array.made_as_view = array.view_of < 0 && method_number(object, "_is_view") == 1;
      if (array.view_of < 0) array.version = int(std::max<std::int64_t>(0, attribute_number(object, "_version")));
      if (array.view_of < 0 && std::find(storages.begin(), storages.end(), storage) != storages.end())
        throw std::string("returns tensors that share memory");
      storages.push_back(storage);
      prediction.arrays.push_back(std::move(array));
      return structure;
    }
    const bool list = PyList_CheckExact(object),
               named = std::string_view(Py_TYPE(object)->tp_name).substr(0, 19) == "torch.return_types.";
    if (!list && !PyTuple_CheckExact(object) && !named) throw std::string("returns ") + Py_TYPE(object)->tp_name;
    structure.kind = list ? ExternStructure::Kind::List : ExternStructure::Kind::Tuple;
    if (named) structure.type = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      structure.items.push_back(read(PySequence_Fast_GET_ITEM(object, i)));
    return structure;
  }
};

Ref<> meta_tensor(const ExternArray& array) {
  Ref<> make = Ref<>::steal(PyObject_GetAttrString(torch_module(), "empty_strided"));
  auto tuple = [](const std::vector<std::int64_t>& values) {
    Ref<> result = Ref<>::steal(PyTuple_New(Py_ssize_t(values.size())));
    for (std::size_t i = 0; result && i < values.size(); ++i)
      PyTuple_SET_ITEM(result.get(), Py_ssize_t(i), PyLong_FromLongLong(values[i]));
    return result;
  };
  Ref<> shape = tuple(array.shape), strides = tuple(array.strides), dtype = dtype_object(Library::Torch, array.dtype);
  Ref<> arguments = shape && strides ? Ref<>::steal(PyTuple_Pack(2, shape.get(), strides.get())) : Ref<>();
  Ref<> names = dtype ? Ref<>::steal(Py_BuildValue("{sOss}", "dtype", dtype.get(), "device", "meta")) : Ref<>();
  return make && arguments && names ? Ref<>::steal(PyObject_Call(make.get(), arguments.get(), names.get())) : Ref<>();
}

/// While it exists, a warning is an error, also one torch gives only once: eager is to give it. No filter that counts
/// is touched.
class WarningsAreErrors {
 public:
  WarningsAreErrors() {
    module_ = Ref<>::steal(PyImport_ImportModule("warnings"));
    if (module_) filters_ = Ref<>::steal(PyObject_GetAttrString(module_.get(), "filters"));
    Ref<> always = Ref<>::steal(Py_BuildValue("[(sOOOi)]", "error", Py_None, PyExc_Warning, Py_None, 0));
    if (filters_ && always) PyObject_SetAttrString(module_.get(), "filters", always.get());
    Ref<> was = Ref<>::steal(PyObject_CallMethod(torch_module(), "is_warn_always_enabled", nullptr));
    torch_always_ = was && was.get() == Py_True;
    if (!torch_always_) Ref<>::steal(PyObject_CallMethod(torch_module(), "set_warn_always", "O", Py_True));
    PyErr_Clear();
  }
  ~WarningsAreErrors() {
    const PendingError pending;
    if (filters_) PyObject_SetAttrString(module_.get(), "filters", filters_.get());
    if (!torch_always_) Ref<>::steal(PyObject_CallMethod(torch_module(), "set_warn_always", "O", Py_False));
  }
  WarningsAreErrors(const WarningsAreErrors&) = delete;

 private:
  Ref<> module_, filters_;
  bool torch_always_ = false;
};

/// A function of framejit._support.meta. Null, with no error set, where it can't be had.
Ref<> of_meta(const char* name) {
  Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._support.meta"));
  Ref<> found = module ? Ref<>::steal(PyObject_GetAttrString(module.get(), name)) : Ref<>();
  PyErr_Clear();
  return found;
}

/// While it exists, torch's functions on meta tensors don't import torch's own compiler, which takes them a second.
class CompilerLeftOut {
 public:
  CompilerLeftOut() {
    if (Ref<> leave = of_meta("leave_compiler_out")) functions_ = Ref<>::steal(PyObject_CallNoArgs(leave.get()));
    PyErr_Clear();
  }
  ~CompilerLeftOut() {
    if (!functions_) return;
    const PendingError pending;
    if (Ref<> let = of_meta("let_compiler_in"))
      Ref<>::steal(PyObject_CallFunctionObjArgs(let.get(), functions_.get(), nullptr));
  }
  CompilerLeftOut(const CompilerLeftOut&) = delete;

 private:
  Ref<> functions_;
};

/// A call with meta tensors in the place of its operands. Throws the reason as a string.
struct MetaCall {
  CompilerLeftOut compiler;
  std::vector<Ref<>> operands;
  Ref<> positional, keywords;

  MetaCall(const ExternCall& call, std::span<const ExternArray> arrays, std::span<const std::int64_t> symbols) {
    // torch's autocast of the CPU passes meta tensors by.
    const std::optional<DType> narrow = extern_effects(call.name).autocast ? torch_autocast_dtype() : std::nullopt;
    for (ExternArray array : arrays) {
      if (narrow && array.dtype == DType::F32) array.dtype = *narrow;
      operands.push_back(meta_tensor(array));
      if (!operands.back()) throw take_error();
    }
    std::vector<Ref<>> given;
    for (const ExternArgument& argument : call.positional) {
      given.push_back(extern_argument(argument, operands, symbols));
      if (!given.back()) throw take_error();
    }
    positional = tuple_of(given);
    keywords = Ref<>::steal(PyDict_New());
    for (auto& [name, argument] : call.keywords) {
      const std::string text = text_of(name.get());
      // Nothing is drawn from a generator; one of the CPU would be refused.
      if (text == "generator" || text == "device") continue;
      Ref<> made = extern_argument(argument, operands, symbols);
      if (!made || PyDict_SetItem(keywords.get(), name.get(), made.get()) < 0) throw take_error();
    }
    if (arrays.empty()) {
      Ref<> device = Ref<>::steal(PyUnicode_FromString("meta"));
      PyDict_SetItemString(keywords.get(), "device", device.get());
    }
  }
};

}  // namespace

Ref<> call_on_tensors(PyObject* callable, PyObject* positional, PyObject* keywords) {
  // Tensors of inference mode have no version counters, which tell what was written.
  const InferenceMode left(torch_modes() & torch_mode_bits::kInference, false);
  const WarningsAreErrors guard;
  return Ref<>::steal(PyObject_Call(callable, positional, keywords));
}

namespace {

/// What the row of framejit._support.meta.rules for the function gives. Null: there is none, or it does not say.
Ref<> by_rule(const ExternCall& call, const MetaCall& meta) {
  const Ref<> rules = call.device == kHost ? of_meta("rules") : Ref<>();
  PyObject* const rule = rules ? PyDict_GetItemString(rules.get(), call.name.c_str()) : nullptr;
  Ref<> result = rule ? call_on_tensors(rule, meta.positional.get(), meta.keywords.get()) : Ref<>();
  PyErr_Clear();
  return result && result.get() != Py_NotImplemented ? std::move(result) : Ref<>();
}

Prediction run_on_meta(const ExternCall& call, std::span<const ExternArray> operands,
                       std::span<const std::int64_t> symbols) {
  Prediction prediction;
  try {
    // Tensors of inference mode have no version counters, which tell what was written.
    const InferenceMode left(torch_modes() & torch_mode_bits::kInference, false);
    const MetaCall meta(call, operands, symbols);
    const std::vector<Ref<>>& metas = meta.operands;
    std::vector<std::int64_t> versions;
    for (const Ref<>& tensor : metas) versions.push_back(attribute_number(tensor.get(), "_version"));
    Ref<> returned = by_rule(call, meta);
    PyObject* const callable = call.rule ? call.rule.get() : call.callable.get();
    if (!returned) returned = call_on_tensors(callable, meta.positional.get(), meta.keywords.get());
    if (!returned) throw take_error();
    for (std::size_t i = 0; i < metas.size(); ++i) {
      prediction.version_moves.push_back(int(attribute_number(metas[i].get(), "_version") - versions[i]));
      ExternArray now;
      if (!describe_tensor(metas[i].get(), now) || now.shape != operands[i].shape || now.strides != operands[i].strides)
        throw std::string("changes the sizes of its argument");
    }
    Reader reader{metas, prediction, {}};
    prediction.structure = reader.read(returned.get());
  } catch (const std::string& why) {
    PyErr_Clear();
    prediction.refusal = why.empty() ? "no reason given" : why;
  }
  return prediction;
}

/// What a function of framejit._support.autograd says of the call on meta tensors. Throws the reason as a string.
Ref<> ask(const char* question, const ExternCall& call, std::span<const ExternArray> operands,
          std::span<const std::int64_t> symbols, std::span<const std::int64_t> derived) {
  const InferenceMode left(torch_modes() & torch_mode_bits::kInference, false);
  const MetaCall meta(call, operands, symbols);
  Ref<> tensors = Ref<>::steal(PyTuple_New(Py_ssize_t(meta.operands.size()))),
        wanted = Ref<>::steal(PyTuple_New(Py_ssize_t(derived.size())));
  for (std::size_t i = 0; i < meta.operands.size(); ++i)
    PyTuple_SET_ITEM(tensors.get(), Py_ssize_t(i), Py_NewRef(meta.operands[i].get()));
  for (std::size_t i = 0; i < derived.size(); ++i)
    PyTuple_SET_ITEM(wanted.get(), Py_ssize_t(i), PyLong_FromLongLong(derived[i]));
  Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._support.autograd")), answer;
  if (module) {
    const WarningsAreErrors guard;
    answer = Ref<>::steal(PyObject_CallMethod(module.get(), question, "OOOOO", call.callable.get(), tensors.get(),
                                              wanted.get(), meta.positional.get(), meta.keywords.get()));
  }
  if (!answer) throw take_error();
  return answer;
}

std::vector<ExternPath> read_paths(const char* text) {
  std::vector<ExternPath> paths;
  for (; *text; ++text)
    paths.push_back(*text == 'g' ? ExternPath::Gradient : *text == 'r' ? ExternPath::Required : ExternPath::None);
  return paths;
}

/// Where torch does not say: that something is saved, but not what.
ExternSaved ask_saved(const ExternCall& call, std::span<const ExternArray> operands,
                      std::span<const std::int64_t> symbols, std::span<const std::int64_t> derived) {
  ExternSaved saved;
  try {
    const Ref<> found = ask("saved_of", call, operands, symbols, derived);
    const char *of_operands = nullptr, *of_results = nullptr, *paths = nullptr;
    int any = 0;
    if (!PyArg_ParseTuple(found.get(), "ssps", &of_operands, &of_results, &any, &paths)) throw take_error();
    saved.any = any != 0;
    for (; *of_operands; ++of_operands)
      saved.operands.push_back(*of_operands == 'r'   ? ExternSaved::Read
                               : *of_operands == 'c' ? ExternSaved::Copied
                                                     : ExternSaved::Unread);
    for (; *of_results; ++of_results) saved.results.push_back(*of_results == 'r');
    saved.paths = read_paths(paths);
  } catch (const std::string&) {
    PyErr_Clear();
    saved = ExternSaved{};
    saved.any = true;
  }
  return saved;
}

bool same(const ExternArray& a, const ExternArray& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.view_of != b.view_of || a.offset != b.offset) return false;
  return a.strides == b.strides || std::find(a.shape.begin(), a.shape.end(), 0) != a.shape.end();
}

}  // namespace

bool is_dense(std::vector<std::pair<std::int64_t, std::int64_t>> axes) {
  std::sort(axes.begin(), axes.end());
  if (std::any_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.second == 0; })) return true;
  std::int64_t expected = 1;
  for (auto [stride, size] : axes) {
    if (size == 1) continue;
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

bool describe_tensor(PyObject* tensor, ExternArray& array) {
  // torch.strided only; sparse tensors have no strides.
  Ref<> layout = Ref<>::steal(PyObject_GetAttrString(tensor, "layout"));
  Ref<> strided = Ref<>::steal(PyObject_GetAttrString(torch_module(), "strided"));
  Ref<> dtype_value = Ref<>::steal(PyObject_GetAttrString(tensor, "dtype"));
  const auto dtype = dtype_value ? dtype_from_object(dtype_value.get()) : std::nullopt;
  PyErr_Clear();
  if (!dtype || layout.get() != strided.get()) return false;
  array.dtype = *dtype;
  array.shape = numbers(tensor, "size");
  array.strides = numbers(tensor, "stride");
  PyErr_Clear();
  return true;
}

Ref<> extern_argument(const ExternArgument& argument, std::span<const Ref<>> operands,
                      std::span<const std::int64_t> symbols) {
  switch (argument.kind) {
    case ExternArgument::Kind::Constant: return argument.object;
    case ExternArgument::Kind::Held: return {};  // known to the host alone
    case ExternArgument::Kind::Operand: return operands[std::size_t(argument.index)];
    case ExternArgument::Kind::Size: return Ref<>::steal(PyLong_FromLongLong(argument.expression.evaluate(symbols)));
    case ExternArgument::Kind::Tuple:
    case ExternArgument::Kind::List: {
      std::vector<Ref<>> items;
      for (const ExternArgument& item : argument.items) {
        items.push_back(extern_argument(item, operands, symbols));
        if (!items.back()) return {};
      }
      return argument.kind == ExternArgument::Kind::Tuple ? tuple_of(items) : list_of(items);
    }
    case ExternArgument::Kind::Slice: {
      Ref<> part[3];
      for (std::size_t i = 0; i < 3; ++i)
        if (!(part[i] = extern_argument(argument.items[i], operands, symbols))) return {};
      return Ref<>::steal(PySlice_New(part[0].get(), part[1].get(), part[2].get()));
    }
  }
  return {};
}

const Prediction& predict(const ExternCall& call, std::span<const ExternArray> operands,
                          std::span<const std::int64_t> symbols) {
  Memory& known = memory();
  std::vector<Ref<>> alive;
  std::string text = signature(call, operands, symbols, alive);
  if (auto found = known.by_signature.find(text); found != known.by_signature.end()) return found->second;
  if (known.by_signature.size() >= kMaximumPredictions) {
    known.by_signature.clear();
    known.saved.clear();
    known.alive.clear();
  }
  known.alive.insert(known.alive.end(), alive.begin(), alive.end());
  Prediction made =
      call.library == Library::Numpy ? try_numpy(call, operands, symbols) : run_on_meta(call, operands, symbols);
  return known.by_signature.emplace(std::move(text), std::move(made)).first->second;
}

const ExternSaved& saved_by(const ExternCall& call, std::span<const ExternArray> operands,
                            std::span<const std::int64_t> symbols, std::span<const std::int64_t> derived) {
  predict(call, operands, symbols);  // keeps alive what the signature names
  std::vector<Ref<>> alive;
  std::string text = signature(call, operands, symbols, alive);
  for (std::int64_t operand : derived) text += "'" + std::to_string(operand);
  auto [known, fresh] = memory().saved.try_emplace(std::move(text));
  if (fresh) known->second = ask_saved(call, operands, symbols, derived);
  return known->second;
}

std::vector<ExternPath> paths_of(const ExternCall& call, std::span<const ExternArray> operands,
                                 std::span<const std::int64_t> symbols, std::span<const std::int64_t> derived) {
  try {
    const Ref<> found = ask("paths_of", call, operands, symbols, derived);
    const char* text = PyUnicode_AsUTF8(found.get());
    if (text) return read_paths(text);
  } catch (const std::string&) {
  }
  PyErr_Clear();
  return {};
}

bool observe(const ExternCall& call, std::span<const ExternArray> operands, std::span<const std::int64_t> symbols,
             std::span<const Ref<>> arrays, PyObject* returned) {
  Prediction seen;
  if (call.library == Library::Numpy) {
    predict(call, operands, symbols);
    std::vector<Ref<>> alive;
    memory().by_signature.at(signature(call, operands, symbols, alive)).refusal =
        call.rule ? "returns what the rule for its result does not say"
                  : "returns what depends on data in its sizes or kinds";
    ++memory().wrong_at[call.place + call.name];
    return true;
  }
  try {
    Reader reader{arrays, seen, {}};
    seen.structure = reader.read(returned);
  } catch (const std::string& why) {
    PyErr_Clear();
    return false;
  }
  predict(call, operands, symbols);  // has a place in the memory now
  std::vector<Ref<>> alive;
  Prediction& known = memory().by_signature.at(signature(call, operands, symbols, alive));
  if (known.refusal.empty() && known.arrays.size() == seen.arrays.size() &&
      std::equal(known.arrays.begin(), known.arrays.end(), seen.arrays.begin(), same)) {
    ++memory()
          .wrong_at[call.place + call.name];  // right for these sizes: what was wrong is how they were taken to vary
    return true;
  }
  seen.version_moves = known.version_moves;
  seen.observed = true;
  seen.corrections = known.corrections + 1;
  if (seen.corrections > kMaximumCorrections) seen.refusal = "returns tensors whose sizes or strides depend on data";
  known = std::move(seen);
  return true;
}

bool is_unpredictable(const ExternCall& call) {
  auto found = memory().wrong_at.find(call.place + call.name);
  return found != memory().wrong_at.end() && found->second > kMaximumCorrections;
}

}  // namespace fj
