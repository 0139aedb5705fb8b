"""Products of matrices that lie by columns, in steps, backwards, or show elements more than once: read as they lie, with eager's values."""
import itertools

import numpy as np
import pytest

import framejit

SHAPES = [((5, 7), (7, 3)), ((1, 300), (300, 200)), ((200, 1), (1, 9)), ((300, 200), (200, 1)), ((2000, 64), (64, 48)), ((3, 20, 30), (3, 30, 10)),
          ((70, 400), (400, 90)), ((3, 5, 8), (8, 6)), ((0, 4), (4, 3)), ((4, 0), (0, 3))]
FUNCTIONS = [lambda a, b: a @ b, lambda a, b: np.tanh(a @ b + 1) * 2, lambda a, b: (a @ b).sum(-1), lambda a, b: np.exp(-(np.maximum(a, 0) @ b)**2),
             lambda a, b: a @ b @ np.swapaxes(b, -1, -2)]


def layouts(shape, dtype):
    rng = np.random.default_rng(0)
    rows, columns, stack = *shape[-2:], shape[:-2]
    x = rng.standard_normal(shape).astype(dtype)
    by_columns = np.ascontiguousarray(np.swapaxes(x, -1, -2))
    part, steps = (rng.standard_normal((*stack, *sizes)).astype(dtype) for sizes in ((columns + 3, rows + 5), (2 * columns, 2 * rows)))
    turned = [by_columns, part[..., :columns, :rows], steps[..., ::2, ::2], by_columns[..., ::-1, :], by_columns[..., ::-1]]
    repeated = [x[..., :1], x[..., :1, :]] if x.size else []
    return [x, *(np.swapaxes(matrix, -1, -2) for matrix in turned), *(np.broadcast_to(line, shape) for line in repeated)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left, right", SHAPES)
def test_any_layouts(left, right, dtype):
    for function in FUNCTIONS:
        compiled = framejit.compile(function)
        for a, b in itertools.product(layouts(left, dtype), layouts(right, dtype)):
            expected, found = function(a, b), compiled(a, b)
            scale = max(1, np.abs(expected).max(initial=0))
            np.testing.assert_allclose(found / scale, expected / scale, rtol=2e-4 if dtype == "float32" else 1e-9, atol=1e-4 if dtype == "float32" else 1e-11)


def test_a_matrix_by_columns_is_not_copied():
    a, b = np.ones((8, 64), "float32"), np.ones((2048, 64), "float32").T
    compiled = framejit.compile(lambda a, b: a @ b)
    assert compiled(a, b).tolist() == (a @ b).tolist()
    assert [kernel.kind for kernel in framejit.explain(compiled).so_far().kernels] == ["matmul"]


def test_large_products_of_bfloat16_are_the_librarys_where_the_processor_has_them():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        pytest.skip("the processor does not multiply bfloat16")
    torch.manual_seed(0)
    functions = [lambda a, b: a @ b, lambda a, b: torch.nn.functional.linear(a, b.t()) + 1, lambda a, b: torch.addmm(a[:, :1], a, b),
                 lambda a, b: torch.bmm(a[None], b[None])]
    for function in functions:
        compiled = framejit.compile(function)
        for size in (8, 256, 16, 200):
            a, b = (torch.randn(size, size).bfloat16() for _ in range(2))
            ours, eager = compiled(a, b), function(a, b)
            torch.testing.assert_close(ours, eager, atol=0 if size > 100 else 0.1, rtol=0)
            assert ours.stride() == eager.stride()
        report = framejit.explain(compiled).so_far()
        assert not report.breaks and any(kernel.kind == "call" for kernel in report.kernels)
