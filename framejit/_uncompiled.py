"""framejit without its extension: where that can't be, in a subinterpreter or without the GIL, every function stays as it is."""
import contextlib
import functools
import sys
import warnings

from framejit._dim import Dim  # noqa: F401
from framejit._errors import BackendError, CheckError, Error, GraphBreakError, GraphError, RecompileError  # noqa: F401


def why():
    """Why this interpreter compiles nothing, a sentence; None: it does."""
    if is_free_threaded():
        return ("framejit compiles nothing on a free-threaded Python, where what it knows of frames, dicts and reference counts can change under it; "
                "everything runs as without it")
    return "framejit compiles nothing in a subinterpreter; everything runs as without it" if in_subinterpreter() else None


def is_free_threaded():
    """Whether this is such a build, also while it runs with the GIL."""
    return "t" in sys.abiflags


def in_subinterpreter():
    try:  # CPython's own module, under its name of 3.13 and before
        import _interpreters as interpreters
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            return False
    return interpreters.get_current() != interpreters.get_main()


REASON = why()


def without_extension(package):
    """What an ImportError says where the extension is not beside the package's files."""
    import os

    checkout = os.path.dirname(package)
    if not os.path.isfile(os.path.join(checkout, "frame_hook", "CMakeLists.txt")):
        return f"framejit's compiled part, framejit._core, is not in {package}: install framejit anew"
    return (f"{package} is framejit's source, which has no compiled part. Python found it before an installed framejit, because the "
            f"program was started in {checkout} or the folder is on PYTHONPATH. Start it in another folder, or with `python -P`; "
            "to run the source itself, build it with `./run build` and use the Python of its .venv")


@functools.cache
def notice_once():
    warnings.warn(REASON, RuntimeWarning, stacklevel=3)


def compile(function=None, *, backend=None, **options):
    if function is None:
        return compile
    if not callable(function) and not isinstance(function, (staticmethod, classmethod)):
        raise TypeError(f"framejit.compile takes a function, a module or another callable object, not {function!r}")
    notice_once()
    return function


def disable(function=None):
    return disable if function is None else function


@contextlib.contextmanager
def options(**changes):
    yield


def explain(function):
    raise Error(REASON)


def _refused(*arguments, **keywords):
    """Means something only where it is compiled."""
    raise Error(REASON)


capture = export = from_fx = fx_backend = grad = hessian = jacobian = jvp = minify = profile = value_and_grad = vjp = vmap = _refused


def stop_gradient(x):
    return x


def checkpoint(function):
    if not callable(function):
        raise TypeError(f"framejit.checkpoint takes a callable, not {function!r}")
    return function


class custom_derivative:
    """The function as written, which is derived nowhere; its rules stay unused."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def vjp(self, rule):
        return rule

    jvp = result = batched = vjp


library_function = custom_derivative


def _nothing(*arguments, **keywords):
    """Has something to do only where something is compiled."""


graph_break = mark_dynamic = reset = set_logs = set_progress = register_backend = _nothing


def warm_up(function, *examples):
    return 0


def is_compiling():
    return False


def prange(start, stop=None, step=1, /):
    return range(start) if stop is None else range(start, stop, step)


def cache_info():
    return {}


__all__ = ["BackendError", "CheckError", "Dim", "Error", "GraphBreakError", "GraphError", "RecompileError", "cache_info", "capture",
           "checkpoint", "compile", "custom_derivative", "disable", "explain", "export", "from_fx", "fx_backend", "grad", "graph_break", "hessian",
           "is_compiling", "jacobian", "jvp", "library_function", "mark_dynamic", "minify", "options", "prange", "profile", "register_backend", "reset",
           "set_logs", "set_progress", "stop_gradient", "value_and_grad", "vjp", "vmap", "warm_up"]
