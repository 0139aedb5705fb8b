"""Machine code in a program's file: a library as `ExportedProgram.build` makes it (library.py), of all inputs of the graph, which a process
loads and calls without tracing and without a compiler.

`code_of` makes its bytes, `body_of` the function of the graph's inputs that runs it. Where it can't give what the compiled graph gives (an
exception, a warning of NumPy, a derivative, another processor) it raises `Unfit`, and the graph is compiled.
"""
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import tempfile

import framejit
from framejit import _core
from framejit._dim import LARGEST
from framejit._errors import GraphError
from framejit._export import library as libraries
from framejit._graph import code
from framejit._graph.dtypes import library_name

_ENTRY = "program"
_CONDITIONS = {"divide": 4, "over": 8, "under": 16, "invalid": 32}  # KernelStatus


class Unfit(Exception):
    """The graph is to be compiled for this call."""


def code_of(graph, saved, cpu):
    """The bytes of a library with machine code for processors as `build` takes them."""
    cpus = libraries.processors(cpu)
    whole = graph.copy()
    whole.set_outputs(*whole.outputs, *(value for _, value in whole.writes))
    whole._writes = {}
    whole._touch()
    sizes = [libraries.Size(symbol.name, number, symbol.min, None if symbol.max >= LARGEST else symbol.max)
             for number, symbol in enumerate(whole.symbols) if symbol.definition is None]
    inputs = list(range(len(whole.inputs)))
    if whole.find(op="extern_call"):
        whole, sizes, inputs = libraries.of_operations(whole, saved, sizes, inputs)
    libraries.refuse(whole)
    with libraries.writing(tempfile.gettempdir()), tempfile.TemporaryDirectory() as folder:
        names = [f"x{number}" for number in range(len(graph.inputs))]
        results = [f"y{number}" for number in range(len(whole.outputs))]
        objects = _core.build_objects(whole._as_core(), folder, _ENTRY, [(s.name, s.symbol, 0, 2**63 - 1) for s in sizes], inputs, names,
                                      results, [], cpus, any_layout=True, float_conditions=saved.library == "numpy")
        return libraries.link(objects, "program.so", folder).read_bytes()


def described(text, signature, contents, cpu):
    """What the file says of its machine code, for the graph of this text and this signature."""
    return {"framejit": framejit.__version__, "cpu": libraries.processors(cpu), "sha256": _digest(text, signature, contents)}


def refusal(data, text, signature, contents):
    """Why the machine code can't be run here; None: it can. Raises GraphError where it is not what was written."""
    if not isinstance(data, dict) or not isinstance(data.get("cpu"), list) or not isinstance(data.get("framejit"), str):
        raise GraphError("its description of machine code is incomplete")
    if data.get("sha256") != _digest(text, signature, contents):
        raise GraphError("its machine code is not that of its graph")
    if data["framejit"] != framejit.__version__:
        return f"it was made by framejit {data['framejit']}, and this is {framejit.__version__}"
    if not any(level in _core.processor_levels() and _core.processor_has(level) for level in data["cpu"]):
        return f"it is for {' and '.join(map(str, data['cpu']))}, and this processor is another one"
    return None


def _digest(text, signature, contents):
    found = hashlib.sha256(contents)
    for part in (text, json.dumps(signature, sort_keys=True)):
        found.update(hashlib.sha256(part.encode()).digest())
    return found.hexdigest()


@functools.cache
def _loaded(contents):
    """(run, error) of a library, which stays for as long as the process does."""
    # The library names the runtime without a place: this one is loaded already then.
    ctypes.CDLL(str(pathlib.Path(_core.__file__).with_name(libraries.RUNTIME)))
    file = os.memfd_create("framejit program")  # stays open: a library of the same path would be taken for this one
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.write(contents)
        loaded = ctypes.CDLL(f"/proc/self/fd/{file}")
        run, error = getattr(loaded, f"{_ENTRY}_run"), getattr(loaded, f"{_ENTRY}_error")
        getattr(loaded, f"{_ENTRY}_set_threads")(int(_core.environment_options()["threads"]))
    except BaseException:
        os.close(file)
        raise
    error.restype = ctypes.c_char_p
    return run, error


def body_of(contents, core, library):
    """The function of the graph's inputs, then its integers, that returns a list: outputs, then written values."""
    run, error = _loaded(contents)
    body, known = [], {f"s{number}" for number in core.integers}
    names = [f"x{number}" for number in range(len(core.inputs))]
    inputs = [code.name(name) for name in names]

    def line(template, **holes):
        body.append(code.statement(template, **holes))

    line("if watched(inputs):\n    raise Unfit('torch watches the call')", inputs=tuple(inputs))
    for x, (_, _, _, shape) in zip(inputs, core.inputs):
        for axis, size in enumerate(shape):
            if code.is_symbol(size) and size not in known:
                known.add(size)
                line("size = x.shape[axis]", size=code.name(size), x=x, axis=axis)
    for number, dividend, divisor, remainder in core.definitions:
        if not code.symbols(dividend) | code.symbols(divisor) <= known:
            continue  # of a size that nothing has any more
        known.add(f"s{number}")
        line("size = computed", size=code.name(f"s{number}"), computed=code.quotient(dividend, divisor, remainder))
    defined = {f"s{number}" for number, *_ in core.definitions}
    given = [name for name, *_ in core.symbols if name not in defined]
    sizes = [code.name(name) if name in known else 0 for name in given]
    types = {value: (dtype, shape) for value, _, dtype, shape in core.inputs}
    results = {*core.outputs, *(value for _, value in core.writes)}
    for node in core.nodes:
        if not results.isdisjoint(made := node.results):
            types.update(zip(made, node.types))
    made = []
    space = {"run": run, "error": error, "Unfit": Unfit, "sizes_type": ctypes.c_int64 * len(sizes), "inputs_type": ctypes.c_void_p * len(inputs)}
    layouts = [*core.layouts[1], *(None for _ in core.writes)]
    for number, (value, layout) in enumerate(zip([*core.outputs, *(value for _, value in core.writes)], layouts)):
        dtype, shape = types[value]
        space[f"dtype{number}"] = _dtype(library, dtype)
        made.append(code.name(f"y{number}"))
        line(f"y = empty(shape, strides, dtype{number})", y=made[-1], shape=tuple(map(code.size, shape)),
             strides=None if layout is None else tuple(map(code.size, layout)))
    space["results_type"] = ctypes.c_void_p * len(made)
    space.update(_torch_names() if library == "torch" else _numpy_names())
    for number, (x, (_, _, dtype, shape)) in enumerate(zip(inputs, core.inputs)):
        # What is no argument is checked by nobody else, and may be moved or cast (`module().half()`).
        space[f"type{number}"] = _dtype(library, dtype), tuple(shape) if all(type(size) is int for size in shape) else None
        line(f"x = whole(x, *type{number})", x=x)
    line("status = run(sizes_type(*sizes), inputs_type(*inputs), results_type(*results), trapped())", sizes=sizes,
         inputs=[code.expression("place(x)", x=x) for x in inputs], results=[code.expression("place(y)", y=y) for y in made])
    line("if status:\n    raise Unfit(error().decode())")
    line("return made", made=made)
    parameters = code.plain_parameters([*names, *(f"s{number}" for number in core.integers)])
    return code.function(code.definition("body", parameters, body), space, "<machine code>")


def _dtype(library, dtype):
    module = __import__(library)
    return getattr(module, library_name(dtype)) if library == "torch" else module.dtype(library_name(dtype))


def _torch_names():
    import torch

    def watched(arrays):
        """A derivative is wanted, autocast would cast, or a transform of torch.func or a mode is to see each operation."""
        return (torch.is_grad_enabled() and any(x.requires_grad for x in arrays) or torch.is_autocast_enabled("cpu")
                or torch._C._functorch.peek_interpreter_stack() is not None or torch._C._len_torch_dispatch_stack() > 0
                or torch._C._len_torch_function_stack() > 0)

    def empty(shape, strides, dtype):  # on the CPU, whatever the default device is
        if strides is None:
            return torch.empty(shape, dtype=dtype, device="cpu")
        return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")

    def whole(x, dtype, shape):
        if x.dtype is not dtype or shape is not None and x.shape != shape:
            raise Unfit("a tensor of another type")
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.device.type != "cpu" or x.is_conj() or x.is_neg():
            raise Unfit("a tensor of another kind")
        return x if x.is_contiguous() else x.contiguous()

    return {"watched": watched, "empty": empty, "whole": whole, "place": torch.Tensor.data_ptr, "trapped": lambda: 0}


def _numpy_names():
    import numpy

    def empty(shape, strides, dtype):
        if strides is None:
            return numpy.empty(shape, dtype)
        order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        made = numpy.empty([shape[axis] for axis in order], dtype).transpose(sorted(range(len(shape)), key=order.__getitem__))
        if made.size and made.strides != tuple(stride * made.itemsize for stride in strides):
            raise Unfit("a result with gaps")
        return made

    def whole(x, dtype, shape):
        if type(x) is not numpy.ndarray or x.dtype != dtype or shape is not None and x.shape != shape:
            raise Unfit("an array of another kind or type")
        return x if x.flags.c_contiguous and x.flags.aligned else numpy.array(x, order="C")

    def place(x):
        return x.ctypes.data

    def trapped():
        return sum(_CONDITIONS[kind] for kind, what in numpy.geterr().items() if what != "ignore")

    return {"watched": lambda arrays: False, "empty": empty, "whole": whole, "place": place, "trapped": trapped}
