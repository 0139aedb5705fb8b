"""framejit against eager torch and torch.compile on a CUDA device, in one run.

    ./run bench --gpu                                       the table of docs/performance-gpu.md: its workloads in three types
    ./run bench --gpu softmax --dtypes bfloat16 --sizes tiny,ram
    ./run bench --gpu --json results.json                   for benchmarks/tables.py

Workloads, systems and what a line says are bench.py's; the times are the device's own: events on the current stream around calls that follow
each other. "until it returns" is what a call costs the processor: Python has gone on by then, and the kernels have not run. The limit is the
fastest of torch's copy and addition over as many bytes, or, for products, torch's fastest product of as many operations and the same type.
At the end: the first call of chain_ops in fresh processes with empty caches, in wall time.
"""
import argparse
import functools
import importlib.metadata
import itertools
import json
import math
import re
import statistics
import sys

import bench
import first_call
import machine
import systems
from libraries import np, torch
from workloads import all_workloads

WORKLOADS = ("chain_ops", "softmax", "layer_norm", "rms_norm_rope", "cross_entropy", "gelu_mlp", "attention", "adam_step_50", "transpose_add",
             "mean_var", "column_sums", "full_sum", "argmax")
SIZES = ("tiny", "2048", "ram")
DTYPES = ("float32", "float16", "bfloat16")
# Results of half types: a few roundings of the largest value, one for each operation that eager rounds and a fused one does not.
HALF_ROUNDINGS = 16
# Calls whose issue is timed: more could fill the driver's queue, and the processor would wait for the device.
ISSUED = 16


def missing():
    """Why nothing can be measured here, in one sentence; None if it can."""
    if torch is None:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device" + ("" if torch.version.cuda else " (it is built without CUDA)")
    return None


def events_seconds(call, repeat):
    """{"time": of one call on the device, "issue": until it returns} of `repeat` calls on the current stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    few = min(repeat, ISSUED)
    torch.cuda.synchronize()
    begin.record()
    started = bench.clock()
    for _ in range(few):
        call()
    issued = (bench.clock() - started) / few
    for _ in range(repeat - few):
        call()
    end.record()
    end.synchronize()
    return {"time": begin.elapsed_time(end) / 1e3 / repeat, "issue": issued}


def best_of(call, turns=8):
    repeat = max(1, min(1000, int(bench.TURN / (events_seconds(call, 2)["time"] + 1e-9))))
    return min(events_seconds(call, repeat)["time"] for _ in range(turns))


@functools.cache
def bandwidth(traffic):
    """Bytes a second of the fastest plain pass over about `traffic` bytes, half of them read and half written."""
    n = max(traffic // 8, 16)
    a, b = torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
    return 8 * n / min(best_of(call) for call in (lambda: b.copy_(a), lambda: torch.add(a, 1, out=b)))


@functools.cache
def flop_peak(operations, dtype):
    """Operations a second of torch's product of square matrices, of about as many and at most 8192 wide."""
    n = min(max(round((operations / 2) ** (1 / 3) / 64), 1) * 64, 8192)
    a, out = torch.ones(n, n, device="cuda", dtype=dtype), torch.empty(n, n, device="cuda", dtype=dtype)
    return 2 * n**3 / best_of(lambda: torch.mm(a, a, out=out))


class Device:
    """bench.Host for torch's current CUDA device and one floating type."""

    def __init__(self, dtype):
        self.dtype = getattr(torch, dtype)

    def arrays(self, library, given):
        if isinstance(given, (list, tuple)):
            return type(given)(self.arrays(library, item) for item in given)
        array = systems.arrays_of(library, given)
        return array.to("cuda", self.dtype if array.is_floating_point() else None)

    def tolerance(self, workload):
        return max(workload.tolerance, HALF_ROUNDINGS * torch.finfo(self.dtype).eps if self.dtype != torch.float32 else 0)

    def seconds(self, call, repeat):
        return events_seconds(call, repeat)

    def limit(self, workload, given, results):
        if workload.product:
            return workload.flops(given) / flop_peak(workload.flops(given), self.dtype)
        traffic = workload.traffic(*(self.as_wide(arrays) for arrays in (given, results)))
        return traffic / bandwidth(traffic)

    def as_wide(self, value):
        """NumPy arrays of as many bytes as the device's."""
        if isinstance(value, (list, tuple)):
            return [self.as_wide(item) for item in value]
        return value.astype(np.float32 if self.dtype.itemsize == 4 else np.float16) if value.dtype.kind == "f" else value


def description(statistic):
    about = machine.description()
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    for package in ("framejit", "triton", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            about["versions"][package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    about["versions"]["cuda"] = torch.version.cuda
    try:
        with open("/proc/driver/nvidia/version") as file:
            about["versions"]["driver"] = re.search(r"(\d+\.[\d.]+)", file.read())[1]
    except (OSError, TypeError):
        pass
    return {**about, "device": device.name, "device_memory": device.total_memory, "device_processors": device.multi_processor_count,
            "statistic": statistic, "sizes": list(SIZES)}


def summary(results):
    """Geometric means over each other system, and how much of the limit kernels reach that are bound by memory."""
    print("\nframejit over (geometric mean; least)")
    for ours, dtype in itertools.product((name for name in systems.SYSTEMS if name.startswith("framejit torch")), DTYPES):
        found = {title: records for title, records in results.items() if f" {dtype} " in title and "over" in records.get(ours, {})}
        for peer in dict.fromkeys(peer for records in found.values() for peer in records[ours]["over"]):
            ratios = {title: records[ours]["over"][peer] for title, records in found.items() if peer in records[ours]["over"]}
            worst = min(ratios, key=ratios.get)
            print(f"    {ours} over {peer}, {dtype}: {math.exp(statistics.fmean(map(math.log, ratios.values()))):.2f}x of {len(ratios)}; "
                  f"least {ratios[worst]:.2f}x: {worst}")
        large = [records[ours]["of_limit"] for title, records in found.items() if not title.endswith(" tiny")]
        if large:
            print(f"    {ours}, {dtype}: median {100 * statistics.median(large):.0f} % of the limit (without tiny)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of workloads' names; none: " + ", ".join(WORKLOADS))
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of tiny,cache,ram, or a size one workload has")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--systems", default="all", help="names or groups, separated by commas: " + "; ".join(systems.chosen(["all"], "cuda")))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--first-calls", type=int, default=3, help="fresh processes for the first call of each system; 0: none")
    parser.add_argument("--json", metavar="FILE", help="write the records, with the machine and versions")
    parser.add_argument("--statistic", choices=("median", "least"), default="median", help="what the ratios compare")
    options = parser.parse_args()
    if why := missing():
        print(f"no benchmark of a GPU can run here: {why}", file=sys.stderr)
        return 1
    dtypes, sizes = options.dtypes.split(","), options.sizes.split(",")
    if unknown := set(dtypes) - set(DTYPES):
        parser.error(f"no type {', '.join(sorted(unknown))}: there are {', '.join(DTYPES)}")
    names = systems.chosen(options.systems.split(","), "cuda")
    about = description(options.statistic)
    print(f"{about['device']}; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    results, firsts = {}, {}
    with torch.no_grad():
        for name, workload in all_workloads().items():
            if not (any(word in name for word in options.words) if options.words else name in WORKLOADS):
                continue
            for dtype in dtypes:
                for size in sizes:
                    if size not in workload.sizes:
                        continue
                    title = f"{name} {dtype} {size}"
                    results[title] = bench.measure(workload, size, names, options.rounds, options.statistic, Device(dtype))
                    bench.show(f"{title} {workload.sizes[size]}", results[title])
                    torch._dynamo.reset()  # its limit of recompiles is per function, which all sizes and types share
    if results:
        summary(results)
    for name in names if options.first_calls else ():
        if name in systems.GROUPS["eager"]:
            continue
        try:
            firsts[name] = first_call.cold_calls(name, options.first_calls, "cuda")
            print(f"first call, {name:32}{first_call.middle(firsts[name])}", flush=True)
        except RuntimeError as error:
            firsts[name] = {"failed": str(error)}
            print(f"first call, {name:32}failed: {error}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": about, "results": results, "first_calls": firsts}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
