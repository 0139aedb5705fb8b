"""Checkpoints: functions that backward computes again, instead of keeping what they computed.

While tracing, marks say where such a function begins and ends (`checkpoint_begins` in tracer/gradients/graph_transforms.cpp), and `choose_saved`
keeps nothing from between them that can be computed again. What CPython runs is torch's own checkpoint.
"""
import functools
import sys

from framejit._api import graph_break, is_compiling
from framejit._transforms import _checkpoint_begins, _checkpoint_ends, _leaves, _stack


def _traced(function, args, kwargs, restores=True):
    checkpoint = _checkpoint_begins()
    result = function(*args, **kwargs)
    _checkpoint_ends(checkpoint, _leaves(result), not _stack(), restores)
    return result


def _called(function, args, kwargs):
    """In CPython, where only torch takes derivatives."""
    torch = sys.modules.get("torch")
    if torch is None or _stack() or not torch.is_grad_enabled():
        return function(*args, **kwargs)
    from torch.utils.checkpoint import checkpoint as theirs

    def call():  # which takes no keywords that torch's function has itself
        return function(*args, **kwargs)

    return theirs(call, use_reentrant=False)


def checkpoint(function):
    """The function that computes what `function` does, and keeps less for its derivative: as jax.checkpoint and torch.utils.checkpoint.

    function: any callable, of NumPy arrays or tensors. Where a derivative is taken, what it computes inside is not kept for backward, which computes it
    again from the arguments and what the function closes over. Kept are the results, as far as their derivatives need them, and of what is inside that
    which a second computation may give otherwise, or would report twice: random numbers, what a function of the library computed that runs as a call,
    and indexing by arrays. Checkpoints may stand in each other.

    It holds in compiled code for torch's backward(), and for the pullback of framejit.vjp. Where forward and backward are one graph (framejit.grad and
    its like, backward() in compiled code), the function is called as it is. In CPython tensors are given to torch.utils.checkpoint
    (use_reentrant=False), as they are where the function can't be compiled whole, or writes into what was there before. Raises TypeError for what can't
    be called.

        block = framejit.checkpoint(lambda x, w, v: x + torch.nn.functional.gelu(x @ w) @ v)

        @framejit.compile
        def loss(x, weights):
            for w, v in weights:
                x = block(x, w, v)          # of each block x is kept
            return x.square().mean()
    """
    if not callable(function):
        raise TypeError(f"framejit.checkpoint takes a callable, not {function!r}")

    def made(*args, **kwargs):
        return _traced(function, args, kwargs) if is_compiling() else _called(function, args, kwargs)

    return made if is_compiling() else functools.update_wrapper(made, function, updated=())


def of_torch(function, *args, use_reentrant=None, context_fn=None, determinism_check="default", debug=False, early_stop=True, **kwargs):
    """torch.utils.checkpoint.checkpoint while it is traced. With options of its own, and what it warns of, it is called itself."""
    import torch.utils.checkpoint as theirs

    passed = {name: kwargs[name] for name in kwargs if name != "preserve_rng_state"}
    restores = kwargs.get("preserve_rng_state", True)
    known = context_fn is None and determinism_check == "default" and debug is False
    if known and (use_reentrant is False or use_reentrant is True and not passed and _reaches(args, theirs.torch)):
        result = _traced(function, args, passed, bool(restores))
        if use_reentrant and not isinstance(result, (theirs.torch.Tensor, tuple)):
            graph_break()  # of which torch takes no derivative
        return result
    options = {} if context_fn is None else {"context_fn": context_fn}
    return theirs.checkpoint.__wrapped__(function, *args, use_reentrant=use_reentrant, determinism_check=determinism_check, debug=debug,
                                         early_stop=early_stop, **options, **kwargs)


def _reaches(args, torch):
    """Whether the gradients of a reentrant checkpoint are those of the function: its results require them by a tensor among the arguments, and no
    tensor in a structure is passed by."""
    found = False
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found = found or arg.requires_grad
        elif not (arg is None or isinstance(arg, (int, float, str))):
            return False
    return found
