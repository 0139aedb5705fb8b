/// The guards of one segment: the conditions under which its program may be reused.
///
/// Checked on every call before anything runs, so checks only read: they run no Python code and leave no
/// error set. A guard on a part follows the guard on its whole. `holds` is the fast path, `first_failure`
/// explains; both come from one row of guard.def, so they cannot disagree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph_ir/graph.h"
#include "guards/source.h"
#include "runtime/base/dtype.h"
#include "runtime/base/sym_dim.h"
#include "runtime/host.h"

namespace fj {

enum class GuardKind : std::uint8_t {
#define FJ_GUARD(name, order, looks_at, text) name,
#include "guards/guard.def"
};

/// What guards let symbols be. From these the tracer proves that arithmetic on them has no more than 64 bits.
constexpr std::int64_t kLargestInt = (std::int64_t(1) << 31) - 1;  // magnitude of an int, length of a text

/// What is expected of an array on every call. Entries that are nullopt are free; symbols bind on first sight
/// (a size that is exactly one symbol) or are compared after all symbols are bound (any other expression).
struct ArrayExpectation {
  PyTypeObject* type = nullptr;           // exact: numpy.ndarray, torch.Tensor, torch.nn.Parameter
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;  // in elements, of every dimension; of an array of NumPy without elements they are not compared
  bool requires_grad = false;             // torch
  int device = kHost;                     // torch
  bool writeable_required = false;        // NumPy inputs that are written
  bool aligned = true;
  std::uint64_t key_set = 0;              // torch dispatch keys seen while tracing (0: not compared)
};

/// `comparison`: Py_LT to Py_GE.
constexpr bool compare_numbers(std::int64_t a, int comparison, std::int64_t b) {
  switch (comparison) {
    case Py_LT: return a < b;
    case Py_LE: return a <= b;
    case Py_EQ: return a == b;
    case Py_NE: return a != b;
    case Py_GT: return a > b;
    default: return a >= b;
  }
}

struct Guard {
  GuardKind kind;
  SourceRef source = nullptr;
  /// Identity, TypeIs, FunctionCode, Equals, Differs, DictKeys and Elements (tuple or list), HasKey, LacksKey: what is
  /// expected or asked for. TypeVersion: the type, and `names` the attributes relied on, found or not,
  /// GuardSet::bases_name() for its bases (empty: any change of the class counts). Objects that can be are held weakly
  /// once the guard is in a GuardSet: then this is null.
  Ref<PyObject> object;
  std::vector<Ref<PyObject>> names;
  std::int64_t number = 0;  // Length, GradMode, ...; NoOverlap: how many of `others` are written as the source is
  SymbolId symbol{UINT32_MAX};            // IntSymbol, LengthSymbol: binds the int's value, the length
  std::optional<ArrayExpectation> array;
  std::optional<SymDim> left, right;      // Relation: left (number as comparison Py_LT..) right
  std::vector<SourceRef> others;          // NoOverlap, SameObject
  std::string location;                   // user's line that needed it: "model.py:41"

  // Filled in by GuardSet::add.
  Ref<PyObject> weak;                     // weak reference that stands for `object`
  std::string object_text;                // how `object` is described

  std::string text() const;               // "L.k == 3"
};

/// Values bound while checking, handed to the program.
struct GuardBindings {
  std::vector<std::int64_t> symbols;
  std::vector<PyObject*> values;  // by Source::id, borrowed from the frame for the time of the call; null: not fetched
  std::vector<void*> data;                // by Source::id, of sources with an Array guard: where element 0 is
  std::vector<Ref<PyObject>> owned;       // keeps values alive that were made by fetching; clear it after the call
  struct Extent {
    const char *low, *high;               // [low, high)
    bool written;
  };
  std::vector<Extent> extents;            // room for NoOverlap
  // Bookkeeping of GuardSet: which set the bindings are of, and which memo's values they still have.
  std::uint64_t owner = 0, filled_by = 0;
};

namespace guard_program {
class CheckProgram;
}

class GuardSet {
 public:
  explicit GuardSet(std::shared_ptr<SourceTable> sources);
  ~GuardSet();
  /// Duplicates are dropped. GradMode, TorchModes and NumpyErrState record the state of this moment.
  void add(Guard guard);
  /// Those of another set over the same sources.
  void add_all(const GuardSet& others);
  /// Stands for the order of bases among the names of a TypeVersion guard: "__mro__", interned.
  static PyObject* bases_name();
  /// A symbol that no guard binds: a quotient or remainder of others, computed before relations are compared.
  void define(SymbolId symbol, Symbol::Quotient definition);
  /// After the last add: orders and compiles to the check program.
  void seal();

  bool holds(const FrameValues& values, GuardBindings& bindings) const;
  struct Failure {
    const Guard* guard;
    std::string found, expected;          // "f32[8, 32]", "f32[8, 16]"
    std::vector<int> axes;                // Array: sizes that differ, if nothing else does
  };
  std::optional<Failure> first_failure(const FrameValues& values) const;
  /// The first failure and, as long as those before were sizes or values of leaves (an array's sizes, an int), the
  /// next: everything that has to be generalised at once.
  std::vector<Failure> failures(const FrameValues& values) const;

  const std::vector<Guard>& all() const { return guards_; }
  const SourceTable& sources() const { return *sources_; }
  std::vector<std::string> text() const;  // "L.k == 3", one each

 private:
  void prepare(GuardBindings& bindings) const;

  std::shared_ptr<SourceTable> sources_;
  std::vector<Guard> guards_;
  std::vector<std::pair<SymbolId, Symbol::Quotient>> definitions_;
  std::multimap<std::pair<GuardKind, SourceRef>, std::size_t>
      by_place_;  // indices into guards_, for dropping duplicates
  std::unique_ptr<guard_program::CheckProgram> program_;  // null until sealed
  std::uint64_t serial_;                               // of this set: addresses are used again
  friend class BindingsLease;
  mutable GuardBindings bindings_;
  mutable bool lent_ = false;
};

/// Bindings for one run, with the GIL held: the set's own if they are free, so that calls allocate nothing and find
/// most values where the last call left them; else (recursion, another thread) new ones. The set must outlive the
/// lease.
class BindingsLease {
 public:
  explicit BindingsLease(const GuardSet& set)
      : set_(set.lent_ ? nullptr : &set), bindings_(set_ ? set.bindings_ : own_.emplace()) {
    if (set_) set.lent_ = true;
  }
  ~BindingsLease() {
    if (!bindings_.owned.empty()) bindings_.owned.clear();
    if (set_) set_->lent_ = false;
  }
  BindingsLease(const BindingsLease&) = delete;
  GuardBindings& bindings() { return bindings_; }

 private:
  const GuardSet* set_;
  std::optional<GuardBindings> own_;
  GuardBindings& bindings_;
};

}  // namespace fj
