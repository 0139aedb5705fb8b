"""Grows a random program by running it: each statement is tried on real values and kept if it works (now and then if it fails).

So no shapes or types are computed here: what exists is looked at. Start at `program`, which gives a `Case`.
"""
import contextlib
import io
import random
import re
import signal
import sys
import types
import warnings

import numpy as np

import control
import pairs
import parts
import pieces
import tables
from case import Case, make, namespace_of
from harness import is_array, torch

PLACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")
LARGEST = 3000  # elements
LONGEST = 30000  # lines run
TRIES = 12


def rows(text_rows, lib):
    """(weight, text) of the rows for a library."""
    wanted = {"b", lib[0]} | ({"m"} if lib == "torch" else set())
    for row in text_rows:
        libraries, weight, text = row.split(" ", 2)
        if libraries in wanted:
            yield int(weight), text


def kind_of(value):
    if is_array(value):
        return "array"
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, np.number) and not np.iscomplexobj(value):
        return "scalar"
    for kind in (int, float, list, dict, tuple, str):
        if type(value) is kind:
            return kind.__name__
    if type(value).__module__ == "program" and hasattr(value, "seen"):
        return "object"
    return "other"


def reasonable(value, depth=0):
    """False for what would make later statements slow."""
    if is_array(value):
        return int(np.prod(value.shape)) <= LARGEST and value.ndim < 6 and "object" not in str(value.dtype)
    if isinstance(value, int):
        return abs(value) < 2 ** 200
    if isinstance(value, (list, tuple, str)):
        return len(value) < 60 and depth < 5 and (isinstance(value, str) or all(reasonable(v, depth + 1) for v in value))
    if isinstance(value, dict):
        return len(value) < 60 and depth < 5 and all(reasonable(v, depth + 1) for v in value.values())
    return not isinstance(value, (types.ModuleType, type(re.compile("a"))))


class TooLong(BaseException):
    """Not an Exception: a program must not catch it."""


@contextlib.contextmanager
def limited(most):
    """Raises TooLong in a program that runs for ever."""
    lines, over = 0, False

    def count(frame, event, argument):
        nonlocal lines, over
        if not frame.f_code.co_filename.startswith("<"):
            return None
        lines += 1
        over = lines > most
        if lines % 32 == 0:
            # A list that grows by itself in a loop takes all memory in a few dozen lines.
            over |= any(isinstance(value, (list, dict, str)) and len(value) > LONGEST for space in (frame.f_locals, frame.f_globals) for value in space.values())
        if over:
            raise TooLong
        return count

    def give_up(signal_number, frame):
        # Where Python ignores exceptions, in a finalizer, that one was lost, and counting has ended with it.
        if over:
            raise TooLong

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2, 2)
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if over:
        raise TooLong


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


class Grower:
    def __init__(self, seed, lib):
        self.random = random.Random(seed)
        self.lib, self.count, self.loops, self.functions = lib, 0, 0, 0
        r = self.random
        self.pieces = r.sample(pieces.PIECES, r.randrange(1, 5))
        # Programs with rounding do not branch on values, so that a difference in the last bit stays one.
        self.exact = r.random() < 0.75
        self.fails = r.choice([0.0, 0.0, 0.02, 0.1])
        self.gradients = lib == "torch" and r.random() < 0.25
        expressions = list(rows(parts.EXPRESSIONS, lib)) + (list(rows(parts.INEXACT, lib)) * 2 if not self.exact else [])
        expressions += [(6, text) for piece in self.pieces for text in piece[2]]
        statements = list(rows(parts.STATEMENTS, lib)) + [(5, text) for piece in self.pieces for text in piece[1]]
        if not self.exact:
            # The bits of a rounded number are no number near it, and its digits are no text near its own.
            expressions = [row for row in expressions if ".int32)" not in row[1] and "!r" not in row[1]]
            statements = [row for row in statements if "print({a}.sum()" not in row[1]]
        # Each program has its own taste, so that programs differ more than an average of everything would.
        self.tables = {name: self.tasted(table) for name, table in (("expression", expressions), ("statement", statements),
                                                                   ("value", list(rows(parts.VALUES, lib))), ("read", list(rows(parts.READ, lib))))}
        texts, weights = self.tables["expression"]
        if any("mean" in text for text in texts):
            # Which is rounded in every program: neither are its bits compared (torch 742981).
            kept = [row for row in zip(texts, weights) if ".int32)" not in row[0]]
            self.tables["expression"] = [text for text, _ in kept], [weight for _, weight in kept]
        self.source = pieces.PRELUDE + "".join("\n\n" + piece[0] for piece in self.pieces)
        self.lines = []
        self.names = []
        self.numbers = []  # names of numbers that were read from arrays
        self.callables = r.sample(tables.callables(lib), 12)
        self.calls_of_tables = 0.05 if self.exact else 0.3

    def tasted(self, table):
        kept = [row for row in table if self.random.random() < 0.5] or table
        return [text for _, text in kept], [weight for weight, _ in kept]

    def pick(self, table):
        texts, weights = self.tables[table]
        return self.random.choices(texts, weights)[0]

    # ---- filling places

    def named(self, *kinds, default):
        names = [n for n in self.names if n in self.space and kind_of(self.space[n]) in kinds]
        if not names:
            return default
        # What was made last is used most.
        return self.random.choice(names[-4:] if self.random.random() < 0.5 else names)

    def fill(self, text, depth=0):
        def place(match):
            if match.group(1) is None:
                return match.group()[0]
            return self.place(match.group(1), depth)

        return PLACE.sub(place, text)

    def place(self, what, depth):
        r = self.random
        if what == "a":
            if r.random() < 0.06 and "Box" in self.space:
                return self.named("object", default="x") + ".a"
            return self.named("array", default="x")
        if what == "e":
            if depth > 1 or r.random() < 0.55:
                return self.named("array", default="x")
            return f"({self.fill(self.pick('expression'), depth + 1)})"
        if what == "i":
            return r.choice([str(r.randrange(0, 4)), self.named("int", default="k"), "k", str(r.randrange(-2, 6))])
        if what == "n":
            choices = parts.NUMBERS if r.random() < 0.4 else ["k", "s", "2", "0.5", "-1", self.named("int", "float", "scalar", default="s")]
            return r.choice(choices)
        if what == "p":
            return r.choice(["2", "4", "0.5", "-2", "k", "3"] if self.exact else ["3", "0.7", "s", "k"])
        if what == "v":
            if r.random() < 0.3:
                return self.place("e", depth)
            return self.named("array", "int", "float", "scalar", "list", "dict", "tuple", "object", "bool", "str", default="k")
        if what == "l":
            return self.named("list", default="LOG")
        if what == "t":
            return self.named("list", "tuple", default="[x, k]")
        if what == "d":
            return self.named("dict", default="TABLE")
        if what == "o":
            return self.named("object", default="STATE")
        if what == "m":
            masks = [n for n in self.names if n in self.space and is_array(self.space[n]) and str(self.space[n].dtype).endswith("bool")]
            return r.choice(masks) if masks and r.random() < 0.4 else f"({self.place('a', depth)} > {r.choice(['0', '1', 'k', '-1'])})"
        if what == "c":
            return self.fill(r.choice(parts.CONDITIONS), depth + 1)
        if what == "j":
            return r.choice(["0", "1", "2", "3", "k"])
        if what == "r":
            names = [n for n in self.numbers if n in self.space and type(self.space[n]) is int]
            return r.choice(names) if names else self.place("i", depth)
        if what == "mat":
            dtype = "np.float32" if self.lib == "numpy" else "lib.float32"
            return f"(lib.eye(2, dtype={dtype}) * {r.randrange(2, 6)} + lib.ones((2, 2), dtype={dtype}) * {self.place('j', depth)})"
        if what == "ix64":
            return "np.array([0, -1, 0])" if self.lib == "numpy" else "lib.tensor([0, 1, 0])"
        if what == "ix":
            return self.fill(r.choice(parts.INDICES + (parts.NUMPY_INDICES if self.lib == "numpy" else [])), depth + 1)
        if what == "ax":
            return r.choice(["0", "-1", "1", "0"])
        if what == "dt":
            name = r.choice(parts.DTYPES)
            return f"lib.{name + '_' if name == 'bool' and self.lib == 'numpy' else name}"
        if what == "fresh":
            self.count += 1
            return f"v{self.count}"
        raise KeyError(what)

    # ---- statements

    def with_output_kept(self, text):
        """`out=` of another shape makes torch resize it, and memory of NumPy can't be: the tensor is left with a shape that its memory does not hold."""
        given = re.fullmatch(r"(.*), out=(.*)\)", text)
        return f"if ({given[1]})).shape == {given[2]}.shape: {text}" if given and self.lib == "torch" else text

    def run(self, text):
        """True if the statement works on the values so far; names it makes join the others."""
        before = set(self.space)
        try:
            with quiet(), limited(LONGEST // 10):
                exec(compile(text.replace("nonlocal ", "global "), "<trial>", "exec"), self.space)
        except (Exception, TooLong):
            return False
        made = [n for n in self.space if n not in before and re.fullmatch(r"v\d+", n)]
        for name in made:
            if not reasonable(self.space[name]):
                del self.space[name]
        if any(not reasonable(self.space[n]) for n in self.names if n in self.space):
            return False
        self.names += [n for n in made if n in self.space]
        return len(made) == 0 or any(n in self.space for n in made)

    def emit(self, indent, text):
        self.lines.append("    " * indent + text)

    def simple(self, indent):
        r = self.random
        for _ in range(TRIES):
            choice = r.random()
            if choice < self.calls_of_tables:
                text = self.fill("{fresh} = " + tables.text_of(r.choice(self.callables), r.choice(tables.PATTERNS)))
            elif choice < 0.5:
                text = self.fill("{fresh} = " + self.pick("expression"))
            elif choice < 0.55:
                text = self.fill("{fresh} = " + self.pick("read"))
                if self.run(text):
                    self.emit(indent, text)
                    self.numbers.append(text.partition(" ")[0])
                    return
            elif choice < 0.65:
                text = self.fill("{fresh} = " + self.pick("value"))
            else:
                text = self.with_output_kept(self.fill(self.pick("statement")))
            if self.run(text) or r.random() < self.fails:
                self.emit(indent, text)
                return

    def condition(self):
        for _ in range(TRIES):
            text = self.fill(self.random.choice(parts.CONDITIONS))
            if not self.exact and any(word in text for word in (".sum()", ".any()", ".max()")):
                continue
            try:
                with quiet():
                    bool(eval(text, self.space))
                return text
            except Exception:
                pass
        return "k > 1"

    def statement(self, indent, depth=0):
        r = self.random
        choice = r.random()
        if depth > 2 or choice < 0.62:
            self.simple(indent)
        elif choice < 0.66:
            (self.control if self.lib == "torch" and r.random() < 0.5 else self.pair)(indent)
        elif choice < 0.74:
            self.emit(indent, f"if {self.condition()}:")
            self.block(indent + 1, depth + 1)
            if r.random() < 0.25:
                self.emit(indent, f"elif {self.condition()}:")
                self.block(indent + 1, depth + 1)
            if r.random() < 0.5:
                self.emit(indent, "else:")
                self.block(indent + 1, depth + 1)
        elif choice < 0.85:
            self.loop(indent, depth)
        elif choice < 0.92:
            self.protected(indent, depth)
        elif choice < 0.95:
            self.manager(indent, depth)
        else:
            self.function(indent, depth)

    def fresh(self):
        return self.fill("{fresh}")

    def pair(self, indent):
        """A tuple that a branch chooses or a loop carries."""
        conditions = ["k > 1", "{i} > 1", "{a}.ndim == 2"] + ["{a}.sum() > {i}", "{a}.any()"] * self.exact
        for _ in range(TRIES):
            lines, _ = pairs.lines_of(self.random, self.fill, self.fresh, conditions, lambda like: ["{e}", "{e}", "{a}", "{a}", "{v}", "{n}"],
                                      ["{t} * 0.5", "{t} - {a}", "-{t}", "{t} + {n}", "{t} * {e}", "abs({t})", "{t}", "{t} + {t}.sum()", "{e}"],
                                      "Pair" in self.space, self.exact)
            if self.run("\n".join(lines)):
                for line in lines:
                    self.emit(indent, line)
                return

    def control(self, indent):
        """A branch or a loop of torch's. Of copies, which share no memory in any call and have a type that the branches keep."""
        for _ in range(TRIES):
            p, q = self.fresh(), self.fresh()
            like = self.random.choice([f"({p} - {{n}}).float()", f"{p} * 2", f"({p} * {{a}}.sum()).float()"])
            before = [self.fill(f"{p} = ({{a}} + 0).float().contiguous()"), self.fill(f"{q} = {like}")]
            if not self.run("\n".join(before)):
                continue
            made = [n for n in (p, q) if n in self.space]
            written = control.lines_of(self.random, self.space, made, self.fresh, self.exact, any_shape=True)
            if written and control.run(written, self.space, made):
                self.names += [n for n in written.names if n in self.space]
                for line in [*before, *written.lines]:
                    self.emit(indent, line)
                return

    def block(self, indent, depth, most=4):
        names, start = list(self.names), len(self.lines)
        for _ in range(self.random.randrange(1, most)):
            self.statement(indent, depth)
        r = self.random
        if r.random() < 0.05 and not self.loops:
            self.emit(indent, self.fill(r.choice(["return {v}", "return [{v}, {v}]", "return"])))
        if self.loops and r.random() < 0.12:
            self.emit(indent, r.choice(["break", "continue", f"if {self.condition()}: break", f"if {self.condition()}: continue"]))
        if len(self.lines) == start:
            self.emit(indent, "pass")
        if r.random() < 0.9:
            self.names = names

    def loop(self, indent, depth):
        r = self.random
        self.count += 1
        i, e = f"i{self.count}", f"e{self.count}"
        text = self.fill(r.choice([f"for {i} in range({r.randrange(1, 4)}):", f"for {i} in range(k):", f"for {i}, {e} in enumerate({{t}}):", f"for {e} in {{t}}:",
                                   f"for {i}, {e} in zip(range(3), {{t}}):", f"for {i}, {e} in {{d}}.items():", f"for {i} in {{d}}:", f"for {e} in {{a}}:",
                                   f"for {e} in list(LOG)[-2:]:", f"for {i} in reversed(range({{i}} % 4)):", f"for {i} in range(4, 0, -2):", f"for {e} in ({{e}}, {{a}}):",
                                   f"for {e} in map(lambda q: q, {{t}}):", f"for {i} in range(k, k + 3):", "while"] +
                                  ([f"for {e} in numbers({{i}} % 4, {{a}}):", f"for {i} in outer(2):"] if "numbers" in self.space else [])))
        outer, names = self.loops, list(self.names)
        self.loops += 1
        if text == "while":
            self.run(f"{i} = 0")
            self.emit(indent, f"{i} = 0")
            bound = r.choice(["3", "k", "2"])
            more = f" and {self.condition()}" if r.random() < 0.3 else ""
            self.emit(indent, f"while {i} < {bound}{more}:")
            self.emit(indent + 1, f"{i} += 1")
        else:
            # An empty iterable leaves the variables unknown: the body is grown on numbers then.
            if not self.run(text + " break"):
                text = f"for {i} in range(3):"
                self.run(text + " break")
            for name in (i, e):
                if re.search(rf"\b{name}\b", text):
                    self.space.setdefault(name, 1)
            self.emit(indent, text)
        self.names += [n for n in (i, e) if n in self.space]
        self.block(indent + 1, depth + 1)
        self.loops = outer
        if r.random() < 0.15:
            self.emit(indent, "else:")
            self.block(indent + 1, depth + 1)
        if r.random() < 0.8:
            self.names = names

    def protected(self, indent, depth):
        r = self.random
        self.emit(indent, "try:")
        self.block(indent + 1, depth + 1)
        if r.random() < 0.7:
            self.emit(indent + 1, self.fill(r.choice(parts.RAISING)))
        handlers = r.choice([1, 1, 1, 2, 0])
        for _ in range(handlers):
            self.count += 1
            name = f"error{self.count}"
            as_name = r.random() < 0.6
            self.emit(indent, f"except {r.choice(parts.CAUGHT)}{' as ' + name if as_name else ''}:")
            if as_name:
                self.emit(indent + 1, r.choice([f"LOG.append(str({name}))", f"LOG.append(type({name}).__name__)", f"LOG.append({name})", f"STATE.last = {name}",
                                                f"raise Mine('again') from {name}", f"LOG.append({name}.args)"]))
            if r.random() < 0.08:
                self.emit(indent + 1, r.choice(["raise", "raise Mine('other')"]))
            self.block(indent + 1, depth + 1)
        if handlers and r.random() < 0.25:
            self.emit(indent, "else:")
            self.block(indent + 1, depth + 1)
        if not handlers or r.random() < 0.3:
            self.emit(indent, "finally:")
            self.block(indent + 1, depth + 1)

    def manager(self, indent, depth):
        r = self.random
        self.count += 1
        texts = pieces.WITHS["b"] + pieces.WITHS[self.lib[0]]
        usable = [t for t in texts if ("anage" not in t or "Manager" in self.space)]
        chosen = r.sample(usable, 2 if r.random() < 0.2 else 1)
        as_name = r.random() < 0.4
        self.emit(indent, f"with {', '.join(chosen)}{f' as m{self.count}' if as_name else ''}:")
        self.block(indent + 1, depth + 1)
        if r.random() < 0.2:
            self.emit(indent + 1, self.fill(r.choice(parts.RAISING)))

    def function(self, indent, depth):
        r = self.random
        self.functions += 1
        name = f"inner{self.functions}"
        names, loops, self.loops = list(self.names), self.loops, 0
        written = self.named("array", "int", default=None) if r.random() < 0.5 else None
        generator = r.random() < 0.25
        self.emit(indent, f"def {name}(a, b={self.fill('{n}')}):")
        start = len(self.lines)
        if written in self.own:
            self.emit(indent + 1, f"nonlocal {written}")
            self.emit(indent + 1, self.fill(f"{written} = {written} + 1"))
        self.space["a"], self.space["b"] = self.space[self.named("array", default="x")], 2
        self.names += ["a", "b"]
        self.block(indent + 1, depth + 2, 3)
        if generator:
            self.emit(indent + 1, self.fill("yield {v}"))
            self.emit(indent + 1, self.fill("yield {a} + b"))
        self.emit(indent + 1, self.fill("return {v}"))
        self.names, self.loops = names, loops
        text = f"def {name}(a, b=2):\n" + "\n".join(line[4 * indent:] for line in self.lines[start:])
        if not self.run(text):
            del self.lines[start - 1:]
            self.emit(indent, "pass")
            return
        use = "{fresh} = list(%s({e}))" if generator else r.choice(["{fresh} = %s({e})", "{fresh} = %s({a}, {n}), %s({a})", "{fresh} = [%s({a}) for _ in range(2)]", "{fresh} = %s"])
        text = self.fill(use.replace("%s", name))
        if self.run(text):
            self.emit(indent, text)

    # ---- calls

    def array_text(self, shape, dtype=None):
        r = self.random
        dtype = dtype or r.choice(parts.DTYPES if r.random() < 0.6 else ["float32", "float64"])
        if self.lib == "torch" and r.random() < 0.05:
            dtype = "bfloat16"
        layout = r.choice(["c"] * 6 + ["f", "strided", "padded"] + (["reversed", "expanded", "readonly"] if self.lib == "numpy" else ["expanded"] if r.random() < 0.3 else []))
        if self.gradients and r.random() < 0.6:
            layout = "leaf"
        values = r.choice(["plain"] * 7 + ["special", "large"])
        return f'make({shape}, "{dtype}", {r.randrange(1000)}, "{layout}", "{values}")'

    def arguments(self, shape):
        """Texts of the arguments by name."""
        r = self.random
        texts = {"x": self.array_text(shape, "float32" if r.random() < 0.4 else None),
                 "y": self.array_text(r.choice([shape, shape, shape[-1:], (1,) * len(shape)])),
                 "z": self.array_text(r.choice([shape, shape, shape[1:], (3,), ()])),
                 "k": str(r.randrange(0, 4)), "s": r.choice(["0.25", "0.75", "-1.5", "2"]),
                 "items": f"[{self.array_text(shape)}, {r.randrange(5)}, {self.array_text(shape[-1:])}]",
                 "table": f'{{"a": {self.array_text(shape)}, "n": {r.randrange(5)}}}'}
        if "class Box" in self.source:
            texts["box"] = f"Box({self.array_text(shape)}, {r.randrange(4)})"
        return texts

    def call(self, texts, before=""):
        return f"{before}ARGS = [{', '.join(texts.values())}]"

    def calls(self, texts, shape):
        r = self.random
        calls = [self.call(texts), self.call(texts)]
        for _ in range(r.randrange(2, 6)):
            changed, before = dict(texts), ""
            what = r.randrange(15)
            if what < 3:
                name = r.choice([n for n in texts if n in "xyz"])
                changed[name] = self.array_text(shape)
            elif what == 3:
                changed["k"] = r.choice(["0", "1", "5", "-1", "True", "2.0", "np.int64(2)", "3"])
                changed["s"] = r.choice(["0.5", "1", "-0.0", 'float("inf")', "np.float32(1.5)", "True", "None"])
            elif what == 4:
                changed = self.arguments(tuple(r.choice([n, n + 1, n + 2, 0, 1]) for n in shape))
            elif what == 5:
                before, changed["x"], changed["y"] = f"B = {texts['x']}\n", "B", r.choice(["B", "B[1:]", "B[:-1]", "B[...]", "B.T", "B[::2]", "B[0]", "B.reshape(-1)", "B[1:2]"])
                changed["x"], changed["z"] = r.choice(["B", "B", "B[:-1]", "B[::2]"]), r.choice([changed["z"], "B", "B[-1]"])
            elif what == 6:
                before = f"B = {texts['x']}\n"
                changed["x"], changed["items"] = "B", "[B, 1, B[:1]]"
                changed["table"] = '{"n": 2, "a": B}'
            elif what == 7:
                changed["items"] = r.choice(["[]", "[1, 2, 3]", f"({self.array_text(shape)}, 2)", f"[{self.array_text(shape)}] * 2", f"[[{self.array_text(shape)}], 'text']"])
                changed["table"] = r.choice(["{}", f'{{"n": 1, "a": {self.array_text(shape)}, "b": None}}', '{"a": 3, "n": 2.5}', "collections.OrderedDict(a=1, n=2)"])
            elif what == 11:
                calls.append("ARGS = list(ARGS)")
                continue
            elif what == 8:
                # Overlapping views that differ in size, or sizes of zero, or another rank.
                other = r.choice([tuple(0 for _ in shape), shape[1:], shape + (2,), (1,) + shape, (3,), tuple(n and n - 1 for n in shape)])
                changed[r.choice("xyz")] = self.array_text(other)
            elif what == 9:
                changed = self.arguments(shape)
            elif what == 10:
                others = ["np.float32(1.5)", "2", "np.array(3)", "None", "[1, 2]", f"{self.array_text(shape)}.astype('>f4')" if self.lib == "numpy"
                          else f"{self.array_text(shape, 'float32')}.to_sparse()"]
                # torch multiplies a view of a larger tensor by a sparse one, and adds one to it, as if it had no gaps, and writes past its end.
                if self.lib == "torch" and re.search(r"[*+-]=|mul_|add_|sub_", "".join(self.lines)):
                    others.pop()
                changed[r.choice("xyz")] = r.choice(others)
            else:
                changes = pieces.CHANGES + [c for key, some in pieces.PIECE_CHANGES.items() if key in self.source for c in some]
                before = self.fill(r.choice(changes)).replace(" k", " 2").replace("(k", "(2") + "\n"
            calls.append(self.call(changed, before))
        if r.random() < 0.5:
            calls.append(calls[0])
        return calls

    def case(self):
        r = self.random
        shape = r.choice([(3, 4), (5,), (2, 3, 4), (4, 4), (1, 3), (0, 3), (7,), (3, 1), (16, 33), (2,), ()])
        texts = self.arguments(shape)
        self.space = namespace_of(Case(self.lib, self.source, []), "<growing>")
        self.own = set(texts)
        with quiet():
            exec(self.call(texts), self.space)
        self.space.update(zip(texts, self.space["ARGS"]))
        # A reference to a built-in a program could shadow would be kept by the namespace; these are the places' values.
        self.names = list(texts)
        for _ in range(r.randrange(3, 13)):
            self.statement(1)
        assigned = [n for n in self.names if re.fullmatch(r"v\d+", n)][-5:]
        result = ", ".join(assigned or ["x"])
        signature = list(texts)
        source = f"{self.source}\n\ndef f({', '.join(signature)}):\n" + "\n".join(self.lines) + f"\n    return [{result}]\n"
        return Case(self.lib, source, self.possible(source, self.calls(texts, shape)))

    def possible(self, source, calls):
        """The calls whose arguments can be made: a view the changed shape does not have is dropped."""
        space, kept = namespace_of(Case(self.lib, source, []), "<growing>"), []
        for text in calls:
            try:
                with quiet():
                    exec(text, space)
                kept.append(text)
            except Exception:
                pass
        return kept


def failing_calls(case):
    """How many calls raise in eager; TooLong if one runs for ever."""
    space, failed = namespace_of(case, "<growing>"), 0
    for text in case.calls:
        with quiet():
            exec(text, space)
            try:
                with limited(LONGEST):
                    space["f"](*space["ARGS"])
            except Exception:
                failed += 1
    return failed


def program(seed, lib):
    """The program of a seed. Most that raise in their first calls anyway are thrown away, all that run for ever are."""
    for attempt in range(50):
        random.seed(seed)
        np.random.seed(seed % 2 ** 32)
        if torch is not None:
            torch.manual_seed(seed)
        grower = Grower(f"{seed} {lib} {attempt}", lib)
        try:
            case = grower.case()
            failed = failing_calls(case)
        except (TooLong, SyntaxError):
            continue
        if failed < len(case.calls) / 2 or grower.random.random() < 0.15:
            return case
    raise RuntimeError(f"no program for seed {seed}")
