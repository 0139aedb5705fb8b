/// What the two forms of a graph's text have in common. See print.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph_ir/print.h"

namespace fj {

/// In columns, of the short form's lines without their comments and of both forms' headers.
inline constexpr std::size_t kWidestLine = 136;

using Names = std::vector<std::string>;  // by ValueId

std::string name_of(const Names& names, ValueId value);

/// The names of inputs and results. `inside`, by node: printed inside of another one, so that its results are counted
/// after all others.
Names number_values(const Graph& graph, const std::vector<bool>& inside);

/// `graph @f(%x: f32[4]) where s0 >= 1 {`, over several lines if one would be too wide. `body`: of a graph inside of a
/// node, `then(%x: f32[4]) {`; its sizes are those around it.
std::string header(const Graph& graph, const Names& names, bool all_strides, const char* body = nullptr);

/// What stands between the operands and the types of a node with bodies: `{`, their lines, `}`; "" of others. `printed`
/// gives a body's text.
std::string bodies_text(const Node& node, const std::function<std::string(const Graph&, const char* word)>& printed);

/// `write` and `return` lines and the brace.
std::vector<std::string> border(const Graph& graph, const Names& names, bool all_strides);

/// `{axes = [0]}`, "" without any. is_short: without what the parser assumes (`assumed`), and with long texts as
/// `"..." "..."`, so that the line can be broken.
std::string attributes(const Node& node, bool is_short = false);

/// `f32[4], i64[4]`, "" without a result.
std::string result_types(const Graph& graph, const Node& node);

std::string text(const Dims& dims);

/// `demo.py:8 layers.0`; "": it is not known.
std::string place(const Location& location);

/// The comments behind nodes. A place holds for the nodes after it too, until the next comment.
class Places {
 public:
  /// `  ; demo.py:8 layers.0`; "": it is that of the node before; `  ;`: it is unknown, and that one's was not.
  std::string comment(const Location& location);

 private:
  std::string last_;
};

}  // namespace fj
