"""Derivatives and batches of functions as written: grad, value_and_grad, vjp, jvp, jacobian, hessian, vmap.

Each makes a function that calls the given one between marked functions, and compiles it. While tracing, the marks tell the tracer
to derive or batch the graph it has (tracer/gradients/graph_transforms.cpp); so all of this file is traced away, and transformations nest. What runs in
CPython are errors: a call that can't be compiled runs as written, up to the exception it raises.
"""
import collections
import functools
import threading
import types

from framejit import _core
from framejit._api import compile, is_compiling
from framejit._errors import Error


def _marked(function):
    function.__framejit_marker__ = function.__name__.lstrip("_")
    return function


def _dtype_kind(value):
    """What the dtype of a number or an array is called: "float64", "int64", ..."""
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else str(dtype).removeprefix("torch.")


def _is_real(value):
    return "float" in _dtype_kind(value)


def _no_derivative(what):
    reason = _core.why_eager() or "framejit is disabled, or a debugger or another tool traces this call"
    raise Error(f"{what} can't be computed here: {reason}")


@_marked
def _watch(leaf):
    """(what the function computes with, what its derivative is asked for)."""
    if not _is_real(leaf):
        raise TypeError(f"framejit: derivatives are taken with respect to floats, not {_dtype_kind(leaf)}: {leaf!r:.60}")
    copy = getattr(leaf, "clone", None) or getattr(leaf, "copy", None)
    return (leaf if copy is None else copy(), leaf)


@_marked
def _gradients(values, cotangents, watched):
    """The cotangents of what was watched. None for a cotangent: 1, of a scalar."""
    for value, cotangent in zip(values, cotangents):
        result = _Result(value)
        if cotangent is not None:
            result.check(cotangent)
        elif result.shape != ():
            raise TypeError(f"framejit: a gradient is that of a function that returns a scalar, and the shape returned is {result.shape}; "
                            "framejit.jacobian derives others")
    _no_derivative("a derivative")


class _Result:
    """What is known of a result when it is gone."""

    def __init__(self, value):
        if not _is_real(value):
            raise TypeError(f"framejit: only floats have derivatives, and the function returned {_dtype_kind(value)}: {value!r:.60}")
        self.kind, self.shape = _dtype_kind(value), tuple(getattr(value, "shape", ()))

    def check(self, cotangent):
        shape = tuple(getattr(cotangent, "shape", ()))
        if shape != self.shape or _dtype_kind(cotangent) != self.kind and hasattr(cotangent, "dtype"):
            raise ValueError(f"framejit: a cotangent has dtype and shape of the result, {self.kind} {self.shape}, "
                             f"not {_dtype_kind(cotangent)} {shape}")


@_marked
def _linear(values, watched):
    """The derivative of the values by what was watched, as a graph of its own, and the arrays it reads."""
    for value in values:
        _Result(value)
    _no_derivative("a derivative")


@_marked
def _pulled_back(linear, saved, cotangents):
    """The cotangents of what was watched for `linear`."""
    _no_derivative("a derivative")


@_marked
def _kept(leaf):
    """A result as it is now, whatever is written into it later."""
    return _copied(leaf)


@_marked
def _traced(made):
    """A transformed function that is traced as part of another; where it outlives that trace, CPython makes a compiled one."""
    return made


@_marked
def _checkpoint_begins():
    """What backward computes again begins here: what ends it."""


@_marked
def _checkpoint_ends(checkpoint, results, called_again, restores):
    """results: what the function returned; called_again: in CPython torch calls the function a second time for the derivative, with its effects; restores: the random state as well."""


@_marked
def _seeds(values):
    """A cotangent of each value, which is watched."""
    for value in values:
        _Result(value)
    _no_derivative("a derivative")


@_marked
def _basis(value):
    """All cotangents of the value: 1 in one place."""
    _Result(value)
    _no_derivative("a derivative")


@_marked
def _examples(arrays, axes):
    """(batch, one example of each array). In CPython all of them, one after the other."""
    sizes = []
    for array, axis in zip(arrays, axes):
        shape = tuple(getattr(array, "shape", ()))
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"framejit.vmap: axis {axis} of an argument of shape {shape}")
        sizes.append(shape[axis])
    if len(set(sizes)) != 1 or sizes[0] == 0:
        raise ValueError(f"framejit.vmap: the axes that are mapped have sizes {sizes}; one size above 0 is needed")
    return [[array[(slice(None),) * (axis % array.ndim) + (i,)] for array, axis in zip(arrays, axes)] for i in range(sizes[0])]


@_marked
def _left(batch):
    """The function that is batched has raised."""


@_marked
def _together(batch, values, axes):
    """The results of all examples, from that of one. In CPython the values are those of each."""
    arrays = []
    for each, axis in zip(zip(*values), axes):
        if axis is None:
            arrays.append(each[0])
            continue
        rank = len(getattr(each[0], "shape", ())) + 1
        if not -rank <= axis < rank:
            raise ValueError(f"framejit.vmap: out_axes {axis} of a result of {rank} dimensions")
        if type(each[0]).__module__ == "torch":
            import torch as library
        else:
            import numpy as library
        arrays.append(library.stack(each, axis))
    return arrays


# ---- trees: tuples, named tuples, lists, dicts and dataclasses of arrays; None is an empty one


def _fields(tree):
    """The names of a dataclass's fields, None of what is none."""
    fields = getattr(type(tree), "__dataclass_fields__", None)
    return None if fields is None else [name for name in fields if fields[name].init]


def _map(function, tree):
    if tree is None:
        return None
    if isinstance(tree, dict):
        if isinstance(tree, collections.defaultdict):
            filled = type(tree)(tree.default_factory)
            for key in tree:
                filled[key] = _map(function, tree[key])
            return filled
        return type(tree)([(key, _map(function, tree[key])) for key in tree])
    if isinstance(tree, list):
        return [_map(function, item) for item in tree]
    if isinstance(tree, tuple):
        items = [_map(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    names = _fields(tree)
    if names is not None:
        return type(tree)(**{name: _map(function, getattr(tree, name)) for name in names})
    return function(tree)


def _leaves(tree):
    found = []

    def keep(leaf):
        found.append(leaf)

    _map(keep, tree)
    return found


def _filled(tree, leaves):
    """The tree with other leaves."""
    rest = iter(leaves)

    def take(leaf):
        return next(rest)

    return _map(take, tree)


def _matched(tree, like, what):
    """The leaves of a tree in the order of those of another one of the same structure. The order of a dict's keys is none."""
    if isinstance(like, dict):
        same = isinstance(tree, dict) and len(tree) == len(like) and all(key in tree for key in like)
        parts = [(tree[key], like[key]) for key in like] if same else ()
    elif isinstance(like, (tuple, list)):
        same = isinstance(tree, (tuple, list)) and len(tree) == len(like)
        parts = zip(tree, like) if same else ()
    elif (names := _fields(like)) is not None:
        same = type(tree) is type(like)
        parts = [(getattr(tree, name), getattr(like, name)) for name in names] if same else ()
    else:
        same = (tree is None) == (like is None) and not isinstance(tree, (dict, tuple, list)) and _fields(tree) is None
        parts = None
    if not same:
        raise TypeError(f"framejit: {what} has another structure than what it belongs to")
    if parts is None:
        return [] if tree is None else [tree]
    found = []
    for part, other in parts:
        found.extend(_matched(part, other, what))
    return found


# ---- levels: the derivatives that are being taken, and the rules that custom_derivative has put into them
#
# A level is (kind, rules). Of the kind "linear" is one in which what is linear is derived, to transpose it: that takes no derivative, and custom rules
# are not asked; of the kind "hidden" one whose rule is being called, and which that doesn't see. A rule is (inputs, outputs, pullback): the graph leads from the outputs, which are
# watched, no further back; pullback(their cotangents) gives those of the inputs, where the way back goes on. Rules stand in the order of their calls.

_levels = []                   # of what is traced. CPython never puts anything in: compiled code is guarded by its length
_batches = []                  # of functions that are being mapped, while tracing
_running = threading.local()   # of a call that CPython runs for the sake of the exception it raises


def _stack():
    if is_compiling():
        return _levels
    if not hasattr(_running, "levels"):
        _running.levels = []
    return _running.levels


def _within(level, function, *args, **kwargs):
    stack = _stack()
    stack.append(level)
    try:
        return function(*args, **kwargs)
    finally:
        stack.pop()


def _pull(values, cotangents, marks, rules):
    """`_gradients` that goes through rules, last to first."""
    values, cotangents = list(values), list(cotangents)
    for inputs, outputs, pullback in reversed(rules):
        found = _gradients(values, cotangents, outputs) if is_compiling() else outputs  # in CPython for the exceptions of the rule
        cotangents.extend(_within(("hidden", []), pullback, found))
        values.extend(inputs)
    return _gradients(values, cotangents, marks)


def _alone(rules, *results):
    """Results of an outermost derivative without a history of torch's, which would lead past the rules."""
    return tuple(_map(_detached, result) for result in results) if rules and not _stack() else results


def _detached(leaf):
    return leaf.detach() if hasattr(leaf, "detach") else leaf


def _seeds_of(leaves, marks, rules):
    if not is_compiling():
        _pull(leaves, leaves, marks, rules)
    return _seeds(leaves)


def _rule_counts():
    return [len(rules) for _, rules in _stack()]


def _check_rules_of_examples(counts, what):
    if _rule_counts() != counts:
        raise TypeError(f"framejit: {what} calls a function with a derivative of its own and is derived as a whole; map the derivative instead, "
                        "as vmap(grad(f)), or give the function to custom_derivative with all examples")


def _watched(args, argnums):
    """The arguments with those in argnums watched, the trees of these, and their marks."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    marks = []

    def watch(leaf):
        value, mark = _watch(leaf)
        marks.append(mark)
        return value

    args = list(args)
    trees = []
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise ValueError(f"framejit: argnums {argnums} of a call with {len(args)} positional arguments")
        trees.append(args[number])
        args[number] = _map(watch, args[number])
    return args, trees[0] if isinstance(argnums, int) else tuple(trees), marks


def _split(result, has_aux):
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError("framejit: with has_aux=True the function returns a pair (value, aux)")
    return result


def _compiled(made, function, name, make=None, *arguments, dynamic=None):
    """make(function, *arguments): how a pickle makes it again."""
    if not callable(function):
        raise TypeError(f"framejit.{name} takes a callable, not {function!r}")
    if is_compiling():
        return _traced(made)
    if _stack():  # CPython runs a call for the sake of its exception
        return made
    known, key = None, None
    if make is not None and isinstance(function, types.FunctionType) and all(map(_has_a_text, arguments)):
        known, key = _hanging_on(function, "__framejit_derived__"), (name, dynamic, repr(arguments))
        if key in known:
            return known[key]
    inner = getattr(function, "__name__", type(function).__name__)
    made.__name__ = f"{name}({inner})"
    made.__qualname__ = f"{name}({getattr(function, '__qualname__', inner)})"
    made.__module__ = getattr(function, "__module__", made.__module__)
    if make is not None:
        made.__framejit_made_by__ = make, (function, *arguments)
    compiled = compile(made, follow=True, dynamic=dynamic)
    if known is not None:
        known[key] = compiled
    return compiled


def value_and_grad(function, argnums=0, has_aux=False):
    """The function that returns `function`'s value and its gradient: (value, gradient).

    function: of NumPy or torch arrays (and anything else), returning a scalar of a float dtype; with has_aux a pair (scalar, aux).
    Written as any NumPy code: in-place updates, loops, classes, and branches on data, which are followed in each call. argnums: the
    positional argument to derive by, or a tuple of them; each an array or float, or a tuple, list or dict of such. The gradient has its
    structure, shapes and dtypes; for a tuple of argnums it is a tuple. With has_aux: ((value, aux), gradient).

    Arguments derived by are given to the function as copies, so that it may write into them. Where a function has no derivative (abs
    at 0, ties of a maximum) the choice is torch's.

    Raises TypeError for arguments or results that are no floats or no scalar; GraphBreakError, with the line, for code that can't be
    derived: library functions without a rule, conversions of arrays to Python numbers, printing.

        def loss(w, x, y):
            return np.mean((x @ w - y) ** 2)

        step = framejit.value_and_grad(loss)
        value, gradient = step(w, x, y)
    """

    def made(*args, **kwargs):
        args, trees, marks = _watched(args, argnums)
        rules = []
        value, aux = _split(_within(("backward", rules), function, *args, **kwargs), has_aux)
        gradient = _filled(trees, _pull([value], [None], marks, rules))
        value, aux, gradient = _alone(rules, value, aux, gradient)
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return _compiled(made, function, "value_and_grad", value_and_grad, argnums, has_aux)


def grad(function, argnums=0, has_aux=False):
    """The function that returns the gradient of `function`; with has_aux the pair (gradient, aux).

    function, argnums, has_aux: as for `value_and_grad`, whose gradient this is: of the structure, shapes and dtypes of the arguments
    derived by. Raises as `value_and_grad`.

        slope = framejit.grad(np.tanh)
        framejit.grad(slope)(0.5)      # derivatives have derivatives
    """

    def made(*args, **kwargs):
        args, trees, marks = _watched(args, argnums)
        rules = []
        value, aux = _split(_within(("backward", rules), function, *args, **kwargs), has_aux)
        gradient = _filled(trees, _pull([value], [None], marks, rules))
        gradient, aux = _alone(rules, gradient, aux)
        return (gradient, aux) if has_aux else gradient

    return _compiled(made, function, "grad", grad, argnums, has_aux)


def _pulled(function, primals, has_aux):
    """The value, aux, and what takes cotangents back to the primals; traced."""
    args, trees, marks = _watched(primals, tuple(range(len(primals))))
    rules = []
    value, aux = _split(_within(("backward", rules), function, *args), has_aux)
    derived = _map(_kept, value)

    def pullback(cotangent):
        return _alone(rules, *_filled(trees, _pull(_leaves(derived), _matched(cotangent, derived, "the cotangent"), marks, rules)))

    value, aux = _alone(rules, value, aux)
    return value, aux, pullback


class _Hanging(dict):
    """What is remembered of a function, on it: nothing that is copied or pickled with it."""

    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        return _Hanging, (None,)


def _has_a_text(value):
    """Whether its repr says all of it."""
    if isinstance(value, (tuple, list)):
        return all(map(_has_a_text, value))
    if type(value) is dict:
        return all(map(_has_a_text, value)) and all(map(_has_a_text, value.values()))
    return value is None or type(value) in (bool, int, float, str)


def _hanging_on(function, slot):
    found = function.__dict__.get(slot)
    if found is None or found.function is not function:  # functools.wraps copies what hangs on a function
        found = function.__dict__[slot] = _Hanging(function)
    return found


def _remembered(make):
    """What is compiled for a function that is given anew in each call, as (it, what to give it first). It hangs on the function and is
    gone with it; a method's hangs on its function, and takes the object as an argument. Of what has no place for it the last are kept."""
    kept = functools.lru_cache(maxsize=64)(make)
    slot = f"__framejit{make.__name__}__"

    def made(function, has_aux):
        bound = ()
        if isinstance(function, types.MethodType):
            function, bound = function.__func__, (function.__self__,)
        if not isinstance(function, types.FunctionType):
            try:
                return kept(function, has_aux), bound
            except TypeError:  # it has no hash, or is no function at all
                return make(function, has_aux), bound
        found = _hanging_on(function, slot)
        if has_aux not in found:
            found[has_aux] = make(function, has_aux)
        return found[has_aux], bound

    return made


def _without_rules(leaves, marks, rules):
    """Values and what is watched, with the derivative of `leaves` by `marks`, that no rules belong to."""
    if not rules:
        return leaves, marks
    # Pulling back is linear in the cotangents, and deriving it twice gives it again: of values that are the derivative of the first time.
    # There is no level outside, so what the pullbacks call is called as it is.
    seeds = _seeds_of(leaves, marks, rules)
    pulled = _pull(leaves, seeds, marks, rules)
    again = _seeds(pulled)
    return _gradients(pulled, again, seeds), again


@_remembered
def _compiled_vjp(function, has_aux):
    def forward(bound, *primals):
        args, trees, marks = _watched(primals, tuple(range(len(primals))))
        rules = []
        value, aux = _split(_within(("backward", rules), function, *bound, *args), has_aux)
        linear, saved = _linear(*_without_rules(_leaves(value), marks, rules))
        value, aux, saved = _alone(rules, value, aux, saved)
        return value, aux, linear, saved

    def backward(linear, saved, cotangents):
        return _pulled_back(linear, saved, cotangents)

    # The pullback's graph has the sizes of the call it is made in.
    return _compiled(forward, function, "vjp", dynamic=False), _compiled(backward, function, "pullback", dynamic=False)


@_remembered
def _compiled_jvp(function, has_aux):
    def made(bound, primals, tangents):
        return _pushed(function, primals, tangents, has_aux, bound)

    return _compiled(made, function, "jvp")


def vjp(function, *primals, has_aux=False):
    """The value of function(*primals), and the function that takes a cotangent of it back: (value, pullback).

    value and cotangent: an array or float, or a tuple, list or dict of such, equal in structure, dtypes and shapes. pullback(cotangent)
    returns a tuple with one cotangent for each primal. With has_aux the function returns (value, aux) and this (value, pullback, aux).
    The function runs once; pullback reads what was saved of that.

    Raises as `value_and_grad`, and ValueError for a cotangent of another dtype or shape.

        value, pullback = framejit.vjp(np.sin, x)
        gradient, = pullback(np.ones_like(x))
    """
    if is_compiling():
        value, aux, pullback = _pulled(function, primals, has_aux)
        return (value, pullback, aux) if has_aux else (value, pullback)

    (forward, backward), bound = _compiled_vjp(function, has_aux)
    value, aux, linear, saved = forward(bound, *primals)
    results, structure = _map(_Result, value), _map(_nothing, primals)

    def pullback(cotangent):
        cotangents = _matched(cotangent, results, "the cotangent")
        for result, leaf in zip(_leaves(results), cotangents):
            result.check(leaf)
        return _filled(structure, backward(linear, saved, cotangents))

    return (value, pullback, aux) if has_aux else (value, pullback)


def _nothing(leaf):
    return 0


def _copied(leaf):
    if hasattr(leaf, "clone"):
        return leaf.clone()
    return leaf.copy() if hasattr(leaf, "copy") else leaf


def _pushed(function, primals, tangents, has_aux, bound=()):
    """Forward derivatives by deriving twice: cotangents are pulled back linearly, and the derivative of that is the push forward."""
    directions = _matched(tuple(tangents), tuple(primals), "the tangents")
    args, trees, marks = _watched(primals, tuple(range(len(primals))))
    rules, inner = [], []
    value, aux = _split(_within(("forward", rules), function, *bound, *args), has_aux)
    leaves = _leaves(value)
    seeds = _seeds_of(leaves, marks, rules)  # which cotangents these are makes no difference
    pulled = _within(("linear", inner), _pull, leaves, seeds, marks, rules)
    tangent = _filled(value, _pull(pulled, directions, seeds, inner))
    value, tangent, aux = _alone(rules, value, tangent, aux)
    return (value, tangent, aux) if has_aux else (value, tangent)


def jvp(function, primals, tangents, has_aux=False):
    """The value of function(*primals) and its derivative in the direction of the tangents: (value, tangent).

    primals, tangents: tuples of equal structure, of arrays or floats with equal dtypes and shapes. tangent has the structure of the
    value. With has_aux the function returns (value, aux) and this (value, tangent, aux). Raises as `vjp`.

        value, slope = framejit.jvp(np.sin, (x,), (np.ones_like(x),))
    """
    if is_compiling():
        return _pushed(function, primals, tangents, has_aux)

    primals, tangents = tuple(primals), tuple(tangents)
    _check_tangents(primals, tangents)
    made, bound = _compiled_jvp(function, has_aux)
    return made(bound, primals, tangents)


def _check_tangents(primals, tangents):
    """Raises ValueError for the first tangent that has not the structure, shape or dtype of its primal."""
    def form(value):
        return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"

    if isinstance(primals, (tuple, list)) and isinstance(tangents, (tuple, list)):
        if len(primals) != len(tangents):
            raise ValueError(f"framejit.jvp: each primal has a tangent, but there are {len(primals)} and {len(tangents)}")
        for primal, tangent in zip(primals, tangents):
            _check_tangents(primal, tangent)
    elif isinstance(primals, dict) and isinstance(tangents, dict):
        if primals.keys() != tangents.keys():
            raise ValueError(f"framejit.jvp: tangents have the keys of the primals, {list(primals)}, not {list(tangents)}")
        for key in primals:
            _check_tangents(primals[key], tangents[key])
    elif (tuple(getattr(primals, "shape", ())) != tuple(getattr(tangents, "shape", ())) or
          (hasattr(primals, "dtype") and hasattr(tangents, "dtype") and primals.dtype != tangents.dtype)):
        raise ValueError(f"framejit.jvp: a tangent has dtype and shape of its primal, {form(primals)}, not {form(tangents)}")


def jacobian(function, argnums=0, has_aux=False):
    """The function that returns all derivatives of `function`'s results: the Jacobian, computed backwards, all rows at once.

    For a result of shape r and an argument of shape a it is an array of shape r + a. A tuple, list or dict of results gives one of
    Jacobians; so do such arguments and a tuple of argnums, inside. With has_aux: (jacobian, aux). Raises as `value_and_grad`.

        framejit.jacobian(lambda x: x ** 2)(np.arange(3.0))      # np.diag([0., 2., 4.])
    """

    def made(*args, **kwargs):
        args, trees, marks = _watched(args, argnums)
        rules = []
        value, aux = _split(_within(("backward", rules), function, *args, **kwargs), has_aux)

        def rows(leaf):
            batch, seeds = _examples([_basis(leaf)], [0])
            counts = _rule_counts()
            _batches.append(batch)
            try:
                found = _pull([leaf], seeds, marks, rules)
            finally:
                _batches.pop()
            _check_rules_of_examples(counts, "a pullback that a jacobian maps")
            found = _together(batch, found, [0] * len(marks))
            return _filled(trees, [row.reshape(tuple(leaf.shape) + tuple(mark.shape)) for row, mark in zip(found, marks)])

        jacobians, aux = _alone(rules, _map(rows, value), aux)
        return (jacobians, aux) if has_aux else jacobians

    return _compiled(made, function, "jacobian", jacobian, argnums, has_aux)


def hessian(function, argnums=0, has_aux=False):
    """The function that returns the second derivatives of a scalar: the Jacobian of its gradient. Raises as `value_and_grad`.

    For an argument of shape a it is an array of shape a + a; for trees and tuples of argnums, structures of such as jacobian(grad(f)).
    With has_aux: (second derivatives, aux).

        framejit.hessian(lambda x: np.sum(x ** 3))(np.ones(2))      # np.diag([6., 6.])
    """
    return jacobian(grad(function, argnums, has_aux), argnums, has_aux)


def vmap(function, in_axes=0, out_axes=0):
    """The function that does for all examples at once what `function` does for one.

    in_axes: the axis of the examples in each positional argument: an int for all, or a tuple with an int or None (given whole to each)
    per argument; of an argument that is a tuple, list or dict it holds for all arrays in it, unless it is a structure of axes itself.
    Keyword arguments are mapped along axis 0. out_axes: where the axis goes in the results; an int, None for a result that is the same
    for all examples and is given once, or a structure of such.

    The function computes with arrays of one dimension less, and may be derived: grad(vmap(f)), vmap(grad(f)). It may not branch on an
    example's data, write into arrays from outside, or keep an example's values: these are GraphBreakErrors that name the line.
    Raises ValueError for axes that are not there or differ in size.

        framejit.vmap(np.dot, in_axes=(0, None))(rows, vector)
    """

    def made(*args, **kwargs):
        axes_of_args = [in_axes] * len(args) if isinstance(in_axes, int) else list(in_axes)
        if len(axes_of_args) != len(args):
            raise ValueError(f"framejit.vmap: in_axes {in_axes} of a call with {len(args)} positional arguments")
        arrays, axes = [], []

        def collect(tree, along):
            if isinstance(along, (tuple, list, dict)):
                for key in along if isinstance(along, dict) else range(len(along)):
                    collect(tree[key], along[key])
            elif along is not None:
                for leaf in _leaves(tree):
                    arrays.append(leaf)
                    axes.append(along)

        for arg, along in zip(args, axes_of_args):
            collect(arg, along)
        collect(list(kwargs.values()), 0)
        if not arrays:
            raise ValueError("framejit.vmap: no argument is mapped")

        def result_of(leaves):
            rest = iter(leaves)

            def place(tree, along):
                if isinstance(along, dict):
                    return {key: place(tree[key], along[key]) for key in along}
                if isinstance(along, (tuple, list)):
                    items = [place(item, axis) for item, axis in zip(tree, along)]
                    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
                return tree if along is None else _map(lambda leaf: next(rest), tree)

            one = [place(arg, along) for arg, along in zip(args, axes_of_args)]
            return function(*one, **{name: place(value, 0) for name, value in kwargs.items()})

        if is_compiling():
            batch, example = _examples(arrays, axes)
            _batches.append(batch)
            try:
                counts = _rule_counts()
                result = result_of(example)
                _check_rules_of_examples(counts, "a function that vmap maps")
            except BaseException:
                _left(batch)
                raise
            finally:
                _batches.pop()
            leaves = _leaves(result)
            outwards = _spread(out_axes, result)
            return _filled(result, _together(batch, leaves, outwards))
        counts = _rule_counts()
        results = [result_of(leaves) for leaves in _examples(arrays, axes)]
        _check_rules_of_examples(counts, "a function that vmap maps")
        outwards = _spread(out_axes, results[0])
        return _filled(results[0], _together(None, [_leaves(result) for result in results], outwards))

    return _compiled(made, function, "vmap", vmap, in_axes, out_axes)


def _spread(axes, tree):
    if axes is None or isinstance(axes, int):
        return [axes] * len(_leaves(tree))
    keys = axes if isinstance(axes, dict) else range(len(axes))
    found = []
    for key in keys:
        found.extend(_spread(axes[key], tree[key]))
    return found
