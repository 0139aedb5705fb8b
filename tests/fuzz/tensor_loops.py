"""Random programs of loops over elements of torch's tensors, compiled against CPython, compared to the bit.

`program(seed, "torch")` writes one, `loops.check(case)` compares it: `./run fuzz --kind tensor-loops --lib torch`. Elements are views, what is
computed of them are tensors that several names hold and operators change in place; `_version` of each is compared as well. Some stand beside
NumPy's arrays of the same memory, in attributes and lists; at the end some are changed in place by a tensor with a gradient.
"""
import random

from case import Case
from loops import Lines

SHARES = ["float32"] * 6 + ["float64"] * 4 + ["int64"] * 4 + ["int32", "bool", "float16", "uint8"]
GRADIENTS = 0.06  # of the calls have a tensor that requires a gradient


class Writer(Lines):
    """m, g of rows times columns, x, y, z of rows elements, the ints k, a tensor w without axes; p (an int), q."""

    def __init__(self, random):
        super().__init__(random)
        self.rows, self.columns = random.randint(9, 20), random.randint(2, 5)
        self.loops = []
        self.views, self.numbers = [], ["q", "s"]  # names of tensors without axes or numbers, and of numbers
        self.helpers = random.random() < 0.3
        self.numpy, self.holders = random.random() < 0.2, random.random() < 0.2

    def index(self, size):
        if self.chance(0.02):
            return self.one("100", "-100", "q", "None", "True", ":")
        number = self.one(*self.loops) if self.loops else "p"
        return self.one("0", "-1", "p", number, number, f"{number} - 1", f"({number} + p) % {size}", f"-({number} % {size}) - 1",
                        f"k[{number} % {self.rows}]" if size == self.rows else f"{number} % {size}")

    def element(self):
        """Without axes."""
        if self.chance(0.35):
            name = self.one("m", "g")
            row = self.index(self.rows)
            return self.one(f"{name}[{row}, {self.index(self.columns)}]", f"{name}[{row}][{self.index(self.columns)}]", f"r[{self.index(self.columns)}]")
        names = ["x", "y", "x", "z", *(["o.x", "l[0]", "o.x"] if self.holders else [])]
        return f"{self.one(*names)}[{self.index(self.rows)}]"

    def held(self):
        """An element of NumPy's array, which has the memory of y."""
        return f"b[{self.index(self.rows)}]"

    def tensor(self):
        return self.one(self.element(), self.element(), "w", "t", "u", *self.views)

    def number(self):
        if self.numpy and self.chance(0.2):
            return self.held()
        return self.one("0.5", "2", "1", "-1.25", "3", "True", "0.1", *self.numbers, *self.loops, f"{self.tensor()}.item()", f"float({self.tensor()})", f"int({self.tensor()})",
                        "len(x)", "m.shape[1]", "g.size(0)", "x.numel()", "m.dim()", "w.ndim")

    def expression(self, depth=2):
        if depth <= 0 or self.chance(0.3):
            return self.tensor() if self.chance(0.6) else self.number()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        pick = self.random.random()
        if pick < 0.65:
            return f"({a} {self.one('+', '-', '*', '+', '-', '*', '/', '**', '//')} {b})" if self.chance(0.5) else f"({a} {self.one('+', '-', '*')} {b})"
        if pick < 0.72:
            return f"{self.one('max', 'min')}({a}, {b})"
        if pick < 0.8:
            return self.one(f"abs({a})", f"(-{a})", f"(~{self.tensor()})", f"{a} ** 2", f"{self.tensor()}.abs()", f"math.sqrt(abs({a}))", f"math.cos({a})")
        if pick < 0.88:
            return f"({a} if {self.condition()} else {b})"
        if pick < 0.93 and self.helpers:
            return f"{self.one('h', 'changed')}({self.tensor()}, {b})"
        return self.condition()

    def condition(self):
        a, b = self.tensor(), self.expression(1)
        plain = f"{a} {self.one('>', '<', '<=', '==', '!=')} {b}"
        return self.one(plain, plain, plain, f"({plain}) & ({self.tensor()} > 0)", f"{plain} and {self.tensor()} < 1", f"(not {a})", f"{a}", f"bool({a})", f"{a} > 0 or {self.tensor()}")

    def statement(self, depth=0):
        pick = self.random.random()
        if pick < 0.2:
            self.line(f"{self.one('t', 'u', 't')} = {self.expression()}")
        elif pick < 0.28:
            self.line(self.one("u = t", "t = u", "w = t", f"t = {self.element()}", f"r = m[{self.index(self.rows)}]", "u = r[0]", "t, u = u, t", "a = t", "a, t = t, a"))
        elif pick < 0.42:
            self.line(f"{self.one('t', 'u', 's', 'w', 't')} {self.one('+=', '-=', '*=', '+=', '/=')} {self.expression(1)}")
        elif pick < 0.52:
            self.line(f"{self.one('s', 'n')} {self.one('+=', '=')} {self.one(f'{self.tensor()}.item()', f'float({self.tensor()})', self.number())}")
        elif pick < 0.74:
            self.line(f"{self.element()} {self.one('=', '=', '+=', '-=', '*=')} {self.expression()}")
        elif pick < 0.78:
            if self.numpy and self.chance(0.5):
                self.line(f"{self.held()} {self.one('=', '+=', '*=')} {self.number()}")
                return
            self.line(self.one("n += 1", f"last = {self.one(*self.loops, chr(112))}", "r[0] = t", "r[-1] += 1", "w *= 2", f"m[{self.index(self.rows)}] = 0", f"x[{self.index(self.rows)}].zero_()",
                               f"t = torch.sqrt({self.element()})", "print(end='')" if self.chance(0.2) else "pass"))
        elif pick < 0.92 and depth < 2:
            self.line(f"if {self.condition()}:")
            self.indent += 1
            self.statement(depth + 1)
            if self.chance(0.2):
                self.line(self.one("continue", "break"))
            self.indent -= 1
            if self.chance(0.4):
                self.line("else:")
                self.indent += 1
                self.statement(depth + 1)
                self.indent -= 1
        elif len(self.loops) < 2:
            self.loop(depth + 1)
        else:
            self.line("pass")

    def loop(self, depth=0):
        name = "ij"[len(self.loops)]
        view = None
        pick = self.random.random()
        if pick < 0.7 or (not self.loops and pick < 0.85):
            self.line(f"for {name} in {self.one(f'range({self.rows})', 'range(len(x))', f'range(1, {self.rows} - 1)', f'range(x.shape[0] - 1, -1, -1)', f'range({self.columns})' if depth else 'range(len(y))')}:")
            self.loops.append(name)
        else:
            view = "v"
            self.line(self.one("for v in r:", f"for v in m[{self.index(self.rows)}]:", "for v in x:", "for v in x:", "for v in z:", "for v in x.unbind():", "for v in [*x]:", "for v in tuple(y):"))
            self.views.append("v")
        self.indent += 1
        for _ in range(self.random.randint(1, 4 if depth == 0 else 2)):
            self.statement(depth)
        self.indent -= 1
        if view:
            self.views.remove("v")
        else:
            self.loops.remove(name)


def program(seed, lib):
    """The case of a seed; nothing else decides what it is."""
    generator = random.Random(f"tensor loops {seed}")
    writer = Writer(generator)
    start = generator.choice(["0.0", "0", "w", "x[0]", "torch.tensor(0.5)", "x[1] * 2", "m[0, 0].clone()"])
    writer.line(f"s, n, last, a, r = {generator.choice(['0', '0.0', 'q'])}, 0, 0, 0, m[0]")
    writer.line(f"t = {start}")
    writer.line(f"u = {generator.choice(['t', 't * 1', 'y[2]', '1.0', 'w'])}")
    if writer.numpy:
        writer.line("b = y.numpy()")
    if writer.holders:
        writer.line("o.x, l = y, [x, z]")
    writer.loop()
    if generator.random() < 0.3:
        writer.loop()
    if generator.random() < 0.4:  # who holds the same tensor sees it
        writer.line(generator.choice(["t += 1", "u *= 2", "w += 1", "r[0] = 7"]))
    if generator.random() < 0.15:  # no output of unbind may be changed so
        writer.line("found = [changed_by_gradient(e) for e in (t, u, w, a)]")
    else:
        writer.line("found = None")
    writer.line("return found, s, n, last, t, u, w, a, r, isinstance(t, torch.Tensor) and (t is u, t is w), [e._version for e in (m, g, x, y, z, w)]")
    source = ["import math", "import torch", "OPTIONS = {'retire': True, 'tier': " + generator.choice(["'auto'", "'optimised'"]) + "}", "",
              "def h(e, f):", f"    {generator.choice(['return e + f * 0.5', 'return e if e > f else f', 'return e'])}", "",
              "def changed(e, f):", f"    {generator.choice(['e += 1', 'e *= f', 'f = e - f'])}", "    return e", "",
              "def changed_by_gradient(e):", "    try:", "        return isinstance(e, torch.Tensor) and e.mul_(torch.ones((), requires_grad=True))",
              "    except RuntimeError as error:", "        return str(error)", "", "class Holder:", "    pass", "", "o = Holder()", "", "def f(m, g, x, y, z, k, w, p, q):", *writer.lines]
    kinds = [generator.choice(SHARES) for _ in range(5)]
    layouts = ["c"] * 5 + ["strided", "fortran", "padded"]

    def call(seed, kinds):
        shapes = [(writer.rows, writer.columns)] * 2 + [writer.rows] * 3
        tensors = [f"elements('torch', {shape}, {kind!r}, {seed + i}, {generator.choice(['plain'] * 4 + ['rough', 'edges'])!r}, {generator.choice(layouts)!r})"
                   for i, (shape, kind) in enumerate(zip(shapes, kinds))]
        tensors.append(f"elements('torch', {writer.rows}, {generator.choice(['int64'] * 4 + ['int32', 'float32'])!r}, {seed + 7}, 'plain', 'c').remainder({writer.rows})")
        tensors.append(f"torch.tensor({generator.choice(['0.5', '2', '1.0', 'True'])})")
        text = f"MODE = 'record'\nARGS = [{', '.join(tensors)}, {generator.randint(0, 3)}, {generator.choice(['0.5', '2', '-1.0'])}]"
        if generator.random() < 0.2:
            text += "\n" + generator.choice(["ARGS[3] = ARGS[2]", "ARGS[1] = ARGS[0]", "ARGS[2] = ARGS[0][:, 0]", "ARGS[6] = ARGS[2][1]", "ARGS[3] = ARGS[2].detach()", "ARGS[4] = ARGS[2].expand_as(ARGS[2])"])
        if generator.random() < GRADIENTS:
            text += "\nARGS[2] = ARGS[2].to(torch.float32).requires_grad_()"
        return text

    other = [generator.choice(SHARES) for _ in kinds]
    return Case(lib, "\n".join(source) + "\n", [call(10, kinds), call(20, kinds), call(30, kinds), call(40, other)])
