"""Results of one compiled call that are computed from each other: each is a tensor of autograd's graph, as eager's are."""
import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

import framejit  # noqa: E402
from compare import assert_close, tensors  # noqa: E402


def leaf(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


class Held:
    pass


def chain(x, w):
    h = (x * w).exp()
    logits = h @ w
    return h, logits, (logits * h.sum(-1)).tanh().sum()


def shared(x, w):
    h = (x * w).exp()
    return h * 1, h.sum(), h.sin()


def logits_and_loss(x, w):
    y = torch.relu(x @ w[:, None])
    return y, F.cross_entropy(torch.cat([y, -y], 1), torch.tensor([0, 1, 0]))


def copied(x, w):
    y = (x * w).sin()
    z = y.clone()
    return y, z, (z * w).sum(), y.cos()


def recurrent(x, w):
    h, states = torch.zeros(4, dtype=x.dtype), []
    for row in x:
        h = torch.tanh(row * w + h * w.sin())
        states.append(h)
    return torch.stack(states), h, h.sum()


def held(x, w):
    o, items = Held(), []
    o.h = (x * w).exp()
    items.append(o.h.sum(-1))
    return o.h, items, (items[0] * items[0]).sum()


def softmax_and_log(x, w):
    p = torch.softmax(x * w, -1)
    return p, p.log().mean(), p.max(-1).values


def moments(x, w):
    v, m = torch.var_mean(x * w, -1)
    return v, m, v + m


def linear_only(x, w):
    t = x.t() + 1
    return t, t.sum(0), t - 1


def library_call(x, w):
    q, r = torch.linalg.qr((x * w)[:, :3])
    return q, (q @ r).sum(), r.diagonal().prod()


def view_and_loss(x, w):
    a = x * w
    b = a[1:]
    return b, (b * 3).sum()


def base_and_view(x, w):
    a = (x * w).exp()
    b = a.t()
    return a, b, (b * b).sum(), a.sum() * 2


def view_of_view(x, w):
    a = (x * w).sin()
    b = a[1:]
    c = b.t()
    return c, b, (c * c).sum() + b.sum(), c[0], a


def views_of_an_input(x, w):
    b = x[1:]
    return b, (b * w).exp().sum(), x.t(), b[:, 1:]


def several_views(x, w):
    a = (x * w).cos()
    p, q = a[:1], a[1:]
    return p, q, (p.sum() * q).tanh().sum(), a.mean(), p[0]


def expanded(x, w):
    a = (w * 2).exp()
    b = a.expand(3, 4)
    c = b[1:]
    return b, c, (b * x).sum(), c.sum(), a


def expanded_and_unsqueezed(x, w):
    a = (w * 2).exp().expand(3, 4)
    return a, a.unsqueeze(-1), a[:, None], (a * x).sum(-1)


def selected(x, w):
    a = (x * w).exp()
    b, c, d = a[0], a[:, 1], a[:, ::2]
    return b, c, d, b.dot(w) * c.sum(), (d * d).mean(-1)


def reshaped(x, w):
    a = (x * w).exp()
    b = a.reshape(-1)
    c = b.unflatten(0, (2, 6)).unsqueeze(1)
    return c, b, (b.log() * b).sum(), c.squeeze(1).sum(0)


def copy_of_a_view(x, w):
    b = (x * w)[1:]
    y = b.clone()
    return b, y, (y * b).sum(), b.t().contiguous()


def view_and_base_are_read(x, w):
    h = (x * w).exp()
    a = h * 2
    b = a[1:]
    return b, (b * h[1:]).sum() + a.sin().sum()


VIEWS = [view_and_loss, base_and_view, view_of_view, views_of_an_input, several_views, expanded, expanded_and_unsqueezed, selected, reshaped,
         copy_of_a_view, view_and_base_are_read]
FUNCTIONS = [chain, shared, logits_and_loss, copied, recurrent, held, softmax_and_log, moments, linear_only, library_call, *VIEWS]
every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)


def results(f):
    x, w = leaf(3, 4), leaf(4, seed=1)
    return x, w, tensors(f(x, w))


def compare(function, check):
    """check(f, numbers of results) gives tensors, None or texts: equal for the plain and the compiled function, which is called often."""
    framejit.reset()
    compiled = framejit.compile(function)
    count = len(results(function)[2])
    expected, actual = check(function, count), check(compiled, count)
    assert len(expected) == len(actual)
    for (name, e), (_, a) in zip(expected, actual):
        if isinstance(e, torch.Tensor) and isinstance(a, torch.Tensor):
            if a.shape != e.shape or not torch.allclose(a, e, rtol=0, atol=1e-12):  # 0 but for rounding
                assert_close(a, e, name, 1e-8)
        else:
            assert a is e if e is None else a == e, f"{name}: {a}, eager gives {e}"
    report = framejit.explain(compiled).so_far()
    assert framejit.cache_info()["internal_errors"] == 0 and not report.fallbacks, report


def total(result):
    return (result * torch.linspace(1, 2, result.numel(), dtype=result.dtype).reshape(result.shape)).sum()


def attempt(call):
    try:
        return call()
    except RuntimeError as error:
        return "a second time" if "a second time" in str(error) else "modified" if "modified by an inplace" in str(error) else str(error)


@every_function
def test_each_result_can_be_derived_by_each_other(function):
    def check(f, count):
        found = []
        x, w, made = results(f)
        for a, b in itertools.product(range(count), range(-2, count)):
            by = (x, w)[b] if b < 0 else made[b]
            if a != b:
                found.append((f"{a} by {b}", attempt(lambda: torch.autograd.grad(total(made[a]), by, retain_graph=True, allow_unused=True)[0])))
        return found

    compare(function, check)


@every_function
def test_hooks_on_results_see_and_change_the_whole_gradient(function):
    # torch gives the hook of a result None where a node of several results gets a gradient for another one: its own var_mean, qr.
    def check(f, count):
        found = []
        for root in range(count):
            x, w, made = results(f)
            seen = {}
            for k, result in enumerate(made):
                result.retain_grad()
                result.register_hook(lambda g, k=k: seen.__setitem__(k, g.clone()) if g is not None else None)
                result.register_hook(lambda g, k=k: g * (k + 2) if g is not None else None)
            total(made[root]).backward()
            found += [(f"hook {k}, root {root}", seen.get(k)) for k in range(count)]
            found += [(f"grad {k}, root {root}", result.grad) for k, result in enumerate(made)]
            found += [(f"x, root {root}", x.grad), (f"w, root {root}", w.grad)]
        return found

    compare(function, check)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f not in (moments, library_call)], ids=lambda f: f.__name__)
def test_hooks_run_in_eager_s_order(function):
    def check(f, count):
        found = []
        for root in range(count):
            _, _, made = results(f)
            order = []
            for k, result in enumerate(made):
                result.register_hook(lambda g, k=k: order.append(k))
            total(made[root]).backward()
            found.append((f"order, root {root}", order))
        return found

    compare(function, check)


@every_function
def test_second_derivatives_by_results(function):
    def check(f, count):
        found = []
        for root, by in itertools.product(range(count), range(-1, count)):
            x, w, made = results(f)
            (g,) = torch.autograd.grad(total(made[root].pow(2)), x if by < 0 else made[by], create_graph=True, allow_unused=True)
            second = torch.autograd.grad(total(g.pow(2)), [x, w], allow_unused=True) if g is not None and g.requires_grad else (None, None)
            found += [(f"{root} by {by}", g), (f"{root} by {by}, x", second[0]), (f"{root} by {by}, w", second[1])]
        return found

    compare(function, check)


@pytest.mark.parametrize("result", [lambda x: x.sin() * 2, lambda x: x.cumsum(0) * 2, lambda x: (x.sin() * 2)[0], lambda x: (x @ x) * 2])
def test_what_is_saved_lies_behind_the_result_that_is_read(result):
    # The fewest bytes that both factors can be computed from again are those before the result, and lead past it.
    def check(f, count):
        x = leaf(3)
        y, z = f(x)
        found = []
        for by in (x, y):
            (g,) = torch.autograd.grad(z.sum(), by, create_graph=True)
            found += [("second", second) for second in torch.autograd.grad(g.sum(), (x, y), retain_graph=True, allow_unused=True)]
        return found

    framejit.reset()

    def f(x):
        y = result(x)
        return y, (y * 3) * y.exp()

    for (name, expected), (_, actual) in zip(check(f, 2), check(framejit.compile(f), 2)):
        assert_close(actual, expected, name, 1e-8)


@every_function
def test_what_a_backward_frees(function):
    def check(f, count):
        found = []
        for order in itertools.product(range(count), repeat=2):
            x, w, made = results(f)
            found += [(f"{k} of {order}", attempt(total(made[k]).backward)) for k in order]
            found.append((f"x, {order}", x.grad))
        return found

    compare(function, check)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f not in (moments, library_call)], ids=lambda f: f.__name__)
def test_a_result_that_is_written_before_backward(function):
    def check(f, count):
        found = []
        for k, root, graded in itertools.product(range(count), range(count), (False, True)):
            x, w, made = results(f)
            with torch.set_grad_enabled(graded):
                found.append((f"write into {k}, {graded}", attempt(lambda: made[k].mul_(1.5).detach())))
            found += [(f"versions: {k}, {graded}", str([result._version for result in made]))]
            found += [(f"{k} written, root {root}, {graded}", attempt(total(made[root]).backward)), (f"x: {k}, {root}, {graded}", x.grad)]
        return found

    compare(function, check)


def test_a_hook_of_a_part_is_not_called_for_another_result():
    # One node for both called it with None.
    seen = []
    y, s = framejit.compile(lambda x: ((h := x.exp()) * 1, h.sum()))(leaf(3))
    y.register_hook(lambda g: seen.append(g * 2))
    s.backward()
    assert seen == []


def test_results_are_let_go_of():
    import gc
    import weakref

    y, loss = framejit.compile(lambda x: ((h := (x * 2).exp()), (h * h).sum()))(leaf(3))
    nodes = [weakref.ref(y.grad_fn), weakref.ref(loss.grad_fn)]
    del y, loss
    gc.collect()
    assert [node() for node in nodes] == [None, None]


def test_a_program_that_returns_a_scalar_gradient_s_detached_sum_again_and_again():
    # Once the parameter has a .grad, the result is a view of no dimensions.
    def step(p):
        loss = p.sum()
        loss.backward()
        return loss.detach()

    compiled = framejit.compile(step)
    for function in (step, compiled):
        p = torch.full((3,), 2.0, requires_grad=True)
        for _ in range(3):
            value = function(p)
            assert value.shape == () and value.item() == 6
        assert p.grad.tolist() == [3, 3, 3]


@pytest.mark.parametrize("function", [lambda y: 1 / y, lambda y: 2 / y, torch.reciprocal])
def test_a_reciprocal_keeps_its_result(function):
    def check(f, count):
        x, w, (y, z) = results(f)
        with torch.no_grad():
            y.mul_(2)
        z.sum().backward()
        return [("x", x.grad), ("w", w.grad)]

    compare(lambda x, w: ((y := x * w), function(y)), check)


COMPOSITES = {
    "std": lambda x: x.std() * 2,
    "std of columns": lambda x: x.std(0) + x,
    "norm": lambda x: x.norm() * x,
    "standardised": lambda x: (x - x.mean()) / x.std(),
    "maxima": lambda x: x.max(-1, keepdim=True).values * x,
    "penalty": lambda x: (x.norm(dim=1) - 1).square().mean(),
}


@pytest.mark.parametrize("function", COMPOSITES.values(), ids=COMPOSITES)
def test_second_derivatives_of_functions_with_rules_of_their_own(function):
    """What such a function saves is not its operand: the second derivative still goes to the operand."""
    found = []
    for f in (function, framejit.compile(function)):
        x = leaf(3, 4)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        found.append((g, *torch.autograd.grad(g.square().sum(), x)))
    for ours, eager in zip(*reversed(found)):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("view", [lambda v: v.t(), lambda v: v[1:], lambda v: v.expand(2, 3, 4)], ids=["t", "slice", "expand"])
@pytest.mark.parametrize("copy", [lambda v: v.contiguous(), lambda v: v.clone(), lambda v: torch.cat([v]), lambda v: v ** 1], ids=["contiguous", "clone", "cat", "power"])
def test_a_copy_of_a_view_is_not_the_view(view, copy):
    def f(w):
        v = view(w * 2)
        return v * 2, copy(v)

    found = []
    for function in (f, framejit.compile(f)):
        w, seen = leaf(3, 4), []
        a, b = function(w)
        if b.grad_fn is not None and b._base is None:
            b.register_hook(lambda g: seen.append(g) or g * 10)
        a.sum().backward()
        found.append((len(seen), w.grad))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[1][1], found[0][1])


@pytest.mark.parametrize("ones", [torch.ones_like, lambda w: torch.full_like(w, 1.0), lambda w: torch.tensor(1.0, dtype=w.dtype)])
def test_ones_divided_are_no_reciprocal(ones):
    """torch keeps the result of 1 / y, and of a tensor of ones by y its operands."""
    for write in ("result", "divisor"):
        def f(w):
            z = w * 1
            y = ones(w) / z
            with torch.no_grad():
                (y if write == "result" else z).mul_(3)
            return y.sum()

        found = []
        for function in (f, framejit.compile(f)):
            w = leaf(3)
            found.append((attempt(function(w).backward), w.grad))
        assert found[0][0] == found[1][0]
        if found[0][1] is not None:
            torch.testing.assert_close(found[1][1], found[0][1])


OVERWRITTEN = {
    "a factor": lambda w, x, m: [(w * m).sum()] + [m.add_(1)],
    "a view of it": lambda w, x, m: [(w * m[0]).sum()] + [m.add_(1)],
    "through a view": lambda w, x, m: [(w * m).sum()] + [m[0].add_(1)],
    "by itself": lambda w, x, m: [m.mul_(w).sum()],
    "of what is not read": lambda w, x, m: [(w + m).sum()] + [m.add_(1)],
    "a result that is kept": lambda w, x, m: [((w * x).exp_() + 1).sum()],
    "one that a derivative reads": lambda w, x, m: [(w * x).exp().add_(1).sum()],
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_an_array_of_the_program_that_is_written_after_it_was_read(name):
    def f(w, x):
        return OVERWRITTEN[name](w, x, x * 2)[0]

    found = []
    for function in (f, framejit.compile(f)):
        w, x = leaf(4), leaf(3, 4, seed=1).detach()
        found.append((attempt(function(w, x).backward), w.grad))
    assert found[0][0] == found[1][0]
    if found[0][1] is not None:
        torch.testing.assert_close(found[1][1], found[0][1])


@pytest.mark.parametrize("function", VIEWS, ids=lambda f: f.__name__)
def test_views_among_results_are_eager_s(function):
    def check(f, count):
        x, w, made = results(f)
        found = []
        for k, result in enumerate(made):
            base = next((str(i) for i, other in enumerate([x, w, *made]) if other is result._base), str(result._base is not None))
            found.append((f"{k}", f"view {result._is_view()} of {base}, leaf {result.is_leaf}, {result.stride()}, {result.storage_offset()}"))
        return found

    compare(function, check)


@pytest.mark.parametrize("function", VIEWS, ids=lambda f: f.__name__)
def test_views_change_with_their_base_and_so_does_their_history(function):
    def check(f, count):
        found = []
        for written, root in itertools.product(range(count), repeat=2):
            x, w, made = results(lambda x, w: f(x * 1, w))
            found.append(("write", attempt(lambda: made[written].mul_(w.sum()).detach())))
            found += [(f"{k} after {written}", result.detach()) for k, result in enumerate(made)]
            found.append(("backward", attempt(total(made[root] * 1).backward)))
            found += [(f"{name} after {written}, root {root}", leaf.grad) for name, leaf in (("x", x), ("w", w))]
        return found

    compare(function, check)


def test_a_view_that_ends_a_piece_is_the_variable_of_the_next():
    def f(x):
        b = (x * 2)[1:]
        loss = (b * b).sum()
        print(end="")
        return b, loss + b.sum()

    for function in (f, framejit.compile(f)):
        b, loss = function(leaf(3))
        (g,) = torch.autograd.grad(loss, b)
        assert torch.allclose(g, 2 * b + 1)
