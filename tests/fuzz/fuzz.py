"""Random programs, compiled against eager: `./run fuzz --programs 1000 --seed 7`. Prints each program that differs."""
import argparse
import copy
import pathlib
import sys
import traceback

import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]

import framejit  # noqa: E402
from harness import Outcome, compare, torch  # noqa: E402

import programs  # noqa: E402
import wide_programs  # noqa: E402


def scaled_calls(seed, lib):
    """Three calls of a program of programs.py, the last with other values."""
    source, arguments = programs.program(seed, lib)
    scale = [(a * np.asarray(-2, a.dtype) if isinstance(a, np.ndarray) else a) for a in arguments]
    return source, [arguments, arguments, tuple(scale)]


GENERATORS = {"plain": scaled_calls, "wide": wide_programs.program}


def convert(arguments, lib):
    """Copies of the arrays for the library; what was one object stays one."""
    memo = {}
    return tuple(memo.setdefault(id(a), np.array(a, order="K") if lib == "numpy" else torch.from_numpy(np.array(a)))
                 if isinstance(a, np.ndarray) else a for a in arguments)


def check(seed, lib, generator="plain"):
    """Raises AssertionError if the compiled program differs from the eager one in any of its calls."""
    source, calls = GENERATORS[generator](seed, lib)
    function = programs.compile_source(source, np if lib == "numpy" else torch, seed)
    compiled = framejit.compile(function)
    for number, arguments in enumerate(calls):
        with np.errstate(all="ignore"):
            eager = Outcome(function, convert(arguments, lib), {})
            ours = Outcome(compiled, convert(copy.copy(arguments), lib), {})
        try:
            compare(ours, eager)
        except AssertionError as difference:
            raise AssertionError(f"call {number}: {difference}") from None
    info = framejit.cache_info()
    assert info["internal_errors"] == 0, framejit.explain(compiled).so_far()
    return source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generator", choices=[*GENERATORS, "all"], default="all")
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        for lib in ("numpy", "torch") if torch is not None else ("numpy",):
            for generator in GENERATORS if arguments.generator == "all" else [arguments.generator]:
                framejit.reset()
                try:
                    check(seed, lib, generator)
                except Exception:
                    failures += 1
                    source, _ = GENERATORS[generator](seed, lib)
                    print(f"\n---- program {seed}, {lib}, {generator}: differs from eager\n{source}\n{traceback.format_exc(limit=-2)}")
        if (seed - arguments.seed + 1) % 100 == 0:
            print(f"{seed - arguments.seed + 1} programs, {failures} differ", flush=True)
    print(f"{arguments.programs} programs, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
