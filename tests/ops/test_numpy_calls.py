"""NumPy's functions without a row: calls of the graph, whole, and exactly what NumPy does."""
import re
import threading
import warnings

import numpy as np
import pytest

import framejit
from harness import Outcome, compare, same_as_eager

_random = np.random.default_rng(0)
SAMPLES = dict(
    x=_random.standard_normal((4, 5)), u=_random.standard_normal((4, 5)), p=np.abs(_random.standard_normal((4, 5))) + 0.1,
    a=_random.standard_normal((4, 4)) + 4 * np.eye(4), t=_random.standard_normal((3, 4, 5)), v=_random.standard_normal(7),
    w=_random.standard_normal(5), s=np.sort(_random.standard_normal(7)), q=np.array([1.0, 2.0, 4.0, 7.0]),
    i=_random.integers(0, 9, (4, 5)), k=_random.integers(0, 9, 12), b=_random.random((4, 5)) < 0.5,
    n=np.where(_random.random((4, 5)) < 0.3, np.nan, 1.5), f=_random.standard_normal((4, 5)).astype(np.float32))

WHOLE = """
np.sort(x); np.sort(x, axis=0); np.sort(x, axis=None); np.sort(x.T); np.sort(i); np.sort(f); x.argsort(axis=0); np.argsort(v, kind='stable')
np.partition(v, 3); np.argpartition(v, 3); np.lexsort((k, k % 3)); np.digitize(v, s); np.sort(v)[::-1]
np.searchsorted(s, v); np.searchsorted(s, 0.3); np.searchsorted(s, v, side='right'); s.searchsorted(v)
np.einsum('ij,kj->ik', x, u); np.einsum('ii', a); np.einsum('ij->j', x); np.einsum('...j,j', t, w)
np.einsum('ij,jk,kl->il', a, a, a); np.einsum('ij,jk', a, x, optimize=True); np.tensordot(x, u, axes=([1], [1]))
np.kron(x, u); np.kron(v, w); np.cross(x[:, :3], u[:, :3]); np.vdot(v, v); np.convolve(v, w); np.convolve(v, w, 'same'); np.correlate(v, w)
np.trace(x); x.trace(); np.diag(v); np.diagflat(v); np.vander(v, 3); np.triu_indices(4); a[np.triu_indices(4)]; np.hanning(5); np.kaiser(5, 2.0)
np.linalg.norm(x); np.linalg.norm(x, axis=1); np.linalg.norm(x, ord=2); np.linalg.norm(v, 1); np.linalg.inv(a); np.linalg.det(a)
np.linalg.slogdet(a); np.linalg.solve(a, x); np.linalg.eigh(a @ a.T); np.linalg.eigvalsh(a); np.linalg.svd(x); np.linalg.svd(x, full_matrices=False)
np.linalg.svd(x, compute_uv=False); np.linalg.qr(x); np.linalg.cholesky(a @ a.T + np.eye(4)); np.linalg.pinv(x); np.linalg.matrix_rank(x)
np.linalg.cond(a); np.linalg.multi_dot([a, a, x]); np.linalg.matrix_power(a, 3); np.linalg.slogdet(a).sign + 1
np.fft.fft(v); np.fft.rfft(v); np.fft.irfft(v); np.fft.fft2(x); np.abs(np.fft.rfft(v)); np.fft.ifft(np.fft.fft(v))
np.median(x); np.median(x, axis=1); np.percentile(x, 30); np.percentile(x, [10, 90], axis=0); np.quantile(x, 0.3, axis=1)
np.average(x, axis=0, weights=p[:, 0]); np.cov(x); np.corrcoef(x); np.histogram(v, bins=q); np.histogram(v, bins=5)
np.nansum(n); np.nanmean(n, axis=1); np.nanmax(n); np.nanmin(n, axis=0); np.nanstd(n); np.nanvar(n, axis=0); np.nanmedian(n); np.nanpercentile(n, 30)
np.nanprod(n); np.nancumsum(n); np.nanargmax(n)
np.interp(v, q, q * 2); np.interp(0.5, q, q); np.polyfit(s, v, 2); np.isclose(x, u); np.isin(k, [1, 2]); np.isin(k, i); np.ediff1d(v); np.rot90(x)
np.block([[x, u], [u, x]]); np.select([x > 0, x < -1], [x, -x], 0.0); np.choose(i[0] % 2, [w, w * 2]); np.meshgrid(v, w)
np.ravel_multi_index((k % 3, k % 4), (3, 4)); np.packbits(b)
np.cbrt(x); np.heaviside(x, 0.5); np.nextafter(x, u); np.spacing(x); np.ldexp(x, i); np.frexp(x); np.modf(x); np.gcd(k, 6); np.lcm(k, 6)
np.logaddexp2(x, u); np.bitwise_count(k); np.vecdot(x, u); np.cbrt(x.sum()); np.cbrt(x.T); np.cbrt(x[::2, ::-1])
np.logical_xor.reduce(b, axis=1); np.subtract.reduce(x); np.bitwise_or.reduce(i, axis=1); np.hypot.reduce(x, axis=1); np.fmax.reduce(x)
np.add.accumulate(x, axis=1); np.maximum.accumulate(x, axis=0); np.add.reduceat(v, [0, 3, 5]); np.maximum.outer(v, w); np.divide.outer(v, w)
np.sum(x, where=b); np.sum(x, axis=1, where=x > 0); x.sum(axis=0, where=b); np.max(x, where=b, initial=-9); np.any(b, where=x > 0)
np.add.reduce(x, axis=1, where=b); np.maximum.reduce(x, axis=1, initial=0.5)
np.add(x, u, where=b, out=np.zeros_like(x)); np.sqrt(p, where=b, out=np.zeros_like(x)); np.divide(x, u, out=np.ones_like(x), where=u > 0)
x.sort(); x.partition(2); x.put(0, 1.0); np.put(x, [0, 1], 5.0); np.place(x, b, 1.0); np.putmask(x, b, u); np.fill_diagonal(a, 0)
np.maximum.at(x, 0, 1.0); np.multiply.at(x, (i[0] % 4,), 2.0); np.cbrt(x, out=x); np.add(x, u, x, where=b)
np.diag(a); np.diag(a, 1); np.diag(x, -2); a.diagonal(); np.diagonal(x.T); np.diagonal(x, 1, 1, 0); np.linalg.diagonal(a); np.diag(np.diag(a)) + a
np.delete(v, 2); np.delete(v, -1); np.insert(v, 2, 1.0); np.insert(k, 0, 3.7); np.insert(v, -1, w); np.insert(v, 7, [1, 2])
np.delete(x, 1, axis=0); np.delete(x, -1, axis=-1); np.delete(x, [0, 2], axis=1); np.delete(x, (1,), 1); np.delete(x, 3); np.delete(t, [1, 0], 1); np.delete(v, [0, 2, 2])
np.delete(x, b[:, 0], axis=0); np.delete(x, b[0], 1); np.delete(x, b.ravel()); np.delete(v, v > 0); np.delete(t, b[0], -1); np.delete(x, i[0] % 4, 0); np.delete(v, k[:0])
np.roll(x, np.argmax(v)); np.roll(x, -np.argmax(v), axis=1); np.roll(x, int(np.sum(x > 0)), 0); np.roll(t.T, (k[0], np.argmin(v)), axis=(0, -1)); np.roll(x[:0], k[1], 0)
np.roll(x, (k * -10**15)[3], 1); np.roll(v, (k * 2 - 2**62)[0]); np.roll(x, k[:2] - 3, axis=(0, 1)); np.roll(x, (np.argmax(v), 1, k[2]), 1); np.roll(f, np.argmax(v).astype('b'), 0)
np.imag(x); x.imag + 1; np.imag(x.T); np.imag(i); x.imag[1:]; np.imag(b); np.real(i) + 1; np.imag(x[::2, ::2]); np.imag(x[0, 0]) + x; np.real(x[0, 0]) + x; np.imag(x.sum()); np.imag(f).sum()
np.insert(x, 1, 5.0, axis=0); np.insert(x, -1, v[:4], axis=1); np.insert(x, 2, x[0], axis=0); np.insert(x, 1, 5.0); np.insert(t, 1, 2.5, axis=1); np.insert(x, 0, u[:2], 0)
abs(k[0] - 9); -k[1]; k[2] << 2; k[2] >> 1; 7 << k[0]; ~k[0]; k[1] ** 2; k[2] // 3; k[2] % 3; k[2] // (k[1] + 1); x * (k[0] & 1); np.zeros(np.prod(x.shape) // 2) + 1
np.unique(k); np.unique(i); np.unique(b); np.unique(k, return_counts=True); np.unique(k, return_inverse=True); np.union1d(k, i)
np.unique(x); np.unique(n); np.unique(n, equal_nan=False, return_index=True); np.unique(v, return_index=True, return_inverse=True, return_counts=True)
np.bincount(abs(i[0]), minlength=50); np.bincount(abs(i[0]), w * 2, 50)
np.unique(i % 2, axis=0); np.unique(i[:, :2] % 2, axis=1); np.unique(i[:, :1] % 2, axis=0, return_index=True, return_counts=True)
np.unique(t, axis=-2)
np.mean(x, where=b); x.mean(axis=1, where=x > -9); np.std(x, where=b); x.var(0, where=u > -9, ddof=1); np.mean(x, where=b, keepdims=True)
np.linalg.lstsq(a, x); np.linalg.lstsq(a, w[:4], rcond=None)[0] + 1
np.fft.fft(v).real + 1; np.fft.fft(v).imag * v; np.real(x * 1j); np.angle(x + 1j * u); (x * (1 + 2j)).conj(); np.exp(1j * x); x.astype(complex) * 2
x.view('i8') + 1; (x + 1).view(np.uint64) >> 52; f.view(np.uint8); i.T.view('u8'); x.flat[3] + 1; x.T.flat[2:7] * 2; x.flat[-1]; x.flat[::3]
np.count_nonzero(b) * x; np.count_nonzero(np.broadcast_to(w, (3, 1, 5)), axis=())
np.count_nonzero(x.T) + 1.5; x.flags.c_contiguous; x.T.flags['F_CONTIGUOUS']; x[:, 1:].flags.forc; x + x.flags.fnc
np.allclose(x, u); np.array_equal(x, u); np.array_equiv(x, u)
"""
LINES = [line.strip() for line in re.split("[;\n]", WHOLE) if line.strip()]


def program(line):
    names = [name for name in SAMPLES if re.search(rf"\b{name}\b", line)] or ["x"]
    space = {"np": np}
    exec(f"def f({', '.join(names)}):\n    y = {names[0]} * 2\n    r = {line}\n    return r, y\n", space)
    return space["f"], [SAMPLES[name] for name in names]


@pytest.mark.parametrize("line", LINES)
def test_call_is_part_of_the_graph(line):
    function, arguments = program(line)
    same_as_eager(function, *arguments, breaks=(), calls=3)


COMPLEX = """
w[np.abs(w) > 1] = v; w[w.real > 0] = 0; w[w.imag < 0] = 2.5; w[1:] = 2j; w[0, 1] = 3; w[..., 0] = True; w[i] = -1.5j; w[w.real > 0] = u
w[:] = 2**40; w[0] = np.float32(0.1); w[w.real > 0] = complex(np.nan, -0.0); w[0, 1] = v; w[:, ::2] = -0.0
"""


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("line", [line.strip() for line in re.split("[;\n]", COMPLEX) if line.strip()])
def test_numbers_are_assigned_to_complex_elements(line, dtype):
    space = {"np": np}
    exec(f"def f(z, v, i, u):\n    w = z * 2\n    {line}\n    z[0] = w[1]\n    return w + 1, w\n", space)
    z = (SAMPLES["x"] + 1j * SAMPLES["u"]).astype(dtype)
    same_as_eager(space["f"], z, np.complex128(2 - 1j), np.array([2, 0]), np.complex64(0.1 - 2j), breaks=(), exact=True)


def test_what_complex_elements_can_not_be_is_numpy_s():
    def f(z, v):
        w = z * 2
        w[w.real > 0] = v
        return w

    z = (SAMPLES["x"] + 1j * SAMPLES["u"]).astype("complex64")
    for number in (1e300, complex(1e300, 0), 10**400, "a", None, np.float64(1e300)):
        same_as_eager(f, z, number, compiles=False)


def test_the_imaginary_part_of_real_numbers_is_read_only():
    def f(x):
        part = x.imag
        return part, part[1:], x.T.imag, x.imag + 1

    given = SAMPLES["x"] * 1
    compiled = framejit.compile(f)
    for _ in range(2):
        for ours, eager in zip(compiled(given), f(given)):
            assert ours.flags.writeable == eager.flags.writeable and (ours.base is None) == (eager.base is None)
            assert ours.strides == eager.strides and ours.dtype == eager.dtype
            assert ours.base is None or ours.base.flags.writeable == eager.base.flags.writeable

    def written(x):
        y = x + 1
        y.imag[0] = 1
        return y

    same_as_eager(written, given, compiles=False)
    same_as_eager(lambda x: (x.imag, x * 2), np.ones(0), breaks=())


def test_places_to_delete_that_are_not_there():
    def f(x, where):
        y = x * 2
        return np.delete(x, where, axis=0) + 1, y

    for where in (np.array([0, 7]), np.array([-9, 0]), np.array([True]), np.array([[True], [False]]), np.array([0.5, 1.0])):
        same_as_eager(f, SAMPLES["x"], where, compiles=False, fallback=True)
    framejit.reset()
    compiled = framejit.compile(f)
    for where in (np.array([0, 2]), np.array([1, 9]), np.array([3, 3]), np.array([True, False, False, True]), np.array([True, True])):
        compare(Outcome(compiled, [SAMPLES["x"], where], {}), Outcome(f, [SAMPLES["x"], where], {}))
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("line", ["np.sort(x * 2, axis=1)", "np.linalg.norm(x, axis=1)", "np.cbrt(x + 1)", "np.median(x, axis=0)",
                                  "np.einsum('ij,kj->ik', x, x)", "np.fft.rfft(x)", "np.nanmean(x, axis=1)", "np.linalg.solve(x @ x.T + 9 * np.eye(len(x)), x)"])
def test_sizes_may_vary(line):
    space = {"np": np}
    exec(f"def f(x):\n    return {line}\n", space)
    framejit.reset()
    compiled = framejit.compile(space["f"])
    for shape in [(3, 4), (5, 4), (6, 4), (7, 9), (2, 11), (1, 1), (12, 5)]:
        x = np.random.default_rng(1).standard_normal(shape)
        compare(Outcome(compiled, [x], {}), Outcome(space["f"], [x], {}))
    assert not framejit.explain(compiled).so_far().breaks and framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("line", [
    "np.sort(x[x > 0])[::-1] * 2", "np.median(x[x > 0])", "np.argsort(x[x > 0]) + 1", "np.cumsum(np.sort(x[x > 0]))", "np.percentile(x[x > 0], 30)",
    "np.histogram(x[x > 0], bins=np.linspace(0, 2, 5))[0]", "np.add.outer(x[x > 0], x[x > 0])", "np.searchsorted(np.sort(x[x > 0]), x)",
    "(np.sort(x[x > 0]), np.sort(x[x < 0]))", "np.unique((x * 3).astype(int)[x > 0])", "np.unique(np.round(x[x > 0]))", "np.fft.fft(x[x > 0])", "np.vander(x[x > 0], 3)"])
def test_a_row_that_a_mask_leaves_may_be_given(line):
    space = {"np": np}
    exec(f"def f(x):\n    y = x * 2\n    return {line}, y\n", space)
    framejit.reset()
    compiled = framejit.compile(space["f"])
    for seed, size in enumerate([40, 40, 40, 7, 90, 90, 1, 2, 40]):
        x = np.random.default_rng(seed).standard_normal(size)
        for given in [x, -abs(x)] if size > 2 else [x]:
            compare(Outcome(compiled, [given.copy()], {}), Outcome(space["f"], [given.copy()], {}))
    assert not framejit.explain(compiled).so_far().breaks and framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("line", ["np.convolve(x[x > 0], np.ones(3), 'same')", "np.fft.rfft(x[x > 0])", "np.intersect1d(x.astype(int), x.astype(int) + 1)"])
def test_where_its_size_can_not_be_told_from_the_rows_the_graph_ends(line):
    space = {"np": np}
    exec(f"def f(x):\n    y = x * 2\n    return {line}, y\n", space)
    framejit.reset()
    compiled = framejit.compile(space["f"])
    for seed, size in enumerate([40, 40, 40, 7, 90, 90, 2, 40]):
        x = np.random.default_rng(seed).standard_normal(size) + 0.5
        compare(Outcome(compiled, [x.copy()], {}), Outcome(space["f"], [x.copy()], {}))
    assert framejit.explain(compiled).so_far().breaks and framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("line, samples", [
    ("np.nanmean(x, axis=1)", [np.full((2, 3), np.nan)]), ("np.nanmax(x)", [np.full(3, np.nan)]), ("np.cov(x)", [np.ones((3, 1))]),
    ("np.nanvar(x, axis=0)", [np.full((2, 2), np.nan)]), ("np.polyfit(x, x, 4)", [np.ones(6)]), ("np.median(x)", [np.ones(0)]),
    ("np.cbrt(x) / 0", [np.ones(3)]), ("np.spacing(x)", [np.array([np.inf, 1.0])]), ("np.divide(1.0, x, where=x > -1, out=x * 1)", [np.zeros(3)]),
    ("np.linalg.inv(x)", [np.zeros((2, 2))]), ("np.linalg.cholesky(x)", [-np.eye(2)]), ("np.add.reduceat(x, [0, 9])", [np.ones(3)]),
    ("np.average(x, weights=x)", [np.zeros(3)]), ("np.ravel_multi_index((x.astype(int),), (2,))", [np.ones(3) * 7])])
def test_what_warns_or_raises_does_so_as_in_eager(line, samples):
    space = {"np": np}
    exec(f"def f(x):\n    y = x + 1\n    r = {line}\n    return r, y\n", space)
    same_as_eager(space["f"], *samples, compiles=False)
    # And after a call that was captured.
    compiled = framejit.compile(space["f"])
    good = np.arange(1.0, 5.0).reshape(2, 2) + 3 * np.eye(2) if samples[0].ndim == 2 else np.arange(1.0, 8.0)
    for x in [good, good, *samples, good]:
        compare(Outcome(compiled, [x.copy()], {}), Outcome(space["f"], [x.copy()], {}))


def test_sizes_that_come_to_nothing_are_numpys():
    def f(x):
        y = x + 1
        return np.nanmax(x, axis=0, initial=0.0), np.median(x, axis=1), y

    framejit.reset()
    compiled = framejit.compile(f)
    for columns in [4, 5, 6, 0, 3]:
        x = np.ones((3, columns))
        compare(Outcome(compiled, [x], {}), Outcome(f, [x], {}))


def test_no_warning_leaves_the_tracer():
    def f(x, b):
        return np.nanmean(x, axis=0), np.mean(x, where=b), np.cov(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        framejit.compile(f)(np.ones((3, 4)), np.ones((3, 4), bool))


def test_compiling_a_call_lets_nothing_warn_again():
    def f(x):
        return np.sort(x) + np.median(x)

    def g():
        warnings.warn("once")

    def count(function):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            g(), function(np.ones((3, 4))), g(), function(np.ones((2, 4))), g()
        return len(seen)

    assert count(f) == count(framejit.compile(f)) == 1


def test_a_condition_where_nothing_is_computed_is_none():
    def f(x, y):
        return np.divide(x, y, out=np.zeros_like(x), where=y != 0)

    same_as_eager(f, np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]), breaks=())


def test_what_is_written_is_written_once_and_seen_by_views():
    def f(x):
        row = x[1]
        x.sort(axis=1)
        np.add.at(x, [0, 0], 1.0)
        x.put(3, 9.0)
        return row * 1, x.sum()

    same_as_eager(f, np.array([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]]), breaks=())


def test_read_only_arrays_are_refused_as_by_numpy():
    def f(x):
        y = x + 1
        x.sort()
        return y

    x = np.array([3.0, 1.0])
    x.flags.writeable = False
    same_as_eager(f, x)


@pytest.mark.parametrize("line", ["x.byteswap(True)", "np.median(x, overwrite_input=True)", "np.percentile(x, 30, overwrite_input=True)",
                                  "np.nanmedian(x, overwrite_input=True)", "np.nan_to_num(x, copy=False)", "np.median(x, 0, None, True)"])
def test_functions_told_to_write_into_their_argument_do(line):
    space = {"np": np}
    exec(f"def f(x):\n    y = x + 1\n    r = {line}\n    return r, y, x * 2\n", space)
    same_as_eager(space["f"], np.array([5.0, 1.0, 4.0, 2.0, 3.0]))


def test_a_result_whose_size_depends_on_data_ends_the_graph():
    def f(x):
        return np.histogram(x, bins="auto")[0] + 0, x + 1

    framejit.reset()
    compiled = framejit.compile(f)
    for n in [10, 10, 1000, 1000, 50, 50, 700, 700]:
        x = np.random.default_rng(n).standard_normal(n)
        compare(Outcome(compiled, [x], {}), Outcome(f, [x], {}))
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("line", ["np.split([1, 2], 1)", "np.split([1, 2], [1])", "np.array_split([1, 2, 3], 2)", "np.array_split([[1, 2], [3, 4], [5, 6]], 2, axis=1)"])
def test_lists_are_split_as_numpy_does(line):
    space = {"np": np}
    exec(f"def f(x):\n    y = x + 1\n    return {line}, y\n", space)
    same_as_eager(space["f"], np.ones(2))


def test_a_number_that_changes_is_no_reason_to_trace_again_and_again():
    def f(x, q):
        y = x * 2
        return np.percentile(y, q) + 0.5, y

    framejit.reset()
    compiled = framejit.compile(f)
    for i in range(30):
        compare(Outcome(compiled, [SAMPLES["x"], 1.5 * i], {}), Outcome(f, [SAMPLES["x"], 1.5 * i], {}))
    assert framejit.cache_info()["graphs"] <= 5, framejit.explain(compiled).so_far()


def test_complex_numbers_are_numpys():
    def f(x):
        z = np.fft.fft(x) * 2 + 1j
        z *= z
        return z - x, abs(np.exp(z[0, 0])), np.abs(z), z == z

    same_as_eager(f, SAMPLES["x"], breaks=None)


def test_functions_made_of_python_functions_are_left_to_numpy():
    seen = []
    double = np.frompyfunc(lambda e: seen.append(e) or e * 2, 1, 1)

    def f(x):
        y = x + 1
        return double(x).astype(float) + y

    compiled = framejit.compile(f)
    compiled(np.ones(2)), compiled(np.ones(2))
    assert len(seen) == 4


def test_large_arrays_are_left_to_numpy():
    def f(x):
        y = x + 1
        return np.sort(y)

    same_as_eager(f, np.arange(100000.0)[::-1], breaks=("UnsupportedOperation",))


def test_calls_run_on_many_threads():
    def f(x):
        return np.sort(x * 2, axis=1) + np.nanmean(x, axis=0)

    compiled, x = framejit.compile(f), SAMPLES["x"]
    expected, wrong = f(x), []

    def run():
        for _ in range(50):
            if not np.allclose(compiled(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_replaced_function_is_the_one_that_is_called(monkeypatch):
    def f(x):
        return np.sort(x) + 1

    compiled, x = framejit.compile(f), np.array([2.0, 1.0])
    assert compiled(x).tolist() == [2.0, 3.0]
    monkeypatch.setattr(np, "sort", lambda x: x * 10)
    assert compiled(x).tolist() == [21.0, 11.0]


def test_derivatives_do_not_pass_through_a_call_without_a_rule():
    with pytest.raises(framejit.GraphBreakError, match="FJ124.*modf"):
        framejit.grad(lambda x: np.modf(x)[0].sum())(np.array([2.0, 1.0]))


def test_branches_on_constants_are_no_breaks():
    def f(x):
        if np.absolute(-3) == 3 and not np.any(np.array([1, 2]) > 5) and np.all(np.isfinite(1e-8)):
            return x + 1
        return x

    same_as_eager(f, np.ones(3), breaks=())


def test_a_diagonal_is_read_only_and_numbers_have_their_place():
    def f(x):
        d = x.diagonal()
        return d, x + 1

    compiled = framejit.compile(f)
    assert not compiled(np.ones((3, 3)))[0].flags.writeable
    for function in (lambda x: np.array(300, dtype=np.int8) + x, lambda x: np.array([1, -1], dtype=np.uint8) + x, lambda x: np.insert(x.astype(np.int8), 1, 300)):
        with pytest.raises(OverflowError):
            framejit.compile(function)(np.ones(2))
    with pytest.raises(TypeError):
        framejit.compile(lambda x: np.delete(x, 1, axis=0.0))(np.ones(3))


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e10, -1e30])
def test_constants_without_a_place_among_integers(number):
    def f(x):
        return np.full(1, number).astype("i4"), x + 1

    compiled = framejit.compile(f)
    for _ in range(3):
        assert compiled(np.ones(2))[0].tolist() == f(np.ones(2))[0].tolist()


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("number", ["np.nan", "np.inf", "-np.inf", "1e30", "-1e30", "300.5", "-1.5", "2.0**31", "2.0**63", "complex(np.nan, 1)"])
def test_branches_on_numbers_that_an_integer_does_not_hold_are_as_in_eager(number, dtype):
    space = {"np": np}
    exec(f"def f(x):\n    y = np.full(1, {number}).astype('{dtype}')\n    if y[0] == 0:\n        return x + 1\n    return x + 2 if y[0] < 0 else x + 3", space)
    same_as_eager(space["f"], np.ones(3), fallback=True, compiles=False)


@pytest.mark.parametrize("line", ["np.full(1, np.nan).astype('i4')", "np.full((3, 300), -np.inf).astype('i8')[:, 1:]", "np.full(1, np.nan).astype('u1').sum()"])
def test_constants_that_an_integer_does_not_hold_are_as_in_eager(line):
    space = {"np": np}
    exec(f"def f(x):\n    y = {line}\n    return x + 1, y", space)
    same_as_eager(space["f"], np.ones(3), calls=3, fallback=True)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_what_an_optimiser_knows_to_have_no_place_among_integers(dtype):
    def f(x):
        return (x * np.inf).astype(dtype), (x * np.nan).astype(dtype)

    compiled = framejit.compile(f)
    for _ in range(3):
        for ours, eager in zip(compiled(np.ones(3)), f(np.ones(3))):
            assert ours.tolist() == eager.tolist()


def test_bins_that_are_not_enough_are_found_out_at_each_call():
    compiled = framejit.compile(lambda k: np.bincount(k, minlength=4) * 2)
    for k in ([0, 1, 3], [0, 1, 7], [2, 2, 2], [], [9], [1, -1], [0]):
        k = np.array(k, int)
        compare(Outcome(compiled, [k], {}), Outcome(lambda k: np.bincount(k, minlength=4) * 2, [k], {}))
