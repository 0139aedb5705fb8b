"""The nearest form that Numba takes of the programs whose own source it refuses, and why it does."""
import types

import numba
import numpy as np

from . import arrays, elements
from .registry import form


@numba.njit
def rolled(a, rows, columns):
    """np.roll of both axes, which Numba does not have for one axis."""
    height, width = a.shape
    out = np.empty_like(a)
    for i in range(height):
        for j in range(width):
            out[(i + rows) % height, (j + columns) % width] = a[i, j]
    return out


@form("numba", arrays.shallow_water)
def shallow_water(h, u, v, dt, steps):
    for _ in range(steps):
        u = u - dt * 9.81 * (rolled(h, -1, 0) - rolled(h, 1, 0)) / 2
        v = v - dt * 9.81 * (rolled(h, 0, -1) - rolled(h, 0, 1)) / 2
        flow_x, flow_y = h * u, h * v
        h = h - dt * (rolled(flow_x, -1, 0) - rolled(flow_x, 1, 0) + rolled(flow_y, 0, -1) - rolled(flow_y, 0, 1)) / 2
    return h, u, v


@form("numba", arrays.lattice_boltzmann)
def lattice_boltzmann(f, relaxation, steps):
    moves = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    weights = np.array([4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36])
    for _ in range(steps):
        for k in range(9):
            f[k] = rolled(f[k], moves[k, 0], moves[k, 1])
        density = f.sum(axis=0)
        ux = (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]) / density
        uy = (f[2] - f[4] + f[5] + f[6] - f[7] - f[8]) / density
        speed = 1.5 * (ux * ux + uy * uy)
        for k in range(9):
            along = 3 * (moves[k, 0] * ux + moves[k, 1] * uy)
            f[k] += (weights[k] * density * (1 + along + 0.5 * along * along - speed) - f[k]) / relaxation
    return f


@form("numba", arrays.k_means)
def k_means(points, count, steps):
    """Means are sums over lengths: Numba's mean takes no axis. Its argmin takes none of two axes, so each row has a call."""
    centres = points[:count].copy()
    nearest = np.empty(len(points), dtype=np.int64)
    for _ in range(steps):
        for i in range(len(points)):
            nearest[i] = ((points[i] - centres) ** 2).sum(axis=1).argmin()
        for k in range(count):
            members = points[nearest == k]
            if len(members) > 0:
                centres[k] = members.sum(axis=0) / len(members)
    return centres, nearest


@form("numba", arrays.correlation_by_columns)
def correlation_by_columns(data):
    data -= data.sum(axis=0) / data.shape[0]
    data /= np.sqrt((data * data).sum(axis=0))
    columns = data.shape[1]
    c = np.eye(columns)
    for i in range(columns - 1):
        dots = data[:, i] @ data[:, i + 1:]
        c[i + 1:, i] = dots
        c[i, i + 1:] = dots
    return c


@form("numba", arrays.adam)
def adam(weights, target, steps):
    """Every constant is a float32: Numba makes a float64 array of a float32 array and a Python float."""
    weights = weights.astype(np.float32)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, steps + 1):
        gradient = weights - target
        mean = np.float32(0.9) * mean + np.float32(0.1) * gradient
        square = np.float32(0.999) * square + np.float32(0.001) * gradient * gradient
        mean_scale, square_scale = np.float32(1 - 0.9 ** step), np.float32(1 - 0.999 ** step)
        weights = weights - np.float32(0.01) * (mean / mean_scale) / (np.sqrt(square / square_scale) + np.float32(1e-8))
    return weights


# The same text, with the function that it calls compiled by Numba too.
form("numba", elements.simpson)(types.FunctionType(
    elements.simpson.__code__, dict(vars(elements), height=numba.njit(elements.height)), "simpson"))
