"""A graph as Python objects: `Graph` and its `Node`s, and their editing.

The compiler's own form (`framejit._core.CapturedGraph`) can't be changed. A Graph is made of one (core.py) and is turned into
one again when it is compiled, printed or checked. Each edit infers the types that follow from it, by the rules the compiler has, and
changes nothing if a rule is broken.
"""
import re
from typing import NamedTuple

from framejit import _core
from framejit._errors import GraphBreakError, GraphError

_MOST_INFERENCES = 100  # of one node in one edit; without a cycle, one for each of its operands at most
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9_][A-Za-z0-9_.]*")


class ArrayType(NamedTuple):
    """The type of a value. shape: ints, and texts such as "s0" or "s0*4 + 1" where a size differs between calls."""
    dtype: str
    shape: tuple

    def __str__(self):
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Symbol(NamedTuple):
    """A size that differs between calls. definition: (dividend, divisor, is it the remainder) if it is computed from others."""
    name: str
    min: int
    max: int
    seen: int  # while tracing
    late: bool  # known when the graph has run to the node that counts it
    definition: tuple | None

    def __str__(self):
        return self.name


def _frozen(value):
    return tuple(_frozen(x) for x in value) if isinstance(value, (list, tuple)) else value


class Attributes(dict):
    """What an operation is told besides its operands, by name. Setting one infers types again."""

    def __init__(self, node, attrs):
        super().__init__((key, _frozen(value)) for key, value in dict(attrs).items())
        self._node = node

    def __setitem__(self, key, value):
        self._node._change(attrs={**self, key: value})

    def update(self, *others, **more):
        self._node._change(attrs={**self, **dict(*others, **more)})

    def __delitem__(self, key):
        raise TypeError(f"{self._node}: an attribute is replaced, not deleted")

    clear = pop = popitem = setdefault = __ior__ = __delitem__


class Node:
    """One operation of a graph, and the value it computes.

    op: its row of the table of operations ("add", "reduce_sum"); "input" for what the graph is given; "extern_call" for a function of
    the array library; "cond" for a branch and "loop" for a loop, with their `bodies`; "result" for one array of several that one of these gives. Reading:
    `operands`, `users`, `attrs`, `type`, `name`, `file`, `line`, `module` (the torch module's path, "layers.0.norm1"), `graph`. Writing:
    `op`, `operands`, `attrs[...]`, `name`, and the methods. GraphError says which node breaks which rule; then nothing has changed.

        node, = graph.find(op="exp")
        node.replace_uses(graph.add("tanh", node.operands[0], after=node))
    """
    __slots__ = ("graph", "file", "line", "module", "layout", "_op", "_operands", "_attrs", "_type", "_name", "_users", "_number",
                 "_previous", "_next", "_spare", "_bodies", "__weakref__")

    def __init__(self, graph, op, operands, attrs, type, location=("", 0, ""), number=None, layout=None, bodies=()):
        self.graph, self._op, self._operands, self._type, self._bodies = graph, op, tuple(operands), type, tuple(bodies)
        self._attrs = Attributes(self, attrs)
        self.file, self.line, self.module = location
        self.layout = layout  # of an input: strides in elements; None: row-major without gaps
        self._name, self._users, self._number, self._spare = None, {}, number, False
        self._previous = self._next = self
        for operand in self._operands:
            operand._users[self] = None

    op = property(lambda self: self._op, lambda self, op: self._change(op=op))
    operands = property(lambda self: self._operands, lambda self, operands: self._change(operands=operands))
    attrs = property(lambda self: self._attrs, lambda self, attrs: self._change(attrs=attrs))
    type = property(lambda self: self._type, doc="The ArrayType; of a call that gives several arrays, a tuple of them.")
    dtype = property(lambda self: self._type.dtype)
    shape = property(lambda self: self._type.shape)
    users = property(lambda self: tuple(self._users), doc="The nodes that read it, in no order.")
    is_input = property(lambda self: self._op == "input")

    @property
    def bodies(self):
        """Of "cond": the graphs that run where its first operand is true, and where it is false, of the operands behind that. Of "loop":
        one pass, of the same; it gives whether another pass follows, and the states behind it. Else ().

        They are there to be read: an edit of one changes nothing of this graph.
        """
        from framejit._graph.core import from_core

        return tuple(from_core(body) for body in self._bodies)

    @property
    def name(self):
        """The name it was given, else its number in the graph's text; of a value written inside of others one that is not there."""
        return self._name if self._name is not None else "?" if self.graph is None else self.graph._shown_values().get(self, "?")[0]

    @name.setter
    def name(self, name):
        if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
            raise GraphError(f"{name!r} is no name: letters, digits, `_` and `.`, not digits alone")
        graph = self._owner()
        if name is None and self.is_input:
            raise GraphError(f"{graph._title()}: the input {self} needs a name")
        if name is not None and any(other is not self and other._name == name for other in graph._all()):
            raise GraphError(f"{graph._title()} has a value %{name} already")
        self._name = name
        self.graph._touch()

    def replace_uses(self, by, where=None):
        """Everything that reads this value reads `by` instead: operations, and what the graph returns and writes.

        What `by` is itself computed from goes on reading this value. by: a Node of the same graph. where: given a user, says whether
        it is meant; the graph's results are then left as they are. Raises GraphError if an operation takes no operand of the type
        of `by`, or a node of another graph is given.
        """
        graph = self._owner()
        graph._own(by)
        changes, needed = {}, self._on_the_way_to(by)
        for user in self._users:
            if user not in needed and (where is None or where(user)):
                changes[user] = dict(operands=tuple(by if x is self else x for x in user._operands))
        graph._apply(changes)
        if where is None:
            graph._outputs = [by if x is self else x for x in graph._outputs]
            graph._writes = {i: by if x is self else x for i, x in graph._writes.items()}
            for composite in graph._composites:
                composite.replace(self, by)

    def _on_the_way_to(self, other):
        """The operations between this one and `other`, in order, that are computed from it; none if `other` comes before it."""
        end = self.graph._end
        start = end if self.is_input else self  # inputs come before all operations
        behind, before = start._next, end if self.is_input else start._previous
        while behind is not other:
            if behind is end or before is other:
                return {other}
            behind = behind._next
            before = before._previous if before is not end else end
        found, node = {self}, start._next
        while True:
            if any(x in found for x in node._operands):
                found.add(node)
            if node is other:
                return found | {other}
            node = node._next

    def erase(self):
        """Takes it out of its graph. Raises GraphError while something reads it."""
        graph = self._owner()
        if self._op == "input":
            raise GraphError(f"{graph._title()}: the input {self} can't be erased")
        if self._users:
            raise GraphError(f"{self} can't be erased: {next(iter(self._users))} reads it")
        if any(x is self for x in [*graph._outputs, *graph._writes.values()]):
            raise GraphError(f"{self} can't be erased: the graph returns or writes it")
        for operand in self._operands:
            operand._users.pop(self, None)
        self._unlink()
        graph._touch()
        self.graph = None

    def move_before(self, other):
        """Puts it before another node. `lint` says if it comes before one of its operands then."""
        self._move(other, other)

    def move_after(self, other):
        self._move(other, other._next)

    def _owner(self):
        if self.graph is None:
            raise GraphError(f"{self} is of no graph any more")
        return self.graph

    def _move(self, other, place):
        self._owner()._own(other)
        if self.is_input or other.is_input or other is self:
            raise GraphError(f"{self} can't be moved there: inputs come first")
        if place is self:
            return
        self._unlink()
        self.graph._link(self, place)
        self.graph._touch()

    def _unlink(self):
        self._previous._next, self._next._previous = self._next, self._previous

    def _is_check(self):
        """Whether it fails where a bool is false, and does nothing else (graph_ir/control.h): an operation whose result is unread."""
        return not self._users and self not in self._owner()._outputs and self._has_check()

    def _has_check(self):
        """Whether it fails where a bool is false, as what a Python number's range is asked by does too."""
        if self._op != "floor_div":
            return False
        one, truth = self._operands
        return one._op == "constant" and truth._op == "cast" and truth._operands[0].dtype == "bool"

    def _may_fail(self):
        """As the compiler sees it (graph_ir/rules/conditions.cpp), but for branches and loops that can't."""
        if self._bodies:
            return True
        if not _core.is_fallible(self._op):
            return False
        divides = len(self._operands) == 2 and self._operands[0].dtype == self._operands[1].dtype and "axis" not in self._attrs
        return not divides or not (self.dtype[0] in "fcb" and self.dtype != "bool" or self._operands[1]._op == "constant")

    def _change(self, op=None, operands=None, attrs=None):
        if self._bodies and (op is not None or attrs is not None):
            raise GraphError(f"{self}: a {'branch' if self._op == 'cond' else 'loop'} has no other operation or attributes to change")
        if self._op in ("input", "result"):
            raise GraphError(f"{self}: {'an input' if self.is_input else 'one result of a call'} has no operands or attributes to change")
        changed = {key: value for key, value in (("op", op), ("operands", operands), ("attrs", attrs)) if value is not None}
        self._owner()._apply({self: changed})

    def __str__(self):
        if self.graph is None:
            return f"the erased {self._op}"
        if self.is_input:
            return f"%{self.name}"
        where = f" ({self.file.rpartition('/')[2]}:{self.line})" if self.line else ""
        return f"%{self.name} = {self._op}({', '.join(x._where_read() for x in self._operands)}){where}"

    def _where_read(self):
        """As the graph's text has it in the lines of its readers."""
        return f"%{self.name}" if self._name is not None or self.graph is None else self.graph._shown_values().get(self, ("", "%?"))[1]

    def __repr__(self):
        return f"<framejit node {self}>"


class Graph:
    """A captured graph: operations on arrays, in order, each value of one dtype and shape.

    `framejit.capture` makes one of a function or a module, `Graph.parse` of a text, `Graph.load` of a file; a pass and a back end are
    given one. Iterating gives its operations; `inputs`, `outputs` and `writes` are its border. `print(graph)` shows it.

        graph = framejit.capture(f, x, y)
        for node in graph.find(op="tanh"):
            node.replace_uses(graph.add("minimum", node, limit, after=node))
        graph.lint()
        graph(x, y)
    """

    def __init__(self, name="f"):
        """An empty graph. name: a word; `<`, `>` and `.` may be in it."""
        self.name = name
        self._inputs, self._outputs, self._writes = [], [], {}  # writes: input's number to node
        self._layouts = []  # of outputs
        self._size_names = {}  # by symbol, the name of its Dim
        self._has_gradients = True  # it may be asked for one
        self._symbols, self._composites = [], []
        self._core = None  # what it was made of
        self._capture = None  # of what, if it was captured
        self._saved = None  # how it is called, if it was loaded from a file
        self._arrays_of = None  # the library of what it is called with, if a back end was given it
        self._version = 0
        self._cached = {}
        self._shown = None  # the compiler's form of it when it was last sound, and the numbers of the nodes there
        self._lowering = False
        end = self._end = Node(self, "end", (), {}, None)
        end._previous = end._next = end

    # ---- reading

    inputs = property(lambda self: tuple(self._inputs), doc="The input nodes, in order.")
    outputs = property(lambda self: tuple(self._outputs), doc="The nodes that the graph returns, in order.")
    symbols = property(lambda self: tuple(self._symbols), doc="The sizes that differ between calls.")

    @property
    def writes(self):
        """(input, value): the memory of the input holds the value when the graph has run."""
        return tuple((self._inputs[i], value) for i, value in self._writes.items())

    @property
    def nodes(self):
        """The operations in order, as a list."""
        return list(self)

    def __iter__(self):
        node = self._end._next
        while node is not self._end:
            following = node._next
            yield node
            node = following if node.graph is None else node._next

    def __len__(self):
        return sum(1 for _ in self)

    def __getitem__(self, name):
        """The value with this name: graph["x"], graph["%3"]. Raises KeyError."""
        wanted = name.removeprefix("%")
        for node in self._all():
            if node.name == wanted:
                return node
        raise KeyError(f"{self._title()} has no value %{wanted}")

    def find(self, op=None, module=None, where=None):
        """The operations with this op, of this module (its path, or the path of one around it) for which `where(node)` is true."""
        def wanted(node):
            return ((op is None or node.op == op)
                    and (module is None or node.module == module or node.module.startswith(module + "."))
                    and (where is None or where(node)))

        return [node for node in self if wanted(node)]

    def __str__(self):
        return self._as_core().short_text

    def __repr__(self):
        return f"<framejit graph {self.name} of {len(self)} operations>"

    text = property(__str__, doc="The graph as text, which `Graph.parse` reads.")
    exact_text = property(lambda self: self._as_core().text, doc="The text with a line for each operation, as files have it; parsed too.")

    def tabular(self):
        """A table as text: one line for each value, with its type, its operation and where it comes from."""
        from framejit._graph.drawing import tabular

        return tabular(self)

    def dot(self):
        """The graph in Graphviz's language, as text."""
        from framejit._graph.drawing import dot

        return dot(self)

    def svg(self):
        """The picture that Graphviz makes of `dot()`, as text. Needs the package graphviz and Graphviz's program dot."""
        from framejit._graph.drawing import svg

        return svg(self)

    # ---- editing

    def add(self, op, *operands, before=None, after=None, **attrs):
        """Adds an operation, at the end if not said otherwise, and returns its node.

        op: a name of the table of operations. operands: nodes of this graph. attrs: what the operation's row lists, as in the text.
        Raises GraphError where a rule of the operation is broken.

            graph.add("maximum", x, y, after=y)
            graph.add("reduce_sum", x, axes=[0])
        """
        for operand in operands:
            self._own(operand)
        place = self._place(before, after)
        try:
            type = ArrayType(*_core.infer_type(op, [x._type for x in operands], attrs))
        except (ValueError, TypeError) as error:
            raise GraphError(f"{self._title()}: {op}({', '.join('%' + x.name for x in operands)}): {error}") from None
        near = place._previous if place is self._end else place
        location = (near.file, near.line, near.module) if near is not self._end else ("", 0, "")
        node = Node(self, op, operands, attrs, type, location)
        self._link(node, place)
        self._touch()
        return node

    def constant(self, value, dtype, shape=(), before=None, after=None):
        """Adds a number in every place of an array of this dtype ("f32") and shape."""
        number = self.add("constant", value=value, to=dtype, before=before, after=after)
        if not tuple(shape):
            return number
        return self.add("broadcast", number, dims=[], shape=tuple(shape), after=number)

    def call(self, function, *operands, before=None, after=None):
        """Adds what a function computes: it is captured for arrays of the operands' types, and its operations are copied here.

        function: of arrays of one library, which returns an array or a tuple or list of arrays. Returns the node of its result, or a
        tuple of nodes. Raises GraphError if the function can't be captured for every size the graph may have.

            gelu = graph.call(torch.nn.functional.gelu, x, after=x)
        """
        from framejit._graph.patterns import captured_for

        for operand in operands:
            self._own(operand)
        part = captured_for(self, function, operands)
        results = self.insert(part, operands, before=before, after=after)
        return results[0] if len(results) == 1 else tuple(results)

    def insert(self, graph, operands, before=None, after=None):
        """Copies another graph's operations here, with these nodes as its inputs. The nodes of its outputs, as a list.

        Raises GraphError where types differ, or if that graph writes into its inputs.
        """
        for operand in operands:
            self._own(operand)
        if graph._writes:
            raise GraphError(f"{graph._title()} writes into its inputs: it can't be a part of another graph")
        if any(not composite.operands for composite in graph._composites):
            raise GraphError(f"{graph._title()} stops gradients (detach, no_grad), which would flow through a copy of it")
        if len(operands) != len(graph._inputs):
            raise GraphError(f"{graph._title()} has {len(graph._inputs)} inputs, not {len(operands)}")
        for own, operand in zip(graph._inputs, operands):
            if own._type != operand._type:
                raise GraphError(f"{operand} is {operand._type}, and the input {own} of {graph._title()} is {own._type}")
        place = self._place(before, after)
        copies = dict(zip(graph._inputs, operands))
        for node in graph:
            if node._op == "extern_call":
                raise GraphError(f"{graph._title()} calls the array library ({node._attrs['callee']}), which can't be copied")
            copy = copies[node] = Node(self, node._op, [copies[x] for x in node._operands], dict(node._attrs), node._type,
                                       (node.file, node.line, node.module), bodies=node._bodies)
            self._link(copy, place)
        self._touch()
        return [copies[x] for x in graph._outputs]

    def add_input(self, name, dtype, shape, layout=None):
        """Adds an input behind those there are. Raises GraphError for a captured graph, whose function has its arguments."""
        if self._capture is not None or self._saved is not None:
            raise GraphError(f"{self._title()} was captured: it has the inputs of its function")
        node = Node(self, "input", (), {}, ArrayType(dtype, tuple(shape)), layout=layout)
        self._inputs.append(node)
        try:
            node.name = name
        except GraphError:
            self._inputs.pop()
            raise
        self._core = None
        return node

    def set_outputs(self, *nodes):
        """What the graph returns. Raises GraphError for nodes of another graph."""
        for node in nodes:
            self._own(node)
        kept = dict(zip(self._outputs, self._layouts))
        if len(nodes) == len(self._outputs):  # what takes the place of an output lies in memory as it did
            kept = {**{node: layout for node, old, layout in zip(nodes, self._outputs, self._layouts) if node.shape == old.shape}, **kept}
        self._layouts = [kept.get(node) for node in nodes]
        self._outputs = list(nodes)
        self._touch()

    def replace_pattern(self, pattern, replacement, examples=None):
        """Puts a computation in the place of another wherever it occurs; both are functions of arrays. The number of places.

        pattern, replacement: of the same arguments, arrays, with one result each; they are captured for the types there are.
        examples: ArrayTypes of the arguments, to look for the pattern by; not given: the type of each place's result.

            graph.replace_pattern(torch.relu, torch.nn.functional.gelu)
            graph.replace_pattern(lambda x: x / x.sum(), lambda x: x * (1 / x.sum()), examples=...)
        """
        from framejit._graph.patterns import replace_pattern

        return replace_pattern(self, pattern, replacement, examples)

    def eliminate_dead_code(self):
        """Erases what nothing reads, but for calls of the library, which may have an effect or be what a derivative reads, and what may
        fail: an index out of range, an integer divided by zero, branches and loops.

        Returns the number of nodes erased.
        """
        count = 0
        kept = {*self._outputs, *self._writes.values()}
        for composite in self._composites:  # what its derivative reads
            if composite.result.graph is self:
                kept.update(composite.kept)
        node = self._end._previous
        while node is not self._end:
            previous = node._previous
            if not node._users and node not in kept and node._op not in ("extern_call", "result") and not node._may_fail():
                node.erase()
                count += 1
            node = previous
        return count

    def lint(self):
        """Checks every rule of graphs. Raises GraphError with one line for each that is broken, which names the node."""
        from framejit._graph.core import check_call

        problems, known = [], set(self._inputs)
        for node in self:
            for operand in node._operands:
                if operand.graph is not self:
                    problems.append(f"{node} reads a value of another graph, or an erased one")
                elif operand not in known:
                    problems.append(f"{node} comes before its operand {operand}")
            known.add(node)
        for node in [*self._outputs, *self._writes.values()]:
            if node not in known:
                problems.append(f"{node} is returned or written, and is no value of the graph")
        for node in self.find(op="extern_call"):
            try:
                check_call(node)
            except GraphError as error:
                problems.append(f"{node}: {error}")
        if not problems:
            try:
                self._as_core()
            except GraphError as error:
                problems.append(str(error))
        if problems:
            raise GraphError(f"{self._title()} is broken:\n  " + "\n  ".join(dict.fromkeys(problems)))

    def copy(self):
        """A graph of its own, equal to this one; a captured one is called as this one is."""
        made = Graph(self.name)
        copies = {}
        for node in self._all():
            copy = copies[node] = Node(made, node._op, [copies.get(x, x) for x in node._operands], node._attrs, node._type,
                                       (node.file, node.line, node.module), node._number, node.layout, node._bodies)
            copy._name, copy._spare = node._name, node._spare
            if node.is_input:
                made._inputs.append(copy)
            else:
                made._link(copy, made._end)
        made._outputs = [copies.get(x, x) for x in self._outputs]
        made._writes = {number: copies.get(x, x) for number, x in self._writes.items()}
        made._layouts, made._symbols, made._size_names = list(self._layouts), list(self._symbols), dict(self._size_names)
        made._composites = [copied for copied in (x.copied(copies) for x in self._composites) if copied is not None]
        made._core, made._capture, made._saved, made._version = self._core, self._capture, self._saved, self._version
        made._arrays_of = self._arrays_of
        return made

    __copy__ = copy

    def __deepcopy__(self, memo):
        return self.copy()

    def __reduce__(self):
        raise TypeError("a framejit.Graph is not pickled: Graph.save and Graph.load, or str(graph) and Graph.parse")

    # ---- running

    def source(self, library=None):
        """The text of a Python function of the array library alone that computes the graph. library: "numpy" or "torch"."""
        from framejit._support import graph_code

        return graph_code.source(self._as_core(), library or self._library())

    def function(self, library=None):
        """That function: of the inputs, then of the integers the graph needs; it returns a list: outputs, then written values."""
        from framejit._support import graph_code

        return graph_code.function(self._as_core(), library or self._library())

    def to_fx(self, functional=False):
        """The graph as a torch.fx.GraphModule of ATen's operators: of the inputs, then of the integers the graph needs; returns a list.

        What the graph writes into inputs, the module writes into its arguments, by `copy_` at its end: it does what the graph
        does, and `framejit.from_fx` of it writes too. functional: it writes nothing; the written values come behind the
        outputs, as from `run`. Sizes that differ between calls stay symbols, of 2 or more; `shape_env.guards` of the module are
        torch's conditions on them. Nodes have `meta["val"]` and, as `stack_trace`, the line. It has no derivative but the one
        that torch makes of its operators. Raises GraphError, which names the node, for what has no form in torch, and where a
        captured function returns a view of what the graph computes, which is no output of the graph (functional: that is one).
        """
        from framejit._graph.fx import to_fx

        return to_fx(self, functional)

    def run(self, *arrays):
        """Runs the graph operation by operation, without compiling it, on its inputs in order (then the integers it needs).

        Returns a list: what the graph returns, then what it writes into inputs, which are left as they are. For back ends to fall
        back on, and to look where a difference comes from.
        """
        key = "run", _library_of(arrays) or self._library()
        if key not in self._current():
            self._cached[key] = self.function(key[1])
        return self._cached[key](*arrays)

    def compile(self, backend=None, **options):
        """The graph as a compiled function. options: those of `framejit.compile`.

        A captured graph's function takes the arguments of the function that was captured, checks what was assumed while tracing, and
        returns what that function returns. Another graph's takes the inputs and returns a list, as `run` does.
        """
        from framejit._graph.running import compiled

        return compiled(self, backend, options)

    def __call__(self, *args, **kwargs):
        """Runs the graph as it is now, compiled: see `compile`, whose function costs 0.2 µs less in each call."""
        current = self._current()
        run = current.get("call")
        if run is None or (self._capture is None and self._saved is None and current["arrays"] != _library_of(args)):
            from framejit._graph.running import compiled

            current["arrays"] = _library_of(args)
            run = current["call"] = compiled(self, library=current["arrays"])
        try:
            return run(*args, **kwargs)
        except GraphBreakError:  # the library refuses arguments of other types than the graph's, perhaps
            other = None if self._capture is None else self._capture.other_argument(args, kwargs)
            if other is None:
                raise
        raise GraphError(other)

    def lower(self):
        """The graph with every call of the library traced: a primitive graph of the same inputs, which returns a list."""
        from framejit._graph.patterns import lowered

        return lowered(self)

    @property
    def assumptions(self):
        """What was decided while tracing, in words: sizes, types, values of arguments and globals, each with the line that asked."""
        if self._saved is not None:
            return list(self._saved.assumptions)
        return [] if self._capture is None else self._capture.assumptions()

    @property
    def state(self):
        """The arrays that the graph uses and is not given: parameters, buffers, globals; by the names of their inputs."""
        from framejit._graph.signature import state_of

        found = self._saved.state if self._saved is not None else state_of(self._capture) if self._capture is not None else {}
        return {self._inputs[i].name: array for i, array in found.items()}

    def save(self, path):
        """Writes the graph with its arrays to a file, which `Graph.load` reads where the function it was captured from is not there.

        The file is a zip of texts and a safetensors file; docs/captured-graphs.md describes it. It is written beside and renamed.
        Raises GraphError for a path that can't be written, and for a graph that needs more than arrays: objects that its function
        changes or returns, calls of the library on objects without a text.
        """
        from framejit._graph.files import save

        save(self, path)

    def to_onnx(self, path, *, opset=None):
        """Writes the graph with its arrays to a file as an ONNX model. Needs the package onnx.

        path: the file; arrays of more than 2 GB in all lie beside it, in `<path>.data`. opset: the version of ONNX's operators, 18 (None)
        or newer. Inputs have the names of the graph's inputs, parameters and buffers are initializers, sizes that differ between calls
        are named as their `Dim` is. Outputs are the arrays that the function returns, called `output`, `output_0` and so on, or by the keys
        and attributes of what it returns; what it writes into an input is an output behind those, `<input>_after`. The model is
        checked by the package onnx, written beside the path and renamed.

        Raises GraphError, which names the operation, its line and what to do, for what ONNX has no form of; for a path that can't be
        written; for a package onnx that is missing or older than the opset.

            graph = framejit.capture(model.eval(), x, dynamic_shapes={"x": {0: framejit.Dim("batch", min=2)}})
            graph.to_onnx("model.onnx")
            onnxruntime.InferenceSession("model.onnx").run(None, {"x": x.numpy()})
        """
        from framejit._graph.onnx import to_onnx

        to_onnx(self, path, opset)

    @staticmethod
    def load(path):
        """The graph of a file that `save` has written; it is called as the captured one was. Nothing of the file is executed.

        Raises GraphError for a file that is none of framejit's, is damaged, or was written by a newer framejit.
        """
        from framejit._graph.files import load

        return load(path)

    @staticmethod
    def parse(text):
        """The graph of a text as `print` shows it. Raises GraphError with the line that can't be read, or the rule that is broken."""
        from framejit._graph.core import from_core

        try:
            core = _core.CapturedGraph.parse(text)
        except ValueError as error:
            raise GraphError(f"this is no text of a graph: {error}") from None
        if core.problems:
            node, problem = core.problems[0]
            raise GraphError(f"the graph of this text is broken: {problem}" + (f", in operation {node}" if node is not None else ""))
        return from_core(core)

    # ---- inside

    def _all(self):
        yield from self._inputs
        yield from self

    def _title(self):
        return f"the graph of {self.name}"

    def _own(self, node):
        if not isinstance(node, Node):
            raise GraphError(f"{self._title()} has nodes, and {node!r} is none")
        if node.graph is not self:
            raise GraphError(f"{node} is not of {self._title()}")

    def _touch(self):
        self._version += 1

    def _current(self):
        """What was made of the graph as it is now."""
        if self._cached.get("version") != self._version:
            self._cached = {"version": self._version}
        return self._cached

    def _shown_values(self):
        """By node: its name, and what the text says for it where it is read. Of a broken graph: what it was when it was sound."""
        current = self._current()
        if "shown" not in current:
            if not self._lowering:
                try:
                    self._as_core()
                except GraphError:
                    pass
            found = {}
            if self._shown is not None:
                core, numbers = self._shown
                shown = core.shown
                found = {node: shown[number] for node, number in numbers.items()}
            taken = {name for name, _ in found.values()}
            free = (str(i) for i in range(len(taken) + len(self) + 1) if str(i) not in taken)
            for node in self._all():
                if node not in found and isinstance(node._type, ArrayType):  # a call of several results has no value of its own
                    name = node._name or next(free)
                    found[node] = name, f"%{name}"
            current["shown"] = found
        return current["shown"]

    def _place(self, before, after):
        if before is not None and after is not None:
            raise GraphError("an operation is added before a node or after one, not both")
        if before is None and after is None:
            return self._end
        self._own(before or after)
        if before is not None:
            return before if not before.is_input else self._end._next
        place = after._next if not after.is_input else self._end._next
        while place._op == "result":
            place = place._next
        return place

    def _link(self, node, place):
        node._previous, node._next = place._previous, place
        place._previous._next = place._previous = node

    def _apply(self, changes):
        """Changes nodes, and the types of what reads them: all, or none with a GraphError."""
        types, waiting, seen = {}, [], {}

        def operands_of(node):
            return changes.get(node, {}).get("operands", node._operands)

        for node, change in changes.items():
            for operand in change.get("operands", ()):
                self._own(operand)
            waiting.append(node)
        while waiting:
            node = waiting.pop(0)
            if node._op in ("extern_call", "result") or node._bodies:
                given = [types.get(x, x._type) for x in operands_of(node)]
                if node._op == "result" or given != [x._type for x in node._operands]:
                    what = "calls the array library" if node._op == "extern_call" else "is a loop" if node._op == "loop" else "is a branch"
                    raise GraphError(f"{node} {what}, for operands of other types")
                continue
            change = changes.get(node, {})
            attrs = change.get("attrs", dict(node._attrs))
            seen[node] = seen.get(node, 0) + 1
            if seen[node] > _MOST_INFERENCES:
                raise GraphError(f"{self._title()}: the type of {node} depends on itself")
            op = change.get("op", node._op)
            operands = operands_of(node)
            try:
                found = ArrayType(*_core.infer_type(op, [types.get(x, x._type) for x in operands], attrs))
            except (ValueError, TypeError) as error:
                given = ", ".join(f"%{x.name}: {types.get(x, x._type)}" for x in operands)
                raise GraphError(f"{self._title()}: {node}: {op}({given}): {error}") from None
            if found != types.get(node, node._type):
                types[node] = found
                waiting.extend(user for user in node._users if user not in waiting)
        for node, change in changes.items():
            node._op = change.get("op", node._op)
            if "attrs" in change:
                node._attrs = Attributes(node, change["attrs"])
            if "operands" in change:
                for operand in node._operands:
                    operand._users.pop(node, None)
                node._operands = tuple(change["operands"])
                for operand in node._operands:
                    operand._users[node] = None
        for node, type in types.items():
            node._type = type
        self._touch()

    def _as_core(self):
        from framejit._graph.core import to_core

        found = self._current().get("core")
        if found is None:
            self._lowering = True
            try:
                found, numbers = to_core(self)
            finally:
                self._lowering = False
            self._cached["core"], self._shown = found, (found, numbers)
        return found

    def _library(self):
        """The one that its arrays are of, as far as it is known."""
        if self._capture is not None:
            return self._capture.library
        if self._saved is not None:
            return self._saved.library
        if self._arrays_of is not None:
            return self._arrays_of
        for node in self:
            if node._op == "extern_call":
                return "numpy" if re.search(r"(^|= )numpy\.", node._attrs["callee"]) else "torch"
        return "torch" if any(node._type.dtype == "bf16" for node in self._all() if isinstance(node._type, ArrayType)) else "numpy"


def _library_of(arrays):
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(x, torch.Tensor) for x in arrays):
        return "torch"
    return "numpy" if arrays else None
