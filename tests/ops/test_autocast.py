"""Functions whose operands torch's autocast of the CPU casts: in the graph, with the casts, or by the library; and first calls inside of modes."""
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit

F = torch.nn.functional


def with_part_off(x, w, b):
    inside = x @ w.T
    with torch.autocast("cpu", enabled=False):
        outside = x @ w.T
    return inside.float() + outside


CASES = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "matmul": lambda x, w, b: x @ w.T,
    "mm": lambda x, w, b: torch.mm(x, w.T) + b,
    "addmm": lambda x, w, b: torch.addmm(b, x, w.T, beta=0.5, alpha=2.0),
    "bmm": lambda x, w, b: torch.bmm(x[None], w.T[None]),
    "baddbmm": lambda x, w, b: torch.baddbmm(b, x[None], w.T[None]),
    "convolution": lambda x, w, b: F.conv1d(x[None], w[:, :12, None].contiguous(), b),
    "mse_loss": lambda x, w, b: F.mse_loss(F.linear(x, w, b), torch.ones(12, 8)),
    "l1_loss": lambda x, w, b: F.l1_loss(F.linear(x, w, b), torch.ones(12, 8)),
    "cross_entropy": lambda x, w, b: F.cross_entropy(F.linear(x, w, b), torch.arange(12) % 8),
    "nll_loss": lambda x, w, b: F.nll_loss(F.log_softmax(F.linear(x, w, b), 1), torch.arange(12) % 8),
    "cat": lambda x, w, b: torch.cat([x, x * 2]),
    "cat of two dtypes": lambda x, w, b: torch.cat([F.linear(x, w, b), torch.ones(12, 8)]),
    "stack": lambda x, w, b: torch.stack([x, x * 2], 1),
    "stack of two dtypes": lambda x, w, b: torch.stack([F.linear(x, w, b), torch.ones(12, 8)], 1),
    "two layers": lambda x, w, b: F.linear(F.gelu(F.linear(x, w, b)), w.T.contiguous()).sum(1),
    "float64": lambda x, w, b: x.double() @ w.double().T,
    "one is cast already": lambda x, w, b: x.bfloat16() @ w.bfloat16().T,
    "not cast by it": lambda x, w, b: torch.mv(x, w[0]) * torch.dot(x[0], w[0]),
    "einsum": lambda x, w, b: torch.einsum("ij,kj->ik", x, w),
    "prod": lambda x, w, b: F.linear(x, w, b)[:, :2].prod(1),
    "softmax": lambda x, w, b: F.softmax(F.linear(x, w, b), 1),
    "layer_norm": lambda x, w, b: F.layer_norm(F.linear(x, w, b), (8,)),
    "a part without it": with_part_off,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_autocast(name, dtype):
    torch.manual_seed(0)
    given = torch.randn(12, 16), torch.randn(8, 16), torch.randn(8)

    def trained(function):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        with torch.autocast("cpu", dtype=dtype):
            result = function(*leaves)
        result.float().square().mean().backward()
        return [result.detach(), *(leaf.grad for leaf in leaves)]

    compiled = framejit.compile(CASES[name])
    for _ in range(2):
        for found, expected in zip(trained(compiled), trained(CASES[name])):
            assert (found is None) == (expected is None)
            if expected is not None:
                assert found.dtype == expected.dtype and found.stride() == expected.stride()
                bound = 0.02 * (1 + float(expected.float().abs().max()))
                torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["linear", "matmul", "addmm", "bmm", "convolution", "cross_entropy", "cat", "two layers"])
def test_no_call_of_the_library_is_needed(name):
    given = torch.randn(12, 16), torch.randn(8, 16), torch.randn(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        report = framejit.explain(CASES[name])(*given)
    assert len(report.graphs) == 1 and "extern_call" not in str(report.graphs[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_with_out_nothing_is_cast(dtype):
    def outcome(function):
        out = torch.zeros(3, 5, dtype=dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            try:
                function(torch.ones(3, 4) / 3, torch.ones(4, 5), out)
            except RuntimeError as error:
                return str(error)
        return out

    found, expected = (outcome(f) for f in (framejit.compile(lambda a, b, out: torch.matmul(a, b, out=out)), lambda a, b, out: torch.matmul(a, b, out=out)))
    assert found == expected if isinstance(expected, str) else torch.equal(found, expected)


def test_a_weight_may_be_written_before_backward():
    """The derivative reads the copy that autocast made of it."""
    def loss(x, w):
        return F.linear(x, w).sum()

    torch.manual_seed(0)
    x = torch.randn(4, 6)
    gradients = []
    for f in (loss, framejit.compile(loss)):
        w = torch.ones(5, 6, requires_grad=True)
        y = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = f(y, w)
        with torch.no_grad():
            w.mul_(3)
        result.backward()
        gradients.append((y.grad, w.grad))
    for found, expected in zip(*gradients):
        torch.testing.assert_close(found, expected, rtol=0.01, atol=0.01)


FIRST = """
import framejit, torch
def f(x):
    return torch.relu(x * 2 + 1).sum(1)
with {mode}:
    report = framejit.explain(f)(torch.ones(3, 4))
print(len(report.graphs), [b.code for b in report.breaks])
"""


@pytest.mark.parametrize("mode", ["torch.inference_mode()", "torch.autocast('cpu', torch.bfloat16)", "torch.no_grad()"])
def test_a_process_whose_first_call_is_inside_of_a_mode_compiles(mode):
    """How torch lays out its tensors was found out outside of modes only, so servers that are inside of one all the time ran eagerly."""
    done = subprocess.run([sys.executable, "-c", FIRST.format(mode=mode)], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "1 []", done.stdout + done.stderr
