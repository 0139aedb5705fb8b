"""Each function of one and two numbers over 10^6 elements on one thread: framejit's time over NumPy's and torch's.

Processor time, best of several calls. Below 1: framejit is the faster."""
import one_core

clock = one_core.use()

import numpy as np
import torch

import framejit

torch.set_num_threads(1)
ONE = "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sqrt".split()
TWO = "remainder floor_divide fmod power arctan2 hypot".split()
IN_TORCH = {"power": "pow"} | {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")}
RANGES = {"arcsin": (-1, 1), "arccos": (-1, 1), "arctanh": (-1, 1), "arccosh": (1, 20), "power": (0.1, 10)} | dict.fromkeys(
    ["log", "log2", "log10", "log1p", "sqrt"], (0.001, 100))


def best(function, *arguments):
    function(*arguments)
    times = []
    for _ in range(15):
        started = clock()
        function(*arguments)
        times.append(clock() - started)
    return min(times) * 1e3


def compiled(module, name, two):
    function = getattr(module, name)
    return framejit.compile(lambda x, y: function(x, y)) if two else framejit.compile(lambda x: function(x))


def main(size=1_000_000):
    print(f"{'':13}{'dtype':9}{'NumPy ms':>9}{'ours':>7}{'ratio':>7}{'torch ms':>10}{'ours':>7}{'ratio':>7}")
    for name in [*ONE, "erf", *TWO]:
        low, high = RANGES.get(name, (-10, 10))
        for dtype in ("float32", "float64"):
            x = np.random.default_rng(0).uniform(low, high, size).astype(dtype)
            y = np.random.default_rng(1).uniform(0.5, 5, size).astype(dtype)
            arrays = (x, y) if name in TWO else (x,)
            row = f"{name:13}{dtype:9}"
            for module, arguments in ((np, arrays), (torch, tuple(map(torch.from_numpy, arrays)))):
                if module is np and name == "erf":
                    row += f"{'':24}"
                    continue
                known = name if module is np else IN_TORCH.get(name, name)
                eager, ours = best(getattr(module, known), *arguments), best(compiled(module, known, name in TWO), *arguments)
                row += f"{eager:9.2f}{ours:7.2f}{ours / eager:7.2f} "
            print(row, flush=True)


if __name__ == "__main__":
    main()
