"""Views, in-place operations and aliasing: memory ends up as eager leaves it."""
import numpy as np
import pytest

import framejit
from harness import Outcome, both_libraries, compare, needs_torch, same_as_eager, torch


@both_libraries
def test_in_place_operators_write_into_the_argument(lib):
    def f(x, y):
        x += 1
        x *= y
        return x

    same_as_eager(f, lib.sample((3, 4)), lib.sample((3, 4), seed=1), breaks=())


@both_libraries
def test_item_assignment(lib):
    def f(x):
        x[0] = 5
        x[1:, ::2] *= 2
        x[-1, -1] += x[0, 0]
        x[x > 4] = 0
        return x.sum()

    same_as_eager(f, lib.sample((4, 5)), breaks=())


@both_libraries
def test_views_of_arguments_are_returned_as_views(lib):
    def f(x):
        return x[1:], x.T, x.reshape(2, 6), x[::2, 1], x

    run = same_as_eager(f, lib.sample((3, 4)), compiles=False)


@both_libraries
def test_views_of_intermediates_share_one_storage(lib):
    def f(x):
        y = x * 2
        z = y[1:]
        z += 1
        return y, z, y.T

    same_as_eager(f, lib.sample((3, 4)), breaks=())


@both_libraries
def test_a_view_sees_later_writes_and_the_reverse(lib):
    def f(x):
        row = x[0]
        x += 10
        a = row * 1
        row -= 3
        return a, x * 1, row

    same_as_eager(f, lib.sample((3, 4)), breaks=())


@both_libraries
def test_one_array_given_twice(lib):
    def f(x, y):
        x += 1
        return y * 2

    x = lib.sample((3, 4))
    compiled = framejit.compile(f)
    for make in (lambda: (lib.sample((3, 4)), lib.sample((3, 4), seed=1)), lambda: (lib.sample((3, 4)),) * 2):
        for _ in range(2):
            compare(Outcome(compiled, make(), {}), Outcome(f, make(), {}))


@both_libraries
def test_arguments_that_overlap_only_on_a_later_call(lib):
    def f(x, y):
        x += 1
        return y * 2

    def overlapping():
        base = lib.sample((10,))
        return base[:6], base[3:9]

    compiled = framejit.compile(f)
    for make in (lambda: (lib.sample((6,)), lib.sample((6,), seed=1)), overlapping, overlapping):
        compare(Outcome(compiled, make(), {}), Outcome(f, make(), {}))


@both_libraries
@pytest.mark.parametrize("change", ["transposed", "strided", "negative", "fortran", "empty", "scalar", "expanded", "offset"])
def test_arguments_of_every_layout(lib, change):
    def make():
        x = lib.sample((6, 8))
        if change == "transposed":
            return x.T
        if change == "strided":
            return x[::2, 1::3]
        if change == "negative":
            return x[::-1] if lib.name == "numpy" else x.flip(0)
        if change == "fortran":
            return np.asfortranarray(x) if lib.name == "numpy" else x.t().contiguous().t()
        if change == "empty":
            return x[:0]
        if change == "scalar":
            return lib.sample(())
        if change == "expanded":
            return np.broadcast_to(x[:1], (6, 8)) if lib.name == "numpy" else x[:1].expand(6, 8)
        return x[2:, 3:]

    def f(x):
        return (x + 1) * 2, lib.exp(x) - x, x.sum()

    compiled = framejit.compile(f)
    for _ in range(2):
        compare(Outcome(compiled, (make(),), {}), Outcome(f, (make(),), {}))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["graphs"] == 1 and info["eager_replays"] == 0


@pytest.mark.parametrize("mutate", [lambda x: x.__iadd__(1), lambda x: x.__setitem__(0, 1)], ids=["+=", "[0]="])
def test_read_only_arrays_raise_numpy_s_error(mutate):
    def f(x):
        y = x * 2
        mutate(x)
        return y

    x = np.ones(3)
    x.flags.writeable = False
    compare(Outcome(framejit.compile(f), (x,), {}), Outcome(f, (x,), {}))


def test_numpy_scalars_from_full_reductions():
    def f(x):
        s = x.sum()
        return s, s * 2, x / s, np.float32(3) * s, type(s).__name__

    same_as_eager(f, np.arange(6, dtype=np.float32))


@needs_torch
def test_torch_version_counters_advance_as_in_eager():
    def f(x, y):
        x.add_(1).mul_(2)
        y[0] = 3
        return x + y

    run = same_as_eager(f, torch.ones(3), torch.ones(3), breaks=())


@needs_torch
def test_a_view_of_an_axis_of_one_element_has_the_stride_of_this_call():
    compiled = framejit.compile(lambda x: x[:])
    for x in (torch.ones(2), torch.ones(2)[::2], torch.ones(1), torch.ones(3)[::3], torch.ones(6)[::2]):
        assert compiled(x).stride() == x.stride()
    compiled = framejit.compile(lambda x: x.T)
    for x in (torch.ones(1, 3), torch.ones(2, 3)[::2], torch.ones(4, 3), torch.ones(4, 6)[::4, ::6], torch.ones(1, 1)):
        assert compiled(x).stride() == x.T.stride()


@needs_torch
def test_a_product_of_a_vector_and_a_matrix_is_squeezed_in_place_as_in_eager():
    assert framejit.compile(lambda x, y: x @ y, fullgraph=True)(torch.ones(3), torch.ones(3, 2))._version == 1


@needs_torch
def test_returned_tensors_can_be_resized_saved_and_shared():
    import io

    compiled = framejit.compile(lambda x: x * 2 + 1)
    with torch.no_grad():
        y = compiled(torch.ones(3, 4))
    y.resize_(2, 3)
    buffer = io.BytesIO()
    torch.save(y, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer), y)
    assert y.untyped_storage().nbytes() == 48
    y.share_memory_()
    assert y._version == torch.ones(3).resize_(2)._version


def test_returned_arrays_own_their_memory():
    y = framejit.compile(lambda x: x * 2 + 1)(np.ones((3, 4)))
    assert y.flags.owndata and y.base is None and y.flags.writeable
    y.resize((2, 3))
    assert y.shape == (2, 3)


@needs_torch
def test_mixed_libraries_share_memory():
    def f(x):
        a = x.numpy()
        a += 1
        t = torch.from_numpy(a)
        t.mul_(2)
        return x + 1, t

    same_as_eager(f, torch.ones(3, 4), breaks=())


@both_libraries
def test_results_stay_when_the_function_is_called_again(lib):
    compiled = framejit.compile(lambda x: x * 2)
    first = compiled(lib.sample((1000, 100)))
    kept = first * 1
    compiled(lib.sample((1000, 100), seed=5))
    assert bool((first == kept).all())
