"""Sizes that depend on data: masks, nonzero and what is made from them, in one graph that is good for every count."""
import numpy as np
import pytest

import framejit
from harness import assert_same, both_libraries, needs_torch, same_as_eager

try:
    import torch
except ImportError:
    torch = None

COUNTS = ["some", "all", "none", "one", "two", "some"]


def masked(shape, count, seed=0):
    """An array whose elements above 0 are as many as `count` says."""
    numbers = np.random.default_rng(seed)
    x = -np.abs(numbers.normal(size=shape)) - 0.1
    chosen = numbers.permutation(x.size)
    few = {"some": x.size // 2, "all": x.size, "none": 0, "one": min(1, x.size), "two": min(2, x.size)}[count]
    x.reshape(-1)[chosen[:few]] *= -1
    return x


def check(f, lib, shape, *more, whole=True):
    """One graph for all counts (fewer than two may run eagerly), each with eager's result and effects."""
    framejit.reset()
    compiled = framejit.compile(f, fullgraph=whole)
    for seed, count in enumerate(COUNTS):
        given = [lib.array(masked(shape, count, seed)), *(lib.array(np.array(m)) for m in more)]
        same = [lib.array(np.array(g)) for g in given]
        assert_same(compiled(*given), f(*same))
        assert_same(given, same)
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["recompiles"] == 0 and info["kernels_launched"] > 0, info
    return info


BOTH = ["x[x > 0]", "x[x > 0].sum()", "(x[x > 0] * 2 + 1).sum()", "x[x > 0] + x[x > 0]", "len(x[x > 0])", "x[x > 0].shape", "x[x > 0] * len(x[x > 0])",
        "x[(x > 0) & (x < 1)]", "x[x.sum(-1) > 0]", "x[:, x[0] > 0]", "x[x > 0][None]", "lib.exp(x[x > 0]) - x.sum()", "x[x > 0].reshape(-1)",
        "(x[x > 0], x[x <= 0])"]


@both_libraries
@pytest.mark.parametrize("text", BOTH)
@pytest.mark.parametrize("shape", [(4, 6), (5, 3, 2)])
def test_reads_through_masks(lib, text, shape):
    check(eval(f"lambda x: {text}", {"lib": lib}), lib, shape)


@both_libraries
@pytest.mark.parametrize("text", ["x[x > 0] = 7", "x[x > 0] += 1", "x[x > 0] = x[x > 0] * 2", "x[x > 0] = y[x > 0]", "x[x > 0] *= y[x > 0]", "x[x[:, 0] > 0] = 3",
                                  "x[x[:, 0] > 0] += y[x[:, 0] > 0]", "x[:, x[0] > 0] = 1.5", "y[:] = 0; y[x > 0] = x[x > 0]"])
def test_writes_through_masks(lib, text):
    namespace = {}
    exec(f"def f(x, y):\n    {text}\n    return x * 1", namespace)
    check(namespace["f"], lib, (4, 6), masked((4, 6), "some", 9))


@pytest.mark.parametrize("text", ["np.nonzero(x > 0)", "(x > 0).nonzero()", "np.flatnonzero(x > 0)", "np.argwhere(x > 0)", "np.where(x > 0)", "len(np.nonzero(x > 0)[0])",
                                  "np.compress(x[0] > 0, x, axis=1)", "(x.compress(x[:, 0] > 0, 0))", "np.extract(x > 0, x)", "x[np.nonzero(x > 0)]",
                                  "np.ones_like(x[x > 0])", "np.arange(len(x[x > 0]))", "np.zeros((len(x[x > 0]), 2))", "x[np.flatnonzero(x[:, 0] > 0)]",
                                  "np.nonzero(np.floor(x))", "x[x > 0].size + 1", "(x[x > 0] > 1).any()", "np.concatenate([x[x > 0], x[0]])",
                                  "np.where(x[x > 0] > 0.5, 1.0, x[x > 0])", "x[x > 0].astype(np.float32)", "np.cumsum(x[x > 0])", "x[x[:, 0] > 0] @ x.T"])
def test_functions_of_numpy(text):
    check(eval(f"lambda x: {text}", {"np": np}), Numpy, (4, 6))
    if not any(part in text for part in ("@", "compress", "x[:, 0]", "concatenate")):
        check(eval(f"lambda x: {text}", {"np": np}), Numpy, (3, 2, 4))


class Numpy:
    array = staticmethod(np.array)


class Torch:
    @staticmethod
    def array(value):
        return torch.from_numpy(np.array(value))


@needs_torch
@pytest.mark.parametrize("text", ["torch.nonzero(x > 0)", "(x > 0).nonzero(as_tuple=True)", "torch.argwhere(x > 0)", "torch.where(x > 0)", "x.masked_select(x > 0)",
                                  "torch.masked_select(x, x[0] > 0)", "torch.ones_like(x[x > 0])", "torch.zeros(len(x[x > 0]))", "torch.arange(x[x > 0].numel())",
                                  "x[torch.nonzero(x[:, 0] > 0)[:, 0]]", "torch.cat([x[x > 0], x[0]])", "x[x > 0].mean()", "torch.relu(x[x > 0] - 0.5).sum() + x[x > 0].size(0)",
                                  "x[x[:, 0] > 0] @ x.T"])
def test_functions_of_torch(text):
    check(eval(f"lambda x: {text}", {"torch": torch}), Torch, (4, 6))


@needs_torch
@pytest.mark.parametrize("text", ["x[x > 0].pow(2).sum()", "(x[x > 0] * w[x > 0]).sum()", "x.masked_select(x > 0).exp().mean()", "(x[x[:, 0] > 0] * w[0]).sum()", "(x * w)[x > 0].sin().sum()"])
def test_gradients_flow_through_masks(text):
    f = eval(f"lambda x, w: {text}", {"torch": torch})
    compiled = framejit.compile(f)
    for seed, count in enumerate(COUNTS):
        both = []
        for function in (f, compiled):
            x, w = (torch.from_numpy(masked((4, 6), c, seed)).requires_grad_() for c in (count, "some"))
            result = function(x, w)
            result.backward()
            both.append((result.detach(), x.grad, w.grad))
        for eager, ours in zip(*both):
            assert (eager is None) == (ours is None)
            if eager is not None:
                torch.testing.assert_close(ours, eager, equal_nan=True)
    assert framejit.cache_info()["internal_errors"] == 0


@both_libraries
def test_a_branch_on_such_a_size_is_python_s(lib):
    def f(x):
        chosen = x[x > 0]
        if len(chosen) > 5:
            return chosen * 2
        print(len(chosen), tuple(chosen.shape))
        return chosen - 1

    for count in COUNTS:
        same_as_eager(f, lib.array(masked((4, 6), count)), compiles=False)


@both_libraries
def test_sizes_change_with_shapes_too(lib):
    def f(x):
        return x[x > 0] * x.shape[0], x[x.sum(1) > 0]

    compiled = framejit.compile(f)
    for n in (4, 5, 6, 1, 9):
        x = lib.array(masked((n, 3), "some", n))
        assert_same(compiled(x), f(x))
    assert framejit.cache_info()["internal_errors"] == 0


def test_a_mask_of_another_shape_raises_eagers_error():
    def f(x, mask):
        return x[mask]

    compiled = framejit.compile(f)
    compiled(np.ones((3, 2)), np.array([True, False, True]))
    with pytest.raises(IndexError) as eager:
        f(np.ones((3, 2)), np.array([True, False]))
    with pytest.raises(IndexError) as ours:
        compiled(np.ones((3, 2)), np.array([True, False]))
    assert str(ours.value) == str(eager.value)


def test_a_write_of_the_wrong_number_of_values_raises_eagers_error():
    def f(x, y):
        x[x > 0] = y[y > 0]
        return x

    x, y = masked((3, 4), "some", 1), masked((3, 4), "two", 2)
    same_as_eager(f, x, x + 0, compiles=False)
    same_as_eager(f, x, y, compiles=False)
