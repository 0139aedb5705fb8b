"""Attention that torch has a kernel of its own for, by operations of ours: values, gradients, masks, groups, sizes that vary, what is not finite."""
import math

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")
attention = torch.nn.functional.scaled_dot_product_attention


def exact(query, key, value, mask=None, causal=False, scale=None):
    """In f64, from the definition; a row in which everything is masked is zero."""
    query, key, value = query.double(), key.double(), value.double()
    repeats = query.size(1) // key.size(1)
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return torch.nan_to_num(scores.softmax(-1), 0.0) @ value


def parts(batch=2, heads=6, rows=9, keys=13, width=8, groups=None, dtype=torch.float32):
    return [torch.randn(batch, count, length, width, dtype=dtype)
            for count, length in ((heads, rows), (groups or heads, keys), (groups or heads, keys))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [6, 2, 1])
def test_masks_groups_and_scales(dtype, groups):
    torch.manual_seed(0)
    query, key, value = parts(groups=groups, dtype=dtype)
    nothing = torch.ones(9, 13, dtype=torch.bool)
    nothing[4] = False
    options = [{}, {"is_causal": True}, {"scale": -0.7}, {"scale": 0.0}, {"attn_mask": torch.rand(9, 13) > 0.4}, {"attn_mask": nothing},
               {"attn_mask": torch.rand(2, 1, 1, 13) > 0.4}, {"attn_mask": torch.randn(2, 6, 9, 13, dtype=dtype)},
               {"attn_mask": torch.randn(1, 6, 1, 13, dtype=dtype)},
               {"attn_mask": torch.zeros(9, 13, dtype=dtype).masked_fill(~nothing, -math.inf)}]
    for option in options:
        framejit.reset()
        compiled = framejit.compile(lambda q, k, v: attention(q, k, v, enable_gqa=groups != 6, **option))
        with torch.no_grad():
            ours, eager = compiled(query, key, value), attention(query, key, value, enable_gqa=groups != 6, **option)
        expected = exact(query, key, value, option.get("attn_mask"), "is_causal" in option, option.get("scale"))
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(ours.double(), expected, atol=tolerance, rtol=0, msg=str(option))
        torch.testing.assert_close(ours, eager, atol=tolerance, rtol=0, msg=str(option))
        report = framejit.explain(compiled).so_far()
        assert not report.breaks and not any(kernel.kind == "call" for kernel in report.kernels)


def test_sizes_that_vary():
    torch.manual_seed(0)
    compiled = framejit.compile(lambda q, k, v: attention(q, k, v, is_causal=True))
    for rows, keys in ((3, 3), (4, 7), (33, 40), (64, 64), (200, 190), (1, 5), (5, 1), (700, 700), (2, 2), (1024, 1024), (1030, 1200), (1200, 1030)):
        query, key, value = parts(rows=rows, keys=keys)
        torch.testing.assert_close(compiled(query, key, value).double(), exact(query, key, value, causal=True), atol=1e-5, rtol=0)
    assert len(framejit.explain(compiled).so_far().graphs) <= 8


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite(bad):
    """It stays in its row, or reaches every row that reads it, as in torch."""
    torch.manual_seed(0)
    compiled = framejit.compile(lambda q, k, v, m: attention(q, k, v, m))
    mask = torch.rand(9, 13) > 0.3
    for which in range(3):
        given = parts()
        given[which][0, 1, 4, 2] = bad
        for chosen in (mask, mask.float()):
            ours, eager = compiled(*given, chosen), attention(*given, chosen)
            torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [4, 2])
def test_gradients(dtype, groups):
    """Of all three, and of some; masked rows that see nothing have none. Backward keeps no scores."""
    torch.manual_seed(0)
    nothing = torch.rand(17, 23) > 0.3
    nothing[4] = False
    options = [{}, {"is_causal": True}, {"scale": -0.7}, {"attn_mask": nothing}, {"attn_mask": torch.randn(2, 1, 17, 23, dtype=dtype)},
               {"attn_mask": torch.zeros(17, 23, dtype=dtype).masked_fill(~nothing, -math.inf)}]
    for option in options:
        for derived in ((True, True, True), (False, True, False), (True, False, False)):
            given = [part.requires_grad_(wanted) for part, wanted in zip(parts(2, 4, 17, 23, 8, groups, dtype), derived)]
            weights = torch.randn(2, 4, 17, 8, dtype=dtype)
            framejit.reset()
            compiled = framejit.compile(lambda q, k, v: attention(q, k, v, enable_gqa=groups != 4, **option))
            found = []
            for function in (compiled, compiled.__wrapped__):
                result = function(*given)
                found.append([result, *torch.autograd.grad(result, [part for part in given if part.requires_grad], weights)])
            for ours, eager in zip(*found):
                torch.testing.assert_close(ours, eager, atol=2e-5 if dtype == torch.float32 else 1e-12, rtol=0, msg=str((option, derived)))
            report = framejit.explain(compiled).so_far()
            assert not report.breaks and not any(kernel.kind == "call" for kernel in report.kernels)
            assert report.memory[0].saved_for_backward == 0


def test_gradients_of_sizes_that_vary():
    torch.manual_seed(0)
    compiled = framejit.compile(lambda q, k, v: attention(q, k, v, is_causal=True))
    for rows, keys in ((5, 5), (7, 9), (64, 64), (1030, 1030), (1200, 1100)):
        given = [part.requires_grad_() for part in parts(1, 2, rows, keys)]
        ours = torch.autograd.grad(compiled(*given).square().sum(), given)
        eager = torch.autograd.grad(attention(*given, is_causal=True).square().sum(), given)
        for found, expected in zip(ours, eager):
            torch.testing.assert_close(found, expected, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("which", ["query", "key", "value", "result"])
def test_what_backward_reads_may_not_be_written(which):
    """As torch's kernel saves it: a result too, which our derivative does not read."""
    def written(q, k, v):
        q, k, v = q * 1, k * 1, v * 1
        result = attention(q, k, v)
        total = result.sum()
        {"query": q, "key": k, "value": v, "result": result}[which].add_(1)
        return total

    given = [part.requires_grad_() for part in parts()]
    for function in (written, framejit.compile(written)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            function(*given).backward()


def test_torch_is_called_where_it_has_no_such_kernel():
    def called(*arguments, **options):
        framejit.reset()
        compiled = framejit.compile(lambda *given: attention(*given, **options))
        ours, eager = compiled(*arguments), attention(*arguments, **options)
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager)
        return any(kernel.kind == "call" for kernel in framejit.explain(compiled).so_far().kernels)

    query, key, value = parts()
    assert not called(query, key, value)
    assert called(query[0], key[0], value[0])
    assert called(query, key, value[..., :5])
    assert called(*(part.half() for part in (query, key, value)))
    # Backward would hold all scores of a quarter of these rows.
    long = [torch.randn(1, 1, 6000, 1, requires_grad=True) for _ in range(3)]
    assert called(*long) and not called(*(part.detach() for part in long))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert called(query, key, value)
    assert called(query, key[:, :, :3], value)  # which torch takes
    for wrong in (key[:, :4], key[..., :4]):
        framejit.reset()
        with pytest.raises(RuntimeError):
            framejit.compile(lambda q, k, v: attention(q, k, v))(query, wrong, value)


def test_a_captured_graph_is_for_sizes_on_both_sides_of_the_bound():
    """By how much memory the scores take is decided which of two ways is faster, which a captured graph does not ask again."""
    query = torch.randn(1, 2, 8, 4, requires_grad=True)
    graph = framejit.capture(lambda query: attention(query, query, query), query, dynamic_shapes={"query": {2: framejit.Dim("rows", min=2)}})
    assert not any("<=" in text for text in graph.assumptions)
    other = torch.randn(1, 2, 30, 4, requires_grad=True)
    torch.testing.assert_close(graph(other), attention(other, other, other))
