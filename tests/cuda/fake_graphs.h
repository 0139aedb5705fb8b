/// CUDA graphs of kernel nodes as the driver has them, for both fakes (fake_driver.cpp, fake_libcuda.cpp): nodes and
/// what is set on an executable graph keep copies of the arguments, and the kernels of a launch run in the emulation in
/// the order of their edges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace fj::test {

struct FakeFunction {
  std::string name;
  void (*run)(void** parameters, unsigned blocks);
  int (*parameters)();  // how many
  int (*first)();       // how many numbers of 8 bytes the first parameter is; the others are one
  const char* (*error)() = nullptr;
};

struct FakeNode {
  FakeNode(const cuda::KernelNode& from, FakeNode* before)
      : function(static_cast<const FakeFunction*>(from.function)), blocks(from.grid_x), threads(from.block_x),
        values(std::size_t(std::max(0, function->parameters() - 1 + function->first()))), after(before) {
    std::size_t at = 0;
    for (int i = 0; i < function->parameters(); at += std::size_t(i == 0 ? function->first() : 1), ++i)
      std::memcpy(&values[at], from.parameters[i], sizeof(std::uint64_t) * std::size_t(i == 0 ? function->first() : 1));
  }
  std::string text() const {
    return function->name + " of " + std::to_string(blocks) + " x " + std::to_string(threads);
  }
  void run() {
    std::vector<void*> pointers;
    std::size_t at = 0;
    for (int i = 0; i < function->parameters(); at += std::size_t(i == 0 ? function->first() : 1), ++i)
      pointers.push_back(&values[at]);
    function->run(pointers.data(), blocks);
  }

  const FakeFunction* function;
  unsigned blocks, threads;
  std::vector<std::uint64_t> values;
  FakeNode* after;
};

struct FakeGraph {
  std::vector<std::unique_ptr<FakeNode>> nodes;
  /// Null for a node that does not come after the one before it.
  FakeNode* add(const cuda::KernelNode& parameters, void* const* after, std::size_t count) {
    FakeNode* last = nodes.empty() ? nullptr : nodes.back().get();
    if (count != (last ? 1 : 0) || (last && *after != last)) return nullptr;
    nodes.push_back(std::make_unique<FakeNode>(parameters, last));
    return nodes.back().get();
  }
};

struct FakeExecutable {
  explicit FakeExecutable(const FakeGraph& from) : graph(&from) {
    for (const auto& node : from.nodes) nodes.push_back(*node);
  }
  /// Null: no node of the graph, or of another function.
  FakeNode* set(const void* node, const cuda::KernelNode& parameters) {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (graph->nodes[i].get() == node && nodes[i].function == parameters.function)
        return &(nodes[i] = FakeNode(parameters, nodes[i].after));
    return nullptr;
  }
  std::string text() const {
    std::string names;
    for (const FakeNode& node : nodes) names += " " + node.function->name;
    return names;
  }

  const FakeGraph* graph;
  std::vector<FakeNode> nodes;
};

}  // namespace fj::test
