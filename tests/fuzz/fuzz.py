"""Random programs, compiled against eager: `./run fuzz --programs 1000 --seed 7`. Prints each program that differs."""
import argparse
import pathlib
import sys
import traceback

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import framejit  # noqa: E402
from harness import Outcome, compare, torch  # noqa: E402

from programs import compile_source, program  # noqa: E402


def check(seed, lib):
    """Raises AssertionError if the compiled program differs from the eager one in any of three calls."""
    source, arguments = program(seed, lib)
    module = np if lib == "numpy" else torch

    def fresh(scale=1):
        return tuple((np.array(a) * np.asarray(scale, a.dtype) if lib == "numpy" else torch.from_numpy(np.array(a) * np.asarray(scale, a.dtype)))
                     if isinstance(a, np.ndarray) else a for a in arguments)

    function = compile_source(source, module, seed)
    compiled = framejit.compile(function)
    for scale in (1, 1, -2):
        compare(Outcome(compiled, fresh(scale), {}), Outcome(function, fresh(scale), {}))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0, framejit.explain(compiled).so_far()
    return source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        for lib in ("numpy", "torch") if torch is not None else ("numpy",):
            framejit.reset()
            try:
                check(seed, lib)
            except Exception:
                failures += 1
                source, given = program(seed, lib)
                print(f"\n---- program {seed}, {lib}: differs from eager\n{source}\n{traceback.format_exc(limit=-2)}")
        if (seed - arguments.seed + 1) % 100 == 0:
            print(f"{seed - arguments.seed + 1} programs, {failures} differ", flush=True)
    print(f"{arguments.programs} programs, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
