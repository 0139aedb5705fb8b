"""torch.func's derivatives and batches, and torch.cond, inside of compiled code: one graph where that is what torch gives, else torch's own call."""
import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch.func is torch's")
from torch.utils._pytree import tree_flatten, tree_unflatten  # noqa: E402

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


def pulled(function, *primals, has_aux=False):
    """The value and what a pullback makes of ones."""
    value, pullback, *aux = torch.func.vjp(function, *primals, has_aux=has_aux)
    leaves, structure = tree_flatten(value)
    return value, pullback(tree_unflatten([torch.ones_like(leaf) for leaf in leaves], structure)), aux


def loss(parameters, x):
    return torch.func.functional_call(LINEAR, parameters, (x,)).square().mean()


def outputs(parameters, x):
    return torch.func.functional_call(LINEAR, parameters, (x,)).tanh()


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
    "chunk_size": lambda x: torch.vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0), chunk_size=3)(x),
    "vmap of vmap": lambda x: torch.vmap(torch.vmap(lambda a: a * 2 + 1))(x),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(scalar))(x),
    "grad of vmap": lambda x: torch.func.grad(lambda a: torch.vmap(scalar)(a).sin().sum())(x),
    "gradients of each example": lambda x: torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters(), x),
    "vjp": lambda x: pulled(torch.sin, x),
    "vjp of several": lambda x: pulled(lambda a, b: (a * b, {"s": a.sum()}), x, V),
    "vjp of a dict": lambda x: pulled(lambda d: {"r": d["a"] * d["b"]}, {"a": x, "b": V}),
    "vjp with aux": lambda x: pulled(lambda a: (a.sin(), {"twice": a * 2}), x, has_aux=True),
    "a pullback called twice": lambda x: (lambda value, pullback: (pullback(x), pullback(x * 2)))(*torch.func.vjp(torch.sin, x)),
    "vjp under no_grad": torch.no_grad()(lambda x: pulled(lambda a: (a @ P).sin(), x)),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x + 1,)),
    "jvp of several": lambda x: torch.func.jvp(lambda a, b: (a @ b, a.sum(), a.long()), (x, W), (x * 2, W)),
    "jvp with aux": lambda x: torch.func.jvp(lambda a: (a.sin(), {"twice": a * 2}), (x,), (x,), has_aux=True),
    "jvp of a view": lambda x: torch.func.jvp(lambda a: a.sin()[1:, 0], (x,), (x,)),
    "jvp of what does not depend": lambda x: torch.func.jvp(lambda a: V.sin(), (x,), (x,)),
    "jvp of a transposed one": lambda x: torch.func.jvp(torch.sin, (x.t(),), (x.reshape(3, 4),)),
    "jvp of halves": lambda x: torch.func.jvp(torch.sin, (x.half(),), (x.half(),)),
    "jvp through detach": lambda x: torch.func.jvp(lambda a: a * a.detach(), (x,), (x,)),
    "jvp of a jvp": lambda x: torch.func.jvp(lambda a: torch.func.jvp(torch.sin, (a,), (x,))[1], (x,), (x,)),
    "jvp of a grad": lambda x: torch.func.jvp(torch.func.grad(scalar), (x,), (x,)),
    "grad of a jvp": lambda x: torch.func.grad(lambda a: torch.func.jvp(torch.sin, (a,), (x,))[1].sum())(x),
    "jacrev": lambda x: torch.func.jacrev(lambda a: (a @ W).tanh())(x),
    "jacrev of argnums": lambda x: torch.func.jacrev(lambda a, b: {"r": (a * b).sin(), "s": a[0] * b}, argnums=(0, 1))(x, V),
    "jacrev with aux": lambda x: torch.func.jacrev(lambda a: (a.sin(), a * 2), has_aux=True)(x),
    "jacrev of a sum": lambda x: torch.func.jacrev(lambda a: a.sum(0))(x),
    "jacrev of a number": lambda x: torch.func.jacrev(torch.sin)(x[0, 0].clone()),
    "jacfwd": lambda x: torch.func.jacfwd(lambda a: (a @ W).tanh())(x),
    "jacfwd of argnums": lambda x: torch.func.jacfwd(lambda a, b: (a * b).sin(), argnums=(1, 0))(x, V),
    "jacfwd of a sum": lambda x: torch.func.jacfwd(lambda a: a.sum(0))(x),
    "jacfwd under no_grad": torch.no_grad()(lambda x: torch.func.jacfwd(lambda a: (a @ P).sin())(x)),
    "hessian": lambda x: torch.func.hessian(lambda a: (a @ W).tanh().sum())(x),
    "hessian of argnums": lambda x: torch.func.hessian(lambda a, b: (a * b).sin().sum(), argnums=(0, 1))(x, V),
    "jacrev of jacrev": lambda x: torch.func.jacrev(torch.func.jacrev(scalar))(x),
    "vmap of vjp": lambda x: torch.vmap(lambda a, b: torch.func.vjp(torch.sin, a)[1](b))(x, x * 2),
    "vmap of jvp": lambda x: torch.vmap(lambda a, b: torch.func.jvp(torch.sin, (a,), (b,)))(x, x * 2),
    "vmap of jacrev": lambda x: torch.vmap(torch.func.jacrev(torch.sin))(x),
    "vmap of jacfwd": lambda x: torch.vmap(torch.func.jacfwd(torch.sin))(x),
    "Jacobians of each example": lambda x: torch.vmap(torch.func.jacrev(outputs), in_dims=(None, 0))(parameters(), x),
    "Jacobians of each example forwards": lambda x: torch.vmap(torch.func.jacfwd(outputs, argnums=1), in_dims=(None, 0))(parameters(), x),
    "hessian of a model": lambda x: torch.func.hessian(loss, argnums=1)(parameters(), x),
    "vmap of hessian": lambda x: torch.vmap(torch.func.hessian(scalar))(x),
    "vmap of a view": lambda x: torch.vmap(lambda a: (a.sin()[1:], a.cos().expand(2, 3)))(x),
    "vmap of a transposed view": lambda x: torch.vmap(lambda a: (a.view(1, 3) * 2).t()[1:], out_dims=1)(x),
    "vmap of windows": lambda x: torch.vmap(lambda a: a.sin().unfold(0, 2, 1))(x),
    "vmap of what is the same for all": lambda x: torch.vmap(lambda a: (V, V.sin(), a * 2), out_dims=(None, 0, 0))(x),
    "vmap of vmap of a view": lambda x: torch.vmap(torch.vmap(lambda a: (a * torch.ones(3))[1:]))(x),
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
    "zeros for each example": lambda x: torch.vmap(lambda a: torch.zeros_like(a))(x),
    "two views of one result": lambda x: torch.vmap(lambda a: a.sin().chunk(3))(x),
    "vjp of an int": lambda x: pulled(torch.sin, x.long()),
    "vjp of an int result": lambda x: torch.func.vjp(lambda a: a.long(), x)[1](x),
    "vjp of no tensor": lambda x: pulled(lambda a: 3.0, x),
    "vjp of an argument": lambda x: pulled(lambda a: a, x),
    "a cotangent of another shape": lambda x: torch.func.vjp(torch.sin, x)[1](x[0]),
    "a cotangent of another structure": lambda x: torch.func.vjp(torch.sin, x)[1]((x,)),
    "a result written before its pullback": lambda x: (lambda value, pullback: (value.mul_(2), pullback(x)))(*torch.func.vjp(torch.sin, x)),
    "jvp of an int": lambda x: torch.func.jvp(torch.sin, (x.long(),), (x,)),
    "jvp of a list": lambda x: torch.func.jvp(torch.sin, [x], [x]),
    "a tangent of another shape": lambda x: torch.func.jvp(torch.sin, (x,), (x[0],)),
    "a tangent through no_grad": lambda x: torch.func.jvp(lambda a: a * torch.no_grad()(torch.sin)(a), (x,), (x,)),
    "a tangent at a tie": lambda x: torch.func.jvp(lambda a: torch.fmax(a, a * 1), (x,), (x,)),
    "a tangent of the standard deviation of equal numbers": lambda x: torch.func.jvp(lambda a: (a * 0).std(0), (x,), (x,)),
    "a function without a tangent": lambda x: torch.func.jvp(lambda a: torch.cdist(a, a + 1), (x,), (x,)),
    "strict": lambda x: torch.func.jvp(lambda a: V.sin(), (x,), (x,), strict=True),
    "argnums of jacrev": lambda x: torch.func.jacrev(torch.sin, argnums=3)(x),
    "jacfwd of an int": lambda x: torch.func.jacfwd(torch.sin)(x.long()),
    "jacfwd by what repeats elements": lambda x: torch.func.jacfwd(torch.sin)(x[0].expand(4, 3)),
    "jacrev in chunks": lambda x: torch.func.jacrev(torch.sin, chunk_size=2)(x),
    "jacrev of nothing": lambda x: torch.func.jacrev(torch.sin)(x[:0]),
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


@pytest.mark.parametrize("name", ["grad", "vmap", "vmap of grad", "vjp", "jvp", "jacrev", "jacfwd", "vmap of a view"])
def test_gradients_flow_on_to_what_is_closed_over(name):
    function = {"grad": lambda x: torch.func.grad(lambda a: (a @ P).square().sum())(x),
                "vmap": lambda x: torch.vmap(lambda a: (a @ P).square())(x),
                "vmap of grad": lambda x: torch.vmap(torch.func.grad(lambda a: (a @ P).sin().sum()))(x),
                "vjp": lambda x: pulled(lambda a: (a @ P).sin(), x)[1][0],
                "jvp": lambda x: torch.func.jvp(lambda a: (a @ P).sin(), (x,), (x,))[1],
                "jacrev": lambda x: torch.func.jacrev(lambda a: (a @ P).sin())(x),
                "jacfwd": lambda x: torch.func.jacfwd(lambda a: (a @ P).sin())(x),
                "vmap of a view": lambda x: torch.vmap(lambda a: (a @ P).sin()[1:])(x)}[name]
    compiled = framejit.compile(function)
    for _ in range(2):
        expected, = torch.autograd.grad(function(X).sin().sum(), P)
        found, = torch.autograd.grad(compiled(X).sin().sum(), P)
        torch.testing.assert_close(found, expected)
    assert not framejit.explain(compiled).so_far().breaks


def test_a_pullback_that_is_returned_is_torchs():
    compiled = framejit.compile(lambda x: torch.func.vjp(torch.sin, x))
    for _ in range(2):
        value, pullback = compiled(X)
        torch.testing.assert_close((value, *pullback(X)), (X.sin(), X.cos() * X))
    assert framejit.explain(compiled).so_far().breaks


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_condition_chooses_among_results(sign):
    def f(x):
        return torch.cond(x.sum() > 0, lambda a, b: {"r": (a + b).relu()}, lambda a, b: {"r": a * b}, (x, V))

    report = as_eager(f, X + sign)
    assert len(report.graphs) == 1 and not report.breaks
