"""An exported program gives what its function gives, in this process and in one that has only the file."""
import pickle
import subprocess
import sys

import numpy as np
import pytest

import framejit
from framejit import ExportedProgram
from harness import assert_same, both_libraries, torch
from program_cases import FUNCTIONS, bert, modules

pytest.importorskip("safetensors", reason="safetensors is not installed")

IN_ANOTHER_PROCESS = """
import pickle, sys
import framejit
for path in sys.argv[1:]:
    program = framejit.ExportedProgram.load(path)
    with open(path + ".calls", "rb") as file:
        calls = pickle.load(file)
    with open(path + ".found", "wb") as file:
        pickle.dump([program(*args, **kwargs) for args, kwargs in calls], file)
"""


def flat(value):
    if isinstance(value, dict):
        return [x for key in value for x in [key, *flat(value[key])]]
    if isinstance(value, (tuple, list)):
        return [type(value), *(x for part in value for x in flat(part))]
    return [value.detach().numpy() if hasattr(value, "detach") else value]


def same(found, expected, tolerance):
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        if isinstance(theirs, (np.ndarray, np.generic)):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        else:
            assert ours == theirs and type(ours) is type(theirs)


def in_all_ways(name, case, folder, tolerance):
    """Two sizes, and the largest and smallest: in this process, loaded, and in another process."""
    function, arguments, sizes = case
    args, kwargs = arguments(3)
    program = framejit.export(function, args, kwargs, dynamic_shapes=sizes)
    path = str(folder / f"{name}.program")
    program.save(path)
    loaded = ExportedProgram.load(path)
    assert str(loaded) == str(program)
    calls = [arguments(n) for n in (3, 7, 2)]
    for args, kwargs in calls:
        expected = function(*args, **kwargs)
        same(program(*args, **kwargs), framejit.compile(function)(*args, **kwargs), tolerance / 10)
        for run in (program, loaded, program.run):
            same(run(*args, **kwargs), expected, tolerance)
    with open(path + ".calls", "wb") as file:
        pickle.dump(calls, file)
    done = subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, path], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    with open(path + ".found", "rb") as file:
        for found, (args, kwargs) in zip(pickle.load(file), calls, strict=True):
            same(found, function(*args, **kwargs), tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numpy(name, tmp_path):
    in_all_ways(name, FUNCTIONS[name], tmp_path, 1e-13)


@pytest.mark.parametrize("name", ["mlp", "convolutions", "encoder", "lstm", "words"])
def test_modules_of_torch(name, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with torch.no_grad():
        in_all_ways(name, modules()[name], tmp_path, 5e-6)


def test_a_model_of_transformers(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    with torch.no_grad():
        in_all_ways("bert", bert(), tmp_path, 5e-6)


def test_functions_that_are_compiled_already():
    compiled = framejit.compile(lambda x, y: np.tanh(x) + y)
    program = framejit.export(compiled, (np.ones(3),), {"y": 2.0})
    np.testing.assert_array_equal(program(np.zeros(3), y=2.0), np.full(3, 2.0))
    assert str(program.signature) == "f(x: f64[3], y == 2.0) -> f64[3]"


def test_the_whole_range_is_one_graph():
    program = framejit.export(FUNCTIONS["softmax"][0], (np.ones((4, 5)),), dynamic_shapes={"x": {0: framejit.Dim("rows", min=1, max=9)}})
    for n in range(1, 10):
        x = np.random.default_rng(n).standard_normal((n, 5))
        np.testing.assert_allclose(program(x), FUNCTIONS["softmax"][0](x), rtol=1e-13)
    report = framejit.explain(program.graph.compile())(x)
    assert len(report.graphs) == 1 and report.breaks == []  # the tests of arguments are guards


def test_what_a_program_tells():
    function, arguments, sizes = FUNCTIONS["several"]
    args, kwargs = arguments(3)
    program = framejit.export(function, args, kwargs, dynamic_shapes=sizes)
    assert program.ranges == {"rows": (2, 64)} and program.state == {}
    assert {place: str(type) for place, type in program.signature.parameters.items()} == {"x": "f64[rows, 3]"}
    assert program.signature.values == {"n": 3}
    assert str(program.signature) == ("several(x: f64[rows, 3], n == 3) -> "
                                      "{'scaled': f64[rows, 3], 'rows': 'rows', 'both': (f64[3], [f64[]])}, rows from 2 to 64")
    assert str(program).startswith(f"program {program.signature}\ngraph @several(")
    method = framejit.export(*[part if i == 0 else part(3)[0] for i, part in enumerate(FUNCTIONS["method"][:2])])
    assert sorted(method.state) == ["mean", "spread"]
    assert "2 arrays of state, 6 numbers" in str(method)
    with pytest.raises(TypeError, match="is not pickled: save and ExportedProgram.load"):
        pickle.dumps(program)


@pytest.mark.parametrize("function", [
    lambda x: np.linalg.norm(x) * x, lambda x: x - np.median(x), lambda x: x + 1j, lambda x: np.linalg.lstsq(x, x, rcond=None)[0], np.trace,
    lambda x: np.average(x, weights=x + 9), lambda x: x.max(initial=7.0),
], ids=["norm", "median", "complex", "lstsq", "trace", "average", "initial"])
def test_functions_of_numpy_that_return_numbers(function, tmp_path):
    x = np.diag([2.0, 3.0, 4.0]) + 0.5
    program = framejit.export(function, (x,))
    program.save(tmp_path / "program")
    for run in (program, program.run, ExportedProgram.load(tmp_path / "program")):
        same(run(x), function(x), 1e-12)


@pytest.mark.parametrize("function", [lambda x: np.bincount((x > 0).astype(int), minlength=2), lambda x: np.linalg.det(x[:3] * np.eye(3))])
def test_a_call_without_a_text_is_refused(function):
    with pytest.raises(framejit.GraphError, match=r"can't be a program: .*\.py:\d+.* on objects that have no text"):
        framejit.export(function, (np.arange(-3.0, 3),))


@both_libraries
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_a_view_shows_a_result_as_it_lay_while_tracing(lib, dynamic, copied, tmp_path):
    def f(x):
        turned = x.T
        if copied:
            turned = np.ascontiguousarray(turned) if lib.name == "numpy" else turned.contiguous()
        y = turned + 1  # the library lays it as it lays the operand, which the graph's code makes without a copy
        return y, y[1:]

    x = lib.sample((4, 3))
    sizes = {"x": {0: framejit.Dim("n", min=2), 1: framejit.Dim("m", min=2)}} if dynamic else None
    framejit.export(f, (x,), dynamic_shapes=sizes).save(tmp_path / "f.program")
    program = framejit.ExportedProgram.load(tmp_path / "f.program")
    for call in (program, program.run):
        for ours, eager in zip(call(x), f(x), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(eager))
            assert np.asarray(ours).strides == np.asarray(eager).strides


LAID = {
    "contiguous": lambda x: np.ascontiguousarray(x.T + 1) if isinstance(x, np.ndarray) else (x.t() + 1).contiguous(),
    "a copy": lambda x: (x.T + 1).copy() if isinstance(x, np.ndarray) else (x.t() + 1).clone(memory_format=torch.contiguous_format),
    "turned": lambda x: x.T * 2, "a copy by columns": lambda x: x.copy(order="F") if isinstance(x, np.ndarray) else x.t().contiguous().t(),
    "four axes": lambda x: x.reshape(2, 2, 3, 1).transpose(0, 2, 1, 3).copy() * 1 if isinstance(x, np.ndarray) else x.reshape(2, 2, 3, 1).permute(0, 2, 1, 3).contiguous() * 1,
}


@both_libraries
@pytest.mark.parametrize("function", LAID.values(), ids=LAID)
def test_results_lie_as_eagers(lib, function, tmp_path):
    x = lib.sample((4, 3))
    program = framejit.export(function, (x,))
    program.save(tmp_path / "program")
    loaded = ExportedProgram.load(tmp_path / "program")
    for run in (program, program.run, loaded, loaded.run):
        assert_same(run(x), function(x))


APART = {
    "a copy": lambda copy, x: copy(x), "itself and a copy": lambda copy, x: (x, copy(x)), "a result and its copy": lambda copy, x: (lambda y: (y, copy(y)))(x + 1),
    "a result twice": lambda copy, x: (lambda y: (y, y))(x + 1), "a part and its copy": lambda copy, x: (lambda y: (y[1:], copy(y[1:])))(x + 1),
    "a copy of a part": lambda copy, x: (x * 2, copy(x[1:])),
}


@both_libraries
@pytest.mark.parametrize("function", APART.values(), ids=APART)
def test_results_have_memory_of_their_own_where_eagers_have(lib, function, tmp_path):
    def copy(x):
        return x.copy() if isinstance(x, np.ndarray) else x.clone()

    def f(x):
        return function(copy, x)

    x = lib.sample((4, 3))
    program = framejit.export(f, (x,))
    program.save(tmp_path / "program")
    loaded = ExportedProgram.load(tmp_path / "program")
    for run in (program, program.run, loaded, loaded.run):
        for call in (f, run):
            given = lib.sample((4, 3))
            results = call(given)
            results = results if isinstance(results, tuple) else (results,)
            for n, result in enumerate(results):
                result += 10 ** n
            told = [np.asarray(array).tolist() for array in (*results, given)]
            if call is f:
                expected = told
        assert told == expected


@both_libraries
def test_arguments_that_are_exchanged(lib):
    def f(x, y):
        kept = x.copy() if lib.name == "numpy" else x.clone()
        x[:] = y
        y[:] = kept
        return x.sum()

    program = framejit.export(f, (lib.sample((3,)), lib.sample((3,))))
    for run in (f, program, program.run):
        x, y = lib.array(np.arange(3.0)), lib.array(np.arange(3.0) + 10)
        x, y = (x, y) if lib.name == "numpy" else (x.float(), y.float())
        if lib.name == "numpy":
            x, y = x.astype(np.float32), y.astype(np.float32)
        run(x, y)
        assert x.tolist() == [10, 11, 12] and y.tolist() == [0, 1, 2]


@both_libraries
def test_a_graph_without_inputs_is_of_the_library_of_the_arguments(lib, tmp_path):
    def f(x):
        return (np if lib.name == "numpy" else torch).ones(3) * 2

    program = framejit.export(f, (lib.sample((2,)),))
    program.save(tmp_path / "f")
    for run in (program, ExportedProgram.load(tmp_path / "f")):
        assert type(run(lib.sample((2,)))) is type(f(None))
