"""argmax and argmin where it is hard: NaN, infinities, ties, the lowest integer, rows shorter than a vector."""
import numpy as np
import pytest

import framejit


@pytest.mark.parametrize("shape", [(5, 1), (3, 7), (4, 64), (6, 131), (2, 1000), (70, 33)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_])
def test_argmax_is_the_first_of_the_best(dtype, shape):
    def f(x):
        return x.argmax(1), x.argmin(1), x.argmax(0), x.argmin()

    compiled = framejit.compile(f)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    cases = [(x * 3).astype(dtype), rng.integers(0, 2, shape).astype(dtype)]
    if np.dtype(dtype).kind == "f":
        cases += [np.where(rng.random(shape) < 0.05, np.nan, x), np.full(shape, -np.inf), np.full(shape, np.inf), np.full(shape, np.nan)]
        cases.append(np.where(np.arange(shape[1]) == shape[1] - 1, -np.inf, np.inf) * np.ones(shape))
    elif dtype is not np.bool_:
        cases += [np.full(shape, np.iinfo(dtype).min), np.full(shape, np.iinfo(dtype).max)]
    for case in cases:
        case = case.astype(dtype)
        for found, expected in zip(compiled(case), f(case)):
            assert np.array_equal(found, expected) and np.asarray(found).dtype == np.asarray(expected).dtype
    assert framejit.cache_info()["kernels_launched"] > 0
