"""How soon a fresh process has the first answer of a transformer encoder that another process saved, in each form it can be saved in.

    python benchmarks/loading.py [--systems eager torch.export] [--layers 12] [--runs 5] [--folder made] [--rounds 20]

The encoder is torch.nn.TransformerEncoder of width 256; batch and words are dynamic. Each measurement is a process of its own on one core,
systems take turns, and the median of the runs is printed: the time from the end of the imports (SYSTEMS names them; what is imported later
counts) until the file is loaded, until the first answer, and the least time of a later call, of another batch and other words. In brackets
is the processor time, which other programs disturb less. Answers are compared with those of the module that was saved. --folder keeps the
files for the next time: AOTInductor takes minutes to make its own. What can't be made or run is printed with the reason.
"""
import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import turns

WIDTH, HEADS, WIDE = 256, 4, 512
FIRST, LATER = (4, 32, WIDTH), (7, 48, WIDTH)
RANGES = {"batch": (2, 64), "words": (2, 512)}


def encoder(layers):
    import torch
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, WIDE, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval().requires_grad_(False)


def axes(dim):
    """Of the argument, for a library's class Dim."""
    return {"src": {axis: dim(name, min=low, max=high) for axis, (name, (low, high)) in enumerate(RANGES.items())}}


# ---- each form: make(net, x, path) writes a file, load(path, layers) gives the function of a tensor


def make_program(net, x, path):
    import framejit
    framejit.export(net, (x,), dynamic_shapes=axes(framejit.Dim)).save(path)


def make_machine_code(net, x, path):
    import framejit
    framejit.export(net, (x,), dynamic_shapes=axes(framejit.Dim)).save(path, cpu="native")


def load_program(path, layers):
    import framejit
    return framejit.ExportedProgram.load(path)


def load_machine_code(path, layers):
    import framejit
    return framejit.ExportedProgram.load(path, run_code=True)


def make_state(net, x, path):
    import torch
    torch.save(net.state_dict(), path)


def load_state(path, layers):
    import torch
    net = encoder(layers)
    net.load_state_dict(torch.load(path, weights_only=True))
    return net


def exported(net, x):
    import torch
    return torch.export.export(net, (x,), dynamic_shapes=axes(torch.export.Dim))


def make_torch_export(net, x, path):
    import torch
    torch.export.save(exported(net, x), path)


def load_torch_export(path, layers):
    import torch
    return torch.export.load(path).module()


def make_inductor(net, x, path):
    import torch
    torch._inductor.aoti_compile_and_package(exported(net, x), package_path=path)


def load_inductor(path, layers):
    import torch
    return torch._inductor.aoti_load_package(path)


def make_onnx(net, x, path):
    import framejit
    framejit.capture(net, x, dynamic_shapes=axes(framejit.Dim)).to_onnx(path)


def load_onnx(path, layers):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return lambda x: session.run(None, {"src": x})[0]


def make_jax(net, x, path):
    import jax
    import jax.export
    weights = {name: array.numpy() for name, array in net.state_dict().items()}
    scope = ", ".join(f"{name} >= {low}, {name} <= {high}" for name, (low, high) in RANGES.items()).split(", ")
    shape = jax.export.symbolic_shape(f"batch, words, {WIDTH}", constraints=scope)
    program = jax.export.export(jax.jit(lambda x: jax_encoder(weights, len(net.layers), x)))(jax.ShapeDtypeStruct(shape, "float32"))
    with open(path, "wb") as file:
        file.write(program.serialize())


def jax_encoder(weights, layers, x):
    """As torch.nn.TransformerEncoder computes it."""
    import jax

    def linear(x, name):
        return x @ weights[name + "weight"].T + weights[name + "bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weights[name + ".weight"] + weights[name + ".bias"]

    batch, words, _ = x.shape
    for layer in (f"layers.{number}." for number in range(layers)):
        heads = linear(x, layer + "self_attn.in_proj_").reshape(batch, words, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.transpose(2, 0, 3, 1, 4)
        attention = jax.nn.softmax(query @ key.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5) @ value
        x = norm(x + linear(attention.swapaxes(1, 2).reshape(batch, words, WIDTH), layer + "self_attn.out_proj."), layer + "norm1")
        x = norm(x + linear(jax.nn.relu(linear(x, layer + "linear1.")), layer + "linear2."), layer + "norm2")
    return x


def load_jax(path, layers):
    import jax
    import jax.export
    with open(path, "rb") as file:
        call = jax.jit(jax.export.deserialize(bytearray(file.read())).call)
    return lambda x: jax.block_until_ready(call(x))


@dataclass
class System:
    file: str
    imports: str             # before the clock starts; the first word is whose arrays it takes
    make: object
    load: object
    environment: tuple = ()


SYSTEMS = {
    "framejit, machine code": System("code.program", "torch framejit", make_machine_code, load_machine_code),
    "framejit, kernels on disk": System("encoder.program", "torch framejit", make_program, load_program),
    "framejit, nothing on disk": System("encoder.program", "torch framejit", make_program, load_program, (("FRAMEJIT_CACHE_BYTES", "0"),)),
    "eager": System("state.pt", "torch", make_state, load_state),
    "torch.export": System("encoder.pt2", "torch", make_torch_export, load_torch_export),
    "AOTInductor": System("inductor.pt2", "torch", make_inductor, load_inductor),
    "ONNX, onnxruntime": System("encoder.onnx", "numpy onnxruntime", make_onnx, load_onnx),
    "jax.export": System("encoder.stablehlo", "numpy jax", make_jax, load_jax),
}


# ---- a process for each measurement


def make(system, folder, layers):
    """In a process of its own: the file. What each call has to give is written beside it by the first of them."""
    import numpy as np
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = encoder(layers)
    for name, parameter in net.named_parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.05 + ("norm" in name and name.endswith("weight")))
    first, later = torch.randn(FIRST), torch.randn(LATER)
    np.savez(os.path.join(folder, "calls.npz"), first=first, later=later, first_result=net(first), later_result=net(later))
    SYSTEMS[system].make(net, first, os.path.join(folder, SYSTEMS[system].file))


def measure(system, folder, layers, rounds):
    """In a process of its own: [wall, processor] seconds until loaded, until the first answer, and of a later call."""
    turns.use_threads(1)
    row = SYSTEMS[system]
    arrays, *_ = [importlib.import_module(name) for name in row.imports.split()]
    import numpy as np
    calls = dict(np.load(os.path.join(folder, "calls.npz")))
    first, later = calls["first"], calls["later"]
    if arrays.__name__ == "torch":
        arrays.set_num_threads(1)
        first, later = map(arrays.from_numpy, (first, later))

    def now():
        return time.perf_counter(), time.process_time()

    def since(before, after):
        return [b - a for a, b in zip(before, after)]

    start = now()
    run = row.load(os.path.join(folder, row.file), layers)
    loaded = now()
    result = run(first)
    answered = now()
    np.testing.assert_allclose(result, calls["first_result"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(run(later), calls["later_result"], rtol=1e-3, atol=1e-3)
    times = []
    for _ in range(rounds):
        before = now()
        run(later)
        times.append(since(before, now()))
    print(json.dumps([since(start, loaded), since(start, answered), [min(column) for column in zip(*times)]]))


def process(what, system, folder, options):
    """Gives standard output of this program in another process. RuntimeError with what it said last."""
    caches = {"FRAMEJIT_CACHE_FOLDER": os.path.join(folder, "kernels"), "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor")}
    environment = {**os.environ, **caches, **dict(SYSTEMS[system].environment)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the bytecode of a checkout is kept as that of an installed package is
    given = ["--folder", folder, "--layers", str(options.layers), "--rounds", str(options.rounds)]
    command = [sys.executable, os.path.abspath(__file__), what, system, *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        said = [line.strip() for line in done.stderr.strip().splitlines() if line and not line.startswith(" ")]
        raise RuntimeError(next((line for line in reversed(said) if "Error" in line), said[-1] if said else f"exit {done.returncode}"))
    return done.stdout


def both(seconds):
    wall, processor = (f"{1e3 * value:.3g}" if value < 1 else f"{1e3 * value:.0f}" for value in seconds)
    return f"{wall} ({processor}) ms"


def table(options, folder):
    made, refused, found = {}, {}, {}
    for system in options.systems:
        path, started = os.path.join(folder, SYSTEMS[system].file), time.perf_counter()
        try:
            if not os.path.exists(path):
                process("make", system, folder, options)
                made[system] = time.perf_counter() - started
                print(f"{system}: made in {made[system]:.1f} s", file=sys.stderr)
            process("measure", system, folder, options)  # not counted: what is kept on disk, or read from it, is there from then on
            found[system] = []
        except RuntimeError as error:
            refused[system] = error
    for _ in range(options.runs):
        for system in found:
            found[system].append(json.loads(process("measure", system, folder, options).splitlines()[-1]))
    print("| form | made in | file | loaded after | first answer after | a later call |\n|---|---|---|---|---|---|")
    for system in options.systems:
        if system in refused:
            print(f"| {system} | can't be had: {refused[system]} | | | | |")
            continue
        medians = [[statistics.median(run[part][clock] for run in found[system]) for clock in (0, 1)] for part in range(3)]
        size = os.path.getsize(os.path.join(folder, SYSTEMS[system].file)) / 1e6
        seconds = f"{made[system]:.1f} s" if system in made else ""
        print(f"| {system} | {seconds} | {size:.0f} MB | {' | '.join(map(both, medians))} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("process", nargs="*", help=argparse.SUPPRESS)  # what this program calls itself with
    parser.add_argument("--systems", choices=SYSTEMS, nargs="+", default=list(SYSTEMS), metavar="SYSTEM", help=", ".join(SYSTEMS))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20, help="later calls in each process")
    parser.add_argument("--folder", help="where the files are kept")
    options = parser.parse_args()
    if options.process[:1] == ["make"]:
        make(options.process[1], options.folder, options.layers)
    elif options.process[:1] == ["measure"]:
        measure(options.process[1], options.folder, options.layers, options.rounds)
    elif options.folder:
        os.makedirs(options.folder, exist_ok=True)
        table(options, os.path.abspath(options.folder))
    else:
        with tempfile.TemporaryDirectory() as folder:
            table(options, folder)


if __name__ == "__main__":
    main()
