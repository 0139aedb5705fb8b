"""The executor by itself: a call whose first N instructions it runs, before CPython goes on, must not be told from a call
that CPython runs alone: results, what callees see of the frame, exceptions, tracebacks and reference counts."""
import gc
import sys
import traceback
import types

import pytest

import executor_corpus as corpus
import test_bytecode
from framejit import _core


def arguments(values):
    return tuple(v() if v in (corpus.Point, corpus.ThreeItems) else v for v in values)


def outcome(call):
    """Everything observable of one call."""
    corpus.seen.clear()
    result = error = None
    try:
        result = call()
    except Exception as raised:
        # Our own frames (this function and the caller's lambda) are left out.
        chain = []
        while raised is not None:
            entries = [(f.name, f.lineno, f.colno, f.end_colno) for f in traceback.extract_tb(raised.__traceback__)
                       if f.filename != __file__]
            chain.append((type(raised), str(raised), entries, raised.__suppress_context__))
            raised = raised.__cause__ or raised.__context__
        error = chain
    return repr(result), error, list(corpus.seen)


# A class argument that is a base class, not an instance to be made.
AS_CLASS = {corpus.make_class}


def made(function, values):
    return values if function in AS_CLASS else arguments(values)


#: Instructions of generators, class and module bodies and what the compiler only jumps around: such frames are CPython's.
LEFT_TO_CPYTHON = {"YIELD_VALUE", "SEND", "GET_YIELD_FROM_ITER", "RETURN_GENERATOR", "STOPITERATION_ERROR", "LOAD_NAME", "STORE_NAME", "DELETE_NAME",
                   "LOAD_CLASSDEREF", "SETUP_ANNOTATIONS", "LOAD_LOCALS", "IMPORT_STAR", "END_FOR", "NOP", "UNSUPPORTED", "CALL_INTRINSIC_2"}


def test_the_corpus_has_every_instruction_at_which_a_segment_may_end():
    def decoded(code):
        inner = [decoded(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
        return {row[0] for row in _core.decoded_instructions(code)}.union(*inner)

    programs = [program for table in (test_bytecode.WHOLE, test_bytecode.BREAK) for _, program in table]
    needed = set().union(*(decoded(program.__code__) for program in programs)) - LEFT_TO_CPYTHON
    shown = {row[0] for function, _ in corpus.CASES for row in _core.decoded_instructions(function.__code__)}
    assert needed <= shown, sorted(needed - shown)


IDS = [f"{function.__name__}-{i}" for i, (function, _) in enumerate(corpus.CASES)]


def steps(function):
    count = len(_core.decoded_instructions(function.__code__))
    # Past the first hundred instructions the interesting boundaries have been met; long functions are sampled.
    return [n for n in range(count * 3 + 10) if n < 120 or n % 37 == 0]


@pytest.mark.parametrize("function, values", corpus.CASES, ids=IDS)
def test_resuming_after_any_instruction_is_unobservable(function, values):
    expected = outcome(lambda: function(*made(function, values)))
    for count in steps(function):
        actual = outcome(lambda: _core.run_interpreted(function, made(function, values), {}, count))
        assert actual == expected, f"after {count} instructions"


def test_keyword_arguments_reach_the_frame():
    def f(a, /, b, *args, c=3, **kwargs):
        return a, b, args, c, kwargs

    for count in range(12):
        assert _core.run_interpreted(f, (1,), {"b": 2, "d": 4}, count) == (1, 2, (), 3, {"d": 4})


@pytest.mark.parametrize("function, values", corpus.CASES, ids=IDS)
def test_no_reference_is_leaked(function, values):
    values = made(function, values)

    def run(repeats):
        for _ in range(repeats):
            for count in (0, 3, 9, 27, 1000):
                try:
                    _core.run_interpreted(function, values, {}, count)
                except Exception:
                    pass
            corpus.seen.clear()

    def growth():
        gc.collect()
        before = sys.getallocatedblocks()
        run(20)
        gc.collect()
        return sys.getallocatedblocks() - before

    run(15)
    # The interpreter's caches grow less and less; what each of the 20 calls with one `count` leaks would show every
    # time.
    assert any(growth() < 20 for _ in range(30))


def test_a_callee_that_starts_tracing_sees_the_rest():
    events = []

    def tracer(frame, event, arg):
        events.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
        return tracer

    def start():
        sys._getframe(1).f_trace = tracer
        sys.settrace(tracer)

    def f(a):
        start()
        b = a + 1
        c = b * 2
        sys.settrace(None)
        return c

    def recorded(call):
        events.clear()
        assert call() == 4
        return [e for e in events if e[0] == "line"]

    expected = recorded(lambda: f(1))
    for count in range(20):
        assert recorded(lambda: _core.run_interpreted(f, (1,), {}, count)) == expected, count


def test_recursion_limit_is_python_s():
    def down(n):
        return 0 if n == 0 else 1 + _core.run_interpreted(down, (n - 1,), {}, 1000)

    assert down(50) == 50
    with pytest.raises(RecursionError):
        down(100000)
    assert down(50) == 50


def test_a_signal_interrupts_a_loop():
    import signal
    import threading

    def forever():
        while True:
            pass

    old = signal.signal(signal.SIGALRM, lambda *args: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            _core.run_interpreted(forever, (), {}, 10**12)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert threading.active_count() >= 1


def test_several_threads_run_at_once():
    import threading

    def work(n):
        total = 0
        for i in range(n):
            total += i if i % 3 else max(i, 1)
        return total

    results = []
    threads = [threading.Thread(target=lambda: results.append([_core.run_interpreted(work, (200,), {}, c) for c in range(0, 400, 7)]))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(r == work(200) for rs in results for r in rs) and len(results) == 6
