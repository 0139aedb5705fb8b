"""From the compiler's form of a graph to Python's, and back.

A graph that was captured keeps the numbers of its values: the compiler's derivatives know by them which values are copies, views or
results of one function with a derivative of its own.
"""
from framejit import _core
from framejit._errors import GraphError
from framejit._graph.calls import check, is_text, text_of
from framejit._graph.nodes import ArrayType, Graph, Node, Symbol


class Composite:
    """Operations that are one function of the library with a derivative of its own, as long as nobody changes them.

    kept: other values that the derivative reads.
    """

    def __init__(self, index, operands, result, kept):
        self.index, self.operands, self.result, self.kept = index, list(operands), result, list(kept)
        self.form = self._form()

    def replace(self, value, by):
        self.operands, self.kept = ([by if x is value else x for x in values] for values in (self.operands, self.kept))

    def _form(self):
        """What the operations are, without saying which values the operands are; None: one of them is erased.

        Without operands, the result has no derivative (`detach`), however it is computed: then it alone counts.
        """
        if not self.operands:
            return None if self.result.graph is None else [self.result]
        names = {operand: number for number, operand in enumerate(self.operands)}
        form, waiting, seen = [], [*self.kept, self.result], set()
        while waiting:
            node = waiting.pop()
            if node in names or node in seen:
                continue
            if node.graph is None:
                return None
            seen.add(node)
            attrs = {key: value for key, value in node._attrs.items() if not key.endswith("_strides")}
            form.append((node, node._op, attrs, [names.get(x, x) for x in node._operands]))
            waiting.extend(node._operands)
        return form

    def copied(self, copies):
        """The same of a copy of the graph; None: it is whole no more."""
        if not self.is_whole() or not all(x in copies for x in (*self.operands, self.result, *self.kept)):
            return None
        return Composite(self.index, [copies[x] for x in self.operands], copies[self.result], [copies[x] for x in self.kept])

    def is_whole(self):
        return self.form is not None and self._form() == self.form


def from_core(core):
    """A Graph of what the compiler captured, or of a text."""
    graph = Graph(core.name)
    definitions = {number: tuple(rest) for number, *rest in core.definitions}
    graph._symbols = [Symbol(name, low, high, seen, late, definitions.get(i))
                      for i, (name, low, high, seen, late) in enumerate(core.symbols)]
    values, given = {}, core.names
    input_layouts, graph._layouts = core.layouts
    taken = set()
    for (value, name, dtype, shape), layout in zip(core.inputs, input_layouts):
        node = values[value] = Node(graph, "input", (), {}, ArrayType(dtype, shape), number=value, layout=layout)
        node._name = _word(name, taken)
        graph._inputs.append(node)
    spare, calls = set(core.spare), core.calls
    for row in core.nodes:
        operands, results, types = [values[x] for x in row.operands], row.results, [ArrayType(*x) for x in row.types]
        single, attrs = len(results) == 1, row.attrs
        if row.op == "extern_call" and 0 <= attrs["handle"] < len(calls):
            attrs["callee"] = text_of(calls[attrs["handle"]]) or attrs["callee"]
        node = Node(graph, row.op, operands, attrs, types[0] if single else tuple(types), row.location, results[0] if single else None,
                    bodies=row.bodies)
        node._spare = bool(results) and results[0] in spare
        graph._link(node, graph._end)
        if single:
            values[results[0]] = node
        for number, (result, type) in enumerate(zip(results, types) if not single else ()):
            values[result] = Node(graph, "result", (node,), {"index": number}, type, row.location, result)
            graph._link(values[result], graph._end)
        for result in results:
            values[result]._name = given.get(result)
    graph._outputs = [values[x] for x in core.outputs]
    graph._writes = {number: values[value] for number, value in core.writes}
    graph._composites = [Composite(i, [values[x] for x in operands], values[result], [values[x] for x in kept])
                         for i, (operands, result, kept) in enumerate(core.composites)
                         if all(x in values for x in (*operands, result, *kept))]
    graph._core = core
    graph._shown = core, {node: value for value, node in values.items()}
    if not calls:
        graph._cached = {"version": graph._version, "core": core}
    return graph


def check_call(node):
    """GraphError: the text of this call is none that a graph may make."""
    if is_text(node._attrs["callee"]):
        check(node._attrs["callee"], len(node._operands), 1 if isinstance(node._type, ArrayType) else len(node._type))


def _word(name, taken):
    """An input's name as the text has it."""
    import re

    word = re.sub(r"_?[^A-Za-z0-9_.]+", "_", name) or "_"
    word = "_" + word if word.isdigit() else word
    found, count = word, 2
    while found in taken:
        found, count = f"{word}_{count}", count + 1
    taken.add(found)
    return found


def to_core(graph):
    """The compiler's form of a Graph, and its numbers of the nodes. Raises GraphError, which names the node that breaks a rule."""
    start = graph._core
    builder = _core.GraphBuilder(start) if start is not None else _core.GraphBuilder(graph.name)
    numbers = {}
    if start is None:
        for symbol in graph._symbols:
            builder.symbol(symbol.min, symbol.max, symbol.seen, symbol.definition, symbol.late)
    for i, node in enumerate(graph._inputs):
        if start is None:
            numbers[node] = builder.input(node._name, tuple(node._type), node.layout)
        else:
            numbers[node] = node._number
            builder.rename_input(i, node._name)
    calls = {}
    for node in graph:
        if node._op == "result":
            calls.setdefault(node._operands[0], []).append(node)
    for node in graph:
        location = (node.file, node.line, node.module)
        try:
            operands = [numbers[x] for x in node._operands] if node._op != "result" else []
            if node._op == "extern_call" or node._bodies:
                several = not isinstance(node._type, ArrayType)
                results = sorted(calls.get(node, ()), key=lambda x: x._attrs["index"]) if several else [node]
                numbered = start is not None and all(x._number is not None for x in results)
                known = [x._number for x in results] if numbered else None
                if node._op != "extern_call":
                    made = builder.control(node._op, operands, list(node._bodies), location, known)
                else:
                    made = builder.call(operands, dict(node._attrs), [tuple(x._type) for x in results], location, known, node._spare)
                numbers.update(zip(results, made))
            elif node._op != "result":
                number = node._number if start is not None else None
                numbers[node], type = builder.add(node._op, operands, dict(node._attrs), location, number)
                if ArrayType(*type) != node._type:
                    raise GraphError(f"{graph._title()}: {node} is {node._type}, and its operands give {ArrayType(*type)}")
            if node._name is not None:
                builder.name(numbers[node], node._name)
        except KeyError as error:
            raise GraphError(f"{graph._title()}: {node} comes before its operand {error.args[0]}") from None
        except (ValueError, TypeError) as error:
            raise GraphError(f"{graph._title()}: {node}: {error}") from None
    try:
        for node, layout in zip(graph._outputs, graph._layouts + [None] * len(graph._outputs)):
            builder.output(numbers[node], layout)
        for number, node in graph._writes.items():
            builder.write(number, numbers[node])
        if start is not None:
            builder.keep_composites([(x.index, [numbers[y] for y in x.operands], [numbers[y] for y in x.kept]) for x in graph._composites
                                     if all(y in numbers for y in (x.result, *x.operands, *x.kept)) and x.is_whole()])
        return builder.finish(), numbers
    except KeyError as error:
        raise GraphError(f"{graph._title()} returns or writes {error.args[0]}, which is no value of the graph") from None
    except ValueError as error:
        raise GraphError(f"{graph._title()}: {error}") from None
