"""The tests of others, compiled: `./run suites`, of which `--shard 3/40` runs a fortieth and `--only 'ops:nn.*'` those whose names match.

A unit is an operator of torch's database, a module, an optimizer, or a class of NumPy's tests (units.py). Each runs eagerly and compiled in
a worker process; if that dies or is silent for long, this is a difference of the unit, and another worker goes on with the rest. What
came out is written to build/suites, and a unit that is there isn't run again until `--again`. Differences that a user would accept
are listed in known.toml with the reason; the command fails if there are others.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import zlib

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]

import known  # noqa: E402
import units  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent.parent
RESULTS = ROOT / "build" / "suites"
PATIENCE = 120  # seconds of silence after which a worker hangs
ALIKE = 5  # differences of one unit and kind that are shown and kept


def in_shard(name, shard):
    number, count = shard
    return zlib.crc32(name.encode()) % count == number - 1


def results_file(name):
    return RESULTS / (name.split(":")[0] + ".jsonl")


def results():
    """What is known of each unit: its last line."""
    found = {}
    for file in sorted(RESULTS.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the command was stopped while it wrote
            found[record["unit"]] = record
    return found


def messages(worker, pipe):
    """The lines that a worker writes into the pipe; one that is silent for too long is stopped."""
    text = b""
    while select.select([pipe], [], [], PATIENCE)[0]:
        read = os.read(pipe, 1 << 16)
        if not read:
            return
        *whole, text = (text + read).split(b"\n")
        for line in whole:
            yield json.loads(line)
    worker.send_signal(signal.SIGABRT)  # prints where it is
    yield {"hangs": True}


class Workers:
    """Runs units, one worker after the other. `done` is called with the record of each."""

    def __init__(self, names, until, done):
        self.left, self.until, self.done = list(names), until, done
        self.skipped, self.lost = {}, {}  # of a unit: the places that ended a worker, and the differences these are

    def run(self):
        with tempfile.TemporaryDirectory(prefix="framejit-suites-") as folder:
            while self.left and time.time() < self.until:
                self.one(folder)

    def one(self, folder):
        given = pathlib.Path(folder, "given.json")
        given.write_text(json.dumps({"units": self.left, "skipped": self.skipped, "until": self.until}))
        reads, writes = os.pipe()
        errors = pathlib.Path(folder, "stderr")
        environment = {**os.environ, "FRAMEJIT_STRICT": "1", "FRAMEJIT_RETIRE": "0", "FRAMEJIT_RECOMPILE_LIMIT": "100000",
                       "FRAMEJIT_CACHE_FOLDER": str(pathlib.Path(folder, "cache")), "FRAMEJIT_PROGRESS": "0"}
        with open(errors, "wb") as stderr:
            worker = subprocess.Popen([sys.executable, "-P", str(pathlib.Path(__file__).with_name("worker.py")), str(given), str(writes)], cwd=folder,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, pass_fds=[writes], env=environment)
        os.close(writes)
        unit = place = None
        hangs = False
        for message in messages(worker, reads):
            if "hangs" in message:
                hangs = True
                break
            unit, place = message.get("unit", unit), message.get("place")
            if "differences" in message:
                self.finish(message)
                unit = None
        status = worker.wait()
        os.close(reads)
        if unit is not None:
            last = errors.read_text(errors="replace").split("Extension modules:")[0].strip()[-1500:]
            what = {"kind": "hang" if hangs else "crash", "place": place or "", "text": f"exit status {status}\n{last}"}
            self.lost.setdefault(unit, []).append(what)
            self.skipped.setdefault(unit, []).append(place)
            if place is None:
                self.finish({"unit": unit, "calls": 0, "compiled": 0, "differences": [], "seconds": 0})
        elif status:
            raise SystemExit(f"a worker ended with status {status} before it ran anything:\n{errors.read_text(errors='replace')[-3000:]}")

    def finish(self, record):
        record["differences"] += self.lost.pop(record["unit"], [])
        self.left.remove(record["unit"])
        self.done(record)


def report(records, names):
    """Prints what differs, by kind, and returns how many differences no row of known.toml explains."""
    rows = known.rows()
    unexplained = {}
    for record in records:
        for difference in record["differences"]:
            if not known.explained(rows, record["unit"], difference):
                unexplained.setdefault(difference["kind"], {}).setdefault(record["unit"], []).append(difference)
    for kind, by_unit in sorted(unexplained.items()):
        print(f"\n{kind}")
        for unit, differences in by_unit.items():
            for difference in differences[:ALIKE]:
                print(f"  {unit} | {difference['place']} | " + difference["text"].replace("\n", "\n      "))
    for row in known.stale(rows, units.names(), {record["unit"] for record in records}):
        print(f"\nno longer differs, though known.toml lists it: {row.unit} {row.kind}")
    for reason in units.absent():
        print("\nnot run: " + reason)
    count = sum(len(differences) for by_unit in unexplained.values() for differences in by_unit.values())
    calls, compiled = (sum(record[what] for record in records) for what in ("calls", "compiled"))
    print(f"\n{len(records)} of {len(names)} units, {calls} calls, {compiled} of them compiled; {count} differences that known.toml does not list, "
          f"{sum(row.met for row in rows)} that it does")
    return count


def main():
    parser = argparse.ArgumentParser(prog="./run suites", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", default="1/1", help="I/N: the I-th of N parts")
    parser.add_argument("--only", default="*", help="a pattern of unit names, such as 'ops:nn.functional.*'")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further unit starts after so many")
    parser.add_argument("--again", action="store_true", help="run and report as if build/suites had nothing")
    parser.add_argument("--report", action="store_true", help="run nothing, print what build/suites has")
    arguments = parser.parse_args()
    shard = tuple(map(int, arguments.shard.split("/")))
    names = [name for name in units.names() if in_shard(name, shard) and fnmatch.fnmatchcase(name, arguments.only)]
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = {} if arguments.again else results()

    def done(record):
        found[record["unit"]] = record
        with open(results_file(record["unit"]), "a") as file:
            file.write(json.dumps(record) + "\n")

    if not arguments.report:
        # Those of one suite one after the other would leave the last suite out where the time is short.
        names.sort(key=lambda name: zlib.crc32(name[::-1].encode()))
        Workers([name for name in names if name not in found], time.time() + arguments.seconds, done).run()
    return 1 if report([found[name] for name in sorted(names) if name in found], names) else 0


if __name__ == "__main__":
    sys.exit(main())
