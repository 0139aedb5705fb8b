"""Reductions and scans, alone and with the work around them."""
from libraries import F, jax_modules, normal, np, prange, torch
from workloads import Workload

MATRIX = {"tiny": (8, 8), "cache": (256, 1024), "ram": (16384, 1024)}


class Softmax(Workload):
    name = "softmax"
    sizes = MATRIX

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def torch(x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    def numba(x):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            largest, total = x[i].max(), np.float32(0)
            for j in range(x.shape[1]):
                out[i, j] = np.exp(x[i, j] - largest)
                total += out[i, j]
            for j in range(x.shape[1]):
                out[i, j] /= total
        return out


class SoftmaxLibrary(Softmax):
    """The library's one call: fusion gains nothing, so this is the eager library's own kernel against ours."""
    name = "softmax_call"
    numpy = None
    numba = None

    def torch(x):
        return torch.softmax(x, -1)


class LayerNorm(Workload):
    name = "layer_norm"
    sizes = MATRIX

    def arguments(n, m):
        return normal(n, m), normal(m, seed=1), normal(m, seed=2)

    def numpy(x, weight, bias):
        mean = x.mean(axis=-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias

    def torch(x, weight, bias):
        return F.layer_norm(x, (x.shape[-1],), weight, bias)

    def numba(x, weight, bias):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            mean, variance = np.float32(0), np.float32(0)
            for j in range(x.shape[1]):
                mean += x[i, j]
            mean /= np.float32(x.shape[1])
            for j in range(x.shape[1]):
                variance += (x[i, j] - mean) * (x[i, j] - mean)
            scale = np.float32(1) / np.sqrt(variance / np.float32(x.shape[1]) + np.float32(1e-5))
            for j in range(x.shape[1]):
                out[i, j] = (x[i, j] - mean) * scale * weight[j] + bias[j]
        return out


class RmsNormRope(Workload):
    name = "rms_norm_rope"
    sizes = {"tiny": (1, 2, 32), "cache": (64, 32, 128), "ram": (2048, 64, 128)}

    def arguments(n, heads, size):
        angle = np.arange(n)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
        return normal(n, heads, size), normal(size, seed=1), np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def numpy(x, weight, cos, sin):
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * weight
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        c, s = cos[:, None], sin[:, None]
        return np.concatenate((a * c - b * s, b * c + a * s), axis=-1)

    def torch(x, weight, cos, sin):
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        c, s = cos[:, None], sin[:, None]
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    def numba(x, weight, cos, sin):
        out = np.empty_like(x)
        half = x.shape[2] // 2
        for i in prange(x.shape[0]):
            for h in range(x.shape[1]):
                total = np.float32(0)
                for j in range(x.shape[2]):
                    total += x[i, h, j] * x[i, h, j]
                scale = np.float32(1) / np.sqrt(total / np.float32(x.shape[2]) + np.float32(1e-6))
                for j in range(half):
                    a, b = x[i, h, j] * scale * weight[j], x[i, h, half + j] * scale * weight[half + j]
                    out[i, h, j] = a * cos[i, j] - b * sin[i, j]
                    out[i, h, half + j] = b * cos[i, j] + a * sin[i, j]
        return out


class CrossEntropy(Workload):
    name = "cross_entropy"
    sizes = MATRIX

    def arguments(n, classes):
        return normal(n, classes), np.random.default_rng(1).integers(0, classes, n)

    def numpy(logits, target):
        largest = logits.max(axis=-1)
        total = np.log(np.exp(logits - largest[:, None]).sum(axis=-1)) + largest
        return (total - logits[np.arange(logits.shape[0]), target]).mean()

    def torch(logits, target):
        return F.cross_entropy(logits, target)

    def jax(logits, target):
        jax, jnp = jax_modules()
        return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), target[:, None], 1).mean()

    def numba(logits, target):
        losses = np.empty(logits.shape[0], logits.dtype)
        for i in prange(logits.shape[0]):
            largest, total = logits[i].max(), np.float32(0)
            for j in range(logits.shape[1]):
                total += np.exp(logits[i, j] - largest)
            losses[i] = np.log(total) + largest - logits[i, target[i]]
        return losses.mean()


class MeanVar(Workload):
    name = "mean_var"
    sizes = MATRIX

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        return x.mean(axis=1), x.var(axis=1)

    def torch(x):
        return x.mean(1), x.var(1, unbiased=False)

    def numba(x):
        means, variances = np.empty(x.shape[0], x.dtype), np.empty(x.shape[0], x.dtype)
        for i in prange(x.shape[0]):
            mean, variance = np.float32(0), np.float32(0)
            for j in range(x.shape[1]):
                mean += x[i, j]
            mean /= np.float32(x.shape[1])
            for j in range(x.shape[1]):
                variance += (x[i, j] - mean) * (x[i, j] - mean)
            means[i], variances[i] = mean, variance / np.float32(x.shape[1])
        return means, variances


class ColumnSums(Workload):
    name = "column_sums"
    sizes = MATRIX

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        return (x * x).sum(axis=0)

    def torch(x):
        return (x * x).sum(0)


class FullSum(Workload):
    name = "full_sum"
    sizes = MATRIX

    def arguments(*shape):
        return normal(*shape), normal(*shape, seed=1)

    def numpy(x, y):
        return ((x - y) ** 2).mean()

    def torch(x, y):
        return ((x - y) ** 2).mean()

    def numba(x, y):
        total = np.float32(0)
        for i in prange(x.shape[0]):
            row = np.float32(0)
            for j in range(x.shape[1]):
                row += (x[i, j] - y[i, j]) * (x[i, j] - y[i, j])
            total += row
        return total / np.float32(x.size)


class Argmax(Workload):
    name = "argmax"
    sizes = MATRIX

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        return np.argmax(x, axis=1)

    def torch(x):
        return torch.argmax(x, 1)

    def numba(x):
        out = np.empty(x.shape[0], np.int64)
        for i in prange(x.shape[0]):
            best = 0
            for j in range(1, x.shape[1]):
                if x[i, j] > x[i, best]:
                    best = j
            out[i] = best
        return out


class Cumsum(Workload):
    name = "cumsum"
    sizes = MATRIX

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        return np.cumsum(x * 0.5, axis=1) + 1

    def torch(x):
        return torch.cumsum(x * 0.5, 1) + 1

    def numba(x):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            total = np.float32(0)
            for j in range(x.shape[1]):
                total += x[i, j] * np.float32(0.5)
                out[i, j] = total + np.float32(1)
        return out


class Embedding(Workload):
    name = "embedding"
    sizes = {"tiny": (8, 16, 8), "cache": (1000, 1024, 256), "ram": (50000, 32768, 512)}

    def arguments(rows, n, width):
        return normal(rows, width), np.random.default_rng(1).integers(0, rows, n), normal(n, width, seed=2)

    @classmethod
    def traffic(cls, arguments, results):
        return 3 * arguments[2].nbytes + arguments[1].nbytes

    def numpy(table, index, position):
        return table[index] * 2 + position

    def torch(table, index, position):
        return F.embedding(index, table) * 2 + position

    def numba(table, index, position):
        out = np.empty_like(position)
        for i in prange(index.shape[0]):
            for j in range(table.shape[1]):
                out[i, j] = table[index[i], j] * np.float32(2) + position[i, j]
        return out
