"""What torch saves for a derivative decides which backward is an error: a second one, or one after a saved tensor was written in place.

Every case of the torch front end is asked for both, of each argument and of the result; eager's answer is the definition.
"""
import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "ops"))

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

import framejit  # noqa: E402
from compare import tensors  # noqa: E402
from test_torch_rows import CASES  # noqa: E402

OF_TWO = [
    "x * y", "x / y", "x + y", "x - y", "torch.where(y > 0, x, y)", "torch.maximum(x, y)", "torch.minimum(x, y)", "torch.fmax(x, y)", "torch.pow(x, y)",
    "torch.atan2(x, y)", "torch.hypot(x, y)", "torch.copysign(x, y)", "torch.fmod(x, y)", "x @ y.mT", "F.mse_loss(x, y)",
    "F.l1_loss(x, y)", "F.smooth_l1_loss(x, y)", "F.huber_loss(x, y)", "torch.lerp(x, y, 0.3)", "torch.addcmul(x, x, y)", "torch.addcdiv(x, x, y)",
    "x.masked_select(y > 0.5)", "x.masked_fill(y > 0.5, 0)", "torch.cat([x, y])", "torch.stack([x, y])", "F.binary_cross_entropy(x, y)",
    "F.binary_cross_entropy_with_logits(x, y)", "F.kl_div(x, y, reduction='sum')", "F.cosine_similarity(x, y)", "F.linear(x, y[0, 0])",
    "torch.outer(x[0, 0, 0], y[0, 0, 0])", "F.layer_norm(x, (5,), y[0, 0, 0], y[0, 0, 1])", "F.rms_norm(x, (5,), y[0, 0, 0])", "torch.clamp(x, y, y + 1)",
    "torch.bmm(x[0], y[0].mT)", "torch.dot(x.flatten(), y.flatten())", "torch.mv(x[0, 0], y[0, 0, 0])", "torch.addmm(x[0, 0, :, :3], x[0, 0], y[0, 0].mT)",
    "torch.einsum('abcd,abcd->ab', x, y)", "F.scaled_dot_product_attention(x, y, y)", "F.conv1d(x[0], y[0])", "x ** y", "y * 2 + x / 3", "2 ** x * y",
    "torch.addmm(x[0, 0, :, :3], y[0, 0], torch.ones(5, 3))", "F.linear(y[0], x[0, 0], torch.ones(3))", "F.linear(torch.ones(2, 5), x[0, 0], y[0, 0, :, 0])", "F.prelu(x, y[0, :, 0, 0])", "torch.cdist(x, y)", "torch.cross(x[..., :3], y[..., :3], dim=-1)",
    "torch.lerp(x, x * 2, y)", "torch.addcmul(x, y, y)", "torch.addcdiv(x, y, y + 1)", "torch.addcmul(x, x, y, value=2)", "torch.einsum('abcd,d->ab', x, y[0, 0, 0])",
    "x.index_put((torch.tensor([0]),), y[:1])", "x.index_copy(0, torch.tensor([0]), y[:1])", "torch.where(torch.ones(5) > 0, x, y)", "torch.max(x, y)",
    # By name, in any order.
    "torch.max(x, other=y)", "torch.min(other=y, input=x)", "torch.lerp(x, y, weight=x)", "torch.lerp(weight=torch.tensor(.5), end=y, input=x)",
    "torch.pow(x, exponent=y)", "torch.mul(other=y, input=x)", "torch.addcmul(x, tensor2=x, tensor1=y)",
]
# Results that are reshaped, reductions of one element, constants of torch's own, indices, and calls whose derivative depends on elements by indices.
OF_ONE = [
    "x.amin(1, keepdim=True)", "x.amax(1, keepdim=True)", "x[0, 0, 0, 0].max()", "x[0, 0, 0, 0].amin()", "x[:1].amin(0, keepdim=True)", "x[:, :1].logsumexp(1)",
    "x[[0, 1]]", "x[:, [0, 1, 1]]", "x[torch.tensor([0, 1])]", "x.kthvalue(2)[0]", "x.mode()[0]", "x.topk(2)[0]", "x.median(1)[0]", "x.sort()[0]",
    "torch.kron(x[0, 0], torch.ones(2, 2))", "x.index_fill(0, torch.tensor([0]), 2)", "x.index_put((torch.tensor([0]),), torch.tensor(2.))",
    "torch.addcmul(x, torch.ones(5), torch.ones(5))", "torch.addcmul(torch.ones(5), x, torch.ones(5), value=2)", "torch.addcdiv(x, torch.ones(5), torch.ones(5))",
    "torch.lerp(x, torch.ones(5), 0.5)", "torch.lerp(x, torch.ones(5), torch.ones(5))", "torch.where(torch.ones(5) > 0, x, 0)", "x.where(torch.ones(5) > 0, 0)",
    "x.masked_fill(torch.ones(5) > 2, 0)", "x.scatter(0, torch.zeros(1, 4, 3, 5, dtype=torch.long), 2.)", "torch.einsum('abcd,d->ab', x, torch.ones(5))",
]
# The rule for remainder() reads its operands, though the derivative is the cotangent.
MORE_ERRORS = {"x%3", "x%2.5", "torch.remainder(x,2)", "torch.remainder(x, x.roll(1, -1))"}


def leaf(seed):
    return torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) * 0.9 + 0.05


def outcome(function, leaves, written, times):
    """What `times` backwards say, after the tensor `written` (an argument, or "result") was written."""
    try:
        results = [result for result in tensors(function(*leaves)) if result.requires_grad]
    except Exception as error:
        return type(error).__name__
    if not results:
        return "no gradient"
    result = results[0]
    try:
        with torch.no_grad():
            if written is not None:
                (result if written == "result" else leaves[written]).mul_(1)
        for _ in range(times):
            result.backward(torch.ones_like(result))
    except RuntimeError as error:
        text = str(error)
        return "a second time" if "a second time" in text else "modified" if "modified by an inplace" in text else text
    return "fine"


def same_errors(case, names, graded):
    namespace = {"torch": torch, "F": F, "math": math}
    exec(f"def f({names}):\n    return {case}", namespace)
    framejit.reset()
    function = namespace["f"]
    compiled = framejit.compile(function)
    for written, times in [(None, 2), *((k, 1) for k in range(len(graded))), ("result", 1)]:
        made = [[leaf(k).requires_grad_(wanted) for k, wanted in enumerate(graded)] for _ in range(2)]
        expected = outcome(function, made[0], written, times)
        assert outcome(compiled, made[1], written, times) == expected, f"{times} backward, {written} written"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for case in CASES if case not in MORE_ERRORS] + OF_ONE)
def test_errors_of_a_backward_are_eager_s(case):
    same_errors(case, "x", [True])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("graded", [(True, False), (False, True), (True, True)], ids=["x", "y", "both"])
@pytest.mark.parametrize("case", OF_TWO)
def test_errors_of_a_backward_of_two_are_eager_s(case, graded):
    same_errors(case, "x, y", graded)


def test_a_tensor_that_torch_does_not_save_may_be_written():
    # The derivative of the call is computed from what the tensor was.
    def f(x):
        return F.cross_entropy(x, torch.tensor([0, 2, 1]))

    gradients = []
    for function in (f, framejit.compile(f)):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_()
        loss = function(x)
        with torch.no_grad():
            x.zero_()
        loss.backward()
        gradients.append(x.grad)
    assert torch.allclose(*gradients)


@pytest.mark.parametrize("function", [torch.prod, lambda x: x.cumprod(0), lambda x: x.softmax(0), lambda x: F.log_softmax(x, 0), lambda x: F.softmax(x, 0), lambda x: x.logsumexp(0)],
                         ids=["prod", "cumprod", "softmax", "f_log_softmax", "f_softmax", "logsumexp"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_saved_result_that_is_written_is_an_error_also_of_one_number(function, shape):
    def f(x):
        y = function(x)
        y += 1
        return y

    for g in (f, framejit.compile(f)):
        result = g(torch.ones(shape, requires_grad=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


@pytest.mark.parametrize("also_written", [False, True], ids=["not written", "result written"])
def test_a_tensor_that_a_later_piece_writes_again_is_an_error(also_written):
    def f(x, y):
        y += 1
        product = x * y
        if also_written:
            product += 1  # torch derives this one: the graph ends here
        else:
            framejit.graph_break()
        y.mul_(2)
        return product

    for function in (f, framejit.compile(f)):
        for version in (2, 4):
            x, y = leaf(0), leaf(1).detach()
            for _ in range(version // 2):
                result = function(x.requires_grad_(), y)
            with pytest.raises(RuntimeError, match=f"is at version {version}; expected version {version - 1} instead"):
                result.sum().backward()


def test_a_backward_in_compiled_code_frees_what_eager_s_does():
    def f(x):
        loss = F.leaky_relu(x * 2).sum()
        loss.backward()
        return loss

    for function in (f, framejit.compile(f)):
        with pytest.raises(RuntimeError, match="a second time"):
            function(leaf(0).requires_grad_()).backward()


@pytest.mark.parametrize("function", [lambda x: F.avg_pool1d(x, 2, 2), lambda x: torch.tensordot(x, x, 1)], ids=["avg_pool1d", "tensordot"])
def test_a_saved_result_that_torch_gives_as_a_view_leads_a_second_derivative(function):
    def f(x):
        p = function(x)
        return p * p

    seconds = []
    for g in (f, framejit.compile(f)):
        x = (torch.arange(16.0, dtype=torch.float64).reshape(4, 4) + 0.1).requires_grad_()
        (first,) = torch.autograd.grad(g(x).sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*seconds)


def test_a_backward_through_indices_of_no_elements_checks_none():
    gradients = []
    for f in (g := lambda x: x.gather(0, torch.zeros(x.shape, dtype=torch.int64)), framejit.compile(g)):
        x = torch.ones(0, requires_grad=True)
        f(x).sum().backward()
        gradients.append(x.grad.shape)
    assert gradients == [(0,), (0,)]
