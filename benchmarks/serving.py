"""Serving a transformer encoder: the load of examples/serving.py on eager, framejit, exported programs and torch.compile, in turns.

    python benchmarks/serving.py [--models tiny small base] [--systems eager compiled] [--threads 2] [--requests 200] [--rounds 5]

Each system answers the same requests of 1 to 64 rows in each round, on threads that share them; one thread works on a request. It prints
the latencies of all rounds at the 50th and 99th percentile, the requests a second of the best round, and the least processor time of a
request, which other programs disturb least. First calls and all compilation are before the first round: "ready in" is how long they took,
with what earlier runs have left in the caches on disk. torch.compile (mode default, dynamic=True) needs a C++ compiler.
"""
import argparse
import contextlib
import os
import sys
import time
from dataclasses import dataclass, field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))

import numpy as np
import torch

import serving  # of examples/


@contextlib.contextmanager
def eager(net, model):
    yield net


@contextlib.contextmanager
def torch_compile(net, model):
    answer = torch.compile(net, dynamic=True)
    for count in (1, 2, 3, serving.MOST_ROWS):
        answer(serving.rows(count, model))
    yield answer


SYSTEMS = {"eager": eager, **serving.SYSTEMS, "torch.compile": torch_compile}
TITLES = {"compiled": "framejit.compile", "exported": "exported, machine code"}


@dataclass
class Run:
    """A system that is ready to answer, and what it did."""
    model: str
    system: str
    answer: object
    prepared: float  # seconds
    rounds: list = field(default_factory=list)
    processor: list = field(default_factory=list)  # seconds of one request, by round

    def serve(self, count, threads, seed):
        busy = time.process_time()
        self.rounds.append(serving.serve(self.answer, serving.requests(count, self.model, seed), count, threads))
        self.processor.append((time.process_time() - busy) / count)
        assert not any(self.rounds[-1].made.values()), (self.system, self.rounds[-1].made)

    def row(self):
        latencies = np.concatenate([served.latencies for served in self.rounds])
        middle, late = (f"{1e3 * np.percentile(latencies, percent):.2f} ms" for percent in (50, 99))
        rate = max(len(served.latencies) / served.seconds for served in self.rounds)
        busy, title = 1e3 * min(self.processor), TITLES.get(self.system, self.system)
        return f"| {self.model} | {title} | {middle} | {late} | {rate:.0f} | {busy:.2f} ms | {self.prepared:.1f} s |"


def prepared(stack, nets, systems, threads):
    """The systems that can be had, of each model. torch.compile is the last: it makes torch watch modules, which can't be exported then."""
    for system in systems:
        for model, net in nets.items():
            started = time.perf_counter()
            try:
                answer = stack.enter_context(SYSTEMS[system](net, model))
                serving.serve(answer, serving.requests(100, model, seed=1000), 100, threads)
            except Exception as error:  # no C++ compiler, no safetensors: the others can be measured
                reason = (str(error).strip().splitlines() or [""])[0]
                print(f"{model}, {system}: can't be measured: {type(error).__name__}: {reason}", file=sys.stderr)
                continue
            run = Run(model, system, answer, time.perf_counter() - started)
            for request in serving.requests(5, model, seed=1001):
                torch.testing.assert_close(answer(request), net(request), rtol=1e-3, atol=1e-4)
            print(f"{model}, {system}: ready in {run.prepared:.1f} s", file=sys.stderr)
            yield run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", choices=serving.MODELS, nargs="+", default=list(serving.MODELS))
    parser.add_argument("--systems", choices=SYSTEMS, nargs="+", default=list(SYSTEMS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    nets = {model: serving.encoder(model) for model in options.models}
    with contextlib.ExitStack() as stack:
        runs = list(prepared(stack, nets, [name for name in SYSTEMS if name in options.systems], options.threads))
        for number in range(options.rounds):
            for run in runs:
                run.serve(options.requests, options.threads, number)
    print("| model | system | p50 | p99 | requests/s | processor time of one | ready in |\n|---|---|---|---|---|---|---|")
    print(*(run.row() for run in sorted(runs, key=lambda run: options.models.index(run.model))), sep="\n")


if __name__ == "__main__":
    main()
