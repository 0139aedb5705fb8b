"""Graphs as text: the short form that people read computes the same when it is parsed, and is the same text again."""
import random
import re

import numpy as np
import pytest

import framejit
from framejit import Graph, GraphError
from harness import both_libraries, needs_torch, torch


def arrays_for(graph, seed=0):
    """Of the types of its inputs; small integers, so that they are indices too."""
    generator = np.random.default_rng(seed)
    library = graph._library()
    made = []
    for node in graph.inputs:
        shape = tuple(3 if isinstance(size, str) else size for size in node.shape)
        kind = node.dtype[0]
        values = generator.standard_normal(shape) if kind in "fbc" else generator.integers(0, 2, shape)
        names = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
        if node.dtype == "bool":
            values = (values > 0)
        elif node.dtype != "bf16":
            values = values.astype(names[kind] + node.dtype[1:])
        values = np.asarray(values)
        if library == "torch":
            values = torch.from_numpy(values)
            values = values.bfloat16() if node.dtype == "bf16" else values
        made.append(values)
    return made


def as_numpy(value):
    is_bfloat16 = torch is not None and isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
    return value.float().numpy() if is_bfloat16 else np.asarray(value)


def check(graph, run=True):
    """The short and the exact text of a graph are parsed, and compute what it computes."""
    text = str(graph)
    assert max(map(len, text.splitlines())) < 160
    parsed = Graph.parse(text)
    parsed.lint()
    assert str(parsed) == text
    exact = Graph.parse(graph.exact_text)
    assert exact.exact_text == graph.exact_text
    assert [node.type for node in parsed.outputs] == [node.type for node in graph.outputs]
    if run:
        arrays = arrays_for(graph)
        expected = graph.run(*arrays)
        for other in (parsed, exact):
            for found, wanted in zip(other.run(*arrays), expected, strict=True):
                np.testing.assert_array_equal(as_numpy(found), as_numpy(wanted))
    return text


@both_libraries
def test_functions_of_all_kinds(lib):
    x, y, v = lib.sample((3, 4)), lib.sample((3, 4), seed=1), lib.sample((4,), seed=2)

    def arithmetic(x, y, v):
        return lib.where(x > y, lib.tanh(x) / (lib.abs(y) + 1), -y * 0.5) ** 2 + float("-inf")

    def widened(x, y, v):
        return x * v + (x - x.sum(1)[:, None]) * v[None, :] + v[:3, None] * y

    def normalised(x, y, v):
        return (x - x.mean(1)[:, None]) / (((x - x.mean(1)[:, None]) ** 2).mean(1)[:, None] + 1e-5) ** 0.5 * v

    def parts(x, y, v):
        return lib.concatenate([x[1:, ::2], y[:2, 1:3]]) * 2, x.T.reshape(2, 6)[:, 1:5:3] + 1, x[::2, None, 1:] + 1

    def updates(x, y, v):
        x[1:] = y[1:] * 2
        y += x
        return x.sum() + y[0]

    def products(x, y, v):
        return (x @ y.T) @ x + v, x.T.reshape(2, 2, 3) @ y

    def integers(x, y, v):
        a = (x * 10).astype(np.int32) if lib.name == "numpy" else (x * 10).int()
        return a // 3 + 7, a % 5 == 2, (a & 255) ^ -1

    def indices(x, y, v):
        return x[lib.array(np.array([2, 0, -1]))] * 2, x.argmax(1), x.cumsum(0)

    for function in (arithmetic, widened, normalised, parts, updates, products, integers, indices):
        for graph in framejit.explain(function)(x, y, v).graphs:
            check(graph)
        check(framejit.capture(function, x, y, v))
        check(framejit.capture(function, x, y, v, dynamic_shapes=True) if function in (arithmetic, integers) else
              framejit.capture(function, x, y, v))


@needs_torch
@pytest.mark.parametrize("training", [False, True])
def test_modules_with_and_without_gradients(training):
    from torch import nn

    nets = [(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(5, 8)),
            (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)), torch.randn(2, 3, 8, 8)),
            (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), torch.randn(2, 5, 16)),
            (nn.Embedding(10, 4), torch.randint(0, 10, (3, 2)))]
    for net, x in nets:
        net.train(training)
        with torch.set_grad_enabled(training):
            report = framejit.explain(net)(x)
        assert report.graphs
        for graph in report.graphs:
            text = check(graph, run=not graph.find(op="extern_call"))
            assert "_modules" not in text and "L." not in text
        check(framejit.capture(net, x, level="library"), run=False)


@needs_torch
def test_an_encoder_of_twelve_layers_fits_six_hundred_lines():
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
    with torch.no_grad():
        graph, = framejit.explain(net)(torch.randn(8, 128, 256)).graphs
    lines = str(graph).splitlines()
    assert len(lines) < 600 and max(map(len, lines)) < 160
    names = [node.name for node in graph.inputs]
    assert names[0] == "src" and set(names[1:]) == set(dict(net.named_parameters()))
    assert str(Graph.parse(str(graph))) == str(graph)


@needs_torch
def test_inputs_are_called_as_the_code_calls_them():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.ModuleDict({"part": torch.nn.Linear(3, 3)})
            self.register_buffer("rate", torch.ones(3))
            self.extra = [torch.ones(3), {"k": torch.ones(3)}]

        def forward(self, rate, arrays, *more, **named):
            return self.inner["part"](rate) * self.rate + self.extra[0] + self.extra[1]["k"] + arrays["w"] + more[0] + named["last"]

    def names(graph):
        return [node.name for node in graph.inputs]

    a = torch.ones(2, 3)
    arguments = (a, {"w": a + 1}, a + 2)
    with torch.no_grad():
        explained, = framejit.explain(Scaled())(*arguments, last=a + 3).graphs
        captured = framejit.capture(Scaled(), *arguments, last=a + 3)
    assert names(explained) == names(captured)
    assert set(names(explained)) == {"rate", "inner.part.weight", "inner.part.bias", "rate_2", "extra.0", "extra.1.k", "arrays.w", "more.0",
                                     "named.last"}
    assert framejit.explain(Scaled())(*arguments, last=a).summary().count("and 3 parameters") == 1


def test_a_node_is_called_what_the_text_calls_it():
    graph = framejit.capture(lambda x, v: np.tanh(x * 2 + v) / 3, np.ones((2, 3)), np.ones(3))
    for line, node in zip(str(graph).splitlines()[1:], [node for node in graph if node.op not in ("constant", "broadcast")]):
        assert line.startswith(f"  %{node.name} = {node.op} ") and graph[node.name] is node
    add, = graph.find(op="add")
    assert str(add).startswith("%1 = add(%0, %v)") and len({node.name for node in graph}) == len(graph)
    hidden = graph.find(op="constant")[0]
    hidden.name = "two"
    assert "%two = constant {value = 2.0" in str(graph) and "mul %x, %two : f64[2, 3]" in str(graph)
    assert str(Graph.parse(str(graph))) == str(graph)
    graph.nodes[-1].move_before(add)  # a broken graph keeps its names
    with pytest.raises(GraphError, match=r"%4 = div\(%3, 3.0\).* comes before its operand %3 = tanh"):
        graph.lint()


def test_numbers_of_all_dtypes_survive():
    values = {"f64": (float("nan"), float("inf"), float("-inf"), -0.0, 1e-300, 5e-324, 0.1), "f32": (0.1, 3.4e38, -0.0),
              "bool": (True, False),
              "i8": (-128, 127), "i16": (-2**15,), "i32": (2**31 - 1,), "i64": (-2**63, 2**63 - 1), "u8": (255,), "u16": (2**16 - 1,),
              "u32": (2**32 - 1,), "u64": (2**64 - 1,), "c128": (complex(1, -0.0), complex("nan+infj"))}
    for dtype, numbers in values.items():
        for number in numbers:
            graph = Graph("f")
            x = graph.add_input("x", dtype, (2,))
            graph.set_outputs(graph.add("bit_xor" if dtype == "bool" else "mul", x, graph.constant(number, dtype, (2,))))
            assert len(str(graph).splitlines()) == 4 and "constant" not in str(graph)
            found = Graph.parse(str(graph)).find(op="constant")[0].attrs
            assert found["to"] == dtype and repr(found["value"]) == repr(number) and str(Graph.parse(str(graph))) == str(graph)
            assert Graph.parse(str(graph)).exact_text == graph.exact_text


@pytest.mark.parametrize("line, problem", [
    ("%0 = add %x, %y : f64[3, 4]", "line 3: no value is called %y"),
    ("%0 = add %x, two : f64[3, 4]", "line 3: expected an operand, found `two`"),
    ("%0 = add %x, 2,5 : f64[3, 4]", "add: takes 2 operands"),
    ("%0 = add %x, 2.0.0 : f64[3, 4]", "line 3: expected a number, found `2.0.0`"),
    ("%0 = add %x, sin(%x) : f64[3, 4]", r"line 3: expected an operand, found `sin\(%x\)`"),
    ("%0 = add %x, reshape(%x, [13]) : f64[3, 4]", "reshape"),
    ("%0 = add %x, %v[:, None, :] : f64[3, 4]", "line 3: an array of 1 axes"),
    ("%0 = add %x, %x[0:9] : f64[3, 4]", "slice: dimension 0 reads 0 to 8 of size 3"),
    ("%0 = add %x, %x[0:1][0:1] : f64[3, 4]", "line 3: an operand is sliced by one"),
    ("%0 = add %x, %x[0:1:2] : f64[3, 4]", "line 3: expected `]`, found `:2]`"),
    ("%0 = matmul %x, 1.0 : f64[3, 4]", "line 3: matmul takes no number as operand 1"),
    ("%0 = add %x, %v : f64[3, 5]", r"result has type f64\[3, 5\], expected f64\[3, 4\]|operand"),
])
def test_texts_that_are_none_say_the_line(line, problem):
    with pytest.raises(GraphError, match=problem):
        Graph.parse(f"graph @f(\n    %x: f64[3, 4], %v: f64[4]) {{\n  {line}\n  return %0\n}}\n")


MUTATED = """graph @f(
    %x: f64[3, 4], %v: f64[4] strides [2]
) where s0 >= 1 {
  %0 = gt %x, 0.5 : bool[3, 4]  ; a.py:1 layers.0
  %1 = reduce_sum reshape(transpose(%x), [3, 4]) {axes = [1]} : f64[3]
  %2 = mul %1[:, None], %v : f64[3, 4]
  %3 = where %0, %2, -0.001 : f64[3, 4]
  %4 = extern_call %3 {callee = "torch.nn.functional.threshold(x0, 0.0, 0.5, " "inplace=False)"} : f64[3, 4]
  %5 = add %4, %x[1:2] : f64[3, 4]  ; a.py:2
  return %5
}
"""


def test_a_thousand_mutations_are_graphs_or_graph_errors():
    text = MUTATED
    assert len(Graph.parse(text)) == 16
    words = [w for w in text.replace(",", " ,").split(" ") if w]
    words += ["nan", "[", "]", "(", ")", ":", "None", "1e999", "-", "reshape(", ";", "\"", "\n"]
    generator, refused = random.Random(0), 0
    for number in range(1000):
        pieces = text.split(" ")
        for _ in range(generator.randrange(1, 3)):
            at = generator.randrange(len(pieces))
            if number % 3 == 0:
                pieces[at] = generator.choice(words)
            elif number % 3 == 1:
                del pieces[at]
            else:
                pieces[at] = pieces[at][:generator.randrange(len(pieces[at]) + 1)] + generator.choice(words)
        try:
            str(Graph.parse(" ".join(pieces)))
        except GraphError as error:
            refused += 1
            assert "line" in str(error) or "broken" in str(error)
    assert 300 < refused < 1000


def of_size(size, symbols=1):
    where, inputs = ", ".join(f"s{i} >= 0" for i in range(symbols)), ", ".join(f"%x{i}: f64[s{i}]" for i in range(symbols))
    return f"graph @f({inputs}) where {where} {{\n  %0 = dim {{value = {size}}} : i64[]\n  return %0\n}}\n"


@pytest.mark.parametrize("text, message", [
    (of_size("*".join(f"(s{i}+1)" for i in range(28)), 28), "line 2: a size of more than 1024 terms"),
    (of_size("*".join(["(s0+s1)"] * 100), 2), "line 2: a size with a product of more than 64 sizes"),
    (of_size("*".join(["s0"] * 65)), "line 2: a size with a product of more than 64 sizes"),
    (of_size(" + ".join(f"s{i}" for i in range(1025)), 1025), "line 2: a size of more than 1024 terms"),
    (of_size("9223372036854775807 + 1"), "line 2: a size with a number of more than 64 bits"),
    (of_size("s0*4294967296*4294967296"), "line 2: a size with a number of more than 64 bits"),
    (of_size("9223372036854775808"), "line 2: expected a size of 64 bits"),
    (of_size("18446744073709551617"), "line 2: expected a size"),
    (of_size("s4294967296"), "line 2: there is no size s4294967296"),
    (of_size("(" * 60 + "s0" + ")" * 60), "line 2: a size with too many parentheses"),
    ("graph @f(%x: f64[" + ", ".join(f"s{i} + 1" for i in range(28)) + "]) where " + ", ".join(f"s{i} >= 0" for i in range(28))
     + " {\n  return %x\n}", "line 1: a shape with too many elements to write down"),
    ("graph @f(%x: f64[" + ", ".join("1" * 65) + "]) {\n  return %x\n}", "line 1: a shape of more than 64 axes"),
    ("graph @f(%x: f64[2]) {\n  %0 = neg %x : f64[2]  ; " + "a" * 400000 + ".py:1\n"
     + "".join(f"  %{i} = neg %x : f64[2]\n" for i in range(1, 9999)) + "  return %0\n}", "the text repeats more than its length allows"),
])
def test_sizes_that_would_not_fit_in_memory(text, message):
    with pytest.raises(GraphError, match=re.escape(message)):
        Graph.parse(text)


def test_sizes_of_many_terms_and_of_64_bits():
    many = " + ".join(f"s{i}*{i + 1}" for i in range(1000))
    assert str(Graph.parse(of_size(many, 1000))).count("*") > 900
    assert Graph.parse(of_size("-9223372036854775808")).run(np.ones(1))[0] == -2 ** 63
    assert Graph.parse(of_size("s0 - 9223372036854775808")).run(np.ones(1))[0] == 1 - 2 ** 63
    assert Graph.parse(of_size("3 - 2*(s0 - 4)*s0")).run(np.ones(5))[0] == -7


def test_many_definitions_of_one_another():
    """Each size is half of the one before; the last is asked for at many places."""
    count = 4000
    where = ", ".join(["s0 >= 0", "s1 >= 0", *(f"s{i} = s{i - 1} // 2" for i in range(2, count))])
    nodes = "".join(f"  %{i} = dim {{value = s{count - 1}}} : i64[]\n" for i in range(1, 3000))
    graph = Graph.parse(f"graph @f(%m: bool[s0]) where {where} {{\n  %0 = nonzero %m {{count = s1, excluded = []}} : i64[s1]\n{nodes}  return %1\n}}\n")
    assert len(graph) == 3000


@pytest.mark.parametrize("node, message", [
    ("%0 = slice %x {starts = [2], steps = [1]} : f64[s0]", "reads 2 to s0 + 1 of size s0"),
    ("%0 = slice %y {starts = [2], steps = [1]} : f64[3]", "reads 2 to 4 of size 4"),
    ("%0 = slice_update %y, %x[0:3] {starts = [2], steps = [1]} : f64[4]", "writes 2 to 4 of size 4"),
    ("%0 = windows %y {axis = 0, count = 2, size = 4, step = 9223372036854775807} : f64[2, 4]", "are not in size 4"),
    ("%0 = reshape %x : f64[s0 - 1]", "cannot reshape s0 elements to s0 - 1"),
    ("%0 = pad %y, 0 {low = [-9], high = [0]} : f64[-5]", "an axis of -5 elements"),
])
def test_a_text_that_reads_outside_is_no_graph(node, message):
    with pytest.raises(GraphError, match=re.escape(message)):
        Graph.parse(f"graph @f(%x: f64[s0], %y: f64[4]) where s0 in 3..9 {{\n  {node}\n  return %0\n}}\n")


def test_a_back_end_is_given_code_of_its_arrays_library():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = []

    def backend(graph, examples):
        given.append(graph.source())
        return graph.copy().function()

    compiled = framejit.compile(lambda x: x.T.sum(0), backend=backend)
    assert compiled(torch.ones(3, 2)).tolist() == [2.0] * 3 and compiled(np.ones((3, 2))).tolist() == [2.0] * 3
    assert "permute" in given[0] and "torch" not in given[1]
