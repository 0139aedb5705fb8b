"""Random programs of loops and branches over Python scalars and elements of arrays, compiled against CPython, compared to the bit.

`program(seed, lib)` writes one, `check(case)` compares it: `python tests/fuzz/loops.py --programs 500 --seed 7 --lib numpy`, or
`./run fuzz --kind loops`. Every loop is bounded: a call has about 300 passes, and integers grow by a number of bits per pass.
"""

import contextlib
import pathlib
import platform
import random
import sys
import warnings

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]

import numpy as np  # noqa: E402

import framejit  # noqa: E402
from case import Case, Difference, call_observed, namespace_of  # noqa: E402
from harness import torch  # noqa: E402
from held import held_elsewhere  # noqa: E402
from observe import Elements, Walk, thread_modes, without_addresses  # noqa: E402
from writers import Writers  # noqa: E402

PASSES = 300  # of one call, about
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
FLOATS = ["float16", "float32", "float64"]
EDGES = ["127", "-128", "255", "2147483647", "-2147483648", "4294967296", "9223372036854775807", "-9223372036854775808", "9223372036854775808"]
CAUGHT = ["ZeroDivisionError", "IndexError", "(ValueError, OverflowError)", "(ArithmeticError, LookupError)", "Exception", "RuntimeWarning"]
MODES = ["record"] * 5 + ["default", "error", "raise", "ignore"]


# ---- arguments -------------------------------------------------------------------------------------------------


def elements(lib, shape, dtype="int64", seed=0, values="plain", layout="c"):
    """An array of an argument; `values` and `layout` by name."""
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    with np.errstate(all="ignore"):
        if kind == "b":
            x = generator.integers(0, 2, shape).astype(bool)
        elif kind == "f":
            x = generator.integers(-12, 13, shape) / 4
            if values == "rough":
                x = generator.standard_normal(shape) * 3
            if values == "edges":
                most = float(np.finfo(dtype).max)
                few = generator.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, most, -most, float(np.finfo(dtype).tiny)], shape)
                x = np.where(generator.random(shape) < 0.1, few, x)
        else:
            limits = np.iinfo(dtype)
            x = generator.integers(1 if values == "rough" else max(limits.min, -4), 10, shape).astype(dtype)
            if values == "edges":
                x = np.where(generator.random(shape) < 0.1, generator.choice(np.array([limits.min, limits.max, limits.max - 1, 0], dtype), shape), x)
        x = np.asarray(x).astype(dtype)
    if layout == "strided":
        x = np.stack([x, x], -1)[..., 0]
    elif layout == "fortran":
        x = np.asfortranarray(x)
    elif layout == "padded":
        x = np.concatenate([x, x], -1)[..., x.shape[-1] :]
    elif layout == "reversed" and lib == "numpy":
        x = np.array(x[::-1])[::-1]
    if lib == "torch":
        return torch.from_numpy(x)
    if layout == "readonly":
        x.flags.writeable = False
    return x


# ---- programs --------------------------------------------------------------------------------------------------


class Lines:
    """Lines of a program, and choices."""

    def __init__(self, random):
        self.random, self.lines, self.indent = random, [], 1

    def one(self, *items):
        return self.random.choice(items)

    def chance(self, share):
        return self.random.random() < share

    def line(self, text):
        self.lines.append("    " * self.indent + text)


class Writer(Lines):
    """Writes the body of a function, one statement after the other, and knows which names hold what."""

    def __init__(self, random, lib):
        super().__init__(random)
        self.lib = lib
        self.ints, self.floats, self.bools, self.pairs = ["p", "n"], ["q"], [], []
        self.assigned = {"int": [], "float": [], "bool": []}  # names that statements may assign
        self.loops = []  # (name of an int that differs from pass to pass or None, array it counts the elements of or None)
        self.room, self.numbers, self.helper, self.generator, self.names = PASSES, 0, None, False, set()
        self.left = 40  # statements; a program ends
        self.writers = Writers(random)

    def fresh(self, stem):
        self.numbers += 1
        return f"{stem}{self.numbers}"

    # Expressions. `small` ones are bounded by 64 bits: products have one, so that integers grow slowly.

    def constant(self):
        if self.chance(0.06):
            return self.one(*EDGES)
        return str(self.one(0, 1, 1, 2, 2, 3, 5, 7, 10, -1, -2, -3))

    def index(self, array):
        """An index that is in range, but for the last or a rare pass sometimes."""
        for name, counted in reversed(self.loops):
            if name and counted == array and self.chance(0.8):
                return self.one(name, name, name, f"{name} - 1", f"-{name} - 1", f"{name} + 1" if self.chance(0.15) else name)
        names = [name for name, _ in self.loops if name]
        if self.chance(0.02):
            return self.integer(1)
        if self.chance(0.15) or not names:
            return self.one("0", "-1", "1", "-2", "2", "3", "100" if self.chance(0.03) else "0")
        return f"({self.one(*names)}{self.one('', ' + 1', ' * 3', ' - 2')}) % len({array})"

    def element(self, array=None):
        array = array or self.one("a", "b", "a", "b", "m")
        if array == "m":
            row, column = self.index("m"), self.one("0", "1", "-1", "2", f"({self.small_name()}) % m.shape[1]")
            text = self.one(f"m[{row}, {column}]", f"m[{row}][{column}]")
        else:
            text = f"{array}[{self.index(array)}]"
        return text

    def read(self, array=None):
        text = self.element(array)
        return text if self.lib == "numpy" or self.chance(0.05) else text + ".item()"

    def small_name(self):
        names = [name for name, _ in self.loops if name]
        return self.one(*names) if names else "n"

    def small(self):
        pick = self.random.random()
        if pick < 0.35:
            return self.constant()
        if pick < 0.6:
            return self.small_name()
        if pick < 0.8:
            return self.read("a")
        if pick < 0.85:
            return self.one("len(a)", "len(l)", "n")
        if pick < 0.9 and self.lib == "numpy":
            return f"np.{self.one(*INTEGERS[:8])}({self.one('3', '1', '0', '100')})"
        return self.one("p", "n", "2", "3")

    def integer(self, depth=2):
        pick = self.random.random()
        if depth <= 0 or pick < 0.3:
            return self.one(*self.ints) if self.chance(0.6) else self.small()
        x = self.integer(depth - 1)
        if pick < 0.5:
            return f"({x} {self.one('+', '-')} {self.integer(depth - 1)})"
        if pick < 0.58:
            return f"({x} * {self.small()})"
        if pick < 0.68:
            return f"({x} {self.one('//', '%')} {self.divisor(self.integer)})"
        if pick < 0.74:
            return f"({x} {self.one('&', '|', '^')} {self.integer(depth - 1)})"
        if pick < 0.78:
            shift, low = self.one("<<", ">>"), f"({self.small()} & 7)"
            by = self.one("1", "3", low, f"({self.small_name()} % 5 - 1)" if self.chance(0.2) else "2")
            return f"({x} {shift} {by})"
        if pick < 0.81:
            base, low = self.small(), f"({self.small_name()} % 4)"
            power = self.one("2", "3", "0", low, f"({self.small_name()} % 9 - 1)" if self.chance(0.3) else "2")
            return f"({base} ** {power})"
        if pick < 0.86:
            return f"{self.one('min', 'max')}({x}, {self.integer(depth - 1)})"
        if pick < 0.89:
            return f"{self.one('abs', 'int', 'round', '-', '~', '+')}({x})"
        if pick < 0.91:
            return f"{self.one('int', 'round', 'math.floor')}({self.number(depth - 1)})"
        if pick < 0.93:
            return f"pow({x}, {self.one('2', '3', self.small_name())}, {self.one('97', '1000003', '-7')})"
        if pick < 0.97:
            return f"({x} if {self.truth(1)} else {self.integer(depth - 1)})"
        if self.helper and self.chance(0.5):
            y = self.small()
            return self.one(f"h({x}, {y})", f"h({x}, {y})", f"h(y={y}, x={x})", f"h({x}, y={y})")
        return f"({x} {self.one('and', 'or')} {self.integer(depth - 1)})"

    def divisor(self, kind):
        if self.chance(0.55):
            return self.one("2", "3", "5", "7", "-3", "4")
        if self.chance(0.7):
            return f"(abs({kind(0)}) + 1)"
        return kind(0)

    def number(self, depth=2):
        """A float, or what may stand for one."""
        pick = self.random.random()
        if depth <= 0 or pick < 0.3:
            if self.chance(0.55):
                return self.one(*self.floats)
            if self.chance(0.5):
                return self.read("b")
            if self.chance(0.2):
                return self.one("math.inf", "math.nan", "-0.0", "1e308", "-1e308", "5e-324", "0.0")
            if self.chance(0.1) and self.lib == "numpy":
                return f"np.{self.one(*FLOATS)}({self.one('1.5', '0.0', '-2.25')})"
            return self.one("0.5", "1.0", "2.0", "-1.25", "0.1", "3", self.read("m"))
        x = self.number(depth - 1)
        if pick < 0.6:
            return f"({x} {self.one('+', '-')} {self.number(depth - 1)})" if self.chance(0.66) else self.product(x, depth - 1)
        if pick < 0.7:
            return f"({x} {self.one('/', '/', '//', '%')} {self.divisor(self.number)})"
        if pick < 0.73:
            return f"(({x} * 1.0) ** {self.one('2', '2', '3', '-1', '0.5', self.number(0) if self.chance(0.2) else '2')})"
        if pick < 0.82:
            return self.one(
                f"math.sqrt(abs({x}))",
                f"math.sin({x})",
                f"math.exp(min({x}, 3.0))",
                f"math.log(abs({x}) + 1)",
                f"math.{self.one('sqrt', 'log', 'exp')}({x})" if self.chance(0.3) else f"math.cos({x})",
            )
        if pick < 0.87:
            return f"{self.one('min', 'max')}({x}, {self.number(depth - 1)})"
        if pick < 0.9:
            return self.one(
                f"abs({x})",
                f"-{x}",
                f"round({x}, 2)" if self.lib == "numpy" else f"abs({x})",
                f"divmod({x}, {self.divisor(self.number)})[{self.one(0, 1)}]",
            )
        if pick < 0.94:
            return f"{self.one('float', '')}({self.integer(depth - 1)})"
        if pick < 0.98:
            return f"({x} if {self.truth(1)} else {self.number(depth - 1)})"
        if self.helper:
            y = self.number(0)
            return self.one(f"h({x}, {y})", f"h(y={y}, x={x})")
        return x

    def factor(self):
        """What an integer can be multiplied by in each pass."""
        return self.one("0.5", "2.0", "-1.25", "2", self.small_name(), self.read("b"), self.read("b"))

    def product(self, x, depth):
        # Of floats in any case: integers would double their bits in each pass.
        return f"({x} * {self.factor()})" if self.chance(0.6) else f"({x} * 1.0 * {self.number(depth)})"

    def truth(self, depth=2):
        pick = self.random.random()
        kind = self.one(self.integer, self.number)
        if depth > 0 and pick < 0.2:
            return f"({self.truth(depth - 1)} {self.one('and', 'or')} {self.truth(depth - 1)})"
        if depth > 0 and pick < 0.26:
            return f"not {self.truth(depth - 1)}"
        if pick < 0.34 and self.bools:
            return self.one(*self.bools)
        if pick < 0.5:
            return f"{self.small_name()} % {self.one(2, 3, 4, 5)} {self.one('==', '!=', '>')} {self.one(0, 1)}"
        if pick < 0.58:
            return f"({kind(0)} {self.one('<', '<=')} {kind(0)} {self.one('<', '<=', '!=')} {kind(0)})"
        if pick < 0.61:
            return f"{kind(0)}"
        return f"({kind(1)} {self.one('<', '>', '<=', '>=', '==', '!=')} {kind(0)})"

    # Statements.

    def block(self, count, first=()):
        """A suite of about `count` statements."""
        ints, floats, bools = len(self.ints), len(self.floats), len(self.bools)
        self.indent += 1
        for text in first:
            self.line(text)
        for _ in range(max(1, count)):
            self.statement()
        self.indent -= 1
        # What a suite alone assigns may be unbound behind it.
        if not self.chance(0.05):
            del self.ints[ints:], self.floats[floats:], self.bools[bools:]

    def assignment(self):
        pick = self.random.random()
        ints, floats, bools = (self.assigned[kind] for kind in ("int", "float", "bool"))
        if pick < 0.3:
            self.line(f"{self.one(*ints)} = {self.integer()}")
        elif pick < 0.55:
            self.line(f"{self.one(*floats)} = {self.number()}")
        elif pick < 0.65:
            self.line(f"{self.one(*ints)} {self.one('+=', '-=', '+=', '^=', '|=')} {self.integer(1)}")
        elif pick < 0.68:
            self.line(f"{self.one(*ints)} {self.one('//=', '%=')} {self.divisor(self.integer)}")
        elif pick < 0.7:
            self.line(f"{self.one(*ints)} {self.one('*=', '<<=')} {self.one('2', '3', '1')}")
        elif pick < 0.82:
            self.line(
                f"{self.one(*floats)} {self.one('+=', '-=', '+=')} {self.number(1)}"
                if self.chance(0.75)
                else f"{self.one(*floats)} *= {self.factor()}"
            )
        elif pick < 0.85:
            self.line(f"{self.one(*floats)} {self.one('/=', '//=', '%=')} {self.divisor(self.number)}")
        elif pick < 0.9:
            names = self.one(ints, floats)
            x, y = self.one(*names), self.one(*names)
            self.line(f"{x}, {y} = {self.one(f'{y}, {x}', f'{y}, {x} + {y}', f'{y} - {x}, {x}', f'divmod({x}, {self.divisor(self.integer)})')}")
        else:
            self.line(f"{self.one(*bools)} = {self.truth()}")

    def pair(self):
        """A statement of a tuple that loops carry: of an integer and a float, but where it was turned."""
        d, s, t = self.one(*self.pairs), self.one(*self.assigned["int"]), self.one(*self.assigned["float"])
        self.line(
            self.one(
                f"{d} = ({self.integer(1)}, {self.number(1)})",
                f"{d} = {s}, {t}",
                f"{s}, {t} = {d}",
                f"{d} = ({d}[0] {self.one('+', '-')} {self.small()}, {d}[1] {self.one('+', '-')} {self.number(0)})",
                f"{d} = ({d}[0], {d}[1] * {self.factor()})",
                f"{d} = {d}[:1] + ({self.number(0)},)",
                f"{d} = ({s}, {d}[1]) if {self.truth(1)} else {d}",
                f"({s}, {t}), {d} = {d}, ({s}, {t})",
                f"{s} = {d}[0]",
                f"{t} = {d}[1] + {t}",
                f"{t} = sum({d})",
                f"{d} = {self.one(f'{d}[::-1]', f'({d}[1], {d}[0])')}" if self.chance(0.3) else f"{d} = (*{d}[:1], {t})",
            )
        )

    def write(self):
        pick = self.random.random()
        if self.writers.names and self.chance(0.35):
            array = self.one("a", "b", "a", "b", f"m[{self.index('m')}]", "l")
            index = self.index(array if array in "abl" else "b")
            call = self.writers.call(array, index, self.one(self.small, lambda: self.number(1))())
            name = self.one(*self.assigned["int"], *self.assigned["float"])
            self.line(self.one(call, call, call, f"{name} = {call}", f"{name} = {call} or 0", f"if {call}: {name} = {self.small()}"))
        elif pick < 0.45:
            array = self.one("a", "b", "m")
            kind = self.number if array == "b" else self.one(self.integer, self.small, self.read)
            value = kind() if kind == self.number or self.chance(0.3) else self.one(self.small, self.read)()
            self.line(f"{self.element(array)} = {value}")
        elif pick < 0.7:
            array = self.one("a", "b", "m")
            value = self.number(1) if array == "b" else self.small()
            operator = self.one("+=", "-=", "*=", "+=", "//=" if array != "b" and self.chance(0.3) else "+=")
            self.line(f"{self.element(array)} {operator} {value}")
        elif pick < 0.8:
            self.line(f"l[{self.index('l')}] = {self.one(self.integer, self.number)()}")
        elif pick < 0.88:
            array, i = self.one("a", "b"), self.small_name()
            self.line(
                self.one(
                    f"{array}[1:4] = {array}[2:5]",
                    f"{array}[{i} % 5:][:2] = {self.constant()}",
                    f"{array}[:3] += {self.one('1', '2', 'True')}",
                    f"{array}[::2] *= {self.one('1', '2')}",
                    f"{array}[2:6] = {array}[1:5]",
                    f"b[:{i} % 4] = b[:1]",
                )
            )
        elif pick < 0.95:
            row, other, column = self.index("m"), self.index("m"), self.one("0", "1", "-1")
            self.line(
                self.one(
                    f"m[{row}] = m[{other}]",
                    f"m[{row}] += {self.one('1', '2')}",
                    f"m[:, {column}] = m[:, 0]",
                    f"m[{row}, 1:] = m[{other}, :-1]",
                    f"m[{row}], m[{other}] = m[{other}], m[{row}]",
                )
            )
        else:
            self.line(f"{self.element('a')}, {self.element('b')} = {self.small()}, {self.number(0)}")

    def guarded(self):
        """Things that are done in a few passes only."""
        i = self.small_name()
        turn = self.one(
            f"{i} == {self.one(7, 11, 17, 19)}", f"{i} == {self.one(1, 3, 15)}", f"{i} % {self.one(7, 9, 13)} == {self.one(3, 5)}", self.truth(1)
        )
        choices = [f"print({self.one('', repr('at') + ', ')}{self.one(*self.ints)}, {self.one(*self.floats)})"] * 3
        choices += [f"l.append({self.integer(1)})", f"l.append({self.number(0)})", "COUNT[0] += 1", "COUNT.append(len(l))"]
        x, y = self.one(*self.assigned["int"]), self.one(*self.assigned["float"])
        choices += [
            f"{x} = float({x})" if self.chance(0.3) else f"{x} = int({y}) & 1023",
            f"{y} = int({y})" if self.chance(0.4) else f"{y} = float({x})",
        ]
        choices += [f"{x} = {self.one(*EDGES)}", f"{y} = {self.one('None', 'math.nan', '0', 'True', '1e300')}" if self.chance(0.3) else f"{y} = 0"]
        if self.loops:
            choices += ["break", "continue", "continue", "break"]
        if self.chance(0.3):
            choices += [
                f"return {x}, {y}" if not self.generator else "return",
                f"raise ValueError({x})",
                f"del {self.one(x, y)}",
                f"assert {self.truth(0)}, {x}",
            ]
        if self.generator:
            choices += [f"yield {self.one(x, y)}"] * 4
        if self.lib == "numpy":
            choices += [f"{x} = np.{self.one(*INTEGERS[:8])}({x} & 63)", f"{y} = np.{self.one(*FLOATS)}({y})"]
        pick = self.one(*choices)
        if pick in ("break", "continue") and self.chance(0.4):
            turn = self.truth(2)
        self.line(f"if {turn}:")
        self.indent += 1
        self.line(pick)
        self.indent -= 1

    def branch(self):
        self.line(f"if {self.truth()}:")
        self.block(self.one(1, 1, 2))
        while self.chance(0.25):
            self.line(f"elif {self.truth()}:")
            self.block(1)
        if self.chance(0.5):
            self.line("else:")
            self.block(self.one(1, 1, 2))

    def attempt(self):
        self.line("try:")
        self.block(self.one(1, 2))
        if self.chance(0.85):
            self.line(f"except {self.one(*CAUGHT)} as error:")
            name = self.one(*self.assigned["int"])
            self.block(0, [self.one("print(type(error).__name__, error)", f"{name} = 0", "l.append(str(error))", f"{name} -= 1")])
            if self.chance(0.3):
                self.line("else:")
                self.block(1)
            if self.chance(0.3):
                self.line("finally:")
                self.block(1)
        else:
            self.line("finally:")
            self.block(1)

    def header(self, trips):
        """(header, int name, array it counts, ints, floats, lines before, lines first in the body, most passes)."""
        i, x = self.fresh("i"), self.fresh("x")
        sliced, item = ("" if trips >= 60 else f"[:{trips}]"), self.fresh("y")
        counted = None if sliced else "a"
        pick = self.random.random()
        if pick < 0.3:
            text = self.one(
                f"range({trips})",
                f"range({trips})",
                f"range(1, {trips + 1})",
                f"range({trips}, 0, -1)",
                f"range(-3, {2 * trips - 3}, 2)",
                f"range({3 * trips}, 0, -3)",
                f"reversed(range({trips}))",
                f"range({self.small_name()} % {trips + 1})",
                f"range({self.one(*self.ints)} % {trips + 1})" if self.chance(0.3) else f"range({trips})",
                f"range({self.small_name()}, {trips})",
                self.one("range(3, 3)", "range(5, 0)", "range(0, 9, -1)") if self.chance(0.2) else f"range({trips})",
            )
            if "range(i" in text:
                counter = self.one("", "min(") and f"range(min({self.small_name()}, {trips}))"
                text = counter or f"range({trips})"
            return f"for {i} in {text}:", i, None, [i], [], [], [], trips
        if pick < 0.33 and trips >= 60:
            return f"for {i} in range(n):", i, self.one("a", "b"), [i], [], [], [], 60
        if pick < 0.45 and trips >= 60:
            array = self.one("a", "a", "b", "l", "m")
            if array == "l":
                return f"for {i} in range(len(l)):", i, "l", [i], [], [], [], 60
            return (
                f"for {i} in {self.one(f'range(len({array}))', f'range({array}.shape[0])', f'range(len({array}) - 1, -1, -1)')}:",
                i,
                array,
                [i],
                [],
                [],
                [],
                60,
            )
        if pick < 0.7:
            kinds = [
                (f"for {x} in a{sliced}:", None, None, [x], []),
                (f"for {x} in b{sliced}:", None, None, [], [x]),
                (f"for {x} in l{sliced or '[:60]'}:", None, None, [], [x]),
                (f"for {x}, {item} in zip(a{sliced}, b):", None, None, [x], [item]),
                (f"for {i}, {x} in enumerate(b{sliced}):", i, "b", [i], [x]),
                (f"for {i}, {x} in enumerate(a{sliced}, {self.one(0, 1)}):", i, counted, [i], [x]),
                (f"for {x} in reversed(l{sliced or '[:60]'}):", None, None, [], [x]),
                (f"for {i}, ({x}, {item}) in enumerate(zip(a{sliced}, l)):", i, counted, [i, x], [item]),
                (f"for {x} in (1, 2.5, {self.constant()}, True):", None, None, [], [x]),
                (f"for {item} in m[:{trips}]:", None, None, [], [f"{item}[0]", f"{item}[-1]"]),
            ]
            if self.lib == "numpy":
                kinds += [
                    (f"for {x} in a{sliced}[::-1]:", None, None, [x], []),
                    (f"for {x} in a{sliced}.tolist():", None, None, [x], []),
                    (f"for {x} in b{sliced}[::2]:", None, None, [], [x]),
                ]
            else:
                kinds = [kind for kind in kinds if " in l" in kind[0] or " in (" in kind[0]] + [
                    (f"for {x} in a{sliced}.tolist():", None, None, [x], [])
                ]
            return *self.one(*kinds), [], [], min(60, trips)
        i = self.fresh("c")
        form = self.random.randrange(6)
        if form == 0:
            return f"while {i} < {trips}:", i, None, [i], [], [f"{i} = 0"], [f"{i} += 1"], trips
        if form == 1:
            return f"while {i} < {trips} and {self.truth(1)}:", i, None, [i], [], [f"{i} = 0"], [f"{i} += 1"], trips
        if form == 2:
            return "while True:", i, None, [i], [], [f"{i} = 0"], [f"{i} += 1", f"if {i} > {trips}:", "    break"], trips
        if form == 3:
            return f"while ({i} := {i} + 1) <= {trips}:", i, None, [i], [], [f"{i} = 0"], [], trips
        if form == 4:
            return f"while {i}:", i, None, [i], [], [f"{i} = {trips}"], [f"{i} -= 1"], trips
        return (
            f"while {i} > {self.one('0', '0', self.small() if self.chance(0.3) else '1')} and {i} < 1000:",
            i,
            None,
            [i],
            [],
            [f"{i} = {trips}"],
            [f"{i} -= {self.one(1, 2)}"],
            2 * trips,
        )

    def loop(self):
        room = self.room
        most = max(2, min(room, 100))
        trips = self.one(*range(min(20, most), most + 1)) if not self.loops or self.chance(0.4) else self.random.randint(2, min(most, 8))
        if not self.loops and self.chance(0.5):
            trips = self.random.randint(20, 40) if self.chance(0.8) else self.random.randint(2, 5)
        header, name, counted, ints, floats, before, first, passes = self.header(trips)
        for text in before:
            self.line(text)
        self.line(header)
        kept = len(self.ints), len(self.floats)
        self.ints += ints * 2
        self.floats += floats * 2
        self.loops.append((name, counted))
        self.room = room // max(passes, 1)
        self.block(self.one(2, 3, 4) if len(self.loops) < 3 else self.one(1, 2), first)
        self.loops.pop()
        self.room = room
        if not self.chance(0.06) or name is None:
            del self.ints[kept[0] :], self.floats[kept[1] :]
        if self.chance(0.2):
            self.line("else:")
            self.block(1)

    def statement(self):
        self.left -= 1
        if self.left < 0 or self.indent > 11:  # CPython nests 20 blocks at most
            self.assignment()
            return
        pick = self.random.random()
        if pick < 0.34:
            (self.pair if self.pairs and self.chance(0.25) else self.assignment)()
        elif pick < 0.54:
            self.write()
        elif pick < 0.66:
            self.branch()
        elif pick < 0.8:
            self.guarded()
        elif pick < 0.92 and len(self.loops) < 3 and self.room >= 4:
            self.loop()
        elif pick < 0.95:
            self.attempt()
        elif pick < 0.96 and self.lib == "numpy":
            self.line(f"with np.errstate({self.one('all', 'over', 'divide', 'invalid')}={self.one('raise', 'ignore', 'warn')!r}):")
            self.block(1)
        elif pick < 0.98 and self.names & {"bump"}:
            self.line(f"bump({self.one(self.integer, self.number)(0)})")
        else:
            self.line(f"l.append({self.one(self.integer, self.number)(1)})")

    def variables(self):
        numpy = self.lib == "numpy"
        starts = {
            "int": ["0", "1", "p", "n", self.read("a"), "True", "-5", self.one(*EDGES)]
            + ["np.int8(3)", "np.uint8(200)", "np.int64(7)", "np.int32(2**31 - 1)"] * numpy,
            "float": ["0.0", "0", "1", "q", "1.5", self.read("b"), "0"] + ["np.float32(0.25)", "np.float64(1)", "np.float16(2)"] * numpy,
            "bool": ["False", "True", self.truth(0)],
        }
        for kind, names, stem, count in (
            ("int", self.ints, "s", self.one(2, 3)),
            ("float", self.floats, "t", self.one(2, 3)),
            ("bool", self.bools, "w", 1),
        ):
            for number in range(count):
                name = f"{stem}{number}"
                self.line(("if n < 0: " if self.chance(0.01) else "") + f"{name} = {self.one(*starts[kind])}")
                names += [name, name]
                self.assigned[kind].append(name)

    def body(self):
        self.variables()
        if self.chance(0.3):
            self.pairs.append("d")
            self.line(f"d = ({self.one(*self.ints)}, {self.one(*self.floats)})")
        if self.chance(0.15):
            self.names.add("bump")
            name = self.one(*self.assigned["int"], *self.assigned["float"])
            value = self.one(f"{name} + by", f"by - {name}", f"{name} + 1 if by > 0 else by")
            self.lines += ["    def bump(by):", f"        nonlocal {name}", f"        {name} = {value}"]
        whole = self.chance(0.07) and self.lib == "numpy"
        if whole:
            self.line(f"with np.errstate(all={self.one('raise', 'ignore', 'warn')!r}):")
            self.indent += 1
        for _ in range(self.one(1, 1, 2)):
            self.room = PASSES // 2 if self.chance(0.5) else PASSES
            if self.chance(0.2):
                self.statement()
            outside = self.chance(0.15)
            if outside:
                self.line("try:")
                self.indent += 1
            self.loop()
            if outside:
                self.indent -= 1
                self.line(f"except {self.one(*CAUGHT)} as error:")
                self.line("    print(type(error).__name__, error)")
        if whole:
            self.indent -= 1
        values = [name for names in self.assigned.values() for name in names] + self.pairs
        if self.chance(0.08):
            values += [name for name in self.ints[-1:] if name not in values]
        self.line(("yield " if self.generator else "return ") + ", ".join(values))
        return "\n".join(self.lines)


HELPERS = [
    "    return x + y",
    "    if y == 0:\n        return x\n    return x // y",
    "    for k in range(4):\n        if x > 100:\n            return y\n        x = x + y\n    return x",
    "    return x if x > y else y",
    "    try:\n        return x / y\n    except ZeroDivisionError:\n        return 0",
    "    while y > 1 and y < 50:\n        y = y * 2\n        x = x - 1\n    return x",
]


def scalar(random, kind, lib):
    """The text of a scalar argument."""
    if kind == "int":
        plain = [str(random.randint(-5, 12)), "3", "0", random.choice(EDGES), "True"]
        return random.choice(plain + [f"np.{random.choice(INTEGERS[:8])}({random.randint(0, 100)})"] * (2 if lib == "numpy" else 0))
    plain = [str(random.randint(-8, 8) / 4), "0.1", "-0.0", "2", random.choice(["float('nan')", "float('inf')", "1e308"])]
    return random.choice(plain + [f"np.{random.choice(FLOATS)}({random.randint(-8, 8) / 4})"] * (2 if lib == "numpy" else 0))


def calls_of(random, lib):
    """Three calls with one signature, and one with another."""
    integers = INTEGERS if lib == "numpy" else ["int8", "int16", "int32", "int64", "uint8", "bool"]
    layouts = ["c"] * 7 + ["strided", "fortran", "padded", "reversed"]
    length, rows, columns = random.randint(24, 59), random.randint(4, 8), random.randint(3, 7)

    def signature(odd):
        kinds = [
            random.choice(integers + ["int64"] * 4),
            random.choice(FLOATS + ["float64"] * 3),
            random.choice(integers + FLOATS + ["float64", "int64"] * 2),
        ]
        if odd and random.random() < 0.5:
            kinds = [random.choice(integers + FLOATS), random.choice(FLOATS + integers), random.choice(FLOATS + integers)]
        sizes = [length] * 2
        if random.random() < 0.06:
            sizes[random.randrange(2)] = random.choice([0, 1, length + 1, 5])
        chosen = [random.choice(layouts + ["readonly"] * (random.random() < 0.15)) for _ in range(3)]
        values = random.choice(["plain", "plain", "rough", "edges"])
        return kinds, sizes, chosen, values, scalar(random, "int", lib), scalar(random, "float", lib), random.random() < 0.1

    def text(shapes, seed):
        kinds, sizes, chosen, values, p, q, overlapping = shapes
        a, b, m = (
            f"elements({lib!r}, {size}, {kind!r}, {seed + k}, {values!r}, {layout!r})"
            for k, (size, kind, layout) in enumerate(zip([sizes[0], sizes[1], (rows, columns)], kinds, chosen))
        )
        items = [
            random.choice(["1", "2", "-1", "0", "3"] if values != "edges" else ["1", "0.5", "True", "-2", "0.0"])
            for _ in range(random.randint(6, 30))
        ]
        given = f"[{a}, {b}, {m}, [{', '.join(items)}], {random.randint(20, 60)}, {p}, {q}]"
        if overlapping:
            given = (
                given.replace(b, random.choice(["a", "a[1:]", "a[:-1]", "a[::2]"]))
                .replace(a, "a")
                .replace(m, random.choice([m, "a[:20].reshape(4, 5)"]) if sizes[0] >= 20 else m)
            )
            return f"MODE = {mode!r}\na = {a}\nARGS = {given}"
        return f"MODE = {mode!r}\nARGS = {given}"

    mode = random.choice(MODES)
    same, other = signature(False), signature(True)
    return [text(same, 10), text(same, 20), text(same, 30), text(other, 40)]


def program(seed, lib):
    """The case of a seed; nothing else decides what it is."""
    generator = random.Random(f"loops {lib} {seed}")
    writer = Writer(generator, lib)
    helper = generator.choice(HELPERS) if generator.random() < 0.3 else None
    writer.helper, writer.generator = helper, generator.random() < 0.1
    body, setup = writer.body(), []
    parts = ["import math", "import numpy as np", f"OPTIONS = {{'retire': {generator.random() < 0.8}, 'tier': '{'optimised' if seed % 2 else 'auto'}'}}", "COUNT = [0]", ""]
    if helper:
        parts += ["def h(x, y):", helper, ""]
    parts += writer.writers.source
    if writer.generator:
        parts += ["def g(a, b, m, l, n, p, q):", body, "", "def f(a, b, m, l, n, p, q):"]
        parts += [
            generator.choice(
                [
                    "    return list(g(a, b, m, l, n, p, q))",
                    "    found = []\n    for item in g(a, b, m, l, n, p, q):\n        found.append(item)\n    return found",
                ]
            )
        ]
    else:
        lines, setup = held_elsewhere(random.Random(f"called {seed}"), "a, b, m, l, n, p, q", body)
        parts += lines
    return Case(lib, "\n".join(parts) + "\n", ["\n".join([call, *setup]) for call in calls_of(generator, lib)])


# ---- comparison ------------------------------------------------------------------------------------------------


def in_mode(function, mode):
    """The function under warnings as errors and the like; called where changes of the filters end with the call."""

    def call(*arguments):
        if mode in ("default", "error"):
            warnings.simplefilter(mode)
        with np.errstate(all=mode) if mode in ("raise", "ignore") else contextlib.nullcontext():
            return function(*arguments)

    return call


def names_of(code):
    return set(code.co_varnames + code.co_cellvars + code.co_freevars)


@contextlib.contextmanager
def digits_without_limit():
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def seen(function, namespace, filename):
    """What a call left behind, the name of the error it raised, and of each frame it passed (name, locals)."""
    called = call_observed(in_mode(function, namespace.get("MODE", "record")), namespace["ARGS"])
    walk = Walk()
    walk.add("stdout", without_addresses(called.stdout))
    said = called.warnings
    if platform.machine() == "aarch64":  # NumPy's own depend on the position (docs/numerics.md)
        said = [warning for warning in said if warning[1] != "invalid value encountered in cast"]
    walk.add("warnings", said)
    walk.add("modes", thread_modes())
    with digits_without_limit():
        walk.value("error", called.error)
        walk.value("arguments", namespace["ARGS"])
        walk.value("result", called.result)
        walk.value("global COUNT", namespace.get("COUNT"))
        if "O" in namespace:
            others = [value for name, value in sorted(namespace.items()) if name.startswith("G_")]
            walk.value("what is held", [vars(namespace["O"]), vars(namespace["P"]), vars(namespace["Q"].other), others])
    walk.memory()
    frames, traceback = [], called.error.__traceback__ if called.error is not None else None
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_filename == filename:
            known = names_of(frame.f_code)
            frames.append((frame.f_code.co_name, {name: value for name, value in sorted(frame.f_locals.items()) if name in known}))
        traceback = traceback.tb_next
    return walk.records, type(called.error).__name__ if called.error is not None else None, frames


def difference_of_locals(ours, eager, arguments, expected_arguments, all_locals):
    """The first difference of the locals at the exception as (path, text), or None: of values first, then of what there is.

    Compiled programs forget what is not read any more, which counts as a difference if `all_locals` says so only.
    """
    walks = Walk(), Walk()
    for walk, given, frames, others in ((walks[0], arguments, ours, eager), (walks[1], expected_arguments, eager, ours)):
        with digits_without_limit():
            walk.value("arguments", given)
            for (name, values), (_, other) in zip(frames, others):
                for local in sorted(values.keys() & other.keys()):
                    walk.value(f"local {local} of {name}", values[local])
    found = difference(walks[0].records, walks[1].records)
    if found is None:
        for (name, values), (_, expected) in zip(ours, eager):
            if values.keys() - expected.keys() or all_locals and values.keys() != expected.keys():
                return "locals", f"locals of {name}: {sorted(values)}, CPython has {sorted(expected)}"
    return found


def same_bits(x, y):
    """Elements of one dtype with equal bits, where all NaNs are one."""
    a, e = np.asarray(x.values), np.asarray(y.values)
    if x.dtype != y.dtype or a.dtype != e.dtype or a.shape != e.shape:
        return False
    if a.dtype.kind in "fc":
        parts = [(a, e)] if a.dtype.kind == "f" else [(a.real, e.real), (a.imag, e.imag)]
        return all(np.all((p == q) & (np.signbit(p) == np.signbit(q)) | np.isnan(p) & np.isnan(q)) for p, q in parts)
    return repr(a.tolist()) == repr(e.tolist()) if a.dtype.kind == "O" else np.array_equal(a, e)


def difference(ours, eager):
    """The first difference of two observations as (path, text), or None. Nothing is tolerated."""
    for (path, a), (expected_path, e) in zip(ours, eager):
        if path != expected_path:
            return path, f"{path}: {a}, where CPython has {expected_path}: {e}"
        if len(a) != len(e) or any(not same_bits(x, y) if isinstance(x, Elements) and isinstance(y, Elements) else x != y for x, y in zip(a, e)):
            return path, f"{path}: {exact(a)}, CPython gives {exact(e)}"
    if len(ours) != len(eager):
        longer = ours if len(ours) > len(eager) else eager
        path, facts = longer[min(len(ours), len(eager))]
        return path, f"{path}: {exact(facts)} only {'compiled' if longer is ours else 'in CPython'}"
    return None


def exact(facts):
    """Facts whose numbers are shown to the last digit."""
    return tuple(fact.values.tolist() if isinstance(fact, Elements) else fact for fact in facts)


def check(case, filename="<program>", compiler=None, all_locals=False, **options):
    """Raises Difference if a compiled call differs from CPython's; else the names of the errors of the calls."""
    framejit.reset()
    reference, ours = namespace_of(case, filename), namespace_of(case, filename)
    compiled = (compiler or framejit.compile)(ours["f"], **{**reference.get("OPTIONS", {}), **options})
    errors = []
    for number, text in enumerate(case.calls):
        setup = compile(text, f"<call {number}>", "exec", dont_inherit=True)
        for namespace in (reference, ours):
            namespace["elements"] = elements
            exec(setup, namespace)
        expected, error, expected_frames = seen(reference["f"], reference, filename)
        actual, _, frames = seen(compiled, ours, filename)
        found = difference(actual, expected) or difference_of_locals(frames, expected_frames, ours["ARGS"], reference["ARGS"], all_locals)
        if found is not None:
            raise Difference(found[0].split("[")[0].split(".")[0], f"call {number}: {found[1]}", error)
        errors.append(error)
    info = framejit.cache_info()
    if info["internal_errors"]:
        raise Difference(
            "internal error", f"{info['internal_errors']} internal errors:\n{framejit.explain(compiled).so_far().text().partition('fallbacks:')[2]}"
        )
    return errors


if __name__ == "__main__":
    import fuzz

    sys.exit(fuzz.main(sys.argv[1:] if "--kind" in sys.argv else ["--kind", "loops", *sys.argv[1:]]))
