"""What the arrays among a program's arguments must be: as data, as tests in the text of a function, and as the message of what is not so.

An entry is {"argument": place, "type": dtype, "shape": sizes, "device": text}. A place is what signature.py writes: [name, ["item", 0]].
A size is an int, the name of a range, or null where the graph itself says what it must be. `ranges` has the bounds by name: [1, 256], or
[1, null] where there is no upper one.
"""
import ast
import re
import sys

import numpy

from framejit._dim import LARGEST
from framejit._errors import GraphError
from framejit._graph import code
from framejit._graph.dtypes import NAMES, graph_name, library_name
from framejit._graph.nodes import ArrayType
from framejit._graph.face import field
from framejit._graph.signature import place_text

_DEVICE = re.compile(r"[a-z]+(:\d+)?")


def arrays_in(place, value):
    """(place, array) of each array in an argument that is an array or a list, tuple or dict of such."""
    if isinstance(value, dict):
        for key, part in value.items():
            if type(key) in (int, str, bool):
                yield from arrays_in([*place, ["item", key]], part)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from arrays_in([*place, ["item", i]], part)
    elif is_array(value):
        yield place, value


def is_array(value):
    torch = sys.modules.get("torch")
    return isinstance(value, numpy.ndarray) or torch is not None and isinstance(value, torch.Tensor)


def library_of(array):
    return "numpy" if isinstance(array, numpy.ndarray) else "torch"


def entry(place, array, shape):
    device = getattr(array, "device", None)  # an array of NumPy 2 says "cpu"
    return {"argument": place, "type": graph_name(array.dtype), "shape": list(shape), "device": str(device or "cpu")}


def type_of(entry):
    return ArrayType(entry["type"], tuple("?" if size is None else size for size in entry["shape"]))


def bounds(low, high):
    """Of a range, as data."""
    return [low, None if high >= LARGEST else high]


def range_text(name, limits):
    low, high = limits
    return f"{name} from {low} to {high}" if high is not None else f"{name} from {low}"


def check(program):
    """Raises GraphError for data that a damaged or hostile file may have: what is written into the function is known afterwards."""
    entries, ranges = program.get("arguments"), program.get("ranges")
    good = isinstance(entries, list) and isinstance(ranges, dict) and all(
        isinstance(limits, list) and len(limits) == 2 and type(limits[0]) is int and 0 <= limits[0] <= code.LARGEST and
        (limits[1] is None or type(limits[1]) is int and limits[0] <= limits[1] <= code.LARGEST) for limits in ranges.values())
    if not good or not all(isinstance(entry, dict) and entry.get("type") in NAMES and isinstance(entry.get("argument"), list)
                           and isinstance(entry.get("shape"), list) and isinstance(entry.get("device"), str)
                           and _DEVICE.fullmatch(entry["device"]) for entry in entries):
        raise GraphError("the program's arguments are none")
    for size in (size for entry in entries for size in entry["shape"]):
        if not (size is None or type(size) is int and 0 <= size <= code.LARGEST or type(size) is str and size in ranges):
            raise GraphError("a size of the program is none")


def tests(program, library, writer):
    """(test, error) of each entry, as syntax trees: where the test is true, raising the error is right.

    writer: of the function that they are put into. The names they use are those of `names`.
    """
    e = writer.expression
    known = {}
    for number, entry in enumerate(program["arguments"]):
        x = writer.place(entry["argument"])
        found = [e("not isinstance(x, _array)", x=x), e("x.dtype != _dtypes[name]", x=x, name=entry["type"]),
                 e("len(x.shape) != rank", x=x, rank=len(entry["shape"]))]
        before = dict(known)
        for axis, size in enumerate(entry["shape"]):
            here = e("x.shape[axis]", x=x, axis=axis)
            if size in known or type(size) is int:
                found.append(e("here != size", here=here, size=known.get(size, size)))
            elif size is not None:
                known[size] = here
                low, high = program["ranges"][size]
                found.append(e("here < low", here=here, low=low))
                if high is not None:
                    found.append(e("here > high", here=here, high=high))
        if library == "torch" and program.get("on_device", True):
            found.append(e("str(x.device) != device", x=x, device=entry["device"]))
        sizes = ast.Dict(list(map(code.tree, before)), list(before.values()))
        yield code.any_of(found), e("_other(number, x, sizes)", number=number, x=x, sizes=sizes)


def names(program, name, library):
    """What the names in `tests` stand for."""
    module = sys.modules[library] if library == "torch" else numpy

    def other(number, value, sizes):
        return GraphError(difference(program, program["arguments"][number], value, f"the program of {name}", library, sizes))

    used = {entry["type"] for entry in program["arguments"]}
    if library == "torch":
        dtypes = {short: getattr(module, library_name(short), None) for short in used}
    else:
        dtypes = {short: numpy.dtype(library_name(short)) for short in used - {"bf16"}}
    return {"_array": module.Tensor if library == "torch" else numpy.ndarray, "_other": other, "_dtypes": dtypes}


def difference(program, entry, value, title, library, sizes):
    """The text of the GraphError about one argument. sizes: of ranges that arguments before it have decided."""
    wanted = type_of(entry)
    ranges = [range_text(size, program["ranges"][size]) for size in dict.fromkeys(entry["shape"]) if size in program["ranges"]]
    expected, found = ", ".join([str(wanted), *ranges]), shown(value)
    if is_array(value):
        found = str(ArrayType(graph_name(value.dtype), tuple(value.shape)))
        device = str(getattr(value, "device", "cpu"))
        if graph_name(value.dtype) == "?":
            found += f" of the dtype {value.dtype}"
        if library_of(value) != library:
            expected, found = f"{expected}, an array of {library}", f"{found}, an array of {library_of(value)}"
        elif device != entry["device"]:
            expected, found = f"{expected}, on {entry['device']}", f"{found}, on {device}"
        elif graph_name(value.dtype) == entry["type"] and len(value.shape) == len(entry["shape"]):
            found += _unequal(value, entry, sizes)
    return f"{title} was given another argument: {place_text(entry['argument'])}\n  expected  {expected}\n  found     {found}"


def _unequal(value, entry, sizes):
    """That an axis is not what the name of its size is elsewhere."""
    known = dict(sizes)
    for axis, (is_now, size) in enumerate(zip(value.shape, entry["shape"])):
        if size in known and is_now != known[size]:
            return f", and {size} is {known[size]} before axis {axis} of it"
        known[size] = is_now
    return ""


def differs(entry, value):
    """Whether an array is of another type, but for sizes that have names."""
    return (not is_array(value) or graph_name(value.dtype) != entry["type"] or len(value.shape) != len(entry["shape"])
            or any(type(size) is int and size != is_now for size, is_now in zip(entry["shape"], value.shape)))


def shown(value):
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'}, of type {type(value).__name__}"


def missing(signature, arguments):
    """The message about an argument without a part that the program needs; None: it has all. arguments: by parameter."""
    wanted = [(entry["argument"], str(type_of(entry))) for entry in signature["program"]["arguments"]]
    wanted += [(entry["argument"], "an array") for entry in signature["inputs"] if "argument" in entry]
    for place, what in [*wanted, *((place, None) for place in _places(signature))]:
        here = arguments.get(place[0])
        for i, (kind, at) in enumerate(place[1:], 1):
            try:
                here = here[at] if kind == "item" else field(here, at)
            except (TypeError, LookupError, AttributeError, GraphError):
                expected = place_text(place[:i + 1]) + (f": {what}" if what else "")
                return _other(signature, place[:i], expected, here)
        if what == "an array" and not is_array(here):
            return _other(signature, place, what, here)
    return None


def _other(signature, place, expected, found):
    return (f"the program of {signature['function']} was given another argument: {place_text(place)}\n"
            f"  expected  {expected}\n  found     {shown(found)}")


def _places(data):
    """All that a signature says of arguments."""
    if isinstance(data, dict):
        for key, part in data.items():
            if key in ("argument", "same", "apart") and isinstance(part, list):
                yield part
            elif key == "integers":
                yield from part.values()
            else:
                yield from _places(part)
    elif isinstance(data, list):
        for part in data:
            yield from _places(part)
