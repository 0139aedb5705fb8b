"""Random programs of loops whose passes read, change and grow Python's lists, compiled against CPython, compared to the bit.

`program(seed, "numpy")` writes one, `loops.check(case)` compares it: `./run fuzz --kind list-loops`. Lists may be one object by two
names, hold numbers of several types, None, text and ints of any size, and change what they hold from call to call.
"""
import random

from case import Case
from held import held_elsewhere
from loops import Lines
from writers import Writers

# What a list is filled with, by share; the last ones end a region, or keep one from being made.
ITEMS = {
    "floats": "[{seed} * 0.25 + i * 0.5 for i in range({n})]",
    "ints": "[(i * 7 + {seed}) % 11 - 3 for i in range({n})]",
    "bools": "[(i + {seed}) % 3 == 0 for i in range({n})]",
    "mixed": "[i * 0.5 if (i + {seed}) % 3 else i for i in range({n})]",
    "ints and bools": "[i % 5 if (i + {seed}) % 4 else i % 8 == 0 for i in range({n})]",
    "large": "[(i - 2) * 10 ** 9 * {seed} + i for i in range({n})]",
    "huge": "[2 ** (i * 9) - {seed} for i in range({n})]",
    "edges": "[0.0, -0.0, float('inf'), float('nan'), -1.5, 1e308, 2.0, 3.5][:{n}] * 2",
    "zeros": "[0] * {n}",
    "nones": "[None if i % 5 == 4 else i * 0.5 for i in range({n})]",
    "text": "[i * 0.5 for i in range({n} - 1)] + ['x']",
    "scalars": "[np.float64(i) if i % 3 == 0 else i * 0.5 for i in range({n})]",
    "empty": "[]",
    "other": "tuple(i * 0.5 for i in range({n}))",
}
SHARES = ["floats"] * 9 + ["ints"] * 8 + ["bools", "mixed", "mixed", "ints and bools", "large", "large", "huge", "edges", "zeros", "zeros", "nones", "text", "scalars", "empty", "other"]
TABLES = ["[[(i + {seed}) * 0.5 - j for j in range({m})] for i in range({n})]", "[[(i * 3 + j) % 7 for j in range({m})] for i in range({n})]",
          "[[0.0] * {m}] * {n}", "[list(range(i)) for i in range({n})]", "[[j * 0.5 if i % 2 else j for j in range({m})] for i in range({n})]",
          "[[i * 0.5] * {m} if i != 2 else None for i in range({n})]", "[(0.5,) * {m} for i in range({n})]"]
TABLE_SHARES = TABLES[:2] * 4 + TABLES


class Writer(Lines):
    """Lists x, y, z of some length, the table g of rows, the array v; numbers p (an int) and q."""

    def __init__(self, random):
        super().__init__(random)
        self.loops, self.made = [], []
        self.scalars = ["s", "t", "u"]
        self.writers = Writers(random)

    def list(self):
        return self.one("x", "y", "x", "y", "z", *self.made)

    def index(self, name):
        if self.chance(0.02):
            return self.one("100", "-100", "q", "s", "None", "0.0")
        number = self.one(*self.loops) if self.loops else "p"
        if self.chance(0.1):
            return self.one("0", "-1", "1", "True", "-2", "p")
        if self.chance(0.1):
            return self.one(number, f"{number} - 1")
        return self.one(f"{number} % len({name})", f"{number} % len({name})", f"-({number} % len({name})) - 1", f"({number} * p + 1) % len({name})")

    def row(self):
        return f"g[{self.one(*self.loops) if self.loops else 'p'} % len(g)]" if self.chance(0.9) else self.one("g[0]", "g[-1]")

    def element(self):
        if self.chance(0.25):
            row = self.row()
            return f"{row}[{self.index(row)}]"
        if self.chance(0.1):
            return f"v[{self.index('v')}]"
        name = self.list()
        return f"{name}[{self.index(name)}]"

    def scalar(self):
        return self.one("0.5", "2", "1", "-1.25", "3", "True", *self.loops, *self.scalars, "p", "q", self.element(), self.element(), self.element(), f"len({self.list()})")

    def expression(self, depth=2):
        if depth <= 0 or self.chance(0.3):
            return self.scalar()
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        pick = self.random.random()
        if pick < 0.6:
            operator = self.one("+", "-", "+", "*")
            return f"({x} {operator} {self.one('0.5', '2', '-1', 'q') if operator == '*' else y})"
        if pick < 0.7:
            return f"({x} {self.one('//', '%', '/')} {self.one('7', '3', '2.5', 'p', self.scalar())})"
        if pick < 0.8:
            return f"{self.one('min', 'max')}({x}, {y})"
        if pick < 0.82:
            return self.masked(x)
        if pick < 0.86:
            return self.one(f"abs({x})", f"(-{x})", f"int({self.scalar()})", f"float({self.scalar()})", f"h({self.list()}, {self.scalar()})")
        if pick < 0.9:
            return f"({x} if {self.condition()} else {y})"
        return f"({x} {self.one('>', '<', '==', '!=')} {y})"

    def masked(self, x):
        """Low bits of an int, of 64 bits or more before."""
        y = self.one("p", "7", "0x9E3779B97F4A7C15", "-3", "2**63", "1103515245", *self.loops, *self.scalars)
        made = self.one(f"{x} * {y}", f"{x} + {y}", f"{x} << {self.one('13', '5', '70', 'p', *self.loops)}", f"{x} * {y} + {self.one('p', '12345', '2**64')}", f"{x} ^ {y} << 7",
                        f"{y} - {x}", f"({x} | {y}) * {y}")
        taken = f"({made}) {self.one('& 0xFFFFFFFFFFFFFFFF', '& 0xFFFFFFFF', '% 2**64', '& M', '% 2**32', '& 0x7FFFFFFFFFFFFFFF', '& -1', '% 2**63', '& 255', '% 10**9')}"
        return self.one(f"({taken})", f"({taken})", f"(({taken}) >> {self.one('33', '5', 'p', '0', '64')})", f"(({taken}) / 2**{self.one('64', '32', '63')})",
                        f"(({taken}) % {self.one('p', '1000', 'len(x)')})", f"(({taken}) // {self.one('p', '3', '2**62')})", f"(({taken}) ^ {x})", f"-({taken})", f"~({taken})",
                        f"int(({taken}) < {self.one('2**63', x, '0.5', '5')})", f"float({taken})")

    def condition(self):
        name = self.list()
        if self.chance(0.1):
            return self.one(f"{self.masked(self.scalar())} {self.one('<', '>', '==')} v[{self.index('v')}]", f"{self.scalar()} in {{0.5, 1, 3, -1.25}}", f"np.isnan({self.scalar()})",
                            f"np.abs(u) > {self.scalar()}", f"v[{self.index('v')}] in {{0.5, 2, 7}}")
        return self.one(f"{self.scalar()} {self.one('<', '>', '<=', '==')} {self.scalar()}", f"{self.element()} {self.one('<', '>')} {self.element()}",
                        f"{self.element()} {self.one('<', '>')} {self.element()}", name, f"not {name}", f"{name} is {self.list()}", f"len({name}) > {self.one('3', '40')}",
                        f"{self.element()} is None", f"{self.scalar()} and {self.element()}", f"{name} or {self.scalar()} > 1")

    def place(self):
        name = self.row() if self.chance(0.2) else self.list()
        return f"{name}[{self.index(name)}]"

    def statement(self):
        pick = self.random.random()
        if self.writers.names and self.chance(0.2):
            name = self.row() if self.chance(0.2) else self.list()
            call = self.writers.call(name, self.index(name), self.expression(1))
            self.line(self.one(call, call, f"{self.one(*self.scalars)} = {call}", f"{self.place()} = {call}"))
        elif pick < 0.3:
            self.line(f"{self.place()} = {self.expression()}")
        elif pick < 0.42:
            self.line(f"{self.place()} {self.one('+=', '-=', '+=')} {self.one('0.5', '1', self.scalar())}")
        elif pick < 0.54:
            self.line(f"{self.one(*self.scalars)} = {self.expression()}")
        elif pick < 0.6:
            self.line(f"{self.one(*self.scalars)} += {self.element()}")
        elif pick < 0.66:
            a, b = self.place(), self.place()
            self.line(f"{a}, {b} = {b}, {a}")
        elif pick < 0.72:
            self.line(f"{self.list()}.append({self.expression(1)})")
        elif pick < 0.75:
            name = self.list()
            self.line(self.one(f"if len({name}) > 2: {self.one(*self.scalars)} = {name}.pop()", f"s = {name}.pop()", f"if {name}: {name}.pop()"))
        elif pick < 0.79:
            self.line(self.one("x, y = y, x", "z = x", "y = z", f"z = {self.row()}", f"z = {self.row()}", "x = x"))
        elif pick < 0.84:
            self.make()
        elif pick < 0.86:
            self.line(self.one(f"{self.list()}.extend({self.row()}[:2])", f"{self.list()}.insert(0, s)", f"del {self.place()}", f"{self.list()}.reverse()", "z = x[:9] + y[:9]", f"{self.list()}[:2] = [s, t]", f"s = sum({self.row()})",
                               f"if {self.one(*self.loops)} % 9 == 5: print(s, {self.list()}[:3])", f"v[{self.index('v')}] = {self.scalar()}"))
        elif pick < 0.94:
            self.line(f"if {self.condition()}:")
            self.indent += 1
            self.statement()
            if self.chance(0.15):
                self.line(self.one("continue", "break", "print('at', s)", "return s, t", "raise ValueError(s)"))
            self.indent -= 1
            if self.chance(0.3):
                self.line("else:")
                self.indent += 1
                self.statement()
                self.indent -= 1
        else:
            pick, (a, b) = self.random.random(), (self.place(), self.place())
            if pick < 0.5:
                self.line(f"{self.one(*self.scalars)}, {a} = {b}, {self.scalar()}")
                return
            name = self.one("s", "t", "u")
            self.line(f"{name} {self.one('*', '+', '<<', '^', '-')}= {self.one('3', '1099511628211', 'p', *self.loops)}")
            self.line(f"{name} {self.one('&= 0xFFFFFFFFFFFFFFFF', '%= 2**64', '&= M', '&= 0xFFFFFFFF', '%= p', '&= s')}")

    def make(self):
        """A list that the pass makes, or that comes into another one."""
        start = self.one("", "1", "-3", "2", f"{self.one(*self.loops)} - 1")
        made = self.one("[s]", "[t, s, 0.5]", "[1, 2, 3, 4]", "[]", f"[{self.expression(1)}] * {self.one('4', 'p', '-1', self.one(*self.loops))}", f"[0] * len({self.list()})",
                        f"{self.list()}[{start}:{self.one('', '5', '-1', '100')}]", f"{self.list()}[:3] + {self.row()}", f"{self.list()}.copy()", f"{self.row()}[:]",
                        f"[{self.row()}[0]] + [s]", "2 * [0.5, t]", f"{self.list()}[::2]")
        pick = self.random.random()
        if pick < 0.4:
            self.line(f"z = {made}")
            if self.chance(0.6):
                self.line(self.one("z.append(s)", "if z: z[0] = t", "z[-1] += 1", "s += len(z)", "for c in range(len(z)): z[c] = s"))
        elif pick < 0.6:
            self.line(self.one(f"g.append({made})", f"if len(g) < 20: g.append({made})", f"g.append({self.row()})", "g.append(z)"))
        elif pick < 0.75:
            self.line(self.one(f"g[{self.index('g')}] = {made}", f"g[{self.index('g')}] = {self.row()}", f"g[{self.index('g')}], g[0] = g[0], g[{self.index('g')}]", "g[-1] = z"))
        elif pick < 0.85:
            self.line("row = g.pop()")
            self.line(self.one("g.append(row)", "g.append(row[:])", "row[0] = s\n" + "    " * self.indent + "g.append(row)", "if not g: g.append(row)"))
        else:
            self.line(f"rows = [{made}, {self.row()}, [0.5, s]]")
            self.line(self.one("s += rows[-1][0]", "rows[2][1] = t", "z = rows[1]", "g.append(rows[0])", f"s = len(rows[{self.one(*self.loops)} % 3])"))

    def loop(self, depth):
        name, over = f"i{depth}", self.list()
        trips = self.random.randint(3, 8) if depth else self.random.randint(12, 60)
        form = self.one(f"for {name} in range({trips}):", f"for {name} in range({trips}):", f"for {name} in range({trips}, 0, -1):", f"while {name} < {trips}:",
                        f"for {name}, e in enumerate({over}):", f"for {name} in range(len({over})):", f"for e in {over}:", f"for e, d in zip({over}, {self.list()}):",
                        f"for e in {self.row()}:", f"for {name}, row in enumerate(g):")
        counted = form.startswith("for i") or form.startswith("while")
        if not counted or form.startswith("while"):
            self.line(f"{name} = 0")
        self.line(form)
        self.indent += 1
        if not counted or form.startswith("while"):
            self.line(f"{name} += 1")
        self.line(f"if {name} > 70: break")
        self.loops.append(name)
        if "e in" in form or "e, d" in form or ", e" in form:
            self.line(self.one("s += e", "t = e", f"{self.place()} = e", "pass"))
        if "row" in form:
            self.line(self.one("row[0] = s", f"t = row[{name} % len(row)]", "s += row[-1]", "z = row"))
        for _ in range(self.random.randint(1, 4)):
            self.statement()
        if depth < 1 and self.chance(0.4):
            self.loop(depth + 1)
        self.loops.pop()
        self.indent -= 1


def program(seed, lib):
    """The case of a seed; nothing else decides what it is."""
    generator = random.Random(f"list loops {seed}")
    writer = Writer(generator)
    writer.line(f"u = {generator.choice(['1', '14695981039346656037', '2**63', 'p', '88172645463325252'])}")
    writer.line(f"s, t, z = {generator.choice(['0.0', '0', 'q'])}, {generator.choice(['q', '1', '0.5'])}, {generator.choice(['x', 'y', '[0.0] * 9', '[0] * 9', '[0.5]', '[s for s in x]'])}")
    for number in range(generator.randint(0, 2)):
        writer.line(f"a{number} = {generator.choice(['[s]', '[0] * len(x)', '[0.0] * 12', 'list(x)', '[i * 2 for i in range(10)]'])}")
        writer.made.append(f"a{number}")
    writer.loop(0)
    if generator.random() < 0.3:
        writer.loop(0)
    writer.line(f"return {', '.join(['s', 't', 'u', 'x', 'y', 'z', *writer.made])}")
    lines, setup = held_elsewhere(random.Random(f"called {seed}"), "x, y, g, v, p, q", "\n".join(writer.lines))
    helper = generator.choice(["return y + x[0]", "return len(x) + y", "x[0] = y\n    return y", "return y if y > x[-1] else x[1]", "x.append(y)\n    return y"])
    source = ["import numpy as np", "M = 0xFFFFFFFFFFFFFFFF", f"OPTIONS = {{'retire': {generator.random() < 0.8}, 'tier': '{'optimised' if seed % 2 else 'auto'}'}}", "", "def h(x, y):", f"    {helper}", "", *writer.writers.source, *lines]

    def call(number, kinds, table):
        n, m = generator.randint(8, 24), generator.randint(3, 6)
        lists = [ITEMS[kind].format(seed=number + i, n=n) for i, kind in enumerate(kinds)]
        rows = table.format(seed=number, n=m, m=m)
        given = f"[{', '.join(lists)}, {rows}, elements('numpy', ({n},), 'float64', {number}, 'plain'), {generator.randint(1, 5)}, {generator.choice(['0.5', '2', '-1.0', 'True'])}]"
        text = f"ARGS = {given}"
        if generator.random() < 0.2:
            text += "\n" + generator.choice(["ARGS[1] = ARGS[0]", "ARGS[2][0] = ARGS[0]", "ARGS[2][0] = ARGS[2][1]"])
        return "\n".join([text, *setup])

    kinds, table = generator.choices(SHARES, k=2), generator.choice(TABLE_SHARES)
    other = generator.choices(SHARES, k=2)
    calls = [call(1, kinds, table), call(2, kinds, table), call(3, kinds, table), call(4, other, generator.choice(TABLE_SHARES)), call(5, kinds, table)]
    return Case(lib, "\n".join(source) + "\n", calls)
