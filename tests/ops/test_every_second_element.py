"""Kernels that read or write every second element along the lanes: in whole vectors, and nothing behind the last element is touched."""
import ctypes
import mmap

import numpy as np
import pytest

import framejit


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("rows, columns", [(1, 64), (3, 128), (5, 256), (7, 34), (4, 33), (2, 1031)])
def test_every_second_element(dtype, rows, columns):
    def f(x):
        corner = x[::2, ::2]
        return x[:, ::2].copy(), np.maximum(x[:, 1::2], x[:, :columns // 2 * 2:2]), corner ^ corner if x.dtype == bool else corner + corner

    x = (np.random.default_rng(columns).integers(0, 100, (rows, columns))).astype(dtype)
    for compiled in (framejit.compile(f), framejit.compile(f, dynamic=True)):
        for _ in range(2):
            for got, wanted in zip(compiled(x), f(x)):
                assert got.dtype == wanted.dtype and np.array_equal(got, wanted)


@pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="this system has no anonymous mappings")
def test_nothing_is_read_behind_the_last_element():
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(address + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
    try:
        for start in (0, 1):
            # Its last element is the last of the page that may be read; with start 1 it is the last that is wanted.
            whole = np.frombuffer(pages, np.float32, mmap.PAGESIZE // 4 - 1 + start, 4 * (1 - start))
            whole[:] = np.arange(whole.size)
            found = framejit.compile(lambda x: x[start::2] * 2)(whole)
            assert np.array_equal(found, np.arange(whole.size, dtype=np.float32)[start::2] * 2)
    finally:
        assert protect(address + mmap.PAGESIZE, mmap.PAGESIZE, 3) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "float16"])
@pytest.mark.parametrize("rows, columns", [(1, 64), (3, 8), (2, 31), (5, 130)])
def test_every_second_element_is_written(dtype, rows, columns):
    def f(x, y):
        out = np.stack([x + y, x * y], -1)
        kept = np.zeros((rows, 2 * columns), x.dtype)
        kept[:, 1::2] = x - y
        return out, kept, np.stack([out[..., 1], x, y], 1)

    x, y = (np.random.default_rng(seed).integers(0, 9, (rows, columns)).astype(dtype) for seed in (1, 2))
    compiled = framejit.compile(f)
    for _ in range(2):
        for got, wanted in zip(compiled(x, y), f(x, y)):
            assert got.dtype == wanted.dtype and np.array_equal(got, wanted)


@pytest.mark.parametrize("size", [6, 16, 32, 66])
def test_the_derivative_of_pooling(size):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def f(x):
        return (torch.nn.functional.max_pool2d(torch.relu(x), 2) * 3).sum() + torch.nn.functional.max_pool2d(x, 2, ceil_mode=False)[..., :1].sum()

    def gradient(function):
        x = torch.randn(3, 4, size, size, generator=torch.Generator().manual_seed(size)).requires_grad_()
        function(x).backward()
        return x.grad

    torch.testing.assert_close(gradient(framejit.compile(f)), gradient(f), rtol=0, atol=0)


def test_pooling_is_eager_s_to_the_bit():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def f(x):
        return torch.nn.functional.max_pool2d(torch.relu(x), 2), torch.nn.functional.avg_pool2d(x, 2) * 1

    x = torch.randn(3, 4, 64, 64, generator=torch.Generator().manual_seed(0))
    x[0, 0, 5, 7] = float("nan")
    for got, wanted in zip(framejit.compile(f)(x), f(x)):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert torch.equal(framejit.compile(f)(x)[0].nan_to_num(7), f(x)[0].nan_to_num(7))
