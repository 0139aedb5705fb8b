"""compile and its companions. Nothing here knows about tracing or shapes."""
import contextlib
import functools
import sys
import threading
import types
import warnings

from framejit import _core, _logs
from framejit._backends import resolve
from framejit._dim import LARGEST, Dim
from framejit._errors import BackendError, CheckError, Error, GraphBreakError, GraphError, RecompileError
from framejit._nearest import did_you_mean
from framejit._peers import OPTIONS, hint
from framejit._wrap import compiled_part, wrap_object

_core.set_error_types(Error, GraphBreakError, BackendError, GraphError, RecompileError, CheckError)


def compile(function=None, *, backend=None, passes=None, **options):
    """Compiles a function, method, module or callable object; also a decorator, with or without options.

    function: a function, method, classmethod, staticmethod, functools.partial, torch.nn.Module or another callable object, whose
    arguments and results stay what they are; on numpy.ndarray and torch.Tensor its work runs compiled. Nothing is compiled before the
    first call. The result is called as the function is: `.using(**options)` is the same with other options, `.__wrapped__` the
    function as written. Not given: the decorator with these options.

    backend: a str, "auto", "llvm", "cuda", "eager", "reference", "verify", "check_nan" or a registered name, or
    `backend(graph, example_inputs) -> callable`; not given: what `framejit.options` or FRAMEJIT_BACKEND say, else "auto". passes:
    functions `f(graph) -> graph` that are given each captured graph (a framejit.Graph) before the back end, in order, and return it,
    edited or not; they run once for each graph that is compiled. options, of which `framejit.options` and docs/options.md have the rest:

    - fullgraph: a bool; raise GraphBreakError where a graph would break.
    - dynamic: sizes are symbols from the first call (True), never (False), or once one has changed (None).
    - mode: "default"; for CUDA devices also "reduce-overhead", which issues kernels that follow each other as one CUDA graph,
      "max-autotune-no-cudagraphs", which measures sizes of blocks, and "max-autotune", both.
    - on_recompile: what becomes of a call that no compiled piece fits any more: "compile", "warn" (and compile), "eager" (run it in
      CPython), "error" (raise RecompileError). It may change for a block, `with framejit.options(on_recompile="error")`.
    - threads: an int, the threads that a kernel may use; 0: one per core.

    Raises TypeError for what can't be compiled (a class, what is not callable), an option that does not exist or is of another type,
    ValueError for a value that an option does not take, and for a back end that is not there. Calls raise what the function raises;
    GraphBreakError, RecompileError and BackendError as those say.

        @framejit.compile
        def f(x, y):
            return np.maximum((x + y) * 2, 0)

        model = framejit.compile(model, fullgraph=True)
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
    try:
        _core.compile_function(_nothing, options, None)
    except TypeError as error:
        raise _nearer(error, options) from None
    if backend is None:
        return None
    if isinstance(backend, str):
        return None if _core.is_builtin_backend(backend) else resolve(backend)
    if not callable(backend):
        raise TypeError(f"framejit.compile: backend is a name or a callable, not {backend!r}")
    return backend


def _nearer(error, options):
    """A TypeError about options, which says of one that does not exist which may have been meant."""
    names = [*_core.option_names(), "passes"]
    unknown = [name for name in options if name not in names]
    return TypeError(f"{error}{hint(OPTIONS, unknown[0]) or did_you_mean(unknown[0], names)}") if unknown else error


def _nothing():
    pass


@functools.cache
def _notice_once():
    reason = _core.self_check()
    if reason is not None:
        warnings.warn(reason, RuntimeWarning, stacklevel=3)


def disable(function=None):
    """Marks a function to run as written, with everything it calls: compiled code that calls it breaks its graph there.

    function: a callable, or a staticmethod or classmethod; of a compiled function that as written is meant. Returns a function of the
    same arguments, of a torch.nn.Module a module that shares its parameters; without an argument the decorator itself. Raises TypeError
    for what is not callable.

        @framejit.disable
        def check(x):
            assert np.isfinite(x).all()
    """
    if function is None:
        return disable
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(disable(function.__func__))
    if not callable(function):
        raise TypeError(f"framejit.disable takes a callable, not {function!r}")
    if (torch := sys.modules.get("torch")) is not None and isinstance(function, torch.nn.Module):
        return wrap_object(function, disable)
    plain = function.__wrapped__ if isinstance(function, _core.CompiledFunction) else function

    @functools.wraps(plain)
    def disabled(*args, **kwargs):
        return _core.call_eagerly(plain, *args, **kwargs)

    disabled.__framejit_disabled__ = True
    return disabled


def graph_break():
    """Ends the graph here. Does nothing in code that is not compiled.

    The break is reported as others are (FJ113), and `fullgraph=True` makes it a GraphBreakError.

        y = np.exp(x)
        framejit.graph_break()          # what follows is another graph
        return y / y.sum()
    """


def filters_mutated(times):
    """Notes that the filters of warnings changed, as entering and leaving `warnings.catch_warnings()` does."""
    for _ in range(times):
        warnings._filters_mutated()


def prange(start, stop=None, step=1, /):
    """range(...) of passes that may run in any order: compiled, the loop over it runs on several threads.

        for i in framejit.prange(len(a)):
            total += np.sqrt(a[i])

    start, stop, step: as range takes them. Returns a range.

    One pass may not use what another one has made: each stores elements of its own, and what variables gather over the passes is a sum
    (`+=`, `-=`), a product, or `s = max(s, x)`, `s = min(s, x)`. Sums are in stretches of the passes, the same ones on every machine. A loop
    that is seen to be otherwise, or that is no region (docs/loops.md), runs as one over a range: `framejit.explain(f)(...).loops` says why.
    """
    return range(start) if stop is None else range(start, stop, step)


def is_compiling():
    """True while framejit traces the code that asks, False when the code runs.

    Compiled code has the answer True built in: what follows from it costs nothing in a call.

        if not framejit.is_compiling():
            logging.info("eager: %s", x)
    """
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

    Raises TypeError for an object without a shape, an axis that is no int or is given what is no Dim, IndexError for an axis it does not
    have, ValueError for a size outside of its Dim.

        x = np.ones((8, 64))
        framejit.mark_dynamic(x, 0)
        f(x)                      # one graph for every number of rows
    """
    _core.mark_dynamic(array, dynamic_axes("framejit.mark_dynamic", array, axes))


graph_break.__framejit_marker__ = "graph_break"
is_compiling.__framejit_marker__ = "is_compiling"


@contextlib.contextmanager
def options(**changes):
    """Within the block, on this thread, these options hold for every compiled function that is called.

    changes: any options of `framejit.compile`: backend, mode, follow, cache_folder (str); fullgraph, disable, strict, retire, progress (bool);
    dynamic, join_branches (bool or None); torch_is_compiling (bool or "auto"); threads, recompile_limit, kept_bytes,
    node_limit, work_limit, instruction_limit, cache_bytes (int, 0 or more); tier ("auto", "quick", "optimised").
    docs/options.md says what they do. Each is also an
    environment variable, FRAMEJIT_THREADS and the like, which holds where neither the block nor the function says otherwise.

    Raises TypeError for an option that does not exist or is of another type, ValueError for a value that it does not take.

        with framejit.options(threads=1, fullgraph=True):
            f(x)
    """
    backend = changes.get("backend")
    if isinstance(backend, str) and not _core.is_builtin_backend(backend):
        resolve(backend)
    try:
        _core.push_options(changes)
    except TypeError as error:
        raise _nearer(error, changes) from None
    try:
        yield
    finally:
        _core.pop_options()


def reset():
    """Drops everything compiled in this process and every count: later calls compile anew.

    What is kept on disk stays, and is used again: `python -m framejit cache clear` deletes it.

        framejit.reset()
        f(x)                            # compiles
        framejit.cache_info()["graphs"]         # of this call alone
    """
    _core.reset()


def cache_info():
    """Counts since the start or the last reset, over all compiled functions, as a dict.

    calls, hits, segments, graphs, breaks, recompiles, eager_replays, internal_errors, kernels_launched: what calls did; retired:
    compiled functions that turned out slower than eager ones and run eagerly; regions: loops over elements that were compiled,
    regions_entered: how often such loops were entered; regions_on_threads: how often several threads ran the passes (`prange`).
    kernels_compiled (of them kernels_optimised), kernels_loaded from disk, kernels_shared with another program: where code came
    from; kernels_failed: optimised code that could not be made, so that the quick code stays; background_jobs: not done yet.
    disk: the folder of this thread's options ("" if none), its bound in bytes, and what this process did with it: hits, misses,
    stored, rejected (damaged, or files that other users own or can write), evicted, failures.

        >>> framejit.cache_info()["disk"]["hits"]
        3
    """
    return _core.cache_info()


def set_logs(*choices, sink=None):
    """What is logged from now on, in the place of what FRAMEJIT_LOGS or an earlier call said; without choices nothing.

    choices: strs, each an artifact: "graph_breaks", "recompiles", "fallbacks", "timings" (level INFO of `logging`), "graphs", "guards",
    "bytecode", "passes", "kernels", "code" (DEBUG), or "all"; "graphs:Encoder.*" is that of functions whose name the pattern matches.
    sink: `sink(artifact, text)`, two strs, is called with each entry; or a path, to whose file entries are appended, or a text file. Not
    given: the file of FRAMEJIT_LOGS_FILE, else the logger "framejit.graph_breaks" and the like, and stderr where no handler is set up
    for it. A level that is set for it, or for "framejit", holds; the root's doesn't. Failures inside framejit are logged without being
    chosen, as warnings of "fallbacks".

    Raises ValueError for an artifact that does not exist, TypeError for another sink, OSError for a path that can't be written, ValueError
    for a file that can't; then nothing has changed. What a sink raises is reported as unraisable, and the program goes on.

        entries = []
        framejit.set_logs("graph_breaks", "recompiles", sink=lambda artifact, text: entries.append(text))
    """
    function = None if sink is None else _logs.as_sink(sink, "framejit.set_logs")
    _logs.choose(",".join(choices))
    _logs.set_sink(function)


def warm_up(function, *examples):
    """Calls a compiled function for each example, so that later calls with such arguments compile nothing. Returns how many programs it compiled.

    function: what `framejit.compile` returned. examples: each a tuple of positional arguments or a dict of keyword arguments; what is
    neither is the only argument. Arrays are passed on. A pair (shape, dtype) is an array of zeros: a tuple or list of ints, and a dtype
    of NumPy (or its name) or of torch; also inside of tuples, lists and dicts.

    The function runs: it writes into the arrays it is given, prints and counts, as in any call. Code is made as well as it can be at once
    (unless the function or FRAMEJIT_TIER says otherwise), and it is there, and on disk, when warm_up returns. As many programs are compiled
    as first calls would compile: sizes that differ between examples become symbols, as between calls.

    Raises TypeError for a function that is not compiled, and what the function raises for an example.

        f = framejit.compile(f)
        framejit.warm_up(f, (((64, 64), "float32"), 3), (x, 5))         # 2
        f(y, 3)                                                         # compiles nothing
    """
    if _part(function) is None:
        raise TypeError(f"framejit.warm_up takes what framejit.compile has returned, not {function!r}")
    before = _core.cache_info()["graphs"]
    for example in examples:
        keywords = {name: _filled(value) for name, value in example.items()} if isinstance(example, dict) else {}
        given = () if isinstance(example, dict) else example if isinstance(example, tuple) and not _is_pair(example) else (example,)
        arguments = [_filled(value) for value in given]
        _core.begin_warm_up()
        try:
            function(*arguments, **keywords)
        finally:
            _core.end_warm_up()
    _core.finish_compiling()
    return _core.cache_info()["graphs"] - before


def _part(function):
    """The CompiledFunction inside what `compile` returned, or None."""
    while isinstance(function, (types.MethodType, functools.partial)):
        function = function.__func__ if isinstance(function, types.MethodType) else function.func
    return function if isinstance(function, _core.CompiledFunction) else compiled_part(function)


def _filled(value):
    """An argument with zeros for the pairs (shape, dtype) in it."""
    if _is_pair(value):
        shape, dtype = value
        if _is_torch_dtype(dtype):
            return sys.modules["torch"].zeros(tuple(shape), dtype=dtype)
        import numpy  # at the top it would be imported for functions that do without

        return numpy.zeros(shape, dtype)
    if type(value) in (tuple, list):
        return type(value)(map(_filled, value))
    return {name: _filled(part) for name, part in value.items()} if type(value) is dict else value


def _is_torch_dtype(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.dtype)


def _is_pair(value):
    """Whether it is (shape, dtype)."""
    if not (type(value) is tuple and len(value) == 2 and isinstance(value[0], (tuple, list))
            and all(isinstance(size, int) and not isinstance(size, bool) for size in value[0])):
        return False
    import numpy

    if _is_torch_dtype(value[1]):
        return True
    try:
        return isinstance(value[1], (str, type, numpy.dtype)) and numpy.dtype(value[1]) != object
    except TypeError:
        return False


def given_options(compiled):
    """The options of a compiled function that differ from the defaults, as `compile` takes them."""
    plain, given = _core.environment_options(), _core.options_of(compiled)
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
    """`compiled.using(...)`, of a compiled function or object: kept with it, so that the same call site compiles once."""
    key = tuple(sorted((name, value if isinstance(value, (str, bool, int, type(None))) else id(value)) for name, value in changes.items()))
    import weakref

    variants = _variants.get(id(compiled))
    if variants is None:
        variants = _variants[id(compiled)] = {}
        weakref.finalize(compiled, _variants.pop, id(compiled), None)
    if key not in variants:
        is_function = isinstance(compiled, _core.CompiledFunction)
        part, plain = (compiled, compiled.__wrapped__) if is_function else (compiled_part(compiled), compiled._framejit_original)
        variants[key] = compile(plain, **{**(given_options(part) if part is not None else {}), **changes})
    return variants[key]


class _Documentation:
    """`CompiledFunction.__doc__` is the type's, `f.__doc__` the function's."""

    def __init__(self, of_instances, text):
        self.of_instances, self.text = of_instances, text

    def __get__(self, compiled, owner=None):
        return self.text if compiled is None else self.of_instances.__get__(compiled, owner)

    def __set__(self, compiled, text):
        self.of_instances.__set__(compiled, text)

    def __delete__(self, compiled):
        self.of_instances.__delete__(compiled)


_of_instances = vars(_core.CompiledFunction)["__doc__"]
_core.CompiledFunction.__doc__ = _Documentation(_of_instances, """The type of what `framejit.compile` makes of a function.

It is called as the function is and binds as a method where it is an attribute of a class. It has the function's name, signature,
docstring and attributes; `__wrapped__` is the function as written. `using(**options)` is the same function compiled with other options,
and the same object each time: it raises as `framejit.compile` does. It is pickled by name, as functions are. The type itself is for
isinstance: calling it raises TypeError.

    f = framejit.compile(f)
    isinstance(f, framejit.CompiledFunction)        # True
    f.using(backend="eager")(x)
""")
