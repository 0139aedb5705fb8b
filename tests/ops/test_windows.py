"""Windows: `Tensor.unfold` and NumPy's `sliding_window_view` are an operation of the graph where they are read, and the library's view where they are seen."""
import numpy as np
import pytest

import framejit
from harness import same_as_eager

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
windows_of = np.lib.stride_tricks.sliding_window_view


STATISTICS = {
    "mean": lambda w: w.mean(-1),
    "sum": lambda w: w.sum(-1),
    "max": lambda w: w.max(-1) if isinstance(w, np.ndarray) else w.amax(-1),
    "min": lambda w: w.min(-1) if isinstance(w, np.ndarray) else w.amin(-1),
    "var": lambda w: w.var(-1, ddof=1) if isinstance(w, np.ndarray) else w.var(-1),
    "centred": lambda w: (w - w.mean(-1)[..., None]).sum(-2),
}


@needs_torch
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("shape, dim, size, step", [
    ((40,), 0, 8, 1), ((40,), -1, 8, 4), ((41,), 0, 3, 5), ((8,), 0, 8, 1), ((5, 33), 1, 3, 1), ((5, 33), -2, 2, 2), ((33, 5), 0, 8, 3),
    ((1030,), 0, 64, 1), ((300, 6), 0, 64, 4), ((3, 20, 4), 1, 5, 2), ((1,), 0, 1, 1),
])
def test_statistics_of_unfold(statistic, shape, dim, size, step):
    if statistic == "var" and size == 1:
        pytest.skip("eager warns")
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    same_as_eager(lambda x: STATISTICS[statistic](x.unfold(dim, size, step)), x, breaks=())
    same_as_eager(lambda x: STATISTICS[statistic]((x * 2).exp().unfold(dim, size, step)), x, breaks=())


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("shape, size, axis", [
    ((40,), 8, None), ((40,), 3, -1), ((8,), (8,), 0), ((5, 33), 3, 1), ((33, 5), 8, 0), ((6, 7), (2, 3), None), ((6, 7), (3, 2), (1, 0)), ((12,), (3, 2), (0, 0)),
    ((1030,), 64, 0), ((1,), 1, 0),
])
def test_statistics_of_sliding_windows(statistic, shape, size, axis):
    if statistic == "var" and size == 1:
        pytest.skip("NumPy warns")
    x = np.random.default_rng(1).standard_normal(shape)
    same_as_eager(lambda x: STATISTICS[statistic](windows_of(x, size, axis)), x, breaks=())


@needs_torch
def test_one_function_of_several_sizes():
    def f(x):
        return x.unfold(0, 4, 3).sum(-1), x.unfold(0, 4, 1).amax(-1)

    compiled = framejit.compile(f, dynamic=True)
    for size in (9, 10, 11, 4, 100, 5, 1003):
        x = torch.arange(float(size)) * 0.5
        for got, wanted in zip(compiled(x), f(x)):
            assert torch.equal(got, wanted)


def test_one_function_of_several_sizes_of_numpy():
    def f(x):
        return windows_of(x, 4).sum(-1), windows_of(x, 5, axis=0).max(1) * 2

    compiled = framejit.compile(f, dynamic=True)
    for size in (9, 10, 11, 5, 100, 6, 1003):
        x = np.arange(float(size)) * 0.5
        for got, wanted in zip(compiled(x), f(x)):
            assert np.array_equal(got, wanted) and got.dtype == wanted.dtype


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "uint8", "bool", "complex64"])
def test_elements_of_each_dtype(dtype):
    x = (torch.arange(24).reshape(2, 12) % 5).to(getattr(torch, dtype))
    same_as_eager(lambda x: (x.unfold(1, 5, 3) + x[:, :1, None], x.unfold(0, 2, 1)[..., ::2] == 1), x, breaks=())


@needs_torch
def test_windows_without_elements():
    x = torch.arange(6.0)
    same_as_eager(lambda x: (x.unfold(0, 0, 1).sum(-1), x.unfold(0, 0, 2) + 1), x)
    same_as_eager(lambda x: (x.unfold(1, 3, 1).sum(-1), x.unfold(1, 3, 1) * 2), torch.ones(0, 5))
    same_as_eager(lambda x: x.unfold(0, 0, 1) + 1, torch.ones(0))


@needs_torch
@pytest.mark.parametrize("call", ["x.unfold(0, 7, 1)", "x.unfold(0, 3, 0)", "x.unfold(2, 1, 1)", "x.unfold(0, -1, 1)", "x.sum().unfold(0, 2, 1)", "x.unfold(0, 3)"])
def test_what_eager_refuses(call):
    f = eval(f"lambda x: {call}")
    with pytest.raises((RuntimeError, IndexError, TypeError)) as eager:
        f(torch.ones(6))
    for _ in range(2):
        with pytest.raises(eager.type) as ours:
            framejit.compile(f)(torch.ones(6))
        assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("call", ["windows_of(x, 7)", "windows_of(x, -1)", "windows_of(x, (2, 2))", "windows_of(x, 2, 1)", "windows_of(x, (2, 2), 0)"])
def test_what_numpy_refuses(call):
    f = eval(f"lambda x: {call}", {"windows_of": windows_of})
    with pytest.raises(ValueError) as eager:
        f(np.ones(6))
    for _ in range(2):
        with pytest.raises(eager.type) as ours:
            framejit.compile(f)(np.ones(6))
        assert str(ours.value) == str(eager.value)


@needs_torch
def test_a_view_that_is_returned_is_the_library_s():
    def f(x):
        w = x.unfold(0, 3, 2)
        return w, w.sum(-1), w[1], w.transpose(0, 1)

    x = torch.arange(9.0)
    compiled = framejit.compile(f)
    for _ in range(2):
        w, total, second, turned = compiled(x)
        expected = f(x)
        for got, wanted in zip((w, total, second, turned), expected):
            assert torch.equal(got, wanted) and got.stride() == wanted.stride() and got.storage_offset() == wanted.storage_offset()
        assert w.data_ptr() == x.data_ptr() and w._base is x and second._base is x
        w[0, 2] = 50.0
        assert x[2] == 50.0 and turned[2, 0] == 50.0
        x[2] = 2.0


@needs_torch
def test_writes_through_windows():
    def apart(x):
        w = x.unfold(0, 2, 3)
        w.mul_(2)
        return w.sum(-1)

    def of_base(x):
        w = x.unfold(0, 3, 1)
        x.add_(1)
        return w.sum(-1)

    def overlapping(x):
        x.unfold(0, 3, 1).fill_(1)
        return x

    for f in (apart, of_base):
        same_as_eager(f, torch.arange(8.0))
    same_as_eager(overlapping, torch.arange(8.0), compiles=False)


def test_numpy_s_view_that_is_returned():
    def f(x):
        w = windows_of(x, 3)
        return w, w.sum(-1), w[0]

    x = np.arange(9.0)
    compiled = framejit.compile(f)
    for _ in range(2):
        for got, wanted in zip(compiled(x), f(x)):
            assert np.array_equal(got, wanted) and got.strides == wanted.strides and got.flags.writeable == wanted.flags.writeable
            assert type(got.base) is type(wanted.base) and np.shares_memory(got, x) == np.shares_memory(wanted, x)

    def writes(x):
        w = windows_of(x, 3)
        x[1] = 10.0
        return w.sum(-1)

    same_as_eager(writes, np.arange(9.0))

    def refused(x):
        windows_of(x, 3)[0] = 1.0

    with pytest.raises(ValueError, match="read-only"):
        framejit.compile(refused)(np.arange(9.0))

    def written(x):
        w = windows_of(x, 3, writeable=True)
        w[0] = 5.0
        return x + 0

    same_as_eager(written, np.arange(9.0))


@needs_torch
@pytest.mark.parametrize("shape, dim, size, step", [
    ((20,), 0, 8, 1), ((20,), 0, 3, 3), ((21,), 0, 2, 5), ((19,), 0, 5, 2), ((4, 9), 0, 2, 1), ((3, 17, 2), 1, 4, 3), ((90,), 0, 40, 1), ((150,), 0, 80, 2), ((8,), 0, 8, 1), ((6,), 0, 0, 1), ((0, 5), 1, 3, 1),
])
def test_derivatives_of_windows(shape, dim, size, step):
    def f(x):
        w = x.unfold(dim, size, step)
        return (w * w.cos()).sum(-1).sin()

    def results(function):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
        y = function(x)
        first, = torch.autograd.grad(y.sum(), x, create_graph=True)
        second, = torch.autograd.grad((first * first).sum(), x)
        return y.detach(), first.detach(), second

    for got, wanted in zip(results(framejit.compile(f)), results(f)):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@needs_torch
def test_a_derivative_through_windows_that_are_returned():
    def f(x):
        w = x.unfold(0, 3, 1)
        return w, w.sum(-1)

    grads = []
    for function in (f, framejit.compile(f)):
        x = torch.arange(7.0).requires_grad_()
        w, total = function(x)
        grads.append((type(w.grad_fn).__name__, torch.autograd.grad((w * w).sum() + total.sin().sum(), x)[0]))
    assert grads[0][0] == grads[1][0]
    torch.testing.assert_close(grads[0][1], grads[1][1])


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_overlapping_windows_are_added_in_torch_s_order(dtype):
    def f(x):
        return x.unfold(0, 7, 2) * 1

    weights = torch.randn(7, 7, generator=torch.Generator().manual_seed(3)).to(getattr(torch, dtype))
    grads = []
    for function in (f, framejit.compile(f)):
        x = torch.ones(20, dtype=weights.dtype).requires_grad_()
        function(x).backward(weights)
        grads.append(x.grad)
    assert torch.equal(*grads)
