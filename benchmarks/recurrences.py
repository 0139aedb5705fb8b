"""Loops over tensors of torch as people write them: the first call, and eager over compiled from the sixth call on.

    python benchmarks/recurrences.py [--lengths 50,500,5000] [--only scan,rnn] [--script]

Below 1 eager is faster. Systems take turns, the least of several calls of each is taken; one thread. `--script`:
torch.jit.script too.
"""
import argparse
import time

import torch

import framejit


def scan(a, x):
    h = torch.zeros(x.shape[0])
    out = torch.empty_like(x)
    for t in range(x.shape[1]):
        h = a * h + x[:, t]
        out[:, t] = h
    return out


def rnn(w, x):
    h = torch.zeros(x.shape[0], w.shape[0])
    states = []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] + h @ w)
        states.append(h)
    return torch.stack(states, 1)


def gru(w, u, x):
    h = torch.zeros(x.shape[0], x.shape[2] // 3)
    states = []
    for t in range(x.shape[1]):
        z, r, n = (x[:, t] + h @ w).chunk(3, 1)
        z, r = torch.sigmoid(z), torch.sigmoid(r)
        h = (1 - z) * torch.tanh(n + (r * h) @ u) + z * h
        states.append(h)
    return torch.stack(states, 1)


def smoothing(x):
    y = torch.empty_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.3 * x[i] + 0.7 * y[i - 1]
    return y


def heat(u, steps):
    for _ in range(steps.shape[0]):
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (around - 4 * u[1:-1, 1:-1])
    return u


def power(A, v, steps):
    for _ in range(steps.shape[0]):
        w = A @ v
        v = w / w.norm()
    return v


def attention(q, k, v):
    out = torch.zeros_like(q)
    for i in range(q.shape[0]):
        weights = torch.softmax(k[: i + 1] @ q[i] / 8.0, 0)
        out[i] = weights @ v[: i + 1]
    return out


PROGRAMS = {
    "scan": (scan, lambda n: (torch.rand(64), torch.rand(64, n))),
    "rnn": (rnn, lambda n: (torch.rand(32, 32) / 10, torch.rand(8, n, 32))),
    "gru": (gru, lambda n: (torch.rand(32, 96) / 10, torch.rand(32, 32) / 10, torch.rand(8, n, 96))),
    "smoothing": (smoothing, lambda n: (torch.rand(n),)),
    "heat": (heat, lambda n: (torch.rand(100, 100), torch.zeros(n))),
    "power": (power, lambda n: (torch.rand(50, 50), torch.rand(50), torch.zeros(n))),
    "attention": (attention, lambda n: tuple(torch.rand(n, 64) for _ in range(3))),
    "rnn, trained": (rnn, lambda n: (torch.rand(32, 32, requires_grad=True), torch.rand(8, n, 32))),
}


def measure(name, length, scripts):
    function, make = PROGRAMS[name]
    arguments = make(length)
    trained = any(a.requires_grad for a in arguments)
    systems = {"eager": function, "framejit": framejit.compile(function)}
    if scripts:
        systems["script"] = torch.jit.script(function)

    def call(system):
        given = [a if a.requires_grad else a.clone() for a in arguments]
        start = time.perf_counter()
        result = systems[system](*given)
        if trained:
            result.sum().backward()
        return time.perf_counter() - start, result

    first = {system: call(system)[0] for system in systems if system != "eager"}
    expected = call("eager")[1]
    for system in first:
        torch.testing.assert_close(call(system)[1], expected, rtol=1e-3, atol=1e-4)
    least = dict.fromkeys(systems, float("inf"))
    rounds = 0
    stop = time.perf_counter() + 4
    while rounds < 15 and (rounds < 6 or time.perf_counter() < stop):
        for system in systems:
            seconds = call(system)[0]
            if rounds > 4:
                least[system] = min(least[system], seconds)
        rounds += 1
    return {system: (first[system] * 1e3, least["eager"] / least[system]) for system in first}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="50,500,5000")
    parser.add_argument("--only", default=",".join(name for name in PROGRAMS).replace(", ", ";"))
    parser.add_argument("--script", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    framejit.set_threads(1) if hasattr(framejit, "set_threads") else None
    print("passes       system    " + "".join(f"{length:>24}" for length in options.lengths.split(",")))
    for name in options.only.split(","):
        name = name.replace(";", ", ")
        found = [measure(name, int(length), options.script) for length in options.lengths.split(",")]
        for system in found[0]:
            cells = "".join(f"{one[system][0]:12.0f} ms {one[system][1]:7.2f}x" for one in found)
            print(f"{name:13}{system:10}{cells}", flush=True)


if __name__ == "__main__":
    main()
