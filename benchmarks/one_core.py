"""For a machine that others use too: one thread in every library, and processor time instead of wall time."""
import os
import resource
import sys
import time

THREADS = {**dict.fromkeys(["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS",
                            "FRAMEJIT_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"], "1"),
           "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


def clock():
    """Seconds of processor time of this process's threads, and of compilers that were started and have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def use():
    """Gives the clock to use. The libraries read the number of threads when they are imported, so the process starts again."""
    if any(os.environ.get(name) != value for name, value in THREADS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **THREADS})
    return clock
