// Collecting guards, and the fast path over their check program.
#include "guards/guard_set.h"

#include "cpython/cpython.h"
#include "guards/check_program.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

/// A weak reference if the object can have one and may die: classes of C code live as long as the process.
Ref<> weak_reference(PyObject* object) {
  if (!object || !PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return {};
  if (PyType_Check(object) && !(reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return {};
  auto weak = Ref<>::steal(PyWeakref_NewRef(object, nullptr));
  if (!weak) PyErr_Clear();
  return weak;
}

/// What a class attribute was: weakly if it can be.
Ref<> remembered(PyObject* object) {
  auto weak = weak_reference(object);
  return weak ? weak : Ref<>::borrow(object);
}

/// A class's bases in order, each remembered.
Ref<> remembered_bases(PyTypeObject* type) {
  auto bases = Ref<>::steal(PyTuple_New(PyTuple_GET_SIZE(type->tp_mro)));
  FJ_CHECK(bases, "out of memory");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i)
    PyTuple_SET_ITEM(bases.get(), i, remembered(PyTuple_GET_ITEM(type->tp_mro, i)).release());
  return bases;
}

void hold_weakly(Guard& guard) {
  guard.weak = weak_reference(guard.object.get());
  if (guard.weak) guard.object = nullptr;
}

bool same_expectation(const ArrayExpectation& a, const ArrayExpectation& b) {
  return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides &&
         a.requires_grad == b.requires_grad && a.writeable_required == b.writeable_required && a.aligned == b.aligned &&
         a.key_set == b.key_set && a.device == b.device;
}

/// The same test: `a` is in the set already, `b` is new.
bool same_guard(const Guard& a, const Guard& b) {
  if (a.kind != b.kind || a.source != b.source || a.number != b.number || a.symbol != b.symbol || a.others != b.others)
    return false;
  if (a.left != b.left || a.right != b.right || a.array.has_value() != b.array.has_value()) return false;
  if (a.array && !same_expectation(*a.array, *b.array)) return false;
  if (a.weak || b.weak) return a.weak.get() == b.weak.get();  // one weak reference per object without callback
  if (!a.object || !b.object) return a.object.get() == b.object.get();
  return guard_program::same_constant(a.object.get(), b.object.get());
}

}  // namespace

GuardSet::GuardSet(std::shared_ptr<SourceTable> sources) : sources_(std::move(sources)) {
  static std::uint64_t last = 0;
  serial_ = ++last;
}
GuardSet::~GuardSet() = default;

void GuardSet::add_all(const GuardSet& others) {
  FJ_CHECK(sources_ == others.sources_, "guards of other sources");
  for (Guard guard : others.guards_) {
    // As it was before `add` prepared it.
    if (!guard.object && guard.weak) {
      guard.object = Ref<>::steal(fj_weakly_held(guard.weak.get()));
      guard.weak = {};
    }
    if (guard.kind == GuardKind::TypeVersion) {
      std::vector<Ref<>> names;
      for (std::size_t i = 0; i < guard.names.size(); i += 2) names.push_back(guard.names[i]);
      guard.names = std::move(names);
    }
    add(std::move(guard));
  }
}

void GuardSet::add(Guard guard) {
  FJ_CHECK(!program_, "a guard is added before the set is sealed");
  guard.object_text = describe_object(guard.object.get());
  switch (guard.kind) {
    case GuardKind::Identity:
    case GuardKind::TypeIs:
    case GuardKind::FunctionCode:
      FJ_CHECK(guard.object, "a guard of identity has an object");
      hold_weakly(guard);
      break;
    case GuardKind::Equals:
    case GuardKind::Differs:
    case GuardKind::HasKey:
    case GuardKind::LacksKey: FJ_CHECK(guard.object, "the guard has an object"); break;
    case GuardKind::Elements:
    case GuardKind::DictKeys: {
      // As a tuple of its own: the caller's list may be the dict's own bookkeeping.
      auto keys = Ref<>::steal(PySequence_Tuple(guard.object.get()));
      FJ_CHECK(keys, "the keys of a DictKeys guard are a sequence");
      guard.object = keys;
      break;
    }
    case GuardKind::TypeVersion: {
      FJ_CHECK(guard.object && PyType_Check(guard.object.get()), "a TypeVersion guard has the type");
      auto* type = reinterpret_cast<PyTypeObject*>(guard.object.get());
      std::vector<Ref<>> names;
      for (Ref<>& name : guard.names) {
        names.push_back(name);
        names.push_back(name.get() == bases_name() ? remembered_bases(type)
                                                   : remembered(fj_type_lookup(type, name.get())));
      }
      guard.names = std::move(names);
      // A lookup makes CPython give the class a version if it has none now.
      static PyObject* any_name = PyUnicode_InternFromString("__class__");
      fj_type_lookup(type, any_name);
      guard.number = type->tp_version_tag;
      hold_weakly(guard);
      break;
    }
    case GuardKind::GradMode: guard.number = torch_grad_enabled(); break;
    case GuardKind::TorchModes: guard.number = std::int64_t(torch_modes()); break;
    case GuardKind::NumpyErrState: guard.number = numpy_trapped_conditions(); break;
    default: break;
  }
  for (auto [at, end] = by_place_.equal_range({guard.kind, guard.source}); at != end; ++at) {
    Guard& old = guards_[at->second];
    if (guard.kind == GuardKind::TypeVersion && old.weak.get() == guard.weak.get() &&
        old.object.get() == guard.object.get()) {
      // One guard per class: no names is the stronger one.
      if (old.names.empty() || guard.names.empty()) {
        old.names.clear();
      } else {
        old.names.insert(old.names.end(), guard.names.begin(), guard.names.end());
      }
      if (old.number != guard.number) old.number = 0;  // changed in between: the names decide
      return;
    }
    if (guard.kind == GuardKind::Array && old.array && guard.array) {
      // An array that is first read, then written or viewed: one guard that asks for all.
      ArrayExpectation read = *guard.array;
      read.writeable_required = old.array->writeable_required;
      if (same_expectation(*old.array, read)) {
        old.array->writeable_required |= guard.array->writeable_required;
        return;
      }
    }
    if (same_guard(old, guard)) return;
  }
  by_place_.emplace(std::pair(guard.kind, guard.source), guards_.size());
  guards_.push_back(std::move(guard));
}

PyObject* GuardSet::bases_name() {
  static PyObject* name = PyUnicode_InternFromString("__mro__");
  return name;
}

void GuardSet::define(SymbolId symbol, Symbol::Quotient definition) {
  FJ_CHECK(!program_, "a symbol is defined before the set is sealed");
  definitions_.emplace_back(symbol, std::move(definition));
}

void GuardSet::seal() {
  if (program_) return;
  by_place_.clear();
  guards_.shrink_to_fit();  // of a large module they are megabytes, for as long as its segment lives
  program_ = std::make_unique<guard_program::CheckProgram>(*sources_, guards_, definitions_);
}

void GuardSet::prepare(GuardBindings& bindings) const {
  FJ_CHECK(program_, "guards are tested once they are sealed");
  if (!bindings.owned.empty()) bindings.owned.clear();
  // A program fills the same entries in each run: those it leaves alone stay empty.
  if (bindings.owner == serial_) return;
  bindings.owner = serial_;
  bindings.filled_by = 0;
  bindings.values.assign(sources_->all().size(), nullptr);
  bindings.data.assign(bindings.values.size(), nullptr);
  bindings.symbols.assign(program_->symbol_count(), 0);
}

bool GuardSet::holds(const FrameValues& values, GuardBindings& bindings) const {
  prepare(bindings);
  return program_->holds(values, bindings);
}

}  // namespace fj
