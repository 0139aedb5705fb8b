"""A captured graph as a function of the array library alone: its source, which people can read and keep, and the function.

Start at `source`. `operations` has one entry per row of ops.def: what NumPy writes, what torch writes, each given a `Statement`
and the names of the operands; the result is an expression. A test checks that no row is missing. The back end "eager" runs
these functions: it tells whether a difference comes from the capture or from the kernels.
"""
import keyword
import linecache
import math
import re
import sys
import weakref

import numpy

from framejit._errors import GraphError
from framejit._graph import calls
from framejit._graph.dtypes import library_name

_BYTES = {"bool": 1, "f16": 2, "bf16": 2}


def source(graph, library, checked=False):
    """The text of a function of the graph's inputs, then its integers, that returns a list: outputs, then written values.

    graph: a framejit._core.CapturedGraph. library: "numpy" or "torch". checked: it raises GraphError, a name it does not define, for
    arrays of other dtypes or shapes than the graph's. Raises TypeError for an operation that the library has no form of.
    """
    return _Writer(graph, library, checked).text


def function(graph, library, checked=False, layouts=True):
    """The function that `source` is the text of. Tracebacks and debuggers show its lines.

    layouts: the library's functions are given arrays that lie in memory as the graph says; else contiguous ones.
    """
    if library not in sys.modules:
        raise GraphError(f"the graph of {graph.name} is run by {library}, which is not imported")
    writer = _Writer(graph, library, checked, layouts)
    name = f"<graph of {graph.name}, {id(graph):x}>"
    space = {"numpy": numpy, "math": math, "GraphError": GraphError, library: sys.modules[library], **writer.externs}
    exec(compile(writer.text, name, "exec"), space)
    made = space[writer.name]
    linecache.cache[name] = (len(writer.text), None, writer.text.splitlines(True), name)
    weakref.finalize(made, linecache.cache.pop, name, None)
    return made


def replay(graph, example_inputs):
    """The back end "eager"."""
    graph = graph._as_core()
    torch = sys.modules.get("torch")
    if torch is not None and (any(isinstance(x, torch.Tensor) for x in example_inputs) or _needs_torch(graph)):
        run, arrays = function(graph, "torch"), len(graph.inputs)

        @torch.no_grad()
        def run_torch(*arguments):
            tensors = (torch.from_numpy(numpy.array(x)) if isinstance(x, (numpy.ndarray, numpy.generic)) else x
                       for x in arguments[:arrays])
            return run(*tensors, *arguments[arrays:])

        return run_torch

    run_quietly = function(graph, "numpy")

    def run_numpy(*arguments):
        # Conditions NumPy reports are reported by the function as written, which runs if this one raises.
        wanted = {kind: "ignore" if what == "ignore" else "raise" for kind, what in numpy.geterr().items()}
        with numpy.errstate(**wanted):
            return run_quietly(*arguments)

    return run_numpy


replay.__framejit_replay__ = True  # where it raises, the function as written runs, and raises or reports what there is


def _needs_torch(graph):
    return any(node.op == "extern_call" or any(dtype == "bf16" for dtype, _ in node.types) for node in graph.nodes)


class _Writer:
    def __init__(self, graph, library, checked, layouts=True):
        self.layouts = layouts
        self.library, self.lines, self.externs = library, [], {}
        self.symbols = len(graph.symbols)
        self.names, self.dtypes, self.shapes = {}, {}, {}
        self.taken = {library, "numpy", "math", "sum", "range", "len", "max", "min", "complex", "slice", "ValueError", "GraphError"}
        self.name = self.identifier(graph.name)
        parameters = []
        for value, name, dtype, shape in graph.inputs:
            self.names[value] = self.identifier(name.rpartition("L.")[2])
            self.dtypes[value], self.shapes[value] = dtype, shape
            parameters.append(self.names[value])
        known = self.known = {f"s{number}" for number in graph.integers}
        parameters += [f"s{number}" for number in graph.integers]
        for value, _, _, shape in graph.inputs:
            for axis, size in enumerate(shape):
                if isinstance(size, str) and size.isidentifier() and size not in known:
                    self.lines.append(f"{size} = {self.names[value]}.shape[{axis}]")
                    known.add(size)
        self.waiting = list(graph.definitions)
        self.define()
        if checked:
            self.check(graph)
        for number, node in enumerate(graph.nodes):
            self.write(node, number)
            if node.op in ("nonzero", "as_size"):
                known.add(str(node.attrs["count"]))
                self.define()
        results = ", ".join(self.names[value] for value in [*graph.outputs, *(value for _, value in graph.writes)])
        self.lines.append(f"return [{results}]")
        self.text = f"def {self.name}({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in self.lines)

    def check(self, graph):
        bounds = {name: (low, high) for name, low, high, *_ in graph.symbols}
        for value, name, dtype, shape in graph.inputs:
            x, wanted = self.names[value], f"{dtype}[{', '.join(map(str, shape))}]"
            found = f"{{{x}.dtype}}{{list({x}.shape)}}"
            message = f"the graph of {graph.name} takes {wanted} as %{x}, not "
            named = _Named(self.library).named(dtype)
            sizes = [f"{x}.shape[{axis}] != {_size(size)}" for axis, size in enumerate(shape)]
            ranges = [f"{size} < {bounds[size][0]}" for size in shape if size in bounds and bounds[size][0] > 0]
            ranges += [f"{size} > {bounds[size][1]}" for size in shape if size in bounds and bounds[size][1] < 2**62]
            test = " or ".join([f"{x}.dtype != {named}", f"len({x}.shape) != {len(shape)}", *sizes, *ranges])
            self.lines.append(f"if {test}:")
            self.lines.append(f"    raise GraphError({message!r} + f\"{found}\")")

    def identifier(self, name):
        plain = re.sub(r"\W+", "_", name).strip("_") or "x"
        plain = f"x{plain}" if plain[0].isdigit() else f"{plain}_" if keyword.iskeyword(plain) else plain
        if re.fullmatch(r"[sv]\d+(_\d+)?", plain):  # sizes and values
            plain += "_"
        found, count = plain, 1
        while found in self.taken:
            count += 1
            found = f"{plain}_{count}"
        self.taken.add(found)
        return found

    def define(self):
        """Symbols that are quotients or remainders of others, as soon as those are known."""
        for row in list(self.waiting):
            symbol, dividend, divisor, remainder = row
            if set(re.findall(r"s\d+", f"{dividend} {divisor}")) <= self.known:
                self.lines.append(f"s{symbol} = ({dividend}) {'%' if remainder else '//'} ({divisor})")
                self.known.add(f"s{symbol}")
                self.waiting.remove(row)

    def write(self, node, number):
        for result, (dtype, shape) in zip(node.results, node.types):
            self.names[result] = f"v{number}" if len(node.results) == 1 else f"v{number}_{len(self.names)}"
            self.dtypes[result], self.shapes[result] = dtype, shape
        statement = Statement(self, node, number)
        write = operations[node.op][0 if self.library == "numpy" else 1]
        made = write(statement, *(self.names[value] for value in node.operands))
        if self.library == "numpy" and not statement.shape and node.op not in ("constant", "dim", "extern_call"):
            made = f"numpy.asarray({made})"  # its operations give scalars
        names = ", ".join(self.names[value] for value in node.results)
        file, line, _ = node.location
        where = f"  # {file.rpartition('/')[2]}:{line}" if line else ""
        self.lines.append(f"{names}{',' if node.op == 'extern_call' else ''} = {made}{where}")


class _Named:
    def __init__(self, library):
        self.library = library

    def named(self, dtype):
        return f"{self.library}.{library_name(dtype)}"


class Statement(_Named):
    """One node: attributes as text."""

    def __init__(self, writer, node, number):
        self.writer, self.node, self.number = writer, node, number
        super().__init__(writer.library)
        self.attrs = node.attrs
        (self.type, self.shape), *_ = [*node.types, (None, None)]
        self.dtype = self.named(self.type) if self.type else None

    def line(self, text):
        """A statement before the one that gives the result its name."""
        self.writer.lines.append(text)

    def variable(self, name):
        """A name that nothing else has."""
        return self.writer.identifier(f"{name}{self.number}")

    def operand_type(self, i=0):
        return self.writer.dtypes[self.node.operands[i]]

    def operand_shape(self, i=0):
        return self.writer.shapes[self.node.operands[i]]

    def part(self, starts, sizes, whole):
        """(text of an index, axes to flip): NumPy's and torch's positive slices for steps of either sign."""
        index, flipped = [], []
        for axis, (start, size, step, all_of_it) in enumerate(zip(starts, sizes, self.attrs["steps"], whole)):
            if step == 1 and start == 0 and size == all_of_it:
                index.append(":")
            elif step > 0:
                stop = f"{_plus(start, _times(size, step))}"
                index.append(f"{start}:{stop}" + (f":{step}" if step != 1 else ""))
            else:
                flipped.append(axis)
                # From the last element on: none of them is at `start - step` where there are none.
                last = _plus(_plus(start, _times(size, step)), -step)
                index.append(f"{last}:{_plus(start, 1)}" + (f":{-step}" if step != -1 else ""))
        return ", ".join(index) or "...", flipped


def _size(size):
    return str(size) if isinstance(size, int) or size.isidentifier() else f"({size})"


def _plus(a, b):
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return str(a) if b == 0 else str(b) if a == 0 else f"{_size(a)} + {_size(b)}"


def _times(a, b):
    return a * b if isinstance(a, int) else a if b == 1 else f"{_size(a)}*{_size(b)}"


def _tuple(items):
    texts = [str(item) for item in items]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _literal(value):
    if isinstance(value, complex):
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    return repr(value)


def _plain(numpy_name, torch_name=None):
    """A function of both libraries that takes the operands and nothing else."""
    def call(function):
        return lambda step, *xs: f"{step.library}.{function}({', '.join(xs)})"

    return call(numpy_name), call(torch_name or numpy_name)


def _same(write):
    """Written alike for both libraries."""
    return write, write


def _infix(operator):
    return _same(lambda step, a, b: f"{a} {operator} {b}")


def _typed(*pair):
    """The library's result may be of another type than the graph's."""
    numpy_form, torch_form = pair
    return (lambda step, *xs: f"({numpy_form(step, *xs)}).astype({step.dtype})",
            lambda step, *xs: f"({torch_form(step, *xs)}).to({step.dtype})")


def _extreme(name):
    """The graph's maximum and minimum give the first of two equal operands; NumPy's give either, by dtype and machine."""
    def by_numpy(step, a, b):
        function, kind = getattr(numpy, name), getattr(numpy, library_name(step.type).replace("bool", "bool_"))
        takes_second = step.type[0] == "f" and numpy.signbit(function(kind(0), kind(-0.0))) != numpy.signbit(kind(0))
        return f"numpy.{name}({b}, {a})" if takes_second else f"numpy.{name}({a}, {b})"

    return by_numpy, _plain(name)[1]


def _over_axes(numpy_name, torch_name, of_type=False):
    """of_type: sums and products, in the type of the operand. torch's products are over one axis."""
    def dtype(step):
        return f", dtype={step.dtype}" if of_type else ""

    def over_torch(step, x):
        axes = sorted(step.attrs["axes"], reverse=True)
        for axis in axes if torch_name == "prod" or len(axes) == 1 else [_tuple(step.attrs["axes"])]:
            x = f"{x}.{torch_name}({axis}{dtype(step)})"
        return x

    return lambda step, x: f"numpy.{numpy_name}({x}, axis={_tuple(step.attrs['axes'])}{dtype(step)})", over_torch


def _rounded(numpy_name, torch_name=None):
    """Older versions of NumPy make floats of integers."""
    by_numpy, by_torch = _plain(numpy_name, torch_name)
    return lambda step, x: by_numpy(step, x) if step.type[0] == "f" else f"{x}.copy()", by_torch


def _iota(step):
    axis = step.attrs["axis"]
    line = f"{step.library}.arange({step.shape[axis]}, dtype={step.dtype})"
    if len(step.shape) == 1:
        return line
    within = [-1] + [1] * (len(step.shape) - axis - 1)
    return f"{step.library}.broadcast_to({line}.reshape({_tuple(within)}), {_tuple(step.shape)})"


def _cast_numpy(step, x):
    if step.operand_type()[0] == "c" and step.type[0] not in "c" and step.type != "bool":
        x += ".real"
    return f"{x}.astype({step.dtype})"


def _cast_torch(step, x):
    if step.operand_type()[0] == "c" and step.type[0] != "c" and step.type != "bool":
        x += ".real"
    return f"{x}.to({step.dtype})"


def _trunc_div(step, a, b):
    # fmod has the sign of the dividend: what is left divides exactly.
    return f"numpy.floor_divide({a} - numpy.fmod({a}, {b}), {b})"


def _popcount(step, x):
    bits = 8 * (_BYTES.get(step.type) or int(step.type[1:]) // 8)
    return f"sum((({x} >> bit) & 1 for bit in range({bits})), {x} * 0)"


def _broadcast(step, x):
    within = [1] * len(step.shape)
    for axis, size in zip(step.attrs["dims"], step.operand_shape()):
        within[axis] = size
    # Leading axes of one element are the library's to add.
    while within and within[0] == 1 and 0 not in step.attrs["dims"] and len(within) > len(step.operand_shape()):
        within.pop(0)
    if tuple(within) != tuple(step.operand_shape()):
        x = f"{x}.reshape({_tuple(within)})"
    return f"{step.library}.broadcast_to({x}, {_tuple(step.shape)})"


def _flip(step, x, axes):
    return f"{step.library}.flip({x}, {_tuple(axes)})" if axes else x


def _slice(step, x):
    index, flipped = step.part(step.attrs["starts"], step.shape, step.operand_shape())
    return _flip(step, f"{x}[{index}]", flipped)


def _copy(step, x):
    return f"{x}.copy()" if step.library == "numpy" else f"{x}.clone(memory_format=torch.contiguous_format)"


def _windows_numpy(step, x):
    axis, size, apart = step.attrs["axis"], step.attrs["size"], step.attrs["step"]
    if size == 0 or step.operand_shape()[axis] == 0:
        return f"numpy.zeros({_tuple(step.shape)}, {step.dtype})"
    within = ":, " * axis + (f":{_plus(_times(step.shape[axis], apart), 1 - apart)}" + (f":{apart}" if apart != 1 else ""))
    return f"numpy.lib.stride_tricks.sliding_window_view({x}, {size}, {axis})[{within}]"


def _windows_torch(step, x):
    axis = step.attrs["axis"]
    return f"{x}.unfold({axis}, {step.attrs['size']}, {step.attrs['step']}).narrow({axis}, 0, {step.shape[axis]})"


def _slice_update(step, base, update):
    index, flipped = step.part(step.attrs["starts"], step.operand_shape(1), step.shape)
    result = step.variable("updated")
    step.line(f"{result} = {_copy(step, base)}")
    step.line(f"{result}[{index}] = {_flip(step, update, flipped)}")
    return result


def _pad(step, x, value):
    low, high, inner = step.attrs["low"], step.attrs["high"], step.operand_shape()
    result = step.variable("padded")
    step.line(f"{result} = {_copy(step, f'{step.library}.broadcast_to({value}, {_tuple(step.shape)})')}")
    inside, kept = [], []
    for size, before, after in zip(inner, low, high):
        if all(isinstance(number, int) for number in (size, before, after)):
            # A negative pad crops.
            inside.append(f"{max(before, 0)}:{max(before, 0) + size + min(before, 0) + min(after, 0)}")
            kept.append(f"{max(-before, 0)}:{size + min(after, 0)}")
        else:
            before, after, size = _size(before), _size(after), _size(size)
            inside.append(f"max({before}, 0):max({before}, 0) + {size} + min({before}, 0) + min({after}, 0)")
            kept.append(f"max(-{before}, 0):{size} + min({after}, 0)")
    step.line(f"{result}[{', '.join(inside) or '...'}] = {x}[{', '.join(kept) or '...'}]")
    return result


def _picked(step, indices):
    return ", ".join([":"] * step.attrs["axis"] + list(indices))


def _gather(step, x, *indices):
    return f"{x}[{_picked(step, indices)}]"


def _take_along_torch(step, x, indices):
    axis = step.attrs["axis"]
    # torch's own function takes no negative indices.
    size = _size(step.operand_shape()[axis])
    return f"torch.gather({x}, {axis}, torch.where({indices} < 0, {indices} + {size}, {indices}))"


def _scatter(step, base, updates, *indices):
    result = step.variable("scattered")
    step.line(f"{result} = {base}.{'copy' if step.library == 'numpy' else 'clone'}()")
    step.line(f"{result}[{_picked(step, indices)}] = {updates}")
    return result


def _scatter_add_numpy(step, base, updates, *indices):
    result = step.variable("added")
    step.line(f"{result} = {base}.copy()")
    axes = ["slice(None)"] * step.attrs["axis"] + list(indices)
    step.line(f"numpy.add.at({result}, {_tuple(axes)}, {updates})")
    return result


def _scatter_add_torch(step, base, updates, *indices):
    axis, count, rank = step.attrs["axis"], len(indices), len(step.shape)
    # torch takes the axes indexed first, and adds up what is repeated only in a tensor of its own.
    order = [*range(axis, axis + count), *range(axis), *range(axis + count, rank)]
    rows, of_updates = len(step.operand_shape(2)), len(step.operand_shape(1))
    moved = [*range(axis, axis + rows), *range(axis), *range(axis + rows, of_updates)]
    back = [order.index(i) for i in range(rank)]
    moved = f"{updates}.permute({_tuple(moved)})"
    return (f"{base}.permute({_tuple(order)}).contiguous().index_put({_tuple(indices)}, {moved}, accumulate=True)"
            f".permute({_tuple(back)})")


def _counted(result, size):
    def counted(step, x):
        found, count = step.variable("counted"), step.attrs["count"]
        step.line(f"{found} = {result(x)}")
        step.line(f"{count} = {size(found)}")
        if step.attrs["excluded"]:
            step.line(f"if {count} in {_tuple(step.attrs['excluded'])}:")
            step.line(f"    raise ValueError(f'the graph is wrong where {count} is {{{count}}}')")
        return found

    return counted


def _torch_call(step, *xs):
    arrays = []
    if step.attrs["handle"] < 0:  # as the user has called it: on arrays as they are
        return _library_call(step, xs)
    for i, (x, layout) in enumerate(zip(xs, step.attrs["operand_strides"])):
        name = step.variable(f"operand{i}_of_")
        if not step.writer.layouts:
            step.line(f"{name} = {x}.contiguous()")
            arrays.append(name)
            continue
        step.line(f"{name} = {x}")
        strides = f"{name}.contiguous().stride()" if layout is None else _tuple(layout)
        step.line(f"if {name}.stride() != {strides}:")
        step.line(f"    {name} = torch.empty_strided({name}.shape, {strides}, dtype={name}.dtype).copy_({name})")
        arrays.append(name)
    callee = step.attrs["callee"]
    if calls.is_text(callee):
        return _library_call(step, arrays)
    name = step.variable(re.sub(r"\W+", "_", callee).strip("_") + "_")
    step.writer.externs[name] = step.node.call
    sizes = (f"s{i}" if f"s{i}" in step.writer.known else "0" for i in range(step.writer.symbols))
    return f"{name}([{', '.join(arrays)}], [{', '.join(sizes)}])"


def _library_call(step, arrays):
    """A tuple of the results, in order: those of the function, then what it has written into copies."""
    copy = "clone" if step.library == "torch" else "copy"
    arrays = list(arrays)
    for i in calls.expression(step.attrs["callee"], arrays)[2]:
        copied = step.variable(f"written{i}_in_")
        step.line(f"{copied} = {arrays[i]}.{copy}()")
        arrays[i] = copied
    call, results, written = calls.expression(step.attrs["callee"], arrays)
    contents = [arrays[i] for i in written]
    if results is None:
        one = call if step.library == "torch" else f"numpy.asarray({call})"
        return f"[{', '.join([one, *contents])}]"
    found = step.variable("results")
    step.line(f"{found} = {call}" if results else call)
    given = [f"{found}[{results.index(f'r{i}')}]" for i in range(len(step.node.results) - len(written))]
    if step.library != "torch":  # some functions give numbers there
        given = [f"numpy.asarray({one})" for one in given]
    return "[" + ", ".join([*given, *contents]) + "]"


def _numpy_call(step, *xs):
    if not calls.is_text(step.attrs["callee"]) or not step.attrs["callee"].partition("(")[0].rpartition(" ")[2].startswith("numpy."):
        raise TypeError(f"the call of `{step.attrs['callee']}` has no text, and only the program it was traced for can make it; "
                        "try level=\"primitive\" where it was captured")
    return _library_call(step, xs)


def _no_numpy(step, *xs):
    raise TypeError(f"{step.node.op} has no NumPy form")


operations = {
    "constant": (lambda step: f"numpy.array({_literal(step.attrs['value'])}).astype({step.dtype})",
                 lambda step: f"torch.tensor({_literal(step.attrs['value'])}, dtype={step.dtype})"),
    "dim": (lambda step: f"numpy.array({step.attrs['value']}, {step.dtype})",
            lambda step: f"torch.tensor({step.attrs['value']}, dtype={step.dtype})"),
    "iota": _same(_iota),
    # one operand
    "neg": _same(lambda step, x: f"-{x}"),
    "abs": _plain("abs"),
    "sign": _plain("sign", "sgn"),
    "sqrt": _plain("sqrt"),
    "rsqrt": (lambda step, x: f"1 / numpy.sqrt({x})", lambda step, x: f"{x}.rsqrt()"),
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
    "erf": _typed(lambda step, x: f"numpy.vectorize(math.erf, otypes=[numpy.float64])({x})",
                  lambda step, x: f"{x}.erf()"),
    "floor": _rounded("floor"),
    "ceil": _rounded("ceil"),
    "round": _rounded("rint", "round"),
    "trunc": _rounded("trunc"),
    "is_nan": _plain("isnan"),
    "is_inf": _plain("isinf"),
    "is_finite": _plain("isfinite"),
    "sign_bit": _plain("signbit"),
    "logical_not": _plain("logical_not"),
    "bit_not": _same(lambda step, x: f"~{x}"),
    "popcount": _typed(*_same(_popcount)),
    "cast": (_cast_numpy, _cast_torch),
    # two operands
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _infix("/"),
    "floor_div": _infix("//"),
    "mod": _infix("%"),
    "trunc_div": (_trunc_div, lambda step, a, b: f"torch.div({a}, {b}, rounding_mode='trunc')"),
    "fmod": _plain("fmod"),
    "pow": _plain("power", "pow"),
    "atan2": _plain("arctan2"),
    "hypot": _plain("hypot"),
    "copysign": _plain("copysign"),
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "fmax": _plain("fmax"),
    "fmin": _plain("fmin"),
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "bit_and": _infix("&"),
    "bit_or": _infix("|"),
    "bit_xor": _infix("^"),
    "shift_left": _infix("<<"),
    "shift_right": _infix(">>"),
    "where": _plain("where"),
    "fma": (_no_numpy, lambda step, a, b, c: f"torch.addcmul({c}, {a}, {b})"),
    # index maps
    "broadcast": _same(_broadcast),
    "reshape": _same(lambda step, x: f"{x}.reshape({_tuple(step.shape)})"),
    "transpose": (lambda step, x: f"{x}.transpose({_tuple(step.attrs['permutation'])})",
                  lambda step, x: f"{x}.permute({_tuple(step.attrs['permutation'])})"),
    "slice": _same(_slice),
    "windows": (_windows_numpy, _windows_torch),
    "pad": _same(_pad),
    "concat": (lambda step, *xs: f"numpy.concatenate({_tuple(xs)}, {step.attrs['axis']})",
               lambda step, *xs: f"torch.cat({_tuple(xs)}, {step.attrs['axis']})"),
    "slice_update": _same(_slice_update),
    # reductions
    "reduce_sum": _over_axes("sum", "sum", of_type=True),
    "reduce_prod": _over_axes("prod", "prod", of_type=True),
    "reduce_max": _over_axes("max", "amax"),
    "reduce_min": _over_axes("min", "amin"),
    "reduce_and": _over_axes("all", "all"),
    "reduce_or": _over_axes("any", "any"),
    "argmax": _same(lambda step, x: f"{step.library}.argmax({x}, {step.attrs['axis']})"),
    "argmin": _same(lambda step, x: f"{step.library}.argmin({x}, {step.attrs['axis']})"),
    # scans
    "cumsum": _same(lambda step, x: f"{x}.cumsum({step.attrs['axis']}, dtype={step.dtype})"),
    "cumprod": _same(lambda step, x: f"{x}.cumprod({step.attrs['axis']}, dtype={step.dtype})"),
    # indices as data
    "gather": _same(_gather),
    "take_along": (lambda step, x, indices: f"numpy.take_along_axis({x}, {indices}, {step.attrs['axis']})",
                   _take_along_torch),
    "scatter_add": (_scatter_add_numpy, _scatter_add_torch),
    "scatter": _same(_scatter),
    "nonzero": (_counted(lambda x: f"numpy.flatnonzero({x})", lambda found: f"len({found})"),
                _counted(lambda x: f"{x}.reshape(-1).nonzero().reshape(-1)", lambda found: f"len({found})")),
    "as_size": _same(_counted(lambda x: x, lambda found: f"int({found})")),
    # products and the library's own functions
    "matmul": _infix("@"),
    "extern_call": (_numpy_call, _torch_call),
}
