"""What the tests export: modules of torch and functions of NumPy, each with its arguments by size."""
import numpy as np

from framejit import Dim


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, scale, *, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * scale


def distances(parts):
    a, b = parts["a"], parts["b"]
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))


def several(x, n):
    return {"scaled": x * n, "rows": x.shape[0], "both": (x.sum(0), [x.max()])}


def filled(x, where):
    x = np.where(where, 0.0, x)
    return np.cumsum(x, axis=1)


class Scaler:
    def __init__(self):
        self.mean, self.spread = np.linspace(0.0, 1.0, 3), np.full(3, 2.0)

    def transform(self, x):
        return (x - self.mean) / self.spread


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


ROWS = Dim("rows", min=2, max=64)

# By name: function, (args, kwargs) by size, dynamic_shapes.
FUNCTIONS = {
    "softmax": (softmax, lambda n: ((random(n, 5),), {}), {"x": {0: ROWS}}),
    "layer_norm": (layer_norm, lambda n: ((random(n, 8), np.arange(8.0)), {"eps": 1e-3}), {"x": {0: ROWS}}),
    "distances": (distances, lambda n: (({"a": random(n, 3), "b": random(n + 1, 3)},), {}),
                  {"parts": {"a": {0: ROWS}, "b": {0: Dim("others", min=2, max=65)}}}),
    "several": (several, lambda n: ((random(n, 3), 3), {}), {"x": {0: ROWS}}),
    "filled": (filled, lambda n: ((random(n, 4), random(n, 4) > 0), {}), {"x": {0: ROWS}, "where": {0: ROWS}}),
    "method": (Scaler().transform, lambda n: ((random(n, 3),), {}), {"x": {0: ROWS}}),
}


def modules():
    """As FUNCTIONS, of torch."""
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.last = nn.Embedding(20, 8), nn.Linear(8, 3)

        def forward(self, index):
            return self.last(self.words(index).mean(1))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru = nn.LSTM(4, 3, 2, bidirectional=True, bias=False), nn.GRU(6, 5)
            self.rnn = nn.RNN(5, 4, nonlinearity="relu")

        def forward(self, x, h):
            found, (_, c) = self.lstm(x)
            found, last = self.gru(found, h)
            return self.rnn(found)[0], last, c

    torch.manual_seed(0)
    grouped = nn.Sequential(nn.Conv1d(4, 8, 3, groups=4, padding=1), nn.ReLU6(), nn.Conv1d(8, 6, 2, stride=2, dilation=2, groups=2, bias=False),
                            nn.BatchNorm1d(6), nn.Flatten()).double()
    convolutions = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    return {
        "mlp": (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), lambda n: ((torch.randn(n, 4),), {}),
                {"input": {0: Dim("rows", min=1, max=64)}}),
        "convolutions": (convolutions.eval(), lambda n: ((torch.randn(n, 3, 8, 8),), {}), {"input": {0: ROWS}}),
        "encoder": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), lambda n: ((torch.randn(n, n + 2, 16),), {}),
                    {"src": {0: ROWS, 1: Dim("words", min=2, max=64)}}),
        "lstm": (nn.LSTM(4, 6, batch_first=True), lambda n: ((torch.randn(n, 5, 4),), {}), {"input": {0: ROWS}}),
        "grouped": (grouped.eval(), lambda n: ((torch.randn(n, 4, n + 9, dtype=torch.float64),), {}),
                    {"input": {0: ROWS, 2: Dim("length", min=6, max=64)}}),
        "recurrent": (Recurrent(), lambda n: ((torch.randn(5, n, 4), torch.randn(1, n, 5)), {}), {"x": {1: ROWS}, "h": {1: ROWS}}),
        "words": (Words(), lambda n: ((torch.randint(0, 20, (n, 6)),), {}), {"index": {0: ROWS}}),
    }


def bert():
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)).eval()
    sizes = {0: ROWS, 1: Dim("words", min=2, max=64)}

    def arguments(n):
        mask = torch.ones(n, n + 3, dtype=torch.long)
        mask[0, -1] = 0
        return (), {"input_ids": torch.randint(0, 100, (n, n + 3)), "attention_mask": mask, "return_dict": False}

    return model, arguments, {"input_ids": sizes, "attention_mask": sizes}
