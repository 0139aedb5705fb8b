"""What there is to run: the names of all units, and the module that checks one of them."""
import importlib
import importlib.util

# Of a suite: the module here that has `names()` and `check(name, run)`, and what it has to import.
SUITES = {
    "numpy": ("numpy_tests", ["pytest", "hypothesis"]),
    "ops": ("torch_ops", ["torch", "expecttest"]),
    "modules": ("torch_modules", ["torch", "expecttest"]),
    "optimizers": ("torch_optimizers", ["torch", "expecttest"]),
}


def missing(suite):
    return [name for name in SUITES[suite][1] if importlib.util.find_spec(name) is None]


def absent():
    """Why a suite is not run, a sentence each."""
    return [f"{suite} (no {', '.join(missing(suite))} here)" for suite in SUITES if missing(suite)]


def names():
    return [f"{suite}:{name}" for suite in SUITES if not missing(suite) for name in importlib.import_module(SUITES[suite][0]).names()]


def check(unit, run):
    suite, name = unit.split(":", 1)
    importlib.import_module(SUITES[suite][0]).check(name, run)
