"""Graphs as ONNX models: onnxruntime computes what the array library computes, for each operation, for models and for NumPy's functions."""
import numpy as np
import pytest

import framejit
from framejit import Graph, GraphError
from framejit import _core
from framejit._graph.dtypes import NAMES
from harness import needs_torch, torch

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

FLOATS = ["f16", "bf16", "f32", "f64"]
INTEGERS = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
# What ONNX has and onnxruntime's CPU kernels have not: f64 of these.
NO_F64 = {"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "atan2"}
BOUND = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-6, "f64": 1e-14}


def run_onnx(graph, path, *arrays):
    graph.to_onnx(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {given.name: np.asarray(array) for given, array in zip(session.get_inputs(), arrays)})


def sample(dtype, shape, seed=0, special=True, low=-9, high=9):
    """Numbers, with the special ones of the dtype among them. bfloat16 is given as float32."""
    generator = np.random.default_rng(seed)
    name = {"bf16": "float32"}.get(dtype, NAMES[dtype])
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtype in INTEGERS:
        bounds = np.iinfo(name)
        x = generator.integers(max(low, bounds.min), high, shape).astype(name)
        extra = [bounds.max, bounds.min, 0, 1]
    else:
        x = (generator.integers(low * 8, high * 8, shape) / 8).astype(name)
        extra = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.0, -1.0]
    if special:
        places = generator.permutation(x.size)[:2 * len(extra)]
        x.reshape(-1)[places] = np.resize(np.array(extra, name), len(places))
    return x


def built(op, dtypes, shapes, **attrs):
    """A graph of one operation. bfloat16 comes and goes as float32, which NumPy has."""
    graph = Graph("g")
    given = [graph.add_input(f"x{i}", "f32" if dtype == "bf16" else dtype, shape) for i, (dtype, shape) in enumerate(zip(dtypes, shapes))]
    operands = [graph.add("cast", x, to=dtype) if dtype == "bf16" else x for x, dtype in zip(given, dtypes)]
    result = graph.add(op, *operands, **attrs)
    if result.dtype == "bf16":
        result = graph.add("cast", result, to="f32")
    graph.set_outputs(result)
    return graph


def expected(graph, arrays):
    if any(node.dtype == "bf16" for node in graph):
        if torch is None:
            pytest.skip("torch is not installed, and NumPy has no bfloat16")
        return [np.asarray(x) for x in graph.run(*map(torch.as_tensor, arrays))]
    with np.errstate(all="ignore"):
        return graph.run(*arrays)


def assert_close(found, wanted, bound, of=""):
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (of, found.dtype, wanted.dtype, found.shape, wanted.shape)
    if bound is None or wanted.dtype.kind not in "f":
        np.testing.assert_array_equal(found, wanted, err_msg=of)
    else:
        np.testing.assert_allclose(found, wanted, rtol=bound, atol=bound, err_msg=of)


def compare(op, dtypes, arrays, path, bound="dtype", **attrs):
    graph = built(op, dtypes, [x.shape for x in arrays], **attrs)
    wanted = expected(graph, arrays)
    floats = [dtype for dtype in dtypes if dtype in FLOATS]
    bound = BOUND[floats[0]] if bound == "dtype" and floats else None if bound == "dtype" else bound
    for found, want in zip(run_onnx(graph, path, *arrays), wanted, strict=True):
        assert_close(found, want, bound, f"{op} of {dtypes}")


ONE = ["neg", "abs", "sign", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
       "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "round", "trunc",
       "is_nan", "is_inf", "is_finite", "sign_bit", "logical_not", "bit_not", "popcount"]
TWO = ["add", "sub", "mul", "div", "floor_div", "mod", "trunc_div", "fmod", "pow", "atan2", "hypot", "copysign", "maximum",
       "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"]
SHAPED = {"constant", "dim", "iota", "cast", "where", "fma", "broadcast", "reshape", "transpose", "slice", "windows", "pad", "concat",
          "slice_update", "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "argmax", "argmin", "cumsum",
          "cumprod", "gather", "take_along", "scatter_add", "scatter", "nonzero", "as_size", "matmul", "extern_call"}


def accepted(op, count, dtypes=DTYPES):
    """The dtypes of the operation's row."""
    for dtype in dtypes:
        try:
            _core.infer_type(op, [(dtype, (2,))] * count, {})
        except ValueError:
            continue
        if not (dtype == "f64" and op in NO_F64) and not (op == "sign" and dtype == "bool"):  # NumPy has none either
            yield dtype


def test_every_operation_has_a_row_and_a_test():
    from framejit._graph.onnx_operations import operations

    assert set(operations) == set(_core.operation_names()) == {*ONE, *TWO, *SHAPED, "cond", "loop"}  # test_branches.py and test_loops_on_data.py


@pytest.mark.parametrize("op", ONE)
def test_one_operand(op, tmp_path):
    dtypes = list(accepted(op, 1))
    assert dtypes
    for dtype in dtypes:
        x = sample(dtype, (5, 13))
        if dtype == "bf16" and op in ("sign", "sign_bit"):  # torch's sign of NaN is 0; a NaN has no sign that ONNX can see
            x = np.nan_to_num(x, nan=1)
        compare(op, [dtype], [x], tmp_path / "g.onnx")


@pytest.mark.parametrize("op", TWO)
def test_two_operands(op, tmp_path):
    dtypes = list(accepted(op, 2))
    assert dtypes
    for dtype in dtypes:
        a, b = sample(dtype, (5, 13)), sample(dtype, (5, 13), 1)
        if dtype in INTEGERS and op in ("floor_div", "mod", "trunc_div", "fmod"):  # by 0 is an error; the lowest by -1 overflows
            b = np.where((b == 0) | (b == np.array(-1).astype(b.dtype)), 3, b).astype(b.dtype)
        elif dtype in INTEGERS and (op == "pow" or op.startswith("shift")):
            b = np.abs(sample(dtype, (5, 13), 1, special=False))
        elif dtype == "bf16" and op == "copysign":
            b = np.nan_to_num(b, nan=1)
        compare(op, [dtype, dtype], [a, b], tmp_path / "g.onnx")


@pytest.mark.parametrize("op", ["floor_div", "mod", "fmod", "add", "mul", "maximum", "lt"])
def test_small_operands_are_broadcast_by_onnx(op, tmp_path):
    graph = Graph("g")
    x, row, column = graph.add_input("x", "f32", (3, 4)), graph.add_input("row", "f32", (4,)), graph.add_input("column", "f32", (3,))
    both = graph.add(op, graph.add("broadcast", row, dims=[1], shape=[3, 4]), graph.add("broadcast", column, dims=[0], shape=[3, 4]))
    graph.set_outputs(graph.add(op, x, graph.constant(2.5, "f32", (3, 4))), both, graph.add("broadcast", column, dims=[1], shape=[2, 3]))
    arrays = sample("f32", (3, 4), special=False), np.array([1, -2, 3, 0.5], "f4"), np.array([2, -3, 1], "f4")
    for found, wanted in zip(run_onnx(graph, tmp_path / "g.onnx", *arrays), graph.run(*arrays), strict=True):
        assert_close(found, wanted, 1e-6)
    kinds = [node.op_type for node in onnx.load(tmp_path / "g.onnx").graph.node]
    assert kinds.count("Expand") == 1


def test_casts(tmp_path):
    for dtype in DTYPES:
        for to in DTYPES:
            # What a float that an integer has no place for becomes is not defined, neither here nor there.
            x = sample(dtype, (5, 13), special=dtype not in FLOATS or to in [*FLOATS, "bool"])
            compare("cast", [dtype], [abs(x) if dtype in FLOATS and to[0] == "u" else x], tmp_path / "g.onnx", to=to)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants(dtype, tmp_path):
    if dtype == "bf16":
        pytest.importorskip("torch", reason="torch is not installed, and NumPy has no bfloat16 to compare with")
    graph = Graph("g")
    value = True if dtype == "bool" else 3 if dtype in INTEGERS else -0.1
    constants = [graph.add("constant", value=v, to=dtype) for v in ([value] if dtype not in FLOATS else [value, np.nan, np.inf, -0.0])]
    graph.set_outputs(*(graph.add("cast", x, to="f32") if dtype == "bf16" else x for x in constants))
    for found, wanted in zip(run_onnx(graph, tmp_path / "g.onnx"), [np.asarray(x) for x in graph.run()], strict=True):
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves(dtype, tmp_path):
    def check(op, *arrays, **attrs):
        compare(op, [dtype] * len(arrays), arrays, tmp_path / "g.onnx", bound=None, **attrs)

    x, y = sample(dtype, (3, 4, 5)), sample(dtype, (3, 4, 5), 1)
    check("broadcast", x, dims=[0, 2, 3], shape=[3, 6, 4, 5])
    check("broadcast", x[:, :1], dims=[0, 1, 2], shape=[3, 4, 5])
    check("broadcast", x[0, 0, 0], dims=[], shape=[2, 3])
    check("reshape", x, shape=[5, 12])
    check("reshape", x[:0], shape=[5, 0])
    check("reshape", x[0, 0, :1], shape=[])
    check("transpose", x, permutation=[2, 0, 1])
    check("slice", x, starts=[1, 0, 4], sizes=[2, 4, 3], steps=[1, 1, -2])
    check("slice", x, starts=[2, 3, 0], sizes=[3, 2, 5], steps=[-1, -3, 1])
    check("slice", x, starts=[0, 1, 0], sizes=[0, 2, 3], steps=[1, 2, 2])
    check("windows", x, axis=2, count=2, size=3, step=2)
    check("windows", x, axis=0, count=3, size=1, step=1)
    check("pad", x, x[0, 0, 1], low=[1, 0, 2], high=[0, 3, 0])
    check("pad", x, x[0, 0, 1], low=[-1, 0, 2], high=[2, -1, -2])
    check("concat", x, y, x, axis=1)
    check("slice_update", x, y[:, :2], starts=[0, 1, 0], steps=[1, 1, 1])
    check("slice_update", x, y[:, :2], starts=[0, 0, 0], steps=[1, 1, 1])
    check("slice_update", x, y[:2, :2, :3], starts=[1, 3, 4], steps=[1, -2, -2])
    check("slice_update", x, y, starts=[0, 0, 0], steps=[1, 1, 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(dtype, tmp_path):
    compare("where", ["bool", dtype, dtype], [sample("bool", (4, 5)), sample(dtype, (4, 5)), sample(dtype, (4, 5), 1)], tmp_path / "g.onnx",
            bound=None)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@needs_torch
def test_fma(dtype, tmp_path):
    graph = built("fma", [dtype] * 3, [(4, 5)] * 3)
    arrays = [sample(dtype, (4, 5), i) for i in range(3)]
    found, = run_onnx(graph, tmp_path / "g.onnx", *arrays)
    assert_close(found, graph.run(*map(torch.from_numpy, arrays))[0], BOUND[dtype])


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or"])
def test_reductions(op, tmp_path):
    for dtype in DTYPES:
        try:
            _core.infer_type(op, [(dtype, (2,))], {"axes": [0]})
        except ValueError:
            continue
        for axes in ([0], [1, 2], [0, 1, 2]):
            for special in (False, True):
                if special and dtype in ("i64", "u64") and op in ("reduce_sum", "reduce_prod"):
                    continue  # beyond 2**53 onnxruntime rounds them
                x = sample(dtype, (3, 4, 5), special=special, low=-3, high=3)
                compare(op, [dtype], [x], tmp_path / "g.onnx", axes=axes)


def test_a_nan_is_the_largest_and_the_smallest(tmp_path):
    x = sample("f32", (4, 6), special=False)
    x[1, 3] = x[2, 0] = x[2, 4] = np.nan
    for op in ("reduce_max", "reduce_min"):
        compare(op, ["f32"], [x], tmp_path / "g.onnx", axes=[1])
    for op in ("argmax", "argmin"):
        compare(op, ["f32"], [x], tmp_path / "g.onnx", axis=1)


@pytest.mark.parametrize("op", ["argmax", "argmin", "cumsum", "cumprod"])
def test_along_an_axis(op, tmp_path):
    for dtype in DTYPES:
        if dtype == "bool" and op.startswith("cum"):
            continue  # NumPy's sums of bool as bool raise in some versions; no front end makes them
        for axis in range(3):
            for special in (False, True):
                x = sample(dtype, (3, 4, 5), special=special and not op.startswith("cum"), low=-3, high=3)
                compare(op, [dtype], [x], tmp_path / "g.onnx", axis=axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_as_data(dtype, tmp_path):
    def check(op, *arrays, dtypes, bound=None, **attrs):
        compare(op, dtypes, arrays, tmp_path / "g.onnx", bound=bound, **attrs)

    x, places = sample(dtype, (3, 4, 5)), np.array([[0, -1], [2, 2]])
    for axis in range(3):
        check("gather", x, places, dtypes=[dtype, "i64"], axis=axis)
    check("gather", x, places, places - 1, dtypes=[dtype, "i64", "i64"], axis=1)
    check("gather", x, places[0], places[1], places[0], dtypes=[dtype, "i64", "i64", "i64"], axis=0)
    along = np.random.default_rng(0).integers(-4, 4, (3, 6, 5))
    check("take_along", x, along, dtypes=[dtype, "i64"], axis=1)
    updates = sample(dtype, (3, 2, 2, 5), 2, special=False, low=-2, high=2)
    check("scatter", x, updates, places, dtypes=[dtype, dtype, "i64"], axis=1)
    check("scatter", x, updates[:, :, :, 0], places, places - 1, dtypes=[dtype, dtype, "i64", "i64"], axis=1)
    check("scatter", x, updates[:, :0, :, :], places[:0], dtypes=[dtype, dtype, "i64"], axis=1)
    if dtype != "bool":
        base = sample(dtype, (3, 4, 5), special=False, low=-2, high=2)
        check("scatter_add", base, updates, places, dtypes=[dtype, dtype, "i64"], axis=1)
        check("scatter_add", base, updates[:, :, :, 0], places, places - 1, dtypes=[dtype, dtype, "i64", "i64"], axis=1)


def test_an_index_out_of_range_ends_the_run(tmp_path):
    x = np.arange(12.0).reshape(3, 4)
    for indices in ([np.array([3])], [np.array([0]), np.array([4])], [np.array([-4]), np.array([3])]):
        graph = built("gather", ["f64"] + ["i64"] * len(indices), [x.shape] + [(1,)] * len(indices), axis=0)
        with pytest.raises(Exception, match="out of|bounds"):
            run_onnx(graph, tmp_path / "g.onnx", x, *indices)


def test_matrix_products(tmp_path):
    for dtype in DTYPES:
        for left, right in (((3, 4), (4, 5)), ((2, 1, 3, 4), (2, 1, 4, 5)), ((3, 0), (0, 2))):
            arrays = [sample(dtype, left, special=False, low=-3, high=3), sample(dtype, right, 1, special=False, low=-3, high=3)]
            compare("matmul", [dtype, dtype], arrays, tmp_path / "g.onnx")


SIZES = """graph @g(%x: f32[s0, 3], %y: f32[s1]) where s0 >= 0, s1 >= 0 {
  %0 = iota {shape = [s0, 2, s1], axis = 0} : i64[s0, 2, s1]
  %1 = dim {value = s0*s1 + 2*s0 - 1} : i64[]
  %2 = concat %x, %x {axis = 0} : f32[2*s0, 3]
  %3 = reshape %2 {shape = [3, 2*s0]} : f32[3, 2*s0]
  %4 = slice %x {starts = [s0 - 1, 0], sizes = [s0, 3], steps = [-1, 1]} : f32[s0, 3]
  %5 = broadcast %y {dims = [1], shape = [s0, s1]} : f32[s0, s1]
  %6 = reshape %5 {shape = [s0*s1]} : f32[s0*s1]
  return %0, %1, %3, %4, %5, %6
}"""


def test_sizes_that_differ_between_calls(tmp_path):
    graph = Graph.parse(SIZES)
    graph.to_onnx(tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "g.onnx"))
    assert [x.shape for x in session.get_inputs()] == [["s0", 3], ["s1"]]
    for rows, length in ((4, 2), (1, 1), (3, 5), (0, 2), (2, 0)):
        x, y = sample("f32", (rows, 3), special=False), sample("f32", (length,), special=False)
        for found, wanted in zip(session.run(None, {"x": x, "y": y}), graph.run(x, y), strict=True):
            assert_close(found, wanted, None)


NONZERO = """graph @g(%x: f64[s0]) where s0 >= 0, s1 >= 0 {
  %0 = constant {value = 0.0, to = f64} : f64[]
  %1 = broadcast %0 {dims = [], shape = [s0]} : f64[s0]
  %2 = gt %x, %1 : bool[s0]
  %3 = nonzero %2 {count = s1, excluded = [1]} : i64[s1]
  %4 = gather %x, %3 {axis = 0} : f64[s1]
  %5 = dim {value = s1 + 1} : i64[]
  return %4, %5
}"""


def test_sizes_that_depend_on_data(tmp_path):
    graph = Graph.parse(NONZERO)
    graph.to_onnx(tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "g.onnx"))
    for x in (np.array([1.0, -1, 2, 0, 3]), np.array([-1.0, 0]), np.zeros(0)):
        for found, wanted in zip(session.run(None, {"x": x}), graph.run(x, 0), strict=True):
            assert_close(found, wanted, None)
    with pytest.raises(Exception, match="out of data bounds"):  # the graph excludes a count of 1
        session.run(None, {"x": np.array([1.0, -1])})


def test_a_size_that_is_an_element(tmp_path):
    graph = Graph.parse("""graph @g(%n: i64[]) where s0 >= 0 {
  %0 = as_size %n {count = s0, excluded = [1]} : i64[]
  %1 = iota {shape = [s0], axis = 0} : i64[s0]
  return %0, %1
}""")
    graph.to_onnx(tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "g.onnx"))
    for n in (0, 2, 5):
        for found, wanted in zip(session.run(None, {"n": np.array(n)}), graph.run(np.array(n), 0), strict=True):
            assert_close(found, wanted, None)
    for wrong in (1, -1):
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"n": np.array(wrong)})


# ---- functions and modules


def leaves(result):
    if isinstance(result, dict) or hasattr(result, "to_tuple"):
        result = [x for x in result.values() if x is not None]
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in leaves(part)]
    return [result.detach().numpy() if hasattr(result, "detach") else np.asarray(result)]


def check_function(function, arguments, path, sizes=(3, 5), level="primitive", bound=1e-5, names=None):
    """arguments: (of a number of rows) the arguments, by name. One file, for several numbers of rows."""
    rows = framejit.Dim("rows", min=2)
    given = arguments(sizes[0])
    graph = framejit.capture(function, **given, dynamic_shapes={name: {0: rows} for name in given}, level=level)
    graph.to_onnx(path)
    session = onnxruntime.InferenceSession(str(path))
    assert all(x.shape[0] == "rows" for x in session.get_inputs())
    if names is not None:
        assert [x.name for x in session.get_outputs()] == names
    for size in sizes:
        given = arguments(size)
        wanted = leaves(function(**given))
        found = session.run(None, {x.name: np.asarray(given[x.name]) for x in session.get_inputs()})
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            assert_close(one, other, bound if other.dtype != np.float64 else 1e-12)
    return session


def normalised(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


def call_price(spot, strike, years):
    """Black and Scholes, with the rational approximation of the normal distribution by Abramowitz and Stegun."""
    def below(z):
        t = 1 / (1 + 0.2316419 * np.abs(z))
        tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
        tail *= np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        return np.where(z > 0, 1 - tail, tail)

    spread = 0.2 * np.sqrt(years)
    d1 = (np.log(spot / strike) + (0.03 + 0.02) * years) / spread
    return spot * below(d1) - strike * np.exp(-0.03 * years) * below(d1 - spread)


def distances(points, others):
    return np.sqrt(((points[:, None] - others[None]) ** 2).sum(-1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_numpy(dtype, tmp_path):
    generator = np.random.default_rng(0)
    check_function(normalised, lambda n: {"x": generator.random((n, 7)).astype(dtype)}, tmp_path / "f.onnx")
    check_function(call_price, lambda n: {name: (generator.random(n) + 0.5).astype(dtype) for name in ("spot", "strike", "years")},
                   tmp_path / "g.onnx")
    others = generator.random((6, 3)).astype(dtype)
    check_function(lambda points: distances(points, others), lambda n: {"points": generator.random((n, 3)).astype(dtype)},
                   tmp_path / "h.onnx")


if torch is not None:
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.last = nn.Linear(8, 10)
            for norm in (self.first[1], self.norm):
                nn.init.uniform_(norm.running_mean)
                nn.init.uniform_(norm.running_var, 0.5, 2)

        def forward(self, x):
            x = self.first(x)
            x = torch.relu(self.norm(self.conv(x)) + x)
            return self.last(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))

    class UpAndDown(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(19, 1, 1)
            self.norm = nn.GroupNorm(2, 8)

        def forward(self, x):
            y = nn.functional.silu(self.norm(self.down(nn.functional.avg_pool2d(x, 2))))
            wide = nn.functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
            return torch.sigmoid(self.last(torch.cat([x, wide, self.up(y)], 1)))

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.last = nn.Embedding(20, 8), nn.Linear(32, 4)
            self.cells = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)

        def forward(self, words):
            y, (h, c) = self.cells(self.words(words))
            return {"tags": self.last(y), "state": (h[-1], c[:, :, 1:])}


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))


MODELS = {
    "perceptron": (perceptron, lambda n: {"input": torch.randn(n, 8)}, ["output"]),
    "convolutions": (lambda: Residual(), lambda n: {"x": torch.randn(n, 3, 32, 32)}, ["output"]),
    "up and down": (lambda: UpAndDown(), lambda n: {"x": torch.randn(n, 3, 8, 8)}, ["output"]),
    "encoder": (encoder, lambda n: {"src": torch.randn(n, 5, 32)}, ["output"]),
    "recurrent": (lambda: Tagger(), lambda n: {"words": torch.randint(0, 20, (n, 6))}, ["tags", "state_0", "state_1"]),
}


@needs_torch
@pytest.mark.parametrize("level, gradients", [("primitive", False), ("primitive", True), ("library", False)])
@pytest.mark.parametrize("name", MODELS)
def test_modules(name, level, gradients, tmp_path):
    torch.manual_seed(0)
    make, arguments, names = MODELS[name]
    module = make().eval()
    with torch.set_grad_enabled(gradients):
        check_function(module, arguments, tmp_path / "model.onnx", level=level, names=names)
    model = onnx.load(tmp_path / "model.onnx")
    parameters = dict(module.named_parameters())
    stored = {x.name: onnx.numpy_helper.to_array(x) for x in model.graph.initializer}
    assert set(parameters) <= set(stored)
    for path, parameter in parameters.items():
        np.testing.assert_array_equal(stored[path], parameter.detach().numpy())


@needs_torch
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2"])
def test_models_of_transformers(name, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    torch.manual_seed(0)
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    with torch.no_grad():
        if name == "vit":
            model = transformers.ViTModel(transformers.ViTConfig(**small, image_size=32, patch_size=8)).eval()
            check_function(model, lambda n: {"pixel_values": torch.randn(n, 3, 32, 32)}, tmp_path / "vit.onnx",
                           names=["last_hidden_state", "pooler_output"])
            return
        if name == "gpt2":
            gpt2 = transformers.GPT2Model(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=16)).eval()

            def states(input_ids):
                return gpt2(input_ids=input_ids, use_cache=False).last_hidden_state

            check_function(states, lambda n: {"input_ids": torch.randint(0, 50, (n, 7))}, tmp_path / "gpt2.onnx")
            return
        bert = transformers.BertModel(transformers.BertConfig(**small, vocab_size=50, max_position_embeddings=32)).eval()

        class Words(nn.Module):  # BertModel's own parameters are behind wrappers
            def __init__(self):
                super().__init__()
                self.bert = bert

            def forward(self, input_ids, attention_mask):
                return self.bert(input_ids=input_ids, attention_mask=attention_mask)

        def arguments(n):
            mask = torch.ones(n, 7, dtype=torch.int64)
            mask[1, 4:] = 0
            return {"input_ids": torch.randint(0, 50, (n, 7)), "attention_mask": mask}

        check_function(Words(), arguments, tmp_path / "bert.onnx", names=["last_hidden_state", "pooler_output"])


CALLS = {
    "conv1d": (lambda F, x: F.conv1d(x, torch.ones(4, 3, 2), dilation=2, stride=2), (3, 9)),
    "conv1d of no batch": (lambda F, x: F.conv1d(x[0], torch.ones(4, 3, 2)), (3, 9)),
    "conv2d, same": (lambda F, x: F.conv2d(x, torch.arange(90.0).reshape(2, 3, 3, 5) / 90, padding="same", dilation=2), (3, 5, 6)),
    "conv2d of groups": (lambda F, x: F.conv2d(x, torch.arange(36.0).reshape(4, 1, 3, 3), groups=4, padding=(1, 0)), (4, 5, 6)),
    "conv3d": (lambda F, x: F.conv3d(x, torch.ones(2, 3, 2, 2, 2)), (3, 4, 4, 4)),
    "conv_transpose": (lambda F, x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 3), stride=2, padding=1, output_padding=1), (3, 4, 4)),
    "max_pool": (lambda F, x: F.max_pool2d(x, 3, 2, 1, 2), (3, 9, 9)),
    "max_pool1d": (lambda F, x: F.max_pool1d(x, 2), (3, 9)),
    "avg_pool": (lambda F, x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)), (3, 9, 9)),
    "adaptive": (lambda F, x: (F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool1d(x[:, :, 0], 1)),
                 (3, 6, 6)),
    "nearest": (lambda F, x: (F.interpolate(x, scale_factor=(2, 1.5)), F.interpolate(x, size=(7, 3)),
                              F.interpolate(x, size=5, mode="nearest-exact")), (3, 4, 6)),
    "bilinear": (lambda F, x: (F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(7, 1), mode="bilinear"),
                               F.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True)), (3, 4, 6)),
    "bicubic": (lambda F, x: F.interpolate(x, size=(8, 9), mode="bicubic"), (3, 4, 6)),
    "attention": (lambda F, x: F.scaled_dot_product_attention(x, x, x * 2, is_causal=True), (2, 5, 4)),
    "sort": (lambda F, x: (torch.sort(x, 1, descending=True), torch.topk(x, 2, dim=-1, largest=False)), (5,)),
    "einsum": (lambda F, x: torch.einsum("bij,bkj->bik", x, x), (3, 4)),
    "norms": (lambda F, x: (F.layer_norm(x, (3, 4)), F.group_norm(x, 3), F.instance_norm(x)), (3, 4)),
    "softmax": (lambda F, x: (F.softmax(x, 1), F.log_softmax(x, -1), F.gelu(x, approximate="tanh"), F.leaky_relu(x)), (3, 4)),
    "shapes": (lambda F, x: (torch.flatten(x, 1), x.permute(0, 2, 1), x.unfold(1, 2, 1), F.pad(x, (1, 2)), torch.roll(x, 1, 1), x.flip(2)),
               (3, 4)),
}


@needs_torch
@pytest.mark.parametrize("level", ["primitive", "library"])
@pytest.mark.parametrize("name", CALLS)
def test_functions_of_torch(name, level, tmp_path):
    call, shape = CALLS[name]

    def f(x):
        return call(nn.functional, x)

    with torch.no_grad():
        check_function(f, lambda n: {"x": torch.randn(n, *shape)}, tmp_path / "f.onnx", level=level)


@needs_torch
@pytest.mark.parametrize("level", ["primitive", "library"])
@pytest.mark.parametrize("kind, options", [
    ("LSTM", {}), ("GRU", {"num_layers": 2, "bidirectional": True}), ("RNN", {"nonlinearity": "relu"}),
    ("RNN", {"bidirectional": True, "bias": False}), ("LSTM", {"bias": False, "batch_first": True})])
def test_recurrent_layers(kind, options, level, tmp_path):
    torch.manual_seed(0)
    module = getattr(nn, kind)(4, 6, **options).eval()

    def f(x):
        return module(x if options.get("batch_first") else x.transpose(0, 1))

    with torch.no_grad():
        check_function(f, lambda n: {"x": torch.randn(n, 5, 4)}, tmp_path / "f.onnx", level=level)


def test_calls_of_numpy(tmp_path):
    x = np.random.default_rng(0).random((4, 3))
    graph = framejit.capture(lambda x: (np.sort(x, axis=0), np.argsort(x, axis=1, kind="stable"), np.einsum("ij,kj->ik", x, x)), x)
    for found, wanted in zip(run_onnx(graph, tmp_path / "f.onnx", x), graph.run(x), strict=True):
        assert_close(found, wanted, 1e-12)


# ---- results, names, files


def test_views_and_arguments_are_results(tmp_path):
    def f(x, y):
        z = x * 2
        return {"turned": z.T, "part": z[1:, ::-2], "flat": z.reshape(-1), "same": x, "of an argument": y[0], "sum": y + 1,
                "rest": (z[:, None], 5, None)}

    x, y = np.arange(12.0).reshape(4, 3), np.arange(6.0).reshape(2, 3)
    graph = framejit.capture(f, x, y, dynamic_shapes={"x": {0: framejit.Dim("rows", min=2)}})
    graph.to_onnx(tmp_path / "f.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "f.onnx"))
    assert [out.name for out in session.get_outputs()] == ["turned", "part", "flat", "same", "of an argument", "sum", "rest_0"]
    for rows in (4, 7):
        x = np.random.default_rng(0).random((rows, 3))
        wanted = [value for value in f(x, y).values() if isinstance(value, np.ndarray)] + [f(x, y)["rest"][0]]
        for found, want in zip(session.run(None, {"x": x, "y": y}), wanted, strict=True):
            assert_close(found, want, None)


def test_an_argument_that_is_only_returned_is_refused(tmp_path):
    graph = framejit.capture(lambda x, y: (x + 1, y[1:]), np.ones(3), np.ones(3))
    with pytest.raises(GraphError, match="it returns y, which it computes nothing of; return what is computed"):
        graph.to_onnx(tmp_path / "f.onnx")


def test_what_is_written_is_an_output(tmp_path):
    def f(x, y):
        x += y
        return x.sum(), x

    x, y = np.arange(3.0), np.ones(3)
    graph = framejit.capture(f, x, y)
    graph.to_onnx(tmp_path / "f.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "f.onnx"))
    assert [out.name for out in session.get_outputs()] == ["output_0", "output_1", "x_after"]
    total, same, after = session.run(None, {"x": x, "y": y})
    assert total == 6
    np.testing.assert_array_equal(same, [1, 2, 3])
    np.testing.assert_array_equal(after, [1, 2, 3])
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_numbers_are_inputs(tmp_path):
    def f(x, n):
        return x.reshape(n, -1) + n

    x = np.arange(12.0)
    graph = framejit.capture(f, x, 3, dynamic_shapes=True)
    graph.to_onnx(tmp_path / "f.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "f.onnx"))
    given = {node.name for node in session.get_inputs()}
    found, = session.run(None, {name: value for name, value in {"x": x, "n": np.array(3)}.items() if name in given})
    np.testing.assert_array_equal(found, f(x, 3))


def test_the_model_says_where_it_comes_from(tmp_path):
    graph = framejit.capture(normalised, np.ones((4, 3)), dynamic_shapes={"x": {0: framejit.Dim("rows", min=2)}})
    graph.to_onnx(tmp_path / "f.onnx")
    model = onnx.load(tmp_path / "f.onnx")
    assert (model.producer_name, model.producer_version, model.graph.name) == ("framejit", framejit.__version__, "normalised")
    assert [(x.domain, x.version) for x in model.opset_import] == [("", 18)]
    line = normalised.__code__.co_firstlineno + 1
    assert all(node.doc_string in ("", f"test_onnx.py:{line}") for node in model.graph.node)
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)
    assert {entry.key: entry.value for entry in model.metadata_props}["framejit.assumptions"] == "\n".join(graph.assumptions)
    graph.to_onnx(tmp_path / "f.onnx", opset=21)
    assert onnx.load(tmp_path / "f.onnx").opset_import[0].version == 21
    for opset in (17, 1000, "18"):
        with pytest.raises(GraphError, match="an opset from 18 to"):
            graph.to_onnx(tmp_path / "g.onnx", opset=opset)


@needs_torch
def test_nodes_have_the_module_s_path(tmp_path):
    graph = framejit.capture(perceptron().eval(), torch.ones(2, 8))
    graph.to_onnx(tmp_path / "f.onnx")
    nodes = onnx.load(tmp_path / "f.onnx").graph.node
    assert any(node.name.startswith("1/erf/Erf") and node.doc_string.endswith(" 1") for node in nodes)


def test_large_arrays_lie_beside_the_model(tmp_path, monkeypatch):
    from framejit._graph import onnx as written

    weight = np.random.default_rng(0).random((64, 64)).astype("f4")
    graph = framejit.capture(lambda x: x @ weight, np.ones((2, 64), "f4"))
    graph.to_onnx(tmp_path / "one.onnx")
    monkeypatch.setattr(written, "LARGEST_FILE", 1000)
    found, = run_onnx(graph, tmp_path / "two.onnx", np.ones((2, 64), "f4"))
    assert sorted(x.name for x in tmp_path.iterdir()) == ["one.onnx", "two.onnx", "two.onnx.data"]
    np.testing.assert_allclose(found, np.ones((2, 64), "f4") @ weight, rtol=1e-5)


def test_a_graph_that_was_saved_edited_or_built_is_written(tmp_path):
    pytest.importorskip("safetensors", reason="the package safetensors is not installed")
    x = np.random.default_rng(0).random((4, 3))
    scale = np.arange(3.0)
    graph = framejit.capture(lambda x: {"y": np.tanh(x * scale)}, x)
    graph.save(tmp_path / "f.graph")
    loaded = Graph.load(tmp_path / "f.graph")
    assert loaded.replace_pattern(np.tanh, np.sin) == 1
    found, = run_onnx(loaded, tmp_path / "f.onnx", x)
    np.testing.assert_allclose(found, np.sin(x * scale))
    assert onnx.load(tmp_path / "f.onnx").graph.output[0].name == "y"
    graph.set_outputs(*graph.outputs, graph.find(op="mul")[0])
    assert [found.shape for found in run_onnx(graph, tmp_path / "g.onnx", x)] == [(4, 3), (4, 3)]


def test_what_has_no_form_in_onnx_is_refused(tmp_path):
    def solved(a, b):
        return np.linalg.solve(a, b + 1)

    graph = framejit.capture(solved, np.eye(3), np.ones((3, 2)))
    line = solved.__code__.co_firstlineno + 1
    with pytest.raises(GraphError, match=rf"the graph of solved can't be written as ONNX: .*extern_call.*\(test_onnx.py:{line}\): ONNX "
                                         r"has no form of `numpy.linalg.solve\(x0, x1\)`.*; write it with other functions"):
        graph.to_onnx(tmp_path / "f.onnx")
    graph = framejit.capture(lambda x: x.real * 2, np.ones(3, complex))
    with pytest.raises(GraphError, match="its input %x: ONNX has no operations on complex128"):
        graph.to_onnx(tmp_path / "f.onnx")
    graph = framejit.capture(lambda x: x * 2, np.ones(3))
    with pytest.raises(GraphError, match="can't be written"):
        graph.to_onnx(tmp_path / "nowhere" / "f.onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(GraphError, match="pip install onnx"):
        framejit.capture(lambda x: x * 2, np.ones(3)).to_onnx(tmp_path / "f.onnx")
