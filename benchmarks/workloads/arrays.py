"""Programs whose difficulty is where the elements are: transposes, pieces, neighbours."""
from libraries import normal, np, numexpr, prange, torch
from workloads import Workload

SQUARE = {"tiny": (8, 8), "cache": (512, 512), "ram": (4096, 4096)}


class TransposeAdd(Workload):
    name = "transpose_add"
    sizes = SQUARE

    def arguments(*shape):
        return normal(*shape), normal(*shape, seed=1)

    def numpy(x, y):
        return x + y.T * 2

    def torch(x, y):
        return x + y.t() * 2

    def numba(x, y):
        out = np.empty_like(x)
        block = 32
        for b in prange((x.shape[0] + block - 1) // block):
            for j0 in range(0, x.shape[1], block):
                for i in range(b * block, min((b + 1) * block, x.shape[0])):
                    for j in range(j0, min(j0 + block, x.shape[1])):
                        out[i, j] = x[i, j] + y[j, i] * np.float32(2)
        return out

    def numexpr(x, y):
        return numexpr.evaluate("x + t * 2", local_dict={"x": x, "t": y.T})


class ConcatPointwise(Workload):
    name = "concat_pointwise"
    sizes = {"tiny": (24, 40), "cache": (100000, 162144), "ram": (6000000, 10777216)}

    def arguments(n, m):
        return normal(n), normal(m, seed=1)

    def numpy(x, y):
        return np.maximum(np.concatenate((x, y)) * 2 + 1, 0)

    def torch(x, y):
        return torch.relu(torch.cat((x, y)) * 2 + 1)

    def numba(x, y):
        out = np.empty(x.shape[0] + y.shape[0], x.dtype)
        for i in prange(x.shape[0]):
            out[i] = max(x[i] * np.float32(2) + np.float32(1), np.float32(0))
        for i in prange(y.shape[0]):
            out[x.shape[0] + i] = max(y[i] * np.float32(2) + np.float32(1), np.float32(0))
        return out


class Jacobi(Workload):
    name = "jacobi"
    sizes = SQUARE

    def arguments(*shape):
        return (normal(*shape),)

    def numpy(x):
        y = x.copy()
        y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
        return y

    def torch(x):
        y = x.clone()
        y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
        return y

    def jax(x):
        return x.at[1:-1, 1:-1].set(0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]))

    def numba(x):
        y = x.copy()
        for i in prange(1, x.shape[0] - 1):
            for j in range(1, x.shape[1] - 1):
                y[i, j] = np.float32(0.25) * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
        return y

    def numexpr(x):
        y = x.copy()
        numexpr.evaluate("0.25 * (a + b + c + d)", out=y[1:-1, 1:-1], casting="unsafe",
                         local_dict={"a": x[:-2, 1:-1], "b": x[2:, 1:-1], "c": x[1:-1, :-2], "d": x[1:-1, 2:]})
        return y


class NBody(Workload):
    name = "n_body"
    sizes = {"tiny": (8,), "cache": (512,), "ram": (4096,)}
    tolerance = 1e-3

    def arguments(n):
        return normal(n, 3), normal(n, 3, seed=1), np.ones(n, np.float32)

    def numpy(position, velocity, mass):
        apart = position[None, :, :] - position[:, None, :]
        squared = (apart * apart).sum(axis=-1) + 0.01
        force = apart * (mass[None, :] / (squared * np.sqrt(squared)))[:, :, None]
        velocity = velocity + 0.01 * force.sum(axis=1)
        return position + 0.01 * velocity, velocity

    def torch(position, velocity, mass):
        apart = position[None, :, :] - position[:, None, :]
        squared = (apart * apart).sum(-1) + 0.01
        force = apart * (mass[None, :] / (squared * torch.sqrt(squared)))[:, :, None]
        velocity = velocity + 0.01 * force.sum(1)
        return position + 0.01 * velocity, velocity

    def numba(position, velocity, mass):
        moved, speed = np.empty_like(position), np.empty_like(velocity)
        for i in prange(position.shape[0]):
            fx, fy, fz = np.float32(0), np.float32(0), np.float32(0)
            for j in range(position.shape[0]):
                x, y, z = position[j, 0] - position[i, 0], position[j, 1] - position[i, 1], position[j, 2] - position[i, 2]
                squared = x * x + y * y + z * z + np.float32(0.01)
                factor = mass[j] / (squared * np.sqrt(squared))
                fx += x * factor
                fy += y * factor
                fz += z * factor
            speed[i, 0] = velocity[i, 0] + np.float32(0.01) * fx
            speed[i, 1] = velocity[i, 1] + np.float32(0.01) * fy
            speed[i, 2] = velocity[i, 2] + np.float32(0.01) * fz
            for k in range(3):
                moved[i, k] = position[i, k] + np.float32(0.01) * speed[i, k]
        return moved, speed


class Mandelbrot(Workload):
    name = "mandelbrot"
    sizes = {"tiny": (8, 8), "cache": (256, 256), "ram": (1024, 1024)}
    tolerance = 0.02       # counts near the border differ where a system contracts to fused multiply-adds

    def arguments(n, m):
        x, y = np.meshgrid(np.linspace(-2, 0.5, m, dtype=np.float32), np.linspace(-1.25, 1.25, n, dtype=np.float32))
        return np.ascontiguousarray(x), np.ascontiguousarray(y)

    def numpy(cx, cy):
        x, y, count = np.zeros_like(cx), np.zeros_like(cx), np.zeros_like(cx)
        for _ in range(20):
            inside = x * x + y * y < 4
            x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, 2 * x * y + cy, y)
            count = count + inside
        return count

    def torch(cx, cy):
        x, y, count = torch.zeros_like(cx), torch.zeros_like(cx), torch.zeros_like(cx)
        for _ in range(20):
            inside = x * x + y * y < 4
            x, y = torch.where(inside, x * x - y * y + cx, x), torch.where(inside, 2 * x * y + cy, y)
            count = count + inside
        return count

    def numba(cx, cy):
        out = np.empty_like(cx)
        for i in prange(cx.shape[0]):
            for j in range(cx.shape[1]):
                x, y, count = np.float32(0), np.float32(0), 0
                while count < 20 and x * x + y * y < 4:
                    x, y = x * x - y * y + cx[i, j], np.float32(2) * x * y + cy[i, j]
                    count += 1
                out[i, j] = count
        return out
