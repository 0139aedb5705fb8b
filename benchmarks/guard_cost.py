"""What a model's size adds to a call: guards of 1 to 1000 submodules, with and without parameters, beside eager's own walk.

    python benchmarks/guard_cost.py [--most 1000]

Each module adds a number to a tensor of 4 elements (without parameters) or is a LayerNorm(4), so that nothing but the call counts.
"""
import argparse

import framejit
import torch
from call_cost import least


class Shift(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x + self.by


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1000)
    options = parser.parse_args()
    x = torch.ones(4)
    for title, make in (("no arrays", lambda: Shift(0.5)), ("two parameters each", lambda: torch.nn.LayerNorm(4))):
        base = None
        for count in (1, 10, 100, 1000):
            if count > options.most:
                continue
            model = torch.nn.Sequential(*(make() for _ in range(count))).requires_grad_(False)
            compiled = framejit.compile(model)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), model(x))
                before = framejit.cache_info()
                compiled(x)
                after = framejit.cache_info()
                if after["eager_replays"] != before["eager_replays"] or after["hits"] == before["hits"]:
                    print(f"{title}, {count} modules: did not run compiled")
                    continue
                times = least({"compiled": lambda: compiled(x), "eager": lambda: model(x)})
            base = base or (times["compiled"], count)
            extra = (times["compiled"] - base[0]) / max(count - base[1], 1)
            print(f"{title:20} {count:5} modules: {times['compiled'] * 1e6:9.2f} us a call, {extra * 1e9:7.1f} ns more for each; "
                  f"eager {times['eager'] * 1e6:9.2f} us", flush=True)


if __name__ == "__main__":
    main()
