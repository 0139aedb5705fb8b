"""Random programs, compiled against eager: `./run fuzz --programs 1000 --seed 7`; of loops over scalars with `--kind loops`.

Each program that differs is made small and printed as a test ready to be put into test_found.py. The programs run in a worker
process; if it dies, the program that killed it is made small in the same way.
"""
import argparse
import faulthandler
import functools
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]

import array_loops  # noqa: E402
import case  # noqa: E402
import grow  # noqa: E402
import list_loops  # noqa: E402
import loops  # noqa: E402
import numbers_of_all_kinds  # noqa: E402
import shrink  # noqa: E402
import tensor_loops  # noqa: E402
import thread_loops  # noqa: E402
import ways  # noqa: E402
from harness import torch  # noqa: E402

PATIENCE = 90  # seconds of silence after which a worker hangs; only this command, not the tests, has such a limit
KINDS = {
    "calls": (grow.program, case.check),
    "numbers": (numbers_of_all_kinds.program, case.check),
    "ways": (ways.program, ways.check),
    "loops": (loops.program, loops.check),
    "array-loops": (array_loops.program, loops.check),
    "list-loops": (list_loops.program, loops.check),
    "tensor-loops": (tensor_loops.program, loops.check),
    "thread-loops": (thread_loops.program, loops.check),
    "locals": (loops.program, functools.partial(loops.check, all_locals=True)),
}


def options_of(kind, seed):
    """Every other program's branches and loops on data are joined at once, where that can be."""
    return {"join_branches": True} if kind != "ways" and seed % 2 else {}


def settle():
    """Ends a worker whose device has failed: a kernel's failed check ends all work of its process there."""
    if case.DEVICE != "cpu":
        torch.cuda.synchronize()


def work(kind, lib, first, count):
    """What a worker does: a line before each program is grown, which runs it in eager, one before it is compared and one after."""
    faulthandler.enable(sys.stderr)
    grown, check = KINDS[kind]
    for seed in range(first, first + count):
        print("grow", seed, flush=True)
        program = grown(seed, lib)
        settle()
        print("start", seed, flush=True)
        try:
            check(program, **options_of(kind, seed))
            settle()
            print("same", seed, flush=True)
        except case.Difference as difference:
            print("differs", seed, difference.kind, repr(str(difference)[:500]), flush=True)


def lines(worker):
    """What a worker prints; one that is silent for too long is stopped."""
    text = b""
    while select.select([worker.stdout], [], [], PATIENCE)[0]:
        read = os.read(worker.stdout.fileno(), 1 << 16)
        if not read:
            return
        *whole, text = (text + read).split(b"\n")
        yield from (line.decode() for line in whole)
    worker.send_signal(signal.SIGABRT)  # prints where it is


def programs(kind, lib, first, count):
    """Yields (seed, None or what was wrong) of every program, whatever becomes of the workers."""
    seed, end = first, first + count
    while seed < end:
        command = [sys.executable, "-P", __file__, "--worker", "--kind", kind, "--lib", lib, "--seed", str(seed), "--programs", str(end - seed),
                   "--device", case.DEVICE]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE)
        what = None
        for line in lines(worker):
            if line.split(" ")[0] not in ("grow", "start", "same", "differs"):
                continue  # LAPACK tells of wrong arguments on the standard output
            what, number, *rest = line.split(maxsplit=2)
            if what in ("same", "differs"):
                yield int(number), None if what == "same" else rest[0].strip()
            seed = int(number) + 1
        if worker.wait() == 0:
            continue
        if what == "start":
            yield int(number), f"crash: exit status {worker.returncode}"
        elif what == "grow":
            print(f"program {number}, {lib}: eager itself does not end, or takes all memory", flush=True)
        else:
            raise SystemExit(f"a worker failed between programs (exit status {worker.returncode})")


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), default="calls",
                        help="numbers: expressions of all kinds of numbers; ways: capture, export, files and machine code too; loops: over scalars and elements; array-loops: over parts of arrays; tensor-loops: over elements of tensors; thread-loops: passes on several threads; locals: all at exceptions too")
    parser.add_argument("--lib", choices=["numpy", "torch"], help="one library; else both, where torch is installed")
    parser.add_argument("--device", default="cpu", help="where torch's arrays are: cuda")
    parser.add_argument("--no-shrink", action="store_true", help="report only the seeds")
    parser.add_argument("--patience", type=float, default=120, help="seconds after which a program is small enough")
    parser.add_argument("--show", action="store_true", help="print the program of --seed and stop")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    case.DEVICE = arguments.device
    if case.DEVICE != "cpu":
        shrink.MOST_BYTES = resource.RLIM_INFINITY  # drivers map the device's memory too
    grown, check = KINDS[arguments.kind]
    libraries = [arguments.lib] if arguments.lib else ["numpy", "torch"] if torch is not None else ["numpy"]
    if arguments.worker:
        work(arguments.kind, arguments.lib, arguments.seed, arguments.programs)
        return 0
    if arguments.show:
        shown = grown(arguments.seed, libraries[0])
        print(shown.source + "\n# calls\n" + "\n".join(shown.calls))
        return 0
    failures, started = 0, time.monotonic()
    for lib in libraries:
        done = 0
        for seed, wrong in programs(arguments.kind, lib, arguments.seed, arguments.programs):
            done += 1
            if wrong is not None:
                failures += 1
                print(f"\n---- program {seed}, {lib}: {wrong}", flush=True)
                if not arguments.no_shrink:
                    program = shrink.in_child(functools.partial(grown, seed, lib))
                    small, found = shrink.shrink(program, options_of(arguments.kind, seed), check=check,
                                                 patience=arguments.patience)
                    print(f"# {found and found[1]}\n{case.as_test(small, f'program_{seed}_of_{lib}')}", flush=True)
            if done % 500 == 0:
                print(f"{lib}: {done} programs, {failures} differ, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{arguments.programs} programs each of {' and '.join(libraries)}: {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
