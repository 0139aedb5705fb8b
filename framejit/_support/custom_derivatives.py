"""Derivatives that the user gives, as nodes of torch's graph."""
import torch
from torch.autograd.function import once_differentiable

import framejit
from framejit._transforms import _filled, _leaves, _map


class _Rule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, custom, args, values, *inputs):
        ctx.of_tensors = [isinstance(leaf, torch.Tensor) for leaf in inputs]
        args = _map(_plain, args)
        value, ctx.back = _value_and_pullback(custom, args)
        values.append(value)
        return tuple(leaf for leaf in _leaves(value) if _is_derived(leaf))

    @staticmethod
    @once_differentiable
    def backward(ctx, *cotangents):
        found = ctx.back(list(cotangents))
        return (None, None, None, *[gradient if is_tensor else None for gradient, is_tensor in zip(found, ctx.of_tensors)])


def _plain(leaf):
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _is_derived(leaf):
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _value_and_pullback(custom, args):
    from framejit._custom_derivatives import _Floats

    if custom._vjp is not None or custom._jvp is None:
        return custom._value_and_pullback(args, "backward")[:2]
    given = _Floats(tuple(args))
    value, tangent = custom._jvp(tuple(args), given.filled(given.leaves))

    def back(cotangents):
        def push(*leaves):
            return _Floats(value).matched(custom._jvp(tuple(args), given.filled(leaves))[1], f"the tangent that {custom._jvp_text} returns")

        with torch.enable_grad():
            return framejit.vjp(push, *given.leaves)[1](cotangents)

    return value, back


def call(custom, args):
    """custom(*args); backward() pulls cotangents back by its rule."""
    from framejit._custom_derivatives import _Floats

    values = []
    tensors = _Rule.apply(custom, args, values, *_Floats(tuple(args)).leaves)
    value, rest = values[0], iter(tensors)
    return _filled(value, [next(rest) if _is_derived(leaf) else leaf for leaf in _leaves(value)])
