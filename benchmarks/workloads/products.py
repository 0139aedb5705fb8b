"""Matrix products and convolutions with the work around them: measured against the machine's FLOP peak."""
from libraries import F, jax_modules, normal, np, torch, uniform
from workloads import Workload


class GeluMlp(Workload):
    name = "gelu_mlp"
    sizes = {"tiny": (2, 8, 16), "cache": (128, 256, 1024), "ram": (2048, 1024, 4096)}
    product = True
    tolerance = 1e-3

    def arguments(n, width, hidden):
        return (normal(n, width), normal(hidden, width, seed=1) / np.float32(width ** 0.5), normal(hidden, seed=2),
                normal(width, hidden, seed=3) / np.float32(hidden ** 0.5), normal(width, seed=4))

    @classmethod
    def flops(cls, arguments):
        return 4 * arguments[0].shape[0] * arguments[1].size

    def numpy(x, w1, b1, w2, b2):
        h = x @ w1.T + b1
        h = 0.5 * h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h * h * h)))
        return h @ w2.T + b2

    def torch(x, w1, b1, w2, b2):
        return F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2)


class Attention(Workload):
    name = "attention"
    sizes = {"tiny": (1, 2, 4, 8), "cache": (1, 4, 256, 64), "ram": (2, 8, 1024, 64)}
    product = True
    tolerance = 1e-3

    def arguments(*shape):
        mask = np.triu(np.full(shape[2:3] * 2, -1e9, np.float32), 1)
        return normal(*shape), normal(*shape, seed=1), normal(*shape, seed=2), mask

    @classmethod
    def flops(cls, arguments):
        return 4 * arguments[0].size * arguments[0].shape[2]

    def numpy(q, k, v, mask):
        scores = q @ np.swapaxes(k, -1, -2) / np.float32(8) + mask
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (scores / scores.sum(axis=-1, keepdims=True)) @ v

    def torch(q, k, v, mask):
        return torch.softmax(q @ k.transpose(-1, -2) / 8 + mask, -1) @ v


class ConvNormRelu(Workload):
    name = "conv_bn_relu"
    sizes = {"tiny": (1, 2, 4, 4), "cache": (2, 32, 28, 28), "ram": (16, 64, 56, 56)}
    product = True
    tolerance = 1e-3

    def arguments(n, c, h, w):
        return (normal(n, c, h, w), normal(c, c, 3, 3, seed=1) / np.float32((9 * c) ** 0.5), normal(c, seed=2),
                uniform(c, low=0.5, high=2, seed=3), normal(c, seed=4), normal(c, seed=5))

    @classmethod
    def flops(cls, arguments):
        return 2 * arguments[0].size * arguments[1][0].size

    def torch(x, weight, mean, variance, scale, shift):
        return torch.relu(F.batch_norm(F.conv2d(x, weight, padding=1), mean, variance, scale, shift, False, 0.1, 1e-5))

    def jax(x, weight, mean, variance, scale, shift):
        jax, jnp = jax_modules()
        y = jax.lax.conv(x, weight, (1, 1), "SAME")
        wide = (slice(None), None, None)
        return jnp.maximum((y - mean[wide]) / jnp.sqrt(variance[wide] + 1e-5) * scale[wide] + shift[wide], 0)
