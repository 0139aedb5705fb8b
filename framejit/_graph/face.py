"""The function of a saved graph, made of its signature (signature.py).

It is written as a syntax tree (code.py), of which a file's data are constants, parameters, places in them and sizes: nothing of a file is
looked up, executed or followed.
"""
import ast
import builtins
import math
import re
import sys
import types

from framejit import _core
from framejit._api import disable
from framejit._errors import GraphError
from framejit._export import ranges
from framejit._graph import code
from framejit._graph.dtypes import NAMES, library_name
from framejit._graph.signature import MODES, PARAMETER_KINDS, TYPES, constant, dtype_called, place_text

_AUTOGRAD = {"requires_grad": "x.requires_grad", "is_leaf": "x.is_leaf", "is_inference": "x.is_inference()"}

# What the function's text calls, beside its parameters, sizes and inputs: another name where a parameter has this one.
_OWN = ("len", "type", "isinstance", "hasattr", "str", "repr", "list", "tuple", *TYPES, "GraphError", "_apart", "_sign", "_body", "_state",
        "_missing", "_view", "_laid", "_field", "_inside", "_array", "_other", "_dtypes", "_results", "_returned", "_elsewise", "_numpy", "_torch", "_converted", "_detached", *(f"_{mode}" for mode in MODES))
_SHAPES = re.compile(r"_x\d+|_dtype\d+|s\d+")


class _Writer:
    def __init__(self, signature, core, library):
        self.signature, self.core, self.library = signature, core, library
        self.body, self.globals, self.shapes = [], {}, set()
        self.read_parameters()
        made = dict(zip((value for value, *_ in core.inputs), (shape for *_, shape in core.inputs)))
        for node in core.nodes:
            made.update(zip(node.results, (shape for _, shape in node.types)))
        self.outputs = [made[value] for value in core.outputs]
        # What is known of them however the function is called.
        symbols = {f"s{number}" for number in core.integers}
        bounds = [(f"s{number}", -math.inf if f"s{number}" in symbols else 0, math.inf)
                  for number in set(range(len(core.symbols))) - {number for number, *_ in core.definitions}]
        self.bounds = ranges.intervals(bounds, core.definitions)

    def read_parameters(self):
        """(name, kind, default as a tree), and the defaults."""
        self.parameters, self.defaults, self.keyword_defaults = [], [], {}
        order = -1
        for entry in self.signature["parameters"]:
            name, kind = entry["name"], entry["kind"]
            if not code.is_name(name) or kind not in PARAMETER_KINDS or any(name == other for other, *_ in self.parameters):
                raise GraphError("a parameter of the signature is none")
            before, order = order, PARAMETER_KINDS.index(kind)
            starred = kind.startswith("VAR")
            if order < before or starred and (order == before or "default" in entry):
                raise GraphError("a parameter of the signature is none")
            tree = None
            if "default" in entry:
                unknown = isinstance(entry["default"], dict) and "unknown" in entry["default"]
                default = _MISSING if unknown else constant(entry["default"])
                tree = code.name("_missing") if unknown else code.tree(default)
                if kind == "KEYWORD_ONLY":
                    self.keyword_defaults[name] = default
                else:
                    self.defaults.append(default)
            self.parameters.append((name, kind, tree))
        names = self.names = {name for name, *_ in self.parameters}
        self.renamed = {name: code.name(self.own(name)) for name in (*_OWN, *filter(_SHAPES.fullmatch, names)) if name in names}
        for name in _OWN:
            if name in names and hasattr(builtins, name):
                self.globals[self.own(name)] = getattr(builtins, name)

    def own(self, name):
        """A name of the text's own, which no parameter has."""
        while name in self.names:
            name = f"_{name}"
        return name

    def give(self, **values):
        """What names of the text's own stand for."""
        self.globals.update((self.own(name), value) for name, value in values.items())

    def expression(self, template, /, **holes):
        return code.expression(template, **{**self.renamed, **holes})

    def line(self, template, /, **holes):
        self.body.append(code.statement(template, **{**self.renamed, **holes}))

    def definition(self):
        signature, core = self.signature, self.core
        for name in self.without_default():
            self.line("if name is _missing:\n    raise GraphError(message)", name=code.name(name),
                      message=f"the graph of {core.name} was saved without the default of {name}: give it")
        for condition in signature["conditions"]:
            if not {"sizes", "array", "autograd"} & set(condition):
                self.condition(condition)
        self.program()
        inputs, shapes = [], {}
        if len(signature["inputs"]) != len(core.inputs):
            raise GraphError("the signature has other inputs than the graph")
        for number, (entry, (_, name, dtype, shape)) in enumerate(zip(signature["inputs"], core.inputs)):
            x = self.x(number)
            if not isinstance(entry, dict) or not ("argument" in entry or "state" in entry):
                raise GraphError("an input of the signature is none")
            if "argument" in entry:
                self.line("x = place", x=x, place=self.place(entry["argument"]))
            else:
                self.line("x = _state[number]", x=x, number=number)
            inputs.append(x)
            for axis, size in enumerate(shape):
                if code.is_symbol(size):
                    shapes.setdefault(size, code.expression("x.shape[axis]", x=x, axis=axis))
        arrays = [condition for condition in signature["conditions"] if "array" in condition]
        for condition in arrays:
            self.array(condition, shapes)
        for condition in signature["conditions"]:
            if "autograd" in condition:
                self.autograd(condition)
        for number in core.integers:
            path = signature["integers"].get(str(number))
            if path is None and f"s{number}" in shapes:  # of an array that the graph does not read
                inputs.append(code.name(self.own(f"s{number}")))
                continue
            if path is None:
                raise GraphError(f"the graph needs the number s{number}, which is no argument")
            if {"argument": path, "type": "int"} not in signature["conditions"]:
                self.condition({"argument": path, "type": "int"})
            shapes.setdefault(f"s{number}", self.place(path))
            inputs.append(code.name(self.own(f"s{number}")))
        for size, shown in shapes.items():
            self.known(size, shown)
        for symbol, dividend, divisor, remainder in core.definitions:
            if code.symbols(dividend) | code.symbols(divisor) <= self.shapes:
                self.ask(divisor, ">=", 1, f"the size s{symbol} is divided by {divisor}")
                self.known(f"s{symbol}", self.shown(code.quotient(dividend, divisor, remainder)))
        for condition in signature["conditions"]:
            if "sizes" in condition:
                relation = code.relation(condition["sizes"])
                if relation is None:
                    raise GraphError("a condition of the signature is none")
                if code.symbols(relation[0]) | code.symbols(relation[2]) <= self.shapes:
                    self.refuse(self.expression("not holds", holds=self.shown(code.compared(*relation))), condition["sizes"])
        for condition in arrays:
            self.array_sizes(condition)
        for number in sorted(_shown(signature["result"], "input")):
            self.layout(number)
        given = [i for i, entry in enumerate(signature["inputs"]) if "argument" in entry]
        for number, _ in core.writes:
            others = [self.x(i) for i in given if i != number]
            if number in given and others:  # the graph reads what was there before
                self.line("_apart(name, x, *others)", name=core.name, x=self.x(number), others=others)
        self.given = given
        if given:
            self.line("_elsewise = test", test=code.any_of([self.input_lies_elsewise(number)[0] for number in given]))
        self.line("_results = _body(*inputs)", inputs=inputs)
        shown, laid = _shown(signature["result"], "output"), signature.get("laid", [])
        if not isinstance(laid, list):
            raise GraphError("the signature's laid outputs are none")
        returned, memory = sorted(shown | _returned(signature["result"])), _Memory(core)
        for number in returned:
            self.lay(number, number in shown, number in laid)
            if memory.shared(number, returned):
                self.line(self.copied, number=number)
        if not isinstance(signature.get("converted", []), list):
            raise GraphError("the signature's converted outputs are none")
        for number in signature.get("converted", []):
            self.output(number)
            self.line("_results[number] = _converted(_results[number])", number=number)
        self.line("_returned = result", result=self.result(signature["result"]))
        for i, (_, value) in enumerate(core.writes):
            if memory.root(value) in memory.of_inputs:  # which another write may change before it is read
                self.line(self.copied, number=len(core.outputs) + i)
        for i, (number, _) in enumerate(core.writes):
            self.line("x.copy_(_results[i].detach())" if self.library == "torch" else "x[...] = _results[i]", x=self.x(number),
                      i=len(core.outputs) + i)
        self.line("return _returned")
        name = signature["function"]
        return code.definition(name if code.is_name(name) else "f", code.parameters(self.parameters), self.body)

    @property
    def copied(self):
        """Of a result, as it lies."""
        return "_results[number] = _results[number]" + (".clone()" if self.library == "torch" else ".copy(order='K')")

    def x(self, number):
        return code.name(self.own(f"_x{number}"))

    def known(self, symbol, shown):
        self.line("symbol = shown", symbol=code.name(self.own(symbol)), shown=shown)
        self.shapes.add(symbol)

    def shown(self, size):
        """A size as the function computes it."""
        return code.filled(size, self.renamed) if self.renamed else size

    def size(self, data):
        """The size, whose symbols are known."""
        size = code.size(data)
        for symbol in sorted(code.symbols(size) - self.shapes):
            # How many there are is known by what has been computed.
            found = next(((i, shape.index(symbol)) for i, shape in enumerate(self.outputs) if symbol in shape), None)
            if found is None:
                raise GraphError(f"the signature has the size {symbol}, which no array has")
            self.known(symbol, self.expression("_results[i].shape[axis]", i=found[0], axis=found[1]))
        return size

    def place(self, path):
        """An argument, or what is in it: an item of a constant key, or a field of its own (`_field`)."""
        if not (isinstance(path, list) and path and isinstance(path[0], str) and path[0] in self.names):
            raise GraphError("an argument of the signature has no name")
        found = code.name(path[0])
        for step in path[1:]:
            if not (isinstance(step, list) and len(step) == 2):
                raise GraphError("an argument of the signature has no place")
            kind, at = step
            if kind == "item" and (type(at) in (str, bool) or type(at) is int and abs(at) <= code.LARGEST):
                found = code.expression("found[at]", found=found, at=at)
            elif kind == "attribute" and code.is_name(at) and not at.startswith("__"):
                found = self.expression("_field(found, at)", found=found, at=at)
            else:
                raise GraphError("an argument of the signature has no place")
        return found

    def program(self):
        """What an exported program asks of arrays."""
        program = self.signature.get("program")
        if program is None:
            return
        from framejit._export import arguments

        arguments.check(program)
        for test, error in arguments.tests(program, self.library, self):
            self.line("if test:\n    raise error", test=test, error=error)
        self.give(**arguments.names(program, self.core.name, self.library))

    def array(self, condition, shapes):
        """An argument that the code has looked at, and the graph may not read: its type, and where its sizes are found."""
        dtype, shape, strides = condition["array"], condition.get("shape"), condition.get("strides")
        library, _, short = dtype.partition(".") if isinstance(dtype, str) else ("", "", "")
        if not (library in sys.modules and library in ("numpy", "torch") and short in NAMES and isinstance(shape, list)
                and (strides is None or isinstance(strides, list) and len(strides) == len(shape))):
            raise GraphError("a condition of the signature is none")
        x, shown = self.place(condition["argument"]), place_text(condition["argument"])
        name = f"_{library}"
        self.give(**{name: sys.modules[library].Tensor if library == "torch" else sys.modules[library].ndarray})
        tests = [self.expression("not isinstance(x, kind)", x=x, kind=code.name(self.own(name))),
                 self.expression("str(x.dtype).rpartition('.')[2] != name", x=x, name=library_name(short)),
                 self.expression("len(x.shape) != rank", x=x, rank=len(shape))]
        for axis, size in enumerate(shape):
            here = code.expression("x.shape[axis]", x=x, axis=axis)
            if type(size) is int:
                tests.append(code.expression("here != size", here=here, size=size))
            elif code.is_symbol(size):
                shapes.setdefault(size, here)
        self.refuse(code.any_of(tests), f"{shown}: an array of {library}, {short}[{', '.join(map(str, shape))}]", x)

    def autograd(self, condition):
        """What the code has got of an argument, or of torch's modes. What is no tensor is refused elsewhere."""
        asked, answer = condition["autograd"], condition.get("answer")
        if type(answer) is not bool or asked not in (_AUTOGRAD if "argument" in condition else MODES) or self.library != "torch":
            raise GraphError("a condition of the signature is none")
        import torch

        if "argument" in condition:
            x, shown = self.place(condition["argument"]), place_text(condition["argument"]) + _AUTOGRAD[asked][1:]
            found = code.expression(_AUTOGRAD[asked], x=x)
            self.give(_torch=torch.Tensor)
            test = self.expression("isinstance(x, _torch) and found != answer", x=x, found=found, answer=answer)
        else:
            shown = f"torch.{asked}()"
            self.give(**{f"_{asked}": getattr(torch, asked)})
            test = self.expression(f"_{asked}() != answer", answer=answer)
        self.refuse(test, f"{shown} == {answer}, by which its code decided something")

    def array_sizes(self, condition):
        """That its sizes are those which other arguments decide, and that it lies in memory as it did."""
        x, shown, shape = self.place(condition["argument"]), place_text(condition["argument"]), condition["shape"]
        for axis, size in enumerate(shape):
            if type(size) is not int:
                here = code.expression("x.shape[axis]", x=x, axis=axis)
                test = code.expression("here != size", here=here, size=self.shown(self.size(size)))
                self.refuse(test, f"{size} elements along axis {axis} of {shown}", here)
        if condition["strides"] is not None:
            test, found, sizes = self.lies_elsewise(x, shape, condition["strides"], condition["array"].partition(".")[0])
            wanted = "contiguous" if sizes is None else f"with strides ({', '.join(map(ast.unparse, sizes))})"
            self.refuse(test, f"{shown} {wanted}, which its code has seen or shows a view of", found)

    def lies_elsewise(self, x, shape, wanted, library):
        """(test, the strides that are found, those that are wanted) of an array."""
        if wanted is None or list(wanted) == _row_major(shape):  # where a size is 1, the stride is any
            test = self.expression("not x.is_contiguous()" if library == "torch" else "not x.flags.c_contiguous", x=x)
        found = self.expression("x.stride()" if library == "torch" else "tuple([stride // x.itemsize for stride in x.strides])", x=x)
        sizes = None if wanted is None else [self.size(stride) for stride in wanted]
        if wanted is not None and list(wanted) != _row_major(shape):
            test = self.expression("found != sizes", found=found, sizes=tuple(map(self.shown, sizes)))
        return test, found, sizes

    def input_lies_elsewise(self, number):
        return self.lies_elsewise(self.x(number), self.core.inputs[number][3], self.core.layouts[0][number], self.library)

    def layout(self, number):
        """A result shows an input's memory, and where its elements lie there depends on where the input's do."""
        if not 0 <= number < len(self.core.inputs) or self.core.layouts[0][number] is None:
            return
        test, found, sizes = self.input_lies_elsewise(number)
        message = (f"the graph of {self.core.name} returns a view of {self.core.inputs[number][1].rpartition('L.')[2]}, "
                   f"and was captured with its strides ({', '.join(map(ast.unparse, sizes))}), not ")
        self.line("if test:\n    raise GraphError(message + str(found))", test=test, message=message, found=found)

    def lay(self, number, shown, laid):
        """Outputs lie as eager's: the library's own functions, on what the graph says, may lay them in another way. Of arguments that lie in
        another way than those of the capture they lie as the library lays them. shown: a view of the signature shows the output. laid: it
        lies so however the arguments lie."""
        self.output(number)
        shape, layout = list(self.outputs[number]), self.core.layouts[1][number]
        order = list(range(len(shape)))
        if layout is not None:
            point = code.point(name for name, *_ in self.core.symbols)
            order.sort(key=lambda axis: (-code.evaluated(layout[axis], point), axis))
            steps = _core.row_major([shape[axis] for axis in order])
            if any(str(layout[axis]) != str(step) for axis, step in zip(order, steps) if shape[axis] != 1):
                if not shown:
                    return
                raise GraphError("a view of the signature is of an output that has gaps in memory")
        line = "_results[number] = _laid(_results[number], order)"
        self.line(line if shown or laid or not self.given else f"if not _elsewise:\n    {line}", number=number, order=tuple(order))

    def without_default(self):
        """The parameters that the graph needs, and whose defaults are not in the file."""
        used = {entry["argument"][0] for entry in (*self.signature["inputs"], *self.signature["conditions"]) if "argument" in entry}
        return [entry["name"] for entry in self.signature["parameters"]
                if isinstance(entry.get("default"), dict) and "unknown" in entry["default"] and entry["name"] in used]

    def condition(self, condition):
        x = self.place(condition["argument"])
        e, shown = self.expression, place_text(condition["argument"])
        kind = next((kind for kind in condition if kind != "argument"), None)
        wanted = condition.get(kind)
        if kind == "length" and type(wanted) is int:
            self.refuse(e("not hasattr(x, '__len__') or len(x) != wanted", x=x, wanted=wanted), f"len({shown}) == {wanted}", e("len(x)", x=x))
        elif kind == "equals":
            self.refuse(self.differs(x, constant(wanted)), f"{shown} == {constant(wanted)!r}", x)
        elif kind == "differs":
            value = constant(wanted)
            test = "x is None" if value is None else "isinstance(x, (bool, int, float, str, tuple)) and x == value"
            self.refuse(e(test, x=x, value=value), f"{shown} != {value!r}", x)
        elif kind == "type" and isinstance(wanted, str) and wanted in TYPES:
            self.refuse(e(f"type(x) is not {wanted}", x=x), f"type({shown}) is {wanted}", e("type(x)", x=x))
        elif kind == "keys" and isinstance(wanted, list):
            keys = [_key(key) for key in wanted]
            self.refuse(e("not isinstance(x, dict) or list(x) != keys", x=x, keys=keys), f"list({shown}) == {keys!r}", e("list(x)", x=x))
        elif kind in ("has", "lacks"):
            test = "not in" if kind == "lacks" else "in"
            self.refuse(e(f"not wanted {test} x", wanted=_key(wanted), x=x), f"{wanted!r} {test} {shown}", e("list(x)", x=x))
        elif kind in ("same", "apart"):
            test = "is" if kind == "same" else "is not"
            self.refuse(e(f"not x {test} other", x=x, other=self.place(wanted)), f"{shown} {test} {place_text(wanted)}")
        elif kind == "is" and isinstance(wanted, str) and dtype_called(wanted) is not None:
            name = f"_dtype{len(self.globals)}"
            self.give(**{name: dtype_called(wanted)})
            self.refuse(e("x is not dtype", x=x, dtype=code.name(self.own(name))), f"{shown} is {wanted}", x)
        else:
            raise GraphError("a condition of the signature is none")

    def differs(self, x, value):
        """A number of another type is another one: it may make results of another dtype."""
        e, kind = self.expression, type(value).__name__
        if value is None or kind == "bool":
            return e("x is not value", x=x, value=value)
        if kind == "tuple":
            items = [self.differs(code.expression("x[i]", x=x, i=i), item) for i, item in enumerate(value)]
            return code.any_of([e("type(x) is not tuple", x=x), e("len(x) != count", x=x, count=len(value)), *items])
        if value != value:
            return e("type(x) is not float or x == x", x=x)
        tests = [e(f"type(x) is not {kind}", x=x), e("x != value", x=x, value=value)]
        if kind == "float" and value == 0:
            tests.append(e("_sign(1.0, x) != sign", x=x, sign=math.copysign(1.0, value)))
        return code.any_of(tests)

    def refuse(self, test, assumed, found=None):
        message = f"the graph of {self.core.name} was captured with {assumed}"
        if found is None:
            self.line("if test:\n    raise GraphError(message)", test=test, message=message)
        else:
            self.line("if test:\n    raise GraphError(message + repr(found))", test=test, message=f"{message}, not ", found=found)

    def result(self, data, depth=0):
        if not isinstance(data, dict) or depth > 50:
            raise GraphError("the signature's result is none")

        def parts(items):
            return [self.result(item, depth + 1) for item in items]

        if "output" in data:
            return self.output(data["output"])
        if "scalar" in data:
            return code.expression("x[()]", x=self.output(data["scalar"]))
        if "number" in data:
            x = self.output(data["number"])
            if any(size != 1 for size in self.outputs[data["number"]]):
                raise GraphError("the signature's result is a number, and the graph's is an array")
            return code.expression("x.item()", x=x)
        if "input" in data and type(data["input"]) is int and 0 <= data["input"] < len(self.core.inputs):
            return self.x(data["input"])
        if "argument" in data:
            return self.place(data["argument"])
        if "constant" in data:
            return code.tree(constant(data["constant"]))
        if "int" in data:
            return self.shown(self.size(data["int"]))
        if "view" in data:
            viewed = self.result(data["view"], depth + 1)
            shape, strides, offset = [self.size(x) for x in data["shape"]], [self.size(x) for x in data["strides"]], self.size(data["offset"])
            self.view(data, shape, strides)
            return self.expression("_view(viewed, shape, strides, offset)", viewed=viewed, shape=tuple(map(self.shown, shape)),
                                   strides=tuple(map(self.shown, strides)), offset=self.shown(offset))
        if "detached" in data and self.library == "torch":
            inside = data["detached"]
            if not isinstance(inside, dict) or not {"output", "input", "argument", "view", "detached"} & set(inside):
                raise GraphError("a detached result of the signature is no array")
            return self.expression("_detached(x)", x=self.result(inside, depth + 1))
        if "tuple" in data:
            return code.tree(tuple(parts(data["tuple"])))
        if "list" in data:
            return code.tree(parts(data["list"]))
        if "dict" in data and len(data["dict"]) % 2 == 0:
            keys, values = data["dict"][::2], data["dict"][1::2]
            if not all(isinstance(key, dict) and (list(key) in (["constant"], ["int"]) or self.is_constant(key)) for key in keys):
                raise GraphError("a key of the signature's result is none")
            return ast.Dict(parts(keys), parts(values))
        raise GraphError("the signature's result is none")

    def is_constant(self, key):
        return list(key) == ["argument"] and any(condition.get("argument") == key["argument"] and "equals" in condition
                                                 for condition in self.signature["conditions"])

    def output(self, number):
        if type(number) is not int or not 0 <= number < len(self.outputs):
            raise GraphError("the signature's result has an output that the graph has not")
        return self.expression("_results[number]", number=number)

    def view(self, data, shape, strides):
        """A view is of the array's own memory: what can't be proved here of all sizes is asked in each call."""
        if len(shape) != len(strides):
            raise GraphError("a view of the signature has another rank than its strides")
        root, start = data, code.tree(0)
        while "view" in root or "detached" in root:
            if "view" in root:
                start = code.expression("a + b", a=start, b=self.size(root["offset"]))
            root = root["view" if "view" in root else "detached"]
        memory, positive = self.memory(root)
        low, high, signs = start, start, True
        for length, stride in zip(shape, strides):
            reach = code.expression("a + (n - 1) * b", a=code.tree(0), n=length, b=stride)
            if self.holds(stride, ">=", 0):
                high = code.expression("a + b", a=high, b=reach)
            elif self.holds(stride, "<=", 0):
                low = code.expression("a + b", a=low, b=reach)
            else:
                signs = False
            self.ask(length, ">=", 0, "a size of a view of the signature is negative")
        empty = any(code.is_number(length) and code.evaluated(length, {}) == 0 for length in shape)
        if memory is not None and signs:
            inside = not positive and self.holds(low, ">=", 0) and self.holds(high, "<", memory)
            if inside or empty:
                return
            of_torch = self.library == "torch" and "input" in root  # it may show more of the storage
            if not of_torch and not (code.symbols(low) | code.symbols(high) | code.symbols(memory)):
                raise GraphError("a view of the signature shows memory outside of its array")
            if not of_torch:
                for size in positive:
                    self.ask(size, ">", 0, "a view shows memory of an empty array", shape)
                self.ask(low, ">=", 0, "a view shows memory before its array", shape)
                self.ask(high, "<", memory, "a view shows memory behind its array", shape)
                return
        self.line("_inside(name, x, shape, strides, start)", name=self.core.name, x=self.result(root), shape=tuple(map(self.shown, shape)),
                  strides=tuple(map(self.shown, strides)), start=self.shown(start))

    def memory(self, root):
        """How many elements lie from the first of the array that is viewed to its last, or None, and sizes that are not 0 if that is so."""
        kind, number = next(iter(root.items()))
        if kind == "output" and type(number) is int and 0 <= number < len(self.outputs):
            shape, layout = self.outputs[number], None
        elif kind == "input" and self.core.layouts[0][number] is not None:
            shape, layout = self.core.inputs[number][3], self.core.layouts[0][number]
        else:
            return None, ()
        found, sizes = code.tree(1), [self.size(size) for size in shape]
        if layout is None or list(map(str, layout)) == list(map(str, _core.row_major(list(shape)))):
            for size in sizes:
                found = code.expression("a * b", a=found, b=size)
            return found, ()
        for size, stride in zip(sizes, map(self.size, layout)):
            if not self.holds(stride, ">=", 0):
                return None, ()
            found = code.expression("a + (n - 1) * b", a=found, n=size, b=stride)
        return found, [size for size in sizes if not self.holds(size, ">", 0)]

    def holds(self, left, comparison, right):
        return ranges.holds((left, comparison, code.size(right)), self.bounds)

    def ask(self, left, comparison, right, message, shape=()):
        """Where this does not hold, a call is refused; unless one of the sizes is 0, and there is nothing to see."""
        if self.holds(left, comparison, right):
            return
        right = code.size(right)
        if not code.symbols(left) | code.symbols(right):
            raise GraphError(message)
        test = self.expression("not holds", holds=self.shown(code.compared(left, comparison, right)))
        nothing = [self.shown(size) for size in shape if code.symbols(size)]
        if nothing:
            test = code.expression("test and nothing", test=test, nothing=code.all_of(code.expression("n != 0", n=n) for n in nothing))
        self.line("if test:\n    raise GraphError(message)", test=test, message=f"the graph of {self.core.name}: {message}")


def _key(key):
    if type(key) in (int, str, bool):
        return key
    raise GraphError("a condition of the signature is none")


def _shown(result, what):
    """The numbers of the inputs (or outputs: what) whose memory a result shows by a view."""
    if not isinstance(result, dict):
        return set()
    if "detached" in result:
        return _shown(result["detached"], what)
    if "view" in result:
        viewed = result["view"]
        return {viewed[what]} if isinstance(viewed, dict) and type(viewed.get(what)) is int else _shown(viewed, what)
    parts = next((result[kind] for kind in ("tuple", "list", "dict") if isinstance(result.get(kind), list)), [])
    return {number for part in parts for number in _shown(part, what)}


# Their results by the library's functions may show the operand's memory.
_MAY_SHOW = ("reshape", "transpose", "slice", "broadcast", "windows", "cast", "as_size")


class _Memory:
    """Whose memory the outputs of a graph's nodes show if the library's functions compute them."""

    def __init__(self, core):
        self.outputs, self.of_inputs = list(core.outputs), {value for value, *_ in core.inputs}
        self.operand = {node.results[0]: node.operands[0] for node in core.nodes if node.op in _MAY_SHOW}

    def root(self, value):
        while value in self.operand:
            value = self.operand[value]
        return value

    def shared(self, number, returned):
        """Whether it is to be copied: it shows memory of an input, or of another output that is returned before. Eager's are apart."""
        root = self.root(self.outputs[number])
        return root in self.of_inputs or any(self.root(self.outputs[other]) == root for other in returned if other < number)


def _returned(result):
    """The numbers of the outputs that a result has as they are."""
    if not isinstance(result, dict):
        return set()
    if "detached" in result:
        return _returned(result["detached"])
    if type(result.get("output")) is int:
        return {result["output"]}
    parts = next((result[kind] for kind in ("tuple", "list", "dict") if isinstance(result.get(kind), list)), [])
    return {number for part in parts for number in _returned(part)}


def _row_major(shape):
    """The strides of an array without gaps; None: they are no numbers."""
    strides, size = [], 1
    for length in reversed(shape):
        strides.insert(0, size)
        size = size * length if type(size) is int and type(length) is int else None
    return None if None in strides else strides


def field(owner, name):
    """What an object has by itself: in its dict, or in a slot. What a class, a module or a function has is no argument."""
    if not isinstance(owner, _NO_OBJECTS):
        if hasattr(owner, "__dict__") and name in owner.__dict__:
            return owner.__dict__[name]
        if type(getattr(type(owner), name, None)) is types.MemberDescriptorType:
            return getattr(owner, name)
    raise GraphError(f"an argument has no field {name}")


_NO_OBJECTS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def _laid_by_torch(x, order):
    """With the axes in this order in memory, from the outermost one, and without gaps. What lies so is itself."""
    turned = x.permute(order)
    if turned.is_contiguous():
        return x
    return turned.contiguous().permute(tuple([order.index(axis) for axis in range(len(order))])).clone()


def _laid_by_numpy(x, order):
    import numpy

    turned = x.transpose(order)
    if turned.flags.c_contiguous:
        return x
    return numpy.ascontiguousarray(turned).transpose(tuple([order.index(axis) for axis in range(len(order))])).copy(order="K")


def _to_numpy(x):
    return x.numpy()


def _to_torch(x):
    import torch

    return torch.from_numpy(x)


def _detached(x):
    import torch

    if not isinstance(x, torch.Tensor):
        raise GraphError("a result that is detached is no tensor")
    return torch.Tensor.detach(x)


def _view(x, shape, strides, offset):
    return (_view_of_torch if hasattr(x, "as_strided") else _view_of_numpy)(x, shape, strides, offset)


def _view_of_torch(x, shape, strides, offset):
    return x.as_strided(shape, strides, x.storage_offset() + offset)


def _view_of_numpy(x, shape, strides, offset):
    import numpy

    if offset:  # the second of two elements that are this far apart
        x = numpy.lib.stride_tricks.as_strided(x, (2,), (offset * x.itemsize,))[1:]
    return numpy.lib.stride_tricks.as_strided(x, shape, tuple(size * x.itemsize for size in strides))


@disable
def _inside(name, x, shape, strides, start):
    """Refuses a view of what is no memory of the array: of NumPy's its own elements, of torch's its storage."""
    reach = [(length - 1) * stride for length, stride in zip(shape, strides)]
    first, last = start + sum(min(at, 0) for at in reach), start + sum(max(at, 0) for at in reach)
    if 0 in shape:
        return
    if hasattr(x, "untyped_storage"):
        low, high = -x.storage_offset(), x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    elif hasattr(x, "__array_interface__"):
        begin, end = _extent(x)
        low, high = ((at - x.__array_interface__["data"][0]) // x.itemsize for at in (begin, end))
    else:
        raise GraphError(f"the graph of {name} returns a view of what is no array")
    if first < low or last >= high:
        raise GraphError(f"the graph of {name} returns a view of memory outside of its array")


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


_MISSING = _Missing()


def face_of(signature, core, library, body, state):
    """The function with the signature that runs `body`, a function of the graph's inputs. state: by input, its array, or None."""
    writer = _Writer(signature, core, library)
    definition = writer.definition()
    writer.give(_apart=_apart, _sign=math.copysign, _body=body, _state=state, GraphError=GraphError, _field=field, _inside=_inside,
                _missing=_MISSING, _view=_view, _detached=_detached,
                _laid=_laid_by_torch if library == "torch" else _laid_by_numpy, _converted=_to_numpy if library == "torch" else _to_torch)
    # The body's own names: guards on one function's globals are the cheapest.
    space = {} if body is None else body.__globals__
    space.update(writer.globals)
    return code.function(definition, space, f"<graph of {definition.name}>", writer.defaults, writer.keyword_defaults)
