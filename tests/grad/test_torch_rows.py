"""Every case of the torch front end with a gradient: results and gradients equal to eager's, at ordinary and at singular points.

Singular: ties, both zeros, infinities, NaN, the bounds of clamp, zero vectors. Eager's own derivative is the definition.
"""
import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "ops"))

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

import framejit  # noqa: E402
from compare import compare_gradients  # noqa: E402
from torch_cases import POINTWISE, REDUCTIONS, SHAPES  # noqa: E402

SHAPE = (2, 4, 3, 5)
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -3.0, 6.0, math.inf, -math.inf, math.nan, 1.0, 1.0, 20.0, -20.0, 1e-3]

MORE = [
    "torch.maximum(x, x.flip(0))", "torch.minimum(x, x.roll(1, -1))", "torch.fmax(x, x.roll(1, -1))", "torch.fmin(x, x.roll(1, -1))",
    "torch.pow(x.abs(), x.roll(1, -1))", "torch.pow(0.0, x)", "x ** 0", "x ** 1", "x ** -0.5", "x ** -2", "x ** -3", "x ** 1.5",
    "x.clamp(-1, 1)", "x.clamp(0, 0)", "x.clamp(min=1)", "F.hardtanh(x)", "torch.where(x > 0, 1 / x, x)", "torch.where(x > 0, x.log(), x.exp())",
    "torch.atan2(x, x.roll(1, -1))", "torch.hypot(x, x * 0)", "torch.copysign(x, x.roll(1, -1))", "torch.remainder(x, x.roll(1, -1))",
    "torch.fmod(x, x.roll(1, -1))", "torch.where(torch.isnan(x), torch.zeros_like(x), x)", "x / x.roll(1, -1)", "x * 0", "(x * 0).sqrt()",
    "torch.linalg.vector_norm(x * 0, dim=-1)", "torch.linalg.vector_norm(x, math.inf)", "torch.linalg.vector_norm(x, 1, dim=0)",
    "(x * 0 + 1).prod(-1)", "(x * 0).prod(-1)", "(x * (x > 0)).prod(-1)", "(x * 0 + 1).amax(-1)", "(x * 0 + 1).max(-1)[0]", "(x * 0 + 1).max()",
    "(x * 0).std(-1)", "x.masked_fill(x > 0, -math.inf).softmax(-1)", "x.masked_fill(x == x, -math.inf).logsumexp(-1)",
    "F.normalize(x * 0, dim=-1)", "F.embedding(torch.tensor([[0, 1, 1], [0, 0, 1]]), x.reshape(24, 5))", "x.gather(1, torch.zeros(2, 4, 3, 5, dtype=torch.int64))",
    "x.index_select(1, torch.tensor([1, 1, -1 + 1]))", "torch.take_along_dim(x, x.argmax(1, keepdim=True), 1)", "x.masked_select(x > 0)", "x @ x.mT", "x[0] @ x[1].mT",
    "F.linear(x, x.reshape(24, 5))", "F.linear(x, x.reshape(24, 5), x.reshape(24, 5)[:, 0])", "torch.addmm(x[0, 0, 0], x[0, 0].T, x[0, 0])",
    "x + x.sum(0)", "x * x[0, 0, 0, 0]", "x.detach() * x", "(x.detach() + x)[..., 1:]", "torch.stack([x, x.detach()])", "x.expand(2, 2, 4, 3, 5) * 2",
    "x.double() * x", "x.half().float() * x.float()", "x * torch.arange(5)", "(x > 0) * x", "x.sum().sqrt()", "F.gelu(x) * F.silu(x)",
    "F.layer_norm(x, (5,), x[0, 0, 0], x[0, 0, 1])", "F.rms_norm(x, (5,), x[0, 0, 0])", "F.group_norm(x, 2, x[0, 0, 0, :4], x[0, 0, 1, :4])",
    "F.cross_entropy(x[0, :, :, 0], torch.tensor([0, 2, 1, 1]))", "F.nll_loss(x[0, :, :, 0].log_softmax(-1), torch.tensor([0, 2, 1, 1]))",
    "F.cross_entropy(x, torch.arange(30).reshape(2, 3, 5) % 4)", "F.cross_entropy(x[:, :, 0], torch.arange(10).reshape(2, 5) % 4, reduction='sum')",
    "F.cross_entropy(x[0, 0, 0], torch.tensor(3))", "F.cross_entropy(x[0, 0], torch.tensor([4, 0, -100]), reduction='none')",
    "F.cross_entropy(x[0, 0], torch.tensor([4, 0, 2]), ignore_index=2)", "F.cross_entropy(x[0, 0], torch.tensor([2, 2, 2]), ignore_index=2)",
    "F.cross_entropy(x[0, 0], torch.tensor([4, 0, 2]), weight=torch.arange(5).to(x.dtype), ignore_index=2)",
    "F.cross_entropy(x, torch.arange(30).reshape(2, 3, 5) % 4, weight=torch.arange(4).to(x.dtype), reduction='none')",
    "F.cross_entropy(x[0, 0], torch.tensor([4, 0, 2]), label_smoothing=0.1)", "F.cross_entropy(x[0, 0], torch.tensor([4, 0, 2]), label_smoothing=1.0, reduction='none')",
    "F.cross_entropy(x, torch.arange(30).reshape(2, 3, 5) % 4, weight=torch.arange(4).to(x.dtype), label_smoothing=0.3, ignore_index=1)",
    "F.cross_entropy(x[0, 0], torch.full((3, 5), 0.2, dtype=x.dtype))", "F.nll_loss(x, torch.arange(30).reshape(2, 3, 5) % 4, reduction='none')",
    "F.nll_loss(x[0, 0], torch.tensor([4, 0, 2]), torch.arange(5).to(x.dtype), reduction='sum')", "x.gather(-1, x.argmax(-1, keepdim=True))",
    "x.log_softmax(1).gather(1, torch.full((2, 1, 3, 5), 3))", "x.index_add(1, torch.tensor([3, 0, 3]), x[:, 1:] * 2)",
    "x.sin().index_add_(-1, torch.tensor([1, 1]), x[..., :2])", "torch.einsum('abcd,bed->ace', x, x[0])", "torch.einsum('abcd,bd,cd->ab', x, x[0, :, 0], x[0, 0])",
]
# Where eager has two answers: its derivative at NaN differs between whole vectors and the elements left over.
NAN_BY_POSITION = {"F.relu6(x)", "F.elu(x)", "F.celu(x,2.0)", "F.selu(x)", "F.hardtanh(x)", "F.hardtanh(x,-2,3)"}
# Eager's f32 kernel of gelu gives NaN at infinity, its f64 kernel does not.
INFINITY_BY_DTYPE = {"F.gelu(x)", "F.gelu(x) * F.silu(x)", "F.gelu(x,approximate='tanh')"}
CASES = list(dict.fromkeys(POINTWISE + REDUCTIONS + SHAPES + MORE))


def values(kind, dtype):
    generator = torch.Generator().manual_seed(3)
    count = math.prod(SHAPE)
    if kind == "ordinary":
        x = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
        x = torch.where(x.abs() < 0.05, x + 0.3, x)
    elif kind == "positive":
        x = torch.rand(SHAPE, generator=generator, dtype=torch.float64) * 0.9 + 0.05
    elif kind == "ties":
        x = torch.randint(-2, 3, SHAPE, generator=generator).double()
    else:
        order = torch.randint(0, len(SPECIAL), (count,), generator=generator)
        x = torch.tensor(SPECIAL, dtype=torch.float64)[order].reshape(SHAPE)
    return x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: str(d).split(".")[-1])
@pytest.mark.parametrize("kind", ["ordinary", "positive", "ties", "special"])
@pytest.mark.parametrize("case", CASES)
def test_gradient_is_eager_s(case, kind, dtype):
    namespace = {"torch": torch, "F": F, "math": math}
    exec(f"def f(x):\n    return {case}", namespace)
    x = values(kind, dtype)
    if case in NAN_BY_POSITION:
        x = torch.where(x.isnan(), 0.25, x)
    if case in INFINITY_BY_DTYPE:
        x = torch.where(x.isinf(), 0.25, x)
    compare_gradients(namespace["f"], x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("code", ["torch.tanh(x)", "x - x.tanh()", "F.tanhshrink(x)", "x * 2 + torch.tanh(x)"])
def test_the_derivative_of_tanh_in_half_types_is_rounded_once_as_torch_s_kernel_does(code, dtype):
    f = eval(f"lambda x: {code}")
    eager, ours = (torch.linspace(-4, 4, 101, dtype=dtype).requires_grad_() for _ in range(2))
    f(eager).sum().backward()
    framejit.compile(f, fullgraph=True)(ours).sum().backward()
    assert torch.equal(eager.grad, ours.grad)
