"""Operations on arrays and their parts inside of loops that run as regions: values, memory, warnings and errors are NumPy's."""
import _thread
import gc
import threading
import weakref

import numpy as np
import pytest

import framejit
from test_regions import check, compile, same


def draws(*shape, seed=0, dtype=np.float64):
    return (np.random.default_rng(seed).integers(-40, 40, shape) / 4).astype(dtype)


def test_parts_are_read_and_written():
    def f(u, n):
        for k in range(n):
            u[1:-1, 1:-1] += 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
            u[k % 3] = u[:, 0][: u.shape[1]]
            u[:, -1] -= u[:, k % 4]
            u[::2, ::-1] = u[1::2] * 0.5
        return u

    check(f, (draws(6, 6), 30), (draws(6, 6).astype(np.float32), 30), (np.asfortranarray(draws(6, 6)), 30), (draws(12, 12)[::2, ::2], 30))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "uint32", "float32", "float64"])
def test_types_are_promoted_as_numpys(dtype):
    def f(a, b, n):
        for k in range(n):
            c = a + b
            d = a * 2 + (b > k)
            e = np.maximum(a, b) - 0.5
            a[1:] = b[:-1]
        return c, d, e, c.dtype, a

    if dtype != "bool":
        check(f, (draws(9).astype(dtype), draws(9, seed=1).astype("int16"), 20), (draws(9).astype(dtype), draws(9, seed=1).astype("float32"), 20))
    check(f, (draws(9).astype(dtype), draws(9, seed=1).astype(dtype), 20), regions=0)


def test_arrays_that_a_loop_makes():
    def f(x, n):
        a, b = np.zeros(5), np.ones((2, 5))
        kept = []
        for k in range(n):
            a, old = x * k + a, a
            b = b + a
            c = b[1]
            c[0] = -1.0  # which b sees
            if k % 9 == 5:
                kept.append((a, b, c, old))
        return a, b, c, old, kept, c.base is b, a.flags.owndata, b.flags.c_contiguous, [x.base is y for _, y, x, _ in kept]

    check(f, (draws(5), 40))


def test_two_names_of_one_array_stay_two_names():
    def f(x, n):
        a = x.copy()
        for k in range(n):
            b = a
            a = a + 1
            c, d = a, a[1:]
            d += k
        return a is b, a is c, np.shares_memory(a, d), a, b, d

    check(f, (draws(6), 25))


def test_arrays_change_places():
    def f(before, now, n):
        for _ in range(n):
            after = np.zeros_like(now)
            after[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.25 * (now[2:] - 2 * now[1:-1] + now[:-2])
            before, now = now, after
        return before, now

    check(f, (draws(20), draws(20, seed=2), 50))


def test_arrays_that_overlap():
    def f(a, b, n):
        for k in range(n):
            a[1:] = a[:-1]
            a[::-1] += b * 0.5
            b[:] = a[::-1]
            b[2:] -= a[:-2]
        return a

    x = draws(12)
    check(f, (x, draws(12, seed=3), 20), (x, x, 10))
    y = draws(13)
    ours, theirs = y.copy(), y.copy()
    compile(f)(ours[1:], ours[:-1], 20)
    f(theirs[1:], theirs[:-1], 20)
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("to", ["0:8:2", "4:8", "1:8:2", "7:0:-2", "0:1"])
@pytest.mark.parametrize("read", ["0:4", "2:6", "0:8:2", "3::-1", "7::-2", "4:5"])
def test_parts_of_one_array_that_overlap_with_other_strides(to, read):
    names = {}
    exec(f"def f(a, n):\n    for k in range(n):\n        a[{to}] = a[{read}]\n        a[0] += 1\n    return a", names)
    shown = [eval(f"np.arange(8.0)[{part}].size", {"np": np}) for part in (to, read)]
    if shown[1] in (1, shown[0]):
        check(names["f"], (np.arange(8.0), 40), (np.arange(8), 40))


def test_reductions():
    def f(x, m, n):
        out = []
        for k in range(n):
            s = x[k % 3:].sum() + m.max() - x.min() + m[k % 3].mean()
            i = x.argmax() + m[:, 1].argmin()
            rows, columns = m.sum(axis=1), m.sum(axis=0)
            most = m.max(axis=1, keepdims=True)
            least = np.min(m, axis=0)
            where = np.argmax(m, axis=1)
            means = m.mean(axis=0)
            m[0] += columns * 0.25 + least + means
            m[:, :1] -= most * 0.5
            x[:3] += rows * 0.125
            if (x > 1e6).any() or (m < -1e9).all():
                break
        return s, i, rows, columns, most, least, where, means, x, m

    check(f, (draws(7), draws(3, 5), 12))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float32"])
def test_sums_have_numpys_types(dtype):
    def f(x, n):
        for _ in range(n):
            s, t, m = x.sum(), x.sum(axis=0), x.max()
            x[0, 0] = x[1, 1]
        return s, t, m, type(s), t.dtype

    check(f, (draws(4, 6).astype(dtype), 20))


def test_sums_are_numpys_to_the_bit_in_order_of_memory():
    def f(x, n):
        out = np.zeros(n)
        for k in range(n):
            out[k] = x[k:].sum() * 1.5 + (x[k:] * x[k:]).mean()
        return out

    check(f, (np.random.default_rng(0).standard_normal(5000), 30), (np.random.default_rng(0).standard_normal(400)[::2], 30))


def test_products():
    def f(a, x, n):
        for k in range(n):
            y = a @ x
            s = np.dot(y, y[::-1])
            x = y / (1 + np.abs(s)) + a[:, k % 3] * 0.5
            b = a[:, 1:] @ a[1:, :]
            a[0] = b[0] * 0.001
            z = x[: k % 4 + 1] @ a[: k % 4 + 1, 2:]
        return y, s, x, b, a, z

    a, x = np.random.default_rng(1).standard_normal((6, 6)), np.random.default_rng(2).standard_normal(6)
    for kind in (np.float64, np.float32):
        ours, theirs = compile(f)(a.astype(kind), x.astype(kind), 25), f(a.astype(kind), x.astype(kind), 25)
        for mine, other in zip(ours, theirs):
            assert type(mine) is type(other) and mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, rtol=2e-4 if kind == np.float32 else 1e-10)
    assert framejit.cache_info()["regions"] >= 1


def test_functions_of_elements():
    def f(x, n):
        for k in range(n):
            y = np.exp(-x * x) + np.sin(x) * np.tanh(x - 0.5)
            z = np.log(1 + np.abs(y)) + np.sqrt(y * y) + np.floor(x)
            x[1:] = z[:-1] * 0.5
            s = np.cos(x[k % 4]) + np.exp(0.01 * k)
        return y, z, x, s

    x = np.random.default_rng(1).standard_normal(9)
    ours, theirs = compile(f)(x.copy(), 30), f(x.copy(), 30)
    for mine, other in zip(ours, theirs):
        assert type(mine) is type(other)
        np.testing.assert_allclose(mine, other, rtol=1e-12)
    assert framejit.cache_info()["regions"] >= 1


@pytest.mark.parametrize("what", ["divide", "overflow", "invalid", "root", "exp", "log", "sum"])
@pytest.mark.parametrize("mode", ["warn", "raise", "ignore"])
def test_what_numpy_reports(what, mode):
    def divide(x, y, k):
        y[1:] = 1.0 / (x[1:] - k)

    def overflow(x, y, k):
        y[:] = x * 1e308 * (k / 4)

    def invalid(x, y, k):
        y[:] = np.where(x == k, np.inf, 0.0) - np.where(x == k, np.inf, 0.0)

    def root(x, y, k):
        y[2:] += np.sqrt(12.0 - k + x[2:] * 0)

    def exp(x, y, k):
        y[:] = np.exp(x * 0 + 60.0 * k)

    def log(x, y, k):
        y[:] = np.log(x * 0 + 11.0 - k)

    def sum(x, y, k):
        y[0] = (x * 0 + 1e307 * k).sum()

    body = locals()[what]
    text = f"def f(x, y, n):\n    for k in range(n):\n        {_only_line(body)}\n        y[0] = k\n    return y\n"
    namespace = {"np": np}
    exec(text, namespace)
    f = namespace["f"]
    with np.errstate(divide=mode, over=mode, invalid=mode):
        check(f, (np.arange(12.0), np.zeros(12), 20), (np.arange(30.0), np.zeros(30), 3))


def _only_line(function):
    import inspect

    return inspect.getsource(function).splitlines()[1].strip()


def test_errors_are_where_they_happen():
    def f(x, m, n):
        for k in range(n):
            x[1:] += m[k, : len(x) - 1]
            m[:, 0] = x[: len(m)] * 0.5
        return x

    def g(x, m, n):
        for k in range(n):
            x += 1
            x[k:] = m[0, : n - 2 * k]
        return x

    def h(x, m, n):
        for k in range(n):
            y = x * 2
            y[:] = m[0, k:]
        return y

    check(f, (draws(5), draws(9, 5), 20))
    check(g, (draws(9), draws(3, 9), 9))
    check(h, (draws(9), draws(3, 9), 9))


def test_a_readonly_array_is_not_written():
    def f(x, n):
        for k in range(n):
            x[1:] = x[1:]
            x[k % 3:] += 1
        return x

    x = draws(8)
    x.flags.writeable = False
    check(f, (x, 20), regions=0)


def test_elements_by_an_array_of_indices():
    def f(values, columns, starts, x, out):
        for row in range(len(out)):
            start, end = starts[row], starts[row + 1]
            out[row] = (values[start:end] * x[columns[start:end]]).sum()
        return out

    rng = np.random.default_rng(3)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, 30))])
    columns = rng.integers(-12, 12, starts[-1])
    for kind in (np.int64, np.int32):
        check(f, (draws(starts[-1]), columns.astype(kind), starts, draws(12), np.zeros(30)))
    columns[-1] = 12
    check(f, (draws(starts[-1]), columns, starts, draws(12), np.zeros(30)))


def test_shapes_broadcast():
    def f(m, row, n):
        for k in range(n):
            a = m - row
            b = m * row[None, :] + m[:, k % 3][:, None]
            m[1:2] = a[0]
            m[:, 1:2] += b[:, :1] * 0.25
            m += 1.0 if k % 2 else row
        return a, b, m

    check(f, (draws(4, 5), draws(5, seed=1), 20), (draws(1, 5), draws(5, seed=1), 20), (draws(4, 5), draws(1, seed=1), 20), (draws(4, 5), draws(4, seed=1), 20), regions=0)


def step(x, k):
    y = x * 0.5
    return y + k if k % 2 else y.sum() + x


def test_calls_of_functions_with_arrays():
    def f(x, n):
        for k in range(n):
            x = step(x, k)
        return x

    check(f, (draws(6), 30))


def test_branches_on_arrays():
    def f(x, n):
        steps = 0
        change = 1.0
        while change > 1e-3 and steps < n:
            new = x.copy()
            new[1:-1] = 0.5 * (x[2:] + x[:-2])
            change = np.abs(new - x).max()
            x = new
            steps += 1
        else:
            x = x + 1
        return x, steps, change

    check(f, (draws(12), 200), (draws(3), 5))


def test_memory_stays_bounded():
    def f(x, n):
        for _ in range(n):
            y = x * 2
            x = y * 0.5 + x[::-1] * 0.0
        return x

    compiled = compile(f)
    x = np.ones(20_000)
    compiled(x, 50)
    compiled(x, 20_000)  # 3.2 GB if nothing were used again
    import resource

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2_500_000
    assert framejit.cache_info()["regions"] >= 1


def test_arrays_end_when_they_should():
    def f(x, n):
        for _ in range(n):
            x = x + 1
        return x

    seen = []
    compiled = compile(f)
    for _ in range(4):
        x = draws(5)
        weakref.finalize(x, seen.append, 1)
        compiled(x, 20)
        del x
        gc.collect()
    assert len(seen) == 4


def test_a_weak_reference_sees_the_end_in_time():
    def f(make, n):
        x = make()
        out = np.zeros(n)
        for k in range(n):
            out[k] = len(seen)
            x = out * 2
        return out

    seen = []

    def make():
        x = draws(5)
        weakref.finalize(x, seen.append, 1)
        return x

    compiled = compile(f)
    for _ in range(3):
        seen.clear()
        ours = compiled(make, 20)
        seen.clear()
        theirs = f(make, 20)
        assert same(ours, theirs)


def test_a_scalar_keeps_numpys_type():
    def f(x, n):
        best = 0.0
        for k in range(n):
            s = x[k % 3:].max()
            if s > best:
                best = s
        return best, type(best)

    check(f, (np.abs(draws(9)), 20), (-np.abs(draws(9)), 20), (np.abs(draws(9)).astype(np.float32), 20))


def test_large_arrays_are_left_to_kernels():
    def f(x, n):
        for _ in range(n):
            x[1:-1] += 0.25 * (x[2:] - x[:-2])
        return x

    framejit.reset()
    compiled = compile(f)
    x = np.random.default_rng(0).standard_normal(300_000)
    assert same(compiled(x.copy(), 12), f(x.copy(), 12))
    assert framejit.cache_info()["regions"] == 0




def test_sizes_that_no_memory_has():
    def f(x, n, size):
        for k in range(n):
            m = 4 if k < n - 1 else size
            y = np.zeros(m)
            y[m - 1] = 1.0
            x[0] += 1
        return m

    compiled = compile(f)
    for _ in range(3):
        compiled(np.ones(3), 20, 5)
    for size in (2**61, 2**62, -1, 2**45):  # eight times the first is 0 in 64 bits
        with pytest.raises((ValueError, MemoryError)):
            compiled(np.ones(3), 20, size)


def test_elements_that_an_array_names_are_written():
    def f(x, i, n):
        for k in range(n):
            x[i] = k
            x[i] += 0.5
        return x

    check(f, (np.zeros(3), np.array([0, 2]), 20), regions=0)


def test_what_is_no_new_array_here_is_one():
    def f(x, y, n):
        for k in range(n):
            a = np.abs(x)
            a += 1
            b = y.T
            y[0] = k
        return x, a, b is y, b.base is y

    check(f, (np.ones(3, np.uint8), np.ones(4), 20))


@pytest.mark.parametrize("scalar", [np.float32(2), np.int8(2), np.uint8(200), np.float64(1)])
def test_a_choice_of_a_pythons_number_and_numpys(scalar):
    def f(c, s, x, n):
        for k in range(n):
            a, b, d = np.where(c, 1, s), np.where(c, s, 2.5), np.where(c, 2, x[0])
            x[0] = k
        return a, b, d

    check(f, (np.arange(4) % 2 == 0, scalar, np.ones(3, np.float32), 20))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [3, 9])
def test_zeros_have_numpys_sign(dtype, size):
    def f(x, y, m, n):
        for k in range(n):
            a, b = np.maximum(x, y), np.minimum(x, y)
            s, t, rows, columns = y.sum(), y.mean(), m.sum(axis=1), m.sum(axis=0)
            x[0] = 0.0
        return a, b, s, t, rows, columns

    check(f, (np.zeros(size, dtype), -np.zeros(size, dtype), -np.zeros((size, size), dtype), 20))


def test_bools_whose_bytes_are_any():
    def f(b, x, n):
        for k in range(n):
            s, i, m, any = b.sum(), b.argmax(), b.max(), b.any()
            x[0] = k
        return s, i, m, any

    check(f, (np.array([1, 2, 0, 255], np.uint8).view(bool), np.ones(3), 20))


def test_strides_are_numpys():
    def f(x, n):
        for k in range(n):
            s = x * 2
            z = np.zeros_like(x)
            x[0] = x[-1]
        return s.strides, z.strides

    def g(x, n):
        for k in range(n):
            s, t = x.max(axis=1, keepdims=True), x.sum(axis=0, keepdims=True)
            u, v = x[50::2], x[:, : k % 3 : 2]
            x[0] += 1
        return s, s.strides, s.flags.owndata, s.base is None, t, t.strides, u.strides, v.strides

    cube = np.ones((4, 2, 3))
    for x in (cube, cube[:, :1], cube[:, :1].copy(), cube.T, cube[:, None, 0], np.ones((4, 3)).T[:, None], cube.transpose(1, 0, 2)[:1]):
        check(f, (x, 20), (np.asfortranarray(x), 20), regions=0)
    check(g, (np.ones((4, 3)), 20))


def test_what_nobody_needs_is_reported():
    def f(x, n):
        for k in range(n):
            x[0] = 15 - k
            1 / x
        return x

    def g(x, n):
        for k in range(n):
            a, b, c, d = (1 / x).shape, np.zeros_like(1 / x), len(x * 1e308 * 10), (x * 1e308 * 10).size
            x[0] = 15 - k
        return x, a, b, c, d

    check(f, (np.ones(3), 20))
    check(g, (np.ones(3), 20), (np.zeros(3), 3), regions=0)


def test_an_interrupt_of_another_thread():
    def arrays(x, n):
        for k in range(n):
            x = x * 0.5 + x[::-1] * 0.5
            x[0] = 1.0
        return x

    def elements(x, n):
        s = 0.0
        for k in range(n):
            s += x[k & 1]
        return s

    for function in (arrays, elements):
        compiled = compile(function)
        for _ in range(3):
            compiled(np.ones(1000), 50)
        timer = threading.Timer(0.3, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            compiled(np.ones(1000), 10**12)
        timer.join()


@pytest.mark.parametrize("mode", ["warn", "raise", "ignore"])
def test_what_does_not_fit_the_array_it_goes_into_is_reported(mode):
    def f(x, narrow, n):
        for k in range(n):
            narrow[:] = x * 10.0**k
        return narrow

    with np.errstate(over=mode):
        check(f, (np.ones(5), np.ones(5, np.float32), 45))


def test_integers_that_are_rounded_stay_integers():
    def f(x, n):
        for k in range(n):
            a, b, c = np.floor(k), np.ceil(2.5 * k), np.trunc(x[1])
            x[0] = k
        return a, b, c

    check(f, (np.ones(3), 20), (np.ones(3, np.int32), 20), regions=0)


def test_products_in_place():
    def f(x, y, n):
        for k in range(n):
            x[0] += 1
            x @= y
        return x

    check(f, (np.ones(3), np.eye(3), 20), (np.ones(3), np.ones(3), 20), regions=0)


def test_an_axis_that_is_given_twice():
    def f(x, n):
        for k in range(n):
            s = np.sum(x, 0, axis=1)
            x[0] = s
        return x

    check(f, (np.ones((3, 3)), 20), regions=0)
