"""Every program of benchmarks/programs/ at its tiny size, compiled: results and arguments are CPython's, in the first calls and later ones."""
import pathlib
import sys

import pytest

import framejit

sys.path.append(str(pathlib.Path(__file__).parent.parent.parent / "benchmarks"))
from programs import PROGRAMS  # noqa: E402
from programs.registry import copies, difference  # noqa: E402


def test_there_are_programs_of_all_kinds():
    kinds = [program.kind for program in PROGRAMS.values()]
    assert len(kinds) >= 120 and all(kinds.count(kind) >= 9 for kind in ("elements", "arrays", "objects", "lists", "scalars"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_the_same_compiled(name):
    program = PROGRAMS[name]
    given = program.arguments("tiny")
    expected_arguments = copies(given)
    expected = program.function(*expected_arguments)
    compiled = framejit.compile(program.function)
    for _ in range(3):
        arguments = copies(given)
        assert difference(compiled(*arguments), expected, program.bound) == ""
        assert difference(arguments, expected_arguments, program.bound) == ""
