"""Every program of benchmarks/programs/ at its tiny size, compiled: results and arguments are CPython's, in the first calls and later ones."""
import pathlib
import sys

import pytest

import framejit

sys.path.append(str(pathlib.Path(__file__).parent.parent.parent / "benchmarks"))
from programs import PROGRAMS  # noqa: E402
from programs.registry import copies, difference  # noqa: E402


def test_there_are_at_least_forty_programs_of_two_kinds():
    assert len(PROGRAMS) >= 40 and {program.kind for program in PROGRAMS.values()} == {"elements", "arrays", "objects"}


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
