"""framejit.minify: from a function that is treated wrongly to a script of the operations at fault."""
import contextlib
import io
import os
import subprocess
import sys

import numpy as np
import pytest

import framejit


def tanh_as_sin(graph, example_inputs):
    copy = graph.copy()
    for node in copy.find(op="tanh"):
        node.op = "sin"
    return copy.run


def no_scans(graph, example_inputs):
    if graph.find(op="cumsum"):
        raise NotImplementedError("cumsum")
    return graph.run


@pytest.fixture(autouse=True)
def wrong():
    framejit.register_backend("wrong", tanh_as_sin)


def run_here(script):
    """What it prints; AssertionError if it fails."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(str(script), "problem.py", "exec"), {"__name__": "__main__"})
    return output.getvalue()


def ops(problem):
    return [node.op for node in problem.graph]


def long_chain(x, y):
    z = x
    for _ in range(10):
        z = z * y + 0.5
    z = np.tanh(z - z.mean(0)).T
    for _ in range(5):
        z = np.exp(-z * z)
    return z.sum(1), {"last": z, "other": np.sqrt(y)}


def test_of_many_operations_the_wrong_one_is_left_on_small_arrays():
    rng = np.random.default_rng(0)
    problem = framejit.minify(long_chain, (rng.random((20, 30)), rng.random((20, 30))), backend="wrong")
    assert ops(problem) == ["tanh"] and [x.shape for x in problem.args] == [(1, 1)]
    line = long_chain.__code__.co_firstlineno + 4
    assert problem.operations == f"tanh (test_minify.py:{line})" and "eager gives 0.76" in problem.failure
    assert str(problem) == problem.script and "numpy.ones((1, 1)" in problem.script
    with pytest.raises(AssertionError, match="tanh"):
        run_here(problem)
    mended = problem.script.replace("backend='wrong'", "backend='eager'")
    assert "agree" in run_here(mended)


def test_arguments_and_numbers_are_as_the_caller_left_them():
    def scaled(x, *, factor):
        x += np.tanh(x) * factor

    x = np.array([1.0, 2.0])
    problem = framejit.minify(scaled, (x,), {"factor": 3}, backend="wrong")
    assert ops(problem) == ["tanh"] and x.tolist() == [1.0, 2.0]


def test_a_compiled_function_brings_its_options():
    problem = framejit.minify(framejit.compile(lambda x: np.tanh(x * 2) - 1, backend="wrong"), (np.ones(3),))
    assert ops(problem) == ["tanh"] and "backend=tanh_as_sin" in problem.script


def test_of_a_function_in_pieces_the_piece_that_fails_is_taken():
    def pieces(x):
        y = np.sqrt(x) + 1
        if y.sum() > 3:
            y = y * 2
        print(end="")
        return np.cumsum(np.log(y), 0) * 2

    problem = framejit.minify(pieces, (np.random.default_rng(0).random((5, 6)),), backend=no_scans)
    assert ops(problem) == ["cumsum"] and "raises BackendError" in problem.failure
    with pytest.raises(framejit.BackendError) as caught:
        run_here(problem)
    assert "cumsum" in caught.value.__notes__[0]


def test_a_wrong_pass_is_found_and_sizes_may_be_symbols():
    def exp_as_exp2(graph):
        for node in graph.find(op="exp"):
            node.op = "exp2"
        return graph

    for dynamic in (None, True):
        problem = framejit.minify(lambda x: (np.exp(x.T - 1) * 2)[1:].sum(), (np.random.default_rng(0).random((8, 9)),),
                                  passes=[exp_as_exp2], dynamic=dynamic)
        assert ops(problem) == ["exp"] and problem.args[0].size == 1 and "def exp_as_exp2(graph)" in problem.script
        with pytest.raises(AssertionError, match="exp"):
            run_here(problem)


def test_what_needs_two_operations_keeps_both():
    def products(graph, example_inputs):
        wrong_one = any(node.op == "add" and node.operands[0].op == "mul" for node in graph)
        return lambda *arrays: [x * 2 if wrong_one else x for x in graph.run(*arrays)]

    x = np.random.default_rng(0).random((4, 4))
    problem = framejit.minify(lambda x: np.exp(np.sqrt(x) * x + np.tanh(x)), (x,), backend=products)
    assert ops(problem) == ["mul", "add"]


def test_a_test_of_ones_own_decides_and_is_in_the_script():
    def logs(x):
        y = np.exp(x) - 5
        return np.log(y) * 2 + x

    with np.errstate(all="ignore"):
        problem = framejit.minify(logs, (np.random.default_rng(0).random((50, 6)),), fails=has_nan)
        assert ops(problem) == ["log"] and "from test_minify import has_nan" in problem.script
        with pytest.raises(SystemExit, match="has_nan"):
            run_here(problem)


def has_nan(function, args):
    result = framejit.compile(function)(*args)
    return bool(np.isnan(result[0] if isinstance(result, list) else result).any())


def test_where_nothing_fails_the_error_says_so():
    with pytest.raises(framejit.Error, match="compiled and eager agree on these arguments of .*long_chain"):
        framejit.minify(long_chain, (np.ones((3, 3)), np.ones((3, 3))))
    with pytest.raises(ZeroDivisionError):
        framejit.minify(lambda x: x * (1 // 0), (np.ones(3),))
    with pytest.raises(framejit.GraphBreakError):
        framejit.minify(lambda x: x + 1 if x.sum() > 0 else x, (np.ones(3),), fullgraph=True)


FAULTY = """
import framejit

def wrong_ints(graph, example_inputs):
    def run(*arrays):
        large = any(x.size >= 100 and x.dtype.kind == "i" and x.ravel()[77] == 5 for x in arrays)
        return [x + 1 if large and x.ndim and WRONG else x for x in graph.run(*arrays)]
    return run
"""


def test_the_script_and_its_arrays_are_files_and_its_status_says_whether_it_fails(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "faulty_for_minify.py"
    module.write_text(FAULTY + "\nWRONG = True\n")
    import faulty_for_minify

    try:
        x = np.where(np.arange(100) == 77, 5, np.arange(100) * 3).reshape(10, 10)
        problem = framejit.minify(lambda x: np.abs(x * 2 - x).T.cumsum(0), (x,), backend=faulty_for_minify.wrong_ints,
                                  path=tmp_path / "problem.py")
    finally:
        del sys.modules["faulty_for_minify"]
    assert (tmp_path / "problem.py").read_text() == problem.script
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["faulty_for_minify.py", "problem.npz", "problem.py"]
    assert len(problem.arrays) == 1

    def run():
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, str(tmp_path / "problem.py")], env=environment, capture_output=True, text=True)

    done = run()
    assert done.returncode == 1 and "mul" in done.stderr and "compiled and eager differ" in done.stderr, done.stderr
    module.write_text(FAULTY + "\nWRONG = 0\n")
    done = run()
    assert done.returncode == 0 and "compiled and eager agree" in done.stdout, done.stderr


def test_torch_modules_and_library_calls():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)  # of some weights two rows are left
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
    problem = framejit.minify(net, (torch.randn(4, 8),), backend="wrong")
    assert ops(problem) == ["tanh"] and "torch.ones((1, 1), dtype=torch.float32)" in problem.script
    with pytest.raises(AssertionError, match="tanh"):
        run_here(problem)

    def wrong_sorts(graph, example_inputs):
        sorts = any("sort" in node.attrs.get("callee", "") for node in graph)
        return lambda *arrays: [x + 1 if sorts else x for x in graph.run(*arrays)]

    def sorted_halves(x):
        return torch.sort(torch.exp(x).bfloat16() * 2).values.float() + 1

    problem = framejit.minify(sorted_halves, (torch.rand(4, 3),), backend=wrong_sorts)
    assert problem.operations.startswith("torch.sort")
    trained = torch.rand(3, requires_grad=True)
    assert ops(framejit.minify(net[1], (trained,), backend="wrong")) == ["tanh"]
