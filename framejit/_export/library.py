"""`ExportedProgram.build`: a shared library and its header, for programs of C.

The compiler writes object files (codegen/ahead), a linker makes the library of them, and what runs them lies beside it: libframejit_program.so,
which has neither Python nor LLVM.
"""
import contextlib
import inspect
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
from typing import NamedTuple

from framejit import _core
from framejit._dim import LARGEST, Dim
from framejit._errors import GraphBreakError, GraphError
from framejit._export import arguments
from framejit._export.header import text_of
from framejit._export.ranges import holds, intervals
from framejit._graph.code import evaluated
from framejit._graph.dtypes import library_name
from framejit._graph.signature import place_text, refuse_other_arrays
from framejit._graph.files import graph_type
from framejit._support.files import write_whole

RUNTIME = "libframejit_program.so"
_LINKERS = ("ld.lld", "mold", "ld")
_RESERVED = set(
    "alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do double else enum "
    "explicit export extern false float for friend goto if inline int long main mutable namespace new not nullptr operator or private "
    "protected public register restrict return short signed sizeof static struct switch template this throw true try typedef typeid "
    "typename typeof union unsigned using virtual void volatile while xor "
    "NULL linux unix i386 errno stdin stdout stderr int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t".split())


class BuiltLibrary(NamedTuple):
    """The files that `ExportedProgram.build` has written."""
    library: pathlib.Path
    header: pathlib.Path
    runtime: pathlib.Path


class Size(NamedTuple):
    """A size that C gives. high: None: no bound."""
    name: str
    symbol: int
    low: int
    high: int | None


class Array(NamedTuple):
    """An array that C gives. shape: ints, names of sizes and texts made of them; what: its place in Python."""
    name: str
    dtype: str
    shape: tuple
    what: str
    written: bool = False


class Names:
    """Identifiers of C, each once."""

    def __init__(self):
        self.taken = set()

    def of(self, text):
        word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "x"
        word = f"{word}_" if word in _RESERVED else f"_{word}" if word[0].isdigit() else word
        found, count = word, 2
        while found in self.taken:
            found, count = f"{word}_{count}", count + 1
        self.taken.add(found)
        return found


def processors(cpu):
    """The levels of processors that the argument `cpu` names."""
    levels, given = _core.processor_levels(), (cpu,) if isinstance(cpu, str) else tuple(cpu)
    here = max((level for level in levels if _core.processor_has(level)), key=levels.index)
    found = list(dict.fromkeys(here if name == "native" else name for name in given))
    unknown = [name for name in found if name not in levels]
    if unknown or not found:
        what = f"no processor is called {unknown[0]!r}" if unknown else "no processor is named"
        raise ValueError(f"build: {what}: cpu is \"native\" or of {', '.join(levels)}, or several of them")
    return found


class Function(NamedTuple):
    """A function of a library. inputs: by input of the graph the number of its array, ~number for one of the state."""
    name: str
    graph: object
    sizes: list
    given: list
    inputs: list
    results: list
    state: list
    text: str = ""


def build(program, folder, name=None, cpu="native"):
    name = checked_name(program, name)
    names = Names()
    sizes = sizes_of(program, names)
    given, inputs, state = _inputs(program, names)
    graph, results = with_results(program.graph, program, names)
    if graph.find(op="extern_call"):
        graph, sizes, inputs = of_operations(graph, program.graph._saved, sizes, inputs)
    for number in graph._writes:
        if inputs[number] < 0:
            raise GraphError(f"build: the program writes {graph.inputs[number].name}, and the arrays of a library are constants")
    return write(folder, name, cpu, f"{program.signature}", [Function(name, graph, sizes, given, inputs, results, state)])


def checked_name(program, name):
    """What the functions of a program are called in C."""
    name = program.graph._saved.signature["function"] if name is None else name
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in _RESERVED or name.startswith("framejit"):
        raise GraphError(f"build: `{name}` can't be a function of C: give it a name, build(folder, name=\"...\")")
    return name


def write(folder, name, cpu, title, functions):
    """The BuiltLibrary of these functions."""
    cpus = processors(cpu)
    for function in functions:
        refuse(function.graph)
    folder = pathlib.Path(folder)
    built = BuiltLibrary(folder / f"lib{name}.so", folder / f"{name}.h", folder / RUNTIME)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".framejit-", dir=folder) as scratch:
            objects = []
            for x in functions:
                sizes = [(size.name, size.symbol, size.low, LARGEST if size.high is None else size.high) for size in x.sizes]
                objects += _core.build_objects(x.graph._as_core(), scratch, x.name, sizes, x.inputs, [array.name for array in x.given],
                                               [array.name for array in x.results], x.state, cpus)
            linked = link(objects, built.library.name, scratch)
            runtime = pathlib.Path(_core.__file__).with_name(RUNTIME)
            write_whole(built.runtime, runtime.read_bytes())
            write_whole(built.library, linked.read_bytes())
            write_whole(built.header, text_of(title, name, cpus, functions).encode())
    return built


@contextlib.contextmanager
def writing(folder):
    """A file that can't be written is a GraphError."""
    try:
        yield
    except OSError as error:
        raise GraphError(f"build: {error.filename or folder} can't be written: {error.strerror}") from error
    except RuntimeError as error:
        if "can't be written" not in str(error):
            raise
        raise GraphError(f"build: {error}") from error


def _sizes_of_an_example(graph):
    """By name: those that were traced; for a program from a file, which has seen none, some in their ranges."""
    values = {}
    for symbol in graph.symbols:
        seen = symbol.seen
        if not seen and symbol.definition is not None and symbol.max > 0:
            dividend, divisor, remainder = symbol.definition
            over, by = evaluated(dividend, values), evaluated(divisor, values)
            seen = over % by if remainder else over // by
        values[symbol.name] = seen or min(max(symbol.min, 2), symbol.max)
    return values


def of_operations(graph, saved, sizes, inputs):
    """A graph of the same that calls the array library only where no operations say the same, with its sizes and inputs."""
    from framejit._graph import signature
    from framejit._graph.capture import captured
    from framejit._support import graph_code

    body = graph_code.function(graph._as_core(), saved.library, layouts=False)
    names = list(inspect.signature(body).parameters)
    if len(names) != len(graph.inputs):
        return graph, sizes, inputs
    known = {f"s{size.symbol}": size for size in sizes}
    dims = [{axis: Dim(size, min=known[size].low, max=known[size].high) for axis, size in enumerate(node.shape) if size in known}
            for node in graph.inputs]
    values = _sizes_of_an_example(graph)
    examples = [_example(saved.library, node, values) for node in graph.inputs]
    try:
        with without_gradients(saved.library):
            made = captured("build", body, tuple(examples), {}, dims, only_operations=True)
    except (GraphBreakError, GraphError):
        made = graph
    if made.find(op="extern_call"):
        return graph, sizes, inputs  # which is refused, with the user's lines
    capture = made._capture
    _refuse_parts(made.symbols, [text for kind, text, *_ in capture.found["guards"] if kind == "Relation"])
    recipe = signature.of(capture, made)["result"]
    parts = recipe.get("list") or [recipe]
    numbers = [names.index(steps[0][2]) for _, steps in capture.found["inputs"]]
    nodes = [_node(made, part, f"result {i}") for i, part in enumerate(parts)]
    made.set_outputs(*nodes[:len(graph.outputs)])
    for number, node in zip(graph._writes, nodes[len(graph.outputs):]):
        if number not in numbers or node is not made.inputs[numbers.index(number)]:
            made._writes[numbers.index(number)] = node
    made._capture = made._core = None
    made._touch()
    made.eliminate_dead_code()
    symbols = {made._size_names[symbol.name]: i for i, symbol in enumerate(made.symbols) if symbol.name in made._size_names}
    made._layouts = [None if layout is None or list(map(str, layout)) == list(map(str, _core.row_major(node.shape)))
                     else [_renamed(size, symbols) for size in layout] for node, layout in zip(graph.outputs, graph._layouts)]
    unread = [size.name for size in sizes if f"s{size.symbol}" not in symbols]
    if unread:
        raise GraphError(f"build: nothing is computed of the size {unread[0]}, which the program asks for")
    return made, [size._replace(symbol=symbols[f"s{size.symbol}"]) for size in sizes], [inputs[number] for number in numbers]


def _renamed(size, symbols):
    try:
        return re.sub(r"s\d+", lambda found: f"s{symbols[found[0]]}", size) if isinstance(size, str) else size
    except KeyError as error:
        raise GraphError(f"build: how a result lies in memory depends on the size {error.args[0]}, which is computed from others") from None


def _example(library, node, values):
    """An array of the node's type; its contents are never read."""
    import numpy

    shape = [evaluated(size, values) for size in node.shape]
    if library == "numpy":
        return numpy.zeros(shape, library_name(node.dtype))
    torch = __import__("torch")
    return torch.zeros(shape, dtype=getattr(torch, library_name(node.dtype)), device="cpu")


def without_gradients(library):
    return __import__("torch").no_grad() if library == "torch" else contextlib.nullcontext()


def refuse(graph):
    """What a library of C has not."""
    for node in graph:
        where = f" ({node.file.rpartition('/')[2]}:{node.line})" if node.line else ""
        if node._op == "extern_call":
            raise GraphError(f"build: {node._attrs['callee']}{where} is a function of the array library, which C has not")
        if node._op in ("nonzero", "as_size"):
            raise GraphError(f"build: the size of %{node.name}{where} depends on the values of an array, and C gives arrays their sizes")


def sizes_of(program, names):
    graph, data, found = program.graph, program.graph._saved.signature, []
    refuse_other_arrays("build", graph)
    for number, symbol in enumerate(graph.symbols):
        if symbol.definition is not None or symbol.late:
            continue
        place = data["integers"].get(str(number))
        name = graph._size_names.get(symbol.name) or (arguments.place_text(place) if place else symbol.name)
        low, high = data["program"]["ranges"].get(name, (symbol.min, symbol.max))
        found.append(Size(names.of(name), number, low, None if high is None or high >= LARGEST else high))
    _refuse_parts(graph.symbols, [condition["sizes"] for condition in data["conditions"] if "sizes" in condition])
    return found


def _refuse_parts(symbols, relations):
    """A graph must hold for each size of its ranges."""
    bounds = intervals([(s.name, s.min, math.inf if s.max >= LARGEST else s.max) for s in symbols if s.definition is None],
                       [(i, *s.definition) for i, s in enumerate(symbols) if s.definition is not None])
    for relation in relations:
        if not holds(relation, bounds):
            raise GraphError(f"build: the program is for sizes of which {relation}, and a library is for ranges: "
                             "give dynamic_shapes with a Dim for each, of sizes for which that is so")


def _inputs(program, names):
    """The arrays that C gives; by input of the graph the number of its array, ~number for one of the state; the state as bytes."""
    graph, saved = program.graph, program.graph._saved
    data, given, numbers = saved.signature, [], {}
    inputs = {str(entry["argument"]): number for number, entry in enumerate(data["inputs"]) if "argument" in entry}
    for entry in data["program"]["arguments"]:
        if entry["device"] != "cpu":
            raise GraphError(f"build: {arguments.place_text(entry['argument'])} is on {entry['device']}, and a library runs on the CPU")
        number, what = inputs.get(str(entry["argument"])), arguments.place_text(entry["argument"])
        shape = entry["shape"] if number is None else [program.signature._size(size) for size in graph.inputs[number].shape]
        if number is not None:
            numbers[number] = len(given)
        given.append(Array(names.of(what), entry["type"], tuple(shape), what, number in graph._writes))
    order, state = [], []
    for number in range(len(data["inputs"])):
        order.append(numbers[number] if number in numbers else ~len(state))
        if number not in numbers:
            array, node = saved.state[number], graph.inputs[number]
            if graph_type(array) != node.type:
                raise GraphError(f"build: {data['inputs'][number]['state']} is {graph_type(array)} now, and the program takes {node.type}")
            state.append(_bytes(array))
    return given, order, state


def _bytes(array):
    """Its elements in row-major order."""
    import numpy

    if isinstance(array, numpy.ndarray):
        return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
    torch = __import__("torch")
    return array.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()


def with_results(graph, program, names):
    """A copy of the graph that returns each array of the result as C has it, and those arrays. Sizes and constants are no arrays."""
    signature = program.graph._saved.signature
    unread = [condition["argument"] for condition in signature["conditions"] if "array" in condition]
    graph = graph.copy()
    outputs, results = [], []

    def visit(recipe, place):
        kind, what = next(iter(recipe.items()))
        if kind in ("tuple", "list"):
            for i, part in enumerate(what):
                visit(part, f"{place}[{i}]")
        elif kind == "dict":
            for key, part in zip(what[::2], what[1::2]):
                visit(part, f"{place}[{key['constant']!r}]")
        elif kind == "detached":
            visit(what, place)
        elif kind == "argument" and what in unread:
            raise GraphError(f"build: {place} is the argument {place_text(what)}, of which nothing is computed: leave it out of the result")
        elif kind in ("output", "scalar", "number", "input", "view"):
            node = _node(graph, recipe, place)
            outputs.append(node)
            results.append(Array(names.of(place), node.dtype, tuple(map(program.signature._size, node.shape)), place))

    visit(signature["result"], "result")
    graph.set_outputs(*outputs)
    graph._layouts = [None] * len(outputs)  # without gaps
    return graph, results


def _node(graph, recipe, place):
    """The node of an array of the result, which a view becomes by operations."""
    shown, offset = recipe, 0
    while "view" in shown or "detached" in shown:
        if "detached" in shown:
            shown = shown["detached"]
            continue
        offset, shown = _core.normal_size(f"{offset} + {shown['offset']}"), shown["view"]
    kind, number = next(iter(shown.items()))
    if kind == "argument":
        raise GraphError(f"build: {place} is a part of the argument {place_text(number)}, of which nothing is computed: return a copy of it")
    if kind == "input":
        base, layout = graph._writes.get(number, graph.inputs[number]), graph.inputs[number].layout
    else:
        base, layout = graph.outputs[number], graph._layouts[number]
    if shown is recipe:
        return base
    shape, strides = list(recipe["shape"]), list(recipe["strides"])
    values = _sizes_of_an_example(graph)
    axes = sorted(range(len(base.shape)), key=lambda axis: (-evaluated(layout[axis], values), axis)) if layout else list(range(len(base.shape)))
    inside = [base.shape[axis] for axis in axes]  # in the order of memory
    steps = list(map(str, _core.row_major(inside)))
    if layout and any(str(layout[axis]) != step for axis, step, size in zip(axes, steps, inside) if size != 1):
        raise GraphError(f"build: {place} is a part of an array that has gaps in memory: return a copy of it")
    if axes != sorted(axes):
        base = graph.add("transpose", base, permutation=axes)
    if offset == 0 and list(map(str, strides)) == list(map(str, _core.row_major(shape))) and _product(shape) == _product(inside):
        return base if list(base.shape) == shape else graph.add("reshape", base, shape=shape)
    order = [next((axis for axis in range(len(steps)) if steps[axis] == str(stride) and str(inside[axis]) == str(size)), None)
             for size, stride in zip(shape, strides)]
    if offset == 0 and sorted(order, key=str) == list(range(len(steps))):
        return graph.add("transpose", base, permutation=order)
    at = _full(graph, offset, shape)
    for axis, stride in enumerate(strides):
        step = graph.add("mul", graph.add("iota", shape=shape, axis=axis), _full(graph, stride, shape))
        at = graph.add("add", at, step)
    return graph.add("gather", graph.add("reshape", base, shape=[_product(inside)]), at, axis=0)


def _full(graph, size, shape):
    """An array of a size."""
    number = graph.add("dim", value=size)
    return graph.add("broadcast", number, dims=[], shape=shape) if shape else number


def _product(shape):
    return _core.row_major([1, *shape])[0]


def link(objects, name, scratch):
    """The path of the library."""
    linker = next(filter(None, map(shutil.which, _LINKERS)), None)
    if linker is None:
        raise GraphError(f"build: there is no linker ({', '.join(_LINKERS)}): install binutils or lld")
    linked = os.path.join(scratch, name)
    runtime = pathlib.Path(_core.__file__).with_name(RUNTIME)
    files = os.path.join(scratch, "objects")
    with open(files, "w") as file:
        file.writelines(f'"{path}"\n' for path in objects)
    made = subprocess.run([linker, "-shared", "-o", linked, "-soname", name, "-rpath", "$ORIGIN", "-z", "noexecstack", "--gc-sections", "-s",
                           f"@{files}", str(runtime)], capture_output=True, text=True)
    if made.returncode == -signal.SIGXFSZ:
        raise GraphError(f"build: {name} can't be written: it is larger than the files that this process may write (RLIMIT_FSIZE)")
    if made.returncode:
        raise GraphError(f"build: {linker} has made no library: {made.stderr.strip() or f'it ended with {made.returncode}'}")
    return pathlib.Path(linked)
