/// The guards of one segment as a flat program: fetches into registers (numbered by Source::id) and tests, in an order
/// where every fetch follows the tests of what it is fetched from, and cheap tests that fail often come first.
///
/// The fast path and the explanation run the same steps by the same function, so they can't disagree.
///
/// Dicts that have a version number are remembered with what was found in them: while the number stays, the answer
/// does, and a step costs a load and a compare instead of a lookup. Version numbers are never used twice in a process,
/// so the number alone identifies dict and contents. Likewise classes. A run that held is remembered as a whole: see
/// memo.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arrays/arrays.h"
#include "arrays/quick_check.h"
#include "guards/guard_set.h"

namespace fj::guard_program {

class Memo;

/// An ArrayExpectation with every question about its symbols answered: which size binds, which is compared.
struct ArrayCheck {
  enum class Test : std::uint8_t {
    Constant,    // equals `constant`
    Bind,        // gives symbol its value
    Symbol,      // equals the symbol, bound before
    Expression,  // equals an expression over symbols bound before
    Deferred,    // as Expression, once all symbols are bound (a step of its own)
  };
  struct Number {
    Test test = Test::Constant;
    std::int64_t constant = 0;
    std::uint32_t symbol = 0;
    SymDim expression;
  };
  PyTypeObject* type = nullptr;
  // Not side by side as in ArrayView: one wide compare of both would stall on the narrow stores that have just
  // filled the view (16 of the 20 ns per array).
  int rank = 0;
  DType dtype = DType::F32;
  bool constant = true;           // no symbols anywhere
  bool contiguous = false;        // strides are the row-major ones of whatever the sizes are
  bool requires_grad = false, writeable_required = false, aligned_required = false;
  bool deferred = false;          // some number is Deferred
  int device = kHost;
  std::uint64_t key_set = 0;
  std::vector<Number> sizes, strides;
  std::vector<std::int64_t> constants;  // if constant: all sizes, then all strides
  /// Of objects of exactly `type`: found at the first one.
  mutable std::optional<Library> library;
  mutable QuickCheck quick;       // of guards without symbols, once an array has passed
};

struct Step {
  enum class Kind : std::uint8_t {
    FetchSlot,
    FetchDictItem,
    FetchAttribute,
    FetchGlobal,
    FetchMade,
    FetchOther,
    TypeIs,
    TypeIsWeak,
    Identity,
    IdentityWeak,
    EqualsInt,
    Equals,
    Differs,
    Length,
    LengthBind,
    DictKeys,
    Elements,
    HasKey,
    LacksKey,
    TypeVersion,
    FunctionCode,
    Array,
    ArrayDeferred,
    IntBind,
    IntCompare,
    Define,
    Relation,
    SameObject,
    NotSame,
    NoOverlap,
    Unbound,
    GradMode,
    TorchModes,
    NumpyErrState,
  };
  Kind kind;
  std::int32_t value = 0;          // register that is tested or filled
  std::int32_t base = -1;          // fetches: register of the base
  std::uint32_t array = 0;         // Array, ArrayDeferred: index into arrays
  std::uint32_t symbol = 0;        // IntBind, IntCompare, Define
  std::int32_t guard = -1;         // index of the guard that the step belongs to; fetches: of the first that needs it
  const Source* source = nullptr;
  PyObject* object = nullptr;      // borrowed from the guard
  std::int64_t number = 0;
  const Symbol::Quotient* quotient = nullptr;
  // What was true of the dict or class with this version number.
  mutable std::uint64_t version = 0;
  mutable PyObject* remembered = nullptr;
};

class CheckProgram {
 public:
  CheckProgram(const SourceTable& sources, const std::vector<Guard>& guards,
          const std::vector<std::pair<SymbolId, Symbol::Quotient>>& definitions);

  const std::vector<Step>& steps() const { return steps_; }
  const ArrayCheck& array(const Step& step) const { return arrays_[step.array]; }
  const Guard& guard(const Step& step) const { return guards_[std::size_t(step.guard)]; }
  std::size_t symbol_count() const { return symbol_count_; }

  /// Bindings have a value per source and `symbol_count` symbols.
  bool run(const Step& step, const FrameValues& frame, GuardBindings& bindings) const;
  bool holds(const FrameValues& frame, GuardBindings& bindings) const;
  ~CheckProgram();

 private:
  bool all_hold(const FrameValues& frame, GuardBindings& bindings) const;
  bool decide(const Step& step, const FrameValues& frame, GuardBindings& bindings) const;

  friend class Builder;
  const std::vector<Guard>& guards_;
  std::vector<Step> steps_;
  std::vector<ArrayCheck> arrays_;
  std::size_t symbol_count_ = 0;
  // Of the last run that held; changed with the GIL held. A memo that keeps failing is made anew only now and then.
  mutable std::unique_ptr<Memo> memo_;
  mutable std::uint32_t memo_failures_ = 0;
  // Slots whose object was another one in a quarter of the calls or more: the dict of **keywords is made anew for each.
  mutable std::vector<bool> varies_;
  mutable std::vector<std::uint32_t> other_objects_;  // by register
  mutable std::uint32_t memo_calls_ = 0;
};

/// The fast reads of an object of exactly check.type; false if it is of another type or can't be read.
bool read_array(const ArrayCheck& check, PyObject* object, ArrayView& view);
/// Sizes and strides against the expectation; binds symbols. `deferred` chooses which numbers are looked at.
bool layout_matches(const ArrayCheck& check, const ArrayView& view, std::span<std::int64_t> symbols, bool deferred);
/// Reads any array, for questions about its memory.
bool read_any_array(PyObject* object, ArrayView& view);
/// True if the two arrays' elements can share a byte, judged by the interval each one's elements lie in.
bool may_overlap(const ArrayView& a, const ArrayView& b);
/// The first name of a TypeVersion guard under which the class has not what it had; null: all as it was.
PyObject* changed_class_attribute(const Guard& guard, PyTypeObject* type);
/// Equality of constants: same exact type, floats bitwise, tuples item by item; other objects by identity.
bool same_constant(PyObject* a, PyObject* b);
/// len() of the builtin containers and strings; -1 for others.
Py_ssize_t builtin_length(PyObject* object);

}  // namespace fj::guard_program
