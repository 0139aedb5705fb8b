// Guards as Python sees them in tests: a set is built row by row, then asked about slots and a function.
#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>

#include "cpython/cpython.h"
#include "guards/check_program.h"
#include "guards/guard_set.h"

namespace py = pybind11;
using namespace fj;

namespace {

GuardKind guard_kind(const std::string& text) {
#define FJ_GUARD(name, order, looks_at, words) \
  if (text == #name) return GuardKind::name;
#include "guards/guard.def"
  throw py::value_error("no guard kind " + text);
}

SourceKind source_kind(const std::string& text) {
#define FJ_SOURCE(name, words) \
  if (text == #name) return SourceKind::name;
#include "guards/source.def"
  throw py::value_error("no source kind " + text);
}

SymDim dim(const py::handle& value) {
  return py::isinstance<SymDim>(value) ? value.cast<SymDim>() : SymDim(value.cast<std::int64_t>());
}

Dims dims(const py::iterable& values) {
  Dims result;
  for (py::handle value : values) result.push_back(dim(value));
  return result;
}

Ref<> object(const py::dict& words, const char* name) {
  return words.contains(name) ? Ref<>::borrow(py::object(words[name]).ptr()) : Ref<>();
}

struct SourceHandle {
  SourceRef source;
};

struct Set {
  std::shared_ptr<SourceTable> sources = std::make_shared<SourceTable>();
  GuardSet guards{sources};
  GuardBindings bindings;

  SourceHandle make(const std::string& kind, const py::object& base, std::int64_t index, const py::object& key) {
    return {sources->make(source_kind(kind), base.is_none() ? nullptr : base.cast<SourceHandle>().source, index,
                          key.is_none() ? nullptr : key.ptr())};
  }

  void add(const std::string& kind, const py::object& source, const py::kwargs& words) {
    Guard guard;
    guard.kind = guard_kind(kind);
    if (!source.is_none()) guard.source = source.cast<SourceHandle>().source;
    guard.object = object(words, "object");
    if (words.contains("number")) guard.number = words["number"].cast<std::int64_t>();
    if (words.contains("symbol")) guard.symbol = SymbolId{words["symbol"].cast<std::uint32_t>()};
    if (words.contains("left")) guard.left = dim(words["left"]);
    if (words.contains("right")) guard.right = dim(words["right"]);
    if (words.contains("names"))
      for (py::handle name : words["names"]) guard.names.push_back(Ref<>::borrow(name.ptr()));
    if (words.contains("others"))
      for (py::handle other : words["others"]) guard.others.push_back(other.cast<SourceHandle>().source);
    if (words.contains("shape")) {
      ArrayExpectation array;
      array.type = reinterpret_cast<PyTypeObject*>(py::object(words["type"]).ptr());
      array.dtype = *dtype_from_name(words["dtype"].cast<std::string>());
      array.shape = dims(words["shape"]);
      array.strides = words.contains("strides") ? dims(words["strides"]) : contiguous_strides(array.shape);
      array.requires_grad = words.contains("requires_grad") && words["requires_grad"].cast<bool>();
      array.writeable_required = words.contains("writeable") && words["writeable"].cast<bool>();
      guard.array = array;
    }
    guards.add(std::move(guard));
  }

  FrameValues frame(const py::tuple& slots, const py::object& function) {
    slots_.clear();
    for (py::handle slot : slots) slots_.push_back(slot.ptr() == Py_Ellipsis ? nullptr : slot.ptr());  // ...: unbound
    return {function.is_none() ? nullptr : reinterpret_cast<PyFunctionObject*>(function.ptr()), slots_};
  }

  /// None, or the symbols' values.
  std::optional<std::vector<std::int64_t>> holds(const py::tuple& slots, const py::object& function) {
    guards.seal();
    if (!guards.holds(frame(slots, function), bindings)) return std::nullopt;
    return bindings.symbols;
  }

  py::list failures(const py::tuple& slots, const py::object& function) {
    guards.seal();
    py::list result;
    for (const auto& failure : guards.failures(frame(slots, function)))
      result.append(
          py::make_tuple(failure.guard ? failure.guard->text() : "", failure.expected, failure.found, failure.axes));
    return result;
  }

  /// Nanoseconds of one check, the best of many.
  double nanoseconds(const py::tuple& slots, const py::object& function, int repeats) {
    guards.seal();
    FrameValues values = frame(slots, function);
    double best = 1e9;
    for (int i = 0; i < repeats; ++i) {
      auto start = std::chrono::steady_clock::now();
      for (int k = 0; k < 1000; ++k)
        if (!guards.holds(values, bindings)) throw py::value_error("the guards do not hold");
      std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
      best = std::min(best, passed.count() / 1000);
    }
    return best;
  }

  py::object fetch(const SourceHandle& source, const py::tuple& slots, const py::object& function) {
    Ref<> found = sources->fetch(source.source, frame(slots, function));
    if (PyErr_Occurred()) throw py::error_already_set();
    return found ? py::reinterpret_steal<py::object>(found.release()) : py::ellipsis();
  }

 private:
  std::vector<PyObject*> slots_;
};

}  // namespace

PYBIND11_MODULE(framejit_guard_tests, module) {
  py::class_<SymDim>(module, "Dim")
      .def(py::init([](std::uint32_t symbol) { return SymDim(SymbolId{symbol}); }))
      .def("__add__", [](const SymDim& a, const py::object& b) { return a + dim(b); })
      .def("__mul__", [](const SymDim& a, const py::object& b) { return a * dim(b); })
      .def("__rmul__", [](const SymDim& a, const py::object& b) { return dim(b) * a; });
  py::class_<SourceHandle>(module, "Source").def("text", [](const SourceHandle& source) {
    return source.source->text();
  });
  py::class_<Set>(module, "Guards")
      .def(py::init())
      .def("slot", [](Set& set, int index,
                      std::string name) { return SourceHandle{set.sources->slot(index, std::move(name))}; })
      .def("make", &Set::make, py::arg("kind"), py::arg("base") = py::none(), py::arg("index") = 0,
           py::arg("key") = py::none())
      .def("add", &Set::add)
      .def("define",
           [](Set& set, std::uint32_t symbol, const py::object& dividend, const py::object& divisor, bool remainder) {
             set.guards.define(SymbolId{symbol}, {dim(dividend), dim(divisor), remainder});
           })
      .def("holds", &Set::holds, py::arg("slots"), py::arg("function") = py::none())
      .def("failures", &Set::failures, py::arg("slots"), py::arg("function") = py::none())
      .def("nanoseconds", &Set::nanoseconds, py::arg("slots"), py::arg("function") = py::none(),
           py::arg("repeats") = 20)
      .def("fetch", &Set::fetch, py::arg("source"), py::arg("slots"), py::arg("function") = py::none())
      .def("text", [](const Set& set) { return set.guards.text(); });
}
