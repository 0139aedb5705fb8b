"""The transforms of torch.func as they are traced: in the place of what torch's grad, vmap and their like call.

Each function here has the parameters of the one of torch that it stands for. What torch checks is checked by torch's own code, traced as well.
Where the trace would give something else than torch, an exception included, the graph ends and torch's own function runs.
"""
import torch
import torch._functorch.eager_transforms as transforms
import torch._functorch.vmap as mapping
from torch.utils._pytree import tree_flatten, tree_unflatten

from framejit._transforms import _batches, _examples, _gradients, _left, _levels, _marked, _seeds, _together, _traced, _watch, _within


@_marked
def _function_begins(derived, forward):
    """A function is going to be called whose derivative is taken by these tensors, forwards or backwards."""


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
def _pushed_by_torch(pulled, directions, seeds, results):
    """The derivative of what the seeds of the results were pulled back to, by them: the tangents of the results."""


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
def _own_tensors(values, beside, gradients):
    """Whether all are tensors with memory of their own, none of those `beside`; unless `gradients`, none needs one."""


@_marked
def _joins_branches():
    """Whether both ways of a branch on data go into the graph."""


@_marked
def _writes_of(tensor):
    """How often its memory was written."""


@_marked
def _memory_of(tensors):
    """The tensors, with those in the place of views that own the memory."""


@_marked
def _shown_as(memory, like, of_examples):
    """The view that a tensor is of its memory, of other memory, which may be that of all examples."""


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
    _function_begins(flat, False)
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


def _vjp_with_argnums(func, *primals, argnums=None, has_aux=False):
    derived = primals if argnums is None else transforms._slice_argnums(primals, argnums, as_tuple=False)
    flat, spec = tree_flatten(derived)
    recorded, rules = torch.is_grad_enabled(), []
    _function_begins(flat, False)
    with torch.enable_grad():
        watched = [_watch(leaf) for leaf in flat]
        inside, marks = [value for value, _ in watched], [mark for _, mark in watched]
        args, = _in_new_containers((primals,))
        args = tree_unflatten(inside, spec) if argnums is None else _chosen(args, argnums, tree_unflatten(inside, spec))
        output, aux = _value_and_aux(_within(("backward", rules), _called, func, args, {}), has_aux)
        leaves, structure = tree_flatten(output)
        _check_results(leaves, rules)
        _function_ends(inside, tree_flatten((output, aux))[0], (_levels, _batches))
    versions = [_writes_of(leaf) for leaf in leaves]
    if not recorded:
        output, aux = _constants(output), _constants(aux)

    pullback = _traced(_pullback(leaves, versions, structure, marks, spec, recorded))
    return (output, pullback, aux) if has_aux else (output, pullback)


def _pullback(results, versions, structure, marks, spec, recorded):
    def wrapper(cotangents, retain_graph=True, create_graph=None):
        given, other = tree_flatten(cotangents)
        if other != structure or not retain_graph or create_graph is not None:
            _left_to_torch("a pullback that is given another structure than its function returned, or how to use the graph")
        if [_writes_of(leaf) for leaf in results] != versions:
            _left_to_torch("a function whose result is written before its derivative is asked for")
        records = torch.is_grad_enabled()
        if records and not recorded:
            _left_to_torch("a pullback that is recorded, of a function that is not")
        with torch.enable_grad():
            found = _gradients_of_torch(results, given, marks)
        return tree_unflatten(found if records else [_constant_result(leaf) for leaf in found], spec)

    return wrapper


def _value_and_aux(output, has_aux):
    if not has_aux:
        return output, None
    if not (isinstance(output, tuple) and len(output) == 2):
        _left_to_torch("a function that returns no pair")
    return output


def _check_results(leaves, rules):
    if not leaves or not all([isinstance(leaf, torch.Tensor) for leaf in leaves]) or rules:
        _left_to_torch("a function that returns no tensor, or calls one with a derivative of its own")


def _jvp_with_argnums(func, primals, tangents, argnums, *, strict=False, has_aux):
    if strict or not isinstance(primals, tuple):
        _left_to_torch("a derivative that may not be zero, or of what is no tuple")
    flat, spec = tree_flatten(primals if argnums is None else transforms._slice_argnums(primals, argnums))
    directions, other = tree_flatten(tangents)
    if not flat or spec != other:
        _left_to_torch("tangents in another structure than what they belong to")
    recorded, rules = torch.is_grad_enabled(), []
    _function_begins(flat, True)
    with torch.enable_grad():
        watched = [_watch(leaf) for leaf in flat]
        inside, marks = [value for value, _ in watched], [mark for _, mark in watched]
        args, = _in_new_containers((primals,))
        given = tree_unflatten(inside, spec)
        if argnums is not None:
            given = _chosen(args, argnums, given if isinstance(argnums, tuple) else given[0])
        output, aux = _value_and_aux(_within(("forward", rules), _called, func, given, {}), has_aux)
        leaves, structure = tree_flatten(output)
        _check_results(leaves, rules)
        _function_ends(inside, tree_flatten((output, aux))[0], (_levels, _batches))
        # Cotangents are pulled back linearly, whichever they are: the derivative of that is the push forward.
        memory = _memory_of(leaves)
        floats = [leaf for leaf in memory if leaf.is_floating_point()]
        seeds = _seeds(floats)
        found = iter(_pushed_by_torch(_gradients(floats, seeds, marks), directions, seeds, floats))
        tangents = [next(found) if leaf.is_floating_point() else torch.zeros_like(leaf) for leaf in memory]
    if not recorded:
        memory, tangents, aux = _constants(memory), _constants(tangents), _constants(aux)
    # torch unpacks a pair, which gives a view.
    output = tree_unflatten([_shown_as(all, leaf, False)[...] for all, leaf in zip(memory, leaves)], structure)
    pushed = tree_unflatten([_shown_as(all, leaf, False) for all, leaf in zip(tangents, leaves)], structure)
    return (output, pushed, aux) if has_aux else (output, pushed)


def _chunked_standard_basis_for_(tensors, tensor_numels, chunk_size=None):
    total, at, chunks = sum(tensor_numels), 0, []
    if not tensors or chunk_size is not None and chunk_size < total:
        _left_to_torch("rows of a Jacobian some at a time")
    for tensor, size in zip(tensors, tensor_numels):
        rows = torch.eye(total, dtype=tensor.dtype, device=tensor.device)
        chunks.append((rows if size == total else rows[:, at:at + size].clone()).view(total, *tensor.shape))
        at += size
    return [tuple(chunks)]


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
    _function_begins([], False)
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
    if any([own if axis is None else not own and axis != 0 for own, axis in zip(batched, outwards)]):
        _left_to_torch("a result whose axis is None, or one that is the same for all examples and has another axis than the first")
    _function_ends(examples, ones, (_levels, _batches))
    found = iter(_together(batch, _memory_of(ones), [0] * len(ones)))
    return tree_unflatten([_of_all(leaf, own, axis, batch_size, found) for leaf, own, axis in zip(leaves, batched, outwards)], spec)


def _of_all(leaf, own, axis, batch_size, found):
    if own:
        return _with_axis_at(_shown_as(next(found), leaf, True), axis)
    return leaf if axis is None else leaf.expand((batch_size, *leaf.shape))


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
    args = _in_new_containers(operands)
    if _joins_branches():
        result = true_fn(*args) if pred else false_fn(*args)
        if not _own_tensors(tree_flatten(result)[0], (), True):
            _left_to_torch("branches that return other things than tensors of their own")
        return result
    _function_begins([], False)
    first, spec = tree_flatten(_called(true_fn, args, {}))
    second, other_spec = tree_flatten(_called(false_fn, args, {}))
    if spec != other_spec or not _are_alternatives(first, second):
        if pred:  # a branch on data: it is torch's call, and later perhaps one graph of both ways
            _left_to_torch("branches of which not both can be computed")
    _function_ends([], [*first, *second], (_levels, _batches))
    pred = pred.reshape(())
    return tree_unflatten([torch.where(pred, one, other) for one, other in zip(first, second)], spec)


def while_loop(cond_fn, body_fn, carried_inputs):
    if not isinstance(carried_inputs, (tuple, list)) or not _are_carried(tree_flatten(carried_inputs)[0]):
        _left_to_torch("a loop that carries other things than tensors without gradients")
    leaves, spec = tree_flatten(carried_inputs)
    leaves = tuple([leaf.clone() for leaf in leaves])  # which are what is returned if there is no pass
    while True:
        before = [_writes_of(leaf) for leaf in leaves]
        goes = cond_fn(*tree_unflatten(leaves, spec))
        if not (isinstance(goes, torch.Tensor) and goes.dtype == torch.bool and goes.dim() == 0):
            _left_to_torch("a condition that is no tensor of one bool")
        if not goes:
            return tree_unflatten(leaves, spec)
        made, found = tree_flatten(body_fn(*tree_unflatten(leaves, spec)))
        if before != [_writes_of(leaf) for leaf in leaves]:
            _left_to_torch("a pass that writes into what it is given")
        if found != spec or not _are_carried(made) or not _own_tensors(made, leaves, False) or not all([
                new.dtype == old.dtype and new.shape == old.shape and new.stride() == old.stride()
                for new, old in zip(made, leaves)]):
            _left_to_torch("a pass that gives something else than it is given")
        leaves = tuple(made)


def _are_carried(leaves):
    return len(leaves) > 0 and all([isinstance(leaf, torch.Tensor) and not leaf.requires_grad for leaf in leaves])


def traced_instead():
    """{torch's function: the one here}, of those that this torch has."""
    pairs = [(getattr(module, ours.__name__, None), ours) for module, ours in (
        (transforms, grad_and_value_impl), (transforms, _vjp_with_argnums), (transforms, _jvp_with_argnums),
        (transforms, _chunked_standard_basis_for_), (mapping, _flat_vmap), (mapping, _broadcast_to_and_flatten), (mapping, lazy_load_decompositions),
        (torch, cond), (torch, while_loop))]
    return {theirs: ours for theirs, ours in pairs if theirs is not None}
