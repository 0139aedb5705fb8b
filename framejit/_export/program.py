"""`framejit.export`: a function's graph for a declared range of sizes, and the ExportedProgram around it.

A program is a graph as `Graph.load` gives it, which needs no function, whose signature has one part more, "program": what its array
arguments must be (arguments.py). So a program's file is a graph's file, and what is checked in a call is part of the compiled function.
"""
import logging
import math
import os
import re

from framejit._dim import LARGEST
from framejit._errors import GraphError
from framejit._export import arguments
from framejit._export.description import Signature
from framejit._export.machine_code import Unfit
from framejit._export.ranges import holds, intervals, quotient
from framejit._graph import signature as signatures
from framejit._graph.calls import refuse_without_text
from framejit._graph.capture import captured, dynamic_sizes, name_of, signature_of
from framejit._graph.face import face_of
from framejit._graph.files import read, save as save_graph
from framejit._graph.library import stopped, write_stops
from framejit._graph.signature import Saved


class ExportedProgram:
    """A graph with the range of sizes it holds for, and with its arrays: what `framejit.export` makes, and `load` reads.

    Called as the function it was made of: `program(*args, **kwargs)` is compiled, `program.run(*args, **kwargs)` computes one operation of
    the graph after the other through the array library. Each call checks its arguments, and an argument of another dtype, rank, size,
    device, type or value is a GraphError that has its name, what was expected and what was found.

    graph: the `Graph`, which may be edited. signature: parameters, results and ranges, with a text to be read. state: parameters,
    buffers and other arrays that are no arguments, by their paths. ranges: by the name of a Dim, (min, max), where None is no bound.

        program = framejit.ExportedProgram.load("model.program")
        result = program(x)
    """

    def __init__(self, graph, contents=None):
        """graph: None, that of `contents`, a file of which machine code is run."""
        self._graph, self._contents = graph, contents
        self._code = None if contents is None else contents.function(contents.code)

    @property
    def graph(self):
        if self._graph is None:
            self._graph = _program_of(self._contents)
            self._version = self._graph._version
        return self._graph

    @graph.setter
    def graph(self, graph):
        self._graph, self._code = graph, None

    @property
    def signature(self):
        return Signature(self.graph)

    @property
    def state(self):
        return self.graph.state

    @property
    def ranges(self):
        return self.signature.ranges

    def __call__(self, *args, **kwargs):
        if self._code is not None and (self._graph is None or self._graph._version == self._version):
            try:
                return self._called(self._code, args, kwargs)
            except Unfit:
                pass
        return self._called(self.graph, args, kwargs)

    def run(self, *args, **kwargs):
        """Computes the operations one after the other through the array library: where does a difference come from?"""
        current = self.graph._current()
        if "eager" not in current:
            current["eager"] = self.graph.compile(backend="eager")
        return self._called(current["eager"], args, kwargs)

    def _called(self, run, args, kwargs):
        try:
            return run(*args, **kwargs)
        except (TypeError, LookupError, AttributeError) as error:
            text = self._other_arguments(args, kwargs)
            if text is None:
                raise
            raise GraphError(text) from error

    def _other_arguments(self, args, kwargs):
        """How the arguments are not those of the signature; None: they are."""
        described = self.graph._saved.signature
        try:
            bound = self.signature.python_signature.bind(*args, **kwargs)
        except TypeError as error:
            found = ", ".join([*map(_short, args), *(f"{name}={_short(value)}" for name, value in kwargs.items())])
            return (f"the program of {described['function']} takes other arguments: {error}\n  expected  {self.signature}\n"
                    f"  found     ({found})")
        return arguments.missing(described, bound.arguments)

    def module(self):
        """The program as a torch.nn.Module, whose parameters and buffers are the arrays of `state`, under their paths.

        It is called as the program is, moved by `.to()`, trained, and has a `state_dict`. It shares its arrays with the program.
        Raises GraphError for a program of NumPy's arrays.

            net = framejit.ExportedProgram.load("net.program").module()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        """
        from framejit._export.module import module_of

        return module_of(self)

    def save(self, path, *, cpu=None):
        """Writes the program to a file, which `ExportedProgram.load` reads where the function is not there.

        The file is that of `Graph.save`, with the ranges and the types of arguments; it is written beside and renamed.
        cpu: the file has machine code too, for these processors (as `build` takes them), which `load(path, run_code=True)` runs.
        Raises GraphError for a path that can't be written, and with `cpu` as `build` does.

            program.save("model.program", cpu=("x86-64-v3", "x86-64-v4"))
        """
        save_graph(self.graph, path, cpu)

    @staticmethod
    def load(path, *, run_code=False):
        """The program of a file that `save` has written. Nothing of the file is executed, unless `run_code` says so.

        run_code: the machine code that the file was saved with is run, so that the first call traces and compiles nothing: for files that
        are trusted as a shared library is. A call that it can't serve is compiled: one of which a derivative is wanted, one under autocast or a mode of torch's, one in which
        NumPy warns or an exception is raised, and every call if it was made by another framejit or for other processors.
        Raises GraphError for a file that is none of framejit's, is damaged, was written by a newer framejit, or holds a graph alone.

            program = framejit.ExportedProgram.load("model.program", run_code=True)
        """
        contents = read(path, run_code)
        if contents.saved.signature is None or "program" not in contents.saved.signature:
            raise GraphError(f"{path} holds a graph, and no program: read it by framejit.Graph.load")
        if callable(contents.code):
            return ExportedProgram(None, contents)
        if run_code:
            logging.getLogger("framejit.fallbacks").info("the machine code of %s is not run: %s", os.fspath(path), contents.code)
        return ExportedProgram(_program_of(contents))

    def build(self, folder, *, name=None, cpu="native"):
        """Makes a shared library and a header of the program, for C and whatever calls C. It needs a linker (ld), and no compiler.

        folder: it is made if it is not there; files of the same names are replaced. name: of the function, an identifier of C; None:
        the exported function's. cpu: which processors the library runs on: "native", those that can do what this one can; or "x86-64",
        "x86-64-v2", "x86-64-v3", "x86-64-v4" (on ARM "generic"), and all better ones; several: the library has code for each,
        and uses the best that the processor can run.

        Returns the paths of `library`, `header` and `runtime`, a library that must lie beside the first; none of them needs Python.
        Raises GraphError where the program calls a function of the array library, or has a size that depends on values, with the line;
        for names that are no identifiers of C; where there is no linker, or files can't be written. ValueError for an unknown cpu.

            built = program.build("softmax", cpu=("x86-64", "x86-64-v3"))
            print(built.header.read_text())
        """
        from framejit._export.library import build

        return build(self, folder, name, cpu)

    def __str__(self):
        numbers = sum(array.numel() if hasattr(array, "numel") else array.size for array in self.state.values())
        of = f"\n  {len(self.state)} arrays of state, {numbers:,} numbers" if self.state else ""
        return f"program {self.signature}{of}\n{self.graph}"

    def __repr__(self):
        return f"<framejit program {self.signature}>"

    def __reduce__(self):
        raise TypeError("a framejit.ExportedProgram is not pickled: save and ExportedProgram.load")


def _program_of(contents):
    """The graph of a file, with the names that the program has for its sizes."""
    graph = contents.graph()
    try:
        graph._size_names = _names_of_sizes(graph)
        str(Signature(graph))
    except (KeyError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise contents.damaged(f"its signature: {error}") from None
    return graph


def _names_of_sizes(graph):
    """By symbol of the graph, the name of its range."""
    signature, found = graph._saved.signature, {}
    inputs = {str(entry["argument"]): node for entry, node in zip(signature["inputs"], graph.inputs) if "argument" in entry}
    for entry in signature["program"]["arguments"]:
        node = inputs.get(str(entry["argument"]))
        for size, name in zip(node.shape, entry["shape"]) if node is not None else ():
            if isinstance(size, str) and isinstance(name, str):
                found.setdefault(size, name)
    return found


def _short(value):
    if arguments.is_array(value):
        return str(arguments.type_of(arguments.entry([], value, value.shape)))
    text = repr(value)
    return text if len(text) <= 40 else type(value).__name__


def export(function, args, kwargs=None, *, dynamic_shapes=None, training=False):
    """The ExportedProgram of what `function(*args, **kwargs)` computes on arrays, for all sizes of the ranges; nothing is computed.

    function: as `framejit.capture` takes it: a function, a method, a torch.nn.Module or another callable object. args: a tuple, kwargs: a
    dict. dynamic_shapes: None, every size is that of these arguments; else, by parameter or by argument, the axes that have
    another size in a call, {"x": {0: framejit.Dim("batch", min=1, max=256)}}. Axes of one name are equal. True: all sizes, but those
    that the code decides. training: a `TrainingProgram` instead, which gives results and gradients, in two graphs.

    Raises GraphError where the code decides a size that a Dim leaves open or asks for a part of its range, with the line that asks;
    GraphBreakError, with the line, where the function can't be one graph; TypeError for args that are no tuple or kwargs that are no dict.

        program = framejit.export(model, (x,), dynamic_shapes={"x": {0: framejit.Dim("batch", min=1, max=256)}})
        program.save("model.program")
    """
    if not isinstance(args, tuple):
        raise TypeError(f"framejit.export: args is a tuple, not {args!r}: framejit.export(f, (x,))")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(f"framejit.export: kwargs is a dict, not {kwargs!r}")
    kwargs = kwargs or {}
    declared = dynamic_sizes("framejit.export", function, args, kwargs, dynamic_shapes)
    _check_equal(declared, function, args, kwargs)
    graph = captured("framejit.export", function, args, kwargs, dynamic_shapes, only_operations=training)
    whole = graph.copy() if training else None
    capture = graph._capture
    _refuse_parts_of_ranges(graph, declared)
    try:
        signature = signatures.of(capture, graph)
    except GraphError as error:
        raise GraphError(f"framejit.export: {str(error).replace('be saved', 'be a program').partition('; it can be')[0]}") from None
    bound = signature_of(function).bind(*args, **kwargs).arguments
    refuse_without_text(graph, f"framejit.export: {name_of(function)} can't be a program")
    signature["program"] = _program(graph, signature, declared, bound, dynamic_shapes is True)
    graph._saved = Saved(capture.library, signature, signatures.state_of(capture), [node.type for node in graph.outputs],
                         capture.assumptions())
    graph._capture = None
    write_stops(graph, stopped(graph))
    graph._composites = []
    try:
        face_of(signature, graph._as_core(), capture.library, None, None)
    except GraphError as error:
        raise GraphError(f"framejit.export: {name_of(function)} can't be a program: {error}") from None
    program = ExportedProgram(graph)
    if not training:
        return program
    from framejit._export.training import TrainingProgram, wanted_inputs

    return TrainingProgram(program, whole, wanted_inputs(graph, signature, graph._saved.state, bound))


def _check_equal(declared, function, args, kwargs):
    """Axes of one Dim have one size and one range."""
    first = {}
    bound = signature_of(function).bind(*args, **kwargs).arguments
    sizes = {f"L.{arguments.place_text(place)}": array.shape
             for name, value in bound.items() for place, array in arguments.arrays_in([name], value)}
    for source, axis, name, low, high in declared:
        if not name:
            continue
        here = (source, axis, sizes[source][axis], low, high)
        other = first.setdefault(name, here)
        if here[2:] != other[2:]:
            what = [f"{size} in axis {at} of {where[2:]}, from {low} to {'any' if high == LARGEST else high}"
                    for where, at, size, low, high in (other, here)]
            raise GraphError(f"framejit.export: axes of one Dim have one size and one range, and {name} is {', and '.join(what)}")


def _refuse_parts_of_ranges(graph, declared):
    """The graph must hold for each size of the ranges: raises GraphError with the lines that have asked for a part."""
    if not declared:
        return
    capture = graph._capture
    names = _names_while_tracing(capture, declared)
    symbols = [(name, low, math.inf if high >= LARGEST else high) for name, low, high, *_ in capture.core.symbols]
    bounds = intervals(symbols, capture.core.definitions)
    for number, dividend, divisor, remainder in capture.core.definitions:
        names.setdefault(f"s{number}", quotient(_named(str(dividend), names), _named(str(divisor), names), remainder))
    parts = [(text, place) for kind, text, place, *_ in capture.found["guards"] if kind == "Relation" and not holds(text, bounds)]
    if not parts:
        return
    told = [f"\n  it assumes {_named(text, names)}" + (f"  ({place.rpartition('/')[2]})" if place else "") for text, place in parts[:3]]
    ranges = dict.fromkeys(arguments.range_text(name, arguments.bounds(low, high)) for _, _, name, low, high in declared if name)
    raise GraphError(f"framejit.export: the graph of {capture.core.name} is not that of all sizes ({', '.join(ranges) or 'any'})"
                     + "".join(told) + "\n  try   a Dim of a narrower range, one Dim for axes that must be equal, or a program for each "
                     "side of the question")


def _named(text, names):
    return re.sub(r"s[0-9]+", lambda found: names.get(found[0], found[0]), text)


def _names_while_tracing(capture, declared):
    """By symbol, the name of its Dim: of symbols too that are others in the graph, because the code needs them to be equal."""
    shapes = {source[0]: array[2] for kind, _, _, source, *_, array in capture.found["guards"] if kind == "Array"}
    return {shapes[source][axis]: name for source, axis, name, *_ in declared if name and source in shapes}


def _program(graph, signature, declared, bound, all_dynamic):
    """The part "program" of the signature."""
    inputs = {str(entry["argument"]): node for entry, node in zip(signature["inputs"], graph.inputs) if "argument" in entry}
    names = {(source, axis): (name, low, high) for source, axis, name, low, high in declared}
    symbols = {name: (low, high) for name, low, high, *_ in graph._capture.core.symbols}
    ranges, entries = {}, []
    for name, value in bound.items():
        for place, array in arguments.arrays_in([name], value):
            node, shape = inputs.get(str(place)), []
            for axis in range(len(array.shape)):
                size = array.shape[axis] if node is None else node.shape[axis]
                declared_here = names.get((f"L.{arguments.place_text(place)}", axis))
                if declared_here is not None and declared_here[0]:
                    size, bounds = declared_here[0], declared_here[1:]
                elif node is None:
                    size = None if all_dynamic or declared_here is not None else size
                elif isinstance(size, str):
                    bounds = symbols.get(size)
                    size = None if bounds is None else size
                if isinstance(size, str):
                    ranges[size] = arguments.bounds(*bounds)
                shape.append(size)
            entries.append(arguments.entry(place, array, shape))
            _check_library(graph, name, array)
    return {"arguments": entries, "ranges": ranges}


def _check_library(graph, name, array):
    if arguments.library_of(array) != graph._capture.library:
        raise GraphError(f"framejit.export: {name} is an array of another library than the other arrays, and a program is of one library")
    if arguments.graph_name(array.dtype) == "?":
        raise GraphError(f"framejit.export: {name} is of the dtype {array.dtype}, which graphs have not")
