"""A table of Python constructs: each row is the smallest program that uses one around arrays.

`@construct(group, "what it shows")` registers a program `f(x)` (or `f(x, y)`); `@construct(..., state=True)` registers a
factory instead, which returns `(f, state)`: the program and what else it changes, made anew for eager and compiled so that
neither sees the other's effects. `run_construct` runs one eagerly and compiled on several inputs, asserts that nothing
differs, and says how it was captured: "whole" (one graph, no break), "break FJxxx Name, ..." or "eager" (nothing
compiled). Outcomes are kept in RESULTS; with FRAMEJIT_COVERAGE=file.json the session writes them there.
"""
import json
import os

import numpy as np

import framejit
from harness import Outcome, compare, assert_same

RESULTS = {}
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
INPUTS = [X, X * 2 + 1, X[:2], X]


class Program:
    def __init__(self, group, name, function, state, breaks):
        self.group, self.name, self.function, self.state, self.breaks = group, name, function, state, breaks

    def make(self):
        made = self.function() if self.state else (self.function, None)
        return made if isinstance(made, tuple) else (made, None)

    def __repr__(self):
        return f"{self.group}-{self.name}".replace(" ", "_")


def table():
    """A new table: (decorator, list of programs)."""
    programs = []

    def construct(group, name=None, state=False, breaks=()):
        """breaks: names of breaks.def that are due; None: whatever happens."""
        def register(function):
            programs.append(Program(group, name or function.__name__.replace("_", " "), function, state, breaks))
            return function
        return register

    return construct, programs


def run_construct(program):
    framejit.reset()
    (eager, eager_state), (ours, our_state) = program.make(), program.make()
    compiled = framejit.compile(ours)
    for array in INPUTS:
        expected = Outcome(eager, [array.copy()], {})
        actual = Outcome(compiled, [array.copy()], {})
        compare(actual, expected)
        assert_same(our_state, eager_state, "state")
    info = framejit.cache_info()
    report = framejit.explain(compiled).so_far()
    assert info["internal_errors"] == 0, report
    assert info["eager_replays"] == 0, f"a compiled piece was replayed eagerly:\n{report}"
    names = [b.name for b in report.breaks]
    if names:
        outcome = "break " + ", ".join(dict.fromkeys(f"{b.number} {b.name}" for b in report.breaks))
    else:
        outcome = "whole" if info["graphs"] > 0 else "eager"
    RESULTS[program.group, program.name] = outcome
    if program.breaks is not None:
        assert names == list(program.breaks), f"{names}\n{report}"
        if not names:
            assert info["graphs"] > 0, f"nothing was captured:\n{report}"
    return outcome


def write_results():
    path = os.environ.get("FRAMEJIT_COVERAGE")
    if not path or not RESULTS:
        return
    groups = {}
    if os.path.exists(path):
        with open(path) as file:
            groups = json.load(file)
    for (group, name), outcome in RESULTS.items():
        groups.setdefault(group, {})[name] = outcome
    with open(path, "w") as file:
        json.dump(groups, file, indent=1, sort_keys=True)


def summary():
    """Counts per group, one line each."""
    groups = {}
    for (group, _), outcome in RESULTS.items():
        counts = groups.setdefault(group, {"whole": 0, "break": 0, "eager": 0})
        counts[outcome.split()[0]] += 1
    lines = [f"{group:28} {c['whole']:4} whole {c['break']:4} with a break {c['eager']:4} eager" for group, c in sorted(groups.items())]
    return lines
