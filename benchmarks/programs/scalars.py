"""Loops over plain numbers: number theory, hashes and generators of the classics, iterations, quadrature."""
import math

import numpy as np

from .registry import program


def some_bytes(n, seed=0):
    return np.random.default_rng(seed).bytes(n)


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=300, large=5000))
def longest_collatz(most):
    best = longest = 0
    for start in range(1, most):
        n, steps = start, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        if steps > longest:
            best, longest = start, steps
    return best, longest


@program(sample=lambda n: (n,), sizes=dict(tiny=20, standard=1000, large=20000))
def primes_by_trial(most):
    count = 0
    for n in range(2, most):
        divisor, prime = 2, True
        while divisor * divisor <= n:
            if n % divisor == 0:
                prime = False
                break
            divisor += 1
        count += prime
    return count


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=60, large=500))
def coprime_pairs(most):
    pairs = 0
    for a in range(1, most):
        for b in range(a + 1, most):
            x, y = a, b
            while y:
                x, y = y, x % y
            pairs += x == 1
    return pairs


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def fibonacci_modulo(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, (a + b) % 1000000007
    return a


@program(sample=lambda n: (3, n, 1000000007), sizes=dict(tiny=1000, standard=10**12, large=10**18))
def power_modulo(base, exponent, modulus):
    result = 1
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=300, large=4000))
def perfect_numbers(most):
    found = 0
    for n in range(2, most):
        total = 1
        for divisor in range(2, n // 2 + 1):
            if n % divisor == 0:
                total += divisor
        if total == n:
            found = found * 10000 + n
    return found


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=500, large=20000))
def totients(most):
    total = 0
    for n in range(1, most):
        left, result, p = n, n, 2
        while p * p <= left:
            if left % p == 0:
                while left % p == 0:
                    left //= p
                result -= result // p
            p += 1
        if left > 1:
            result -= result // left
        total += result
    return total


@program(sample=lambda n: (n,), sizes=dict(tiny=20, standard=2000, large=200000))
def sums_of_digits(most):
    total = 0
    for n in range(most):
        while n:
            total += n % 10
            n //= 10
    return total


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=200000))
def pi_by_leibniz(terms):
    total, sign = 0.0, 1.0
    for k in range(terms):
        total += sign / (2 * k + 1)
        sign = -sign
    return 4 * total


@program(sample=lambda n: (1e-4, n), sizes=dict(tiny=10, standard=1000, large=100000))
def roots_by_newton(tolerance, count):
    total = 0.0
    for k in range(1, count):
        x = float(k)
        while abs(x * x - k) > tolerance:
            x = 0.5 * (x + k / x)
        total += x
    return total


@program(sample=lambda n: (n, 50), sizes=dict(tiny=4, standard=20, large=150))
def mandelbrot_area(side, limit):
    inside = 0
    for row in range(side):
        for column in range(side):
            a, b = 3.0 * column / side - 2.0, 3.0 * row / side - 1.5
            x = y = 0.0
            for _ in range(limit):
                x, y = x * x - y * y + a, 2 * x * y + b
                if x * x + y * y > 4.0:
                    break
            else:
                inside += 1
    return 9.0 * inside / (side * side)


@program(sample=lambda n: (0.4, n), sizes=dict(tiny=10, standard=1000, large=100000))
def logistic_map(x, steps):
    above = 0
    for _ in range(steps):
        x = 3.9 * x * (1.0 - x)
        if x > 0.5:
            above += 1
    return x, above


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def integral_by_midpoints(intervals):
    step, total = 2.0 / intervals, 0.0
    for k in range(intervals):
        x = (k + 0.5) * step
        total += math.sqrt(4.0 - x * x) / (1.0 + x)
    return total * step


@program(sample=lambda n: (0.01, n), sizes=dict(tiny=10, standard=500, large=50000))
def pendulum(step, count):
    angle, speed, highest = 1.0, 0.0, 0.0
    for _ in range(count):
        speed -= step * math.sin(angle)
        angle += step * speed
        highest = max(highest, angle)
    return angle, speed, highest


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def numerical_recipes_generator(count):
    state, total = 12345, 0.0
    for _ in range(count):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        total += state / 4294967296
    return total / count


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def xorshift32(count):
    x = 2463534242
    for _ in range(count):
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
    return x


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def xorshift64(count):
    x = 88172645463325252
    for _ in range(count):
        x ^= (x << 13) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 7
        x ^= (x << 17) & 0xFFFFFFFFFFFFFFFF
    return x


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=1000, large=100000))
def pcg32(count):
    state, total = 0x853C49E6748FEA9B, 0
    for _ in range(count):
        before = state
        state = (before * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        mixed = (((before >> 18) ^ before) >> 27) & 0xFFFFFFFF
        turn = before >> 59
        total ^= ((mixed >> turn) | (mixed << (-turn & 31))) & 0xFFFFFFFF
    return total


@program(sample=lambda n: (some_bytes(n),), sizes=dict(tiny=16, standard=1000, large=100000))
def fnv1a_32(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


@program(sample=lambda n: (some_bytes(n),), sizes=dict(tiny=16, standard=1000, large=100000))
def fnv1a_64(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


@program(sample=lambda n: (some_bytes(n),), sizes=dict(tiny=16, standard=1000, large=100000))
def adler32(data):
    a, b = 1, 0
    for byte in data:
        a = (a + byte) % 65521
        b = (b + a) % 65521
    return b << 16 | a


@program(sample=lambda n: (n,), sizes=dict(tiny=10, standard=500, large=50000))
def mixed_keys(count):
    """The finalizer of MurmurHash3 (A. Appleby), over the numbers from 0 on."""
    total = 0
    for key in range(count):
        key ^= key >> 33
        key = (key * 0xFF51AFD7ED558CCD) & 0xFFFFFFFFFFFFFFFF
        key ^= key >> 33
        key = (key * 0xC4CEB9FE1A85EC53) & 0xFFFFFFFFFFFFFFFF
        key ^= key >> 33
        total = (total + key) & 0xFFFFFFFFFFFFFFFF
    return total
