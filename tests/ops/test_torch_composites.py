"""Functions of torch that are put into graphs as what they are made of, and operands that a library call reads where they lie."""
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

EQUATIONS = ["td,edf->tef", "tef,efd,te->td", "td,tkdf->tkf", "ij,jk", "ij,kj->ik", "bhqd,bhkd->bhqk", "bhqk,bkhd->bqhd", "bij,bjk,bkl->bil",
             "tec,td->ecd", "ij,ij->", "ij,ij->i", "i,i", "abc,cd->ad", " ij , jk -> i k ", "Ab,bc->Ac"]
# torch lays these out by other rules: they stay calls.
CALLS = ["ij,kj->ki", "ij,ij->ij", "i,j->ij", "...ij,...jk->...ik", "ii,ij->j", "ij->ji"]


def sized(equation, seed=0, **sizes):
    generator = torch.Generator().manual_seed(seed)
    terms = equation.replace(" ", "").replace("...", "").split("->")[0].split(",")
    return [torch.randn([sizes.get(letter, 3 + ord(letter) % 4) for letter in term], generator=generator) for term in terms]


def steps(compiled, kind):
    return [kernel for kernel in framejit.explain(compiled).so_far().kernels if kernel.kind == kind]


def same(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("equation", EQUATIONS + CALLS)
def test_einsum(equation):
    compiled = framejit.compile(lambda *operands: torch.einsum(equation, *operands))
    for seed, sizes in enumerate([{}, dict(t=9, i=8, b=5), dict(t=11, i=2, b=2), dict(i=1, t=1, a=1), dict(d=1, j=1), dict(b=0, i=0)]):
        operands = sized(equation, seed, **sizes)
        same(compiled(*operands), torch.einsum(equation, *operands))
        turned = [operand.flip(0).mT.contiguous().mT if operand.dim() > 1 else operand for operand in operands]
        same(compiled(*turned), torch.einsum(equation, *turned))


def test_einsum_is_products():
    compiled = framejit.compile(lambda x, w: F.gelu(torch.einsum("td,edf->tef", x, w)))
    x, w = torch.randn(64, 32), torch.randn(4, 32, 48)
    same(compiled(x, w), F.gelu(torch.einsum("td,edf->tef", x, w)))
    assert not steps(compiled, "call")


def test_einsum_of_what_does_not_fit_raises_as_torch_does():
    compiled = framejit.compile(lambda x, y: torch.einsum("ij,jk->ik", x, y))
    with pytest.raises(RuntimeError, match="does not broadcast|size"):
        compiled(torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(RuntimeError):
        framejit.compile(lambda x: torch.einsum("ij,jk->iz", x, x))(torch.ones(2, 2))


def recurrence(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.filterwarnings("ignore")
def test_associative_scan(dim, reverse):
    from torch._higher_order_ops import associative_scan

    def scan(a, b):
        return associative_scan(recurrence, (a, b), dim, reverse=reverse, combine_mode="generic")

    compiled = framejit.compile(scan)
    for length in (7, 12, 1):
        shape = [3, 4, 5]
        shape[dim] = length
        a, b = torch.rand(shape), torch.randn(shape)
        with torch.no_grad():
            for found, expected in zip(compiled(a, b), scan(a, b), strict=True):
                same(found, expected)
        if length == 7:
            assert not framejit.explain(compiled).so_far().breaks


def test_index_add_meets_repeated_indices_in_order():
    def add(x, index, source):
        return x.index_add(0, index, source), torch.index_add(x, 1, index[:3], source[:, :3].mT.mT[:4])

    compiled = framejit.compile(add)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        x, index, source = torch.arange(20).reshape(4, 5).to(dtype), torch.tensor([3, 0, 3, 3]), (torch.arange(20).reshape(4, 5) * 3 + 1).to(dtype)
        for found, expected in zip(compiled(x, index, source), add(x, index, source), strict=True):
            assert found.dtype == dtype and torch.equal(found, expected)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, index + 1, source)
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, index - 1, source)


def experts(x, index, weight, value):
    out = torch.zeros_like(x)
    mask = F.one_hot(index, 5).permute(2, 1, 0)
    for e in range(5):
        k, token = torch.where(mask[e])
        out.index_add_(0, token, F.linear(x[token], weight[e]) * value[token, k, None])
    return out


@pytest.mark.filterwarnings("ignore")
def test_a_loop_over_experts_adds_to_the_rows_it_took():
    compiled, generator = framejit.compile(experts), torch.Generator().manual_seed(0)
    for count in (6, 6, 6, 9, 1, 6):
        x, weight, value = (torch.randn(shape, generator=generator) for shape in ((count, 8), (5, 8, 8), (count, 2)))
        index = torch.randint(0, 4, (count, 2), generator=generator)
        same(compiled(x, index, weight, value), experts(x, index, weight, value))


def test_one_hot():
    compiled = framejit.compile(lambda x: F.one_hot(x, 4))
    for x in (torch.tensor([[3, 0], [1, 1]]), torch.tensor(2), torch.zeros(0, 2, dtype=torch.int64)):
        assert torch.equal(compiled(x), F.one_hot(x, 4)) and compiled(x).dtype == torch.int64
    assert not steps(compiled, "call")
    for wrong in (torch.tensor([[4, 0]]), torch.tensor([[0, -1]])):
        with pytest.raises(RuntimeError, match="Class values"):
            compiled(wrong)


VIEWS = {
    "transposed": lambda x, w: F.conv1d(x.transpose(1, 2), w),
    "a part": lambda x, w: F.conv1d(x[1:, 2:].mT, w),
    "repeated": lambda x, w: F.conv1d(x[:1].mT.expand(3, 64, 70), w),
    "of what was computed": lambda x, w: F.conv1d((x * 2 + 1).mT, w),
    "of a call's result": lambda x, w: F.conv1d(F.conv1d(x.mT, w)[:, :64, 3:], w),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_library_call_reads_a_view_where_it_lies(name):
    function = VIEWS[name]
    compiled = framejit.compile(function)
    for length in (70, 70, 70, 70):
        x, w = torch.randn(3, length, 64), torch.randn(96, 64, 3)
        with torch.no_grad():
            same(compiled(x, w), function(x, w), 1e-4)
    kinds = [kernel.kind for kernel in framejit.explain(compiled).so_far().kernels]
    assert "copy" not in kinds and kinds.count("call") == len(kinds) - (name == "of what was computed"), kinds


def test_views_of_what_is_written_later_are_read_before():
    def step(x, w):
        found = F.conv1d(x.mT, w)
        x.mul_(2)
        return found, F.conv1d(x.mT, w)

    compiled = framejit.compile(step)
    w = torch.randn(96, 64, 3)
    for length in (70, 70, 90, 110):
        x = torch.randn(3, length, 64)
        ours, theirs = x.clone(), x.clone()
        with torch.no_grad():
            for found, expected in zip(compiled(ours, w), step(theirs, w), strict=True):
                same(found, expected, 1e-4)
        assert torch.equal(ours, theirs)


def test_gradients_through_views_that_a_call_is_given():
    function = VIEWS["transposed"]
    compiled, results = framejit.compile(function), []
    for run in (function, compiled):
        x, w = torch.randn(3, 70, 64, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.ones(96, 64, 3).requires_grad_()
        run(x, w).square().mean().backward()
        results.append((x.grad, w.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
