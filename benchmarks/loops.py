"""Loops over elements, rows and lists as people write them: eager over compiled from the third call on, and the first call.

    python benchmarks/loops.py [--sizes 10,100,1000,20000] [--only walk,sieve]

Below 1 CPython is faster. Each program is compiled anew for each size; the least of several calls of both sides in turn is taken.
"""
import argparse
import math
import time

import numpy as np

import framejit


def walk(draws):
    x = np.zeros(len(draws) + 1)
    for i in range(len(draws)):
        x[i + 1] = x[i] + (1.0 if draws[i] > 0.5 else -1.0)
    return x


def gauss_seidel(u):
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return u


def kalman(measured):
    x, p, out = 0.0, 1.0, []
    for z in measured:
        p += 1e-3
        gain = p / (p + 0.1)
        x += gain * (z - x)
        p *= 1 - gain
        out.append(x)
    return np.array(out)


def count_if(values):
    count = 0
    for value in values:
        if value > 0.5:
            count += 1
    return count


def smoothing(x):
    y = np.empty_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.3 * x[i] + 0.7 * y[i - 1]
    return y


def sieve(n):
    prime = np.ones(n + 1, dtype=bool)
    prime[:2] = False
    for i in range(2, int(n ** 0.5) + 1):
        if prime[i]:
            for j in range(i * i, n + 1, i):
                prime[j] = False
    return prime.sum()


def histogram(x):
    counts = np.zeros(16, dtype=np.int64)
    for value in x:
        counts[int(value * 16)] += 1
    return counts


def metropolis(steps, uniforms):
    x, chain = 0.0, np.empty(len(steps))
    for i in range(len(steps)):
        proposed = x + steps[i]
        if uniforms[i] < math.exp(min(0.0, 0.5 * (x * x - proposed * proposed))):
            x = proposed
        chain[i] = x
    return chain


def squares(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * x[i]
    return total


def run_lengths(values):
    out, before, count = [], None, 0
    for value in values:
        if value == before:
            count += 1
        else:
            if count:
                out.append((before, count))
            before, count = value, 1
    return out + [(before, count)]


def edit_distance(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    d[:, 0], d[0, :] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


def biquad(x):
    y, z1, z2 = np.zeros_like(x), 0.0, 0.0
    for i in range(len(x)):
        v = x[i]
        out = 0.1 * v + z1
        z1, z2 = 0.2 * v - 0.3 * out + z2, 0.1 * v - 0.1 * out
        y[i] = out
    return y


def row_sums(m):
    out = []
    for row in m:
        out.append(row.sum())
    return np.array(out)


def prices(p):
    out = []
    for value in p.tolist():
        out.append(value * 1.1)
    return sum(out)


def appended(a, values):
    out = []
    for value in values:
        out.append(value * 1.1)
    return a.sum() + len(out)


def collatz(n):
    longest = 0
    for start in range(1, n + 1):
        value, steps = start, 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            steps += 1
        longest = max(longest, steps)
    return longest


def bubbles(values):
    values = values.copy()
    for i in range(len(values)):
        for j in range(len(values) - 1 - i):
            if values[j] > values[j + 1]:
                values[j], values[j + 1] = values[j + 1], values[j]
    return values


def csr_product(starts, columns, data, x):
    y = np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            y[i] += data[k] * x[columns[k]]
    return y


def prefix(x):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x


def words(values):
    seen = {}
    for value in values:
        seen[value] = seen.get(value, 0) + 1
    return seen


def heat(u):
    for _ in range(50):
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def programs(n):
    draw, side = np.random.default_rng(0), max(3, int(n ** 0.5))
    x, short = draw.random(n), min(side, 60)
    starts = np.arange(0, 4 * max(n // 4, 1) + 1, 4)
    return {
        walk: (x,), gauss_seidel: (draw.random((side, side)),), kalman: (x,), count_if: (x,), smoothing: (x,), sieve: (n,), histogram: (x,),
        metropolis: (x - 0.5, draw.random(n)), squares: (x,), run_lengths: (draw.integers(0, 3, n),),
        edit_distance: (draw.integers(0, 4, short), draw.integers(0, 4, short)), biquad: (x,), row_sums: (draw.random((n, 4)),), prices: (x,),
        appended: (x, x.tolist()), collatz: (min(n, 1000),), bubbles: (draw.random(short),),
        csr_product: (starts, draw.integers(0, n, starts[-1]), draw.random(starts[-1]), x), prefix: (x,),
        words: ([int(value) for value in draw.integers(0, 50, n)],), heat: (x,),
    }


def copies(arguments):
    return [argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments]


def timed(function, arguments):
    arguments = copies(arguments)
    started = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - started, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,100,1000,20000")
    parser.add_argument("--only")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    framejit.compile(lambda x: x + 1)(np.ones(3))  # the process's own first compilation
    print(f"{'eager / compiled':16}" + "".join(f"{size:>9}" for size in sizes) + "    first call, ms")
    worst = math.inf
    for function in programs(10):
        if options.only and function.__name__ not in options.only.split(","):
            continue
        ratios, firsts = [], []
        for size in sizes:
            framejit.reset()
            arguments = programs(size)[function]
            compiled = framejit.compile(function)
            first, result = timed(compiled, arguments)
            eager, expected = timed(function, arguments)
            if isinstance(expected, (np.ndarray, float)):
                np.testing.assert_allclose(result, expected, rtol=1e-12, err_msg=function.__name__)
            else:
                assert result == expected, function.__name__
            timed(compiled, arguments)
            rounds = max(5, min(300, int(0.3 / max(eager, 1e-6))))
            sides = [min(column) for column in zip(*((timed(function, arguments)[0], timed(compiled, arguments)[0]) for _ in range(rounds)))]
            ratios.append(sides[0] / sides[1])
            firsts.append(first * 1e3)
        worst = min(worst, *ratios)
        print(f"{function.__name__:16}" + "".join(f"{ratio:9.2f}" for ratio in ratios) + "    " + " ".join(f"{first:7.1f}" for first in firsts), flush=True)
    print(f"the least ratio: {worst:.2f}")


if __name__ == "__main__":
    main()
