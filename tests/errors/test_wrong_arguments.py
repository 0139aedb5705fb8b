"""A library refuses what is not an argument of its function, and what it takes instead of the usual (None, no axes) has
the library's meaning: each call of the tests of the front ends, with each literal argument replaced by one of each
wrong kind in turn."""
import ast
import copy
import pathlib
import sys

import numpy as np
import pytest

import framejit
from harness import Outcome, compare

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402  (the expressions name it)

OPS = pathlib.Path(__file__).parent.parent / "ops"
# None; a bool for a number, a number for a bool; another type; out of range, at both ends; none, repeated, in a list; a set.
WRONG = ["None", "True", "2.5", "'a'", "9", "-9", "()", "(0, 0)", "[1]", "{1}", "np.int64(1)"]

# Not taken wrongly: torch writes into the result, whose `_version` is then 1.
OTHER_FAULTS = {"F.linear(x, torch.ones(6, 5), torch.ones(()))"}


def calls_of(library):
    """Group -> sources of expressions over x, and of statements over y."""
    if library == "torch":
        sys.path.insert(0, str(OPS))
        import torch_cases as cases
        return {name: getattr(cases, name) for name in ("POINTWISE", "REDUCTIONS", "SHAPES", "CREATION", "WRITES")}
    groups = {}
    for statement in ast.parse((OPS / "numpy_cases.py").read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            lambdas = [value for value in statement.value.values if isinstance(value, ast.Lambda)]
            groups[statement.targets[0].id] = [ast.unparse(value.body) for value in lambdas]
    groups["WRITES"] = ["y.fill(3)", "np.copyto(y, 1)", "np.add(x, 1, out=y)", "np.add(x, x, out=y, where=True)",
                        "np.put_along_axis(y, np.zeros((2, 1, 4), int), 5, 1)", "np.add.at(y, 0, 1)"]
    groups["MORE"] = ["np.sum(x, where=True)", "x.prod(where=True)", "np.logical_and.reduce(x, where=True)",
                      "np.compress([True, False], x, 0)", "np.asarray(x, None)", "x.view(np.int64)", "np.float32(1)",
                      "np.inner(x[0], x[1])", "np.round(x, 1)"]
    return groups


def is_literal(node):
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) in ("torch.float64", "torch.float32", "torch.long", "np.float64")
    try:
        ast.literal_eval(node)
        return True
    except ValueError:
        return False


def changed(source):
    """The source with one thing wrong in one of its calls."""
    tree = ast.parse(source)
    for at, call in enumerate(node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        def with_change(change):
            other = copy.deepcopy(tree)
            change([node for node in ast.walk(other) if isinstance(node, ast.Call)][at])
            return ast.unparse(other)

        wrong = [ast.parse(text, mode="eval").body for text in WRONG]
        for i, argument in enumerate(call.args):
            if is_literal(argument):
                yield from (with_change(lambda call: call.args.__setitem__(i, value)) for value in wrong)
        for i, keyword in enumerate(call.keywords):
            if is_literal(keyword.value):
                yield from (with_change(lambda call: setattr(call.keywords[i], "value", value)) for value in wrong)
        if ast.unparse(call.func) not in ("len", "abs"):
            yield with_change(lambda call: call.keywords.append(ast.keyword("wrong", ast.Constant(1))))
            yield with_change(lambda call: call.args.append(ast.Constant(1)))
            if call.args:
                yield with_change(lambda call: call.args.pop())


def program(source):
    names = {"torch": torch, "np": np, "F": F}
    writes = "y" in {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    statement = source if writes else f"z = {source}"
    exec(f"def f(x):\n  y = x * 2\n  z = None\n  {statement}\n  return y, z", names)
    return names["f"]


def differences(sources, x):
    found, count = [], 0
    for source in sources:
        for one in dict.fromkeys(changed(source)):
            if one in OTHER_FAULTS:
                continue
            function = program(one)
            torch.manual_seed(0)
            eager = Outcome(function, [copy.deepcopy(x)], {})
            torch.manual_seed(0)
            ours = Outcome(framejit.compile(function, backend="eager"), [copy.deepcopy(x)], {})
            if eager.error is None and callable(eager.result[1]):
                continue  # a method of what is made
            if eager.warnings:
                continue  # what is only warned of, or computed with a warning, is taken
            count += 1
            try:
                compare(ours, eager)
            except AssertionError as error:
                found.append(f"{one}: {str(error)[:400]}")
    return found, count


CASES = [(library, group) for library in ("torch", "numpy") for group in calls_of(library)]


@pytest.mark.parametrize("library, group", CASES, ids=[f"{library}_{group.lower()}" for library, group in CASES])
def test_wrong_arguments(library, group):
    framejit.reset()
    x = np.linspace(-2, 3, 120 if library == "torch" else 24)
    x = torch.from_numpy(x).float().reshape(2, 4, 3, 5) if library == "torch" else x.reshape(2, 3, 4)
    found, count = differences(calls_of(library)[group], x)
    assert not found, f"{len(found)} of {count}:\n" + "\n".join(found)
