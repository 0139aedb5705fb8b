"""Array operations in loops: each pass is a few operations of NumPy on arrays or slices, and needs what the pass before left."""
import numpy as np

from .registry import program


def draws(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def definite(side, least=None):
    """A symmetric matrix all of whose eigenvalues are positive; the smaller the least one, the worse its condition."""
    a = draws(side, side)
    return a @ a.T + (least or side) * np.eye(side)


@program(sample=lambda size: (draws(size[0], size[0]), 0.1, size[1]), sizes=dict(tiny=(6, 4), standard=(64, 200), large=(500, 200)))
def heat(u, rate, steps):
    for _ in range(steps):
        u[1:-1, 1:-1] += rate * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


@program(sample=lambda size: (draws(size[0]), draws(size[0]), 0.25, size[1]), sizes=dict(tiny=(8, 4), standard=(1000, 1000), large=(100_000, 300)))
def wave(before, now, courant, steps):
    for _ in range(steps):
        after = np.zeros_like(now)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + courant * (now[2:] - 2 * now[1:-1] + now[:-2])
        before, now = now, after
    return now


@program(sample=lambda size: (draws(size[0], size[0], seed=1), *np.zeros((2, size[0], size[0])), size[1]),
         sizes=dict(tiny=(6, 4), standard=(60, 200), large=(500, 100)), bounded=True)
def fdtd(ez, hx, hy, steps):
    for t in range(steps):
        hx[:, :-1] -= 0.5 * (ez[:, 1:] - ez[:, :-1])
        hy[:-1, :] += 0.5 * (ez[1:, :] - ez[:-1, :])
        ez[1:-1, 1:-1] += 0.5 * (hy[1:-1, 1:-1] - hy[:-2, 1:-1] - hx[1:-1, 1:-1] + hx[1:-1, :-2])
        ez[ez.shape[0] // 2, ez.shape[1] // 2] += np.sin(0.1 * t)
    return ez, hx, hy


@program(sample=lambda size: (1 + 0.1 * draws(size[0], size[0]), *np.zeros((2, size[0], size[0])), 0.01, size[1]),
         sizes=dict(tiny=(6, 3), standard=(48, 100), large=(400, 60)))
def shallow_water(h, u, v, dt, steps):
    for _ in range(steps):
        u = u - dt * 9.81 * (np.roll(h, -1, axis=0) - np.roll(h, 1, axis=0)) / 2
        v = v - dt * 9.81 * (np.roll(h, -1, axis=1) - np.roll(h, 1, axis=1)) / 2
        flow_x, flow_y = h * u, h * v
        h = h - dt * (np.roll(flow_x, -1, axis=0) - np.roll(flow_x, 1, axis=0) + np.roll(flow_y, -1, axis=1) - np.roll(flow_y, 1, axis=1)) / 2
    return h, u, v


@program(sample=lambda size: (draws(size, size), 1e-4, 300), sizes=dict(tiny=6, standard=50, large=400))
def jacobi(u, tolerance, most):
    """Until the largest change is small."""
    steps = 0
    change = 1.0
    while change > tolerance and steps < most:
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        change = np.abs(new - u).max()
        u = new
        steps += 1
    return u, steps


@program(sample=lambda size: (np.zeros(size[0]), draws(size[0]), size[1]), sizes=dict(tiny=(17, 2), standard=(1025, 60), large=(65537, 40)))
def multigrid(u, f, cycles):
    """Cycles of two grids in one dimension: damped Jacobi, the residual on the coarse grid, its correction, damped Jacobi."""
    for _ in range(cycles):
        for _ in range(3):
            u[1:-1] = u[1:-1] / 3 + (u[2:] + u[:-2] + f[1:-1]) / 3
        residual = np.zeros_like(u)
        residual[1:-1] = f[1:-1] + u[2:] - 2 * u[1:-1] + u[:-2]
        coarse = residual[::2].copy()
        coarse[1:-1] = residual[2:-2:2] + 0.5 * (residual[1:-3:2] + residual[3:-1:2])
        correction = np.zeros_like(coarse)
        for _ in range(6):
            correction[1:-1] = correction[1:-1] / 3 + (correction[2:] + correction[:-2] + 2 * coarse[1:-1]) / 3
        u[::2] += correction
        u[1::2] += 0.5 * (correction[1:] + correction[:-1])
        for _ in range(3):
            u[1:-1] = u[1:-1] / 3 + (u[2:] + u[:-2] + f[1:-1]) / 3
    return u


@program(sample=lambda size: (1 + 0.01 * draws(9, size[0], size[0]), 0.6, size[1]), sizes=dict(tiny=(5, 2), standard=(32, 30), large=(200, 30)),
         bounded=True)
def lattice_boltzmann(f, relaxation, steps):
    """D2Q9: each of nine densities moves one cell, then all relax."""
    moves = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    weights = np.array([4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36])
    for _ in range(steps):
        for k in range(9):
            f[k] = np.roll(np.roll(f[k], moves[k, 0], axis=0), moves[k, 1], axis=1)
        density = f.sum(axis=0)
        ux = (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]) / density
        uy = (f[2] - f[4] + f[5] + f[6] - f[7] - f[8]) / density
        speed = 1.5 * (ux * ux + uy * uy)
        for k in range(9):
            along = 3 * (moves[k, 0] * ux + moves[k, 1] * uy)
            f[k] += (weights[k] * density * (1 + along + 0.5 * along * along - speed) - f[k]) / relaxation
    return f


@program(sample=lambda size: (draws(size[0], 3), np.zeros((size[0], 3)), draws(size[0], seed=1), 0.01, size[1]),
         sizes=dict(tiny=(4, 3), standard=(50, 60), large=(400, 20)), bounded=True)
def n_body(position, velocity, mass, dt, steps):
    for _ in range(steps):
        apart = position[None, :, :] - position[:, None, :]
        squared = (apart ** 2).sum(axis=2) + 0.01
        pull = mass / (squared * np.sqrt(squared))
        velocity += dt * (apart * pull[:, :, None]).sum(axis=1)
        position += dt * velocity
    return position, velocity


@program(sample=lambda size: (draws(size, 2), 5, 20), sizes=dict(tiny=20, standard=2000, large=100_000), bounded=True)
def k_means(points, count, steps):
    centres = points[:count].copy()
    for _ in range(steps):
        squared = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        nearest = squared.argmin(axis=1)
        for k in range(count):
            members = points[nearest == k]
            if len(members) > 0:
                centres[k] = members.mean(axis=0)
    return centres, nearest


@program(sample=lambda size: (definite(size), np.ones(size), 200), sizes=dict(tiny=5, standard=150, large=1000), bounded=True)
def power_iteration(a, x, steps):
    value = 0.0
    for _ in range(steps):
        y = a @ x
        value = np.sqrt((y * y).sum())
        x = y / value
    return value, x


@program(sample=lambda size: (definite(size, 1), draws(size), 1e-8), sizes=dict(tiny=5, standard=150, large=1000), bounded=True)
def conjugate_gradient(a, b, tolerance):
    x = np.zeros_like(b)
    r = b.copy()
    p = r.copy()
    squared = r @ r
    for _ in range(10 * len(b)):
        ap = a @ p
        alpha = squared / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        if np.sqrt(new) < tolerance:
            break
        p = r + new / squared * p
        squared = new
    return x


@program(sample=lambda size: (draws(size[0], size[0]), draws(size[1], size[1], seed=1)), sizes=dict(tiny=(8, 3), standard=(128, 9), large=(1000, 9)))
def convolution(image, kernel):
    rows, columns = image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1
    out = np.zeros((rows, columns))
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            out += kernel[i, j] * image[i:i + rows, j:j + columns]
    return out


@program(sample=lambda size: (draws(size) + 1j * draws(size, seed=1),), sizes=dict(tiny=8, standard=32_768, large=524_288), bounded=True)
def fft_by_stages(x):
    """Stages of butterflies on whole columns; the length is a power of two."""
    n = len(x)
    table = x.reshape(1, n)
    while table.shape[0] < n:
        done, half = table.shape[0], table.shape[1] // 2
        turns = np.exp(-1j * np.pi * np.arange(done) / done)
        even, odd = table[:, :half], turns[:, None] * table[:, half:]
        table = np.concatenate((even + odd, even - odd))
    return table.ravel()


@program(sample=lambda size: (draws(size[0], size[0]), 0.2, size[1]), sizes=dict(tiny=(5, 2), standard=(60, 10), large=(400, 10)))
def adi(u, r, steps):
    """Alternating directions: rows, then columns, each a system with three diagonals, all lines at once."""
    n = u.shape[0]
    for _ in range(steps):
        for direction in range(2):
            above = np.zeros(n)
            right = np.zeros_like(u)
            above[0] = -r / (1 + 2 * r)
            right[0] = u[0] / (1 + 2 * r)
            for i in range(1, n):
                pivot = 1 + 2 * r + r * above[i - 1]
                above[i] = -r / pivot
                right[i] = (u[i] + r * right[i - 1]) / pivot
            solved = np.zeros_like(u)
            solved[n - 1] = right[n - 1]
            for i in range(n - 2, -1, -1):
                solved[i] = right[i] - above[i] * solved[i + 1]
            u = solved.T.copy()
    return u


@program(sample=lambda size: (draws(size), 50), sizes=dict(tiny=120, standard=20_000, large=1_000_000), bounded=True)
def block_statistics(series, length):
    """Mean, deviation and slope of each block of a time series."""
    count = len(series) // length
    found = np.zeros((count, 3))
    time = np.arange(length) - (length - 1) / 2
    for k in range(count):
        block = series[k * length:(k + 1) * length]
        mean = block.mean()
        found[k, 0] = mean
        found[k, 1] = np.sqrt(((block - mean) ** 2).mean())
        found[k, 2] = (time * block).sum() / (time * time).sum()
    return found


@program(sample=lambda size: (draws(size[0], size[1]),), sizes=dict(tiny=(6, 4), standard=(200, 150), large=(1000, 300)), bounded=True)
def correlation_by_columns(data):
    data -= data.mean(axis=0)
    data /= np.sqrt((data * data).sum(axis=0))
    columns = data.shape[1]
    c = np.eye(columns)
    for i in range(columns - 1):
        c[i + 1:, i] = c[i, i + 1:] = data[:, i] @ data[:, i + 1:]
    return c


@program(sample=lambda size: (definite(size),), sizes=dict(tiny=5, standard=100, large=500))
def cholesky_by_columns(a):
    n = len(a)
    for k in range(n):
        a[k, k] = np.sqrt(a[k, k])
        a[k + 1:, k] /= a[k, k]
        for j in range(k + 1, n):
            a[j:, j] -= a[j:, k] * a[j, k]
    return a


@program(sample=lambda size: (definite(size), draws(size)), sizes=dict(tiny=5, standard=100, large=400), bounded=True)
def gaussian_elimination(a, b):
    n = len(b)
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            a[i, k:] -= factor * a[k, k:]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - (a[i, i + 1:] * x[i + 1:]).sum()) / a[i, i]
    return x


@program(sample=lambda size: (draws(size[0], size[1]), (draws(size[0], seed=1) > 0.5).astype(np.float64), 0.5, 100),
         sizes=dict(tiny=(10, 3), standard=(500, 8), large=(20_000, 20)), bounded=True)
def logistic_regression(features, labels, rate, steps):
    weights = np.zeros(features.shape[1])
    for _ in range(steps):
        predicted = 1 / (1 + np.exp(-(features @ weights)))
        weights -= rate * (features.T @ (predicted - labels)) / len(labels)
    return weights


@program(sample=lambda size: (100.0, 95.0, 0.02, 0.2, size), sizes=dict(tiny=6, standard=800, large=5000))
def option_tree(price, strike, interest, volatility, steps):
    """An American put by a binomial tree, from its last day backwards."""
    dt = 1 / steps
    up = np.exp(volatility * np.sqrt(dt))
    down = 1 / up
    chance = (np.exp(interest * dt) - down) / (up - down)
    discount = np.exp(-interest * dt)
    prices = price * up ** np.arange(steps, -steps - 1, -2.0)
    value = np.maximum(strike - prices, 0)
    for step in range(steps - 1, -1, -1):
        value = discount * (chance * value[:-1] + (1 - chance) * value[1:])
        prices = prices[:-1] * down
        value = np.maximum(value, strike - prices)
    return value[0]


@program(sample=lambda size: (np.random.default_rng(0).integers(0, 2, (size[0], size[0]), dtype=np.uint8), size[1]),
         sizes=dict(tiny=(6, 3), standard=(100, 100), large=(1000, 30)))
def life(cells, generations):
    for _ in range(generations):
        alive = (cells[:-2, :-2] + cells[:-2, 1:-1] + cells[:-2, 2:] + cells[1:-1, :-2] + cells[1:-1, 2:]
                 + cells[2:, :-2] + cells[2:, 1:-1] + cells[2:, 2:])
        cells[1:-1, 1:-1] = (alive == 3) | ((alive == 2) & (cells[1:-1, 1:-1] == 1))
    return cells


@program(sample=lambda size: (draws(size, size) * 100,), sizes=dict(tiny=6, standard=100, large=600))
def shortest_paths_by_rows(distance):
    for k in range(len(distance)):
        distance = np.minimum(distance, distance[:, k:k + 1] + distance[k:k + 1, :])
    return distance


@program(sample=lambda size: (draws(size[0]) * 1e-3, draws(size[0], seed=1).astype(np.float32), size[1]),
         sizes=dict(tiny=(8, 3), standard=(2000, 300), large=(200_000, 100)), tolerance=1e-4)
def adam(weights, target, steps):
    """Descent to a target in float32 by gradients whose mean and square are kept."""
    weights = weights.astype(np.float32)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, steps + 1):
        gradient = weights - target
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient * gradient
        weights = weights - 0.01 * (mean / (1 - 0.9 ** step)) / (np.sqrt(square / (1 - 0.999 ** step)) + 1e-8)
    return weights
