"""Back ends by name: the built-in ones are known to the core, others are registered here or by an entry point."""
from framejit import _core
from framejit._nearest import did_you_mean
from framejit._peers import BACKENDS, hint

_registered = {}  # "eager" and the checks join when they are first asked for
_CHECKS = ("verify", "check_nan")


def register_backend(name, backend=None):
    """Makes a back end available as `framejit.compile(backend=name)`; also a decorator, `@register_backend("mine")`. Returns the back end.

    name: a str that is not empty. backend: a callable `backend(graph, example_inputs) -> callable`. It is called once for each graph, a
    framejit.Graph, with a list of arrays like those to come. What it returns gets the graph's input arrays (then the integers the graph
    needs that are no array's size) and returns a list: the graph's outputs, then the values it writes into inputs, each with the shape
    and the dtype the graph says. They may be any memory: they are copied into arrays with eager's strides.

    Raises TypeError for a name that is no str and a back end that is not callable, ValueError for a name that is built in. Calls of what
    is compiled raise BackendError where something else is returned, or where either callable has raised, which is its `__cause__`.

        @framejit.register_backend("printing")
        def printing(graph, example_inputs):
            print(graph)
            return graph.run                # operation by operation

        framejit.compile(f, backend="printing")(x)
    """
    if backend is None:
        return lambda function: register_backend(name, function)
    if not isinstance(name, str) or not name:
        raise TypeError("register_backend: the name is a string that is not empty")
    if not callable(backend):
        raise TypeError(f"register_backend: {backend!r} is not callable")
    if _core.is_builtin_backend(name) or name == "eager" or name in _CHECKS:
        raise ValueError(f"register_backend: {name!r} is built in")
    _registered[name] = backend
    return backend


def _entry_point(name):
    import importlib.metadata  # some 30 ms: more than the rest of framejit

    for point in importlib.metadata.entry_points(group="framejit.backends"):
        if point.name == name:
            return point.load()
    return None


def resolve(name):
    """The callable registered under a name; ValueError names those there are."""
    backend = _registered.get(name)
    if backend is None and name == "eager":
        from framejit._support.graph_code import replay as backend
    elif backend is None and name in _CHECKS:
        from framejit import _checks

        backend = getattr(_checks, name)
    backend = backend or _entry_point(name)
    if backend is None:
        known = ["auto", "llvm", "cuda", "eager", "reference", *_CHECKS, *sorted(set(_registered) - {"eager", *_CHECKS})]
        meant = hint(BACKENDS, name) or did_you_mean(name, known)
        raise ValueError(f"framejit has no back end {name!r}; there are {', '.join(known)}{meant}")
    _registered[name] = backend
    return backend


def _graph(captured):
    from framejit._graph.core import from_core

    return from_core(captured)


_core.set_backend_resolver(resolve)
_core.set_graph_maker(_graph)
