"""Runs every example: what was captured, where it broke and why, and the speed against eager.

    ./run demo            all of them
    ./run demo chain_ops  those whose name contains a word
"""
import contextlib
import io
import statistics
import sys
import time

import framejit

import add_mul
import branch
import chain_ops
import printing

try:
    import torch
except ImportError:
    torch = None


def examples():
    """(title, function or module, arguments)"""
    for lib in ("numpy", "torch") if torch else ("numpy",):
        yield f"chain_ops, {lib}, 2048x2048", getattr(chain_ops, "chain_" + lib), chain_ops.arguments(lib)
        yield f"(x + y) * 2, {lib}, 1000x1000", add_mul.add_mul, add_mul.arguments(lib)
        yield f"concatenation, {lib}", getattr(add_mul, "concat_" + lib), add_mul.concat_arguments(lib, 300_000, 700_000)
        yield f"branch on data, {lib}", branch.branch, add_mul.arguments(lib)[:1]
        yield f"print in the middle, {lib}", printing.print_between, add_mul.arguments(lib)[:1]
        yield f"print in a loop, {lib}", printing.print_in_loop, add_mul.arguments(lib)[:1]
    if torch:
        import activation
        import changing_course
        import mixed
        import test_net

        net = test_net.TestNet()
        for name, x in test_net.arguments().items():
            yield f"TestNet, branches taken: {name}", net, (x,)
        for flag in (False, True):
            switch = activation.Switch()
            switch.use_gelu = flag
            yield f"activation switch, gelu={flag}", switch, activation.arguments()
        yield "torch -> NumPy -> torch", mixed.mixed, mixed.arguments()
        yield from changing_course.examples()


def interleaved(functions, arguments, rounds=9):
    """Median seconds of one call of each, measured in turn so that a busy machine disturbs all alike."""
    times = [[] for _ in functions]
    repeat = 1
    with contextlib.redirect_stdout(io.StringIO()):
        started = time.perf_counter()
        functions[0](*arguments)
        repeat = max(1, min(200, int(0.005 / (time.perf_counter() - started + 1e-9))))
        for _ in range(rounds):
            for function, sink in zip(functions, times):
                started = time.perf_counter()
                for _ in range(repeat):
                    function(*arguments)
                sink.append((time.perf_counter() - started) / repeat)
    return [statistics.median(t) for t in times]


def show(title, function, arguments):
    print("=" * 100)
    print(title)
    print("=" * 100)
    with contextlib.redirect_stdout(io.StringIO()):
        report = framejit.explain(function)(*arguments)
    print(report)
    compiled = framejit.compile(function)
    eager_s, compiled_s = interleaved([function, compiled], arguments)
    print(f"\neager {eager_s * 1e6:10.1f} us   compiled {compiled_s * 1e6:10.1f} us   {eager_s / compiled_s:.2f} times as fast\n")


def main(words):
    scope = torch.no_grad() if torch else contextlib.nullcontext()
    with scope:
        for title, function, arguments in examples():
            if not words or any(word in title for word in words):
                show(title, function, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
