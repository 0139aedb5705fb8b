"""Functions that write into what they are given, as random programs of loops call them: see `Writers`."""

# What they are called with: an array or a list, an index, a number. The last line of each is how it ends.
BODIES = {
    "put": "a[i] = new",
    "swap": "a[i], a[0] = a[0], a[i]\nreturn new",
    "bump": "a[i] += new\nreturn a[i]",
    "twice": "a[i] = new\na[-1] = a[i] + 1\nreturn a[i] > a[0]",
    "spread": "for k in range(5):\n    a[k] = a[k] + a[i]\n    if a[k] > 30:\n        return k\nreturn -1",
    "shift": "k = len(a) - 1\nwhile k > 0:\n    a[k] = a[k - 1]\n    k -= 1\na[0] = new",
    "either": "if new > 1:\n    a[i] = new\nelse:\n    a[i] = 1\nreturn a[i]",
    "tries": "try:\n    a[i] = new\n    return a[i + 1] // new\nexcept (IndexError, ZeroDivisionError):\n    a[0] = 2\n    return -1",
    "prints": "a[i] = new\nif i == 3:\n    print('in', new)\na[0] = a[i]\nreturn new",
    "each": "for k, e in enumerate(a):\n    a[k] = e if e < 9 else new\nreturn a[0] + a[i]",
    "fails": "a[i] = new\nif i == 7:\n    raise ValueError(i)\na[0] = new",
    "divides": "a[i] = new\na[0] = new / a[i - 1]\nreturn a[0]",
    "counts": "n = 0\nfor e in a:\n    if e > new:\n        n += 1\na[i] = n\nreturn n",
    "reads": "return a[i] + new",
}
# Others that call two of those.
OUTER = [
    "{0}(a, i, new)\nreturn {1}(a, 0, new)",
    "y = {0}(a, i, new)\na[0] = 1\n{1}(a, i, y if y else 2)",
    "for k in range(3):\n    {0}(a, k, new)\nreturn {1}(a, i, new)",
    "y = {1}(a, i, new)\nreturn {0}(a, i, y or new)",
]


class Writers:
    """Some of them for a program: `source` defines them, `call` gives the text of a call."""

    def __init__(self, random):
        self.random, self.names = random, []
        self.source = []
        if random.random() < 0.5:
            return
        self.names = random.sample(sorted(BODIES), random.randint(1, 3))
        bodies = [BODIES[name] for name in self.names]
        if len(self.names) > 1 and random.random() < 0.5:
            bodies.append(random.choice(OUTER).format(*random.sample(self.names, 2)))
            self.names = [*self.names, "outer"]
        for name, body in zip(self.names, bodies):
            self.source += [f"def {name}(a, i, new=1):", *("    " + line for line in body.splitlines()), ""]

    def call(self, array, index, number):
        name = self.random.choice(self.names)
        return self.random.choice([f"{name}({array}, {index}, {number})"] * 4 + [f"{name}({array}, {index})", f"{name}({array}, new={number}, i={index})"])
