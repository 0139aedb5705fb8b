"""How long a user waits for the first result: chain_ops on 64x64 in a fresh process with empty caches.

    python benchmarks/first_call.py [--systems framejit,numba,jax] [--runs 3] [--warm]

The library's own first operation is not counted, the compiler's own imports are, where they are lazy (torch.compile). --warm
repeats each with the caches its first process left.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import systems

PROGRAM = """
import sys, time
sys.path.insert(0, {folder!r})
import systems
from workloads.pointwise import ChainOps
row = systems.SYSTEMS[{system!r}]
function = systems.program(ChainOps, row)
arguments = systems.arrays_of(row.arrays, ChainOps.arguments(64, 64))
if row.source not in ("numba", "numexpr"):
    function(*arguments)  # eager once: the library's own start-up is not the compiler's
started = time.perf_counter()
row.wrap(function)(*arguments)
print(time.perf_counter() - started)
"""


def first_call(system, cache):
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, NUMBA_CACHE_DIR=cache, XDG_CACHE_HOME=cache)
    result = subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(folder=folder, system=system)], env=environment, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError((result.stderr.strip().splitlines() or ["no message"])[-1])
    return float(result.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm", action="store_true")
    options = parser.parse_args()
    for system in systems.chosen(options.systems.split(",")):
        if system in systems.GROUPS["eager"] or system == "numexpr":
            continue
        cold, warm = [], []
        try:
            for _ in range(1 if system.startswith("torch.compile") else options.runs):
                with tempfile.TemporaryDirectory() as cache:
                    cold.append(first_call(system, cache))
                    if options.warm:
                        warm.append(first_call(system, cache))
        except RuntimeError as error:
            print(f"{system:24} failed: {error}")
            continue
        line = f"{system:24}{statistics.median(cold) * 1e3:12.1f} ms"
        print(line + (f"{statistics.median(warm) * 1e3:12.1f} ms in the next process" if warm else ""), flush=True)


if __name__ == "__main__":
    main()
