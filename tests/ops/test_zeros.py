"""Large arrays of zeros are NumPy's own: memory that nobody has touched yet."""
import subprocess
import sys

import numpy as np
import pytest

import framejit

MEASURED = """
import resource
import numpy as np
import framejit


def f(n):
    return np.zeros(n, np.int8), n + 1


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


c = framejit.compile(f)
kept = [c(100), c(1000)]
before = peak()
kept += [c(2**28) for _ in range(3)]
print(peak() - before, all(x.sum() == 0 for x, _ in kept))
"""


def test_the_system_gives_the_memory_when_it_is_written():
    run = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    kibibytes, zeros = run.stdout.split()
    assert int(kibibytes) < 2**17 and zeros == "True", run.stdout


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, np.complex128])
@pytest.mark.parametrize("shape", [(2**22,), (2, 2**21), (2**20, 5)])
def test_values(dtype, shape):
    c = framejit.compile(lambda shape: (np.zeros(shape, dtype), np.zeros(shape, dtype)))
    for _ in range(3):
        a, b = c(shape)
        assert a.dtype == dtype and a.shape == shape and not a.any() and a.flags.owndata and a.flags.writeable
        a += np.ones(shape, dtype)
        assert not b.any()


def test_zeros_that_are_read_written_and_computed():
    def f(x):
        zeros, minus = np.zeros(x.shape), np.full(x.shape, -0.0)
        total = zeros + x
        column = np.zeros(x.shape, order="F")
        column[0] = 1
        return zeros, minus, total, column, np.zeros_like(x), zeros.sum()

    x = np.ones((2**10, 2**10))
    c = framejit.compile(f)
    for _ in range(3):
        for found, expected in zip(c(x), f(x)):
            assert np.array_equal(found, expected) and np.array_equal(np.signbit(found), np.signbit(expected))
            assert np.shape(found) == np.shape(expected)
