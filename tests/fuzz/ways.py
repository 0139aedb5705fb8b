"""One program, every way that it can run: compiled, captured, exported, from a file, by the library, as machine code, as ONNX. One answer.

`program(seed, lib)` grows a function of two arrays that returns arrays (of the expressions and tables of parts.py and tables.py, without
effects); `check` gives each way the same arguments, in several sizes where the way takes them, and compares values, dtypes, strides and whose
memory the results have with eager's. A way may refuse a program with one of framejit's own errors, never answer otherwise.
"""
import pathlib
import tempfile
import warnings

import numpy as np

import framejit
from case import Case, Difference, namespace_of
from grow import Grower, quiet
from harness import is_array, torch
from observe import Elements

# They keep state, draw numbers, or are statements.
_NOT_PURE = ("STATE", "LOG", "TABLE", "lambda", "rand", "dropout", "items", "table", "helper", "framejit", "requires_grad", "grad", "empty", ":=", "print", "_(", ".numpy()", "np.asarray", "out=", "ADD", "cached")
_LINES = 3


def program(seed, lib):
    grower = Grower(seed, lib)
    grower.calls_of_tables = 0.3
    r = grower.random
    shape = r.choice([(3, 4), (5,), (2, 3, 4), (4, 4), (1, 3), (6, 2)])
    dtypes = ["float32", "float32", "float64", "int64", "bool"]
    texts = {name: f'make({shape}, "{r.choice(dtypes)}", {r.randrange(1000)})' for name in "xy"}
    grower.source, grower.gradients = "", False
    grower.space = namespace_of(Case(lib, "import math", []), "<growing>")
    grower.space.update(k=2, s=0.5)
    with quiet():
        for name, text in texts.items():
            exec(f"{name} = {text}", grower.space)
    grower.names, grower.own = ["x", "y"], {"x", "y"}
    for _ in range(40):
        if len(grower.lines) >= _LINES:
            break
        count = len(grower.lines)
        grower.simple(1)
        if len(grower.lines) > count and (not grower.lines[-1].strip().startswith("v") or any(word in grower.lines[-1] for word in _NOT_PURE)):
            del grower.lines[-1]
    made = [n for n in grower.names if n.startswith("v") and n in grower.space and is_array(grower.space[n]) and any(line.strip().startswith(f"{n} =") for line in grower.lines)]
    result = ", ".join(r.sample(made, min(len(made), r.randrange(1, 4)))) or "x + 1"
    source = "import math\n\ndef f(x, y, k=2, s=0.5):\n" + "\n".join(grower.lines) + f"\n    return ({result},)\n"
    return Case(lib, source, [f"ARGS = [{', '.join(texts.values())}]"])


def _picture(results, given):
    """Per result: elements, dtype, strides, and which of the results before and of the arguments it shares memory with."""
    told = []
    for n, array in enumerate(results):
        plain = array.detach().resolve_conj().resolve_neg() if torch is not None and isinstance(array, torch.Tensor) else array
        strides = tuple(plain.stride()) if plain is not array or hasattr(plain, "stride") else tuple(s // max(plain.itemsize, 1) for s in plain.strides)
        kept = [stride for stride, size in zip(strides, plain.shape) if size > 1] if 0 not in plain.shape else []
        values = (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy() if hasattr(plain, "stride") else np.asarray(plain)
        shared = [other for other, array in enumerate([*results[:n], *given]) if _shares(plain, array)]
        told.append((Elements(values.copy(), values.dtype.name), str(plain.dtype), kept, shared))
    return told


def _shares(a, b):
    if torch is not None and isinstance(a, torch.Tensor):
        return a.numel() > 0 and b.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return np.shares_memory(a, b)


def _ways(f, args, folder):
    """(name, function that gives the function of the arguments): a way is made when its turn comes."""
    programs = {}

    def exported():
        if "export" not in programs:
            programs["export"] = framejit.export(f, args)
        return programs["export"]

    def loaded(**code):
        path = folder / "f.program"
        exported().save(path, **({"cpu": "native"} if code else {}))
        return framejit.ExportedProgram.load(path, **code)

    def graph_of_file():
        framejit.capture(f, *args).save(folder / "f.graph")
        return framejit.Graph.load(folder / "f.graph")

    yield "compile", lambda: framejit.compile(f)
    yield "capture", lambda: framejit.capture(f, *args)
    yield "capture, level=library", lambda: framejit.capture(f, *args, level="library")
    yield "graph from a file", graph_of_file
    yield "export", exported
    yield "run", lambda: exported().run
    yield "program from a file", loaded
    yield "program from a file, run", lambda: loaded().run
    yield "machine code from a file", lambda: loaded(run_code=True)


def check(case, filename="<program>"):
    """Raises Difference if a way gives another answer than eager; else how many ways answered."""
    framejit.reset()
    space, answered = namespace_of(case, filename), {}
    f = space["f"]
    f.__globals__["__name__"] = "program"

    def arguments():
        exec(case.calls[0], space)
        return tuple(space["ARGS"])

    with warnings.catch_warnings(), np.errstate(all="ignore"), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        given = arguments()
        try:
            expected = _picture(f(*given), given)
        except Exception:
            return answered
        for name, make in _ways(f, arguments(), pathlib.Path(folder)):
            try:
                way = make()
            except framejit.Error:
                continue
            for number in range(2):
                given = arguments()
                try:
                    found = _picture(way(*given), given)
                except framejit.Error as error:
                    if name == "capture, level=library" and "has no text" in str(error):  # a graph to be looked at
                        break
                    raise Difference(name, f"call {number} by {name}: {type(error).__name__}: {error}") from error
                except Exception as error:
                    raise Difference(name, f"call {number} by {name}: {type(error).__name__}: {error}, and eager returns") from error
                for place, (ours, eager) in enumerate(zip(found, expected, strict=True)):
                    if ours[0].differs(eager[0]) or ours[1:] != eager[1:]:
                        raise Difference(name, f"call {number} by {name}: result {place} is {ours}, eager gives {eager}")
            answered[name] = True
    if framejit.cache_info()["internal_errors"]:
        raise Difference("internal error", "an internal error")
    return answered
