/// One function of many examples: the batching of a stretch of a graph.
///
///     %x = slice %xs ...       : f32[64]      an example          %ys = mul %xs, %xs        : f32[n, 64]
///     %y = mul %x, %x          : f32[64]                     =>   %zs = reduce_sum %ys {axes = [1]} : f32[n]
///     %z = reduce_sum %y {axes = [0]} : f32[]
///
/// The front end computes with one example; `add_batched` adds the same computation for all of them, their axis in
/// front. What depends on no example is used as it is. The nodes of the one example are left to die.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "graph_ir/graph.h"

namespace fj {

/// Which values depend on others, by whatever operations; extended to nodes added since when it is asked.
class Dependence {
 public:
  explicit Dependence(const Graph& graph, std::span<const ValueId> on);
  bool depends(ValueId value);

 private:
  const Graph& graph_;
  std::vector<bool> depends_;
  std::size_t nodes_ = 0;
};

/// An operation that runs on one example at a time.
struct NoBatch : std::runtime_error {
  NoBatch(Op op, Location location)
      : std::runtime_error(std::string(name(op)) + " runs on one example at a time"),
        op(op),
        location(std::move(location)) {}
  Op op;
  Location location;
};

struct Batched {
  ValueId example, all;  // `all` has the axis of the examples in front
};

/// Axes and shapes of an operation on one example as those of all: one axis further, by the attributes' names.
Attrs attrs_of_all(const Attrs& attrs, const SymDim& count);

/// The number of the library call that does for all examples, in front, what the call of this number does for one;
/// nothing: it runs on one at a time.
using BatchedCall = std::function<std::optional<std::int64_t>(std::int64_t call, const SymDim& count)>;

/// The values of `results` for all examples; invalid where a result depends on no example. Throws NoBatch.
std::vector<ValueId> add_batched(Graph& graph, std::span<const Batched> examples, std::span<const ValueId> results,
                                 const BatchedCall& call = {});

}  // namespace fj
