"""Chains of operations on each element."""
import math

from libraries import F, normal, np, numexpr, prange, torch, uniform
from workloads import Workload


class ChainOps(Workload):
    name = "chain_ops"
    sizes = {"tiny": (8, 8), "cache": (512, 512), "ram": (4096, 4096), "2048": (2048, 2048)}

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        y = np.maximum((x + 1) * 2, 0) - 0.5
        return 1 / (1 + np.exp(-y))

    def torch(x):
        return (((x + 1) * 2).relu() - 0.5).sigmoid()

    def numba(x):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            for j in range(x.shape[1]):
                y = max((x[i, j] + np.float32(1)) * np.float32(2), np.float32(0)) - np.float32(0.5)
                out[i, j] = np.float32(1) / (np.float32(1) + np.exp(-y))
        return out

    def numexpr(x):
        return numexpr.evaluate("1 / (1 + exp(-(where((x + 1) * 2 > 0, (x + 1) * 2, 0) - 0.5)))", local_dict={"x": x})


class BlackScholes(Workload):
    name = "black_scholes"
    sizes = {"tiny": (64,), "cache": (1 << 17,), "ram": (1 << 22,)}
    tolerance = 1e-3

    def arguments(n):
        return uniform(n, low=10, high=50), uniform(n, low=10, high=50, seed=1), uniform(n, low=0.5, high=2, seed=2)

    def numpy(spot, strike, time):
        # NumPy has no erf: the normal distribution by the tanh form that financial code in plain NumPy uses.
        spread = 0.3 * np.sqrt(time)
        d1 = (np.log(spot / strike) + (0.02 + 0.5 * 0.3 * 0.3) * time) / spread
        d2 = d1 - spread
        n1 = 0.5 * (1 + np.tanh(0.7978845608 * d1 * (1 + 0.044715 * d1 * d1)))
        n2 = 0.5 * (1 + np.tanh(0.7978845608 * d2 * (1 + 0.044715 * d2 * d2)))
        discounted = strike * np.exp(-0.02 * time)
        call = spot * n1 - discounted * n2
        return call, call - spot + discounted

    def torch(spot, strike, time):
        spread = 0.3 * torch.sqrt(time)
        d1 = (torch.log(spot / strike) + (0.02 + 0.5 * 0.3 * 0.3) * time) / spread
        d2 = d1 - spread
        n1 = 0.5 + 0.5 * torch.erf(d1 * 0.7071067811865476)
        n2 = 0.5 + 0.5 * torch.erf(d2 * 0.7071067811865476)
        discounted = strike * torch.exp(-0.02 * time)
        call = spot * n1 - discounted * n2
        return call, call - spot + discounted

    def numba(spot, strike, time):
        call, put = np.empty_like(spot), np.empty_like(spot)
        for i in prange(spot.shape[0]):
            spread = np.float32(0.3) * math.sqrt(time[i])
            d1 = (math.log(spot[i] / strike[i]) + np.float32(0.02 + 0.5 * 0.3 * 0.3) * time[i]) / spread
            d2 = d1 - spread
            n1 = np.float32(0.5) * (np.float32(1) + math.tanh(np.float32(0.7978845608) * d1 * (np.float32(1) + np.float32(0.044715) * d1 * d1)))
            n2 = np.float32(0.5) * (np.float32(1) + math.tanh(np.float32(0.7978845608) * d2 * (np.float32(1) + np.float32(0.044715) * d2 * d2)))
            discounted = strike[i] * math.exp(np.float32(-0.02) * time[i])
            call[i] = spot[i] * n1 - discounted * n2
            put[i] = call[i] - spot[i] + discounted
        return call, put


class NormReluResidual(Workload):
    name = "bn_relu_residual"
    sizes = {"tiny": (1, 4, 4, 4), "cache": (4, 64, 32, 32), "ram": (64, 64, 64, 64)}

    def arguments(n, c, h, w):
        return (normal(n, c, h, w), normal(n, c, h, w, seed=1), normal(c, seed=2), uniform(c, low=0.5, high=2, seed=3),
                normal(c, seed=4), normal(c, seed=5))

    def numpy(x, residual, mean, variance, weight, bias):
        y = (x - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5) * weight[:, None, None] + bias[:, None, None]
        return np.maximum(y + residual, 0)

    def torch(x, residual, mean, variance, weight, bias):
        return torch.relu(F.batch_norm(x, mean, variance, weight, bias, False, 0.1, 1e-5) + residual)

    def numba(x, residual, mean, variance, weight, bias):
        out = np.empty_like(x)
        for row in prange(x.shape[0] * x.shape[1]):
            n, c = row // x.shape[1], row % x.shape[1]
            scale = weight[c] / np.sqrt(variance[c] + np.float32(1e-5))
            for h in range(x.shape[2]):
                for w in range(x.shape[3]):
                    out[n, c, h, w] = max((x[n, c, h, w] - mean[c]) * scale + bias[c] + residual[n, c, h, w], np.float32(0))
        return out


class Masks(Workload):
    name = "masks"
    sizes = {"tiny": (64,), "cache": (1 << 18,), "ram": (1 << 24,)}

    def arguments(n):
        return normal(n), normal(n, seed=1), np.random.default_rng(2).random(n) < 0.5

    def numpy(x, y, mask):
        inside = mask & (x > -1) & (y < 1)
        return np.where(inside, x * y, np.where(x > y, x, -y))

    def torch(x, y, mask):
        inside = mask & (x > -1) & (y < 1)
        return torch.where(inside, x * y, torch.where(x > y, x, -y))

    def numba(x, y, mask):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            if mask[i] and x[i] > -1 and y[i] < 1:
                out[i] = x[i] * y[i]
            else:
                out[i] = x[i] if x[i] > y[i] else -y[i]
        return out

    def numexpr(x, y, mask):
        return numexpr.evaluate("where(mask & (x > -1) & (y < 1), x * y, where(x > y, x, -y))", local_dict={"x": x, "y": y, "mask": mask})


class Gelu(Workload):
    name = "gelu"
    sizes = {"tiny": (64,), "cache": (1 << 18,), "ram": (1 << 24,)}

    def arguments(n):
        return (normal(n),)

    def numpy(x):
        return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def torch(x):
        return F.gelu(x, approximate="tanh")

    def numba(x):
        out = np.empty_like(x)
        for i in prange(x.shape[0]):
            v = x[i]
            out[i] = np.float32(0.5) * v * (np.float32(1) + np.tanh(np.float32(0.7978845608) * (v + np.float32(0.044715) * v * v * v)))
        return out
