"""Ctrl-C while a program runs: the call ends where its array work begins, nothing of it has happened, and the user's handlers run."""
import signal
import subprocess
import sys

import pytest

import framejit

PROGRAM = """
import os, subprocess, sys, traceback
import numpy as np
import framejit

log = []

def pairs(x):
    return np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(-1)).sum(1)

def product(x):
    return x @ x.T

def running(x):
    return np.cumsum(np.sin(x))

class Counter:
    calls = 0

counter = Counter()

def guarded(x):
    rows = x.shape[0]
    try:
        result = WORK(x)
        log.append("done")
    except KeyboardInterrupt:
        log.append(("caught", rows, "result" in locals()))
        raise
    finally:
        log.append("finally")
    return result

def counted(x):
    counter.calls += 1
    return WORK(x)

step = framejit.compile(FUNCTION)
step(np.random.rand(50, 3))
log.clear()
counter.calls = 0
x = np.random.rand(*SHAPE)
subprocess.Popen(f"sleep 0.7; kill -INT {os.getpid()}", shell=True, start_new_session=True)
rounds = 0
try:
    while True:
        step(x)
        rounds += 1
        pass  # the jump back of a loop of one line is in no `try` of CPython 3.11
except KeyboardInterrupt as error:
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
print(names[-1], rounds, counter.calls, log[2 * rounds:], sys.gettrace(), sep="|")
small = np.random.rand(20, 3)
assert np.allclose(step(small), WORK(small))
"""


def run(function, work, shape):
    text = PROGRAM.replace("FUNCTION", function).replace("WORK", work).replace("SHAPE", shape)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("|")


@pytest.mark.parametrize("work,shape", [("pairs", "(5000, 3)"), ("product", "(5000, 3000)"), ("running", "(20_000_000,)")])
def test_a_long_program_ends_and_the_users_handlers_run(work, shape):
    name, _, _, log, tracer = run("guarded", work, shape)
    assert tracer == "None"
    # Others: the signal came between two calls, or when the last of the work was done.
    assert log in (f"[('caught', {eval(shape)[0]}, False), 'finally']", "[]", "['done', 'finally']")
    if "caught" in log:
        assert name == work


@pytest.mark.parametrize("work,shape", [("pairs", "(5000, 3)"), ("product", "(5000, 3000)")])
def test_what_a_call_has_not_finished_has_not_happened_twice(work, shape):
    _, rounds, calls, _, tracer = run("counted", work, shape)
    assert tracer == "None" and int(calls) in (int(rounds), int(rounds) + 1)


def test_a_handler_that_runs_another_program_between_two_steps_changes_nothing():
    """Few long rows: what is between two products is there as a whole, in memory that was the thread's and is the run's."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    inner, outer = (framejit.compile(lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1), -1) @ v) for _ in range(2))
    for length in (50, 70):
        for function in (inner, outer):
            function(torch.randn(1, 1, length, 64), *torch.randn(2, 1, 1, length + 1, 64))
    keys, values = torch.randn(2, 1, 1, 600_000, 64)
    query, other = torch.randn(2, 1, 1, 120, 64)
    expected, expected_inside = outer(query, keys, values), inner(other, keys, values)
    inside = []

    def handler(*_):
        inside.append(torch.equal(inner(other, keys, values), expected_inside))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for delay in (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06):
            signal.setitimer(signal.ITIMER_REAL, delay)
            result = outer(query, keys, values)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert torch.equal(result, expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(inside)


FIRST_CALL = """
import os, signal
import numpy as np
import framejit
from framejit import _core

came = []

def f(x):
    return SWEEPS

def kills(function, stage):
    if stage == STAGE and not came:
        came.append(function)
        os.kill(os.getpid(), signal.SIGINT)

_core.set_compilation_watcher(kills)
compiled, x = framejit.compile(f), np.ones(50)
try:
    compiled(x)
    print("gave a result")
except KeyboardInterrupt:
    print("interrupted", len(framejit.explain(compiled).so_far().graphs), len(came))
same = np.allclose(compiled(x), f(x))
print(same, len(framejit.explain(compiled).so_far().graphs))

def goes_on(number, frame):
    handled.append(number)

handled = []
signal.signal(signal.SIGINT, goes_on)
came.clear()
other = framejit.compile(lambda x: SWEEPS)
print(np.allclose(other(x), f(x)), len(handled), len(framejit.explain(other).so_far().graphs))
"""


@pytest.mark.parametrize("stage", ["trace", "code"])
def test_first_calls_are_given_up(stage):
    """A piece is not finished first, and nothing of it is kept. Of a handler that goes on nobody notices anything."""
    sweeps = "np.sin(x)" + "".join(f" + np.cos(x * {i}.5)" for i in range(1, 200))
    program = FIRST_CALL.replace("SWEEPS", sweeps).replace("STAGE", repr(stage))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["interrupted 0 1", "True 1", "True 1 1"], done.stdout + done.stderr
