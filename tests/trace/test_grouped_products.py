"""Products of groups of rows or of matrices, of which torch's own prediction knows bfloat16 alone."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402

CASES = {
    "rows by matrices": ((10, 8), (3, 8, 16), [3, 7, 10]), "a group without rows": ((10, 8), (3, 8, 8), [3, 3, 10]),
    "no rows": ((0, 8), (3, 8, 8), [0, 0, 0]), "matrices by matrices": ((3, 4, 8), (3, 8, 16), None),
    "matrices by columns": ((3, 4, 8), (8, 16), [8, 8, 16]), "rows that are not of sixteen bytes": ((10, 8), (3, 8, 6), [3, 7, 10]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("turned", [False, True])
def test_grouped_products(case, dtype, turned):
    if not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("torch has no grouped_mm")
    left, right, offsets = CASES[case]
    torch.manual_seed(1)
    x, w = torch.randn(left).to(dtype), torch.randn(right).to(dtype)
    w = w.transpose(-2, -1).contiguous().transpose(-2, -1) if turned else w
    offsets = offsets and torch.tensor(offsets, dtype=torch.int32)

    def f(x, w):
        product = torch.nn.functional.grouped_mm(x * 1.5, w, offs=offsets)
        return product, product * 2

    def run(call, derived):
        given = [array.detach().clone(memory_format=torch.preserve_format).requires_grad_(derived) for array in (x, w)]
        try:
            results = call(*given)
            if derived:
                (results[1].float() * torch.arange(results[1].numel()).reshape(results[1].shape)).sum().backward()
        except RuntimeError as error:
            return str(error)
        return [(result.detach(), result.stride()) for result in results], [array.grad for array in given]

    for derived in (False, True):
        framejit.reset()
        compiled, expected = framejit.compile(f), run(f, derived)
        for _ in range(2):
            ours = run(compiled, derived)
            assert isinstance(ours, str) == isinstance(expected, str) and (not isinstance(ours, str) or ours == expected)
            if not isinstance(ours, str):
                bound = 1e-5 if dtype == torch.float32 else 2e-2
                torch.testing.assert_close(ours, expected, rtol=bound, atol=bound)
        assert isinstance(expected, str) or not framejit.explain(compiled).so_far().breaks
        assert framejit.cache_info()["internal_errors"] == 0
