"""framejit: a just-in-time compiler for array programs inside CPython.

    @framejit.compile
    def f(x, y):
        return np.maximum((x + y) * 2, 0)

The function keeps its meaning; its work on numpy.ndarray and torch.Tensor runs as a few fused kernels.

compile, disable, graph_break, is_compiling, warm_up    what is compiled, and when
prange                                                  passes that several threads run
options, mark_dynamic, Dim, reset, cache_info           how it is compiled, and what is kept
explain, profile, set_logs, set_progress                what becomes of a function, why, and what it takes
minify                                                  a short script that shows what goes wrong
grad, value_and_grad, vjp, jvp, jacobian, hessian       derivatives of functions of arrays
vmap, checkpoint, stop_gradient, custom_derivative      their companions
capture, Graph, Node, from_fx, library_function         graphs as objects
export, ExportedProgram                                 a graph for a range of sizes, checked, with its arrays, in a file
register_backend, fx_backend                            what runs graphs
Error, GraphBreakError, GraphError, BackendError,       what is raised
RecompileError, CheckError

`python -m framejit run script.py` runs a program and says what framejit did; `python -m framejit doctor` looks at the machine.
"""
from framejit import _uncompiled

if _uncompiled.REASON is not None:
    from framejit._uncompiled import *
    __all__ = _uncompiled.__all__
    if _uncompiled.is_free_threaded():
        _uncompiled.notice_once()
else:
    try:
        from framejit._core import CompiledFunction
    except ModuleNotFoundError as error:
        if error.name != "framejit._core":
            raise
        raise ImportError(_uncompiled.without_extension(__path__[0]), name=error.name) from None
    from framejit._api import (cache_info, compile, disable, graph_break, is_compiling, mark_dynamic, options, prange, reset, set_logs,
                               warm_up, _using)
    from framejit._backends import register_backend
    from framejit._checkpoint import checkpoint
    from framejit._custom_derivatives import custom_derivative, stop_gradient
    from framejit._dim import Dim
    from framejit._errors import BackendError, CheckError, Error, GraphBreakError, GraphError, RecompileError
    from framejit._explain import explain
    from framejit._library_functions import library_function
    from framejit._pickle import reduce_function as _reduce_function, reduce_method as _reduce_method
    from framejit._progress import set_progress
    from framejit._transforms import grad, hessian, jacobian, jvp, value_and_grad, vjp, vmap

    __all__ = [*_uncompiled.__all__, "CompiledFunction", "ExportedProgram", "Graph", "Node"]
    # Imported when they are first asked for: a third of the package's time, and most programs look at no graph.
    _later = {"capture": "_graph.capture", "from_fx": "_graph.fx", "fx_backend": "_graph.fx",
              "export": "_export.program",
              "ExportedProgram": "_export.program", "Graph": "_graph.nodes", "Node": "_graph.nodes", "minify": "_minify.main", "profile": "_profile"}


def _instead(name):
    """"; what to write here ..." of a name that a peer has, or ""."""
    from framejit._peers import NAMES

    return f"; instead: {NAMES[name]}" if name in NAMES else ""


def _look_at_variables():
    """Names of environment variables that are nearly one of framejit's do nothing: that is said once."""
    import os

    if any(name.startswith("FRAMEJIT_") for name in os.environ):
        from framejit import _core, _peers
        import warnings

        for variable, meant in _peers.misspelt_variables(os.environ, _core.option_names()):
            warnings.warn(f"framejit has no option of the name {variable}; did you mean {meant}?", RuntimeWarning, stacklevel=3)


def _version():
    """The version that pyproject.toml gives, by way of what was installed; "unknown" in a checkout that is not installed."""
    import importlib.metadata  # some 30 ms: more than the rest of framejit

    try:
        return importlib.metadata.version("framejit")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def __getattr__(name):
    if name == "__version__":
        value = _version()
    elif name in globals().get("_later", ()):
        import importlib

        value = getattr(importlib.import_module(f"framejit.{_later[name]}"), name)
    else:
        import sys

        raise AttributeError(f"module 'framejit' has no attribute {name!r}{_instead(name)}", name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


if _uncompiled.REASON is None:
    _look_at_variables()


def __dir__():
    return sorted([*__all__, "__version__"])
