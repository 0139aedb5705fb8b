"""framejit against eager NumPy and torch, torch.compile, JAX, Numba and numexpr, in one run.

    ./run bench                                             every workload, size and installed system (long: torch.compile takes
                                                            up to half a minute to compile each workload)
    ./run bench softmax layer_norm                          workloads whose name contains one of the words
    ./run bench chain_ops --sizes cache,ram --systems eager,framejit
    ./run bench --systems quick --json results.json --plot  everything but torch.compile; plot into benchmarks/results/
    ./run bench --one-core --statistic least                for a machine that others use too: one thread each, processor time

The calls of all systems are interleaved in short turns, so that load from elsewhere disturbs all alike. Every system's result
is compared with the eager library's first. A line gives the median of a call with its quartiles, the least, how many times as
fast as eager of the same arrays and as the best peer (torch arrays against eager torch and torch.compile; NumPy arrays against NumPy,
JAX, Numba and numexpr), and the part of the machine's limit that is reached: measured bandwidth for the bytes that must move,
or, for products, the rate of the fastest float32 matrix product.
"""
import argparse
import contextlib
import gc
import json
import math
import os
import statistics
import sys
import time

import numpy as np

import machine
import one_core
import systems
from libraries import torch
from workloads import SIZES, all_workloads, leaves

TURN = 0.004  # seconds of one system's turn; one call if it takes longer
clock = time.perf_counter


class Wrong(Exception):
    """A system's result that is not eager's."""


def compare(result, expected, tolerance):
    found, wanted = leaves(result), leaves(expected)
    if len(found) != len(wanted):
        raise Wrong(f"{len(found)} arrays instead of {len(wanted)}")
    for got, want in zip(found, wanted):
        scale = max(1.0, float(np.abs(want).max())) if want.size else 1.0
        if got.shape != want.shape:
            raise Wrong(f"shape {got.shape} instead of {want.shape}")
        with np.errstate(invalid="ignore"):
            # Infinities of half types, and what comes of them, are equal ones.
            same = (got == want) | ((got != got) & (want != want))
            apart = float(np.where(same, 0.0, np.abs(got.astype(np.float64) - want.astype(np.float64))).max()) if want.size else 0.0
        if not apart <= tolerance * scale:
            raise Wrong(f"differs by {apart:.2g} of {scale:.2g}")


def counters():
    import framejit

    return framejit.cache_info()


class Host:
    """Arrays in the host's memory, calls that are over when they return. gpu.py has the other one."""

    def arrays(self, library, given):
        return systems.arrays_of(library, given)

    def tolerance(self, workload):
        return workload.tolerance

    def seconds(self, call, repeat):
        """{"time": seconds of one call}, from `repeat` calls one after the other."""
        started = clock()
        for _ in range(repeat):
            call()
        return {"time": (clock() - started) / repeat}

    def limit(self, workload, given, results):
        """Seconds that the machine needs at least."""
        if workload.product:
            return workload.flops(given) / machine.flop_peak()
        traffic = workload.traffic(given, results)
        return traffic / machine.bandwidth(traffic)


def prepare(workload, name, given, expected, where):
    """(call, note, results) of one system; raises what the system raises, or Wrong."""
    system = systems.SYSTEMS[name]
    function = systems.program(workload, system)
    wrapped = system.wrap(function)
    arguments = where.arrays(system.arrays, given)
    result = wrapped(*arguments)
    results = systems.as_numpy(result)
    if system.against in expected and not isinstance(expected[system.against], Exception):
        compare(results, expected[system.against], where.tolerance(workload))
    for _ in range(2):
        wrapped(*arguments)
    note = ""
    if name.startswith("framejit"):
        before = counters()
        wrapped(*arguments)
        after = counters()
        kernels = after["kernels_launched"] - before["kernels_launched"]
        note = f"{kernels} kernels"
        if after["eager_replays"] != before["eager_replays"] or after["hits"] == before["hits"]:
            note = "ran eagerly"
        elif after["breaks"]:
            note += f", {after['breaks']} breaks so far in this process" if after["breaks"] != prepare.breaks else ""
        prepare.breaks = after["breaks"]
    return (lambda: wrapped(*arguments)), note, results


prepare.breaks = 0


def measure(workload, size, names, rounds, statistic, where=Host()):
    """{system: record} of one workload at one size: "median", "least" and "quartiles" of the calls' times, the median of what else
    `where.seconds` tells, and the ratios."""
    given = workload.arguments(*workload.sizes[size])
    calls, notes, records, expected, results = {}, {}, {}, {}, []
    for name in names:
        if systems.program(workload, systems.SYSTEMS[name]) is None:
            continue
        try:
            calls[name], notes[name], results = prepare(workload, name, given, expected, where)
        except Exception as error:  # a system that cannot run here, or is wrong, is reported and not hidden
            lines = str(error).strip().splitlines()
            records[name] = {"failed": f"{type(error).__name__}: {lines[0] if lines else ''}"}
            continue
        if name in ("numpy", "torch"):
            expected[name] = results
    repeat = {}
    for name, call in calls.items():
        repeat[name] = max(1, min(20000, int(TURN / (where.seconds(call, 1)["time"] + 1e-9))))
    times = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, call in calls.items():
            call()  # the caches and threads of the system before have gone
            times[name].append(where.seconds(call, repeat[name]))
    gc.enable()
    limit = where.limit(workload, given, results)
    for name, turns in times.items():
        taken, *others = ([turn[what] for turn in turns] for what in turns[0])
        quarter = statistics.quantiles(taken, n=4) if len(taken) > 1 else [taken[0]] * 3
        records[name] = {"median": statistics.median(taken), "least": min(taken), "quartiles": [quarter[0], quarter[2]],
                         "note": notes[name]}
        records[name].update((what, statistics.median(values)) for what, values in zip(list(turns[0])[1:], others))
        records[name]["of_limit"] = limit / records[name][statistic]
    rate(records, statistic)
    return {name: records[name] for name in names if name in records}


def rate(records, statistic):
    """Adds to each record how many times as fast as eager, as the best peer and as each peer on the same arrays it is."""
    for name, record in records.items():
        if "failed" in record:
            continue
        system = systems.SYSTEMS[name]
        peers = {other: r[statistic] for other, r in records.items() if "failed" not in r and other != name and
                 systems.SYSTEMS[other].against == system.against and not other.startswith("framejit")}
        if system.against in peers:
            record["over_eager"] = peers[system.against] / record[statistic]
        record["over"] = {other: seconds / record[statistic] for other, seconds in peers.items()}
        if peers:
            record["best_peer"] = min(peers, key=peers.get)
            record["over_peer"] = peers[record["best_peer"]] / record[statistic]


def duration(seconds):
    for unit, scale in (("s ", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:7.2f} {unit}"
    return f"{seconds * 1e9:7.0f} ns"


def show(title, records):
    print(f"\n{title}")
    for name, record in records.items():
        if "failed" in record:
            print(f"    {name:22} failed: {record['failed'][:110]}")
            continue
        low, high = record["quartiles"]
        line = f"    {name:22}{duration(record['median'])} ({duration(low).strip()} .. {duration(high).strip()}, least {duration(record['least']).strip()})"
        line = f"{line:74}{100 * record['of_limit']:5.0f} % of the limit"
        if "issue" in record:
            line += f"  {duration(record['issue'])} until it returns"
        if "over_eager" in record:
            line += f"  {record['over_eager']:6.2f}x eager"
        if name.startswith("framejit") and "over_peer" in record:
            line += f"  {record['over_peer']:6.2f}x {record['best_peer']}"
        print(line + (f"  [{record['note']}]" if record["note"] else ""), flush=True)


def summary(results):
    print("\nframejit over the best peer (geometric mean; least)")
    for product in (False, True):
        for name in ("framejit numpy", "framejit torch"):
            for size in SIZES:
                found = {key: records[name]["over_peer"] for key, (records, is_product, of) in results.items()
                         if of == size and is_product == product and "over_peer" in records.get(name, {})}
                if not found:
                    continue
                mean = math.exp(statistics.fmean(map(math.log, found.values())))
                worst = min(found, key=found.get)
                print(f"    {'products ' if product else ''}{name}, {size}: {mean:.2f}x of {len(found)}; least {found[worst]:.2f}x: {worst}; "
                      f"below 0.95x: {sum(v < 0.95 for v in found.values())}")


def plot(results, path):
    """Bars of framejit over the best peer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [(key, name, records[name]["over_peer"]) for key, (records, _, _) in results.items() for name in ("framejit numpy", "framejit torch")
            if "over_peer" in records.get(name, {})]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.22 * len(bars)))
    axes.barh([f"{key}, {name.split()[1]}" for key, name, _ in bars], [value for _, _, value in bars],
              color=["tab:blue" if name.endswith("numpy") else "tab:orange" for _, name, _ in bars])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as the best peer on the same arrays")
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    figure.tight_layout()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"plot: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of workloads' names; none: all")
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of tiny,cache,ram, or a size one workload has")
    parser.add_argument("--systems", default="all", help="names or groups, separated by commas: " + "; ".join([*systems.SYSTEMS, *systems.GROUPS]))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", metavar="FILE", help="write the records, with the machine and versions")
    parser.add_argument("--plot", nargs="?", metavar="FILE", const=os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "speed.png"))
    parser.add_argument("--list", action="store_true", help="print workloads and sizes and stop")
    parser.add_argument("--statistic", choices=("median", "least"), default="median", help="what the ratios compare")
    parser.add_argument("--one-core", action="store_true", help="one thread in every library, and processor time instead of wall time")
    options = parser.parse_args()
    if options.one_core:
        global clock
        clock = machine.clock = one_core.use()
    workloads = {name: w for name, w in all_workloads().items() if not options.words or any(word in name for word in options.words)}
    if options.list:
        for name, workload in workloads.items():
            print(f"{name:20} {workload.sizes}")
        return
    names = systems.chosen(options.systems.split(","))
    about = {**machine.description(), "statistic": options.statistic, "one_core": options.one_core}
    print(f"{about['processor']}, {about['cores']} cores; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    results = {}
    with torch.no_grad() if torch else contextlib.nullcontext():
        for name, workload in workloads.items():
            for size in options.sizes.split(","):
                if size in workload.sizes:
                    records = measure(workload, size, names, options.rounds, options.statistic)
                    results[f"{name} {size}"] = (records, workload.product, size)
                    show(f"{name} {size} {workload.sizes[size]}", records)
    if len(results) > 1:
        summary(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": about, "results": {key: records for key, (records, _, _) in results.items()}}, file, indent=1)
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    sys.exit(main())
