"""NumPy arrays are read, made and viewed as NumPy itself would."""
import contextvars
import subprocess
import sys
import threading

import numpy as np
import pytest

arrays = pytest.importorskip("framejit_array_tests", reason="run by ctest, which builds the module")

NAMES = {"bool": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16", "i32": "int32",
         "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
LAYOUTS = {
    "row-major": np.zeros((2, 3, 4)),
    "column-major": np.zeros((2, 3, 4), order="F"),
    "sliced": np.zeros((4, 6, 8))[1::2, ::3, 2:6],
    "reversed": np.zeros((3, 4))[::-1, ::-1],
    "broadcast": np.broadcast_to(np.zeros((3, 1)), (2, 3, 5)),
    "scalar": np.zeros(()),
    "empty": np.zeros((0, 3)),
    "one element": np.zeros((1, 1)),
    "many dimensions": np.zeros((1, 2) * 12),
}


def owner(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_array_is_described_as_it_is(layout):
    array = LAYOUTS[layout]
    info = arrays.describe(array)
    assert info["unsupported"] == "" and info["library"] == "numpy" and info["dtype"] == "f64"
    assert info["shape"] == array.shape and info["strides"] == tuple(s // 8 for s in array.strides)
    assert info["data"] == array.__array_interface__["data"][0] == arrays.data_pointer(array)
    assert info["storage"] == id(owner(array)) and info["writeable"] == array.flags.writeable
    assert info["offset"] == (info["data"] - owner(array).__array_interface__["data"][0]) // 8
    read = arrays.read(array)
    assert all(read[key] == info[key] for key in ("dtype", "shape", "strides", "data", "writeable")) and read["aligned"]


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_is_known_both_ways(name):
    dtype = np.dtype(NAMES[name])
    assert arrays.describe(np.zeros(2, dtype))["dtype"] == name
    assert arrays.dtype_from_object(dtype) == arrays.dtype_from_object(dtype.type) == name
    assert arrays.dtype_object("numpy", name) == dtype
    assert arrays.numpy_scalar_dtype(dtype.type(1)) == name
    scalar = arrays.numpy_scalar(np.array(1, dtype))
    assert type(scalar) is dtype.type and scalar == 1


@pytest.mark.parametrize("array, reason", [
    (np.zeros(2, object), "dtype object"),
    (np.zeros(2, "U3"), "dtype <U3"),
    (np.zeros(2, "S3"), "dtype |S3"),
    (np.zeros(2, "M8[s]"), "dtype datetime64[s]"),
    (np.zeros(2, [("a", "f4")]), "dtype [('a', '<f4')]"),
    (np.zeros(2, np.longdouble), "dtype float128"),
    (np.zeros(2, ">f4"), "dtype >f4 in foreign byte order"),
    (np.zeros(9, np.uint8)[1:].view(np.float64), "memory that is not aligned to its dtype"),
    (np.zeros(2, [("a", "f4"), ("b", "u1"), ("c", "u1"), ("d", "u2"), ("e", "u2")])["a"], "strides that are not a multiple"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_not_compiled_is_named(array, reason):
    assert arrays.array_library(array) == "numpy"
    assert reason in arrays.describe(array)["unsupported"]


def test_subclasses_and_lookalikes_are_not_arrays():
    class Mine(np.ndarray):
        pass

    for value in (np.zeros(2).view(Mine), np.matrix([1]), np.ma.zeros(2), np.float32(1), [1], 3, None, np, memoryview(b"a"), np.memmap):
        assert arrays.array_library(value) is None
    assert arrays.array_library(np.zeros(2)) == "numpy"


def test_scalars_are_the_exact_types_of_numpy():
    class Mine(np.float64):
        pass

    for value in (Mine(1), 1.0, 1, True, np.zeros(()), np.str_("a"), np.datetime64(1, "s"), np.longdouble(1), np.void(b"a"), None):
        assert arrays.numpy_scalar_dtype(value) is None


@pytest.mark.parametrize("value", ["f4", None, 3, np.dtype(object), np.dtype(">f4"), np.longdouble, np.generic, np.floating, str, list, np.dtype("M8[s]")])
def test_other_things_are_not_dtypes(value):
    assert arrays.dtype_from_object(value) is None


def test_python_types_are_the_dtypes_numpy_takes_them_for():
    assert [arrays.dtype_from_object(t) for t in (bool, int, float, complex)] == ["bool", "i64", "f64", "c128"]


@pytest.mark.parametrize("name", NAMES)
def test_new_arrays_own_their_memory(name):
    array = arrays.allocate("numpy", name, (3, 4), (4, 1))
    assert type(array) is np.ndarray and array.dtype == NAMES[name] and array.shape == (3, 4)
    assert array.flags.owndata and array.flags.writeable and array.flags.c_contiguous and array.flags.aligned and array.base is None
    array.resize((5, 5), refcheck=False)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_new_arrays_have_the_axis_order_asked_for(order):
    like = np.empty_like(np.zeros((2, 3, 4)).transpose(order), order="K")
    array = arrays.allocate("numpy", "f64", like.shape, [s // 8 for s in like.strides])
    assert array.strides == like.strides and str(array.flags) == str(like.flags) and array.flags.owndata
    array[...] = np.arange(24).reshape(array.shape)
    assert array.sum() == 276


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0, 2), (1,), (1, 1), (1, 4), (4, 1)])
def test_new_arrays_of_degenerate_shapes_are_numpys(shape):
    like = np.empty(shape)
    array = arrays.allocate("numpy", "f64", shape, [s // 8 for s in like.strides])
    assert array.shape == shape and array.strides == like.strides and str(array.flags) == str(like.flags)


@pytest.mark.parametrize("shape, strides", [((2, 3), (6, 1)), ((3,), (-1,)), ((2, 2), (2, 2))])
def test_layouts_that_do_not_fit_their_memory_are_refused(shape, strides):
    with pytest.raises(RuntimeError):
        arrays.allocate("numpy", "f32", shape, strides)


def test_an_allocation_that_cannot_be_had_raises_numpys_error():
    with pytest.raises(MemoryError):
        arrays.allocate("numpy", "f64", (1 << 50,), (1,))


@pytest.mark.parametrize("make", [lambda x: x[1:, ::2], lambda x: x.T, lambda x: x[::-1], lambda x: x[2], lambda x: x[1, 2:3], lambda x: x[:0],
                                  lambda x: np.broadcast_to(x, (2, 4, 6))])
@pytest.mark.parametrize("base", ["owner", "view", "read-only", "borrowed"])
def test_views_are_those_that_numpy_makes(make, base):
    whole = np.arange(48.0).reshape(8, 6) if base != "borrowed" else np.frombuffer(bytes(8 * 48)).reshape(8, 6)
    source = {"owner": np.arange(24.0).reshape(4, 6).copy(), "view": whole[2:6], "read-only": whole[2:6], "borrowed": whole[2:6]}[base]
    if base == "read-only":
        source.flags.writeable = False
    expected = make(source)
    offset = (arrays.data_pointer(expected) - arrays.data_pointer(source)) // 8
    view = arrays.view_of(source, "f64", expected.shape, [s // 8 for s in expected.strides], offset)
    assert arrays.data_pointer(view) == arrays.data_pointer(expected) and view.base is expected.base
    assert np.array_equal(view, expected) and view.strides == expected.strides
    if expected.flags.writeable == source.flags.writeable:  # broadcast_to makes read-only views
        assert str(view.flags) == str(expected.flags)


def test_views_keep_their_base_alive():
    base = np.arange(10.0)
    count = sys.getrefcount(base)
    view = arrays.view_of(base, "f64", (3,), (2,), 4)
    assert sys.getrefcount(base) == count + 1 and view.tolist() == [4, 6, 8]
    del view
    assert sys.getrefcount(base) == count


def trapped():
    bits = arrays.numpy_trapped_conditions()
    return {name for name in ("divide", "overflow", "underflow", "invalid") if bits & getattr(arrays, name)}


def test_trapped_conditions_are_those_of_errstate():
    assert trapped() == {"divide", "overflow", "invalid"}  # NumPy's default: all warn but underflow
    with np.errstate(all="ignore"):
        assert trapped() == set()
        with np.errstate(under="raise", divide="warn"):
            assert trapped() == {"underflow", "divide"}
        with np.errstate(over="call", invalid="print"):
            assert trapped() == {"overflow", "invalid"}
        assert trapped() == set()
    assert trapped() == {"divide", "overflow", "invalid"}


def test_trapped_conditions_follow_seterr_threads_and_contexts():
    before = np.seterr(all="ignore")
    try:
        assert trapped() == set()
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(trapped()))
        thread.start()
        thread.join()
        assert elsewhere == [{"divide", "overflow", "invalid"} if not getattr(sys.flags, "thread_inherit_context", 0) else set()]
        assert contextvars.Context().run(trapped) == {"divide", "overflow", "invalid"}
        assert trapped() == set()
    finally:
        np.seterr(**before)
    for _ in range(100):
        with np.errstate(divide="ignore"):
            assert trapped() == {"overflow", "invalid"}
        with np.errstate(divide="raise", over="ignore"):
            assert trapped() == {"divide", "invalid"}


def test_nothing_is_leaked():
    array = np.zeros((3, 4), order="F")
    for _ in range(3):
        before = sys.getallocatedblocks()
        for _ in range(200):
            arrays.describe(array), arrays.read(array), arrays.allocate("numpy", "f32", (2, 3), (1, 2)), arrays.view_of(array, "f64", (3,), (1,), 0)
            arrays.numpy_scalar(array), arrays.numpy_scalar_dtype(np.float32(1)), arrays.dtype_object("numpy", "f32"), trapped()
            arrays.describe(np.zeros(1, object)), arrays.dtype_from_object(np.float32), arrays.dtype_from_object(np.dtype("f4"))
        growth = sys.getallocatedblocks() - before
    assert growth < 100  # one block per pass are 200


def test_a_process_without_the_libraries_works():
    program = """
import framejit_array_tests as arrays
assert arrays.array_library([]) is None and arrays.dtype_from_object(float) is None and arrays.numpy_scalar_dtype(1.0) is None
assert not arrays.has_torch() and arrays.torch_modes() == 0 and not arrays.torch_grad_enabled() and arrays.torch_modes_refusal() == ""
assert arrays.numpy_trapped_conditions() == 0 and arrays.torch_unsupported_reason() == ""
import sys
assert "numpy" not in sys.modules and "torch" not in sys.modules
import numpy
assert arrays.array_library(numpy.zeros(1)) == "numpy" and arrays.numpy_trapped_conditions() != 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)
