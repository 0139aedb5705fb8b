"""What a program refuses, and in which words: in the call that makes it, and in calls of it."""
import math

import numpy as np
import pytest

import framejit
from framejit import Dim, ExportedProgram, GraphError
from framejit._export.ranges import holds, intervals

BATCH = Dim("batch", min=2, max=256)


def mixed(x, options, n, *more, flag=True):
    return x * options["scale"] + n + more[0][0]


def arguments():
    return np.ones((4, 3)), {"scale": np.ones(3)}, 5, [np.ones(3)]


@pytest.fixture(params=["exported", "loaded"])
def program(request, tmp_path):
    made = framejit.export(mixed, arguments(), dynamic_shapes={"x": {0: BATCH}})
    if request.param == "exported":
        return made
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    made.save(tmp_path / "mixed.program")
    return ExportedProgram.load(tmp_path / "mixed.program")


EXPECTED_X = "  expected  f64[batch, 3], batch from 2 to 256\n"
OTHERS = [
    ("size", {0: np.ones((4, 4))}, f"x\n{EXPECTED_X}  found     f64[4, 4]"),
    ("above", {0: np.ones((257, 3))}, f"x\n{EXPECTED_X}  found     f64[257, 3]"),
    ("below", {0: np.ones((1, 3))}, f"x\n{EXPECTED_X}  found     f64[1, 3]"),
    ("rank", {0: np.ones(3)}, f"x\n{EXPECTED_X}  found     f64[3]"),
    ("dtype", {0: np.ones((4, 3), "f4")}, f"x\n{EXPECTED_X}  found     f32[4, 3]"),
    ("no dtype of graphs", {0: np.ones((4, 3), "O")}, f"x\n{EXPECTED_X}  found     ?[4, 3] of the dtype object"),
    ("list", {0: [1.0]}, f"x\n{EXPECTED_X}  found     [1.0], of type list"),
    ("None", {0: None}, f"x\n{EXPECTED_X}  found     None, of type NoneType"),
    ("part", {1: {"scale": np.ones(4)}}, "options['scale']\n  expected  f64[3]\n  found     f64[4]"),
    ("part of *args", {3: [np.ones(2)]}, "more[0][0]\n  expected  f64[3]\n  found     f64[2]"),
]


@pytest.mark.parametrize("other, text", [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_arrays_of_other_types(program, other, text):
    given = arguments()
    np.testing.assert_array_equal(program(*given), mixed(*given))
    for run in (program, program.run):
        with pytest.raises(GraphError) as error:
            run(*(other.get(i, argument) for i, argument in enumerate(given)))
        assert str(error.value) == f"the program of mixed was given another argument: {text}"


@pytest.mark.parametrize("other, text", [
    ({1: {}}, r"'scale' in options, not \[\]"),
    ({2: 6}, "n == 5, not 6"),
    ({2: 5.0}, "n == 5, not 5.0"),
    ({3: []}, r"len\(more\[0\]\) == 1, not 0"),
])
def test_values_and_containers_that_are_others(program, other, text):
    with pytest.raises(GraphError, match=f"the graph of mixed was captured with {text}"):
        program(*(other.get(i, argument) for i, argument in enumerate(arguments())))


def test_arguments_that_are_missing_or_too_many(program):
    x, options, n, more = arguments()
    taken = "mixed(x: f64[batch, 3], options['scale']: f64[3], more[0][0]: f64[3], n == 5) -> f64[batch, 3], batch from 2 to 256"
    for run in (program, program.run):
        for args, kwargs, text, found in [
            ((x, options), {}, "missing a required argument: 'n'", "(f64[4, 3], {'scale': array([1., 1., 1.])})"),
            ((), {"x": x}, "missing a required argument: 'options'", "(x=f64[4, 3])"),
            ((x, options, n, more), {"k": 1}, "got an unexpected keyword argument 'k'", None),
            ((x, options, n), {"x": x}, "multiple values for argument 'x'", None),
        ]:
            with pytest.raises(GraphError) as error:
                run(*args, **kwargs)
            lines = str(error.value).split("\n")
            assert lines[:2] == [f"the program of mixed takes other arguments: {text}", f"  expected  {taken}"]
            assert found is None or lines[2] == f"  found     {found}"


def test_axes_of_one_name_are_equal():
    rows = Dim("rows", min=1, max=8)
    program = framejit.export(lambda x, y: x + y, (np.ones((4, 3)), np.ones((4, 3))), dynamic_shapes={"x": {0: rows}, "y": {0: rows}})
    with pytest.raises(GraphError) as error:
        program(np.ones((4, 3)), np.ones((5, 3)))
    assert str(error.value) == ("the program of f was given another argument: y\n  expected  f64[rows, 3], rows from 1 to 8\n"
                                "  found     f64[5, 3], and rows is 4 before axis 0 of it")
    with pytest.raises(GraphError, match="rows is 4 in axis 0 of x, from 1 to 8, and 1 in axis 0 of y, from 1 to 8"):
        framejit.export(lambda x, y: x + y, (np.ones((4, 3)), np.ones((1, 3))), dynamic_shapes=[{0: rows}, {0: rows}])
    with pytest.raises(GraphError, match="rows is 4 in axis 0 of x, from 1 to 8, and 4 in axis 0 of y, from 1 to any"):
        framejit.export(lambda x, y: x + y, (np.ones((4, 3)), np.ones((4, 3))), dynamic_shapes=[{0: rows}, {0: Dim("rows", min=1)}])


def test_arguments_that_nothing_is_computed_of_are_checked():
    rows = Dim("rows", min=1, max=8)
    given = np.ones((4, 3)), np.ones((4, 3))
    program = framejit.export(lambda x, y: x * 2, given, dynamic_shapes=[{0: rows}, {0: rows}])
    np.testing.assert_array_equal(program(np.ones((5, 3)), np.ones((5, 3))), np.full((5, 3), 2.0))
    with pytest.raises(GraphError, match="another argument: y\n.*\n  found     f32"):
        program(np.ones((5, 3)), np.ones((5, 3), "f4"))
    with pytest.raises(GraphError, match="and rows is 4 before axis 0 of it"):
        program(np.ones((4, 3)), np.ones((5, 3)))


# ---- ranges that the code contradicts


def four(x):
    if x.shape[0] == 4:
        return x * 2
    return x


def more_than_two(x):
    if x.shape[0] > 2:
        return x * 2
    return x


def together(x, y):
    return x + y


@pytest.mark.parametrize("function, count, sizes, text", [
    (four, 1, [{0: BATCH}],
     r"framejit.export: axis 0 of x should be dynamic, and the code needs it to be 4\n  it assumes s0 == 4  \(.*arguments.py:\d+\)"),
    (more_than_two, 1, [{0: BATCH}],
     r"is not that of all sizes \(batch from 2 to 256\)\n  it assumes batch > 2  \(.*arguments.py:\d+\)\n  try   "),
    (together, 2, [{0: BATCH}, {0: Dim("other", min=2)}],
     r"\(batch from 2 to 256, other from 2\)\n  it assumes other == batch  \(.*:\d+\)"),
    (together, 2, [{0: BATCH}], "axis 0 of x should be dynamic, and the code needs it to be 4"),
    (lambda x: x.reshape(2, -1) * 2, 1, [{0: BATCH}], r"it assumes batch\*2 \+ batch // 2\*2 == batch\*3  "),
    (lambda x: x * 2 if x.shape[0] % 2 == 0 else x, 1, [{0: BATCH}], r"it assumes batch % 2 == 0  "),
])
def test_ranges_that_the_code_contradicts(function, count, sizes, text):
    with pytest.raises(GraphError, match=text):
        framejit.export(function, tuple(np.ones((4, 3)) for _ in range(count)), dynamic_shapes=sizes)


def test_ranges_that_the_code_keeps_to():
    program = framejit.export(more_than_two, (np.ones((4, 3)),), dynamic_shapes=[{0: Dim("batch", min=3)}])
    assert program.ranges == {"batch": (3, None)}
    np.testing.assert_array_equal(program(np.ones((3, 3))), np.full((3, 3), 2.0))
    halves = framejit.export(lambda x: x[::2] * 2, (np.ones((16, 3)),), dynamic_shapes=[{0: Dim("batch", min=9)}])
    assert str(halves.signature) == "f(x: f64[batch, 3]) -> f64[(batch + 1) // 2, 3], batch from 9"
    np.testing.assert_array_equal(halves(np.ones((9, 3))), np.full((5, 3), 2.0))
    open_sizes = framejit.export(more_than_two, (np.ones((4, 3)),), dynamic_shapes=True)  # what the code decides is checked
    np.testing.assert_array_equal(open_sizes(np.ones((5, 7))), np.full((5, 7), 2.0))
    with pytest.raises(GraphError, match="captured with s0 > 2"):
        open_sizes(np.ones((2, 3)))


def test_relations_are_proved_by_intervals():
    sizes = intervals([("s0", 2, 64), ("s1", 3, math.inf), ("s2", 0, math.inf), ("s3", 0, math.inf)],
                      [(2, "s0 + 1", 2, False), (3, "s1*2", 4, True)])
    for relation, expected in [("s0 > 1", True), ("s0 > 2", False), ("s0 - 1 > 0", True), ("s0*s1 >= 6", True), ("s0*s1 != 5", True),
                               ("s0*s1 != 7", False), ("2 <= s0", True), ("s0 == s0", True), ("s0 == s1", False),
                               ("s0*s1*48 - s0*48 != 0", True), ("s0*s1 > s0", True), ("s0*s1 - s1*2 >= 0", True), ("s0*s1 < s0", False),
                               ("s1*s0 - s1 - s0 >= 1", True), ("s1*s0 - s1 - s0 >= 2", False), ("s0*2 - s0 - s0 == 0", True), ("s2 != 0", True), ("s2 <= 32", True), ("s2 < 32", False), ("s3 < 4", True), ("s3 != 3", False), ("-s1 < 0", True),
                               ("s4 > 0", False), ("s0 / 2 > 0", False)]:
        assert holds(relation, sizes) == expected, relation


# ---- what can't be exported


def test_what_is_no_program():
    with pytest.raises(TypeError, match="args is a tuple, not array"):
        framejit.export(four, np.ones(3))
    with pytest.raises(TypeError, match="kwargs is a dict, not"):
        framejit.export(four, (np.ones(3),), [1])
    with pytest.raises(TypeError, match="framejit.export takes a function"):
        framejit.export(3, (np.ones(3),))
    with pytest.raises(GraphError, match="framejit.export: dynamic_shapes names 'y', and four is given x"):
        framejit.export(four, (np.ones(3),), dynamic_shapes={"y": {0: BATCH}})
    with pytest.raises(ValueError, match="framejit.export: axis 0 has 1 elements, which is outside of"):
        framejit.export(more_than_two, (np.ones((1, 3)),), dynamic_shapes={"x": {0: BATCH}})
    with pytest.raises(GraphError, match="framejit.export: .* computes no array"):
        framejit.export(lambda x: x, (np.ones(3),))
    with pytest.raises(framejit.GraphBreakError, match="FJ102 output is written here"):
        framejit.export(lambda x: print(x) or x * 2, (np.ones(3),))
    with pytest.raises(GraphError, match="the graph of f can't be a program: a view as f64 of an array of c128 is part of its result"):
        framejit.export(lambda x: (x * 2j).imag, (np.ones(3),))
    counted = type("Counted", (), {})()

    def counting(x):
        counted.calls = 1
        return x * 2

    with pytest.raises(GraphError, match="framejit.export: the graph of counting can't be a program: it changes an object"):
        framejit.export(counting, (np.ones(3),))


# ---- layouts


def test_views_need_the_layout_that_was_captured():
    program = framejit.export(lambda x: (x.T, x * 2), (np.ones((4, 3)),))
    x = np.arange(12.0).reshape(4, 3)
    view, _ = program(x)
    assert np.shares_memory(view, x) and np.array_equal(view, x.T)
    with pytest.raises(GraphError, match=r"returns a view of x, and was captured with its strides \(3, 1\), not \(1, 4\)"):
        program(np.asfortranarray(x))
    _, product = framejit.export(lambda x: (x.sum(), x * 2), (np.ones((4, 3)),))(np.asfortranarray(x))
    assert np.array_equal(product, x * 2) and product.strides == (np.asfortranarray(x) * 2).strides


# ---- torch


def test_arrays_of_the_other_library_and_of_other_devices():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    of_numpy = framejit.export(lambda x: x * 2, (np.ones(3, "f4"),))
    with pytest.raises(GraphError, match=r"x\n  expected  f32\[3\], an array of numpy\n  found     f32\[3\], an array of torch"):
        of_numpy(torch.ones(3))
    of_torch = framejit.export(lambda x: x * 2, (torch.ones(3),))
    with pytest.raises(GraphError, match=r"x\n  expected  f32\[3\], an array of torch\n  found     f32\[3\], an array of numpy"):
        of_torch(np.ones(3, "f4"))
    with pytest.raises(GraphError, match=r"x\n  expected  f32\[3\], on cpu\n  found     f32\[3\], on meta"):
        of_torch(torch.ones(3, device="meta"))
    with pytest.raises(GraphError, match="y is an array of another library than the other arrays|x is an array of another library"):
        framejit.export(lambda x, y: (x * 2, y * 2), (torch.ones(3), np.ones(3)))
