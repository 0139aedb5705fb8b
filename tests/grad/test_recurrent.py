"""nn.LSTM, GRU and RNN with dropout between their layers, in training: one graph, with eager's draws and gradients."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402
from torch import nn  # noqa: E402

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options)}


def observe(run, module, x, state):
    torch.manual_seed(5)
    module.zero_grad()
    x = x.clone().requires_grad_()
    out, last = run(x, state)
    last = last if isinstance(last, tuple) else (last,)
    (out.sin().sum() + sum(part.cos().sum() for part in last)).backward()
    return [out.detach(), *last, x.grad, *(p.grad for p in module.parameters()), torch.get_rng_state(),
            *(torch.tensor(part.stride()) for part in (out, *last))]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers(kind, layers, bidirectional, batch_first):
    torch.manual_seed(0)
    module = KINDS[kind](3, 4, num_layers=layers, dropout=0.4, bidirectional=bidirectional, batch_first=batch_first)
    framejit.reset()
    compiled = framejit.compile(module)
    given = torch.ones(layers * (2 if bidirectional else 1), 2, 4)
    for x, state in ((torch.randn(2, 2, 3), None), (torch.randn(2, 2, 3), (given, given * 2) if kind == "lstm" else given)):
        for _ in range(2):
            for ours, eager in zip(observe(compiled, module, x, state), observe(module, module, x, state), strict=True):
                torch.testing.assert_close(ours, eager)
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert report.breaks == [] and info["graphs"] == 2 and info["eager_replays"] == 0 and info["internal_errors"] == 0, report


def test_the_layers_are_one_call_where_nothing_is_dropped_or_derived():
    module = nn.LSTM(3, 4, num_layers=2, dropout=0.4)
    for run in (lambda x: module.eval()(x)[0], lambda x: module.train()(x.detach())[0].detach()):
        framejit.reset()
        compiled, x = framejit.compile(run), torch.randn(2, 2, 3)
        with torch.no_grad():
            for _ in range(2):
                torch.manual_seed(0)
                expected = run(x)
                torch.manual_seed(0)
                torch.testing.assert_close(compiled(x), expected)
        assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell", "relu"])
def test_a_cell_is_its_operations(kind, dtype, bias):
    torch.manual_seed(0)
    cell = nn.RNNCell(5, 9, bias, "relu") if kind == "relu" else getattr(nn, kind)(5, 9, bias)
    cell = cell.to(dtype)
    compiled = framejit.compile(cell)

    def observed(run, x, h):
        cell.zero_grad()
        x, h = x.clone().requires_grad_(), h.clone().requires_grad_()
        result = run(x, (h, h * 2) if kind == "LSTMCell" else h)
        result = result if isinstance(result, tuple) else (result,)
        sum((part ** 2).sum() for part in result).backward()
        with torch.no_grad():
            without = run(x)
        without = without if isinstance(without, tuple) else (without,)
        parts = *result, *without
        return [*parts, x.grad, h.grad, *(p.grad for p in cell.parameters() if p.grad is not None)], [(p.stride(), p._version) for p in parts]

    for rows in (1, 7, 0, 40):
        given = torch.randn(rows, 5, dtype=dtype), torch.randn(rows, 9, dtype=dtype)
        (expected, of_eager), (found, ours) = observed(cell, *given), observed(compiled, *given)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert ours == of_eager
    graphs = framejit.explain(compiled).so_far().graphs
    assert graphs and all("extern_call" not in str(graph) for graph in graphs)


@pytest.mark.parametrize("arguments", [
    lambda t: (t(3, 4), t(3, 9), t(27, 5), t(27, 9)), lambda t: (t(3, 5), t(2, 9), t(27, 5), t(27, 9)), lambda t: (t(5), t(9), t(27, 5), t(27, 9)),
    lambda t: (t(3, 5), t(3, 9), t(26, 5), t(27, 9)), lambda t: (t(3, 5), t(3, 9), t(27, 5).double(), t(27, 9)),
    lambda t: (t(3, 5), t(3, 9), t(27, 5), t(27, 9), t(27), t(26))])
def test_what_a_cell_refuses_is_eager_s_error(arguments):
    given = arguments(torch.ones)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        torch.gru_cell(*given)
    with pytest.raises(expected.type) as found:
        framejit.compile(lambda *given: torch.gru_cell(*given))(*given)
    assert str(found.value) == str(expected.value)
