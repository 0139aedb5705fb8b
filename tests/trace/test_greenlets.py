"""Greenlets: one thread, several stacks of frames, whose calls end in another order than they began."""
import pytest

from harness import run_program

pytest.importorskip("greenlet", reason="greenlet is not installed in this environment")

PROGRAM = """
    import greenlet
    import numpy as np
    import framejit

    main = greenlet.getcurrent()
    x = np.arange(4.0)

    def helper(x):
        return np.tanh(x) * 2

    def plain():
        return [helper(np.ones(n)) for n in range(1, 5)]

    def handler(k, wait=main.switch):
        def handle(x):
            y = x * k
            wait()
            return helper(y) + 1
        return handle

    def right(k, result):
        return np.allclose(result, np.tanh(x * k) * 2 + 1)

    def runs_compiled():
        before = framejit.cache_info()["hits"]
        for _ in range(3):
            warm(x)
        return framejit.cache_info()["hits"] == before + 3

    warm = framejit.compile(lambda x: np.sin(x) + 1)
    warm(x)
"""


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_calls_end_in_any_order(order):
    done = run_program(PROGRAM + f"""
    for _ in range(20):
        waiting = [greenlet.greenlet(framejit.compile(handler(k))) for k in (2, 3, 4)]
        for each in waiting:
            each.switch(x)
        for i in {order}:
            assert right(i + 2, waiting[i].switch())
            plain()
    assert runs_compiled()
    print("done")
    """)
    assert "done" in done.stdout


def test_a_call_that_is_left_for_good_leaves_the_others_alone():
    done = run_program(PROGRAM + """
    for _ in range(20):
        left, ends = [greenlet.greenlet(framejit.compile(handler(k))) for k in (2, 3)]
        left.switch(x)
        ends.switch(x)
        del left
        assert right(3, ends.switch())
        plain()
    assert runs_compiled()
    print("done")
    """)
    assert "done" in done.stdout


def test_one_that_waits_in_what_is_disabled_stops_no_others_compiled_calls():
    done = run_program(PROGRAM + """
    @framejit.disable
    def pause():
        main.switch()

    first, second = [greenlet.greenlet(framejit.compile(handler(k, pause))) for k in (2, 3)]
    first.switch(x)
    assert runs_compiled()
    second.switch(x)
    assert right(2, first.switch()) and runs_compiled()
    assert right(3, second.switch()) and runs_compiled()
    print("done")
    """)
    assert "done" in done.stdout


def test_functions_reached_from_breaks_are_compiled_in_each():
    done = run_program(PROGRAM + """
    def outer(k):
        inner = handler(k)
        def call(x):
            return list(map(inner, [x, x + 1]))
        return call

    for _ in range(20):
        first, second = [greenlet.greenlet(framejit.compile(outer(k))) for k in (2, 3)]
        first.switch(x)
        second.switch(x)
        first.switch()
        second.switch()
        for k, each in ((2, first), (3, second)):
            a, b = each.switch()
            assert right(k, a) and np.allclose(b, np.tanh((x + 1) * k) * 2 + 1)
    assert runs_compiled()
    print("done")
    """)
    assert "done" in done.stdout
