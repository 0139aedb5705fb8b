"""Files of programs: each that is damaged, hostile, or something else is one clear error."""
import io
import json
import random
import zipfile

import numpy as np
import pytest

import framejit
from framejit import Dim, ExportedProgram, Graph, GraphError

pytest.importorskip("safetensors", reason="safetensors is not installed")


def saved(folder):
    weight = np.random.default_rng(0).standard_normal((2, 3))
    path = folder / "f.program"
    sizes = {"x": {0: Dim("rows", min=1, max=8)}}
    framejit.export(lambda x, n: np.maximum(x @ weight, 1) * n, (np.ones((4, 2)), 3), dynamic_shapes=sizes).save(path)
    return path


def with_parts(path, change):
    """The archive after `change(parts)`."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def described(change):
    """The file's description after `change(signature)`."""
    def changed(parts):
        found = json.loads(parts["graph.json"])
        change(found["signature"])
        parts["graph.json"] = json.dumps(found).encode()
    return changed


def program(**changes):
    return described(lambda signature: signature["program"].update(changes))


def argument(**changes):
    return described(lambda signature: signature["program"]["arguments"][0].update(changes))


def newer(parts):
    parts["graph.json"] = parts["graph.json"].replace(b'"format": 1', b'"format": 2')


@pytest.mark.parametrize("change, text", [
    (newer, "has the format 2, and this framejit reads 1: a newer framejit has written it"),
    (described(lambda signature: signature.pop("program")), "holds a graph, and no program: read it by framejit.Graph.load"),
    (described(lambda signature: signature.update(program=[])), "is damaged: its signature"),
    (program(arguments={}), "the program's arguments are none"),
    (program(ranges=[]), "the program's arguments are none"),
    (program(ranges={"rows": [8, 1]}), "the program's arguments are none"),
    (program(ranges={"rows": [1, "8); print(1"]}), "the program's arguments are none"),
    (program(ranges={}), "a size of the program is none"),
    (argument(shape=["rows", -1]), "a size of the program is none"),
    (argument(shape=[True, 2]), "a size of the program is none"),
    (argument(shape=[[], 2]), "a size of the program is none"),
    (argument(type="f65"), "the program's arguments are none"),
    (argument(type=[]), "is damaged"),
    (argument(device="cpu'; print(1)"), "the program's arguments are none"),
    (argument(argument=["x", ["call", "y"]]), "an argument of the signature has no place"),
    (argument(argument=["print(1)"]), "an argument of the signature has no name"),
    (argument(argument=[]), "an argument of the signature has no name"),
    (described(lambda signature: signature["parameters"][0].update(kind="ANY")), "a parameter of the signature is none"),
    (lambda parts: parts.update({"../outside": b"x"}), "is no graph of framejit's: it holds"),
    (lambda parts: parts.pop("graph.txt"), "is no graph of framejit's: it holds"),
    (lambda parts: parts.update({"arrays.safetensors": b"\xff" * 8 + b"{}"}), "is damaged: arrays.safetensors"),
])
def test_parts_that_are_others(change, text, tmp_path):
    path = saved(tmp_path)
    with_parts(path, change)
    with pytest.raises(GraphError, match=text):
        ExportedProgram.load(path)


def test_a_program_is_a_graph_too(tmp_path):
    path = saved(tmp_path)
    x = np.random.randn(5, 2)
    np.testing.assert_array_equal(Graph.load(path)(x, 3), ExportedProgram.load(path)(x, 3))
    framejit.capture(lambda x: x * 2, x).save(path)
    with pytest.raises(GraphError, match="holds a graph, and no program"):
        ExportedProgram.load(path)


def test_bombs(tmp_path):
    path = tmp_path / "f.program"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.txt", b" " * (1 << 26))
        archive.writestr("graph.json", b"{}")
        archive.writestr("arrays.safetensors", b"")
    with pytest.raises(GraphError, match="longer than the file"):
        ExportedProgram.load(path)


def test_paths(tmp_path):
    with pytest.raises(GraphError, match="missing.program can't be read: No such file or directory"):
        ExportedProgram.load(tmp_path / "missing.program")
    with pytest.raises(GraphError, match="can't be written: Is a directory"):
        framejit.export(lambda x: x * 2, (np.ones(3),)).save(tmp_path)


def mutated(content, kind, generator):
    data = bytearray(content)
    if kind == 0:
        del data[generator.randrange(len(data)):]
    elif kind == 1:
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    else:  # past the archive's own sums
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {name: bytearray(archive.read(name)) for name in archive.namelist()}
        part = parts["graph.json" if kind == 2 else generator.choice(list(parts))]
        for _ in range(generator.randrange(1, 4)):
            part[generator.randrange(len(part))] = generator.choice(b"0123456789abcxyz[](){}\"%,.:- \xff\x00")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, changed in parts.items():
                archive.writestr(name, bytes(changed))
        data = buffer.getvalue()
    return data


def test_mutations(tmp_path):
    """Of 200, each file is refused, or holds a program that answers or refuses a call."""
    path = saved(tmp_path)
    content, generator, x = path.read_bytes(), random.Random(0), np.random.default_rng(1).standard_normal((4, 2))
    refused = 0
    for number in range(200):
        path.write_bytes(mutated(content, number % 4, generator))
        try:
            found = ExportedProgram.load(path)
        except GraphError:
            refused += 1
            continue
        str(found)
        try:
            found(x, 3)
        except GraphError:
            pass
    assert 120 < refused < 200
