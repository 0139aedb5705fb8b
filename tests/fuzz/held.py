"""Where random programs of loops stand, and where they find what they work on: see `held_elsewhere`."""
import re


# How a function gets to a loop that is in another one, which is given the arguments {0} and has returned a tuple or not.
CALLERS = [
    "    return work({0})",
    "    x = np.arange(5) * 0.5\n    r = work({0})\n    return r, x + 1",
    "    x = np.ones(3)\n    for again in range(3):\n        r = work({0})\n        x = x * 2 - again\n    return r, x",
    "    def between(*args):\n        return work(*args), np.arange(3) + 1\n    r, x = between({0})\n    return x * 2, r",
    "    try:\n        return work({0})\n    finally:\n        print('left', np.arange(3) * 2)",
    "    class Holder:\n        def __init__(self, *args):\n            self.given = args\n        def run(self):\n            return work(*self.given)\n"
    "    return Holder({0}).run(), np.zeros(2) - 1",
    "    return [work({0}) for again in range(2)]",
]


def called(random, parameters, body):
    """The lines of f: the body, or, in one of four programs, a call that leads to it."""
    if random.random() >= 0.25:
        return [f"def f({parameters}):", body]
    return [f"def work({parameters}):", body, "", f"def f({parameters}):", random.choice(CALLERS).format(parameters)]


def held_elsewhere(random, parameters, body):
    """The lines of f, and of its calls, where some of what it is given is found elsewhere: an attribute, a global variable.

    `body`: reads them by their names, alone. Nothing is held in two of three programs.
    """
    if random.random() < 0.66:
        return called(random, parameters, body), []
    names, method, setup = parameters.split(", "), random.random() < 0.3, []
    for place, name in enumerate(names):
        where = random.choice(["", "", "O.", "G_"])
        if len(name) > 1 or name in "ln" or not where:
            continue
        setup.append(f"{where}{name} = ARGS[{place}]")
        where = "self." if method and where == "O." else where
        body = re.sub(rf"(?<![\w.'\"]){name}(?![\w'\"(])", where + name, body)
    # Some variables of the loop are attributes too, of this object, of another one, or of one that an attribute holds: these may be the same.
    for name in sorted(set(re.findall(r"\b[stw]\d\b", body))) if "nonlocal" not in body else ():
        if random.random() < 0.3:
            body = re.sub(rf"\b{name}\b", random.choice(["self." if method else "O.", "P.", "Q.other."]) + name, body)
    body = body.replace("math.sqrt(", "self.at(" if method else "O.at(")
    setup += [random.choice(["P = O", "P = Held()", "P = Held()"]), "Q = Held()", random.choice(["Q.other = P", "Q.other = O", "Q.other = Held()"])]
    changed = [line.split(" = ")[0] for line in setup if line.startswith("G_")]
    first = f"    global {', '.join(changed)}\n" if changed else ""
    at = random.choice([["return i * self.half"], ["self.seen += 1", "self.last = i", "return self.seen * 0.5"],
                        ["self.kept[0] = i", "self.seen += 1", "self.kept[1] += self.kept[0]", "return self.kept[1] - self.seen"]])
    lines = ["class Held:", "    half = 0.5", "    def __init__(self):", "        self.seen, self.last, self.kept = 0, None, np.zeros(2)", "    def at(self, i):",
             *("        " + line for line in at), ""]
    if method:
        indented = "\n".join("    " + line for line in (first + body).splitlines())
        lines += [f"    def work(self, {parameters}):", indented, "", "O = Held()", ""]
        return [*lines, f"def f({parameters}):", f"    return O.work({parameters})"], setup
    return [*lines, "O = Held()", "", f"def f({parameters}):", first + body], setup
