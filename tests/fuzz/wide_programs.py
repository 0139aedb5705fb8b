"""A second, wider generator: mixed dtypes and shapes, views written in place, masks, joins, products, side effects, errors.

Names of arrays carry their shape while writing; a statement that cannot work in one library is not written. Programs may
raise: then both runs must raise the same.
"""
import random

import numpy as np

FLOATS = ("float32", "float64", "float16")
DTYPES = ("float32", "float32", "float64", "int32", "int64", "bool", "float16")


def broadcast(a, b):
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


class Writer:
    def __init__(self, seed, lib):
        self.random = random.Random(seed * 7919 + 13)
        self.lib, self.torch = lib, lib == "torch"
        self.lines, self.shapes, self.dtypes, self.count = [], {}, {}, 0
        self.in_loop = False

    def emit(self, indent, text):
        self.lines.append("    " * indent + text)

    def fresh(self, shape, kind):
        self.count += 1
        name = f"v{self.count}"
        self.shapes[name], self.dtypes[name] = shape, kind
        return name

    def pick(self, condition=lambda name: True):
        names = [n for n in self.shapes if condition(n)]
        return self.random.choice(names) if names else None

    def expression(self):
        """(text, shape, dtype kind) with kind one of f, i, b: enough to know which operators exist."""
        r = self.random
        a = self.pick()
        shape, kind = self.shapes[a], self.dtypes[a]
        choice = r.randrange(16)
        if choice < 4:
            b = self.pick(lambda n: broadcast(self.shapes[n], shape) is not None)
            result = broadcast(shape, self.shapes[b])
            other = self.dtypes[b]
            both = "f" if "f" in (kind, other) else "i" if "i" in (kind, other) else "b"
            operators = ["+", "*", "<", "==", ">="]
            if both == "b":
                operators = ["&", "|", "^", "==", "+", "*"]
            else:
                operators += ["-", "/"] + (["//", "%"] if both == "i" else [])
                if both == "i" and "b" not in (kind, other):
                    operators += ["&", "|", "^"]
            operator = r.choice(operators)
            right = f"({b} + 41)" if operator in ("//", "%") else f"(abs({b}) + 1)" if operator == "/" and other != "b" else b
            if operator == "/" and other == "b":
                right = f"({b} + 1)"
            if operator in ("<", "==", ">="):
                both = "b"
            elif operator == "/":
                both = "f"
            return f"{a} {operator} {right}", result, both
        if choice == 4:
            number = r.choice(["k", "s", "2", "1.5", "True", "-1", "0"])
            operator = r.choice(["+", "*"] + (["-"] if kind != "b" else []))
            result = "f" if number in ("s", "1.5") else kind if number == "True" else "i" if kind == "b" else kind
            return (f"{a} {operator} {number}" if r.random() < 0.6 or operator == "-" else f"{number} {operator} {a}"), shape, result
        if choice == 5:
            if kind == "b":
                return f"~{a}", shape, "b"
            return r.choice([f"-{a}", f"abs({a})"]), shape, kind
        if choice == 6 and kind == "f":
            name = r.choice(["tanh", "sin", "exp", "sqrt", "floor"])
            argument = {"exp": f"lib.clip({a}, -3, 3)", "sqrt": f"abs({a})"}.get(name, a)
            return f"lib.{name}({argument})", shape, "f"
        if choice == 7:
            condition = self.pick(lambda n: self.dtypes[n] == "b" and broadcast(self.shapes[n], shape) is not None)
            b = self.pick(lambda n: broadcast(self.shapes[n], shape) == shape and self.dtypes[n] == kind)
            if condition and b:
                return f"lib.where({condition}, {a}, {b})", broadcast(self.shapes[condition], shape), kind
        if choice == 8 and shape:
            axis = r.randrange(-len(shape), len(shape))
            keep = r.random() < 0.5
            name = r.choice(["sum", "mean", "max", "min", "any", "argmax"])
            if name == "mean" and (kind != "f"):
                name = "sum"
            if kind == "b" and name in ("max", "min", "argmax"):
                name = "any"
            if name == "any" and kind != "b":
                name = "sum"
            if 0 in shape:
                name = "sum"
            word = "keepdims" if not self.torch else "keepdim"
            where = "dim" if self.torch else "axis"
            method = f"a{name}" if self.torch and name in ("max", "min") else name
            text = f"{a}.{method}({where}={axis}, {word}={keep})"
            position = axis % len(shape)
            result = shape[:position] + ((1,) if keep else ()) + shape[position + 1:]
            return text, result, {"any": "b", "argmax": "i"}.get(name, "i" if kind == "b" else kind)
        if choice == 9 and shape:
            b = self.pick(lambda n: self.shapes[n] == shape and self.dtypes[n] == kind)
            axis = r.randrange(len(shape))
            joined = shape[:axis] + (2 * shape[axis],) + shape[axis + 1:]
            if r.random() < 0.5:
                return f"lib.{'cat' if self.torch else 'concatenate'}([{a}, {b}], {axis})", joined, kind
            return f"lib.stack([{a}, {b}], {axis})", shape[:axis] + (2,) + shape[axis:], kind
        if choice == 10 and len(shape) == 2 and kind == "f":
            b = self.pick(lambda n: self.dtypes[n] == "f" and len(self.shapes[n]) == 2 and self.shapes[n][0] == shape[1])
            if b:
                suffix = ".double()" if self.torch else ""
                return f"({a}{suffix} @ {b}{suffix})" if self.torch else f"({a} @ {b})", (shape[0], self.shapes[b][1]), "f"
        if choice == 11 and shape:
            views = [(f"{a}[1:]", (max(shape[0] - 1, 0),) + shape[1:]), (f"{a}[:-1]", (max(shape[0] - 1, 0),) + shape[1:]),
                     (f"{a}[::2]", ((shape[0] + 1) // 2,) + shape[1:]), (f"{a}[None]", (1,) + shape), (f"{a}[..., None]", shape + (1,)),
                     (f"{a}.reshape(-1)", (int(np.prod(shape)),))]
            if shape[0] > 0:
                views += [(f"{a}[0]", shape[1:]), (f"{a}[-1]", shape[1:])]
            if len(shape) == 2:
                views += [(f"{a}.T", shape[::-1]), (f"{a}[:, 1:]", (shape[0], max(shape[1] - 1, 0)))]
            text, result = r.choice(views)
            return text, result, kind
        if choice == 12:
            target = r.choice(["float32", "float64", "int64", "bool", "int32"])
            method = f"{a}.to(lib.{target})" if self.torch else f"{a}.astype(lib.{target if target != 'bool' else 'bool_'})"
            return (method if kind != "f" or "int" not in target else f"lib.clip({a}, -100, 100)" + method[len(a):]), shape, "b" if target == "bool" else "i" if "int" in target else "f"
        if choice == 13 and kind != "b":
            b = self.pick(lambda n: self.shapes[n] == shape and self.dtypes[n] == kind)
            return f"lib.{r.choice(['maximum', 'minimum'])}({a}, {b})", shape, kind
        if choice == 14 and kind != "b":
            return r.choice([f"lib.clip({a}, -1, 2)", f"{a} ** 2"]), shape, kind
        return f"{a} * 1", shape, "i" if kind == "b" else kind

    def in_place(self, indent):
        r = self.random
        a = self.pick(lambda n: self.shapes[n] and 0 not in self.shapes[n])
        if not a:
            return
        kind = self.dtypes[a]
        number = {"f": "1.5", "i": "3", "b": "True"}[kind]
        same = self.pick(lambda n: self.shapes[n] == self.shapes[a] and self.dtypes[n] == kind)
        # torch refuses operands that overlap what is written; now and then it shall.
        copy = ".clone()" if self.torch and r.random() < 0.9 else ""
        choices = [f"{a}[0] = {number}", f"{a}[...] = {same}", f"{a}[-1] = {a}[0]", f"{a}[::2] = {number}"]
        if kind == "b":
            choices += [f"{a} |= {same}", f"{a}[1:] ^= True"]
        else:
            choices += [f"{a} += {number}", f"{a} *= {same}", f"{a}[1:] -= 2", f"{a} -= {a}[0]{copy}", f"{a}[{a} > 1] = 0"]
            if len(self.shapes[a]) == 1:
                choices += [f"{a}[1:] += {a}[:-1]{copy}", f"{a}[k] += 1"]
        self.emit(indent, r.choice(choices))

    def statement(self, indent, depth):
        r = self.random
        choice = r.random()
        if choice < 0.50 or depth > 2:
            text, shape, kind = self.expression()
            if int(np.prod(shape)) < 4000 and len(shape) < 5:
                self.emit(indent, f"{self.fresh(shape, kind)} = {text}")
        elif choice < 0.64:
            self.in_place(indent)
        elif choice < 0.68:
            self.emit(indent, r.choice([f'print("at", {self.count}, k)', f"print({self.pick()}.shape)", f"log.append({self.count})",
                                        f"log.append({self.pick()})", f"notes[{self.count % 3}] = {self.pick()}", f"notes['n'] = notes.get('n', 0) + k"]))
        elif choice < 0.73:
            a = self.pick()
            name = self.fresh(self.shapes[a], self.dtypes[a])
            self.emit(indent, f"{name} = helper({a}, k, log)")
            self.dtypes[name] = "i" if self.dtypes[a] == "b" else self.dtypes[a]
        elif choice < 0.82:
            a = self.pick()
            self.emit(indent, f"if {r.choice(['k > 2', 's < 0.5', f'{a}.sum() > 0', f'{a}.ndim == 2', 'len(log) > 2', 'k', f'{a}.shape[:1] == (3,)'])}:")
            self.branch(indent + 1, depth + 1)
            if r.random() < 0.5:
                self.emit(indent, "else:")
                self.branch(indent + 1, depth + 1)
        elif choice < 0.92:
            self.count += 1
            variable = f"i{self.count}"
            self.emit(indent, r.choice([f"for {variable} in range({r.randrange(1, 4)}):", f"for {variable} in range(k):", f"for {variable}, _ in enumerate([4, 5]):"]))
            outer, self.in_loop = self.in_loop, True
            self.branch(indent + 1, depth + 1)
            if r.random() < 0.3:
                self.emit(indent + 1, f"if {variable} > {r.choice(['0', 'k', 's'])}: {r.choice(['break', 'continue'])}")
                self.branch(indent + 1, depth + 1)
            self.in_loop = outer
        else:
            a = self.pick(lambda n: self.shapes[n])
            if not a:
                return
            self.emit(indent, "try:")
            self.branch(indent + 1, depth + 1)
            self.emit(indent + 1, r.choice([f"log.append({a}[k + 1].sum())", f"{a}[k] = 1", "log.append(1 // (k - 1))", "log[k]"]))
            self.emit(indent, "except (IndexError, ZeroDivisionError):")
            self.branch(indent + 1, depth + 1)

    def branch(self, indent, depth):
        before = dict(self.shapes), dict(self.dtypes)
        start = len(self.lines)
        for _ in range(self.random.randrange(1, 4)):
            self.statement(indent, depth)
        if len(self.lines) == start:
            self.emit(indent, "pass")
        self.shapes, self.dtypes = before


HELPER = """def helper(a, k, log):
    log.append(k)
    if k > 1:
        return a * 2
    log.append(len(log))
    return a + 1


"""


def program(seed, lib):
    """(source, list of argument tuples of arrays and numbers): f(x, y, z, w, k, s) gives its arrays, log and notes."""
    writer = Writer(seed, lib)
    r = writer.random
    shape = r.choice([(3, 4), (5,), (2, 3, 4), (4, 4), (1, 3), (16, 33), (0, 3), (7,), (3, 1)])
    shapes = [shape, shape, shape[-1:], (1,) * len(shape)]
    dtypes = [r.choice(DTYPES) for _ in range(4)]
    dtypes[1] = dtypes[0] if r.random() < 0.6 else dtypes[1]
    for name, s, d in zip("xyzw", shapes, dtypes):
        writer.shapes[name], writer.dtypes[name] = s, "b" if d == "bool" else "i" if "int" in d else "f"
    for _ in range(r.randrange(3, 11)):
        writer.statement(1, 0)
    results = [n for n in writer.shapes if n.startswith("v")][-4:] or ["x"]
    source = HELPER + "def f(x, y, z, w, k, s):\n    log, notes = [], {}\n" + "\n".join(writer.lines)
    source += f"\n    return [{', '.join(results)}], log, notes\n"
    generator = np.random.default_rng(seed)

    def values(s, d):
        x = generator.standard_normal(s) * 3
        return x > 0 if d == "bool" else x.astype(d)

    arrays = [values(s, d) for s, d in zip(shapes, dtypes)]
    k, s = r.randrange(0, 5), r.choice([0.25, 0.75, -1.5, 0])
    calls = [(*arrays, k, s), (*arrays, k, s), (*(values(*p) for p in zip(shapes, dtypes)), k, s)]
    calls.append((*arrays, r.choice([k + 1, k, 0, -1, True]), s))
    other = r.choice(["alias", "number", "strides", "dtype"])
    if other == "alias":
        calls.append((arrays[0], arrays[0], *arrays[2:], k, s))
    elif other == "number":
        calls.append((*arrays, k + 2, r.choice([1, -0.0, float("inf")])))
    elif other == "strides" and len(shape) == 2:
        calls.append((np.asfortranarray(arrays[0]), *arrays[1:], k, s))
    else:
        calls.append((arrays[0].astype("float64"), *arrays[1:], k, s))
    calls.append(calls[0])
    return source, calls
