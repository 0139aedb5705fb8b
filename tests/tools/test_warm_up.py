"""framejit.warm_up: what is called with examples compiles nothing when it is called again."""
import functools

import numpy as np
import pytest

import framejit


def compiled_so_far():
    info = framejit.cache_info()
    return [info[name] for name in ("segments", "graphs", "kernels_compiled", "kernels_loaded", "recompiles")]


@framejit.compile
def scaled(x, k, *, bias=None):
    return np.tanh(x) * k if bias is None else np.tanh(x) * k + bias


def test_later_calls_compile_nothing():
    assert framejit.warm_up(scaled, (((64, 64), "float32"), 3), (np.ones(5), 2)) == 2
    assert framejit.cache_info()["background_jobs"] == 0
    before = compiled_so_far()
    for _ in range(100):
        assert np.array_equal(scaled(np.zeros((64, 64), "float32"), 3), np.zeros((64, 64)))
        scaled(np.full(5, 2.0), 2)
    framejit._core.finish_compiling()
    assert compiled_so_far() == before


def test_a_second_warm_up_compiles_nothing():
    assert framejit.warm_up(scaled, (((4,), float), 1)) == 1
    assert framejit.warm_up(scaled, (((4,), float), 1)) == 0 and framejit.warm_up(scaled) == 0


def test_examples_are_positional_keywords_or_one_argument():
    seen = []

    @framejit.compile
    def f(x, y=None):
        with framejit.options():
            note(x, y)
        return x

    @framejit.disable
    def note(x, y):
        seen.append((x, y))

    x = np.ones(2)
    framejit.warm_up(f, x, (x,), {"x": x, "y": [((2, 3), np.int32), 7]}, ((3,), "float16"), ([x],), (((1, 2), "no dtype"), (1, 2)))
    assert seen[0][0] is x and seen[1][0] is x and seen[2][0] is x
    zeros, seven = seen[2][1]
    assert zeros.shape == (2, 3) and zeros.dtype == np.int32 and not zeros.any() and seven == 7
    assert seen[3][0].shape == (3,) and seen[3][0].dtype == np.float16
    assert seen[4][0][0] is x and seen[5] == (((1, 2), "no dtype"), (1, 2))


def test_methods_partials_and_objects_are_warmed_up():
    class Layer:
        def __init__(self):
            self.weight = np.full(3, 2.0)

        @framejit.compile
        def forward(self, x):
            return np.exp(x) * self.weight

        def __call__(self, x):
            return np.exp(x) - self.weight

    layer = Layer()
    assert framejit.warm_up(layer.forward, (((3,), float),)) == 1
    assert framejit.warm_up(framejit.compile(Layer()), (((3,), float),)) == 1
    assert framejit.warm_up(framejit.compile(functools.partial(lambda a, b: np.sin(a) + b, np.ones(3))), (((3,), float),)) == 1


def test_modules_of_torch_are_warmed_up():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = framejit.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()))
    with torch.no_grad():
        assert framejit.warm_up(model, (((2, 4), torch.float32),)) == 1
        before = compiled_so_far()
        model(torch.ones(2, 4))
    assert compiled_so_far() == before


def test_what_is_not_compiled_and_what_raises_is_said():
    with pytest.raises(TypeError, match=r"framejit.warm_up takes what framejit.compile has returned, not <function .*plain"):
        def plain(x):
            return x
        framejit.warm_up(plain, (1,))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
        framejit.warm_up(scaled, (np.ones(3),))
    with pytest.raises(ValueError, match="negative"):
        framejit.warm_up(scaled, (((-1,), float), 2))


def test_a_tier_that_was_chosen_is_kept():
    quick = framejit.compile(lambda x: np.exp(x) * 3 + 1, tier="quick")
    with framejit.options(cache_bytes=0):
        assert framejit.warm_up(quick, (((7,), float),)) == 1
    assert framejit.cache_info()["kernels_optimised"] == 0


def test_after_a_first_call_the_pieces_are_those_of_later_calls():
    f = framejit.compile(lambda x: np.sqrt(x) + 1)
    f(np.ones(3))
    framejit.warm_up(f, (np.ones((2, 2), np.float32),))
    before = framejit.cache_info()
    assert f(np.full((2, 2), 4, np.float32)).tolist() == [[3, 3], [3, 3]]
    after = framejit.cache_info()
    assert after["hits"] == before["hits"] + 1 and after["graphs"] == before["graphs"]
