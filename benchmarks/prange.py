"""Passes on several threads: microseconds of a call over framejit.prange, over range on one thread, and of Numba's prange.

    python benchmarks/prange.py

Sizes 10, 100 and 600: squares of that many elements a side, or as many passes as such a square has elements. The three take turns, the
least of some calls each; before that each runs for a second, until its code is chosen.
"""
import time

import numba
import numpy as np

import framejit
from machine import description
from turns import in_turns

PROGRAMS = '''
def mandelbrot(xs, ys, out):
    for i in prange(len(ys)):
        for j in range(len(xs)):
            zr = zi = 0.0
            n = 0
            while n < 200 and zr * zr + zi * zi < 4:
                zr, zi = zr * zr - zi * zi + xs[j], 2 * zr * zi + ys[i]
                n += 1
            out[i, j] = n


def distances(p, out):
    for i in prange(len(p)):
        for j in range(len(p)):
            d = 0.0
            for k in range(p.shape[1]):
                t = p[i, k] - p[j, k]
                d += t * t
            out[i, j] = np.sqrt(d)


def total(a):
    s = 0.0
    for i in prange(len(a)):
        s += np.sqrt(a[i])
    return s


def jacobi(u, v, steps):
    for _ in range(steps):
        for i in prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
        u, v = v, u
    return u


def normalised(a):
    for i in prange(len(a)):
        m = 0.0
        for j in range(a.shape[1]):
            m += a[i, j]
        m /= a.shape[1]
        for j in range(a.shape[1]):
            a[i, j] -= m


def axpy(a, x, y):
    for i in prange(len(x)):
        y[i] += a * x[i]


def logistic(s, k, t, out):
    for i in prange(len(s)):
        d = (np.log(s[i] / k[i]) + 0.06 * t[i]) / (0.2 * np.sqrt(t[i]))
        out[i] = s[i] / (1.0 + np.exp(-1.7 * d))
'''


def programs(prange):
    scope = {"np": np, "prange": prange}
    exec(PROGRAMS, scope)
    return {name: made for name, made in scope.items() if callable(made) and made is not prange}


def arguments(name, n):
    random = np.random.default_rng(1).random
    return {
        "mandelbrot": lambda: (np.linspace(-2, 0.5, n), np.linspace(-1.2, 1.2, n), np.zeros((n, n), int)),
        "distances": lambda: (random((n, 3)), np.zeros((n, n))),
        "total": lambda: (random(n * n),),
        "jacobi": lambda: (random((n, n)), random((n, n)), 10),
        "normalised": lambda: (random((n, n)),),
        "axpy": lambda: (1e-9, random(n * n), random(n * n)),
        "logistic": lambda: (random(n * n) + 1, random(n * n) + 1, random(n * n) + 0.1, np.zeros(n * n)),
    }[name]()


def main():
    print(f"{description()['processor']}: microseconds of a call, and the time of one thread and of Numba over that of framejit.prange")
    print(f"{'':12}{'size':>6}{'one thread':>12}{'prange':>12}{'numba':>12}{'':4}{'one':>6}{'numba':>7}")
    ours, plain, theirs = programs(framejit.prange), programs(range), programs(numba.prange)
    for name in ours:
        for size in (10, 100, 600):
            functions = framejit.compile(plain[name]), framejit.compile(ours[name]), numba.njit(parallel=True)(theirs[name])
            given = arguments(name, size)
            until = time.perf_counter() + 3.0
            while time.perf_counter() < until:
                for function in functions:
                    function(*given)
            one, several, peer = in_turns([lambda f=f: f(*given) for f in functions], 1.5)
            print(f"{name:12}{size:>6}{one * 1e6:>12.1f}{several * 1e6:>12.1f}{peer * 1e6:>12.1f}{'':4}{one / several:>6.2f}{peer / several:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
