"""Library functions that run as one node of the graph: random, mutating, returning views or tuples, with sizes that vary."""
import copy
import os
import subprocess
import sys

import numpy as np
import pytest

import framejit
from harness import Outcome, compare, torch

if torch is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def agree(function, *arguments, calls=3, breaks=(), **options):
    """`function`, compiled, gives eager's result, draws and final generator state on each of several calls."""
    framejit.reset()
    compiled = framejit.compile(function)
    for call in range(calls):
        torch.manual_seed(call)
        eager = Outcome(function, *copy.deepcopy((arguments, {})))
        after = torch.get_rng_state()
        torch.manual_seed(call)
        ours = Outcome(compiled, *copy.deepcopy((arguments, {})))
        compare(ours, eager, **options)
        assert torch.equal(torch.get_rng_state(), after), "the generator was left in another state"
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert info["internal_errors"] == 0 and info["eager_replays"] == 0, report
    if breaks is not None:
        assert [b.name for b in report.breaks] == list(breaks), report
    return report


X = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 10


@pytest.mark.parametrize("function", [
    lambda x: F.dropout(x * 2, 0.3) + 1,
    lambda x: F.dropout(x.t(), 0.5) + 1,
    lambda x: torch.rand_like(x) + x,
    lambda x: torch.bernoulli(x / 10) * 2,
    lambda x: torch.bernoulli(x, 0.25) + torch.rand(4, 6) + torch.randn(6),
    lambda x: torch.multinomial(x + 1, 2) + torch.randint(0, 9, (4, 1)),
    lambda x: torch.normal(x, 0.5) * 2,
    lambda x: torch.randperm(5) + x.sum(),
    lambda x: F.alpha_dropout(x, 0.2, True) + 1,
    lambda x: F.dropout2d(x[None, None], 0.5, True) * 2,
    lambda x: F.rrelu(x - 1, training=True) + 1,
    lambda x: (F.dropout(x, 0.5, inplace=True), x + 1),
    lambda x: F.dropout(x, 1.0) + 1,
    lambda x: F.gumbel_softmax(x, hard=True) * 2,
], ids=range(14))
def test_random_functions_draw_what_eager_draws(function):
    agree(function, X, breaks=None)


def test_draws_keep_their_order():
    def f(x):
        a = torch.rand_like(x)
        b = F.dropout(x, 0.5)
        x.normal_()
        c = torch.randn(2)
        return a + b, c, x * 2

    agree(f, X.clone())


def test_a_failed_program_leaves_the_generator_as_it_was():
    def f(x, i):
        y = torch.rand_like(x) + 1
        return y[i] * 2

    torch.manual_seed(0)
    compiled = framejit.compile(f)
    compiled(X, torch.tensor([1, 2]))
    state = torch.get_rng_state()
    with pytest.raises(IndexError):
        f(X, torch.tensor([9, 2]))
    expected = torch.get_rng_state()
    torch.set_rng_state(state)
    with pytest.raises(IndexError):
        compiled(X, torch.tensor([9, 2]))
    # CPython ran the piece again, once, from the state before it.
    assert torch.equal(torch.get_rng_state(), expected)


def test_a_generator_of_the_user_s_own():
    generator = torch.Generator().manual_seed(1)

    def f(x):
        return torch.rand(3, generator=generator) + torch.bernoulli(x / 10, generator=generator).sum()

    compiled = framejit.compile(f)
    ours = [compiled(X), compiled(X)]
    generator.manual_seed(1)
    for mine in ours:
        assert torch.equal(mine, f(X))


@pytest.mark.parametrize("function", [
    lambda x: (x.normal_(), x * 2),
    lambda x: (x.clone().bernoulli_(0.5), x),
    lambda x: (x[1].uniform_(2, 3), x + 1),
    lambda x: (x.index_fill_(0, torch.tensor([1]), 5.0), x + 1),
    lambda x: (x.scatter_(1, torch.zeros(4, 1, dtype=torch.int64), 7.0), x.sum()),
    lambda x: (x.index_add_(0, torch.tensor([0, 2]), torch.ones(2, 6)), x * 2),
    lambda x: (x.renorm_(2, 0, 1.0), x * 2),
    lambda x: (torch.sort(x, out=(x, torch.empty(4, 6, dtype=torch.int64))), x + 1),
    lambda x: (x.erfinv_(), x + 1),
    lambda x: F.batch_norm(x, None, None, training=True) * 2,
], ids=range(10))
def test_functions_that_write_into_their_arguments(function):
    agree(function, X.clone(), breaks=None)


def test_mutations_are_undone_with_the_program():
    def f(x, i):
        x.clamp_(max=1).normal_()
        return (x * 2)[i]

    compiled = framejit.compile(f)
    torch.manual_seed(0)
    compiled(X.clone(), torch.tensor([1]))
    torch.manual_seed(0)
    ours, eager = X.clone(), X.clone()
    with pytest.raises(IndexError):
        compiled(ours, torch.tensor([9]))
    torch.manual_seed(0)
    with pytest.raises(IndexError):
        f(eager, torch.tensor([9]))
    assert torch.equal(ours, eager)


def test_batch_norm_in_training_updates_its_statistics():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    modules = [module, copy.deepcopy(module)]
    versions = [{name: x._version for name, x in m.state_dict().items()} for m in modules]
    compiled = framejit.compile(modules[0])
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 3, 6, 6)
            torch.testing.assert_close(compiled(x), modules[1](x))
    for (name, ours), eager in zip(modules[0].state_dict().items(), modules[1].state_dict().values()):
        torch.testing.assert_close(ours, eager, msg=name)
        assert ours._version - versions[0][name] == eager._version - versions[1][name], name
    report = framejit.explain(compiled).so_far()
    assert not report.breaks and len(report.graphs) == 1, report


@pytest.mark.parametrize("function", [
    lambda x: x.diagonal() + 1,
    lambda x: (x.diagonal(), x + 1),
    lambda x: (x.unfold(1, 3, 2), x + 1),
    lambda x: (x.as_strided((2, 2), (6, 1)), x * 2),
    lambda x: [part * 2 for part in x.tensor_split(3, 1)],
    lambda x: (x.tensor_split(3, 1), x * 2),
    lambda x: ((x + 1).diagonal(), x * 2),
    lambda x: (torch.hsplit(x, 2), x * 2),
], ids=range(8))
def test_functions_that_return_views_of_their_arguments(function):
    agree(function, X)


def test_a_view_sees_what_is_written_after_it_was_made():
    def f(x):
        view = x.diagonal()
        x.mul_(2)
        y = view + 1
        return y, view

    agree(f, X)


def test_a_write_through_such_a_view_breaks():
    def f(x):
        y = x * 2
        y.diagonal().add_(1)
        return y + 1

    agree(f, X, breaks=None)


@pytest.mark.parametrize("function", [
    lambda x: torch.topk(x, 2),
    lambda x: torch.topk(x, 2).values + 1,
    lambda x: torch.sort(x, dim=0, descending=True),
    lambda x: x.sort().indices + 1,
    lambda x: torch.kthvalue(x, 2, 1),
    lambda x: torch.median(x, 0),
    lambda x: torch.mode(x, 1),
    lambda x: torch.linalg.qr(x),
    lambda x: torch.linalg.svd(x + 1).S * 2,
    lambda x: torch.cummax(x, 1),
    lambda x: torch.aminmax(x),
    lambda x: torch.einsum("ij,kj->ik", x, x) + 1,
    lambda x: F.max_pool1d(x, 2) + 1,
    lambda x: F.max_pool1d(x, 2, return_indices=True),
    lambda x: torch.var_mean(x, 1),
    lambda x: torch.frexp(x),
    lambda x: torch.cdist(x, x) + 1,
    lambda x: F.interpolate(x[None], 9) * 2,
    lambda x: torch.histc(x, 4) + 1,
    lambda x: torch.triu_indices(3, 3) + 1,
    lambda x: torch.hann_window(5) * x.sum(),
], ids=range(21))
def test_tuples_and_single_results(function):
    agree(function, X, breaks=None)


def test_results_are_what_eager_returns():
    result = framejit.compile(lambda x: torch.topk(x * 2, 2))(X)
    assert type(result) is torch.return_types.topk and result.values is result[0]
    framejit.reset()


@pytest.mark.parametrize("function", [
    lambda x: F.max_pool1d(x, 2) + 1,
    lambda x: F.conv1d(x[None], torch.ones(2, 4, 3)[:, :x.shape[0]], stride=2) + 1 if x.shape[0] == 4 else x,
    lambda x: torch.einsum("ij,kj->ik", x, x) + 1,
    lambda x: torch.sort(x, 1).values * 2,
    lambda x: torch.cdist(x, x + 1),
    lambda x: F.interpolate(x[None], scale_factor=2) * 2,
    lambda x: torch.kron(x, x),
    lambda x: x.diagonal() + 1,
], ids=range(8))
def test_sizes_that_vary(function):
    framejit.reset()
    compiled = framejit.compile(function)
    for rows, columns in [(4, 6), (4, 9), (4, 12), (4, 7), (5, 7), (6, 20), (3, 2)]:
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-6)
        assert compiled(x).stride() == function(x).stride()
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["eager_replays"] == 0


def test_one_graph_serves_pooling_at_every_size():
    compiled = framejit.compile(lambda x: F.avg_pool2d(F.max_pool2d(x, 2) + 1, 3, stride=2) * 2)
    for size in (16, 20, 21, 30, 33, 47):
        x = torch.randn(1, 2, size, size)
        torch.testing.assert_close(compiled(x), F.avg_pool2d(F.max_pool2d(x, 2) + 1, 3, stride=2) * 2)
    assert len(framejit.explain(compiled).so_far().graphs) <= 3


def layouts(shape):
    """Of the queries, keys or values of attention: (batch, heads, length, width), as programs have them."""
    batch, heads, length, width = shape
    yield torch.randn(shape)
    yield torch.randn(batch, length, heads, width).transpose(1, 2)
    yield torch.randn(batch, length, heads, 3 * width)[..., width:2 * width].transpose(1, 2)
    yield torch.randn(length, batch, heads, width).permute(1, 2, 0, 3)
    yield torch.randn(batch, heads, width, length).transpose(2, 3)
    yield torch.randn(1, 1, length, width).expand(shape)


def traced_once(function, *arguments):
    framejit.reset()
    compiled = framejit.compile(function)
    eager, ours = function(*arguments), compiled(*arguments)
    # f32 and f64 are products and a softmax of ours, in another order than torch's kernel.
    torch.testing.assert_close(ours, eager, atol=0 if eager.element_size() < 4 else 1e-5, rtol=0)
    assert ours.stride() == eager.stride()
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert len(report.graphs) == 1 and info["segments"] == 1 and info["eager_replays"] == 0 and not report.breaks, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_what_attention_returns_is_predicted(dtype):
    for shape in ((2, 4, 5, 8), (1, 1, 1, 3)):
        rows = torch.randn(*shape[:2], 7, shape[3]).to(dtype)
        for query in layouts(shape):
            query = query.to(dtype)
            traced_once(lambda q: F.scaled_dot_product_attention(q, q, q), query)
            traced_once(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3), query)
            traced_once(lambda q, k: F.scaled_dot_product_attention(q, k, k), query, rows)
            traced_once(lambda q: F.scaled_dot_product_attention(q[0], q[0], q[0]), query)
            traced_once(lambda q: F.scaled_dot_product_attention(q[0, 0], q[0, 0], q[0, 0], is_causal=True), query)
            wide = torch.randn(*rows.shape[:3], 9).to(dtype)
            traced_once(lambda q, k, w: F.scaled_dot_product_attention(q, k, w), query, rows, wide)
            traced_once(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), query, rows[:, :1])
            for mask in (torch.ones(shape[2], 7, dtype=torch.bool), torch.ones(shape[0], 1, 1, 7, dtype=torch.bool),
                         torch.randn(shape[2], 7).to(dtype), torch.randn(7, shape[2]).to(dtype).t(),
                         torch.randn(*shape[:3], 7).to(dtype), torch.randn(shape[1], shape[2], 7).to(dtype)):
                traced_once(lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m), query, rows, mask)


def test_attention_by_a_mask_that_requires_a_gradient_is_torchs():
    """torch has another way of computing it, with other strides."""
    for function in (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
                     lambda q, m: F.scaled_dot_product_attention(q, q, q, m * 2, scale=2.0)):
        framejit.reset()
        compiled = framejit.compile(function)
        query, mask = torch.randn(2, 8, 4, 16).transpose(1, 2), torch.randn(8, 8)
        for wanted in (True, False, True):
            results = []
            for call in (function, compiled):
                given = mask.clone().requires_grad_(wanted)
                result = call(query, given)
                if wanted:
                    result.sum().backward()
                results.append((result.detach(), result.stride(), given.grad))
            (eager, strides, gradient), (ours, our_strides, our_gradient) = results
            torch.testing.assert_close(ours, eager)
            assert our_strides == strides
            torch.testing.assert_close(our_gradient, gradient)
        assert framejit.cache_info()["eager_replays"] == 0 and not framejit.explain(compiled).so_far().breaks


@pytest.mark.parametrize("call", ["F.scaled_dot_product_attention(x, x, x)", "F.scaled_dot_product_attention(x[0], x[0], x[0], is_causal=True)",
                                  "torch.nn.LSTM(8, 8)(x[0])[0]", "torch.linalg.vector_norm(x, 3, dim=(1, 2))"])
@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
def test_a_prediction_imports_no_other_compiler(call, training):
    program = f"""
import sys
import torch
import torch.nn.functional as F
import framejit
from framejit._support import meta

x = torch.randn(2, 4, 5, 8, requires_grad={training})
torch.manual_seed(0)
compiled = framejit.compile(lambda x: {call} * 2)
result = compiled(x)
if {training}:
    result.sum().backward()
assert framejit.explain(compiled).so_far().graphs
assert "torch._dynamo" not in sys.modules, "torch._dynamo was imported"
assert not [function for function in meta._switched or () if hasattr(function, "__dynamo_disable")]
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "FRAMEJIT_STRICT": "1"})
    assert done.returncode == 0, done.stderr


def test_a_wrong_prediction_is_corrected_and_traced_again():
    """Of a meta tensor whose channels are last it returns one whose channels are not."""
    def f(x):
        return F.pad(x, (1, 1, 1, 1), mode="reflect") + 1

    def image(size):
        return torch.randn(2, 3, size, 5).to(memory_format=torch.channels_last)

    report = agree(f, image(5))
    assert len([g for g in report.graphs]) >= 1
    framejit.reset()
    compiled = framejit.compile(f)
    compiled(image(5))
    assert len(framejit.explain(compiled).so_far().graphs) == 1  # remembered for every other function
    for size in (5, 6, 7, 9):
        x = image(size)
        torch.testing.assert_close(compiled(x), f(x))
        assert compiled(x).stride() == f(x).stride()
    assert framejit.cache_info()["eager_replays"] == 0


def test_channels_last_convolution():
    convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last).requires_grad_(False)

    def f(x):
        return convolution(x).relu() * 2

    agree(f, torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))


@pytest.mark.parametrize("write", [lambda t: t.__setitem__(torch.tensor([0, 2]), 5.0), lambda t: t.lgamma_(), lambda t: t.cumsum_(0)])
def test_a_call_that_writes_into_numpys_memory_leaves_numpys_array(write):
    """The library's own result is a tensor; the memory it stands for is an ndarray's."""
    def array(x):
        n = torch.zeros_like(x).numpy() + 1
        write(torch.from_numpy(n))
        return n

    def tensor(x):
        t = torch.from_numpy(torch.zeros_like(x).numpy() + 1)
        write(t)
        return t

    for function in (array, tensor):
        eager, ours = function(torch.arange(4.0)), framejit.compile(function)(torch.arange(4.0))
        assert type(eager) is type(ours) and eager.tolist() == ours.tolist()
        if function is tensor:
            assert eager._version == ours._version


@pytest.mark.parametrize("function", [lambda x: x.sum(0, dtype=torch.int64), lambda x: x.prod(dtype=torch.int32), lambda x: x.cumsum(0, dtype=torch.int16)])
def test_integers_of_what_requires_a_gradient_are_refused(function):
    with pytest.raises(RuntimeError, match="Autograd not support dtype"):
        framejit.compile(function)(torch.ones(3, requires_grad=True))
    agree(function, torch.ones(3))


def test_alpha_of_halves():
    """torch's kernel rounds alpha too, and in the last few elements it does not."""
    for dtype in (torch.float16, torch.bfloat16):
        t = torch.randn(35, generator=torch.Generator().manual_seed(0)).to(dtype)
        for f in (lambda t: torch.add(t, t, alpha=300.7), lambda t: torch.sub(t, t.flip(0), alpha=0.1)):
            assert torch.equal(framejit.compile(f)(t), f(t))


def test_operands_of_torchs_calls_are_tensors_where_numpys_calls_are_too():
    """The array a program makes for an operand may be of a dtype, or lie, as no array of NumPy's does."""
    def f(y, x):
        n = y.numpy() + 1
        return np.cbrt(n), torch.lgamma(x * 2), torch.heaviside(torch.from_numpy(n.real.copy()), x.select(1, 0).double())

    y = torch.randn(3, dtype=torch.float64)
    for x in (torch.arange(9.0).reshape(3, 3).to(torch.bfloat16), torch.arange(9.0).reshape(3, 3).t()):
        agree(f, y, x)


@pytest.mark.parametrize("fill", [lambda i, z: i.fill_(z.sum()), lambda i, z: i.masked_fill_(i > 0, z.sum()), lambda i, z: i.__setitem__(i > 0, z.sum()),
                                  lambda i, z: i.__setitem__(..., z.sum()), lambda i, z: i[None].__setitem__(slice(None), z.sum())],
                         ids=["fill_", "masked_fill_", "mask", "all", "view"])
def test_integers_filled_by_what_requires_a_gradient_require_one(fill):
    for function in (fill, framejit.compile(fill)):
        i = torch.ones(3, dtype=torch.int64)
        function(i, torch.ones(3, requires_grad=True))
        assert i.requires_grad and i.tolist() == [3, 3, 3]


def test_attention_with_a_derived_mask_that_torch_refuses():
    query = torch.randn(2, 4, 8, requires_grad=True)

    def f(q):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=q @ q.mT, is_causal=True)

    for function in (f, framejit.compile(f)):
        with pytest.raises(RuntimeError, match="is_causal"):
            function(query)


def stats():
    return torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)), torch.zeros(3), torch.ones(3)


@pytest.mark.parametrize("copied", ["clone", "negated", "itself"])
@pytest.mark.parametrize("function", ["_native_batch_norm_legit", "native_batch_norm", "rrelu_with_noise"])
def test_what_a_schema_says_is_written_is_written_once(function, copied):
    def f(x, mean, variance):
        if copied == "clone":
            x, mean, variance = x.clone(), mean.clone(), variance.clone()
        if copied == "negated":
            x, mean, variance = -(-x), -(-mean), -(-variance)
        if function == "rrelu_with_noise":
            noise = x.clone()
            return torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.3, True), noise
        return getattr(torch, function)(x, None, None, mean, variance, True, 0.5, 1e-5)[0], mean, variance

    compiled = framejit.compile(f)
    for _ in range(2):
        told = []
        for call in (f, compiled):
            torch.manual_seed(1)
            given = stats()
            told.append((call(*given), given))
        torch.testing.assert_close(told[1], told[0])


@pytest.mark.parametrize("gradient", [False, True])
def test_a_call_that_returns_its_argument_at_some_sizes_does_so(gradient):
    def f(x, n):
        return torch.nn.functional.local_response_norm(x, n)

    compiled = framejit.compile(f)
    for shape, n in (((2, 6, 3), 2), ((1, 1, 2), 1), ((0, 1, 2), 1), ((3, 1, 2), 1), ((0, 5, 2), 1)):
        x = torch.ones(shape, requires_grad=gradient)
        eager, ours = f(x, n), compiled(x, n)
        assert (ours is x) == (eager is x)
        torch.testing.assert_close(ours, eager)
