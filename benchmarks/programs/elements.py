"""Loops over elements: each pass reads and writes single numbers, and most passes need what the one before left."""
import math

import numpy as np

from .registry import program


def draws(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def letters(count, alphabet, seed=0):
    return np.random.default_rng(seed).integers(0, alphabet, count)


def dominant(side, seed=0):
    """A matrix whose diagonal outweighs its rows, so that no elimination fails."""
    return draws(side, side, seed=seed) + side * np.eye(side)


@program(sample=lambda n: (letters(n, 4), letters(n, 4, seed=1)), sizes=dict(tiny=9, standard=120, large=600))
def edit_distance(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    for i in range(len(a) + 1):
        d[i, 0] = i
    for j in range(len(b) + 1):
        d[0, j] = j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[len(a), len(b)]


@program(sample=lambda n: (letters(n, 4), letters(n, 4, seed=1)), sizes=dict(tiny=9, standard=150, large=800))
def longest_common_subsequence(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                table[i + 1, j + 1] = table[i, j] + 1
            else:
                table[i + 1, j + 1] = max(table[i, j + 1], table[i + 1, j])
    return table


@program(sample=lambda n: (letters(n, 4).astype(np.uint8).tobytes(), letters(n, 4, seed=1).astype(np.uint8).tobytes()),
         sizes=dict(tiny=9, standard=200, large=1000))
def levenshtein_bytes(a, b):
    before = np.arange(len(b) + 1)
    for i in range(len(a)):
        row = np.empty(len(b) + 1, dtype=np.int64)
        row[0] = i + 1
        for j in range(len(b)):
            best = before[j] + (a[i] != b[j])
            if before[j + 1] + 1 < best:
                best = before[j + 1] + 1
            if row[j] + 1 < best:
                best = row[j] + 1
            row[j + 1] = best
        before = row
    return before[-1]


@program(sample=lambda n: (n,), sizes=dict(tiny=30, standard=20_000, large=1_000_000))
def sieve(n):
    prime = np.ones(n + 1, dtype=np.bool_)
    prime[0] = False
    prime[1] = False
    i = 2
    while i * i <= n:
        if prime[i]:
            for j in range(i * i, n + 1, i):
                prime[j] = False
        i += 1
    return prime


@program(sample=lambda n: (n,), sizes=dict(tiny=12, standard=1500, large=30_000))
def collatz_lengths(n):
    lengths = np.zeros(n + 1, dtype=np.int64)
    for start in range(1, n + 1):
        value, steps = start, 0
        while value != 1:
            if value % 2 == 0:
                value = value // 2
            else:
                value = 3 * value + 1
            steps += 1
        lengths[start] = steps
    return lengths


@program(sample=lambda n: (np.sort(draws(n)), draws(n, seed=1)), sizes=dict(tiny=10, standard=3000, large=100_000))
def binary_search(ordered, wanted):
    places = np.empty(len(wanted), dtype=np.int64)
    for k in range(len(wanted)):
        low, high = 0, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] < wanted[k]:
                low = middle + 1
            else:
                high = middle
        places[k] = low
    return places


@program(sample=lambda n: (draws(n),), sizes=dict(tiny=10, standard=250, large=2000))
def insertion_sort(values):
    for i in range(1, len(values)):
        value = values[i]
        j = i - 1
        while j >= 0 and values[j] > value:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = value
    return values


@program(sample=lambda n: (letters(n, 100),), sizes=dict(tiny=10, standard=150, large=1500))
def bubble_sort(values):
    for end in range(len(values) - 1, 0, -1):
        swapped = False
        for j in range(end):
            if values[j] > values[j + 1]:
                values[j], values[j + 1] = values[j + 1], values[j]
                swapped = True
        if not swapped:
            break
    return values


@program(sample=lambda n: (letters(n, 2),), sizes=dict(tiny=12, standard=20_000, large=500_000))
def prefix_function(pattern):
    """The longest proper prefix that is a suffix, for each beginning of a text: the table of Knuth, Morris and Pratt."""
    table = np.zeros(len(pattern), dtype=np.int64)
    k = 0
    for i in range(1, len(pattern)):
        while k > 0 and pattern[i] != pattern[k]:
            k = table[k - 1]
        if pattern[i] == pattern[k]:
            k += 1
        table[i] = k
    return table


@program(sample=lambda n: (letters(n * n, 256).reshape(n, n).astype(np.uint8),), sizes=dict(tiny=5, standard=100, large=600))
def summed_area(image):
    height, width = image.shape
    table = np.zeros((height + 1, width + 1), dtype=np.int64)
    for y in range(height):
        row = 0
        for x in range(width):
            row += int(image[y, x])
            table[y + 1, x + 1] = table[y, x + 1] + row
    return table


def distances(n):
    near = np.random.default_rng(0).integers(1, 100, (n, n)).astype(np.float64)
    near[draws(n, n, seed=1) > 0.3] = np.inf
    np.fill_diagonal(near, 0)
    return near


@program(sample=lambda n: (distances(n),), sizes=dict(tiny=6, standard=45, large=200))
def floyd_warshall(distance):
    n = distance.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                through = distance[i, k] + distance[k, j]
                if through < distance[i, j]:
                    distance[i, j] = through
    return distance


@program(sample=lambda n: (letters(n, 30) + 1, letters(n, 100, seed=1), 10 * n), sizes=dict(tiny=5, standard=60, large=400))
def knapsack(weights, worths, capacity):
    best = np.zeros(capacity + 1, dtype=np.int64)
    for item in range(len(weights)):
        weight, worth = weights[item], worths[item]
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + worth)
    return best[capacity]


@program(sample=lambda n: (letters(n, 50) + 1,), sizes=dict(tiny=5, standard=35, large=150))
def matrix_chain(sides):
    """The least number of multiplications for a product of matrices of sides[i] rows and sides[i + 1] columns."""
    count = len(sides) - 1
    cost = np.zeros((count, count), dtype=np.int64)
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length - 1
            best = -1
            for cut in range(first, last):
                total = cost[first, cut] + cost[cut + 1, last] + sides[first] * sides[cut + 1] * sides[last + 1]
                if best < 0 or total < best:
                    best = total
            cost[first, last] = best
    return cost


@program(sample=lambda n: (letters(n, 256).astype(np.uint8).tobytes(),), sizes=dict(tiny=12, standard=20_000, large=1_000_000))
def crc(data):
    """CRC-32 of bytes by a table made first."""
    table = np.zeros(256, dtype=np.int64)
    for i in range(256):
        entry = i
        for _ in range(8):
            if entry & 1:
                entry = (entry >> 1) ^ 0xEDB88320
            else:
                entry >>= 1
        table[i] = entry
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder = (remainder >> 8) ^ table[(remainder ^ byte) & 0xFF]
    return remainder ^ 0xFFFFFFFF


@program(sample=lambda n: (letters(n, 3),), sizes=dict(tiny=12, standard=20_000, large=500_000))
def run_lengths(values):
    runs = []
    before, count = values[0], 0
    for value in values:
        if value == before:
            count += 1
        else:
            runs.append((before, count))
            before, count = value, 1
    runs.append((before, count))
    return runs


@program(sample=lambda n: (n, letters(n, n), letters(n, n, seed=1)), sizes=dict(tiny=10, standard=6000, large=300_000))
def union_find(count, left, right):
    parent = np.arange(count)
    for k in range(len(left)):
        a, b = left[k], right[k]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            if a < b:
                parent[b] = a
            else:
                parent[a] = b
    return parent


@program(sample=lambda n: (n, 60), sizes=dict(tiny=5, standard=50, large=300))
def escape_times(side, limit):
    times = np.zeros((side, side), dtype=np.int32)
    for row in range(side):
        for column in range(side):
            c = complex(-2.0 + 2.6 * column / side, -1.3 + 2.6 * row / side)
            z = 0j
            for step in range(limit):
                z = z * z + c
                if z.real * z.real + z.imag * z.imag > 4.0:
                    times[row, column] = step + 1
                    break
    return times


@program(sample=lambda n: (draws(n) - 0.5,), sizes=dict(tiny=10, standard=20_000, large=1_000_000))
def biquad(x):
    y = np.zeros_like(x)
    z1 = z2 = 0.0
    for i in range(len(x)):
        out = 0.2929 * x[i] + z1
        z1 = 0.5858 * x[i] + z2
        z2 = 0.2929 * x[i] - 0.1716 * out
        y[i] = out
    return y


@program(sample=lambda n: (np.array([0.1, 0.2, 0.2, 0.1]), np.array([1.0, -0.8, 0.3, -0.1]), draws(n)),
         sizes=dict(tiny=10, standard=5000, large=300_000))
def iir_filter(b, a, x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        total = 0.0
        for k in range(len(b)):
            if i - k >= 0:
                total += b[k] * x[i - k]
        for k in range(1, len(a)):
            if i - k >= 0:
                total -= a[k] * y[i - k]
        y[i] = total / a[0]
    return y


@program(sample=lambda n: (draws(n), 0.3), sizes=dict(tiny=10, standard=20_000, large=1_000_000))
def exponential_smoothing(x, alpha):
    smooth = np.empty_like(x)
    smooth[0] = x[0]
    for i in range(1, len(x)):
        smooth[i] = alpha * x[i] + (1 - alpha) * smooth[i - 1]
    return smooth


@program(sample=lambda n: (draws(n) + np.arange(n) * 1e-4,), sizes=dict(tiny=10, standard=20_000, large=500_000))
def kalman(measured):
    estimates = np.zeros(len(measured))
    state, variance = 0.0, 1.0
    for i, seen in enumerate(measured):
        variance += 1e-3
        gain = variance / (variance + 0.1)
        state += gain * (seen - state)
        variance *= 1 - gain
        estimates[i] = state
    return estimates


@program(sample=lambda n: (draws(n) - 0.5, draws(n, seed=1)), sizes=dict(tiny=10, standard=15_000, large=500_000))
def metropolis(steps, uniforms):
    chain = np.empty(len(steps))
    x, accepted = 0.0, 0
    for i in range(len(steps)):
        proposed = x + 2 * steps[i]
        if uniforms[i] < math.exp(min(0.0, 0.5 * (x * x - proposed * proposed))):
            x = proposed
            accepted += 1
        chain[i] = x
    return chain, accepted


@program(sample=lambda n: (draws(n),), sizes=dict(tiny=10, standard=20_000, large=1_000_000))
def random_walk(uniforms):
    x = np.zeros(len(uniforms) + 1)
    for i in range(len(uniforms)):
        if uniforms[i] > 0.5:
            x[i + 1] = x[i] + 1
        else:
            x[i + 1] = x[i] - 1
    return x


@program(sample=lambda n: (np.arange(0, 4 * n + 1, 4), letters(4 * n, n), draws(4 * n), draws(n, seed=1)),
         sizes=dict(tiny=6, standard=3000, large=200_000))
def csr_product(starts, columns, data, x):
    y = np.zeros(len(starts) - 1)
    for row in range(len(starts) - 1):
        total = 0.0
        for k in range(starts[row], starts[row + 1]):
            total += data[k] * x[columns[k]]
        y[row] = total
    return y


@program(sample=lambda n: (draws(n), 16), sizes=dict(tiny=10, standard=20_000, large=1_000_000))
def histogram(values, bins):
    counts = np.zeros(bins, dtype=np.int64)
    for value in values:
        counts[int(value * bins)] += 1
    return counts


@program(sample=lambda n: (draws(n),), sizes=dict(tiny=10, standard=50_000, large=2_000_000))
def sum_of_squares(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i] * values[i]
    return total


@program(sample=lambda n: (draws(n), 0.5), sizes=dict(tiny=10, standard=50_000, large=2_000_000))
def count_above(values, limit):
    count = 0
    for value in values:
        if value > limit:
            count += 1
    return count


@program(sample=lambda n: (draws(n, n), draws(n, n, seed=1)), sizes=dict(tiny=4, standard=35, large=150))
def matrix_product(a, b):
    c = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


@program(sample=lambda n: (np.tril(dominant(n)), draws(n, seed=1)), sizes=dict(tiny=5, standard=200, large=1500))
def forward_substitution(lower, b):
    x = np.zeros_like(b)
    for i in range(len(b)):
        total = b[i]
        for j in range(i):
            total -= lower[i, j] * x[j]
        x[i] = total / lower[i, i]
    return x


@program(sample=lambda n: (np.triu(dominant(n)), draws(n, seed=1)), sizes=dict(tiny=5, standard=200, large=1500))
def back_substitution(upper, b):
    n = len(b)
    x = np.zeros_like(b)
    for i in range(n - 1, -1, -1):
        total = b[i]
        for j in range(i + 1, n):
            total -= upper[i, j] * x[j]
        x[i] = total / upper[i, i]
    return x


@program(sample=lambda n: (dominant(n) + dominant(n).T,), sizes=dict(tiny=5, standard=50, large=250))
def cholesky(a):
    n = a.shape[0]
    lower = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i == j:
                lower[i, j] = math.sqrt(total)
            else:
                lower[i, j] = total / lower[j, j]
    return lower


@program(sample=lambda n: (draws(n, n),), sizes=dict(tiny=5, standard=45, large=220))
def lu_decomposition(a):
    """In place, with partial pivoting; gives the order of the rows."""
    n = a.shape[0]
    order = np.arange(n)
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[pivot, k]):
                pivot = i
        if pivot != k:
            order[k], order[pivot] = order[pivot], order[k]
            for j in range(n):
                a[k, j], a[pivot, j] = a[pivot, j], a[k, j]
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return order


@program(sample=lambda n: (dominant(n),), sizes=dict(tiny=4, standard=35, large=160))
def gram_schmidt(q):
    rows, columns = q.shape
    for j in range(columns):
        for before in range(j):
            dot = 0.0
            for i in range(rows):
                dot += q[i, before] * q[i, j]
            for i in range(rows):
                q[i, j] -= dot * q[i, before]
        norm = 0.0
        for i in range(rows):
            norm += q[i, j] ** 2
        norm = math.sqrt(norm)
        for i in range(rows):
            q[i, j] /= norm
    return q


@program(sample=lambda n: (draws(n), 4 + draws(n, seed=1), draws(n, seed=2), draws(n, seed=3)), sizes=dict(tiny=6, standard=10_000, large=500_000))
def thomas(below, diagonal, above, right):
    """A system with three diagonals, solved in the memory of its arguments."""
    n = len(diagonal)
    for i in range(1, n):
        factor = below[i] / diagonal[i - 1]
        diagonal[i] -= factor * above[i - 1]
        right[i] -= factor * right[i - 1]
    x = np.empty(n)
    x[n - 1] = right[n - 1] / diagonal[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = (right[i] - above[i] * x[i + 1]) / diagonal[i]
    return x


@program(sample=lambda n: (draws(n, n), 1e-3, 3), sizes=dict(tiny=5, standard=80, large=500))
def gauss_seidel(u, tolerance, sweeps):
    for _ in range(sweeps):
        change = 0.0
        for i in range(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                value = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
                change = max(change, abs(value - u[i, j]))
                u[i, j] = value
        if change < tolerance:
            break
    return u


@program(sample=lambda n: (letters(n * n, 2).reshape(n, n), 2), sizes=dict(tiny=5, standard=50, large=300))
def life_by_index(cells, generations):
    height, width = cells.shape
    for _ in range(generations):
        after = np.zeros_like(cells)
        for y in range(height):
            for x in range(width):
                alive = 0
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        if dy != 0 or dx != 0:
                            alive += cells[(y + dy) % height, (x + dx) % width]
                if alive == 3 or (alive == 2 and cells[y, x] == 1):
                    after[y, x] = 1
        cells = after
    return cells


@program(sample=lambda n: (n, 30), sizes=dict(tiny=9, standard=600, large=10_000))
def rule_automaton(width, rule):
    """A row of cells, each of which follows from itself and its two neighbours, for a quarter as many steps as there are cells."""
    steps = width // 4
    cells = np.zeros((steps + 1, width), dtype=np.uint8)
    cells[0, width // 2] = 1
    for t in range(steps):
        for i in range(width):
            left = int(cells[t, i - 1])
            right = int(cells[t, (i + 1) % width])
            cells[t + 1, i] = (rule >> (4 * left + 2 * int(cells[t, i]) + right)) & 1
    return cells


@program(sample=lambda n: (n, 12345), sizes=dict(tiny=10, standard=30_000, large=1_000_000))
def congruential(count, seed):
    numbers = np.empty(count)
    state = seed
    for i in range(count):
        state = (16807 * state) % 2147483647
        numbers[i] = state / 2147483647
    return numbers


@program(sample=lambda n: (n, 0.01), sizes=dict(tiny=8, standard=5000, large=200_000))
def lorenz(steps, dt):
    path = np.empty((steps, 3))
    x, y, z = 1.0, 1.0, 1.0
    for i in range(steps):
        dx = 10.0 * (y - x)
        dy = x * (28.0 - z) - y
        dz = x * y - 8.0 / 3.0 * z
        x, y, z = x + dt * dx, y + dt * dy, z + dt * dz
        path[i, 0], path[i, 1], path[i, 2] = x, y, z
    return path


def height(x):
    return math.sin(x) * math.exp(-0.1 * x) + math.sqrt(x)


@program(sample=lambda n: (0.0, 10.0, n), sizes=dict(tiny=8, standard=20_000, large=1_000_000))
def simpson(start, end, intervals):
    width = (end - start) / intervals
    total = height(start) + height(end)
    for i in range(1, intervals):
        total += (4 if i % 2 else 2) * height(start + i * width)
    return total * width / 3


@program(sample=lambda n: (draws(n, 3), np.zeros((n, 3)), draws(n, seed=1), 0.01, 3), sizes=dict(tiny=3, standard=25, large=150))
def n_body_by_index(position, velocity, mass, dt, steps):
    n = len(mass)
    for _ in range(steps):
        for i in range(n):
            for j in range(i + 1, n):
                dx = position[i, 0] - position[j, 0]
                dy = position[i, 1] - position[j, 1]
                dz = position[i, 2] - position[j, 2]
                squared = dx * dx + dy * dy + dz * dz + 0.01
                pull = dt / (squared * math.sqrt(squared))
                velocity[i, 0] -= dx * mass[j] * pull
                velocity[i, 1] -= dy * mass[j] * pull
                velocity[i, 2] -= dz * mass[j] * pull
                velocity[j, 0] += dx * mass[i] * pull
                velocity[j, 1] += dy * mass[i] * pull
                velocity[j, 2] += dz * mass[i] * pull
        for i in range(n):
            for k in range(3):
                position[i, k] += dt * velocity[i, k]
    return position


@program(sample=lambda n: (draws(n).astype(np.float32),), sizes=dict(tiny=10, standard=20_000, large=1_000_000), tolerance=1e-4)
def largest_drop(prices):
    """The largest fall from a price to a later one, in float32, and where it ends."""
    peak, drop, place = prices[0], prices[0] - prices[0], 0
    for i in range(1, len(prices)):
        if prices[i] > peak:
            peak = prices[i]
        elif peak - prices[i] > drop:
            drop, place = peak - prices[i], i
    return drop, place
