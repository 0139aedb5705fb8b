"""How long a user waits for the first result: chain_ops on 64x64 in a fresh process with empty caches.

    python benchmarks/first_call.py [--systems framejit,numba,jax] [--runs 3] [--warm] [--device cuda]

The library's own first operation is not counted, the compiler's own imports are, where they are lazy (torch.compile). Processor
time is of all threads and of the compilers that were started and have ended. --warm repeats each with the caches its first process left.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import systems

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
PROGRAM = """
import resource, sys, time
sys.path.insert(0, {folder!r})
import systems
from workloads.pointwise import ChainOps
row = systems.SYSTEMS[{system!r}]
function = systems.program(ChainOps, row)
arguments = systems.arrays_of(row.arrays, ChainOps.arguments(64, 64))
wait = lambda: None
if {device!r} != "cpu":
    from libraries import torch
    arguments, wait = tuple(array.to({device!r}) for array in arguments), torch.cuda.synchronize
if row.source not in ("numba", "numexpr"):
    function(*arguments)  # eager once: the library's own start-up is not the compiler's
wait()
def processor():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
busy, started = processor(), time.perf_counter()
row.wrap(function)(*arguments)
wait()
print(time.perf_counter() - started, processor() - busy)
"""


def first_call(system, cache, device="cpu"):
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = dict(os.environ, **dict.fromkeys(CACHES, cache))
    program = PROGRAM.format(folder=folder, system=system, device=device)
    result = subprocess.run([sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError((result.stderr.strip().splitlines() or ["no message"])[-1])
    return [float(word) for word in result.stdout.split()[-2:]]


def cold_calls(system, runs, device="cpu", after=None):
    """[wall, processor] seconds of each run, of which torch.compile, which takes long, gets one. after(cache) runs before the cache goes."""
    found = []
    for _ in range(1 if system.startswith("torch.compile") else runs):
        with tempfile.TemporaryDirectory() as cache:
            found.append(first_call(system, cache, device))
            if after:
                after(cache)
    return found


def middle(runs):
    wall, processor = (statistics.median(column) * 1e3 for column in zip(*runs))
    return f"{wall:10.1f} ms, {processor:.1f} ms of processor time"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    for system in systems.chosen(options.systems.split(","), options.device):
        if system in systems.GROUPS["eager"] or system == "numexpr":
            continue
        warm = []
        try:
            cold = cold_calls(system, options.runs, options.device,
                              (lambda cache: warm.append(first_call(system, cache, options.device))) if options.warm else None)
        except RuntimeError as error:
            print(f"{system:24} failed: {error}")
            continue
        line = f"{system:24}" + middle(cold)
        print(line + (f"   next process: {middle(warm)}" if warm else ""), flush=True)


if __name__ == "__main__":
    main()
