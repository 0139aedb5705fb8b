// From the lowered program to the parts a CompiledProgram is made of.
#include "codegen/program/program_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "codegen/program/step_accounts.h"
#include "runtime/products/blas.h"

namespace fj {

namespace {

void collect_stores(const std::vector<loop::Statement>& body, ProgramKernel& kernel) {
  for (const loop::Statement& statement : body) {
    if (loop::is_store(statement.kind)) kernel.writes.push_back(statement.buffer);
    collect_stores(statement.body, kernel);
  }
}

/// Of bits that are all 0.
bool is_zero(const loop::Expr& expr) {
  return expr.kind == loop::ExprKind::Constant && std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::pair<double, double>>)
          return value.first == 0 && value.second == 0 && !std::signbit(value.first) && !std::signbit(value.second);
        else
          return value == 0 && !(std::is_floating_point_v<std::decay_t<decltype(value)>> && std::signbit(double(value)));
      },
      expr.scalar);
}

/// Whether all that is stored is zeros.
bool stores_zeros(const loop::Kernel& kernel, const std::vector<loop::Statement>& body) {
  return std::all_of(body.begin(), body.end(), [&](const loop::Statement& statement) {
    if (statement.kind == loop::StatementKind::Loop) return stores_zeros(kernel, statement.body);
    return statement.kind == loop::StatementKind::Store && is_zero(kernel[statement.value]);
  });
}

std::string describe_steps(const LoweredProgram& program) {
  std::string out;
  const auto describe = [&](int number, std::size_t times) {
    const loop::Kernel& kernel = program.kernels[std::size_t(number)];
    out += kernel.name + (times > 1 ? " and " + std::to_string(times - 1) + " more of its work:" : ":");
    for (const loop::Expr& expr : kernel.expressions)
      if (expr.kind == loop::ExprKind::Pointwise) out += " " + std::string(name(expr.op));
  };
  const auto describe_step = [&](auto&& self, const ProgramStep& step) -> void {
    switch (step.kind) {
      case StepKind::Kernel: describe(step.kernel, 1); break;
      case StepKind::Blocks:
        out += "in blocks of " + step.blocks.rows.text() + " rows:\n";
        for (const ProgramStep& part : step.blocks.steps) self(self, part);
        return;
      case StepKind::Batch: describe(step.batch[0], step.batch.size()); break;
      case StepKind::Matmul: out += "matmul " + blas_name(); break;
      case StepKind::Count: out += step.count.of_number ? "as_size" : "nonzero"; break;
      case StepKind::Copies: out += "copies of " + std::to_string(step.copies.parts.size()) + " parts"; break;
      case StepKind::Extern: out += "call " + step.extern_call.callee; break;
      case StepKind::Cond: out += "cond"; break;
      case StepKind::Loop: out += "loop"; break;
    }
    out += step.commit ? " (commit)\n" : "\n";
  };
  for (const ProgramStep& step : program.steps) describe_step(describe_step, step);
  return out;
}

}  // namespace

ProgramKernel describe_kernel(const loop::Kernel& kernel) {
  ProgramKernel result;
  result.name = kernel.name;
  result.items = 1;
  for (loop::VarId variable : kernel.parallel) result.items = result.items * kernel.variables[variable.index].extent;
  result.elements_per_item = kernel.elements_per_item;
  result.nanoseconds_per_element = kernel.nanoseconds_per_element;
  result.scratch_bytes = kernel.scratch_bytes;
  for (const loop::Expr& expr : kernel.expressions)
    if (expr.kind == loop::ExprKind::Load) result.reads.push_back(expr.buffer);
  collect_stores(kernel.body, result);
  result.only_zeros = result.writes.size() == 1 && stores_zeros(kernel, kernel.body);
  return result;
}

std::optional<double> launch_nanoseconds(const ProgramKernel& kernel) {
  const auto items = kernel.items.constant(), elements = kernel.elements_per_item.constant();
  if (!items || !elements) return std::nullopt;
  return double(*items) * double(std::max<std::int64_t>(*elements, 1)) * kernel.nanoseconds_per_element;
}

ProgramParts describe_program(const Graph& graph, const LoweredProgram& program) {
  ProgramParts parts;
  for (const Symbol& symbol : program.symbols) {
    ProgramSymbol converted;
    if (symbol.definition)
      converted = {true, symbol.definition->dividend, symbol.definition->divisor, symbol.definition->remainder};
    parts.symbols.push_back(converted);
  }
  parts.graph_symbols = graph.symbols.size();
  parts.buffers = program.buffers;
  parts.output_buffers = program.output_buffers;
  parts.steps = program.steps;
  parts.name = graph.name;
  parts.text = describe_steps(program);
  parts.accounts = account_steps(graph, program);
  for (const Node& node : graph.nodes) {
    if (!node.bodies.empty()) parts.makes_infinities = true;  // it may have
    const double* value = node.op == Op::constant ? std::get_if<double>(&node.attrs.get<Scalar>("value")) : nullptr;
    if (!value) continue;
    // In a narrow dtype a large number is one.
    const DType dtype = graph.type(node.results[0]).dtype;
    double largest = std::numeric_limits<double>::max();
    if (dtype == DType::F16) largest = 65504.0;
    else if (dtype != DType::F64) largest = double(std::numeric_limits<float>::max());
    parts.makes_infinities = parts.makes_infinities || std::fabs(*value) > largest;
    parts.makes_nan = parts.makes_nan || std::isnan(*value);
  }
  return parts;
}

}  // namespace fj
