"""Values of many parts: long concatenations and chains of updates of slices, which are copies in compiled programs."""

import numpy as np
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")

COUNTS = [8, 9, 40]


def check(fn, *arrays):
    """The compiled function gives what the function itself gives, and leaves its arguments as the function does."""
    copy = lambda a: a.clone() if isinstance(a, torch.Tensor) else a.copy()
    compiled = framejit.compile(fn, fullgraph=True)
    for _ in range(2):
        expected_arguments, given = [copy(a) for a in arrays], [copy(a) for a in arrays]
        expected, found = fn(*expected_arguments), compiled(*given)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if isinstance(expected, torch.Tensor):
            assert found.stride() == expected.stride()
        else:
            assert found.strides == expected.strides
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
        for a, b in zip(given, expected_arguments):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_rows_that_are_stacked(count, dim, dtype):
    x = (torch.randn(3, count, 5) * 3).to(dtype)
    check(lambda x: torch.stack([x[:, i] for i in range(count)], dim), x)
    check(lambda x: torch.stack([x[:, i] == x[:, 0] for i in range(count)], dim), x)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_different_sizes(count, dim):
    x = torch.randn(60, 60)
    check(lambda x: torch.cat([x[:i, :7] if dim == 0 else x[:7, :i] for i in range(count)], dim), x)
    check(lambda x: torch.cat([(x[:i, :7] if dim == 0 else x[:7, :i]).abs() / 3 for i in range(count)], dim), x)


@pytest.mark.parametrize(
    "view",
    [
        lambda x, i: x[i : i + 4, 1:5],
        lambda x, i: x.t()[i : i + 4, 1:5],
        lambda x, i: x[i].reshape(4, 5)[:, ::2],
        lambda x, i: x[i : i + 1, :4].expand(4, 4),
        lambda x, i: x[i].flip(0)[:12].reshape(3, 4),
        lambda x, i: x[i, :6].reshape(2, 3).transpose(0, 1),
        lambda x, i: (x * 2)[i : i + 4, 1:5],
        lambda x, i: (x[:, i] * x[i])[::3],
    ],
)
def test_parts_that_are_views(view):
    check(lambda x: torch.cat([view(x, i) for i in range(12)]), torch.randn(20, 20))
    check(lambda x: torch.cat([view(x, i) for i in range(12)], -1) + 1, torch.randn(20, 20))


def test_parts_that_repeat_and_that_are_read_elsewhere():
    def repeated(x):
        y = x * 2
        z = torch.cat([y, x] * 6)
        return z * torch.cat([y] * 12) + y.sum()

    check(repeated, torch.arange(300.0).reshape(30, 10))


def test_concatenations_of_concatenations():
    def nested(x):
        rows = [torch.cat([x[i : i + 1, :j] for j in range(12)], 1) for i in range(10)]
        return torch.cat(rows + [torch.cat(rows)]).t()

    check(nested, torch.randn(12, 12))


@pytest.mark.parametrize("count", COUNTS)
def test_columns_that_are_written(count):
    def written(x):
        out = torch.empty_like(x)
        h = torch.zeros(40)
        for t in range(count):
            h = 0.5 * h + x[:, t]
            out[:, t] = h
        return out

    check(written, torch.randn(40, count))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_updates_that_lie_over_each_other(step):
    def written(x):
        out = x + 1
        for i in range(12):
            out[i : i + 9 : step] = x[i] * i
        return out

    check(written, torch.randn(24, 30))


def test_updates_of_what_is_read_as_well():
    def written(x):
        out = x * 3
        before = out.abs() / 3
        for i in range(12):
            out[i, : i + 1] = before[i, : i + 1] - x[i, i]
        return out + before

    check(written, torch.randn(12, 12))


def test_updates_that_read_what_is_updated():
    def written(x):
        out = x * 3
        for i in range(1, 14):
            out[i] = out[i - 1] * 0.5 + out[i]
        return out

    check(written, torch.randn(14, 60))


def test_updates_of_an_argument():
    def few(x, y):
        for i in range(12):
            x[2 * i] = y[i]
        return x * 1

    def most(x, y):
        for i in range(12):
            x[i] = y[11 - i] + x[i]
        return x * 1

    check(few, torch.randn(60, 30), torch.randn(12, 30))
    check(most, torch.randn(12, 30), torch.randn(12, 30))


def test_no_elements():
    check(lambda x: torch.cat([x[i:i, :3] for i in range(12)]), torch.randn(12, 5))
    check(lambda x: torch.cat([x[i : i + (i == 7)] for i in range(12)]), torch.randn(12, 5))
    check(lambda x: torch.cat([x] * 12), torch.randn(0, 5))


def test_sizes_that_change():
    fn = lambda x: torch.cat([x.sin(), *[x[: len(x) // 2 + 1] * i for i in range(12)]])
    compiled = framejit.compile(fn, dynamic=True)
    for size in (3, 8, 50, 51):
        x = torch.randn(size, 2)
        torch.testing.assert_close(compiled(x), fn(x))


def test_large_parts_on_several_threads():
    x = torch.randn(16, 300, 401)
    check(lambda x: torch.cat([x[i, :, : 400 - i] for i in range(16)], 1), x)


def test_derivatives():
    def loss(x, w):
        h, out = x[:, 0], torch.zeros(40, 12)
        states = []
        for t in range(12):
            h = torch.tanh(x[:, t] + h * w)
            states.append(h)
            out[:, t] = h * t
        return (torch.stack(states, 1) * out).sum()

    torch.manual_seed(0)
    x, w = torch.randn(40, 12, requires_grad=True), torch.randn(40, requires_grad=True)
    expected = torch.autograd.grad(loss(x, w), (x, w))
    found = torch.autograd.grad(framejit.compile(loss)(x, w), (x, w))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)  # twelve steps by factors of up to three
