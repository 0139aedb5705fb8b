"""What this machine can do: the limits the tables are measured against, and what to name beside every figure."""
import functools
import importlib.metadata
import os
import platform
import time

from libraries import np, torch


clock = time.perf_counter  # as the benchmark's own


def best_of(function, seconds=0.3, least=8):
    """Seconds of the fastest call."""
    best, end, count = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end or count < least:
        started = clock()
        function()
        best = min(best, clock() - started)
        count += 1
    return best


@functools.cache
def bandwidth(traffic):
    """Bytes a second of the fastest plain pass over about `traffic` bytes, half of them read and half written into memory
    that was there before: the best of NumPy's copy, torch's copy and torch's addition, on one core and on all."""
    n = min(max(traffic // 8, 16), 1 << 25)
    a, b = np.ones(n, np.float32), np.ones(n, np.float32)
    candidates = [lambda: np.copyto(b, a)]
    if torch:
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        candidates += [lambda: tb.copy_(ta), lambda: torch.add(ta, 1, out=tb)]
    inner = max(1, 200_000 // n)

    def repeated(function):
        def run():
            for _ in range(inner):
                function()
        return run

    return 8 * n * inner / min(best_of(repeated(function), 0.15) for function in candidates)


@functools.cache
def flop_peak():
    """Floating-point operations a second of the fastest float32 matrix product of the installed libraries."""
    n = 1024
    a, b = np.ones((n, n), np.float32), np.ones((n, n), np.float32)
    candidates = [lambda: a @ b]
    if torch:
        ta, tb, out = torch.from_numpy(a), torch.from_numpy(b), torch.empty(n, n)
        candidates.append(lambda: torch.mm(ta, tb, out=out))
    return 2 * n**3 / min(best_of(function) for function in candidates)


def description():
    """The machine and the versions, as a dict."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    versions = {"python": platform.python_version()}
    for package in ("numpy", "torch", "jax", "numba", "numexpr"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "versions": versions}
