"""A fixed part of the programs of `./run fuzz --kind ways`: one program, every way that it can run, one answer."""
import collections

import pytest

import ways
from case import Difference
from harness import both_libraries

pytest.importorskip("safetensors", reason="safetensors is not installed")

FIRST, PROGRAMS, BLOCK = 40, 40, 20  # of each library; one program in five has neither branches nor calls that a graph of the library's lacks


@both_libraries
@pytest.mark.parametrize("block", range(PROGRAMS // BLOCK))
def test_each_way_gives_what_eager_gives(lib, block):
    answered, branches = collections.Counter(), 0
    for seed in range(FIRST + block * BLOCK, FIRST + (block + 1) * BLOCK):
        try:
            program = ways.program(seed, lib.name)
            ran = ways.check(program)
            answered.update(ran)
            branches += " if " in program.source and "capture" in ran
        except Difference as difference:
            raise AssertionError(f"program {seed}: `./run fuzz --kind ways --lib {lib.name} --seed {seed} --programs 1`: {difference}") from None
    assert branches >= BLOCK // 8  # are in the graphs of programs that have some
    names = {name for name, *_ in ways._ways(None, None, None)}
    assert set(answered) == (names if lib.name == "torch" else names - {"fx"})
    assert answered["compile"] >= BLOCK // 2 and min(answered.values()) >= BLOCK // 8, answered
