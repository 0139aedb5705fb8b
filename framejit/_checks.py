"""The back ends "verify" and "check_nan": the compiled program, and beside it its operations one by one through the library. Start at `verify`."""
import sys

import numpy as np

from framejit._api import options
from framejit._errors import CheckError
from framejit._graph.nodes import _library_of
from framejit._graph.running import compiled

# Of the largest magnitude of a value: how far two ways of computing it may be apart.
_ALLOWED = {"f16": 1e-2, "bf16": 5e-2, "f32": 1e-4, "f64": 1e-9, "c64": 1e-4, "c128": 1e-9}
_TRY = "  try   backend=\"eager\", which runs the operations; please report it with this graph: graph.save(path) in a back end"


def verify(graph, example_inputs):
    """Raises CheckError where the compiled program gives other results than the graph's operations."""
    run, names = _program(graph, example_inputs), _names(graph)
    if _writes_by_calls(graph):
        return run

    @np.errstate(all="ignore")
    def verified(*arrays):
        found, expected = _both(graph, arrays, run)
        if any(_difference(node.dtype, ours, theirs) for node, ours, theirs in zip(names, found, expected, strict=True)):
            _raise_difference(graph, arrays)
        return found
    return verified


def check_nan(graph, example_inputs):
    """Raises CheckError where a result has a NaN and nothing that was given has one; the text names the first operation that makes one."""
    run = _program(graph, example_inputs)

    @np.errstate(all="ignore")
    def checked(*arrays):
        given = any(_has_nan(array) for array in arrays[:len(graph.inputs)])
        found = run(*arrays)
        if not given and any(_has_nan(array) for array in found) and not _writes_by_calls(graph):
            _raise_nan(graph, arrays)
        return found
    return checked


def _names(graph):
    return [*graph.outputs, *(value for _, value in graph.writes)]


def _program(graph, arrays):
    """The compiled program, as a function of the graph's inputs that returns outputs and written values."""
    copy = graph.copy()
    copy._capture = copy._saved = None
    return _without_checks(compiled(copy, backend="auto", library=_library_of(arrays)))


def _without_checks(run):
    """As it runs outside of a block of options that asks for a check of all programs."""
    def program(*arrays):
        with options(backend="auto"):
            return run(*arrays)
    return program


def _writes_by_calls(graph):
    """Whether library calls change their operands: they may not be made twice."""
    return any(node.op == "extern_call" and " writes " in node.attrs["callee"] for node in graph)


def _both(graph, arrays, run):
    """What the program and the operations give, which draw the same random numbers."""
    before = _random_states()
    found = run(*arrays)
    after = _random_states()
    _set_random_states(before)
    try:
        return found, graph.run(*arrays)
    finally:
        _set_random_states(after)


def _random_states():
    torch = sys.modules.get("torch")
    return np.random.get_state(), None if torch is None else torch.get_rng_state()


def _set_random_states(states):
    np.random.set_state(states[0])
    if states[1] is not None:
        sys.modules["torch"].set_rng_state(states[1])


def _of_all_values(graph):
    """The graph with each value as an output, and these."""
    copy = graph.copy()
    copy._capture = copy._saved = None
    copy._writes = {}
    nodes = list(copy)
    copy.set_outputs(*nodes)
    return copy, nodes


def _raise_difference(graph, arrays):
    whole, nodes = _of_all_values(graph)
    found, expected = _both(whole, arrays, _without_checks(compiled(whole, backend="auto", library=_library_of(arrays))))
    shown = list(graph)
    for node, ours, theirs in zip(shown, found, expected, strict=True):
        place = _difference(node.dtype, ours, theirs)
        if place:
            told = _told(graph, node, place, ours, theirs, arrays, expected)
            raise CheckError(f"{_title(graph)} differs from its operations, first in\n{told}\n{_TRY}")
    for node, ours, theirs in zip(_names(graph), *_both(graph, arrays, _program(graph, arrays)), strict=True):
        place = _difference(node.dtype, ours, theirs)
        if place:
            told = _told(graph, node, place, ours, theirs, arrays, expected)
            raise CheckError(f"{_title(graph)} differs from its operations in a result, and not where each value is kept (fusion)\n{told}\n{_TRY}")


def _raise_nan(graph, arrays):
    whole, _ = _of_all_values(graph)
    values = whole.run(*arrays)
    for node, value in zip(graph, values, strict=True):
        if _has_nan(value):
            place = tuple(int(i) for i in np.argwhere(np.isnan(_plain(value)))[0])
            raise CheckError(f"{_title(graph)} makes a NaN, and nothing it was given has one; the first is in\n"
                             f"{_told(graph, node, place, value, None, arrays, values)}")


def _title(graph):
    return f"framejit: the compiled program of {graph.name}"


def _told(graph, node, place, ours, theirs, arrays, values):
    """An operation, the user's line, an element and its operands."""
    where = f"{node.file}:{node.line}" if node.line else "no known line"
    lines = [f"  {node}", f"  at {where}" + (f" ({node.module})" if node.module else "")]
    element = f"[{', '.join(map(str, place))}]" if place else "the number"
    lines.append(f"  {element} is {_number(ours, place)}" + (f"; by the library {_number(theirs, place)}" if theirs is not None else ""))
    known = dict(zip(graph.inputs, arrays)) | dict(zip(graph, values))
    for operand in dict.fromkeys(node.operands):
        value = _plain(known[operand])
        at = f" there {_number(value, place)}" if value.shape == _plain(ours).shape else ""
        finite = value[np.isfinite(value)] if value.size else value
        spread = f", from {finite.min():.6g} to {finite.max():.6g}" if finite.size and value.dtype.kind in "fiu" else ""
        lines.append(f"  of %{operand.name}:{at}{spread}")
    return "\n".join(lines)


def _number(array, place):
    return repr(_plain(array)[place].item())


def _plain(array):
    """As an array of NumPy, halves of torch as f32."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.detach().cpu().resolve_conj().resolve_neg()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    return np.asarray(array)


def _has_nan(array):
    value = _plain(array)
    return value.dtype.kind in "fc" and bool(np.isnan(value).any())


def _difference(dtype, ours, theirs):
    """Where the two are further apart than they may be, the first such index; None: nowhere."""
    ours, theirs = _plain(ours), _plain(theirs)
    if ours.shape != theirs.shape:
        return _Place(())
    with np.errstate(all="ignore"):
        if ours.dtype.kind not in "fc":
            wrong = ours != theirs
        else:
            finite = theirs[np.isfinite(theirs)]
            allowed = _ALLOWED[dtype] * (float(np.abs(finite).max()) if finite.size else 0.0)
            same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
            wrong = ~(same | (np.abs(ours - theirs) <= allowed))
    return _Place(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else None


class _Place(tuple):
    """An index, which is true even if it is that of a number."""

    def __bool__(self):
        return True
