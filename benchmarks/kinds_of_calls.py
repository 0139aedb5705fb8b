"""What a call costs where one function is called in many kinds: other objects, strings, sizes, dtypes, functions or keys, in a cycle.

    python benchmarks/kinds_of_calls.py [words] [--systems eager framejit torch.compile] [--size 64] [--rounds 300]

Rounds of all kinds of calls alternate between the systems, and the least round of each counts. "first round" is the time of the first
calls, which compile; "pieces" is how many framejit has made by the end. Torch tensors; the results are compared with eager's.
"""
import argparse
import time

import turns

turns.use_threads(1)

import torch  # noqa: E402

import framejit  # noqa: E402


class Layer:
    def __init__(self, scale, mode, function):
        self.scale, self.mode, self.function = scale, mode, function

    def run(self, x):
        y = x * self.scale + 1
        return self.function(y * 2 if self.mode == "double" else y)


def of_object(layer, x):
    return layer.run(x)


def of_string(name, x):
    if name.upper() == name:
        return torch.sin(x) * 2 + 1
    return torch.cos(x) * 2 + 3


def of_array(x):
    return torch.sin(x.to(torch.float32)).sum() * 2


def of_function(function, x):
    return function(x) + 1


def of_keys(parts, x):
    for key in parts:
        x = x + parts[key]
    return x


def kinds(size):
    x = torch.linspace(0, 1, size)
    functions = [torch.sin, torch.cos, torch.exp]
    dtypes = [torch.float64, torch.float32, torch.int32, torch.int64, torch.uint8, torch.int16]
    return {
        "100 objects of a class": (of_object, [(Layer(k, ["double", "single"][k % 2], functions[k % 3]), x) for k in range(100)]),
        "100 strings": (of_string, [(f"{'aB'[k % 2]}{k}", x) for k in range(100)]),
        "100 sizes": (of_array, [(torch.ones(size + k),) for k in range(100)]),
        "30 dtypes and ranks": (of_array, [(torch.ones((2,) * (rank - 1) + (size,)).to(dtype),) for dtype in dtypes for rank in range(1, 6)]),
        "50 functions": (of_function, [(eval(f"lambda x: x * {k} + 1"), x) for k in range(50)]),
        "50 sets of keys": (of_keys, [({f"key{k}": 1.0}, x) for k in range(50)]),
    }


def prepared(system, function):
    if system == "eager":
        return function
    if system == "framejit":
        framejit.reset()
        return framejit.compile(function)
    torch._dynamo.reset()
    return torch.compile(function)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="cases whose name contains one of them")
    parser.add_argument("--systems", nargs="+", default=["eager", "framejit", "torch.compile"])
    parser.add_argument("--size", type=int, default=64, help="elements of an array, or of its last axis")
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    print(f"{'microseconds a call':26}" + "".join(f"{system:>16}{'first round':>14}" for system in arguments.systems) + f"{'pieces':>9}")
    for name, (function, calls) in kinds(arguments.size).items():
        if arguments.words and not any(word in name for word in arguments.words):
            continue
        systems = [prepared(system, function) for system in arguments.systems]
        first, best = [], [float("inf")] * len(systems)
        for call in systems:
            start = time.perf_counter()
            results = [call(*given) for given in calls]
            first.append(time.perf_counter() - start)
            for result, given in zip(results, calls):
                torch.testing.assert_close(result, function(*given))
        for _ in range(arguments.rounds):
            for i, call in enumerate(systems):
                start = time.perf_counter()
                for given in calls:
                    call(*given)
                best[i] = min(best[i], time.perf_counter() - start)
        cells = "".join(f"{least / len(calls) * 1e6:16.2f}{began * 1e3:11.1f} ms" for least, began in zip(best, first))
        print(f"{name:26}{cells}{framejit.cache_info()['segments'] if 'framejit' in arguments.systems else 0:9}", flush=True)


if __name__ == "__main__":
    main()
