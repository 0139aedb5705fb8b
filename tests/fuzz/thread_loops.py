"""Random programs of loops over framejit.prange, compiled against CPython, compared to the bit.

`program(seed, "numpy")` writes one, `loops.check(case)` compares it: `./run fuzz --kind thread-loops`. Most passes are independent, and each
program says so where it is not (`# dependent`): those have to be seen, and run in order. Elements are multiples of 1/4, so that sums are
exact in any order. Tier "optimised": several threads run the passes however few they are.
"""
import random

from case import Case
from loops import Lines


class Writer(Lines):
    """m, g of rows times columns, v, w of rows elements, u of columns, o of twice as many rows, ints k and l of rows; p (an int), q."""

    def __init__(self, random):
        super().__init__(random)
        # Those without loops of their own are divided from 2,048 passes on.
        self.rows = random.randint(2, 90) if random.random() < 0.6 else random.randint(2048, 3500)
        self.columns = random.randint(4, 6)
        self.numbers = ["i"]
        self.temporaries = []
        # What a pass may work on as its own, and what all may read.
        self.own = random.sample(["m", "v", "o", "g", "w"], random.randint(1, 3))
        self.read_only = [name for name in ("m", "g", "v", "w") if name not in self.own]
        self.sums, self.extremes = [], []
        self.column = random.random() < 0.15 and "m" in self.own  # passes go along the other axis

    def element(self, name):
        """An element that any pass may read."""
        number = self.one(*self.numbers)
        if name in ("m", "g"):
            return f"{name}[{number} % {self.rows}, {self.one('0', '-1', f'{number} % {self.columns}')}]"
        return f"{name}[{self.one(number, f'{number} * 3 + p', '-1', '0')} % {self.rows}]"

    def own_element(self, name):
        if name == "o":
            return self.one("o[i]", "o[i]", "o[i + 0]")
        if name in ("m", "g"):
            if self.column and name == "m":
                return self.one("m[0, i]", "m[-1, i]", f"m[{self.one(*self.numbers)} % {self.rows}, i]")
            return f"{name}[i, {self.one('0', '-1', f'{self.one(*self.numbers)} % {self.columns}')}]"
        return f"{name}[i]"

    def value(self):
        element = self.own_element(self.one(*self.own)) if self.chance(0.35) else self.element(self.one(*self.read_only)) if self.read_only else "u[0]"
        return self.one("0.5", "2", "1.0", "-1.25", "q", self.one(*self.numbers), element, element, element, *self.temporaries, f"u[{self.one(*self.numbers)} % {self.columns}]")

    def expression(self, depth=2):
        if depth <= 0 or self.chance(0.25):
            return self.value()
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        pick = self.random.random()
        if pick < 0.6:
            return f"({x} {self.one('+', '-', '+')} {y})"
        if pick < 0.75:
            return f"({x} * {self.one('0.5', '2', '-1', '0.25')})"
        if pick < 0.85:
            return f"{self.one('max', 'min')}({x}, {y})"
        if pick < 0.95:
            return f"({x} if {y} {self.one('>', '<', '<=')} {self.value()} else {self.value()})"
        return self.one(f"abs({x})", f"(-{x})", f"h({x}, {y})")

    def row(self, name):
        if self.column and name == "m":
            return self.one("m[:, i]", "m[1:, i]", "m[::-1, i]")
        return f"{name}{self.one('[i]', '[i, :]', '[i, 1:]', '[i, ::2]', '[i][:3]')}"

    def statement(self, depth=0):
        pick = self.random.random()
        if pick < 0.22:
            name = self.one("t", "r", "t")
            self.line(f"{name} = {self.expression()}")
            if depth == 0 and name not in self.temporaries:
                self.temporaries.append(name)
        elif pick < 0.5:
            self.line(f"{self.own_element(self.one(*self.own))} {self.one('=', '=', '+=', '-=', '*=') if self.chance(0.8) else '='} {self.expression()}")
        elif pick < 0.6:
            rows = [name for name in self.own if name in ("m", "g")]
            if rows:
                name = self.one(*rows)
                part = self.row(name)
                self.line(f"{part} {self.one('=', '+=', '*=')} {self.one('0.5', self.value(), f'{part} + 1', f'np.abs({part})')}")
            else:
                self.line("pass")
        elif pick < 0.78 and self.sums:
            name, operator = self.one(*self.sums)
            self.line(f"{name} {operator} {self.expression(1) if name == 's' else self.one('1', 'i', 'i % 3', '-2') if name == 'n' else self.one('0.5', '2.0', '-1.0')}")
        elif pick < 0.84 and self.extremes:
            if self.chance(0.5):
                self.line(self.one("best = max(best, e)", "best = min(best, e)"))
            else:
                self.line(f"if {self.one('e > best', 'best < e', 'e < best', 'e >= best')}:")
                self.line(f"    best = e{self.one('', '', '', '', chr(10) + '    ' * (self.indent + 1) + 'last = i')}")
        elif pick < 0.92 and depth < 2:
            self.line(f"if {self.expression(1)} {self.one('>', '<', '<=')} {self.one('0', '1', '2.5')}:")
            self.indent += 1
            self.statement(depth + 1)
            if self.chance(0.15):
                self.line("continue")
            self.indent -= 1
            if self.chance(0.4):
                self.line("else:")
                self.indent += 1
                self.statement(depth + 1)
                self.indent -= 1
        elif depth < 1 and "j" not in self.numbers:
            self.line(self.one(f"for j in range({self.columns}):", "for j in range(len(u)):", "for j in framejit.prange(3):"))
            self.indent += 1
            self.numbers.append("j")
            for _ in range(self.random.randint(1, 2)):
                self.statement(depth + 1)
            self.numbers.remove("j")
            self.indent -= 1
        else:
            self.line("pass")

    def dependent(self):
        """What one pass leaves for another."""
        array = self.one(*self.own)
        before = {"m": "m[i - 1, 0]", "g": "g[i - 1, 0]"}.get(array, f"{array}[i - 1]")
        mine = {"m": "m[i, 0]", "g": "g[i, 0]"}.get(array, f"{array}[i]")
        self.line(self.one(f"{mine} = {before} + 1", "s = s * 0.5 + i", f"{mine} = s", f"{before} = {mine} - 1", "if i % 3 == 1: last = i", "s = q - s", "x = s",
                           f"{mine} += {array}[{'0, 0' if array in 'mg' else '0'}]", "if s > 4: n += 1", "if n == 7: break") + "  # dependent")

    def loop(self):
        limit = self.columns if self.column else self.rows
        number = self.one(f"framejit.prange({limit})", f"framejit.prange({limit})", f"framejit.prange(0, {limit})", f"framejit.prange(1, {limit})", f"prange({limit})",
                          f"prange(0, {limit}, 2)", f"framejit.prange({limit} - 1, -1, -1)", f"prange(p, {limit})", f"framejit.prange(min({limit}, len(v)))")
        self.line(f"for i in {number}:")
        self.indent += 1
        if "best" in self.extremes:
            self.line(f"e = {self.own_element(self.one(*self.own))}")
        for _ in range(self.random.randint(1, 5)):
            self.statement()
        if self.chance(0.2):
            self.dependent()
        self.indent -= 1
        self.temporaries.clear()


def program(seed, lib):
    """The case of a seed; nothing else decides what it is."""
    generator = random.Random(f"thread loops {seed}")
    writer = Writer(generator)
    kinds = [generator.choice(["float64"] * 5 + ["float32", "int64", "int32"]) for _ in range(6)]
    start = generator.choice(["0", "0.0", "q", "np.float64(2)", "np.float32(1)"])
    writer.line(f"s, n, c, best, t, r, e, x, last = {start}, {generator.choice(['0', 'p', 'np.int64(3)'])}, 1.0, v[0], 0.5, 0, 0, 0, 0")
    writer.sums = generator.sample([("s", "+="), ("s", "-="), ("n", "+="), ("c", "*=")], generator.randint(0, 3))
    writer.extremes = ["best"] * (generator.random() < 0.3)
    writer.loop()
    if generator.random() < 0.25:
        writer.line(f"for k in range({generator.randint(2, 3)}):")
        writer.indent += 1
        writer.loop()
        writer.indent -= 1
    writer.line(f"return s, n, c, best, last{generator.choice(['', ', x', ', i', ', t'])}")
    source = ["import numpy as np", "import framejit", "from framejit import prange", "OPTIONS = {'retire': True, 'tier': 'optimised'}", "",
              "def h(x, y):", f"    {generator.choice(['return x + y * 0.5', 'return x if x > y else y'])}", "", "def f(m, g, v, w, o, u, p, q):", *writer.lines]
    layouts = ["c"] * 6 + ["strided", "fortran", "padded", "reversed"]

    def call(seed, kinds):
        shapes = [(writer.rows, writer.columns)] * 2 + [writer.rows] * 2 + [2 * writer.rows + 1, writer.columns]
        arrays = [f"elements('numpy', {shape}, {kind!r}, {seed + i}, 'plain', {generator.choice(layouts)!r})" for i, (shape, kind) in enumerate(zip(shapes, kinds))]
        text = f"MODE = 'record'\nARGS = [{', '.join(arrays)}, {generator.randint(0, 3)}, {generator.choice(['0.5', '2', '-1.0'])}]"
        if generator.random() < 0.15:
            text += f"\nARGS[{generator.choice(['1', '1', '0'])}] = ARGS[{generator.choice(['0', '1'])}]{generator.choice(['', '[::-1]'])}"  # arrays that overlap
        return text

    other = [generator.choice(["float64", "float32", "int64"]) for _ in kinds]
    return Case(lib, "\n".join(source) + "\n", [call(10, kinds), call(20, kinds), call(30, kinds), call(40, other)])
