"""A process that runs units: `worker.py GIVEN PIPE`. It writes a line of JSON before and after each unit and before each place in one."""
import faulthandler
import json
import os
import pathlib
import sys
import time
import warnings

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]

import framejit  # noqa: E402
import units  # noqa: E402

KEPT = 5  # differences of one place and kind: the others are alike


class Run:
    """What a suite's `check` reports to. A place is a part of a unit (a dtype, a test) that is skipped if it has ended a worker before."""

    def __init__(self, unit, skipped, tell):
        self.unit, self.skipped, self.tell, self.at = unit, skipped, tell, None
        self.calls = self.compiled = 0
        self.launched, self.told = framejit.cache_info()["kernels_launched"], 0
        self.differences, self.counts = [], {}

    def start(self, place):
        """Whether the place may be run."""
        if place in self.skipped:
            return False
        self.at = place
        self.tell({"unit": self.unit, "place": place})
        return True

    def called(self, count=1):
        """After each call: counts it, and says once in a second that the process lives."""
        launched = framejit.cache_info()["kernels_launched"]
        self.calls += count
        self.compiled += count * (0 < launched != self.launched)  # a reset counts from zero
        self.launched = launched
        if time.time() > self.told + 1:
            self.told = time.time()
            self.tell({"unit": self.unit, "place": self.at})

    def differs(self, kind, text):
        count = self.counts[self.at, kind] = self.counts.get((self.at, kind), 0) + 1
        if count <= KEPT:
            self.differences.append({"kind": kind, "place": self.at, "text": text[:2000]})


def main():
    faulthandler.enable(sys.stderr)
    warnings.simplefilter("ignore")
    given = json.loads(pathlib.Path(sys.argv[1]).read_text())
    pipe = int(sys.argv[2])

    def tell(message):
        os.write(pipe, json.dumps(message).encode() + b"\n")

    for unit in given["units"]:
        if time.time() > given["until"]:
            break
        tell({"unit": unit})
        run = Run(unit, given["skipped"].get(unit, []), tell)
        framejit.reset()
        started = time.time()
        try:
            units.check(unit, run)
        except Exception as error:  # of the suite itself
            run.differs("not run", repr(error))
        framejit.reset()
        tell({"unit": unit, "calls": run.calls, "compiled": run.compiled, "differences": run.differences, "seconds": round(time.time() - started, 1)})
    # Not by way of the interpreter's end: what a test left behind (threads, patched modules) is no part of the unit.
    os._exit(0)


if __name__ == "__main__":
    main()
