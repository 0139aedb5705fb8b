"""A whole training step inside one compiled function: backward, the optimisers of torch.optim as they are, zero_grad.

Two copies of everything take the same steps, one in eager. Compared are parameters, `.grad` fields, the optimiser's state (its
order too), version counters and losses: to the last bit where the numbers that go in are the same. torch's own square root is not
always the nearest number; so Adam's steps, not its averages, may differ in the last place.
"""
import copy
import warnings

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.nn import functional as F  # noqa: E402

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "sgd nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd maximize": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam decay": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
    "adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adam maximize": lambda p: torch.optim.Adam(p, lr=0.01, maximize=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "sgd lr tensor": lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9),
    "adam lr tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), weight_decay=0.1),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adam amsgrad foreach": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, foreach=True),
    "sgd nesterov foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True, foreach=True),
}
CAPTURED = list(OPTIMISERS)


def network(dtype=torch.float32):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).to(dtype)
    return copy.deepcopy(made)  # which starts the version counters anew


def gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def same(a, b, exact=True):
    if isinstance(a, torch.Tensor):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad and a.is_leaf == b.is_leaf
        if exact is True:
            assert torch.equal(a, b)
        elif exact == "nearly":
            torch.testing.assert_close(a, b, rtol=8 * torch.finfo(a.dtype).eps, atol=8 * torch.finfo(a.dtype).eps)
        else:
            torch.testing.assert_close(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key], exact)
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for one, other in zip(a, b):
            same(one, other, exact)
    else:
        assert type(a) is type(b) and a == b


def same_training(eager, compiled, exact=True, versions=True):
    """(model, optimiser) of both."""
    for p, q in zip(eager[0].parameters(), compiled[0].parameters()):
        same(p.detach(), q.detach(), exact)
        assert p.requires_grad == q.requires_grad and (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            same(p.grad, q.grad, exact)
        assert p._version == q._version or not versions
    same(eager[1].state_dict(), compiled[1].state_dict(), exact)
    for p, q in zip(eager[0].parameters(), compiled[0].parameters()):
        for key, value in eager[1].state.get(p, {}).items():
            if isinstance(value, torch.Tensor) and versions:
                assert value._version == compiled[1].state[q][key]._version, key


def pair(optimiser, dtype=torch.float32):
    eager = network(dtype)
    compiled = copy.deepcopy(eager)
    return (eager, OPTIMISERS[optimiser](eager.parameters())), (compiled, OPTIMISERS[optimiser](compiled.parameters()))


def breaks_of(function, *args):
    return framejit.explain(function)(*args).breaks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("optimiser", CAPTURED)
def test_optimisers_step_to_the_last_bit(optimiser, dtype):
    eager, compiled = pair(optimiser, dtype)

    @framejit.compile
    def step():
        compiled[1].step()

    for seed in range(4):
        gradients(eager[0], seed)
        gradients(compiled[0], seed)
        eager[1].step()
        step()
        same_training(eager, compiled, exact="nearly" if "adam" in optimiser else True)
    gradients(compiled[0], 9)
    assert breaks_of(step) == []


FIFTY = [(64,), (10,), (3, 7), (1,), (), (100, 20), (0,), (16, 4, 4), (33,), (8, 128)] * 5


@pytest.mark.parametrize("optimiser, most", [("sgd", 2), ("sgd nesterov", 4), ("adam", 6), ("adam decay", 6), ("adamw", 8), ("adam amsgrad", 6),
                                             ("sgd nesterov foreach", 4), ("adam amsgrad foreach", 6)])
def test_fifty_parameters_take_a_step_in_few_kernels(optimiser, most):
    def parameters():
        generator = torch.Generator().manual_seed(3)
        return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in FIFTY]

    eager, compiled = (torch.nn.ParameterList(parameters()) for _ in range(2))
    eager, compiled = ((model, OPTIMISERS[optimiser](model.parameters())) for model in (eager, compiled))

    def step():
        compiled[1].step()

    step = framejit.compile(step)
    for seed in range(4):
        for model, _ in (eager, compiled):
            gradients(model, seed)
        eager[1].step()
        if seed < 3:
            step()
        else:
            report = framejit.explain(step)()
        same_training(eager, compiled, exact="nearly" if "adam" in optimiser else True)
    # Sizes don't count: one launch for all arrays of a kind (numbers, single elements, the rest), whatever their number.
    assert report.breaks == [] and len(report.graphs) == 1 and report.kernel_count <= most


def test_a_step_that_fails_has_written_nothing():
    """The averages and parameters are written in place, behind the checks of the numbers they are made with."""
    p = torch.nn.Parameter(torch.ones(40))
    opt = torch.optim.Adam([p], lr=0.1)
    step = framejit.compile(opt.step)
    for _ in range(3):
        p.grad = torch.full((40,), 2.0)
        step()
    opt.state[p]["step"].fill_(-1.0)  # the next is step 0, and 1 - 0.9 ** 0 a divisor
    before = copy.deepcopy((p.detach(), opt.state_dict()))
    with pytest.raises(ZeroDivisionError):
        step()
    other = torch.nn.Parameter(before[0].clone())
    eager = torch.optim.Adam([other], lr=0.1)
    eager.load_state_dict(before[1])
    other.grad = torch.full((40,), 2.0)
    with pytest.raises(ZeroDivisionError):
        eager.step()
    same(p.detach(), other.detach())
    same(opt.state_dict(), eager.state_dict())


@pytest.mark.parametrize("position", range(5))
def test_a_step_that_fails_anywhere_leaves_what_eager_leaves(position):
    """Updates wait in memory for the last that can fail: CPython runs the whole of a step that fails, from where it began."""
    def step(parameters, matrix):
        with torch.no_grad():
            for i, p in enumerate(parameters):
                if i == position:
                    matrix = torch.linalg.cholesky(matrix)
                p.mul_(0.5).add_(matrix.sum())
            if position == len(parameters):
                matrix = torch.linalg.cholesky(matrix)
        return matrix

    compiled = framejit.compile(step)
    ours, theirs = ([torch.full((3, 3), float(i)) for i in range(4)] for _ in range(2))
    good, bad = torch.eye(3) * 2, -torch.eye(3)
    for matrix in (good, good, bad, good, bad):
        raised = []
        for function, parameters in ((compiled, ours), (step, theirs)):
            try:
                function(parameters, matrix)
            except torch.linalg.LinAlgError as error:
                raised.append(str(error))
        assert len(raised) == (2 if matrix is bad else 0) and raised[:1] == raised[1:]
        for a, b in zip(ours, theirs):
            same(a, b)
    assert breaks_of(compiled, ours, good) == []


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_whole_step_is_one_graph(optimiser):
    eager, compiled = pair(optimiser)

    def train(model, opt, x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    step = framejit.compile(train)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        x, y = torch.randn(6, 8, generator=generator), torch.randn(6, 3, generator=generator)
        expected, loss = train(*eager, x, y), step(*compiled, x, y)
        torch.testing.assert_close(loss, expected)
        assert loss.requires_grad and loss.grad_fn is not None
        same_training(eager, compiled, exact=False)
    if optimiser in CAPTURED:
        report = framejit.explain(step)(*compiled, x, y)
        assert report.breaks == [] and len(report.graphs) == 1


def test_backward_gives_leaves_their_gradients():
    eager = network()
    compiled = copy.deepcopy(eager)

    def back(model, x):
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    f = framejit.compile(back)
    x = torch.randn(4, 8)
    for _ in range(3):  # none, then added to
        back(eager, x), f(compiled, x)
        for p, q in zip(eager.parameters(), compiled.parameters()):
            torch.testing.assert_close(p.grad, q.grad)
            assert p.grad.stride() == q.grad.stride() and q.grad.is_leaf and not q.grad.requires_grad and p.grad._version == q.grad._version
    assert breaks_of(f, compiled, x) == []


def test_a_gradient_that_is_there_is_added_to_in_place():
    w = torch.ones(3, requires_grad=True)
    w.grad = kept = torch.tensor([1.0, 2.0, 3.0])

    @framejit.compile
    def f(w):
        (w * 2).sum().backward()

    f(w)
    f(w)
    assert w.grad is kept and kept.tolist() == [5.0, 6.0, 7.0]


def test_unused_and_frozen_parameters_have_no_gradient():
    model = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
    model[1].requires_grad_(False)

    @framejit.compile
    def f(model, x):
        model[1](model[0](x)).sum().backward()

    f(model, torch.ones(2, 3))
    assert model[0].weight.grad is not None and model[1].weight.grad is None and model[2].weight.grad is None
    model[0].requires_grad_(False)
    model[0].weight.grad = None
    model[1].requires_grad_(True)
    f(model, torch.ones(2, 3))
    assert model[0].weight.grad is None and model[1].weight.grad is not None


def test_a_parameter_that_is_shared_gets_one_gradient():
    a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    b.weight = a.weight
    opt = torch.optim.SGD([a.weight, a.bias, b.bias], lr=0.5)
    other = copy.deepcopy((a, b))
    other_opt = torch.optim.SGD([other[0].weight, other[0].bias, other[1].bias], lr=0.5)

    def train(a, b, opt, x):
        b(a(x)).sum().backward()
        opt.step()

    x = torch.randn(2, 3)
    train(*other, other_opt, x)
    framejit.compile(train)(a, b, opt, x)
    torch.testing.assert_close(a.weight, other[0].weight)
    assert b.weight is a.weight


def test_gradients_follow_the_layout_of_the_leaf():
    w = torch.randn(3, 4).t().requires_grad_()

    @framejit.compile
    def f(w):
        (w * w).sum().backward()

    f(w)
    assert w.grad.stride() == w.stride() and torch.equal(w.grad, 2 * w.detach())


def test_a_second_backward_raises_eagers_error():
    def f(x):
        loss = (x * x).sum()
        loss.backward()
        return loss

    def message(function):
        x = torch.ones(3, requires_grad=True)
        loss = function(x)
        with pytest.raises(RuntimeError) as raised:
            loss.backward()
        return str(raised.value)

    def twice(x):
        loss = (x * x).sum()
        loss.backward()
        loss.backward()

    assert message(framejit.compile(f)) == message(f)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        framejit.compile(twice)(torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    framejit.compile(lambda x: (loss := x.sum(), loss.backward(), loss.backward())[0])(x)  # nothing was saved, so nothing is freed
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


WRITTEN_BEFORE_BACKWARD = {
    "a_parameter_the_derivative_reads": lambda model, x: (model(x).square().mean(), lambda: model[2].weight.mul_(2)),
    "a_view_of_it": lambda model, x: (model(x).square().mean(), lambda: model[2].weight.view(-1)[1:3].fill_(3.0)),
    "a_factor": lambda model, x: (model(x * x).sum(), lambda: x.zero_()),
    "a_row_that_was_repeated": lambda model, x: ((x * model[2].weight[0, 0]).sum() + (x * model[0].bias[:8]).sum(), lambda: model[0].bias.mul_(2)),
    "what_it_does_not_read": lambda model, x: (model[0](x).sum(), lambda: model[0].weight.mul_(2)),
}


@pytest.mark.parametrize("name", WRITTEN_BEFORE_BACKWARD)
def test_a_tensor_that_is_written_before_backward_is_eagers_error(name):
    def step(model, x):
        loss, write = WRITTEN_BEFORE_BACKWARD[name](model, x)
        with torch.no_grad():
            write()
        loss.backward()
        return loss

    answers = []
    for function in (step, framejit.compile(step)):
        model = network(torch.float64)
        x = torch.linspace(-1.0, 1.0, 16, dtype=torch.float64).reshape(2, 8)
        try:
            function(model, x)
            error = ""
        except RuntimeError as raised:
            error = str(raised).partition(":")[0]
        answers.append((error, [p.detach().clone() for p in model.parameters()], [p.grad for p in model.parameters()]))
    (wanted, *eager), (error, *ours) = answers
    assert error == wanted and (wanted == "" or "modified by an inplace operation" in wanted)
    for one, other in zip(eager, ours):
        assert [p is None for p in one] == [p is None for p in other]
        for a, b in zip(one, other):
            if a is not None:
                torch.testing.assert_close(a, b)


def test_retained_graphs_are_good_for_another_backward():
    def f(x):
        loss = (x * x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    f(x), framejit.compile(f)(y)
    assert torch.equal(x.grad, y.grad)

    def kept(x):
        loss = (x * x).sum()
        loss.backward(retain_graph=True)
        return loss

    y.grad = None
    framejit.compile(kept)(y).backward()
    assert torch.equal(x.grad, y.grad)


def test_a_hook_on_a_leaf_runs_in_autograd_grad():
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 3)
    assert framejit.compile(lambda x: torch.autograd.grad((x * x).sum(), x))(x)[0].tolist() == [6.0, 6.0]


@pytest.mark.parametrize("what", ["create_graph", "history", "hook", "post hook", "no leaf", "not scalar"])
def test_what_torch_has_to_see_breaks(what):
    def f(x, h):
        loss = (h * x if what in ("history", "no leaf") else x * x)
        loss = loss * 2 if what == "not scalar" else loss.sum()
        loss.backward(create_graph=what == "create_graph")
        return loss.detach()

    def run(function):
        calls = []
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        if what == "hook":
            x.register_hook(lambda g: calls.append(g.tolist()) or g * 3)
        if what == "post hook":
            x.register_post_accumulate_grad_hook(lambda p: calls.append(p.grad.tolist()))
        h = x.exp()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(x, h)
        except RuntimeError as error:
            return str(error)
        return x.grad.tolist(), calls, x.grad.requires_grad

    assert run(framejit.compile(f)) == run(f)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    if what == "hook":
        x.register_hook(lambda g: None)
    if what == "post hook":
        x.register_post_accumulate_grad_hook(lambda p: None)
    if what != "not scalar":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert breaks_of(framejit.compile(f), x, x.exp()) != []


@pytest.mark.parametrize("kind", ["after", "before"])
@pytest.mark.parametrize("put_at", [0, 2])
def test_hooks_on_the_node_that_adds_to_a_gradient_run(kind, put_at):
    # As torch.distributed.optim puts them there; the tensor knows nothing of it.
    def run(compiled):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = framejit.compile(step) if compiled else step
        x, seen, held = torch.ones(2, 8), [], None
        for number in range(5):
            if number == put_at:
                weight = model[0].weight
                node = held = weight.view_as(weight).grad_fn.next_functions[0][0]
                if kind == "after":
                    handle = node.register_hook(lambda *gradients: seen.append("after"))
                else:
                    handle = node.register_prehook(lambda gradients: (seen.append("before"), (gradients[0] * 2,))[1])
            if number == 4:
                handle.remove()
            seen.append(float(function(x)))
        del held
        return seen, [p.detach().clone() for p in model.parameters()]

    (losses, parameters), (expected_losses, expected) = run(True), run(False)
    assert [item for item in losses if isinstance(item, str)] == [kind] * (4 - put_at)
    assert [type(item) for item in losses] == [type(item) for item in expected_losses]
    for a, b in zip(parameters, expected):
        torch.testing.assert_close(a, b)


def test_a_node_that_adds_to_a_gradient_and_has_no_hooks_is_no_break():
    x = torch.tensor([3.0], requires_grad=True)
    node = x.view_as(x).grad_fn.next_functions[0][0]

    def f(x):
        (x * x).sum().backward()

    assert breaks_of(framejit.compile(f), x) == []
    assert x.grad.tolist() == [6.0] and node is not None


def test_hooks_on_saved_tensors_see_what_eager_saves():
    @framejit.compile
    def f(x):
        (x * x).sum().backward()

    x = torch.ones(3, requires_grad=True)
    f(x)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        f(x)
    assert len(packed) == 2 and x.grad.tolist() == [4.0, 4.0, 4.0]


def test_anomaly_detection_is_left_to_torch():
    @framejit.compile
    def f(x):
        (x * float("nan")).sqrt().sum().backward()

    f(torch.ones(2, requires_grad=True))
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="nan values"):
            f(torch.ones(2, requires_grad=True))


def test_a_learning_rate_under_a_schedule_is_no_constant():
    eager, compiled = pair("adam")

    def train(model, opt, x):
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()

    step = framejit.compile(train)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(opt, 0.9) for _, opt in (eager, compiled)]
    x = torch.randn(4, 8)
    before = None
    for i in range(8):
        train(*eager, x), step(*compiled, x)
        for schedule in schedules:
            schedule.step()
        same_training(eager, compiled, exact=False)
        if i == 4:
            before = framejit.cache_info()["recompiles"]
    assert framejit.cache_info()["recompiles"] == before


def test_zero_grad_to_zeros_keeps_the_tensors():
    eager, compiled = pair("sgd")

    def train(model, opt, x):
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad(set_to_none=False)

    step = framejit.compile(train)
    x = torch.randn(4, 8)
    for _ in range(3):
        train(*eager, x), step(*compiled, x)
        same_training(eager, compiled, exact=False)
        assert all(not p.grad.any() for p in compiled[0].parameters())


def test_groups_have_options_of_their_own():
    def optimiser(model):
        return torch.optim.AdamW([{"params": [model[0].weight], "lr": 0.1}, {"params": [model[0].bias, model[2].weight], "weight_decay": 0.5}], lr=0.01)

    eager = network()
    compiled = copy.deepcopy(eager)
    eager, compiled = (eager, optimiser(eager)), (compiled, optimiser(compiled))

    @framejit.compile
    def step():
        compiled[1].step()

    for seed in range(3):
        gradients(eager[0], seed), gradients(compiled[0], seed)
        eager[1].step()
        step()
        same_training(eager, compiled, exact="nearly")


def test_a_closure_is_evaluated_with_gradients():
    eager, compiled = pair("sgd")
    x = torch.randn(4, 8)

    def train(model, opt):
        def closure():
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return opt.step(closure)

    step = framejit.compile(train)
    for _ in range(3):
        torch.testing.assert_close(step(*compiled), train(*eager))
        same_training(eager, compiled, exact=False)


def test_hooks_of_an_optimiser_run():
    eager, compiled = pair("sgd")
    calls = []
    compiled[1].register_step_post_hook(lambda opt, args, kwargs: calls.append(1))

    @framejit.compile
    def step():
        compiled[1].step()

    gradients(compiled[0], 0), gradients(eager[0], 0)
    step()
    eager[1].step()
    same_training(eager, compiled)
    assert calls == [1]


def test_state_that_was_put_in_another_order_is_found():
    eager, compiled = pair("adam")

    @framejit.compile
    def step():
        compiled[1].step()

    for seed in range(4):
        gradients(eager[0], seed), gradients(compiled[0], seed)
        if seed == 3:  # the same keys in the same order, at other places of the dict
            state = compiled[1].state
            entries = list(state.items())
            for key, _ in entries:
                del state[key]
            for key, value in entries:
                state[key] = value
        eager[1].step()
        step()
        same_training(eager, compiled, exact="nearly")


def test_state_that_was_loaded_goes_on():
    eager, compiled = pair("adam")
    for seed in range(2):
        gradients(eager[0], seed)
        eager[1].step()
    compiled[0].load_state_dict(eager[0].state_dict())
    compiled[1].load_state_dict(copy.deepcopy(eager[1].state_dict()))
    step = framejit.compile(lambda: compiled[1].step())
    for seed in range(3):
        gradients(eager[0], seed), gradients(compiled[0], seed)
        eager[1].step()
        step()
        same_training(eager, compiled, exact="nearly", versions=False)


def test_autograd_grad_in_compiled_code():
    def f(x, y):
        return torch.autograd.grad((x * y.sin()).sum(), (x, y))

    def unused(x, y):
        return torch.autograd.grad((x * 2).square().sum(), (x, y), allow_unused=True)

    def of_what_is_between(x, y):
        h = x * y
        return torch.autograd.grad(h.square().sum(), h)[0] + 1

    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    for function in (f, unused, of_what_is_between):
        compiled = framejit.compile(function)
        for one, other in zip(compiled(x, y), function(x, y)):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
                assert not one.requires_grad
        assert breaks_of(compiled, x, y) == []
    assert x.grad is None
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        framejit.compile(lambda x, y: torch.autograd.grad(x.sum(), y))(x, y)


def test_the_number_of_a_loss_leaves_the_graph_at_its_end():
    def f(model, x):
        loss = model(x).square().mean()
        loss.backward()
        return loss.item(), float(loss.detach() * 2)

    model = network()
    compiled = framejit.compile(f)
    x = torch.randn(4, 8)
    expected = f(model, x)
    assert compiled(model, x) == pytest.approx(expected, rel=1e-6) and type(compiled(model, x)[0]) is float
    assert breaks_of(compiled, model, x) == []


# ---- lists of tensors of several dtypes


def of_several_dtypes():
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
            for shape, dtype in (((3,), torch.float32), ((2, 2), torch.float64), ((4,), torch.float32), ((), torch.float64), ((5,), torch.float32))]


@pytest.mark.parametrize("optimiser", ["sgd foreach", "adamw foreach", "adam amsgrad foreach", "sgd nesterov foreach"])
def test_parameters_of_several_dtypes_take_a_step_as_a_list(optimiser):
    eager, compiled = (torch.nn.ParameterList(of_several_dtypes()) for _ in range(2))
    eager, compiled = ((model, OPTIMISERS[optimiser](model.parameters())) for model in (eager, compiled))

    @framejit.compile
    def step():
        compiled[1].step()

    for seed in range(4):
        for model, _ in (eager, compiled):
            gradients(model, seed)
        eager[1].step()
        step()
        same_training(eager, compiled, exact="nearly" if "adam" in optimiser else True)
    gradients(compiled[0], 9)
    assert breaks_of(step) == []


def test_gradients_are_set_to_zero_as_a_list():
    eager, compiled = (torch.nn.ParameterList(of_several_dtypes()) for _ in range(2))
    eager, compiled = ((model, OPTIMISERS["sgd foreach"](model.parameters())) for model in (eager, compiled))

    @framejit.compile
    def step():
        compiled[1].zero_grad(set_to_none=False)

    for seed in range(3):
        for model, _ in (eager, compiled):
            gradients(model, seed)
        eager[1].zero_grad(set_to_none=False)
        step()
        same_training(eager, compiled)
        assert all(p.grad.count_nonzero() == 0 for p in compiled[0].parameters())
    gradients(compiled[0], 9)
    assert breaks_of(step) == []


def test_groups_of_dtypes_come_in_the_order_of_torch():
    group = torch._C._group_tensors_by_device_and_dtype
    names = ["float32", "float16", "float64", "int64", "float16", "bool", "float32", "int8", "bfloat16"]

    def grouped(tensors):
        groups = group([tensors, [None] * len(tensors), []], True)
        return [(dtype, [tensor * 2 for tensor in lists[0]], lists[1], lists[2], indices) for (_, dtype), (lists, indices) in groups.items()]

    compiled = framejit.compile(grouped)
    for count in range(1, len(names) + 1):
        tensors = [torch.full((2,), number).to(getattr(torch, name)) for number, name in enumerate(names[:count])]
        same(grouped(tensors), compiled(tensors))
    assert breaks_of(compiled, tensors) == []


def test_a_list_is_copied_into_another():
    def copied(targets, sources):
        torch._foreach_copy_(targets, sources)
        return targets[0] + 1

    compiled = framejit.compile(copied)
    for seed in range(3):
        sources = [p.detach() * (seed + 1) for p in of_several_dtypes()]
        eager, ours = ([torch.zeros_like(source, dtype=torch.float32) for source in sources] for _ in range(2))
        same(copied(eager, sources), compiled(ours, sources))
        same(eager, ours)
        assert [tensor._version for tensor in eager] == [tensor._version for tensor in ours]
    assert breaks_of(compiled, ours, sources) == []


@pytest.mark.parametrize("clip", [lambda p: torch.nn.utils.clip_grad_norm_(p, 0.1), lambda p: torch.nn.utils.clip_grad_norm_(p, 0.1, norm_type=float("inf")),
                                  lambda p: torch.nn.utils.clip_grad_value_(p, 0.01)])
def test_gradients_of_model_parameters_are_clipped_in_the_graph(clip):
    eager, compiled = pair("sgd")

    def step(model, optimiser, x):
        optimiser.zero_grad()
        model(x).square().mean().backward()
        clip(model.parameters())  # a generator
        optimiser.step()

    framejit.reset()
    f, x = framejit.compile(step), torch.randn(4, 8)
    for _ in range(4):
        step(*eager, x), f(*compiled, x)
        same_training(eager, compiled, exact=False)
    assert breaks_of(f, *compiled, x) == []
