"""Loops in loops over the elements of arrays: what one pass of the inner loop costs, and what it costs to begin one.

    python benchmarks/nested_loops.py [--numba]

Each program runs with inner loops of 8, 32 and 128 passes, 32,768 passes in all; the least of 30 calls, one thread.
"""
import argparse
import time

import numpy as np

import framejit


def dot(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k]
        total += s
    return total


def scaled(a, b):
    for i in range(a.shape[0]):
        f = b[i % a.shape[1]]
        for k in range(a.shape[1]):
            a[i, k] = a[i, k] * 0.5 + f


def added_to_the_next_row(a, b):
    for i in range(1, a.shape[0]):
        for k in range(a.shape[1]):
            a[i, k] += a[i - 1, k]


def sums_in_memory(a, b):
    c = np.zeros(a.shape[0])
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            c[i] += a[i, k] * b[k]
    return c


def relaxed(a, b):
    for i in range(1, a.shape[0]):
        for k in range(a.shape[1]):
            if a[i - 1, k] + b[k] < a[i, k]:
                a[i, k] = a[i - 1, k] + b[k]


def counted(a, b):
    total = 0
    for i in range(a.shape[0]):
        s = 0
        for k in range(a.shape[1]):
            s += a[i, k]
        total += s
    return total


def least_of_three(a, b):
    for i in range(1, a.shape[0]):
        for k in range(1, a.shape[1]):
            a[i, k] = min(a[i - 1, k] + 1, a[i, k - 1] + 1, a[i - 1, k - 1] + (i != k))


PROGRAMS = {dot: "float64", scaled: "float64", added_to_the_next_row: "float64", sums_in_memory: "float64", relaxed: "float64",
            counted: "int64", least_of_three: "int64"}
PASSES = 32_768


def nanoseconds(function, a, b):
    """Of a pass of the outer loop."""
    for _ in range(3):
        for _ in range(30):
            function(a.copy(), b)
        framejit._core.finish_compiling()
    best = float("inf")
    for _ in range(30):
        copy = a.copy()
        started = time.perf_counter()
        function(copy, b)
        best = min(best, time.perf_counter() - started)
    return best / len(a) * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numba", action="store_true", help="beside Numba")
    options = parser.parse_args()
    systems = {"framejit": framejit.compile}
    if options.numba:
        import numba

        systems["numba"] = numba.njit
    print(f"{'':24}{'':10}{'8 passes':>10}{'32':>8}{'128':>8}  of which each of the last 96")
    for program, dtype in PROGRAMS.items():
        for name, compile in systems.items():
            function, times = compile(program), []
            for inner in (8, 32, 128):
                rng = np.random.default_rng(0)
                a, b = (rng.random((PASSES // inner, inner)) * 10).astype(dtype), (rng.random(inner) * 1e-3).astype(dtype)
                times.append(nanoseconds(function, a, b))
            print(f"{program.__name__:24}{name:10}{times[0]:7.1f} ns{times[1]:8.1f}{times[2]:8.1f}  {(times[2] - times[1]) / 96:.2f} ns")


if __name__ == "__main__":
    main()
