"""What a process takes: Python, NumPy, framejit, the first compiled call, and a hundred small functions.

    python benchmarks/process_memory.py [--torch] [--functions 100]

MiB of the resident size (VmRSS) in a fresh process, first with an empty cache folder, then with the kernels that the first one has
left there. The functions differ in a constant, so that they share no kernel. `idle`: two seconds after the last call.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time


def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def readings(count, with_torch):
    yield "Python", resident()
    import numpy as np
    yield "NumPy", resident()
    if with_torch:
        import torch  # noqa: F401
        yield "torch", resident()
    import framejit
    yield "framejit", resident()

    def function(k):
        names = {"np": np}
        exec(f"def f(x):\n    return np.tanh(x * {k}.5) + {k}", names)
        return framejit.compile(names["f"])

    functions = [function(k) for k in range(count + 1)]
    x = np.ones((64, 64))
    functions[0](x)
    yield "first compiled call", resident()
    for f in functions[1:]:
        f(x)
    yield f"{count} functions more", resident()
    for _ in range(200):
        for f in functions:
            f(x)
    time.sleep(2)
    yield "idle", resident()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--functions", type=int, default=100)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        for name, size in readings(arguments.functions, arguments.torch):
            print(f"  {name:20} {size:6.1f}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        for title in ("empty cache folder", "the same again"):
            print(title, flush=True)
            subprocess.run([sys.executable, __file__, "--child", *sys.argv[1:]], env=dict(os.environ, FRAMEJIT_CACHE_FOLDER=folder), check=True)


if __name__ == "__main__":
    main()
