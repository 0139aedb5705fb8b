"""Stacked calls of NumPy's: of arrays with any number of axes in front, over each index of which they do the same.

What `numpy_derived` composes is made of them, so that all examples are one call. They are rows of calls.def. Those that
return floats have a rule (`pullbacks`), which is traced: it is given the cotangent of one result, and None for the
others; the results; and the arguments. It returns a cotangent or None for each argument, or a tuple of such. Rules are
written with the same functions: derivatives have derivatives.
"""
import numpy as np

# ---- the calls


def inverse(a):
    return np.linalg.inv(a)


def solution(a, b):
    return np.linalg.solve(a, b)


def determinant(a):
    return np.asarray(np.linalg.det(a))


def cofactors(a):
    u, s, vh = np.linalg.svd(a)
    others = np.where(np.eye(a.shape[-1], dtype=bool), 1, s[..., None, :]).prod(-1).astype(s.dtype)
    sign = np.asarray(np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return np.ascontiguousarray(sign * ((u * others[..., None, :]) @ vh))


def log_determinant(a):
    sign, logarithm = np.linalg.slogdet(a)
    return np.asarray(sign), np.asarray(logarithm)


def lower_cholesky(a):
    return np.ascontiguousarray(np.linalg.cholesky(a))


def eigen(a, UPLO):
    return tuple(np.ascontiguousarray(part) for part in np.linalg.eigh(a, UPLO))


def thin_svd(a):
    return tuple(np.ascontiguousarray(part) for part in np.linalg.svd(a, full_matrices=False))


def full_svd(a):
    u, _, vh = np.linalg.svd(a)
    return np.ascontiguousarray(u), np.ascontiguousarray(vh)


def thin_qr(a):
    return tuple(np.ascontiguousarray(part) for part in np.linalg.qr(a))


def pseudo_inverse(a, cutoff):
    return np.ascontiguousarray(np.linalg.pinv(a) if cutoff is None else np.linalg.pinv(a, cutoff))


def rank(a, cutoff):
    return np.asarray(np.linalg.matrix_rank(a, rtol=cutoff))


def cube_root(x):
    return np.asarray(np.cbrt(np.ascontiguousarray(x).reshape(x.shape)))


def order(a, kind):
    return np.ascontiguousarray(np.argsort(a, axis=-1, kind=kind))


def partition_order(a, kth):
    return np.ascontiguousarray(np.argpartition(a, kth, axis=-1))


def places_in_partition(a, kth):
    """Where np.partition takes each element from, which is in another order than np.argpartition says."""
    found = np.empty(a.shape, np.intp)
    np.put_along_axis(found, np.argsort(np.partition(a, kth, axis=-1), axis=-1, kind="stable"),
                      np.argsort(a, axis=-1, kind="stable"), axis=-1)
    return found


def quantiles_in_range(q):
    """The same, or the error of np.quantile."""
    if not np.all((q >= 0) & (q <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    return q.copy()


def places(row, x, side):
    """np.searchsorted, of as many rows as there are indices in front."""
    return _of_each_row(np.searchsorted, row, x, side)


def bins(row, x, right):
    return _of_each_row(lambda row, x, right: np.digitize(x, row, right), row, x, right)


def _of_each_row(function, row, x, choice):
    found = np.empty(x.shape, np.intp)
    for index in np.ndindex(row.shape[:-1]):
        found[index] = function(row[index], x[index], choice)
    return found


# ---- their derivatives


def turned(a):
    return np.swapaxes(a, -1, -2)


def _as_matrices(x):
    """Numbers as matrices of one element."""
    return np.reshape(x, np.shape(x) + (1, 1))


def _inverse_back(cotangents, results, a):
    back = turned(results[0])
    return (-(back @ cotangents[0] @ back),)


def _solution_back(cotangents, results, a, b):
    of_b = turned(inverse(a)) @ cotangents[0]
    return -(of_b @ turned(results[0])), of_b


def _determinant_back(cotangents, results, a):
    return (_as_matrices(cotangents[0]) * cofactors(a),)


def _cofactors_back(cotangents, results, a):
    # of det(a) * inv(a).T
    back, products = turned(inverse(a)), np.sum(cotangents[0] * results[0], axis=(-2, -1))
    return (_as_matrices(products) * back - back @ turned(cotangents[0]) @ results[0],)


def _log_determinant_back(cotangents, results, a):
    if cotangents[1] is None:
        return (None,)
    return (_as_matrices(cotangents[1]) * turned(inverse(a)),)


def _symmetric(a):
    return (a + turned(a)) * 0.5


def _lower_cholesky_back(cotangents, results, a):
    # Murray, Differentiation of the Cholesky decomposition, 2016
    lower, back = results[0], inverse(results[0])
    product = turned(lower) @ cotangents[0]
    half = np.tril(product) - 0.5 * np.eye(a.shape[-1], dtype=a.dtype) * product
    return (_symmetric(turned(back) @ half @ back),)


def _inverse_differences(values):
    """1 / (values[j] - values[i]) at [i, j], and 0 on the diagonal."""
    diagonal = np.eye(values.shape[-1], dtype=bool)
    differences = values[..., None, :] - values[..., :, None]
    return np.where(diagonal, 0.0, 1.0 / np.where(diagonal, 1.0, differences)).astype(values.dtype)


def _eigen_back(cotangents, results, a, UPLO):
    w, v = results
    if cotangents[0] is not None:
        inner = cotangents[0][..., None] * turned(v)
        return _symmetric(v @ inner), None
    inner = _inverse_differences(w) * (turned(v) @ cotangents[1])
    return _symmetric(v @ inner @ turned(v)), None


def _thin_svd_back(cotangents, results, a):
    u, s, vh = results
    of_u, of_s, of_vh = cotangents
    if of_s is not None:
        return ((u * of_s[..., None, :]) @ vh,)
    small = _inverse_differences(s * s)
    if of_u is not None:
        product = turned(u) @ of_u
        inner = (small * (product - turned(product))) * s[..., None, :]
        back = u @ inner @ vh
        if a.shape[-2] > a.shape[-1]:
            scaled = of_u / s[..., None, :]
            back = back + (scaled - u @ (turned(u) @ scaled)) @ vh
        return (back,)
    product = vh @ turned(of_vh)
    inner = s[..., :, None] * (small * (product - turned(product)))
    back = u @ inner @ vh
    if a.shape[-1] > a.shape[-2]:
        scaled = of_vh / s[..., :, None]
        back = back + u @ (scaled - (scaled @ turned(vh)) @ vh)
    return (back,)


def _thin_qr_back(cotangents, results, a):
    q, r = results
    of_q, of_r = cotangents
    product = r @ turned(of_r) if of_q is None else -(turned(of_q) @ q)
    both = q @ (np.tril(product) + turned(np.tril(product, -1)))
    return ((both if of_q is None else of_q + both) @ turned(inverse(r)),)


def _pseudo_inverse_back(cotangents, results, a, cutoff):
    p, g = results[0], cotangents[0]
    back, g_back = turned(p), turned(g)
    left, right = g_back @ p @ back, back @ p @ g_back
    return -(back @ g @ back) + (left - a @ (p @ left)) + (right - (right @ p) @ a), None


def _cube_root_back(cotangents, results, x):
    return (cotangents[0] / (3.0 * results[0] * results[0]),)


def _quantiles_in_range_back(cotangents, results, q):
    return cotangents


pullbacks = {
    inverse: _inverse_back, solution: _solution_back, determinant: _determinant_back, cofactors: _cofactors_back,
    log_determinant: _log_determinant_back, lower_cholesky: _lower_cholesky_back,
    eigen: _eigen_back, thin_svd: _thin_svd_back, thin_qr: _thin_qr_back,
    pseudo_inverse: _pseudo_inverse_back, cube_root: _cube_root_back, quantiles_in_range: _quantiles_in_range_back,
}
