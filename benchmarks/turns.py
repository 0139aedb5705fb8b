"""What programs that measure functions of several systems in turns have in common."""
import os
import time


def use_threads(count):
    """Before NumPy, torch and JAX are imported: all of them have so many threads, and one alone stays on one core."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'false' if count == 1 else 'true'}"
    if count == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def in_turns(functions, seconds):
    """The least time of each, over as many rounds as fit."""
    for function in functions:
        for _ in range(4):
            function()
    best, end = [float("inf")] * len(functions), time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
        rounds += 1
    return best
