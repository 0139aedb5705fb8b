"""`ExportedProgram.signature`: what a program takes and returns, made of the data that its file has."""
import inspect
import re

from framejit._export import arguments
from framejit._export.ranges import quotient
from framejit._graph.nodes import ArrayType
from framejit._graph.signature import constant


class Signature:
    """What a program takes and returns.

    parameters: by place ("x", "options['scale']"), the `ArrayType` of each array, whose sizes are ints and names of ranges. values: by
    place, what an argument that is no array must be. results: an ArrayType, or the tuples, lists and dicts that the function returns,
    of ArrayTypes, constants, and texts for sizes and arguments. ranges: by name, (min, max), where None is no bound.
    """

    def __init__(self, graph):
        data = self._data = graph._saved.signature
        self._names = dict(graph._size_names)
        for symbol in graph.symbols:
            if symbol.definition is not None:
                dividend, divisor, remainder = symbol.definition
                self._names[symbol.name] = quotient(self._size(str(dividend)), self._size(str(divisor)), remainder)
        program = data["program"]
        self.parameters = {arguments.place_text(entry["argument"]): arguments.type_of(entry) for entry in program["arguments"]}
        self.values = {arguments.place_text(condition["argument"]): constant(condition["equals"])
                       for condition in data["conditions"] if "equals" in condition}
        self.ranges = {name: tuple(bounds) for name, bounds in program["ranges"].items()}
        self.results = self._result(graph, data["result"])

    @property
    def python_signature(self):
        """An inspect.Signature."""
        made = []
        for entry in self._data["parameters"]:
            default = entry.get("default", inspect.Parameter.empty)
            made.append(inspect.Parameter(entry["name"], getattr(inspect.Parameter, entry["kind"]), default=default))
        return inspect.Signature(made)

    def _size(self, size):
        return re.sub(r"\bs\d+\b", lambda found: self._names.get(found[0], found[0]), size) if isinstance(size, str) else size

    def _type(self, node, shape=None):
        return ArrayType(node.dtype, tuple(map(self._size, node.shape if shape is None else shape)))

    def _result(self, graph, data):
        kind, what = next(iter(data.items()))
        if kind in ("output", "scalar", "number"):
            return self._type(graph.outputs[what])
        if kind == "detached":
            return self._result(graph, what)
        if kind == "input":
            return self._type(graph.inputs[what])
        if kind == "view":
            whole = self._result(graph, what)
            whole = self.parameters[whole] if isinstance(whole, str) else whole
            return ArrayType(whole.dtype, tuple(map(self._size, data["shape"])))
        if kind == "argument":
            return arguments.place_text(what)
        if kind == "int":
            return self._size(what)
        if kind == "constant":
            return constant(what)
        parts = [self._result(graph, part) for part in what]
        return tuple(parts) if kind == "tuple" else parts if kind == "list" else dict(zip(parts[::2], parts[1::2]))

    def __str__(self):
        taken = [f"{place}: {type}" for place, type in self.parameters.items()]
        taken += [f"{place} == {value!r}" for place, value in self.values.items()]
        ranges = [arguments.range_text(name, bounds) for name, bounds in self.ranges.items()]
        return f"{self._data['function']}({', '.join(taken)}) -> {_text(self.results)}" + "".join(f", {text}" for text in ranges)

    __repr__ = __str__


def _text(result):
    if isinstance(result, ArrayType):
        return str(result)
    if isinstance(result, tuple):
        return f"({', '.join(map(_text, result))}{',' if len(result) == 1 else ''})"
    if isinstance(result, list):
        return f"[{', '.join(map(_text, result))}]"
    if isinstance(result, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(value)}" for key, value in result.items()) + "}"
    return repr(result)
