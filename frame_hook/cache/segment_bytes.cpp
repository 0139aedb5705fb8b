// Start at bytes_of, at the end. Each `held_by` counts what an object holds outside of itself.
#include "frame_hook/cache/segment_bytes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace fj {
namespace {

// What other folders keep private, in bytes. Measured by benchmarks/kept_memory.py: the growth that the parts
// below don't explain, by least squares over its kinds (CPython 3.11, glibc 2.36, LLVM 22).
constexpr std::size_t kGuard = 225;         // the step of the check program, words of the memo, the weak reference
constexpr std::size_t kNode = 225;          // the program's buffer, the loops that a kernel is compiled from
constexpr std::size_t kDerivative = 20000;  // nodes of autograd's graph, what they save

/// A block of the C library's heap: a word in front, in steps of 16 bytes.
constexpr std::size_t block(std::size_t bytes) {
  return bytes == 0 ? 0 : std::max<std::size_t>(32, (bytes + 8 + 15) / 16 * 16);
}

template <class T>
std::size_t array_of(const std::vector<T>& items) {
  return block(items.capacity() * sizeof(T));
}

std::size_t held_by(const std::string& text) {
  const bool inside = text.capacity() < sizeof(std::string) / 2;  // short texts take no block
  return inside ? 0 : block(text.capacity() + 1);
}

std::size_t held_by(const SymDim& size) {
  std::size_t bytes = array_of(size.terms());
  for (const SymDim::Term& term : size.terms()) bytes += array_of(term.symbols);
  return bytes;
}

std::size_t held_by(const Dims& dims) {
  std::size_t bytes = array_of(dims);
  for (const SymDim& size : dims) bytes += held_by(size);
  return bytes;
}

std::size_t held_by(const std::vector<std::optional<Dims>>& layouts) {
  std::size_t bytes = array_of(layouts);
  for (const auto& dims : layouts) bytes += dims ? held_by(*dims) : 0;
  return bytes;
}

std::size_t held_by(const Attrs& attrs) {
  std::size_t bytes = array_of(attrs.items());
  for (const auto& [name, attr] : attrs.items()) {
    bytes += held_by(name);
    bytes += std::visit([](const auto& value) -> std::size_t {
      using Value = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) return array_of(value);
      else if constexpr (std::is_trivially_destructible_v<Value>) return 0;
      else return held_by(value);
    }, attr);
  }
  return bytes;
}

std::size_t held_by(const Graph& graph) {
  std::size_t bytes = block(sizeof(Graph)) + held_by(graph.name);
  bytes += array_of(graph.symbols) + array_of(graph.inputs) + array_of(graph.nodes);
  bytes += array_of(graph.outputs) + array_of(graph.writes) + array_of(graph.composites);
  for (const Symbol& symbol : graph.symbols)
    if (const auto& quotient = symbol.definition) bytes += held_by(quotient->dividend) + held_by(quotient->divisor);
  for (const Input& input : graph.inputs) bytes += held_by(input.name) + (input.strides ? held_by(*input.strides) : 0);
  for (const Output& output : graph.outputs) bytes += output.strides ? held_by(*output.strides) : 0;
  for (const Node& node : graph.nodes)
    bytes += array_of(node.operands) + held_by(node.attrs) + array_of(node.results) + held_by(node.location.file) +
             held_by(node.location.module);
  for (const Composite& composite : graph.composites)
    bytes += array_of(composite.operands) + array_of(composite.kept) + held_by(composite.attrs);
  bytes += block(graph.value_count() * sizeof(Type));
  for (std::uint32_t i = 0; i < graph.value_count(); ++i) bytes += held_by(graph.type(ValueId{i}).shape);
  return bytes;
}

std::size_t held_by(const GuardSet& guards) {
  constexpr std::size_t kTreeNode = 4 * sizeof(void*), kHashNode = 2 * sizeof(void*);
  std::size_t bytes = block(sizeof(GuardSet)) + array_of(guards.all());
  for (const Guard& guard : guards.all()) {
    bytes += array_of(guard.names) + array_of(guard.others) + held_by(guard.location) + held_by(guard.object_text);
    // GuardSet::by_place_
    bytes += block(kTreeNode + sizeof(std::pair<std::pair<GuardKind, SourceRef>, std::size_t>));
    if (guard.array) bytes += held_by(guard.array->shape) + held_by(guard.array->strides);
    for (const auto& side : {&guard.left, &guard.right})
      if (*side) bytes += held_by(**side);
  }
  for (const auto& source : guards.sources().all()) {
    bytes += sizeof(SourceRef) + block(sizeof(Source)) + array_of(source->operands);
    // SourceTable::interned_ and its buckets
    bytes += block(kHashNode + sizeof(std::pair<std::size_t, SourceRef>)) + sizeof(void*);
  }
  return bytes;
}

std::size_t held_by(const Recipe& recipe) {
  std::size_t bytes = array_of(recipe.steps) + array_of(recipe.slots) + array_of(recipe.let_go);
  bytes += block(recipe.keep.size() / 8);
  for (const RecipeStep& step : recipe.steps) {
    bytes += array_of(step.args) + held_by(step.expression) + held_by(step.shape) + held_by(step.strides);
    bytes += array_of(step.view);
    for (const ViewStep& view : step.view)
      bytes += held_by(view.attrs) + held_by(view.shape_before) + held_by(view.shape_after);
  }
  return bytes;
}

}  // namespace

std::size_t bytes_of(const Graph& graph) { return held_by(graph) + graph.nodes.size() * kNode; }

std::size_t bytes_of(const Segment& segment, std::size_t kernels, const FjCode& code) {
  std::size_t bytes = block(sizeof(Segment)) + array_of(segment.inputs) + held_by(segment.recipe) + kernels;
  bytes += held_by(segment.exit.detail) + held_by(segment.exit.file);
  bytes += held_by(*segment.guards) + segment.guards->all().size() * kGuard;
  if (segment.graph) bytes += bytes_of(*segment.graph);
  // The graph as captured, and with the values saved.
  if (segment.derivative) bytes += kDerivative + 2 * held_by(segment.derivative->forward());
  if (segment.start_instruction == 0)
    bytes += block(std::size_t(code.count) * (sizeof(FjInstr) + sizeof(void*))) +  // and CodeCache::places_
             block(std::size_t(code.code_units + 1) * sizeof(*code.index_of));
  return bytes;
}

}  // namespace fj
