"""NumPy's functions as calls of a graph: what they return is found by trying them, and none of them may warn from inside a graph."""
import types
import warnings

import numpy as np
from numpy._core import _methods

# What ndarray's methods call.
_methods_in_python = {np.ndarray.mean: _methods._mean, np.ndarray.var: _methods._var, np.ndarray.std: _methods._std}
# What calls a scalar's method, which is C and warns.
_of_methods = (np.mean, np.var, np.std)


class WouldWarn(Exception):
    """Raised where a function would warn: the program is undone, and Python calls the function, which warns there."""


class _Warnings:
    """In the place of the module `warnings`."""

    def __getattr__(self, name):
        raise WouldWarn(name)


_namespaces = {}


def _quiet_namespace(module):
    """A copy of the module's names in which its functions are copies too, whose `warnings` raises."""
    space = _namespaces.get(module["__name__"])
    if space is None:
        space = _namespaces[module["__name__"]] = dict(module)
        for name, value in module.items():
            function = getattr(value, "_implementation", value)
            if isinstance(function, types.FunctionType) and function.__globals__ is module:
                space[name] = _copied(function, space)
        if "warnings" in space:
            space["warnings"] = _Warnings()
        if space.get("_methods") is _methods:
            space["_methods"] = types.SimpleNamespace(**_quiet_namespace(vars(_methods)))
    return space


def _copied(function, space):
    copy = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _of_array(function):
    def of_array(a, *args, **kwargs):
        found = function(np.asanyarray(a), *args, **kwargs)
        return found[()] if isinstance(a, np.generic) else found  # a scalar's method never returns `out`

    return of_array


def without_warnings(function):
    """The function of NumPy, which raises where it would warn."""
    implementation = _methods_in_python.get(function) or getattr(function, "_implementation", function)
    if not isinstance(implementation, types.FunctionType):
        return function
    quiet = _copied(implementation, _quiet_namespace(implementation.__globals__))
    return _of_array(quiet) if function in _of_methods else quiet


def stand_in(dtype, shape, strides, writeable):
    """An array of this layout (strides in elements) whose values most functions accept: rows increase, square matrices are symmetric and
    positive definite, integers are 0, or the unit matrix."""
    dtype = np.dtype(dtype)
    low = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides) if s > 0)
    memory = np.zeros(high - low + 1 if 0 not in shape else 1, dtype)
    array = np.ndarray(shape, dtype, memory, -low * dtype.itemsize, [s * dtype.itemsize for s in strides])
    square = len(shape) >= 2 and shape[-1] == shape[-2]
    if dtype.kind in "fc" and square:
        place = np.arange(shape[-1])
        array[...] = 1 / (1 + abs(place[:, None] - place)) + shape[-1] * (place[:, None] == place)
    elif dtype.kind in "fc" and shape:
        array[...] = np.arange(1, shape[-1] + 1) / (shape[-1] + 1)
    elif dtype.kind in "fc":
        array[...] = 0.5
    elif dtype.kind == "b":
        array[...] = True
    elif dtype.kind in "iu" and square:
        array[...] = np.eye(shape[-1], dtype=dtype)
    array.flags.writeable = writeable
    return array


def tried(function, arguments, keywords):
    """What the function returns; a warning raises. Not by catch_warnings(): with it every warning that was given once is given again."""
    outside = warnings.filters
    warnings.filters = [("error", None, Warning, None, 0)]
    try:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)
    finally:
        warnings.filters = outside


_unique = getattr(np.unique, "_implementation", None)
_bincount = getattr(np.bincount, "_implementation", np.bincount)


def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True, **more):
    """np.unique in code that can be traced. NumPy 2.3 added `sorted`."""
    if type(axis) is int and isinstance(ar, np.ndarray) and ar.ndim > 1 and -ar.ndim <= axis < ar.ndim and not (return_inverse or more):
        return _unique_rows(ar, return_index, return_counts, axis, equal_nan)
    if axis is not None or more:
        return _unique(ar, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan, **more)
    values, mask, inverse, *rows = padded_unique(np.asanyarray(ar), return_index, return_inverse, return_counts, equal_nan)
    found = [row[mask] for row in (values, *rows)]
    if return_inverse:
        found.insert(1 + return_index, inverse)
    return tuple(found) if len(found) > 1 else found[0]


def padded_unique(ar, return_index, return_inverse, return_counts, equal_nan):
    """What np.unique finds as rows of as many elements as there are: the values, a mask of what counts, the inverse or None, and
    the indices and counts if asked for."""
    found = _unique(ar, return_index, return_inverse, return_counts, equal_nan=equal_nan)
    found = list(found) if isinstance(found, tuple) else [found]
    inverse = found.pop(1 + return_index) if return_inverse else None
    rows = [np.concatenate((part, np.zeros(ar.size - len(part), part.dtype))) for part in found]
    return rows[0], np.arange(ar.size) < len(found[0]), inverse, *rows[1:]


def _unique_rows(ar, return_index, return_counts, axis, equal_nan):
    values, mask, *rows = padded_rows(ar, return_index, return_counts, axis, equal_nan)
    found = [row[mask] for row in (values, *rows)]
    found[0] = np.moveaxis(found[0], 0, axis)
    return tuple(found) if len(found) > 1 else found[0]


def padded_rows(ar, return_index, return_counts, axis, equal_nan):
    """The same along an axis, which comes first."""
    found = _unique(ar, return_index, False, return_counts, axis, equal_nan=equal_nan)
    values, *rest = found if isinstance(found, tuple) else (found,)
    values = np.moveaxis(values, axis, 0)
    size = ar.shape[axis]
    rows = [np.concatenate((part, np.zeros((size - len(part), *part.shape[1:]), part.dtype))) for part in (values, *rest)]
    return rows[0], np.arange(size) < len(values), *rows[1:]


def real_part(x):
    return x.real.copy()


def imaginary_part(x):
    return x.imag.copy()


def complex_number(x, number):
    """The number as an element of x is."""
    return np.array(number, x.dtype)


def as_dtype(x, dtype):
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape[:-1] + (-1,) if x.ndim else ()).copy()


def bincount(x, /, weights=None, minlength=0):
    """np.bincount in code that can be traced: where the caller says how many bins there are."""
    if type(minlength) is not int or minlength <= 0:
        return _bincount(x, weights, minlength)
    return fixed_bincount(x, weights, minlength)


def fixed_bincount(x, weights, minlength):
    found = np.bincount(x, weights, minlength)
    if len(found) != minlength:
        raise WouldWarn("a number beyond the bins")
    return found


_delete = getattr(np.delete, "_implementation", None)
_insert = getattr(np.insert, "_implementation", None)


def _along(arr, axis):
    """The array and the axis that np.delete and np.insert go along; None: NumPy's own code is to say what becomes of them. Several axes
    only where the result is in the order of rows whatever NumPy makes of the layout."""
    if not isinstance(arr, np.ndarray) or arr.ndim == 0:
        return None
    if axis is None:
        return (arr if arr.ndim == 1 else arr.ravel()), 0
    if type(axis) is not int or not -arr.ndim <= axis < arr.ndim or not (arr.ndim == 1 or arr.flags.c_contiguous):
        return None
    return arr, axis % arr.ndim


def _part(arr, axis, key):
    return arr[(slice(None),) * axis + (key,)]


def delete(arr, obj, axis=None):
    """np.delete of places that are ints or in an array, and by a mask."""
    along = _along(arr, axis)
    if along is not None and isinstance(obj, np.ndarray) and obj.ndim == 1:
        size = along[0].shape[along[1]]
        if obj.dtype == bool and len(obj) == size:
            return _part(*along, ~obj)
        if obj.dtype.kind in "iu" and len(obj) != 1:
            keep = np.ones(size, dtype=bool)
            keep[obj] = False
            return _part(*along, keep)
    several = type(obj) in (list, tuple) and len(obj) > 1
    places = obj if several else obj if type(obj) in (list, tuple) else (obj,)
    if along is None or len(places) == 0 or any(type(place) is not int for place in places):
        return _delete(arr, obj, axis)
    rows, axis = along
    size = rows.shape[axis]
    if any(not -size <= place < size for place in places):
        return _delete(arr, obj, axis)
    places = [place % size for place in places]
    if several:
        return _part(rows, axis, [place for place in range(size) if place not in places])
    return np.concatenate((_part(rows, axis, slice(None, places[0])), _part(rows, axis, slice(places[0] + 1, None))), axis)


def insert(arr, obj, values, axis=None):
    """np.insert at one place, which is an int."""
    along = _along(arr, axis)
    if along is None or type(obj) is not int or not -along[0].shape[along[1]] <= obj <= along[0].shape[along[1]]:
        return _insert(arr, obj, values, axis)
    rows, axis = along
    values = np.moveaxis(np.array(values, ndmin=rows.ndim, dtype=rows.dtype), 0, axis)
    if values.ndim != rows.ndim:
        return _insert(arr, obj, values, axis)
    obj = obj + rows.shape[axis] if obj < 0 else obj
    shape = rows.shape[:axis] + (values.shape[axis],) + rows.shape[axis + 1:]
    parts = _part(rows, axis, slice(None, obj)), np.broadcast_to(values, shape), _part(rows, axis, slice(obj, None))
    return np.concatenate(parts, axis)


def traced_instead():
    """What is traced in the place of a function of NumPy whose own code leads into C."""
    known = {np.unique: (unique, _unique), np.bincount: (bincount, _bincount), np.delete: (delete, _delete), np.insert: (insert, _insert)}
    return {function: ours for function, (ours, theirs) in known.items() if theirs is not None}
