"""NumPy's own tests, which are in its wheel: each function that pytest would call is called by way of framejit.compile.

A unit is a class of tests, or the functions of a file. Tests that fail are run again uncompiled: those that pass then differ. pytest
runs inside the worker, once for each unit.
"""
import ast
import contextlib
import functools
import os
import pathlib
import types

import framejit
import numpy
import pytest

PARAMETERS = 12  # sets of them for one test: more are thinned evenly
FOLDER = pathlib.Path(numpy.__file__).parent
# Not of arrays in this process: they build extensions, start other processes, or look at the files of NumPy.
LEFT_OUT = {"distutils", "f2py", "typing", "_pyinstaller", "testing"}
LEFT_OUT_FILES = {"test_cython.py", "test_limited_api.py", "test_extending.py", "test_public_api.py", "test_scripts.py", "test_configtool.py", "test_reloading.py",
                  "test_lazyloading.py", "test_warnings.py", "test_cpu_features.py", "test_cpu_dispatcher.py", "test_mem_policy.py", "test_multithreading.py",
                  "test_multiprocessing.py", "test_numpy_config.py", "test_numpy_version.py", "test_api.py"}


@functools.cache
def names():
    found = []
    for file in sorted(FOLDER.rglob("test_*.py")):
        part = file.relative_to(FOLDER)
        if part.parts[0] in LEFT_OUT or file.name in LEFT_OUT_FILES or "tests" not in part.parts:
            continue
        body = ast.parse(file.read_bytes()).body
        found += [f"{part}::{node.name}" for node in body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
        if any(isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in body):
            found.append(f"{part}::functions")
    return found


class Plugin:
    """Counts what fails; compiles the tests, or not."""

    def __init__(self, run, functions_only, compiled=True, chosen=None):
        self.run, self.functions_only, self.compiled, self.chosen = run, functions_only, compiled, chosen
        self.failed, self.passed, self.bodies = {}, set(), {}

    def pytest_collection_modifyitems(self, config, items):
        kept = [item for item in items if not (self.functions_only and item.cls) and (self.chosen is None or item.nodeid in self.chosen)]
        kept = [item for item in kept if "slow" not in item.keywords]
        tests = {}
        for item in kept:
            tests.setdefault((item.cls, getattr(item, "originalname", item.name)), []).append(item)
        items[:] = [item for same in tests.values() for item in same[::max(1, -(-len(same) // PARAMETERS))]]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        if not self.compiled:
            return None
        name = pyfuncitem.nodeid.split("::", 1)[1]
        if not self.run.start(name):
            pytest.skip("it ended a worker before")
        test = self.compile(pyfuncitem.obj)
        test(**{argument: pyfuncitem.funcargs[argument] for argument in pyfuncitem._fixtureinfo.argnames})
        self.run.called()
        return True

    def compile(self, test):
        """The test's function compiled: once for all its parameters."""
        function = test.__func__ if isinstance(test, types.MethodType) else test
        if not isinstance(function, types.FunctionType):
            return test
        if function not in self.bodies:
            self.bodies.clear()  # of the tests before
            framejit.reset()
            self.bodies[function] = framejit.compile(function)
        body = self.bodies[function]
        return functools.partial(body, test.__self__) if isinstance(test, types.MethodType) else body

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed[report.nodeid] = str(report.longrepr)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def session(file, plugin):
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        pytest.main([str(file), "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir", str(FOLDER), "--tb=short", "-W", "ignore::pytest.PytestWarning"],
                    plugins=[plugin])


def check(name, run):
    file, test = name.split("::")
    functions = test == "functions"
    path = FOLDER / file if functions else f"{FOLDER / file}::{test}"
    ours = Plugin(run, functions)
    session(path, ours)
    if not ours.failed:
        return
    eager = Plugin(run, functions, compiled=False, chosen=set(ours.failed))
    session(path, eager)
    for nodeid in sorted(set(ours.failed) & eager.passed):
        run.at = nodeid.split("::", 1)[1]
        run.differs("test", ours.failed[nodeid][-1500:])
