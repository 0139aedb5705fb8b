"""The option on_recompile: what becomes of a call that no compiled piece fits."""
import warnings

import numpy as np
import pytest

import framejit


def pieces(function):
    return len(framejit.explain(function).so_far().graphs)


def test_an_error_says_what_changed_and_nothing_has_happened():
    seen = []

    def step(x, k):
        seen.append(k)
        return x * k + 1

    compiled = framejit.compile(step, on_recompile="error")
    x = np.arange(4.0)
    np.testing.assert_array_equal(compiled(x, 2), x * 2 + 1)
    with pytest.raises(framejit.RecompileError) as caught:
        compiled(x.astype(np.float32), 2)
    assert seen == [2] and issubclass(framejit.RecompileError, framejit.Error)
    text = str(caught.value)
    assert text.startswith("framejit: no compiled piece of ") and "step fits this call" in text
    assert "f64[4]" in text and "f32[4]" in text and "framejit.warm_up" in text
    np.testing.assert_array_equal(compiled(x, 2), x * 2 + 1)
    assert pieces(compiled) == 1


def test_warm_up_compiles_whatever_the_option_says():
    compiled = framejit.compile(lambda x: np.exp(x) * 2, on_recompile="error")
    framejit.warm_up(compiled, (((4, 4), "float64"),), (((8, 4), "float64"),))
    for rows in (4, 8, 30):
        x = np.random.rand(rows, 4)
        np.testing.assert_allclose(compiled(x), np.exp(x) * 2)
    with pytest.raises(framejit.RecompileError):
        compiled(np.random.rand(4))


def test_eagerly_the_call_is_pythons():
    compiled = framejit.compile(lambda x: (x * 2 + 1, framejit.is_compiling()), on_recompile="eager")
    assert compiled(np.arange(3.0))[1] is True
    result, was_compiled = compiled(np.arange(5, dtype=np.int64))
    assert result.tolist() == [1, 3, 5, 7, 9] and result.dtype == np.int64 and was_compiled is False
    assert pieces(compiled) == 1
    (fallback,) = framejit.explain(compiled).so_far().fallbacks
    assert 'on_recompile is "eager"' in fallback and "i64[5]" in fallback


def test_a_warning_and_the_call_is_compiled():
    compiled = framejit.compile(lambda x: x - 1, on_recompile="warn")
    compiled(np.arange(3.0))
    with pytest.warns(RuntimeWarning, match="no compiled piece of .* fits this call"):
        assert compiled(np.arange(3)).tolist() == [-1, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(np.arange(3))
        with pytest.raises(RuntimeWarning):
            compiled(np.arange(3, dtype=np.int8))
    assert pieces(compiled) == 2


def test_a_block_uses_what_was_compiled_outside_of_it():
    compiled = framejit.compile(lambda x: np.tanh(x) + x)
    x = np.random.rand(6)
    expected = compiled(x)
    with framejit.options(on_recompile="error"):
        np.testing.assert_array_equal(compiled(x), expected)
        with pytest.raises(framejit.RecompileError):
            compiled(x.astype(np.float32))
        with framejit.options(on_recompile="compile"):
            compiled(x.astype(np.float32))
        compiled(x.astype(np.float32))
    assert pieces(compiled) == 2


def test_a_piece_after_a_break_counts_too():
    def step(x, name):
        y = x * 2
        print(name, end="")
        return y + len(name)

    compiled = framejit.compile(step, on_recompile="error")
    compiled(np.ones(3), "ab")
    with pytest.raises(framejit.RecompileError):
        compiled(np.ones(3, np.float32), "ab")


@pytest.mark.parametrize("wrong", ["never", "Error", ""])
def test_other_texts_are_refused(wrong):
    with pytest.raises(ValueError, match="on_recompile"):
        framejit.compile(lambda x: x, on_recompile=wrong)


def test_a_block_ends_with_its_options():
    """The first call of a function was in a block: later ones outside had its options."""
    def doubled(x):
        if x.sum() > 2:
            return x * 2
        return x

    compiled = framejit.compile(doubled)
    with framejit.options(fullgraph=True), pytest.raises(framejit.GraphBreakError):
        compiled(np.ones(3))
    assert compiled(np.ones(3)).tolist() == [2, 2, 2]

    compiled = framejit.compile(lambda x: np.exp(x) * 2)
    with framejit.options(backend="eager"):
        compiled(np.ones(3))
    compiled(np.ones(3))
    assert framejit.explain(compiled).so_far().kernel_count > 0


def test_a_block_may_take_back_what_the_function_was_given():
    compiled = framejit.compile(lambda x: (print(end=""), x * 2)[1], fullgraph=True)
    with framejit.options(fullgraph=False):
        assert compiled(np.ones(2)).tolist() == [2, 2]
    with pytest.raises(framejit.GraphBreakError):
        compiled(np.ones(2))


def test_a_mode_in_which_the_call_runs_as_eager_is_no_reason():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    compiled = framejit.compile(lambda x: x * 2 + 1, on_recompile="error")
    x = torch.ones(3)
    compiled(x)
    with Seen():
        assert compiled(x).tolist() == [3, 3, 3]
    with pytest.raises(framejit.RecompileError):
        compiled(x.double())


def test_a_place_that_has_given_up_is_no_other():
    compiled = framejit.compile(lambda x: x + 1, recompile_limit=1)
    compiled(np.ones(3))
    compiled(np.ones(3, np.int8))
    with framejit.options(on_recompile="error"):
        compiled(np.ones(3))
        with pytest.raises(framejit.RecompileError):
            compiled(np.ones(3, np.int16))


def test_a_call_that_looks_like_a_refused_one_and_fits_a_piece_is_no_reason():
    class Setting:
        name = ""

    def f(x, setting):
        return x * (2.0 if setting.name.upper() == setting.name else 3.0)

    compiled, setting, x = framejit.compile(f), Setting(), np.ones(3)
    for refused in (1, 2, 7, 15):
        for name in "abcdefgh" + "i" * refused:
            setting.name = name
            compiled(x, setting)
        with framejit.options(on_recompile="error"):
            setting.name = "d"
            assert compiled(x, setting).tolist() == [3, 3, 3]
            setting.name = "z"
            with pytest.raises(framejit.RecompileError):
                compiled(x, setting)
