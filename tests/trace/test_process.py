"""Forks and logs: what needs a process of its own."""
import os
import subprocess
import sys

import pytest

import framejit
from harness import run_program as run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("parent_first", [True, False])
def test_a_forked_child_runs_and_compiles(parent_first):
    done = run(f"""
        import os, warnings
        import numpy as np
        import framejit

        warnings.simplefilter("ignore")  # Python's warning that a process with threads forks
        f = framejit.compile(lambda x: np.sqrt(x * 2 + 1).sum(0))
        g = framejit.compile(lambda x: (x - x.mean()) * 3)
        x = np.ones((2000, 300), np.float32)
        if {parent_first}:
            f(x)
        child = os.fork()
        if child == 0:
            good = np.allclose(f(x), np.sqrt(x * 2 + 1).sum(0, dtype=float)) and np.allclose(g(x), 0)
            os._exit(0 if good and framejit.cache_info()["internal_errors"] == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert np.allclose(f(x), np.sqrt(x * 2 + 1).sum(0, dtype=float))
        print("done")
    """)
    assert "done" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks_while_threads_compile_and_run():
    """The background compiles optimised code and two threads run kernels at the moment of each fork."""
    done = run("""
        import os, threading, warnings
        import numpy as np
        import framejit

        warnings.simplefilter("ignore")  # Python's warning that a process with threads forks
        x = np.random.default_rng(0).random((300, 200))
        functions = [framejit.compile(eval(f"lambda x: np.sqrt(x * {i} + 1).sum(0) + np.tanh(x[0]) * {i}")) for i in range(1, 25)]
        stop = threading.Event()

        def work():
            while not stop.is_set():
                for function in functions:
                    function(x)

        def right(function):
            return np.allclose(function(x), function.__wrapped__(x))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        busy, children = 0, 0
        while children < 12 or busy == 0 and children < 200:
            busy = max(busy, framejit.cache_info()["background_jobs"])
            child = os.fork()
            if child == 0:
                new = framejit.compile(lambda x: np.cos(x) * 2 + children)
                good = all(map(right, [functions[children % 24], functions[(children + 7) % 24], new, new, new]))
                os._exit(0 if good and framejit.cache_info()["internal_errors"] == 0 else 1)
            assert os.waitpid(child, 0)[1] == 0
            children += 1
        stop.set()
        for thread in threads:
            thread.join()
        print("busy" if busy else "idle")
    """)
    assert "busy" in done.stdout, "no job was in the background at any fork"


def test_an_import_in_compiled_code_loads_what_is_not_loaded():
    """`import a.b` and `from a import b` while a is loaded and b is not."""
    run("""
        import pathlib, sys, tempfile
        import numpy as np
        import framejit

        folder = pathlib.Path(tempfile.mkdtemp())
        for package in ("one", "two", "three"):
            (folder / package).mkdir()
            (folder / package / "__init__.py").write_text("")
            (folder / package / "leaf.py").write_text("value = 3")
        sys.path.insert(0, str(folder))
        import one, two, three

        def dotted(x):
            import one.leaf
            return x * one.leaf.value

        def renamed(x):
            import two.leaf as leaf
            return x * leaf.value

        def of_a_package(x):
            from three import leaf
            return x * leaf.value

        for function in (dotted, renamed, of_a_package):
            compiled = framejit.compile(function)
            for _ in range(3):
                np.testing.assert_array_equal(compiled(np.ones(2)), [3, 3])
        assert framejit.cache_info()["internal_errors"] == 0
    """)


PROGRAM = """
    import numpy as np
    import framejit

    @framejit.compile
    def f(x, k):
        y = x * k
        print("seen")
        return y / (x - x)

    for n, k in ((3, 2), (4, 2.5)):
        with np.errstate(all="warn"):
            f(np.ones(n, np.float32), k)
"""


@pytest.mark.parametrize("choice, wanted", [
    ("graph_breaks", ["graph break at", "FJ102", '`print("seen")`', "cost", "try"]),
    ("recompiles", ["recompile of f", "was", "now"]),
    ("graphs", ["graph of f", "mul"]),
    ("guards", ["guards of f", "L.x: f32[3]"]),
    ("fallbacks", ["ran eagerly: f", "NumPy reports"]),
])
def test_logs_go_to_stderr(choice, wanted):
    done = run(PROGRAM, FRAMEJIT_LOGS=choice)
    for text in wanted:
        assert text in done.stderr, done.stderr
    assert done.stdout == "seen\nseen\n"


def test_a_message_says_a_line_once():
    done = run(PROGRAM, FRAMEJIT_LOGS="graph_breaks")
    assert done.stderr.count("print(") == 1, done.stderr


def test_logs_of_kernels_and_chosen_functions():
    assert "kernels of f" in run(PROGRAM, FRAMEJIT_LOGS="kernels", FRAMEJIT_BACKEND="llvm").stderr
    assert "graph of f" not in run(PROGRAM, FRAMEJIT_LOGS="graphs:other.*").stderr


def test_numpy_is_not_imported_for_a_function_that_does_without():
    run("""
        import math, sys
        import framejit

        assert framejit.compile(lambda x: math.sqrt(x) + len(str(x)))(4) == 3
        assert "numpy" not in sys.modules, "NumPy was imported"
    """)


SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # whose frames are larger


@pytest.mark.parametrize("kilobytes", [*([] if SANITIZED else [32 if sys.version_info < (3, 14) else 56]), 64, 96, 128, 512])
def test_a_thread_with_a_small_stack(kilobytes):
    """Compiling needs more than such a stack has: the call runs eagerly."""
    program = """
import sys, threading
import numpy as np
import framejit

def f(x):
    for i in range(60):
        x = x * 1.01 + i
    return x

answers = []
threading.stack_size(int(sys.argv[1]) * 1024)
thread = threading.Thread(target=lambda: answers.append(framejit.compile(f)(np.arange(5.0))))
thread.start()
thread.join()
np.testing.assert_allclose(answers[0], f(np.arange(5.0)), rtol=1e-14)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program, str(kilobytes)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("held_by", ["a guard", "a function that a break reaches"])
def test_what_dies_in_a_reset_compiles_calls_and_resets(held_by):
    """The caches hold the last reference to it."""
    done = run(f"""
        import numpy as np
        import framejit

        x = np.arange(3.0)
        called = []

        class Scale:
            by = 2.0
            def __del__(self):
                for k in range(20):
                    framejit.compile(eval(f"lambda x: np.cos(x) * {{k}}"))(x)
                called.append(float(other(x).sum()))
                framejit.reset()
                called.append(float(other(x).sum()))

        scale = Scale()
        def scaled(x):
            return np.sin(x) * scale.by
        functions = [framejit.compile(eval(f"lambda x: np.sin(x) + {{k}}")) for k in range(20)]
        other = framejit.compile(lambda x: x * 2)
        if {held_by == "a guard"}:
            f = framejit.compile(scaled)
        else:
            f = framejit.compile(lambda x: list(map(scaled, [x, x]))[1] + 1)
        for each in [f, other, *functions]:
            each(x)
        del scale
        framejit.reset()
        assert called == [6.0, 6.0], called
        assert framejit.cache_info()["internal_errors"] == 0
        print("done")
    """)
    assert "done" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_children_of_forks_beside_first_calls_make_first_calls():
    """No lock of a thread that compiled in the parent is held in the child."""
    done = run("""
        import os, signal, threading, warnings
        import numpy as np
        import framejit

        warnings.simplefilter("ignore")  # Python's warning that a process with threads forks
        x = np.arange(5.0)
        stop = threading.Event()

        def first_calls(k):
            while not stop.is_set():
                k += 4
                framejit.compile(eval(f"lambda x: np.sin(x) * {k} + x"))(x)

        threads = [threading.Thread(target=first_calls, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        states = []
        for k in range(150):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # ends one that hangs
                function = framejit.compile(eval(f"lambda x: np.tanh(x) - {k}"))
                os._exit(0 if np.allclose(function(x), np.tanh(x) - k) else 1)
            states.append(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        assert states == [0] * 150, states
        print("done")
    """)
    assert "done" in done.stdout


@pytest.mark.parametrize("left", [16, 116, 256, 512, 1024, 3072])
@pytest.mark.parametrize("operations", [10, 120])
def test_a_first_call_without_memory_says_so_and_a_later_one_is_compiled(left, operations):
    pytest.importorskip("resource")
    done = run(f"""
        import resource
        import numpy as np
        import framejit

        ready = framejit.compile(lambda x: np.sin(x) + 1)
        ready(np.ones(5))
        ready(np.ones(6))

        def f(x):
            for i in range({operations}):
                x = np.sin(x) * 1.5 + i
            return x

        compiled, x = framejit.compile(f), np.ones(5)
        want = f(x)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + {left} * 1024, hard))
        first = None
        try:
            first = [compiled(x) for _ in range(3)]
        except MemoryError:  # as eager may
            pass
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        assert first is None or all(np.allclose(each, want) for each in first)
        graphs = framejit.cache_info()["graphs"]
        for _ in range(4):
            assert np.allclose(compiled(x), want)
        assert framejit.cache_info()["graphs"] == graphs + 1 and framejit.cache_info()["internal_errors"] == 0
        print("done")
    """, FRAMEJIT_CACHE_BYTES="0", FRAMEJIT_LOGS="fallbacks", OMP_NUM_THREADS="1")
    assert "done" in done.stdout and done.stderr.count("memory ran out while it was compiled") == 1
