// Choosing a binding. `bind` is the order of decisions: who works together, what is taken at once, what stays in
// registers.
#include "codegen/cuda/bind.h"

#include <algorithm>
#include <set>

#include "runtime/base/error.h"

namespace fj::cuda {

using namespace loop;

namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
// Rows up to this many elements are a warp's, where there are enough rows to fill the device with warps.
constexpr std::int64_t kWarpRow = 1024, kManyRows = 512;
// Rows so short that a thread takes one whole.
constexpr std::int64_t kThreadRow = 8;
// Registers for what is kept between passes, in elements.
constexpr std::int64_t kKeptElements = 32;
constexpr std::int64_t kNarrow = std::int64_t(1) << 30;
// Expressions times elements at once: beyond this an unrolled body costs the compiler more than it gains the device.
constexpr std::size_t kUnrolled = 4096;
// Of 8 bytes each; a kernel's parameters may take 4 KiB.
constexpr std::size_t kParameters = 480;

SymDim extent(const Kernel& kernel, VarId variable) { return kernel.variables[variable.index].extent; }

template <class Visit>
void visit_statements(const std::vector<Statement>& body, const Visit& visit) {
  for (const Statement& statement : body) {
    visit(statement);
    visit_statements(statement.body, visit);
  }
}

/// The loops of a perfect nest, outermost first.
std::vector<VarId> nest_of(const Statement& loop) {
  std::vector<VarId> result{loop.variable};
  const Statement* at = &loop;
  while (at->body.size() == 1 && at->body[0].kind == StatementKind::Loop)
    at = &at->body[0], result.push_back(at->variable);
  return result;
}

bool adds_at_once(DType dtype) {
  switch (dtype) {
    case DType::F32: case DType::F64: case DType::I32: case DType::U32: case DType::I64: case DType::U64: return true;
    default: return false;
  }
}

struct Access {
  int buffer;
  const Affine* address;
};

/// Loads and stores next to each other along the vector loop, in all neighbours or in none of them.
std::vector<Access> unit_accesses(const Kernel& kernel, int width) {
  std::vector<Access> result;
  const std::vector<bool> varies = varying(kernel, width);
  auto consider = [&](int buffer, const Affine& address) {
    if (address.coefficient(kernel.vector_var) != SymDim(1)) return;
    for (const auto& [dynamic, factor] : address.dynamic)
      if (varies[dynamic.index]) return;
    result.push_back({buffer, &address});
  };
  for (const Expr& expr : kernel.expressions)
    if (expr.kind == ExprKind::Load && !(expr.predicate.valid() && varies[expr.predicate.index]))
      consider(expr.buffer, expr.address);
  visit_statements(kernel.body, [&](const Statement& statement) {
    if (statement.kind == StatementKind::Store) consider(statement.buffer, statement.address);
  });
  return result;
}

/// False if `size` is no multiple for sure.
bool may_divide(const SymDim& size, int width) { return !size.is_constant() || size.value() % width == 0; }

void require(std::vector<SymDim>& multiples, const SymDim& size) {
  if (!size.is_constant() && std::find(multiples.begin(), multiples.end(), size) == multiples.end())
    multiples.push_back(size);
}

bool may_be_packed(const Kernel& kernel, const Affine& address, int width) {
  if (!may_divide(address.constant, width)) return false;
  for (const auto& [variable, factor] : address.terms)
    if (variable != kernel.vector_var && !may_divide(factor, width)) return false;
  for (const auto& [dynamic, factor] : address.dynamic)
    if (!may_divide(factor, width)) return false;
  return true;
}

/// The loop nests a team shares.
std::vector<std::vector<VarId>> team_nests(const Kernel& kernel) {
  std::vector<std::vector<VarId>> result;
  for (const Statement& statement : kernel.body)
    if (statement.kind == StatementKind::Loop) result.push_back(nest_of(statement));
  return result;
}

/// `row`: how many elements a team shares; 0: not the same number in each call.
void choose_width(const Kernel& kernel, const LoweredProgram& program, int widest, std::int64_t row, Binding& binding) {
  if (!kernel.vector_var.valid() || widest == 1) return;
  bool alone;  // the vector loop is all there is to deal out
  if (binding.team == 1) {
    if (binding.items.empty() || binding.items.back() != kernel.vector_var || !team_nests(kernel).empty()) return;
    alone = binding.items.size() == 1;
  } else {
    alone = true;
    for (const auto& nest : team_nests(kernel)) {
      if (nest.back() != kernel.vector_var) return;
      alone = alone && nest.size() == 1;
    }
    for (const AccumulatorInfo& info : kernel.accumulators)
      if (info.scan.valid()) return;
  }
  std::vector<Access> accesses = unit_accesses(kernel, 2);
  std::size_t bytes = 0;
  for (const Access& access : accesses)
    bytes = std::max(bytes, size_in_bytes(program.buffers[std::size_t(access.buffer)].dtype));
  if (!bytes) return;
  const Variable& variable = kernel.variables[kernel.vector_var.index];
  int width = std::min(widest, int(16 / bytes));
  for (; width > 1; width /= 2) {
    // Each thread of the warp has something to do.
    if (binding.team == kWarp && row && row < std::int64_t(kWarp) * width) continue;
    accesses = unit_accesses(kernel, width);
    if (kernel.expressions.size() * std::size_t(width) > kUnrolled) continue;
    if (!alone && !may_divide(variable.extent, width)) continue;
    if (variable.extent.is_constant() && variable.extent.value() < width) continue;
    if (variable.chunk.valid() && !may_divide(variable.chunk_length, width)) continue;
    if (std::any_of(accesses.begin(), accesses.end(),
                    [&](const Access& access) { return may_be_packed(kernel, *access.address, width); }))
      break;
  }
  if (width <= 1) return;
  binding.width = width;
  if (!alone) require(binding.multiples, variable.extent);
  if (variable.chunk.valid()) require(binding.multiples, variable.chunk_length);
  for (const Access& access : accesses) {
    if (!may_be_packed(kernel, *access.address, width)) continue;
    require(binding.multiples, access.address->constant);
    for (const auto& [other, factor] : access.address->terms)
      if (other != kernel.vector_var) require(binding.multiples, factor);
    for (const auto& [dynamic, factor] : access.address->dynamic) require(binding.multiples, factor);
    if (std::find(binding.packed_buffers.begin(), binding.packed_buffers.end(), access.buffer) ==
        binding.packed_buffers.end())
      binding.packed_buffers.push_back(access.buffer);
  }
  const bool whole = variable.extent.is_constant() ? variable.extent.value() % width == 0
                                                   : std::find(binding.multiples.begin(), binding.multiples.end(),
                                                               variable.extent) != binding.multiples.end();
  binding.ends_apart = alone && !whole;
}

/// Rounds of the team over an item, where every pass goes over it in the same way and what is loaded fits in registers.
/// Of sizes that are not known, twice the usual ones fit.
void choose_kept(const Kernel& kernel, const LoweredProgram& program, Binding& binding) {
  if (binding.team == 1 || binding.ends_apart) return;
  const auto nests = team_nests(kernel);
  if (nests.size() < 2 || std::any_of(nests.begin(), nests.end(), [&](const auto& nest) { return nest != nests[0]; }))
    return;
  SymDim elements = 1;
  for (VarId variable : nests[0]) {
    if (kernel.variables[variable.index].chunk.valid()) return;
    elements = elements * extent(kernel, variable);
  }
  std::int64_t loads = 0;
  for (const Expr& expr : kernel.expressions)
    if (expr.kind == ExprKind::Load && expr.address.coefficient(nests[0].back())) ++loads;
  const std::int64_t a_round = std::int64_t(binding.team) * binding.width;
  std::int64_t rounds = (hint(elements, program.symbols) + a_round - 1) / a_round;
  if (!elements.is_constant()) rounds *= 2;
  if (!loads || rounds < 1 || rounds * binding.width * loads > kKeptElements) return;
  binding.kept = int(rounds);
  binding.kept_elements = elements;
}

std::optional<Tile> choose_tile(const Kernel& kernel) {
  if (!kernel.vector_var.valid()) return std::nullopt;
  Tile tile;
  tile.column = kernel.vector_var;
  for (std::uint32_t i = 0; i < kernel.expressions.size(); ++i) {
    const Expr& expr = kernel.expressions[i];
    if (expr.kind != ExprKind::Load || !expr.address.dynamic.empty()) continue;
    const auto along = expr.address.coefficient(tile.column);
    if (!along || *along == SymDim(1)) continue;
    for (VarId row : kernel.parallel)
      if (row != tile.column && expr.address.coefficient(row) == SymDim(1) && (!tile.row.valid() || tile.row == row)) {
        tile.row = row;
        tile.loads.push_back(ExprId{i});
      }
  }
  // Shared memory of a block: 4 tiles of 8 bytes an element at most.
  if (tile.loads.empty() || tile.loads.size() > 4) return std::nullopt;
  for (VarId variable : {tile.row, tile.column})
    if (const auto size = extent(kernel, variable).constant(); size && *size < Tile::kSide / 2) return std::nullopt;
  return tile;
}

bool fits_narrow(const Kernel& kernel, const Binding& binding) {
  double items = 1;
  for (const Variable& variable : kernel.variables) {
    if (!variable.extent.is_constant() || !variable.chunk_length.is_constant()) return false;
    if (variable.extent.value() > kNarrow) return false;
  }
  for (VarId item : binding.items) items *= double(extent(kernel, item).value());
  if (items > double(kNarrow)) return false;
  auto fits = [&](const Affine& address) {
    if (!address.constant.is_constant()) return false;
    double reach = std::abs(double(address.constant.value()));
    for (const auto& [variable, factor] : address.terms) {
      if (!factor.is_constant()) return false;
      reach += std::abs(double(factor.value())) * double(extent(kernel, variable).value());
    }
    return reach < double(kNarrow);
  };
  for (const Expr& expr : kernel.expressions)
    if (expr.kind != ExprKind::CheckedIndex && !fits(expr.address)) return false;
  bool all = true;
  visit_statements(kernel.body, [&](const Statement& statement) { all = all && fits(statement.address); });
  return all;
}

}  // namespace

bool turns_between_packs(const Kernel& kernel, const Expr& expr, int width) {
  if (width < 2 || expr.kind != ExprKind::Pointwise || (expr.op != Op::lt && expr.op != Op::ge)) return false;
  const Expr &left = kernel[expr.args[0]], &right = kernel[expr.args[1]];
  if (left.kind != ExprKind::Position || right.kind != ExprKind::Position) return false;
  const Affine difference = left.address + right.address * SymDim(-1);
  const auto divides = [&](const SymDim& size) { return size.is_constant() && size.value() % width == 0; };
  if (difference.coefficient(kernel.vector_var) != SymDim(1)) return false;
  if (!difference.dynamic.empty() || !divides(difference.constant)) return false;
  return std::all_of(difference.terms.begin(), difference.terms.end(), [&](const auto& term) {
    return term.first == kernel.vector_var || divides(term.second);
  });
}

std::vector<bool> varying(const Kernel& kernel, int width) {
  std::vector<bool> result(kernel.expressions.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Expr& expr = kernel.expressions[i];
    if (turns_between_packs(kernel, expr, width)) continue;
    bool varies = expr.kind != ExprKind::CheckedIndex && expr.address.coefficient(kernel.vector_var).has_value();
    result[i] = varies || any_operand(expr, [&](ExprId operand) { return bool(result[operand.index]); });
  }
  return result;
}

std::string unsupported(const Kernel& kernel, const LoweredProgram& program) {
  for (const Expr& expr : kernel.expressions)
    if (is_complex(expr.dtype) || (expr.kind == ExprKind::Pointwise && is_complex(expr.operand_dtype)))
      return "complex numbers have no CUDA kernels";
  std::set<int> buffers;
  for (const Expr& expr : kernel.expressions)
    if (expr.kind == ExprKind::Load) buffers.insert(expr.buffer);
  visit_statements(kernel.body, [&](const Statement& statement) {
    if (is_store(statement.kind)) buffers.insert(statement.buffer);
  });
  if (buffers.size() + program.symbols.size() > kParameters)
    return "more arrays in one kernel than CUDA takes parameters";
  for (const AccumulatorInfo& info : kernel.accumulators)
    if (is_complex(info.dtype)) return "complex numbers have no CUDA kernels";
  for (const int buffer : buffers)
    if (is_complex(program.buffers[std::size_t(buffer)].dtype)) return "complex numbers have no CUDA kernels";
  return {};
}

Binding bind(const Kernel& kernel, const LoweredProgram& program, Preference preference) {
  Binding binding;
  binding.items = kernel.parallel;
  std::vector<Statement> loops;
  bool adds = false, atomic = true;
  visit_statements(kernel.body, [&](const Statement& statement) {
    if (statement.kind != StatementKind::Add && statement.kind != StatementKind::Put) return;
    adds = true;
    // Of what is put in one place the last counts.
    atomic = atomic && statement.kind == StatementKind::Add &&
             adds_at_once(program.buffers[std::size_t(statement.buffer)].dtype);
  });
  const auto nests = team_nests(kernel);
  if (adds) {
    // Additions to one place come in any order, which integers don't show and sums of floats don't promise.
    binding.atomic = atomic;
    if (atomic && nests.size() == 1) binding.items.insert(binding.items.end(), nests[0].begin(), nests[0].end());
    binding.narrow = fits_narrow(kernel, binding);
    return binding;
  }
  const bool over_items =
      std::find(kernel.parallel.begin(), kernel.parallel.end(), kernel.vector_var) != kernel.parallel.end();
  if (nests.empty()) {
    binding.tile = choose_tile(kernel);
    if (!binding.tile) choose_width(kernel, program, preference.widest, 0, binding);
    if (!binding.tile && preference.threads) binding.threads = preference.threads;
  } else if (!over_items && kernel.vector_var.valid()) {
    SymDim row = 1, rows = 1;
    for (VarId variable : nests[0]) {
      const Variable& loop = kernel.variables[variable.index];
      row = row * (loop.chunk.valid() ? loop.chunk_length : loop.extent);
    }
    for (VarId variable : kernel.parallel) rows = rows * extent(kernel, variable);
    const std::int64_t length = hint(row, program.symbols), count = hint(rows, program.symbols);
    if (length > kThreadRow || count < kManyRows) {
      binding.team = length <= kWarpRow && count >= kManyRows ? kWarp : kThreads;
      if (binding.items.empty() && length >= 16 * kThreads) binding.team = 1024;
      if (preference.team) binding.team = preference.team;
      if (preference.threads) binding.threads = preference.threads;
      // A team is a warp or all of the block.
      if (binding.team > binding.threads || binding.team > kWarp) binding.threads = binding.team;
    }
    choose_width(kernel, program, binding.team == 1 ? 1 : preference.widest, row.is_constant() ? length : 0, binding);
    choose_kept(kernel, program, binding);
  }
  binding.narrow = fits_narrow(kernel, binding);
  return binding;
}

std::vector<Alternative> alternatives(const Kernel& kernel, const LoweredProgram& program, const Binding& model) {
  std::vector<Alternative> result;
  if (model.tile || model.atomic) return result;
  const auto consider = [&](const Preference& preference) {
    Binding other = bind(kernel, program, preference);
    // The form that takes one element at a time is there only beside a wider model.
    if (other.width > model.width ||
        (other.width == model.width && other.threads == model.threads && other.team == model.team))
      return;
    result.push_back({preference, std::move(other)});
  };
  if (team_nests(kernel).empty()) {
    for (int threads : {128, 512}) consider({16, threads, 0});
    if (model.width > 1) consider({model.width / 2, 0, 0});
  } else if (model.team > 1) {
    const std::vector<VarId> row = team_nests(kernel)[0];
    SymDim elements = 1;
    for (VarId variable : row) elements = elements * extent(kernel, variable);
    const std::int64_t length = hint(elements, program.symbols);
    for (int team : {kWarp, 128, 256, 512, 1024})
      if (team != model.team && (team == kWarp || length >= std::int64_t(team) * model.width)) consider({16, 0, team});
    if (model.team == kWarp) consider({16, 128, kWarp});
  }
  return result;
}

bool packed(const Kernel& kernel, const LoweredProgram&, const Binding& binding, int buffer, const Affine& address) {
  return binding.width > 1 && address.coefficient(kernel.vector_var) == SymDim(1) &&
         may_be_packed(kernel, address, binding.width) &&
         std::find(binding.packed_buffers.begin(), binding.packed_buffers.end(), buffer) !=
             binding.packed_buffers.end();
}

std::vector<Extent> item_extents(const Kernel& kernel, const Binding& binding) {
  std::vector<Extent> result;
  for (VarId item : binding.items) {
    std::int64_t step = 1;
    if (binding.team == 1 && item == kernel.vector_var) step = binding.width;
    if (binding.tile && (item == binding.tile->row || item == binding.tile->column)) step = Tile::kSide;
    result.push_back({extent(kernel, item), step});
  }
  return result;
}

std::string text(const Kernel& kernel, const Binding& binding) {
  std::string out = kernel.name + ": " + std::to_string(binding.threads) + " threads a block";
  if (binding.tile) out += ", a tile of 32 x 32 through shared memory an item";
  else if (binding.team > 1) out += ", a team of " + std::to_string(binding.team) + " an item";
  if (binding.over_table) out += ", over a table of kernels";
  out += binding.narrow ? ", indices of 32 bits\n" : "\n";
  auto line = [&](VarId variable, const std::string& place) {
    const Variable& loop = kernel.variables[variable.index];
    out += "  " + loop.name + " < " + loop.extent.text() + "  " + place;
    if (variable == kernel.vector_var && binding.width > 1) out += ", " + std::to_string(binding.width) + " at once";
    out += "\n";
  };
  for (VarId item : binding.items) {
    const bool tiled = binding.tile && (item == binding.tile->row || item == binding.tile->column);
    line(item, tiled ? "tiles of items" : "items");
  }
  if (binding.atomic) return out;
  std::vector<VarId> seen;
  visit_statements(kernel.body, [&](const Statement& statement) {
    if (statement.kind != StatementKind::Loop || std::find(seen.begin(), seen.end(), statement.variable) != seen.end())
      return;
    seen.push_back(statement.variable);
    line(statement.variable, binding.team == 1 ? "serial"
                             : binding.kept
                                 ? std::string("team, ") + (binding.kept_elements.is_constant() ? "" : "up to ") +
                                       std::to_string(binding.kept) + " rounds kept in registers"
                                 : "team");
  });
  return out;
}

}  // namespace fj::cuda
