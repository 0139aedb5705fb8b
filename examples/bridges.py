"""A graph goes to torch.fx, where tools written for it edit it, and comes back; then a back end of torch.compile compiles graphs.

    python examples/bridges.py
"""
import torch

import framejit


def scaled(x, weight):
    return torch.relu(x @ weight) * 2


def arguments(rows=4):
    return torch.randn(rows, 3), torch.randn(3, 5)


def without_relu(module):
    """An edit in torch.fx's own way: ATen's operators are nodes."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target is torch.ops.aten.where.self:
            node.replace_all_uses_with(node.args[2])
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def counting_backend(seen):
    """As people write them for torch.compile: a module and example inputs in, a function out."""
    def backend(module, example_inputs):
        seen.append(len(module.graph.nodes))
        return module.forward

    return backend


if __name__ == "__main__":
    x, weight = arguments()
    module = framejit.capture(scaled, x, weight, dynamic_shapes={"x": {0: "rows"}}).to_fx()
    module.print_readable()
    graph = framejit.from_fx(without_relu(module))
    print(graph)
    print(graph(x=x, weight=weight)[0] - x @ weight * 2)

    seen = []
    compiled = framejit.compile(scaled, backend=framejit.fx_backend(counting_backend(seen)))
    compiled(x, weight)
    print("nodes in each module:", seen)
