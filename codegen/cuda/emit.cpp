// The function, its loops and statements. Start at `run`; items() deals work out to threads, team_nest() shares the
// loops inside an item.
#include "codegen/cuda/emit.h"

#include <algorithm>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/prelude.h"
#include "runtime/base/error.h"

namespace fj::cuda {

using namespace loop;

namespace {

constexpr const char* kCombine[] = {"Sum", "Product", "Max", "Min", "And", "Or", "ArgMax", "ArgMin"};

std::string combine_name(const AccumulatorInfo& info) { return kCombine[int(info.reduction)]; }
bool finds_index(const AccumulatorInfo& info) {
  return info.reduction == Reduction::ArgMax || info.reduction == Reduction::ArgMin;
}
std::string accumulator_type(const AccumulatorInfo& info) {
  return finds_index(info) ? "Found<" + register_type(info.dtype) + ">" : register_type(info.dtype);
}

void note_stores(const std::vector<Statement>& body, std::set<int>& buffers) {
  for (const Statement& statement : body) {
    if (is_store(statement.kind)) buffers.insert(statement.buffer);
    note_stores(statement.body, buffers);
  }
}

}  // namespace

void Emitter::line(int scope, const std::string& text) {
  scopes_[std::size_t(scope)].text += std::string(2 * std::size_t(scope + 1), ' ') + text + "\n";
}

Emitter::Scope& Emitter::open(std::uint64_t variables, bool may_not_run) {
  scopes_.emplace_back();
  scopes_.back().variables = variables;
  scopes_.back().may_not_run = may_not_run;
  return scopes_.back();
}

void Emitter::close(const std::string& header) {
  const std::string text = std::move(scopes_.back().text);
  scopes_.pop_back();
  line(header + " {");
  scopes_.back().text += text;
  line("}");
}

void Emitter::decompose(const std::string& from, const std::vector<Part>& parts) {
  std::string rest = from;
  for (std::size_t i = parts.size(); i-- > 0;) {
    const Part& part = parts[i];
    std::string here = i == 0 ? rest : rest + " % " + part.count;
    if (part.scale != 1) here = "(" + here + ") * " + std::to_string(part.scale);
    if (!part.begin.empty()) here = part.begin + " + " + here;
    line(std::string("const ") + index_type() + " " + part.index + " = " + here + ";");
    if (i == 0) break;
    const std::string next = fresh("q");
    line(std::string("const ") + index_type() + " " + next + " = " + rest + " / " + part.count + ";");
    rest = next;
  }
}

std::string Emitter::total(const std::vector<Part>& parts) const {
  std::string product;
  for (const Part& part : parts) product += (product.empty() ? "" : " * ") + part.count;
  return product.empty() ? "1" : product;
}

const std::vector<Statement>& Emitter::work() const {
  const std::vector<Statement>* body = &kernel_.body;
  // The loops around atomic additions are items too.
  while (binding_.atomic && body->size() == 1 && (*body)[0].kind == StatementKind::Loop) body = &(*body)[0].body;
  return *body;
}

// ---- statements

void Emitter::body(const std::vector<Statement>& statements) {
  for (std::size_t s = 0; s < statements.size(); ++s) {
    const Statement& statement = statements[s];
    // Stores next to each other: one may overwrite in place what another's value is computed from.
    const bool first = s == 0 || statements[s - 1].kind != StatementKind::Store;
    for (std::size_t next = s; first && next < statements.size() && statements[next].kind == StatementKind::Store;
         ++next)
      value(statements[next].value);
    switch (statement.kind) {
      case StatementKind::Loop:
        if (binding_.team == 1)
          serial_loop(statement);
        else
          team_nest(statement);
        break;
      case StatementKind::Initialise: initialise(statement.accumulator); break;
      case StatementKind::Update: update(statement); break;
      case StatementKind::Store: store(statement); break;
      case StatementKind::Add: case StatementKind::Put: put(statement); break;
      case StatementKind::Check:
        break;  // a device reports no IEEE conditions, and in_place_writes.cpp makes no other checks for it
    }
  }
}

void Emitter::store(const Statement& statement) {
  const std::string type = element_type(program_.buffers[std::size_t(statement.buffer)].dtype), buffer = "b" +
      std::to_string(statement.buffer);
  const std::string stored = "write<" + type + ">(" + value(statement.value) + ")";
  bool together = in_pack(statement.buffer, statement.address);
  for (const auto& [dynamic, factor] : statement.address.dynamic) together = together && !varies(dynamic);
  if (together) {
    const std::string pack = fresh("p"), width = std::to_string(binding_.width);
    line(pack_scope_, "Pack<" + type + ", " + width + "> " + pack + ";");
    line(pack + ".at[lane] = " + stored + ";");
    pack_stores_.push_back("store_pack(" + buffer + " + (" + address(statement.address, true).name + "), " + pack +
                           ");");
    return;
  }
  line((guard_.empty() ? "" : "if (" + guard_ + ") ") + buffer + "[" + address(statement.address).name +
       "] = " + stored + ";");
}

void Emitter::put(const Statement& statement) {
  const DType dtype = program_.buffers[std::size_t(statement.buffer)].dtype;
  const std::string type = element_type(dtype), place = "b" + std::to_string(statement.buffer) + "[" +
      address(statement.address).name + "]";
  const std::string added = value(statement.value);
  const std::string condition = statement.predicate.valid() ? "if (" + value(statement.predicate) + ") " : "";
  if (statement.kind == StatementKind::Put) return line(condition + place + " = write<" + type + ">(" + added + ");");
  if (binding_.atomic) return line(condition + "add_to(&" + place + ", " + added + ");");
  const std::string sum = "add(read(" + place + "), " + added + ")";
  const bool half = is_half(dtype);
  line(condition + place + " = write<" + type + ">(" + (half ? "rounded<" + type + ">(" + sum + ")" : sum) + ");");
}

std::string Emitter::neutral(const AccumulatorInfo& info) {
  const std::string type = register_type(info.dtype);
  const bool real = is_float(info.dtype);
  switch (info.reduction) {
    // A running sum begins with its first element, -0.0 too; a whole one with 0.0.
    case Reduction::Sum: return real && info.scan.valid() ? type + "(-0.0)" : type + "(0)";
    case Reduction::Product: return type + "(1)";
    case Reduction::And: return info.dtype == DType::Bool ? "true" : type + "(~0ull)";
    case Reduction::Or: return type + "(0)";
    case Reduction::Max: return "Limits<" + type + ">::lowest()";
    case Reduction::Min: return "Limits<" + type + ">::largest()";
    // An element equal to it never wins. If all are, the first is the answer: index 0.
    case Reduction::ArgMax: return "found(Limits<" + type + ">::lowest(), 0)";
    case Reduction::ArgMin: return "found(Limits<" + type + ">::largest(), 0)";
  }
  return {};
}

void Emitter::initialise(int accumulator) {
  const AccumulatorInfo& info = kernel_.accumulators[std::size_t(accumulator)];
  accumulator_scope_[std::size_t(accumulator)] = top();
  line(accumulator_type(info) + " acc" + std::to_string(accumulator) + " = " + neutral(info) + ";");
}

void Emitter::update(const Statement& statement) {
  const AccumulatorInfo& info = kernel_.accumulators[std::size_t(statement.accumulator)];
  const std::string number = std::to_string(statement.accumulator), accumulator = "acc" + number;
  const Expr& product = kernel_[statement.value];
  if (info.contracts && product.kind == ExprKind::Pointwise && product.op == Op::mul && is_float(info.dtype)) {
    const std::string left = value(product.args[0]), right = value(product.args[1]);
    return line(accumulator + " = fma(" + left + ", " + right + ", " + accumulator + ");");
  }
  std::string operand = value(statement.value);
  if (finds_index(info)) operand = "found(" + operand + ", i64(" + address(statement.address).name + "))";
  line(accumulator + " = " + combine_name(info) + "::combine(" + accumulator + ", " + operand + ");");
  if (info.scan.valid()) line("const " + accumulator_type(info) + " run" + number + " = " + accumulator + ";");
}

// ---- loops inside an item

std::pair<std::string, std::string> Emitter::bounds(VarId number) {
  const Variable& variable = kernel_.variables[number.index];
  const std::string extent = size(variable.extent);
  if (!variable.chunk.valid()) return {"0", extent};
  const std::string length = size(variable.chunk_length), begin = fresh("begin"), end = fresh("end");
  line(std::string("const ") + index_type() + " " + begin + " = " + index_name(variable.chunk) + " * " + length + ";");
  line(std::string("const ") + index_type() + " " + end + " = " + begin + " + " + length + " < " + extent + " ? " +
       begin + " + " + length + " : " + extent + ";");
  return {begin, end};
}

void Emitter::serial_loop(const Statement& statement) {
  const auto [begin, end] = bounds(statement.variable);
  const std::string name = index_name(statement.variable);
  open(bit(statement.variable), true);
  body(statement.body);
  close(std::string("for (") + index_type() + " " + name + " = " + begin + "; " + name + " < " + end + "; ++" + name +
        ")");
}

/// The elements of a pack that begins at `at`, of the scope that is open.
void Emitter::lanes(const std::vector<Statement>& statements) {
  pack_scope_ = top();
  open(bit(kernel_.vector_var), false);
  line(std::string("const ") + index_type() + " " + index_name(kernel_.vector_var) + " = at + lane;");
  body(statements);
  line(pack_scope_, "#pragma unroll");
  close("for (int lane = 0; lane < " + std::to_string(binding_.width) + "; ++lane)");
  pack_scope_ = -1;
  for (const std::string& text : pack_stores_) line(text);
  pack_stores_.clear();
}

void Emitter::reduce_over_team(const std::vector<Statement>& statements) {
  for (const Statement& statement : statements) {
    reduce_over_team(statement.body);
    if (statement.kind != StatementKind::Update) continue;
    const AccumulatorInfo& info = kernel_.accumulators[std::size_t(statement.accumulator)];
    const std::string accumulator = "acc" + std::to_string(statement.accumulator);
    line(accumulator + " = team_reduce<" + combine_name(info) + ", " + std::to_string(binding_.team) + ">(" +
         accumulator + ");");
  }
}

void Emitter::team_nest(const Statement& outermost) {
  const Statement* innermost = &outermost;
  std::vector<VarId> nest{outermost.variable};
  while (innermost->body.size() == 1 && innermost->body[0].kind == StatementKind::Loop)
    innermost = &innermost->body[0], nest.push_back(innermost->variable);
  for (const Statement& statement : innermost->body)
    if (statement.kind == StatementKind::Update &&
        kernel_.accumulators[std::size_t(statement.accumulator)].scan.valid())
      return team_scan(outermost);

  const std::string guard = std::exchange(guard_, "");
  const std::string index = index_type(), team = std::to_string(binding_.team);
  std::uint64_t variables = 0;
  for (VarId variable : nest) variables |= bit(variable);
  const int width = binding_.width;
  const std::uint64_t outside = width > 1 ? variables & ~bit(kernel_.vector_var) : variables;
  auto inside = [&] {
    if (width > 1)
      lanes(innermost->body);
    else
      body(innermost->body);
  };
  if (nest.size() == 1 && !binding_.kept) {
    const auto [begin, end] = bounds(nest[0]);
    const std::string name = width > 1 ? "at" : index_name(nest[0]), step = std::to_string(width);
    open(outside, true);
    inside();
    const std::string last = width > 1 ? name + " + " + std::to_string(width - 1) : name;
    close("for (" + index + " " + name + " = " + begin + " + rank" + (width > 1 ? " * " + step : "") + "; " + last +
          " < " + end + "; " + name + " += " + std::to_string(binding_.team * width) + ")");
    if (width > 1 && binding_.ends_apart) {
      // What is left of the last pack, an element a thread.
      const std::string i = index_name(nest[0]);
      open(variables, true);
      body(innermost->body);
      close("for (" + index + " " + i + " = " + end + " - (" + end + " - " + begin + ") % " + step + " + rank; " + i +
            " < " + end + "; " + i + " += " + team + ")");
    }
  } else {
    // All loops as one, the vector loop fastest.
    std::vector<Part> parts;
    for (VarId variable : nest) {
      const bool pack = width > 1 && variable == kernel_.vector_var;
      const auto [begin, end] = bounds(variable);
      Part part{pack ? "at" : index_name(variable), end};
      if (begin != "0") part.count = "(" + end + " - " + begin + ")", part.begin = begin;
      if (pack) part.count = "(" + part.count + " / " + std::to_string(width) + ")", part.scale = width;
      parts.push_back(part);
    }
    const std::string all = fresh("total");
    line("const " + index + " " + all + " = " + total(parts) + ";");
    const bool kept = binding_.kept > 0;
    open(outside, true);
    if (kept) kept_round_scope_ = top();
    decompose("step", parts);
    inside();
    kept_round_scope_ = -1;
    if (kept) {
      // As many rounds as there are registers for; the last may be part of one.
      std::string text = std::move(scopes_.back().text);
      scopes_.back().text.clear();
      line("const " + index + " step = rank + round * " + team + ";");
      line("if (step < " + all + ") {");
      scopes_.back().text += text;
      line("}");
      scopes_[std::size_t(top() - 1)].text += std::string(2 * std::size_t(top()), ' ') + "#pragma unroll\n";
      close("for (int round = 0; round < " + std::to_string(binding_.kept) + "; ++round)");
      kept_.insert(kept_now_.begin(), kept_now_.end());
      kept_now_.clear();
    } else {
      close("for (" + index + " step = rank; step < " + all + "; step += " + team + ")");
    }
  }
  guard_ = guard;
  reduce_over_team({*innermost});
}

/// Along one loop, as many elements at a time as the team has threads.
void Emitter::team_scan(const Statement& outermost) {
  const auto [begin, end] = bounds(outermost.variable);
  FJ_CHECK(begin == "0" && outermost.body[0].kind == StatementKind::Update, "a scan of another form");
  const Statement& step = outermost.body[0];
  const AccumulatorInfo& info = kernel_.accumulators[std::size_t(step.accumulator)];
  const std::string index = index_type(), team = std::to_string(binding_.team), name = index_name(outermost.variable),
                    number = std::to_string(step.accumulator);
  const std::string type = accumulator_type(info), combine = combine_name(info),
                    guard = std::exchange(guard_, "active");
  open(bit(outermost.variable), true);
  line("const bool active = base + rank < " + end + ";");
  line("const " + index + " " + name + " = active ? base + rank : " + end + " - 1;");
  const std::string operand = value(step.value);
  line(type + " total" + number + ";");
  line("const " + type + " within" + number + " = team_scan<" + combine + ", " + team + ">(active ? " + operand +
       " : " + neutral(info) + ", " + neutral(info) + ", total" + number + ");");
  line("const " + type + " run" + number + " = " + combine + "::combine(acc" + number + ", within" + number + ");");
  line("acc" + number + " = " + combine + "::combine(acc" + number + ", total" + number + ");");
  body({outermost.body.begin() + 1, outermost.body.end()});
  close("for (" + index + " base = 0; base < " + end + "; base += " + team + ")");
  guard_ = guard;
}

// ---- items

void Emitter::items() {
  const std::string index = index_type(), threads = std::to_string(binding_.threads);
  const bool packs = binding_.team == 1 && binding_.width > 1;
  std::uint64_t variables = 0;
  std::vector<Part> parts;
  for (VarId item : binding_.items) {
    const std::string count = size(kernel_.variables[item.index].extent);
    if (packs && item == kernel_.vector_var) {
      parts.push_back({"at", "(" + count + " / " + std::to_string(binding_.width) + ")", binding_.width});
    } else {
      parts.push_back({index_name(item), count});
      variables |= bit(item);
    }
  }
  std::string first, stride;
  if (binding_.team == 1) {
    first = index + "(" + block_index() + ") * " + threads + " + threadIdx.x",
    stride = index + "(" + blocks() + ") * " + threads;
  } else if (binding_.team < binding_.threads) {
    const std::string teams = std::to_string(binding_.threads / binding_.team), team = std::to_string(binding_.team);
    line("const int rank = int(threadIdx.x) % " + team + ";");
    first = index + "(" + block_index() + ") * " + teams + " + threadIdx.x / " + team,
    stride = index + "(" + blocks() + ") * " + teams;
  } else {
    line("const int rank = int(threadIdx.x);");
    first = block_index(), stride = blocks();
  }
  open(variables, true);
  item_scope_ = top();
  if (binding_.team > 1) guard_ = "rank == 0";
  if (!parts.empty()) decompose("item", parts);
  if (packs)
    lanes(work());
  else
    body(work());
  close("for (" + index + " item = " + first + "; item < " + total(parts) + "; item += " + stride + ")");
  if (packs && binding_.ends_apart) {
    const std::string extent = size(kernel_.variables[kernel_.vector_var.index].extent),
                      width = std::to_string(binding_.width);
    const std::string i = index_name(kernel_.vector_var);
    open(bit(kernel_.vector_var), true);
    body(kernel_.body);
    close("for (" + index + " " + i + " = " + extent + " - " + extent + " % " + width + " + " + first + "; " + i +
          " < " + extent + "; " + i + " += " + stride + ")");
  }
}

/// Tiles through shared memory: what lies along the rows is read along the rows, the rest is done along the columns.
void Emitter::tile_items() {
  const Tile& tile = *binding_.tile;
  const std::string index = index_type(), row = index_name(tile.row), column = index_name(tile.column);
  const std::string rows = size(kernel_.variables[tile.row.index].extent),
                    columns = size(kernel_.variables[tile.column.index].extent);
  const std::string threads = std::to_string(binding_.threads);
  line("const int x = int(threadIdx.x) % 32, y = int(threadIdx.x) / 32;");
  std::vector<Part> parts;
  std::uint64_t others = 0;
  for (VarId item : binding_.items) {
    const std::string count = size(kernel_.variables[item.index].extent), tiles = "((" + count + " + 31) / 32)";
    if (item == tile.row)
      parts.push_back({"row", tiles, Tile::kSide});
    else if (item == tile.column)
      parts.push_back({"column", tiles, Tile::kSide});
    else
      parts.push_back({index_name(item), count}), others |= bit(item);
  }
  for (ExprId id : tile.loads)
    line("__shared__ " + register_type(kernel_[id].dtype) + " tile" + std::to_string(id.index) + "[32][33];");
  open(others, true);
  item_scope_ = top();
  decompose("item", parts);
  const std::uint64_t both = bit(tile.row) | bit(tile.column);
  auto inside = [&](const std::string& row_at, const std::string& column_at, const auto& emit_inside) {
    open(both, true);
    line("const " + index + " " + row + " = row + " + row_at + ", " + column + " = column + " + column_at + ";");
    line("if (" + row + " >= " + rows + " || " + column + " >= " + columns + ") continue;");
    emit_inside();
    line(top() - 1, "#pragma unroll");
    close("for (int turn = y; turn < 32; turn += " + std::to_string(binding_.threads / 32) + ")");
  };
  line("__syncthreads();  // the tiles of the item before have been read");
  inside("x", "turn", [&] {
    for (ExprId id : tile.loads) line("tile" + std::to_string(id.index) + "[turn][x] = " + value(id) + ";");
  });
  line("__syncthreads();");
  inside("turn", "x", [&] {
    for (ExprId id : tile.loads) scopes_.back().memo[id.index] = "tile" + std::to_string(id.index) + "[x][turn]";
    body(kernel_.body);
  });
  close("for (" + index + " item = " + block_index() + "; item < " + total(parts) + "; item += " + blocks() + ")");
}

/// What an item's rows may not fit in is done again without.
void Emitter::kept_or_not() {
  Binding plain = binding_;
  plain.kept = 0;
  Emitter without(kernel_, program_, plain);
  without.open(0, false);
  without.open(0, false);
  without.items();
  const std::string other = without.scopes_[0].text + without.scopes_[1].text;
  open(0, false);
  items();
  const std::string fits = size(binding_.kept_elements) + " <= " +
      std::to_string(std::int64_t(binding_.kept) * binding_.team * binding_.width);
  close("if (" + fits + ")");
  line("else {");
  scopes_.back().text += other;
  line("}");
  symbols_.insert(without.symbols_.begin(), without.symbols_.end());
  fallible_ = fallible_ || without.fallible_;
}

KernelText Emitter::run() {
  FJ_CHECK(kernel_.variables.size() <= 64, "too many loops in a kernel");
  open(0, false);
  if (binding_.tile)
    tile_items();
  else if (binding_.kept && !binding_.kept_elements.is_constant())
    kept_or_not();
  else
    items();
  KernelText result;
  result.name = kernel_.name;
  result.fallible = fallible_;
  std::set<int> read, written;
  for (const Expr& expr : kernel_.expressions)
    if (expr.kind == ExprKind::Load) read.insert(expr.buffer);
  note_stores(kernel_.body, written);
  for (int b = 0; b < int(program_.buffers.size()); ++b) {
    if (!read.contains(b) && !written.contains(b)) continue;
    const std::string type = element_type(program_.buffers[std::size_t(b)].dtype);
    (binding_.over_table ? result.columns : result.parameters)
        .push_back({ParameterKind::Buffer, b, (written.contains(b) ? "" : "const ") + type + "* __restrict__"});
  }
  if (binding_.over_table) {
    result.parameters.push_back({ParameterKind::Table, -1, "const Table<" + std::to_string(kTableNumbers) + ">"});
    result.parameters.push_back({ParameterKind::Kernels, -1, "u32"});
  }
  if (fallible_) result.parameters.push_back({ParameterKind::Status, -1, "u32*"});
  for (std::uint32_t symbol : symbols_)
    (int(symbol) == binding_.own_symbol ? result.columns : result.parameters)
        .push_back({ParameterKind::Symbol, int(symbol), "i64"});
  const auto name_of = [](const Parameter& parameter) {
    switch (parameter.kind) {
      case ParameterKind::Buffer: return "b" + std::to_string(parameter.number);
      case ParameterKind::Status: return std::string("status");
      case ParameterKind::Symbol: return "s" + std::to_string(parameter.number);
      case ParameterKind::Table: return std::string("table");
      case ParameterKind::Kernels: return std::string("kernels");
    }
    return std::string();
  };
  std::string signature, own;
  for (const Parameter& parameter : result.parameters)
    signature += (signature.empty() ? "" : ", ") + parameter.type + " " + name_of(parameter);
  if (binding_.over_table) {
    own = "  const u32 entry = blockIdx.x % kernels * " + std::to_string(result.columns.size()) +
          ", block = blockIdx.x / kernels, blocks = gridDim.x / kernels;\n";
    for (std::size_t c = 0; c < result.columns.size(); ++c)
      own += "  " + result.columns[c].type + " const " + name_of(result.columns[c]) + " = (" + result.columns[c].type +
             ")table.at[entry + " + std::to_string(c) + "];\n";
  }
  // Three quarters of a processor's threads at once are enough, which leaves 40 registers: left to itself ptxas spills
  // to keep to 32.
  result.source = "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(binding_.threads) + ", " +
      std::to_string(1536 / binding_.threads) + ") " + kernel_.name + "(" + signature + ") {\n" + own +
                  scopes_[0].text + "}\n";
  return result;
}

KernelText emit_kernel(const Kernel& kernel, const LoweredProgram& program, const Binding& binding) {
  return Emitter(kernel, program, binding).run();
}

std::string translation_unit(const std::vector<std::string>& kernels) {
  std::string out(prelude);
  for (const std::string& kernel : kernels) out += "\n" + kernel;
  return out + "\n}  // namespace fj\n";
}

}  // namespace fj::cuda
