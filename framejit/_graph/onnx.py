"""Captured graphs as ONNX models: `Graph.to_onnx`.

Start at `to_onnx`. A `Model` collects ONNX's nodes; a `Value` is one of its tensors, with operators that add nodes, so that the tables read
as formulas. onnx_operations.py has one entry per row of ops.def, onnx_calls.py one per function of the library that ONNX has.

A value may have sizes of 1, or fewer axes, where the graph's value has its full shape: ONNX broadcasts as NumPy does, and what needs
the full shape asks for it (`Model.full`). Arithmetic is done in a dtype that ONNX and its runtimes have kernels for (`ARITHMETIC`); the
result is cast back, which for integers keeps the bits and for half types rounds each operation once, as framejit's own kernels do.
"""
import ast
import contextlib
import copy
import itertools
import math
import os
import re
import shutil
import tempfile

from framejit._errors import Error, GraphError
from framejit._graph import calls, code, signature
from framejit._graph.dtypes import library_name
from framejit._graph.names import in_words

OLDEST = 18  # the first with BitwiseAnd and its like, and with the axes of all reductions as inputs
LARGEST_FILE = 2**31 - 2**20  # what protobuf can hold in one message, less what is around the arrays
ARITHMETIC = {"bool": "i32", "i8": "i32", "i16": "i32", "u8": "i32", "u16": "i32", "u32": "i64", "f16": "f32", "bf16": "f32"}
_ONNX_TYPES = {"bool": "BOOL", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "i8": "INT8", "i16": "INT16",
               "i32": "INT32", "i64": "INT64", "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT", "f64": "DOUBLE"}
_COMPARED = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"}


def _onnx():
    try:
        import onnx
        import onnx.checker
        import onnx.helper
    except ImportError as error:
        raise GraphError(f"models are written by the package onnx: pip install onnx ({error})") from None
    return onnx


class Value:
    """A tensor of the model. shape: as the graph has it, or one that broadcasts to that."""

    def __init__(self, model, name, dtype, shape):
        self.model, self.name, self.dtype, self.shape = model, name, dtype, tuple(shape)

    def _with(self, kind, other, swapped=False):
        other = other if isinstance(other, Value) else self.model.number(other, self.dtype)
        return self.model.op(kind, *((other, self) if swapped else (self, other)))

    def cast(self, dtype):
        return self if dtype == self.dtype else self.model.op("Cast", self, dtype=dtype, to=self.model.type_number(dtype))

    is_float = property(lambda self: self.dtype in ("f16", "bf16", "f32", "f64"))
    __add__ = lambda self, other: self._with("Add", other)
    __sub__ = lambda self, other: self._with("Sub", other)
    __rsub__ = lambda self, other: self._with("Sub", other, True)
    __mul__ = lambda self, other: self._with("Mul", other)
    __truediv__ = lambda self, other: self._with("Div", other)
    __rtruediv__ = lambda self, other: self._with("Div", other, True)
    __neg__ = lambda self: self.model.op("Neg", self)
    __abs__ = lambda self: self.model.op("Abs", self)
    __lt__ = lambda self, other: self._with("Less", other)
    __le__ = lambda self, other: self._with("LessOrEqual", other)
    __gt__ = lambda self, other: self._with("Greater", other)
    __ge__ = lambda self, other: self._with("GreaterOrEqual", other)
    __and__ = lambda self, other: self._with("And", other)
    __or__ = lambda self, other: self._with("Or", other)
    __xor__ = lambda self, other: self._with("Xor", other)
    __invert__ = lambda self: self.model.op("Not", self)

    def equals(self, other):
        return self._with("Equal", other)


class Sizes:
    """The symbols of a graph as values of the model: int64 tensors of one element."""

    def __init__(self, model, graph, inputs, integers):
        """inputs: the values of the graph's inputs; integers: of the numbers that it needs, by symbol."""
        self.model, self.known, self.made = model, dict(integers), {}
        self.places = {}
        for value in inputs:
            for axis, size in enumerate(value.shape):
                if isinstance(size, str) and size.isidentifier():
                    self.places.setdefault(size, (value, axis))
        self.definitions = {symbol.name: symbol.definition for symbol in graph.symbols if symbol.definition is not None}

    def symbol(self, name):
        if name not in self.known:
            if name in self.places:
                value, axis = self.places[name]
                self.known[name] = self.model.op("Shape", value, dtype="i64", shape=(1,), start=axis, end=axis + 1)
            elif name in self.definitions:
                dividend, divisor, remainder = self.definitions[name]
                a, b = self(dividend), self(divisor)
                rest = self.model.op("Mod", a, b)  # of integers: with the divisor's sign, as Python's
                self.known[name] = rest if remainder else (a - rest) / b
            else:
                raise GraphError(f"the size {name} is not known where it is used")
        return self.known[name]

    def __call__(self, size):
        """An int64 tensor of one element."""
        if isinstance(size, int):
            return self.model.array([size])
        if size not in self.made:
            self.made[size] = self._of(ast.parse(size, mode="eval").body)
        return self.made[size]

    def _of(self, tree):
        if isinstance(tree, ast.Constant):
            return self.model.array([tree.value])
        if isinstance(tree, ast.Name):
            return self.symbol(tree.id)
        if isinstance(tree, ast.UnaryOp):
            return -self._of(tree.operand)
        a, b = self._of(tree.left), self._of(tree.right)
        return a + b if isinstance(tree.op, ast.Add) else a - b if isinstance(tree.op, ast.Sub) else a * b


class Model:
    """The ONNX graph as it grows. `sizes` are those of the graph that is written; `at` names the nodes that follow."""

    def __init__(self, onnx):
        self.onnx, self.nodes, self.whole = onnx, [], onnx.ModelProto()  # the arrays are put where they stay: they may be large
        self.names, self.kept, self.counts = set(), {}, {}
        self.sizes = None
        self.place, self.told = "", ""

    # ---- tensors and nodes

    def unique(self, name):
        found = name
        while found in self.names:
            self.counts[name] = self.counts.get(name, 1) + 1
            found = f"{name}_{self.counts[name]}"
        self.names.add(found)
        return found

    def type_number(self, dtype):
        if dtype not in _ONNX_TYPES:
            raise GraphError(f"ONNX has no operations on {library_name(dtype)}; compute with its real and imaginary parts")
        return getattr(self.onnx.TensorProto, _ONNX_TYPES[dtype])

    @contextlib.contextmanager
    def at(self, node):
        """Names what is added by the module and the operation, and says the line."""
        before = self.place, self.told
        what = node.op if node.op != "extern_call" else node.attrs["callee"].partition("(")[0].rpartition(".")[2]
        self.place = f"{node.module}/{what}" if node.module else what
        line = f"{node.file.rpartition('/')[2]}:{node.line}" if node.line and not node.file.startswith("<") else ""
        self.told = " ".join(text for text in (line, node.module) if text)
        yield
        self.place, self.told = before

    def op(self, kind, *operands, dtype=None, shape=None, **attrs):
        """Adds a node of one result. operands: Values, or None for one that is left out."""
        given = [x for x in operands if x is not None]
        dtype = dtype or ("bool" if kind in _COMPARED else given[0].dtype)
        return self.several(kind, operands, [(dtype, broadcast([x.shape for x in given]) if shape is None else shape)], **attrs)[0]

    def several(self, kind, operands, types, **attrs):
        """Adds a node; a Value for each of `types`."""
        while operands and operands[-1] is None:
            operands = operands[:-1]
        results = [Value(self, self.unique(f"{self.place}/{kind}" if self.place else kind), dtype, shape) for dtype, shape in types]
        node = self.onnx.helper.make_node(kind, ["" if x is None else x.name for x in operands], [x.name for x in results],
                                          results[0].name, **attrs)
        node.doc_string = self.told
        self.nodes.append(node)
        return results

    def initializer(self, name, dtype, shape, data):
        """data: the elements' bytes, row-major."""
        self.whole.graph.initializer.add(name=name, data_type=self.type_number(dtype), dims=shape, raw_data=data)
        return Value(self, name, dtype, shape)

    def number(self, value, dtype, shape=()):
        """A constant, in every place of a small shape; one initializer for all that are equal."""
        import numpy

        if isinstance(value, complex):
            raise GraphError("ONNX has no operations on complex numbers; compute with their real and imaginary parts")
        if dtype == "bf16":
            return self.number(value, "f32", shape).cast("bf16")
        return self.array(numpy.broadcast_to(numpy.array(value).astype(library_name(dtype)), shape), dtype)

    def array(self, values, dtype="i64"):
        import numpy

        values = numpy.array(values, library_name(dtype))
        key = dtype, values.shape, values.tobytes()
        if key not in self.kept:
            self.kept[key] = self.initializer(self.unique("constant"), dtype, values.shape, values.tobytes())
        return self.kept[key]

    # ---- shapes

    def dims(self, shape):
        """The shape as an int64 tensor."""
        if all(isinstance(size, int) for size in shape):
            return self.array(list(shape))
        parts = []
        for symbolic, run in itertools.groupby(shape, lambda size: isinstance(size, str)):
            parts += [self.sizes(size) for size in run] if symbolic else [self.array(list(run))]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, shape=(len(shape),), axis=0)

    def reshape(self, x, shape):
        shape = tuple(shape)
        if x.shape == shape:
            return x
        unknown = [size for size in shape if isinstance(size, str)]
        if len(unknown) == 1 and all(isinstance(size, str) or size > 0 for size in shape):
            return self.op("Reshape", x, self.array([-1 if isinstance(size, str) else size for size in shape]), shape=shape)
        return self.op("Reshape", x, self.dims(shape), shape=shape, allowzero=1)

    def full(self, x, shape):
        """x, broadcast to the shape."""
        if x.shape == tuple(shape):
            return x
        if 0 in shape and all(isinstance(size, int) for size in shape):  # onnxruntime's Expand makes one row of none
            return self.number(0, x.dtype, shape)
        within = (1,) * (len(shape) - len(x.shape)) + x.shape
        wanted = [1 if size == inside else size for size, inside in zip(shape, within)]
        if x.dtype == "bf16":  # runtimes have no Expand of it
            return self.op("Expand", x.cast("f32"), self.dims(wanted), shape=shape).cast("bf16")
        return self.op("Expand", x, self.dims(wanted), shape=shape)

    def transpose(self, x, permutation):
        if list(permutation) == list(range(len(x.shape))):
            return x
        return self.op("Transpose", x, shape=[x.shape[i] for i in permutation], perm=list(permutation))

    def scalar(self, size):
        return self.reshape(self.sizes(size), ())

    def count(self, size):
        """0, 1, ..., size - 1"""
        return self.op("Range", self.number(0, "i64"), self.scalar(size), self.number(1, "i64"), shape=(size,))

    def product(self, shape):
        """The number of elements, as a size of the graph: text, if it is not known."""
        known = math.prod(size for size in shape if isinstance(size, int))
        return "*".join([str(known), *(f"({size})" for size in shape if isinstance(size, str))]) if any(
            isinstance(size, str) for size in shape) else known

    def where(self, condition, a, b):
        a = a if isinstance(a, Value) else self.number(a, b.dtype)
        b = b if isinstance(b, Value) else self.number(b, a.dtype)
        dtype = a.dtype
        within = {"u64": "i64"}.get(dtype, ARITHMETIC.get(dtype, dtype))
        return self.op("Where", condition, a.cast(within), b.cast(within), dtype=within).cast(dtype)

    def wide(self, x):
        return x.cast(ARITHMETIC.get(x.dtype, x.dtype))


def broadcast(shapes):
    """The shape of what is computed of arrays of these shapes."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded))


# ---- a graph's operations


class Unwritable(Exception):
    """An operation has no form in ONNX; the text says why and what to do."""


def write_operations(model, graph, inputs, integers):
    """Adds the graph's operations; returns the values by node. Raises GraphError, which names the node."""
    model.sizes = Sizes(model, graph, inputs, integers)
    return _write_nodes(model, graph, dict(zip(graph.inputs, inputs)))


def _write_nodes(model, graph, values):
    from framejit._graph.onnx_operations import operations

    for node in graph:
        if node.op == "result":
            values[node] = values[node.operands[0]][node.attrs["index"]]
            continue
        try:
            if node._is_check():
                raise Unwritable("it is a check (a raise or assert on one way), and ONNX has none: runtimes leave out what nothing reads")
            with model.at(node):
                made = operations[node.op](model, node, *(values[x] for x in node.operands))
                if node.op not in _SEVERAL:
                    made = made.cast(node.dtype)
        except (Unwritable, GraphError) as error:
            raise GraphError(f"{graph._title()} can't be written as ONNX: {_told(node)}: {error}") from None
        several = node.op in _SEVERAL and not hasattr(node.type, "dtype")
        values[node] = made if several or node.op not in _SEVERAL else made[0]
    return values


_SEVERAL = ("extern_call", "cond", "loop")  # operations that may have several results


def write_branch(model, node, condition, *operands):
    """An If: its graphs read the model's values by name. What sizes are computed of is computed in each anew."""
    graphs = [_body(model, word, body, operands) for word, body in zip(("then", "else"), node.bodies)]
    types = [(x.dtype, x.shape) for x in node.bodies[0].outputs]
    return model.several("If", [condition], types, then_branch=graphs[0], else_branch=graphs[1])


def write_loop(model, node, condition, *operands):
    """A Loop without a largest number of passes, which is what `loop` is: its graph reads what is no state by name."""
    body, = node.bodies
    types = [(x.dtype, tuple(x.shape)) for x in body.outputs[1:]]
    states = [Value(model, model.unique(f"{model.place}/state"), dtype, shape) for dtype, shape in types]
    given = [(model.unique(f"{model.place}/pass"), "i64", ()), (model.unique(f"{model.place}/goes"), "bool", ()),
             *((x.name, x.dtype, x.shape) for x in states)]
    graph = _body(model, "pass", body, [*states, *operands[len(states):]], given)
    first = [model.full(operand, shape) for operand, (_, shape) in zip(operands, types)]
    return model.several("Loop", [None, condition, *first], types, body=graph)


def _body(model, word, body, operands, given=()):
    """The ONNX graph of a body. operands: the values of its inputs; given: the names, dtypes and shapes of what it is called with."""
    def information(name, dtype, shape):
        known = None if shape is None else [size if isinstance(size, int) else None for size in shape]
        return model.onnx.helper.make_tensor_value_info(name, model.type_number(dtype), known)

    outside, model.nodes = model.nodes, []
    sizes, model.sizes = model.sizes, copy.copy(model.sizes)
    model.sizes.known, model.sizes.made = dict(sizes.known), dict(sizes.made)
    values = _write_nodes(model, body, dict(zip(body.inputs, operands)))
    results = [model.op("Identity", model.full(values[x], x.shape), dtype=x.dtype, shape=x.shape) for x in body.outputs]
    made = model.onnx.helper.make_graph(model.nodes, model.unique(word), [information(*x) for x in given],
                                        [information(x.name, x.dtype, x.shape if given else None) for x in results])
    model.nodes, model.sizes = outside, sizes
    return made


def _told(node):
    return f"{node} of the module {node.module}" if node.module else str(node)


def _traced_calls(graph):
    """The graph, or a copy of it, in which the calls that ONNX has no form of are traced to operations."""
    from framejit._graph.onnx_calls import is_known

    if all(is_known(node) for node in graph.find(op="extern_call")):
        return graph
    graph = graph.copy()
    graph._has_gradients = False
    for node in graph.find(op="extern_call", where=lambda node: not is_known(node)):
        try:
            _trace(graph, node)
        except Error as error:
            why = str(error).splitlines()[0]
            raise GraphError(f"{graph._title()} can't be written as ONNX: {_told(node)}: ONNX has no form of `{node.attrs['callee']}`, and "
                             f"it is not made of operations that have one ({why}); write it with other functions, or capture what comes "
                             "before and behind it as graphs of their own") from None
    return graph


def _trace(graph, node):
    """Puts the operations that a call is made of in its place."""
    if not calls.is_text(node.attrs["callee"]):
        raise GraphError("it is more than a function of the library called with arrays and constants")
    library = "numpy" if "numpy." in node.attrs["callee"].partition("(")[0] else "torch"
    names = [f"x{i}" for i in range(len(node.operands))]
    xs = [code.name(x) for x in names]
    call, results, written = calls.expression(node.attrs["callee"], xs)
    copy = "x.copy()" if library == "numpy" else "x.clone()"
    lines = [code.statement(f"x = {copy}", x=xs[i]) for i in written]
    for symbol in sorted(x.id for x in ast.walk(call) if isinstance(x, ast.Name) and code.is_symbol(x.id)):
        place = next(((i, axis) for i, x in enumerate(node.operands) for axis, size in enumerate(x.shape) if size == symbol), None)
        if place is None:
            raise GraphError(f"the size {symbol} is of none of its arrays")
        lines.append(code.statement("symbol = x.shape[axis]", symbol=code.name(symbol), x=xs[place[0]], axis=place[1]))
    lines.append(code.statement("made = call", call=call))
    given = [code.name("made")] if results is None else [code.expression("made[i]", i=results.index(f"r{i}"))
                                                         for i in range(len(results) - results.count("_"))]
    # A copy: a view of an operand would be none of the results.
    copies = [code.expression(copy, x=x) for x in [*given, *(xs[i] for i in written)]]
    lines.append(code.statement("return copies", copies=copies[0] if len(copies) == 1 else tuple(copies)))
    space = {library: __import__(library), "__name__": library}
    traced = code.function(code.definition("traced", code.plain_parameters(names), lines), space, "<traced>")
    before = set(graph)
    made = graph.call(traced, *node.operands, after=node)
    for new in graph:
        if new not in before:
            new.file, new.line, new.module = node.file, node.line, node.module
    several = not hasattr(node.type, "dtype")
    for old in [x for x in node.users if x.op == "result"] if several else [node]:
        old.replace_uses(made[old.attrs["index"]] if isinstance(made, tuple) else made)
        old.erase()
    if several:
        node.erase()


# ---- what the function returns


def _result_tree(graph):
    """What the function returns, as signature.py describes results, with objects as {"fields": {...}}; None: the list of outputs."""
    described = graph._capture or graph._saved
    if described is None or [node.type for node in graph.outputs] != described.results:
        return None
    if graph._capture is None:
        return graph._saved.signature and graph._saved.signature["result"]
    (steps, result), made = graph._capture.found["recipe"], {}
    texts = [text for text, _ in graph._capture.found["inputs"]]
    arrays = {source[0] for kind, _, _, source, *_ in graph._capture.found["guards"] if kind == "Array" and source is not None}
    for name, register, arguments, source, value, index, expression, shape, strides, dtype in steps:
        if name == "source":
            made[register] = ({"input": texts.index(source[0])} if source[0] in texts else
                              {"unread": in_words(source[0])} if source[0] in arrays else {})
        elif name in ("output", "scalar", "number"):
            made[register] = {"output": index}
        elif name == "view":
            made[register] = {"view": made[arguments[0]], "shape": shape, "strides": strides, "offset": expression, "dtype": dtype}
        elif name == "" and signature.detaches(value, arguments):
            made[register] = made[arguments[0]]
        elif name in ("tuple", "list"):
            made[register] = {"tuple": [made[x] for x in arguments]}
        elif name == "dict":
            made[register] = {"dict": [made[x] for x in arguments]}
        elif name == "constant":
            made[register] = {"constant": value}
        elif name == "namedtuple":
            made[register] = {"fields": dict(zip(getattr(value, "_fields", map(str, range(len(arguments)))), (made[x] for x in arguments)))}
        elif register >= 0:  # an object of a class, whose attributes and items follow
            made[register] = {"fields": {}}
        elif arguments and "fields" in made.get(arguments[0], ()):
            key = value if len(arguments) == 2 else made[arguments[1]].get("constant")
            if isinstance(key, str):
                made[arguments[0]]["fields"][key] = made[arguments[-1]]
    return made.get(result)


def _leaves(tree, name=""):
    """(name, part) of each array."""
    def inside(key):
        return f"{name}_{key}" if name else str(key)

    while "detached" in tree:
        tree = tree["detached"]
    items = tree.get("tuple") or tree.get("list")
    if items:
        for i, item in enumerate(items):
            yield from _leaves(item, inside(i) if name else f"output_{i}")
    elif "dict" in tree:
        for key, item in zip(tree["dict"][::2], tree["dict"][1::2]):
            yield from _leaves(item, inside(key.get("constant")))
    elif "fields" in tree:
        for key, item in tree["fields"].items():
            yield from _leaves(item, inside(key))
    elif any(kind in tree for kind in ("output", "scalar", "number", "input", "view", "unread")):
        yield name or "output", tree


def _output(tree):
    for kind in ("output", "scalar", "number"):
        if kind in tree:
            return tree[kind]
    raise GraphError("a result of the signature is no array")


class _Results:
    """The arrays that the function returns, made of the graph's outputs and inputs."""

    def __init__(self, model, graph, outputs, inputs, writes):
        self.model, self.graph, self.outputs, self.inputs, self.writes = model, graph, outputs, inputs, writes
        self.point = code.point(symbol.name for symbol in graph.symbols)

    def value(self, tree):
        if "detached" in tree:
            return self.value(tree["detached"])
        if "unread" in tree:
            raise GraphError(f"{self.graph._title()} can't be written as ONNX: it returns {tree['unread']}, which it computes nothing of; "
                             "return what is computed")
        if "input" in tree:
            return self.writes.get(tree["input"], self.inputs[tree["input"]])
        if "view" not in tree:
            return self.outputs[_output(tree)]
        whole = self.value(tree["view"])
        if tree.get("dtype", whole.dtype) != whole.dtype:
            raise GraphError(f"{self.graph._title()} can't be written as ONNX: it returns a view as {tree['dtype']} of an array of "
                             f"{whole.dtype}; return a copy")
        return self.view(whole, self.layout(tree["view"]), tree["shape"], tree["strides"], tree["offset"])

    def layout(self, tree):
        if "detached" in tree:
            return self.layout(tree["detached"])
        if "input" in tree:
            return self.graph.inputs[tree["input"]].layout
        if "view" in tree:
            return tree["strides"]
        return (self.graph._layouts + [None] * len(self.outputs))[_output(tree)]

    def number(self, size):
        return code.evaluated(size, self.point)

    def rows(self, shape):
        """Strides of an array without gaps, row-major."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= self.number(size)
        return strides

    def order(self, shape, strides, among):
        """The axes of `among` (shape, strides), in the order in which they are those of an array of this shape and strides; None: none."""
        wanted = [(self.number(a), self.number(b)) for a, b in zip(shape, strides) if a != 1]
        given = [(self.number(a), self.number(b)) for a, b in zip(*among)]
        kept = [axis for axis, (size, _) in enumerate(given) if size != 1]
        if sorted(given[axis] for axis in kept) != sorted(wanted):
            return None
        found = [next(axis for axis in kept if given[axis] == pair) for pair in wanted]
        return found if len(set(found)) == len(found) else None

    def view(self, x, layout, shape, strides, offset):
        model = self.model
        layout = self.rows(x.shape) if layout is None else [self.number(size) for size in layout]
        # Memory order: the longest steps first.
        axes = sorted(range(len(x.shape)), key=lambda axis: (-layout[axis], axis))
        inside = [x.shape[axis] for axis in axes]
        steps = self.rows(inside)
        if any(step != layout[axis] for step, axis, size in zip(steps, axes, inside) if size != 1):
            raise GraphError(f"{self.graph._title()} can't be written as ONNX: it returns a view of an array that has gaps in memory; "
                             "return a copy")
        memory = model.transpose(x, axes)
        if self.number(offset) == 0 and model.product(shape) == model.product(inside):
            order = self.order(shape, strides, (inside, steps))
            if order is not None:
                kept = [axis for axis in range(len(inside)) if axis not in order]
                return model.reshape(model.transpose(memory, [*order, *kept]), shape)
            if self.rows(shape) == [self.number(size) for size in strides]:
                return model.reshape(memory, shape)
        place = model.scalar(offset)
        for axis, (size, step) in enumerate(zip(shape, strides)):
            along = model.count(size) * model.scalar(step)
            place = place + model.reshape(along, [size] + [1] * (len(shape) - axis - 1))
        flat = model.op("Reshape", memory, model.array([-1]), shape=(model.product(inside),))
        return model.op("Gather", flat, model.full(place, shape), shape=shape, axis=0)


# ---- the file


def _arrays(graph):
    from framejit._graph.signature import state_of

    if graph._saved is not None:
        return graph._saved.state
    return state_of(graph._capture) if graph._capture is not None else {}


def _bytes(array):
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu().contiguous()
        array = (array.view(torch.int16) if array.dtype is torch.bfloat16 else array).numpy()
    import numpy

    return numpy.ascontiguousarray(array).tobytes()


def _integer_names(graph):
    """By symbol, the names of the numbers that the graph is given behind its inputs."""
    late = {symbol.name for symbol in graph.symbols if symbol.late}
    found = {f"s{number}": f"s{number}" for number in graph._as_core().integers if f"s{number}" not in late}
    if graph._capture is not None:
        for kind, _, _, source, _, _, symbol, _ in graph._capture.found["guards"]:
            if kind == "IntSymbol" and source is not None and f"s{symbol}" in found:
                found[f"s{symbol}"] = re.sub(r"\W+", "_", in_words(source[0])).strip("_")
    elif graph._saved is not None and graph._saved.signature is not None:
        for number, path in graph._saved.signature["integers"].items():
            found[f"s{number}"] = "_".join(str(step if isinstance(step, str) else step[1]) for step in path)
    return found


def _in_names(size, names):
    return size if isinstance(size, int) else re.sub(r"s\d+", lambda match: names.get(match[0], match[0]), size)


def to_onnx(graph, path, opset):
    onnx = _onnx()
    newest = onnx.defs.onnx_opset_version()
    opset = OLDEST if opset is None else opset
    if type(opset) is not int or not OLDEST <= opset <= newest:
        raise GraphError(f"{graph._title()} is written as ONNX of an opset from {OLDEST} to {newest}, the newest that the package onnx "
                         f"has, not {opset!r}")
    signature.refuse_other_arrays(f"{graph._title()} can't be written as ONNX", graph)
    _write(onnx, _model(onnx, graph, opset), os.fspath(path), graph)


def _model(onnx, graph, opset):
    model, state, integers = Model(onnx), _arrays(graph), _integer_names(graph)
    for node in graph.inputs:
        try:
            model.type_number(node.dtype)
        except GraphError as error:
            raise GraphError(f"{graph._title()} can't be written as ONNX: its input {node}: {error}") from None
    graph = _traced_calls(graph)
    inputs, described, names = [], [], graph._size_names
    for number, node in enumerate(graph.inputs):
        name = model.unique(node.name)
        if number in state:
            inputs.append(model.initializer(name, node.dtype, [int(size) for size in state[number].shape], _bytes(state[number])))
            continue
        inputs.append(Value(model, name, node.dtype, node.shape))
        described.append(onnx.helper.make_tensor_value_info(name, model.type_number(node.dtype), [_in_names(x, names) for x in node.shape]))
    given = {}
    for symbol, name in integers.items():
        name = model.unique(name)
        described.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, []))
        given[symbol] = model.reshape(Value(model, name, "i64", ()), (1,))
    values = write_operations(model, graph, inputs, given)
    outputs = [model.full(values[node], node.shape) for node in graph.outputs]
    writes = {graph.inputs.index(x): model.full(values[value], value.shape) for x, value in graph.writes if values[value] is not values[x]}
    results, tree = _Results(model, graph, outputs, inputs, writes), _result_tree(graph)
    named = [(name, results.value(part)) for name, part in _leaves(tree or {})]
    if not named:
        named = [("output" if len(outputs) == 1 else f"output_{i}", x) for i, x in enumerate(outputs)]
    named += [(f"{graph.inputs[number].name}_after", x) for number, x in writes.items()]
    results = _named_outputs(model, named, names)
    import framejit

    whole, read = model.whole, {name for node in _with_inner(model.nodes) for name in node.input}
    for i in reversed(range(len(whole.graph.initializer))):
        if whole.graph.initializer[i].name not in read:
            del whole.graph.initializer[i]
    name = re.sub(r"\W+", "_", graph.name) or "graph"
    whole.graph.MergeFrom(onnx.helper.make_graph(model.nodes, name, described, results))
    whole.opset_import.append(onnx.helper.make_opsetid("", opset))
    whole.ir_version = onnx.helper.find_min_ir_version_for(whole.opset_import)
    whole.producer_name, whole.producer_version = "framejit", framejit.__version__
    if graph.assumptions:
        onnx.helper.set_model_props(whole, {"framejit.assumptions": "\n".join(graph.assumptions)})
    return whole


def _with_inner(nodes):
    """The nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _with_inner(attribute.g.node)


def _named_outputs(model, named, names):
    """Gives the results their names, and describes them."""
    renamed, described = {}, []
    made = {name for node in model.nodes for name in node.output}
    for name, x in named:
        name = model.unique(name)
        if x.name in made and x.name not in renamed:
            renamed[x.name] = name
        else:
            x = model.op("Identity", Value(model, renamed.get(x.name, x.name), x.dtype, x.shape))
            renamed[x.name] = name
        shape = [_in_names(size, names) for size in x.shape]
        described.append(model.onnx.helper.make_tensor_value_info(name, model.type_number(x.dtype), shape))
    for node in _with_inner(model.nodes):
        for listed in (node.input, node.output):
            listed[:] = [renamed.get(name, name) for name in listed]
    return described


def _write(onnx, model, path, graph):
    """Beside and renamed, after the checker of the package onnx has read it."""
    folder, name = os.path.split(os.path.abspath(path))
    large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST_FILE
    beside = None
    try:
        beside = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
        file = os.path.join(beside, name)
        onnx.save_model(model, file, save_as_external_data=large, location=f"{name}.data" if large else None)
        try:
            onnx.checker.check_model(file, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise GraphError(f"{graph._title()} can't be written as ONNX: the checker of the package onnx refuses it: {error}") from None
        for part in sorted(os.listdir(beside), reverse=True):  # the arrays come first: a model without them can't be read
            os.replace(os.path.join(beside, part), os.path.join(folder, part))
    except OSError as error:
        raise GraphError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
