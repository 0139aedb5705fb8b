"""Loops of programs with a structure: helpers that write, methods, attributes, and tables that are global variables."""
import numpy as np

from .registry import program


def draws(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def crc_row(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0xEDB88320 if byte & 1 else 0)
    return byte


CRC_TABLE = np.array([crc_row(byte) for byte in range(256)], dtype=np.int64)


@program(sample=lambda n: ((draws(n) * 256).astype(np.uint8).tobytes(),), sizes=dict(tiny=16, standard=2000, large=100000))
def crc32_by_table(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ int(CRC_TABLE[(crc ^ byte) & 0xFF])
    return crc ^ 0xFFFFFFFF


def relax(u, v):
    rows, columns = u.shape
    for i in range(1, rows - 1):
        for j in range(1, columns - 1):
            v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@program(sample=lambda n: (draws(n, n), 10), sizes=dict(tiny=6, standard=40, large=200))
def jacobi_by_helper(u, steps):
    v = u.copy()
    for _ in range(steps):
        relax(u, v)
        u, v = v, u
    return u


def sift(heap, start, end):
    root = start
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and heap[child] < heap[child + 1]:
            child += 1
        if heap[root] >= heap[child]:
            return
        heap[root], heap[child] = heap[child], heap[root]
        root = child


@program(sample=lambda n: (draws(n),), sizes=dict(tiny=10, standard=300, large=5000))
def heap_sort_by_helper(a):
    n = len(a)
    for start in range(n // 2 - 1, -1, -1):
        sift(a, start, n)
    for end in range(n - 1, 0, -1):
        a[end], a[0] = a[0], a[end]
        sift(a, 0, end)
    return a


class Generator:
    """A linear congruential generator with the constants of Numerical Recipes."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return self.state / 4294967296.0


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def monte_carlo_pi(n):
    random, inside = Generator(42), 0
    for _ in range(n):
        x, y = random.next(), random.next()
        if x * x + y * y < 1:
            inside += 1
    return 4 * inside / n


class Moments:
    """Running mean and variance (B. P. Welford, 1962)."""

    def __init__(self):
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, x):
        self.count += 1
        before = x - self.mean
        self.mean += before / self.count
        self.squares += before * (x - self.mean)


@program(sample=lambda n: (draws(n),), sizes=dict(tiny=10, standard=1000, large=100000))
def running_moments(x):
    moments = Moments()
    for i in range(len(x)):
        moments.add(float(x[i]))
    return moments.mean, moments.squares / moments.count


class Filter:
    """A Kalman filter of one variable."""

    def __init__(self, noise, drift):
        self.noise, self.drift, self.estimate, self.variance = noise, drift, 0.0, 1.0

    def update(self, seen, trust=1.0):
        self.variance += self.drift
        gain = self.variance / (self.variance + self.noise * trust)
        self.estimate += gain * (seen - self.estimate)
        self.variance *= 1.0 - gain
        return self.estimate


@program(sample=lambda n: (draws(n), draws(n, seed=1) + 0.5), sizes=dict(tiny=10, standard=1000, large=100000))
def kalman_filter(seen, trust):
    result, state = np.empty_like(seen), Filter(0.1, 0.001)
    for i in range(len(seen)):
        result[i] = state.update(seen[i], trust=trust[i])
    return result


class Rod:
    """Heat in a rod whose ends are cold."""

    def __init__(self, temperature, rate):
        self.temperature, self.next, self.rate, self.time = temperature, temperature.copy(), rate, 0.0

    def flow(self, i):
        return self.temperature[i - 1] - 2 * self.temperature[i] + self.temperature[i + 1]

    def advance(self, dt=0.1):
        for i in range(1, len(self.temperature) - 1):
            self.next[i] = self.temperature[i] + dt * self.rate * self.flow(i)
        self.temperature, self.next = self.next, self.temperature
        self.time += dt


@program(sample=lambda n: (draws(n), 20), sizes=dict(tiny=8, standard=200, large=5000))
def heat_in_a_rod(temperature, steps):
    rod = Rod(temperature, 0.5)
    for _ in range(steps):
        rod.advance()
    return rod.temperature, rod.time


class Queue:
    """A queue with one server."""

    def __init__(self):
        self.free_at, self.waited, self.longest = 0.0, 0.0, 0.0

    def serve(self, arrival, takes):
        begins = max(arrival, self.free_at)
        wait = begins - arrival
        self.waited += wait
        if wait > self.longest:
            self.longest = wait
        self.free_at = begins + takes


@program(sample=lambda n: (np.cumsum(draws(n)), draws(n, seed=1) * 0.9), sizes=dict(tiny=10, standard=1000, large=100000))
def queue_with_one_server(arrivals, takes):
    queue = Queue()
    for arrival, time in zip(arrivals, takes):
        queue.serve(arrival, time)
    return queue.waited, queue.longest


def bisect(x, low=0.0, high=1.0):
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        if middle * middle < x:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


@program(sample=lambda n: (draws(n),), sizes=dict(tiny=5, standard=200, large=10000))
def roots_by_bisection(x):
    result = np.zeros(len(x))
    for i in range(len(x)):
        result[i] = bisect(x[i], high=1.0 + x[i])
    return result
