"""What torch's autograd does with a compiled call, equal to eager's: hooks, accumulation, modes, versions, higher derivatives."""
import gc
import threading
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import framejit  # noqa: E402
from compare import assert_close, compare_gradients  # noqa: E402


def both(function, check):
    """check(f) for the plain and the compiled function, each twice; their returned tensors are equal."""
    framejit.reset()
    compiled = framejit.compile(function)
    for _ in range(2):
        expected, actual = check(function), check(compiled)
        assert len(expected) == len(actual)
        for i, (a, e) in enumerate(zip(actual, expected)):
            if isinstance(e, torch.Tensor):
                assert_close(a, e, f"value {i}")
            else:
                assert a == e, f"value {i}: {a}, eager gives {e}"
    report = framejit.explain(compiled).so_far()
    assert framejit.cache_info()["internal_errors"] == 0, report
    return report


def leaf(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def test_a_pointwise_and_reduced_function_is_one_graph_and_no_fallback():
    report = both(lambda x, w: (torch.tanh(x * w) ** 2).sum(), lambda f: grads(f, leaf(3, 4), leaf(4, seed=1)))
    assert len(report.graphs) == 1 and not report.breaks and not report.fallbacks


def grads(f, *leaves):
    result = f(*leaves)
    result.backward()
    return [result, *(x.grad for x in leaves)]


def test_gradients_accumulate_into_grad():
    def check(f):
        x = leaf(5)
        for _ in range(3):
            f(x).backward()
        return [x.grad]

    both(lambda x: (x * x.sin()).sum(), check)


def test_one_leaf_used_in_several_pieces_is_accumulated_once():
    def f(x):
        y = (x * 2).exp()
        print(end="")
        return (y + x).sum()

    def check(f):
        x, calls = leaf(4), []
        x.register_hook(lambda g: calls.append(g.clone()))
        x.register_post_accumulate_grad_hook(lambda p: calls.append(p.grad.clone()))
        f(x).backward()
        return [x.grad, len(calls), *calls]

    both(f, check)


def test_hooks_on_results_see_and_change_gradients():
    def check(f):
        x = leaf(4)
        y = f(x)
        seen = []
        y.register_hook(lambda g: seen.append(g.clone()))
        y.register_hook(lambda g: g * 3)
        y.sum().backward()
        return [x.grad, *seen]

    both(lambda x: x.exp() * x, check)


def test_intermediate_gradients_can_be_retained():
    def check(f):
        x = leaf(4)
        y = f(x)
        y.retain_grad()
        (y * y).sum().backward()
        return [x.grad, y.grad]

    both(lambda x: x.exp() * x, check)


def test_second_and_third_derivatives():
    def check(f):
        x = leaf(4)
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first.detach()).sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sum(), x)
        return [first, second, third]

    report = both(lambda x: (x.sin() * x.exp()).tanh() + x ** 3, check)
    assert not report.fallbacks


@pytest.mark.parametrize("function", [
    lambda x: torch.softmax(x, -1), lambda x: F.log_softmax(x, -1), lambda x: F.layer_norm(x, (4,)), lambda x: F.gelu(x), lambda x: F.silu(x),
    lambda x: x.std(-1), lambda x: x.logsumexp(-1), lambda x: x @ x.mT, lambda x: F.softplus(x), lambda x: x.norm(dim=-1), lambda x: F.mish(x),
    lambda x: F.elu(x), lambda x: F.logsigmoid(x), lambda x: F.gelu(x, approximate="tanh"), lambda x: x.var(-1), lambda x: x.amax(-1) * x.sum(-1)])
def test_derivatives_agree_with_differences_to_second_order(function):
    compiled = framejit.compile(function)
    x = leaf(3, 4)
    assert torch.autograd.gradcheck(compiled, x) and torch.autograd.gradgradcheck(compiled, x)


def test_backward_twice_needs_retain_graph():
    def check(f):
        x = leaf(4)
        y = f(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(RuntimeError) as error:
            y.backward()
        return [x.grad, str(error.value)]

    both(lambda x: x.exp() * x, check)


@pytest.mark.parametrize("change", ["input", "result"])
def test_what_was_saved_must_not_change(change):
    def f(x, w):
        return (x * w).exp()

    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        data = x.detach().clone()
        y = f(data, w)
        with torch.no_grad():
            (data if change == "input" else y).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        return []

    both(f, check)


def test_what_was_not_saved_may_change():
    def check(f):
        x = leaf(4)
        data = torch.ones(4, dtype=torch.float64)
        y = f(x, data)
        data.add_(1)
        with torch.no_grad():
            y.mul_(2)
        y.sum().backward()
        return [x.grad]

    both(lambda x, data: (x + data) - 3, check)


def test_parameters_frozen_and_unfrozen_between_calls():
    def f(x, a, b):
        return ((x * a).relu() @ b).sum()

    def check(f):
        found = []
        a, b = leaf(4), leaf(4, 2, seed=1)
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
        for frozen in ((), ("a",), ("b",), ("a", "b"), ()):
            a.requires_grad_("a" not in frozen)
            b.requires_grad_("b" not in frozen)
            a.grad = b.grad = None
            y = f(x, a, b)
            found.append(y.requires_grad)
            if y.requires_grad:
                y.backward()
            found += [a.grad, b.grad]
        return [v for v in found if v is not None] + [v is None for v in found]

    both(f, check)


def test_grad_modes():
    def f(x, w):
        with torch.no_grad():
            scale = (x * w).sum()
        y = x * w / scale
        with torch.enable_grad():
            z = y + w
        return y, z, scale, x.detach() * w, y.detach(), z.requires_grad, scale.requires_grad

    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        y, z, scale, d, detached, *flags = f(x, w)
        with torch.no_grad():
            outside = f(x, w)
        with torch.inference_mode():
            inference = f(x, w)
        (y.sum() + z.prod() + d.sum()).backward()
        return [x.grad, w.grad, y, z, scale, d, detached, *flags, y.requires_grad, scale.requires_grad, detached.requires_grad,
                outside[0].requires_grad, inference[0].requires_grad, outside[0], inference[1]]

    both(f, check)


def test_unused_results_and_inputs():
    def f(x, y, unused):
        return x.sin(), x * y, (x > 0).sum(), unused

    def check(f):
        x, y, unused = leaf(4), leaf(4, seed=1), leaf(4, seed=2)
        a, b, count, same = f(x, y, unused)
        found = torch.autograd.grad(a.sum(), [x, y, unused], allow_unused=True)
        x2, y2 = leaf(4), leaf(4, seed=1)
        c, d, _, _ = f(x2, y2, unused)
        d.sum().backward()
        return [found[0], found[1] is None, found[2] is None, x2.grad, y2.grad, count, same is unused, count.requires_grad]

    both(f, check)


def test_an_input_without_a_path_is_refused_without_allow_unused():
    def check(f):
        x, y = leaf(4), leaf(4, seed=1)
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(f(x, y).sum(), [x, y])
        return [str(error.value)]

    both(lambda x, y: x.exp() + y.detach(), check)


def test_views_of_inputs_and_results_carry_gradients():
    def f(x):
        y = (x * 2).sin()
        return x[1:], x.t(), y, y[0], y.view(-1), y.t()

    def check(f):
        x = leaf(3, 4)
        results = f(x)
        sum((r * (i + 1)).sum() for i, r in enumerate(results)).backward()
        return [x.grad, *results, *(r.requires_grad for r in results), results[0]._base is x]

    both(f, check)


def test_non_contiguous_inputs_and_cotangents():
    def check(f):
        base = leaf(4, 6)
        y = f(base.t(), base[::2, ::2])
        (y.t() * torch.arange(24, dtype=torch.float64).reshape(4, 6)).sum().backward()
        return [base.grad]

    both(lambda a, b: a.exp() + b.sum(), check)


def test_in_place_on_what_needs_no_gradient_and_on_what_does():
    def f(x, buffer):
        buffer += 1
        y = x * buffer
        y += 3
        y.relu_()
        return y.sum()

    def check(f):
        x, buffer = leaf(4), torch.zeros(4, dtype=torch.float64)
        f(x, buffer).backward()
        return [x.grad, buffer, buffer._version]

    both(f, check)


def test_a_leaf_written_under_no_grad():
    def f(w, x):
        loss = (w * x).sum()
        with torch.no_grad():
            w -= 0.1
        return loss

    def check(f):
        w, x = leaf(4), torch.ones(4, dtype=torch.float64)
        f(w, x).backward()
        return [w, w.grad, w._version, w.is_leaf, w.requires_grad]

    both(f, check)


def test_non_scalar_and_integer_roots_raise_as_eager_does():
    def check(f):
        x = leaf(3)
        messages = []
        y, n = f(x)
        for root in (y, n):
            with pytest.raises(RuntimeError) as error:
                root.backward()
            messages.append(str(error.value))
        return messages

    both(lambda x: (x * 2, (x > 0).sum()), check)


def test_a_custom_function_and_checkpoint_around_compiled_code():
    from torch.utils.checkpoint import checkpoint

    def f(x):
        return (x.sin() * x).exp()

    def check(f):
        x = leaf(4)
        checkpoint(f, x, use_reentrant=False).sum().backward()
        y = leaf(4)
        checkpoint(f, y, use_reentrant=True).sum().backward()
        return [x.grad, y.grad]

    both(f, check)


def test_inference_mode_after_ordinary_calls():
    compiled = framejit.compile(lambda x: x * 2)
    x = torch.ones(3)
    compiled(x)
    for _ in range(2):
        with torch.inference_mode():
            y = compiled(x)
        assert torch.equal(y, x * 2) and y.is_inference()


def test_saved_tensors_hooks_are_called():
    def f(x, w):
        return (x * w).exp()

    def check(f):
        packed = []

        def pack(t):
            packed.append(tuple(t.shape))
            return t.detach().numpy().copy()

        x, w = leaf(4), leaf(4, seed=1)
        with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
            y = f(x, w)
        y.sum().backward()
        return [x.grad, w.grad, bool(packed)]

    both(f, check)


def test_bytes_saved_are_not_above_eager_s():
    def f(x, w):
        h = torch.tanh(x @ w)
        return (F.gelu(h) * torch.sigmoid(h)).softmax(-1).sum()

    def eager_bytes(x, w):
        storages = {}

        def pack(t):
            storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            result = f(x, w)
        assert result.requires_grad
        return sum(storages.values())

    x, w = leaf(64, 32), leaf(32, 32, seed=1)
    compiled = framejit.compile(f)
    node = compiled(x, w).grad_fn
    ours = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in node.saved_tensors}.values())
    assert 0 < ours <= eager_bytes(x, w) and not framejit.explain(compiled).so_far().breaks


@pytest.mark.parametrize("copied", [
    lambda x: x.clone(), lambda x: x.t().contiguous().t(), lambda x: x.float().double(), lambda x: torch.cat([x, x])[:2], lambda x: F.pad(x, (1, 1))[:, 1:-1],
    lambda x: x.repeat(2, 1)[:2], lambda x: torch.zeros_like(x).copy_(x), lambda x: x.expand(3, 2, 3).contiguous()[0]])
def test_a_copy_that_was_saved_does_not_see_later_writes_into_the_original(copied):
    def check(f):
        memory = numpy.arange(6.0).reshape(2, 3)
        x, w = torch.from_numpy(memory), leaf(2, 3)
        loss = f(x, w)
        x.add_(1)
        memory += 1  # moves no version counter
        loss.backward()
        return [w.grad]

    both(lambda x, w: (copied(x) * w).sum(), check)


def test_the_original_of_a_copied_result_may_be_written():
    def f(x, w):
        y = x.sin() * 3
        return y, (y.clone() * w).sum()

    def check(f):
        x, w = leaf(4).detach(), leaf(4, seed=2)
        y, loss = f(x, w)
        y.add_(1)
        loss.backward()
        return [w.grad]

    both(f, check)


def test_a_checkpoint_inside_of_compiled_code_computes_again_what_it_saved():
    # Checkpoints know saved tensors by their number: eager's, since backward computes them again in CPython's frames.
    from torch.utils.checkpoint import checkpoint

    def block(x, w):
        return (x * w).exp() * w

    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        loss = f(x, w)
        loss.backward()
        return [loss, x.grad, w.grad]

    both(lambda x, w: checkpoint(block, x, w, use_reentrant=False).sum(), check)


def test_nothing_is_kept_alive_after_backward():
    compiled = framejit.compile(lambda x: (x.exp() * x).sum())
    x = leaf(4)
    y = compiled(x)
    node, result = weakref.ref(y.grad_fn), weakref.ref(y)
    y.backward()
    del y
    gc.collect()
    assert result() is None and node() is None


def test_backward_on_another_thread():
    compiled = framejit.compile(lambda x: (x.exp() * x).sum())
    found = []

    def work(seed):
        x = leaf(50, seed=seed)
        compiled(x).backward()
        found.append(torch.allclose(x.grad, (x.exp() * (1 + x)).detach()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == [True] * 6


def test_sizes_that_vary():
    def f(x, w):
        return (F.layer_norm((x @ w).relu(), (w.shape[1],)) ** 3).mean()

    compiled = framejit.compile(f)
    for rows in (3, 5, 8, 13):
        for function in (f, compiled):
            x, w = leaf(rows, 4), leaf(4, 6, seed=1)
            function(x, w).backward()
            if function is f:
                expected = x.grad, w.grad
        assert_close(x.grad, expected[0], "x")
        assert_close(w.grad, expected[1], "w")
    assert len(framejit.explain(compiled).so_far().graphs) == 2


@pytest.mark.parametrize("make", [
    lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
    lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3), nn.LogSoftmax(-1)),
    lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.SiLU(), nn.Linear(8, 3)),
    lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)),
    lambda: nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True)], ids=["mlp", "norm", "batch_norm_dropout", "conv", "transformer"])
def test_modules_train_as_eager_does(make):
    losses = []
    for compiles in (False, True):
        torch.manual_seed(0)
        module = make().double()
        run = framejit.compile(module) if compiles else module
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        x = torch.randn(5, 6, dtype=torch.float64)
        if isinstance(module, nn.TransformerEncoderLayer):
            x = x[None]
        torch.manual_seed(1)
        history = []
        for _ in range(4):
            optimiser.zero_grad()
            y = run(x)
            loss = F.cross_entropy(y.reshape(-1, y.shape[-1]), torch.tensor([0, 1, 2, 1, 0]))
            loss.backward()
            optimiser.step()
            history.append(loss.detach())
        losses.append(history + [p.detach().clone() for p in module.parameters()])
    for i, (e, a) in enumerate(zip(*losses)):
        assert_close(a, e, f"value {i}", 1e-8)
    assert framejit.cache_info()["internal_errors"] == 0


def test_autocast_gives_eager_s_gradients():
    def f(x, w):
        return torch.relu(x @ w).float().sum()

    def check(f):
        x, w = leaf(4, 6, dtype=torch.float32), leaf(6, 3, seed=1, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = f(x, w)
        y.backward()
        return [x.grad, w.grad]

    both(f, check)


def test_graph_breaks_in_the_middle_keep_gradients():
    def f(x, w):
        h = (x * w).sin()
        if h.sum() > 0:
            h = h * 2
        else:
            h = h - 1
        k = float(h.detach().sum())
        return (h * w).sum() * k

    def check(f):
        found = []
        for seed in (0, 1, 2):
            x, w = leaf(4, seed=seed), leaf(4, seed=seed + 10)
            f(x, w).backward()
            found += [x.grad, w.grad]
        return found

    both(f, check)


def test_numpy_of_what_requires_a_gradient_raises_as_eager_does():
    import numpy as np

    for function in (lambda x: np.sin((x * 2).numpy()).sum(), lambda x: np.asarray(x * 2) + 1, lambda x: np.sin(x * 2)):
        with pytest.raises(RuntimeError) as expected:
            function(leaf(3))
        with pytest.raises(RuntimeError) as actual:
            framejit.compile(function)(leaf(3))
        assert str(actual.value) == str(expected.value)
    compiled = framejit.compile(lambda x: np.sin((x * 2).detach().numpy()).sum())
    x = leaf(3)
    assert compiled(x) == pytest.approx(float((x * 2).sin().sum().detach()))


def two_losses(x, w):
    return (x + 1).sum(), (x * w).exp().sum(), [w * 2, (w * w).sum()]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2, 0), (1, 0, 0)])
def test_results_that_share_nothing_saved_are_differentiated_one_after_the_other(order):
    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        a, b, (c, d) = f(x, w)
        for i in order:
            (a, b, c.sum(), d)[i].backward()
        return [g for g in (x.grad, w.grad) if g is not None]

    both(two_losses, check)


def test_results_that_share_something_saved_are_not():
    def f(x, w):
        h = (x * w).exp()
        return (h + 1).sum(), (h - w).sum()

    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        a, b = f(x, w)
        a.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            b.backward()
        return [x.grad, w.grad]

    both(f, check)


def test_hooks_of_results_run_from_the_last_to_the_first():
    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        names = []
        a, b, (c, d) = f(x, w)
        for name, result in zip("abcd", (a, b, c, d)):
            result.register_hook(lambda g, name=name: names.append(name))
        (a + b + c.sum() + d).backward()
        return [names, x.grad, w.grad]

    both(two_losses, check)


def test_an_input_that_another_result_reads_may_be_written():
    def f(x):
        return torch.sigmoid(x) * 3, (x * x).sum()

    def check(f):
        x = leaf(4)
        y, _ = f(x)
        with torch.no_grad():
            x.mul_(0.5)
        y.sum().backward()
        return [x.grad]

    both(f, check)


def test_second_derivatives_of_several_results():
    def check(f):
        x, w = leaf(4), leaf(4, seed=1)
        a, b, (c, d) = f(x, w)
        first = [torch.autograd.grad(r, w, create_graph=True)[0] for r in (b, d)]
        second = [torch.autograd.grad(g.sum(), [x, w], retain_graph=True, allow_unused=True) for g in first]
        return [*first, *(g for pair in second for g in pair if g is not None)]

    both(two_losses, check)


@pytest.mark.parametrize("leaf", ["dense", "transposed", "expanded", "gaps"])
def test_gradients_of_leaves_lie_as_eager_s(leaf):
    base = torch.randn(3, 8, dtype=torch.float64)
    layout = {"dense": base[:, :4].contiguous(), "transposed": base[:, :4].t().contiguous().t(), "expanded": base[0, :4].expand(3, 4), "gaps": base[:, ::2]}[leaf]
    for function in (lambda x: x.sum(), lambda x: x.mean(0), lambda x: x.t() * 2, lambda x: x.expand(2, *x.shape) * 1, lambda x: x[:1].sum(), lambda x: x.t().softmax(-1),
                     lambda x: x @ torch.ones(4, 5, dtype=x.dtype), lambda x: x.permute(1, 0).sum(0), lambda x: torch.stack([x, x]).sum(), lambda x: x.max()):
        strides = []
        for f in (function, framejit.compile(function)):
            x = layout.detach().requires_grad_()
            result = f(x)
            result.backward(torch.ones_like(result))
            strides.append(x.grad.stride())
        assert strides[0] == strides[1]


# ---- cotangents that are batches


def exponential_and_sum(x):
    return (x * x).exp() + x.sum()


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_batch_of_cotangents_gives_a_gradient_for_each(create_graph):
    def check(f):
        x = leaf(3)
        gradient, = torch.autograd.grad(f(x), x, torch.eye(3, dtype=x.dtype), is_grads_batched=True, create_graph=create_graph)
        return [gradient, gradient.requires_grad, *(torch.autograd.grad(gradient.sin().sum(), x) if create_graph else ())]

    assert not both(exponential_and_sum, check).fallbacks


def test_an_empty_batch_of_cotangents_gives_an_empty_gradient():
    def check(f):
        x = leaf(3)
        y = f(x)
        return torch.vmap(lambda v: torch.autograd.grad(y, x, v)[0])(torch.empty(0, 3, dtype=x.dtype)),

    both(exponential_and_sum, check)


def test_a_batch_of_cotangents_frees_what_was_saved():
    def check(f):
        x = leaf(3)
        y = f(x)
        torch.autograd.grad(y, x, torch.eye(3, dtype=x.dtype), is_grads_batched=True)
        with pytest.raises(RuntimeError, match="second time") as raised:
            torch.autograd.grad(y, x, torch.eye(3, dtype=x.dtype), is_grads_batched=True)
        return [type(raised.value).__name__]

    both(exponential_and_sum, check)


def test_of_several_results_some_may_have_a_batch_of_cotangents():
    def two(x):
        y = x.exp()
        return y * y.sum(), y + x, y.sin()

    def check(f):
        x, v = leaf(3), leaf(4, 3, seed=1).detach()
        first, second, _ = f(x)
        return torch.vmap(lambda v: torch.autograd.grad([first, second], x, [v, torch.ones_like(x)])[0])(v),

    both(two, check)


@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobians_and_hessians_of_torch_take_a_compiled_function(vectorize):
    both(exponential_and_sum, lambda f: [torch.autograd.functional.jacobian(f, leaf(3), vectorize=vectorize),
                                         torch.autograd.functional.hessian(lambda x: f(x).sum(), leaf(3), vectorize=vectorize)])


def test_batches_within_batches():
    def check(f):
        x, v = leaf(3), leaf(2, 4, 3, seed=1).detach()
        y = f(x)
        pullback = lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0]  # noqa: E731
        return [torch.vmap(torch.vmap(pullback))(v), torch.vmap(torch.vmap(pullback), in_dims=1)(v)]

    both(exponential_and_sum, check)


def test_legacy_batches_within_batches():
    from torch._vmap_internals import _vmap

    def check(f):
        x, v = leaf(3), leaf(2, 4, 3, seed=1).detach()
        y = f(x)
        pullback = lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0]  # noqa: E731
        return [_vmap(_vmap(pullback))(v), pullback(v[0, 0])]

    both(exponential_and_sum, check)


def test_under_a_transform_of_functions_a_compiled_function_is_derived_by_it():
    w = leaf(3, seed=2)

    def check(f):
        x = leaf(3).detach()
        through = torch.func.grad(f)(x)
        beside = torch.func.vjp(lambda y: f(x) * y, x)[1](torch.ones_like(x))[0]  # x and w are not the transform's
        return [f(x), through.detach(), beside.detach(), through.requires_grad, beside.requires_grad, *torch.autograd.grad(beside.sum(), w)]

    both(lambda x: (x * w).sin().sum(), check)


# ---- what a node holds


def test_a_result_lets_go_of_what_its_node_saved():
    def f(x):
        y = x.exp()
        return y * y.sin(), y

    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(3):
        x = leaf(3)
        results = compiled(x)
        seen = [weakref.ref(x), *map(weakref.ref, results)]
        gc.disable()
        try:
            del x, results
            assert [one() for one in seen] == [None] * 3
        finally:
            gc.enable()


def test_nodes_may_be_made_while_one_is_being_made():
    """By a finaliser that runs between."""
    inner = framejit.compile(lambda x: x.exp() * 2)
    outer = framejit.compile(lambda x, y: x * y)
    x, y, made = leaf(3), leaf(3, seed=1), []
    inner(x), outer(x, y)

    class Last:
        def __del__(self):
            made.append(inner(x))

    before = gc.get_threshold()
    try:
        gc.set_threshold(1)
        for _ in range(200):
            last = Last()
            last.itself = last
            del last
            made.append(outer(x, y))
    finally:
        gc.set_threshold(*before)
    assert len(made) > 300
    for result in made:
        x.grad = None
        result.sum().backward()
        assert_close(x.grad, y.detach() if torch.equal(result, x * y) else 2 * x.detach().exp(), "gradient")


class Marked(torch.Tensor):
    pass


def dual_gradient(y, x):
    with forward_ad.dual_level():
        gradient, = torch.autograd.grad(y, x, forward_ad.make_dual(torch.ones(3), torch.full((3,), 2.0)))
        return forward_ad.unpack_dual(gradient).tangent


COTANGENTS = {
    "a subclass": lambda y, x: torch.autograd.grad(y, x, torch.ones(3).as_subclass(Marked))[0],
    "negated lazily": lambda y, x: torch.autograd.grad(y, x, torch._neg_view(torch.ones(3)))[0],
    "zeros without memory": lambda y, x: torch.autograd.grad(y, x, torch._efficientzerotensor(3))[0],
    "sparse": lambda y, x: torch.autograd.grad(F.embedding(torch.tensor([0, 1]), y, sparse=True).sum(), x)[0],
    "with tangents": dual_gradient,
    "without tangents in forward mode": lambda y, x: forward_ad.unpack_dual(in_level(lambda: torch.autograd.grad(y, x, torch.ones(3))[0])).primal,
    "batched": lambda y, x: torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)[0],
}


def in_level(function):
    with forward_ad.dual_level():
        return function()


@pytest.mark.parametrize("kind", COTANGENTS)
def test_cotangents_of_every_kind(kind):
    given = []
    for f in (lambda x: x * x, framejit.compile(lambda x: x * x)):
        x = torch.arange(1.0, 4.0).requires_grad_() if kind != "sparse" else torch.ones(3, 2).requires_grad_()
        given.append(COTANGENTS[kind](f(x), x))
    # Of a sparse cotangent eager's gradient is sparse, or not, as its own operations decide.
    given = [gradient.to_dense() for gradient in given] if kind == "sparse" else given
    assert torch.equal(*given) and type(given[0]) is type(given[1]) and (given[0]._base is None) == (given[1]._base is None)
