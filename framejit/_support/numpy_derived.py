"""NumPy's functions where they are derived or batched: compositions of functions that have a derivative and a batch.

They are traced in the place of those that `instead` names. One that is not for the arguments it is given returns
NotImplemented.
"""
import math

import numpy as np
from numpy.linalg import _linalg

from .numpy_stacked import bins as _bins  # arguments are called so too
from .numpy_stacked import (
    cube_root, determinant, eigen, full_svd, inverse, log_determinant, lower_cholesky, places, places_in_partition,
    pseudo_inverse, quantiles_in_range, rank, solution, thin_qr, thin_svd, turned)
from .numpy_stacked import order as _order
from .numpy_stacked import partition_order as _partition_order

# ---- linear algebra


def _floats(a):
    """An array of floats."""
    a = np.asarray(a)
    return a if a.dtype.kind == "f" else a.astype(np.float64)


def _number(x):
    """What NumPy gives in the place of an array of no axes."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def _diagonal(a, offset=0, axis1=0, axis2=1):
    return np.diagonal(np.asarray(a).copy(), offset, axis1, axis2)  # it may have gaps


def _square(a):
    return a.ndim >= 2 and a.shape[-1] == a.shape[-2]


def inv(a):
    a = _floats(a)
    return inverse(a) if _square(a) else NotImplemented


def _one_stack(a, b):
    """With the same axes in front of the last two."""
    if a.shape[:-2] == b.shape[:-2]:
        return a, b
    return a * np.ones_like(b[..., :1, :1]), b * np.ones_like(a[..., :1, :1])


def solve(a, b):
    a, b = _floats(a), _floats(b)
    if not _square(a) or b.ndim == 0 or b.shape[0 if b.ndim == 1 else -2] != a.shape[-1]:
        return NotImplemented
    dtype = np.result_type(a, b)
    a, b = a.astype(dtype), b.astype(dtype)
    columns = b[:, None] if b.ndim == 1 else b
    matrices, columns = _one_stack(a, columns)
    found = solution(matrices, columns)
    return found[..., 0] if b.ndim == 1 else found


def det(a):
    a = _floats(a)
    return _number(determinant(a)) if _square(a) else NotImplemented


def slogdet(a):
    a = _floats(a)
    if not _square(a):
        return NotImplemented
    sign, logarithm = log_determinant(a)
    return _linalg.SlogdetResult(_number(sign), _number(logarithm))


def cholesky(a, /, *, upper=False):
    a = _floats(a)
    if not _square(a):
        return NotImplemented
    return turned(lower_cholesky(turned(a))) if upper else lower_cholesky(a)


def eigh(a, UPLO="L"):
    a = _floats(a)
    if not _square(a):
        return NotImplemented
    w, v = eigen(a, UPLO)
    return _linalg.EighResult(w, v)


def eigvalsh(a, UPLO="L"):
    a = _floats(a)
    return eigen(a, UPLO)[0] if _square(a) else NotImplemented


def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    a = _floats(a)
    if a.ndim < 2 or hermitian:
        return NotImplemented
    u, s, vh = thin_svd(a)
    if not compute_uv:
        return s
    if full_matrices and a.shape[-1] != a.shape[-2]:
        u, vh = full_svd(a)
    return _linalg.SVDResult(u, s, vh)


def svdvals(x, /):
    return svd(x, compute_uv=False)


def qr(a, mode="reduced"):
    a = _floats(a)
    is_thin = mode in ("reduced", "r") or mode == "complete" and _square(a)
    if a.ndim < 2 or a.shape[-2] < a.shape[-1] or not is_thin:
        return NotImplemented
    q, r = thin_qr(a)
    return r if mode == "r" else _linalg.QRResult(q, r)


def pinv(a, rcond=None, hermitian=False, *, rtol=None):
    a = _floats(a)
    cutoff = rtol if rcond is None else rcond
    if a.ndim < 2 or hermitian or not (cutoff is None or isinstance(cutoff, (int, float))):
        return NotImplemented
    return pseudo_inverse(a, cutoff)


def cond(x, p=None):
    x = _floats(x)
    if x.ndim < 2 or not (p is None or p == 2 or p == -2):
        return NotImplemented
    s = thin_svd(x)[1]
    return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]


def _precision(a):
    return 2.0 ** -52 if a.dtype == np.float64 else 2.0 ** -23


def lstsq(a, b, rcond=None):
    a, b = _floats(a), _floats(b)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        return NotImplemented
    if not (rcond is None or isinstance(rcond, float)):
        return NotImplemented
    cutoff = _precision(a) * max(a.shape[0], a.shape[1]) if rcond is None else rcond
    x = pseudo_inverse(a, cutoff) @ b
    if a.shape[0] > a.shape[1]:
        residuals = np.sum((b - a @ x) ** 2, axis=0)
        residuals = residuals.reshape(1) if b.ndim == 1 else residuals
    else:
        residuals = np.zeros(0, a.dtype)
    return x, residuals, _number(rank(a, cutoff)), thin_svd(a)[1]


def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    x, y = _floats(x), _floats(y)
    if full or cov or not isinstance(deg, int) or deg < 0 or x.ndim != 1 or y.ndim not in (1, 2) or len(x) != len(y):
        return NotImplemented
    powers = vander(x, deg + 1)
    if w is not None:
        w = np.asarray(w, x.dtype)
        powers, y = powers * w[:, None], y * w if y.ndim == 1 else y * w[:, None]
    scale = np.sqrt(np.sum(powers * powers, axis=0))
    cutoff = len(x) * _precision(x) if rcond is None else rcond
    found = pseudo_inverse(powers / scale, cutoff) @ y
    return found / scale if y.ndim == 1 else found / scale[:, None]


def _safe_root(square):
    """The root, whose derivative is taken for 0 at 0."""
    nothing = square == 0
    return np.where(nothing, 0.0, np.sqrt(np.where(nothing, 1.0, square))).astype(square.dtype)


def norm(x, ord=None, axis=None, keepdims=False):
    x = _floats(x)
    if axis is None and (ord is None or ord in ("f", "fro") and x.ndim == 2 or ord == 2 and x.ndim == 1):
        found = _safe_root(np.sum(x * x))
        return found.reshape((1,) * x.ndim) if keepdims else _number(found)
    if axis is None:
        axis = tuple(range(x.ndim))
    elif not isinstance(axis, tuple):
        axis = (axis,)
    if len(axis) == 1:
        return _vector_norm(x, ord, axis[0], keepdims)
    if len(axis) != 2 or axis[0] % x.ndim == axis[1] % x.ndim:
        return NotImplemented
    found = _matrix_norm(np.moveaxis(x, axis, (-2, -1)), ord)
    if found is NotImplemented or not keepdims:
        return found
    return np.expand_dims(found, (axis[0] % x.ndim, axis[1] % x.ndim))


def _vector_norm(x, ord, axis, keepdims):
    if ord is None or ord == 2:
        return _number(_safe_root(np.sum(x * x, axis=axis, keepdims=keepdims)))
    if isinstance(ord, str):
        return NotImplemented
    if ord == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum((x != 0).astype(x.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    return np.sum(np.abs(x) ** ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(x, ord):
    """Over the last two axes."""
    if ord is None or ord in ("f", "fro"):
        return _number(_safe_root(np.sum(x * x, axis=(-2, -1))))
    if ord == "nuc":
        return np.sum(thin_svd(x)[1], axis=-1)
    if ord == 2 or ord == -2:
        s = thin_svd(x)[1]
        return s[..., 0] if ord == 2 else s[..., -1]
    if ord == 1 or ord == -1:
        sums = np.sum(np.abs(x), axis=-2)
    elif ord == np.inf or ord == -np.inf:
        sums = np.sum(np.abs(x), axis=-1)
    else:
        return NotImplemented
    return np.max(sums, axis=-1) if ord > 0 else np.min(sums, axis=-1)


# ---- products


def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    if out is not None:
        return NotImplemented
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _trace_of_matrix(x, /, *, offset=0, dtype=None):
    return np.sum(_diagonal(x, offset, -2, -1), axis=-1, dtype=dtype)


def vdot(a, b, /):
    return np.dot(np.ravel(a), np.ravel(b))


def vecdot(x1, x2, /, out=None, *, axis=-1):
    if out is not None:
        return NotImplemented
    products = np.moveaxis(np.asarray(x1), axis, -1) * np.moveaxis(np.asarray(x2), axis, -1)
    return np.sum(products, axis=-1, dtype=products.dtype)


def kron(a, b):
    a, b = np.asarray(a), np.asarray(b)
    a = a.reshape((1,) * (b.ndim - a.ndim) + a.shape)
    b = b.reshape((1,) * (a.ndim - b.ndim) + b.shape)
    rows, columns, shape = [], [], []
    for n, m in zip(a.shape, b.shape):
        rows += [n, 1]
        columns += [1, m]
        shape.append(n * m)
    return (a.reshape(rows) * b.reshape(columns)).reshape(shape)


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    if axis is not None:
        axisa, axisb, axisc = axis, axis, axis
    a, b = np.moveaxis(np.asarray(a), axisa, -1), np.moveaxis(np.asarray(b), axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        return NotImplemented
    a0, a1, a2, b0, b1, b2 = a[..., 0], a[..., 1], a[..., 2], b[..., 0], b[..., 1], b[..., 2]
    return np.moveaxis(np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1), -1, axisc)


def _cross_of_rows(x1, x2, /, *, axis=-1):
    return cross(x1, x2, axis=axis)


def _convolved(a, v):
    """Of rows of which the second is not the longer one."""
    ends = len(v) - 1
    taken = np.arange(len(a) + ends)[:, None] + np.arange(len(v))
    products = np.pad(a, (ends, ends))[taken] * v[::-1]
    # Of elements that there are: what is infinite is not multiplied by what is beyond an end.
    inside = (taken >= ends) & (taken < len(a) + ends)
    return np.sum(np.where(inside, products, np.zeros((), products.dtype)), axis=1, dtype=products.dtype)


def _middle(full, longer, shorter, mode):
    if mode == "full":
        return full
    first = (shorter - 1) // 2 if mode == "same" else shorter - 1
    return full[first:first + longer] if mode == "same" else full[first:longer]


def convolve(a, v, mode="full"):
    a, v = np.array(a, ndmin=1), np.array(v, ndmin=1)
    if a.ndim != 1 or v.ndim != 1 or len(a) == 0 or len(v) == 0 or mode not in ("full", "same", "valid"):
        return NotImplemented
    if len(v) > len(a):
        a, v = v, a
    return _middle(_convolved(a, v), len(a), len(v), mode)


def correlate(a, v, mode="valid"):
    a, v = np.asarray(a), np.asarray(v)
    if a.ndim != 1 or v.ndim != 1 or len(a) == 0 or len(v) == 0 or mode not in ("full", "same", "valid"):
        return NotImplemented
    if len(v) > len(a):
        return _middle(_convolved(v, a[::-1]), len(v), len(a), mode)[::-1]
    return _middle(_convolved(a, v[::-1]), len(a), len(v), mode)


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _subscripts(text, ranks):
    """The labels of each operand and of the result, without an ellipsis. None: they do not fit."""
    text = text.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    free = [letter for letter in _LETTERS if letter not in text]
    most = 0
    for term, rank_of in zip(terms, ranks):
        if "..." in term:
            most = max(most, rank_of - (len(term) - 3))
    wide = "".join(free[:most])
    inputs = []
    for term, rank_of in zip(terms, ranks):
        if "..." in term:
            count = rank_of - (len(term) - 3)
            term = term.replace("...", wide[most - count:]) if count >= 0 else None
        if term is None or len(term) != rank_of:
            return None
        inputs.append(term)
    if not arrow:
        joined = "".join(inputs)
        once = [letter for letter in sorted(_LETTERS) if letter not in wide and joined.count(letter) == 1]
        return inputs, wide + "".join(once)
    return (inputs, result.replace("...", wide)) if "..." in result or not wide else None


def _one_of_each(x, labels):
    """A label that comes twice stands for the diagonal."""
    for label in _LETTERS:
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = _diagonal(x, 0, first, second)
            labels = labels[:first] + labels[first + 1:second] + labels[second + 1:] + label
    return x, labels


def _summed(x, labels, wanted):
    """Without the labels that nobody wants."""
    axes = tuple([i for i, label in enumerate(labels) if label not in wanted])
    if not axes:
        return x, labels
    return np.sum(x, axis=axes, dtype=x.dtype), "".join([label for label in labels if label in wanted])


def _ordered(x, labels, wanted):
    return np.transpose(x, [labels.index(label) for label in wanted]) if labels != wanted else x


def _sizes(x, labels, group):
    return [x.shape[labels.index(label)] for label in group]


def _volume(sizes):
    total = 1
    for size in sizes:
        total = total * size
    return total


def _pair(x, x_labels, y, y_labels, wanted):
    """The sum of products of two operands over the labels that nobody wants."""
    x, x_labels = _summed(x, x_labels, wanted + y_labels)
    y, y_labels = _summed(y, y_labels, wanted + x_labels)
    both = "".join([label for label in x_labels if label in y_labels and label in wanted])
    gone = "".join([label for label in x_labels if label in y_labels and label not in wanted])
    only_x = "".join([label for label in x_labels if label not in y_labels])
    only_y = "".join([label for label in y_labels if label not in x_labels])
    shape = _sizes(x, x_labels, both) + _sizes(x, x_labels, only_x) + _sizes(y, y_labels, only_y)
    batch, rows = _volume(_sizes(x, x_labels, both)), _volume(_sizes(x, x_labels, only_x))
    columns, inner = _volume(_sizes(y, y_labels, only_y)), _volume(_sizes(x, x_labels, gone))
    x = _ordered(x, x_labels, both + only_x + gone).reshape(batch, rows, inner)
    y = _ordered(y, y_labels, both + gone + only_y).reshape(batch, inner, columns)
    return (x @ y if gone else x * y).reshape(shape), both + only_x + only_y


def einsum(*operands, out=None, optimize=False, dtype=None, order="K", casting="safe"):
    if not operands or not isinstance(operands[0], str) or out is not None or dtype is not None:
        return NotImplemented
    arrays = [np.asarray(x) for x in operands[1:]]
    found = _subscripts(operands[0], [x.ndim for x in arrays])
    if found is None:
        return NotImplemented
    inputs, result = found
    terms = [_one_of_each(x, labels) for x, labels in zip(arrays, inputs)]
    sizes = {}
    for x, labels in terms:
        for label, size in zip(labels, x.shape):
            if label not in sizes or sizes[label] == 1:
                sizes[label] = size
            elif size != 1 and size != sizes[label]:
                return NotImplemented
    narrowed = []
    for x, labels in terms:
        # One element along an axis is as many as the others have.
        kept = "".join([label for label, size in zip(labels, x.shape) if size == sizes[label]])
        if kept != labels:
            x = x.reshape([size for label, size in zip(labels, x.shape) if label in kept])
        narrowed.append((x, kept))
    known = "".join([labels for _, labels in narrowed])
    if any([label not in known or result.count(label) != 1 for label in result]):
        return NotImplemented
    x, labels = narrowed[0]
    for i in range(1, len(narrowed)):
        later = "".join([labels_of for _, labels_of in narrowed[i + 1:]])
        x, labels = _pair(x, labels, narrowed[i][0], narrowed[i][1], result + later)
    x, labels = _summed(x, labels, result)
    return _number(_ordered(x, labels, result))


# ---- order


def _along(a, axis):
    """The axis as the last one, and which it was; None: all elements are one line."""
    return (np.ravel(a), -1) if axis is None else (np.moveaxis(np.asarray(a), axis, -1), axis)


def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    if order is not None:
        return NotImplemented
    lines, axis = _along(a, axis)
    return np.moveaxis(np.take_along_axis(lines, _order(lines, "stable"), -1), -1, axis)


def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    if order is not None:
        return NotImplemented
    lines, axis = _along(a, axis)
    return np.moveaxis(_order(lines, "stable" if stable else kind), -1, axis)


def partition(a, kth, axis=-1, kind="introselect", order=None):
    if order is not None:
        return NotImplemented
    lines, axis = _along(a, axis)
    return np.moveaxis(np.take_along_axis(lines, places_in_partition(lines, kth), -1), -1, axis)


def argpartition(a, kth, axis=-1, kind="introselect", order=None):
    if order is not None:
        return NotImplemented
    lines, axis = _along(a, axis)
    return np.moveaxis(_partition_order(lines, kth), -1, axis)


def _sort_in_place(a, axis=-1, kind=None, order=None, *, stable=None):
    if order is not None:
        return NotImplemented
    a[...] = sort(a, axis, kind)


def _partition_in_place(a, kth, axis=-1, kind="introselect", order=None):
    if order is not None:
        return NotImplemented
    a[...] = partition(a, kth, axis)


def searchsorted(a, v, side="left", sorter=None):
    a, v = np.asarray(a), np.asarray(v)
    if sorter is not None or a.ndim != 1:
        return NotImplemented
    dtype = np.result_type(a, v)
    return _number(places(a.astype(dtype), v.astype(dtype), side))


def digitize(x, bins, right=False):
    x, bins = np.asarray(x), np.asarray(bins)
    return _number(_bins(bins, x, bool(right))) if bins.ndim == 1 else NotImplemented


def _lines(a, axis):
    """The axes that are reduced as the last one, and the shape that keepdims asks for."""
    a = np.asarray(a)
    axes = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [one % a.ndim for one in axes]
    rest = [i for i in range(a.ndim) if i not in axes]
    kept = [1 if i in axes else a.shape[i] for i in range(a.ndim)]
    return np.transpose(a, rest + axes).reshape([a.shape[i] for i in rest] + [-1]), kept


def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    if out is not None or np.ndim(a) == 0:
        return NotImplemented
    lines, kept = _lines(a, axis)
    n = lines.shape[-1]
    if n == 0:
        return NotImplemented
    lines = sort(lines)
    found = np.mean(lines[..., (n - 1) // 2:n // 2 + 1], axis=-1)
    found = np.where(np.isnan(lines[..., -1]), np.nan, found).astype(found.dtype)
    return found.reshape(kept) if keepdims else _number(found)


def quantile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None,
             interpolation=None):
    if out is not None or method != "linear" or weights is not None or interpolation is not None or np.ndim(a) == 0:
        return NotImplemented
    lines, kept = _lines(_floats(a), axis)
    n = lines.shape[-1]
    if n == 0 or np.ndim(q) > 1 or isinstance(q, (int, float)) and not 0 <= q <= 1:
        return NotImplemented
    q = np.asarray(q, lines.dtype) if isinstance(q, (int, float)) else quantiles_in_range(_floats(q))
    lines = sort(lines)
    place = np.reshape(q, -1) * (n - 1)
    below = np.floor(place)
    t = place - below
    first = np.clip(below.astype(np.int64), 0, n - 1)
    low, high = np.take(lines, first, axis=-1), np.take(lines, np.minimum(first + 1, n - 1), axis=-1)
    found = np.where(t >= 0.5, high - (high - low) * (1 - t), low + (high - low) * t)
    found = np.where(np.isnan(lines[..., -1:]), np.nan, found).astype(found.dtype)
    found = np.moveaxis(found, -1, 0) if q.ndim else found[..., 0]
    return found.reshape(list(q.shape) + kept) if keepdims else _number(found)


def percentile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None,
               interpolation=None):
    hundred = 100.0 if isinstance(q, (int, float)) else np.asarray(100, _floats(a).dtype)
    q = q / hundred if isinstance(q, (int, float)) else np.true_divide(np.asarray(q), hundred)
    return quantile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights, interpolation=interpolation)


# ---- making


def diag(v, k=0):
    v = np.asarray(v)
    if v.ndim == 2:
        return _diagonal(v, k)
    if v.ndim != 1:
        return NotImplemented
    row = np.pad(v, (0, k))[:, None] if k >= 0 else np.pad(v, (0, -k))
    size = len(v) + abs(k)
    return np.where(np.eye(size, k=k, dtype=bool), row, np.zeros((), v.dtype))


def diagflat(v, k=0):
    return diag(np.ravel(v), k)


def vander(x, N=None, increasing=False):
    x = np.asarray(x)
    if x.ndim != 1:
        return NotImplemented
    x = x.astype(np.promote_types(x.dtype, int))
    count = len(x) if N is None else N
    columns = [np.ones_like(x)]
    for _ in range(count - 1):
        columns.append(columns[-1] * x)
    columns = columns[:count]
    if not columns:
        return NotImplemented
    return np.stack(columns if increasing else columns[::-1], axis=1)


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    if not copy or indexing not in ("xy", "ij"):
        return NotImplemented
    rows = [np.ravel(np.asarray(x)) for x in xi]
    places_of = list(range(len(rows)))
    if indexing == "xy" and len(rows) > 1:
        places_of[0], places_of[1] = 1, 0
    shape = [1] * len(rows)
    for row, place in zip(rows, places_of):
        shape[place] = len(row)
    found = []
    for row, place in zip(rows, places_of):
        row = row.reshape([len(row) if i == place else 1 for i in range(len(rows))])
        found.append((row if sparse else np.broadcast_to(row, shape)).copy())
    return tuple(found)


def _blocks(arrays, depth):
    if isinstance(arrays, list):
        return np.concatenate([_blocks(part, depth - 1) for part in arrays], axis=-depth)
    return arrays


def _depth(arrays):
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) and arrays else 0


def _flat(arrays):
    if not isinstance(arrays, list):
        return [arrays]
    found = []
    for part in arrays:
        found += _flat(part)
    return found


def _as_rank(arrays, count):
    if isinstance(arrays, list):
        return [_as_rank(part, count) for part in arrays]
    arrays = np.asarray(arrays)
    return arrays.reshape((1,) * (count - arrays.ndim) + arrays.shape)


def block(arrays):
    depth = _depth(arrays)
    if depth == 0:
        return np.array(arrays)
    count = max([depth] + [np.ndim(part) for part in _flat(arrays)])
    return _blocks(_as_rank(arrays, count), depth)


def select(condlist, choicelist, default=0):
    if len(condlist) != len(choicelist) or not len(condlist):
        return NotImplemented
    arrays = [np.asarray(choice) for choice in choicelist] + [default]
    dtype = np.result_type(*arrays)
    found = np.asarray(default, dtype)
    for condition, choice in zip(condlist[::-1], choicelist[::-1]):
        condition = np.asarray(condition)
        if condition.dtype != bool:
            return NotImplemented
        found = np.where(condition, choice, found)
    return found.astype(dtype)


def ediff1d(ary, to_end=None, to_begin=None):
    row = np.ravel(np.asarray(ary))
    parts = [np.diff(row)]
    if to_begin is not None:
        parts.insert(0, np.ravel(np.asarray(to_begin, row.dtype)))
    if to_end is not None:
        parts.append(np.ravel(np.asarray(to_end, row.dtype)))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


# ---- functions of numbers


def cbrt(x, out=None, **more):
    if out is not None or more:
        return NotImplemented
    x = np.asarray(x)
    return _number(cube_root(x)) if x.dtype.kind == "f" else NotImplemented


def heaviside(x1, x2, out=None, **more):
    if out is not None or more:
        return NotImplemented
    dtype = np.result_type(x1, x2)
    if dtype.kind != "f":
        return NotImplemented
    x1, x2 = np.asarray(x1, dtype), np.asarray(x2, dtype)
    return np.where(x1 == 0, x2, np.where(np.isnan(x1), x1, (x1 > 0).astype(dtype)))


def logaddexp2(x1, x2, out=None, **more):
    if out is not None or more:
        return NotImplemented
    if np.result_type(x1, x2).kind != "f":
        return NotImplemented
    return np.logaddexp(x1 * math.log(2.0), x2 * math.log(2.0)) / math.log(2.0)


def interp(x, xp, fp, left=None, right=None, period=None):
    fp = np.asarray(fp)
    if fp.dtype.kind == "c":
        return NotImplemented
    x, xp, fp = np.asarray(x, np.float64), np.asarray(xp, np.float64), fp.astype(np.float64)
    if period is not None or xp.ndim != 1 or fp.ndim != 1 or len(xp) != len(fp) or len(xp) < 2:
        return NotImplemented
    i = np.clip(places(xp, x, "right") - 1, 0, len(xp) - 2)
    slope = (fp[i + 1] - fp[i]) / (xp[i + 1] - xp[i])
    # Between knots that are not finite as NumPy does it: from the other end, and at a knot its value.
    found, from_next = slope * (x - xp[i]) + fp[i], slope * (x - xp[i + 1]) + fp[i + 1]
    found = np.where(np.isnan(found), np.where(np.isnan(from_next) & (fp[i] == fp[i + 1]), fp[i], from_next), found)
    found = np.where(np.isnan(x), x, np.where(x == xp[i], fp[i], found))
    found = np.where(x < xp[0], fp[0] if left is None else left, found)
    return np.where(x > xp[-1], fp[-1] if right is None else right, np.where(x == xp[-1], fp[-1], found))


# ---- statistics


def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    a = np.asarray(a)
    if weights is None:
        found = np.mean(a, axis=axis, keepdims=keepdims)
        if not returned:
            return found
        return found, np.broadcast_to(np.asarray(a.size / found.size, found.dtype), found.shape)
    weights = np.asarray(weights)
    if weights.shape != a.shape:
        if weights.ndim != 1 or not isinstance(axis, int) or weights.shape[0] != a.shape[axis]:
            return NotImplemented
        weights = weights.reshape([-1 if i == axis % a.ndim else 1 for i in range(a.ndim)])
        weights = np.broadcast_to(weights, a.shape)
    dtype = np.result_type(a.dtype, weights.dtype)
    if a.dtype.kind in "biu":
        dtype = np.result_type(dtype, np.float64)
    total = np.sum(weights, axis=axis, keepdims=keepdims, dtype=dtype)
    found = np.sum(a.astype(dtype) * weights.astype(dtype), axis=axis, keepdims=keepdims) / total
    return (found, np.broadcast_to(total, found.shape)) if returned else found


def _where_numbers(a, instead_of_nan):
    a = _floats(a)
    missing = np.isnan(a)
    return np.where(missing, np.asarray(instead_of_nan, a.dtype), a), np.asarray(~missing)


def _no_more(given):
    """What only a few callers say is as NumPy has it by default."""
    return all([value is None or value is np._NoValue for value in given])


def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    if not _no_more([dtype, out, where]):
        return NotImplemented
    keepdims = keepdims is True
    values, there = _where_numbers(a, 0.0)
    count = np.sum(there.astype(values.dtype), axis=axis, keepdims=keepdims)
    return np.sum(values, axis=axis, keepdims=keepdims) / count


def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
    if not _no_more([dtype, out, where, mean, correction]):
        return NotImplemented
    keepdims = keepdims is True
    values, there = _where_numbers(a, 0.0)
    count = np.sum(there.astype(values.dtype), axis=axis, keepdims=True)
    apart = np.where(there, values - np.sum(values, axis=axis, keepdims=True) / count, np.zeros((), values.dtype))
    freedom = np.sum(there.astype(values.dtype), axis=axis, keepdims=keepdims) - ddof
    found = np.sum(apart * apart, axis=axis, keepdims=keepdims)
    return np.where(freedom <= 0, np.nan, found / np.where(freedom <= 0, 1.0, freedom)).astype(values.dtype)


def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
    found = nanvar(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    return found if found is NotImplemented else np.sqrt(found)


def _nan_extremum(reduce, last, a, axis, keepdims):
    if np.asarray(a).dtype.kind in "biu":
        return reduce(a, axis=axis, keepdims=keepdims)
    values, there = _where_numbers(a, last)
    found = reduce(values, axis=axis, keepdims=keepdims)
    return np.where(np.any(there, axis=axis, keepdims=keepdims), found, np.asarray(np.nan, values.dtype))


def nanmax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    if not _no_more([out, initial, where]):
        return NotImplemented
    return _nan_extremum(np.max, -np.inf, a, axis, keepdims is True)


def nanmin(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    if not _no_more([out, initial, where]):
        return NotImplemented
    return _nan_extremum(np.min, np.inf, a, axis, keepdims is True)


def sinc(x):
    x = _floats(x)
    y = np.pi * x
    near = np.abs(y) < 0.01
    square = np.where(near, y * y, 0)
    apart = np.where(near, 1, y)
    # Taylor's series to y**8, so that 0 has derivatives to that order.
    series = 1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72)))
    return _number(np.where(near, series, np.sin(apart) / apart))


_largest = {dtype().itemsize: float(np.finfo(dtype).max) for dtype in (np.float16, np.float32, np.float64)}


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    x = np.asarray(x)
    if not copy or x.dtype.kind != "f" or x.dtype.itemsize > 8:
        return NotImplemented
    high = _largest[x.dtype.itemsize] if posinf is None else posinf
    low = -_largest[x.dtype.itemsize] if neginf is None else neginf
    found = np.where(np.isnan(x), np.asarray(nan, x.dtype), x)
    found = np.where(x == np.inf, np.asarray(high, x.dtype), found)
    return _number(np.where(x == -np.inf, np.asarray(low, x.dtype), found))


def tensorsolve(a, b, axes=None):
    a, b = _floats(a), _floats(b)
    if axes is not None or a.ndim < b.ndim or a.size != b.size * b.size:
        return NotImplemented
    return solve(a.reshape(b.size, b.size), b.reshape(b.size)).reshape(a.shape[b.ndim:])


instead = {
    np.linalg.inv: inv, np.linalg.solve: solve, np.linalg.det: det, np.linalg.slogdet: slogdet,
    np.linalg.cholesky: cholesky, np.linalg.eigh: eigh, np.linalg.eigvalsh: eigvalsh, np.linalg.svd: svd,
    np.linalg.svdvals: svdvals, np.linalg.qr: qr, np.linalg.pinv: pinv, np.linalg.lstsq: lstsq, np.polyfit: polyfit,
    np.linalg.norm: norm, np.linalg.cond: cond, np.trace: trace, np.ndarray.trace: trace,
    np.linalg.trace: _trace_of_matrix, np.vdot: vdot, np.vecdot: vecdot, np.kron: kron, np.cross: cross,
    np.linalg.cross: _cross_of_rows, np.convolve: convolve, np.correlate: correlate, np.einsum: einsum,
    np.sort: sort, np.argsort: argsort, np.partition: partition, np.argpartition: argpartition,
    np.searchsorted: searchsorted, np.digitize: digitize, np.ndarray.sort: _sort_in_place,
    np.ndarray.partition: _partition_in_place, np.ndarray.argsort: argsort, np.ndarray.argpartition: argpartition,
    np.ndarray.searchsorted: searchsorted, np.median: median, np.quantile: quantile, np.percentile: percentile,
    np.diag: diag, np.diagflat: diagflat, np.vander: vander, np.meshgrid: meshgrid, np.block: block,
    np.select: select, np.ediff1d: ediff1d, np.cbrt: cbrt, np.heaviside: heaviside, np.logaddexp2: logaddexp2,
    np.interp: interp, np.average: average, np.nanmean: nanmean, np.nanvar: nanvar, np.nanstd: nanstd,
    np.nanmax: nanmax, np.nanmin: nanmin, np.sinc: sinc, np.nan_to_num: nan_to_num, np.linalg.tensorsolve: tensorsolve,
}
