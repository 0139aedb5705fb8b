// The work of scheduling and lowering grows with the graph, however values are shared: expressions are counted, not
// time.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "codegen/loops/lower.h"
#include "graph_ir/parse.h"

namespace fj::test {
namespace {

/// A graph of `steps` steps: `step(in, n)` gives lines whose last value is %n, from the value `in`, and how many
/// numbers they take.
using Step = std::function<std::string(const std::string& in, int first, int& last)>;

std::size_t expressions(const Step& step, int steps) {
  std::string text = "graph @f(%x: f64[64], %y: f64[64]) {\n", in = "%x";
  for (int s = 0, first = 0; s < steps; ++s) {
    int last = first;
    text += step(in, first, last);
    in = "%" + std::to_string(last);
    first = last + 1;
  }
  const Graph graph = parse(text + "  return " + in + "\n}\n");
  std::size_t count = 0;
  for (const loop::Kernel& kernel : lower(graph, schedule(graph, false)).kernels) count += kernel.expressions.size();
  return count;
}

std::string line(int number, const std::string& operation, const std::string& type = "f64[64]") {
  return "  %" + std::to_string(number) + " = " + operation + " : " + type + "\n";
}

std::string value(int number) { return "%" + std::to_string(number); }

/// Twice the steps are at most 2.4 times the expressions.
void grows_linearly(const Step& step) {
  const std::size_t few = expressions(step, 24), many = expressions(step, 48), most = expressions(step, 96);
  EXPECT_LE(double(many), 2.4 * double(few));
  EXPECT_LE(double(most), 2.4 * double(many));
}

}  // namespace

TEST(Growth, diamonds) {
  grows_linearly([](const std::string& in, int first, int& last) {
    last = first + 2;
    return line(first, "add " + in + ", %y") + line(first + 1, "sub " + in + ", %y") +
           line(last, "mul " + value(first) + ", " + value(first + 1));
  });
}

TEST(Growth, rolls_beside_the_value) {
  grows_linearly([](const std::string& in, int first, int& last) {
    last = first + 4;
    return line(first, "slice " + in + " {starts = [63], sizes = [1], steps = [1]}", "f64[1]") +
           line(first + 1, "slice " + in + " {starts = [0], sizes = [63], steps = [1]}", "f64[63]") +
           line(first + 2, "concat " + value(first) + ", " + value(first + 1) + " {axis = 0}") +
           line(first + 3, "sub " + in + ", " + value(first + 2)) + line(last, "mul " + value(first + 3) + ", %y");
  });
}

TEST(Growth, updates_of_slices) {
  grows_linearly([](const std::string& in, int first, int& last) {
    last = first + 3;
    return line(first, "slice " + in + " {starts = [2], sizes = [62], steps = [1]}", "f64[62]") +
           line(first + 1, "slice " + in + " {starts = [0], sizes = [62], steps = [1]}", "f64[62]") +
           line(first + 2, "mul " + value(first) + ", " + value(first + 1), "f64[62]") +
           line(last, "slice_update " + in + ", " + value(first + 2) + " {starts = [1], steps = [1]}");
  });
}

TEST(Growth, choices) {
  grows_linearly([](const std::string& in, int first, int& last) {
    last = first + 3;
    return line(first, "gt " + in + ", %y", "bool[64]") + line(first + 1, "add " + in + ", %y") +
           line(first + 2, "sub " + in + ", %y") +
           line(last, "where " + value(first) + ", " + value(first + 1) + ", " + value(first + 2));
  });
}

}  // namespace fj::test
