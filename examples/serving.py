"""Serves a transformer encoder, without the network: threads take requests of 1 to 64 rows, and nothing is compiled once they have started.

    python examples/serving.py                                       both systems, 2,000 requests
    python examples/serving.py --system exported --requests 100000 --threads 2 --model tiny

`compiled` is framejit.compile, warmed up; `exported` is programs that were saved with machine code and loaded again. Of each it prints
latencies at the 50th and 99th percentile, requests a second, what was compiled while it served, and how much the memory of the process grew
from the first tenth of the requests to the last: caches and the heaps of the threads have their size after some thousands.
"""
import argparse
import contextlib
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

import framejit

MOST_ROWS, WORDS = 64, 16
MODELS = {"tiny": (16, 2, 1), "small": (64, 4, 2), "base": (256, 4, 6)}  # width, heads, layers


def encoder(model):
    """Parameters that require no gradient: otherwise each thread would have to turn gradients off for itself."""
    width, heads, layers = MODELS[model]
    layer = torch.nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval().requires_grad_(False)


def rows(count, model):
    return torch.randn(count, WORDS, MODELS[model][0])


def requests(count, model, seed=0):
    """A request is a tensor of 1 to 64 rows, made when it is asked for."""
    random, stored = np.random.default_rng(seed), rows(2 * MOST_ROWS, model)
    for _ in range(count):
        start = random.integers(MOST_ROWS)
        yield stored[start:start + random.integers(1, MOST_ROWS + 1)]


@contextlib.contextmanager
def compiled(net, model):
    """One row is another graph of attention than many, and two sizes make the number of rows a symbol."""
    answer = framejit.compile(net, threads=1, on_recompile="error")
    framejit.warm_up(answer, rows(1, model), rows(2, model), rows(MOST_ROWS, model))
    yield answer


@contextlib.contextmanager
def exported(net, model):
    """What another process would have saved. A program's graph is that of all sizes in its range, so one row is a program of its own."""
    batch = framejit.Dim("batch", min=2, max=MOST_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        programs = []
        for name, example, sizes in (("one", rows(1, model), None), ("many", rows(2, model), {"src": {0: batch}})):
            path = os.path.join(folder, f"{name}.program")
            framejit.export(net, (example,), dynamic_shapes=sizes).save(path, cpu="native")
            programs.append(framejit.ExportedProgram.load(path, run_code=True))
            programs[-1](example)
        one, many = programs
        yield lambda x: one(x) if len(x) == 1 else many(x)


SYSTEMS = {"compiled": compiled, "exported": exported}


@dataclass
class Served:
    latencies: np.ndarray  # seconds, in the order of the requests
    seconds: float
    made: dict             # what was compiled or loaded meanwhile
    grown: int             # bytes

    def __str__(self):
        middle, late = (f"{1e3 * np.percentile(self.latencies, percent):9.3f}" for percent in (50, 99))
        made = ", ".join(f"{count} {name}" for name, count in self.made.items() if count) or "nothing"
        return f"{middle} {late} {len(self.latencies) / self.seconds:10.0f}  {self.grown / 2**20:+9.1f}  {made}"


def compilations():
    counts = framejit.cache_info()
    return {name: counts[name] for name in ("graphs", "kernels_compiled", "kernels_loaded", "eager_replays", "internal_errors")}


def resident():
    """Bytes, without the pages of files, which framejit lends back while nothing is compiled."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def serve(answer, arriving, count, threads, answered=None):
    """`threads` threads take requests from an iterator. answered: it is given the number of each request, the request and its answer."""
    latencies, waiting, numbers, sizes = np.ones(count), threading.Lock(), iter(range(count)), []

    def work():
        while True:
            with waiting:
                number = next(numbers, None)
                if number is None:
                    return
                if number == count // 10:
                    sizes.append(resident())
                request = next(arriving)
            started = time.perf_counter()
            result = answer(request)
            latencies[number] = time.perf_counter() - started
            if answered is not None:
                answered(number, request, result)

    before, started = compilations(), time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for worker in [pool.submit(work) for _ in range(threads)]:
            worker.result()
    seconds = time.perf_counter() - started
    made = {name: now - before[name] for name, now in compilations().items()}
    return Served(latencies, seconds, made, resident() - sizes[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--system", choices=SYSTEMS, nargs="+", default=list(SYSTEMS))
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = encoder(options.model)
    print(f"{options.requests:,} requests of 1 to {MOST_ROWS} rows to the model {options.model}, {options.threads} threads")
    print(f"{'':9}{'p50, ms':>9} {'p99, ms':>9} {'requests/s':>10} {'MiB grown':>10}  compiled while it served")
    for name in options.system:
        with SYSTEMS[name](net, options.model) as answer:
            served = serve(answer, requests(options.requests, options.model), options.requests, options.threads)
        print(f"{name:9}{served}", flush=True)


if __name__ == "__main__":
    main()
