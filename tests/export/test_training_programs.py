"""Programs for training: forward and backward as two graphs, from Python and from C, against eager."""
import copy
import re
import shutil
import subprocess

import numpy as np
import pytest

import framejit
from framejit import Dim, GraphError, _core

torch = pytest.importorskip("torch", reason="torch is not installed")
CC, VALGRIND = shutil.which("cc"), shutil.which("valgrind")
ROWS = Dim("rows", min=2, max=64)


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)

    def forward(self, index):
        return self.last(self.words(index).mean(1)), self.words.weight.square().sum()


class Loss(torch.nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, y):
        return self.loss(self.net(x), y)


def cases():
    from torch import nn

    torch.manual_seed(0)
    cross = nn.CrossEntropyLoss()
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 3), nn.LayerNorm(3))
    images = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))
    labels = lambda n, count: torch.randint(0, count, (n,))  # noqa: E731
    return {
        "mlp": (Loss(net, cross), lambda n: (torch.randn(n, 4), labels(n, 3)), [{0: ROWS}, {0: ROWS}]),
        "images": (Loss(images, cross), lambda n: (torch.randn(n, 3, 8, 8), labels(n, 5)), [{0: ROWS}, {0: ROWS}]),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), lambda n: (torch.randn(n, 5, 8),), [{0: ROWS}]),
        "lstm": (nn.LSTM(4, 6, batch_first=True), lambda n: (torch.randn(n, 5, 4, requires_grad=True),), [{0: ROWS}]),
        "words": (Words(), lambda n: (torch.randint(0, 20, (n, 6)),), [{0: ROWS}]),
    }


def flat(result):
    return [x for part in result for x in flat(part)] if isinstance(result, (tuple, list)) else [result]


def eager(module, args):
    """A copy of the module after the step, its results, the gradients given to backward, and the arguments with theirs."""
    module, args = copy.deepcopy(module), [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
    results = flat(module(*args))
    derived = [x for x in results if x.requires_grad]
    generator = torch.Generator().manual_seed(3)
    given = [torch.randn(x.shape, generator=generator) for x in derived]
    torch.autograd.backward(derived, given)
    return module, [x.detach() for x in results], given, args


@pytest.mark.parametrize("name", cases())
def test_gradients_from_python(name):
    module, arguments, sizes = cases()[name]
    program = framejit.export(module, arguments(3), dynamic_shapes=sizes, training=True)
    assert set(dict(module.named_parameters())) <= set(program.gradients_of)
    for n in (3, 8, 2):
        args = arguments(n)
        after, results, given, parameters = eager(module, args)
        found, saved = program.forward(*args)
        for ours, theirs in zip(flat(found), results):
            assert not ours.requires_grad
            torch.testing.assert_close(ours, theirs)
        gradients = program.backward(saved, *given)
        expected = {path: x.grad for path, x in after.named_parameters()}
        if "input" in gradients:
            expected["input"] = parameters[0].grad
        assert set(gradients) == set(expected)
        for path, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[path], rtol=3e-4, atol=3e-5)
        for path, buffer in after.named_buffers():
            torch.testing.assert_close(module.get_buffer(path), buffer)


def test_numpy_trained_by_hand():
    def loss(x, y, weight, bias):
        return ((np.tanh(x @ weight) + bias - y) ** 2).mean()

    random = np.random.default_rng(0)
    x, weight = random.standard_normal((16, 3)), np.zeros(3)
    y = np.tanh(x @ np.array([1.0, -2.0, 0.5])) + 0.25
    program = framejit.export(loss, (x, y, weight, np.zeros(())), dynamic_shapes=[{0: ROWS}, {0: ROWS}, None, None], training=True)
    assert sorted(program.gradients_of) == ["bias", "weight", "x", "y"]
    bias, losses = np.zeros(()), []
    for _ in range(300):
        value, saved = program.forward(x, y, weight, bias)
        gradients = program.backward(saved)
        weight, bias = weight - 0.3 * gradients["weight"], np.asarray(bias - 0.3 * gradients["bias"])
        losses.append(value)
    assert losses[0] > 0.2 and losses[-1] < 1e-4
    np.testing.assert_allclose(bias, 0.25, atol=0.01)
    value, saved = program.forward(x, y, weight, bias)
    half = program.backward(saved, 0.5)
    np.testing.assert_allclose(half["x"] * 2, program.backward(saved)["x"])


DRIVER = """
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>

static FILE *in;

static int64_t number(void) {{
  int64_t value;
  if (fread(&value, 8, 1, in) != 1) exit(0);
  return value;
}}

static void *array(void) {{
  int64_t bytes = number();
  char *place = malloc(bytes);
  if (fread(place, 1, bytes, in) != (size_t)bytes) exit(1);
  return place;
}}

int main(int argc, char **argv) {{
  in = fopen(argv[1], "rb");
  FILE *out = fopen(argv[2], "wb");
  for (;;) {{
    {read}
    if ({name}_forward({forward}) || {name}_backward({backward})) return printf("%s", {name}_forward_error()), 2;
    {write}
  }}
}}
"""


@pytest.mark.skipif(CC is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", cases())
def test_gradients_from_c(name, tmp_path):
    module, arguments, sizes = cases()[name]
    program = framejit.export(module, arguments(3), dynamic_shapes=sizes, training=True)
    built = program.build(tmp_path / "built", name=name, cpu=_core.processor_levels()[:3])
    header = built.header.read_text()
    parameters = {kind: [re.fullmatch(r"(.*?)(\w+)", x.strip()).groups() for x in re.search(rf"int {name}_{kind}\(([^)]*)\)", header)[1].split(",")]
                  for kind in ("forward", "backward")}
    data, inputs = program.program.graph._saved.signature, program.program.graph.inputs
    number_of = {x: i for i, (_, x) in enumerate(parameters["forward"][1:1 + len(inputs)])}
    results = [x for _, x in parameters["forward"][1 + len(inputs):]]
    made = [x for kind, x in parameters["backward"] if "const" not in kind and "int64_t " != kind[:8]]
    cotangents = [x for kind, x in parameters["backward"] if "const" in kind and x.startswith("gradient_of_")]
    read = ["int64_t rows = number();", *(f"void *{x} = array();" for x in [*number_of, *cotangents])]
    read += [f"int64_t {x}_bytes = number(); void *{x} = malloc({x}_bytes);" for x in [*results, *made]]
    kept = [x for x in results if not x.startswith("saved_")] + made + [x for kind, x in parameters["forward"] if "const" not in kind and x in number_of]
    write = [f"fwrite({x}, 1, {f'{x}_bytes' if x in results + made else _bytes(inputs[number_of[x]])}, out);" for x in kept]
    write += [f"free({x});" for x in [*number_of, *cotangents, *results, *made]]
    (tmp_path / "driver.c").write_text(DRIVER.format(
        name=name, read="\n    ".join(read), write="\n    ".join(write),
        **{kind: ", ".join(x for _, x in parameters[kind]) for kind in parameters}))
    calls, expected = [], []
    nodes = {**dict(zip(results, program.forward_graph.outputs)), **dict(zip(made, program.backward_graph.outputs))}
    for n in (2, 7):
        args = arguments(n)
        after, outputs, given, leaves = eager(module, args)
        places = dict(zip(program.signature.parameters, args))
        arrays = [places[x["argument"][0]] if "argument" in x else program.state[x["state"]] for x in data["inputs"]]
        call = [np.int64(n).tobytes()]
        call += [np.int64(x.nbytes).tobytes() + x.detach().contiguous().numpy().tobytes() for x in [*arrays, *given]]
        call += [np.int64(_bytes(nodes[x], n)).tobytes() for x in [*results, *made]]
        calls.append(b"".join(call))
        by_path = {**{path: x.grad for path, x in after.named_parameters()}, "input": leaves[0].grad}
        expected += outputs + [by_path[path] for path in program.gradients_of]
        expected += [after.get_buffer(data["inputs"][number_of[x]]["state"]) for x in kept if x in number_of]
    (tmp_path / "calls").write_bytes(b"".join(calls))
    for flags, command in ((["-fsanitize=address,undefined"], []), ([], [VALGRIND, "-q", "--error-exitcode=9"] if VALGRIND else None)):
        if command is None:
            continue
        subprocess.run([CC, "-g", "-Wall", "-Werror", *flags, f"-I{built.header.parent}", str(tmp_path / "driver.c"), "-o", str(tmp_path / "driver"),
                        f"-L{built.library.parent}", f"-l{name}", f"-Wl,-rpath,{built.library.parent}"], check=True)
        done = subprocess.run([*command, tmp_path / "driver", tmp_path / "calls", tmp_path / "found"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        found = (tmp_path / "found").read_bytes()
        for array in expected:
            ours, found = np.frombuffer(found[:array.nbytes], array.numpy().dtype).reshape(array.shape), found[array.nbytes:]
            np.testing.assert_allclose(ours, array.numpy(), rtol=3e-4, atol=3e-5)
        assert not found


def _bytes(node, rows=0):
    size = {"bool": 1, "i64": 8, "f32": 4}[node.dtype]
    for axis in node.shape:
        size *= axis if isinstance(axis, int) else eval(axis, {"s0": rows})
    return size


def test_what_can_not_be_trained():
    with pytest.raises(GraphError, match="can't be trained: nothing that it returns depends on an array that gets a gradient"):
        framejit.export(lambda x: x * 2, (torch.ones(3),), training=True)
    with pytest.raises(GraphError, match=r"can't be trained: there is no derivative of .*inv.* \(test_training_programs.py:\d+\)"):
        framejit.export(lambda x: np.linalg.inv(x).sum(), (np.eye(3),), training=True)
    with pytest.raises(GraphError, match="returns no detached array"):
        framejit.export(lambda x: (x.sum(), (x * 2).detach()), (torch.ones(3, requires_grad=True),), training=True)
    frozen = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).eval()
    with pytest.raises(GraphError, match=r"can't be trained: .*functional.py:\d+.* calls `batch_norm_backward` on objects that have no text"):
        framejit.export(frozen, (torch.ones(5, 4),), training=True)
    program = framejit.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=[{0: ROWS}], training=True)
    _, saved = program.forward(torch.ones(5, 3))
    with pytest.raises(GraphError, match="a gradient for each of the 1 results that have one, not 0"):
        program.backward(saved)
    with pytest.raises(GraphError, match=r"gradient 0 has the shape \(2, 5\), and the result has \(5, 2\)"):
        program.backward(saved, torch.ones(2, 5))
    with pytest.raises(GraphError, match="was given another argument: input"):
        program.forward(torch.ones(5, 4))
    assert program.backward(saved, 1.0)["bias"].tolist() == [5.0, 5.0]


def test_what_is_written_between_forward_and_backward():
    net = torch.nn.Linear(3, 2)
    program = framejit.export(net, (torch.ones(4, 3),), training=True)
    x = torch.ones(4, 3)
    _, saved = program.forward(x)
    x.mul_(2)
    with pytest.raises(GraphError, match="backward: %input was saved by forward, and has been written since"):
        program.backward(saved, 1.0)
    result, saved = program.forward(x)
    result.zero_()  # nothing reads it
    assert program.backward(saved, 1.0)["weight"].tolist() == [[8.0] * 3] * 2


def test_what_is_dropped_forward_is_dropped_backward():
    net = torch.nn.Sequential(torch.nn.Linear(4, 6, bias=False), torch.nn.Dropout(0.5))
    program = framejit.export(net, (torch.ones(3, 4),), training=True)
    x = torch.rand(3, 4)
    masks = set()
    for _ in range(4):
        result, saved = program.forward(x)
        kept = (result != 0).float()
        torch.testing.assert_close(result, kept * 2 * (x @ net[0].weight.detach().T))
        torch.testing.assert_close(program.backward(saved, 1.0)["0.weight"], (2 * kept).T @ x)
        masks.add(str(kept))
    assert len(masks) > 1
