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
