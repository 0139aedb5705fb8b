"""A graph as a compiled function."""
from framejit import _core
from framejit._api import compile_with_passes
from framejit._errors import GraphError
from framejit._graph import signature
from framejit._graph.face import face_of


def compiled(graph, backend=None, options=None, library=None, state=None, on_device=True):
    """Of a graph without its function, state: by input, its array, in the place of those it has; on_device: arguments are where they were."""
    options = {"strict": True, **(options or {})}
    if graph._capture is not None:
        captured = graph._capture
        face, edit = captured.callable_with(None if graph._version == captured.version else graph.copy())
        options = {"fullgraph": True, "dynamic": captured.dynamic, **options}
        return _with_branches(compile_with_passes(face, edit, backend=backend, **options))
    from framejit._support import graph_code

    core, saved = graph._as_core(), graph._saved
    library = saved.library if saved is not None else library or graph._library()
    try:
        function = graph_code.function(core, library, checked=True)
    except TypeError as error:
        raise GraphError(f"{graph._title()} can't be run: {error}") from None
    if saved is not None and saved.signature is not None:
        try:
            signature.check_results(graph)
        except GraphError as error:
            raise GraphError(f"{graph._title()} can't be called as its function: {error}") from None
        described = saved.signature if on_device else signature.on_any_device(saved.signature)
        function = face_of(described, core, library, function, saved.state if state is None else state)
    return _with_branches(compile_with_passes(function, None, backend=backend, **options))


def _with_branches(function):
    _core.join_branches(function)
    return function
