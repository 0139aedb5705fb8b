"""Sequences of different lengths: packed, run through recurrent layers, padded again, and losses over them, in one graph."""
import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit  # noqa: E402
from harness import compare, Outcome  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence  # noqa: E402

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options)}
LENGTHS = [[5, 3, 2, 2], [5, 3, 2, 2], [4, 4, 1, 1], [1, 1, 1, 1], [3, 3, 3, 3], [5, 5, 5, 5]]


def outcomes(run, module, calls, training):
    """What each call returns or raises, with gradients of all parameters and of float inputs."""
    found = []
    for given in calls:
        module.zero_grad()
        given = copy.deepcopy(given)
        outcome = Outcome(run, given, {})
        if training and outcome.error is None:
            results = outcome.result if isinstance(outcome.result, tuple) else (outcome.result,)
            total = sum(part.sin().sum() for part in results if part.requires_grad)
            total.backward()
        leaves = [*(tensor for tensor in given if isinstance(tensor, torch.Tensor)), *module.parameters()]
        outcome.arguments = [leaf.grad if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
        outcome.result = [part.detach() for part in results] if training and outcome.error is None else outcome.result
        found.append(outcome)
    return found


def agree(module, calls, training=True, replays=0):
    """The calls give one graph without a break, eager's results, errors and gradients; `replays`: calls at most that go back to CPython."""
    framejit.reset()
    compiled = framejit.compile(module)
    with torch.set_grad_enabled(training):
        for ours, eager in zip(outcomes(compiled, module, calls, training), outcomes(module, module, calls, training), strict=True):
            compare(ours, eager)
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert report.breaks == [] and info["internal_errors"] == 0 and info["eager_replays"] <= replays, report
    return info, report


class Tagger(nn.Module):
    """Scores of each step, and of what the layers end with."""

    def __init__(self, kind, enforce_sorted=True, batch_first=True, total_length=None, **options):
        super().__init__()
        self.layers = KINDS[kind](3, 4, batch_first=batch_first, **options)
        self.pair, self.enforce_sorted, self.batch_first, self.total_length = kind == "lstm", enforce_sorted, batch_first, total_length
        self.scores = nn.Linear(4 * (1 + self.layers.bidirectional), 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x.tanh(), lengths, batch_first=self.batch_first, enforce_sorted=self.enforce_sorted)
        packed, last = self.layers(packed)
        out, sizes = pad_packed_sequence(packed, batch_first=self.batch_first, padding_value=0.5, total_length=self.total_length)
        return self.scores(out), *(last if self.pair else (last,)), sizes + 1


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": False, "bias": False}, {"total_length": 7}],
                         ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
def test_packed_layers_are_one_graph(kind, options, enforce_sorted, training):
    torch.manual_seed(0)
    module = Tagger(kind, enforce_sorted, **options)
    calls = []
    for lengths in LENGTHS:
        x = torch.randn(4, 5, 3) if module.batch_first else torch.randn(5, 4, 3)
        lengths = torch.tensor(lengths if enforce_sorted else lengths[::-1])
        calls.append((x.requires_grad_(training), lengths))
    info, _ = agree(module, calls, training, replays=1)  # one step: sizes of 1 are another program
    assert info["graphs"] == 1


def agree_on_errors(module, calls):
    """Each call gives eager's result or raises eager's error; at least one does each."""
    framejit.reset()
    compiled = framejit.compile(module)
    with torch.no_grad():
        expected = outcomes(module, module, calls, False)
        for ours, eager in zip(outcomes(compiled, module, calls, False), expected, strict=True):
            compare(ours, eager)
    assert {outcome.error is None for outcome in expected} == {True, False}
    assert framejit.cache_info()["internal_errors"] == 0


def test_lengths_that_torch_refuses_raise():
    x = torch.randn(4, 5, 3)
    given = [5, 3, 2, 2], [3, 5, 2, 2], [5, 3, 2, 0], [5, 3, 2, -1], [5, 4, 2, 1], [5, 3], [5, 3, 2, 2, 1]
    agree_on_errors(Tagger("gru"), [(x, torch.tensor(lengths)) for lengths in given])


def test_a_total_length_that_is_too_short_raises():
    given = [4, 3, 2, 2], [5, 3, 2, 2], [3, 3, 2, 2]
    agree_on_errors(Tagger("gru", total_length=4), [(torch.randn(4, 5, 3), torch.tensor(lengths)) for lengths in given])


@pytest.mark.parametrize("dtype, value", [(torch.int8, 300), (torch.uint8, -2.7), (torch.int64, 1e30), (torch.float16, 1e30),
                                          (torch.float32, float("-inf"))], ids=str)
def test_padding_that_the_dtype_does_not_hold_raises(dtype, value):
    module = nn.Module()
    module.forward = lambda x, lengths, value: pad_packed_sequence(pack_padded_sequence(x, lengths, enforce_sorted=False), padding_value=value)[0]
    x, lengths = torch.ones(4, 3, 2).to(dtype), torch.tensor([2, 4, 1])
    if dtype is torch.float32:
        agree(module, [(x, lengths, value)] * 2, training=False)
    else:
        agree_on_errors(module, [(x, lengths, 1), (x, lengths, value)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_packing_and_padding_of_any_kind(dtype, rank):
    def run(x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        padded, sizes = pad_packed_sequence(packed, batch_first=True, padding_value=1)
        return packed.data, packed.batch_sizes, padded, sizes

    torch.manual_seed(0)
    framejit.reset()
    compiled = framejit.compile(run)
    for lengths in ([2, 5, 1, 3], [2, 5, 1, 3], [1, 1, 4, 4]):
        x = torch.randn((5, 4, 3, 2)[:rank]).mul(10).to(dtype)
        given = x, torch.tensor(lengths)
        compare(Outcome(compiled, given, {}), Outcome(run, given, {}))
    report = framejit.explain(compiled).so_far()
    assert report.breaks == [] and framejit.cache_info()["internal_errors"] == 0, report


def test_sequences_packed_by_a_list():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.scores = nn.GRU(3, 4), nn.Linear(4, 2)

        def forward(self, *sequences):
            return self.scores(self.layers(pack_sequence(list(sequences), enforce_sorted=False))[1][-1])

    torch.manual_seed(0)
    agree(Last(), [(torch.randn(2, 3), torch.randn(4, 3), torch.randn(3, 3))] * 2)


class Speech(nn.Module):
    """A recogniser with its loss inside."""

    def __init__(self, reduction="mean", zero_infinity=True):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=1)
        self.layers = nn.GRU(6, 4, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(8, 5)
        self.reduction, self.zero_infinity = reduction, zero_infinity

    def forward(self, x, lengths, targets, target_lengths):
        hidden = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        packed = pack_padded_sequence(hidden, lengths, batch_first=True)
        hidden, _ = pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        found = self.scores(hidden).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(found, targets, lengths, target_lengths, reduction=self.reduction, zero_infinity=self.zero_infinity)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_loss_over_alignments(reduction, zero_infinity):
    torch.manual_seed(0)
    calls = []
    for lengths in ([12, 9, 7], [12, 9, 7], [11, 4, 3]):
        calls.append((torch.randn(3, 12, 3), torch.tensor(lengths), torch.randint(1, 5, (3, 4)), torch.tensor([4, 2, 3])))
    info, _ = agree(Speech(reduction, zero_infinity), calls)
    assert info["graphs"] == 1


@pytest.mark.parametrize("lengths", [([12, 9, 7], [4, 2, 3]), ((12, 9, 7), (4, 2, 3))], ids=["lists", "tuples"])
def test_a_loss_over_alignments_by_lists(lengths):
    module = nn.Module()
    module.forward = lambda x, targets: F.ctc_loss(x.log_softmax(-1), targets, *lengths, blank=2)
    torch.manual_seed(0)
    calls = [(torch.randn(12, 3, 5, requires_grad=True), torch.tensor([[0, 1, 3, 4], [0, 1, 3, 4], [1, 1, 3, 0]])) for _ in range(2)]
    agree(module, calls)


def test_a_loss_of_one_alignment():
    module = nn.Module()
    module.forward = lambda x, targets: F.ctc_loss(x.log_softmax(-1), targets, torch.tensor(12), torch.tensor(4))
    torch.manual_seed(0)
    agree(module, [(torch.randn(12, 5, requires_grad=True), torch.tensor([1, 1, 3, 4])) for _ in range(2)])


def test_lengths_that_the_loss_refuses_raise():
    module = nn.Module()
    module.forward = lambda x, targets, lengths: F.ctc_loss(x.log_softmax(-1), targets, lengths, torch.tensor([4, 2]))
    calls = [(torch.randn(9, 2, 5), torch.ones(2, 4, dtype=torch.int64), torch.tensor(lengths)) for lengths in ([9, 8], [10, 8], [9, -1], [7, 7])]
    agree_on_errors(module, calls)


def test_sequences_padded_by_their_lengths():
    def run(first, second):
        return pad_sequence([first * 2, second], batch_first=True, padding_value=-1.0).sum(1)

    framejit.reset()
    compiled = framejit.compile(run)
    for sizes in ((2, 3), (2, 3)):
        given = [torch.randn(size, 3) for size in sizes]
        compare(Outcome(compiled, given, {}), Outcome(run, given, {}))
    assert framejit.explain(compiled).so_far().breaks == []
