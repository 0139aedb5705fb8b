"""Random programs of loops whose passes work on arrays and parts of arrays, compiled against CPython, compared to the bit.

`program(seed, "numpy")` writes one, `loops.check(case)` compares it: `./run fuzz --kind array-loops`. Elements are multiples of 1/4, so
that sums are exact in any order, but for the special values of some calls.
"""
import random

from case import Case
from held import held_elsewhere
from loops import Lines
from writers import Writers

MODES = ["record"] * 6 + ["error", "raise", "ignore"]


class Writer(Lines):
    """Shapes are known here: k elements, rows times columns, and parts of those by slices of constants and of the loop's number."""

    def __init__(self, random):
        super().__init__(random)
        self.loops = []
        self.k, self.rows, self.columns = random.randint(6, 12), random.randint(3, 5), random.randint(4, 6)
        self.made = {"v": [], "m": []}  # names of arrays of k elements, and of rows times columns, that the function has made
        self.scalars = ["q", "s", "t"]
        self.writers = Writers(random)

    def number(self):
        return self.one(*self.loops) if self.loops else "p"

    def vector(self):
        return self.one("v", "w", "u", *self.made["v"] * 2)

    def matrix(self):
        return self.one("m", "g", *self.made["m"] * 2)

    def scalar(self):
        element = f"{self.vector()}[{self.number()} % {self.k}]" if self.chance(0.7) else f"{self.matrix()}[{self.number()} % {self.rows}, {self.one('0', '-1', '1')}]"
        return self.one("0.5", "2", "1.0", "-1.25", "3", self.number(), *self.scalars, element, element, self.reduction() if self.chance(0.3) else element)

    def reduction(self):
        array = self.one(self.part("v"), self.part("m"), self.vector(), self.matrix())
        if self.chance(0.15):
            array = f"({self.expression(self.one('v', 'm'), 1)})"
        name = self.one("sum", "max", "min", "argmax", "argmin", "mean", "sum", "max")
        return f"{array}.{name}()" if self.chance(0.5) else f"np.{name}({array})"

    # Parts, by shape: "v" (k,), "m" (rows, columns), "r" (columns,), "c" (rows,), "i" (rows - 2, columns - 2), and "4": four elements.

    def part(self, shape):
        n = self.number()
        if shape == "v":
            return self.vector() + self.one("", "", "[:]", "[::-1]", "[0:]", f"[:{self.k}]", "[-100:100]")
        if shape == "m":
            return self.one(self.matrix(), self.matrix(), f"{self.matrix()}[:, :]", f"{self.matrix()}[::-1]", f"{self.matrix()}[...]")
        if shape == "r":
            return self.one(f"{self.matrix()}[{n} % {self.rows}]", f"{self.matrix()}[-1, :]", f"{self.vector()}[:{self.columns}]", f"{self.vector()}[-{self.columns}:]",
                            f"{self.matrix()}[{self.one('0', '1')}][:]")
        if shape == "c":
            return self.one(f"{self.matrix()}[:, {n} % {self.columns}]", f"{self.matrix()}[:, {self.one('0', '-1')}]", f"{self.vector()}[:{self.rows}]",
                            f"{self.matrix()}.T[{self.one('0', '1')}]")
        if shape == "i":
            row, column = self.one("1:-1", ":-2", "2:"), self.one("1:-1", ":-2", "2:")
            return f"{self.matrix()}[{row}, {column}]"
        start = f"{n} % {self.k - 4}"
        return self.one(f"{self.vector()}[{start}:{start} + 4]", f"{self.vector()}[1:5]", f"{self.vector()}[:4]", f"{self.vector()}[-4:]", f"{self.vector()}[4:0:-1]",
                        f"{self.vector()}[{self.one(0, 1)}:8:2][:4]" if self.k >= 8 else f"{self.vector()}[2:6]")

    def operand(self, shape):
        if shape in ("m", "i") and self.chance(0.2):
            rows, columns = ("r", "c") if shape == "m" else (None, None)
            if rows:
                return self.one(self.part(rows), f"{self.part(columns)}[:, None]", f"{self.part(rows)}[None, :]", f"{self.matrix()}[:, 1:2]", f"{self.matrix()}[0:1]")
        if self.chance(0.02):
            return self.part(self.one("v", "m", "r", "4"))  # of another shape, most likely
        return self.part(shape)

    def expression(self, shape, depth=2):
        if depth <= 0 or self.chance(0.25):
            return self.operand(shape)
        x = self.expression(shape, depth - 1)
        pick = self.random.random()
        if pick < 0.62:
            other = self.scalar() if self.chance(0.4) else self.expression(shape, depth - 1)
            operator = self.one("+", "-", "+", "-", "*", "/" if self.chance(0.4) else "-")
            if operator == "*":
                other = self.one("0.5", "0.25", "2", "-1", self.part(shape) if self.chance(0.3) else "0.5")
            return f"({x} {operator} {other})" if self.chance(0.8) else f"({other} {operator} {x})"
        if pick < 0.7:
            return f"np.{self.one('maximum', 'minimum')}({x}, {self.one(self.scalar(), self.operand(shape))})"
        if pick < 0.78:
            return f"np.where({x} {self.one('<', '>', '<=', '==')} {self.one(self.scalar(), self.operand(shape))}, {self.operand(shape)}, {self.one('0.0', '1', self.operand(shape))})"
        if pick < 0.84:
            return self.one(f"np.abs({x})", f"(-{x})", f"np.sqrt(np.abs({self.operand(shape)}))", f"abs({x})")
        if pick < 0.88:
            return f"np.{self.one('add', 'subtract', 'multiply')}({x}, {self.one('1', self.operand(shape))})"
        if pick < 0.92:
            return f"({self.operand(shape)} * 0.5) ** 2"
        return f"({x} {self.one('>', '<', '!=')} {self.operand(shape)})"

    def statement(self):
        pick = self.random.random()
        shape = self.one("v", "m", "r", "c", "i", "4", "i", "v")
        if self.writers.names and self.chance(0.2):
            array = self.one(self.vector(), self.part(self.one("v", "r", "4", "c")))
            call = self.writers.call(array, f"{self.number()} % 4", self.scalar())
            self.line(self.one(call, call, f"s = {call}", f"t = {call} or 0"))
        elif pick < 0.28:
            self.line(f"{self.target(shape)} = {self.one(self.expression(shape), self.expression(shape), self.scalar())}")
        elif pick < 0.46:
            self.line(f"{self.target(shape)} {self.one('+=', '-=', '+=', '*=')} {self.one('0.5', '0.25', self.scalar()) if self.chance(0.4) else self.expression(shape, 1)}")
        elif pick < 0.6:
            shape = self.one("v", "m")
            names = self.made[shape]
            name = self.one(*names) if names else self.one("v", "w") if shape == "v" else "g"
            make = self.one(self.expression(shape), self.expression(shape), f"{self.part(shape)}.copy()", f"np.zeros_like({self.part(shape)})", f"np.copy({self.part(shape)})",
                            f"np.{self.one('zeros', 'ones')}({self.k if shape == 'v' else (self.rows, self.columns)})")
            self.line(f"{name} = {make}")
        elif pick < 0.66:
            shape = self.one("v", "m")
            names = self.made[shape] or (["v", "w"] if shape == "v" else ["m", "g"])
            a, b = self.one(*names), self.one(*names)
            self.line(self.one(f"{a}, {b} = {b}, {a}", f"{a} = {b}", f"{a}, {b} = {b}, {self.expression(shape, 1)}"))
        elif pick < 0.78:
            self.line(f"{self.one('s', 't')} = {self.one(self.scalar(), self.reduction(), self.reduction())}")
        elif pick < 0.83:
            row = self.one("x", "y")
            self.line(f"{row} = {self.part(self.one('r', '4', 'c'))}")
            self.line(self.one(f"{row}[1:] += {self.one('1', '0.5')}", f"{row}[0] = {self.scalar()}", f"s = {row}.sum()", f"{row}[:2] = {row}[1:3]"))
        elif pick < 0.88:
            self.line(f"{self.vector()}[{self.number()} % {self.k}] = {self.scalar()}")
        elif pick < 0.95:
            self.line(f"if {self.one(self.scalar(), self.reduction())} {self.one('>', '<', '<=')} {self.one('0', '1', 's')}:")
            self.indent += 1
            self.statement()
            if self.chance(0.2):
                self.line(self.one("continue", "break", "print('at', s)", "return s, t", "raise ValueError(s)"))
            self.indent -= 1
            if self.chance(0.3):
                self.line("else:")
                self.indent += 1
                self.statement()
                self.indent -= 1
        else:
            self.line(self.one(f"if {self.number()} % 7 == 3: print(s, {self.vector()}[:2])", f"m[{self.number()} % {self.rows}], g[0] = g[1], m[0]",
                               f"s = h({self.part('r')}, s)", f"kept.append({self.one(self.part('r'), self.vector())})"))

    def target(self, shape):
        while True:
            part = self.part(shape)
            if "[" in part:
                return part
            if self.chance(0.5):
                return part + "[...]"

    def loop(self, depth):
        name = f"i{depth}"
        trips = self.random.randint(3, 8) if depth else self.random.randint(12, 45)
        form = self.one(f"for {name} in range({trips}):", f"for {name} in range({trips}):", f"for {name} in range({trips}, 0, -1):", f"while {name} < {trips}:",
                        f"for {name}, e in enumerate(v):", f"for {name} in range(len(g)):")
        if form.startswith("while"):
            self.line(f"{name} = 0")
        self.line(form)
        self.indent += 1
        if form.startswith("while"):
            self.line(f"{name} += 1")
        self.loops.append(name)
        for _ in range(self.random.randint(1, 3)):
            self.statement()
        if depth < 1 and self.chance(0.4):
            self.loop(depth + 1)
        self.loops.pop()
        self.indent -= 1


def program(seed, lib):
    """The case of a seed; nothing else decides what it is."""
    generator = random.Random(f"array loops {seed}")
    writer = Writer(generator)
    kinds = [generator.choice(["float64"] * 4 + ["float32", "int64", "int32", "uint8", "bool", "float16"]) for _ in range(5)]
    writer.line("s, t, kept = 0.0, q, []")
    for shape, stem in (("v", "a"), ("m", "b")):
        for number in range(generator.randint(0, 2)):
            size = writer.k if shape == "v" else (writer.rows, writer.columns)
            writer.line(f"{stem}{number} = {generator.choice([f'np.zeros({size})', f'np.ones({size})', ('v' if shape == 'v' else 'm') + '.copy()', ('w' if shape == 'v' else 'g') + ' + 1'])}")
            writer.made[shape].append(f"{stem}{number}")
    writer.loop(0)
    if generator.random() < 0.3:
        writer.loop(0)
    names = [*writer.made["v"], *writer.made["m"]]
    writer.line(f"return {', '.join(['s', 't', 'kept', *names])}")
    lines, setup = held_elsewhere(random.Random(f"called {seed}"), "v, w, u, m, g, p, q", "\n".join(writer.lines))
    source = ["import numpy as np", "OPTIONS = {'retire': True}", "", "def h(x, y):", f"    {generator.choice(['return y + x[0]', 'return (x * 0.5).sum()', 'return y if y > x.max() else x[1]'])}", "",
              *writer.writers.source, *lines]
    layouts = ["c"] * 8 + ["strided", "fortran", "padded", "reversed", "readonly"]

    def call(seed, kinds, values):
        shapes = [writer.k] * 3 + [(writer.rows, writer.columns)] * 2
        arrays = [f"elements('numpy', {shape}, {kind!r}, {seed + i}, {values!r}, {generator.choice(layouts)!r})" for i, (shape, kind) in enumerate(zip(shapes, kinds))]
        given = f"[{', '.join(arrays)}, {generator.randint(1, 5)}, {generator.choice(['0.5', '2', '-1.0', 'np.float32(0.5)'])}]"
        text = f"MODE = {generator.choice(MODES)!r}\nARGS = {given}"
        if generator.random() < 0.15:
            text += "\nARGS[1] = ARGS[0][::-1]\nARGS[4] = ARGS[3]"  # arrays that overlap
        return "\n".join([text, *setup])

    values = generator.choice(["plain", "plain", "edges"])
    other = [generator.choice(["float64", "float32", "int64"]) for _ in kinds]
    return Case(lib, "\n".join(source) + "\n", [call(10, kinds, "plain"), call(20, kinds, "plain"), call(30, kinds, values), call(40, other, "plain")])
