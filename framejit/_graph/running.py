"""A graph as a compiled function."""
from framejit import _core
from framejit._api import compile_with_passes


def compiled(graph, backend=None, options=None, library=None):
    options = {"strict": True, **(options or {})}
    if graph._capture is None:
        from framejit._support import graph_code

        function = graph_code.function(graph._as_core(), library or graph._library(), checked=True)
        return compile_with_passes(function, None, backend=backend, **options)
    captured = graph._capture
    hook = captured.substitute(None if graph._version == captured.version else graph._as_core())
    made = compile_with_passes(captured.face, hook, backend=backend, **{"fullgraph": True, "dynamic": captured.dynamic, **options})
    _core.mark_arguments(made, captured.axes)
    return made
