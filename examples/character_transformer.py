"""A character-level transformer learns to write like the Python documentation that ships with the interpreter (pydoc's topics).

    python examples/training.py character_transformer
    python examples/character_transformer.py             trains longer, then writes some text
"""
from pydoc_data import topics

import torch
from torch import nn
from torch.nn import functional as F

import training

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 16
TITLE = f"character transformer ({LAYERS} layers, width {WIDTH}) on Python's own documentation, {BATCH} texts of {CONTEXT}"
STEPS = 60
# float32: softmax, norms and sums are taken in another order, and Adam makes full steps of small gradients too. Measured: 1e-7.
TOLERANCE = 1e-4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.queries_keys_values(self.attention_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Writer(nn.Module):
    """The next character's scores, for each character of a text."""

    def __init__(self, characters):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, text):
        x = self.characters(text) + self.positions(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


def corpus():
    """(alphabet, the text as numbers)"""
    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    return alphabet, torch.tensor([number[character] for character in text])


def batches(text):
    def batch(step):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1), generator=torch.Generator().manual_seed(step))
        pieces = text[starts + torch.arange(CONTEXT + 1)]
        return pieces[:, :-1], pieces[:, 1:]

    return batch


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def jax_loss(parameters, x, y):
    import jax
    import jax.numpy as jnp

    def linear(name, x):
        return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    batch, length = x.shape
    hidden = parameters["characters.weight"][x] + parameters["positions.weight"][:length]
    later = jnp.triu(jnp.full((length, length), -jnp.inf), 1)
    for i in range(LAYERS):
        block = f"blocks.{i}."
        heads = linear(block + "queries_keys_values", norm(block + "attention_norm", hidden))
        queries, keys, values = heads.reshape(batch, length, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
        weights = jax.nn.softmax(queries @ keys.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5 + later)
        hidden = hidden + linear(block + "out", (weights @ values).swapaxes(1, 2).reshape(batch, length, WIDTH))
        hidden = hidden + linear(block + "down", jax.nn.gelu(linear(block + "up", norm(block + "mlp_norm", hidden)), approximate=False))
    scores = jax.nn.log_softmax(linear("scores", norm("norm", hidden)))
    return -jnp.take_along_axis(scores, y[..., None], -1).mean()


def systems():
    alphabet, text = corpus()
    torch.manual_seed(0)
    return training.torch_systems(Writer(len(alphabet)), batches(text), loss_of, 3e-3, jax_loss)


def main(steps=400, length=300):
    import framejit

    alphabet, text = corpus()
    torch.manual_seed(0)
    model, batch = framejit.compile(Writer(len(alphabet))), batches(text)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        loss = loss_of(model, *batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    written = text[:1]
    with torch.no_grad():
        for _ in range(length):
            scores = model(written[None, -CONTEXT:])[0, -1]
            written = torch.cat([written, torch.multinomial(torch.softmax(scores, 0), 1)])
    print("".join(alphabet[i] for i in written.tolist()))


if __name__ == "__main__":
    main()
