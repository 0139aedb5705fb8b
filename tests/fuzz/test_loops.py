"""A fixed part of the random programs of loops over scalars and elements (`./run fuzz --kind loops`), and proof that errors are found."""

import ast

import numpy as np
import pytest

import array_loops
import list_loops
import loops
import tensor_loops
import thread_loops
from case import Case, Difference, namespace_of
from fuzz import options_of
from harness import needs_torch

BLOCK = 25
BLOCKS = [pytest.param("numpy", first, id=f"numpy-{first}") for first in range(0, 200, BLOCK)]
BLOCKS += [pytest.param("torch", first, id=f"torch-{first}", marks=needs_torch) for first in range(0, 40, 20)]


@pytest.mark.parametrize("lib, first", BLOCKS)
def test_loops_do_what_cpython_does(lib, first):
    for seed in range(first, first + (BLOCK if lib == "numpy" else 20)):
        try:
            loops.check(loops.program(seed, lib), **options_of("loops", seed))
        except Difference as difference:
            raise AssertionError(
                f"program {seed}: `./run fuzz --kind loops --lib {lib} --seed {seed} --programs 1` makes it small: {difference}"
            ) from None


PARTS = [pytest.param(kind, programs, first, marks=[needs_torch] * (kind == "tensor-loops"), id=f"{kind}-{first}")
         for kind, programs, count in (("array-loops", array_loops, 200), ("list-loops", list_loops, 200), ("thread-loops", thread_loops, 100), ("tensor-loops", tensor_loops, 200))
         for first in range(0, count, BLOCK)]


@pytest.mark.parametrize("kind, programs, first", PARTS)
def test_loops_over_parts_of_arrays_and_lists_do_what_cpython_does(kind, programs, first):
    lib = "torch" if kind == "tensor-loops" else "numpy"
    for seed in range(first, first + BLOCK):
        try:
            loops.check(programs.program(seed, lib), **options_of(kind, seed))
        except Difference as difference:
            raise AssertionError(
                f"program {seed}: `./run fuzz --kind {kind} --lib {lib} --seed {seed} --programs 1` makes it small: {difference}"
            ) from None


@pytest.mark.parametrize("lib", ["numpy", pytest.param("torch", marks=needs_torch)])
def test_programs_end_and_most_calls_return(lib):
    errors = [error for seed in range(60) for error in loops.check(loops.program(seed, lib), compiler=lambda function, **options: function)]
    assert 0.4 < errors.count(None) / len(errors) < 0.9
    assert len(set(errors)) >= 5


def test_programs_depend_on_the_seed_alone():
    assert array_loops.program(11, "numpy") == array_loops.program(11, "numpy")
    assert list_loops.program(11, "numpy") == list_loops.program(11, "numpy")
    assert tensor_loops.program(11, "torch") == tensor_loops.program(11, "torch")
    assert thread_loops.program(11, "numpy") == thread_loops.program(11, "numpy")
    assert loops.program(11, "numpy") == loops.program(11, "numpy")
    assert loops.program(11, "numpy") != loops.program(12, "numpy")


class Planted(ast.NodeTransformer):
    """One operator in place of another, in each program."""

    def __init__(self, kind, other):
        self.kind, self.other = kind, other

    def generic_visit(self, node):
        node = super().generic_visit(node)
        return self.other() if isinstance(node, self.kind) else node


@pytest.mark.parametrize("kind, other, least", [(ast.Lt, ast.LtE, 2), (ast.FloorDiv, ast.Div, 5), (ast.Gt, ast.GtE, 1), (ast.Mult, ast.Add, 5)])
def test_a_planted_difference_is_found(kind, other, least):
    found = 0
    for seed in range(60):
        case = loops.program(seed, "numpy")
        wrong = case._replace(source=ast.unparse(ast.fix_missing_locations(Planted(kind, other).visit(ast.parse(case.source)))))
        lines = [node.lineno for node in ast.walk(ast.parse(wrong.source)) if isinstance(node, ast.Return)]
        assert lines
        try:
            loops.check(
                case._replace(source=ast.unparse(ast.parse(case.source))), compiler=lambda function, **options: namespace_of(wrong, "<program>")["f"]
            )
        except Difference as difference:
            found += difference.kind in ("result", "arguments", "stdout")
    assert found >= least


@pytest.mark.parametrize(
    "ours, expected, kind",
    [
        ("return 1", "return np.int64(1)", "result"),
        ("return True", "return np.bool_(True)", "result"),
        ("return 0.0", "return -0.0", "result"),
        ("return np.float32(0.1)", "return np.float64(np.float32(0.1))", "result"),
        ("return 0.1 + 0.2", "return 0.3", "result"),
        ("x[0] = 5", "x[0] = 6", "arguments"),
        ("print(1)", "print(2)", "stdout"),
        ("np.int8(127) + np.int8(1)", "pass", "warnings"),
        ("pass; x[9]", "pass\n    x[9]", "error traceback"),
        ("y = 1; x[9]", "y = 2; x[9]", "local y of f"),
        ("y = 1; x[9]", "y = 1; del y; x[9]", "locals"),
    ],
    ids=str,
)
def test_the_comparison_sees(ours, expected, kind):
    text = "import numpy as np\ndef f(x):\n    {}\n"
    call = ["ARGS = [elements('numpy', (4,))]"]
    same = namespace_of(Case("numpy", text.format(expected), []), "<program>")["f"]
    loops.check(Case("numpy", text.format(expected), call), compiler=lambda function, **options: same)
    other = namespace_of(Case("numpy", text.format(ours), []), "<program>")["f"]
    with pytest.raises(Difference) as raised:
        loops.check(Case("numpy", text.format(expected), call), compiler=lambda function, **options: other)
    assert raised.value.kind == kind


def test_a_name_that_is_gone_counts_where_asked_for():
    text = "def f(x):\n    y = 1\n    {}x[9]\n"
    ours = namespace_of(Case("numpy", text.format("del y; "), []), "<program>")["f"]
    case = Case("numpy", text.format(""), ["ARGS = [elements('numpy', (4,))]"])
    loops.check(case, compiler=lambda function, **options: ours)
    with pytest.raises(Difference, match="locals of f"):
        loops.check(case, compiler=lambda function, **options: ours, all_locals=True)


def test_all_nans_are_one_and_zeros_are_two():
    elements = [loops.Elements(np.array([value]), "float64") for value in (np.nan, -np.nan, 0.0, -0.0)]
    assert [[loops.same_bits(x, y) for y in elements] for x in elements] == [[True, True, False, False]] * 2 + [
        [False, False, True, False],
        [False, False, False, True],
    ]
