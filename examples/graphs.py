"""A graph is captured, printed, edited, run and saved; a pass and a back end are written. docs/captured-graphs.md shows the output."""
import operator

import numpy as np

import framejit


def energy(x, mass, rate=0.5):
    """What is captured."""
    momentum = x * mass
    return np.tanh(momentum * rate).sum(0)


def printed():
    graph = framejit.capture(energy, np.ones((4, 3)), np.ones(3), dynamic_shapes={"x": {0: "steps"}})
    print(graph)
    print(*graph.assumptions, sep="\n")
    return graph


def edited():
    """The hyperbolic tangent gets a bound."""
    graph = framejit.capture(energy, np.ones((4, 3)), np.ones(3), dynamic_shapes={"x": {0: "steps"}})
    for node in graph.find(op="tanh"):
        bounded = graph.call(lambda a: np.minimum(a, 0.25), node, after=node)
        node.replace_uses(bounded)
    graph.lint()
    return graph


def saved(path):
    """Read in another process, without `energy`."""
    edited().save(path)
    return framejit.Graph.load(path)


def reciprocal_products(graph):
    """A pass: a division by a number is a product with its reciprocal, whose last bit may be another one."""
    for node in graph.find(op="div"):
        above, below = node.operands
        if below.op == "broadcast" and below.operands[0].op == "constant":
            number = below.operands[0].attrs["value"]
            factor = graph.constant(1 / number, node.dtype, node.shape, before=node)
            node.replace_uses(graph.add("mul", above, factor, before=node))
    graph.eliminate_dead_code()
    return graph


@framejit.compile(passes=[reciprocal_products])
def thirds(x):
    return x / 3 + x


FUNCTIONS = {"add": operator.add, "mul": operator.mul, "sub": operator.sub, "neg": operator.neg, "tanh": np.tanh}


def by_functions(graph, examples):
    """A back end: one function for each operation it knows; a graph with another one runs by itself."""
    if any(node.op not in FUNCTIONS for node in graph):
        return graph.run

    def run(*arrays):
        values = dict(zip(graph.inputs, arrays))
        for node in graph:
            function = FUNCTIONS[node.op]
            values[node] = function(*(values[operand] for operand in node.operands))
        return [values[node] for node in graph.outputs]

    return run


@framejit.compile(backend=by_functions)
def oscillation(x, y):
    return np.tanh(x * y) - x


def gelus_for_relus():
    """Every relu of a module becomes gelu: forward, backward and running statistics are those of the module edited by hand."""
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4), torch.nn.ReLU())
    graph = framejit.capture(net, torch.randn(32, 8), dynamic_shapes={"input": {0: framejit.Dim("batch", min=2)}})
    graph.replace_pattern(torch.relu, torch.nn.functional.gelu)
    return net, graph


if __name__ == "__main__":
    printed()
    print(edited().tabular())
    print(oscillation(np.ones(3), np.ones(3)), thirds(np.ones(3)))
