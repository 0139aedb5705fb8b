"""What `framejit.cache_info()` counts of compiled pieces for the option `kept_bytes`, against what they take.

    python benchmarks/kept_memory.py [kinds] [--count 50]

Ten kinds of functions, each in a process of its own that makes `--count` functions and calls each of them three
times. The functions of a kind differ in a constant, so that they share no kernel. They, their arguments and the
wrappers of framejit.compile are made before the first reading, 40 more functions of the kind are called before it,
and free memory is given back to the system before each reading. What is read is the anonymous part of the resident
size.

The tier is the default: quick code first, then optimised code from the background, which has ended before each
reading, so that both are held. The disk cache is off (`cache_bytes=0`): a kernel that was loaded would have one
tier only. `retire` is off: no piece is left to CPython for being slow.

    python benchmarks/kept_memory.py --dropped [--count 5000]

Modules of torch and functions that are compiled, called twice and dropped: how much the process grows from the
first tenth of them to the last.
"""
import argparse
import ctypes
import gc
import os
import subprocess
import sys

WARM_UP = 40  # until the heaps of the threads that compile have grown


def resident():
    """Bytes, without free memory and without the pages of files, which framejit lends back while it is idle."""
    for _ in range(2):
        gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # not glibc
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def function_of(source, namespace):
    exec(source, namespace)
    return namespace["f"]


def small(k):
    import numpy as np
    return function_of(f"def f(x):\n    return x * {k}.5 + 1\n", {}), (np.ones(32),)


def chain(k):
    import numpy as np
    lines = "".join(f"    x = x * {i}.25 + {k}\n" for i in range(1, 51))
    return function_of(f"def f(x):\n{lines}    return x\n", {}), (np.ones(32),)


def reductions(k):
    import numpy as np
    source = (f"def f(x):\n    y = np.exp(x * {k}.5)\n"
              f"    return (y * {k}.25).sum(0), (y + {k}.125).max(1), (y - y.mean(1, keepdims=True) * {k}).sum()\n")
    return function_of(source, {"np": np}), (np.ones((8, 16)),)


def product(k):
    import numpy as np
    source = f"def f(x, w):\n    return np.maximum(x @ w + {k}.5, 0) @ w - {k}.25\n"
    return function_of(source, {"np": np}), (np.ones((16, 16)), np.ones((16, 16)))


def library(k):
    import numpy as np
    source = f"def f(x):\n    return np.linalg.cholesky(x + {k}.5 * np.eye(4)) * {k}.25\n"
    return function_of(source, {"np": np}), (np.eye(4),)


def training(k):
    import torch
    namespace = {"torch": torch, "first": torch.nn.Linear(8, 8), "second": torch.nn.Linear(8, 1)}
    source = (f"def f(x):\n    y = torch.tanh(first(x * {k}.25) * {k}.125)\n"
              f"    return ((second(y) - {k}.5) ** 2).mean()\n")
    return function_of(source, namespace), (torch.ones(4, 8),)


def guards(k):
    import numpy as np
    names = [f"scale{i}" for i in range(40)]
    lines = "".join(f"    x = x * {name}\n" for name in names[:8])
    source = f"def f(x):\n{lines}    return x + ({' + '.join(names)}) + {k}\n"
    return function_of(source, {name: 1.5 + i for i, name in enumerate(names)}), (np.ones(32),)


def symbolic(k):
    import numpy as np
    source = f"def f(x):\n    return (x * {k}.5 + x.shape[0]).reshape(-1, 2).sum(1)\n"
    return function_of(source, {}), (np.ones((8, 16)),), (np.ones((12, 16)),)


def in_place(k):
    import numpy as np
    source = f"def f(x, y):\n    x += {k}.5\n    x[1:] *= 0.{k}\n    y[0] = x[1] * {k}\n    return x[2:]\n"
    return function_of(source, {}), (np.ones((8, 16)), np.ones((8, 16)))


def breaks(k):
    import numpy as np
    source = (f"def f(x):\n    x = x * {k}.5\n    print(end='')\n    x = np.sin(x) + {k}\n    print(end='')\n"
              f"    x = x - {k}.25\n    print(end='')\n"
              f"    return np.tanh(x * {k}.75).sum()\n")
    return function_of(source, {"np": np}), (np.ones(32),)


KINDS = [small, chain, reductions, product, library, training, guards, symbolic, in_place, breaks]


def measure(kind, count):
    """Prints what the process grew by, what framejit counts, pieces and kernels."""
    import framejit
    from framejit import _core

    import framejit

    def call(compiled, arguments):
        result = compiled(*arguments)
        if kind is training:
            result.backward()

    made = [kind(k + 1) for k in range(count + WARM_UP)]
    made = [(framejit.compile(function), arguments) for function, *arguments in made]

    def run(part):
        for compiled, arguments in part:
            for given in arguments:
                for _ in range(3):
                    call(compiled, given)
        _core.finish_compiling()
        info = framejit.cache_info()
        return resident(), info["bytes"], info["kept_segments"], info["kernels_compiled"]

    before = run(made[:WARM_UP])
    after = run(made[WARM_UP:])
    print(*(b - a for a, b in zip(before, after)))


def grown_by_dropped(what, count):
    """Prints the bytes by which the process grows between a tenth of the objects and all of them."""
    import framejit
    from framejit import _core
    import framejit
    import torch

    x = torch.ones(3, 4)
    for k in range(count):
        if what == "modules":
            compiled = framejit.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
        else:
            compiled = framejit.compile(function_of(f"def f(x):\n    return x * {k}.5 + 1\n", {}))
        for _ in range(2):
            compiled(x)
        del compiled
        if k + 1 == count // 10:
            _core.finish_compiling()
            before = resident()
    _core.finish_compiling()
    print(resident() - before, framejit.cache_info()["kept_segments"])


def in_a_process(*words):
    """The numbers that this file prints when run with these words."""
    environment = {**os.environ, "FRAMEJIT_CACHE_BYTES": "0", "FRAMEJIT_RETIRE": "0"}
    command = [sys.executable, os.path.abspath(__file__), "--in-process", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return [int(word) for word in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--count", type=int)
    parser.add_argument("--dropped", action="store_true")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        named = [kind for kind in KINDS if kind.__name__ in options.kinds]
        return measure(named[0], options.count) if named else grown_by_dropped(options.kinds[0], options.count)
    if options.dropped:
        count = options.count or 5000
        for what in ("modules", "functions"):
            grown, pieces = in_a_process(what, "--count", count)
            print(f"{count} {what}: {grown / 1e6:.1f} MB more than after {count // 10}, {pieces} pieces kept",
                  flush=True)
        return
    print(f"{'kind':12} {'pieces':>6} {'kernels':>8} {'measured kB':>12} {'counted kB':>11} {'ratio':>6}")
    totals = [0, 0, 0, 0]
    for kind in KINDS:
        if options.kinds and kind.__name__ not in options.kinds:
            continue
        row = in_a_process(kind.__name__, "--count", options.count or 50)
        totals = [a + b for a, b in zip(totals, row)]
        print_row(kind.__name__, *row)
    print_row("all", *totals)


def print_row(name, measured, counted, pieces, kernels):
    print(f"{name:12} {pieces:6} {kernels / pieces:8.1f} {measured / 1e3 / pieces:12.1f} {counted / 1e3 / pieces:11.1f}"
          f" {counted / measured:6.2f}", flush=True)


if __name__ == "__main__":
    main()
