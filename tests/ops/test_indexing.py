"""Indexing by arrays and calls of NumPy's scalar types: values, layouts, aliasing, order of writes and errors, as eager's."""
import random

import numpy as np
import pytest

import framejit
from harness import Outcome, assert_same, both_libraries, compare, needs_torch, same_as_eager

try:
    import torch
except ImportError:
    torch = None


def whole(function, *arguments, **options):
    return same_as_eager(function, *arguments, breaks=(), **options)


def sized(*shape):
    return np.arange(float(np.prod(shape))).reshape(shape)


I, J, ROWS = np.array([0, 2, -1, 1]), np.array([[1], [-2]]), np.array([0, 1, 1, -3])

# Where the arrays stand decides where their dimensions go; so does what stands between them.
READS = ["x[I]", "x[:, I]", "x[I, I]", "x[0, I]", "x[I, 0]", "x[:, 0, I]", "x[0, :, I]", "x[I, :, I]", "x[:, I, I]", "x[:, I, :, I]", "x[..., I]",
         "x[..., I, I]", "x[0, ..., I]", "x[I, None]", "x[None, I, I]", "x[I, None, I]", "x[0, None, I]", "x[1:, I]", "x[:, ::-1, I]", "x[I, J]",
         "x[J, J, I]", "x[J, :, 1]", "x[:, J, 0, I]", "x[I, I, I, I]", "x[[0, 2], [1, -1]]", "x[[0, 1]]", "x[np.array(1)]", "x[np.array(1), 2:]",
         "x[np.array(1), 0, np.array(2), -1]", "x[np.int64(1), I]", "x[I[:0]]", "x[np.ix_([0, 2], [1, 1, 0])]", "x[I.astype(np.int32), ROWS[::-1]]",
         "x[I[::2], J.T]", "np.take(x, I)", "np.take(x, I, axis=-1)", "np.take(x, I * 9, axis=1, mode='wrap')", "np.take(x, I * 9, axis=1, mode='clip')",
         "np.take_along_axis(x, np.zeros((3, 2, 3, 3), int), 1)", "np.take_along_axis(x, np.ones((1, 2, 1, 3), int), 1)"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("text", READS)
def test_reads_have_eagers_values_and_layout(text, order):
    function = eval(f"lambda x, I, J, ROWS: {text}", {"np": np})
    whole(function, np.array(sized(3, 3, 3, 3), order=order), I, J, ROWS)


WRITES = ["x[I] = 7", "x[I] = v", "x[I] += 1", "x[I] += v", "x[I, I] = v[:, 0]", "x[0, I] = v[:, 0]", "x[:, I] = v[:, 0]", "x[I, J] = 2", "x[I, J] -= v[:, 0]",
          "x[J, :, 1] = 5", "x[1:, I] = v[:, 0]", "x[..., I] *= 3", "x.T[I] = v", "x[::-1, I] = v[:, 0]", "x[ROWS] = v", "x[ROWS, ROWS] = v[:, 0]",
          "x[np.ix_([0, 2], [1, 0])] = v[:2, :2]", "x[x[0, 0].argmax()] = 4", "x[I, None] = v[:, None]", "np.add.at(x, ROWS, v)",
          "np.add.at(x, (ROWS, I), 0.1)", "np.put_along_axis(x, np.zeros((3, 1, 3), int), 8, 1)", "x[[0, 1], [2, 2]] = [5, 6, 7]"]


@pytest.mark.parametrize("text", WRITES)
def test_writes_are_eagers_and_of_repeated_indices_the_last_counts(text):
    namespace = {"np": np}
    exec(f"def function(x, v, I, J, ROWS):\n    {text}\n    return x + 1", namespace)
    whole(namespace["function"], sized(3, 3, 3) * 1.5, sized(4, 3, 3) - 20, I, J, ROWS)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"])
def test_writes_in_every_dtype(dtype):
    def f(x, v, i):
        x[i, i] = v
        return x

    whole(f, np.zeros((3, 3), dtype), np.array([1, 0, 1, 0, 1], dtype), np.array([0, 1, 2, 0, 0]))


def test_a_write_whose_order_is_that_of_memory_is_left_to_numpy():
    def f(x, i, v):
        x[i] = v
        return x

    i = np.asfortranarray(np.array([[0, 1, 2], [1, 2, 0]]))
    same_as_eager(f, np.zeros(3), i, np.asfortranarray(sized(2, 3)), compiles=False)
    same_as_eager(f, np.zeros(3), np.array([1, 1, 0])[::-1], sized(3)[::-1], compiles=False)


def test_a_part_of_the_array_itself_written_through_an_index_is_eagers():
    def f(x, i):
        x[i] = x[:3]
        x[x] = 1
        return x

    same_as_eager(f, np.array([3, 0, 2, 1, 4]), np.array([1, 2, 3]), compiles=False)


def test_an_element_picked_by_a_scalar_array_is_a_scalar_and_a_row_is_a_view():
    whole(lambda x: x[x.argmax()], sized(5))
    whole(lambda x, i: (x[i], x[i, 1:]), sized(3, 4), np.array(1))

    def f(x):
        y = x[x.sum(1).argmax()]
        y += 1
        return x

    same_as_eager(f, sized(2, 3))


@both_libraries
@pytest.mark.parametrize("index", [3, -4, 100, -2**62])
def test_an_index_out_of_range_raises_what_eager_raises_and_nothing_is_written(lib, index):
    def read(x, i, j):
        y = x * 2
        x += 1
        return y[i, j]

    def write(x, i, j):
        x += 1
        x[i, j] = 0.0

    for f in (read, write):
        x, y, compiled = lib.array(sized(3, 3).copy()), lib.array(sized(3, 3).copy()), framejit.compile(f)
        i, j = lib.array(np.array([0, 1])), lib.array(np.array([1, index]))
        compiled(lib.array(sized(3, 3)), i, i)
        with pytest.raises(IndexError) as eager:
            f(y, i, j)
        with pytest.raises(IndexError) as ours:
            compiled(x, i, j)
        assert str(ours.value) == str(eager.value)
        assert_same(x, y)


def test_sizes_of_indices_are_symbols():
    def f(x, i, j):
        x[i, j] += 1.0
        return x[j, i], x[:, j].sum(0)

    compiled = framejit.compile(f)
    for n in (3, 4, 5, 1, 7):
        rng = np.random.default_rng(n)
        x, i, j = rng.normal(size=(n + 1, n + 1)), rng.integers(-n, n, n), rng.integers(-n, n, n)
        y = x.copy()
        assert_same(compiled(x, i, j), f(y, i, j))
        assert_same(x, y)
    assert framejit.cache_info()["internal_errors"] == 0


@both_libraries
def test_cross_entropy_is_one_graph_and_so_is_its_derivative(lib):
    log, arange = (np.log, np.arange) if lib.name == "numpy" else (torch.log, torch.arange)

    def loss(logits, target):
        return (log(lib.exp(logits).sum(1)) - logits[arange(len(target)), target]).mean()

    logits, target = lib.sample((5, 7), dtype="float64"), lib.array(np.array([0, 6, -1, 3, 3]))
    whole(loss, logits, target)
    gradient = framejit.grad(loss)(logits, target)
    probabilities = np.exp(np.asarray(logits)) / np.exp(np.asarray(logits)).sum(1)[:, None]
    probabilities[np.arange(5), np.asarray(target)] -= 1
    np.testing.assert_allclose(np.asarray(gradient), probabilities / 5, atol=1e-12)


@needs_torch
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("target", [[0, 1, 7], [0, -1, 2], [-100, 1, 2**40]])
def test_a_class_that_there_is_none_of_is_eager_s_error(target, smoothing):
    def f(x, target):
        return torch.nn.functional.cross_entropy(x, target, label_smoothing=smoothing)

    compiled, x = framejit.compile(f), torch.randn(3, 7)
    compiled(x, torch.tensor([0, -100, 6]))
    with pytest.raises(IndexError) as eager:
        f(x, torch.tensor(target))
    with pytest.raises(IndexError) as ours:
        compiled(x, torch.tensor(target))
    assert str(ours.value) == str(eager.value)


@needs_torch
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_classes_are_one_graph_and_a_pass_over_the_rows(reduction):
    def f(x, target):
        return torch.nn.functional.cross_entropy(x, target, reduction=reduction)

    def g(x, target):
        return torch.nn.functional.nll_loss(torch.log_softmax(x, 1), target, reduction=reduction)

    x, target = torch.randn(64, 100), torch.randint(0, 100, (64,))
    for loss in (f, g):
        whole(loss, x, target)
        assert framejit.explain(loss)(x, target).kernel_count == (1 if reduction == "none" else 2)
    for rows in (0, 1, 2):
        whole(f, x[:rows], target[:rows])
        whole(f, x[:rows].reshape(rows, 10, 2, 5), torch.zeros(rows, 2, 5, dtype=torch.int64), compiles=reduction != "none")


@needs_torch
@pytest.mark.parametrize("options", [{}, {"ignore_index": 1, "label_smoothing": 0.2}, {"reduction": "none"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_classes_whose_numbers_vary(weighted, options):
    def f(x, target, weight):
        return torch.nn.functional.cross_entropy(x, target, weight if weighted else None, **options)

    compiled = framejit.compile(f)
    for rows, count in [(4, 16), (64, 100), (5, 3), (1, 1), (0, 7), (33, 2)]:
        x, target, weight = torch.randn(rows, count), torch.arange(rows) % count, torch.rand(count)
        assert_same(compiled(x, target, weight), f(x, target, weight))
        gradients = []
        for loss in (compiled, f):
            y = x.clone().requires_grad_()
            loss(y, target, weight).sum().backward()
            gradients.append(y.grad)
        torch.testing.assert_close(*gradients, equal_nan=True)
    assert framejit.cache_info()["internal_errors"] == 0


def test_of_an_update_that_another_overwrites_the_derivative_is_zero():
    def f(v, x):
        y = x * 1.0
        y[np.array([0, 1, 0]), np.array([1, 1, 1])] = v
        return (y * y).sum()

    x, v = sized(2, 2), np.array([3.0, 4.0, 5.0])
    np.testing.assert_array_equal(framejit.grad(f)(v, x), [0.0, 8.0, 10.0])
    np.testing.assert_array_equal(framejit.grad(lambda x, v: f(v, x))(x, v), [[0.0, 0.0], [4.0, 0.0]])


def test_examples_in_a_batch_have_indices_of_their_own():
    def f(x, i, j):
        return x[i, :, j].sum(1) * x[0, i, j]

    x, i, j = sized(4, 3, 3, 3), np.random.default_rng(0).integers(-3, 3, (4, 2)), np.array([1, 2])
    for axes in [(0, 0, None), (None, 0, None), (0, None, None)]:
        arguments = [a if axis == 0 else (a[0] if a is not j else a) for a, axis in zip((x, i, j), axes)]
        expected = np.stack([f(*[a[k] if axis == 0 else a for a, axis in zip(arguments, axes)]) for k in range(4)])
        np.testing.assert_array_equal(framejit.vmap(f, in_axes=axes)(*arguments), expected)


@needs_torch
@pytest.mark.parametrize("text", ["x[i, i]", "x[:, i, i]", "x[0, :, i]", "x[i, :, i]", "x[i, None, i]", "x[i, k]", "x[k, :, i]", "x[..., i, k]", "x[i.int(), 0]"])
def test_tensors_are_indexed_by_torchs_rules_with_gradients(text):
    f = eval(f"lambda x, i, k: {text}", {"torch": torch})
    i, k = torch.tensor([0, 2, -1]), torch.tensor([[1], [0]])
    whole(f, torch.from_numpy(sized(3, 3, 3)), i, k)
    ours, eager = (torch.from_numpy(sized(3, 3, 3)).requires_grad_() for _ in range(2))
    framejit.compile(lambda x, i, k: f(x * 2, i, k).pow(2).sum())(ours, i, k).backward()
    f(eager * 2, i, k).pow(2).sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)


def test_overlapping_windows_written_in_a_loop_are_computed_once():
    def f(y, n):
        for i in range(n):
            y[i:i + 2] += 1
        for i in range(n):
            y[1:] += y[:-1]
        return y * 2

    run = whole(f, sized(40), 14)
    assert len(str(run.kernels)) < 200_000


def drawn(seed, shape):
    """An index program: (text, index arrays)."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    picked = tuple(rng.randrange(1, 4) for _ in range(rng.randrange(3)))
    items, arrays = [], []
    for size in shape:
        kind = rng.random()
        if kind < 0.5:
            own = tuple(1 if rng.random() < 0.3 else n for n in picked)
            arrays.append(numbers.integers(-size, size, own[rng.randrange(2):] if own else own))
            items.append(f"a{len(arrays) - 1}")
        else:
            items.append(rng.choice([":", ":", "1:", "::-1", str(rng.randrange(-size, size)), "None, :", "..., None, 0" if "..." not in "".join(items) else ":"]))
    return ", ".join(items), arrays


@pytest.mark.parametrize("seed", range(60))
def test_drawn_indices(seed):
    rng = random.Random(-seed)
    shape = tuple(rng.randrange(1, 5) for _ in range(rng.randrange(1, 5)))
    text, arrays = drawn(seed, shape)
    names = "".join(f", a{i}" for i in range(len(arrays)))
    namespace = {}
    exec(f"def read(x{names}):\n    return x[{text},]\ndef write(x{names}):\n    y = x * 2\n    y[{text},] += x[{text},] + 1\n    x[{text},] = 3\n    return y", namespace)
    for function in (namespace["read"], namespace["write"]):
        same_as_eager(function, sized(*shape), *arrays, compiles=False)


# ---- np.float32(8)

@pytest.mark.parametrize("text", ["x / np.float32(8)", "x * np.float64(3)", "x + np.int64(n)", "x * np.float32(n)", "x.sum() * np.float32(2)", "np.float64(x.sum()) + x",
                                  "x[np.int64(1):] + 1", "x.reshape(np.int64(2), -1) + 1", "np.float16(2.5) + x", "np.int8(3) * x.astype(np.int8)", "x + np.bool_(n)",
                                  "np.float32(x) + 1", "np.float64(x[::-1]) * 2", "np.int32(x * 3)", "(x + np.float32(), np.float32(0.1), np.uint8(200), np.bool_(0))",
                                  "np.float32(np.float64(n) / 3) * x", "np.int64(x.sum() * 4) * x", "np.float32(8) ** 0.5 * 2 * x", "x * -np.float32(n)", "(np.int8(3) + np.int8(n % 8)) * x.astype(np.int8)", "np.float32(x.shape[0]) * x", "np.float32(y[()]) * x"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scalar_types_make_scalars_whose_dtype_counts(text, dtype):
    f = eval(f"lambda x, n, y: {text}", {"np": np})
    compiled = framejit.compile(f)
    for n, size in [(3, 4), (5, 6), (8, 2), (2**40 + 1, 2)]:
        x, y = (sized(size) + 0.25).astype(dtype), np.array(2.7)
        assert_same(compiled(x, n, y), f(x, n, y))
    whole(f, sized(4).astype(dtype), 3, np.array(2.7), calls=1)


def test_an_array_of_the_scalar_types_dtype_is_itself():
    x = sized(3)
    assert framejit.compile(lambda x: np.float64(x))(x) is x


@pytest.mark.parametrize("text", ["np.float32(1e300)", "np.int8(300)", "np.int64(float('nan'))", "np.uint8(-1)", "np.float16(70000)", "np.float64('2.5')",
                                  "np.float32([1, 2])", "np.int64(2**70)", "np.float64(None)", "np.float32(x, x)", "np.float32(1e-46)", "(np.int8(100) + np.int8(100))", "(np.float32(1) / np.float32(0))", "-np.uint8(1)"])
def test_what_a_scalar_type_refuses_or_warns_of_is_eagers(text):
    same_as_eager(eval(f"lambda x: x * {text}", {"np": np}), sized(3), compiles=False)
    with np.errstate(under="warn"):
        same_as_eager(eval(f"lambda x: x * {text}", {"np": np}), sized(3), compiles=False)


def test_attention_written_for_float32_is_one_graph():
    def attention(q, k, v):
        scores = q @ k.transpose(0, 2, 1) / np.float32(8)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        return scores / scores.sum(-1, keepdims=True) @ v

    rng = np.random.default_rng(0)
    whole(attention, *(rng.normal(size=(2, 5, 4)).astype("float32") for _ in range(3)))


def test_a_read_by_index_arrays_of_any_layout_lies_as_in_numpy():
    def by_one(x, i):
        return x[i]

    def by_two(x, i):
        return x[:, i, i]

    column_major = np.zeros((2, 2, 2), int).T, np.asfortranarray(np.zeros((2, 3), int))
    for function, x in ((by_one, np.zeros((4, 3))), (by_one, np.zeros((4, 1))), (by_one, np.zeros((4, 2, 2))), (by_one, np.zeros(4)),
                        (by_two, np.zeros((4, 3, 3))), (by_two, np.zeros((1, 3, 3)))):
        compiled = framejit.compile(function)
        for i in column_major:
            assert compiled(x, i).strides == function(x, i).strides


def test_dimensions_without_a_key_lie_as_in_an_array_made_like_them():
    base = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    keys = np.array([0, 1, 1]), np.array([[0], [1]])
    for x in (base, base.T, base.transpose(1, 3, 0, 2), base[:, ::-1], base[..., ::-1].transpose(0, 2, 1, 3), np.broadcast_to(base[:1], base.shape),
              base.transpose(3, 0, 2, 1)[::-2]):
        for i in keys:
            same_as_eager(lambda x, i: (x[i], x[:, i], x[:, :, i]), x, i)


@pytest.mark.parametrize("index, values", [((np.array([1, 1]),), [[2.0, 3.0]]), ((np.array(1),), [2.0])])
def test_add_at_takes_no_values_of_more_dimensions(index, values):
    def f(x, values):
        np.add.at(x, index, values)

    same_as_eager(f, np.zeros(3), np.array(values), compiles=False)


@pytest.mark.parametrize("values", [lambda x: x[x > 1][None], lambda x: [[1.0]], lambda x: np.array([[3.0]])])
def test_a_mask_of_all_axes_takes_no_values_of_two_dimensions(values):
    def f(x):
        x[x > 1] = values(x)

    with pytest.raises(TypeError, match="requires a 0 or 1-dimensional input"):
        framejit.compile(f)(np.arange(4.0))

    def rows(x):
        x[x[:, 0] > 1] = np.ones((1, 1, 3))  # of some axes it does
        return x

    same_as_eager(rows, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("dtype", ["float64", "bool"])
@pytest.mark.parametrize("program", ["x[np.arange(5)]", "x[np.arange(5)] * 2",
                                     "np.take(x, np.arange(300))", "x[np.arange(-4, 0)]", "x[:, None][np.arange(5), 0]"])
def test_a_counted_index_out_of_range_is_an_error(program, dtype):
    """The loop is cut where the index leaves the array: behind that nothing is loaded, but the index is out of range all the same."""
    space = {"np": np}
    exec(f"def f(x):\n    return {program}\n", space)
    compiled = framejit.compile(space["f"])
    for size in (400, 3, 0, 1, 3, 400):
        x = np.ones(size, dtype)
        for source in (x, np.broadcast_to(x[:1], (size,)) if size else x):
            compare(Outcome(compiled, (source,), {}), Outcome(space["f"], (source,), {}))


@needs_torch
@pytest.mark.parametrize("shape, index", [((0, 3), (0, 3)), ((4, 3), (0, 3)), ((4, 3), (0,)), ((4, 3), (4, 3)), ((4, 3), (4,)), ((1,), (1,)), ((5,), (1,)), ((4, 3), (1, 1)), ((1,), (1, 1))])
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8"])
def test_a_tensor_of_no_or_one_element_indexes_an_array_as_an_integer_does(shape, index, dtype):
    def f(x, at):
        y = x.copy()
        y[at] = 5
        return x[at], y

    same_as_eager(f, np.arange(np.prod(shape), dtype=float).reshape(shape), torch.zeros(index, dtype=getattr(torch, dtype)), calls=2)


@needs_torch
def test_a_tensor_that_shrinks_to_one_element_becomes_an_integer_index():
    def f(x, at):
        return x[at], x[at, 1:], x[..., 0][at]

    compiled = framejit.compile(f)
    for count in (3, 2, 4, 1, 0, 2, 1):
        x, at = np.arange(12.0).reshape(4, 3), torch.arange(count) % 4
        for ours, eager in zip(compiled(x, at), f(x, at)):
            assert type(ours) is type(eager) and ours.shape == eager.shape
            np.testing.assert_array_equal(ours, eager)
