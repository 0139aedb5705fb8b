"""One program, every way that it can run: compiled, captured, exported, from a file, by the library, as machine code, from C, as ONNX. One
answer.

`program(seed, lib)` grows a function of two arrays that returns arrays (of the expressions, statements and tables of parts.py and tables.py;
it may write into its arguments, and branch and loop on their values). `check` gives each way the same arguments, then arguments that lie otherwise
and arguments of other sizes, and compares values, dtypes, strides, whose memory the results have, and what the arguments are afterwards with eager's. A way may refuse a
program, or arguments unlike those that it was made with, with one of framejit's own errors, never answer otherwise.
"""
import ctypes
import functools
import pathlib
import re
import shutil
import tempfile
import textwrap
import warnings

import numpy as np

import control
import framejit
import pairs
from case import Case, Difference, namespace_of
from grow import Grower, quiet
from harness import is_array, torch
from observe import Elements

try:
    import onnx  # noqa: F401
    import onnxruntime
except ImportError:
    onnxruntime = None

# They keep state, draw numbers, or are statements.
_NOT_PURE = ("STATE", "LOG", "TABLE", "lambda", "rand", "dropout", "items", "table", "helper", "framejit", "requires_grad", "grad", "empty", ":=", "print", "_(", ".numpy()", "np.asarray", "out=", "ADD", "cached")
_LINES = 3
_CONDITIONS = ["x.sum() > 0", "(x > y).any()", "(x * x).sum() > s", "x.max() > k", "not (x == y).all()", "x.sum() > 0 and y.sum() < 9",
               "(y > 0).any() or x.sum() == 0", "x.sum()", "y.reshape(-1)[0] < x.reshape(-1)[0]"]
_ARMS = ["{a} + {b}", "{a} * 2", "-{a}", "{a} - {b}", "{a} * {b} + {a}", "lib.where({b} > 0, {a}, {b})", "{b} * s", "abs({a})", "{a} + k",
         "lib.zeros_like({a})", "lib.broadcast_to({a}[:1], {a}.shape) * 2", "lib.ones({a}.shape) * k"]


def _arms(grower, made, count=2):
    """[(text, value)] of arrays of one type, where that of the first is met again soon; else None."""
    r, arms = grower.random, []
    for _ in range(12):
        text = r.choice(_ARMS).replace("{a}", r.choice(made)).replace("{b}", r.choice(made))
        try:
            with quiet():
                value = eval(text, grower.space)
        except Exception:
            continue
        if is_array(value) and (not arms or (value.dtype, tuple(value.shape)) == (arms[0][1].dtype, tuple(arms[0][1].shape))):
            arms.append((text, value))
        if len(arms) == count:
            return arms
    return None


def _branch(grower, made, indent="    "):
    """(a name, the lines of an `if` on data whose two ways give it an array of one type); None where there is no such pair."""
    r, condition, name = grower.random, grower.random.choice(_CONDITIONS), f"u{grower.count}"
    arms = _arms(grower, made)
    try:
        with quiet():
            taken = bool(eval(condition, grower.space))
    except Exception:
        return None
    if arms is None:
        return None
    grower.count += 1
    grower.space[name] = arms[0][1]
    chance = r.random()
    if chance < 0.1 and not taken:  # on values that the arguments do not have
        return name, [f"{indent}{name} = {arms[0][0]}", f"{indent}if {condition}:", f"{indent}    raise ValueError('no value', k)"]
    if chance < 0.2:
        return name, [f"{indent}{name} = {arms[0][0]} if {condition} else {arms[1][0]}"]
    ways = [[f"{indent}    {name} = {text}"] for text, _ in arms]
    inner = r.choice([_branch, _branch, _control, _pair])(grower, made, indent + "    ") if r.random() < 0.3 else None
    if inner:
        inner[1].append(f"{indent}    {name} = {name} if {r.choice(_CONDITIONS)} else {name} + {inner[0]} - {inner[0]}")
        ways[r.randrange(2)] += inner[1]
    return name, [f"{indent}if {condition}:", *ways[0], f"{indent}else:", *ways[1]]


def _fresh(grower):
    grower.count += 1
    return f"u{grower.count}"


def _control(grower, made, indent="    "):
    """(a name, the lines of a torch.cond or a torch.while_loop that gives it a tensor); None where there is none, or no torch."""
    if grower.lib != "torch":
        return None
    for _ in range(8):
        written = control.lines_of(grower.random, grower.space, made, functools.partial(_fresh, grower))
        if written and control.run(written, grower.space, made):
            return grower.random.choice(written.names), [indent + line for line in written.lines]
    return None


def _pair(grower, made, indent="    "):
    """(a name, the lines of a branch or a loop on data that carries a tuple and gives the name an array of it); None where there is none."""
    r = grower.random
    for _ in range(8):
        arms = _arms(grower, made, r.choice([2, 2, 3]))
        if arms is None:
            continue
        texts, like = [text for text, _ in arms], arms[0][1]

        # Members of several types sometimes; what stands for another by no text but by its type, always.
        def starts(like):
            return texts if like is None or r.random() < 0.9 else [r.choice(_ARMS).replace("{a}", "x").replace("{b}", "y")]

        passes = [text.replace("{a}", r.choice(made)) for text in _PASSES_OF_ANY_LOOP]
        lines, names = pairs.lines_of(r, str, functools.partial(_fresh, grower), _CONDITIONS, starts, passes, bool(grower.source))
        before = dict(grower.space)
        try:
            with quiet():
                exec("\n".join(lines), grower.space)
            types = {(str(grower.space[name].dtype), tuple(grower.space[name].shape)) for name in names if is_array(grower.space[name])}
            # Mostly of the type that it starts with: a loop of a graph keeps it.
            works = all(is_array(grower.space[name]) for name in names) and (types == {(str(like.dtype), tuple(like.shape))} or r.random() < 0.2)
        except Exception:
            works = False
        if not works:
            grower.space.clear()
            grower.space.update(before)
        else:
            name = r.choice(names)
            return name, [indent + line for line in lines] + ([f"{indent}{name} = {names[0]} + {names[1]}"] if r.random() < 0.3 else [])
    return None


def _in_a_function(grower, name, lines):
    """The lines inside of a function of their own, which gives the name."""
    part = f"part_{name}"
    return [f"    def {part}():", *("    " + line for line in lines), f"        return {name}", f"    {name} = {part}()"]


_PASSES = ["{t} * 0.5", "{t} - {a}", "{t} * 2 + {a}", "-{t}", "{t} // 2", "lib.where({a} > 0, {t}, -{t})", "{t} + k", "abs({t}) - s", "{t} * {a}", "{t} + n",
           "{t} * (n + 1)", "lib.tanh({t})", "{t} + {t}.sum()", "{t}.reshape(-1)[n % 2] + {t} * 0.75"]
_PASSES_OF_ANY_LOOP = [text for text in _PASSES if not re.search(r"\bn\b", text)]
_WRITES = ["{t} *= 2", "{t} += {a}", "{t}[0] = k", "{t} -= {t} // 3", "{t}[n % 2] = {a}[-1] * 1"]
_ENDS = ["abs({t}).max() < 2", "{t}.sum() > 20", "({t} > 3).any()", "({t} == {t} * 2).all()", "{t}.sum() < {a}.sum()", "not ({t} < 1).any()", "{t}.reshape(-1)[0] > 1",
         "{t}.sum() > 5 or {a}.sum() < -2", "{t}.sum().item() > 3"]
_LOOPS = [
    ["while not ({end}) and n < {most}:", "    {pass}", "    n += 1"],
    ["while n < {most}:", "    n += 1", "    if {end}:", "        continue", "    {pass}"],
    ["while True:", "    {pass}", "    n = n + 1", "    if {end} or n == {most}:", "        break", "    {pass}"],
    ["for n in range({most}):", "    {pass}", "    if {end}:", "        break"],
    ["for n in range({most}):", "    if {end}:", "        {t} = {t} * 3", "        break", "    {pass}", "else:", "    {t} = {t} + 1"],
    ["for n in range(int(abs({a}).sum()) % 5):", "    {pass}"],
    ["for n in range(int({t}.reshape(-1)[0]) % 7, -2, -2):", "    {pass}", "    if {end}:", "        {pass}"],
    ["while not ({end}) and n < {most}:", "    if {t}.sum() > n:", "        {pass}", "    else:", "        {pass}", "    n += 1"],
    ["while n < 3:", "    m = 0", "    while not ({end}) and m < {most}:", "        {pass}", "        m += 1", "    {pass}", "    n += 1"],
    ["w = {t} * 1", "while not ({end}) and n < {most}:", "    {t}, w = w, {next}", "    n += 1"],
]


def _loop(grower, made):
    """(a name, the lines of a loop on data that changes it and keeps its type); None where there is none."""
    r, name, before = grower.random, f"u{grower.count}", dict(grower.space)
    for _ in range(12):
        a, most = r.choice(made), r.choice([2, 4, 30])

        def text(line):
            def one(texts):
                return r.choice(texts).replace("{t}", name).replace("{a}", a)

            passed = control.pass_of(r, name) if grower.lib == "torch" and r.random() < 0.1 else one(_PASSES)
            line = line.replace("{pass}", f"{name} = {passed}" if r.random() < 0.75 else one(_WRITES)).replace("{next}", one(_PASSES))
            return "    " + line.replace("{end}", one(_ENDS)).replace("{most}", str(most)).replace("{t}", name).replace("{a}", a)

        lines = [f"    {name} = {r.choice(made)} * {r.choice(['1', 's', 'k'])}", "    n = 0", *map(text, r.choice(_LOOPS))]
        first, rest = textwrap.dedent("\n".join(lines)).split("\n", 1)
        try:
            with quiet():
                exec(first, grower.space)
                like = grower.space[name]
                exec(rest, grower.space)
        except Exception:
            grower.space.clear()
            grower.space.update(before)
            continue
        value = grower.space[name]
        if is_array(value) and (value.dtype, tuple(value.shape)) == (like.dtype, tuple(like.shape)):
            grower.count += 1
            return name, lines
        grower.space.clear()
        grower.space.update(before)
    return None


def program(seed, lib):
    grower = Grower(seed, lib)
    grower.calls_of_tables = 0.3
    r = grower.random
    shape = r.choice([(3, 4), (5,), (2, 3, 4), (4, 4), (1, 3), (6, 2)])
    larger, layout = (shape[0] + 2, *shape[1:]), r.choice(["f", "padded", "strided"])
    dtypes = ["float32", "float32", "float64", "int64", "bool"]
    kinds = {name: (r.choice(dtypes), r.randrange(1000)) for name in "xy"}

    def arguments(shape, layout="c", more=0):
        return {name: f'make({shape}, "{dtype}", {seed + more}' + (f', "{layout}")' if layout != "c" else ")") for name, (dtype, seed) in kinds.items()}

    texts = arguments(shape)
    grower.source, grower.gradients = r.choice(["", pairs.NAMED]), False
    grower.space = namespace_of(Case(lib, f"import math\n{grower.source}", []), "<growing>")
    grower.space.update(k=2, s=0.5)
    with quiet():
        for name, text in texts.items():
            exec(f"{name} = {text}", grower.space)
    grower.names, grower.own = ["x", "y"], {"x", "y"}
    # What torch's functions and tuples do is in a graph only where nothing else of a program keeps it out.
    alone = r.random() < 0.15
    for _ in range(40):
        if len(grower.lines) >= _LINES * (not alone):
            break
        count = len(grower.lines)
        grower.simple(1)
        if len(grower.lines) > count and (grower.lines[-1].strip()[0] not in "vxy" or any(word in grower.lines[-1] for word in _NOT_PURE)):
            del grower.lines[-1]
    made = [n for n in grower.names if n.startswith("v") and n in grower.space and is_array(grower.space[n]) and any(line.strip().startswith(f"{n} =") for line in grower.lines)]
    results = r.sample(made, min(len(made), r.randrange(1, 4)))
    for _ in range(0 if alone else r.choice([0, 0, 0, 1, 1, 2])):
        if branch := _branch(grower, ["x", "y", *made]):
            results.append(f"{branch[0]} + 1")
            grower.lines += branch[1]
    for _ in range(0 if alone else r.choice([0, 0, 0, 1, 1])):
        if loop := _loop(grower, ["x", "y", *made]):
            results.append(r.choice([f"{loop[0]} + 1", loop[0]]))
            grower.lines += loop[1] if r.random() < 0.85 else _in_a_function(grower, loop[0], loop[1])
    carried = [_control, _pair] if lib == "torch" else [_pair]
    for more in [r.choice(carried)] if alone else r.choice([[], [], [], [], [], carried[:1], [_pair], carried]):
        if found := more(grower, ["x", "y", *made]):
            results.append(r.choice([f"{found[0]} + 1", found[0]]))
            grower.lines += found[1] if r.random() < 0.75 else _in_a_function(grower, *found)
    result = ", ".join(results) or "x + 1"
    source = f"import math\n{grower.source}\ndef f(x, y, k=2, s=0.5):\n" + "\n".join(grower.lines) + f"\n    return ({result},)\n"
    return Case(lib, source, [f"ARGS = [{', '.join(given.values())}]" for given in (texts, arguments(shape, layout), arguments(larger), arguments(shape, more=1000))])


def _elements(array):
    plain = array.detach().resolve_conj().resolve_neg() if torch is not None and isinstance(array, torch.Tensor) else array
    values = (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy() if hasattr(plain, "detach") else np.asarray(plain)
    return Elements(values.copy(), values.dtype.name)


def _picture(results, given):
    """Per result and argument: elements and dtype; then strides, and which of the results before and of the arguments it shares memory with."""
    told = []
    for n, array in enumerate([*results, *given]):
        strides = tuple(array.stride()) if hasattr(array, "stride") else tuple(s // max(array.itemsize, 1) for s in array.strides)
        kept = [stride for stride, size in zip(strides, array.shape) if size > 1] if 0 not in array.shape else []
        shared = [other for other, before in enumerate([*results, *given][:n]) if _shares(array, before)]
        told.append((_elements(array), str(array.dtype), kept, shared + [len(results) + i for i, x in enumerate(given) if n < len(results) and _shares(array, x)]))
    return told


def _shares(a, b):
    if torch is not None and isinstance(a, torch.Tensor):
        return a.numel() > 0 and b.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return np.shares_memory(a, b)


def _values_alone(results, given):
    """Of ways that give contiguous arrays of their own: elements and dtypes."""
    return [(_elements(array), str(array.dtype)) for array in (*results, *given)]


def _as_onnx_has_them(results, given):
    """onnxruntime's Where adds what is chosen to a zero, and float32 functions stand behind some of float64."""
    told = []
    for array in (*results, *given):
        values = _elements(array).values
        told.append((Elements(values + values.dtype.type(0), "float32") if values.dtype.kind == "f" else _elements(array), str(array.dtype)))
    return told


class _FromC:
    """A built library, called by the header's rules."""

    def __init__(self, program, folder, like):
        built = program.build(folder)
        self.library, self.like = ctypes.CDLL(str(built.library)), like
        self.given = [place[0] for place in program.signature.parameters]
        self.nothing = ctypes.c_double()  # the place of arrays without elements
        self.error = getattr(self.library, "f_error")
        self.error.restype = ctypes.c_char_p

    def __call__(self, *args):
        results = [array.contiguous().clone() if hasattr(array, "detach") else array.copy(order="C") for array in self.like]
        arrays = [dict(zip("xy", args))[name] for name in self.given] + results
        places = [ctypes.c_void_p((array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data) or ctypes.addressof(self.nothing)) for array in arrays]
        if self.library.f(*places) != 0:
            raise framejit.Error(self.error().decode())
        return tuple(results)


class _AsOnnx:
    def __init__(self, graph, path, like):
        graph.to_onnx(path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as missing:
            raise framejit.Error("onnxruntime has no kernel for it") from missing
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail as failure:
            if "by zero" in str(failure):
                raise framejit.Error("onnxruntime divides no integer by zero") from failure
            raise
        if any("bfloat16" in output.type for output in self.session.get_outputs()):
            raise framejit.Error("NumPy has no bfloat16")
        self.like = like

    def __call__(self, *args):
        named = dict(zip("xy", args))
        feeds = {given.name: named[given.name].detach().numpy() if hasattr(named[given.name], "detach") else named[given.name] for given in self.session.get_inputs()}
        try:
            found = dict(zip([output.name for output in self.session.get_outputs()], self.session.run(None, feeds)))
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail as failure:
            raise (framejit.Error("onnxruntime divides no integer by zero") if "by zero" in str(failure) else failure) from failure
        for name in [name for name in found if name.endswith("_after")]:
            target, value = named[name[:-len("_after")]], found.pop(name)
            target[...] = torch.from_numpy(value) if hasattr(target, "detach") else value
        return tuple(torch.from_numpy(np.array(x)) if hasattr(like, "detach") else x for x, like in zip(found.values(), self.like, strict=True))


class _AsFx:
    def __init__(self, graph, like):
        if len(graph.outputs) != len(like):
            raise framejit.Error("what shows an argument is no result of the graph")
        self.module = graph.to_fx()
        self.given = [node.name for node in self.module.graph.nodes if node.op == "placeholder"]

    def __call__(self, *args):
        return tuple(self.module(*(dict(zip("xy", args))[name] for name in self.given)))


#: These are the function itself, which does as eager whatever it is given.
COMPILED = ("compile", "compile, joined")


def _ways(f, args, folder, like=()):
    """(name, what it takes and tells, function that gives the function of the arguments): a way is made when its turn comes.

    exact: strides and memory are eager's too; layouts: it takes arguments that lie otherwise; sizes: of other sizes."""
    programs = {}

    def exported(**sizes):
        if bool(sizes) not in programs:
            programs[bool(sizes)] = framejit.export(f, args, **sizes)
        return programs[bool(sizes)]

    def any_size():
        rows = framejit.Dim("rows", min=1)
        return exported(dynamic_shapes={"x": {0: rows}, "y": {0: rows}})

    def loaded(program=exported, **code):
        path = folder / "f.program"
        program().save(path, **({"cpu": "native"} if code else {}))
        return framejit.ExportedProgram.load(path, **code)

    def graph_of_file():
        framejit.capture(f, *args).save(folder / "f.graph")
        return framejit.Graph.load(folder / "f.graph")

    yield "compile", "exact layouts sizes", lambda: framejit.compile(f)
    yield "compile, joined", "exact layouts sizes", lambda: framejit.compile(f, join_branches=True)
    yield "capture", "exact layouts", lambda: framejit.capture(f, *args)
    yield "capture, level=library", "exact", lambda: framejit.capture(f, *args, level="library")
    yield "graph from a file", "exact layouts", graph_of_file
    yield "export", "exact layouts", exported
    yield "run", "exact layouts", lambda: exported().run
    yield "program from a file", "exact layouts", loaded
    yield "program from a file, run", "exact", lambda: loaded().run
    yield "machine code from a file", "exact layouts", lambda: loaded(run_code=True)
    yield "export, any size", "exact layouts sizes", any_size
    yield "any size from a file", "exact sizes", lambda: loaded(any_size)
    yield "any size as machine code", "exact sizes", lambda: loaded(any_size, run_code=True)
    if torch is not None and (args is None or any(hasattr(array, "detach") for array in args)):
        yield "fx", "", lambda: _AsFx(framejit.capture(f, *args), like)
    if shutil.which("ld"):
        yield "C", "", lambda: _FromC(exported(), folder / "c", like)
    if onnxruntime is not None:
        yield "ONNX", "", lambda: _AsOnnx(framejit.capture(f, *args), folder / "f.onnx", like)


def check(case, filename="<program>"):
    """Raises Difference if a way gives another answer than eager; else how many ways answered."""
    framejit.reset()
    control.forget()
    space, answered = namespace_of(case, filename), {}
    f, mixed = space["f"], "float32" in case.source + case.calls[0]
    f.__globals__["__name__"] = "program"

    def arguments(call=0):
        exec(case.calls[call], space)
        return tuple(space["ARGS"])

    @functools.cache
    def eager(call, picture):
        given = arguments(call)
        return picture(f(*given), given)

    def compare(name, way, call, picture, may_refuse):
        given = arguments(call)
        try:
            found = picture(way(*given), given)
        except framejit.Error as error:
            if may_refuse or "a value is none of those" in str(error):
                return
            raise Difference(name, f"call {call} by {name}: {type(error).__name__}: {error}") from error
        except Exception as error:
            raise Difference(name, f"call {call} by {name}: {type(error).__name__}: {error}, and eager returns") from error
        for place, (ours, theirs) in enumerate(zip(found, eager(call, picture), strict=True)):
            # Of float64 by the bounds of float32 where it may have come through functions of that.
            if ours[0].differs(theirs[0], "float32" if mixed and ours[0].dtype == "float64" else None) or ours[1:] != theirs[1:]:
                raise Difference(name, f"call {call} by {name}: result {place} is {ours}, eager gives {theirs}")

    def fails(name, way, call, expected):
        """As eager where the function itself is at hand, else with an error of framejit's or the library's."""
        try:
            way(*arguments(call))
        except Exception as error:
            own = not isinstance(error, framejit.Error)
            if name in (*COMPILED, "capture") and own and type(error) is not type(expected):
                raise Difference(name, f"call {call} by {name}: {error!r}, eager raises {expected!r}") from error
            return
        raise Difference(name, f"call {call} by {name} returns, eager raises {expected!r}")

    with warnings.catch_warnings(), np.errstate(all="ignore"), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        runs, raises = [], {}
        for call in range(len(case.calls)):
            try:
                eager(call, _picture)
                runs.append(call)
            except Exception as error:
                raises[call] = error
        if 0 not in runs:
            return answered
        for name, takes, make in _ways(f, arguments(), pathlib.Path(folder), f(*arguments())):
            picture = _picture if "exact" in takes else _as_onnx_has_them if name == "ONNX" else _values_alone
            try:
                way = make()
            except framejit.Error:
                continue
            except Exception as error:
                raise Difference(name, f"{name} is not made: {type(error).__name__}: {error}") from error
            for _ in range(2):
                # A graph of the library's calls is there to be looked at; C says where an integer is divided by zero.
                compare(name, way, 0, picture, name in ("ONNX", "C", "fx", "capture, level=library"))
            if "layouts" in takes and 1 in runs:
                compare(name, way, 1, picture if name in COMPILED else _values_alone, name not in COMPILED)
            if "sizes" in takes and 2 in runs:
                compare(name, way, 2, picture, name not in COMPILED)
            if 3 in runs:  # other values: other ways of its branches, other numbers of passes
                compare(name, way, 3, picture, name not in COMPILED)
            if 3 in raises:
                fails(name, way, 3, raises[3])
            answered[name] = True
    if framejit.cache_info()["internal_errors"]:
        raise Difference("internal error", "an internal error")
    return answered
