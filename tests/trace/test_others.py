"""What else goes on in the process while a program works: other threads run Python, signals end a call, the interpreter ends."""
import ctypes
import signal
import sys
import threading
import time
import types

import numpy as np
import pytest

import framejit
from harness import needs_torch, run_program, torch

needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")


def waves(library, x):
    for _ in range(60):
        x = library.sin(x) + library.cos(x)
    return x


def of_numpy(x):
    return waves(np, x)


def of_torch(x):
    return waves(torch, x)


def rows(x):
    return waves(np, x).reshape(-1, 100).max(0)


def product(x):
    square = x[: 1200 * 1200].reshape(1200, 1200)
    return square @ square @ square @ square


def total(x):
    return waves(np, x).sum()


def counted(x):
    return torch.nonzero(waves(torch, x) > 0).sum()


CASES = [pytest.param(of_numpy, np, id="numpy"), pytest.param(rows, np, id="reduction"), pytest.param(total, np, id="sum"),
         pytest.param(product, np, id="product"),
         pytest.param(of_torch, torch, id="torch", marks=needs_torch), pytest.param(counted, torch, id="count", marks=needs_torch)]


def ready(function, library):
    """Compiled, and called with a few elements of each kind of size."""
    compiled = framejit.compile(function)
    x = library.linspace(0, 3, 1_500_000, dtype=library.float64)
    small = x if function is product else x[:1000]
    for given in (small, small, x):
        compiled(given)
    return compiled, x


@pytest.mark.parametrize("function, library", CASES)
def test_other_threads_run_python_while_a_program_works(function, library):
    compiled, x = ready(function, library)
    done, turns, found = threading.Event(), 0, []

    def call():
        found.append(compiled(x))
        done.set()

    thread = threading.Thread(target=call)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        thread.start()
        while not done.is_set():
            time.sleep(0.0005)
            turns += 1
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert turns > 10
    np.testing.assert_allclose(np.asarray(found[0]), np.asarray(function(x)), rtol=1e-9)


class Stop(Exception):
    pass


class Alarm:
    """Runs `handler` after `seconds`, and then as often unless it is to run once."""

    def __init__(self, seconds, handler, once=False):
        self.seconds, self.handler, self.once, self.runs = seconds, handler, once, 0

    def __enter__(self):
        def handle(number, frame):
            self.runs += 1
            self.handler()
        self.before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, self.seconds, 0 if self.once else self.seconds)
        except BaseException:  # the handler's own, on a machine that was busy for as long
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)


def stop():
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise Stop


def in_place_numpy(x):
    x *= 2
    x += waves(np, x) + waves(np, x + 1)
    return x.sum()


def in_place_torch(x):
    x.mul_(2)
    x.add_(waves(torch, x) + waves(torch, x + 1))
    return x.sum()


@needs_signals
@pytest.mark.parametrize("function, library", [(in_place_numpy, np), pytest.param(in_place_torch, torch, marks=needs_torch)])
def test_what_a_signal_handler_raises_ends_a_call(function, library):
    compiled = framejit.compile(function)
    start = library.linspace(0, 3, 1_000_000, dtype=library.float64)
    x = start * 1
    for given in (x[:100], x[:1000], x):
        compiled(given)
    x[:] = start
    began = time.perf_counter()
    compiled(x)
    whole = time.perf_counter() - began
    x[:] = start
    alarm = Alarm(whole / 10, stop)
    with pytest.raises(Stop), alarm:
        compiled(x)
    # CPython raises it behind the first operation.
    assert alarm.runs == 1 and (bool((x == start).all()) or bool((x == start * 2).all()))
    x[:] = start
    other = start * 1
    np.testing.assert_allclose(float(compiled(x)), float(function(other)), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(x), np.asarray(other), rtol=1e-9)
    assert framejit.cache_info()["internal_errors"] == 0


lock, log = threading.Lock(), []


def caught(x):
    try:
        return waves(np, x)
    except Stop as stopped:
        return repr(stopped)


def caught_around_a_loop(x):
    number = -1
    try:
        for number in range(3):
            x = waves(np, x)
    except (ValueError, Stop):
        return "caught"
    return x


def finally_behind_a_break(x):
    log.append(lock.acquire())
    try:
        print(end="")
        x = x + 1
        return waves(np, x)
    finally:
        lock.release()
        log.append("released")


def within_a_context(x):
    with lock:
        log.append(lock.locked())
        x = waves(np, x)
    return x


def uncaught(x):
    return waves(np, waves(np, x))


@needs_signals
@pytest.mark.parametrize("function", [caught, caught_around_a_loop, finally_behind_a_break, within_a_context, uncaught])
def test_handlers_of_the_function_see_what_a_signal_handler_raises(function):
    """Also where the call was in a piece: `except`, `finally` and the ends of contexts run. A piece that writes objects is not interrupted."""
    def observed(f, x):
        log.clear()
        try:
            result = f(x)
        except Stop as stopped:
            names, traceback = [], stopped.__traceback__
            while traceback is not None:
                names.append(traceback.tb_frame.f_code.co_name)
                traceback = traceback.tb_next
            result = "raised", function.__name__ in names
        return result if not isinstance(result, np.ndarray) else "done", list(log), lock.locked()

    compiled = framejit.compile(function)
    x = np.linspace(0, 3, 600_000)
    for given in (x[:100], x[:1000], x):
        compiled(given)
    began = time.perf_counter()
    whole = observed(compiled, x)
    seconds = time.perf_counter() - began
    with Alarm(0.02, stop):
        eager = observed(function, x)
    seen = []
    for part in (0.15, 0.3, 0.45):
        try:
            with Alarm(seconds * part, stop):
                seen.append(observed(compiled, x))
        except Stop:
            pass  # it came when the call was over
    afterwards = ("raised", False), whole[1], False
    assert eager != whole and set(map(str, seen)) <= {str(eager), str(whole), str(afterwards)}
    assert function is within_a_context or eager in seen
    assert framejit.cache_info()["internal_errors"] == 0 and not lock.locked()


FIRST_CALLS = [
    pytest.param("lambda x: np.tanh(x * {k}).sum() + x", np, id="numpy"),
    pytest.param("lambda x: np.linalg.norm(np.linalg.solve(np.eye(3) * {k} + 1, x[:3])) + len(str(x)) + np.median(x)", np, id="calls"),
    pytest.param("lambda x: torch.nn.functional.layer_norm(x * {k}, x.shape).std() + x", torch, id="torch", marks=needs_torch)]


def call_until(function, x, end):
    while time.perf_counter() < end:
        function(x)


@needs_signals
@pytest.mark.parametrize("text, library", FIRST_CALLS)
@np.errstate()  # NumPy's own blocks of that kind don't restore what was if they are interrupted as they begin
def test_first_calls_swallow_nothing_that_a_signal_handler_raises(text, library):
    x, ended = library.ones(100), 0
    for k in range(60):
        f = framejit.compile(eval(text.format(k=k + 2), {"np": np, "torch": torch}))
        alarm = Alarm(2e-4 + 1e-3 * k, stop, once=True)
        try:
            with alarm:
                # In a function of its own: CPython 3.13 raises at the end of a loop outside of the loop's `try`.
                call_until(f, x, time.perf_counter() + 5)
        except Stop:
            ended += alarm.runs > 0
    assert ended == 60 and framejit.cache_info()["internal_errors"] == 0


@needs_signals
def test_a_function_handles_what_comes_in_its_first_call():
    """While it is traced the signal waits, and then the function is where its first operation begins."""
    def f(x):
        try:
            for _ in range(40):
                x = np.sin(x) + 1
            return x
        except Stop:
            return "handled"

    for k in range(30):
        g = framejit.compile(types.FunctionType(f.__code__.replace(co_name=f"g{k}"), globals()))
        try:
            with Alarm(1e-4 + 2e-4 * k, stop, once=True) as alarm:
                result = g(np.ones(5))
            assert alarm.runs == isinstance(result, str)
        except Stop:
            pass  # it came before or behind the function's own lines


def test_calls_that_threads_of_c_queue_are_made():
    """Py_AddPendingCall, which the main thread answers between two instructions: also if it comes while a piece is traced."""
    made, queued = [], []
    note = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: made.append(1) or 0)
    add = ctypes.CDLL(None).Py_AddPendingCall  # it needs no GIL

    def queue(after):
        time.sleep(after)
        queued.append(add(note, None) == 0)

    for k in range(40):
        lines = "".join(f"    x = np.sin(x * {k + 2}.5) + np.add.reduce(x[{j}:{j + 3}])\n" for j in range(20))
        names = {"np": np}
        exec(f"def f(x):\n{lines}    return np.median(x)\n", names)
        f = framejit.compile(names["f"])
        thread = threading.Thread(target=queue, args=(1e-3 * (k % 20),))
        thread.start()
        f(np.ones(50))
        thread.join()
        for _ in range(1000):
            pass
        assert len(made) == sum(queued) == k + 1


@needs_signals
@pytest.mark.parametrize("function, library", CASES)
def test_handlers_that_raise_nothing_leave_the_results(function, library):
    compiled, x = ready(function, library)
    expected = compiled(x)
    nested = framejit.compile(lambda x: x * 2 + 1)
    made = []
    with Alarm(0.004, lambda: made.append(nested(x[:10]))) as alarm:
        for _ in range(3):
            assert bool((compiled(x) == expected).all())
    assert alarm.runs > 0 and len(made) == alarm.runs and all(bool((row == x[:10] * 2 + 1).all()) for row in made)


@needs_torch
@needs_signals
def test_a_backward_ends_by_a_signal_too():
    def f(x):
        return waves(torch, x).sum()

    compiled = framejit.compile(f)
    x = torch.linspace(0, 3, 500_000, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        x.grad = None
        compiled(x).backward()
    wanted, x.grad = x.grad, None
    loss = compiled(x)
    with pytest.raises(Stop), Alarm(0.005, stop):
        while True:
            loss.backward(retain_graph=True)
    x.grad = None
    compiled(x).backward()
    assert torch.equal(x.grad, wanted)


def test_a_counter_in_a_function_is_no_race():
    """Python's own threads change hands at a call or a jump: between reading the number and writing it there is neither."""
    class State:
        count = 0

    state = State()

    def f(x):
        state.count += 1
        return waves(np, x)

    compiled = framejit.compile(f)
    x = np.linspace(0, 1, 30_000)
    compiled(x)
    state.count = 0
    threads = [threading.Thread(target=lambda: [compiled(x) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.count == 80


def test_reset_while_other_threads_compute():
    compiled, x = ready(of_numpy, np)
    x = x[:200_000]
    expected, found = of_numpy(x), []
    threads = [threading.Thread(target=lambda: found.extend(compiled(x) for _ in range(6))) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        framejit.reset()
        time.sleep(0.002)
    assert len(found) == 18
    for result in found:
        np.testing.assert_allclose(result, expected, rtol=1e-9)


@pytest.mark.parametrize("size", [20, 100_000])
def test_daemon_threads_wait_where_the_interpreter_ends(size):
    run_program(f"""
        import sys, threading, time
        import numpy as np
        import framejit

        functions = [framejit.compile(eval(f"lambda x: np.tanh(x) * {{i}} + x @ x")) for i in range(100)]

        def go():
            for i in range(10**7):
                functions[i % 100](np.ones({size} + i % 50))

        for _ in range(4):
            threading.Thread(target=go, daemon=True).start()
        time.sleep(0.3)
    """)
