// The short form of graphs: what stands inside of the operations that read it; parsing it gives the same graph.
#include <gtest/gtest.h>

#include <sstream>

#include "graph_ir/parse.h"
#include "graph_ir/print.h"
#include "graph_ir/verify.h"

namespace fj {
namespace {

/// The short form of an exact text; checks that it parses to a sound graph with the same short form.
std::string shortened(const std::string& exact) {
  Graph graph = parse(exact);
  const std::string text = print_short(graph);
  Graph again = parse(text);
  EXPECT_TRUE(verify(again).empty()) << verify(again)[0].message << "\n" << text;
  EXPECT_EQ(print_short(again), text);
  return text;
}

/// The lines of the body, without the border.
std::string body(const std::string& header, const std::string& lines, const std::string& result) {
  const std::string text = shortened("graph @f(" + header + ") {\n" + lines + "  return " + result + "\n}\n");
  const std::size_t begin = text.find(" {\n") + 3;
  return text.substr(begin, text.rfind("  return") - begin);
}

std::string message(const std::string& text) {
  try {
    const Graph graph = parse(text);
    const auto errors = verify(graph);
    return errors.empty() ? "sound" : errors[0].message;
  } catch (const ParseError& error) {
    return error.what();
  }
}

std::string with_line(const std::string& line) {
  return "graph @f(%x: f32[4, 5], %v: f32[5], %m: bool[4, 5], %i: i64[4, 5]) {\n  " + line + "\n  return %0\n}\n";
}

TEST(ShortText, NumbersStandWhereTheyAreRead) {
  struct Case {
    const char *value, *dtype, *op, *result;
  };
  for (const Case& c : {Case{"0.125", "f32", "mul", "f32"},
                        {"-0.0", "f32", "add", "f32"},
                        {"nan", "f64", "maximum", "f64"},
                        {"-nan", "f64", "add", "f64"},
                        {"inf", "f16", "minimum", "f16"},
                        {"-inf", "bf16", "add", "bf16"},
                        {"1e-300", "f64", "mul", "f64"},
                        {"5e-324", "f64", "mul", "f64"},
                        {"true", "bool", "bit_xor", "bool"},
                        {"false", "bool", "bit_and", "bool"},
                        {"-128", "i8", "add", "i8"},
                        {"127", "i8", "lt", "bool"},
                        {"-32768", "i16", "add", "i16"},
                        {"2147483647", "i32", "add", "i32"},
                        {"-9223372036854775808", "i64", "add", "i64"},
                        {"255", "u8", "add", "u8"},
                        {"65535", "u16", "eq", "bool"},
                        {"4294967295", "u32", "add", "u32"},
                        {"18446744073709551615", "u64", "ge", "bool"},
                        {"(1.0, nan)", "c64", "add", "c64"},
                        {"(-0.0, -inf)", "c128", "mul", "c128"}}) {
    const std::string dtype = c.dtype, value = c.value, op = c.op, result = c.result;
    const std::string exact = "  %0 = constant {value = " + value + ", to = " + dtype + "} : " + dtype + "[]\n" +
                              "  %1 = broadcast %0 {dims = []} : " + dtype + "[4, 5]\n" +
                              "  %2 = " + op + " %x, %1 : " + result + "[4, 5]\n";
    const std::string header = "%x: " + dtype + "[4, 5]";
    EXPECT_EQ(body(header, exact, "%2"), "  %0 = " + op + " %x, " + value + " : " + result + "[4, 5]\n");
    // Of one use nothing is lost: the exact form is the same again.
    const std::string text = "graph @f(" + header + ") {\n" + exact + "  return %2\n}\n";
    EXPECT_EQ(print(parse(print_short(parse(text)))), text);
  }
}

TEST(ShortText, NumbersWhoseDtypeTheirReaderDoesNotSayHaveALine) {
  EXPECT_EQ(body("%x: f32[4]",
                 "  %0 = constant {value = 2, to = i64} : i64[]\n  %1 = broadcast %0 {dims = []} : i64[4]\n"
                 "  %2 = cast %1 {to = f32} : f32[4]\n  %3 = add %x, %2 : f32[4]\n",
                 "%3"),
            "  %0 = constant {value = 2, to = i64} : i64[]\n  %1 = cast %0 {to = f32} : f32[4]\n"
            "  %2 = add %x, %1 : f32[4]\n");
  EXPECT_EQ(body("", "  %0 = constant {value = 2, to = i64} : i64[]\n  %1 = lt %0, %0 : bool[]\n", "%1"),
            "  %0 = constant {value = 2, to = i64} : i64[]\n  %1 = lt %0, %0 : bool[]\n");
  EXPECT_EQ(body("", "  %0 = constant {value = 2.5, to = f64} : f64[]\n", "%0"),
            "  %0 = constant {value = 2.5, to = f64} : f64[]\n");
  // One reader that takes no number: all read the line.
  EXPECT_EQ(body("%x: f32[4]",
                 "  %0 = constant {value = 2.0, to = f32} : f32[]\n  %1 = broadcast %0 {dims = []} : f32[4]\n"
                 "  %2 = mul %x, %1 : f32[4]\n  %3 = reshape %0 : f32[1]\n",
                 "%2, %3"),
            "  %0 = constant {value = 2.0, to = f32} : f32[]\n  %1 = mul %x, %0 : f32[4]\n"
            "  %2 = reshape %0 : f32[1]\n");
}

TEST(ShortText, NumbersOfWhereAndPad) {
  EXPECT_EQ(body("%m: bool[3], %x: f32[3]",
                 "  %0 = constant {value = 0.0, to = f32} : f32[]\n  %1 = broadcast %0 {dims = []} : f32[3]\n"
                 "  %2 = where %m, %x, %1 : f32[3]\n  %3 = pad %2, %0 {low = [1], high = [2]} : f32[6]\n"
                 "  %4 = constant {value = true, to = bool} : bool[]\n  %5 = broadcast %4 {dims = []} : bool[3]\n"
                 "  %6 = where %5, %1, %x : f32[3]\n",
                 "%3, %6"),
            "  %0 = where %m, %x, 0.0 : f32[3]\n  %1 = pad %0, 0.0 {low = [1], high = [2]} : f32[6]\n"
            "  %2 = where true, 0.0, %x : f32[3]\n");
}

TEST(ShortText, BroadcastsAreNumPys) {
  const std::string header =
      "%x: f32[s0, 4, 5], %last: f32[5], %ones: f32[s0, 1, 1], %first: f32[s0], %middle: f32[4], "
      "%ends: f32[s0, 5], %n: f32[]";
  const std::string exact = "graph @f(" + header + ") where s0 >= 0 {\n"
                            "  %0 = broadcast %last {dims = [2]} : f32[s0, 4, 5]\n"
                            "  %1 = add %x, %0 : f32[s0, 4, 5]\n"
                            "  %2 = broadcast %ones {dims = [0, 1, 2]} : f32[s0, 4, 5]\n"
                            "  %3 = add %1, %2 : f32[s0, 4, 5]\n"
                            "  %4 = broadcast %first {dims = [0]} : f32[s0, 4, 5]\n"
                            "  %5 = add %4, %3 : f32[s0, 4, 5]\n"
                            "  %6 = broadcast %middle {dims = [1]} : f32[s0, 4, 5]\n"
                            "  %7 = add %5, %6 : f32[s0, 4, 5]\n"
                            "  %8 = broadcast %ends {dims = [0, 2]} : f32[s0, 4, 5]\n"
                            "  %9 = add %7, %8 : f32[s0, 4, 5]\n"
                            "  %10 = broadcast %n {dims = []} : f32[s0, 4, 5]\n"
                            "  %11 = add %9, %10 : f32[s0, 4, 5]\n"
                            "  return %11\n}\n";
  const std::string text = shortened(exact);
  EXPECT_EQ(text.substr(text.find(" {\n") + 3),
            "  %0 = add %x, %last : f32[s0, 4, 5]\n"
            "  %1 = add %0, %ones : f32[s0, 4, 5]\n"
            "  %2 = add %first[:, None, None], %1 : f32[s0, 4, 5]\n"
            "  %3 = add %2, %middle[:, None] : f32[s0, 4, 5]\n"
            "  %4 = add %3, %ends[:, None, :] : f32[s0, 4, 5]\n"
            "  %5 = add %4, %n : f32[s0, 4, 5]\n"
            "  return %5\n}\n");
  EXPECT_EQ(print(parse(text)), print(parse(exact)));
}

TEST(ShortText, BroadcastsThatOthersReadHaveALine) {
  const std::string exact =
      "  %0 = broadcast %v {dims = [1]} : f32[4, 5]\n  %1 = reduce_sum %0 {axes = [0]} : f32[5]\n"
      "  %2 = add %x, %0 : f32[4, 5]\n  %3 = broadcast %x {dims = [0, 1]} : f32[4, 5]\n  %4 = neg %3 : f32[4, 5]\n";
  EXPECT_EQ(body("%x: f32[4, 5], %v: f32[5]", exact, "%1, %2, %4"), exact);
}

TEST(ShortText, MovesThatAreReadOnceStandInside) {
  EXPECT_EQ(body("%x: f32[4, 5, 6], %w: f32[7, 6]",
                 "  %0 = transpose %w {permutation = [1, 0]} : f32[6, 7]\n  %1 = reshape %x : f32[20, 6]\n"
                 "  %2 = matmul %1, %0 : f32[20, 7]\n  %3 = reshape %2 : f32[4, 5, 7]\n"
                 "  %4 = transpose %3 {permutation = [0, 2, 1]} : f32[4, 7, 5]\n  %5 = reshape %4 : f32[140]\n"
                 "  %6 = neg %5 : f32[140]\n",
                 "%6"),
            "  %0 = matmul reshape(%x, [20, 6]), transpose(%w) : f32[20, 7]\n"
            "  %1 = reshape transpose(reshape(%0, [4, 5, 7]), [0, 2, 1]) : f32[140]\n  %2 = neg %1 : f32[140]\n");
  // Where their line is another one, they have their own.
  const std::string apart = "  %0 = reshape %x : f32[20]  ; a.py:1\n  %1 = neg %0 : f32[20]  ; a.py:2\n";
  EXPECT_EQ(body("%x: f32[4, 5]", apart, "%1"), apart);
}

TEST(ShortText, SlicesOfNeighbours) {
  const std::string text = shortened(
      "graph @f(%x: f32[s0, 4, 5]) where s0 >= 3 {\n"
      "  %0 = slice %x {starts = [s0 - 3, 0, 1], steps = [1, 1, 1]} : f32[2, 4, 3]\n"
      "  %1 = slice %x {starts = [0, 1, 0], steps = [1, 1, 1]} : f32[s0 - 1, 2, 5]\n"
      "  %2 = reshape %0 : f32[24]\n"
      "  %3 = neg %1 : f32[s0 - 1, 2, 5]\n"
      "  %4 = slice %3 {starts = [0, 0, 0], steps = [1, 1, 1]} : f32[1, 2, 5]\n"
      "  %5 = broadcast %4 {dims = [0, 1, 2]} : f32[7, 2, 5]\n"
      "  %6 = neg %5 : f32[7, 2, 5]\n"
      "  %7 = slice %6 {starts = [6, 0, 0], steps = [-2, 1, 1]} : f32[3, 2, 5]\n"
      "  %8 = slice %7 {starts = [0, 0, 0], steps = [1, 1, 1]} : f32[3, 2, 5]\n"
      "  %9 = slice %8 {starts = [1, 0, 0], steps = [1, 1, 1]} : f32[2, 2, 5]\n"
      "  %10 = slice %9 {starts = [1, 0, 0], steps = [1, 1, 1]} : f32[0, 2, 5]\n"
      "  %11 = neg %10 : f32[0, 2, 5]\n"
      "  return %2, %11\n}\n");
  EXPECT_EQ(text,
            "graph @f(%x: f32[s0, 4, 5]) where s0 >= 3 {\n"
            "  %0 = reshape %x[s0 - 3:s0 - 1, :, 1:4] : f32[24]\n"
            "  %1 = neg %x[0:s0 - 1, 1:3] : f32[s0 - 1, 2, 5]\n"
            "  %2 = neg %1[0:1] : f32[7, 2, 5]\n"
            "  %3 = slice %2 {starts = [6, 0, 0], steps = [-2, 1, 1]} : f32[3, 2, 5]\n"
            "  %4 = slice %3 {starts = [0, 0, 0], steps = [1, 1, 1]} : f32[3, 2, 5]\n"
            "  %5 = slice %4[1:3] {starts = [1, 0, 0], steps = [1, 1, 1]} : f32[0, 2, 5]\n"
            "  %6 = neg %5 : f32[0, 2, 5]\n"
            "  return %0, %6\n}\n");
}

TEST(ShortText, ABroadcastOfAMove) {
  EXPECT_EQ(body("%x: f32[4, 5], %v: f32[2, 2]",
                 "  %0 = reshape %v : f32[4]\n  %1 = broadcast %0 {dims = [0]} : f32[4, 5]\n"
                 "  %2 = mul %x, %1 : f32[4, 5]\n",
                 "%2"),
            "  %0 = mul %x, reshape(%v, [4])[:, None] : f32[4, 5]\n");
}

TEST(ShortText, PlacesAreSaidWhereTheyChange) {
  const std::string lines =
      "  %0 = neg %x : f32[4]  ; a.py:1 layers.0\n  %1 = neg %0 : f32[4]\n  %2 = neg %1 : f32[4]  ; a.py:1\n"
      "  %3 = neg %2 : f32[4]  ;\n  %4 = neg %3 : f32[4]\n  %5 = neg %4 : f32[4]  ; a.py:1\n";
  EXPECT_EQ(body("%x: f32[4]", lines, "%5"), lines);
  const Graph graph = parse("graph @f(%x: f32[4]) {\n" + lines + "  return %5\n}\n");
  EXPECT_EQ(graph.nodes[1].location, graph.nodes[0].location);
  EXPECT_EQ(graph.nodes[2].location, (Location{"a.py", 1, ""}));
  EXPECT_EQ(graph.nodes[4].location, Location());
}

TEST(ShortText, StridesAreSaidWhereThereAreGaps) {
  EXPECT_EQ(shortened("graph @f(%x: f32[4, 5] strides [5, 1], %y: f32[4, 5] strides [1, 4]) {\n"
                      "  return %x strides [5, 1], %y strides [10, 2]\n}\n"),
            "graph @f(%x: f32[4, 5], %y: f32[4, 5] strides [1, 4]) {\n  return %x, %y strides [10, 2]\n}\n");
}

TEST(ShortText, NoLineIsLong) {
  std::string header, operands, exact;
  for (int i = 0; i < 60; ++i) {
    const std::string name = "%layers." + std::to_string(i) + ".weight";
    header += (i ? ", " : "") + name + ": f32[4]";
    operands += (i ? ", " : "") + name;
  }
  exact = "graph @f(" + header + ") where s0 >= 1 {\n  %0 = concat " + operands +
          " {axis = 0} : f32[240]  ; model.py:1 net\n";
  std::string words = "torch.f(x0";
  for (int i = 0; i < 60; ++i) words += ", 'a \\\\ b \\\" ; c'";
  exact += "  %1, %2 = extern_call %0 {callee = \"" + words +
           ")\", handle = 0, operand_strides = [[1]], result_strides = [contiguous, contiguous]} : "
           "f32[1, 1, 1], i64[2]\n"
           "  %3 = reshape %0 : f32[";
  for (int i = 0; i < 60; ++i) exact += "1, ";
  exact += "240]\n  return %1, %2, %3\n}\n";
  std::istringstream lines(shortened(exact));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 158u) << line;
  const Graph before = parse(exact), after = parse(print_short(before));
  EXPECT_EQ(print(after), print(before));
}

TEST(ShortText, CallsWithoutLayoutsOfTheirOwn) {
  const std::string whole = ", handle = -1, operand_strides = [contiguous], result_strides = [contiguous]";
  EXPECT_EQ(body("%x: f32[4]", "  %0 = extern_call %x {callee = \"torch.relu(x0)\"" + whole + "} : f32[4]\n", "%0"),
            "  %0 = extern_call %x {callee = \"torch.relu(x0)\"} : f32[4]\n");
  const std::string own =
      "  %0 = extern_call %x {callee = \"f\", handle = 1, operand_strides = [[1]], result_strides = [[2]]} : f32[4]\n";
  EXPECT_EQ(body("%x: f32[4]", own, "%0"), own);
}

TEST(ShortText, TextsThatAreNoneSayTheLineAndWhy) {
  EXPECT_EQ(message(with_line("%0 = add %x, 1.5 : f32[4, 5]")), "sound");
  EXPECT_EQ(message(with_line("%0 = add %x, foo(%x) : f32[4, 5]")), "line 2: expected an operand, found `foo(%x)`");
  EXPECT_EQ(message(with_line("%0 = add %x, 1.5f : f32[4, 5]")), "line 2: expected a number, found `1.5f`");
  EXPECT_EQ(message(with_line("%0 = add %i, 1.5 : i64[4, 5]")), "line 2: expected a number of dtype i64");
  EXPECT_EQ(message(with_line("%0 = logical_not 1 : bool[4, 5]")), "line 2: logical_not takes no number as operand 0");
  EXPECT_EQ(message(with_line("%0 = lt 1.0, 2.0 : bool[4, 5]")), "line 2: lt takes no number as operand 0");
  EXPECT_EQ(message(with_line("%0 = reduce_sum 1.0 {axes = []} : f32[]")),
            "line 2: reduce_sum takes no number as operand 0");
  EXPECT_EQ(message(with_line("%0 = cast 1.0 {to = f32} : f32[]")), "line 2: cast takes no number as operand 0");
  EXPECT_EQ(message(with_line("%0 = reduce_sum %v[:, None] {axes = [0]} : f32[5]")),
            "line 2: reduce_sum takes no operand with `[...]`");
  EXPECT_EQ(message(with_line("%0 = add %x, %v[None] : f32[4, 5]")),
            "line 2: an array of 1 axes, widened to 2, can't have the axes that its `[...]` names");
  EXPECT_EQ(message(with_line("%0 = add %x, %v[:, None, None] : f32[4, 5]")),
            "line 2: an array of 1 axes, widened to 2, can't have the axes that its `[...]` names");
  EXPECT_EQ(message(with_line("%0 = add %x, %v[0] : f32[4, 5]")), "line 2: expected `:`, found `]`");
  EXPECT_EQ(message(with_line("%0 = add %x, %v[:, None] : f32[4, 5]")),
            "broadcast: dimension 0 of size 5 cannot become size 4");
  EXPECT_EQ(message(with_line("%0 = neg transpose(%x, [0, 2]) : f32[4, 5]")), "line 2: there is no axis 2");
  EXPECT_EQ(message(with_line("%0 = neg transpose(%x, [0, 0]) : f32[4, 4]")).substr(0, 9), "transpose");
  EXPECT_EQ(message(with_line("%0 = neg reshape(%x, [21]) : f32[21]")).substr(0, 7), "reshape");
  EXPECT_EQ(message(with_line("%0 = neg reshape(1.0, [1]) : f32[1]")), "line 2: expected an array, found `1.0,`");
  EXPECT_EQ(message(with_line("%0 = neg reshape(%x, [20] : f32[20]")), "line 2: expected `)`, found `:`");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "reshape(";
  EXPECT_EQ(message(with_line("%0 = neg " + deep)), "line 2: more than two operations inside of another");
  EXPECT_EQ(message(with_line("%0 = add %x, (1.0, 2.0) : f32[4, 5]")), "line 2: expected a number, found `(1.0,`");
  EXPECT_EQ(message(with_line("%0 = add %x, ( : f32[4, 5]")).substr(0, 7), "line 2:");
  EXPECT_EQ(message(with_line("%0 = add %x, - : f32[4, 5]")), "line 2: expected a number, found `-`");
}

}  // namespace
}  // namespace fj
