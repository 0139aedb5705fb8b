"""Arrays as Python text: the simplest ones with which a case still fails. Start at `as_text`."""
import math
import sys
from typing import NamedTuple

import numpy as np

from framejit._checks import _plain
from framejit._graph.dtypes import graph_name, library_name
from framejit._minify.pieces import _tried

_LITERAL = 64  # elements; longer arrays are kept in a file


class Argument(NamedTuple):
    """text: the expression that makes it; None: it is an array of the file beside the script."""
    name: str
    value: object
    text: str | None


def as_text(case, names, fails):
    """The Arguments of a case that fails. names: the parameters. Values are made simpler as long as it fails."""
    values = list(case.arguments)
    texts = [None if _is_array(value) else repr(value) for value in values]
    for i, value in enumerate(values):
        if not _is_array(value):
            continue
        for text in _simpler(value, case.library):
            made = _evaluated(text)
            tried = case._replace(arguments=[*values[:i], made, *values[i + 1:]])
            if _tried(fails, tried):
                values[i], texts[i] = made, text
                break
    return [Argument(*row) for row in zip(names, values, texts)]


def _is_array(value):
    return hasattr(value, "dtype")


def _evaluated(text):
    space = {"numpy": np, "torch": sys.modules.get("torch"), "nan": math.nan, "inf": math.inf}
    return eval(text, space)


def _simpler(value, library):
    """Expressions for arrays of this dtype, shape and place, simplest first; the last one is the array itself, if it is short."""
    dtype = graph_name(value.dtype)
    named = f"{library}.{library_name(dtype)}"
    shape, size = tuple(value.shape), math.prod(value.shape)
    order = _order(value)
    stored = tuple(shape[axis] for axis in order)
    moved = _moved(order, library) + _device(value)
    cast = f".astype({named})" if library == "numpy" else f".to({named})"
    plain = _plain(value)
    yield f"{library}.zeros({shape}, dtype={named}){_device(value)}"
    yield f"{library}.ones({shape}, dtype={named}){_device(value)}"
    if 1 < size and dtype != "bool" and size < 128:
        yield f"{library}.arange({size}).reshape({shape}){cast}{_device(value)}"
    if size <= _LITERAL:
        if plain.dtype.kind in "fc":
            yield f"{library}.{_literal(np.round(plain, 1), named)}{_device(value)}"
            yield f"{library}.{_literal(plain, named)}{_device(value)}"
        yield f"{library}.{_literal(plain.transpose(order), named)}{moved}"
    elif plain.dtype.kind == "f":
        numbers = f"numpy.random.default_rng(0).standard_normal({stored})"
        yield f"{numbers if library == 'numpy' else f'torch.from_numpy({numbers})'}{cast}{moved}"


def _order(value):
    """The axes from the one with the largest stride on, as they lie in memory."""
    strides = value.strides if isinstance(value, np.ndarray) else value.stride() if hasattr(value, "stride") else ()
    if any(stride <= 0 for stride in strides):
        return tuple(range(len(strides)))
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def _moved(order, library):
    if order == tuple(range(len(order))):
        return ""
    back = tuple(order.index(axis) for axis in range(len(order)))
    return f".{'transpose' if library == 'numpy' else 'permute'}({back})"


def _device(value):
    device = str(getattr(value, "device", "cpu"))
    return "" if device == "cpu" else f".to({device!r})"


def _literal(array, named):
    """`array([...], dtype=...)`, or `tensor(...)`; the shortest digits that give the numbers back."""
    def nested(part):
        return f"[{', '.join(map(nested, part))}]" if part.ndim else str(part[()])

    if array.size == 0:
        return f"zeros({array.shape}, dtype={named})"
    return f"{'array' if named.startswith('numpy') else 'tensor'}({nested(array)}, dtype={named})"


def stored(argument):
    """What the file holds of it: contiguous, in a dtype that NumPy has."""
    return _plain(argument.value).transpose(_order(argument.value))


def loaded(argument, library):
    """The expression that makes it of the file's `arrays`."""
    text = f"arrays[{argument.name!r}]"
    if library == "torch":
        text = f"torch.from_numpy({text}).to(torch.{library_name(graph_name(argument.value.dtype))})"
    return text + _moved(_order(argument.value), library) + _device(argument.value)
