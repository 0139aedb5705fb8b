"""What `backend="verify"` does with a call as a whole: Python computes it too, in a child process, and the two are compared.

The child is a fork: it has the arguments, the globals and the random states as they were before the call, and nothing that it writes is seen
here. So faults of capture show (a value that a graph was made without, a write that was lost), which a comparison of a graph's program with
its operations can't find. Start at `beside_python`.
"""
import os
import pickle
import select
import signal
import sys
import time
import types
import warnings

import numpy as np

from framejit._errors import CheckError, Error

_ALLOWED = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4}
_ALLOWED_OTHERWISE = 1e-9
_ALLOWED_OF_NUMBERS = 1e-4  # of Python's floats: many are read from arrays of float32
_SECONDS = 60  # and ten times what the compiled call took: then the child is given up
_DEEPEST, _LONGEST = 12, 10_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def beside_python(function, args, kwargs):
    """Starts the child. Returns what is to be told of the compiled call, by `returned(result)` or `raised(error)`; None: there can be no child."""
    torch = sys.modules.get("torch")
    if not hasattr(os, "fork") or torch is not None and torch.cuda.is_initialized():
        return None
    read, write = os.pipe()
    sys.stdout.flush(), sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside other threads
        child = os.fork()
    if child:
        os.close(write)
        return _Compared(function, args, kwargs, child, read)
    try:
        os.close(read)
        if torch is not None:
            torch.set_num_threads(1)  # the threads of the parent are not there
        _silence()
        with open(write, "wb") as pipe:
            pickle.dump(_computed(function, args, kwargs), pipe)
    finally:
        os._exit(0)


def _silence():
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1), os.dup2(nothing, 2)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # they may write elsewhere


def _computed(function, args, kwargs):
    from framejit._api import disable

    try:
        outcome = ("returns", picture(disable(function)(*args, **kwargs)))
    except BaseException as error:
        outcome = ("raises", _raised(error))
    return outcome, picture(_reached(function, args, kwargs))


def _raised(error):
    return f"{type(error).__name__}: {error}"


def _reached(function, args, kwargs):
    """What the call may have written: its arguments, the cells and the globals that the function names."""
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:
            pass
    found = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    return {"arguments": list(args), "keywords": kwargs, "closure": cells, "globals": found}


class _Compared:
    def __init__(self, function, args, kwargs, child, pipe):
        self.function, self.args, self.kwargs, self.child, self.pipe = function, args, kwargs, child, pipe
        self.began = time.monotonic()

    def returned(self, result):
        self._compare("returns", result)

    def raised(self, error):
        # framejit's own word (a break under fullgraph, a program that differs from its operations), or Ctrl-C.
        if isinstance(error, Error) or not isinstance(error, Exception):
            self._end()
        else:
            self._compare("raises", error)

    def _end(self):
        os.close(self.pipe)
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)

    def _compare(self, what, result):
        expected = self._told()
        if expected is None:
            return
        (expected_what, expected_result), expected_state = expected
        name = self.function.__qualname__
        if what != expected_what:
            other = f"raises {expected_result}" if expected_what == "raises" else "returns"
            ours = f"raises {_raised(result)}" if what == "raises" else "returns"
            raise CheckError(f"framejit: {name} compiled {ours}, and in Python it {other}")
        found = _raised(result) if what == "raises" else picture(result)
        # What cancels is as far from 0 as what it was made of was rounded.
        scale = max(_magnitudes(expected_state[("key", "arguments")]), default=0.0)
        place = difference(found, expected_result, "result", scale) \
            or difference(picture(_reached(self.function, self.args, self.kwargs)), expected_state, "", scale)
        if place:
            raise CheckError(f"framejit: {name} compiled differs from the function in Python, first in\n  {place.lstrip('.')}\n"
                             "  try   framejit.minify, which finds a short program that shows it; please report that")

    def _told(self):
        """What the child has computed; None: nothing came in time."""
        limit = time.monotonic() + _SECONDS + 10 * (time.monotonic() - self.began)
        parts = []
        try:
            while select.select([self.pipe], [], [], max(0, limit - time.monotonic()))[0]:
                parts.append(os.read(self.pipe, 1 << 20))
                if not parts[-1]:
                    return pickle.loads(b"".join(parts))
        except EOFError:  # the child has died
            pass
        finally:
            self._end()
        warnings.warn(f"framejit: what {self.function.__qualname__} gives in Python could not be computed beside it", stacklevel=3)
        return None


class _Array:
    """An array as it is compared: its values by NumPy, what the library calls its dtype, its strides where they can be seen."""

    def __init__(self, kind, dtype, strides, values):
        self.kind, self.dtype, self.strides, self.values = kind, dtype, strides, values


def picture(value, depth=0, seen=None):
    """Of plain data: arrays, numbers and texts, tuples, lists and dicts of pictures; of another object its type and attributes."""
    seen = {} if seen is None else seen
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        strides = [stride for stride, size in zip(value.strides, value.shape) if size > 1] if value.size else []
        return _Array(type(value).__name__, str(value.dtype), strides, np.array(value))
    if type(value) in _PLAIN:
        return value
    if id(value) in seen or depth > _DEEPEST or len(seen) > _LONGEST or isinstance(value, (type, types.ModuleType)):
        return type(value).__name__
    seen[id(value)] = value
    if isinstance(value, (tuple, list, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [type(value).__name__, *(picture(item, depth + 1, seen) for item in items)]
    if isinstance(value, dict):
        return {"type": type(value).__name__, **{("key", str(key)): picture(item, depth + 1, seen) for key, item in value.items()}}
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        return {"type": type(value).__name__, **{("attribute", str(name)): picture(item, depth + 1, seen) for name, item in attributes.items()}}
    return type(value).__name__


def _of_tensor(tensor):
    torch = sys.modules["torch"]
    try:
        plain = tensor.detach().resolve_conj().resolve_neg()
        strides = [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1] if tensor.numel() else []
        values = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy().copy()
    except (RuntimeError, TypeError):  # no dense tensor of the host
        return type(tensor).__name__
    return _Array(type(tensor).__name__, str(tensor.dtype).rpartition(".")[2], strides, values)


def _magnitudes(pictured):
    """The largest numbers of the floating-point arrays in a picture."""
    if isinstance(pictured, _Array):
        if pictured.values.dtype.kind not in "fc":
            return []
        finite = pictured.values[np.isfinite(pictured.values)]
        return [float(np.abs(finite).max())] if finite.size else []
    parts = pictured.values() if isinstance(pictured, dict) else pictured if isinstance(pictured, list) else ()
    return [number for part in parts for number in _magnitudes(part)]


def difference(ours, theirs, path, scale=0.0):
    """The first place where two pictures differ, in words; None: nowhere. scale: differences of floats count beside such a number."""
    if isinstance(ours, _Array) and isinstance(theirs, _Array):
        return _difference_of_arrays(ours, theirs, path, scale)
    if type(ours) is not type(theirs):
        return f"{path}: {_short(ours)}, in Python {_short(theirs)}"
    if isinstance(ours, list) and len(ours) == len(theirs):
        return next(filter(None, (difference(a, b, f"{path}[{i - 1}]", scale) for i, (a, b) in enumerate(zip(ours, theirs)))), None)
    if isinstance(ours, dict) and list(ours) == list(theirs):
        named = ((f"{path}.{key[1]}" if isinstance(key, tuple) else path, ours[key], theirs[key]) for key in ours)
        return next(filter(None, (difference(a, b, name, scale) for name, a, b in named)), None)
    if isinstance(ours, (float, complex)) and (abs(ours - theirs) <= _ALLOWED_OF_NUMBERS * max(abs(theirs), scale) or ours != ours and theirs != theirs):
        return None
    return None if ours == theirs else f"{path}: {_short(ours)}, in Python {_short(theirs)}"


def _difference_of_arrays(ours, theirs, path, scale):
    for what in ("kind", "dtype", "strides"):
        if getattr(ours, what) != getattr(theirs, what):
            return f"{path}: {what} {getattr(ours, what)}, in Python {getattr(theirs, what)}"
    a, b = ours.values, theirs.values
    if a.shape != b.shape:
        return f"{path}: shape {a.shape}, in Python {b.shape}"
    with np.errstate(all="ignore"):
        if a.dtype.kind not in "fc":
            wrong = a != b
        else:
            finite = b[np.isfinite(b)]
            allowed = _ALLOWED.get(ours.dtype, _ALLOWED_OTHERWISE) * max(float(np.abs(finite).max()) if finite.size else 0.0, scale)
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed))
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{path}{list(place) if place else ''}: {a[place].item()!r}, in Python {b[place].item()!r}"


def _short(value):
    text = f"{value.kind} {value.dtype}{list(value.values.shape)}" if isinstance(value, _Array) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
