// Runs golden files: each holds graphs as text with what is to happen to them.
//
//     ; A comment says the fact.                    graph @f(%x: f32[4], %y: f32[5]) {
//     run: simplify                                   %0 = add %x, %y : f32[4]  ; error: add: operand 1 has ...
//     graph @f(%x: f32[4]) { ... }                    return %0
//     expect:                                       }
//     graph @f(%x: f32[4]) { ... }
//
// `run:` names passes (or `optimise`, or `print` for none), separated by spaces, and starts a case. The last may be
// `schedule` (what fuses with what, and what goes through memory), `loops` (of each kernel) or `bind` (what a device's
// threads do). Without it a case is one graph and the verifier must find exactly the errors its comments name, each in
// the node of its line (or, on the closing line, in none). Cases are separated by lines of `---`.
//
//     file_tests [--bless] file...       --bless rewrites expectations; the difference is reviewed like code
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "codegen/cuda/bind.h"
#include "codegen/loops/lower.h"
#include "codegen/program/isolate_kernel.h"
#include "codegen/schedule/schedule.h"
#include "graph_ir/parse.h"
#include "graph_ir/passes/cse.h"
#include "graph_ir/passes/dce.h"
#include "graph_ir/passes/gather_first.h"
#include "graph_ir/passes/simplify.h"
#include "graph_ir/passes/sink_broadcasts.h"
#include "graph_ir/pipeline.h"
#include "graph_ir/print.h"
#include "graph_ir/verify.h"
#include "runtime/base/error.h"

namespace {

using Lines = std::vector<std::string>;

const std::map<std::string, std::function<void(fj::Graph&)>> stages = {
    {"print", [](fj::Graph&) {}},
    {"dce", [](fj::Graph& graph) { fj::dce(graph); }},
    {"dce_with_conditions", [](fj::Graph& graph) { fj::dce(graph, true); }},
    {"cse", fj::cse},
    {"simplify", fj::simplify},
    {"sink_broadcasts", fj::sink_broadcasts},
    {"gather_first", fj::gather_first},
    {"optimise", [](fj::Graph& graph) { fj::optimise(graph); }},
};

/// Which kernel reads and writes which arrays: each is a pass over memory.
std::string traffic(const fj::LoweredProgram& program) {
  std::string out;
  fj::SymDim read = 0, written = 0;
  for (const fj::loop::Kernel& kernel : program.kernels) {
    std::set<int> reads, writes;
    for (const fj::loop::Expr& expr : kernel.expressions)
      if (expr.kind == fj::loop::ExprKind::Load) reads.insert(expr.buffer);
    const std::function<void(const std::vector<fj::loop::Statement>&)> visit = [&](const auto& body) {
      for (const fj::loop::Statement& statement : body) {
        if (statement.buffer >= 0) writes.insert(statement.buffer);
        visit(statement.body);
      }
    };
    visit(kernel.body);
    const auto list = [&](const std::set<int>& buffers, fj::SymDim& total) {
      std::string text;
      for (int buffer : buffers) {
        const fj::ProgramBuffer& described = program.buffers[std::size_t(buffer)];
        if (described.kind == fj::BufferKind::Scratch) continue;
        text += (text.empty() ? " " : ", ") + std::string("b") + std::to_string(buffer);
        total = total + fj::product(described.shape);
      }
      return text.empty() ? " nothing" : text;
    };
    out += kernel.name + ": reads" + list(reads, read) + ", writes" + list(writes, written) + "\n";
  }
  out += std::to_string(program.kernels.size()) + (program.kernels.size() == 1 ? " kernel, " : " kernels, ");
  return out + read.text() + " elements read, " + written.text() + " written\n";
}

/// Of a graph that has been through the passes.
const std::map<std::string, std::function<std::string(const fj::Graph&)>> printers = {
    {"schedule", [](const fj::Graph& graph) {
      const fj::Schedule groups = fj::schedule(graph);
      return fj::text(graph, groups) + traffic(fj::lower(graph, groups));
    }},
    {"loops", [](const fj::Graph& graph) {
      std::string out;
      const fj::LoweredProgram program = fj::lower(graph, fj::schedule(graph));
      for (const fj::loop::Kernel& kernel : program.kernels) out += fj::loop::text(kernel);
      return out;
    }},
    {"bind", [](const fj::Graph& graph) {
      std::string out;
      const fj::LoweredProgram program = fj::lower(graph, fj::schedule(graph), fj::LoopTarget::Threads);
      for (const fj::loop::Kernel& kernel : program.kernels) {
        fj::IsolatedKernel alone = fj::isolate(kernel, program, kernel.name);
        alone.program.symbols = program.symbols;
        out += fj::cuda::text(alone.kernel, fj::cuda::bind(alone.kernel, alone.program));
      }
      return out;
    }},
};

struct Failure {
  std::string message;
};

std::string joined(const Lines& lines) {
  std::string result;
  for (const std::string& line : lines) result += line + "\n";
  return result;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \n") - first + 1);
}

/// Runs a `run:` case and returns its lines with the actual result as expectation.
Lines run_passes(const Lines& lines) {
  std::size_t run = 0, expect = lines.size();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("run:")) run = i;
    if (lines[i].starts_with("expect:")) expect = i;
  }
  fj::Graph graph = fj::parse(joined(Lines(lines.begin() + long(run) + 1, lines.begin() + long(expect))));
  fj::check(graph, "as written");
  std::istringstream names(lines[run].substr(4));
  std::optional<std::string> printed;
  for (std::string name; names >> name;) {
    if (const auto printer = printers.find(name); printer != printers.end()) {
      printed = printer->second(graph);
      if (names >> name) throw Failure{"there is nothing to do after `" + printer->first + "`"};
      break;
    }
    const auto stage = stages.find(name);
    if (stage == stages.end()) throw Failure{"there is no pass `" + name + "`"};
    stage->second(graph);
    fj::check(graph, "after " + name);
  }
  const std::string text = printed ? *printed : fj::print(graph);
  if (!printed && fj::print(fj::parse(text)) != text)
    throw Failure{"the result does not survive print and parse:\n" + text};

  Lines result(lines.begin(), lines.begin() + long(expect));
  while (!result.empty() && result.back().empty()) result.pop_back();
  result.push_back("expect:");
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

/// Runs a verifier case and returns its lines with the errors found as comments.
Lines run_verifier(const Lines& lines) {
  std::vector<int> node_lines;
  const fj::Graph graph = fj::parse(joined(lines), node_lines);
  std::map<std::size_t, std::string> found;  // by line; the last line that is not empty takes those of no node
  std::size_t last = lines.size();
  while (last > 0 && lines[last - 1].empty()) --last;
  for (const fj::VerifyError& error : fj::verify(graph)) {
    const std::size_t line = error.node ? std::size_t(node_lines[*error.node]) : last;
    std::string& text = found[line];
    text += (text.empty() ? "" : "; ") + error.message;
  }
  Lines result;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t comment = lines[i].find("; error:");
    std::string line = comment == std::string::npos ? lines[i] : lines[i].substr(0, comment);
    if (comment != std::string::npos || found.contains(i + 1)) line.resize(line.find_last_not_of(' ') + 1);
    if (found.contains(i + 1)) line += "  ; error: " + found[i + 1];
    result.push_back(line);
  }
  if (found.empty()) throw Failure{"the verifier found nothing wrong"};
  return result;
}

/// Returns the number of failed cases.
int run_file(const std::string& path, bool bless) {
  std::ifstream file(path);
  if (!file) {
    std::cerr << path << ": cannot be read\n";
    return 1;
  }
  std::vector<Lines> cases(1);
  for (std::string line; std::getline(file, line);) {
    if (line == "---")
      cases.emplace_back();
    else
      cases.back().push_back(line);
  }
  int failures = 0;
  std::string blessed;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Lines& lines = cases[i];
    const std::string title = path + ", case " + std::to_string(i + 1);
    Lines actual = lines;
    try {
      const bool runs =
          std::any_of(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("run:"); });
      actual = runs ? run_passes(lines) : run_verifier(lines);
      if (!bless && trimmed(joined(actual)) != trimmed(joined(lines))) {
        ++failures;
        std::cerr << title << " expected\n" << joined(lines) << "but found\n" << joined(actual);
      }
    } catch (const Failure& failure) {
      ++failures;
      std::cerr << title << ": " << failure.message << "\n";
    } catch (const std::exception& error) {
      ++failures;
      std::cerr << title << ": " << error.what() << "\n";
    }
    blessed += (i ? "---\n" : "") + trimmed(joined(actual)) + "\n";
  }
  if (bless && failures == 0) std::ofstream(path) << blessed;
  std::cout << path << ": " << cases.size() - std::size_t(failures) << " of " << cases.size() << " cases pass\n";
  return failures;
}

}  // namespace

int main(int count, char** arguments) {
  bool bless = false;
  int failures = 0;
  for (int i = 1; i < count; ++i) {
    if (std::string(arguments[i]) == "--bless")
      bless = true;
    else
      failures += run_file(arguments[i], bless);
  }
  return failures ? 1 : 0;
}
