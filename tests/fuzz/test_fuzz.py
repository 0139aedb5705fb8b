"""A fixed part of the random programs of `./run fuzz`."""
import pytest

import fuzz
from harness import both_libraries, same_as_eager


@both_libraries
@pytest.mark.parametrize("generator", fuzz.GENERATORS)
@pytest.mark.parametrize("block", range(8))
def test_random_programs_do_what_eager_does(lib, block, generator):
    for seed in range(block * 10, block * 10 + 10):
        fuzz.check(seed, lib.name, generator)


@both_libraries
def test_a_copy_taken_before_a_write_keeps_the_old_elements(lib):
    # Found by `fuzz --seed 196`: the kernel that writes z also makes v, and loaded z again after storing it.
    def f(y, z):
        v = lib.maximum(z, z)
        p = z * y
        p[4] = 1
        z[4] = 1
        v[1:] -= 2
        v[1:] *= 3
        return v, p, 2 + y

    same_as_eager(f, lib.sample((16, 33), dtype="float16"), lib.sample((33,), dtype="int32"))
