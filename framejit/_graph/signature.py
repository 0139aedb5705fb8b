"""How a captured graph is called, without the function it was captured from: parameters, where inputs are found in the arguments, what the
arguments were taken to be, and how results are made of the graph's outputs.

A signature is plain data, so that it can be saved; face.py makes a function of it. What can't be said in it makes `of` raise a GraphError:
the graph can be run in this process, not saved.
"""
import inspect
import sys

from framejit import _core
from framejit._errors import GraphError
from framejit._graph.calls import library_of
from framejit._graph.names import in_words

_STEPS = ("DictItem", "ListItem", "TupleItem", "Attribute", "SlotMember")
TYPES = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple, "dict": dict}
PARAMETER_KINDS = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD")
MODES = ("is_grad_enabled", "is_inference_mode_enabled")


class Saved:
    """What a graph without its function has beside its operations. state: by input's number, its array. results: types of its outputs."""

    def __init__(self, library, signature, state, results, assumptions=()):
        self.library, self.signature, self.state, self.results, self.assumptions = library, signature, state, results, assumptions


def _is_plain(value):
    """What JSON gives back as it was, more or less: see `_data`."""
    return value is None or type(value) in (bool, int, float, str) or type(value) is tuple and all(map(_is_plain, value))


def _data(value):
    return {"tuple": [_data(x) for x in value]} if type(value) is tuple else value


def constant(data):
    """The constant that `_data` has made this of. GraphError for anything else."""
    if isinstance(data, dict) and list(data) == ["tuple"] and isinstance(data["tuple"], list):
        return tuple(map(constant, data["tuple"]))
    if data is None or type(data) in (bool, int, float, str):
        return data
    raise GraphError("a constant of the signature is none")


def place_of(steps):
    """An argument's place: [name, [kind, key], ...]; None for what is reached in another way."""
    path = [str(steps[0][2])]
    for kind, index, key in steps[1:]:
        if kind not in _STEPS:
            return None
        at = index if kind in ("ListItem", "TupleItem") else key
        if type(at) not in (int, str, bool):
            return None
        path.append(["attribute" if kind in ("Attribute", "SlotMember") else "item", at])
    return path


def of(capture, graph):
    """The signature of a captured graph."""
    found = capture.found
    function = capture.face.__name__

    def refused(what):
        return GraphError(f"the graph of {function} can't be saved: {what}; it can be run in this process")

    parameters = []
    for parameter in inspect.signature(capture.face).parameters.values():
        entry = {"name": parameter.name, "kind": parameter.kind.name}
        if parameter.default is not parameter.empty:
            entry["default"] = _data(parameter.default) if _is_plain(parameter.default) else {"unknown": type(parameter.default).__name__}
        parameters.append(entry)
    inputs = []
    for node, (text, steps) in zip(graph.inputs, found["inputs"]):
        if steps is None:
            raise refused(f"its input {text} is found by a value")
        if steps[0][0] == "Slot":
            path = place_of(steps)
            if path is None:
                raise refused(f"its input {text} is in an argument that is no array, tuple, list or dict")
            inputs.append({"argument": path})
        else:
            inputs.append({"state": node.name})
    read = [text for text, _ in found["inputs"]]
    # Views show elements by their places, which are those of arrays that lie as these did: asked of inputs by `layout`.
    conditions, integers, found_as = [], {}, set(found["lie_as_traced"]) | _viewed(found["recipe"][0]) - set(read)
    places = {source[0]: place_of(source[1]) for source in [*found["inputs"], *(guard[3] for guard in found["guards"] if guard[3])]
              if source[1] is not None and source[1][0][0] == "Slot"}
    for kind, _, _, source, *_, array in found["guards"]:
        if kind == "Array" and source[0] in read and array[0] != capture.library:
            raise refused(f"{in_words(source[0])} is an array of another library than the other arrays")
    if ({"numpy", "torch"} - {capture.library}) & {library_of(node.attrs["callee"]) for node in graph.find(op="extern_call")}:
        raise refused("it calls functions of both libraries")
    leaves = {f"{source[0]}.is_leaf" for asked, source, _ in found["autograd_as_traced"] if asked == "is_leaf" and source is not None}
    for kind, text, place, source, value, number, symbol, array in found["guards"]:
        if kind == "Relation":
            conditions.append({"sizes": text})
        elif kind == "Array" and places.get(source[0]) is not None and (source[0] not in read or source[0] in found_as):
            library, dtype, shape, strides, _ = array
            conditions.append({"argument": places[source[0]], "array": f"{library}.{dtype}", "shape": list(shape),
                               "strides": list(strides) if source[0] in found_as else None})
        elif source is not None and kind in ("SameObject", "NotSame"):
            conditions.extend(_same(kind, text, places))
        elif source is not None and source[0] in places and kind not in ("Array", "NoOverlap", "TypeVersion") and source[0] not in leaves:
            condition = _condition(kind, value, number)
            if kind == "TypeIs" and condition is None or kind in ("HasKey", "LacksKey") and places[source[0]] is None:
                continue  # an object of a class: only its attributes count
            if places[source[0]] is None or (condition is None and kind != "IntSymbol"):
                raise refused(f"it assumes {in_words(text)}, which is said of no array, number, text, dtype, tuple, list or dict")
            if kind == "IntSymbol":
                integers[str(symbol)] = places[source[0]]
                condition = {"type": "int"}
            conditions.append({"argument": places[source[0]], **condition})
    for asked, source, answer in _autograd(found):
        place = None if source is None else places.get(source[0])
        if source is None or place is not None:
            conditions.append({"autograd": asked, "answer": answer, **({} if place is None else {"argument": place})})
    return {"function": function, "parameters": parameters, "inputs": inputs, "conditions": conditions, "integers": integers,
            "result": _result(found["recipe"], found["inputs"], inputs, capture, refused), "laid": list(found["laid_outputs"]),
            "converted": [i for i, library in enumerate(found["libraries"]) if library != capture.library]}


def _autograd(found):
    """(what, source or None of a mode, answer): what the code has asked of autograd. Where it asked what is computed, that is of all arrays;
    where a derivative stops ("stop"), an array that required no gradient must require none."""
    for asked, source, answer in found["autograd_as_traced"]:
        if source is not None or asked in MODES:
            yield asked, source, answer
            continue
        for kind, _, _, source, *_, array in found["guards"]:
            if kind == "Array" and array[0] == "torch" and array[1][0] in "fbc" and array[1] != "bool" and not (asked == "stop" and array[4]):
                yield "requires_grad", source, array[4]


def _viewed(steps):
    """The objects from outside that views of a recipe show."""
    sources = {register: source[0] for name, register, _, source, *_ in steps if name == "source"}
    found = set()
    for name, register, arguments, *_ in steps:
        if name == "view" and arguments[0] in sources:
            sources[register] = sources[arguments[0]]
            found.add(sources[register])
    return found


def _condition(kind, value, number):
    """What an argument must be, as data; None: it can't be said."""
    if kind == "Equals" and _is_plain(value):
        return {"equals": _data(value)}
    if kind == "Differs" and _is_plain(value):
        return {"differs": _data(value)}
    if kind == "Length":
        return {"length": number}
    if kind == "TypeIs" and getattr(value, "__name__", None) in TYPES:
        return {"type": value.__name__}
    if kind == "DictKeys" and all(type(key) in (int, str, bool) for key in value):
        return {"keys": list(value)}
    if kind in ("HasKey", "LacksKey") and type(value) in (int, str, bool):
        return {"has" if kind == "HasKey" else "lacks": value}
    if kind == "Identity":
        return next(({"is": name} for name in (str(value), f"numpy.{getattr(value, '__name__', '')}") if dtype_called(name) is value), None)
    return None


def _same(kind, text, places):
    """That two arguments are one object, or not."""
    one, _, others = text.partition(" is not " if kind == "NotSame" else " is ")
    for other in others.split(", "):
        if places.get(one) is not None and places.get(other) is not None:
            yield {"argument": places[one], "same" if kind == "SameObject" else "apart": places[other]}


def dtype_called(name):
    """The dtype of this name, "torch.float16" or "numpy.float32"; None: it is none."""
    library, _, last = name.partition(".")
    found = getattr(sys.modules.get(library), last, None) if library in ("torch", "numpy") else None
    if library == "torch":
        return found if found is not None and isinstance(found, sys.modules["torch"].dtype) else None
    return found if isinstance(found, type) and issubclass(found, sys.modules["numpy"].generic) else None


def _result(recipe, places, inputs, capture, refused):
    steps, result = recipe
    texts = [text for text, _ in places]
    made, objects, function = {}, {}, capture.function
    dtypes = {}  # by register
    for name, register, arguments, source, value, index, expression, shape, strides, dtype in steps:
        if name == "version" or _sets_what_is_there(register, arguments, value, objects):
            continue
        if name == "source":
            objects[register] = None if source[1] is None else _reached(function, source[1], None)
            if source[0] in texts:
                made[register] = {"input": texts.index(source[0])}
                dtypes[register] = capture.core.inputs[texts.index(source[0])][2]
            else:
                path = place_of(source[1]) if source[1] is not None and source[1][0][0] == "Slot" else None
                made[register] = {"argument": path} if path else {"refused": f"{source[0]}, an object from outside, is part of its result"}
        elif name == "constant":
            objects[register] = value
            made[register] = {"constant": _data(value)} if _is_plain(value) else {"refused": f"{value!r} is part of its result"}
        elif name in ("output", "scalar", "number"):
            made[register], dtypes[register] = {name: index}, capture.results[index].dtype
        elif name == "view" and dtypes.get(arguments[0], dtype) != dtype:
            made[register] = {"refused": f"a view as {dtype} of an array of {dtypes[arguments[0]]} is part of its result"}
        elif name == "view":
            dtypes[register] = dtype
            made[register] = {"view": made[arguments[0]], "shape": list(shape), "strides": list(strides), "offset": expression}
        elif name == "" and detaches(value, arguments):
            made[register] = {"detached": made[arguments[0]]}
        elif name == "int":
            made[register] = {"int": expression}
        elif name in ("tuple", "list"):
            made[register] = {name: [made[x] for x in arguments]}
        elif name == "dict":
            made[register] = {"dict": [made[x] for x in arguments]}
        elif name == "namedtuple" and value.__module__.partition(".")[0] in ("numpy", "torch", "collections"):
            made[register] = {"tuple": [made[x] for x in arguments]}
        else:
            made[register] = {"refused": "it changes an object of Python's, or returns an object of a class"}
            if register < 0 or name == "":
                raise refused(made[register]["refused"])
    if result < 0:
        return {"constant": None}
    _refuse_in(made[result], refused)
    return made[result]


def detaches(value, arguments):
    """Whether a step is `x.detach()`."""
    torch = sys.modules.get("torch")
    return torch is not None and value is torch.Tensor.detach and len(arguments) == 1


def _sets_what_is_there(register, arguments, name, objects):
    """Whether an effect is `object.name = value` of an object from outside that has the value: a context that was entered and left."""
    if register >= 0 or type(name) is not str or len(arguments) != 2:
        return False
    owner, value = (objects.get(x) for x in arguments)
    held = getattr(owner, "__dict__", {})
    return name in held and held[name] is value and _is_plain(value)


def _refuse_in(result, refused):
    if "refused" in result:
        raise refused(result["refused"])
    for part in result.get("tuple") or result.get("list") or result.get("dict") or ():
        _refuse_in(part, refused)
    for kind in ("view", "detached"):
        if kind in result:
            _refuse_in(result[kind], refused)


def place_text(place):
    return place[0] + "".join(f"[{at!r}]" if kind == "item" else f".{at}" for kind, at in place[1:])


def on_any_device(signature):
    """The signature of a program whose arrays may be moved."""
    return {**signature, "program": {**signature["program"], "on_device": False}}


def check_results(graph):
    """The signature makes the result of the outputs there were: of other ones it would make something else."""
    wanted = (graph._capture or graph._saved).results
    found = [node.type for node in graph.outputs]
    if found != wanted:
        raise GraphError(f"it returns {', '.join(map(str, found)) or 'no array'}, and its function {', '.join(map(str, wanted)) or 'none'}")


def refuse_other_arrays(caller, graph):
    """Where arrays are contiguous, whatever those were that the code has looked at the layout of."""
    asked, autograd = [], []
    if graph._capture is not None:
        found = graph._capture.found
        autograd = [(in_words(source[0]), what, answer) for what, source, answer in _autograd(found) if source is not None and source[1][0][0] == "Slot"]
        asked = [(in_words(source[0]), *array[2:4]) for kind, _, _, source, *_, array in found["guards"]
                 if kind == "Array" and source[0] in found["lie_as_traced"]]
    elif graph._saved is not None and graph._saved.signature is not None:
        asked = [(place_text(entry["argument"]), entry["shape"], entry["strides"]) for entry in graph._saved.signature["conditions"]
                 if entry.get("strides") is not None]
        autograd = [(place_text(entry["argument"]), entry["autograd"], entry.get("answer")) for entry in graph._saved.signature["conditions"]
                    if "autograd" in entry and "argument" in entry]
    for shown, shape, strides in asked:
        if list(map(str, strides)) != list(map(str, _core.row_major(list(shape)))):
            raise GraphError(f"{caller}: the code has decided something by how {shown} lies in memory, with strides "
                             f"({', '.join(map(str, strides))}), and arrays are contiguous here: capture with a contiguous array")
    for shown, what, answer in autograd:
        if answer != (what == "is_leaf"):
            raise GraphError(f"{caller}: the code has asked what autograd knows of {shown}, and arrays take no part in it here: capture with "
                             "an ordinary array that requires no gradient")


def state_of(capture):
    """The arrays that are no arguments, by the number of the input: as the function finds them now."""
    return {i: _reached(capture.function, steps, example) if steps is not None and steps[0][0] == "Global" else example
            for i, ((text, steps), example) in enumerate(zip(capture.found["inputs"], capture.found["examples"]))
            if steps is None or steps[0][0] != "Slot"}


def _reached(function, steps, otherwise):
    """What is found by these steps now; `otherwise`, where that can't be told."""
    here = {"Global": function, "Constant": steps[0][2]}.get(steps[0][0])
    if here is None:
        return otherwise
    try:
        for kind, index, key in steps[1:]:
            if kind in ("Attribute", "SlotMember"):
                here = getattr(here, key)
            elif kind == "DictItem":
                here = here[key]
            elif kind in ("ListItem", "TupleItem"):
                here = here[index]
            elif kind == "FunctionGlobals":
                here = here.__globals__
            elif kind == "MethodSelf":
                here = here.__self__
            elif kind == "MethodFunction":
                here = here.__func__
            elif kind == "ClosureCell":
                here = here.__closure__[index]
            elif kind == "Cell":
                here = here.cell_contents
            elif kind == "InstanceDict":
                here = vars(here)
            else:
                return otherwise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return otherwise
    return here
