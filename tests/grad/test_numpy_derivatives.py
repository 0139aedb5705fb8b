"""NumPy's functions that are calls of a library elsewhere: derived and batched by code of ours, or by a rule."""
import numpy as np
import pytest

import framejit
from test_transforms_rows import POINT, close, numeric_jacobian

KNOTS, VALUES = np.array([-2.0, -0.5, 0.4, 2.0]), np.array([0.3, -0.7, 1.1, 0.2])


def square(x):
    return x[:3] + 2 * np.eye(3)


def definite(x):
    return x.T @ x + np.eye(3)


def without_signs(u, s, v):
    return np.abs(u) @ np.diag(s) @ np.abs(v)


def sorted_in_place(x):
    y = x * 1
    y.sort(axis=0)
    return y


# x: f64[4, 3], away from kinks and ties.
EXPRESSIONS = {
    # linear algebra
    "norm": lambda x: np.linalg.norm(x),
    "norm_of_rows": lambda x: np.linalg.norm(x, axis=1),
    "norm_1": lambda x: np.linalg.norm(x, 1, axis=0, keepdims=True),
    "norm_3": lambda x: np.linalg.norm(x, 3, axis=1),
    "norm_inf": lambda x: np.linalg.norm(x, np.inf) + np.linalg.norm(x[0], -np.inf),
    "norm_fro": lambda x: np.linalg.norm(x, "fro") * np.linalg.norm(x, 1),
    "norm_nuc": lambda x: np.linalg.norm(x, "nuc"),
    "norm_2": lambda x: np.linalg.norm(x, 2) + np.linalg.norm(x, -2),
    "norm_axes": lambda x: np.linalg.norm(np.stack([x, x * x]), "fro", axis=(0, 2)),
    "vector_norm": lambda x: np.linalg.vector_norm(x, axis=0),
    "matrix_norm": lambda x: np.linalg.matrix_norm(x),
    "inv": lambda x: np.linalg.inv(square(x)),
    "solve": lambda x: np.linalg.solve(square(x), x[1:].T),
    "solve_vector": lambda x: np.linalg.solve(square(x), x[3]),
    "solve_stack": lambda x: np.linalg.solve(square(x), np.stack([x[1:], x[:3]])),
    "solve_constant": lambda x: np.linalg.solve(np.eye(4) * 3 + 0.5, x),
    "det": lambda x: np.linalg.det(square(x)),
    "det_stack": lambda x: np.linalg.det(np.stack([square(x), square(x).T @ square(x)])),
    "slogdet": lambda x: np.linalg.slogdet(square(x))[1] * np.linalg.slogdet(square(x)).sign,
    "cholesky": lambda x: np.linalg.cholesky(definite(x)),
    "cholesky_upper": lambda x: np.linalg.cholesky(definite(x), upper=True),
    "eigh": lambda x: np.linalg.eigh(definite(x))[0] * np.abs(np.linalg.eigh(definite(x)).eigenvectors),
    "eigvalsh": lambda x: np.linalg.eigvalsh(definite(x)),
    "svd": lambda x: without_signs(*np.linalg.svd(x, full_matrices=False)),
    "svd_wide": lambda x: without_signs(*np.linalg.svd(x.T, full_matrices=False)),
    "svd_full": lambda x: np.linalg.svd(x)[1],
    "svd_values": lambda x: np.linalg.svd(x, compute_uv=False) * np.linalg.svdvals(x),
    "qr": lambda x: np.linalg.qr(x)[0] @ np.exp(np.linalg.qr(x)[1]),
    "pinv": lambda x: np.linalg.pinv(x),
    "lstsq": lambda x: np.linalg.lstsq(x, x[:, 0] ** 2 + 1, rcond=None)[0],
    "lstsq_residuals": lambda x: np.linalg.lstsq(x, x[:, :2] ** 2, rcond=None)[1],
    "polyfit": lambda x: np.polyfit(np.arange(4.0), x[:, 0], 1) * np.polyfit(np.exp(x[:, 1]), x[:, 0], 1, w=KNOTS ** 2),
    "cond": lambda x: np.linalg.cond(x),
    "matrix_power": lambda x: np.linalg.matrix_power(square(x), -2),
    "multi_dot": lambda x: np.linalg.multi_dot([x, x.T, x]),
    # products
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "einsum_trace": lambda x: np.einsum("ii", x[:3]) * np.einsum("ii->i", x[:3]),
    "einsum_sum": lambda x: np.einsum("ij->j", x),
    "einsum_outer": lambda x: np.einsum("i,j", x[0], x[:, 1]),
    "einsum_three": lambda x: np.einsum("ij,kj,k->i", x, x, x[:, 0]),
    "einsum_ellipsis": lambda x: np.einsum("...j,j", x, x[0]) + np.einsum("...i,...i->...", x, x),
    "einsum_batch": lambda x: np.einsum("bij,bjk->bik", np.stack([x, x * x]), np.stack([x.T, x.T * 2]), optimize=True),
    "einsum_swap": lambda x: np.einsum("ba", x),
    "tensordot": lambda x: np.tensordot(x, x, axes=([1], [1])),
    "vdot": lambda x: np.vdot(x, x) + np.vecdot(x, x[::-1]),
    "kron": lambda x: np.kron(x, x[:2]),
    "kron_ranks": lambda x: np.kron(x[0], x),
    "cross": lambda x: np.cross(x, x[::-1] + 1),
    "cross_axis": lambda x: np.cross(x[:3], x[1:] * 2, axis=0) + np.linalg.cross(x[:3], x[1:]),
    "trace": lambda x: np.trace(x) * x.trace(1) + np.linalg.trace(square(x)),
    "convolve": lambda x: np.convolve(x[0], x[:, 1]),
    "convolve_same": lambda x: np.convolve(x[:, 0], x[1, :2], "same"),
    "convolve_valid": lambda x: np.convolve(x[1], x[:, 0], "valid"),
    "correlate": lambda x: np.correlate(x[:, 0], x[1]),
    "correlate_same": lambda x: np.correlate(x[1, :2], x[:, 0], "same"),
    "correlate_full": lambda x: np.correlate(x[1, :2], x[:, 0], "full"),
    # order
    "sort": lambda x: np.sort(x) * np.sort(x, axis=0),
    "sort_all": lambda x: np.sort(x, axis=None),
    "sort_in_place": sorted_in_place,
    "argsort": lambda x: x[np.argsort(x[:, 0])] * np.argsort(x, axis=0),
    "partition": lambda x: np.partition(x, 1) * np.partition(x.ravel(), 4)[4],
    "searchsorted": lambda x: x[np.searchsorted(KNOTS, x[:, 0]) % 4] * np.digitize(x, KNOTS),
    "median": lambda x: np.median(x) * np.median(x, axis=1),
    "median_kept": lambda x: np.median(x, axis=0, keepdims=True),
    "percentile": lambda x: np.percentile(x, 30) * np.percentile(x, [10, 90], axis=0),
    "quantile": lambda x: np.quantile(x, 0.3, axis=1, keepdims=True),
    # making
    "diag": lambda x: np.diag(x[0]) + np.diag(x[1, :2], 1) + np.diag(x[1, :2], -1) + np.diagflat(x[2]),
    "diag_of_matrix": lambda x: np.diag(x, -1),
    "meshgrid": lambda x: np.meshgrid(x[0], x[:, 1])[0] * np.meshgrid(x[0], x[:, 1])[1],
    "meshgrid_ij": lambda x: (np.meshgrid(x[0], x[:, 1], indexing="ij")[1]
                              + np.meshgrid(x[0], x[:, 1], sparse=True, indexing="ij")[0]),
    "vander": lambda x: np.vander(x[0]) + np.vander(x[0], 3, increasing=True),
    "block": lambda x: np.block([[x, x * 2], [x[:1] ** 2, x[:1]]]),
    "select": lambda x: np.select([x > 0, x < -1], [x, x * x], 0.5),
    "ediff1d": lambda x: np.ediff1d(x),
    # functions of numbers
    "cbrt": lambda x: np.cbrt(x) * np.cbrt(np.sum(x)),
    "heaviside": lambda x: x * np.heaviside(x, 0.5),
    "logaddexp2": lambda x: np.logaddexp2(x, x[0]),
    "interp": lambda x: np.interp(x[:, 0], KNOTS, VALUES) * np.interp(x[:, 1], KNOTS, x[:, 2]),
    "interp_ends": lambda x: np.interp(x, np.cumsum(np.exp(x[:, 0])) - 2, VALUES, left=-1.0),
    # statistics
    "average": lambda x: np.average(x, axis=0, weights=KNOTS ** 2) * np.average(x, weights=x * x),
    "cov": lambda x: np.cov(x) + np.corrcoef(x),
    "nan_means": lambda x: np.nansum(x, axis=0) * np.nanmean(x, axis=0),
    "nan_deviations": lambda x: np.nanvar(x, axis=0) * np.nanstd(x),
    "nan_extrema": lambda x: np.nanmax(x, axis=0) * np.nanmin(x),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_function_has_numpys_value_and_its_derivatives(name):
    function = EXPRESSIONS[name]

    def scalar(x):
        return np.sum(np.sin(function(x)))

    value, gradient = framejit.value_and_grad(scalar)(POINT)
    assert np.allclose(value, scalar(POINT), rtol=1e-12)
    close(gradient, numeric_jacobian(scalar, POINT), 1e-6)
    close(framejit.vjp(scalar, POINT)[1](1.0)[0], gradient, 1e-12)
    close(framejit.hessian(scalar)(POINT), numeric_jacobian(framejit.grad(scalar), POINT), 1e-5)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_function_of_all_examples_is_that_of_each(name):
    function = EXPRESSIONS[name]
    examples = np.stack([POINT, POINT[::-1] * 0.9, POINT * 0.7 + 0.05], axis=1)
    close(framejit.vmap(function, in_axes=1)(examples), np.stack([function(examples[:, i]) for i in range(3)]), 1e-11)
    gradient = framejit.grad(lambda x: np.sum(np.sin(function(x))))
    expected = np.stack([gradient(examples[:, i]) for i in range(3)], axis=1)
    close(framejit.vmap(gradient, 1, 1)(examples), expected, 1e-10)
    close(framejit.grad(lambda xs: np.sum(np.sin(framejit.vmap(function, 1)(xs))))(examples), expected, 1e-10)


def test_a_pullback_called_later_is_derived_again():
    def f(a):
        return np.sum(np.linalg.inv(a) ** 2) + np.linalg.slogdet(a)[1]

    a = square(POINT)
    close(framejit.grad(lambda a: np.sum(np.sin(framejit.vjp(f, a)[1](1.0)[0])))(a),
          numeric_jacobian(lambda a: np.sum(np.sin(framejit.grad(f)(a))), a), 1e-6)
    inverse, change = np.linalg.inv(a), np.ones((3, 3))
    close(framejit.jvp(np.linalg.inv, (a,), (change,))[1], -inverse @ change @ inverse, 1e-12)


@pytest.mark.parametrize("function, point, expected", [
    (np.linalg.norm, np.zeros(3), np.zeros(3)),
    (np.linalg.det, np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[4.0, -2.0], [-2.0, 1.0]])),
    (lambda x: np.sum(np.linalg.svd(x)[1]), np.eye(2), np.eye(2)),
    (lambda x: np.sum(np.linalg.eigvalsh(x)), np.eye(2), np.eye(2)),
    (np.median, np.array([1.0, np.nan, 2.0]), np.zeros(3))])
def test_a_singular_point_has_a_derivative(function, point, expected):
    close(framejit.grad(function)(point), expected, 1e-12)


def test_all_examples_are_one_call():
    stack = np.stack([square(POINT), square(POINT[::-1])])
    for function in (framejit.vmap(np.linalg.inv), framejit.vmap(framejit.grad(lambda a: np.sum(np.linalg.inv(a))))):
        assert str(framejit.explain(function)(stack).graphs[0]).count("extern_call") == 1


def test_dtypes_stay():
    x = POINT[:3].astype(np.float32) + 2 * np.eye(3, dtype=np.float32)
    for function in (np.linalg.inv, np.linalg.det, np.sort, np.cbrt, np.linalg.norm, np.median,
                     lambda x: np.einsum("ij,jk", x, x), lambda x: np.linalg.svd(x)[0], lambda x: np.percentile(x, 30),
                     lambda x: np.interp(x, KNOTS, VALUES).astype(np.float32)):
        value, gradient = framejit.value_and_grad(lambda x: np.sum(function(x)))(x)
        assert value.dtype == gradient.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_result_has_numpys_dtype(name, dtype):
    function = EXPRESSIONS[name]
    x = POINT.astype(np.float32) if dtype == np.float32 else np.abs(POINT * 5).astype(dtype)
    with np.errstate(all="ignore"):
        try:
            expected = np.asarray(function(x))
        except (TypeError, ValueError, np.linalg.LinAlgError) as refused:
            pytest.skip(f"NumPy does not take {np.dtype(dtype)} here: {refused}")
        try:
            found = framejit.vmap(function)(x[None])
        except framejit.GraphBreakError as refused:
            assert dtype != np.float32, refused
            return
        assert found.dtype == expected.dtype
        assert np.allclose(found[0], expected, rtol=2e-3, atol=2e-3, equal_nan=True)
        if dtype == np.float32 and expected.dtype.kind == "f":
            assert framejit.vjp(function, x)[0].dtype == expected.dtype


ROW = np.array([0.0, 0.5, 1.0, 1.5, 2.5])
SOME_NAN, SOME_INFINITE = np.where(ROW == 1.0, np.nan, ROW), np.where(ROW == 1.0, np.inf, ROW)


@pytest.mark.parametrize("function", [
    lambda a: np.interp(a, [0.0, 1.0, 2.0], [1.0, np.nan, 3.0]),
    lambda a: np.interp(a, [0.0, 1.0, 2.0], [1.0, np.inf, np.inf]),
    lambda a: np.interp(a, [0.0, 1.0, 1.0, 2.0], [1.0, 2.0, 5.0, 3.0]),
    lambda a: np.convolve(a, np.array([np.inf, 1.0])),
    lambda a: np.correlate(a, np.array([1.0, -np.inf]), "full"),
    np.sort, np.median, np.nanmax, np.nanmean, np.diag, lambda a: np.heaviside(a, 0.5),
    lambda a: np.quantile(a, [0.2, 0.5]), lambda a: np.partition(a, 2), lambda a: np.kron(a, np.array([np.inf, 1.0]))])
@pytest.mark.parametrize("row", [ROW, SOME_NAN, SOME_INFINITE], ids=["numbers", "nan", "infinite"])
def test_what_is_not_finite_stays_where_it_is(function, row):
    with np.errstate(all="ignore"):
        assert np.allclose(framejit.vmap(function)(row[None])[0], function(row), rtol=1e-12, atol=0, equal_nan=True)


def test_a_partition_has_numpys_order():
    x = np.random.default_rng(0).standard_normal((3, 1000))
    for kth in (1, 400, (3, 700)):
        found = framejit.vmap(lambda row: np.partition(row, kth))(x)
        assert np.array_equal(found, np.partition(x, kth))


@pytest.mark.parametrize("q", [1.5, np.array([0.2, -0.1])])
def test_quantiles_out_of_range_are_an_error(q):
    with pytest.raises((ValueError, framejit.GraphBreakError), match="range|quantile"):
        framejit.grad(lambda x: np.sum(np.quantile(x, q)))(POINT)


def test_sizes_may_vary():
    def f(x):
        return np.sum(np.linalg.inv(x @ x.T + np.eye(len(x)))) + np.median(x) + np.sum(np.sort(x)[:, 0] ** 2)

    gradient = framejit.grad(f)
    for n in (3, 4, 5, 6):
        x = np.random.default_rng(n).standard_normal((n, n + 1))
        close(gradient(x), numeric_jacobian(f, x), 1e-6)


@pytest.mark.parametrize("line, name", [
    ("np.abs(np.fft.rfft(x[0]))", "absolute"), ("np.linalg.svd(x)[0] ** 2", "full_svd"), ("np.modf(x)[0]", "modf"),
    ("np.percentile(x, 30, method='nearest')", "percentile")])
def test_a_function_without_a_derivative_is_named_with_the_users_line(line, name, tmp_path):
    path = tmp_path / "users_code.py"
    path.write_text(f"import numpy as np\n\ndef f(x):\n    return np.sum({line})\n")
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    with pytest.raises(framejit.GraphBreakError, match=rf"(?s)users_code.py:4.*{name}"):
        framejit.grad(space["f"])(POINT)


def test_outside_of_a_derivative_they_are_numpys_own():
    def f(x):
        return np.linalg.inv(x[:3]), np.einsum("ij,kj", x, x), np.median(x, axis=0), np.linalg.norm(x), np.cbrt(x)

    for ours, theirs in zip(framejit.compile(f)(POINT), f(POINT)):
        assert np.array_equal(ours, theirs)


def test_rows_of_a_whole_space_are_split_once():
    """The values of columns and a number, all of reductions of one array, in one derivative."""
    def spread(a, axis=None):
        count = np.sum(np.where(np.isnan(a), 0.0, 1.0), axis=axis, keepdims=True)
        off = a - np.sum(a, axis=axis, keepdims=True) / count
        number = np.sum(np.where(np.isnan(a), 0.0, 1.0), axis=axis)
        return np.where(number <= 0, np.nan, np.sum(off * off, axis=axis) / np.where(number <= 0, 1.0, number))

    def mean(a):
        return np.sum(a, axis=0) / np.sum(np.where(np.isnan(a), 0.0, 1.0), axis=0)

    def f(x):
        return np.sum(np.sin(mean(x) * mean(x) + spread(x, 0) * np.sqrt(spread(x))))

    x = np.array([[0.31, -1.2, 0.83], [1.42, 0.52, -0.64], [-0.91, 1.13, 0.22], [0.75, -0.43, -1.61]])
    gradient, found = framejit.grad(f), framejit.hessian(f)(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-5
        expected = (gradient(x + step) - gradient(x - step)) / 2e-5
        np.testing.assert_allclose(found[index], expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(gradient(x)[index], (f(x + step) - f(x - step)) / 2e-5, rtol=1e-6, atol=1e-8)


def test_sinc_nan_to_num_and_tensorsolve_are_derived():
    x = np.array([0.0, 0.001, 0.4, -1.3])
    y = np.pi * x[2:]
    assert np.allclose(framejit.jacobian(np.sinc)(x).diagonal()[2:], np.pi * (np.cos(y) / y - np.sin(y) / y ** 2))
    assert np.allclose(framejit.grad(framejit.grad(np.sinc))(0.0), -np.pi ** 2 / 3)
    assert np.array_equal(framejit.vjp(np.sinc, x)[0][0], 1.0) and np.allclose(framejit.vjp(np.sinc, x)[0], np.sinc(x), rtol=1e-15)
    z = np.array([np.nan, np.inf, -np.inf, 2.0])
    value, pullback = framejit.vjp(lambda z: np.nan_to_num(z, nan=3.0, neginf=-1.0), z)
    assert np.array_equal(framejit.vjp(np.nan_to_num, z)[0], np.nan_to_num(z))
    assert np.array_equal(value, np.nan_to_num(z, nan=3.0, neginf=-1.0)) and np.array_equal(pullback(np.ones(4))[0], [0, 0, 0, 1])
    a, b = np.eye(4).reshape(2, 2, 4) * 2 + 0.1, np.arange(4.0).reshape(2, 2)
    assert np.allclose(framejit.vjp(np.linalg.tensorsolve, a, b)[0], np.linalg.tensorsolve(a, b))
    assert np.allclose(framejit.jacobian(np.linalg.tensorsolve, 1)(a, b).reshape(4, 4), np.linalg.inv(a.reshape(4, 4)))
