"""Graphs in files: a zip, without compression, of `graph.txt` (the text), `graph.json` (what follows) and `arrays.safetensors` (parameters
and other arrays that are no arguments); of an exported program perhaps `code.so`, machine code (framejit/_export/machine_code.py).

`graph.json` is {"format": 1, "library": "numpy" or "torch", "signature": {...} or null, "state": [...]}. signature: see signature.py.
state: for each input that is no argument {"input": its number, "array": its name in arrays.safetensors, "gradient": bool}. Nothing in a
file is run when it is read, and no more memory is taken than the file has bytes, a few times over.
"""
import io
import json
import math
import os
import struct
import zipfile
import zlib

from framejit import _core
from framejit._errors import GraphError
from framejit._graph import signature as signatures
from framejit._graph.calls import is_text, refuse_without_text
from framejit._graph.core import check_call, from_core
from framejit._graph.dtypes import graph_name
from framejit._graph.face import face_of
from framejit._graph.library import stopped, write_stops
from framejit._graph.nodes import ArrayType
from framejit._support.files import write_whole

FORMAT = 1
_ARRAYS = "arrays.safetensors"
_NAMES = ["graph.txt", "graph.json", _ARRAYS]
_LOCAL_HEADER = 30  # bytes before a zip entry's name
_CODE = "code.so"
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
           "I8": "int8", "U8": "uint8"}  # of safetensors; the package reads others
_DEEPEST = 60  # JSON values in one another


def _safetensors(library):
    try:
        if library == "torch":
            import safetensors.torch as found
        else:
            import safetensors.numpy as found
    except ImportError as error:
        raise GraphError(f"graphs with arrays are saved by the package safetensors: pip install safetensors ({error})") from None
    return found


def save(graph, path, cpu=None):
    """cpu: with machine code for these processors, of a graph that has a signature."""
    core = graph._as_core()
    refuse_without_text(graph, f"{graph._title()} can't be saved")
    text = core.text
    if stopped(graph):
        written = graph.copy()
        write_stops(written, stopped(written))
        text = written._as_core().text
    library, signature, state = graph._library(), None, {}
    if graph._capture is not None:
        signature, state = signatures.of(graph._capture, graph), signatures.state_of(graph._capture)
    elif graph._saved is not None:
        library, signature, state = graph._saved.library, graph._saved.signature, graph._saved.state
    if signature is not None:
        try:
            signatures.check_results(graph)
            face_of(signature, core, library, None, None)
        except GraphError as error:
            raise GraphError(f"{graph._title()} can't be saved: {error}") from None
    entries, arrays = [], {}
    for number, array in state.items():
        name = f"{number}.{graph.inputs[number].name}"
        arrays[name] = _plain(array, library)
        entries.append({"input": number, "array": name, "gradient": bool(getattr(array, "requires_grad", False))})
    described = {"format": FORMAT, "library": library, "signature": signature, "state": entries}
    contents = {"graph.txt": text.encode()}
    if cpu is not None:
        from framejit._export import machine_code

        contents[_CODE] = machine_code.code_of(graph, graph._saved, cpu)
        described["code"] = machine_code.described(text, signature, contents[_CODE], cpu)
    try:
        contents["graph.json"] = json.dumps(described, indent=1).encode()
    except (TypeError, ValueError) as error:
        raise GraphError(f"{graph._title()} can't be saved: {error}") from None
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        contents[_ARRAYS] = _safetensors(library).save(arrays) if arrays else b""
        for name in _NAMES + [_CODE] * (_CODE in contents):
            archive.writestr(zipfile.ZipInfo(name), contents[name])
    try:
        write_whole(path, data.getbuffer())
    except OSError as error:
        raise GraphError(f"{os.fspath(path)} can't be written: {error.strerror or error}") from error


def _plain(array, library):
    if library == "torch":
        return array.detach().cpu().contiguous().clone()
    import numpy

    return numpy.ascontiguousarray(array) if array.ndim else array.copy()


def load(path):
    return read(path).graph()


class FileContents:
    """What a file holds. The graph is made where it is asked for: that takes longer than all the rest.

    code: the function of the graph's inputs that the machine code is, or a text that says why there is none.
    """

    def __init__(self, core, saved, code, damaged):
        self.core, self.saved, self.code, self.damaged = core, saved, code, damaged

    def graph(self):
        graph = from_core(self.core)
        for node in graph.find(op="extern_call"):
            if not is_text(node.attrs["callee"]):
                raise GraphError(f"`{node.attrs['callee'][:200]}` is no call of an array function")
            check_call(node)
        graph._saved = self.saved
        self.saved.results = [node.type for node in graph.outputs]
        if self.saved.signature is not None:
            self.function(None)
        return graph

    def function(self, body):
        """The function that the graph's signature makes of `body`, a function of its inputs."""
        try:
            for number, entry in enumerate(self.saved.signature["inputs"]):
                if not isinstance(entry, dict) or ("state" in entry) + ("argument" in entry) != 1:
                    raise GraphError(f"the input {number} comes from nowhere")
                if "state" in entry and number not in self.saved.state:
                    raise GraphError(f"there is no array for the input {number}")
            return face_of(self.saved.signature, self.core, self.saved.library, body, self.saved.state)
        except (GraphError, KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError, IndexError) as error:
            raise self.damaged(f"its signature: {error}") from None


def read(path, run_code=False):
    """The FileContents. run_code: with the machine code, which is loaded."""
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            contents = _contents(path, file, size)
    except OSError as error:
        raise GraphError(f"{path} can't be read: {error.strerror or error}") from error
    return _checked(path, *contents, run_code)


def _contents(path, file, size):
    """The three parts of the archive, each no longer than the file, and its machine code, or None."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            found = [entry.filename for entry in entries]
            if sorted(found) not in (sorted(_NAMES), sorted([*_NAMES, _CODE])):
                raise GraphError(f"{path} is no graph of framejit's: it holds {', '.join(found[:5]) or 'nothing'}")
            if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries) \
                    or sum(entry.file_size for entry in entries) > size:
                raise GraphError(f"{path} is damaged: its parts are longer than the file")
            return [*map(archive.read, _NAMES[:2]), _read(path, file, archive.getinfo(_ARRAYS)),
                    archive.read(_CODE) if _CODE in found else None]
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OverflowError) as error:
        raise GraphError(f"{path} is no graph of framejit's, or damaged: {error}") from None


def _read(path, file, entry):
    """The entry's bytes, which nothing else has: `ZipFile.read` makes two copies of what may be large."""
    file.seek(entry.header_offset)
    header, contents = file.read(_LOCAL_HEADER), bytearray(entry.file_size)
    if len(header) == _LOCAL_HEADER and header[:4] == b"PK\3\4":
        file.seek(sum(struct.unpack_from("<HH", header, 26)), os.SEEK_CUR)
        if file.readinto(contents) == entry.file_size and zlib.crc32(contents) == entry.CRC:
            return memoryview(contents)
    raise GraphError(f"{path} is damaged: {entry.filename} is not what was written")


def _checked(path, text, described, arrays, code, run_code):
    def damaged(why):
        return GraphError(f"{path} is damaged: {why}")

    try:
        described = json.loads(described.decode())
        text = text.decode()
    except (ValueError, RecursionError) as error:
        raise damaged(error) from None
    if not isinstance(described, dict) or type(described.get("format")) is not int:
        raise damaged("it does not say its format")
    if described["format"] != FORMAT:
        raise GraphError(f"{path} has the format {described['format']}, and this framejit reads {FORMAT}: "
                         + ("a newer framejit has written it" if described["format"] > FORMAT else "save the graph anew"))
    library, signature, entries = described.get("library"), described.get("signature"), described.get("state")
    if library not in ("numpy", "torch") or not isinstance(signature, (dict, type(None))) or not isinstance(entries, list):
        raise damaged("its description is incomplete")
    if _depth(described) > _DEEPEST:
        raise damaged("its description is too deep")
    if library == "torch":
        try:
            import torch  # noqa: F401
        except ImportError:
            raise GraphError(f"{path} holds a graph of torch's: it needs torch") from None
    try:
        core = _core.CapturedGraph.parse(text)
    except ValueError as error:
        raise damaged(f"graph.txt, {error}") from None
    if core.problems:
        raise damaged(f"graph.txt, {core.problems[0][1]}")
    state = _state(damaged, library, entries, arrays, core)
    body = _body(damaged, described, text, code, core) if run_code else None
    return FileContents(core, signatures.Saved(library, signature, state, None), body, damaged)


def _body(damaged, described, text, code, core):
    from framejit._export import machine_code

    if code is None:
        return "it was saved without machine code"
    try:
        why = machine_code.refusal(described.get("code"), text, described["signature"], code)
        return why or machine_code.body_of(code, core, described["library"])
    except GraphError as error:
        raise damaged(error) from None
    except (OSError, AttributeError) as error:
        raise damaged(f"its machine code: {error}") from None


def _depth(value):
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        found, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(found, dict):
            waiting.extend((x, depth + 1) for x in found.values())
        elif isinstance(found, list):
            waiting.extend((x, depth + 1) for x in found)
    return deepest


def _state(damaged, library, entries, arrays, core):
    found = {}
    if arrays:
        try:
            found = _where_they_lie(arrays) if library == "torch" else None
            if found is None:
                found = _safetensors(library).load(bytes(arrays))
        except GraphError:
            raise
        except Exception as error:  # safetensors' own, which has no class in common with what it passes on
            raise damaged(f"arrays.safetensors, {error}") from None
    state, inputs, layouts = {}, core.inputs, core.layouts[0]
    for entry in entries:
        if not isinstance(entry, dict) or type(entry.get("input")) is not int or not isinstance(entry.get("array"), str):
            raise damaged("its description of arrays is incomplete")
        number, array = entry["input"], found.get(entry["array"])
        if not 0 <= number < len(inputs) or number in state or array is None:
            raise damaged(f"it has no array {entry['array']}")
        _, _, *wanted = inputs[number]
        if graph_type(array) != ArrayType(*wanted):
            raise damaged(f"the array {entry['array']} is {graph_type(array)}, and the graph takes {ArrayType(*wanted)}")
        state[number] = _laid_out(array, layouts[number], library, entry.get("gradient") is True)
    return state


def _where_they_lie(contents):
    """By name the tensors of a safetensors file in memory, without a copy; None: they can't be had so.

    The format (github.com/huggingface/safetensors#format): the length of a JSON text, the text, the numbers that it describes.
    """
    import torch

    length = int.from_bytes(contents[:8], "little")
    if length > len(contents) - 8:
        return None
    described, numbers, found = json.loads(bytes(contents[8:8 + length])), contents[8 + length:], {}
    for name, entry in described.items():
        if name == "__metadata__":
            continue
        dtype, shape, (begin, end) = _DTYPES.get(entry["dtype"]), entry["shape"], entry["data_offsets"]
        if dtype is None or not all(type(x) is int and 0 <= x <= len(numbers) for x in (begin, end)) or begin >= end:
            return None
        dtype = getattr(torch, dtype)
        if begin % dtype.itemsize or any(type(x) is not int or x < 1 for x in shape) or math.prod(shape) * dtype.itemsize != end - begin:
            return None
        found[name] = torch.frombuffer(numbers[begin:end], dtype=dtype).reshape(shape)
        if found[name].data_ptr() % dtype.itemsize:
            return None
    return found


def graph_type(array):
    return ArrayType(graph_name(array.dtype), tuple(array.shape))


def _laid_out(array, layout, library, gradient):
    """The array with the strides that the graph expects, where these are those of an array without gaps."""
    if library == "torch":
        import torch

        if layout is not None and all(type(x) is int for x in layout) and tuple(layout) != tuple(array.stride()):
            order = sorted(range(array.dim()), key=lambda axis: -layout[axis])
            dense = array.permute(order).contiguous().permute(sorted(range(array.dim()), key=order.__getitem__))
            array = dense if tuple(dense.stride()) == tuple(layout) else array
        return torch.nn.Parameter(array) if gradient and (array.is_floating_point() or array.is_complex()) else array
    return array
