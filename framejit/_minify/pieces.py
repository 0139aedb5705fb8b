"""The graph that fails: the function's pieces as they run, each tested by itself with the arrays it is given. Start at `failing_piece`."""
import sys
from typing import NamedTuple

import numpy as np

from framejit._api import compile, options as options_of_block
from framejit._graph.calls import is_text
from framejit._graph.nodes import ArrayType, Graph, Node
from framejit._minify.failing import called, copied
from framejit._support import graph_code


class Piece(NamedTuple):
    """A graph, and the value of each of its nodes in one run by the library. sizes: what its symbols were."""
    graph: Graph
    values: dict
    sizes: dict
    library: str


class Case(NamedTuple):
    """A graph that runs without what it was captured from, and arguments: arrays, then the integers it needs."""
    graph: Graph
    arguments: list
    library: str

    @property
    def function(self):
        return self.graph.function(self.library)


def failing_piece(function, args, options, fails):
    """(the first Piece that fails by itself, its Failure), or (None, how many pieces there were).

    options: those of `framejit.compile`, for the function. fails: given a function and its arguments.
    """
    recorder = _Recorder(fails)
    options = {name: value for name, value in options.items() if name not in ("backend", "passes")}
    with options_of_block(strict=True):
        compile(function, backend=recorder, passes=[recorder.take], **options)(*copied(args))
    return recorder.found or (None, recorder.count)


class _Recorder:
    """A back end that runs operation by operation, and a pass that notes each graph as it was captured."""

    def __init__(self, fails):
        self.fails, self.found, self.captured, self.count = fails, None, None, 0

    def take(self, graph):
        self.captured = _detached(graph)
        return graph

    def __call__(self, graph, example_inputs):
        # The graph as captured first: the optimised one may be wrong already. A backward graph was not captured.
        captured, self.captured = self.captured, None
        graphs = [_detached(graph)]
        if captured is not None and [node.type for node in captured.inputs] == [node.type for node in graph.inputs]:
            graphs.insert(0, captured)
        self.count += 1
        replayed = graph_code.replay(graph, example_inputs)

        def run(*arguments):
            if self.found is None:
                self.found = next(filter(None, (self.tested(x, arguments) for x in graphs)), None)
            with np.errstate(all="ignore"):
                return replayed(*arguments)

        return run

    def tested(self, graph, arguments):
        try:
            piece = _recorded(graph, arguments)
        except Exception:  # it has no form in the library, or an operation raises
            return None
        outputs = [node for node in dict.fromkeys([*graph.outputs, *(value for _, value in graph.writes)]) if not node.is_input]
        case = part(piece, outputs, set())
        failure = case and _tried(self.fails, case)
        return (piece, failure) if failure else None


def _tried(fails, case):
    """The Failure; None: none, or the case does not run as written."""
    try:
        called(case.function, case.arguments)
    except Exception:
        return None
    return fails(case.function, case.arguments)


def _detached(graph):
    copy = graph.copy()
    copy._capture = copy._saved = None
    return copy


def _recorded(graph, arguments):
    torch = sys.modules.get("torch")
    library = "torch" if torch is not None and any(isinstance(x, torch.Tensor) for x in arguments) else graph._library()
    if library == "torch":
        arguments = [torch.from_numpy(np.array(x)) if isinstance(x, (np.ndarray, np.generic)) else x for x in arguments]
    arguments = [x.detach() if library == "torch" and isinstance(x, torch.Tensor) else x for x in copied(list(arguments))]
    whole = _detached(graph)
    whole._writes = {}
    nodes = [node for node in graph if isinstance(node.type, ArrayType)]
    whole.set_outputs(*(copy for copy in whole if isinstance(copy.type, ArrayType)))
    with np.errstate(all="ignore"):
        values = dict(zip(nodes, whole.function(library)(*copied(arguments))))
    arrays = len(graph.inputs)
    values.update(zip(graph.inputs, arguments))
    sizes = dict(zip((f"s{number}" for number in graph._as_core().integers), arguments[arrays:]))
    for node, value in values.items():
        sizes.update((size, found) for size, found in zip(node.shape, value.shape) if isinstance(size, str))
    return Piece(graph, values, sizes, library)


def is_nameless(node):
    """Whether it is of a call that has no text: a script can't make it."""
    call = node.operands[0] if node.op == "result" else node
    return call.op == "extern_call" and not is_text(call.attrs["callee"])


def part(piece, outputs, cut):
    """The Case that computes `outputs`, nodes of the piece, and is given the values of the nodes in `cut`; None: there is none.

    Without what nothing reads, and given the results of calls that have no text.
    """
    outputs = [node for node in outputs if not is_nameless(node)]
    if not outputs:
        return None
    needed, waiting = set(), list(outputs)
    given = {node for node in piece.graph if node in cut or is_nameless(node)} - set(outputs)
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        if node in given:
            continue
        waiting.extend(node.operands)
        if node.op == "extern_call" and not isinstance(node.type, ArrayType):  # it has all of its results, or none
            given.difference_update(node.users)
            needed.difference_update(node.users)
            waiting.extend(user for user in node.users if user.op == "result")
    made, copies, arguments = Graph(piece.graph.name), {}, []
    counts = {str(node.attrs["count"]) for node in needed - given if node.op in ("nonzero", "as_size")}
    made._symbols = [symbol._replace(late=symbol.late and symbol.name in counts) for symbol in piece.graph.symbols]
    for number, node in enumerate(piece.graph._all()):
        if node not in needed:
            continue
        if node.is_input or node in given:
            name = node.name if node.is_input else f"{'call' if node.op in ('extern_call', 'result') else node.op}_{number}"
            copies[node] = made.add_input(name, *node.type)
            arguments.append(piece.values[node])
            continue
        attrs = {**node.attrs, "handle": -1} if node.op == "extern_call" else node.attrs
        copy = copies[node] = Node(made, node.op, [copies[x] for x in node.operands], attrs, node.type,
                                   (node.file, node.line, node.module), bodies=node._bodies)
        made._link(copy, made._end)
    made.set_outputs(*(copies[node] for node in outputs))
    integers = [piece.sizes.get(f"s{number}", 0) for number in made._as_core().integers]
    return Case(made, [*arguments, *integers], piece.library)
