"""framejit against eager, torch.compile, Numba and JAX in one run.

    ./run bench                      everything
    ./run bench chain_ops            cases whose name contains a word
    ./run bench --first-call         only the first call of a fresh process with empty caches

Calls of all systems are interleaved, so that load from elsewhere disturbs all alike; the table shows the median
microseconds of a call and, in brackets, how many times as fast as eager of the same library (NumPy for Numba,
torch for torch.compile and JAX).
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import systems
from cases import CASES

BASELINE = {"numpy": "numpy", "framejit numpy": "numpy", "numba": "numpy",
            "torch": "torch", "framejit torch": "torch", "torch.compile": "torch", "jax.jit": "torch"}


def throughput(names, words, rounds):
    import numpy as np

    for title, (functions, arguments) in CASES.items():
        if words and not any(word in title for word in words):
            continue
        calls, expected = {}, None
        for system in names:
            library = systems.SYSTEMS[system][0]
            function = systems.wrap(system, functions[library])
            given = systems.arrays(library, arguments)
            try:
                result = np.asarray(function(*given))
            except Exception as error:  # a peer that cannot run here is reported, not hidden
                print(f"{title}: {system} failed: {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            expected = result if expected is None else expected
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=system)
            for _ in range(3):
                function(*given)
            started = time.perf_counter()
            function(*given)
            calls[system] = (function, given, max(1, min(20000, int(0.004 / (time.perf_counter() - started + 1e-9)))))
        times = {system: [] for system in calls}
        for _ in range(rounds):
            for system, (function, given, repeat) in calls.items():
                started = time.perf_counter()
                for _ in range(repeat):
                    function(*given)
                times[system].append((time.perf_counter() - started) / repeat)
        report(title, {system: statistics.median(t) for system, t in times.items()})


def report(title, seconds):
    print(f"\n{title}")
    for system, value in seconds.items():
        base = seconds.get(BASELINE[system])
        ratio = f"  ({base / value:.2f}x {BASELINE[system]})" if base and system != BASELINE[system] else ""
        print(f"    {system:16s} {value * 1e6:12.2f} us{ratio}")


FIRST_CALL = """
import sys, time
sys.path.insert(0, {folder!r})
import systems, cases
function = cases.CHAIN[{library!r}]
arguments = systems.arrays({library!r}, cases.CASES["chain_ops 64x64"][1])
function(*arguments)  # eager once: the library's own start-up is not the compiler's
wrapped = systems.wrap({system!r}, function)
started = time.perf_counter()
wrapped(*arguments)
print(time.perf_counter() - started)
"""


def first_call(names):
    print("\nfirst call of chain_ops 64x64 in a fresh process, caches empty (the wrapper's own imports included where they are lazy)")
    folder = os.path.dirname(os.path.abspath(__file__))
    for system in names:
        if system in ("numpy", "torch"):
            continue
        times = []
        for _ in range(1 if system == "torch.compile" else 3):
            with tempfile.TemporaryDirectory() as cache:
                environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, NUMBA_CACHE_DIR=cache, XDG_CACHE_HOME=cache)
                program = FIRST_CALL.format(folder=folder, library=systems.SYSTEMS[system][0], system=system)
                result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
            if result.returncode:
                print(f"    {system:16s} failed: {result.stderr.strip().splitlines()[-1]}")
                break
            times.append(float(result.stdout.split()[-1]))
        else:
            print(f"    {system:16s} {statistics.median(times) * 1e3:12.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--first-call", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--systems", help="comma-separated; default: all that are installed")
    arguments = parser.parse_args()
    names = arguments.systems.split(",") if arguments.systems else systems.available()
    if not arguments.first_call:
        import contextlib

        scope = contextlib.nullcontext()
        if any(systems.SYSTEMS[n][0] == "torch" for n in names):
            import torch

            scope = torch.no_grad()
        with scope:
            throughput(names, arguments.words, arguments.rounds)
    if arguments.first_call or not arguments.words:
        first_call(names)


if __name__ == "__main__":
    main()
