"""Whether a compiled call does something else than the same call as written. Start at `Difference`."""
import functools
import sys
from typing import NamedTuple

import numpy as np

from framejit import _core
from framejit._api import compile, options as options_of_block
from framejit._checks import _ALLOWED, _difference, _has_nan, _number, _plain, _random_states, _set_random_states
from framejit._errors import GraphBreakError, RecompileError
from framejit._graph.dtypes import graph_name


class Failure(NamedTuple):
    """kind: "differs", the types of what the compiled call raises and of its cause, or "fails" where the caller's predicate says so."""
    kind: object
    text: str


class Difference:
    """The test that is made if the caller has none: the compiled call raises, or gives or writes other values than the call as written.

    It is called with a function and its arguments, which it copies, and returns a Failure, or None. What the call as written raises
    goes on to the caller. options: those of `framejit.compile`.
    """

    def __init__(self, options):
        self.options = options

    def __call__(self, function, args):
        states = _random_states()
        try:
            expected = called(function, args)
            _set_random_states(states)
            try:
                with options_of_block(strict=True):
                    found = _values(compile(function, **self.options), copied(args))
            except (GraphBreakError, RecompileError):
                raise  # what was asked for by an option
            except Exception as error:
                return Failure((type(error), type(error.__cause__)), f"the compiled call raises {_in_words(error)}")
        finally:
            _set_random_states(states)
        text = _first_difference(found, expected)
        return Failure("differs", text) if text else None


class OwnTest:
    """The same for the caller's predicate."""

    def __init__(self, fails):
        self.fails = fails

    def __call__(self, function, args):
        called(function, args)
        name = getattr(self.fails, "__name__", "fails")
        return Failure("fails", f"{name}(function, arguments) is true") if self.fails(function, copied(args)) else None


def called(function, args):
    """What the call as written gives: result and arguments afterwards."""
    return _values(functools.partial(_core.call_eagerly, function), copied(args))


def _values(function, args):
    with np.errstate(all="ignore"):
        return function(*args), args


def copied(value, known=None):
    """A value with copies of the arrays in it; what is one array twice is one copy twice."""
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    torch = sys.modules.get("torch")
    if isinstance(value, np.ndarray):
        made = value.copy(order="K")
    elif torch is not None and isinstance(value, torch.Tensor):
        made = value.detach().clone().requires_grad_(value.requires_grad)
    elif type(value) in (list, tuple):
        made = type(value)(copied(x, known) for x in value)
    elif type(value) is dict:
        made = {key: copied(x, known) for key, x in value.items()}
    else:
        return value
    known[id(value)] = made
    return made


def _in_words(error):
    return f"{type(error).__name__}: {error}"


def _is_array(value):
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _first_difference(ours, theirs, place=""):
    """In words, or the empty text. Objects that are neither arrays, numbers nor collections of such are not compared."""
    if isinstance(theirs, (list, tuple, dict)):
        if type(ours) is not type(theirs) or len(ours) != len(theirs):
            return f"the result is another {type(theirs).__name__}"
        pairs = zip(ours.values(), theirs.values()) if isinstance(theirs, dict) else zip(ours, theirs)
        return next(filter(None, (_first_difference(a, b) for a, b in pairs)), "")
    if not (_is_array(theirs) or isinstance(theirs, (bool, int, float, complex))):
        return ""
    if type(ours) is not type(theirs):
        return f"the compiled call gives {type(ours).__name__}, eager {type(theirs).__name__}"
    if _is_array(theirs):
        for what in ("dtype", "shape"):
            if getattr(ours, what) != getattr(theirs, what):
                return f"the {what} is {getattr(ours, what)}, of the eager result {getattr(theirs, what)}"
    dtype = graph_name(theirs.dtype if _is_array(theirs) else np.asarray(theirs).dtype)
    if dtype not in _ALLOWED and _plain(theirs).dtype.kind not in "biu":
        return ""
    at = _difference(dtype, ours, theirs)
    if at is None:
        return ""
    element = f"element [{', '.join(map(str, at))}]" if at else "the number"
    nan = "; eager has no NaN" if _has_nan(ours) and not _has_nan(theirs) else ""
    return f"{element} is {_number(ours, at)}, eager gives {_number(theirs, at)}{nan}"
