"""The tables of docs/performance.md from the records of bench.py --json.

    python benchmarks/tables.py results.json [more.json]     Markdown on standard output; later files win
"""
import json
import math
import statistics
import sys

from workloads import SIZES, all_workloads


def number(seconds):
    for unit, scale in (("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            value = seconds * scale
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def row(key, records, statistic):
    """One line for each of NumPy and torch that framejit ran."""
    for library in ("numpy", "torch"):
        ours = records.get(f"framejit {library}")
        if not ours or "failed" in ours:
            continue
        eager = records.get(library, {})
        yield (f"| {key} | {library} | {number(eager[statistic]) if statistic in eager else ''} | {number(ours[statistic])} | "
               f"{ours.get('over_eager', float('nan')):.2f} | {ours.get('best_peer', '')} | {ours.get('over_peer', float('nan')):.2f} | "
               f"{100 * ours['of_limit']:.0f} % |")


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def main(paths):
    results, about = {}, {}
    for path in paths:
        with open(path) as file:
            loaded = json.load(file)
        about = loaded["machine"]
        results.update(loaded["results"])
    statistic = about.get("statistic", "median")
    workloads = all_workloads()
    print(f"{about['processor']}, {about['cores']} cores; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()) + ".")
    for size in SIZES:
        print(f"\n| {size} | arrays | eager | framejit | over eager | best peer | over best peer | of the limit |\n|---|---|---|---|---|---|---|---|")
        for key, records in results.items():
            if key.endswith(" " + size):
                for line in row(key.rsplit(" ", 1)[0], records, statistic):
                    print(line)
    print("\n| geometric mean over the best peer | " + " | ".join(SIZES) + " |\n|---|" + "---|" * len(SIZES))
    for product in (False, True):
        for library in ("numpy", "torch"):
            cells = []
            for size in SIZES:
                found = {key: records[f"framejit {library}"]["over_peer"] for key, records in results.items()
                         if key.endswith(" " + size) and workloads[key.rsplit(" ", 1)[0]].product == product
                         and "over_peer" in records.get(f"framejit {library}", {})}
                cells.append(f"{geometric(found.values()):.2f} of {len(found)}, {sum(v < 0.95 for v in found.values())} below 0.95" if found else "")
            print(f"| {'products, ' if product else ''}{library} arrays | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
