"""Trains the same thing with several systems, step by step in turn, and shows losses and times.

    python examples/training.py                              every example, eager, framejit, torch.compile and JAX where installed
    python examples/training.py digits --steps 50            those whose name contains a word
    python examples/training.py --systems eager,framejit --plot curves.png

An example is a module with `TITLE`, `STEPS`, `TOLERANCE` (by how much losses may differ, relative, and why it says beside it) and
`systems()`: {name: function that makes a trainer}. A trainer is a function of the step's number that returns the loss.
All start from the same parameters and see the same data. The first step, which compiles, is a column of its own.
"""
import argparse
import copy
import functools
import importlib
import importlib.util
import os
import statistics
import sys
import time

#: name -> the packages it needs beside NumPy
EXAMPLES = {
    "digits_mlp": ["torch", "sklearn"],
    "digits_convolution": ["torch", "sklearn"],
    "character_transformer": ["torch"],
    "logistic_regression": ["sklearn"],
    "spring_mass": [],
}


def installed(name):
    return importlib.util.find_spec(name) is not None


def numpy_systems(trainer, loss, eager):
    """The trainers of a NumPy function in float64: `trainer(loss_and_gradient)` makes the function of the step's number.

    `eager` is the loss and its gradient by hand. `loss` has an argument `xp`, the module its functions are taken from.
    """
    import framejit

    def jax_trainer():
        import jax

        with jax.enable_x64(True):
            inner = trainer(jax.jit(jax.value_and_grad(functools.partial(loss, xp=jax.numpy))))

        def step(number):
            with jax.enable_x64(True):
                return inner(number)

        return step

    made = {"eager": lambda: trainer(eager), "framejit": lambda: trainer(framejit.value_and_grad(loss))}
    if installed("jax"):
        made["jax"] = jax_trainer
    return made


def torch_systems(model, batch, loss_of, learning_rate, jax_loss=None):
    """The trainers of a torch module with Adam: `loss_of(model, x, y)` on the tensors `batch(step)`.

    jax_loss(parameters, x, y): the same in JAX, of a dict of arrays with the names that the module's parameters have.
    """
    import framejit
    import torch

    def trainer(wrap):
        def make():
            own = copy.deepcopy(model)
            network = wrap(own)
            optimizer = torch.optim.Adam(own.parameters(), lr=learning_rate)

            def step(number):
                x, y = batch(number)
                loss = loss_of(network, x, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss.item()

            return step
        return make

    made = {"eager": trainer(lambda network: network), "framejit": trainer(framejit.compile), "torch.compile": trainer(torch.compile)}
    if jax_loss is not None and installed("jax"):
        start = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
        made["jax"] = lambda: jax_adam(jax_loss, start, lambda number: [tensor.numpy() for tensor in batch(number)], learning_rate)
    return made


def jax_adam(loss, start, batch, learning_rate, decay=0.9, square_decay=0.999, epsilon=1e-8):
    """A trainer whose whole step, torch's Adam written out, is one jitted function."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def update(parameters, means, squares, count, x, y):
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        means = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, means, gradients)
        squares = jax.tree.map(lambda v, g: square_decay * v + (1 - square_decay) * g * g, squares, gradients)
        rate, root = learning_rate / (1 - decay ** count), jnp.sqrt(1 - square_decay ** count)
        parameters = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + epsilon), parameters, means, squares)
        return value, parameters, means, squares

    state = [jax.tree.map(jnp.asarray, start), jax.tree.map(jnp.zeros_like, start), jax.tree.map(jnp.zeros_like, start)]

    def step(number):
        value, *state[:] = update(*state, number + 1.0, *batch(number))
        return float(value)

    return step


def run(example, steps, names=None, clock=time.perf_counter):
    """{system: (losses, seconds of each step)}: step by step in turn, so that a busy machine disturbs all alike."""
    trainers = {name: make() for name, make in example.systems().items() if names is None or name in names}
    results = {name: ([], []) for name in trainers}
    for number in range(steps):
        for name, trainer in trainers.items():
            started = clock()
            loss = trainer(number)
            results[name][1].append(clock() - started)
            results[name][0].append(loss)
    return results


def apart(losses, expected):
    """By how much loss curves differ, relative to the largest loss."""
    return max(abs(a - b) for a, b in zip(losses, expected, strict=True)) / max(map(abs, expected))


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def show(example, results):
    print(f"\n{example.TITLE}\n")
    print("| system | first loss | last loss | off eager's curve | first step | step, median | step, least | over eager |")
    print("|---|---|---|---|---|---|---|---|")
    least = {name: min(times[1:]) for name, (_, times) in results.items()}
    expected = results.get("eager", next(iter(results.values())))[0]
    for name, (losses, times) in results.items():
        over = f"{least['eager'] / least[name]:.2f}" if "eager" in least else ""
        print(f"| {name} | {losses[0]:.4g} | {losses[-1]:.4g} | {apart(losses, expected):.1e} | {milliseconds(times[0])} | "
              f"{milliseconds(statistics.median(times[1:]))} | {milliseconds(least[name])} | {over} |", flush=True)


def plot(all_results, path):
    """Loss curves and times of a step, one row for each example; the file appears whole or not at all."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(len(all_results), 2, figsize=(11, 3.2 * len(all_results)), squeeze=False)
    for (curves, bars), (title, results) in zip(rows, all_results.items()):
        for width, (name, (losses, _)) in zip((5, 3, 1.6, 0.8), results.items()):  # one upon the other
            curves.plot(losses, label=name, linewidth=width, alpha=0.8)
        curves.set_title(title, fontsize=9)
        curves.set_ylabel("loss")
        curves.set_xlabel("step")
        curves.legend(fontsize=7)
        bars.bar(list(results), [min(times[1:]) * 1e3 for _, times in results.values()], color=["C0", "C1", "C2", "C3"][:len(results)])
        bars.set_ylabel("least step, ms")
    figure.tight_layout()
    beside = f"{path}.{os.getpid()}.part"
    try:
        figure.savefig(beside, dpi=110, format=os.path.splitext(path)[1].lstrip(".") or "png")
        os.replace(beside, path)
    finally:
        pyplot.close(figure)
        if os.path.exists(beside):
            os.unlink(beside)
    print(f"\nplot: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of examples' names; none: all of " + ", ".join(EXAMPLES))
    parser.add_argument("--steps", type=int, help="instead of each example's own number")
    parser.add_argument("--systems", help="names separated by commas: eager, framejit, torch.compile, jax; not given: all")
    parser.add_argument("--plot", metavar="FILE", help="loss curves and times (needs matplotlib)")
    parser.add_argument("--one-core", action="store_true", help="one thread in every library, and processor time instead of wall time")
    options = parser.parse_args()
    clock = time.perf_counter
    if options.one_core:
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benchmarks"))
        import one_core

        clock = one_core.use()
    names = options.systems.split(",") if options.systems else None
    if options.plot and not installed("matplotlib"):
        parser.error("--plot needs matplotlib: pip install framejit[bench]")
    results = {}
    for name, needs in EXAMPLES.items():
        if options.words and not any(word in name for word in options.words):
            continue
        if missing := [module for module in needs if not installed(module)]:
            print(f"\n{name}: not run, {', '.join(missing)} is not installed")
            continue
        example = importlib.import_module(name)
        results[example.TITLE] = run(example, options.steps or example.STEPS, names, clock)
        show(example, results[example.TITLE])
    if options.plot and results:
        plot(results, options.plot)


if __name__ == "__main__":
    sys.exit(main())
