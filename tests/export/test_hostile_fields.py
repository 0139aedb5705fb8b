"""Nothing that a file says becomes Python: of each field and each hostile value, a program is refused, or answers from its own arrays."""
import copy
import json
import zipfile

import numpy as np
import pytest

import framejit
from framejit import ExportedProgram, Graph, GraphError

pytest.importorskip("safetensors", reason="safetensors is not installed")

CODE = 'open("PWNED", "w").close()'
VALUES = ["", "\r", "\n", "\u2028", "\0", "__import__('os')", f"x\r    {CODE}\r#", f"x\n    {CODE}\n#", f"x): {CODE} #", f"1 if {CODE} else 1",
          "a.__class__", "x.__class__", "__class__", "__dict__", "ctypes", "_state", "_body", "len", "s99", "s0*" * 400 + "s0", "(" * 300 + "s0" + ")" * 300,
          "s0**9999999", "9" * 400, 2**63, 2**70, -2**70, -1, 0, 7, True, None, 1.5, float("nan"), float("inf"), [], {}, [[]], [["item", "x"]],
          {"tuple": [{"tuple": [[]]}]}, {"detached": {"constant": "abc"}}, {"detached": {"tuple": []}}, {"detached": {"argument": ["x"]}},
          {"autograd": "requires_grad", "answer": 1}, {"autograd": "__class__", "answer": True, "argument": ["x"]}, ["numpy", ["attribute", "ctypeslib"]], ["x", ["attribute", "__class__"], ["attribute", "__init__"]],
          ["x", ["item", 2**70]], {"argument": ["x", ["attribute", "tofile"]]}, {"output": 99}, {"view": {"output": 0}}]


def saved(folder):
    def f(x, n, parts, unread, *, scale=2.0):
        y = x * scale + parts["a"][0] * n * (unread.ndim if unread.flags.c_contiguous else 0)
        return y[1:], (y.T, {"rows": unread.shape[0], "kind": "sum"}), [parts["a"][0][::2], y.sum(), y.copy()]

    x = np.zeros((4, 3))
    path = folder / "f.program"
    sizes = {"x": {0: framejit.Dim("rows", min=2, max=8)}, "parts": {"a": [{0: framejit.Dim("rows", min=2, max=8)}]},
             "unread": {0: framejit.Dim("unread", min=2, max=8)}}
    framejit.export(f, (x, 3, {"a": (x,)}, np.zeros((5, 2))), {"scale": 2.0}, dynamic_shapes=sizes).save(path)
    return path


def fields(data, path=()):
    """The place of each part of the data."""
    if path:
        yield path
    if isinstance(data, (dict, list)):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from fields(data[key], (*path, key))


def written(path, parts, **changes):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**parts, **changes}.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def numbers(result):
    """Of all arrays of the result."""
    if isinstance(result, np.ndarray):
        yield from result.ravel()
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from numbers(part)
    elif isinstance(result, dict):
        yield from numbers(list(result.values()))


def answers(path, call):
    """Whether the file is a program, and answers."""
    try:
        result = call(ExportedProgram.load(path))
    except GraphError:
        return False
    assert set(numbers(result)) <= {0.0}
    return True


def call(program):
    x = np.zeros((4, 3))
    return program(x, 3, {"a": (x,)}, np.zeros((5, 2)), scale=2.0)


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(saved(tmp_path)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("share", range(4))
def test_fields_of_the_signature(share, parts, tmp_path):
    described = json.loads(parts["graph.json"])
    path = tmp_path / "hostile.program"
    written(path, parts)
    assert answers(path, call)
    for place in list(fields(described["signature"]))[share::4]:
        for value in VALUES:
            changed = copy.deepcopy(described)
            inside = changed["signature"]
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = value
            written(path, parts, **{"graph.json": json.dumps(changed)})
            answers(path, call)
            assert not (tmp_path / "PWNED").exists(), (place, value)


TEXT = """\
graph @NAME(%INPUT: f64[s0, 3], %g: f64[3]) where s0 >= 1 {
  %0 = broadcast %g {dims = [1]} : f64[s0, 3]  ; PLACE
  %1 = add %INPUT, %0 : f64[s0, 3]  ; f.py:8
  return %1
}
"""


@pytest.mark.parametrize("field", ["NAME", "INPUT", "PLACE", "s0, 3", "s0 >= 1", "[1]"])
def test_words_of_the_text(field, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in filter(None, [*map(str, VALUES), *(f"a{end}    {CODE}{end}    #b:1" for end in "\r\x0b\x0c\x1c\x85\u2028\u2029")]):
        text = TEXT.replace(field, value)
        for name in ("NAME", "INPUT", "PLACE"):
            text = text.replace(name, {"PLACE": "f.py:8"}.get(name, name.lower()))
        try:
            graph = Graph.parse(text)
            assert set(numbers(graph.run(np.ones((2, 3)), np.ones(3)))) <= {2.0}
            exec(graph.source("numpy"), {"numpy": np})
        except GraphError:
            pass
        assert not (tmp_path / "PWNED").exists(), value


def test_a_field_of_an_argument_is_its_own(tmp_path):
    class Layer:
        def __init__(self):
            self.weight, self._scale = np.full(3, 2.0), 3.0

        shared = np.full(3, 5.0)

        @property
        def computed(self):
            raise AssertionError("the class's own code has run")

    path = tmp_path / "f.program"
    framejit.export(lambda x, layer: x * layer.weight * layer._scale, (np.ones(3), Layer())).save(path)
    np.testing.assert_array_equal(ExportedProgram.load(path)(np.ones(3), Layer()), np.full(3, 6.0))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name in ("shared", "computed", "__init__", "missing"):
        written(path, parts, **{"graph.json": parts["graph.json"].replace(b'"weight"', json.dumps(name).encode())})
        with pytest.raises(GraphError, match="has no place|has no field"):
            ExportedProgram.load(path)(np.ones(3), Layer())


@pytest.mark.parametrize("name", ["len", "type", "isinstance", "GraphError", "numpy", "s0", "_x0", "_body", "_view", "_results", "captured"])
def test_a_parameter_has_any_name(name, tmp_path):
    made = {}
    exec(f"def f(x, {name}):\n    y = x * {name}\n    return y[1:], {name}[:, 0]", made)
    x, y = np.arange(6.0).reshape(3, 2), np.full((3, 2), 2.0)
    path = tmp_path / "f.program"
    framejit.export(made["f"], (x, y), dynamic_shapes={"x": {0: framejit.Dim("n", min=3)}, name: {0: framejit.Dim("n", min=3)}}).save(path)
    for program in (ExportedProgram.load(path), ExportedProgram.load(path).run):
        for ours, eager in zip(program(x, **{name: y}), made["f"](x, y), strict=True):
            np.testing.assert_array_equal(ours, eager)


@pytest.mark.parametrize("change", [{"offset": 1 << 34}, {"offset": -1}, {"shape": [100_000]}, {"strides": [-9]}, {"strides": ["s0*2"]},
                                    {"offset": "s0*3 - 2"}, {"shape": ["s0*s0"]}])
def test_views_of_other_memory(change, tmp_path):
    path = tmp_path / "f.program"
    framejit.export(lambda x: (x * 2)[1:, 0][:3], (np.ones((8, 3)),), dynamic_shapes={"x": {0: framejit.Dim("n", min=5)}}).save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(parts["graph.json"])
    assert list(described["signature"]["result"]) == ["view", "shape", "strides", "offset"]
    described["signature"]["result"].update(change)
    written(path, parts, **{"graph.json": json.dumps(described)})
    with pytest.raises(GraphError, match="view"):
        ExportedProgram.load(path)(np.ones((8, 3)))
