"""Captured graphs: what a call of one adds to a compiled function, and how long an encoder takes from capture to its first run elsewhere.

    python benchmarks/graphs.py [--layers 12] [--bridges]

One thread. Calls: systems take turns, the least of 15 turns of each is taken. `--bridges`: back ends of torch.compile too, which needs a
C++ compiler.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import framejit

ELSEWHERE = """
import sys, time
import torch
if sys.argv[2] == "imported":
    import torch._dynamo  # torch imports it where it is first asked for the shape of what attention gives
import framejit
torch.set_num_threads(1)
start = time.perf_counter()
graph = framejit.Graph.load(sys.argv[1])
loaded = time.perf_counter()
graph(torch.randn(4, 32, 256))
print(loaded - start, time.perf_counter() - loaded)
"""


def turns(systems, calls, rounds=15):
    best = dict.fromkeys(systems, float("inf"))
    for _ in range(rounds):
        for name, call in systems.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best


def show(title, best):
    print(f"{title}: " + ", ".join(f"{name} {seconds * 1e6:.2f} µs" for name, seconds in best.items()))


def saved_and_loaded(graph):
    with tempfile.TemporaryDirectory() as folder:
        graph.save(os.path.join(folder, "f.graph"))
        return framejit.Graph.load(os.path.join(folder, "f.graph"))


def calls():
    def small(x, y):
        return np.tanh(x * 2 + y)

    x, y = np.ones(100), np.ones(100)
    graph = framejit.capture(small, x, y)
    systems = {"compiled": framejit.compile(small), "graph.compile()": graph.compile(), "graph": graph,
               "loaded, compile()": saved_and_loaded(graph).compile()}
    for run in systems.values():
        for _ in range(2000):
            run(x, y)
    show("tanh(x * 2 + y), 100 numbers", turns({name: lambda run=run: run(x, y) for name, run in systems.items()}, 5000))

    layer, x = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0), torch.randn(2, 8, 64)
    with torch.no_grad():
        graph = framejit.capture(layer, x)
        systems = {"compiled": framejit.compile(layer), "graph.compile()": graph.compile(), "graph": graph,
                   "loaded, compile()": saved_and_loaded(graph).compile(), "eager": layer}
        for run in systems.values():
            for _ in range(200):
                run(x)
        framejit._core.finish_compiling()
        show("encoder layer", turns({name: lambda run=run: run(x) for name, run in systems.items()}, 200))


def encoder(layers):
    net = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0), layers,
                                      enable_nested_tensor=False)
    x = torch.randn(4, 32, 256)
    with torch.no_grad():
        start = time.perf_counter()
        framejit.capture(net, x)
        print(f"first capture in the process {time.perf_counter() - start:.3f} s")
        for _ in range(3):
            start = time.perf_counter()
            graph = framejit.capture(net, x)
            captured = time.perf_counter()
            count = graph.replace_pattern(torch.relu, torch.nn.functional.gelu)
            edited = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "net.graph")
                graph.save(path)
                saved = time.perf_counter()
                found = {}
                for state in ("imported", "fresh"):
                    for _ in range(2):  # the first stores kernels
                        done = subprocess.run([sys.executable, "-c", ELSEWHERE, path, state], capture_output=True, text=True, check=True)
                    found[state] = [float(text) for text in done.stdout.split()]
            print(f"{len(graph)} operations: captured {captured - start:.3f} s, {count} relus edited {edited - captured:.3f}, saved "
                  f"{saved - edited:.3f}, elsewhere loaded {found['imported'][0]:.3f}, run {found['imported'][1]:.3f} "
                  f"(with torch's import {found['fresh'][1]:.3f})")


def bridges():
    net, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 10)), torch.randn(32, 64)
    with torch.no_grad():
        systems = {"eager": net, "framejit": framejit.compile(net), "framejit with inductor":
                   framejit.compile(net, backend=framejit.fx_backend("inductor")), "torch.compile with framejit":
                   torch.compile(net, backend=__import__("framejit._dynamo")._dynamo.backend), "torch.compile": torch.compile(net)}
        for run in systems.values():
            for _ in range(200):
                run(x)
        show("perceptron", turns({name: lambda run=run: run(x) for name, run in systems.items()}, 500))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--bridges", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    calls()
    encoder(chosen.layers)
    if chosen.bridges:
        bridges()
