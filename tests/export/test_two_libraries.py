"""Programs of code that works with both libraries: results are arrays of the library that eager's are of, or there is no program."""
import numpy as np
import pytest

import framejit
from framejit import ExportedProgram, Graph, GraphError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")


def to_torch(x):
    y = torch.from_numpy(x) * 2
    return y, y[0], y.t(), x + 1


def to_numpy(x):
    y = x.numpy() * 2
    return y, y[0], y.T, y.sum(), x + 1


def makes_tensors(x):
    return torch.arange(3.0)


def makes_arrays(x):
    return np.arange(3.0), 1


def ways(tmp_path, f, *args):
    framejit.capture(f, *args).save(tmp_path / "f.graph")
    framejit.capture(f, *args, level="library").save(tmp_path / "f.library")
    program = framejit.export(f, args)
    program.save(tmp_path / "f.program")
    return [framejit.capture(f, *args, level="library"), Graph.load(tmp_path / "f.graph"), Graph.load(tmp_path / "f.library"), program,
            ExportedProgram.load(tmp_path / "f.program")]


def assert_equal(got, want):
    assert type(got) is type(want)
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            assert_equal(a, b)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("f, x", [(to_torch, np.arange(6.0).reshape(2, 3)), (to_numpy, torch.arange(6.0).reshape(2, 3)),
                                  (makes_tensors, torch.ones(2)), (makes_arrays, np.ones(2))])
def test_results_are_of_eager_s_library(tmp_path, f, x):
    for program in ways(tmp_path, f, x):
        assert_equal(program(x), f(x))


def test_a_graph_that_reads_nothing_makes_what_its_code_makes(tmp_path):
    for f, x in ((makes_tensors, np.ones(2)), (makes_arrays, torch.ones(2)), (lambda: torch.ones(2), None), (lambda: np.ones(2), None)):
        args = () if x is None else (x,)
        framejit.capture(f, *args).save(tmp_path / "f.graph")
        assert_equal(Graph.load(tmp_path / "f.graph")(*args), f(*args))


@pytest.mark.parametrize("f", [lambda x, y: torch.from_numpy(x) + y, lambda x, y: x + y.numpy(),
                               lambda x, y: torch.from_numpy(np.convolve(y.numpy(), y.numpy())) * 2])
def test_what_mixes_them_inside_is_no_program(f):
    args = np.ones(3), torch.ones(3, dtype=torch.float64)
    assert_equal(framejit.capture(f, *args)(*args), f(*args))
    for make in (lambda: framejit.export(f, args), lambda: framejit.capture(f, *args, level="library")):
        with pytest.raises(GraphError, match="another library than the other arrays|functions of both libraries"):
            make()
