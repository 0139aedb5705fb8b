"""Loops over the elements of tensors: microseconds of a call beside eager's and torch.jit.script's.

    python benchmarks/tensor_loops.py

Tensors of 10, 1,000 and 100,000 elements; the three take turns, the least of some calls each, one thread.
"""
from turns import in_turns, use_threads

use_threads(1)

import torch  # noqa: E402

import framejit  # noqa: E402
from machine import description  # noqa: E402


def total(x, y):
    s = 0.0
    for i in range(x.shape[0]):
        s += float(x[i])
    return s


def running(x, y):
    s = 0.0
    for i in range(x.shape[0]):
        s = s + float(x[i])
        y[i] = s
    return y


def changed(x, y):
    t = torch.zeros(())
    for i in range(x.shape[0]):
        t += x[i] * 0.5
    return t


def largest(x, y):
    best, at = x[0], 0
    for i in range(1, x.shape[0]):
        if bool(x[i] > best):
            best, at = x[i], i
    return best, at


def relaxed(x, y):
    for i in range(1, x.shape[0] - 1):
        x[i] = (x[i - 1] + x[i + 1]) / 2 + y[i]
    return x


def counted(x, y):
    m, count = x.reshape(-1, 10), 0
    for i in range(m.shape[0]):
        for j in range(m.shape[1]):
            if bool(m[i, j] > 0.5):
                count += 1
    return count


def rows(x, y):
    s = torch.zeros(())
    for v in x:
        s = s + v
    return s


PROGRAMS = [total, running, changed, largest, relaxed, counted, rows]


def main():
    print(f"{description()['processor']}, torch {torch.__version__}: microseconds of a call")
    print(f"{'':10}{'elements':>10}{'eager':>12}{'jit.script':>12}{'framejit':>12}")
    for program in PROGRAMS:
        scripted, compiled = torch.jit.script(program), framejit.compile(program)
        for size in (10, 1000, 100_000):
            arguments = torch.rand(size), torch.zeros(size)
            times = in_turns([lambda f=f: f(*arguments) for f in (program, scripted, compiled)], 1.0)
            print(f"{program.__name__:10}{size:>10}" + "".join(f"{t * 1e6:>12.1f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
