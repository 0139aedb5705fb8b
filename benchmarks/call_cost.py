"""What a call costs: framejit against eager on arrays of 4 elements, where nothing but the call counts.

    python benchmarks/call_cost.py [words]     cases whose name contains a word

Compiled and eager calls alternate in short turns, the least of each counts, so that load from elsewhere disturbs both alike.
"one operation" is what the library itself takes for `x + 1`: a compiled call is to cost no more, whatever is in it. In the cases "grad" it
is torch's `x + 1` of a tensor that requires a gradient, and a compiled call is to cost no more than two; "and back" is the call and its backward.
"""
import functools
import operator
import sys
import time

import numpy as np

import framejit

try:
    import torch
except ImportError:
    torch = None

ROUNDS, CALLS = 200, 20


def increment(x):
    return x + 1


def chain_numpy(x):
    return 1 / (1 + np.exp(-(np.maximum((x + 1) * 2, 0) - 0.5)))


def chain_torch(x):
    return torch.sigmoid(torch.relu((x + 1) * 2) - 0.5)


def sum_of(count):
    names = [f"x{i}" for i in range(count)]
    scope = {}
    exec(f"def total({', '.join(names)}): return {' + '.join(names)}", scope)
    return scope["total"]


def product(x, y):
    return x * y + x


def five_results(x, y):
    return x.sin() * y, x.exp() + y, x.cos() - y, x.tanh() * 2, y.sigmoid() * 3


def forty_results(x):
    return [x * i for i in range(40)]


def and_back(function):
    """What calls it and derives all results."""
    def run(*given):
        results = function(*given)
        results = results if isinstance(results, (tuple, list)) else [results]
        torch.autograd.backward(results, [torch.ones_like(result) for result in results])

    return run


def cases():
    yield "numpy  x + 1", "numpy", increment, 1
    yield "numpy  chain_ops", "numpy", chain_numpy, 1
    for count in (4, 16):
        yield f"numpy  sum of {count}", "numpy", sum_of(count), count
    if torch is None:
        return
    yield "torch  x + 1", "torch", increment, 1
    yield "torch  chain_ops", "torch", chain_torch, 1
    for count in (4, 16):
        yield f"torch  sum of {count}", "torch", sum_of(count), count
    for count in (1, 10, 100):
        layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(count))).requires_grad_(False)
        yield f"torch  {count} Linear", "torch", layers, 1
    for name, function, count in (("x * y + x", product, 2), ("5 results", five_results, 2), ("40 results", forty_results, 1),
                                  ("5 Linear", torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(5))), 1)):
        yield f"grad   {name}", "grad", function, count
        yield f"grad   {name}, and back", "grad and back", function, count


def arrays(library, count):
    made = [np.linspace(-1, 1, 4, dtype=np.float32) + i for i in range(count)]
    return made if library == "numpy" else [torch.from_numpy(array).requires_grad_(library != "torch") for array in made]


def close(ours, eager):
    if isinstance(eager, (tuple, list)):
        assert len(ours) == len(eager)
        for pair in zip(ours, eager):
            close(*pair)
        return
    if library_of(eager) == "torch":
        assert ours.requires_grad == eager.requires_grad
        ours, eager = ours.detach(), eager.detach()
    np.testing.assert_allclose(np.asarray(ours), np.asarray(eager), rtol=1e-5)


def library_of(array):
    return "torch" if torch is not None and isinstance(array, torch.Tensor) else "numpy"


def least(calls):
    """Seconds of one call of each, the least of many short turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - started) / CALLS)
    return best


def measure(library, function, count):
    given = arrays(library, count)
    compiled = framejit.compile(function)
    for _ in range(3):
        close(compiled(*given), function(*given))
    before = framejit.cache_info()
    compiled(*given)
    after = framejit.cache_info()
    if after["hits"] == before["hits"] or after["eager_replays"] != before["eager_replays"]:
        raise SystemExit(f"{function} did not run compiled: this would measure eager against eager")
    operation = functools.partial(operator.add, given[0], 1)
    if library == "grad and back":
        compiled, function = and_back(compiled), and_back(function)
        compiled(*given)
    return least({"compiled": lambda: compiled(*given), "eager": lambda: function(*given), "operation": lambda: operation(),
                  "nothing": lambda: None})


def main(words):
    print(f"{'':28}{'compiled':>12}{'eager':>12}{'of eager':>10}{'of one operation':>18}")
    for name, library, function, count in cases():
        if words and not any(word in name for word in words):
            continue
        seconds = measure(library, function, count)
        compiled, eager, operation = (seconds[of] - seconds["nothing"] for of in ("compiled", "eager", "operation"))
        print(f"{name:28}{compiled * 1e9:9.0f} ns{eager * 1e9:9.0f} ns{compiled / eager:10.2f}{compiled / operation:18.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
