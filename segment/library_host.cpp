// Allocation by library, and library calls inside a program.
//
// A library call is trusted as far as it can be checked: its results must have the structure, dtype, sizes and strides
// predicted while tracing, be ordinary arrays that need no gradient, and own memory that nobody else has, since the
// program will write into it or return it as its own. Where it differs from the prediction, that is corrected
// (extern_prediction.h).
#include "segment/library_host.h"

#include <algorithm>
#include <map>
#include <vector>

#include "arrays/numpy_arrays.h"
#include "arrays/torch_arrays.h"
#include "arrays/torch_modes.h"
#include "cpython/objects.h"
#include "cpython/pending_error.h"
#include "cpython/signals.h"
#include "guards/check_program.h"
#include "runtime/base/error.h"
#include "runtime/base/status.h"
#include "runtime/device.h"
#include "segment/library_calls/collective_versions.h"
#include "segment/library_calls/extern_prediction.h"

namespace fj {
namespace {

/// Text of the error that is set, which is cleared. The call is repeated in CPython, which must see an interrupt too.
std::string take_call_error() {
  const bool interrupted = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
  const std::string text = take_error();
  if (interrupted) PyErr_SetInterrupt();
  return text.empty() ? "no reason given" : text;
}

/// "" if `object` is what was predicted.
std::string difference(PyObject* object, const ExternResult& expected, const ExternCall& call,
                       std::span<const std::int64_t> symbols, ArrayView& view) {
  if (!array_library(object)) return std::string("it returned a ") + Py_TYPE(object)->tp_name;
  // Lazily conjugated or negated, sparse, ... arrays have memory that does not hold their values.
  if (std::string unsupported = describe(object).unsupported; !unsupported.empty())
    return "it returned a " + unsupported;
  if (!guard_program::read_any_array(object, view)) return "its result can't be read";
  if (view.device != call.device) return "its result is a tensor of device " + device_text(view.device);
  // A view says what its base does, also where nothing is recorded.
  if (view.requires_grad && expected.view_of < 0) return "its result needs a gradient";
  if (view.dtype != expected.dtype)
    return "its result is " + std::string(name(view.dtype)) + ", predicted " + std::string(name(expected.dtype));
  auto shape = evaluate(expected.shape, symbols), strides = evaluate(expected.strides, symbols);
  bool same = std::size_t(view.rank) == shape.size() && std::equal(shape.begin(), shape.end(), view.shape);
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (std::size_t i = 0; same && !empty && i < shape.size(); ++i)
    same = view.strides[i] == strides[i] * view.stride_unit || (call.derivative && shape[i] == 1);
  return same ? "" : "its result has other sizes or strides than predicted";
}

bool describe_operand(PyObject* array, Library library, ExternArray& described) {
  if (library == Library::Torch) return describe_tensor(array, described);
  const ArrayInfo info = describe(array);
  described.dtype = info.dtype;
  described.shape.assign(info.shape.begin(), info.shape.end());
  described.strides.assign(info.strides.begin(), info.strides.end());
  return info.unsupported.empty();
}

}  // namespace

namespace {

/// torch's autocast of the CPU as the call wants it, put back afterwards. Nothing is kept in its cache.
class Autocast {
 public:
  explicit Autocast(const ExternCall& call) {
    if (!call.autocast) return;
    enabled_ = get("is_autocast_enabled", "cpu");
    dtype_ = get("get_autocast_dtype", "cpu");
    cache_ = get("is_autocast_cache_enabled", nullptr);
    set("set_autocast_enabled", *call.autocast ? Py_True : Py_False);
    set("set_autocast_dtype", call.autocast_dtype.get());
    set_cache(Py_False);
  }
  ~Autocast() {
    if (!enabled_) return;
    const PendingError pending;
    set("set_autocast_enabled", enabled_.get());
    set("set_autocast_dtype", dtype_.get());
    set_cache(cache_.get());
  }
  Autocast(const Autocast&) = delete;

 private:
  static Ref<> get(const char* name, const char* device) {
    Ref<> answer = Ref<>::steal(device ? PyObject_CallMethod(torch_module(), name, "s", device)
                                       : PyObject_CallMethod(torch_module(), name, nullptr));
    PyErr_Clear();
    return answer;
  }
  static void set(const char* name, PyObject* value) {
    Ref<>::steal(PyObject_CallMethod(torch_module(), name, "sO", "cpu", value));
    PyErr_Clear();
  }
  static void set_cache(PyObject* value) {
    Ref<>::steal(PyObject_CallMethod(torch_module(), "set_autocast_cache_enabled", "O", value));
    PyErr_Clear();
  }
  Ref<> enabled_, dtype_, cache_;
};

}  // namespace

bool SegmentHost::fail(std::string why) {
  failure_ = std::move(why);
  return false;
}

bool SegmentHost::unlock() {
  if (!shares_) return false;
  unlocked_ = true;
  thread_ = fj_release_gil();
  return true;
}

bool SegmentHost::may_write() {
  if (!asks_) return true;
  // Once it has written, what it has seen before that stands: as in eager's operations, others come before or after.
  const bool written = std::exchange(writes_, true);
  if (!std::exchange(unlocked_, false) || asks_() || written) return true;
  disturbed_ = true;
  return fail("an object that it reads was changed while it ran");
}

void SegmentHost::lock() { fj_take_gil(std::exchange(thread_, nullptr)); }

bool SegmentHost::handles_signals() const { return fj_handles_signals(); }

bool SegmentHost::interrupted() {
  // What has been called and must not be again stands before the handler, in the user's order.
  if (!past_.empty()) return false;
  // A handler may change what the piece has read and is to write: it runs when nothing of the piece has happened.
  if (!shares_) return waits_ = PyOS_InterruptOccurred() != 0;
  if (PyErr_CheckSignals() == 0) return false;
  interrupt_ = Ref<>::steal(fj_take_exception());
  return true;
}

Ref<> SegmentHost::take_interrupt() {
  if (std::exchange(waits_, false)) {
    PyErr_SetInterrupt();
    if (PyErr_CheckSignals() != 0) interrupt_ = Ref<>::steal(fj_take_exception());
  }
  return std::move(interrupt_);
}

ArrayRef SegmentHost::allocate(int output, DType dtype, std::span<const std::int64_t> shape,
                               std::span<const std::int64_t> strides) {
  Library library = Library::Torch;
  if (output >= 0 && std::size_t(output) < output_library_.size()) {
    library = output_library_[std::size_t(output)];
  } else if (externs_) {
    library = externs_->operand_library;
  }
  const bool inference = inference_outputs_ && output >= 0 && std::size_t(output) < inference_outputs_->size() &&
                         (*inference_outputs_)[std::size_t(output)];
  const InferenceMode mode(inference, true);
  Ref<> array = fj::allocate(device_ == kHost ? library : Library::Torch, dtype, shape, strides, device_);
  if (!array) {
    fail("no memory for a result: " + take_call_error());
    return {};
  }
  void* data = data_pointer(array.get());
  if (!data && std::find(shape.begin(), shape.end(), 0) == shape.end()) {
    fail("a result whose memory is not found");
    return {};
  }
  return {data, array.release()};
}

ArrayRef SegmentHost::allocate_zeros(int output, DType dtype, std::span<const std::int64_t> shape,
                                     std::span<const std::int64_t> strides) {
  const bool of_numpy = output >= 0 && std::size_t(output) < output_library_.size() &&
                        output_library_[std::size_t(output)] == Library::Numpy;
  Ref<> array = of_numpy && device_ == kHost ? zeros_of_numpy(dtype, shape, strides) : Ref<>();
  PyErr_Clear();
  if (!array) return {};
  void* data = data_pointer(array.get());
  return {data, array.release()};
}

ArrayRef SegmentHost::view(const ArrayRef& array, DType dtype, std::span<const std::int64_t> shape,
                           std::span<const std::int64_t> strides, std::int64_t offset) {
  const GradMode mode(false);  // a view of memory, not of what autograd knows of
  Ref<> made = view_of(static_cast<PyObject*>(array.object), dtype, shape, strides, offset);
  if (!made) {
    fail("a view of an operand could not be made: " + take_call_error());
    return {};
  }
  return {data_pointer(made.get()), made.release()};
}

// A type whose methods are C functions: Python's own would run signal handlers, whose exceptions have no place here,
// and other threads, in the middle of a program.
void* SegmentHost::begin_range(const std::string& name) {
  PyObject* const type = once([] { return torch_attribute({"_C", "_profiler", "_RecordFunctionFast"}); });
  const Ref<> text = Ref<>::steal(PyUnicode_DecodeUTF8(name.data(), Py_ssize_t(name.size()), "replace"));
  Ref<> range = type && text ? Ref<>::steal(PyObject_CallOneArg(type, text.get())) : Ref<>();
  if (!range || !Ref<>::steal(PyObject_CallMethod(range.get(), "__enter__", nullptr))) {
    PyErr_Clear();  // a profiler that fails changes nothing
    return nullptr;
  }
  return range.release();
}

void SegmentHost::end_range(void* range) {
  if (!range) return;
  const PendingError pending;
  const Ref<> held = Ref<>::steal(static_cast<PyObject*>(range));
  if (!Ref<>::steal(PyObject_CallMethod(held.get(), "__exit__", "OOO", Py_None, Py_None, Py_None))) PyErr_Clear();
}

void* SegmentHost::stream(int device) {
  const auto stream = torch_stream(device);
  if (!stream) throw DeviceError("torch does not say which stream of " + device_text(device) + " is current");
  return *stream;
}

namespace {

/// Arrays of what was returned, in the order of the call's results. "" if the structure is the one predicted.
/// `made`: holds the arrays made of numbers.
std::string collect(const ExternStructure& expected, PyObject* object, std::span<const Ref<>> operands,
                    std::vector<PyObject*>& found, std::vector<Ref<>>& made) {
  switch (expected.kind) {
    case ExternStructure::Kind::Number: {
      if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != expected.type.get())
        return std::string("it returned a ") + Py_TYPE(object)->tp_name;
      PyObject* const function = once([] { return imported("numpy", "asarray").release(); });
      made.push_back(Ref<>::steal(PyObject_CallOneArg(function, object)));
      if (!made.back()) return take_call_error();
      found.push_back(made.back().get());
      return "";
    }
    case ExternStructure::Kind::Array:
      found.push_back(object);
      return "";
    case ExternStructure::Kind::Operand:
      return object == operands[std::size_t(expected.index)].get() ? "" : "it did not return its argument";
    case ExternStructure::Kind::None:
      return object == Py_None ? "" : std::string("it returned a ") + Py_TYPE(object)->tp_name;
    default: {
      const bool list = expected.kind == ExternStructure::Kind::List;
      if (!(list ? PyList_Check(object) : PyTuple_Check(object)) ||
          PySequence_Fast_GET_SIZE(object) != Py_ssize_t(expected.items.size()))
        return "it returned another number of results than predicted";
      for (std::size_t i = 0; i < expected.items.size(); ++i)
        if (std::string why =
                collect(expected.items[i], PySequence_Fast_GET_ITEM(object, Py_ssize_t(i)), operands, found, made);
            !why.empty())
          return why;
      return "";
    }
  }
}

/// NumPy's settings while a function runs in a graph: a condition that would be reported raises, and the program is
/// undone. A function of the user's reports its own, and may look at them.
class ConditionsRaise {
 public:
  explicit ConditionsRaise(const ExternCall& call) {
    const std::uint32_t trapped =
        call.library == Library::Numpy && !call.random && !call.rule ? numpy_trapped_conditions() & 0xffff : 0;
    PyObject* settings = trapped ? raising(trapped) : nullptr;
    if (settings) token_ = Ref<>::steal(PyContextVar_Set(errstate_variable(), settings));
  }
  ~ConditionsRaise() {
    if (!token_) return;
    const PendingError pending;
    PyContextVar_Reset(errstate_variable(), token_.get());
  }
  ConditionsRaise(const ConditionsRaise&) = delete;

 private:
  static PyObject* raising(std::uint32_t trapped) {
    static auto* known = new std::map<std::uint32_t, PyObject*>;
    auto found = known->find(trapped);
    if (found != known->end()) return found->second;
    PyObject* const make = once([] { return imported("numpy._core.umath", "_make_extobj").release(); });
    auto how = [&](std::uint32_t bit) { return trapped & bit ? "raise" : "ignore"; };
    Ref<> names = Ref<>::steal(Py_BuildValue("{ssssssss}", "divide", how(kFloatDivide), "over", how(kFloatOverflow),
                                             "under", how(kFloatUnderflow), "invalid", how(kFloatInvalid)));
    Ref<> nothing = Ref<>::steal(PyTuple_New(0));
    PyObject* settings =
        make && names && errstate_variable() ? PyObject_Call(make, nothing.get(), names.get()) : nullptr;
    PyErr_Clear();
    return known->emplace(trapped, settings).first->second;
  }
  Ref<> token_;
};

/// Inside of torch's _coalescing_manager, which makes the calls later.
bool collectives_are_queued() {
  Ref<> module = Ref<>::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), "torch.distributed.distributed_c10d"));
  Ref<> world = module ? Ref<>::steal(PyObject_GetAttrString(module.get(), "_world")) : Ref<>();
  Ref<> queues = world ? Ref<>::steal(PyObject_GetAttrString(world.get(), "pg_coalesce_state")) : Ref<>();
  const Py_ssize_t count = queues ? PyObject_Size(queues.get()) : -1;
  PyErr_Clear();
  return count != 0;
}

Ref<> copy_of(PyObject* tensor, const char* format) {
  if (array_library(tensor) == Library::Numpy) return Ref<>::steal(PyObject_CallMethod(tensor, "copy", "s", "K"));
  PyObject* const names = once([] { return Py_BuildValue("(s)", "memory_format"); });
  static PyObject* const clone = PyUnicode_InternFromString("clone");
  Ref<> memory_format = Ref<>::steal(PyObject_GetAttrString(torch_module(), format));
  PyObject* arguments[] = {tensor, memory_format.get()};
  return memory_format ? Ref<>::steal(PyObject_VectorcallMethod(clone, arguments, 1, names)) : Ref<>();
}

}  // namespace

/// What it has written. False: a tensor's version is not what the tracer takes it for.
bool SegmentHost::note_past(const ExternCall& call, std::span<const Ref<>> operands) {
  past_.push_back({*call.once, {}, {}, {}});
  PastCall& past = past_.back();
  bool expected = true;
  for (int index : call.mutated) {
    const Ref<>& written = operands[std::size_t(index)];
    // Copies, made for the call: what their version is, is how far the call has moved it. Those of inference mode have
    // none.
    Ref<> version = call.inference ? Ref<>() : Ref<>::steal(PyObject_GetAttrString(written.get(), "_version"));
    const long moves = version ? PyLong_AsLong(version.get()) : 0;
    PyErr_Clear();
    past.contents.push_back(written);
    past.version_moves.push_back(int(moves));
    expected = expected && (call.inference || moves == call.once->version_moves);
  }
  return expected;
}

bool SegmentHost::call_extern(std::int64_t handle, std::span<const ArrayRef> operands,
                              std::span<const std::int64_t> symbols, std::span<ArrayRef> results) {
  FJ_CHECK(externs_ && handle >= 0 && std::size_t(handle) < externs_->size(),
           "an extern call has a row in its segment's table");
  unlocked_ = true;  // the library's functions let others run
  const ExternCall& call = (*externs_)[handle];
  FJ_CHECK(call.results.size() == results.size(), "an extern node has as many results as its row");

  std::vector<Ref<>> arrays;
  arrays.reserve(operands.size());
  for (const ArrayRef& operand : operands) {
    auto* object = static_cast<PyObject*>(operand.object);
    auto library = array_library(object);
    arrays.push_back(library && *library != call.library ? cross_view(object, call.library) : Ref<>::borrow(object));
    // Operands that were two arrays in the user's program and hold the same by now are two to the function too: it may
    // tell them apart by identity, as a derivative does.
    const bool repeated = std::any_of(arrays.begin(), arrays.end() - 1,
                                      [&](const Ref<>& other) { return other.get() == arrays.back().get(); });
    if (repeated && call.library == Library::Torch)
      arrays.back() = Ref<>::steal(PyObject_CallMethod(object, "detach", nullptr));
    if (!arrays.back()) return fail(call.name + " could not be given its arrays: " + take_call_error());
  }
  // Functions of NumPy that warn, warn of nothing to compute with; inside of C code no one can tell.
  if (call.library == Library::Numpy && !call.random)
    for (const Ref<>& array : arrays) {
      ArrayView view;
      if (!guard_program::read_any_array(array.get(), view)) return fail(call.name + ": an operand can't be read");
      if (std::find(view.shape, view.shape + view.rank, 0) != view.shape + view.rank)
        return fail(call.name + " of no elements");
    }
  // What torch records keeps its operands. A copy of the caller's array that the program needs not make is one to it.
  for (std::size_t i = 0; call.recorded && i < call.own.size(); ++i) {
    if (!call.own[i] || !operands[i].given) continue;
    arrays[i] = copy_of(arrays[i].get(), "preserve_format");
    if (!arrays[i]) return fail(call.name + " could not be given its arrays: " + take_call_error());
  }
  const GradMode mode(call.grad);
  const InferenceMode inference(call.inference, true);
  const Autocast autocast(call);
  for (int index : call.mutated) {
    // Of its own, however the operand's memory is used otherwise.
    Ref<>& array = arrays[std::size_t(index)];
    array = copy_of(array.get(), "preserve_format");
    if (!array) return fail(call.name + " could not be given its arrays: " + take_call_error());
  }
  std::vector<Ref<>> made;
  const Ref<>& function = call.recorded ? call.recorded : call.callable;
  std::vector<PyObject*> passed{function.get()};  // what `caller` calls, else room for vectorcall's offset
  auto pass = [&](const ExternArgument& argument) {
    if (argument.kind == ExternArgument::Kind::Held) {
      made.push_back(std::size_t(argument.index) < held_.size() ? held_[std::size_t(argument.index)] : Ref<>());
      passed.push_back(made.back().get());
      return bool(made.back());
    }
    made.push_back(extern_argument(argument, arrays, symbols));
    passed.push_back(made.back().get());
    return bool(made.back());
  };
  bool complete = true;
  for (const ExternArgument& argument : call.positional) complete = complete && pass(argument);
  Ref<> names;
  if (!call.keywords.empty()) {
    names = Ref<>::steal(PyTuple_New(Py_ssize_t(call.keywords.size())));
    for (std::size_t i = 0; names && i < call.keywords.size(); ++i) {
      PyTuple_SET_ITEM(names.get(), Py_ssize_t(i), Ref<>(call.keywords[i].first).release());
      complete = complete && pass(call.keywords[i].second);
    }
    complete = complete && names;
  }
  if (!complete) return fail(call.name + " could not be given its arguments: " + take_call_error());

  if (call.once && collectives_are_queued()) return fail(call.name + " is queued by a manager of torch.distributed");
  const ConditionsRaise conditions(call);
  const HeldSignals held;  // an error of the library's has the call run eagerly
  const std::size_t given = call.positional.size();
  auto returned =
      Ref<>::steal(call.caller ? PyObject_Vectorcall(call.caller.get(), passed.data(), given + 1, names.get())
                               : PyObject_Vectorcall(function.get(), passed.data() + 1,
                                                     given | PY_VECTORCALL_ARGUMENTS_OFFSET, names.get()));
  if (!returned) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    raised_ = Ref<>::borrow(value);
    if (call.once) {
      // Raised again where CPython makes the call, an interrupt too.
      if (traceback) PyException_SetTraceback(value, traceback);
      PastCall past{*call.once, {}, {}, Ref<>::borrow(value)};
      past_.push_back(std::move(past));
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(traceback);
      return fail(call.name + " raised " + Py_TYPE(raised_.get())->tp_name);
    }
    PyErr_Restore(type, value, traceback);
    return fail(call.name + " raised " + take_call_error());
  }

  Ref<> record;
  if (call.recorded) {
    PyObject *value, *made_of_it;
    const bool pair = PyArg_ParseTuple(returned.get(), "OO", &value, &made_of_it);
    FJ_CHECK(pair, "a recorded call gives a pair");
    record = Ref<>::borrow(made_of_it);
    returned = Ref<>::borrow(value);
  }

  if (call.once && !note_past(call, arrays)) {
    mispredicted_ = correct_versions(*call.once, past_.back().version_moves.front());
    return fail(call.name + " did something else than predicted to the version of a tensor");
  }

  auto mispredict = [&](const std::string& why) {
    if (call.library == Library::Numpy && call.random)
      return fail(call.name + ": " + why);  // sizes were given, not predicted
    std::vector<ExternArray> signature(arrays.size());
    bool described = true;
    for (std::size_t i = 0; i < arrays.size(); ++i)
      described = described && describe_operand(arrays[i].get(), call.library, signature[i]);
    mispredicted_ = described && observe(call, signature, symbols, arrays, returned.get());
    return fail(call.name + ": " + why);
  };
  std::vector<PyObject*> found;
  std::vector<Ref<>> of_numbers;
  const std::size_t returned_arrays = call.results.size() - call.mutated.size() - (record ? 1 : 0);
  if (std::string why = collect(call.structure, returned.get(), arrays, found, of_numbers); !why.empty())
    return mispredict(why);
  FJ_CHECK(found.size() == returned_arrays, "the structure of an extern call has as many arrays as its row");
  for (int index : call.mutated) found.push_back(arrays[std::size_t(index)].get());
  if (record) found.push_back(record.get());

  // Memory that must not be touched: the operands', and the results' of each other.
  std::vector<ArrayView> taken;
  for (const Ref<>& array : arrays) {
    ArrayView view;
    if (!guard_program::read_any_array(array.get(), view)) return fail(call.name + ": an operand can't be read");
    taken.push_back(view);
  }
  std::vector<Ref<>> owned;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const ExternResult& expected = call.results[i];
    ArrayView view;
    std::string why = difference(found[i], expected, call, symbols, view);
    if (why.empty() && expected.view_of >= 0) {
      const ArrayView& base = taken[std::size_t(expected.view_of)];
      const auto offset = expected.offset.evaluate(symbols) * std::int64_t(size_in_bytes(view.dtype));
      if (view.data != static_cast<char*>(base.data) + offset) why = "its result is not the view predicted";
    }
    if (why.empty() && expected.view_of < 0 && i < returned_arrays)
      for (const ArrayView& other : taken)
        if (guard_program::may_overlap(view, other)) why = "its result shares memory with another array";
    // An array without elements shares no memory.
    if (why.empty() && expected.view_of < 0 && i < returned_arrays)
      for (const Ref<>& array : arrays)
        if (array.get() == found[i]) why = "it returned what it was given";
    if (!why.empty()) return mispredict(why);
    if (expected.view_of >= 0) {
      owned.push_back(copy_of(found[i], "contiguous_format"));
      if (!owned.back() || !guard_program::read_any_array(owned.back().get(), view))
        return fail(call.name + ": its result can't be copied: " + take_call_error());
    } else if (found[i] == record.get()) {
      owned.push_back(record);
    } else if (i >= returned_arrays) {
      // With a version counter of its own: the tracer says how eager's moves.
      owned.push_back(call.library == Library::Numpy ? Ref<>::borrow(found[i])
                                                     : Ref<>::steal(PyObject_GetAttrString(found[i], "data")));
      if (!owned.back()) return fail(call.name + ": what it wrote can't be read: " + take_call_error());
    } else {
      owned.push_back(Ref<>::borrow(found[i]));
      // Ours, and that of what holds it: an array kept elsewhere is not the program's to write into.
      if (Py_REFCNT(found[i]) != 2) return fail(call.name + ": its result is kept elsewhere too");
    }
    if (i < returned_arrays) taken.push_back(view);
    results[i].data = view.data;
  }
  for (std::size_t i = 0; i < found.size(); ++i) results[i].object = owned[i].release();
  return true;
}

namespace {

PyObject* gauss_next() {
  static PyObject* const name = PyUnicode_InternFromString("gauss_next");
  return name;
}

/// How many bytes behind the head of a random.Random are its state; 0: it is not as it is known. `getstate()` makes 625
/// ints of them, which costs more than what most programs do.
std::size_t bytes_of_generator(PyObject* generator) {
  auto* const random = once([] { return reinterpret_cast<PyTypeObject*>(imported("random", "Random").release()); });
  auto* const base = once([] { return reinterpret_cast<PyTypeObject*>(imported("_random", "Random").release()); });
  if (!random || !base || Py_TYPE(generator) != random || !PyType_IsSubtype(random, base)) return 0;
  const std::size_t bytes = once([&] {
    // Without references, or CPython's collector would ask for them; and drawing again from the same bytes gives the
    // same numbers.
    const std::size_t size = std::size_t(base->tp_basicsize) - sizeof(PyObject);
    if (PyType_HasFeature(base, Py_TPFLAGS_HAVE_GC) || base->tp_basicsize < Py_ssize_t(sizeof(PyObject) + 624 * 4) ||
        size > 4096)
      return std::size_t(0);
    Ref<> sample = Ref<>::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(base), "i", 1));
    auto draw = [&] {
      Ref<> number = sample ? Ref<>::steal(PyObject_CallMethod(sample.get(), "random", nullptr)) : Ref<>();
      return number ? PyFloat_AsDouble(number.get()) : -1;
    };
    if (!sample) return PyErr_Clear(), std::size_t(0);
    auto* state = reinterpret_cast<char*>(sample.get()) + sizeof(PyObject);
    for (int i = 0; i < 700; ++i) draw();
    const std::vector<char> before(state, state + size);
    std::vector<double> first, again;
    for (int i = 0; i < 700; ++i) first.push_back(draw());
    std::copy(before.begin(), before.end(), state);
    for (int i = 0; i < 700; ++i) again.push_back(draw());
    PyErr_Clear();
    return first == again ? size : std::size_t(0);
  });
  return bytes;
}

}  // namespace

RandomStates::RandomStates(const ExternTable* externs, std::span<const Ref<>> held) {
  if (!externs || !externs->random()) return;
  auto save = [&](Ref<> owner, Ref<> state, const char* setter) {
    if (state) states_.push_back({std::move(owner), std::move(state), setter, {}});
    PyErr_Clear();
  };
  auto save_torch = [&](const Ref<>& generator) {
    if (generator)
      save(generator, Ref<>::steal(PyObject_CallMethod(generator.get(), "get_state", nullptr)), "set_state");
    PyErr_Clear();
  };
  bool of_torch = false, of_device = false;
  int device = kHost;
  for (std::size_t i = 0; i < externs->size(); ++i) {
    const ExternCall& call = (*externs)[std::int64_t(i)];
    if (!call.random || call.library != Library::Torch) continue;
    (call.device == kHost ? of_torch : of_device) = true;
    if (call.device != kHost) device = call.device;  // that of the whole program
    for (auto& [name, argument] : call.keywords)
      if (PyUnicode_CompareWithASCIIString(name.get(), "generator") == 0 && argument.object &&
          argument.object.get() != Py_None)
        save_torch(argument.object);
  }
  if (of_torch) save_torch(Ref<>::steal(PyObject_GetAttrString(torch_module(), "default_generator")));
  if (of_device) {
    const Ref<> cuda = Ref<>::steal(PyObject_GetAttrString(torch_module(), "cuda"));
    const Ref<> generators = cuda ? Ref<>::steal(PyObject_GetAttrString(cuda.get(), "default_generators")) : Ref<>();
    if (generators) save_torch(Ref<>::steal(PySequence_GetItem(generators.get(), device)));
    PyErr_Clear();
  }
  for (const Ref<>& generator : held) {
    if (PyFloat_Check(generator.get())) continue;  // what it draws with
    if (const std::size_t bytes = bytes_of_generator(generator.get())) {
      const char* state = reinterpret_cast<char*>(generator.get()) + sizeof(PyObject);
      Ref<> next = Ref<>::steal(PyObject_GetAttr(generator.get(), gauss_next()));
      PyErr_Clear();
      states_.push_back({generator, next, nullptr, {state, state + bytes}});
      continue;
    }
    if (Ref<> state = Ref<>::steal(PyObject_CallMethod(generator.get(), "getstate", nullptr))) {
      save(generator, state, "setstate");
      continue;
    }
    PyErr_Clear();
    // A RandomState keeps a number of its own beside its bit generator's state.
    if (Ref<> state = Ref<>::steal(PyObject_CallMethod(generator.get(), "get_state", "O", Py_False))) {
      save(generator, state, "set_state");
      continue;
    }
    PyErr_Clear();
    Ref<> bits = Ref<>::steal(PyObject_GetAttrString(generator.get(), "bit_generator"));
    if (bits) save(bits, Ref<>::steal(PyObject_GetAttrString(bits.get(), "state")), nullptr);
    PyErr_Clear();
  }
}

RandomStates::~RandomStates() {
  if (states_.empty()) return;
  const PendingError pending;
  for (const State& saved : states_) {
    if (!saved.bytes.empty()) {
      std::copy(saved.bytes.begin(), saved.bytes.end(), reinterpret_cast<char*>(saved.owner.get()) + sizeof(PyObject));
      if (saved.state) PyObject_SetAttr(saved.owner.get(), gauss_next(), saved.state.get());
    } else if (saved.setter) {
      Ref<> done = Ref<>::steal(PyObject_CallMethod(saved.owner.get(), saved.setter, "O", saved.state.get()));
    } else {
      PyObject_SetAttrString(saved.owner.get(), "state", saved.state.get());
    }
    PyErr_Clear();
  }
}

}  // namespace fj
