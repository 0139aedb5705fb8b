"""Files of graphs and programs, changed at random: each is loaded, checked, run and called in a process of its own, with little memory and time.

A change is made of what the format says: the archive's entries, lines and words of graph.txt, fields of graph.json, the header of
arrays.safetensors, bytes anywhere. What may come of it is a graph, which runs or raises what the array library raises, or GraphError.

    python tests/export/hostile.py --count 20000 --seed 1      # prints each other outcome, with the seed that makes it again
"""
import argparse
import copy
import io
import json
import os
import pathlib
import random
import re
import resource
import signal
import struct
import sys
import tempfile
import warnings
import zipfile

import numpy as np

import framejit

MEMORY, SECONDS = 4 << 30, 20  # of a process
TEXT = """graph @f(
    %x: f64[s0, 6], %v: f64[6] strides [2], %m: bool[s0], %i: i64[3]
) where s0 in 2..64, s1 >= 0, s2 = s0 // 2, s3 = s0*2 % 5 {
  %0 = gt %x, 0.5 : bool[s0, 6]  ; a.py:1 layers.0
  %1 = reduce_sum %x {axes = [1]} : f64[s0]
  %2 = mul %1[:, None], %v : f64[s0, 6]
  %3 = where %0, %2, -0.001 : f64[s0, 6]
  %4 = extern_call %3 {callee = "numpy.clip(x0, 0.0, 2.5)"} : f64[s0, 6]
  %5 = slice %4 {starts = [0, 1], steps = [1, 2]} : f64[2, 3]
  %6 = windows %x {axis = 1, count = 3, size = 2, step = 2} : f64[s0, 3, 2]
  %7 = nonzero %m {count = s1, excluded = []} : i64[s1]
  %8 = gather %x, %7 {axis = 0} : f64[s1, 6]
  %9 = pad %5, 0 {low = [0, 1], high = [s2, 2]} : f64[s2 + 2, 6]
  %10 = transpose %9 {permutation = [1, 0]} : f64[6, s2 + 2]
  %11 = concat %10, %10 {axis = 1} : f64[6, s2*2 + 4]
  %12 = slice_update %x, %4[0:2] {starts = [0, 0], steps = [1, 1]} : f64[s0, 6]
  %13 = gather %v, %i {axis = 0} : f64[3]
  %14 = reshape %12 : f64[s0*6]
  %15 = cumsum %14 {axis = 0} : f64[s0*6]
  %16 = iota {shape = [s0, 2], axis = 0} : i64[s0, 2]
  %17 = argmax %x {axis = 1} : i64[s0]
  %18 = dim {value = s0*s2 + 1} : i64[]
  %19 = scatter_add %v, %13, %i {axis = 0} : f64[6]
  %20, %21 = extern_call %16 {callee = "r0, r1 = numpy.divmod(x0, 3)"} : i64[s0, 2], i64[s0, 2]
  write %v <- %19
  return %8, %11, %15 strides [1], %17, %18, %20, %21
}
"""
NUMBERS = ["0", "1", "-1", "2", "63", "64", "65", "1000000", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
           "1e999", "nan", "1" * 400]
WORDS = [*NUMBERS, "s0", "s1", "s2", "s9", "s4294967296", "%x", "%0", "%1", "[", "]", "(", ")", "{", "}", ":", ",", "=", "//", "%", "*", "+", "-", ">=", "<=",
         "in", "..", "where", "write", "return", "strides", "None", "f64", "i8", "bool", "c128", "bf16", "reshape(", "transpose(", ";", '"', "\\", "\n", "\x00",
         "add", "matmul", "reduce_max", "take_along", "as_size", "extern_call", "constant", "broadcast", "axes", "axis", "contiguous", "true", "é",
         "*(s0+1)" * 40, "(" * 100, "[" * 100, "s0*" * 100 + "1", ", 1" * 100, "numpy.ndarray.resize(x0, (9,), refcheck=False)", "__import__('os')",
         "numpy.add(x0, 1.0, out=x0)", "numpy.zeros((9**9,))", "numpy.reshape(x0, (s0, -1))", "9**9**9"]
VALUES = [None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 63, 1 << 70, 1.5, float("nan"), "", "x", "s0", "s0*s0", "s9", "9**9**9", "__import__('os').abort()", "*/", "\ud800",
          "a\nb", "x" * 100000, [], {}, [[]], [None], ["item", 0], ["x", ["item", 0]], {"output": 0}, {"input": 0}, {"constant": 1}, {"tuple": []}, {"view": {"input": 0}},
          [0] * 1000, {"": ""}]


def seeds(folder):
    """(path, arguments of a call or None) of files as the product writes them."""
    made = []

    def add(name, graph, arguments):
        path = folder / name
        graph.save(path)
        made.append((path, arguments))

    def scaled(x, options, n=2):
        return {"rows": x[1:] * n, "sum": (x.sum(0), [options["by"] + x.shape[0], x])}

    def sorted_rows(x, y):
        x[0] = 1.0
        return np.linalg.solve(x, y), np.sort(x, axis=0), np.linalg.norm(x)

    x, square = np.arange(12.0).reshape(4, 3) + 1, np.arange(9.0).reshape(3, 3) + 3 * np.eye(3)
    given = x, {"by": np.ones(3)}
    add("captured", framejit.capture(scaled, *given, dynamic_shapes={"x": {0: framejit.Dim("rows", min=2)}}), given)
    add("calls", framejit.capture(sorted_rows, square, x[:3], level="library"), (square, x[:3]))
    add("program", framejit.export(scaled, given, dynamic_shapes={"x": {0: framejit.Dim("rows", min=2, max=64)}}), given)
    try:
        import torch
    except ImportError:
        return made
    torch.set_num_threads(1)  # the processes of the cases have none of the threads that these files are made by
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    batch = torch.arange(6.0).reshape(2, 3)
    add("module", framejit.capture(net, batch, level="library"), (batch,))
    add("network", framejit.capture(net.eval(), batch, dynamic_shapes={"input": {0: framejit.Dim("batch", min=2)}}), (batch,))
    return made


# ---- changes

def of_text(text, random):
    lines = text.split("\n")
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        kind = random.randrange(5)
        if not lines:
            lines = [""]
        if kind == 0:
            at = random.randrange(len(lines))
            lines[at:at + 1] = random.choice(([], [lines[at]] * 2, [lines[at], random.choice(lines)], [random.choice(lines)]))
        elif kind == 1:
            at, other = random.randrange(len(lines)), random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            at = random.randrange(len(lines))
            words = re.findall(r"\s+|%?[\w.]+|.", lines[at])
            if words:
                place = random.randrange(len(words))
                numbers = [i for i, word in enumerate(words) if re.fullmatch(r"\d+", word)]
                if kind == 2 and numbers:
                    words[random.choice(numbers)] = random.choice(NUMBERS + ["s0", "s1 - 9", "s0*9", "(s0 + 1)*(s0 + 2)"])
                elif kind == 3:
                    words[place] = random.choice(words)
                else:
                    words[place:place + random.randrange(2)] = [random.choice(WORDS)]
            lines[at] = "".join(words)
    return "\n".join(lines)


def places(value):
    """(container, key) of every value in others."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


def of_fields(described, random):
    for _ in range(random.choice((1, 1, 2))):
        found = list(places(described))
        if not found:
            break
        container, key = random.choice(found)
        kind = random.randrange(6)
        if kind == 0:
            del container[key]
        elif kind == 1:
            other, where = random.choice(found)
            try:
                container[key] = json.loads(json.dumps(other[where]))
            except (LookupError, ValueError):
                pass
        elif kind == 2 and isinstance(container, list):
            container.insert(key, json.loads(json.dumps(container[key])))
        elif kind == 3 and isinstance(container, dict):
            container[random.choice([str(x) for x in VALUES if isinstance(x, str)] + ["equals", "argument", "dict", "view"])] = container.pop(key)
        elif kind == 4 and isinstance(container[key], str):
            container[key] = of_text(container[key], random)
        else:
            container[key] = copy.deepcopy(random.choice(VALUES))
    return described


def of_bytes(content, random):
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 4))):
        at = random.randrange(len(data) + 1) if data else 0
        kind = random.randrange(4)
        if kind == 0:
            data[at:at + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            data[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(1, 9)))
        elif kind == 2:
            del data[at:at + random.choice((1, 4, len(data)))]
        else:
            data[at:at + 4] = struct.pack("<I", random.choice((0, 1, 0x7fffffff, 0xffffffff)))
    return bytes(data)


def of_header(content, random):
    """Of arrays.safetensors: the length of a JSON text, the text, the numbers."""
    if len(content) < 8:
        return of_bytes(content, random)
    length = int.from_bytes(content[:8], "little")
    if random.randrange(4) == 0:
        return struct.pack("<Q", random.choice((0, 1, length + 1, 1 << 40, (1 << 64) - 1))) + content[8:]
    header = json.dumps(of_fields(json.loads(content[8:8 + length]), random)).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(header)) + header + content[8 + length:]


def changed(content, random):
    """The bytes of a file, of another's."""
    if random.randrange(8) == 0:
        return of_bytes(content, random)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [(name, archive.read(name)) for name in archive.namelist()]
    at = random.choices(range(len(parts)), [5 if name == "graph.txt" else 5 if name == "graph.json" else 1 for name, _ in parts])[0]
    name, part = parts[at]
    if random.randrange(12) == 0:
        part = of_bytes(part, random)
    elif name == "graph.txt":
        part = of_text(part.decode(), random).encode("utf-8", "surrogatepass")
    elif name == "graph.json":
        part = json.dumps(of_fields(json.loads(part), random)).encode("utf-8", "surrogatepass")
    else:
        part = of_header(part, random)
    parts[at] = name, part
    if random.randrange(30) == 0:
        parts[at:at + 1] = random.choice(([], [parts[at]] * 2, [("../" + name, part)], [(name.upper(), part)]))
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", random.choice([zipfile.ZIP_STORED] * 30 + [zipfile.ZIP_DEFLATED])) as archive:
        warnings.simplefilter("ignore")  # names twice
        for name, part in parts:
            archive.writestr(name, part)
    return buffer.getvalue()


# ---- what comes of them

def arrays_for(graph):
    """Arrays that the graph's inputs can be."""
    sizes = {symbol.name: min(max(symbol.min, 4), symbol.max) for symbol in graph.symbols}
    found = []
    for node in graph.inputs:
        shape = []
        for size in node.shape:
            value = size if isinstance(size, int) else sizes.get(size, 4)
            if not 0 <= value <= 1 << 16:
                return None
            shape.append(value)
        if np.prod(shape, dtype=object) > 1 << 20 or len(shape) > 32:
            return None
        name = {"b": "bool", "u": "uint", "i": "int", "f": "float", "c": "complex"}[node.dtype[0]] + node.dtype[1:].replace("ool", "")
        if node.dtype == "bf16":
            return None
        array = np.zeros(shape, name.replace("boolool", "bool"))
        array += np.arange(array.size).reshape(shape).astype(array.dtype) % 3 if array.dtype != bool else np.ones((), bool)
        found.append(array)
    return found


# Of a graph that was changed the array library may say that it can't be run; it says so in these.
OF_LIBRARIES = (IndexError, ValueError, TypeError, RuntimeError, ZeroDivisionError, MemoryError, FloatingPointError, OverflowError)


def outcome(graph_of, arguments):
    """What becomes of a file or a text: a word, or the text of what should not have been."""
    def run(what, function, allowed=()):
        try:
            function()
        except framejit.Error:
            return None
        except allowed as error:
            if isinstance(error, (RecursionError, NotImplementedError)):
                return f"{what}: {type(error).__name__}: {error}"
            return None
        except BaseException as error:
            return f"{what}: {type(error).__name__}: {error}"[:500]
        return None

    try:
        graph = graph_of()
    except framejit.GraphError:
        return "refused"
    except BaseException as error:
        return f"load: {type(error).__name__}: {error}"[:500]
    steps = [("lint", graph.lint, ()), ("str", lambda: str(graph), ())]
    if arguments is not None and graph._saved.signature is not None:
        steps.append(("call", lambda: graph(*arguments), OF_LIBRARIES))
    given = arrays_for(graph)
    if given is not None:
        before = [x.copy() for x in given]
        steps.append(("run", lambda: graph.run(*given), OF_LIBRARIES))
        if arguments is None:
            steps.append(("call", lambda: graph(*[x.copy() for x in given]), OF_LIBRARIES))
    for what, function, allowed in steps:
        wrong = run(what, function, allowed)
        if wrong:
            return wrong
    if given is not None and not all(x.shape == y.shape and np.array_equal(x, y, equal_nan=x.dtype.kind in "fc") for x, y in zip(given, before)):
        return "run: an argument is another than before"
    return "loaded"


def in_a_process(function):
    """What the function returns, a text, in a process with bounds; what ended it else."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(3 * SECONDS)  # what waits uses no time of the processor
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1), os.dup2(silence, 2)
            warnings.simplefilter("ignore")
            os.write(write, function().encode("utf-8", "backslashreplace")[:4000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return said or "ended without a word"


def case(files, seed, folder):
    """(what is looked at, what comes of it) of the change that this seed makes."""
    generator = random.Random(seed)
    number = generator.randrange(len(files) + 1)
    if number == len(files):
        text = of_text(TEXT, generator)
        return text, in_a_process(lambda: outcome(lambda: framejit.Graph.parse(text), None))
    source, arguments = files[number]
    path = folder / "changed"
    path.write_bytes(changed(source.read_bytes(), generator))

    def loaded():
        return framejit.ExportedProgram.load(path).graph if source.name == "program" else framejit.Graph.load(path)

    return source.name, in_a_process(lambda: outcome(loaded, arguments))


def survey(count, first, folder, tell=print):
    """By what came of them, how many; tells of each that should not have been."""
    files, counts = seeds(folder), {}
    for seed in range(first, first + count):
        name, what = case(files, seed, folder)
        counts[what if what in ("loaded", "refused") else "wrong"] = counts.get(what if what in ("loaded", "refused") else "wrong", 0) + 1
        if what not in ("loaded", "refused"):
            tell(f"seed {seed}, {name if name != TEXT and len(name) < 20 else 'text'}: {what}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = survey(options.count, options.seed, pathlib.Path(folder), lambda text: print(text, flush=True))
    print(counts)
    sys.exit(1 if counts.get("wrong") else 0)


if __name__ == "__main__":
    main()
