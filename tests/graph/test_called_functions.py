"""What the functions that a graph's text names write: said by the text, or refused."""
import importlib
import inspect
import warnings

import framejit
import numpy as np
import pytest
from framejit import GraphError
from framejit._graph import effects

from harness import needs_torch, torch


def calling(callee, *types, results=1):
    names = ", ".join(f"%a{i}: {type}" for i, type in enumerate(types))
    operands = ", ".join(f"%a{i}" for i in range(len(types)))
    layouts = ", ".join(["contiguous"] * len(types))
    found = ", ".join(f"%{i}" for i in range(results))
    return framejit.Graph.parse(
        f'graph @f({names}) {{\n  {found} = extern_call {operands} {{callee = "{callee}", handle = -1, operand_strides = [{layouts}], '
        f'result_strides = [{", ".join(["contiguous"] * results)}]}} : {", ".join([types[0]] * results)}\n  return {found}\n}}\n')


def unchanged(callee, *arrays):
    graph = calling(callee, *(f"f64{list(x.shape)}" for x in arrays))
    before = [np.asarray(x).copy() for x in arrays]
    for run in (graph.lint, lambda: graph.run(*arrays), lambda: graph(*arrays)):
        with pytest.raises(GraphError, match="doesn't say so|no function of arrays|no call of an array function|by a keyword|has an operand"):
            run()
    for x, expected in zip(arrays, before):
        np.testing.assert_array_equal(np.asarray(x), expected, strict=True)


@pytest.mark.parametrize("callee", [
    "numpy.ndarray.resize(x0, (9,), refcheck=False)", "numpy.ndarray.setflags(x0, write=False)", "numpy.ndarray.fill(x0, 7.0)",
    "numpy.ndarray.sort(x0)", "numpy.put(x0, [0], [9.0])", "numpy.copyto(x0, 5.0)", "numpy.ndarray.partition(x0, 3)", "numpy.place(x0, x0, 1)",
    "numpy.putmask(x0, x0, 1)", "numpy.put_along_axis(x0, x0, 1, 0)", "numpy.add.at(x0, [0], 4.0)", "numpy.add(x0, 1.0, x0)",
    "numpy.add(x0, 1.0, out=x0)", "numpy.add(x0, 1.0, out=(x0,))", "numpy.divmod(x0, 2.0, None, x0)", "numpy.sum(x0, 0, None, x0)",
    "numpy.ndarray.cumsum(x0, 0, None, x0)", "numpy.median(x0, 0, None, True)", "numpy.percentile(x0, 5, overwrite_input=True)",
    "numpy.nan_to_num(x0, False)", "numpy.nan_to_num(x0, copy=False)", "numpy.ndarray.byteswap(x0, True)", "numpy.copyto(dst=x0, src=1.0)",
    "numpy.ndarray.setfield(x0, 1, 'f8')", "numpy.frombuffer(x0)", "numpy.fromiter(x0, 'f8')", "numpy.ndarray.tobytes(x0)",
    "numpy.fft.fft(x0, 8, -1, None, x0)", "numpy.nditer(x0)", "numpy.ndarray.view(x0, type='/etc/passwd')", "numpy.add(x0, x1)"])
def test_numpys_functions_that_write_what_they_do_not_say(callee):
    unchanged(callee, np.array([3.0, 1.0, 2.0, 0.0, 5.0]))


@needs_torch
@pytest.mark.parametrize("callee", [
    "torch.Tensor.add_(x0, 1)", "torch.relu_(x0)", "torch.relu_(input=x0)", "torch.add(x0, 1, out=x0)", "torch.Tensor.resize_(x0, (9,))",
    "torch.Tensor.set_(x0)", "torch.Tensor.requires_grad_(x0)", "torch.nn.functional.relu(x0, True)", "torch.sort(x0, out=(x0, x1))",
    "torch.nn.functional.relu(x0, inplace=True)", "torch.nn.functional.embedding(x0, x1, max_norm=1.0)", "torch.norm(x0, 2, None, False, x0)",
    "torch.nn.functional.batch_norm(x0, x0, x1, None, None, True)", "torch.batch_norm(x0, None, None, x0, x1, True, 0.1, 1e-5, False)",
    "torch.Tensor.data_ptr(x0)", "torch.Tensor.retain_grad(x0)", "torch.frombuffer(x0)", "torch.Tensor.copy_(x0, x1)",
    "torch._C._nn.rrelu_with_noise(x0, x1)", "torch.tensordot(x0, x1, 1, x0)"])
def test_torchs_functions_that_write_what_they_do_not_say(callee):
    unchanged(callee, torch.arange(5.0, dtype=torch.float64) - 2, torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize("callee, results, expected", [
    ("_ = numpy.ndarray.sort(x0) writes x0", 1, [[1.0, 2.0, 3.0]]),
    ("numpy.add(x0, 1.0, x0) writes x0", 2, [[4.0, 2.0, 3.0]] * 2),
    ("numpy.add(x0, 1.0, None)", 1, [[4.0, 2.0, 3.0]]),
    ("numpy.nan_to_num(x0, copy=True)", 1, [[3.0, 1.0, 2.0]]),
    ("_ = numpy.copyto(x0, 5.0) writes x0", 1, [[5.0] * 3]),
])
def test_what_is_written_is_a_copy(callee, results, expected):
    x = np.array([3.0, 1.0, 2.0])
    graph = calling(callee, "f64[3]", results=results)
    graph.lint()
    for found in (graph.run(x), graph(x)):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(x, [3.0, 1.0, 2.0])


@needs_torch
def test_a_normalisation_that_does_not_train_writes_nothing():
    x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    mean, variance = torch.ones(4, dtype=torch.float64), torch.full((4,), 4.0, dtype=torch.float64)
    graph = calling("torch.nn.functional.batch_norm(x0, x1, x2, training=False, eps=0.0)", "f64[3, 4]", "f64[4]", "f64[4]")
    torch.testing.assert_close(graph.run(x, mean, variance)[0], (x - 1) / 2)


@pytest.mark.parametrize("arguments", [
    "x0, 9**9", "x0, 9223372036854775808", "x0, (1,) * 9", "x0, " + "[" * 14 + "]" * 14, "x0, 'a/b'", "x0, 'a.b()'", "x0, " + "-" * 14 + "1",
    "x0, axis=0, axis=0", "x0, x7", "x0, 1 << 70", "x0, s1000000000000", "x0, b'1'", "x0, ..."])
def test_arguments_that_no_call_has(arguments):
    with pytest.raises(GraphError):
        calling(f"numpy.sum({arguments})", "f64[3]").run(np.ones(3))


def test_a_call_gives_as_many_results_as_its_node():
    for callee in ("r0, r1 = numpy.linalg.slogdet(x0)", "r1, = numpy.sum(x0)", "_ = numpy.sum(x0)", "numpy.sum(x0) writes x0"):
        with pytest.raises(GraphError, match="which are the node's 1 results"):
            calling(callee, "f64[3]").lint()


def module_of(space):
    return np.ndarray if space == "numpy.ndarray" else importlib.import_module(space)


def test_where_out_stands_among_numpys_arguments():
    compared = 0
    for space in ("numpy", "numpy.linalg", "numpy.fft", "numpy.ndarray"):
        for name in effects._READ[space]:
            try:
                parameters = inspect.signature(getattr(module_of(space), name)).parameters.values()
            except (AttributeError, ValueError):  # not of this NumPy, or an older one
                continue
            places = [i for i, x in enumerate(parameters) if x.name == "out" and x.kind is not x.KEYWORD_ONLY]
            if name != "einsum" and places:
                assert effects._OUT_PLACES.get(f"{space}.{name}") == places[0], name
                compared += 1
    assert compared > 20


def test_numpys_functions_write_only_what_the_list_says():
    """With arguments of most of the forms that they take."""
    square, ints = np.arange(9.0)[::-1].reshape(3, 3) + np.eye(3), np.array([2, 0, 1])
    forms = ((square,), (square, square), (square, ints), (square, 1), (ints, 1), (ints, ints), (ints, square), (ints, ints, 1),
             (square, ints, ints), (square, square, square), ([square, square],), (square, 0, 1), (square, (3, 3)), (square, 25.0),
             (square, 25.0, None, None, True), (square, None, None, True), (square, False), (square, True), (square, ints, 1, 0))
    called, writing = set(), set()
    for name in [f"{space}.{x}" for space in ("numpy", "numpy.linalg", "numpy.fft", "numpy.ndarray") for x in effects._READ[space]] + [
            f"numpy.{x}" for x in dir(np) if isinstance(getattr(np, x), np.ufunc)] + list(effects._WRITE_FIRST):
        function = getattr(module_of(name.rpartition(".")[0]), name.rpartition(".")[2], None)
        for form in forms if function is not None else ():
            given = [x.copy() if isinstance(x, np.ndarray) else [y.copy() for y in x] if isinstance(x, list) else x for x in form]
            said = effects.written_by(name, function, given, {}, lambda x, values: any(x is value for value in values))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(*given)
                called.add(name)
            except Exception:  # it takes others
                pass
            for x, before in zip(given, form):
                if not any(x is y for y in said):
                    np.testing.assert_array_equal(x, before, strict=isinstance(x, np.ndarray), err_msg=name)
                elif not np.array_equal(x, before):
                    writing.add(name)
    assert len(called) > 250 and writing >= {"numpy.percentile", "numpy.isposinf", "numpy.add", "numpy.put", "numpy.ndarray.sort"}  # some, of each NumPy
