"""A fixed part of the programs of `./run fuzz --kind ways`: one program, every way that it can run, one answer."""
import collections

import pytest

import ways
from case import Difference
from harness import both_libraries

pytest.importorskip("safetensors", reason="safetensors is not installed")

PROGRAMS, BLOCK = 40, 20  # of each library


@both_libraries
@pytest.mark.parametrize("block", range(PROGRAMS // BLOCK))
def test_each_way_gives_what_eager_gives(lib, block):
    answered = collections.Counter()
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            answered.update(ways.check(ways.program(seed, lib.name)))
        except Difference as difference:
            raise AssertionError(f"program {seed}: `./run fuzz --kind ways --lib {lib.name} --seed {seed} --programs 1`: {difference}") from None
    assert set(answered) == {name for name, *_ in ways._ways(None, None, None)}
    assert answered["compile"] >= BLOCK // 2 and min(answered.values()) >= BLOCK // 8, answered
