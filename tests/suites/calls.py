"""Calls of torch, observed: `call` runs a function and its derivative, `differences` says in what two such calls differ, by kind."""
import random
import re
import warnings

import numpy as np
import torch

from framejit._checks import _ALLOWED, _difference

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64", torch.complex64: "c64", torch.complex128: "c128",
          torch.complex32: "f16"}


class Called:
    """What a call did: its result or error, what it gave back of the arguments, the gradients of these."""

    def __init__(self):
        self.result = self.error = self.gradients = self.gradient_error = None
        self.warnings, self.arguments = [], []


def seed():
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)


def thinned(items, count):
    return items[::max(1, -(-len(items) // count))]


def call(function, arguments, keywords, leaves=None):
    """leaves: the tensors whose gradients are wanted; None: those of the arguments that require one."""
    called = Called()
    called.arguments = list(tensors((arguments, keywords)))
    wanted = [t for _, t in called.arguments if t.requires_grad] if leaves is None else leaves
    seed()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            called.result = function(*arguments, **keywords)
        except Exception as error:
            called.error = error
        # torch gives the warnings of its C++ part once in a process: whoever runs first has them.
        called.warnings = [(w.category.__name__, str(w.message)) for w in caught if "Triggered internally" not in str(w.message)]
        if called.error is None and wanted:
            derive(called, wanted)
    return called


def derive(called, wanted):
    seed()
    results = [t for _, t in tensors(called.result) if t.requires_grad and t.layout == torch.strided]
    try:
        if results:
            called.gradients = torch.autograd.grad(results, wanted, [cotangent(t) for t in results], allow_unused=True)
    except Exception as error:
        called.gradient_error = error


def cotangent(tensor):
    weights = (torch.arange(tensor.numel()) % 7 + 1).to(tensor.dtype) / 4
    return weights.reshape(tensor.shape)


def fill_alike(mine, theirs):
    """What was made without contents, such as an `out`, has the same in both."""
    for (_, a), (_, e) in zip(tensors(mine), tensors(theirs)):
        try:
            filled = a.is_contiguous() and a.untyped_storage().nbytes() >= a.numel() * a.itemsize and a.data_ptr()
            if filled and not torch.equal(a, e):
                a.data.copy_(e.data)
        except (RuntimeError, NotImplementedError):  # it has no place for each element, or no contents
            pass


def tensors(value, path=""):
    """(path, tensor) of nested tuples, lists, dicts."""
    for path, leaf in leaves(value, path):
        if isinstance(leaf, torch.Tensor):
            yield path, leaf


def leaves(value, path=""):
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    else:
        yield path, value


def differences(ours, eager, argument_names=None):
    """(kind, text) of all in which they differ."""
    if type(ours.error) is not type(eager.error):
        yield "error", f"compiled {short(ours.error)}, eager {short(eager.error)}"
        return
    if eager.error is not None and plain_text(ours.error) != plain_text(eager.error):
        yield "message", f"compiled {short(ours.error)}, eager {short(eager.error)}"
    if ours.warnings != eager.warnings:
        yield "warnings", f"compiled {ours.warnings}, eager {eager.warnings}"
    yield from of_values(ours.result, eager.result, "result")
    for (path, a), (_, e) in zip(ours.arguments, eager.arguments):
        for kind, text in of_tensors(a, e, f"argument {path}"):
            yield "argument " + kind, text
    x, y = aliases(ours), aliases(eager)
    if x != y:
        yield "aliasing", f"compiled {sorted(set(x) - set(y))}, eager {sorted(set(y) - set(x))}"
    yield from of_gradients(ours, eager)


def of_gradients(ours, eager):
    if type(ours.gradient_error) is not type(eager.gradient_error):
        yield "gradient error", f"compiled {short(ours.gradient_error)}, eager {short(eager.gradient_error)}"
    elif (ours.gradients is None) != (eager.gradients is None):
        yield "gradient", f"compiled {ours.gradients}, eager {eager.gradients}"
    elif eager.gradients is not None:
        # A derivative by what a norm takes is often a difference of others that comes to nothing.
        largest = max([1.0, *(float(g.detach().abs().max()) for g in eager.gradients if g is not None and g.numel() and g.layout == torch.strided)])
        for i, (a, e) in enumerate(zip(ours.gradients, eager.gradients, strict=True)):
            if a is None or e is None:
                if a is not e:
                    yield "gradient", f"of {i}: compiled {a}, eager {e}"
                continue
            for kind, text in of_tensors(a, e, f"gradient {i}", largest if np.isfinite(largest) else 0.0):
                if kind in ("values", "dtype", "shape", "type"):  # of its layout: docs/gradients.md
                    yield "gradient " + kind, text


def of_values(ours, eager, path):
    if type(ours) is not type(eager):
        yield "type", f"{path}: compiled {type(ours)}, eager {type(eager)}"
        return
    if isinstance(eager, torch.Tensor):
        yield from of_tensors(ours, eager, path)
    elif isinstance(eager, (tuple, list)):
        if len(ours) != len(eager):
            yield "length", f"{path}: compiled {len(ours)}, eager {len(eager)}"
            return
        for i, (a, e) in enumerate(zip(ours, eager)):
            yield from of_values(a, e, f"{path}[{i}]")
    elif isinstance(eager, dict):
        if list(ours) != list(eager):
            yield "keys", f"{path}: compiled {list(ours)}, eager {list(eager)}"
            return
        for key in eager:
            yield from of_values(ours[key], eager[key], f"{path}[{key!r}]")
    elif isinstance(eager, (float, complex)):
        if _difference("f64" if isinstance(eager, float) else "c64", np.asarray(ours), np.asarray(eager)):
            yield "values", f"{path}: compiled {ours!r}, eager {eager!r}"
    elif isinstance(eager, np.ndarray):
        if ours.dtype != eager.dtype or ours.shape != eager.shape or ours.tobytes() != eager.tobytes():
            yield "values", f"{path}: compiled {ours!r}, eager {eager!r}"
    elif type(eager).__eq__ is not object.__eq__ and ours != eager:
        yield "values", f"{path}: compiled {ours!r}, eager {eager!r}"


FACTS = {
    "type": type, "layout": lambda t: t.layout, "dtype": lambda t: t.dtype, "shape": lambda t: tuple(t.shape), "device": lambda t: t.device,
    "requires_grad": lambda t: t.requires_grad, "leaf": lambda t: t.is_leaf, "conj": lambda t: (t.is_conj(), t.is_neg()),
    "version": lambda t: None if t.is_inference() else t._version,
}
STRIDED = {
    "strides": lambda t: t.stride(), "offset": lambda t: t.storage_offset() if t.numel() else None,
    "view": lambda t: t._is_view(), "storage": lambda t: t.untyped_storage().nbytes() if t.numel() else None,
}


def of_tensors(ours, eager, path, beside=0.0):
    """beside: a magnitude, of which values that nearly cancel are a part."""
    facts = FACTS | STRIDED if eager.layout == torch.strided and ours.layout == torch.strided else FACTS
    # Strides of views of no elements differ with the way to them (tests/harness.py).
    left_out = ("strides", "view") if ours.numel() == 0 and (ours._is_view() or eager._is_view()) else ()
    try:
        for kind, of in facts.items():
            if kind in left_out:
                continue
            a, e = of(ours), of(eager)
            if a != e:
                yield kind, f"{path}: compiled {a}, eager {e}"
    except (RuntimeError, NotImplementedError) as error:
        yield "unreadable", f"{path}: {error}"
        return
    if ours.dtype == eager.dtype and ours.shape == eager.shape and ours.layout == eager.layout:
        x, y = dense(ours), dense(eager)
        place = _difference(DTYPES.get(eager.dtype), x, y)
        if place and _difference(DTYPES.get(eager.dtype), *(np.append(array, beside).astype(array.dtype) for array in (x, y))):
            yield "values", f"{path}{list(place)}: compiled {x[place].item()!r}, eager {y[place].item()!r}"


def dense(tensor):
    plain = tensor.detach()
    if plain.is_meta:
        return np.zeros(0, bool)
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    plain = plain.resolve_conj().resolve_neg()
    if plain.ndim > 64:  # NumPy has no more
        plain = plain.flatten()
    wider = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}.get(plain.dtype)
    if plain.dtype.is_floating_point and plain.dtype.itemsize == 1:
        wider = torch.float32
    return (plain.to(wider) if wider else plain).numpy(force=True)  # it may be a tensor of zeros without memory


def aliases(called):
    """Pairs of tensors of arguments and result that share memory or are one object, by their paths."""
    everything = called.arguments + [("result" + path, t) for path, t in tensors(called.result)]
    found = []
    for i, (p, a) in enumerate(everything):
        for q, b in everything[i + 1:]:
            if a is b:
                found.append((p, q, "is"))
            elif memory(a) is not None and memory(a) == memory(b):
                found.append((p, q, "shares"))
    return found


def memory(tensor):
    try:
        return tensor.untyped_storage().data_ptr() or None if tensor.layout == torch.strided and tensor.numel() else None
    except (RuntimeError, NotImplementedError):
        return None


def plain_text(error):
    return re.sub(r"0x[0-9a-f]+", "0x", str(error))


def short(error):
    return "returns" if error is None else f"{type(error).__name__}: {str(error)[:300]}"


assert set(DTYPES.values()) == set(_ALLOWED)  # that of complex32 is that of its halves
