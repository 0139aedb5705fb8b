"""Views and in-place writes: each form on arrays of every layout, size and aliasing, with another holder of the memory.

`check` compares what `observe` sees: values of arguments, results and of what others hold of the memory, dtypes, strides, bases,
which arrays overlap and how, version counters, flags, errors with their lines, warnings.
"""
import pytest

from case import Case, check
from harness import both_libraries

# What y is is another array of x's shape, unless a call says otherwise; HELD is a view of x that nobody passes.
CALLS = {
    "plain": ["ARGS = [make((4, 6)), make((4, 6), seed=1)]"],
    "held": ["B = make((4, 6))\nHELD = B[1:]\nARGS = [B, make((4, 6), seed=1)]"],
    "layouts": [f'ARGS = [make((4, 6), layout="{layout}"), make((4, 6), seed=1)]' for layout in ("f", "strided", "padded", "reversed", "expanded", "readonly")],
    "dtypes": [f'ARGS = [make((4, 6), "{a}"), make((4, 6), "{b}", seed=1)]' for a, b in (("float32", "float64"), ("int32", "float32"), ("float16", "int64"), ("bool", "bool"),
                                                                                        ("uint8", "int8"))],
    "sizes": [f"ARGS = [make({shape}), make({shape}, seed=1)]" for shape in ("(4, 6)", "(2, 6)", "(1, 1)", "(0, 6)", "(4, 0)", "(6,)", "()", "(2, 3, 4)")],
    "aliases": ["ARGS = [make((6, 6)), make((6, 6), seed=1)]"] + [f"B = make((6, 6))\nHELD = B\nARGS = [{pair}]" for pair in (
        "B, B", "B[1:], B[:-1]", "B[:-1], B[1:]", "B, B.T", "B, B[:]", "B[0], B[:, 0]", "B[:3], B[3:]")],
}

FORMS = {
    "both": [
        "x += y", "x -= 1", "x *= x", "x /= 2", "x //= 2", "x **= 2", "x &= y", "x += x[0]", "x[...] = y", "x[:] = 3", "x[0] = y[-1]", "x[-1] += 1", "x[1:] = x[:-1]",
        "x[:-1] = x[1:]", "x[1:3] *= 2", "x[::2] = y[::2]", "x[1:] += x[:-1]", "x.T[...] = y.T", "x.T[0] += 1", "x[x > 0] = 0", "x[x > 0] += 1", "x[x > 0] = y[x > 0]", "x[[0, -1]] = 2",
        "x[[0, 0]] += 1", "x[None, 0] = 5", "x[..., 0] -= y[..., 0]", "x[0], x[-1] = x[-1], x[0]", "v = x[1:]\nv += 1\nreturn v, x", "v = x.reshape(-1)\nv[0] = 9\nreturn v",
        "v = x.T\nx *= 2\nreturn v", "v = x[0]\nx[0] = y[0]\nreturn v", "v = x + 1\nw = v[1:]\nv[1:] = 0\nreturn v, w", "v = x + 1\nw = v.T\nw *= 2\nreturn w, v",
        "return x, x[1:], x[0], x.T, x[None], x[...]", "return y[::2], x[:, 1:]", "v = x[1:][1:]\nreturn v, v.T", "for row in x:\n    row += 1", "x += 1\nx[0] = 2\nreturn x, x[0]",
        "z = x\nz += 1\nreturn z is x, z", "x[0] = x[0]", "x = x + 1\nx += y\nreturn x", "x += 1\nprint(x.shape)\nx += 1", "x += 1\nx[99]", "x[0] += 1\nx + lib.ones(97)",
        "try:\n    x += 1\n    x[99] = 1\nexcept IndexError:\n    x += 10", "y[0] = x[0] * 2\nx[0] = y[0] + 1\nreturn x, y",
    ],
    "numpy": [
        "np.add(x, y, out=x)", "np.add(x, 1, out=y)", "np.multiply(x[1:], x[:-1], out=x[1:])", "np.minimum(x, y, out=y)", "np.sum(x, axis=0, out=y[0])",
        "np.cumsum(x, axis=0, out=x)", "np.copyto(x, y)", "np.copyto(x, y, where=x > 0)", "np.copyto(x, 2, casting='unsafe')", "np.putmask(x, x > 0, y)", "np.add.at(x, 0, 1)", "x.fill(3)",
        "x[::-1] = x", "x[::-1] += x", "x.flat[0] = 1", "x.sort()", "np.clip(x, -1, 1, out=x)", "x.real = 1", "x.shape = (-1,)", "return x.flat[1], x.base is None, x[1:].base is x",
        "return x[::-1], x[..., ::-1], x.ravel(), x.reshape(-1), x.view()", "return np.broadcast_to(x, (2,) + x.shape), x.squeeze(), np.atleast_2d(x)",
        "np.subtract(x, y, out=x, where=y > 0)", "return np.add(x, y, out=x) is x", "x.flags.writeable = False\nx += 1", "return x.sum(), x.max(), x[(0,) * x.ndim], x.mean()",
    ],
    "torch": [
        "x.add_(y)", "x.mul_(2)", "x.sub_(y, alpha=2)", "x.relu_()", "x.clamp_(-1, 1)", "x.copy_(y)", "x[1:].copy_(x[:-1])", "x.zero_()", "x.fill_(2)", "x.neg_()", "x.masked_fill_(x > 0, 2)",
        "x[0].zero_()", "x.t_()", "x.unsqueeze_(0)", "x.transpose_(0, -1)", "x.squeeze_()", "x.data.mul_(2)", "x.detach().add_(1)", "lib.add(x, y, out=x)", "lib.mul(x, 2, out=y)",
        "lib.sum(x, 0, out=y[0])", "x.index_add_(0, lib.tensor([0, 0]), y[:2])", "x.index_add_(0, lib.tensor([], dtype=lib.int64), y[:0])", "x.index_fill_(0, lib.tensor([0]), 2)",
        "x.index_copy_(0, lib.tensor([0]), y[:1])", "x.scatter_(0, lib.zeros(x.shape, dtype=lib.int64), 2)", "x.masked_scatter_(x > 0, y)", "x.index_put_((lib.tensor([0]),), lib.tensor(2))",
        "x.view(-1)[0] = 1", "x.view(-1).mul_(2)", "x.narrow(0, 0, 1).add_(1)", "x.expand(2, *x.shape).add_(1)", "x.addcmul_(x, y)", "x.lerp_(y, 0.5)", "x.numpy()[...] = 1",
        "return x.detach(), x.view(-1), x.unsqueeze(0), x.expand(2, *x.shape), x.narrow(0, 0, 1)", "return x.chunk(2), x.unbind(0), x.split(1)", "return x.contiguous(), x.to(x.dtype), x.clone()",
        "return x.add_(1) is x, x._version", "v = x.detach()\nx += 1\nreturn v, v._version, x._version", "v = x[1:]\nreturn v._base is x, v._is_view(), v.storage_offset()",
        "return x.sum(), x.max(), x[(0,) * x.ndim]", "return x.diagonal(), x.unfold(0, 1, 1), x.flatten(), x.ravel()", "x.resize_(x.shape)", "x.set_(y)", "x.requires_grad_(False)",
    ],
}


def source_of(form):
    return "HELD = None\n\n\ndef f(x, y):\n" + "".join(f"    {line}\n" for line in form.splitlines())


@both_libraries
@pytest.mark.parametrize("group", CALLS)
def test_forms_all_libraries_have(lib, group):
    run(lib.name, FORMS["both"], group)


@both_libraries
@pytest.mark.parametrize("group", CALLS)
def test_forms_of_one_library(lib, group):
    run(lib.name, FORMS[lib.name], group)


def run(lib, forms, group):
    calls = [call for call in CALLS[group] if lib == "numpy" or not ("reversed" in call or "readonly" in call)]
    failed = []
    for form in forms:
        try:
            check(Case(lib, source_of(form), calls + calls[:1]))
        except AssertionError as difference:
            failed.append(f"{form!r}: {str(difference)[:400]}")
    assert not failed, "\n".join(failed)
