"""The most memory a process needs: each workload's RAM-sized call in processes of its own, compiled and eager.

    python benchmarks/peak_memory.py [words] [--size ram]

What is printed is the growth of the process's peak over five calls, beyond its arguments, whose results are dropped at once; for
framejit with what compiling for the new sizes takes, about 2 MiB.
"""
import argparse
import os
import subprocess
import sys

import systems
from workloads import all_workloads

PROGRAM = """
import sys, resource
sys.path.insert(0, {folder!r})
import contextlib
import systems
from workloads import all_workloads
workload, row = all_workloads()[{workload!r}], systems.SYSTEMS[{system!r}]
function = row.wrap(systems.program(workload, row))
with (systems.libraries.torch.no_grad() if systems.libraries.torch else contextlib.nullcontext()):
    function(*systems.arrays_of(row.arrays, workload.arguments(*workload.sizes["tiny"])))
    arguments = systems.arrays_of(row.arrays, workload.arguments(*workload.sizes[{size!r}]))
    def now():
        return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    open("/proc/self/clear_refs", "w").write("5")  # the peak so far was the arguments being made
    before = now()
    for _ in range(5):
        function(*arguments)
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(peak - before)
"""


def growth(workload, system, size):
    """Bytes."""
    folder = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(folder=folder, workload=workload, system=system, size=size)],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return int(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--size", default="ram")
    options = parser.parse_args()
    for name, workload in all_workloads().items():
        if options.words and not any(word in name for word in options.words) or options.size not in workload.sizes:
            continue
        for library in ("numpy", "torch"):
            if systems.program(workload, systems.SYSTEMS[library]) is None or not systems.SYSTEMS[library].installed:
                continue
            try:
                eager, compiled = growth(name, library, options.size), growth(name, f"framejit {library}", options.size)
            except RuntimeError as error:
                print(f"{name:20} {library:6} failed: {error}")
                continue
            print(f"{name:20} {library:6} eager {eager / 2**20:8.1f} MiB   framejit {compiled / 2**20:8.1f} MiB"
                  f"{'   more than eager' if compiled > eager + 2**22 else ''}", flush=True)


if __name__ == "__main__":
    main()
