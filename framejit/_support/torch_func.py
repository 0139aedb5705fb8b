"""The transforms of torch.func as they are traced: in the place of what torch's grad, vmap and their like call.

Each function here has the parameters of the one of torch that it stands for. What torch checks is checked by torch's own code, traced as well. Where the
trace would give something else than torch, an exception included, the graph ends and torch's own function runs.
"""
import torch
import torch._functorch.eager_transforms as transforms
import torch._functorch.vmap as mapping
from torch.utils._pytree import tree_flatten, tree_unflatten

from framejit._transforms import _batches, _examples, _left, _levels, _marked, _together, _watch, _within


@_marked
def _function_begins(derived):
    """A function is going to be called whose derivative is taken by these tensors."""


@_marked
def _function_ends(inside, results, ours):
    """It has returned. `inside`: tensors that nobody else has; `ours`: lists of framejit's."""


@_marked
def _function_left():
    """It has raised."""


@_marked
def _gradients_of_torch(values, cotangents, watched):
    """The cotangents of what was watched, laid out as torch's. None for a cotangent: 1, of a scalar."""


@_marked
def _constant_result(leaf):
    """A result without a history."""


@_marked
def _lies_by_examples(tensors, axes):
    """Whether every tensor lies as one example after the other."""


@_marked
def _batched_results(results):
    """For each result whether it depends on the example."""


@_marked
def _are_alternatives(first, second):
    """Whether both may be computed to choose from: tensors alike but for their elements, by operations that can't fail."""


@_marked
def _with_axis_at(result, axis):
    """The result with its first axis at another place, in the same memory."""


@_marked
def _left_to_torch(what):
    """Ends the graph."""


def _called(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except BaseException:
        _function_left()
        raise


def _chosen(args, argnums, values):
    """The arguments with those of argnums replaced."""
    args = list(args)
    if isinstance(argnums, tuple):
        for number, value in zip(argnums, values):
            args[number] = value
    else:
        args[argnums] = values
    return args


def grad_and_value_impl(func, argnums, has_aux, args, kwargs):
    flat, spec = tree_flatten(transforms._slice_argnums(args, argnums, as_tuple=False))
    recorded, rules = torch.is_grad_enabled(), []
    _function_begins(flat)
    with torch.enable_grad():
        watched = [_watch(leaf) for leaf in flat]
        inside = [value for value, _ in watched]
        args, kwargs = _in_new_containers((args, kwargs))
        output = _within(("backward", rules), _called, func, _chosen(args, argnums, tree_unflatten(inside, spec)), kwargs)
        aux = None
        if has_aux:
            if not (isinstance(output, tuple) and len(output) == 2):
                _left_to_torch("a function that returns no pair")
            output, aux = output
        if not isinstance(output, torch.Tensor) or rules:
            _left_to_torch("a function that returns no tensor, or calls one with a derivative of its own")
        kept = tree_flatten((output, aux))[0]
        _function_ends(inside, kept, (_levels, _batches))
        gradient = _gradients_of_torch([output], [None], [mark for _, mark in watched])
    if not recorded:
        gradient, output, aux = [_constant_result(leaf) for leaf in gradient], _constant_result(output), _constants(aux)
    gradient = tree_unflatten(gradient, spec)
    return (gradient, (output, aux)) if has_aux else (gradient, output)


def _in_new_containers(tree):
    """torch gives the function structures that nobody else has, of its wrappers of the tensors."""
    leaves, spec = tree_flatten(tree)
    return tree_unflatten(leaves, spec)


def _constants(tree):
    leaves, spec = tree_flatten(tree)
    return tree_unflatten([_constant_result(leaf) for leaf in leaves], spec)


def _flat_vmap(func, batch_size, flat_in_dims, flat_args, args_spec, out_dims, randomness, **kwargs):
    arrays, axes, rules = [], [], []
    for arg, axis in zip(flat_args, flat_in_dims):
        if axis is not None:
            arrays.append(arg)
            axes.append(axis)
    if not _lies_by_examples(arrays, axes):
        _left_to_torch("examples that do not lie one after the other")
    _function_begins([])
    batch, examples = _examples(arrays, axes)
    args = _with_examples(flat_args, flat_in_dims, args_spec, examples)
    _batches.append(batch)
    try:
        result = _within(("backward", rules), _called, func, args, kwargs)
    except BaseException:
        _left(batch)
        raise
    finally:
        _batches.pop()
    leaves, spec = tree_flatten(result)
    if rules or not all([isinstance(leaf, torch.Tensor) for leaf in leaves]):
        _left_to_torch("a function that returns no tensor, or calls one with a derivative of its own")
    batched, outwards = _batched_results(leaves), _axes_of_results(out_dims, result, spec)
    ones = [leaf for leaf, own in zip(leaves, batched) if own]
    if not all([own == (axis is not None) for own, axis in zip(batched, outwards)]):
        _left_to_torch("a result that is the same for all examples, or whose axis is None")
    _function_ends(examples, ones, (_levels, _batches))
    found = iter(_together(batch, ones, [0] * len(ones)))
    return tree_unflatten([_with_axis_at(next(found), axis) if own else leaf for leaf, own, axis in zip(leaves, batched, outwards)], spec)


def _with_examples(flat_args, flat_in_dims, args_spec, examples):
    rest = iter(examples)
    return tree_unflatten([arg if axis is None else next(rest) for arg, axis in zip(flat_args, flat_in_dims)], args_spec)


def _axes_of_results(out_dims, result, spec):
    if isinstance(result, torch.Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)
    return _broadcast_to_and_flatten(out_dims, spec)


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """As torch's, of an axis for everything or for each member of a tuple, list or dict."""
    if not isinstance(tree, (tuple, list, dict)):
        return [tree] * treespec.num_leaves
    given, children = tree_flatten(tree, lambda node: node is not tree)[0], treespec.children()
    if type(tree) is not treespec.type or len(given) != len(children) or isinstance(tree, dict) and list(tree) != list(treespec.context):
        _left_to_torch("axes in another structure than the tensors")
    found = []
    for part, child in zip(given, children):
        found.extend(_broadcast_to_and_flatten(part, child))
    return found


def lazy_load_decompositions():
    """Of operations that torch can't map otherwise: none of them is asked for."""


def cond(pred, true_fn, false_fn, operands=()):
    if isinstance(pred, (bool, int, float)):
        return true_fn(*operands) if pred else false_fn(*operands)
    if not (isinstance(pred, torch.Tensor) and pred.dtype == torch.bool and pred.numel() == 1):
        _left_to_torch("a condition that is no bool")
    if not isinstance(operands, (tuple, list)) or not all([isinstance(leaf, torch.Tensor) for leaf in tree_flatten(operands)[0]]):
        _left_to_torch("operands that are no tensors")
    _function_begins([])
    args = _in_new_containers(operands)
    first, spec = tree_flatten(_called(true_fn, args, {}))
    second, other_spec = tree_flatten(_called(false_fn, args, {}))
    if spec != other_spec or not _are_alternatives(first, second):
        _left_to_torch("branches of which not both can be computed, or that return different things")
    _function_ends([], [*first, *second], (_levels, _batches))
    pred = pred.reshape(())
    return tree_unflatten([torch.where(pred, one, other) for one, other in zip(first, second)], spec)


def traced_instead():
    """{torch's function: the one here}, of those that this torch has."""
    pairs = [(getattr(module, ours.__name__, None), ours) for module, ours in (
        (transforms, grad_and_value_impl), (mapping, _flat_vmap), (mapping, _broadcast_to_and_flatten), (mapping, lazy_load_decompositions),
        (torch, cond))]
    return {theirs: ours for theirs, ours in pairs if theirs is not None}
