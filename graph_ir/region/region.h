/// A region: a stretch of a program with loops and branches, over scalars in registers and arrays in memory.
///
///     region @smooth(%n: i64, %weight: f64) memory x: f64, y: f64 {
///     ^0:
///       %zero = constant 0 : i64
///       %first = load x[%zero] : f64
///       jump ^1(%zero, %first)
///     ^1(%i: i64, %last: f64):
///       %more = lt %i, %n : bool
///       branch %more, ^2, ^3
///     ^2:
///       %at = load x[%i] : f64
///       %change = sub %at, %last : f64
///       %part = mul %change, %weight : f64
///       %next = add %last, %part : f64
///       store y[%i], %next
///       %one = constant 1 : i64
///       %j = checked_add %i, %one : i64 else 0(%i, %last)
///       jump ^1(%j, %next)
///     ^3:
///       exit 1(%last)
///     }
///
/// Blocks have parameters for what differs between their entries. A region is left by an exit: a number, by which the
/// caller knows the instruction of the user's code that is next, and the values it is to find there. What comes before an
/// exit has happened and nothing behind it has, so that memory needs no copy: loads and stores are in the order of the
/// text, on the user's own arrays. A value is used in blocks that its definition dominates.
///
/// Arrays that a region makes are in memory that it allocates (runtime/region_library.h), which is reached through a
/// memory that is the whole heap: `memory x: f64, heap: f64 heap`. `undo: f64 scratch 256` is memory of its own.
///
/// Scalars are computed as the graph's operations of the same name compute elements. One that could fail (an integer
/// divided by zero) stands behind a leave_if that excludes it: the code does not look again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/graph.h"

namespace fj::region {

enum class Code : std::uint8_t {
  Constant,    // %x = constant 2.5 : f64
  Pointwise,   // %x = add %a, %b : f64           an operation of ops.def whose lowering is Pointwise
  CheckedAdd,  // %x = checked_add %a, %b : i64 else k(...)    leaves where the integer type does not hold the result
  CheckedSub,
  CheckedMul,
  AddNoWrap,  // %x = add_no_wrap %a, %b : i64   whoever made the region knows that the type holds the result
  Call,       // %x = call pow(%a, %b) : f64     a function of functions.def: what the C library computes, bit for bit
  Opaque,  // %x = opaque %a : f64             the same, of which an optimiser knows nothing: it computes no report away
  Run,     // %x = run sum_f64(%a, %n, %one) : f64    a function of the region library, which works on memory
  Load,    // %x = load m[%index] : f64        the index counts elements from where the memory begins
  Store,   // store m[%index], %value
  Address,  // %x = address m[%index] : i64
  LeaveIf,  // leave_if %condition else k(...)
  LeaveIfReported,  // leave_if_reported %r of %a, %b else k(...)    where NumPy would warn: the result is NaN and no
                    // operand is, or it is infinite and all operands are finite. `... %r of %a, %b and %s of %c, %d`:
                    // or where it would warn of s, which is finite if r is
  LeaveIfAsked,  // leave_if_asked else k(...)    where the caller asks for it: a signal has come
};

/// Where the region is left, and what the caller is given.
struct Leave {
  int exit = -1;
  std::vector<ValueId> values;
};

struct Instruction {
  Code code;
  Op op = Op::constant;            // Pointwise
  int function = -1;               // Call: into functions(). Run: into region_library()
  std::vector<ValueId>
      operands;  // Load: index; Store: index, value; LeaveIf: condition; LeaveIfReported: results, each with its own
  ValueId result;                  // none: of Store and those that only leave
  Scalar constant = false;         // Constant
  int memory = -1;                 // Load, Store, Address
  std::vector<int> parts;          // LeaveIfReported: how many operands belong to each result, with it
  int apart = -1;                  // Load, Store: a store touches nothing that a load of the same number does
  Leave leave;                     // of those with `else`
  Location location;
};

struct Target {
  int block = -1;
  std::vector<ValueId> arguments;
};

struct Terminator {
  enum class Kind : std::uint8_t { Jump, Branch, Exit };
  Kind kind = Kind::Exit;
  ValueId condition;  // Branch
  Target yes, no;     // Jump: `yes`
  Leave leave;        // Exit
};

struct Block {
  std::vector<ValueId> parameters;
  std::vector<Instruction> body;
  Terminator end;
};

struct Memory {
  std::string name;
  DType dtype;
  bool heap = false;               // begins at address 0: for what the region allocates
  std::int64_t scratch = 0;        // elements that are the region's own, with nothing in them at first; 0: it is given
};

struct Region {
  std::string name;
  std::vector<DType> types;        // by value
  std::vector<ValueId> inputs;
  std::vector<ValueId> natural;    // inputs that are not negative, as sizes are: `%n: i64 natural`
  std::vector<Memory> memories;
  bool disjoint = false;           // no two memories share an element: `memory x: f64, y: f64 disjoint {`
  std::vector<Block> blocks;       // the first is entered, and has no parameters
  int exits = 0;                   // their number

  ValueId new_value(DType dtype);
  DType type(ValueId value) const { return types[value.index]; }
  bool is_natural(ValueId input) const { return std::find(natural.begin(), natural.end(), input) != natural.end(); }
};

struct Function {
  std::string_view name;
  int operands;
  double (*one)(double);           // the one that has as many operands
  double (*two)(double, double);
};
std::span<const Function> functions();
/// -1: none is called so.
int function_number(std::string_view name);

/// Visits each result of a LeaveIfReported, and what it is of.
template <class Visit>
void for_each_report(const Instruction& instruction, Visit visit) {
  std::size_t at = 0;
  for (int part : instruction.parts) {
    visit(instruction.operands[at], std::span(instruction.operands).subspan(at + 1, std::size_t(part) - 1));
    at += std::size_t(part);
  }
}

/// The operands of an instruction and the values it leaves with, each once for each use.
template <class Visit>
void for_each_use(const Instruction& instruction, Visit visit) {
  for (ValueId operand : instruction.operands) visit(operand);
  for (ValueId value : instruction.leave.values) visit(value);
}
template <class Visit>
void for_each_use(const Terminator& end, Visit visit) {
  if (end.condition.valid()) visit(end.condition);
  for (ValueId value : end.yes.arguments) visit(value);
  for (ValueId value : end.no.arguments) visit(value);
  for (ValueId value : end.leave.values) visit(value);
}

/// Visits the same, to change them.
template <class Visit>
void change_uses(Instruction& instruction, Visit visit) {
  for (ValueId& operand : instruction.operands) visit(operand);
  for (ValueId& value : instruction.leave.values) visit(value);
}
template <class Visit>
void change_uses(Terminator& end, Visit visit) {
  if (end.condition.valid()) visit(end.condition);
  for (ValueId& value : end.yes.arguments) visit(value);
  for (ValueId& value : end.no.arguments) visit(value);
  for (ValueId& value : end.leave.values) visit(value);
}

/// As above; values are numbered in the order of their definitions. parse_region(print(r)) prints the same text.
std::string print(const Region& region);
/// Throws ParseError (graph_ir/parse.h). Nothing is inferred or checked but the form.
Region parse_region(std::string_view text);

/// The invariants: every value is defined once, before and in a block that dominates each use; targets get the
/// parameters' types; operations have the operands and dtypes that ops.def says; exits are numbered without gaps and an
/// exit has values of the same dtypes wherever it is taken. What is wrong, in words; empty: nothing.
std::vector<std::string> verify(const Region& region);

struct Left {
  int exit;
  std::vector<Scalar> values;
};

/// What a region does, one instruction after the other: the oracle of the code that is made from it. `memories` are
/// read and written. FJ_CHECKs that no index is outside of its memory, and that the region is left within
/// `most_instructions`.
Left evaluate(const Region& region, const std::vector<Scalar>& inputs, std::vector<DenseArray>& memories,
              std::int64_t most_instructions = 1 << 24);

}  // namespace fj::region
