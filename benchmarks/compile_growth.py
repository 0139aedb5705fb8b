"""How the first call grows with a function's length: ten shapes of program with 10, 100 and 1,000 steps.

    python benchmarks/compile_growth.py [--sizes 10,100,1000] [--only rolls,stencils] [--seconds 60]

Each first call is made in a process of its own with an empty kernel cache; the process's own first compilation is not counted. `growth`
is the exponent between the two largest sizes: 1 is linear. The last columns are the least of some later calls, eager over compiled.
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile

# name: (line of each step, the function's arguments)
SHAPES = {
    "chain": ("x = x * 1.01 + y", "np.random.rand(64), np.random.rand(64)"),
    "diamonds": ("x = (x + y) * (x - y)", "np.random.rand(64) * .5, np.random.rand(64) * .1"),
    "rolls": ("x = x - 0.1 * (x - np.roll(x, 1))", "np.random.rand(256), None"),
    "generations": ("x = sum(np.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j) % 3", "np.random.randint(0, 2, (8, 8)), None"),
    "updates": ("x[1:-1] = x[1:-1] + 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])", "np.random.rand(256), None"),
    "stencils": ("x = np.pad(0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]), 1)", "np.random.rand(16, 16), None"),
    "wheres": ("x = np.where(x > y, x - y, x + y)", "np.random.rand(64), np.random.rand(64)"),
    "concatenations": ("x = np.concatenate([x[1:], x[:1]]) + x * y", "np.random.rand(64) * .5, np.random.rand(64) * .5"),
    "reductions": ("x = x - x.mean() * y", "np.random.rand(64), np.random.rand(64)"),
    "products": ("x = x @ y", "np.random.rand(8, 8) * .3, np.random.rand(8, 8) * .3"),
    "rows": ("x[{row}, :] = x[:, {row}] + y", "np.random.rand(16, 16), np.random.rand(16)"),
}
PROGRAM = """
import time
import numpy as np, framejit
framejit.compile(lambda x: x + 1)(np.ones(3))
source = {source!r}
namespace = dict(np=np)
exec(source, namespace)
function = namespace["steps"]
x, y = {arguments}
compiled = framejit.compile(function)
started = time.perf_counter()
with np.errstate(all="ignore"):
    compiled(x.copy(), y)
    first = time.perf_counter() - started
    compiled(x.copy(), y); time.sleep(min(10 * first, 3))
    def least(call):
        best = 1e9
        for _ in range(20):
            a = x.copy(); started = time.perf_counter(); call(a, y); best = min(best, time.perf_counter() - started)
        return best
    print(first, least(function) / least(compiled))
"""


def measure(line, arguments, size, seconds):
    source = "def steps(x, y):\n" + "".join("    " + line.format(row=i % 16) + "\n" for i in range(size)) + "    return x\n"
    with tempfile.TemporaryDirectory() as cache:
        try:
            done = subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(source=source, arguments=arguments)], text=True,
                                  capture_output=True, env=dict(os.environ, FRAMEJIT_CACHE_FOLDER=cache), timeout=seconds)
        except subprocess.TimeoutExpired:
            return math.inf, math.nan
    if done.returncode:
        sys.exit(done.stderr)
    return tuple(map(float, done.stdout.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,100,1000")
    parser.add_argument("--only", default=",".join(SHAPES))
    parser.add_argument("--seconds", type=float, default=60, help="a process that takes longer counts as endless")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    print(f"{'first call, ms':16}" + "".join(f"{size:>10}" for size in sizes) + "    growth    eager over compiled, later calls")
    for name in options.only.split(","):
        line, arguments = SHAPES[name]
        found = [measure(line, arguments, size, options.seconds) for size in sizes]
        growth = math.log(found[-1][0] / found[-2][0]) / math.log(sizes[-1] / sizes[-2]) if len(sizes) > 1 else math.nan
        print(f"{name:16}" + "".join(f"{first * 1e3:10.1f}" for first, _ in found) + f"{growth:10.2f}    " +
              "".join(f"{ratio:8.2f}" for _, ratio in found), flush=True)


if __name__ == "__main__":
    main()
