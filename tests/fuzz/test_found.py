"""Programs that once differed from eager, as `./run fuzz` made them small, or tidied up after it."""
import numpy as np
import pytest

import framejit
from case import Case, check
from harness import both_libraries, same_as_eager, torch


def numpy_case(body, *arguments):
    """f(x, y) of two arrays, from the lines of its body."""
    source = "def f(x, y):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    check(Case("numpy", source, [f"ARGS = [{', '.join(arguments)}]"] * 2))


@pytest.mark.parametrize("body", ["return np.broadcast_to(x, (2,) + x.shape)", "v = np.broadcast_to(x, x.shape)\nv += 1", "v = np.broadcast_to(2, 2)\nprint(v)\nreturn v",
                                  "return np.broadcast_to(x, x.shape)[1:]"])
def test_broadcast_to_gives_a_read_only_view(body):
    numpy_case(body, "make((3, 4))", "None")


@pytest.mark.parametrize("body", ["return y.real, x + 1", "return y.squeeze(), x + 1", "return np.squeeze(y, axis=()), x + 1"])
def test_an_operation_that_changes_nothing_gives_the_array_itself(body):
    numpy_case(body, "make((3, 4))", "make((3, 2))")


@pytest.mark.parametrize("body", ["y[0, 0] = x[0, :1]", "y[0, 0] = x[0, 0]", "y[0, 0] = x[0, 0:1] * 2", "y[0] = x[0]"])
def test_an_element_is_assigned_as_numpy_allows(body):
    numpy_case(body, "make((3, 4))", "make((3, 4))")


@pytest.mark.parametrize("body", ["y[...] = x", "return np.asarray(x, dtype=np.uint8)", "np.copyto(y, x, casting='unsafe')", "return x.astype(np.float32)", "np.asarray(x, dtype=np.int16)"])
def test_casting_complex_to_real_warns(body):
    numpy_case(body, 'make((3,), "complex64")', 'make((3,), "int64")')


def test_positional_out_of_maximum_warns_where_it_is_deprecated():
    numpy_case("np.maximum(x, y, x)\nnp.minimum(x, y, y)\nreturn np.add(x, y, x)", "make((3,))", "make((3,), seed=1)")


@both_libraries
@pytest.mark.parametrize("name", ["sin", "cos", "tanh", "exp", "sqrt", "abs", "floor"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_keep_their_sign(lib, name, dtype):
    values = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 1.5, 1e-40], dtype)
    module = torch if lib.name == "torch" else np

    def f(x):
        return getattr(module, name)(x)

    with np.errstate(all="ignore"):
        same_as_eager(f, lib.array(np.resize(values, 40)))


@pytest.mark.parametrize("shape, axis", [((), None), ((1,), None), ((3,), None), ((2, 1), -1), ((3, 4), 0), ((3, 4), ()), ((40, 33), 1), ((0,), None)])
def test_the_sum_of_negative_zeros_has_numpys_sign(shape, axis):
    def f(x):
        return x.sum(axis), x.prod(axis), x.mean(axis) if axis != () and x.size else 0

    same_as_eager(f, np.full(shape, -0.0, np.float32))


ZEROS = np.array([0.0, -0.0, 0.0, -0.0, 1.0, np.nan, -np.inf, 0.0] * 5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("backend", ["llvm", "reference", "eager"])
def test_numpys_extremes_choose_among_zeros_as_numpy_does(name, dtype, backend):
    def f(x, y):
        g = getattr(np, name)
        return g(x, y), g(y, x), g(x, -0.0), g(x, 0.0), g(-0.0, x), g(0.0, x), g(x[:3], y[1:4]), np.clip(x, -0.0, 1), np.clip(x, None, -0.0), np.clip(-x, 0.0, None)

    x = ZEROS.astype(dtype)
    same_as_eager(f, x, -x, backend=backend)


@both_libraries
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_running_sum_begins_as_the_librarys(lib, dtype):
    def f(x):
        return x.cumsum(0), x.cumsum(1), x[0].cumsum(0)

    same_as_eager(f, lib.array(np.array([[-0.0, -0.0, 1.0], [-0.0, 0.0, -1.0]], dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sin_of_negative_zero_keeps_its_sign_beside_large_values(dtype):
    x = np.resize(np.array([-0.0, 1e5, 0.0, 1e10, 1e30, 0.5, -0.0], dtype), 40)
    same_as_eager(lambda x: (np.sin(x), np.cos(x), np.tan(x)), x)
    same_as_eager(lambda x: np.sin(x), x[:3])


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("by", [0.1, 0.3, -0.7, 3])
def test_floor_division_of_halves_takes_the_number_unrounded(dtype, by):
    x = torch.linspace(-5, 5, 101).to(getattr(torch, dtype))
    same_as_eager(lambda x: (x // by, torch.floor_divide(x, by), torch.div(x, by, rounding_mode="floor"), x % by, by // (x + 6), x // x.flip(0)), x)
    # A tensor without dimensions is such a number, whatever its dtype; so is one of a single element.
    for other in (torch.tensor(by, dtype=torch.float64), torch.tensor([4097])):
        same_as_eager(lambda x, y: (x // y, x / y, x * y, x + 1), x, other)


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layer_norm_without_a_bias_gives_no_negative_zero(dtype):
    f = torch.nn.functional.layer_norm
    for values in (np.arange(12.0), np.zeros(12), -np.zeros(12)):
        x = torch.tensor(values.reshape(3, 4), dtype=getattr(torch, dtype))
        same_as_eager(lambda x, w: (f(x, (4,), eps=float("inf")), f(x, (4,), -w), f(x, (4,), w, -0 * w)), x, x[1] + 1)


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("numbers", ["[2, np.float64(0.25)]", "np.float64(0.25)", "[np.float32(1.5), 1.0]", "[np.int8(3)]", "(True, np.float64(1))", "[2, 0.25]"])
def test_numpys_scalars_in_tensor_bring_their_dtype(numbers):
    check(Case("torch", f"def f(x):\n    return lib.tensor({numbers}), x + lib.tensor({numbers})\n", ["ARGS = [make((2,))]"] * 2))


def test_a_loop_over_a_dict_that_was_changed_before_it():
    # The loop breaks: its iterator is made again, after the change.
    source = """\
class Counter:
    pass

def f(table, more):
    del table["a"]
    table["b"] = 1
    for key in table:
        Counter().seen = sys._getframe().f_lineno
    for key, value in zip(more, more.items()):
        more_seen = sys._getframe().f_lineno
    return list(table)
"""
    check(Case("numpy", "import sys\n" + source, ['ARGS = [{"a": 1, "n": 2}, {"p": 1}]'] * 2))
    check(Case("numpy", "import sys\n" + source.replace("f(table, more):", "f(table, more):\n    more['q'] = 2"), ['ARGS = [{"a": 1, "n": 2}, {"p": 1}]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_a_new_axis_has_the_stride_it_had_before_the_rest_was_indexed():
    # It decides whether torch takes the view assigned to itself for an overlap.
    @framejit.compile
    def f(z, w):
        z[None, 1] += 3
        return [v.stride() for v in (z[None, 1], w[None, 1], w[:, None, 2], w[1, None], w[None, None, 0], w[None, 1:2], w[..., None])]

    w = torch.ones(3, 4)
    z = torch.ones(33, dtype=torch.complex64)
    assert f(z, w) == [v.stride() for v in (z[None, 1], w[None, 1], w[:, None, 2], w[1, None], w[None, None, 0], w[None, 1:2], w[..., None])]
    assert z[1] == 4


@pytest.mark.parametrize("body", ["return x.sum(dtype=np.float64)", "return x.sum(1, dtype=np.float32)", "return x.cumsum(0, dtype=np.float32)", "return np.prod(x, dtype=np.int64)"])
def test_reductions_of_complex_in_a_real_dtype_warn(body):
    numpy_case(body + ", np.abs(y) + 1", 'make((3, 4), "complex64")', "make((3,))")


def test_tiling_an_array_without_elements_gives_a_view():
    numpy_case("return np.tile(x, 2), x + 1", "make((0, 3))", "None")


@pytest.mark.parametrize("scalar", ["np.int8(3)", "np.int64(2)", "np.uint8(200)", "np.float32(2.5)", "np.float64(0.5)", "np.True_", "True", "3", "2.5"])
@pytest.mark.parametrize("expression", [
    "np.arange({})", "np.arange(0, {})", "np.array([{}, 1])", "np.array([{}, 1.5])", "np.array([x[0, 0], {}])", "np.asarray({})", "np.array({})",
    "np.full(3, {})", "np.linspace({}, 5, 3)", "np.dot(x, {})", "np.inner({}, x)", "np.outer({}, x)", "np.where(x > 1, {}, 1)", "np.append(x, {})", "{} * x",
    "np.zeros({})", "x.reshape({}, -1)", "np.tile(x, {})", "np.repeat(x, {})",
])
def test_numbers_in_numpys_functions_have_the_dtype_they_have_there(scalar, expression):
    numpy_case(f"z = x + 1\nreturn {expression.format(scalar)}, z", "make((2, 3))", "None")
    numpy_case(f"z = x + 1\nreturn {expression.format('y')}, z", "make((2, 3))", scalar)


@both_libraries
def test_loops_over_rows_that_write_stay_linear(lib):
    # Each row's kernel read through all writes before it, twice as many expressions for each: 16 rows took minutes.
    def f(y):
        for row in y:
            row /= 2
        for i in range(1, len(y)):
            y[i] += y[i - 1]
        y += 1.5

    same_as_eager(f, lib.sample((24, 33)))


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_permute_without_dimensions_is_a_type_error():
    check(Case("torch", "def f(x):\n    y = x + 1\n    return y.permute(*reversed(range(y.ndim)))\n", ["ARGS = [make(())]"] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_an_array_without_elements_or_memory_is_not_read(dtype):
    # NumPy's strides of such an array are 0, so its element did not vary in the loop and was read before it.
    z = torch.from_numpy(np.ones((0, 3), "f4")[:, 0].astype("f4")).to(getattr(torch, dtype))
    w = torch.from_numpy(np.zeros((0, 6), "f4")).to(getattr(torch, dtype))
    same_as_eager(lambda z, w: (z.sum(), z + 1, w.sum(0), w.sum(), w * 2), z, w)


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_detached_tensor_is_no_view(dtype):
    check(Case("torch", "def f(z):\n    a = z.detach()\n    b = (z + 1).detach()\n    c = a[1:]\n    a += 1\n    return a, b, b[1:], c\n",
               [f'ARGS = [make((5,), "{dtype}")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_a_sum_that_is_known_to_be_no_number_is_cast_as_the_processor_does_it():
    # The optimiser followed the sum's accumulator to a NaN, whose cast may be anything.
    check(Case("torch", """\
def f(x, y):
    x[0:] = float("nan")
    n = (x.sum() - y).sum(0, dtype=lib.int16)
    return n, n > -1
""", ['ARGS = [make((1, 1)), make((), "int8")]', 'ARGS = [make((4, 4)), make((), "int8")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("layout", ["c", "f", "strided"])
@pytest.mark.parametrize("shape", ["()", "(5,)", "(3, 4)"])
def test_ravel_is_a_view_of_a_copy_too(shape, layout):
    check(Case("torch", "def f(x):\n    y = x.ravel()\n    y[0] = 3\n    return y, lib.ravel(x + 1)\n", [f'ARGS = [make({shape}, layout="{layout}")]'] * 2))


def test_a_piece_may_begin_between_a_function_and_its_defaults():
    # numpy 711870 on CPython 3.13, where they are two instructions.
    check(Case("numpy", """\
class Box:
    def __init__(self, a, k):
        self.a, self, self = (a, k, [])

    @property
    def twice(self):
        return self.a + self.a

def f(x, k):
    def inner(a, b=0.5):
        return a * b
    y = Box(x, k).twice
    z = np.lib.stride_tricks.sliding_window_view(y, 1, axis=0)
    return z, inner(x)
""", ["ARGS = [make((0, 2)), 3]", "ARGS = [make((3, 2)), 3]"] * 2))


def test_the_inverse_of_a_bool_warns_at_each_call():
    numpy_case("return x + ~(y > 1), ~(y < 1)", "make((3,))", "3")


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_a_reduction_into_its_own_operand_is_left_to_the_library():
    # torch clears `out` before it reads (torch 702218).
    check(Case("torch", "def f(z):\n    lib.sum(z, 0, out=z)\n    return z\n", ["ARGS = [make(()) + 3]"] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("body", ["x.tan(3)", "(x + 1).tan(3)", "(x + 1).tolist(print(1), 3)", "framejit.graph_break()\n(x * 2).tan(3)", "m = (x + 1).tan\nprint(2)\nm(3)", "[x + 1].append(print(1), 2)",
                                  "s = {1}\ns.add(print(1), x + 1)", "super(State, STATE).__str__(print(1))", '"a".join(print(1), x + 1)', "lib.rand(2).numpy()[0].nonzero(3)"])
def test_errors_name_the_class_of_the_method_that_was_called(body):
    # A method that is looked up to be called is the class's; one that is an object is the tensor's (torch 302734).
    source = "import framejit\n\nclass State:\n    pass\n\nSTATE = State()\n\ndef f(x):\n    y = x * 2\n" + "".join(f"    {line}\n" for line in body.splitlines())
    check(Case("torch", source, ["ARGS = [make((3,))]"] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("views", ["v, u = y.split(2)", "u, v = y.chunk(2)", "u, v = y.split([1, 3])", "v, *u = y.unbind()", "v, *u = y", "v = y[None].unbind(1)[0]", "v = y.tensor_split(2)[1]",
                                   "v = y.split(2)[1].view(-1)", "v = y.split(2)[0][1].view(-1)", "v = y.split(2)[0][:, None].T", "v = y.split(2)[1][None, 1:]", "v = lib.split(y, 2)[1].squeeze(0)",
                                   "with lib.no_grad(): v = y[1:]", "with lib.no_grad(): v = y.view(2, 2).T", "with lib.no_grad(): v, u = y.split(2)\nv = v[1:]", "v = y[1:]"])
@pytest.mark.parametrize("between", ["", "framejit.graph_break()"])
@pytest.mark.parametrize("write", ["v += 1", "v.mul_(x[0])", "y += 1\nv = v * 2"])
@pytest.mark.parametrize("of", ["x * 1", "x.detach() * 1"])
def test_writes_into_views_that_autograd_refuses(views, between, write, of):
    if of != "x * 1":
        between = ""  # where nothing needs a gradient, a view that is handed back does not say how it was made
    lines = [f"y = {of}", *views.splitlines(), between, *write.splitlines(), "return v, y"]
    check(Case("torch", "import framejit\n\ndef f(x):\n" + "".join(f"    {line}\n" for line in lines), ['ARGS = [make((4,), "float32", 0, "leaf")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("value", ["(x * x).sum()", "(x * x * x).sum()", "(x * x + x).sum()", "(x + x).sum()", "(x * 2).sum()", "(x.sum() * x[0]).sum()", "(x + x.tanh() + x.exp()).sum()", "x @ x",
                                   "(x.view(-1) * x).sum()", "(x.sum() + x.sum() + x[1])"])
def test_a_gradient_that_was_added_to_in_place_has_that_version(value):
    check(Case("torch", f"def f(x):\n    return lib.autograd.grad({value}, x)\n", ['ARGS = [make((4,), "float32", 0, "leaf")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("view", ["y.reshape(-1)", "y[0]", "y.T", "y.split(1)[0]", "y.detach()[1:]", "y * 2", "y.diagonal()", "y.as_strided((2,), (1,))"])
@pytest.mark.parametrize("of", ["x", "x * 1", "x * 2"])
def test_a_view_made_where_nothing_is_recorded_is_a_leaf(view, of):
    # Of a tensor that requires a gradient: it requires one of its own (torch 740444).
    check(Case("torch", f"def f(x):\n    y = {of}\n    with lib.no_grad():\n        v = {view}\n        w = v + 1\n    return v, w, v * 2, v.sum()\n",
               ['ARGS = [make((2, 3), "float32", 0, "leaf")]'] * 2))
    check(Case("torch", f"def f(x):\n    y = {of}\n    with lib.no_grad():\n        v = {view}\n    return v, y\n", ['ARGS = [make((2, 3), "float32", 0, "leaf")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("write", ["v.add_(1)", "x.add_(1)"])
@pytest.mark.parametrize("view", ["x.split(1)[1]", "x.unbind(0)[0]", "x[1:]"])
def test_a_view_of_a_view_that_was_written_under_no_grad(view, write):
    # autograd refuses it if one call has made several.
    check(Case("torch", f"def f(x):\n    v = {view}\n    with lib.no_grad():\n        {write}\n    w = v[:1]\n    return w\n", ['ARGS = [make((2, 3), "float32", 0, "leaf")]'] * 2))


@pytest.mark.parametrize("body", ["t = (k, 2)\nd = {t: 1}", "t = (k, (k, x.shape))\nd[t] = 1", "t = (k, 2)\nd = {t}", "t = items\nd[t] = 1", "t = items\nd = {q: 1 for q in {t: 1}}", "t = frozenset((k,))\nd = {t: 1}",
                                  "t = (k, 2)\nd[t] = 1\nu = (k, 2)\nd[u] = 2"])
def test_a_key_is_the_object_it_was(body):
    # torch 701249
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    for rest in ("    return list(d)[0] is t, x + 1\n", "    return d, t, x + 1\n", "    framejit.graph_break()\n    return list(d)[0] is t, [q is w for q, w in zip(t, list(d)[0])], d\n"):
        check(Case("numpy", f"import framejit\n\ndef f(x, k, items, d):\n{lines}{rest}", ["ARGS = [make((3,)), 300, (1, 2.5), {}]"] * 2 + ['ARGS = [make((3,)), "ab", (1, (2,)), {}]']))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("index", ["x > 0", "lib.tensor([0, 1])", "lib.tensor([0, -1]), lib.tensor([1, 1])", "lib.tensor([0, 1], dtype=lib.int32)"])
@pytest.mark.parametrize("write", ["m += 1", "m[0] = 0", "m = m * 2"])
def test_an_index_that_a_gradient_needs_is_saved(index, write):
    # backward reads it: torch refuses one that was written since.
    first = "m, n = " + index if "), " in index else f"m = {index}"
    use = "m, n" if "), " in index else "m"
    if index.startswith("x") and "+=" in write:
        write = write.replace("m += 1", "m ^= True")
    lines = [first, f"y = x[{use}] * 2", *write.splitlines(), "y.sum().backward()", "return y, m"]
    check(Case("torch", "def f(x):\n" + "".join(f"    {line}\n" for line in lines), ['ARGS = [make((3, 4), "float32", 0, "leaf")]'] * 2))
    check(Case("torch", "def f(x):\n" + "".join(f"    {line}\n" for line in lines if "backward" not in line), ['ARGS = [make((3, 4), "float32", 0, "leaf")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_an_index_of_an_earlier_piece_is_saved_too():
    x, m = torch.arange(6.0).requires_grad_(), torch.tensor([0, 1])
    y = framejit.compile(lambda x, m: x[m] * 2)(x, m)
    m += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("number", ["2 ** 31", "-70000", "65504", "300"])
def test_an_int_that_does_not_fit_is_refused_where_torch_refuses_it(dtype, number):
    # torch 742408
    for body in ("x.clamp_(max={})", "x.clamp({})", "x.clamp_min({})", "x.fill_({})", "x.masked_fill(x > 0, {})", "x.pow({})", "lib.full_like(x, {})", "x + {}", "x * {}", "{} - x", "x > {}"):
        check(Case("torch", f"def f(x):\n    return {body.format(number)}\n", [f'ARGS = [make((3,), "{dtype}")]', f'ARGS = [make((0,), "{dtype}")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("bounds", ["-1, float('nan')", "float('nan'), 1", "2, 1", "-1, 1"])
def test_hardtanh_with_bounds_that_are_no_numbers(bounds):
    check(Case("torch", f"def f(x):\n    return lib.nn.functional.hardtanh(x, {bounds})\n", ["ARGS = [make((5,))]"] * 2))


def test_program_863153_of_numpy():
    """Contents that are constants, of which an element at an index that varies is one."""
    check(Case("numpy", """\
def f(x, y, z, k, s, items, table):
    x.fill(1)
    x[k] -= 2.5
    return x
""", [
        'ARGS = [make((7,), "int8", 514, "c", "special"), None, None, 3, None, [], {}]',
        'ARGS = [make((7,), "int8", 514, "c", "special"), None, None, 5, None, [], {}]',
        'ARGS = [make((7,), "int8", 514, "c", "special"), None, None, 9, None, [], {}]',
    ]))


def test_program_861565_of_numpy():
    check(Case("numpy", """\
def f(x, y, z, k, s, items, table):
    return np.take_along_axis(y, x, 0)
""", [
        'ARGS = [np.array([1, 0]), [1, 2], None, 3, None, [], {}]',
        'ARGS = [[1, 0], np.array([1, 2]), None, 3, None, [], {}]',
    ]))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("write", ["v.squeeze_()", "v += 1", "w = v[...]; w += 1; w += 1", "pass"])
@pytest.mark.parametrize("call", ["lib.einsum('...i,...i->...', x, y)", "lib.einsum('ij,kj', x, y)", "lib.einsum('ij,ij->ij', x, y)"])
def test_what_a_library_call_gave_as_a_view_is_one_when_it_is_written(call, write):
    """Programs 832959, 833725, 871019 of torch; with gradients 1490073 and 1504611."""
    for layout in ("c", "leaf"):
        made = f'make((3, 2), "float32", 1, "{layout}")'
        check(Case("torch", f"def f(x, y):\n    v = {call}\n    {write}\n    return v\n", [f"ARGS = [{made}, {made}]"] * 3))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("call", ["lib.where(x)[0]", "x.nonzero(as_tuple=True)[1]", "lib.where(x + 1)[0]", "x.detach().long().unbind(0)[0]", "(x > 0).chunk(2)[0]"])
def test_a_write_into_one_of_several_views_of_integers_is_refused_before_its_sizes_are_looked_at(call):
    """Program 1500188 of torch."""
    check(Case("torch", f"def f(x, y):\n    v = {call}\n    v *= y\n    return v\n",
               ['ARGS = [make((3, 2), "float32", 1, "leaf"), make((7, 5), "float32", 1, "leaf")]'] * 3))


@pytest.mark.parametrize("view", ["s.squeeze()", "s.transpose()", "s.reshape(())", "s.T", "lib.squeeze(s)", "lib.transpose(s)", "lib.reshape(s, ())", "lib.moveaxis(s, [], [])", "lib.flip(s)",
                                  "lib.flip(lib.asarray(s))", "lib.squeeze(lib.asarray(s))", "s[...]", "lib.ravel(s)", "s.squeeze() is s"])
@pytest.mark.parametrize("scalar", ["s = x.max()", "s = k", "s = lib.float32(2)"])
def test_a_view_of_a_numpy_scalar_is_a_scalar(scalar, view):
    # What NumPy's scalars do as arrays do they give as scalars (torch 915046).
    source = f"def f(x, k):\n    {scalar}\n    v = {view}\n    return v, type(v).__name__, x * 2\n"
    check(Case("numpy", source, [f"ARGS = [make((3,)), np.float32({k})]" for k in (1.5, 1.5, 2.5, 3.5)]))


@pytest.mark.parametrize("text", ["m = s.nonzero; return m.__self__ is s, x * 2", "m = s.item; return m(), m.__name__, x * 2", "return s.sum(), s.round(1), s.tolist(), x * 2",
                                  "try:\n        s.nonzero(1, 2, 3)\n    except TypeError as e:\n        return str(e), x * 2", "return s.real, s.T, s.dtype, s.size, x + s.item()",
                                  "return getattr(s, 'nothing', 3), hasattr(s, 'astype'), s.astype(np.float64) + x"])
def test_a_method_of_a_numpy_scalar_is_of_that_scalar(text):
    # Not of the array that stands for it in the graph (NumPy 917582).
    check(Case("numpy", f"def f(x, s):\n    {text}\n", [f"ARGS = [make((3,)), np.float32({k})]" for k in (1.5, 1.5, 2.5, 3.5)]))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("view", ["z.as_strided((2,), (1,))", "z.T.as_strided((2,), (1,)) / 2", "lib.as_strided(z, (2, 2), (1, 1))", "z[0].as_strided((2,), (1,), 0)", "z[0, 1:].as_strided((2,), (1,), storage_offset=0)",
                                  "(z * 2)[0, 1:].as_strided((2,), (1,), 1)", "(z * 2)[:, ::2].as_strided((3,), (1,))", "lib.as_strided_copy(z, (2,), (1,))"])
def test_memory_that_a_tensor_does_not_show_is_read_in_eager(view):
    # The copy that a library call works on has gaps that nobody filled (torch 917573).
    check(Case("torch", f"def f(z):\n    return {view} + 1\n", ['ARGS = [make((2, 3), "float32", 195, "strided", "plain")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("value", ["(x @ x).floor()", "x @ y * 0", "lib.dot(x, y) * -0.0", "lib.inner(x, y).trunc()", "(x @ lib.zeros(5, 1)).sum() + x @ x", "lib.vdot(y, x).round()"])
def test_a_product_of_vectors_gives_back_zeros_of_both_signs(value):
    # Backward multiplies, where a product of matrices adds to 0.0 (torch 1001229).
    check(Case("torch", f"def f(x, y):\n    return {value}\n", ['ARGS = [make((5,), "float32", 770, "leaf", "plain"), make((5,), "float32", 771, "leaf", "plain")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("write", ["x.add_(1)", "x.mul_(x)", "x[0] = 2", "lib.add(x, 1, out=x)"])
def test_a_tensor_that_repeats_elements_is_not_written_by_code_for_others(write):
    # Strides that vary may be 0 on a later call (torch 1021667).
    padded, expanded = 'make((3, 1), "float64", 161, "padded", "plain")', 'make((3, 1), "float64", 827, "expanded", "plain")'
    check(Case("torch", f"def f(x):\n    {write}\n    return x\n", [f"ARGS = [{x}]" for x in (padded, padded.replace("3, 1", "4, 1"), padded.replace("3, 1", "2, 1"), expanded, expanded)]))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("product", ["x.prod()", "lib.prod(x, 1)", "x.prod(0, keepdim=True)", "x.prod(dtype=lib.float32)", "x[:3].prod(-1)"])
def test_a_product_overflows_and_vanishes_where_eagers_does(product, dtype):
    # torch 1022203, 1024511, 960127: -0.0 for a NaN.
    check(Case("torch", f"def f(x):\n    return {product}, x * 2\n", [f'ARGS = [make((16, 33), "{dtype}", {seed}, "c", "{kind}")]' for seed, kind in ((657, "plain"), (658, "special"), (659, "large"))]))


@pytest.mark.parametrize("k", ["np.int64(2)", "np.float64(1.5)", "2", "'x'"])
@both_libraries
def test_a_numpy_scalar_formatted_by_percent_raises_nothing(lib, k):
    check(Case(lib.name, """\
def f(x, k, table):
    v1 = x
    try:
        text = '%s-%d' % ('x', k)
        table['missing']
    except TypeError:
        v2 = lib.maximum(x, v1)
""", [f"ARGS = [make((3,)), {k}, {{'n': 2}}]"] * 2))


def test_a_scalar_that_an_element_does_not_hold_is_not_stored():
    check(Case("numpy", """\
def f(x):
    try:
        x[...] = np.uint8(200)
    except Exception:
        pass
""", ['ARGS = [make((3, 4), "int8", 314, "reversed", "large")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("loss", ["cross_entropy(x, k)", "cross_entropy(x, k, reduction='sum')", "cross_entropy(x, k, ignore_index=1)", "nll_loss(x, k)",
                                  "nll_loss(x, k, lib.tensor([1., 2, 0.5]), ignore_index=2)", "cross_entropy(x, k, label_smoothing=0.2)"])
def test_zeros_of_a_loss_of_classes_have_eagers_sign(loss):
    # torch 1411409: where the minimum is y, zeros flow back.
    check(Case("torch", f"""\
def f(x, y):
    k = lib.tensor([1, 2, 0, 1])
    return lib.minimum(lib.nn.functional.{loss}, y)
""", ['ARGS = [make((4, 3), "float32", 553, "leaf", "plain"), make((4, 3), "float32", 660, "leaf", "large")]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("loss", ["cross_entropy(x, k, reduction='sum')", "cross_entropy(x, k, weight=lib.tensor([.5, 0., 2.]))", "nll_loss(x * x, k)"])
def test_zeros_of_the_second_derivative_of_a_loss_of_classes_have_eagers_sign(loss):
    # To torch the first one depends on the logarithms, by zeros that are added: 0.0 + -0.0.
    check(Case("torch", f"""\
def f(x, y):
    loss = lib.nn.functional.{loss.replace('k', 'lib.tensor([0, -100, 1])')}
    first, = lib.autograd.grad(loss, x, create_graph=True)
    return [first.detach(), *lib.autograd.grad((first ** 2).sum(), x)]
""", ['ARGS = [make((3, 3), "float32", 553, "leaf", "plain"), None]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_pass_through_a_remainder_as_they_are(dtype):
    check(Case("torch", """\
def f(x, g):
    return lib.remainder(x, 2.0) * g, lib.remainder(x, g)
""", [f'ARGS = [make((4, 3), "{dtype}", 553, "leaf", "special"), lib.tensor([-0.0, 0.0, -3.0], dtype=lib.{dtype})]'] * 2))


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_a_reshape_to_the_same_sizes_gives_axes_of_one_element_their_strides():
    def same_sizes(x):
        y, z = x.reshape(x.shape), x.view(x.shape)
        return y, z, y * 2

    compiled = framejit.compile(same_sizes)
    for x in (torch.arange(2)[None, :1], torch.arange(12).reshape(3, 4)[:, :1], torch.arange(12).reshape(1, 3, 4)[..., 1:3],
              torch.arange(24).reshape(2, 3, 4)[:, 1:2], torch.empty(3, 2)[:, :0], torch.arange(6).reshape(3, 2).t()):
        for ours, eager in zip(compiled(x), same_sizes(x)):
            assert ours.stride() == eager.stride() and torch.equal(ours, eager)


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_an_axis_without_elements_beside_one_whose_size_varies():
    def twice(x, y):
        return x + x, x.stride(), y

    compiled = framejit.compile(twice)
    whole = torch.arange(24.0).reshape(3, 8)[:, 4:]
    for x in (whole, whole[::2], torch.empty(3, 0), torch.empty(2, 0), torch.empty(0, 4)):
        (ours, strides, _), (eager, expected, _) = compiled(x, 1), twice(x, 1)
        assert ours.shape == eager.shape and ours.stride() == eager.stride() and strides == expected
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("layout", ["c", "f"])
@pytest.mark.parametrize("reduction", ["x.sum()", "x.mean()", "(x * 2).sum()", "x.sum(axis=0)[0]"])
def test_a_sum_in_a_loop_takes_the_elements_as_they_lie(reduction, layout):
    """Infinities of both signs are an invalid operation or none, as a NaN comes after or before them."""
    numpy_case(f"for i in range(3):\n    if {reduction} > 3:\n        pass", f'make((3, 4), "float32", 835, "{layout}", "special")', "None")


@pytest.mark.skipif(torch is None, reason="needs torch")
@pytest.mark.parametrize("indices", ["[0, 1, 2]", "[[1], [0]]", "1", "[]"])
def test_one_hot_has_been_written_as_often(indices):
    check(Case("torch", "def f(x, y):\n    return lib.nn.functional.one_hot(x, 3), lib.nn.functional.one_hot(x + 0, y)\n",
               [f"ARGS = [lib.tensor({indices}, dtype=lib.int64), 4]"] * 2))


@pytest.mark.parametrize("call", ["np.broadcast_to(x.sum(), 2, y)", "np.array(x, subok=y)", "np.copy(x, subok=y)", "np.full_like(x, 2, subok=y)",
                                  "x.astype('f4', subok=y)"])
@pytest.mark.parametrize("y", ['make((3,), "float32", 183, "c", "plain")', 'make((1,), "float32", 183, "c", "plain")', "2.5", "None"])
def test_a_flag_that_rows_do_not_read_is_asked_for_its_truth(call, y):
    numpy_case(f"return {call}", 'make((1, 3), "float32", 959, "f", "large")', y)
