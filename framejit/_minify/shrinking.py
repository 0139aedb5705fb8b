"""A smaller case that fails in the same way: fewer outputs, fewer operations, smaller arrays. Start at `shrunk`.

A part of the piece is a set of outputs and a set of nodes that are cut: what reads them is given their values of one run by the library. So
recorded values take the place of what comes before a fault, and what comes after it is left out.
"""
from framejit._errors import GraphError
from framejit._graph.nodes import Graph
from framejit._minify.pieces import Case, _tried, part

_SIZES = {"shape", "sizes", "starts", "low", "high", "count"}  # attributes that count elements


def shrunk(piece, fails):
    """The smallest Case found. fails: given a function and arguments, says whether the failure is the one looked for."""
    return _smaller_arrays(_Shrinking(piece, fails).case, fails)


class _Shrinking:
    def __init__(self, piece, fails):
        self.piece, self.fails = piece, fails
        writes = [value for _, value in piece.graph.writes]
        self.outputs, self.cut = [node for node in dict.fromkeys([*piece.graph.outputs, *writes]) if not node.is_input], set()
        self.case = part(piece, self.outputs, self.cut)
        size = None
        while size != self.size():
            size = self.size()
            self.drop_outputs()
            self.end_earlier()
            self.begin_later()

    def size(self):
        return sum(1 for node in self.case.graph if not _is_number(node)), len(self.outputs)

    def holds(self, outputs, cut):
        """Goes on with this part if it fails, and says whether it does."""
        try:
            case = part(self.piece, outputs, cut)
            failed = case is not None and _tried(self.fails, case)
        except GraphError:  # sizes that nobody gives it
            return False
        if failed:
            self.outputs, self.cut, self.case = list(outputs), cut - set(outputs), case
        return bool(failed)

    def drop_outputs(self):
        if len(self.outputs) > 1 and not any(self.holds([node], self.cut) for node in self.outputs):
            for node in list(self.outputs):
                if len(self.outputs) > 1:
                    self.holds([x for x in self.outputs if x is not node], self.cut)

    def nodes(self):
        """The operations of the part, in order, without numbers that are written in it."""
        found, waiting = set(), list(self.outputs)
        while waiting:
            node = waiting.pop()
            if node not in found and node not in self.cut and not node.is_input:
                found.add(node)
                waiting.extend(node.operands)
        return [node for node in self.piece.graph if node in found and node in self.piece.values and not _is_number(node)]

    def end_earlier(self):
        """By halves: a fault is seen at its operation, and at what is computed from it."""
        if len(self.outputs) > 1:
            return
        nodes, low = self.nodes(), 0
        high = len(nodes) - 1
        while low < high:
            middle = (low + high) // 2
            if self.holds([nodes[middle]], self.cut):
                high = middle
            else:
                low = middle + 1
        while any(self.holds([x], self.cut) for x in self.outputs[0].operands if x in nodes):
            pass

    def begin_later(self):
        nodes = [node for node in self.nodes() if node not in self.outputs]
        size = len(nodes)
        while size:
            for start in range(0, len(nodes), size):
                chunk = set(nodes[start:start + size]) & set(self.nodes())
                if chunk:
                    self.holds(self.outputs, self.cut | chunk)
            nodes = [node for node in self.nodes() if node not in self.outputs]
            size = min(size // 2, len(nodes))


def _is_number(node):
    return node.op == "constant" or node.op == "broadcast" and node.operands[0].op == "constant"


def _smaller_arrays(case, fails):
    """Each size in turn as 1, 2, or by halves, wherever it stands; types say whether the graph allows it."""
    written = {size for node in case.graph._all() for size in getattr(node.type, "shape", ()) if isinstance(size, int)}
    symbols = {size: count for node, value in zip(case.graph.inputs, case.arguments) for size, count in zip(node.shape, value.shape)
               if isinstance(size, str) and size.isidentifier()}
    for size, count in sorted([*((size, size) for size in written), *symbols.items()], key=lambda pair: -pair[1]):
        while count > 1:
            for less in sorted({1, min(2, count - 1), count // 2}):
                smaller = _with_size(case, size, less)
                if smaller is not None and _tried(fails, smaller):
                    case, count = smaller, less
                    size = less if isinstance(size, int) else size
                    break
            else:
                break
    return case


def _with_size(case, size, less):
    """The case with `less` elements where there are `size`, a number or a symbol's name; None: its graph needs that size."""
    def changed(value):
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return less if value == size and type(value) is int else value

    arguments = list(case.arguments)
    for i, node in enumerate(case.graph.inputs):
        arguments[i] = arguments[i][tuple(slice(0, less) if x == size else slice(None) for x in node.shape)]
    if isinstance(size, str):
        return case._replace(arguments=arguments)
    made, copies = Graph(case.graph.name), {}
    made._symbols = list(case.graph.symbols)
    try:
        for node in case.graph.inputs:
            copies[node] = made.add_input(node.name, node.dtype, changed(node.shape))
        for node in case.graph:
            if node.op == "extern_call":
                return None
            attrs = {name: changed(value) if name in _SIZES else value for name, value in node.attrs.items()}
            copy = copies[node] = made.add(node.op, *(copies[x] for x in node.operands), **attrs)
            copy.file, copy.line, copy.module = node.file, node.line, node.module
        made.set_outputs(*(copies[node] for node in case.graph.outputs))
        made._as_core()
    except GraphError:
        return None
    return Case(made, arguments, case.library)
