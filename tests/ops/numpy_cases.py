"""Calls of NumPy functions for the tests of the NumPy front end: name -> function of one 2x3x4 array."""
import platform

import numpy as np

# On AArch64 a negative number is an invalid operand of a cast to what has no sign, for NumPy too.
COUNTED = "bhil" if platform.machine() == "aarch64" else "bBhHiIlL"
SHAPES = {
    "reshape_with_unknown": lambda x: x.reshape(2, -1, 3),
    "reshape_of_transpose_copies": lambda x: x.T.reshape(4, 6),
    "ravel": lambda x: np.ravel(x),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: x.transpose(1, 0, 2) + 1,
    "transpose_view": lambda x: np.transpose(x, (2, 0, 1)),
    "swapaxes": lambda x: x.swapaxes(0, 2) * 2,
    "moveaxis": lambda x: np.moveaxis(x, [0, 1], [-1, -2]) * 2,
    "squeeze": lambda x: x[:, None].squeeze() * 2,
    "expand_dims": lambda x: np.expand_dims(x, (0, -1)) * 2,
    "broadcast_to": lambda x: np.broadcast_to(x[:, :1], (2, 7, 4)) + 1,
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=2) * 2,
    "windows_of_axes": lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(-1, 0)).max((-1, -2)),
    "concatenate": lambda x: np.concatenate([x, x[:1]]),
    "concatenate_last_axis": lambda x: np.concatenate([x.T, x.T], axis=-1),
    "concatenate_flat": lambda x: np.concatenate([x, x], None),
    "stack": lambda x: np.stack([x, x], axis=2),
    "hstack": lambda x: np.hstack([x, x]),
    "vstack": lambda x: np.vstack([x, x]),
    "column_stack": lambda x: np.column_stack([x[0, 0], x[1, 1]]),
    "split": lambda x: [part * 2 for part in np.split(x, [1, 3], axis=2)],
    "array_split": lambda x: [part * 2 for part in np.array_split(x, 3, axis=2)],
    "tile": lambda x: np.tile(x, (2, 1, 3)),
    "repeat": lambda x: np.repeat(x, 3, axis=1),
    "flip": lambda x: np.flip(x, (0, 2)) + 1,
    "roll": lambda x: np.roll(x, (1, 2), (0, 1)),
    "roll_flat": lambda x: np.roll(x, 7),
    "pad": lambda x: np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3),
    "pad with edges": lambda x: (np.pad(x, 2, "edge"), np.pad(x.T, ((0, 0), (1, 0), (0, 3)), mode="edge")),
    "pad with itself": lambda x: [np.pad(x, ((1, 0), (0, 2), (1, 1)), mode) for mode in ("reflect", "symmetric", "wrap")],
    "pad one element": lambda x: [np.pad(x[:, :1, 0], ((0, 0), (1, 0)), mode) for mode in ("reflect", "symmetric", "wrap", "edge")],
    "pad by nothing": lambda x: (np.pad(x, 0, "edge"), np.pad(x[:0], ((0, 0), (1, 1), (0, 1)), "edge")),
    "diff": lambda x: np.diff(x, n=2, axis=1),
    "diff_prepend": lambda x: np.diff(x, axis=0, prepend=0.5),
    "diff_prepend_append": lambda x: np.diff(x, n=2, prepend=1, append=x[..., :2]),
    "triu": lambda x: np.triu(x, 1),
    "tril": lambda x: np.tril(x, -1),
    "where": lambda x: np.where(x > 0, x, 0),
    "bits that are set": lambda x: [np.bitwise_count((x * 50).astype(dtype)) for dtype in COUNTED],
    "bits of bools": lambda x: np.bitwise_count(x > 0),
    "bits of the lowest": lambda x: np.bitwise_count((x[0, 0] * 0).astype("b") + np.int8(-128)),
    "clip": lambda x: np.clip(x, 0, 1),
    "clip_from_above": lambda x: x.clip(max=1),
    "take": lambda x: np.take(x, [0, 1], axis=1),
}

REDUCTIONS = {
    "sum": lambda x: np.sum(x),
    "sum_of_axes": lambda x: x.sum(axis=(0, 2), keepdims=True),
    "mean": lambda x: x.mean(axis=1),
    "var": lambda x: np.var(x, axis=-1, ddof=1),
    "std": lambda x: np.std(x),
    "max": lambda x: np.max(x, axis=0),
    "min": lambda x: x.min(),
    "ptp": lambda x: np.ptp(x, axis=1),
    "any": lambda x: np.any(x > 1, axis=1),
    "all": lambda x: (x > -100).all(),
    "argmax": lambda x: x.argmax(axis=1),
    "argmin_flat": lambda x: np.argmin(x),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "cumsum_flat": lambda x: x.cumsum(),
    "add_reduce": lambda x: np.add.reduce(x),
    "count_nonzero": lambda x: np.count_nonzero(x > 0, axis=1),
    "matmul": lambda x: x @ x.swapaxes(1, 2),
    "dot": lambda x: np.dot(x[0], x[1].T),
    "outer": lambda x: np.outer(x[0, 0], x[1, 1]),
    "add_outer": lambda x: np.add.outer(x[0], x[0, 0]),
}

INDEXING = {
    "integer": lambda x: x[0] * 2,
    "element": lambda x: x[0, 1, 2] * 2.0,
    "from_the_end": lambda x: x[-1, ..., 1:] + 1,
    "steps": lambda x: x[:, ::-1, ::2] + 1,
    "new_axis": lambda x: x[None, :, None] + 1,
    "empty": lambda x: x[2:1] + 1,
    "index_list": lambda x: x[[0, 1]],
    "index_list_behind": lambda x: x[:, [0, 2]] + 1,
    "index_array": lambda x: x[np.array([[0, 1], [1, -1]])],
    "rows": lambda x: [row * 2 for row in x],
}


def _increment_rows(x):
    x[0] += x[1]
    x[:, 1:] *= 2
    row = x[1]
    row -= 1
    return row


def _mask(x):
    x[x > 0] = 3
    return x


def _reversed_copy(x):
    x[:, ::-1] = x
    return x * 1


def _through_reshape(x):
    y = x * 1
    y.reshape(6, 4)[:, 0] = 5
    return y


WRITES = {"increment_rows": _increment_rows, "mask": _mask, "reversed_copy": _reversed_copy,
          "through_reshape": _through_reshape}

CREATION = {
    "zeros": lambda x: np.zeros(x.shape, x.dtype) + x,
    "ones_fortran": lambda x: np.ones((2, 3), order="F") * 2,
    "full": lambda x: np.full(3, 2.5) * 2,
    "full_int": lambda x: np.full((2, 2), 7) * 2,
    "zeros_like": lambda x: np.zeros_like(x) + 1,
    "arange": lambda x: np.arange(2, 9, 3) * 2,
    "arange_float": lambda x: np.arange(0.5, 7, 1.7) * 1,
    "linspace": lambda x: np.linspace(0, 1, 7) * 1,
    "eye": lambda x: np.eye(3, 4, 1) * 2,
    "array_of_scalars": lambda x: np.array([x[0, 0, 0], x[0, 0, 1]]) * 2,
    "astype": lambda x: x.astype(np.float64) * 2,
    "copy": lambda x: x.copy() * 2,
}
