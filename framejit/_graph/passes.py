"""The user's passes: `framejit.compile(fn, passes=[f])`, `f(graph) -> graph`."""
from framejit._errors import BackendError, Error, GraphError
from framejit._graph.core import from_core
from framejit._graph.nodes import Graph


class Edit:
    """What the compiler calls with each graph as captured; the edited graph, as captured ones are, or None: nothing has changed.

    axes: of the function's arguments, those that are dynamic: see `_core.mark_arguments`.
    """
    axes = ()


class Passes(Edit):

    def __init__(self, functions):
        if callable(functions):
            functions = [functions]
        self.functions = list(functions)
        for function in self.functions:
            if not callable(function):
                raise TypeError(f"framejit.compile: a pass is a function of a graph, not {function!r}")

    def __call__(self, core, found):
        given = graph = from_core(core)
        version = graph._version
        for function in self.functions:
            name = getattr(function, "__name__", repr(function))
            try:
                graph = function(graph)
            except Error:
                raise  # a GraphError of an edit says which
            except Exception as error:
                raise BackendError(f"framejit: the pass {name}, given the graph of {graph.name}, raised {type(error).__name__}: {error}\n"
                                   "  try   print(graph) at the start of the pass shows what it is given") from error
            if not isinstance(graph, Graph):
                raise GraphError(f"the pass {name} returned {type(graph).__name__}; expected the graph it was given, edited or not")
            if graph._core is not core:
                raise GraphError(f"the pass {name} returned another graph than it was given; Graph.insert copies one graph into another")
            graph.lint()
        return None if graph is given and graph._version == version else graph._as_core()
