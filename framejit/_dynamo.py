"""`torch.compile(model, backend="framejit")`: torch captures graphs, framejit compiles them.

torch finds `backend` through the entry point in pyproject.toml. A graph that torch captured is a module whose `forward` is plain
Python: it is compiled as any other function, and its gradients are ours. What torch writes into a graph in a form that would
break ours is first written in another one that means the same (`_rewritten`).
Imported by torch alone: framejit itself does not need torch.
"""
import functools

import torch
from torch._dynamo import trace_rules
from torch._subclasses.fake_tensor import FakeTensor

from framejit._api import _check, compile, disable, mark_dynamic

# A backward that runs where torch captures comes to our helpers, which are no part of anybody's model.
trace_rules.add("framejit")


def backend(gm, example_inputs, *, options=None, **more):
    """The function that torch calls with each graph. `options` of torch.compile, and its mode, are those of `framejit.compile`.

    Raises TypeError for an option that framejit does not have; torch shows it inside of its BackendCompilerFailed.
    """
    given = {**(options or {}), **more}
    _check(given.get("backend"), {name: value for name, value in given.items() if name != "backend"})
    if any(_is_of_transforms(node) for node in gm.graph.nodes):
        return gm.forward  # inside of vmap, grad and the like nothing is compiled
    if getattr(torch._dynamo.config, "compiled_autograd", False):
        return gm.forward  # torch would capture the backward of our nodes, which is no Python code
    if given.get("dynamic") is not False:
        _mark_symbols(gm.graph, example_inputs)
    rewritten, numbers = _rewritten(gm)
    compiled = compile(rewritten.forward, **given)
    return _with_numbers(compiled, numbers) if numbers else compiled


def _is_of_transforms(node):
    return node.op == "call_function" and (getattr(node.target, "__module__", None) or "").startswith("torch._functorch")


def _placeholders(graph):
    return [node for node in graph.nodes if node.op == "placeholder"]


def _symbols(placeholder):
    """(axis, symbol) of each size of a tensor that torch has left a symbol: those that its operations need to be one number are guarded to be it."""
    example = placeholder.meta.get("example_value")
    if isinstance(example, FakeTensor):  # of nested tensors and the like, sizes are no plain numbers
        for axis, size in enumerate(example.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.free_symbols:
                yield axis, size.node.expr


def _mark_symbols(graph, example_inputs):
    """What is a symbol to torch is one to us from the first call on, which has these tensors."""
    for placeholder, example in zip(_placeholders(graph), example_inputs):
        axes = [axis for axis, _ in _symbols(placeholder)]
        if axes and type(example) in (torch.Tensor, torch.nn.Parameter):
            mark_dynamic(example, *axes)


def _rewritten(gm):
    """A copy of the module, and the places of the inputs that are tensors to torch and have to be given as numbers."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    numbers = _numbers_as_inputs(graph)
    _sizes_of_tensors(graph)
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
            node.target = _as_written(node.target)
        elif node.op == "call_function" and node.target is torch._C._set_grad_enabled:
            node.target = torch.set_grad_enabled
        elif node.op in ("call_function", "call_method"):
            # A device is printed as a call that makes it. Where torch takes a device, it takes its name.
            node.args, node.kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), _device_by_name)
    return torch.fx.GraphModule(gm, graph), numbers


def _device_by_name(argument):
    return str(argument) if isinstance(argument, torch.device) else argument


def _numbers_as_inputs(graph):
    """Floats that may change come as tensors that torch made of them, of which the graph does nothing but take the float."""
    places = []
    for place, placeholder in enumerate(_placeholders(graph)):
        argument = placeholder.meta.get("grapharg")
        if (getattr(argument, "pass_arg_as_tensor", False) and not argument.is_tensor and placeholder.users
                and all(user.op == "call_method" and user.target == "item" for user in placeholder.users)):
            for user in list(placeholder.users):
                user.replace_all_uses_with(placeholder)
                graph.erase_node(user)
            placeholder.type = None
            places.append(place)
    return places


def _sizes_of_tensors(graph):
    """A symbol among the inputs is asked of a tensor of that size: ours then depend on sizes alone, which are symbols from the first call on."""
    placeholders = _placeholders(graph)
    tensor_of = {}
    for placeholder in placeholders:
        for axis, symbol in _symbols(placeholder):
            tensor_of.setdefault(symbol, (placeholder, axis))
    for placeholder in placeholders:
        example = placeholder.meta.get("example_value")
        found = tensor_of.get(example.node.expr) if isinstance(example, torch.SymInt) else None
        if found is not None and placeholder.users:
            # Before anything that could write into the tensor.
            with graph.inserting_after(placeholders[-1]):
                placeholder.replace_all_uses_with(graph.call_method("size", found))


def _as_written(operator):
    """An operator that takes functions (checkpoint, cond, flex_attention): torch runs it and what it calls, nothing inside is compiled."""
    @disable
    def run_by_torch(*args, **kwargs):
        return operator(*args, **kwargs)

    return run_by_torch


def _with_numbers(compiled, places):
    @functools.wraps(compiled)
    def run(*args):
        args = list(args)
        for place in places:
            args[place] = args[place].item()
        return compiled(*args)

    return run
