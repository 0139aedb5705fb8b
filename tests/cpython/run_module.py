"""Runs one of CPython's own test modules, as it is or with every function in it compiled, and prints each case's outcome as JSON.

`python run_module.py test.test_with --compiled`: each `def` and `lambda` of the module, nested ones and those of doctests included,
is wrapped in framejit.compile where it is written.
"""
import ast
import builtins
import doctest
import importlib.util
import io
import json
import os
import sys
import unittest


class Decorate(ast.NodeTransformer):
    """Puts every function through `__framejit_compile__`; lines stay where they are."""

    # What type.__new__ makes of a plain function under these names.
    MADE_BY_TYPE = {"__new__": "__framejit_staticmethod__", "__init_subclass__": "__framejit_classmethod__",
                    "__class_getitem__": "__framejit_classmethod__"}

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        names = ["__framejit_compile__"]  # innermost: staticmethod and property get the compiled function
        if not node.decorator_list and node.name in self.MADE_BY_TYPE:
            names.insert(0, self.MADE_BY_TYPE[node.name])
        node.decorator_list += [ast.copy_location(ast.Name(name, ast.Load()), node) for name in names]
        return node

    def visit_Lambda(self, node):
        self.generic_visit(node)
        name = ast.copy_location(ast.Name("__framejit_compile__", ast.Load()), node)
        return ast.copy_location(ast.Call(name, [node], []), node)


def decorated(source, filename, mode, flags=0):
    tree = compile(source, filename, mode, flags | ast.PyCF_ONLY_AST, True)
    return compile(ast.fix_missing_locations(Decorate().visit(tree)), filename, mode, flags, True)


class Loader:
    """Of the one module under test."""

    def __init__(self, spec):
        self.spec = spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        with open(self.spec.origin, "rb") as file:
            exec(decorated(file.read(), self.spec.origin, "exec"), vars(module))


def load(name, compiled):
    if not compiled:
        return importlib.import_module(name)
    import framejit

    def compile_function(function):
        # A class or a callable object under a decorator is left alone.
        return framejit.compile(function) if type(function).__name__ == "function" else function

    builtins.__framejit_compile__ = compile_function
    builtins.__framejit_staticmethod__, builtins.__framejit_classmethod__ = staticmethod, classmethod
    doctest.compile = lambda source, filename, mode, flags, inherit: decorated(source, filename, mode, flags)
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    Loader(spec).exec_module(module)
    return module


class Result(unittest.TestResult):
    """Outcome and reason per case; a subtest that fails makes its case fail."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def note(self, case, outcome, error=None):
        text = "" if error is None else f"{error[0].__name__}: {error[1]}"
        self.outcomes.setdefault(case.id(), (outcome, text[:3000]))

    def addSuccess(self, case):
        self.note(case, "ok")

    def addError(self, case, error):
        self.note(case, "error", error)

    def addFailure(self, case, error):
        self.note(case, "failure", error)

    def addSkip(self, case, reason):
        self.note(case, "skipped")

    def addExpectedFailure(self, case, error):
        self.note(case, "expected failure")

    def addUnexpectedSuccess(self, case):
        self.note(case, "unexpected success")

    def addSubTest(self, case, subtest, error):
        if error is not None:
            self.note(case, "failure" if issubclass(error[0], case.failureException) else "error", error)


def main():
    name, compiled = sys.argv[1], "--compiled" in sys.argv
    only = [word for word in sys.argv[2:] if not word.startswith("--")]
    # As `python -m test` does without -u: cases that ask for much time, memory or the network are skipped.
    importlib.import_module("test.support").use_resources = ()
    module = load(name, compiled)
    suite = unittest.defaultTestLoader.loadTestsFromNames(only, module) if only else unittest.defaultTestLoader.loadTestsFromModule(module)
    result = Result()
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        suite.run(result)
    finally:
        sys.stdout = stdout
    counts = {}
    if compiled:
        import framejit

        counts = framejit.cache_info()
    print(json.dumps({"outcomes": result.outcomes, "counts": counts}), flush=True)
    os._exit(0)  # some cases leave things behind that complain at exit


if __name__ == "__main__":
    main()
