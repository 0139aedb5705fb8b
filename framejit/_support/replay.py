"""The back end "eager": a captured graph replayed operation by operation through the array library.

Start at `replay`. `operations` has one entry per row of ops.def: what NumPy does, what torch does, each given the node's
operands and a `Step`. A test checks that no row is missing. Useful to tell whether a difference comes from the capture or
from the kernels.
"""
import functools
import math
import sys

import numpy

_NUMPY_NAMES = {"bool": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16",
                "i32": "int32", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64",
                "c128": "complex128"}


def replay(graph, example_inputs):
    """A function of the graph's inputs (then its integers) that returns its outputs and written values."""
    torch = sys.modules.get("torch")
    library = "numpy"
    if torch is not None and (any(isinstance(x, torch.Tensor) for x in example_inputs) or _needs_torch(graph)):
        library = "torch"
    steps = [Step(graph, node, library) for node in graph.nodes]
    shapes = [shape for _, _, _, shape in graph.inputs]
    results = [*graph.outputs, *(value for _, value in graph.writes)]

    def run(*arguments):
        arrays = [_as(library, x) for x in arguments[:len(shapes)]]
        sizes = _sizes(graph, shapes, arrays, arguments[len(shapes):])
        values = {value: x for (value, *_), x in zip(graph.inputs, arrays)}
        for step in steps:
            made = step.run([values[i] for i in step.operands], sizes)
            values.update(zip(step.results, made))
        return [values[i] for i in results]

    if library == "torch":
        return torch.no_grad()(run)

    def run_numpy(*arguments):
        # Conditions NumPy reports are reported by the function as written, which runs if this one raises.
        wanted = {kind: "ignore" if what == "ignore" else "raise" for kind, what in numpy.geterr().items()}
        with numpy.errstate(**wanted):
            return run(*arguments)

    return run_numpy


replay.__framejit_replay__ = True  # where it raises, the function as written runs, and raises or reports what there is


def _needs_torch(graph):
    return any(node.op == "extern_call" or any(dtype == "bf16" for dtype, _ in node.types) for node in graph.nodes)


def _as(library, array):
    if library == "torch" and isinstance(array, (numpy.ndarray, numpy.generic)):
        import torch

        return torch.from_numpy(numpy.array(array))
    return array


def _sizes(graph, shapes, arrays, integers):
    """The number of every symbol."""
    sizes = dict(zip((f"s{i}" for i in graph.integers), integers))
    for shape, array in zip(shapes, arrays):
        sizes.update((name, size) for name, size in zip(shape, array.shape) if isinstance(name, str))
    for symbol, dividend, divisor, remainder in graph.definitions:
        whole, rest = divmod(_size(dividend, sizes), _size(divisor, sizes))
        sizes[f"s{symbol}"] = rest if remainder else whole
    return sizes


@functools.cache
def _compiled(text):
    return compile(text, "<size>", "eval")


def _size(size, sizes):
    """A number, or the text of a polynomial over the graph's symbols: `s0*2 + 1`."""
    return size if isinstance(size, int) else eval(_compiled(size), {"__builtins__": {}}, sizes)


class Step:
    """One node: its attributes, made concrete for the sizes of a call."""

    def __init__(self, graph, node, library):
        self.node, self.op, self.operands, self.results, self.attrs = node, node.op, node.operands, node.results, node.attrs
        self.symbols = len(graph.symbols)
        self.types = [dtype for dtype, _ in node.types]
        self.function = operations[node.op][0 if library == "numpy" else 1]
        self.library = sys.modules[library]
        self.dtype = self.named(self.types[0])
        self.sizes = {}

    def run(self, operands, sizes):
        self.sizes = sizes
        made = self.function(self, *operands)
        if self.op == "extern_call":
            return made
        if self.library is numpy:
            made = numpy.asarray(made)
            return [made if made.dtype == self.dtype else made.astype(self.dtype)]
        return [made if made.dtype == self.dtype else made.to(self.dtype)]

    def named(self, dtype):
        if self.library is numpy:
            return numpy.dtype(_NUMPY_NAMES[dtype])
        return getattr(self.library, "bfloat16" if dtype == "bf16" else _NUMPY_NAMES[dtype])

    def size(self, value):
        return _size(value, self.sizes)

    def dims(self, name):
        return [self.size(size) for size in self.attrs[name]]

    def part(self, starts, sizes):
        """(index, axes to flip): NumPy's and torch's positive slices for steps of either sign."""
        index, flipped = [], []
        for axis, (start, size, step) in enumerate(zip(starts, sizes, self.attrs["steps"])):
            if size == 0:
                index.append(slice(0, 0))
                continue
            last = start + (size - 1) * step
            index.append(slice(min(start, last), max(start, last) + 1, abs(step)))
            if step < 0:
                flipped.append(axis)
        return tuple(index), flipped


def _plain(numpy_name, torch_name=None):
    """A function of both libraries that takes the operands and nothing else."""
    ours = getattr(numpy, numpy_name)
    name = torch_name or numpy_name
    return lambda step, *xs: ours(*xs), lambda step, *xs: getattr(step.library, name)(*xs)


def _extreme(name):
    """The graph's maximum and minimum give the first of two equal operands; NumPy's give either, by dtype and machine."""
    def by_numpy(step, a, b):
        function, kind = getattr(numpy, name), a.dtype.type
        takes_second = a.dtype.kind == "f" and numpy.signbit(function(kind(0), kind(-0.0))) != numpy.signbit(kind(0))
        return function(b, a) if takes_second else function(a, b)

    return by_numpy, _plain(name)[1]


def _same(function):
    """Written once for both libraries."""
    return function, function


def _over_axes(numpy_name, torch_function):
    ours = getattr(numpy, numpy_name)

    def over_torch(step, x):
        for axis in sorted(step.attrs["axes"], reverse=True):
            x = torch_function(step, x, axis)
        return x

    return lambda step, x: ours(x, axis=tuple(step.attrs["axes"])), over_torch


def _typed(numpy_name, torch_function):
    """Sums and products, in the type of the operand."""
    ours = getattr(numpy, numpy_name)
    _, over_torch = _over_axes(numpy_name, torch_function)
    return lambda step, x: ours(x, axis=tuple(step.attrs["axes"]), dtype=x.dtype), over_torch


def _constant_torch(step):
    value = step.attrs["value"]
    return step.library.tensor(value, dtype=step.dtype)


def _iota(step):
    shape, axis = step.dims("shape"), step.attrs["axis"]
    line = step.library.arange(shape[axis], dtype=step.dtype)
    return step.library.broadcast_to(line.reshape([-1] + [1] * (len(shape) - axis - 1)), shape)


def _cast_numpy(step, x):
    if numpy.iscomplexobj(x) and step.dtype.kind not in "cb":
        x = x.real
    return x.astype(step.dtype)


def _cast_torch(step, x):
    if x.is_complex() and not step.dtype.is_complex and step.types[0] != "bool":
        x = x.real
    return x.to(step.dtype)


def _trunc_div(step, a, b):
    # fmod has the sign of the dividend: what is left divides exactly.
    return numpy.floor_divide(a - numpy.fmod(a, b), b)


def _broadcast(step, x):
    shape = step.dims("shape")
    within = [1] * len(shape)
    for axis, size in zip(step.attrs["dims"], x.shape):
        within[axis] = size
    return step.library.broadcast_to(x.reshape(within), shape)


def _slice(step, x):
    index, flipped = step.part(step.dims("starts"), step.dims("sizes"))
    part = x[index]
    return step.library.flip(part, flipped) if flipped else part


def _slice_update(step, base, update):
    index, flipped = step.part(step.dims("starts"), update.shape)
    result = _copy(step, base)
    result[index] = step.library.flip(update, flipped) if flipped else update
    return result


def _copy(step, x):
    return x.copy() if step.library is numpy else x.clone(memory_format=step.library.contiguous_format)


def _pad(step, x, value):
    low, high = step.dims("low"), step.dims("high")
    shape = [size + before + after for size, before, after in zip(x.shape, low, high)]
    result = _copy(step, step.library.broadcast_to(value, shape))
    # A negative pad crops.
    inside = tuple(slice(max(before, 0), max(before, 0) + size + min(before, 0) + min(after, 0))
                   for size, before, after in zip(x.shape, low, high))
    kept = tuple(slice(max(-before, 0), size + min(after, 0)) for size, before, after in zip(x.shape, low, high))
    result[inside] = x[kept]
    return result


def _from_front(step, indices, size):
    """torch's own indexing functions take no negative indices."""
    return step.library.where(indices < 0, indices + size, indices)


def _picked(step, indices):
    return (slice(None),) * step.attrs["axis"] + indices


def _gather(step, x, *indices):
    return x[_picked(step, indices)]


def _take_along_torch(step, x, indices):
    axis = step.attrs["axis"]
    return step.library.gather(x, axis, _from_front(step, indices, x.shape[axis]))


def _scatter_add_numpy(step, base, updates, *indices):
    result = base.copy()
    numpy.add.at(result, _picked(step, indices), updates)
    return result


def _scatter_add_torch(step, base, updates, *indices):
    axis, count = step.attrs["axis"], len(indices)
    # torch takes the axes indexed first, and adds up what is repeated only in a tensor of its own.
    order = [*range(axis, axis + count), *range(axis), *range(axis + count, base.ndim)]
    rows = indices[0].ndim
    moved = updates.permute([*range(axis, axis + rows), *range(axis), *range(axis + rows, updates.ndim)])
    result = base.permute(order).contiguous().index_put(indices, moved, accumulate=True)
    return result.permute([order.index(i) for i in range(base.ndim)])


def _scatter_numpy(step, base, updates, *indices):
    result = base.copy()
    result[_picked(step, indices)] = updates
    return result


def _scatter_torch(step, base, updates, *indices):
    result = base.clone()
    result[_picked(step, indices)] = updates
    return result


def _counted(positions):
    def nonzero(step, x):
        found = positions(x)
        count = len(found)
        if count in step.attrs["excluded"]:
            raise ValueError(f"the graph is wrong where {step.attrs['count']} is {count}")
        step.sizes[str(step.attrs["count"])] = count
        return found
    return nonzero


def _extern_call(step, *xs):
    torch = step.library
    arrays = []
    for x, layout in zip(xs, step.attrs["operand_strides"]):
        strides = x.contiguous().stride() if layout is None else tuple(step.size(stride) for stride in layout)
        if x.stride() != strides:
            x = torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(x)
        arrays.append(x)
    return step.node.call(arrays, [step.sizes.get(f"s{i}", 0) for i in range(step.symbols)])


def _no_numpy(step, *xs):
    raise TypeError(f"{step.op} has no NumPy form")


operations = {
    "constant": (lambda step: numpy.array(step.attrs["value"]).astype(step.dtype), _constant_torch),
    "dim": (lambda step: numpy.array(step.size(step.attrs["value"]), step.dtype),
            lambda step: step.library.tensor(step.size(step.attrs["value"]), dtype=step.dtype)),
    "iota": _same(_iota),
    # one operand
    "neg": _plain("negative", "neg"),
    "abs": _plain("abs"),
    "sign": _plain("sign", "sgn"),
    "sqrt": _plain("sqrt"),
    "rsqrt": (lambda step, x: 1 / numpy.sqrt(x), lambda step, x: x.rsqrt()),
    "exp": _plain("exp"),
    "exp2": _plain("exp2"),
    "expm1": _plain("expm1"),
    "log": _plain("log"),
    "log2": _plain("log2"),
    "log10": _plain("log10"),
    "log1p": _plain("log1p"),
    "sin": _plain("sin"),
    "cos": _plain("cos"),
    "tan": _plain("tan"),
    "asin": _plain("arcsin"),
    "acos": _plain("arccos"),
    "atan": _plain("arctan"),
    "sinh": _plain("sinh"),
    "cosh": _plain("cosh"),
    "tanh": _plain("tanh"),
    "asinh": _plain("arcsinh"),
    "acosh": _plain("arccosh"),
    "atanh": _plain("arctanh"),
    "erf": (lambda step, x: numpy.vectorize(math.erf, otypes=[numpy.float64])(x), lambda step, x: x.erf()),
    "floor": _plain("floor"),
    "ceil": _plain("ceil"),
    "round": _plain("rint", "round"),
    "trunc": _plain("trunc"),
    "is_nan": _plain("isnan"),
    "is_inf": _plain("isinf"),
    "is_finite": _plain("isfinite"),
    "sign_bit": _plain("signbit"),
    "logical_not": _plain("logical_not"),
    "bit_not": _plain("invert", "bitwise_not"),
    "popcount": _same(lambda step, x: sum(((x >> bit) & 1 for bit in range(8 * x.dtype.itemsize)), x * 0)),
    "cast": (_cast_numpy, _cast_torch),
    # two operands
    "add": _plain("add"),
    "sub": _plain("subtract"),
    "mul": _plain("multiply"),
    "div": _plain("true_divide"),
    "floor_div": _plain("floor_divide"),
    "mod": _plain("remainder"),
    "trunc_div": (_trunc_div, lambda step, a, b: step.library.div(a, b, rounding_mode="trunc")),
    "fmod": _plain("fmod"),
    "pow": _plain("power", "pow"),
    "atan2": _plain("arctan2"),
    "hypot": _plain("hypot"),
    "copysign": _plain("copysign"),
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "fmax": _plain("fmax"),
    "fmin": _plain("fmin"),
    "eq": _plain("equal", "eq"),
    "ne": _plain("not_equal", "ne"),
    "lt": _plain("less", "lt"),
    "le": _plain("less_equal", "le"),
    "gt": _plain("greater", "gt"),
    "ge": _plain("greater_equal", "ge"),
    "bit_and": _plain("bitwise_and"),
    "bit_or": _plain("bitwise_or"),
    "bit_xor": _plain("bitwise_xor"),
    "shift_left": _plain("left_shift", "bitwise_left_shift"),
    "shift_right": _plain("right_shift", "bitwise_right_shift"),
    "where": _plain("where"),
    "fma": (_no_numpy, lambda step, a, b, c: step.library.addcmul(c, a, b)),
    # index maps
    "broadcast": _same(_broadcast),
    "reshape": _same(lambda step, x: x.reshape(step.dims("shape"))),
    "transpose": (lambda step, x: x.transpose(step.attrs["permutation"]), lambda step, x: x.permute(step.attrs["permutation"])),
    "slice": _same(_slice),
    "pad": _same(_pad),
    "concat": (lambda step, *xs: numpy.concatenate(xs, step.attrs["axis"]), lambda step, *xs: step.library.cat(xs, step.attrs["axis"])),
    "slice_update": _same(_slice_update),
    # reductions
    "reduce_sum": _typed("sum", lambda step, x, axis: x.sum(axis, dtype=x.dtype)),
    "reduce_prod": _typed("prod", lambda step, x, axis: x.prod(axis, dtype=x.dtype)),
    "reduce_max": _over_axes("max", lambda step, x, axis: x.amax(axis)),
    "reduce_min": _over_axes("min", lambda step, x, axis: x.amin(axis)),
    "reduce_and": _over_axes("all", lambda step, x, axis: x.all(axis)),
    "reduce_or": _over_axes("any", lambda step, x, axis: x.any(axis)),
    "argmax": _same(lambda step, x: step.library.argmax(x, step.attrs["axis"])),
    "argmin": _same(lambda step, x: step.library.argmin(x, step.attrs["axis"])),
    # scans
    "cumsum": _same(lambda step, x: x.cumsum(step.attrs["axis"], dtype=x.dtype)),
    "cumprod": _same(lambda step, x: x.cumprod(step.attrs["axis"], dtype=x.dtype)),
    # indices as data
    "gather": _same(_gather),
    "take_along": (lambda step, x, indices: numpy.take_along_axis(x, indices, step.attrs["axis"]), _take_along_torch),
    "scatter_add": (_scatter_add_numpy, _scatter_add_torch),
    "scatter": (_scatter_numpy, _scatter_torch),
    "nonzero": (_counted(lambda x: numpy.flatnonzero(x)), _counted(lambda x: x.reshape(-1).nonzero().reshape(-1))),
    # products and the library's own functions
    "matmul": _plain("matmul"),
    "extern_call": (_no_numpy, _extern_call),
}
