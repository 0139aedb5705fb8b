"""Everything a program's call left behind that a user can see, in a form two runs can be compared by.

`observe` walks results, arguments, globals and the exception as one graph of objects: an object met before is written as its
number, so identity is compared, and every array says how its memory lies to that of the others. `difference` compares two
such walks, floating-point elements within the dtype's tolerance, everything else exactly.
"""
import collections
import functools
import hashlib
import random
import re
import sys
import types

import numpy as np

from harness import TOLERANCE, extent, is_array, strides_of, torch

ATOMS = (type(None), bool, int, str, bytes, complex, slice, type(Ellipsis), type(NotImplemented), range)
ITERATORS = (types.GeneratorType, type(iter([])), type(iter(())), type(iter({})), type(iter({}.items())), type(iter({}.values())),
             type(iter(range(0))), enumerate, zip, map, filter, reversed)
LIMIT = 50


def without_addresses(text):
    """Objects of two runs lie at two places: `<Box object at 0x7f..>`; nodes of compiled programs have a name of their own."""
    return re.sub(r"\bgrad_fn=<\w+>", "grad_fn=<>", re.sub(r"\bat 0x[0-9a-f]+", "at 0x", text))


class Elements:
    """The elements of an array or a number: compared within a tolerance."""

    def __init__(self, values, dtype):
        self.values, self.dtype = values, dtype

    def differs(self, other, dtype=None):
        """`dtype`: whose tolerance counts, where not its own."""
        if self.dtype != other.dtype or self.values.shape != other.values.shape:
            return True
        a, e = self.values, other.values
        if self.dtype == "object":
            return repr(a.tolist()) != repr(e.tolist())
        dtype = dtype or self.dtype
        if self.dtype not in TOLERANCE:
            return not (np.array_equal(a, e) if e.dtype.kind in "biu" else a.tobytes() == e.tobytes())
        relative, absolute = TOLERANCE[dtype]
        with np.errstate(all="ignore"):
            scale = float(np.max(np.abs(e[np.isfinite(e)]), initial=1.0))
            if not np.allclose(a, e, rtol=relative * 10, atol=absolute * scale, equal_nan=True):
                return True
            if e.dtype.kind == "f":
                zero = (a == 0) & (e == 0)
                return not np.array_equal(np.signbit(a[zero]), np.signbit(e[zero]))
        return False

    def __repr__(self):
        return f"{self.dtype} {np.array2string(self.values, threshold=40)}".replace("\n", "")


def is_dense(tensor):
    """Each element has a place of its own, and there are no gaps."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def _torch_values(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg()
    # NumPy has no such types.
    wider = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}.get(plain.dtype, plain.dtype)
    return plain.to(wider).cpu().numpy().copy()


class Walk:
    """The records of one call, in the order met."""

    def __init__(self):
        self.records, self.numbers, self.arrays, self.kept, self.iterators = [], {}, [], [], []

    def add(self, path, *facts):
        self.records.append((path, facts))

    def seen(self, path, value):
        number = self.numbers.get(id(value))
        if number is not None:
            self.add(path, "the object numbered", number)
            return True
        self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        return False

    def value(self, path, value):
        kind = type(value)
        if kind in ATOMS:
            self.add(path, kind.__name__, without_addresses(repr(value)))
        elif kind is float:
            self.add(path, "float", Elements(np.asarray(value), "float32" if not value.is_integer() else "float64"))
        elif isinstance(value, np.generic):
            self.add(path, kind.__name__, Elements(np.asarray(value), value.dtype.name))
        elif isinstance(value, types.ModuleType):
            self.add(path, "module", value.__name__)
        elif self.seen(path, value):
            return
        elif is_array(value):
            self.array(path, value)
        elif isinstance(value, (list, tuple, collections.deque)):
            self.add(path, kind.__qualname__, len(value))
            for i, item in enumerate(value):
                self.value(f"{path}[{i}]", item)
            self.attributes(path, value)
        elif isinstance(value, dict):
            self.add(path, kind.__qualname__, len(value), repr(getattr(value, "default_factory", None)))
            for i, (key, item) in enumerate(value.items()):
                self.value(f"{path} key {i}", key)
                self.value(f"{path}[{key!r}]", item)
            self.attributes(path, value)
        elif isinstance(value, (set, frozenset)):
            self.add(path, kind.__qualname__, sorted(without_addresses(repr(item)) for item in value))
        elif isinstance(value, BaseException):
            self.exception(path, value)
        elif isinstance(value, type):
            self.add(path, "class", value.__qualname__)
            if value.__module__ == "program":
                for name, item in sorted(vars(value).items()):
                    if not name.startswith("__") and not callable(item) and not isinstance(item, (property, staticmethod, classmethod, types.MemberDescriptorType)):
                        self.value(f"{path}.{name}", item)
        elif isinstance(value, types.FunctionType):
            self.function(path, value)
        elif isinstance(value, types.MethodType):
            self.add(path, "method", value.__qualname__)
            self.value(path + ".__self__", value.__self__)
        elif isinstance(value, functools.partial):
            self.add(path, "partial", value.func.__qualname__)
            self.value(path + ".args", (value.args, value.keywords))
        elif isinstance(value, types.CellType):
            self.add(path, "cell")
            self.value(path + ".contents", value.cell_contents)
        elif isinstance(value, ITERATORS):
            line = value.gi_frame and value.gi_frame.f_lineno if isinstance(value, types.GeneratorType) else None
            self.add(path, kind.__name__, line)
            self.iterators.append((path, value))
        else:
            self.add(path, kind.__qualname__)
            self.attributes(path, value)

    def attributes(self, path, value):
        for name, item in (getattr(value, "__dict__", None) or {}).items():
            self.value(f"{path}.{name}", item)
        for owner in type(value).__mro__:
            slots = vars(owner).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if owner.__module__ == "program" and hasattr(value, name):
                    self.value(f"{path}.{name}", getattr(value, name))

    def function(self, path, value):
        # A compiled function in the program's globals stands for what it wraps.
        self.add(path, "function", value.__qualname__)
        if value.__module__ != "program":
            return
        for i, default in enumerate(value.__defaults__ or ()):
            self.value(f"{path}.__defaults__[{i}]", default)
        self.value(path + ".__dict__", dict(vars(value)))
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            try:
                self.value(f"{path} cell {name}", cell.cell_contents)
            except ValueError:
                self.add(f"{path} cell {name}", "empty")

    def array(self, path, value):
        if torch is None or not isinstance(value, torch.Tensor) or value.layout == torch.strided:
            self.arrays.append((path, value))
        if isinstance(value, np.ndarray):
            flags = value.flags
            # Those of axes of one element mean nothing to NumPy: its functions choose them by the path they take (docs/guards.md).
            strides = [stride for stride, size in zip(strides_of(value) or (), value.shape) if size != 1]
            self.add(path, type(value).__qualname__, value.dtype.str, value.shape, strides, "owns" if flags.owndata else "borrows",
                     "writeable" if flags.writeable else "read-only", Elements(np.asarray(value).copy(), value.dtype.name))
            # A base nobody else holds may have another shape than the one the library happened to make.
            if id(value.base) in self.numbers:
                self.value(path + ".base", value.base)
            else:
                self.add(path + ".base", type(value.base).__name__)
            return
        if value.layout != torch.strided:
            self.add(path, str(value.layout), str(value.dtype), tuple(value.shape), repr(value))
            return
        try:
            value.is_leaf
        except RuntimeError as error:  # a view that must not have been changed
            self.add(path, str(error))
            return
        # A mask may have left no elements: its strides are as those of others (docs/guards.md).
        strides, offset = (strides_of(value), value.storage_offset()) if value.numel() else (None, None)
        self.add(path, type(value).__qualname__, str(value.dtype), str(value.device), tuple(value.shape), strides, offset,
                 "requires grad" if value.requires_grad else "", "leaf" if value.is_leaf else "", f"version {value._version}",
                 "view" if value._is_view() else "no view", value.is_conj(), value.is_neg(), value.untyped_storage().nbytes(),
                 Elements(_torch_values(value), str(value.dtype).split(".")[-1]))
        # As with NumPy's: a base nobody else holds is whatever the library happened to make.
        if id(value._base) in self.numbers:
            self.value(path + "._base", value._base)
        if value.is_leaf and value.grad is not None:
            # Autograd gives it the leaf's own layout where that has one element per place; else that of whatever it was made of. Its
            # version tells whether autograd could take the first gradient as it was or had to copy it.
            # Axes of one element may have other strides (docs/gradients.md).
            gradient = value.grad
            shown = is_dense(value) and gradient.numel()
            strides = [stride for stride, size in zip(gradient.stride(), gradient.shape) if size != 1] if shown else None
            self.add(path + ".grad", tuple(gradient.shape), strides, Elements(_torch_values(gradient), str(gradient.dtype).split(".")[-1]))

    def exception(self, path, error):
        self.add(path, type(error).__qualname__, without_addresses(str(error)), error.__suppress_context__, getattr(error, "__notes__", None))
        frames, traceback = [], error.__traceback__
        while traceback is not None:
            frames.append(f"{traceback.tb_frame.f_code.co_name}:{traceback.tb_lineno}")
            traceback = traceback.tb_next
        if isinstance(error, UnboundLocalError) and frames and sys.version_info < (3, 12):
            # CPython 3.11 names the line before, once it has joined a store and the load behind it to one instruction.
            frames[-1] = frames[-1].split(":")[0] + ":"
        self.add(path + " traceback", [f for f in frames if not f.startswith("call_observed:")])
        for name in ("__cause__", "__context__"):
            if getattr(error, name) is not None:
                self.value(f"{path}.{name}", getattr(error, name))
        self.value(path + ".__dict__", dict(vars(error)))

    def memory(self):
        """How every two arrays that overlap lie to each other."""
        for i, (p, a) in enumerate(self.arrays):
            x = extent(a)
            for q, b in self.arrays[i + 1:]:
                y = extent(b)
                if x is not None and y is not None and x[0] < y[1] and y[0] < x[1]:
                    self.add(f"memory of {p} and {q}", y[0] - x[0])

    def drain(self):
        """What unfinished iterators still give; last, since asking runs them."""
        for path, iterator in self.iterators:
            items = []
            try:
                for _ in range(LIMIT):
                    items.append(next(iterator))
            except StopIteration:
                items.append("the end")
            except Exception as error:
                items.append(error)
            self.value(path + " items", items)


def random_states():
    numbers = np.random.get_state()
    states = [repr(random.getstate()), numbers[1].tobytes().hex(), repr(numbers[2:])]
    if torch is not None:
        states.append(torch.get_rng_state().numpy().tobytes().hex())
        if torch.cuda.is_initialized():
            states.append(torch.cuda.get_rng_state().numpy().tobytes().hex())
    return hashlib.sha1("".join(states).encode()).hexdigest()


def thread_modes():
    modes = [sorted(np.geterr().items())]
    if torch is not None:
        modes += [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), str(torch.get_default_dtype())]
    return modes


def observe(result, error, arguments, namespace, stdout, warnings):
    walk = Walk()
    walk.add("stdout", without_addresses(stdout))
    walk.add("warnings", [(category, without_addresses(text), line) for category, text, line in warnings])
    walk.add("random", random_states())
    walk.add("modes", thread_modes())
    walk.value("error", error)
    walk.value("arguments", arguments)
    walk.value("result", result)
    for name in sorted(namespace):
        if not name.startswith("__") and not isinstance(namespace[name], types.ModuleType):
            walk.value(f"global {name}", namespace[name])
    walk.memory()
    walk.drain()
    return walk.records


def coarser(path, dtype, met):
    """The dtype whose rounding decides: gradients pass through halves, and float64 is made of what was float32."""
    if dtype not in TOLERANCE:
        return dtype
    half = next((half for half in ("bfloat16", "float16") if half in met), None)
    if half and path.endswith(".grad"):
        return half
    single = {"float64": "float32", "complex128": "complex64"}.get(dtype)
    return single if single and met & {"float32", "complex64"} else dtype


def difference(ours, eager):
    """The first difference of two observations as (path, text), or None."""
    met = {fact.dtype for _, facts in eager for fact in facts if isinstance(fact, Elements)}
    for (path, a), (expected_path, e) in zip(ours, eager):
        if path != expected_path:
            return path, f"{path}: {a}, where eager has {expected_path}: {e}"
        if len(a) != len(e) or any(x.differs(y, coarser(path, x.dtype, met)) if isinstance(x, Elements) and isinstance(y, Elements) else x != y for x, y in zip(a, e)):
            return path, f"{path}: {a}, eager gives {e}"
    if len(ours) != len(eager):
        longer = ours if len(ours) > len(eager) else eager
        path, facts = longer[min(len(ours), len(eager))]
        return path, f"{path}: {facts} only {'compiled' if longer is ours else 'eagerly'}"
    return None
