"""Training steps: an MLP, a small convolutional net and a 12-layer transformer encoder (width 256), each with Adam.

    python benchmarks/training_step.py [mlp convolution encoder] [--systems torch,"framejit torch",torch.compile] [--whole] [--one-core]

The module is compiled, loss and optimiser are as the user wrote them; with --whole the function that makes the step is. The time of a step is
measured step by step in turn, in one process. The first step and the memory are those of fresh processes with empty caches: the first step with
what compiling takes, the memory as the growth of the process's peak, beyond parameters, data and the import of the compiler (a column of
its own), in the first step, in ten later ones, and in ten after two seconds in which a compiler may finish. "saved" is what autograd keeps between
forward and backward, but for parameters, buffers and data. Every system's losses are compared with eager's.
"""
import argparse
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import time

import one_core

SYSTEMS = ("torch", "framejit torch", "torch.compile")
TOLERANCE = 1e-3  # of the loss, after all steps: float32, sums in another order, and Adam makes full steps of small gradients


def mlp(torch):
    nn = torch.nn
    return (nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)),
            torch.randn(128, 784), torch.randint(10, (128,)))


def convolution(torch):
    nn = torch.nn

    def block(inputs, outputs):
        return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)

    return (nn.Sequential(*block(3, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 64, 10)), torch.randn(32, 3, 32, 32), torch.randint(10, (32,)))


def encoder(torch):
    nn = torch.nn

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
            self.scores = nn.Linear(256, 10)

        def forward(self, x):
            return self.scores(self.layers(x).mean(1))

    return Encoder(), torch.randn(8, 64, 256), torch.randint(10, (8,))


MODELS = {"mlp": mlp, "convolution": convolution, "encoder": encoder}


def compiled(what, system):
    if system == "framejit torch":
        import framejit

        return framejit.compile(what)
    if system == "torch.compile":
        import torch

        return torch.compile(what)
    return what


def stepper(model, x, y, system, whole=False):
    """A function that makes one step and returns the loss."""
    import torch

    own = copy.deepcopy(model)
    network = own if whole else compiled(own, system)
    optimizer = torch.optim.Adam(own.parameters(), lr=1e-4)

    def step(x, y):
        loss = torch.nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = compiled(step, system) if whole else step
    return lambda: run(x, y).item()


def saved_bytes(loss, known):
    """What the nodes between a loss and its leaves have saved, in storages that are not those of `known` tensors."""
    from framejit._support.autograd import saved_storages

    apart = {tensor.untyped_storage()._cdata for tensor in known}
    return sum(size for storage, size in saved_storages(loss).items() if storage not in apart)


def made(name):
    import torch

    torch.manual_seed(0)
    return MODELS[name](torch)


def in_turn(name, systems, rounds, clock, whole):
    """{system: (seconds of each step but the first three, losses)}"""
    model, x, y = made(name)
    steppers = {system: stepper(model, x, y, system, whole) for system in systems}
    results = {system: ([], []) for system in systems}
    for number in range(rounds + 3):
        for system, step in steppers.items():
            started = clock()
            loss = step()
            if number >= 3:
                results[system][0].append(clock() - started)
            results[system][1].append(loss)
    return results


# ---- in processes of their own -----------------------------------------------------------------------------------


def alone(name, system, whole):
    """Prints, in a process of its own: seconds of the first step (wall, processor), bytes of memory that the import, the first step and later ones
    need, bytes saved."""
    import resource

    import torch

    def now():
        return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

    def peak_of(run):
        open("/proc/self/clear_refs", "w").write("5")  # the peak so far was of something else
        run()
        return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

    model, x, y = made(name)
    # The library's own start is not the compiler's: a step of another, small module.
    stepper(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Flatten(), torch.nn.Linear(4, 4)), torch.randn(2, 1, 2, 2),
            torch.zeros(2, dtype=torch.long), "torch")()
    without = now()
    compiled(lambda: None, system)
    before = now()
    step = stepper(model, x, y, system, whole)
    wall, processor = time.perf_counter(), one_core.clock()
    first = peak_of(step)
    wall, processor = time.perf_counter() - wall, one_core.clock() - processor
    step()
    later = peak_of(lambda: [step() for _ in range(10)])
    time.sleep(2)
    settled = peak_of(lambda: [step() for _ in range(10)])
    network = compiled(model, system)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(network(x), y)
    saved = saved_bytes(loss, [*model.parameters(), *model.buffers(), x, y])
    print(wall, processor, before - without, first - before, later - before, settled - before, saved)


def in_a_process(name, system, whole):
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, XDG_CACHE_HOME=cache)
        command = [sys.executable, os.path.abspath(__file__), "--alone", name, system, *(["--whole"] if whole else [])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return [float(word) for word in done.stdout.split()[-7:]]


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help="some of " + ", ".join(MODELS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--whole", action="store_true", help="the function that makes the step is compiled, not the module")
    parser.add_argument("--one-core", action="store_true", help="one thread in every library, and processor time instead of wall time")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        return alone(*options.alone, options.whole)
    clock = one_core.use() if options.one_core else time.perf_counter
    import machine

    about = machine.description()
    print(f"{about['processor']}, {about['cores']} cores; " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    systems = options.systems.split(",")
    print("\n| model | system | step, median | step, least | over eager | first step | first, processor | import | memory, first step "
          "| later steps | settled | saved | off eager's loss |")
    print("|" + "---|" * 13)
    for name in options.models or MODELS:
        results = in_turn(name, systems, options.rounds, clock, options.whole)
        eager = min(results["torch"][0]) if "torch" in results else float("nan")
        for system, (times, losses) in results.items():
            off = max(abs(a - b) for a, b in zip(losses, results[systems[0]][1])) / max(losses)
            wall, processor, imported, first, later, settled, saved = in_a_process(name, system, options.whole)
            print(f"| {name} | {system} | {milliseconds(statistics.median(times))} | {milliseconds(min(times))} | {eager / min(times):.2f} | "
                  f"{milliseconds(wall)} | {milliseconds(processor)} | {imported / 2**20:.0f} MiB | {first / 2**20:.0f} MiB | {later / 2**20:.0f} MiB | "
                  f"{settled / 2**20:.0f} MiB | "
                  f"{saved / 2**20:.2f} MiB | {off:.1e}{'' if off < TOLERANCE else ': WRONG'} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
