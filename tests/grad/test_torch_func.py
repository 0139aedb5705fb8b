"""torch.func's derivatives and batches, and torch.cond, inside of compiled code: one graph where that is what torch gives, else torch's own call."""
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch.func is torch's")
from torch.utils._pytree import tree_flatten  # noqa: E402

X = torch.linspace(-1, 1, 12).view(4, 3)
V = torch.tensor([0.5, -1.0, 2.0])
W = torch.linspace(-2, 2, 9).view(3, 3)
P = torch.linspace(-1, 3, 9).view(3, 3).requires_grad_()
LINEAR = torch.nn.Linear(3, 3)


def result_of(function, *arguments):
    try:
        return tree_flatten(function(*[a.clone() for a in arguments]))
    except Exception as error:
        return [type(error), str(error)], None


def as_eager(function, *arguments):
    """What was compiled, after two calls that gave what eager gives."""
    framejit.reset()
    compiled = framejit.compile(function)
    for _ in range(2):
        torch.manual_seed(3)
        expected, structure = result_of(function, *arguments)
        torch.manual_seed(3)
        found, other = result_of(compiled, *arguments)
        assert structure == other and len(found) == len(expected)
        for one, wanted in zip(found, expected):
            if not isinstance(wanted, torch.Tensor):
                assert one == wanted
                continue
            assert (one.dtype, one.shape, one.stride(), one.requires_grad) == (wanted.dtype, wanted.shape, wanted.stride(), wanted.requires_grad)
            torch.testing.assert_close(one, wanted)
    assert framejit.cache_info()["internal_errors"] == 0
    return framejit.explain(compiled).so_far()


def scalar(x):
    return (x.sin() * x).sum()


def loss(parameters, x):
    return torch.func.functional_call(LINEAR, parameters, (x,)).square().mean()


def parameters():
    return {name: value.detach() for name, value in LINEAR.named_parameters()}


def without_recording(x):
    with torch.no_grad():
        return torch.func.grad_and_value(scalar)(x), torch.func.grad(lambda y: (y * x).sum())(x)


def stops_inside(x):
    def f(y):
        with torch.no_grad():
            z = y ** 2
        return (y * z).sum()

    return torch.func.grad(f)(x)


OUTSIDE = torch.func.grad(scalar)

ONE_GRAPH = {
    "grad": lambda x: torch.func.grad(scalar)(x),
    "grad of a function made outside": lambda x: OUTSIDE(x),
    "grad_and_value": lambda x: torch.func.grad_and_value(scalar)(x),
    "argnums": lambda x: torch.func.grad(lambda a, b: (a * b).sum(), argnums=(0, -1))(x, V),
    "has_aux": lambda x: torch.func.grad_and_value(lambda a: ((a * a).sum(), {"twice": a * 2}), has_aux=True)(x),
    "a dict": lambda x: torch.func.grad(lambda p, a: (a @ p["w"] + p["b"]).square().sum())({"w": W, "b": V}, x),
    "a derivative of a derivative": lambda x: torch.func.grad(torch.func.grad(lambda a: a ** 3))(x[0, 0]),
    "a broadcast gradient": lambda x: torch.func.grad(torch.sum)(x),
    "no dependence": lambda x: torch.func.grad(lambda a: V.sum())(x),
    "a number read inside": lambda x: torch.func.grad(lambda a: (a * a.sum().item()).sum())(x),
    "no_grad outside": without_recording,
    "no_grad inside": stops_inside,
    "functional_call": lambda x: torch.func.grad(loss)(parameters(), x),
    "vmap": lambda x: torch.vmap(scalar)(x),
    "in_dims": lambda x: torch.vmap(torch.dot, in_dims=(0, None))(x, V),
    "in_dims of a dict": lambda x: torch.vmap(lambda d: d["a"] * d["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": V}),
    "out_dims": lambda x: torch.vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(x),
    "vmap of vmap": lambda x: torch.vmap(torch.vmap(lambda a: a * 2 + 1))(x),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(scalar))(x),
    "grad of vmap": lambda x: torch.func.grad(lambda a: torch.vmap(scalar)(a).sin().sum())(x),
    "gradients of each example": lambda x: torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters(), x),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)),
    "cond of a number": lambda x: torch.cond(x.shape[0] > 2, lambda a: a.sin(), lambda a: a.cos(), (x,)),
}


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_is_one_graph(name):
    report = as_eager(ONE_GRAPH[name], X)
    assert len(report.graphs) == 1 and not report.breaks


KEPT = []


def keeps(x):
    KEPT.clear()
    gradient = torch.func.grad(lambda a: (KEPT.append(a * 2), (a * a).sum())[1])(x)
    return gradient, len(KEPT)


def writes_outside(x):
    total = torch.zeros(3)

    def f(a):
        total.add_(1)
        return (a * total).sum()

    return torch.func.grad(f)(x), total


class Doubled(torch.autograd.Function):
    """Of the kind that torch.func refuses."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


TORCHS = {
    "chunk_size": lambda x: torch.vmap(lambda a: a * 2, chunk_size=3)(x),
    "a vector": lambda x: torch.func.grad(lambda a: a * 2)(x),
    "a list of numbers": lambda x: torch.func.grad(lambda a: 3.0)(x),
    "ints": lambda x: torch.func.grad(scalar)(x.long()),
    "argnums": lambda x: torch.func.grad(scalar, argnums=2)(x),
    "an argument returned": lambda x: torch.func.grad(lambda a: (a.sum(), a), has_aux=True)(x)[1] is x,
    "a leaf": lambda x: torch.func.grad(lambda a: (a * (2 if a.is_leaf else 3)).sum())(x),
    "requires_grad": lambda x: torch.func.grad(lambda a: torch.vmap(lambda b: b * (2 if b.requires_grad else 3))(a).sum())(x),
    "keeps": keeps,
    "writes outside": writes_outside,
    "a write into an argument": lambda x: torch.func.grad(lambda a: a.mul_(2).sum())(x),
    "a function of autograd": lambda x: torch.func.grad(lambda a: Doubled.apply(a).sum())(x),
    "a checkpoint": lambda x: torch.func.grad(lambda a: torch.utils.checkpoint.checkpoint(torch.sin, a, use_reentrant=False).sum())(x),
    "backward inside": lambda x: torch.func.grad(lambda a: torch.autograd.grad((a * a).sum(), a)[0].sum())(x),
    "no batch": lambda x: torch.vmap(scalar, in_dims=None)(x),
    "sizes": lambda x: torch.vmap(torch.dot)(x, V),
    "an axis too far": lambda x: torch.vmap(scalar, in_dims=5)(x),
    "another axis": lambda x: torch.vmap(lambda a: a * 2, in_dims=1)(x),
    "a view": lambda x: torch.vmap(lambda a: a[0])(x),
    "the same for all": lambda x: torch.vmap(lambda a: V)(x),
    "a matrix that is the same for all": lambda x: torch.vmap(lambda a: W @ a)(x),
    "one result twice": lambda x: torch.vmap(lambda a: (a.sin(),) * 2)(x),
    "a number of an example": lambda x: torch.vmap(lambda a: a * a.sum().item())(x),
    "a branch on an example": lambda x: torch.vmap(lambda a: a if a.sum() > 0 else -a)(x),
    "a write into an example": lambda x: (torch.vmap(lambda a: a.mul_(2) * 1)(x), x),
    "random numbers": lambda x: torch.vmap(lambda a: a + torch.rand(3), randomness="different")(x),
    "refused random numbers": lambda x: torch.vmap(lambda a: a + torch.rand(3))(x),
    "no tensor": lambda x: torch.vmap(lambda a: 3.0)(x),
}


@pytest.mark.parametrize("name", TORCHS)
def test_is_what_torch_does(name):
    report = as_eager(TORCHS[name], X)
    assert report.breaks


@pytest.mark.parametrize("name", ["grad", "vmap", "vmap of grad"])
def test_gradients_flow_on_to_what_is_closed_over(name):
    function = {"grad": lambda x: torch.func.grad(lambda a: (a @ P).square().sum())(x),
                "vmap": lambda x: torch.vmap(lambda a: (a @ P).square())(x),
                "vmap of grad": lambda x: torch.vmap(torch.func.grad(lambda a: (a @ P).sin().sum()))(x)}[name]
    compiled = framejit.compile(function)
    for _ in range(2):
        expected, = torch.autograd.grad(function(X).sin().sum(), P)
        found, = torch.autograd.grad(compiled(X).sin().sum(), P)
        torch.testing.assert_close(found, expected)
    assert not framejit.explain(compiled).so_far().breaks


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_condition_chooses_among_results(sign):
    def f(x):
        return torch.cond(x.sum() > 0, lambda a, b: {"r": (a + b).relu()}, lambda a, b: {"r": a * b}, (x, V))

    report = as_eager(f, X + sign)
    assert len(report.graphs) == 1 and not report.breaks
