"""A back end of the user's that raises, or returns something else than it should: BackendError at each call."""
import traceback

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def doubled(x):
    return x * 2 + 1


def shifted(x, y):
    x += 1
    y *= 2
    return x.sum(0) - 3


def weights(x):
    return [x * {}["weight"]]


def always(run):
    def mine(graph, example_inputs):
        return run

    return mine


LIST = "; expected a list of 1 array"
MISTAKES = [
    (lambda x: None, "returned None" + LIST),
    (lambda x: 7, "returned an int" + LIST),
    (lambda x: x, "returned a numpy.ndarray" + LIST),
    (lambda x: [], "returned 0 arrays" + LIST),
    (lambda x: (x, x, x), "returned 3 arrays" + LIST),
    (lambda x: [None], "returned None as result 0; expected an array"),
    (lambda x: ["six"], "returned a str as result 0; expected an array"),
    (lambda x: [x.T * 2 + 1], "returned an array of shape (3, 2) as result 0; expected the shape (2, 3)"),
    (lambda x: [np.float32(3)], "returned an array of shape () as result 0; expected the shape (2, 3)"),
    (lambda x: [x.astype(float)], "returned an array of dtype float64 as result 0; expected the dtype float32"),
    (lambda x: [x > 0], "returned an array of dtype bool as result 0; expected the dtype float32"),
    (weights, "raised KeyError: 'weight'"),
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("run, text", MISTAKES, ids=[text for _, text in MISTAKES])
def test_mistakes_in_a_call(run, text, strict):
    compiled = framejit.compile(doubled, backend=always(run), strict=strict)
    for _ in range(3):
        with pytest.raises(framejit.BackendError) as raised:
            compiled(X)
        start = f"framejit: the function that the back end mine made of doubled {text}\n  try "
        assert str(raised.value).startswith(start)
    cause = raised.value.__cause__
    assert (cause is None) == (run is not weights)
    assert cause is None or traceback.extract_tb(cause.__traceback__)[-1].name == "weights"
    assert framejit.explain(compiled).so_far().fallbacks == []


def test_mistakes_in_compiling():
    asked = []

    def refusing(graph, example_inputs):
        asked.append(graph.name)
        raise LookupError("no rule for mul")

    for backend, text in ((refusing, "raised LookupError: no rule for mul"),
                          (always(None), "returned None; expected a function of the graph's inputs")):
        compiled = framejit.compile(doubled, backend=backend)
        for _ in range(2):
            with pytest.raises(framejit.BackendError) as raised:
                compiled(X)
            assert f"the back end {backend.__name__}, given the graph of doubled, {text}" in str(raised.value)
        assert isinstance(raised.value.__cause__, LookupError) == (backend is refusing)
    assert asked == ["doubled"] * 2


def test_the_name_it_is_registered_by_is_the_name_it_is_called():
    framejit.register_backend("nothing_much", always(lambda x: None))
    with pytest.raises(framejit.BackendError, match="the back end nothing_much made of doubled returned None"):
        framejit.compile(doubled, backend="nothing_much")(X)
    with framejit.options(backend="nothing_much"), pytest.raises(framejit.BackendError, match="nothing_much"):
        framejit.compile(doubled)(X)


@pytest.mark.parametrize("results, text", [
    (lambda x, y: [x.sum(0) - 1],
     "returned 1 array; expected a list of 3 arrays: 1 that the graph returns, then 2 that it writes into inputs"),
    (lambda x, y: [x.sum(0) - 1, x + 1, y[0]], "an array of shape (3,) as result 2; expected the shape (2, 3)"),
    (lambda x, y: [x.sum(0) - 1, x + 1, y > 0], "an array of dtype bool as result 2; expected the dtype float32"),
])
def test_no_input_is_written_where_one_result_is_wrong(results, text):
    x, y = X.copy(), X.copy()
    with pytest.raises(framejit.BackendError) as raised:
        framejit.compile(shifted, backend=always(results))(x, y)
    assert text in str(raised.value) and (x == X).all() and (y == X).all()


def test_results_have_eager_s_strides_and_memory_of_their_own():
    def f(x, y):
        return x + 0, y + 1

    y = X.T
    compiled = framejit.compile(f, backend=always(lambda x, y: [x, np.ascontiguousarray(y + 1)]))
    for array, wanted in zip(compiled(X, y), f(X, y)):
        assert array.strides == wanted.strides and not np.shares_memory(array, X)
        np.testing.assert_array_equal(array, wanted)


def test_a_number_of_numpy_is_an_array_without_dimensions():
    compiled = framejit.compile(lambda x: x.sum() * 2, backend=always(lambda x: [np.sum(x) * np.float32(2)]))
    assert compiled(X) == 30


def test_what_ends_a_program_goes_through():
    def stopped(x):
        raise KeyboardInterrupt

    for backend in (always(stopped), lambda graph, example_inputs: stopped(0)):
        with pytest.raises(KeyboardInterrupt):
            framejit.compile(doubled, backend=backend)(X)


@needs_torch
@pytest.mark.parametrize("run, text", [
    (lambda x: torch.zeros(2, 3), "returned a Tensor; expected a list of 1 array"),
    (lambda x: [x.double()], "returned an array of dtype torch.float64 as result 0; expected the dtype torch.float32"),
    (lambda x: [x.numpy().astype("int32")], "an array of dtype int32 as result 0; expected the dtype torch.float32"),
    (lambda x: [x[:1]], "returned an array of shape (1, 3) as result 0; expected the shape (2, 3)"),
    (lambda x: [x @ x], "raised RuntimeError: mat1 and mat2"),
])
def test_mistakes_with_tensors(run, text):
    compiled = framejit.compile(doubled, backend=always(run))
    with pytest.raises(framejit.BackendError) as raised:
        compiled(torch.from_numpy(X.copy()))
    assert text in str(raised.value)


def test_the_replay_of_a_graph_leaves_errors_to_the_function():
    compiled = framejit.compile(lambda x, i: x[i] * 2, backend="eager")
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(X, np.array([0, 5]))
