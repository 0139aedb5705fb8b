"""A seeded generator of small Python functions over arrays: text, so that a failing one can be pasted into a test.

`program(seed, lib)` returns (source, arguments): a function `f` of up to three arrays, an int and a float, made of
statements that both libraries understand, with branches, loops, prints, helper calls, in-place writes and views.
"""
import random

import numpy as np

UNARY = ["-{a}", "abs({a})", "lib.exp(lib.minimum({a}, {a} * 0 + 3))", "lib.sqrt(abs({a}))", "lib.tanh({a})", "lib.sin({a})",
         "({a} > 0) * {a}", "{a} ** 2", "{a}.T.T", "{a}[::-1]" , "{a}[1:]", "{a} * k", "{a} + s", "lib.where({a} > s, {a}, -{a})",
         "{a}.reshape(-1)", "{a} / 2", "2 - {a}"]
BINARY = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / (abs({b}) + 1)", "lib.maximum({a}, {b})", "lib.minimum({a}, {b})",
          "lib.where({a} < {b}, {a}, {b} * 2)"]
REDUCE = ["{a}.sum()", "{a}.mean()", "{a}.max()", "{a}.sum({axis})", "{a}.mean({axis})", "{a}.min()"]


class _Writer:
    def __init__(self, seed, lib):
        self.random = random.Random(seed)
        self.lib = lib
        self.lines = []
        self.shapes = {}
        self.count = 0

    def emit(self, indent, text):
        self.lines.append("    " * indent + text)

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def pick(self, shape=None):
        names = [n for n, s in self.shapes.items() if s is not None and (shape is None or s == shape)]
        return self.random.choice(names) if names else None

    def expression(self):
        r = self.random
        a = self.pick()
        shape = self.shapes[a]
        if r.random() < 0.45:
            same = self.pick(shape)
            return r.choice(BINARY).format(a=a, b=same), shape
        template = r.choice(UNARY)
        if "[::-1]" in template and self.lib == "torch":
            template = "{a}.flip(0)" if shape else "-{a}"
        if ("[1:]" in template or "[::-1]" in template or ".flip" in template) and not shape:
            template = "-{a}"
        if ".T" in template and self.lib == "torch" and len(shape) != 2:
            template = "-{a}"
        text = template.format(a=a)
        if "[1:]" in template:
            shape = (max(shape[0] - 1, 0),) + shape[1:]
        if "reshape" in template:
            shape = (int(np.prod(shape, dtype=int)),)
        return text, shape

    def statement(self, indent, depth):
        r = self.random
        choice = r.random()
        if choice < 0.58 or depth > 2:
            text, shape = self.expression()
            name = self.name()
            self.emit(indent, f"{name} = {text}")
            self.shapes[name] = shape
        elif choice < 0.68:
            a = self.pick()
            if self.shapes[a] and 0 not in self.shapes[a]:
                name = self.name()
                axis = r.randrange(len(self.shapes[a]))
                template = r.choice(REDUCE)
                self.emit(indent, f"{name} = {template.format(a=a, axis=axis)}")
                shape = self.shapes[a]
                self.shapes[name] = shape[:axis] + shape[axis + 1:] if "{axis}" in template else ()
        elif choice < 0.74:
            a = self.pick()
            if self.shapes[a]:
                self.emit(indent, r.choice([f"{a} += 1", f"{a} *= k", f"{a}[0] = s", f"{a}[1:] -= 2"]) if self.shapes[a][0] > 0 else f"{a} += 1")
        elif choice < 0.80:
            self.emit(indent, f'print("at", {self.count}, k)')
        elif choice < 0.88:
            a = self.pick()
            condition = r.choice(["k > 2", "s < 0.5", f"{a}.sum() > 0", f"{a}.ndim == 2"])
            self.emit(indent, f"if {condition}:")
            before = dict(self.shapes)
            self.block(indent + 1, depth + 1, 2)
            self.shapes = dict(before)
            if r.random() < 0.5:
                self.emit(indent, "else:")
                self.block(indent + 1, depth + 1, 2)
                self.shapes = before
        elif choice < 0.95:
            variable = self.name()
            self.emit(indent, f"for {variable} in range({r.randrange(1, 4)}):")
            before = dict(self.shapes)
            a = self.pick()
            self.emit(indent + 1, f"{a} = {a} * 0.5 + {variable}")
            self.block(indent + 1, depth + 1, 1)
            self.shapes = before
        else:
            a = self.pick()
            name = self.name()
            self.emit(indent, f"{name} = helper({a}, k)")
            self.shapes[name] = self.shapes[a]

    def block(self, indent, depth, statements):
        start = len(self.lines)
        for _ in range(self.random.randrange(1, statements + 1)):
            self.statement(indent, depth)
        if len(self.lines) == start:
            self.emit(indent, "pass")


def program(seed, lib):
    """(source text, arguments as NumPy arrays and numbers)."""
    writer = _Writer(seed, lib)
    r = writer.random
    shape = r.choice([(3, 4), (5,), (2, 3, 4), (4, 4), (1, 3), (16, 33), (0, 3), (7,)])
    dtype = r.choice(["float32", "float32", "float64"])
    writer.shapes = {"x": shape, "y": shape, "z": shape}
    writer.block(1, 0, 8)
    results = [n for n in writer.shapes if n.startswith("v")][-3:] or ["x"]
    source = "def helper(a, k):\n    return a * 2 if k > 1 else a - 1\n\n\ndef f(x, y, z, k, s):\n" + "\n".join(writer.lines)
    source += f"\n    return {', '.join(results)}\n"
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal(shape).astype(dtype) for _ in range(3)]
    return source, (*arrays, r.randrange(0, 5), r.choice([0.25, 0.75, -1.5]))


def compile_source(source, lib_module, seed):
    """The function `f` of a program; its lines can be shown in tracebacks and breaks."""
    import linecache

    filename = f"<program {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace = {"lib": lib_module}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["f"]
