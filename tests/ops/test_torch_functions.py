"""The torch front end against eager torch: values, dtypes, strides, views and aliasing, for memory layouts and dtypes.

An expression eager refuses for a dtype must raise the same error compiled. Where eager has a result, the reference back end
evaluates the captured graph, so a failure here is the front end's.
"""
import numpy as np
import pytest

import framejit
from harness import same_as_eager

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

import torch_cases as cases  # noqa: E402

DTYPES = ["float16", "bfloat16", "float64", "int64", "uint8", "bool"]


def sample(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 3, 5, generator=generator) * 2
    if dtype == torch.uint8:
        x = x.abs()
    return x > 0 if dtype == torch.bool else x.to(dtype)


def layouts(x):
    """Tensors equal to x that lie differently in memory."""
    yield "contiguous", x
    yield "transposed", x.transpose(0, 1).contiguous().transpose(0, 1)
    yield "channels_last", x.contiguous(memory_format=torch.channels_last)
    yield "permuted", x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)


def function(body):
    """`def f(x): body`: compiled from text, so that the table holds what a user writes."""
    scope = {"torch": torch, "F": F}
    exec(f"def f(x):\n    {body}", scope)
    return scope["f"]


def expression(text):
    # Some results alone need no kernel: the sum is one.
    return function(f"return {text}, x.sum()")


def agree(text, x, **options):
    same_as_eager(expression(text), x, backend="reference", compiles=False, **options)


@pytest.mark.parametrize("text", cases.POINTWISE + cases.REDUCTIONS + cases.SHAPES)
def test_expression_in_each_layout(text):
    for _, x in layouts(sample()):
        agree(text, x, calls=1)


@pytest.mark.parametrize("text", cases.POINTWISE + cases.REDUCTIONS)
def test_expression_in_each_dtype(text):
    for dtype in DTYPES:
        agree(text, sample(getattr(torch, dtype)), calls=1)


@pytest.mark.parametrize("text", cases.POINTWISE + cases.REDUCTIONS)
def test_expression_of_floats_compiles_without_a_break(text):
    try:
        expression(text)(sample())
    except Exception:
        pytest.skip("eager refuses floats here")
    same_as_eager(expression(text), sample(), backend="reference", breaks=())


@pytest.mark.parametrize("text", cases.CREATION)
def test_creation(text):
    agree(text, sample())


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool"])
@pytest.mark.parametrize("statement", cases.WRITES)
def test_write_into_a_new_tensor_and_into_a_view(statement, dtype):
    x = sample(getattr(torch, dtype))
    same_as_eager(function(f"y = x.clone(); {statement}; return y"), x, backend="reference", compiles=False, calls=1)
    same_as_eager(function(f"z = x.clone(); y = z[:]; {statement}; return z"), x, backend="reference", compiles=False, calls=1)


@pytest.mark.parametrize("statement", cases.WRITES)
def test_write_into_an_argument(statement):
    same_as_eager(function(f"y = x; x = y * 1; {statement}; return x"), sample(), backend="reference", compiles=False, calls=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_copied_nan_keeps_its_sign_and_payload(dtype):
    nans = [0x7FFF, -1, 0x7FC0, -64] if dtype == torch.bfloat16 else [0x7FFF, -1, 0x7E00, -512]
    n = torch.tensor(nans * 9, dtype=torch.int16).view(dtype)

    def f(n):
        return n.roll(1), torch.cat((n, n)), torch.copysign(torch.ones_like(n), n.flip(0))

    for actual, expected in zip(framejit.compile(f)(n), f(n)):
        assert torch.equal(actual.view(torch.int16), expected.view(torch.int16))


@pytest.mark.parametrize("bits", [0x7FC0, 0xFFC0, 0x7FA1, 0xFF81])
def test_copies_keep_the_bits_of_a_bfloat16_nan(bits):
    def f(x):
        return [y.view(torch.int16) for y in (x.clone(), torch.cat([x, x]), x.roll(1), torch.where(x > 0, x, x), x.relu())], x * 2

    x = torch.tensor([bits - 65536 if bits > 32767 else bits, 0x3F80], dtype=torch.int16).view(torch.bfloat16)
    same_as_eager(f, x)


@pytest.mark.parametrize("operation", [lambda x, y: x / y, lambda x, y: x + y, lambda x, y: x > y, lambda x, y: torch.where(y > 0, x, y)])
def test_the_strides_of_promoted_operands_are_those_of_their_copies(operation):
    expanded = torch.ones(1, 3, 4, 5, dtype=torch.uint8).expand(2, 3, 4, 5)
    for y in (torch.ones(5, 3, 4, 2).permute(3, 1, 2, 0), torch.ones(3, 4, 2, 5).permute(2, 0, 1, 3)):
        for other in (y, y.to(torch.uint8)):
            same_as_eager(operation, expanded, other)
            same_as_eager(operation, other, expanded)


@pytest.mark.parametrize("text", [
    "torch.flip(x, 0)", "torch.tile(x, 2)", "torch.tile(x, 2, 2)", "x.flip()", "x.flip(0, keepdim=True)", "x.repeat(2, 1, 1, 1, foo=1)",
    "torch.hypot(x, 0.5)", "torch.atan2(x, 2)", "torch.prod(x, (0, 1))", "x.sum(True)", "x.std(0, correction=1, unbiased=True)", "torch.full(2, 3)"])
def test_arguments_that_torch_does_not_take_raise_its_error(text):
    agree(text, sample())
    agree(text.replace("x", "x.double()") if "torch" in text else text, sample())


@pytest.mark.parametrize("operation", [lambda x, y: x > y, lambda x, y: (x * y).sum(0)])
def test_tensors_without_elements_and_memory(operation):
    # An axis of stride 0 is loaded outside of the loop that would find that there is nothing.
    empty = torch.from_numpy(np.empty(0, np.float32)).as_strided((0,), (0,))
    assert empty.data_ptr() == 0
    same_as_eager(operation, torch.ones(3, 0), empty, compiles=False)


LATE_UNSIGNED = {
    "arithmetic": lambda x: x + 1, "multiplied": lambda x: x * 2, "compared": lambda x: x < 2, "equal": lambda x: x == x, "negated": lambda x: -x,
    "largest": lambda x: x.max(), "summed": lambda x: x.sum(), "scanned": lambda x: x.cumsum(0), "shifted": lambda x: x << 1, "and": lambda x: x & 1,
    "chosen": lambda x: torch.where(x > 1, x, x), "joined": lambda x: torch.cat([x, x]), "indexed": lambda x: x[torch.tensor([0, 2])],
    "converted": lambda x: x.float() * 2, "filled": lambda x: x.clone().fill_(1), "in place": lambda x: x.add_(1), "masked": lambda x: x.masked_fill(x > 1, 1),
    "flipped": lambda x: x.flip(0), "view": lambda x: (x.view(3, 1).shape, x[1:]), "made": lambda x: torch.full((2,), 7, dtype=x.dtype),
    "range": lambda x: torch.arange(3, dtype=x.dtype), "rounded to": lambda x: torch.ones(3).to(x.dtype), "triangle": lambda x: x[None].tril(),
    "promoted": lambda x: torch.ones(3).add_(x), "sum of it": lambda x: torch.ones(3).sum(dtype=x.dtype),
}


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("function", LATE_UNSIGNED.values(), ids=LATE_UNSIGNED)
def test_of_the_late_unsigned_types_torch_says_what_it_has(function, dtype):
    same_as_eager(function, torch.tensor([1, 2, 3]).to(getattr(torch, dtype)), compiles=False)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_of_two_tensors_whose_sizes_change_together(name, reduction):
    def f(x, y):
        return getattr(torch.nn.functional, name)(x, y, reduction=reduction)

    same_as_eager(f, torch.arange(6.0), torch.ones(6), dynamic=True, breaks=())


def test_a_number_in_the_place_of_the_first_tensor_is_left_to_torch():
    compiled = framejit.compile(lambda x, n: x + torch.div(n, 2, rounding_mode="trunc"))
    assert torch.equal(compiled(torch.ones(2), 5), torch.full((2,), 3.0))
    assert [entry.number for entry in framejit.explain(compiled).so_far().breaks] == ["FJ106"]


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_cat_skips_an_empty_1_d_tensor_among_others(dim):
    empty, x = torch.tensor([]), torch.arange(6.0).reshape(2, 3)
    same_as_eager(lambda x: torch.cat([torch.tensor([], dtype=x.dtype), x], dim=dim), x)
    same_as_eager(lambda e, x: torch.cat([e, x], dim=dim), empty, x)
    same_as_eager(lambda e, x: torch.cat([x, e, x.T.contiguous().T], dim=dim) + 1, empty, x)
    same_as_eager(lambda e, x: torch.cat([e, x], dim=dim), empty.double(), x)
    same_as_eager(lambda e, x: torch.cat([e, x], dim=dim), empty.long(), x)
    same_as_eager(lambda e, x: torch.cat([e, x], dim=dim), empty, x[:0])
    same_as_eager(lambda e, x: torch.cat([e, x], dim=dim), empty, torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    compiled = framejit.compile(lambda e, x: torch.cat([e, x], dim=0))
    result = compiled(empty, x)
    result += 1
    assert torch.equal(result, x + 1) and torch.equal(x, torch.arange(6.0).reshape(2, 3))
    with pytest.raises(RuntimeError):
        compiled(torch.ones(1), x)
    leaf = x.clone().requires_grad_()
    compiled(empty, leaf).square().sum().backward()
    assert torch.equal(leaf.grad, 2 * x)
    both = empty.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(*both).square().sum().backward()
    assert both[0].grad.shape == (0,) and torch.equal(both[1].grad, 2 * x)


@pytest.mark.parametrize("offset", [0, 10**9 - 1])
def test_what_does_not_depend_on_an_empty_loop_is_not_loaded(offset):
    empty = torch.empty_strided((0, 10**9), (0, 1))
    for dynamic in (None, True):
        same_as_eager(lambda x: (x[:, offset] * 2).sum(), empty, dynamic=dynamic, breaks=())
        same_as_eager(lambda x: x[:, offset] + 1, empty, dynamic=dynamic, breaks=())


X3, ONES = torch.arange(24.0).reshape(2, 3, 4), torch.ones(3)
REFUSED = {
    "batch_norm, statistics of another dtype": lambda: F.batch_norm(X3, ONES.double(), ONES.double(), training=True),
    "batch_norm, half weight beside wide ones": lambda: F.batch_norm(X3.bfloat16(), ONES, ONES, ONES.bfloat16(), ONES, training=True),
    "batch_norm in eval, weight of another dtype": lambda: F.batch_norm(X3, ONES, ONES, ONES.double()),
    "batch_norm in eval, eps": lambda: F.batch_norm(X3, ONES, ONES, eps=-1.0),
    "batch_norm in eval, momentum": lambda: F.batch_norm(X3, ONES, ONES, momentum=None),
    "batch_norm, eps of zero": lambda: F.batch_norm(X3, ONES.clone(), ONES.clone(), training=True, eps=0.0),
    "group_norm, weight of another dtype": lambda: F.group_norm(X3, 1, ONES.double()),
    "group_norm, negative groups": lambda: F.group_norm(X3, -3),
    "max_pool2d, three sizes": lambda: F.max_pool2d(X3, (2, 2, 2)),
    "max_pool2d, three steps": lambda: F.max_pool2d(X3, 2, (2, 1, 2)),
    "max_pool2d of nothing": lambda: F.max_pool2d(X3[None, :, :0].expand(2, 2, 0, 4), 2),
    "embedding, padding out of range": lambda: F.embedding(torch.tensor([0]), X3[0], padding_idx=100),
    "embedding, padding below": lambda: F.embedding(torch.tensor([0]), X3[0], padding_idx=-9),
    "cumprod of booleans": lambda: X3.cumprod(0, dtype=torch.bool),
    "leaky_relu by a number too large": lambda: F.leaky_relu(X3, 1e300),
    "elu by a number too large": lambda: F.elu(X3, 1e300),
    "softplus by a number too large": lambda: F.softplus(X3, 1e300),
    "threshold by a number too large": lambda: F.threshold(X3, 1e300, 1.0),
    "hardtanh by a number too large": lambda: F.hardtanh(X3, -1.0, 1e300),
    "pad by a number too large": lambda: F.pad(X3, (1, 1), value=1e300),
    "addmm by a number too large": lambda: torch.addmm(X3[0], X3[0, :, :3], X3[0], alpha=1e300),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused(name):
    with pytest.raises((RuntimeError, ValueError, TypeError, IndexError, AssertionError)):
        REFUSED[name]()
    same_as_eager(REFUSED[name], compiles=False)


@pytest.mark.parametrize("sizes", [(2, 2, 512, 16), (1, 2, 1100, 64), (1100, 64), (3, 301, 32)])
def test_attention_written_by_hand(sizes):
    # Scores that don't fit the cache are made block of rows by block of rows, by loops of ours or the library's products.
    def attention(q, k, v, mask):
        return torch.softmax(q @ k.transpose(-1, -2) / 8 + mask, -1) @ v

    def with_scores(q, k, v, mask):
        scores = torch.softmax(q @ k.transpose(-1, -2) + mask, -1)
        return scores @ v, scores

    q, k, v = torch.randn(3, *sizes).unbind()
    mask = torch.triu(torch.full((sizes[-2],) * 2, -1e9), 1)
    for f in (attention, with_scores):
        compiled = framejit.compile(f)
        for _ in range(3):
            torch.testing.assert_close(compiled(q, k, v, mask), f(q, k, v, mask), rtol=1e-4, atol=1e-5)
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("sizes", [(4096, 64, 500), (3000, 300, 200)])
def test_products_with_what_follows_them(sizes):
    rows, depth, columns = sizes
    x, weight, bias = torch.randn(rows, depth), torch.randn(columns, depth) / 8, torch.randn(columns)
    f = lambda x: F.gelu(F.linear(x, weight, bias))
    compiled = framejit.compile(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_of_another_number_of_channels():
    compiled = framejit.compile(lambda x, mean, variance: F.batch_norm(x, mean, variance, training=True))
    for channels in (3, 2, 5, 1):
        x, ours = torch.randn(4, channels, 5), [torch.zeros(channels), torch.ones(channels)]
        eager = [statistic.clone() for statistic in ours]
        torch.testing.assert_close(compiled(x, *ours), F.batch_norm(x, *eager, training=True))
        torch.testing.assert_close(ours, eager)
    assert framejit.cache_info()["internal_errors"] == 0


def test_batch_norm_whose_weight_is_a_statistic():
    def f(r):
        return F.batch_norm(torch.arange(6.0).reshape(3, 2), r, torch.ones(2), r, None, True)

    same_as_eager(f, torch.ones(2), compiles=False)


STRIDES = {
    "a new axis of one": lambda x: (x[0, 0] + 1).expand(1, 4),
    "two new axes of one": lambda x: (x[0, 0] + 1).expand(1, 1, -1),
    "new axes of one and more": lambda x: (x[0, 0] + 1).expand(1, 3, 1, -1),
    "of zeros": lambda x: torch.zeros(3).expand(1, 3),
    "a number": lambda x: (x[0, 0, 0] + 1).expand(1, 3),
    "max_pool2d of one channel, channels last": lambda x: F.max_pool2d(torch.empty_strided((2, 1, 8, 8), (64, 1, 8, 1)).fill_(1), 2),
    "batch_norm of one channel, channels last":
        lambda x: F.batch_norm(torch.empty_strided((2, 1, 8, 8), (64, 1, 8, 1)).fill_(1), None, None, training=True),
}


@pytest.mark.parametrize("name", STRIDES)
def test_strides_of_axes_of_one(name):
    assert framejit.compile(STRIDES[name])(X3).stride() == STRIDES[name](X3).stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_the_sum_of_one_negative_zero_is_zero(dtype):
    def f(x):
        return [torch.signbit(y) for y in (x.sum(), x.mean(), x.nansum(), (x * 2).sum(), x.sum(-1), x.reshape(1).sum())]

    same_as_eager(f, torch.tensor(-0.0, dtype=dtype))


@pytest.mark.parametrize("value", [np.float64(1.5), np.float32(1.5), np.float16(1.5), np.int8(1), np.uint8(2), np.bool_(True), np.complex64(1),
                                   np.array(2.5), np.array([2.5])], ids=lambda value: type(value).__name__ + str(np.shape(value)))
@pytest.mark.parametrize("key", [1, slice(0, 2)], ids=str)
def test_what_of_numpy_is_written_into_a_tensor(value, key):
    def f(x, value):
        y = x * 2
        y[key] = value
        return y

    for dtype in (torch.float64, torch.float32):
        same_as_eager(f, torch.ones(3, dtype=dtype), value, compiles=False)


def test_numpys_booleans_are_floats_to_torch():
    t = torch.tensor([1, 2])
    for function in (lambda t, b: t + b, lambda t, b: torch.where(t > 1, t, b), lambda t, b: torch.clamp(t, max=b), lambda t, b: t == b):
        same_as_eager(function, t, np.True_, compiles=False)
    with pytest.raises(NotImplementedError, match="Float"):
        framejit.compile(lambda t, b: (t > 1) ^ b)(t, np.True_)


@pytest.mark.parametrize("source, error", [
    ("x.add(1, out=y)", TypeError), ("x.add_(1, out=y)", TypeError), ("torch.relu(x, out=y)", TypeError), ("torch.clone(x, out=y)", TypeError),
    ("F.softmax(x, 0, out=y)", TypeError), ("torch._foreach_add([], 1)", RuntimeError), ("torch._foreach_mul_([x], torch.ones(3))", RuntimeError),
    ("torch._foreach_maximum_([x.int()], [x.double()])", RuntimeError), ("torch.sum(x, dim=np._NoValue)", TypeError),
])
def test_what_torch_does_not_take_is_refused(source, error):
    function = eval(f"lambda x, y: {source}", {"torch": torch, "F": F, "np": np})
    with pytest.raises(error):
        framejit.compile(function)(torch.arange(3.0), torch.zeros(3))


@pytest.mark.parametrize("size", [1e30, 1e-30, -1e30, 0.0])
@pytest.mark.parametrize("text", ["x[0, 0].norm()", "x.norm(dim=1)", "torch.linalg.vector_norm(x, dim=1, keepdim=True)", "x[:1].norm()", "x.norm(dim=0)",
                                  "torch.nn.functional.normalize(x)"])
def test_the_norm_of_one_element_is_its_absolute_value(text, size):
    same_as_eager(eval(f"lambda x: {text}", {"torch": torch}), torch.full((3, 1), size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows, columns, inner", [(2, 3, 1), (1, 3, 1), (2, 1, 1), (40, 30, 1), (2, 3, 2)])
def test_zeros_of_products_have_the_sign_of_the_library_s(dtype, rows, columns, inner):
    a, b = torch.full((rows, inner), -1.0, dtype=dtype), torch.zeros(inner, columns, dtype=dtype)
    for function in (lambda a, b: a @ b, lambda a, b: torch.mm(a, b), lambda a, b: torch.nn.functional.linear(a, b.t())):
        assert torch.equal(torch.signbit(framejit.compile(function)(a, b)), torch.signbit(function(a, b)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_one_element_to_the_power_of_a_number_is_computed_in_f64(dtype):
    """By torch's kernel for the host: in f32 the exponent would have lost bits, and 5 ** 4.05 two units in the last place."""
    def f(x, e):
        return x ** e, torch.pow(x, 4.05), x ** 2.6999999

    compiled = framejit.compile(f)
    for value in (5, 9.5, 18.25, 3.3):
        for exponent in (4.05, 0.3, 2.7):
            x = torch.tensor(value).to(getattr(torch, dtype))
            for ours, eager in zip(compiled(x, exponent), f(x, exponent)):
                assert ours.dtype == eager.dtype and ours.item() == eager.item()

    def slope(x, e):
        x = x.detach().requires_grad_()
        (x ** e).backward()
        return x.grad

    if dtype in ("float32", "float64"):
        x = torch.tensor(9.5, dtype=getattr(torch, dtype))
        assert torch.allclose(framejit.compile(slope)(x, 4.05), slope(x, 4.05), rtol=1e-6)
