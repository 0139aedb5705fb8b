"""A captured graph as a function of the array library alone: its source, which people can read and keep, and the function.

Start at `source`. `operations` has one entry per row of ops.def: what NumPy writes, what torch writes, each given a `Statement`
and the names of the operands as syntax trees (_graph/code.py); the result is one too. A test checks that no row is missing. The back end "eager" runs
these functions: it tells whether a difference comes from the capture or from the kernels.
"""
import ast
import copy
import linecache
import math
import re
import sys
import weakref

import numpy

from framejit._errors import GraphError
from framejit._graph import calls, code
from framejit._graph.code import any_of, expression as e, size as size_of
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
    made, text = code.function(writer.definition, space, name), writer.text
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
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
    def needs(node):
        if node.op in ("cond", "loop"):
            return any(map(_needs_torch, node.bodies))
        unknown = node.op == "extern_call" or operations[node.op][0] is _no_numpy
        return unknown or any(dtype == "bf16" for dtype, _ in node.types)

    return any(map(needs, graph.nodes))


class _Writer:
    prefix = "v"  # of names of values

    def __init__(self, graph, library, checked, layouts=True):
        self.layouts = layouts
        self.library, self.body, self.comments, self.externs = library, [], {}, {}
        self.symbols = len(graph.symbols)
        self.names, self.dtypes, self.shapes, self.makers = {}, {}, {}, {}
        self.taken = {library, "numpy", "math", "sum", "range", "len", "list", "str", "int", "max", "min", "complex", "slice", "ValueError",
                      "GraphError", "at_", "cond_", "while_"}
        self.name = self.identifier(graph.name)
        self.parameters = []
        for value, name, dtype, shape in graph.inputs:
            self.names[value] = self.identifier(name.rpartition("L.")[2])
            self.dtypes[value], self.shapes[value] = dtype, shape
            self.parameters.append(self.names[value])
        known = self.known = {f"s{number}" for number in graph.integers}
        self.parameters += [f"s{number}" for number in graph.integers]
        for value, _, _, shape in graph.inputs:
            for axis, size in enumerate(shape):
                if code.is_symbol(size) and size not in known:
                    self.line("size = x.shape[axis]", size=code.name(size), x=self.value(value), axis=axis)
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
        results = [self.value(value) for value in [*graph.outputs, *(value for _, value in graph.writes)]]
        self.line("return results", results=results)

    @property
    def definition(self):
        return code.definition(self.name, code.plain_parameters(self.parameters), self.body)

    @property
    def text(self):
        return code.text(self.definition, self.comments)

    def line(self, template, /, **holes):
        self.body.append(code.statement(template, **holes))

    def value(self, number):
        return code.name(self.names[number])

    def check(self, graph):
        bounds = {name: (low, high) for name, low, high, *_ in graph.symbols}
        for value, name, dtype, shape in graph.inputs:
            x, wanted = self.value(value), f"{dtype}[{', '.join(map(str, shape))}]"
            message = f"the graph of {graph.name} takes {wanted} as %{self.names[value]}, not "
            named = _Named(self.library).named(dtype)
            sizes = [e("x.shape[axis] != size", x=x, axis=axis, size=size_of(size)) for axis, size in enumerate(shape)]
            ranged = [(size_of(size), *bounds[size]) for size in shape if size in bounds]
            ranges = [e("size < low", size=size, low=low) for size, low, _ in ranged if low > 0]
            ranges += [e("size > high", size=size, high=high) for size, _, high in ranged if high < 2**62]
            test = any_of([e("x.dtype != named", x=x, named=named), e("len(x.shape) != rank", x=x, rank=len(shape)), *sizes, *ranges])
            self.line("if test:\n    raise GraphError(message + str(x.dtype) + str(list(x.shape)))", test=test, message=message, x=x)

    def identifier(self, name):
        plain = re.sub(r"\W+", "_", name).strip("_") or "x"
        plain = f"x{plain}" if plain[0].isdigit() else plain
        if not code.is_name(plain):  # a keyword, or a letter that is none of identifiers
            plain = re.sub(r"\W", "_", plain, flags=re.ASCII) + "_"
        if re.fullmatch(r"[sv]\d+([te_]\d+)*", plain):  # sizes and values
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
            if code.symbols(dividend) | code.symbols(divisor) <= self.known:
                if code.symbols(divisor):
                    self.line("if divisor == 0:\n    raise GraphError(message)", divisor=code.size(divisor),
                              message=f"the size s{symbol} of the graph is divided by {divisor}, which is 0")
                self.line("symbol = computed", symbol=code.name(f"s{symbol}"), computed=code.quotient(dividend, divisor, remainder))
                self.known.add(f"s{symbol}")
                self.waiting.remove(row)

    def write(self, node, number):
        for place, (result, (dtype, shape)) in enumerate(zip(node.results, node.types)):
            self.names[result] = f"{self.prefix}{number}" if len(node.results) == 1 else f"{self.prefix}{number}_{place}"
            self.dtypes[result], self.shapes[result], self.makers[result] = dtype, shape, node
        if node.op in ("cond", "loop"):
            return (self.branch if node.op == "cond" else self.loop)(node, number)
        statement = Statement(self, node, number)
        write = operations[node.op][0 if self.library == "numpy" else 1]
        made = write(statement, *(self.value(value) for value in node.operands))
        if self.library == "numpy" and not statement.shape and node.op not in ("constant", "dim", "extern_call"):
            made = e("numpy.asarray(made)", made=made)  # its operations give scalars
        file, line, _ = node.location
        if line:
            self.comments[len(self.body)] = code.place(file, line)
        self.body.append(code.assigned([self.names[value] for value in node.results], made, one=node.op != "extern_call" and len(node.results) == 1))


    def branch(self, node, number):
        test = code.statement("if test:\n    pass\nelse:\n    pass", test=self.value(node.operands[0]))
        results = [self.names[value] for value in node.results]
        operands = [self.names[value] for value in node.operands[1:]]
        test.body, test.orelse = (self.way(body, node, f"{self.prefix}{number}{word}", operands, results)
                                  for body, word in zip(node.bodies, "te"))
        self.body.append(test)

    def loop(self, node, number):
        """States have the results' names from the start: they are arrays of their own too."""
        states, goes = [self.names[value] for value in node.results], f"{self.prefix}{number}_goes"
        operands = [self.names[value] for value in node.operands[1:]]
        self.body.append(code.assigned([goes], self.value(node.operands[0]), one=True))
        for state, value in zip(states, node.operands[1:]):
            self.body.append(code.assigned([state], e(self.copied(), x=self.value(value)), one=True))
        test = code.statement("while test:\n    pass", test=code.name(goes))
        test.body = self.way(node.bodies[0], node, f"{self.prefix}{number}p", [*states, *operands[len(states):]], [goes, *states])
        self.body.append(test)

    def copied(self):
        return "x.copy()" if self.library == "numpy" else "x.clone(memory_format=torch.contiguous_format)"

    def way(self, graph, node, prefix, operands, results):
        """The statements of one body, given the names of its operands and results. These are arrays of their own."""
        inner = copy.copy(self)
        inner.prefix, inner.body, inner.comments = prefix, [], {}
        inner.names, inner.dtypes, inner.shapes, inner.makers = {}, {}, {}, {}
        for (value, _, dtype, shape), operand, name in zip(graph.inputs, node.operands[1:], operands):
            inner.names[value], inner.dtypes[value], inner.shapes[value] = name, dtype, shape
            if operand in self.makers and name == self.names[operand]:
                inner.makers[value] = self.makers[operand]
        for number, row in enumerate(graph.nodes):
            inner.write(row, number)
        made = [e(self.copied(), x=inner.value(value)) for value in graph.outputs]
        one = len(made) == 1
        inner.body.append(code.assigned(results, made[0] if one else made, one=one))
        return inner.body


class _Named:
    def __init__(self, library):
        self.library = library

    def named(self, dtype):
        return e(f"{self.library}.{library_name(dtype)}")


class Statement(_Named):
    """One node."""

    def __init__(self, writer, node, number):
        self.writer, self.node, self.number = writer, node, number
        super().__init__(writer.library)
        self.attrs = node.attrs
        (self.type, self.shape), *_ = [*node.types, (None, None)]
        self.dtype = self.named(self.type) if self.type else None

    def line(self, template, /, **holes):
        """A statement before the one that gives the result its name."""
        self.writer.line(template, **holes)

    def set_part(self, array, index, value):
        self.line("array[index] = value", array=array, index=index, value=value)

    def variable(self, name):
        """A name that nothing else has."""
        return code.name(self.writer.identifier(f"{name}{self.number}"))

    def operand_type(self, i=0):
        return self.writer.dtypes[self.node.operands[i]]

    def operand_shape(self, i=0):
        return self.writer.shapes[self.node.operands[i]]

    def part(self, starts, sizes, whole):
        """(an index, axes to flip): NumPy's and torch's positive slices for steps of either sign."""
        index, flipped = [], []
        for axis, (start, size, step, all_of_it) in enumerate(zip(starts, sizes, self.attrs["steps"], whole)):
            if step == 1 and start == 0 and size == all_of_it:
                index.append(ast.Slice())
            elif step > 0:
                index.append(_from_to(start, _plus(start, _times(size, step)), step))
            else:
                flipped.append(axis)
                # From the last element on: none of them is at `start - step` where there are none.
                last = _plus(_plus(start, _times(size, step)), -step)
                index.append(_from_to(last, _plus(start, 1), -step))
        return _index(index), flipped


def _from_to(start, stop, step=1):
    return ast.Slice(*(None if x is None else size_of(x) for x in (start, stop)), size_of(step) if step != 1 else None)


def _index(items):
    """What stands between the brackets of `x[...]`."""
    return (items[0] if len(items) == 1 else ast.Tuple(items, ast.Load())) if items else ast.Constant(...)


def _plus(a, b):
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return size_of(a) if b == 0 else size_of(b) if a == 0 else e("a + b", a=size_of(a), b=size_of(b))


def _times(a, b):
    return a * b if isinstance(a, int) and isinstance(b, int) else size_of(a) if b == 1 else e("a * b", a=size_of(a), b=size_of(b))


def _sizes(items):
    """The tuple of a shape."""
    return tuple(map(size_of, items))


def _literal(value):
    if isinstance(value, complex):
        return e("complex(a, b)", a=_literal(value.real), b=_literal(value.imag))
    if isinstance(value, float) and not math.isfinite(value):
        return e("math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf")
    return code.tree(value)


def _plain(numpy_name, torch_name=None):
    """A function of both libraries that takes the operands and nothing else."""
    def call(function):
        return lambda step, *xs: e(f"{step.library}.{function}(*xs)", xs=xs)

    return call(numpy_name), call(torch_name or numpy_name)


def _same(write):
    """Written alike for both libraries."""
    return write, write


def _form(template):
    """Written alike, of the operands a and b."""
    return _same(lambda step, *xs: e(template, **dict(zip("ab", xs))))


def _typed(*pair):
    """The library's result may be of another type than the graph's."""
    numpy_form, torch_form = pair
    return (lambda step, *xs: e("x.astype(dtype)", x=numpy_form(step, *xs), dtype=step.dtype),
            lambda step, *xs: e("x.to(dtype)", x=torch_form(step, *xs), dtype=step.dtype))


def _extreme(name):
    """The graph's maximum and minimum give the first of two equal operands; NumPy's give either, by dtype and machine."""
    def by_numpy(step, a, b):
        function, kind = getattr(numpy, name), getattr(numpy, library_name(step.type).replace("bool", "bool_"))
        takes_second = step.type[0] == "f" and numpy.signbit(function(kind(0), kind(-0.0))) != numpy.signbit(kind(0))
        return e(f"numpy.{name}(*xs)", xs=(b, a) if takes_second else (a, b))

    return by_numpy, _plain(name)[1]


def _over_axes(numpy_name, torch_name, of_type=False):
    """of_type: sums and products, in the type of the operand. torch's products are over one axis."""
    typed = ", dtype=dtype" if of_type else ""

    def over_torch(step, x):
        axes = sorted(step.attrs["axes"], reverse=True)
        for axis in axes if torch_name == "prod" or len(axes) == 1 else [tuple(step.attrs["axes"])]:
            x = e(f"x.{torch_name}(axis{typed})", x=x, axis=axis, dtype=step.dtype)
        return x

    return lambda step, x: e(f"numpy.{numpy_name}(x, axis=axes{typed})", x=x, axes=tuple(step.attrs["axes"]), dtype=step.dtype), over_torch


def _rounded(numpy_name, torch_name=None):
    """Older versions of NumPy make floats of integers."""
    by_numpy, by_torch = _plain(numpy_name, torch_name)
    return lambda step, x: by_numpy(step, x) if step.type[0] == "f" else e("x.copy()", x=x), by_torch


def _iota(step):
    axis = step.attrs["axis"]
    line = e(f"{step.library}.arange(size, dtype=dtype)", size=size_of(step.shape[axis]), dtype=step.dtype)
    if len(step.shape) == 1:
        return line
    within = [-1] + [1] * (len(step.shape) - axis - 1)
    return e(f"{step.library}.broadcast_to(line.reshape(within), shape)", line=line, within=tuple(within), shape=_sizes(step.shape))


def _cast_numpy(step, x):
    if step.operand_type()[0] == "c" and step.type[0] not in "c" and step.type != "bool":
        x = e("x.real", x=x)
    return e("x.astype(dtype)", x=x, dtype=step.dtype)


def _cast_torch(step, x):
    if step.operand_type()[0] == "c" and step.type[0] != "c" and step.type != "bool":
        x = e("x.real", x=x)
    return e("x.to(dtype)", x=x, dtype=step.dtype)


def _trunc_div(step, a, b):
    # fmod has the sign of the dividend: what is left divides exactly.
    return e("numpy.floor_divide(a - numpy.fmod(a, b), b)", a=a, b=b)


def _floor_div(step, a, b):
    # 1 by a truth is how the tracer checks a value (TraceRun::checked): NumPy would go on with 0, torch tells of a division.
    one, truth = (step.writer.makers.get(value) for value in step.node.operands)
    if one is not None and one.op == "constant" and truth is not None and truth.op == "cast" and step.writer.dtypes[truth.operands[0]] == "bool":
        step.line("if b == 0:\n    raise GraphError(message)", b=b, message="a value is none of those that the graph is right for")
    return e("a // b", a=a, b=b)


def _popcount(step, x):
    bits = 8 * (_BYTES.get(step.type) or int(step.type[1:]) // 8)
    return e("sum(((x >> bit) & 1 for bit in range(bits)), x * 0)", x=x, bits=bits)


def _broadcast(step, x):
    within = [1] * len(step.shape)
    for axis, size in zip(step.attrs["dims"], step.operand_shape()):
        within[axis] = size
    # Leading axes of one element are the library's to add.
    while within and within[0] == 1 and 0 not in step.attrs["dims"] and len(within) > len(step.operand_shape()):
        within.pop(0)
    if tuple(within) != tuple(step.operand_shape()):
        x = e("x.reshape(within)", x=x, within=_sizes(within))
    return e(f"{step.library}.broadcast_to(x, shape)", x=x, shape=_sizes(step.shape))


def _flip(step, x, axes):
    return e(f"{step.library}.flip(x, axes)", x=x, axes=tuple(axes)) if axes else x


def _slice(step, x):
    index, flipped = step.part(step.attrs["starts"], step.shape, step.operand_shape())
    return _flip(step, e("x[index]", x=x, index=index), flipped)


def _copy(step, x):
    return e("x.copy()" if step.library == "numpy" else "x.clone(memory_format=torch.contiguous_format)", x=x)


def _windows_numpy(step, x):
    axis, size, apart = step.attrs["axis"], step.attrs["size"], step.attrs["step"]
    if size == 0 or step.operand_shape()[axis] == 0:
        return e("numpy.zeros(shape, dtype)", shape=_sizes(step.shape), dtype=step.dtype)
    within = [ast.Slice()] * axis + [_from_to(None, _plus(_times(step.shape[axis], apart), 1 - apart), apart)]
    return e("numpy.lib.stride_tricks.sliding_window_view(x, size, axis)[within]", x=x, size=size_of(size), axis=axis, within=_index(within))


def _windows_torch(step, x):
    axis = step.attrs["axis"]
    return e("x.unfold(axis, size, step).narrow(axis, 0, count)", x=x, axis=axis, size=size_of(step.attrs["size"]),
             step=size_of(step.attrs["step"]), count=size_of(step.shape[axis]))


def _slice_update(step, base, update):
    index, flipped = step.part(step.attrs["starts"], step.operand_shape(1), step.shape)
    result = step.variable("updated")
    step.line("result = copy", result=result, copy=_copy(step, base))
    step.set_part(result, index, _flip(step, update, flipped))
    return result


def _pad(step, x, value):
    low, high, inner = step.attrs["low"], step.attrs["high"], step.operand_shape()
    result = step.variable("padded")
    step.line("result = copy", result=result,
              copy=_copy(step, e(f"{step.library}.broadcast_to(value, shape)", value=value, shape=_sizes(step.shape))))
    inside, kept = [], []
    for size, before, after in zip(inner, low, high):
        if all(isinstance(number, int) for number in (size, before, after)):
            # A negative pad crops.
            inside.append(_from_to(max(before, 0), max(before, 0) + size + min(before, 0) + min(after, 0)))
            kept.append(_from_to(max(-before, 0), size + min(after, 0)))
        else:
            sizes = {"before": size_of(before), "after": size_of(after), "size": size_of(size)}
            inside.append(ast.Slice(e("max(before, 0)", **sizes), e("max(before, 0) + size + min(before, 0) + min(after, 0)", **sizes)))
            kept.append(ast.Slice(e("max(-before, 0)", **sizes), e("size + min(after, 0)", **sizes)))
    step.set_part(result, _index(inside), e("x[kept]", x=x, kept=_index(kept)))
    return result


def _picked(step, indices):
    return _index([ast.Slice()] * step.attrs["axis"] + list(indices))


def _gather(step, x, *indices):
    return e("x[picked]", x=x, picked=_picked(step, indices))


def _take_along_torch(step, x, indices):
    axis = step.attrs["axis"]
    # torch's own function takes no negative indices.
    return e("torch.gather(x, axis, torch.where(indices < 0, indices + size, indices))", x=x, axis=axis, indices=indices,
             size=size_of(step.operand_shape()[axis]))


def _scatter(step, base, updates, *indices):
    result = step.variable("scattered")
    step.line(f"result = base.{'copy' if step.library == 'numpy' else 'clone'}()", result=result, base=base)
    step.set_part(result, _picked(step, indices), updates)
    return result


def _scatter_add_numpy(step, base, updates, *indices):
    result = step.variable("added")
    step.line("result = base.copy()", result=result, base=base)
    axes = [e("slice(None)")] * step.attrs["axis"] + list(indices)
    step.line("numpy.add.at(result, axes, updates)", result=result, axes=tuple(axes), updates=updates)
    return result


def _scatter_add_torch(step, base, updates, *indices):
    axis, count, rank = step.attrs["axis"], len(indices), len(step.shape)
    # torch takes the axes indexed first, and adds up what is repeated only in a tensor of its own.
    order = [*range(axis, axis + count), *range(axis), *range(axis + count, rank)]
    rows, of_updates = len(step.operand_shape(2)), len(step.operand_shape(1))
    moved = [*range(axis, axis + rows), *range(axis), *range(axis + rows, of_updates)]
    back = [order.index(i) for i in range(rank)]
    return e("base.permute(order).contiguous().index_put(indices, updates.permute(moved), accumulate=True).permute(back)",
             base=base, order=tuple(order), indices=tuple(indices), updates=updates, moved=tuple(moved), back=tuple(back))


def _counted(result, size):
    """result, size: what is counted, of x, and the count, of found."""
    def counted(step, x):
        found, symbol = step.variable("counted"), step.attrs["count"]
        count = size_of(symbol)
        step.line(f"found = {result}", found=found, x=x)
        step.line(f"count = {size}", found=found, count=count)
        if step.attrs["excluded"]:
            step.line("if count in excluded:\n    raise ValueError(message + str(count))", count=count,
                      excluded=tuple(step.attrs["excluded"]), message=f"the graph is wrong where {symbol} is ")
        return found

    return counted


def _torch_call(step, *xs):
    arrays = []
    if step.attrs["handle"] < 0:  # as the user has called it: on arrays as they are
        return _library_call(step, xs)
    for i, (x, layout) in enumerate(zip(xs, step.attrs["operand_strides"])):
        name = step.variable(f"operand{i}_of_")
        if not step.writer.layouts:
            step.line("name = x.contiguous()", name=name, x=x)
            arrays.append(name)
            continue
        step.line("name = x", name=name, x=x)
        strides = e("name.contiguous().stride()", name=name) if layout is None else _sizes(layout)
        step.line("if name.stride() != strides:\n    name = torch.empty_strided(name.shape, strides, dtype=name.dtype).copy_(name)",
                  name=name, strides=strides)
        arrays.append(name)
    callee = step.attrs["callee"]
    if calls.is_text(callee):
        return _library_call(step, arrays)
    if not step.node.can_be_called:
        raise _without_text(step)
    name = step.variable(re.sub(r"\W+", "_", callee).strip("_") + "_")
    step.writer.externs[name.id] = step.node.call
    sizes = [code.name(f"s{i}") if f"s{i}" in step.writer.known else 0 for i in range(step.writer.symbols)]
    return e("name(arrays, sizes)", name=name, arrays=arrays, sizes=sizes)


def _library_call(step, arrays):
    """A tuple of the results, in order: those of the function, then what it has written into copies."""
    copy = "clone" if step.library == "torch" else "copy"
    arrays = list(arrays)
    for i in calls.expression(step.attrs["callee"], arrays)[2]:
        copied = step.variable(f"written{i}_in_")
        step.line(f"copied = x.{copy}()", copied=copied, x=arrays[i])
        arrays[i] = copied
    call, results, written = calls.expression(step.attrs["callee"], arrays)
    contents = [arrays[i] for i in written]
    if results is None:
        return [call if step.library == "torch" else e("numpy.asarray(call)", call=call), *contents]
    found = step.variable("results")
    if results:
        step.line("found = call", found=found, call=call)
    else:
        step.line("call", call=call)
    given = [e("found[number]", found=found, number=results.index(f"r{i}")) for i in range(len(step.node.results) - len(written))]
    if step.library != "torch":  # some functions give numbers there
        given = [e("numpy.asarray(one)", one=one) for one in given]
    return [*given, *contents]


def _numpy_call(step, *xs):
    if not calls.is_text(step.attrs["callee"]) or not step.attrs["callee"].partition("(")[0].rpartition(" ")[2].startswith("numpy."):
        raise _without_text(step)
    return _library_call(step, xs)


def _without_text(step):
    return TypeError(f"the call of `{step.attrs['callee']}` has no text, and only the program it was traced for can make it; "
                     "try level=\"primitive\" where it was captured")


def _no_numpy(step, *xs):
    raise TypeError(f"{step.node.op} has no NumPy form")


operations = {
    "constant": (lambda step: e("numpy.array(value).astype(dtype)", value=_literal(step.attrs["value"]), dtype=step.dtype),
                 lambda step: e("torch.tensor(value, dtype=dtype)", value=_literal(step.attrs["value"]), dtype=step.dtype)),
    "dim": (lambda step: e("numpy.array(value, dtype)", value=size_of(step.attrs["value"]), dtype=step.dtype),
            lambda step: e("torch.tensor(value, dtype=dtype)", value=size_of(step.attrs["value"]), dtype=step.dtype)),
    "iota": _same(_iota),
    # one operand
    "neg": _form("-a"),
    "abs": _plain("abs"),
    "sign": _plain("sign", "sgn"),
    "sqrt": _plain("sqrt"),
    "rsqrt": (_form("1 / numpy.sqrt(a)")[0], _form("a.rsqrt()")[1]),
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
    "erf": _typed(_form("numpy.vectorize(math.erf, otypes=[numpy.float64])(a)")[0], _form("a.erf()")[1]),
    "floor": _rounded("floor"),
    "ceil": _rounded("ceil"),
    "round": _rounded("rint", "round"),
    "trunc": _rounded("trunc"),
    "is_nan": _plain("isnan"),
    "is_inf": _plain("isinf"),
    "is_finite": _plain("isfinite"),
    "sign_bit": _plain("signbit"),
    "logical_not": _plain("logical_not"),
    "bit_not": _form("~a"),
    "popcount": _typed(*_same(_popcount)),
    "cast": (_cast_numpy, _cast_torch),
    # two operands
    "add": _form("a + b"),
    "sub": _form("a - b"),
    "mul": _form("a * b"),
    "div": _form("a / b"),
    "floor_div": (_floor_div, _floor_div),
    "mod": _form("a % b"),
    "trunc_div": (_trunc_div, _form("torch.div(a, b, rounding_mode='trunc')")[1]),
    "fmod": _plain("fmod"),
    "pow": _plain("power", "pow"),
    "atan2": _plain("arctan2"),
    "hypot": _plain("hypot"),
    "copysign": _plain("copysign"),
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "fmax": _plain("fmax"),
    "fmin": _plain("fmin"),
    "eq": _form("a == b"),
    "ne": _form("a != b"),
    "lt": _form("a < b"),
    "le": _form("a <= b"),
    "gt": _form("a > b"),
    "ge": _form("a >= b"),
    "bit_and": _form("a & b"),
    "bit_or": _form("a | b"),
    "bit_xor": _form("a ^ b"),
    "shift_left": _form("a << b"),
    "shift_right": _form("a >> b"),
    "where": _plain("where"),
    "fma": (_no_numpy, lambda step, a, b, c: e("torch.addcmul(c, a, b)", a=a, b=b, c=c)),
    # index maps
    "broadcast": _same(_broadcast),
    "reshape": _same(lambda step, x: e("x.reshape(shape)", x=x, shape=_sizes(step.shape))),
    "transpose": (lambda step, x: e("x.transpose(order)", x=x, order=tuple(step.attrs["permutation"])),
                  lambda step, x: e("x.permute(order)", x=x, order=tuple(step.attrs["permutation"]))),
    "slice": _same(_slice),
    "windows": (_windows_numpy, _windows_torch),
    "pad": _same(_pad),
    "concat": (lambda step, *xs: e("numpy.concatenate(xs, axis)", xs=xs, axis=step.attrs["axis"]),
               lambda step, *xs: e("torch.cat(xs, axis)", xs=xs, axis=step.attrs["axis"])),
    "slice_update": _same(_slice_update),
    # reductions
    "reduce_sum": _over_axes("sum", "sum", of_type=True),
    "reduce_prod": _over_axes("prod", "prod", of_type=True),
    "reduce_max": _over_axes("max", "amax"),
    "reduce_min": _over_axes("min", "amin"),
    "reduce_and": _over_axes("all", "all"),
    "reduce_or": _over_axes("any", "any"),
    "argmax": _same(lambda step, x: e(f"{step.library}.argmax(x, axis)", x=x, axis=step.attrs["axis"])),
    "argmin": _same(lambda step, x: e(f"{step.library}.argmin(x, axis)", x=x, axis=step.attrs["axis"])),
    # scans
    "cumsum": _same(lambda step, x: e("x.cumsum(axis, dtype=dtype)", x=x, axis=step.attrs["axis"], dtype=step.dtype)),
    "cumprod": _same(lambda step, x: e("x.cumprod(axis, dtype=dtype)", x=x, axis=step.attrs["axis"], dtype=step.dtype)),
    # indices as data
    "gather": _same(_gather),
    "take_along": (lambda step, x, indices: e("numpy.take_along_axis(x, indices, axis)", x=x, indices=indices, axis=step.attrs["axis"]),
                   _take_along_torch),
    "scatter_add": (_scatter_add_numpy, _scatter_add_torch),
    "scatter": _same(_scatter),
    "nonzero": (_counted("numpy.flatnonzero(x)", "len(found)"), _counted("x.reshape(-1).nonzero().reshape(-1)", "len(found)")),
    "as_size": _same(_counted("x", "int(found)")),
    # products and the library's own functions
    "matmul": _form("a @ b"),
    "extern_call": (_numpy_call, _torch_call),
    "cond": (None, None),  # statements: _Writer.branch
    "loop": (None, None),  # and _Writer.loop
}
