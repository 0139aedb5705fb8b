"""The table of the programs: what runs, on which arguments, and the forms that other systems take."""
from dataclasses import dataclass, field

import numpy as np

SIZES = ("tiny", "standard", "large")


@dataclass
class Program:
    kind: str         # elements: loops over elements; arrays: array operations in loops; objects: helpers, methods, attributes; lists; scalars
    function: object  # the source that CPython, framejit and, unless there is a form for it, Numba run
    sample: object    # sample(size) gives the arguments, the same ones each time
    sizes: dict       # name: what sample takes
    tolerance: float  # by which results of other systems than framejit may differ, relative to the largest number
    bounded: bool     # has sums, matrix products or functions of arrays that docs/numerics.md promises within a bound only
    forms: dict = field(default_factory=dict)  # system: the nearest function that the system takes

    def arguments(self, size):
        return self.sample(self.sizes[size])

    @property
    def bound(self):
        """By which framejit's results may differ: 0 means to the last bit."""
        return self.tolerance if self.bounded else 0.0


PROGRAMS = {}


def program(sample, sizes, tolerance=1e-9, bounded=False):
    """Registers the function, which stays as it is, under its name; its kind is the file it stands in."""
    def register(function):
        name = function.__name__
        if name in PROGRAMS or tuple(sizes) != SIZES:
            raise ValueError(f"{name} needs a name of its own and the sizes {', '.join(SIZES)}")
        PROGRAMS[name] = Program(function.__module__.rpartition(".")[2], function, sample, sizes, tolerance, bounded)
        return function
    return register


def form(system, function):
    """Registers a function as the form of a program that a system takes."""
    def register(written):
        PROGRAMS[function.__name__].forms[system] = written
        return written
    return register


def copies(value):
    """Arguments with memory of their own, because many programs write to theirs."""
    if isinstance(value, (list, tuple)):
        return type(value)(copies(item) for item in value)
    return value.copy() if isinstance(value, np.ndarray) else value


def difference(found, expected, bound=0.0):
    """What is not the same as a text, empty if all is: types, dtypes and strides, and values to the last bit or within the bound."""
    if type(found) is not type(expected):
        return f"{type(found).__name__} instead of {type(expected).__name__}"
    if isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{len(found)} values instead of {len(expected)}"
        return next((f"[{i}] {text}" for i, pair in enumerate(zip(found, expected)) if (text := difference(*pair, bound))), "")
    if isinstance(expected, (np.ndarray, np.generic)):
        about = [(value.dtype, value.shape, value.strides) for value in (found, expected)]
        if about[0] != about[1]:
            return f"{about[0]} instead of {about[1]}"
        if found.tobytes() == expected.tobytes():
            return ""
        if bound:
            return distance(found, expected, bound)
        apart = np.asarray(found != expected)
        return f"{apart.sum()} of {apart.size} elements differ" if apart.any() else "the bits of zeros or NaNs differ"
    return "" if repr(found) == repr(expected) else f"{found!r} instead of {expected!r}"


def leaves(value):
    """The arrays and numbers in nested tuples, and lists, as NumPy arrays."""
    if isinstance(value, tuple) or isinstance(value, list) and value and isinstance(value[0], (list, tuple, np.ndarray)):
        return [leaf for item in value for leaf in leaves(item)]
    return [np.asarray(value if not isinstance(value, bytes) else np.frombuffer(value, np.uint8))]


def distance(found, expected, tolerance):
    """What is further apart than the tolerance, as a text; empty if nothing is. Types and dtypes may differ."""
    found, expected = leaves(found), leaves(expected)
    if len(found) != len(expected):
        return f"{len(found)} arrays instead of {len(expected)}"
    for got, want in zip(found, expected):
        if got.shape != want.shape:
            return f"shape {got.shape} instead of {want.shape}"
        if not want.size:
            continue
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        if not np.allclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"differs by {np.abs(got.astype(want.dtype) - want * 1.0).max():.2g} of {scale:.2g}"
    return ""
