"""What is said of a long compilation: to a function, or on a terminal."""
import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import framejit
from framejit import _progress


@pytest.fixture(autouse=True)
def seconds_are_short(monkeypatch):
    monkeypatch.setattr(_progress, "AFTER", 0.1)
    monkeypatch.setattr(_progress, "EVERY", 0.02)
    yield
    framejit.set_progress()
    assert _progress._running == {} and _progress._on_terminal is None


@contextlib.contextmanager
def told():
    found = []
    framejit.set_progress(lambda *entry: found.append((*entry, threading.get_ident())))
    yield found
    framejit.set_progress()


def slow(graph, examples):
    """A back end of the user's that takes its time."""
    time.sleep(0.3)
    return graph.run


def f(x):
    return np.exp(x) + 1


def sluggish(graph):
    time.sleep(0.2)
    return graph


def test_a_function_is_told_while_code_is_made():
    with told() as found:
        assert framejit.compile(f, backend=slow)(np.zeros(2)).tolist() == [2, 2]
    assert {entry[:2] for entry in found} == {("f", "code")} and 4 <= len(found) <= 12
    seconds = [entry[2] for entry in found]
    assert seconds == sorted(seconds) and 0.1 <= seconds[0] < 0.25 and seconds[-1] < 0.6
    before = len(found)
    time.sleep(0.1)
    assert len(found) == before  # nothing after the end


def test_a_stage_that_begins_late_is_said_at_once():
    with told() as found:
        framejit.compile(f, passes=[sluggish])(np.zeros(2))
    assert [entry[1] for entry in found if entry[3] == threading.get_ident()] == ["passes", "code"]


def test_a_long_trace_is_told_of(monkeypatch):
    monkeypatch.setattr(_progress, "AFTER", 0.0)
    monkeypatch.setattr(_progress, "EVERY", 0.0)

    def loops(x):
        for i in range(600):
            x = x + i
        return x

    with told() as found:
        framejit.compile(loops)(np.zeros(2))
    mine = [entry[:2] for entry in found if entry[3] == threading.get_ident()]
    assert mine.count((loops.__qualname__, "trace")) > 3 and mine[-1] == (loops.__qualname__, "code")


def test_a_short_compilation_and_a_call_say_nothing():
    with told() as found:
        compiled = framejit.compile(f)
        for _ in range(3):
            compiled(np.zeros(2))
    assert found == []


def test_off_by_the_option():
    with told() as found:
        framejit.compile(f, backend=slow, progress=False)(np.zeros(2))
        with framejit.options(progress=False):
            framejit.compile(f, backend=slow)(np.zeros(2))
    assert found == []


def test_what_the_function_raises_changes_no_result(monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: unraisable.append(str(raised.exc_value)))

    def refuse(*entry):
        raise RuntimeError("of the callback")

    framejit.set_progress(refuse)
    assert framejit.compile(f, backend=slow, passes=[sluggish])(np.zeros(2)).tolist() == [2, 2]
    assert set(unraisable) == {"of the callback"} and len(unraisable) >= 2


def test_what_is_not_callable_is_refused():
    with pytest.raises(TypeError, match="^framejit.set_progress takes a callable of a function's name, a stage and seconds, not 3$"):
        framejit.set_progress(3)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_a_line_that_is_erased(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stderr(Terminal()) as stream:
        framejit.compile(f, backend=slow)(np.zeros(2))
    *lines, last = stream.getvalue().split("\r\x1b[K")
    assert lines[0] == "" and set(lines[1:]) == {"framejit: compiling f: making code, 0 s"} and len(lines) > 3 and last == ""


def test_an_entry_of_the_logs_takes_the_line_s_place(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")

    def logging_backend(graph, examples):
        time.sleep(0.15)
        framejit._logs.deliver("fallbacks", 20, "framejit: an entry")
        return graph.run

    with contextlib.redirect_stderr(Terminal()) as stream:
        framejit.compile(f, backend=logging_backend)(np.zeros(2))
    assert "\r\x1b[Kframejit: an entry\n" in stream.getvalue()


@pytest.mark.parametrize("terminal", ["no terminal", "dumb", "None", "closed"])
def test_elsewhere_nothing_is_shown(terminal, monkeypatch):
    stream = {"no terminal": io.StringIO(), "None": None}.get(terminal, Terminal())
    monkeypatch.setenv("TERM", "dumb" if terminal == "dumb" else "xterm")
    if terminal == "closed":
        stream.close()
    with contextlib.redirect_stderr(stream):
        assert framejit.compile(f, backend=slow)(np.zeros(2)).tolist() == [2, 2]
    assert terminal in ("None", "closed") or stream.getvalue() == ""


def test_threads_share_the_line():
    with told() as found:
        threads = [threading.Thread(target=lambda: framejit.compile(f, backend=slow)(np.zeros(2))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) >= 4


PROGRAM = """
import time
import numpy as np, framejit
def slow(graph, examples):
    time.sleep(1.3)
    return graph.run
framejit.compile(lambda x: np.exp(x) + 1, backend=slow)(np.zeros(2))
"""


@pytest.mark.parametrize("variable", ["1", "0"])
def test_in_a_real_terminal_after_a_second(variable):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm", "FRAMEJIT_PROGRESS": variable}
    try:
        subprocess.run([sys.executable, "-P", "-c", PROGRAM], stderr=theirs, env=environment, check=True, timeout=300)
        os.write(theirs, b"end")
        said = ""
        while not said.endswith("end"):  # a terminal hands over what it has so far
            said += os.read(ours, 10000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    pattern = r"(\r\x1b\[Kframejit: compiling <lambda>: making code, 1 s)+\r\x1b\[Kend" if variable == "1" else "end"
    assert re.fullmatch(pattern, said), said
