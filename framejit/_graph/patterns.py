"""Functions put into graphs, and computations found in them: both are captured for the types that values have."""
import contextlib
import inspect
import re
import sys

from framejit import _core
from framejit._errors import Error, GraphError
from framejit._graph import code
from framejit._graph.code import evaluated
from framejit._graph.dtypes import library_name
from framejit._graph.nodes import ArrayType, Graph


def _example(graph, type, library):
    """An array of a type: no memory is touched, as nothing is computed. Sizes that differ between calls are marked."""
    seen = {symbol.name: symbol.seen for symbol in graph._symbols}
    shape = [size if isinstance(size, int) else max(2, evaluated(size, seen)) for size in type.shape]
    if library == "torch":
        torch = sys.modules["torch"]
        made = torch.empty(shape, dtype=getattr(torch, library_name(type.dtype)))
        # Where gradients may flow, what stops them is part of the graph.
        return made.requires_grad_() if _is_derived(graph) and (made.is_floating_point() or made.is_complex()) else made
    import numpy

    if type.dtype == "bf16":
        raise GraphError("NumPy has no bf16: import torch, and give functions of torch")
    return numpy.empty(shape, library_name(type.dtype))


def _is_derived(graph):
    """Whether a gradient may be asked of the graph: not of one captured for tensors that require none."""
    captured = graph._capture
    return graph._has_gradients and (
        captured is None or any(kind == "Array" and "requires_grad" in text for kind, text, *_ in captured.found["guards"]))


def captured_for(graph, function, operands):
    """The graph of a function for arrays of these nodes' types; its sizes are this graph's."""
    return _captured(graph, function, [node._type for node in operands])


def _captured(graph, function, types):
    from framejit._graph.capture import capture

    failures = []
    for library in _libraries(graph, function):
        examples = [_example(graph, type, library) for type in types]
        shapes = [[i for i, size in enumerate(type.shape) if isinstance(size, str)] or None for type in types]
        parameters = {f"x{i}": axes for i, axes in enumerate(shapes) if axes}
        names = [f"x{i}" for i in range(len(types))]
        body = code.function(code.calling("part", "function", names), {"function": function}, "<part>")
        try:
            with _gradients(library):
                part = capture(body, *examples, dynamic_shapes=parameters or None)
        except (Error, TypeError, AttributeError) as error:
            failures.append(error)
            continue
        return _with_sizes_of(graph, part, types, names)
    name = getattr(function, "__name__", function)
    raise GraphError(f"{name} can't be captured for {', '.join(map(str, types))}: {failures[0]}") from failures[0]


def _gradients(library):
    return sys.modules["torch"].enable_grad() if library == "torch" else contextlib.nullcontext()


def _libraries(graph, function):
    torch = sys.modules.get("torch")
    first = graph._library()
    module = getattr(function, "__module__", "") or ""
    if module.startswith("torch"):
        first = "torch"
    elif module.startswith("numpy"):
        first = "numpy"
    return [first] + [other for other in ("torch", "numpy") if other != first and (other == "numpy" or torch is not None)]


def _with_sizes_of(graph, part, types, names):
    """The part with its inputs in the order of the parameters, and its symbols written as sizes of `graph`."""
    if any(not composite.operands for composite in part._composites):
        raise GraphError(f"{part.name} stops gradients (detach, no_grad), which would flow through a copy of it")
    by_name = {node.name: node for node in part._inputs}
    sizes = {}
    made = Graph(part.name)
    made._symbols = list(graph._symbols)
    copies = {}
    for name, type in zip(names, types):
        node = made.add_input(name, *type)
        own = by_name.pop(name, None)
        if own is None:
            continue
        copies[own] = node
        for found, wanted in zip(own.shape, type.shape):
            if isinstance(found, str) and re.fullmatch(r"s\d+", found):
                if sizes.setdefault(found, wanted) != wanted:
                    raise GraphError(f"{part.name} needs sizes to be equal that are {sizes[found]} and {wanted}")
            elif found != wanted:
                raise GraphError(f"{part.name} decides that the size {wanted} is {found}")
    if by_name:
        raise GraphError(f"{part.name} uses arrays that it is not given: {', '.join(by_name)}")
    unknown = {symbol.name for symbol in part._symbols} - set(sizes)
    if any(symbol.definition is None for symbol in part._symbols if symbol.name in unknown) and _uses(part, unknown):
        raise GraphError(f"{part.name} computes sizes of its own")

    def size(x):
        if not isinstance(x, str):
            return x
        return _core.normal_size(re.sub(r"s\d+", lambda match: f"({sizes[match[0]]})", x))

    for node in part:
        attrs = {key: size(value) if isinstance(value, str) and key == "value" else [size(x) for x in value]
                 if isinstance(value, (list, tuple)) else value for key, value in node._attrs.items()}
        if node._bodies:
            raise GraphError(f"{part.name} branches, or loops, on data, which can't be put into a graph")
        if node._op == "extern_call":
            raise GraphError(f"{part.name} calls the array library ({attrs['callee']}), which can't be put into a graph")
        copy = copies[node] = made.add(node._op, *(copies[x] for x in node._operands), **attrs)
        copy.file, copy.line, copy.module = node.file, node.line, node.module
    made.set_outputs(*(copies[x] for x in part._outputs))
    return made


def lowered(graph):
    from framejit._graph.capture import capture

    library = graph._library()
    examples = [_example(graph, node._type, library) for node in graph._inputs]
    shapes = [[axis for axis, size in enumerate(node.shape) if isinstance(size, str)] for node in graph._inputs]
    return capture(graph.function(library), *examples, dynamic_shapes=[axes or None for axes in shapes])


def _uses(part, symbols):
    return any(name in str(node._type) + str(dict(node._attrs)) for node in part._all() for name in symbols)


def _matched(pattern, root, exact):
    """The values that stand for the pattern's inputs, if `root` is computed as its result is. exact: with all attributes and types."""
    found = {}

    def match(expected, node):
        if expected in found:
            return found[expected] is node
        if expected.is_input:
            if exact and expected._type != node._type:
                return False
            found[expected] = node
            return True
        if expected._op != node._op or len(expected._operands) != len(node._operands):
            return False
        if exact and (expected._type != node._type or repr(expected._attrs) != repr(node._attrs)):
            return False
        found[expected] = node
        return all(match(a, b) for a, b in zip(expected._operands, node._operands))

    if not match(pattern._outputs[0], root):
        return None
    return [found.get(node) for node in pattern._inputs]


def replace_pattern(graph, pattern, replacement, examples=None):
    count = len(examples) if examples is not None else _arguments_of(pattern)
    captured, replaced, refused = {}, 0, set()

    def of(function, types):
        key = function, types
        if key not in captured:
            captured[key] = _captured(graph, function, list(types))
        return captured[key]

    for root in graph.nodes:
        if root.graph is None or root._op in ("extern_call", "result"):
            continue
        types = tuple(ArrayType(*x) for x in examples) if examples is not None else (root._type,) * count
        if types in refused:
            continue
        try:
            form = of(pattern, types)
        except GraphError:
            refused.add(types)  # the pattern means nothing for arrays of this type
            continue
        if len(form._outputs) != 1 or form._outputs[0].is_input:
            raise GraphError(f"a pattern computes one array, and {getattr(pattern, '__name__', pattern)} gives {len(form._outputs)}")
        if form._outputs[0]._op != root._op:
            continue
        operands = _matched(form, root, exact=False)
        if operands is None or any(x is None for x in operands):
            continue
        try:
            form = of(pattern, tuple(x._type for x in operands))
        except GraphError:
            continue
        operands = _matched(form, root, exact=True)
        if operands is None or any(x is None for x in operands):
            continue
        part = of(replacement, tuple(x._type for x in operands))
        if len(part._outputs) != 1 or part._outputs[0]._type != root._type:
            given = ", ".join(str(x._type) for x in part._outputs)
            raise GraphError(f"the replacement gives {given} in the place of {root}, which is {root._type}")
        result = graph.insert(part, operands, before=root)[0]
        for node in _between(result, operands):
            node.file, node.line, node.module = root.file, root.line, root.module
        root.replace_uses(result)
        replaced += 1
    graph.eliminate_dead_code()
    return replaced


def _between(result, operands):
    waiting, seen = [result], set(operands)
    while waiting:
        node = waiting.pop()
        if node not in seen and not node.is_input:
            seen.add(node)
            yield node
            waiting.extend(node._operands)


def _arguments_of(pattern):
    """How many arrays it takes: its parameters without a default. One, of a function of C that does not say."""
    if hasattr(pattern, "nin"):  # NumPy's ufuncs
        return pattern.nin
    try:
        parameters = inspect.signature(pattern).parameters.values()
    except (ValueError, TypeError):
        return 1
    return sum(1 for x in parameters if x.default is x.empty and x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD))
