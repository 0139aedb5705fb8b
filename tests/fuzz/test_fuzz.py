"""A fixed part of the random programs of `./run fuzz`."""
import pytest

import fuzz
from harness import both_libraries


@both_libraries
@pytest.mark.parametrize("generator", fuzz.GENERATORS)
@pytest.mark.parametrize("block", range(8))
def test_random_programs_do_what_eager_does(lib, block, generator):
    for seed in range(block * 10, block * 10 + 10):
        fuzz.check(seed, lib.name, generator)
