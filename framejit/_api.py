"""compile and its companions. Nothing here knows about tracing or shapes."""
import contextlib
import functools
import sys
import threading
import types
import warnings

from framejit import _core
from framejit._backends import resolve
from framejit._dim import LARGEST, Dim
from framejit._errors import BackendError, Error, GraphBreakError, GraphError
from framejit._wrap import wrap_object

_core.set_error_types(Error, GraphBreakError, BackendError, GraphError)


def compile(function=None, *, backend=None, passes=None, **options):
    """Compiles a function, method, module or callable object; also a decorator, with or without options.

    backend: "auto", "llvm", "cuda", "eager", "reference", a registered name, or `backend(graph, example_inputs) -> callable`;
    not given: what `framejit.options` or FRAMEJIT_BACKEND say, else "auto".
    fullgraph: raise GraphBreakError where a graph would break. dynamic: sizes are symbols from the first call (True), never
    (False), or once one has changed (None). mode: "default"; for CUDA devices also "reduce-overhead", which
    issues kernels that follow each other as one CUDA graph, "max-autotune-no-cudagraphs", which measures sizes of blocks, and
    "max-autotune", both. passes: functions `f(graph) -> graph` that are given each captured graph (a framejit.Graph) before the back
    end, in order, and return it, edited or not; they run once for each graph that is compiled. Further options: `framejit.options`.
    """
    if function is None:
        _check(backend, options)
        return functools.partial(compile, backend=backend, passes=passes, **options)
    if isinstance(function, _core.CompiledFunction) and passes is None and _core.passes_of(function) is not None:
        # Without its passes it would be another function.
        return compile(function.__wrapped__, **{**given_options(function), **({} if backend is None else {"backend": backend}), **options})
    edit = None
    if passes is not None:
        from framejit._graph.passes import Edit, Passes

        edit = passes if isinstance(passes, Edit) else Passes(passes)
    return compile_with_passes(function, edit, backend=backend, **options)


def compile_with_passes(function, edit, *, backend=None, **options):
    """As `compile`. edit: None, or `edit(captured_graph, what tracing found) -> captured_graph or None` for each graph as captured."""
    callable_backend = _check(backend, options)
    if callable_backend is None:
        if backend is not None:
            options["backend"] = backend
    else:
        options["backend"] = getattr(backend, "__name__", "custom") if not isinstance(backend, str) else backend

    def compiled(plain):
        made = _core.compile_function(plain, options, callable_backend, edit)
        if edit is not None and getattr(edit, "axes", ()):
            _core.mark_arguments(made, edit.axes)
        return made

    def again(part):
        return compile_with_passes(part, edit, backend=backend, **_without_backend(options))

    _load_helpers()
    if isinstance(function, _core.CompiledFunction):
        function = function.__wrapped__
    if isinstance(function, types.FunctionType):
        _notice_once()
        return compiled(function)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(again(function.__func__))
    if isinstance(function, types.MethodType):
        return again(function.__func__).__get__(function.__self__)
    if isinstance(function, functools.partial):
        return functools.partial(again(function.func), *function.args, **function.keywords)
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"framejit.compile takes a function, a module or another callable object, not {_describe(function)}")
    return wrap_object(function, compiled)


def _load_helpers():
    """What tracing takes functions from. Left to the first call they would be imported at any time, in any thread:
    where a process forks meanwhile, its child waits for the import for ever. Another thread's stack may be too small
    for an import."""
    if threading.current_thread() is not threading.main_thread():
        return
    if "numpy" in sys.modules:
        import framejit._support.numpy
    if "torch" in sys.modules:
        import framejit._support.torch


def _describe(thing):
    return f"the class {thing.__name__}: compile its instances or methods" if isinstance(thing, type) else f"{thing!r}, which is not callable"


def _without_backend(options):
    return {name: value for name, value in options.items() if name != "backend"}


def _check(backend, options):
    """Raises for unknown or wrong options. The user's callable, or None for a built-in back end."""
    _core.compile_function(_nothing, options, None)
    if backend is None:
        return None
    if isinstance(backend, str):
        return None if _core.is_builtin_backend(backend) else resolve(backend)
    if not callable(backend):
        raise TypeError(f"framejit.compile: backend is a name or a callable, not {backend!r}")
    return backend


def _nothing():
    pass


@functools.cache
def _notice_once():
    reason = _core.self_check()
    if reason is not None:
        warnings.warn(reason, RuntimeWarning, stacklevel=3)


def disable(function=None):
    """Marks a function to run as written, with everything it calls; also a context manager's worth of nothing: use it as a decorator."""
    if function is None:
        return disable
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(disable(function.__func__))
    if not callable(function):
        raise TypeError(f"framejit.disable takes a callable, not {function!r}")
    plain = function.__wrapped__ if isinstance(function, _core.CompiledFunction) else function

    @functools.wraps(plain)
    def disabled(*args, **kwargs):
        return _core.call_eagerly(plain, *args, **kwargs)

    disabled.__framejit_disabled__ = True
    return disabled


def graph_break():
    """Ends the graph here. Does nothing in code that is not compiled."""


def filters_mutated(times):
    """Notes that the filters of warnings changed, as entering and leaving `warnings.catch_warnings()` does."""
    for _ in range(times):
        warnings._filters_mutated()


def is_compiling():
    """True while framejit traces the code that asks, False when the code runs."""
    return False


def dynamic_axes(caller, array, axes):
    """(axis, name, min, max) of each axis that is marked. axes: as `mark_dynamic` takes them."""
    shape = getattr(array, "shape", None)
    if not isinstance(shape, tuple):
        raise TypeError(f"{caller} takes an array, not {array!r}")
    marks = []
    for given in axes or range(len(shape)):
        for axis, dim in given.items() if isinstance(given, dict) else [(given, None)]:
            if not hasattr(axis, "__index__") or isinstance(axis, bool):
                raise TypeError(f"{caller}: an axis is an int, not {axis!r}")
            if not isinstance(dim, (Dim, type(None))):
                raise TypeError(f"{caller}: axis {axis} is given a framejit.Dim, not {dim!r}")
            if not -len(shape) <= axis < len(shape):
                raise IndexError(f"{caller}: axis {axis} of an array of {len(shape)} dimensions")
            name, low, high = ("", 0, LARGEST) if dim is None else (dim.name, dim.min, LARGEST if dim.max is None else dim.max)
            if not low <= shape[axis] <= high:
                raise ValueError(f"{caller}: axis {axis} has {shape[axis]} elements, which is outside of {dim!r}")
            marks.append((axis % len(shape), name, low, high))
    return marks


def mark_dynamic(array, *axes):
    """Says that the sizes of these axes change between calls: they are symbols from the first call with this array on.

    array: numpy.ndarray or torch.Tensor, passed to a compiled function later; another array needs a mark of its own. axes:
    ints, negative ones count from the end, or dicts of such and their `Dim`; none given: all. Where the code needs one size
    (`if x.shape[0] == 8:`), that is guarded as always. `dynamic=False` of `compile` wins.

    Raises TypeError for an object without a shape, an axis that is no int or is given what is no Dim, IndexError for an axis it does not have, ValueError for a size outside of its Dim.

        x = np.ones((8, 64))
        framejit.mark_dynamic(x, 0)
        f(x)                      # one graph for every number of rows
    """
    _core.mark_dynamic(array, dynamic_axes("framejit.mark_dynamic", array, axes))


graph_break.__framejit_marker__ = "graph_break"
is_compiling.__framejit_marker__ = "is_compiling"


@contextlib.contextmanager
def options(**changes):
    """Within the block, on this thread, these options hold for every compiled function that is called."""
    backend = changes.get("backend")
    if isinstance(backend, str) and not _core.is_builtin_backend(backend):
        resolve(backend)
    _core.push_options(changes)
    try:
        yield
    finally:
        _core.pop_options()


def reset():
    """Drops everything compiled in this process and every count. What is kept on disk stays: `python -m framejit cache clear`."""
    _core.reset()


def cache_info():
    """Counts since the start or the last reset, over all compiled functions, as a dict.

    calls, hits, segments, graphs, breaks, recompiles, eager_replays, internal_errors, kernels_launched: what calls did; retired:
    compiled functions that turned out slower than eager ones and run eagerly; regions: loops over elements that were compiled,
    regions_entered: how often such loops were entered.
    kernels_compiled (of them kernels_optimised), kernels_loaded from disk, kernels_shared with another program: where code came
    from; kernels_failed: optimised code that could not be made, so that the quick code stays; background_jobs: not done yet.
    disk: the folder of this thread's options ("" if none), its bound in bytes, and what this process did with it: hits, misses,
    stored, rejected (damaged, or files that other users own or can write), evicted, failures.

        >>> framejit.cache_info()["disk"]["hits"]
        3
    """
    return _core.cache_info()


def set_logs(*choices, sink=None):
    """What to log: artifacts such as "graph_breaks" or "graphs:Encoder.*". sink(artifact, text) replaces stderr."""
    _core.set_logs(",".join(choices))
    _core.set_log_sink(sink)


def given_options(compiled):
    """The options of a compiled function that differ from the defaults, as `compile` takes them."""
    plain, given = _core.options_of(_core.compile_function(_nothing, {}, None)), _core.options_of(compiled)
    parse = {"true": True, "false": False, "none": None}
    changed = {name: parse.get(text, int(text) if text.lstrip("-").isdigit() else text)
               for name, text in given.items() if text != plain[name]}
    backend, passes = _core.backend_of(compiled), _core.passes_of(compiled)
    if backend is not None:
        changed["backend"] = backend
    if passes is not None:
        changed["passes"] = passes
    return changed


_variants = {}


def _using(compiled, **changes):
    """`compiled.using(...)`: kept with the function, so that the same call site compiles once."""
    key = tuple(sorted((name, value if isinstance(value, (str, bool, int, type(None))) else id(value)) for name, value in changes.items()))
    import weakref

    variants = _variants.get(id(compiled))
    if variants is None:
        variants = _variants[id(compiled)] = {}
        weakref.finalize(compiled, _variants.pop, id(compiled), None)
    if key not in variants:
        variants[key] = compile(compiled.__wrapped__, **{**given_options(compiled), **changes})
    return variants[key]
