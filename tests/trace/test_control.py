"""Statements and calls in all their forms, and what watches a program run: pdb, trace functions, profilers, frames, locals()."""
import asyncio
import functools
import io
import pdb
import sys

import numpy as np
import pytest

import framejit
from harness import same_as_eager

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
WHOLE, BROKEN = [], []


def whole(function):
    WHOLE.append(function)
    return function


def broken(function):
    BROKEN.append(function)
    return function


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def matched(v, x):
    match v:
        case 0 | 1:
            return x * 2, "or"
        case -3:
            return x * 3, "negative"
        case "text":
            return x * 4, "literal"
        case None:
            return x * 5, "None"
        case True:
            return x * 6, "True"
        case Point(0, y=k):
            return x * 7, k
        case Point(a, b) if a > b:
            return x * 8, a
        case Point() as p:
            return x * 9, p.x
        case [1, [2, *inner], *rest]:
            return x * 10, inner, rest
        case (a, b):
            return x * 11, a, b
        case [_, _, _, *_]:
            return x * 12, "three"
        case {"k": [a, b], **others}:
            return x * 13, a, others
        case {"k": k, "j": 1}:
            return x * 14, k
        case {}:
            return x * 15, "mapping"
        case int(n):
            return x * 16, n
        case str() | float():
            return x * 17, "class"
        case _:
            return x * 18, "else"


SUBJECTS = [0, 1, -3, "text", None, True, Point(0, 5), Point(3, 2), Point(1, 2), [1, [2, 3, 4], 5], (7, 8), [1, 2, 3, 4], {"k": [1, 2], "z": 3},
            {"k": 5, "j": 1}, {"a": 1}, 12, "other", 2.5, range(2), {1, 2}]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: type(s).__name__ if isinstance(s, (Point, set)) else repr(s))
def test_match_statements(subject):
    # Comparing these with a number or string is not known to the tracer: a break each.
    known = not isinstance(subject, (Point, range, set))
    same_as_eager(lambda x: matched(subject, x), X, breaks=() if known else None)


def test_match_statements_with_another_subject_at_each_call():
    def f(v, x):
        return matched(v, x)

    compiled = framejit.compile(f)
    for subject in SUBJECTS * 2:
        a, b = compiled(subject, X), f(subject, X)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:] == b[1:]


@whole
def match_on_arrays(x):
    match x:
        case [a, b]:
            return x
        case {"k": k}:
            return x
        case np.ndarray(shape=(3, n)):
            return x * n
    return x


@whole
def walrus(x):
    y = (n := x.shape[0]) * x
    items = [m for k in range(4) if (m := k * n) > 2]
    while (n := n - 1) > 0:
        y = y * n
    return y, items, m, n


@whole
def chained_comparison(x):
    a, b = 2, 5
    return x * (1 < a < b <= 5 != 4), 1 < b < 3, a == a == 2 in (2,)


@whole
def closures_and_nonlocal(x):
    count, log = 0, []

    def outer(k):
        nonlocal count
        count += k

        def inner(y):
            nonlocal count, k
            count, k = count + 1, k + 1
            log.append(k)
            return y * count

        return inner

    f, g = outer(2), outer(3)
    return f(x) + g(x) + f(x), count, log


@whole
def defaults_are_evaluated_once(x):
    n = 2

    def f(y, k=n, log=[], *, j=n * 2):
        log.append(k)
        return y * k + j, len(log)

    n = 7
    return f(x), f(x, 3), f(x, j=1)


@whole
def parameters_of_all_kinds(x):
    def f(a, b=2, /, c=3, *rest, d, e=5, **more):
        return a * b + c, rest, d, e, sorted(more)

    return f(x, d=1), f(x, 1, 2, 3, 4, d=1, z=1, y=2), f(x, c=9, d=1, a=3, b=4)


@whole
def starred_calls(x):
    def f(*args, **kwargs):
        return args[0] * len(args) + sum(kwargs.values())

    return f(*[x, 1], *(2,), 3, **{"a": 1}, b=2, **dict(c=3)), f(x, *range(2))


@broken
def wrong_arguments(x):
    def f(a, b, *, c):
        return a

    out = []
    for call in (lambda: f(1), lambda: f(1, 2, 3, c=4), lambda: f(1, 2), lambda: f(1, 2, c=3, d=4), lambda: f(1, 2, a=1, c=3)):
        try:
            call()
        except TypeError as error:
            out.append(str(error))
    return x * len(out), out


def twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


def scaled_by(k):
    def decorate(function):
        def wrapper(x):
            return function(x) * k

        return wrapper

    return decorate


@twice
@scaled_by(3)
def decorated(x):
    return x + 1


@whole
def decorators(x):
    return decorated(x) - 1


@whole
def decorators_made_inside(x):
    @scaled_by(4)
    @scaled_by(2)
    def f(x):
        return x + 1

    return f(x)


@whole
def recursion(x):
    def power(x, n):
        return x if n == 0 else power(x * 2, n - 1) + 1

    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return power(x, 6), even(10)


@whole
def lambdas_and_conditional_expressions(x):
    f = (lambda a, *b, k=2: a * k + len(b)) if x.ndim == 2 else None
    return f(x), f(x, 1, 2, k=3), [g(x) for g in [lambda v, i=i: v * i for i in range(3)]]


@whole
def swaps_and_augmented_assignment(x):
    a, b = x, x + 1
    a, b = b, a
    d = {"k": 1}
    d["k"] += 2
    items = [1, 2]
    items[0] *= 5
    items += [3]
    (a, (b, c)), *d["z"] = (a, (b, 2)), 1
    return a - b, d, items, c


@whole
def nested_functions_of_nested_scopes(x):
    def a():
        def b():
            def c():
                return x * k
            return c
        return b
    k = 3
    return a()()()


@whole
def deleted_and_reassigned_names(x):
    y = x * 2
    del x
    x = y + 1
    for i in range(3):
        pass
    del i
    return x


@broken
def frames_and_locals(x):
    y = x * 2
    a = 1
    names = sorted(locals())
    frame = sys._getframe()
    z = y + a
    return z * 2, names, frame.f_lineno - frame.f_code.co_firstlineno, sorted(frame.f_locals)


def callers():
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_lineno, {k: v for k, v in frame.f_locals.items() if isinstance(v, int)}


@broken
def locals_seen_by_a_callee(x):
    n = 3
    y = x * n
    dead = 7
    seen = callers()
    m = n + 1
    return y * m, seen


@broken
def eval_and_exec(x):
    y = x * 2
    k = 4
    a = eval("k + 1")
    scope = {"k": k}
    exec("k += 1", scope)
    return y * a, scope["k"], sorted(vars()), sorted(dir())


@broken
def async_functions(x):
    async def later(y):
        await asyncio.sleep(0)
        return y * 2

    async def main(y):
        a, b = await asyncio.gather(later(y), later(y + 1))
        return a + b

    loop = asyncio.new_event_loop()
    y = x * 3
    try:
        z = loop.run_until_complete(main(y))
    finally:
        loop.close()
    return z + 1


@broken
def cached_functions(x):
    calls = []

    @functools.lru_cache
    def f(n):
        calls.append(n)
        return n * 2

    return x * f(2) + f(2) + f(3), calls


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_whole(function):
    same_as_eager(function, X, breaks=())


@pytest.mark.parametrize("function", BROKEN, ids=lambda f: f.__name__)
def test_broken(function):
    same_as_eager(function, X, calls=3)


def test_an_async_function_itself_is_left_to_cpython():
    @framejit.compile
    async def f(x):
        await asyncio.sleep(0)
        return x * 2

    np.testing.assert_array_equal(asyncio.run(f(X)), X * 2)


def test_compiled_functions_inside_coroutines():
    @framejit.compile
    def work(x):
        y = x * 2
        print(end="")
        return y + 1

    async def one(n):
        total = 0
        for _ in range(3):
            total = total + work(X * n)
            await asyncio.sleep(0)
        return total

    async def main():
        return await asyncio.gather(*(one(n) for n in range(4)))

    for n, total in enumerate(asyncio.run(main())):
        np.testing.assert_allclose(total, (X * n * 2 + 1) * 3, rtol=1e-6)


def debugged(function, commands):
    """A pdb session: everything it prints."""
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("\n".join(commands) + "\n"), stdout=out, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    debugger.prompt = "> "
    result = function(X, debugger)
    sys.settrace(None)
    return result, out.getvalue()


def test_a_debugger_started_in_the_middle_sees_true_locals_and_every_line():
    def helper(y):
        return y + 1

    def f(x, debugger):
        k = 2
        y = x * k
        unused = 5
        debugger.set_trace()
        z = y + k
        z = helper(z)
        return z * 2

    commands = ["p k, unused, y.shape", "n", "n", "p float(z[0, 0])", "k = 10", "s", "w", "c"]
    expected, transcript = debugged(f, commands)
    compiled = framejit.compile(f)
    for _ in range(3):
        actual, printed = debugged(compiled, commands)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert strip(printed) == strip(transcript)


def strip(transcript):
    """Without the lines about the callers of the function."""
    return [line for line in transcript.splitlines() if ("test_control" in line or line.startswith("> ")) and "test_a_debugger" not in line]


def test_breakpoint_calls_the_hook_with_the_true_frame():
    def f(x):
        k = 3
        y = x * k
        breakpoint()
        return y + 1

    seen = []
    old, sys.breakpointhook = sys.breakpointhook, lambda: seen.append((sys._getframe(1).f_lineno, sys._getframe(1).f_locals["k"]))
    try:
        same_as_eager(f, X, calls=3)
    finally:
        sys.breakpointhook = old
    assert len(set(seen)) == 1 and len(seen) == 6


def events_of(install, function):
    events = []
    install(events)
    try:
        result = function(X)
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    return result, events


def helper(y):
    return y + 1


def watched(x):
    y = x * 2
    for i in range(2):
        y = helper(y)
    return y


@pytest.mark.parametrize("kind", ["settrace", "setprofile"])
def test_trace_and_profile_functions_see_everything(kind):
    def install(events):
        def watch(frame, event, arg):
            if frame.f_code in (watched.__code__, helper.__code__):
                events.append((event, frame.f_code.co_name, frame.f_lineno))
            return watch

        getattr(sys, kind)(watch)

    expected, events = events_of(install, watched)
    compiled = framejit.compile(watched)
    compiled(X)
    actual, seen = events_of(install, compiled)
    np.testing.assert_array_equal(actual, expected)
    assert seen == events and len(events) > 4
    np.testing.assert_array_equal(compiled(X), expected)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring came with 3.12")
def test_monitoring_tools_see_everything():
    tool, monitoring = sys.monitoring.PROFILER_ID, getattr(sys, "monitoring", None)

    def recorded(function):
        lines = []
        monitoring.use_tool_id(tool, "test")
        monitoring.register_callback(tool, monitoring.events.LINE, lambda code, line: lines.append(line) if code is watched.__code__ else None)
        monitoring.set_events(tool, monitoring.events.LINE)
        try:
            return function(X), lines
        finally:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)

    expected, lines = recorded(watched)
    compiled = framejit.compile(watched)
    compiled(X)
    actual, seen = recorded(compiled)
    np.testing.assert_array_equal(actual, expected)
    assert seen == lines and len(lines) > 4
    np.testing.assert_array_equal(compiled(X), expected)


def test_a_trace_function_switched_on_inside_a_reached_function():
    seen = []

    def watch(frame, event, arg):
        seen.append((event, frame.f_code.co_name))
        return watch

    def inner(x):
        y = x * 2
        sys.settrace(watch)
        y = helper(y)
        sys.settrace(None)
        return y

    def f(x):
        return inner(x + 1) * 2

    expected = f(X)
    events, compiled = list(seen), framejit.compile(f)
    for _ in range(3):
        seen.clear()
        np.testing.assert_allclose(compiled(X), expected, rtol=1e-6)
        assert ("call", "helper") in seen and seen == events
