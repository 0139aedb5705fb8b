"""The programs with loops: CPython, framejit, Numba and JAX, first call and later calls, in processor time on one thread.

    python benchmarks/programs/run.py                           every program and installed system
    python benchmarks/programs/run.py heat sieve                programs whose name contains one of the words
    python benchmarks/programs/run.py --size tiny --rounds 3 --systems framejit,numba --json results.json

Each program has a process of its own with empty caches. Every system there compiles something small first, so that a first call is
the program's and not the process's. Then come two calls, and after them rounds, in which the systems take turns; the ratios compare
the best turns. Each call has fresh copies of its arguments. Results and arguments after the call are compared with CPython's: framejit's to
the last bit (within the bounds of docs/numerics.md where a program has sums, products or functions of arrays that the page names), those of
the others by the program's tolerance (JAX: results only). A system that fails, is wrong, ends the process or
takes longer than the limit is a row that says so.
"""
import argparse
import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

# The folder of benchmarks, in place of this file's own, whose modules belong to the package.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import one_core  # noqa: E402
from programs import PROGRAMS  # noqa: E402
from programs.registry import SIZES, copies, difference, distance  # noqa: E402

CACHES = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "FRAMEJIT_CACHE_FOLDER")
TURN = 2e-3        # seconds of one system's turn; one call if it takes longer
TURN_BYTES = 1e6   # of the copies that the calls of one turn find in the cache


class Python:
    """The reference, and what every other system looks like."""
    modules = []

    def takes(self, program):
        return True

    def start(self):
        """Imports the system and has it compile something."""

    def function(self, program):
        return program.function

    def arguments(self, arguments):
        return copies(arguments)

    def fault(self, program, found, expected):
        """How (result, arguments after the call) differ from CPython's; empty if they do not."""
        return difference(found, expected)

    def settle(self, call):
        """Until nothing is compiled in the background any more, now or after some more calls."""


class Framejit(Python):
    modules = ["framejit"]

    def start(self):
        import framejit

        framejit.compile(lambda x: x + 1)(np.ones(3))
        framejit.reset()

    def function(self, program):
        import framejit

        framejit.reset()
        return framejit.compile(program.function)

    def fault(self, program, found, expected):
        return difference(found, expected, program.bound)

    def settle(self, call):
        import framejit

        for _ in range(3):
            for _ in range(8):
                call()
            framejit._core.finish_compiling()


class Numba(Python):
    modules = ["numba"]

    def start(self):
        import numba

        from programs import numba_forms  # noqa: F401

        numba.njit(lambda x: x + 1)(np.ones(3))

    def function(self, program):
        import numba

        return numba.njit(program.forms.get("numba", program.function))

    def fault(self, program, found, expected):
        return distance(tuple(found), tuple(expected), program.tolerance)


class Jax(Python):
    modules = ["jax"]

    def takes(self, program):
        """Nobody would write a loop over elements in JAX, whose import takes a second."""
        return program.kind == "arrays"

    def start(self):
        from programs import jax_forms

        jax_forms.jax.jit(lambda x: x + 1)(np.ones(3))

    def function(self, program):
        """None if nobody would write the program in JAX."""
        import jax

        if "jax" not in program.forms:
            return None
        return lambda *arguments: jax.block_until_ready(program.forms["jax"](*arguments))

    def arguments(self, arguments):
        import jax

        return [jax.numpy.asarray(argument.copy()) if isinstance(argument, np.ndarray) else argument for argument in arguments]

    def fault(self, program, found, expected):
        return distance(found[0], expected[0], program.tolerance)


SYSTEMS = {"python": Python(), "framejit": Framejit(), "numba": Numba(), "jax": Jax()}


def installed(system):
    return all(importlib.util.find_spec(module) for module in SYSTEMS[system].modules)


# In the process of one program: lines of JSON go to standard output, each as soon as it is known.

def say(**line):
    print(json.dumps(line), flush=True)


def processor_time():
    """Seconds of all threads. The system counts those of a thread on another core when it sleeps, so JAX's worker gets a moment to go to sleep."""
    time.sleep(5e-4)
    return time.process_time()


def called(function, arguments):
    """(result, seconds of processor time) of one call."""
    started = processor_time()
    result = function(*arguments)
    return result, processor_time() - started


def prepare(name, program, given, expected):
    """(function, seconds of a later call) of a system, or None if there is no form for it; says its first call, or why it failed."""
    system = SYSTEMS[name]
    try:
        function = system.function(program)
        if function is None:
            return None
        for call in range(3):
            arguments = system.arguments(given)
            wall = time.perf_counter()
            result, seconds = called(function, arguments)
            if call == 0:
                say(system=name, first=seconds, first_wall=time.perf_counter() - wall)
            if expected and (fault := system.fault(program, (result, arguments), expected)):
                say(system=name, failed=f"call {call + 1} is wrong: {fault}")
                return None
        system.settle(lambda: function(*system.arguments(given)))
        _, seconds = called(function, system.arguments(given))
        return function, seconds
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        say(system=name, failed=f"{type(error).__name__}: {' '.join(lines[:3])}")
        return None


def turn(system, function, given, calls):
    """Seconds of processor time of one of several calls, each with arguments of its own."""
    arguments = [system.arguments(given) for _ in range(calls)]
    started = processor_time()
    for row in arguments:
        function(*row)
    return (processor_time() - started) / calls


def measure(program, size, names, rounds, limit):
    def begin(name):
        """From now on this system has the time: the alarm, which nothing catches, ends a process that hangs in machine code too."""
        say(begin=name)
        signal.setitimer(signal.ITIMER_REAL, limit)

    warnings.simplefilter("ignore")
    given = program.arguments(size)
    arguments = copies(given)
    expected = (program.function(*arguments), arguments)
    prepared = {}
    for name in (name for name in names if SYSTEMS[name].takes(program)):
        begin(name)
        SYSTEMS[name].start()
        if found := prepare(name, program, given, expected):
            prepared[name] = found
    size_in_bytes = sum(argument.nbytes for argument in given if isinstance(argument, np.ndarray))
    most = max(1, min(50, int(TURN_BYTES / (size_in_bytes + 1))))
    for _ in range(rounds):
        for name, (function, seconds) in prepared.items():
            begin(name)
            say(system=name, turn=turn(SYSTEMS[name], function, given, max(1, min(most, int(TURN / (seconds + 1e-9))))))
    signal.setitimer(signal.ITIMER_REAL, 0)


# In the process that was started: one child for each program, and the tables.

def child(name, options, names):
    """(lines said, how the child ended: 0, or what to say of the system that had begun)."""
    command = [sys.executable, os.path.abspath(__file__), name, "--child", "--size", options.size, "--rounds", str(options.rounds),
               "--systems", ",".join(names), "--limit", str(options.limit)]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **one_core.THREADS, **dict.fromkeys(CACHES, cache)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0:
        return lines, ""
    if done.returncode == -signal.SIGALRM:
        return lines, f"did not finish within {options.limit:g} s"
    if done.returncode < 0:
        return lines, f"the process ended by {signal.Signals(-done.returncode).name}"
    return lines, "the process failed: " + (done.stderr.strip().splitlines() or ["no message"])[-1]


def records_of(name, options):
    """{system: record} of one program. A system that ends the process is left out, and the others run again without it."""
    names, ended = list(options.systems), {}
    while True:
        lines, end = child(name, options, names)
        begun = [line["begin"] for line in lines if "begin" in line]
        if end and begun:
            known = {key: value for line in lines if line.get("system") == begun[-1] for key, value in line.items() if key.startswith("first")}
            ended[begun[-1]] = {**known, "failed": end}
            names.remove(begun[-1])
        if not end or not begun or not names:
            break
    records = {}
    for line in lines:
        if "system" in line and line["system"] not in ended:
            record = records.setdefault(line["system"], {"turns": []})
            record["turns"] += [line.pop("turn")] if "turn" in line else []
            record.update((key, value) for key, value in line.items() if key != "system")
    for record in records.values():
        if record["turns"]:
            record.update(best=min(record["turns"]), median=statistics.median(record["turns"]))
    if end and not begun:
        ended = {"python": {"failed": end}}
    return {system: {**records, **ended}[system] for system in SYSTEMS if system in records or system in ended}


def rate(records):
    """Adds to each record, for each other system, how many times as fast as it."""
    for name, record in records.items():
        record["over"] = {other: r["best"] / record["best"] for other, r in records.items() if "best" in record and "best" in r and other != name}
        compilers = [value for other, value in record["over"].items() if other not in ("python", "framejit")]
        if compilers:
            record["over_best"] = min(compilers)


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def cells(records):
    def best(name):
        return milliseconds(records[name]["best"]) if "best" in records.get(name, {}) else "failed" if "failed" in records.get(name, {}) else ""

    def first(name):
        return milliseconds(records[name]["first"]) if "first" in records.get(name, {}) else ""

    ours = records.get("framejit", {})
    ratios = [ours.get("over", {}).get(other) for other in ("python", "numba", "jax")] + [ours.get("over_best")]
    return [*map(best, SYSTEMS), *("" if ratio is None else f"{ratio:.3g}" for ratio in ratios), *map(first, ("framejit", "numba", "jax"))]


HEADINGS = ["python", "framejit", "numba", "jax", "/python", "/numba", "/jax", "/best", "1st framejit", "1st numba", "1st jax"]


def line(name, columns):
    return f"{name:27}" + "".join(f"{column:>{max(9, len(heading) + 2)}}" for column, heading in zip(columns, HEADINGS))


def summary(results, kind):
    """framejit over each, of the programs of one kind, or of all."""
    print(f"\n{kind or 'all'}: framejit over each: geometric mean; worst")
    rows = {name: records.get("framejit", {}) for name, records in results.items() if kind in ("", PROGRAMS[name].kind)}
    for other in ("python", "numba", "jax", "best"):
        ratios = {name: row["over_best"] if other == "best" else row["over"][other] for name, row in rows.items()
                  if (other == "best" and "over_best" in row) or other in row.get("over", {})}
        if ratios:
            worst = min(ratios, key=ratios.get)
            mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
            label = "the better of Numba and JAX" if other == "best" else other
            below = sum(ratio < 0.95 for ratio in ratios.values())
            print(f"    {label:28} {mean:8.3g} of {len(ratios)}; worst {ratios[worst]:.3g}: {worst}; below 0.95: {below}")
    firsts = {name: row["first"] for name, row in rows.items() if "first" in row}
    if firsts:
        slowest = max(firsts, key=firsts.get)
        print(f"    first call: median {milliseconds(statistics.median(firsts.values()))} ms; worst {milliseconds(firsts[slowest])} ms: {slowest}; "
              f"above 200 ms: {sum(first > 0.2 for first in firsts.values())}")
    failed = [name for name, row in rows.items() if "failed" in row]
    if failed:
        print(f"    framejit failed: {', '.join(failed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of programs' names, or a kind; none: all")
    parser.add_argument("--size", choices=SIZES, default="standard")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="separated by commas; CPython runs in any case")
    parser.add_argument("--limit", type=float, default=60, help="seconds that the first calls of a system, and each turn, may take")
    parser.add_argument("--json", metavar="FILE", help="write the records, with the machine and versions")
    parser.add_argument("--list", action="store_true", help="print programs and sizes and stop")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asked = options.systems.split(",")
    if unknown := set(asked) - set(SYSTEMS):
        parser.error(f"no system {', '.join(sorted(unknown))}: there are {', '.join(SYSTEMS)}")
    if options.child:
        measure(PROGRAMS[options.words[0]], options.size, asked, options.rounds, options.limit)
        return
    options.systems = [name for name in SYSTEMS if name == "python" or name in asked and installed(name)]
    chosen = {name: program for name, program in PROGRAMS.items()
              if not options.words or any(word in name or word == program.kind for word in options.words)}
    if options.list:
        for name, program in chosen.items():
            print(f"{name:27} {program.kind:9} {program.sizes}")
        return
    results = {}
    for kind in dict.fromkeys(program.kind for program in chosen.values()):
        print(f"\n{kind}, {options.size}, milliseconds; framejit over each\n{line('', HEADINGS)}")
        for name in (name for name, program in chosen.items() if program.kind == kind):
            results[name] = records_of(name, options)
            rate(results[name])
            print(line(name, cells(results[name])), flush=True)
            for system, record in results[name].items():
                if "failed" in record:
                    print(f"    {system}: {record['failed'][:140]}", flush=True)
        summary(results, kind)
    if len({program.kind for program in chosen.values()}) > 1:
        summary(results, "")
    if options.json:
        import machine

        with open(options.json, "w") as file:
            json.dump({"machine": machine.description(), "size": options.size, "rounds": options.rounds, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
