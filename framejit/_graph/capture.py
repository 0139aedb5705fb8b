"""`framejit.capture`: the graph of a whole function or module, and what calling that graph checks.

The function is traced as `framejit.compile` traces it, inside a function of the same parameters (`_face`). Of an edited graph, only framejit
can run it: where a call would go back to CPython, which knows nothing of the edits, it raises. Tracing ends with the graph, before anything is
computed. A call traces the function again and puts the graph, as it is now, in the place of what was captured: guards, views, gradients and
in-place writes are then those of every compiled function.
"""
import ast
import inspect
import re
import sys

from framejit import _core
from framejit._api import compile_with_passes, dynamic_axes, is_compiling
from framejit._dim import Dim
from framejit._errors import Error, GraphError
from framejit._export import arguments as array_arguments
from framejit._graph import code, signature as signatures
from framejit._graph.core import from_core, to_core
from framejit._graph.library import collapse
from framejit._graph.nodes import _frozen
from framejit._graph.signature import Saved
from framejit._graph.names import in_words
from framejit._graph.passes import Edit

_WORDED = {"Array", "Equals", "Length", "Relation", "IntSymbol", "LengthSymbol", "SameObject", "NotSame", "NoOverlap", "Elements", "DictKeys",
           "GradMode", "TorchModes", "NumpyErrState", "Differs", "Unbound"}


class _Found(BaseException):
    """Ends tracing; no exception that a program handles."""


class Capture:
    """What was captured: the function, and what tracing it has found."""

    def __init__(self, function, face, positional, dynamic, axes, core, found, library, version, results):
        self.function, self.face, self.dynamic, self.axes = function, face, dynamic, axes
        self.positional = positional  # how many arguments were passed by position
        self.core, self.found, self.library = core, found, library
        self.version = version  # of the graph as it was captured
        self.form = _form(core)
        self.results = results  # types of its outputs

    def assumptions(self):
        return _assumptions(self.found)

    def callable_with(self, graph):
        """(the function to compile, its passes): its captured graph is replaced by `graph`; None: it stays."""
        return (self.face if graph is not None else _face(self.function, self.positional, False)), Substitution(self, graph)

    def other_argument(self, args, kwargs):
        """The text about the first argument that is no array of the type the graph takes; None: there is none."""
        try:
            bound = signature_of(self.function).bind(*args, **kwargs).arguments
        except TypeError:
            return None
        ranges = {name: array_arguments.bounds(low, high) for name, low, high, *_ in self.core.symbols}
        for (_, _, dtype, shape), (_, steps) in zip(self.core.inputs, self.found["inputs"]):
            place = signatures.place_of(steps) if steps is not None and steps[0][0] == "Slot" else None
            if place is None:
                continue
            for at, array in array_arguments.arrays_in(place[:1], bound.get(place[0])):
                entry = {**array_arguments.entry(place, array, shape), "type": dtype}
                if at == place and array_arguments.differs(entry, array):
                    return array_arguments.difference({"ranges": ranges}, entry, array, f"the graph of {self.core.name}", self.library, {})
        return None

    def difference(self, core, found):
        before, now = self.assumptions(), _assumptions(found)
        broken = [text for text in before if text not in now]
        sizes = {name: size for name, _, _, size, *_ in core.symbols}
        instead = [text for text in now if text not in before]
        text = f"the graph of {self.core.name} was captured for other arguments"
        bounds = [(was, found[1], found[2], int(found[3])) for was in broken
                  if (found := re.fullmatch(r"(s\d+) (>=|<=) (\d+)", was)) and found[1] in sizes]
        others = [was for was in broken if was not in [bound[0] for bound in bounds]]
        pairs = [(was, f"{name} == {sizes[name]}") for was, name, relation, limit in bounds
                 if not (sizes[name] >= limit if relation == ">=" else sizes[name] <= limit)]
        for was, is_now in pairs + list(zip(others, instead)):
            text += f"\n  it assumes {was}\n  found       {is_now}"
        return text + ("\n  try   framejit.capture with these arguments, or with dynamic_shapes for sizes that change: "
                       "framejit.capture(f, *args, dynamic_shapes=True)")


class Substitution(Edit):
    """Puts `graph` in the place of what `capture` has captured; None: it is to stay, and to be the same."""

    def __init__(self, capture, graph):
        self.capture, self.graph, self.axes = capture, graph, capture.axes

    def __call__(self, core, found):
        if not found["whole"]:
            return None
        # Constants of library calls are not in the graph: what they were taken to be is in the guards.
        if _form(core) != self.capture.form or _values(self.capture.found) - _values(found):
            raise GraphError(self.capture.difference(core, found))
        if self.graph is None:
            return None
        self.graph._core = core  # of the same form: the same numbers of values
        _take_layouts(self.graph, core)
        return to_core(self.graph)[0]


def _assumptions(found):
    texts = {}
    for kind, text, place, *_ in found["guards"]:
        if kind in _WORDED and "__defaults__" not in text:
            shown = place and not place.startswith("<capture of")  # the line that passes arguments on is nobody's
            texts.setdefault(in_words(text) + (f"  ({place.rpartition('/')[2]})" if shown else ""), None)
    return list(texts)


def _values(found):
    return {text for kind, text, *_ in found["guards"] if kind == "Equals"}


def _form(core):
    """A captured graph's text without what may be another at another call: names, places, and what library calls give in memory."""
    text = re.sub(r" +", " ", re.sub(r" +;.*", "", core.text))
    text = re.sub(r", operand_strides = .*\}", "}", text)
    lines = text.split("\n")
    last = max(i for i, line in enumerate(lines) if line.startswith(" return"))
    lines[last] = re.sub(r" strides \[[^]]*\]", "", lines[last])
    names = {}
    return re.sub(r"%(?=\w*[A-Za-z_.])[\w.]+", lambda match: names.setdefault(match[0], f"%in{len(names)}"),
                  "\n".join([lines[0].partition("(")[2], *lines[1:]]))


def _take_layouts(graph, core):
    """What library calls give is predicted, and known when they have run: a later trace knows better."""
    layouts = {row.attrs["handle"]: row.attrs for row in core.nodes if row.op == "extern_call"}
    for node in graph.find(op="extern_call"):
        found = layouts.get(node.attrs["handle"])
        if found is not None:
            for key in ("operand_strides", "result_strides"):
                dict.__setitem__(node.attrs, key, _frozen(found[key]))
    graph._layouts = core.layouts[1]


def signature_of(function):
    try:
        if hasattr(function, "nin") and hasattr(function, "nout"):  # NumPy's ufuncs have parameters that not all may be given
            return inspect.Signature([inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(function.nin)])
        return inspect.signature(function.forward if _is_module(function) else function)
    except (TypeError, ValueError):
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                                  inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])


def _is_module(function):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(function, torch.nn.Module)


def name_of(function):
    name = getattr(function, "__name__", None) or type(function).__name__
    return name if code.is_name(name) else "f"


def _refused(function):
    why = _core.why_eager() or "its code is not compiled (a profiler or a debugger is on, or an operation has no program)"
    return GraphError(f"the graph of {name_of(function)} can't be run here: {why}")


def _face(function, positional, only_compiled=True):
    """A function with the same parameters that passes them on. Its text is made, so that parameters have their own names.

    positional: how many arguments the caller passes by position; the others are passed on by name, because a decorator may look for them
    among its keywords. only_compiled: it raises where CPython runs it. The graph of it is the same without.
    """
    listed = list(signature_of(function).parameters.values())
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in listed):
        positional = len(listed)  # what comes before *args has to be passed by position
    taken = {parameter.name for parameter in listed}
    space, holes = {}, {}
    for name, value in (("captured", function), ("is_compiling", is_compiling), ("refused", _refused)):
        own = name
        while own in taken:
            own = f"_{own}"
        space[own], holes[name] = value, code.name(own)
    call = code.expression("captured()", **holes)
    parameters, defaults, keyword_defaults = [], [], {}
    for i, parameter in enumerate(listed):
        name, has_default = code.name(parameter.name), parameter.default is not parameter.empty
        parameters.append((parameter.name, parameter.kind.name, ast.Constant(...) if has_default else None))
        if has_default and parameter.kind is parameter.KEYWORD_ONLY:
            keyword_defaults[parameter.name] = parameter.default
        elif has_default:
            defaults.append(parameter.default)
        if parameter.kind is parameter.VAR_POSITIONAL:
            call.args.append(ast.Starred(name, ast.Load()))
        elif parameter.kind is parameter.VAR_KEYWORD:
            call.keywords.append(ast.keyword(None, name))
        elif parameter.kind is parameter.KEYWORD_ONLY or parameter.kind is parameter.POSITIONAL_OR_KEYWORD and i >= positional:
            call.keywords.append(ast.keyword(parameter.name, name))
        else:
            call.args.append(name)
    body = [code.statement("if not is_compiling():\n    raise refused(captured)", **holes)] if only_compiled else []
    body.append(code.statement("return call", call=call))
    made = code.definition(name_of(function), code.parameters(parameters), body)
    return code.function(made, space, f"<capture of {made.name}>", defaults, keyword_defaults)


def plain(caller, function):
    """The function under `framejit.compile`."""
    if isinstance(function, _core.CompiledFunction):
        edit = _core.passes_of(function)
        if edit is not None and getattr(edit, "graph", edit) is not None:
            raise GraphError(f"{caller}: {name_of(function)} is compiled with passes or edits of its graph, which a graph of it would "
                             "not have: capture the function itself, and edit that graph")
    compiled = getattr(function, "_framejit_original", None)
    if compiled is not None:
        return compiled
    return function.__wrapped__ if isinstance(function, _core.CompiledFunction) else function


def capture(function, *args, dynamic_shapes=None, level="primitive", **kwargs):
    """The Graph of what `function(*args, **kwargs)` computes on arrays; nothing is computed, and nothing changes.

    function: a function, a method, a torch.nn.Module or another callable object. dynamic_shapes: None, every size is that of these
    arguments; True, every size may be another one in a call, but those that the code decides; else a dict by parameter, or a list by
    argument, of what `mark_dynamic` takes: {"x": {0: Dim("batch")}}, {"x": [0, 1]}; None for an argument whose sizes stay.

    level: "primitive", the graph is of the compiler's operations; "library", of the calls of NumPy and torch that the code makes
    (`torch.nn.functional.linear(x0, x1, x2)`, extern_call nodes whose attribute callee is the call), each with its type, line and module,
    and of operations for what is no call. Such a graph is called, edited and saved as a loaded one (`Graph.load`): of the assumptions,
    a call checks those about arguments. `Graph.lower` makes it a primitive one.

    Both ways of a branch on data are in the graph, as a node "cond", where they return arrays of the same types; a loop whose end data
    decide is a node "loop". What was decided while tracing (sizes, numbers, branches on these) is in `graph.assumptions`, and a call of
    the graph checks it. Raises GraphBreakError, which names the line, where the function can't be one graph; GraphError where a size that
    the dict or list names is decided by the code, and for a function that computes no array.

        graph = framejit.capture(model, x, dynamic_shapes={"x": {0: framejit.Dim("batch")}})
        print(graph)
    """
    if level not in ("primitive", "library"):
        raise TypeError(f"framejit.capture: level is \"primitive\" or \"library\", not {level!r}")
    graph = captured("framejit.capture", function, args, kwargs, dynamic_shapes, level == "library")
    return graph if level == "primitive" else _of_calls(graph)


def captured(caller, function, args, kwargs, dynamic_shapes, noted=False, only_operations=False):
    """The Graph, for `caller`, whose name errors begin with. noted: it has a note of each call of the library.

    only_operations: it calls the library only where no operations say the same, however slow they are.
    """
    function = plain(caller, function)
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{caller} takes a function, a module or another callable object, not {function!r}")
    face = _face(function, len(args))
    axes = dynamic_sizes(caller, function, args, kwargs, dynamic_shapes)
    dynamic = None if axes else dynamic_shapes is True
    graph = _traced(caller, function, face, dynamic, axes, args, kwargs, noted, only_operations)
    for source, axis, *_ in axes:
        _refuse_fixed(caller, graph, source, axis)
    return graph


def _of_calls(graph):
    captured = graph._capture
    graph._saved = Saved(captured.library, signatures.of(captured, graph), signatures.state_of(captured),
                         [node.type for node in graph.outputs], captured.assumptions())
    graph._capture = None
    collapse(graph, captured.found["calls"])
    return graph


def _traced(caller, function, face, dynamic, axes, args, kwargs, noted, only_operations=False):
    def hook(core, found):
        if found["whole"]:
            raise _Found(core, found)

    compiled = compile_with_passes(face, hook, fullgraph=True, dynamic=dynamic, strict=True)
    _core.mark_arguments(compiled, axes)
    if noted:
        _core.record_calls(compiled)
    else:
        _core.join_branches(compiled)
    if only_operations:
        _core.only_operations(compiled)
    try:
        _core.call_traced(compiled, *args, **kwargs)
    except _Found as found:
        core, described = found.args
    except Error as error:
        if str(error).startswith("the graph of") and isinstance(error, GraphError):
            raise GraphError(f"{caller}: {name_of(function)} computes no array, or only views of its arguments"
                             + (f": {_core.why_eager()}" if _core.why_eager() else "")) from None
        raise
    else:
        raise GraphError(f"{caller}: {name_of(function)} computes no array: it has no graph")
    graph = from_core(core)
    graph.name = core.name
    # A graph without inputs is of the library of what it makes, or of the arguments that it shows.
    library = (described["libraries"][0] if described["libraries"] and not described["examples"] else
               "torch" if _has_tensors(described["examples"] or [*args, *kwargs.values()]) else "numpy")
    # The arrays of this call are the caller's.
    described["examples"] = [None if steps is not None and steps[0][0] == "Slot" else example
                             for (_, steps), example in zip(described["inputs"], described["examples"])]
    graph.eliminate_dead_code()
    places = [text for text, _ in described["inputs"]]
    for source, axis, name, *_ in axes:
        size = graph._inputs[places.index(source)].shape[axis] if source in places else None
        if isinstance(size, str) and size.isidentifier() and name:
            graph._size_names.setdefault(size, name)
    graph._capture = Capture(function, face, len(args), dynamic, axes, core, described, library, graph._version,
                             [node.type for node in graph.outputs])
    return graph


def _has_tensors(arrays):
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(x, torch.Tensor) for x in arrays)


def dynamic_sizes(caller, function, args, kwargs, shapes):
    """(source, axis, Dim's name, min, max) of each size that may be another one in a call."""
    if shapes is None or isinstance(shapes, bool):
        return []
    bound = signature_of(function).bind(*args, **kwargs).arguments
    if not isinstance(shapes, dict):
        shapes = dict(zip(bound, shapes))
    found = []
    for name, axes in shapes.items():
        if name not in bound:
            raise GraphError(f"{caller}: dynamic_shapes names {name!r}, and {name_of(function)} is given {', '.join(bound)}")
        _add_axes(caller, found, f"L.{name}", bound[name], axes)
    return found


def _add_axes(caller, found, source, argument, axes):
    """Of one argument: axes as `mark_dynamic` takes them; of a list, tuple or dict of arrays: one such for each."""
    if axes is None:
        return
    if isinstance(argument, dict):
        for key, part in axes.items():
            _add_axes(caller, found, f"{source}[{key!r}]", argument[key], part)
        return
    if isinstance(argument, (list, tuple)):
        for i, part in enumerate(axes):
            _add_axes(caller, found, f"{source}[{i}]", argument[i], part)
        return
    if not hasattr(argument, "shape"):
        raise GraphError(f"{caller}: dynamic_shapes has sizes for {source[2:]}, which is no array but {argument!r}")
    pairs = axes.items() if isinstance(axes, dict) else [(axis, None) for axis in axes]
    for axis, dim in pairs:
        # As `mark_dynamic` checks them; the array itself is not marked.
        dim = Dim(dim) if isinstance(dim, str) else dim
        found += [(source, *mark) for mark in dynamic_axes(caller, argument, [axis if dim is None else {axis: dim}])]


def _refuse_fixed(caller, graph, source, axis):
    """A dynamic size that the code has decided."""
    places = [text for text, _ in graph._capture.found["inputs"]]
    if source not in places:
        return
    node = graph._inputs[places.index(source)]
    size = node.shape[axis]
    if isinstance(size, str):
        return
    why = [text for text in graph.assumptions if re.search(rf"\b{size}\b", text) and "==" in text]
    raise GraphError(f"{caller}: axis {axis} of {node.name} should be dynamic, and the code needs it to be {size}"
                     + "".join(f"\n  it assumes {text}" for text in why[:3]))
