"""The tables of docs/performance.md and docs/performance-gpu.md from the records of bench.py and gpu.py with --json.

    python benchmarks/tables.py results.json [more.json]     Markdown on standard output; later files win
"""
import json
import math
import statistics
import sys

from systems import SYSTEMS
from workloads import SIZES, all_workloads


def number(seconds):
    for unit, scale in (("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            value = seconds * scale
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


#: framejit's systems by the arrays they are given: "torch", "torch reduce-overhead".
OURS = {name.removeprefix("framejit "): system.against for name, system in SYSTEMS.items() if name.startswith("framejit ")}


def row_cells(records, arrays, library, statistic, returns):
    """Of one size: framejit's time, and how many times as fast it is as eager and as the best peer, which is named unless it is eager."""
    ours = records.get(f"framejit {arrays}")
    if not ours or "failed" in ours:
        return [""] * (3 + returns)
    peer = ours.get("best_peer", "")
    over_peer = f"{ours.get('over_peer', float('nan')):.2f}" + (f" ({peer})" if peer != library else "")
    return [number(ours[statistic]), f"{ours.get('over_eager', float('nan')):.2f}", over_peer] + [number(ours["issue"]) if "issue" in ours else ""] * returns


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def main(paths):
    results, about, firsts = {}, {}, {}
    for path in paths:
        with open(path) as file:
            loaded = json.load(file)
        about = loaded["machine"]
        results.update(loaded["results"])
        firsts.update(loaded.get("first_calls", {}))
    statistic = about.get("statistic", "median")
    workloads = all_workloads()
    sizes = about.get("sizes", SIZES)
    returns = any("issue" in record for records in results.values() for record in records.values())
    print(f"{about.get('device', about['processor'])}, {about['cores']} cores; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()) + ".")
    sizes = [size for size in sizes if any(key.endswith(" " + size) for key in results)]
    columns = ["workload", "arrays"]
    for size in sizes:
        columns += [size, "over eager", "over best peer"] + ["until it returns"] * returns
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in dict.fromkeys(key.rsplit(" ", 1)[0] for key in results):
        for arrays, library in OURS.items():
            found = [cell for size in sizes for cell in row_cells(results.get(f"{name} {size}", {}), arrays, library, statistic, returns)]
            if any(found):
                print(f"| {name} | {arrays} | {' | '.join(found)} |")
    print("\n| geometric mean over the best peer | " + " | ".join(sizes) + " |\n|---|" + "---|" * len(sizes))
    for product in (False, True):
        for arrays in OURS:
            cells = []
            for size in sizes:
                found = {key: records[f"framejit {arrays}"]["over_peer"] for key, records in results.items()
                         if key.endswith(" " + size) and workloads[key.split()[0]].product == product
                         and "over_peer" in records.get(f"framejit {arrays}", {})}
                cells.append(f"{geometric(found.values()):.2f} of {len(found)}, {sum(v < 0.95 for v in found.values())} below 0.95" if found else "")
            if any(cells):
                print(f"| {'products, ' if product else ''}{arrays} arrays | " + " | ".join(cells) + " |")
    if firsts:
        print("\n| first call, empty caches | time |\n|---|---|")
    for name, calls in firsts.items():
        print(f"| {name} | {calls['failed'] if 'failed' in calls else number(statistics.median(wall for wall, _ in calls))} |")


if __name__ == "__main__":
    main(sys.argv[1:])
