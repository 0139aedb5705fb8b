"""vmap of torch code against torch.func.vmap: every function whose derivative is a rule of its own, and its gradient."""
import pytest

torch = pytest.importorskip("torch", reason="torch's functions are batched with torch installed")
from torch.nn import functional as F  # noqa: E402

import framejit  # noqa: E402

# x: f64[4, 3], one example, away from kinks.
COMPOSITES = {
    "detach": lambda x: x * x.detach(),
    "relu": torch.relu,
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": lambda x: F.softplus(x, beta=2.0, threshold=1.0),
    "elu": lambda x: F.elu(x, 0.7) + F.selu(x) + F.celu(x, 1.3),
    "logsigmoid": F.logsigmoid,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "softmax": lambda x: torch.softmax(x, 0) + torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 0),
    "logsumexp_kept": lambda x: torch.logsumexp(x, (0, 1), keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "layer_norm_weighted": lambda x: F.layer_norm(x, (4, 3), torch.ones(4, 3, dtype=x.dtype) * 2, torch.ones(4, 3, dtype=x.dtype)),
    "var": lambda x: x.var(0) + x.var(),
    "std": lambda x: x.std(1, keepdim=True) + x.std(),
    "norm": lambda x: x.norm(dim=1) if x.dim() > 1 else x.norm(),
    "norm_all": lambda x: torch.linalg.vector_norm(x),
    "normalize": lambda x: F.normalize(x, dim=0),
    "power": lambda x: x ** 3 + x.abs() ** 0.5 + x.abs().rsqrt(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_below": lambda x: x.clamp(min=0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.9),
    "max_along": lambda x: x.max(1).values + x.min(1).values,
    "amax": lambda x: x.amax(0) + x.amin(0),
    "max_all": lambda x: x.max() * x.min(),
    "gather": lambda x: x.gather(1, torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0]])),
    "index": lambda x: x[torch.tensor([0, 3, 3])] * x[1],
    "windows": lambda x: x.unfold(0, 2, 1).exp() * x[0, 0],
    "pad": lambda x: F.pad(x, (1, 0, 0, 2), value=0.5),
    "cat": lambda x: torch.cat([x, x[:2] * 2]),
    "cumsum": lambda x: x.cumsum(0) * x.cumsum(1),
    "matmul": lambda x: x @ x.t() @ torch.ones(4, 2, dtype=x.dtype),
    "flip_roll": lambda x: x.flip(0) * x.roll(1, 1),
    "where": lambda x: torch.where(x > 0, x * x, x.exp()),
    "sort_of_slices": lambda x: x[1:, ::2] * x[:-1, ::2],
}
POINT = torch.tensor([[0.31, -1.2, 0.83], [1.42, 0.52, -0.64], [-0.91, 1.13, 0.22], [0.75, -0.43, -1.61]], dtype=torch.float64)
EXAMPLES = torch.stack([POINT, POINT.flip(0) * 0.9, POINT * 0.7 + 0.05], dim=1)


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_torch_function_of_all_examples_is_that_of_each(name):
    function = COMPOSITES[name]

    def scalar(x):
        return torch.sin(function(x)).sum()

    each = [EXAMPLES[:, i] for i in range(3)]
    torch.testing.assert_close(framejit.vmap(function, 1)(EXAMPLES), torch.stack([function(x) for x in each]))
    expected = torch.stack([torch.func.grad(scalar)(x) for x in each])
    torch.testing.assert_close(framejit.vmap(framejit.grad(scalar), 1)(EXAMPLES), expected)
    torch.testing.assert_close(framejit.grad(lambda xs: torch.sin(framejit.vmap(function, 1)(xs)).sum())(EXAMPLES), expected.movedim(0, 1))
    torch.testing.assert_close(framejit.hessian(scalar)(POINT), torch.func.hessian(scalar)(POINT))


def test_torch_draws_are_refused():
    with pytest.raises(framejit.GraphBreakError, match="FJ125.*draws once"):
        framejit.vmap(lambda a: a + torch.rand(1))(torch.zeros(3))
    with pytest.raises(framejit.GraphBreakError, match="FJ125.*draws once"):
        framejit.vmap(lambda a: F.dropout(a, 0.5))(torch.zeros(3, 2))
