// Every place of a kernel that holds a buffer number is renumbered: loads among the expressions, stores among the statements.
#include "codegen/isolate.h"

#include <algorithm>

namespace fj {

namespace {

class Renumbering {
 public:
  explicit Renumbering(std::vector<int>& buffers) : buffers_(buffers) {}

  void apply(int& buffer) {
    const auto found = std::find(buffers_.begin(), buffers_.end(), buffer);
    const int number = int(found - buffers_.begin());
    if (found == buffers_.end()) buffers_.push_back(buffer);
    buffer = number;
  }

  void apply(std::vector<loop::Statement>& body) {
    for (loop::Statement& statement : body) {
      if (statement.buffer >= 0) apply(statement.buffer);
      apply(statement.body);
    }
  }

 private:
  std::vector<int>& buffers_;
};

}  // namespace

IsolatedKernel isolate(const loop::Kernel& kernel, const LoweredProgram& program, const std::string& name) {
  IsolatedKernel result;
  result.kernel = kernel;
  result.kernel.name = name;
  Renumbering renumbering(result.buffers);
  for (loop::Expr& expr : result.kernel.expressions)
    if (expr.buffer >= 0) renumbering.apply(expr.buffer);
  renumbering.apply(result.kernel.body);
  for (int buffer : result.buffers) result.program.buffers.push_back(program.buffers[std::size_t(buffer)]);
  return result;
}

}  // namespace fj
