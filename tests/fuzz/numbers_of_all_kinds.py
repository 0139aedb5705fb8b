"""Random expressions over kinds of numbers: Python's and NumPy's, sizes, elements and what is computed, beside arrays.

A call gives each argument another value of its kind: the first compiles for constants, the second for what changes, and
edge values come to what is compiled. `program` makes the case, which `case.check` runs as those of grow.py.
"""
import random

from case import Case

INTS = [0, 1, -1, 2, 3, -3, 7, 10, 100, 127, 128, -128, -129, 255, 256, 32767, 65536, 2**31 - 1, 2**31, -2**31, 2**32,
        2**53 + 1, 2**62, 2**63 - 1, -2**63, 2**63, 2**64]
FLOATS = "0.0 -0.0 1.0 -1.0 0.5 2.5 -2.5 1e10 1e308 inf -inf nan 65504.0 65520.0 3.5e38".split()
DTYPES = {"numpy": "int8 uint8 int32 int64 uint64 float16 float32 float64 bool".split(),
          "torch": "int8 uint8 int32 int64 float16 bfloat16 float32 float64 bool".split()}
#: How an argument is read.
KINDS = {"int": "{}", "float": "{}", "bool": "{}", "array": "{}", "size": "{}.shape[0]", "element": "{}[1]",
         "item": "{}[0].item()", "whole": "int({}[0])"}
OPERATORS = """
    {a} + {b}
    {a} - {b}
    {a} * {b}
    {a} / {b}
    {a} // {b}
    {a} % {b}
    {a} & {b}
    {a} | {b}
    {a} ^ {b}
    {a} < {b}
    {a} <= {b}
    {a} == {b}
    {a} != {b}
    min({a}, {b})
    max({a}, {b})
    divmod({a}, {b})
    -{a}
    abs({a})
    ~{a}
    int({a})
    float({a})
    bool({a})
    round({a})
    {a} ** 2
    2 ** {a} if 0 <= {a} < 40 else {a}
    {a} << 3
    {a} >> 2
    {a} if {a} else {b}
    {a} and {b}
    not {a}
""".strip().splitlines()
FUNCTIONS = {"numpy": """
    np.maximum({a}, {b})
    np.minimum({b}, {a})
    np.add({a}, {b})
    np.where({a}, {b}, {a})
    np.floor({a})
    np.sign({a})
    np.abs({a})
    np.fmod({a}, {b})
    np.clip({a}, 0, {b})
    np.float32({a}) + {b}
    np.int32({a}) + {b}
    np.full(3, {a}) + {b}
    np.asarray({a}) * {b}
""".strip().splitlines(), "torch": """
    torch.maximum(torch.as_tensor({a}), torch.as_tensor({b}))
    torch.add({a}, {b})
    torch.sub({a}, {b}, alpha=2)
    torch.where(m, {a}, {b})
    torch.fmod({a}, {b})
    torch.remainder({a}, {b})
    torch.full((3,), {a}) + {b}
    torch.tensor({a}) * {b}
    torch.clamp(n, max={a})
    m.new_full((2,), {a})
    n.masked_fill(m, {a})
""".strip().splitlines()}


def value(rnd, kind, dtype):
    """The text of an argument for one call."""
    if kind == "int":
        return repr(rnd.choice(INTS))
    if kind == "float":
        return f"float({rnd.choice(FLOATS)!r})"
    if kind == "bool":
        return repr(rnd.random() < .5)
    size = rnd.choice([1, 2, 3, 5]) if kind == "size" else 3
    values = rnd.choice(["plain", "plain", "large", "special"])
    return f"make(({size},), {dtype!r}, {rnd.randrange(1000)}, values={values!r})"


def program(seed, lib):
    rnd = random.Random(f"{seed} of {lib}")
    kinds = [rnd.choice(list(KINDS)) for _ in range(3)]
    dtypes = [rnd.choice(DTYPES[lib]) for _ in kinds]
    known = [KINDS[kind].format(name) for kind, name in zip(kinds, "xyz")]
    lines = ["import numpy as np" if lib == "numpy" else "import torch", "def f(x, y, z, m, n):"]
    made = []
    for number in range(rnd.randint(1, 4)):
        text = rnd.choice(OPERATORS * 2 + FUNCTIONS[lib] * 3)
        lines.append(f"    v{number} = {text.strip().format(a=rnd.choice(known + made), b=rnd.choice(known + made))}")
        made.append(f"v{number}")
    lines.append(f"    return n * 2 + 1, {', '.join(made)}")
    calls = []
    for _ in range(7):
        given = [value(rnd, kind, dtype) for kind, dtype in zip(kinds, dtypes)]
        given += [f"make((3,), 'bool', {rnd.randrange(9)})", f"make((3,), {rnd.choice(['int32', 'float32'])!r}, 3)"]
        calls.append(f"ARGS = [{', '.join(given)}]")
    return Case(lib, "\n".join(lines) + "\n", calls)
