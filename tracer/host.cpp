// Allocation by library, and library calls inside a program.
//
// A library call is trusted as far as it can be checked: its results must have the dtype, sizes and strides predicted
// while tracing, be ordinary arrays that need no gradient, and own memory that nobody else has, since the program will
// write into it or return it as its own.
#include "tracer/host.h"

#include <vector>

#include "guards/check_program.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

std::vector<std::int64_t> evaluate(const Dims& dims, std::span<const std::int64_t> symbols) {
  std::vector<std::int64_t> values;
  values.reserve(dims.size());
  for (const SymDim& dim : dims) values.push_back(dim.evaluate(symbols));
  return values;
}

/// Text of the error that is set, which is cleared.
std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return "no reason given";
  std::string text = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (value) {
    if (auto message = Ref<>::steal(PyObject_Str(value))) {
      if (const char* bytes = PyUnicode_AsUTF8(message.get())) text += std::string(": ") + bytes;
    }
    PyErr_Clear();
  }
  // The call is repeated in CPython, which must see the interrupt too.
  if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

/// Arguments of one call: rebuilds templates around the operands.
struct Arguments {
  std::span<const Ref<>> operands;
  std::span<const std::int64_t> symbols;

  Ref<> make(const ExternArgument& argument) const {
    switch (argument.kind) {
      case ExternArgument::Kind::Constant: return argument.object;
      case ExternArgument::Kind::Operand: return operands[std::size_t(argument.index)];
      case ExternArgument::Kind::Size: return Ref<>::steal(PyLong_FromLongLong(argument.expression.evaluate(symbols)));
      case ExternArgument::Kind::Tuple:
      case ExternArgument::Kind::List: {
        auto size = Py_ssize_t(argument.items.size());
        bool tuple = argument.kind == ExternArgument::Kind::Tuple;
        auto sequence = Ref<>::steal(tuple ? PyTuple_New(size) : PyList_New(size));
        for (Py_ssize_t i = 0; sequence && i < size; ++i) {
          Ref<> item = make(argument.items[std::size_t(i)]);
          if (!item) return {};
          if (tuple) {
            PyTuple_SET_ITEM(sequence.get(), i, item.release());
          } else {
            PyList_SET_ITEM(sequence.get(), i, item.release());
          }
        }
        return sequence;
      }
      case ExternArgument::Kind::Slice: {
        Ref<> part[3];
        for (int i = 0; i < 3; ++i)
          if (!(part[i] = make(argument.items[std::size_t(i)]))) return {};
        return Ref<>::steal(PySlice_New(part[0].get(), part[1].get(), part[2].get()));
      }
    }
    return {};
  }
};

/// "" if `object` is what was predicted.
std::string difference(PyObject* object, const ExternResult& expected, std::span<const std::int64_t> symbols, ArrayView& view) {
  if (!array_library(object)) return std::string("it returned a ") + Py_TYPE(object)->tp_name;
  // Lazily conjugated or negated, sparse, ... arrays have memory that does not hold their values.
  if (std::string unsupported = describe(object).unsupported; !unsupported.empty()) return "it returned a " + unsupported;
  if (!guard_program::read_any_array(object, view)) return "its result can't be read";
  if (view.requires_grad) return "its result needs a gradient";
  if (view.dtype != expected.dtype)
    return "its result is " + std::string(name(view.dtype)) + ", predicted " + std::string(name(expected.dtype));
  auto shape = evaluate(expected.shape, symbols), strides = evaluate(expected.strides, symbols);
  bool same = std::size_t(view.rank) == shape.size();
  for (std::size_t i = 0; same && i < shape.size(); ++i) {
    same = view.shape[i] == shape[i];
    if (same && shape[i] > 1) same = view.strides[i] == strides[i] * view.stride_unit;
  }
  return same ? "" : "its result has other sizes or strides than predicted";
}

}  // namespace

bool SegmentHost::fail(std::string why) {
  failure_ = std::move(why);
  return false;
}

ArrayRef SegmentHost::allocate(int output, DType dtype, std::span<const std::int64_t> shape,
                               std::span<const std::int64_t> strides) {
  Library library = Library::Torch;
  if (output >= 0 && std::size_t(output) < output_library_.size()) {
    library = output_library_[std::size_t(output)];
  } else if (externs_) {
    library = externs_->operand_library;
  }
  Ref<> array = fj::allocate(library, dtype, shape, strides);
  if (!array) {
    fail("no memory for a result: " + take_error());
    return {};
  }
  void* data = data_pointer(array.get());
  return {data, array.release()};
}

bool SegmentHost::call_extern(std::int64_t handle, std::span<const ArrayRef> operands, std::span<const std::int64_t> symbols,
                              std::span<ArrayRef> results) {
  FJ_CHECK(externs_ && handle >= 0 && std::size_t(handle) < externs_->size(), "an extern call has a row in its segment's table");
  const ExternCall& call = (*externs_)[handle];
  FJ_CHECK(call.results.size() == results.size(), "an extern node has as many results as its row");

  std::vector<Ref<>> arrays;
  arrays.reserve(operands.size());
  for (const ArrayRef& operand : operands) {
    auto* object = static_cast<PyObject*>(operand.object);
    auto library = array_library(object);
    arrays.push_back(library && *library != call.library ? cross_view(object, call.library) : Ref<>::borrow(object));
    if (!arrays.back()) return fail(call.name + " could not be given its arrays: " + take_error());
  }
  Arguments arguments{arrays, symbols};
  std::vector<Ref<>> made;
  std::vector<PyObject*> passed{nullptr};  // room for vectorcall's offset
  auto pass = [&](const ExternArgument& argument) {
    made.push_back(arguments.make(argument));
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
  if (!complete) return fail(call.name + " could not be given its arguments: " + take_error());

  auto returned = Ref<>::steal(PyObject_Vectorcall(call.callable.get(), passed.data() + 1,
                                                   call.positional.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, names.get()));
  if (!returned) return fail(call.name + " raised " + take_error());

  std::vector<PyObject*> found;
  if (!call.returns_sequence) {
    found.push_back(returned.get());
  } else {
    if (!PyTuple_Check(returned.get()) && !PyList_Check(returned.get())) return fail(call.name + " did not return a sequence");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(returned.get()); ++i)
      found.push_back(PySequence_Fast_GET_ITEM(returned.get(), i));
  }
  if (found.size() != results.size()) return fail(call.name + " returned another number of results than predicted");

  // Memory that must not be touched: the operands', and the results' of each other.
  std::vector<ArrayView> taken;
  for (const Ref<>& array : arrays) {
    ArrayView view;
    if (!guard_program::read_any_array(array.get(), view)) return fail(call.name + ": an operand can't be read");
    taken.push_back(view);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    ArrayView view;
    std::string why = difference(found[i], call.results[i], symbols, view);
    if (!why.empty()) return fail(call.name + ": " + why);
    // One reference, ours: an array kept elsewhere is not the program's to write into.
    if (Py_REFCNT(found[i]) != 1) return fail(call.name + ": its result is kept elsewhere too");
    for (const ArrayView& other : taken)
      if (guard_program::may_overlap(view, other)) return fail(call.name + ": its result shares memory with another array");
    taken.push_back(view);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    Py_INCREF(found[i]);
    results[i] = {taken[arrays.size() + i].data, found[i]};
  }
  return true;
}

}  // namespace fj
