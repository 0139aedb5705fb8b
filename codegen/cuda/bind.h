/// Which loop of a kernel runs where on a device of many threads: the one place that decides it, printed in every
/// kernel's dump.
///
///     kernel0: 256 threads a block, a team of 32 an item          softmax over [n, 1024]: a warp takes a row,
///       i0 < s0     items                                         each lane 4 neighbouring elements at a time,
///       i1 < 1024   team, 4 at once, 8 kept in registers          and the row is read from memory once
///
/// Items (the parallel loops, flattened) are dealt out over the whole grid in strides, so a launch of any number of
/// blocks is right. A team is one thread where the vector loop is among the items (then neighbouring threads touch
/// neighbouring memory), else a warp or the block, whose threads share the loops inside an item. What depends on sizes
/// only by a hint is a choice of speed: every binding is right for every size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/loops/lower.h"

namespace fj::cuda {

/// A block of rows x columns elements goes through shared memory: some loads are contiguous along `row`, all else along
/// `column`.
struct Tile {
  static constexpr int kSide = 32, kRowsAtOnce = 8;
  loop::VarId row, column;
  std::vector<loop::ExprId> loads;  // the ones contiguous along `row`
};

struct Binding {
  int threads = 256;  // of a block
  int team = 1;       // threads that work on one item together: 1, 32 or all of the block
  std::vector<loop::VarId> items;  // fastest last
  int width = 1;                   // neighbouring elements of the vector loop that a thread takes at once
  bool ends_apart = false;         // the vector loop need be no multiple of `width`: what is left is taken one by one
  int kept = 0;  // rounds of the team over an item, if what it loads stays in registers from one pass to the next,
  SymDim kept_elements;  // where an item has at most as many elements as these rounds take; constant: it always has
  bool atomic = false;             // additions to memory happen at once
  bool narrow = false;             // indices fit 32 bits
  bool over_table = false;  // a launch is over several kernels of this work, each with an equal part of the blocks:
                            // their buffers are a row of
  /// A table, and so is the value of this symbol of the program, if there is one that is each kernel's own.
  int own_symbol = -1;
  std::optional<Tile> tile;

  /// Which accesses take `width` elements in one instruction, and what makes that right: their buffers begin at
  /// multiples of 16 bytes (of their own access, if smaller) and these sizes are multiples of `width`. Where that does
  /// not hold at a launch, the kernel bound with width 1 runs instead.
  std::vector<int> packed_buffers;
  std::vector<SymDim> multiples;
};

/// Why the kernel has no CUDA form; empty if it has one. A sentence for the log.
std::string unsupported(const loop::Kernel& kernel, const LoweredProgram& program);

/// What of a binding may be otherwise without being wrong; 0: the model's choice.
struct Preference {
  int widest = 16;  // at most so many elements at once
  int threads = 0, team = 0;
};
Binding bind(const loop::Kernel& kernel, const LoweredProgram& program, Preference preference = {});

/// What may be faster than the model's binding, to be measured. Nothing of kernels whose result depends on who works
/// together in more than the order of a sum.
struct Alternative {
  Preference preference;
  Binding binding;
};
std::vector<Alternative> alternatives(const loop::Kernel& kernel, const LoweredProgram& program, const Binding& model);

/// Whether `a < b` or `a >= b` of positions has one value for each `width` neighbours along the vector loop: it turns
/// where packs begin.
bool turns_between_packs(const loop::Kernel& kernel, const loop::Expr& expr, int width);

/// By expression: whether its value differs between neighbours along the vector loop that are taken `width` at once.
std::vector<bool> varying(const loop::Kernel& kernel, int width);

/// Whether an access to `buffer` at `address` takes `width` elements along the vector loop at once.
bool packed(const loop::Kernel& kernel, const LoweredProgram& program, const Binding& binding, int buffer,
            const loop::Affine& address);

/// The items of a launch: the product of sizes, each divided by what is taken at once and rounded up.
struct Extent {
  SymDim size;
  std::int64_t step = 1;
};
std::vector<Extent> item_extents(const loop::Kernel& kernel, const Binding& binding);

std::string text(const loop::Kernel& kernel, const Binding& binding);

}  // namespace fj::cuda
