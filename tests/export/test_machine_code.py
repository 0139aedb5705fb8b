"""Files that have machine code: a process runs it without tracing, and gives what the compiled program gives."""
import json
import logging
import pickle
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import program_cases
import pytest

import framejit
from framejit import Dim, ExportedProgram, GraphError, _core
from framejit._export import machine_code
from test_exported_files import with_parts
from test_exported_values import same

pytest.importorskip("safetensors", reason="safetensors is not installed")
LEVELS = _core.processor_levels()
ROWS = Dim("rows", min=1, max=64)

IN_ANOTHER_PROCESS = """
import pickle, sys
import framejit
program = framejit.ExportedProgram.load(sys.argv[1], run_code=True)
with open(sys.argv[1] + ".calls", "rb") as file:
    calls = pickle.load(file)
if "torch" in sys.modules:
    sys.modules["torch"].set_grad_enabled(False)
found = [program(*args, **kwargs) for args, kwargs in calls]
with open(sys.argv[1] + ".found", "wb") as file:
    counts = framejit._core.cache_info()
    pickle.dump((found, {name: counts[name] for name in ("segments", "graphs", "kernels_compiled", "kernels_loaded")}), file)
"""


def strides(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in strides(part)]
    return [value.stride() if callable(getattr(value, "stride", None)) else getattr(value, "strides", None)]


@pytest.mark.parametrize("name", [*program_cases.FUNCTIONS, "mlp", "convolutions", "encoder", "lstm", "grouped", "words", "bert"])
def test_nothing_is_traced_in_another_process(name, tmp_path):
    if name in program_cases.FUNCTIONS:
        function, arguments, sizes = program_cases.FUNCTIONS[name]
    else:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        torch.manual_seed(1)
        if name == "bert":
            pytest.importorskip("transformers", reason="transformers is not installed")
        function, arguments, sizes = program_cases.bert() if name == "bert" else program_cases.modules()[name]
    args, kwargs = arguments(3)
    program = framejit.export(function, args, kwargs, dynamic_shapes=sizes)
    path = str(tmp_path / "f.program")
    program.save(path, cpu=LEVELS)
    calls = [arguments(n) for n in (3, 7, 2)]
    (tmp_path / "f.program.calls").write_bytes(pickle.dumps(calls))
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, path], check=True)
    results, counts = pickle.loads((tmp_path / "f.program.found").read_bytes())
    loaded = ExportedProgram.load(path, run_code=True)
    for (args, kwargs), found in zip(calls, results):
        expected = function(*args, **kwargs)
        same(found, expected, 2e-5)
        assert strides(found) == strides(expected)
        same(loaded(*args, **kwargs), expected, 2e-5)  # of modules: compiled, since a derivative may be wanted
    assert not any(counts.values()), counts


@pytest.fixture
def path(tmp_path):
    program = framejit.export(lambda x, i: np.log(x)[i] * 2, (np.ones(4), np.arange(3)), dynamic_shapes=[{0: ROWS}, None])
    program.save(tmp_path / "f.program", cpu="native")
    return tmp_path / "f.program"


def runs_code(program, *args):
    try:
        program._code(*args)
    except machine_code.Unfit:
        return False
    return True


def test_code_is_run_where_it_is_asked_for(path):
    assert ExportedProgram.load(path)._code is None
    program = ExportedProgram.load(path, run_code=True)
    x, i = np.arange(1.0, 9), np.array([7, 0, 1])
    assert runs_code(program, x, i) and runs_code(program, x[::-1], i)
    np.testing.assert_array_equal(program(x[::-1], i), np.log(x[::-1])[i] * 2)
    with pytest.raises(GraphError, match="the program of f was given another argument: x\n  expected  f64"):
        program(x.astype("f4"), i)
    assert str(program) == str(ExportedProgram.load(path))
    assert runs_code(program, x, i)
    [node] = program.graph.find(op="mul")
    node.replace_uses(program.graph.add("neg", node, after=node))
    np.testing.assert_array_equal(program(x, i), -np.log(x)[i] * 2)  # the graph was edited


def test_what_code_can_not_say_is_compiled(path):
    program = ExportedProgram.load(path, run_code=True)
    x, i = np.arange(0.0, 8), np.array([7, 0, 1])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert program(x, i)[1] == -np.inf
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        program(x, i)
    with np.errstate(divide="ignore"), warnings.catch_warnings(action="error"):
        assert runs_code(program, x, i) and program(x, i)[1] == -np.inf
    with pytest.raises(IndexError):
        program(x + 1, np.array([8, 0, 1]))


def test_derivatives_are_compiled(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    net = torch.nn.Linear(3, 2)
    framejit.export(net, (torch.randn(4, 3),), dynamic_shapes=[{0: ROWS}]).save(tmp_path / "f.program", cpu="native")
    program = ExportedProgram.load(tmp_path / "f.program", run_code=True)
    x = torch.randn(5, 3)
    assert not runs_code(program, x)
    program(x).sum().backward()
    net(x).sum().backward()
    torch.testing.assert_close(program.state["weight"].grad, net.weight.grad)
    with torch.no_grad():
        assert runs_code(program, x)
        program.state["weight"].mul_(2)
        net.weight.mul_(2)
        torch.testing.assert_close(program(x.T.contiguous().T), net(x))


def test_parameters_that_were_cast(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    framejit.export(torch.nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes=[{0: ROWS}]).save(tmp_path / "f.program", cpu="native")
    program = ExportedProgram.load(tmp_path / "f.program", run_code=True)
    x = torch.randn(5, 3)
    with torch.no_grad():
        assert runs_code(program, x)
        program.module().half()
        assert not runs_code(program, x)
        with pytest.raises(GraphError, match="takes f32.* not torch.float16"):
            program(x)


def test_what_watches_a_call(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watched(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    net = torch.nn.Linear(3, 2).requires_grad_(False)
    framejit.export(net, (torch.randn(4, 3),), dynamic_shapes=[{0: ROWS}]).save(tmp_path / "f.program", cpu="native")
    program, x = ExportedProgram.load(tmp_path / "f.program", run_code=True), torch.randn(5, 3)
    expected = net(x)
    assert runs_code(program, x)
    for context in (torch.autocast("cpu", torch.bfloat16), Watched(), Dispatched()):
        with context:
            assert not runs_code(program, x)
    torch.testing.assert_close(torch.func.grad(lambda x: program(x).sum())(x), net.weight.sum(0).expand(5, 3))
    torch.set_default_device("meta")  # which is a mode of functions
    try:
        torch.testing.assert_close(program(x), expected)
    finally:
        torch.set_default_device(None)
    assert runs_code(program, x)


def test_written_arguments(tmp_path):
    def step(x, y):
        x += y
        return x * 2, y.T

    framejit.export(step, (np.ones((2, 3)), np.ones((2, 3))), dynamic_shapes=[{0: ROWS}, {0: ROWS}]).save(tmp_path / "f", cpu="native")
    program = ExportedProgram.load(tmp_path / "f", run_code=True)
    x, y = np.arange(12.0).reshape(4, 3), np.ones((4, 3))
    assert runs_code(program, x, y)
    doubled, shown = program(x, y)
    np.testing.assert_array_equal(x, np.arange(12.0).reshape(4, 3) + 2)
    np.testing.assert_array_equal(doubled, x * 2)
    assert np.shares_memory(shown, y) and shown.strides == y.T.strides


def test_two_programs_in_one_process(tmp_path):
    for name, function in (("a", lambda x: x + 1), ("b", lambda x: x * 3)):
        framejit.export(function, (np.ones(4),)).save(tmp_path / name, cpu="native")
    a, b = (ExportedProgram.load(tmp_path / name, run_code=True) for name in "ab")
    x = np.arange(4.0)
    assert runs_code(a, x) and runs_code(b, x)
    assert (a(x).tolist(), b(x).tolist(), a(x).tolist()) == ([1, 2, 3, 4], [0, 3, 6, 9], [1, 2, 3, 4])


def test_no_rows_and_one_row(tmp_path):
    program = framejit.export(lambda x: np.exp(x).sum(1), (np.ones((4, 3)),), dynamic_shapes=[{0: Dim("rows", min=0, max=64)}])
    program.save(tmp_path / "f", cpu="native")
    loaded = ExportedProgram.load(tmp_path / "f", run_code=True)
    for rows in (0, 1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 3))
        assert runs_code(loaded, x)
        np.testing.assert_allclose(loaded(x), np.exp(x).sum(1), rtol=1e-14)
        assert loaded(x).strides == np.exp(x).sum(1).strides


def changed(part, before, after):
    def change(parts):
        assert before in parts[part]
        parts[part] = parts[part].replace(before, after, 1)
    return change


def of_code(**changes):
    def change(parts):
        found = json.loads(parts["graph.json"])
        found["code"].update(changes)
        parts["graph.json"] = json.dumps(found).encode()
    return change


@pytest.mark.parametrize("change, text", [
    (changed("code.so", b"ELF", b"ELG"), "its machine code is not that of its graph"),
    (changed("graph.txt", b"log", b"exp"), "its machine code is not that of its graph"),
    (changed("graph.json", b"64", b"65"), "its machine code is not that of its graph"),
    (of_code(sha256=7), "its machine code is not that of its graph"),
    (of_code(cpu=3), "its description of machine code is incomplete"),
    (lambda parts: parts.update({"more.so": b""}), "is no graph of framejit's: it holds"),
])
def test_code_that_is_another(path, change, text):
    with_parts(path, change)
    with pytest.raises(GraphError, match=text):
        ExportedProgram.load(path, run_code=True)


@pytest.mark.parametrize("change, text", [
    (of_code(framejit="0.0.1"), r"it was made by framejit 0.0.1, and this is "),
    (of_code(cpu=["x86-64-v9"]), "it is for x86-64-v9, and this processor is another one"),
    (lambda parts: parts.pop("code.so"), "it was saved without machine code"),
])
def test_code_that_can_not_be_run_here(path, change, text, caplog):
    with_parts(path, change)
    with caplog.at_level(logging.INFO, "framejit.fallbacks"):
        program = ExportedProgram.load(path, run_code=True)
    assert program._code is None
    x, i = np.arange(1.0, 5), np.array([3, 0, 1])
    np.testing.assert_array_equal(program(x, i), np.log(x)[i] * 2)
    assert [record for record in caplog.records if text in record.getMessage()]


def test_graphs_are_read_without_their_code(path):
    assert len(framejit.Graph.load(path)) == len(ExportedProgram.load(path).graph)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["graph.txt", "graph.json", "arrays.safetensors", "code.so"]


def test_what_has_no_code(tmp_path):
    program = framejit.export(lambda x: np.linalg.inv(x) * 2, (np.eye(3),))
    with pytest.raises(GraphError, match=r"inv.* \(test_machine_code.py:\d+\) is a function of the array library"):
        program.save(tmp_path / "f", cpu="native")
    with pytest.raises(ValueError, match="no processor is called 'z80'"):
        program.save(tmp_path / "f", cpu="z80")
    assert list(tmp_path.iterdir()) == []
