"""How a captured graph is called, without the function it was captured from: parameters, where inputs are found in the arguments, what the
arguments were taken to be, and how results are made of the graph's outputs.

A Signature is plain data (`data`), so that it can be saved, and becomes a function by being written as Python (`face`). What can't be said
in it makes `of` raise a GraphError: the graph can be run in this process, not saved.
"""
import inspect
import keyword
import math
import re
import sys

from framejit._api import disable
from framejit._errors import GraphError
from framejit._graph.names import in_words

_STEPS = ("DictItem", "ListItem", "TupleItem", "Attribute", "SlotMember")
_TYPES = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple, "dict": dict}
_PARAMETER_KINDS = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD")


class Saved:
    """What a graph without its function has beside its operations. state: by input's number, its array. results: types of its outputs."""

    def __init__(self, library, signature, state, results, assumptions=()):
        self.library, self.signature, self.state, self.results, self.assumptions = library, signature, state, results, assumptions


def _is_plain(value):
    """What JSON gives back as it was, more or less: see `_data`."""
    return value is None or type(value) in (bool, int, float, str) or type(value) is tuple and all(map(_is_plain, value))


def _data(value):
    return {"tuple": [_data(x) for x in value]} if type(value) is tuple else value


def _value(data):
    """The constant, as Python text. GraphError for anything else than what `_data` makes."""
    if isinstance(data, dict) and list(data) == ["tuple"] and isinstance(data["tuple"], list):
        items = [_value(x) for x in data["tuple"]]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if type(data) is float:
        return repr(data) if data == data and abs(data) != float("inf") else f"float({str(data)!r})"
    if data is None or type(data) in (bool, int, str):
        return repr(data)
    raise GraphError("a constant of the signature is none")


def constant(data):
    """The constant that `_data` has made this of."""
    return tuple(map(constant, data["tuple"])) if isinstance(data, dict) else data


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


def _expression(path):
    if not (isinstance(path, list) and path and isinstance(path[0], str) and _is_name(path[0])):
        raise GraphError("an argument of the signature has no name")
    text = path[0]
    for step in path[1:]:
        kind, at = step
        if kind == "attribute" and isinstance(at, str) and _is_name(at):
            text += f".{at}"
        elif kind == "item" and type(at) in (int, str, bool):
            text += f"[{at!r}]"
        else:
            raise GraphError("an argument of the signature has no place")
    return text


def _is_name(text):
    return text.isidentifier() and not keyword.iskeyword(text)


def of(capture, names):
    """The signature of a captured graph. names: of its inputs."""
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
    for name, (text, steps) in zip(names, found["inputs"]):
        if steps is None:
            raise refused(f"its input {text} is found by a value")
        if steps[0][0] == "Slot":
            path = place_of(steps)
            if path is None:
                raise refused(f"its input {text} is in an argument that is no array, tuple, list or dict")
            inputs.append({"argument": path})
        else:
            inputs.append({"state": name})
    conditions, integers = [], {}
    places = {source[0]: place_of(source[1]) for source in [*found["inputs"], *(guard[3] for guard in found["guards"] if guard[3])]
              if source[1] is not None and source[1][0][0] == "Slot"}
    for kind, text, place, source, value, number, symbol in found["guards"]:
        if kind == "Relation":
            conditions.append({"sizes": text})
        elif source is not None and kind in ("SameObject", "NotSame"):
            conditions.extend(_same(kind, text, places))
        elif source is not None and source[0] in places and kind not in ("Array", "NoOverlap", "TypeVersion"):
            condition = _condition(kind, value, number)
            if kind == "TypeIs" and condition is None or kind in ("HasKey", "LacksKey") and places[source[0]] is None:
                continue  # an object of a class: only its attributes count
            if places[source[0]] is None or (condition is None and kind != "IntSymbol"):
                raise refused(f"it assumes {in_words(text)}, which is said of no array, number, text, dtype, tuple, list or dict")
            if kind == "IntSymbol":
                integers[str(symbol)] = places[source[0]]
                condition = {"type": "int"}
            conditions.append({"argument": places[source[0]], **condition})
    return {"function": function, "parameters": parameters, "inputs": inputs, "conditions": conditions, "integers": integers,
            "result": _result(found["recipe"], found["inputs"], inputs, capture, refused)}


def _condition(kind, value, number):
    """What an argument must be, as data; None: it can't be said."""
    if kind == "Equals" and _is_plain(value):
        return {"equals": _data(value)}
    if kind == "Differs" and _is_plain(value):
        return {"differs": _data(value)}
    if kind == "Length":
        return {"length": number}
    if kind == "TypeIs" and getattr(value, "__name__", None) in _TYPES:
        return {"type": value.__name__}
    if kind == "DictKeys" and all(type(key) in (int, str, bool) for key in value):
        return {"keys": list(value)}
    if kind in ("HasKey", "LacksKey") and type(value) in (int, str, bool):
        return {"has" if kind == "HasKey" else "lacks": value}
    if kind == "Identity":
        return next(({"is": name} for name in (str(value), f"numpy.{getattr(value, '__name__', '')}") if _dtype(name) is value), None)
    return None


def _same(kind, text, places):
    """That two arguments are one object, or not."""
    one, _, others = text.partition(" is not " if kind == "NotSame" else " is ")
    for other in others.split(", "):
        if places.get(one) is not None and places.get(other) is not None:
            yield {"argument": places[one], "same" if kind == "SameObject" else "apart": places[other]}


def _dtype(name):
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
    if "view" in result:
        _refuse_in(result["view"], refused)


# ---- from data to a function

_RELATION = re.compile(r"[s0-9*+\- ()]+ (?:<|<=|==|!=|>|>=) [s0-9*+\- ()]+")
_SIZE = re.compile(r"[s0-9*+\- ()]+")


def _size(data):
    if type(data) is int or isinstance(data, str) and _SIZE.fullmatch(data):
        return str(data)
    raise GraphError("a size of the signature is none")


class _Writer:
    def __init__(self, signature, core, library):
        self.signature, self.core, self.library = signature, core, library
        self.lines, self.constants = [], {}

    def text(self):
        signature, core = self.signature, self.core
        parameters, star, positional_only = [], False, False
        names = set()
        for entry in signature["parameters"]:
            name, kind = entry["name"], entry["kind"]
            if not _is_name(name) or kind not in _PARAMETER_KINDS or name in names:
                raise GraphError("a parameter of the signature is none")
            names.add(name)
            if positional_only and kind != "POSITIONAL_ONLY":
                parameters.append("/")
            positional_only = kind == "POSITIONAL_ONLY"
            if kind == "KEYWORD_ONLY" and not star:
                parameters.append("*")
            star = star or kind in ("KEYWORD_ONLY", "VAR_POSITIONAL")
            text = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(kind, "") + name
            if "default" in entry:
                default = entry["default"]
                text += "=_missing" if isinstance(default, dict) and "unknown" in default else f"={_value(default)}"
            parameters.append(text)
        if positional_only:
            parameters.append("/")
        for name in self.without_default():
            self.line(f"if {name} is _missing:")
            self.line(f"    raise GraphError('the graph of {self.core.name} was saved without the default of {name}: give it')")
        for condition in signature["conditions"]:
            if "sizes" not in condition:
                self.condition(condition)
        self.program()
        inputs, shapes = [], {}
        if len(signature["inputs"]) != len(core.inputs):
            raise GraphError("the signature has other inputs than the graph")
        for number, (entry, (_, name, dtype, shape)) in enumerate(zip(signature["inputs"], core.inputs)):
            if "argument" in entry:
                self.line(f"_x{number} = {_expression(entry['argument'])}")
            else:
                self.line(f"_x{number} = _state[{number}]")
            inputs.append(f"_x{number}")
            for axis, size in enumerate(shape):
                if isinstance(size, str) and re.fullmatch(r"s\d+", size):
                    shapes.setdefault(size, f"_x{number}.shape[{axis}]")
        for number in core.integers:
            path = signature["integers"].get(str(number))
            if path is None:
                raise GraphError(f"the graph needs the number s{number}, which is no argument")
            shapes.setdefault(f"s{number}", _expression(path))
            inputs.append(f"s{number}")
        for size, expression in shapes.items():
            self.line(f"{size} = {expression}")
        for symbol, dividend, divisor, remainder in core.definitions:
            if set(re.findall(r"s\d+", f"{dividend} {divisor}")) <= set(shapes):
                self.line(f"s{symbol} = ({dividend}) {'%' if remainder else '//'} ({divisor})")
                shapes[f"s{symbol}"] = ""
        for condition in signature["conditions"]:
            if "sizes" in condition and isinstance(condition["sizes"], str) and _RELATION.fullmatch(condition["sizes"]):
                if set(re.findall(r"s\d+", condition["sizes"])) <= set(shapes):
                    self.refuse(f"not ({condition['sizes']})", condition["sizes"])
            elif "sizes" in condition:
                raise GraphError("a condition of the signature is none")
        for number in sorted(_shown(signature["result"])):
            self.layout(number)
        given = [i for i, entry in enumerate(signature["inputs"]) if "argument" in entry]
        for number, _ in core.writes:
            others = [f"_x{i}" for i in given if i != number]
            if number in given and others:  # the graph reads what was there before
                self.line(f"_apart({core.name!r}, _x{number}, {', '.join(others)})")
        self.line(f"_results = _body({', '.join(inputs)})")
        outputs = len(core.outputs)
        result = self.result(signature["result"], outputs)
        self.line(f"_returned = {result}")
        for i, (number, _) in enumerate(core.writes):
            value = f"_results[{outputs + i}]"
            self.line(f"_x{number}.copy_({value}.detach())" if self.library == "torch" else f"_x{number}[...] = {value}")
        self.line("return _returned")
        name = signature["function"]
        name = name if isinstance(name, str) and _is_name(name) else "f"
        return f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in self.lines), name

    def program(self):
        """What an exported program asks of arrays."""
        program = self.signature.get("program")
        if program is None:
            return
        from framejit._export import arguments

        arguments.check(program)
        for test, error in arguments.tests(program, self.library, _expression):
            self.line(f"if {test}:")
            self.line(f"    raise {error}")
        self.constants.update(arguments.names(program, self.core.name, self.library))

    def layout(self, number):
        """A result shows an input's memory, and where its elements lie there depends on where the input's do."""
        wanted = self.core.layouts[0][number] if 0 <= number < len(self.core.inputs) else None
        if wanted is None:
            return
        _, name, _, shape = self.core.inputs[number]
        x, sizes = f"_x{number}", [_size(stride) for stride in wanted]
        strides = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        found = f"{x}.stride()" if self.library == "torch" else f"tuple([stride // {x}.itemsize for stride in {x}.strides])"
        test = f"{found} != {strides}"
        if list(wanted) == _row_major(shape):  # where a size is 1, the stride is any
            test = f"not {x}.is_contiguous()" if self.library == "torch" else f"not {x}.flags.c_contiguous"
        message = (f"the graph of {self.core.name} returns a view of {name.rpartition('L.')[2]}, "
                   f"and was captured with its strides ({', '.join(sizes)}), not ")
        self.line(f"if {test}:")
        self.line(f"    raise GraphError({message!r} + str({found}))")

    def line(self, text):
        self.lines.append(text)

    def without_default(self):
        """The parameters that the graph needs, and whose defaults are not in the file."""
        used = {entry["argument"][0] for entry in (*self.signature["inputs"], *self.signature["conditions"]) if "argument" in entry}
        return [entry["name"] for entry in self.signature["parameters"]
                if isinstance(entry.get("default"), dict) and "unknown" in entry["default"] and entry["name"] in used]

    def condition(self, condition):
        place = _expression(condition["argument"])
        kind = next((kind for kind in condition if kind != "argument"), None)
        wanted = condition.get(kind)
        if kind == "length" and type(wanted) is int:
            self.refuse(f"len({place}) != {wanted}", f"len({place}) == {wanted}", f"len({place})")
        elif kind == "equals":
            self.refuse(self.differs(place, wanted), f"{place} == {_value(wanted)}", place)
        elif kind == "differs":
            self.refuse(f"{place} == {_value(wanted)}", f"{place} != {_value(wanted)}", place)
        elif kind == "type" and wanted in _TYPES:
            self.refuse(f"type({place}) is not {wanted}", f"type({place}) is {wanted}", f"type({place})")
        elif kind == "keys" and isinstance(wanted, list):
            keys = ", ".join(map(_value, wanted))
            self.refuse(f"list({place}) != [{keys}]", f"list({place}) == [{keys}]", f"list({place})")
        elif kind in ("has", "lacks") and type(wanted) in (int, str, bool):
            test = "not in" if kind == "lacks" else "in"
            self.refuse(f"not ({wanted!r} {test} {place})", f"{wanted!r} {test} {place}", f"list({place})")
        elif kind in ("same", "apart"):
            test = "is" if kind == "same" else "is not"
            other = _expression(wanted)
            self.refuse(f"not ({place} {test} {other})", f"{place} {test} {other}")
        elif kind == "is" and isinstance(wanted, str) and _dtype(wanted) is not None:
            name = "_" + wanted.replace(".", "_")
            self.constants[name] = _dtype(wanted)
            self.refuse(f"{place} is not {name}", f"{place} is {wanted}", place)
        else:
            raise GraphError("a condition of the signature is none")

    def differs(self, place, data):
        """A number of another type is another one: it may make results of another dtype."""
        text = _value(data)
        if text in ("None", "True", "False"):
            return f"{place} is not {text}"
        kind = "tuple" if isinstance(data, dict) else type(data).__name__
        if isinstance(data, dict):
            items = [self.differs(f"{place}[{i}]", item) for i, item in enumerate(data["tuple"])]
            return " or ".join([f"type({place}) is not tuple", f"len({place}) != {len(items)}", *items])
        if data != data:
            return f"type({place}) is not float or {place} == {place}"
        sign = f" or _sign(1.0, {place}) != {math.copysign(1.0, data)}" if kind == "float" and data == 0 else ""
        return f"type({place}) is not {kind} or {place} != {text}{sign}"

    def refuse(self, test, assumed, found=None):
        message = f"the graph of {self.core.name} was captured with {assumed}"
        self.line(f"if {test}:")
        self.line(f"    raise GraphError({message!r})" if found is None else f"    raise GraphError({message + ', not '!r} + repr({found}))")

    def result(self, data, outputs, depth=0):
        if not isinstance(data, dict) or depth > 50:
            raise GraphError("the signature's result is none")

        def parts(items):
            return [self.result(item, outputs, depth + 1) for item in items]

        def output(number):
            if type(number) is not int or not 0 <= number < outputs:
                raise GraphError("the signature's result has an output that the graph has not")
            return f"_results[{number}]"

        if "output" in data:
            return output(data["output"])
        if "scalar" in data:
            return output(data["scalar"]) + "[()]"
        if "number" in data:
            return output(data["number"]) + ".item()"
        if "input" in data and type(data["input"]) is int and 0 <= data["input"] < len(self.core.inputs):
            return f"_x{data['input']}"
        if "argument" in data:
            return _expression(data["argument"])
        if "constant" in data:
            return _value(data["constant"])
        if "int" in data:
            return _size(data["int"])
        if "view" in data:
            sizes = [f"({', '.join(map(_size, data[key]))}{',' if len(data[key]) == 1 else ''})" for key in ("shape", "strides")]
            return f"_view({self.result(data['view'], outputs, depth + 1)}, {sizes[0]}, {sizes[1]}, {_size(data['offset'])})"
        if "tuple" in data:
            items = parts(data["tuple"])
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if "list" in data:
            return f"[{', '.join(parts(data['list']))}]"
        if "dict" in data and len(data["dict"]) % 2 == 0:
            items = parts(data["dict"])
            return "{" + ", ".join(f"{key}: {value}" for key, value in zip(items[::2], items[1::2])) + "}"
        raise GraphError("the signature's result is none")


def _shown(result):
    """The numbers of the inputs whose memory a result shows by a view."""
    if not isinstance(result, dict):
        return set()
    if "view" in result:
        viewed = result["view"]
        return {viewed["input"]} if isinstance(viewed, dict) and type(viewed.get("input")) is int else _shown(viewed)
    parts = next((result[kind] for kind in ("tuple", "list", "dict") if isinstance(result.get(kind), list)), [])
    return {number for part in parts for number in _shown(part)}


def _row_major(shape):
    """The strides of an array without gaps; None: they are no numbers."""
    strides, size = [], 1
    for length in reversed(shape):
        strides.insert(0, size)
        size = size * length if type(size) is int and type(length) is int else None
    return None if None in strides else strides


def _view_of_torch(x, shape, strides, offset):
    return x.as_strided(shape, strides, x.storage_offset() + offset)


def _view_of_numpy(x, shape, strides, offset):
    import numpy

    if offset:  # the second of two elements that are this far apart
        x = numpy.lib.stride_tricks.as_strided(x, (2,), (offset * x.itemsize,))[1:]
    return numpy.lib.stride_tricks.as_strided(x, shape, tuple(size * x.itemsize for size in strides))


@disable
def _apart(name, written, *others):
    """Refuses to write into memory that another argument may show."""
    low, high = _extent(written)
    for other in others:
        first, last = _extent(other)
        if first < high and low < last:
            raise GraphError(f"the graph of {name} writes into an argument, and another argument shows the same memory; it was captured "
                             "with arrays that are apart")


def _extent(array):
    """(address of the first byte, one behind the last)."""
    if hasattr(array, "data_ptr"):
        size, start, strides = array.element_size(), array.data_ptr(), [x * array.element_size() for x in array.stride()]
    else:
        size, start, strides = array.itemsize, array.__array_interface__["data"][0], array.strides
    if 0 in array.shape:
        return start, start
    reach = [(length - 1) * stride for length, stride in zip(array.shape, strides)]
    return start + sum(min(x, 0) for x in reach), start + sum(max(x, 0) for x in reach) + size


class _Missing:
    def __repr__(self):
        return "a default that was not saved"


def face(signature, core, library, body, state):
    """The function with the signature that runs `body`, a function of the graph's inputs. state: by input, its array, or None."""
    writer = _Writer(signature, core, library)
    text, name = writer.text()
    # The body's own names: guards on one function's globals are the cheapest.
    space = {} if body is None else body.__globals__
    space.update(writer.constants)
    space.update(_apart=_apart, _sign=math.copysign, _body=body, _state=state, GraphError=GraphError, _missing=_Missing(),
                 _view=_view_of_torch if library == "torch" else _view_of_numpy)
    exec(compile(text, f"<graph of {name}>", "exec"), space)
    return space[name]


def on_any_device(signature):
    """The signature of a program whose arrays may be moved."""
    return {**signature, "program": {**signature["program"], "on_device": False}}


def check_results(graph):
    """The signature makes the result of the outputs there were: of other ones it would make something else."""
    wanted = (graph._capture or graph._saved).results
    found = [node.type for node in graph.outputs]
    if found != wanted:
        raise GraphError(f"it returns {', '.join(map(str, found)) or 'no array'}, and its function {', '.join(map(str, wanted)) or 'none'}")


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
