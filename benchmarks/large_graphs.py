"""The first call of large functions: 1,000 additions in a Python loop, and the forward of a 12-layer transformer encoder.

    python benchmarks/large_graphs.py [--runs 3]

Each in a fresh process with an empty kernel cache, then in a second process with the first one's: milliseconds from the first
instruction traced to the last kernel loaded, and their parts, as FRAMEJIT_LOGS=timings tells them. The run that follows is not
counted: its products are the array library's, on all its threads.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = """
import sys
sys.path[:0] = {folders!r}
import torch, framejit
from test_large import Encoder
framejit.set_logs("timings", sink=lambda artifact, text: said.append(text.splitlines()))

def chain(x, y):
    for _ in range(1000):
        x = x + y
    return x

said = []
torch.manual_seed(0)
x = torch.ones(64)
encoder, batch = Encoder(12, 256, 4).eval(), torch.randn(4, 64, 256)
with torch.no_grad():
    framejit.compile(lambda x: x + 1)(x)  # the process's own first compilation
    for name, function, arguments in (("1,000 additions", chain, (x, x)), ("12-layer encoder", encoder, (batch,))):
        framejit.compile(function)(*arguments)
        print(name, *said[-1], sep="|")
"""


def run(cache):
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(here, "..", "tests", part) for part in ("models", ".")]
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(folders=folders)], text=True, capture_output=True,
                          env=dict(os.environ, FRAMEJIT_CACHE_FOLDER=cache))
    if done.returncode:
        sys.exit(done.stderr)
    lines = [line.split("|") for line in done.stdout.splitlines()]
    return [(name, float(re.search(r"took ([0-9.]+) ms", title)[1]), parts.strip()) for name, title, parts in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    best = {}
    for _ in range(parser.parse_args().runs):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("empty cache", "next process"):
                for name, milliseconds, parts in run(cache):
                    best[name, state] = min(best.get((name, state), (1e9, "")), (milliseconds, parts))
    for (name, state), (milliseconds, parts) in sorted(best.items()):
        print(f"{name:18} {state:13}{milliseconds:8.1f} ms   {parts}")


if __name__ == "__main__":
    main()
