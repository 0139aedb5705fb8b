"""Loops over Python's own lists: sorting, searching, tables of dynamic programming, grids as lists of lists, stacks and queues."""
import numpy as np

from .registry import program


def floats(n, seed=0):
    return np.random.default_rng(seed).random(n).tolist()


def ints(n, most, seed=0):
    return np.random.default_rng(seed).integers(0, most, n).tolist()


def table(rows, columns, seed=0):
    return np.random.default_rng(seed).random((rows, columns)).tolist()


@program(sample=lambda n: (n,), sizes=dict(tiny=30, standard=2000, large=200000))
def primes_below(n):
    is_prime = [True] * n
    is_prime[0] = is_prime[1] = False
    i = 2
    while i * i < n:
        if is_prime[i]:
            for multiple in range(i * i, n, i):
                is_prime[multiple] = False
        i += 1
    return [i for i in range(n) if is_prime[i]]


@program(sample=lambda n: (floats(n),), sizes=dict(tiny=8, standard=60, large=600))
def bubble_sorted(a):
    for i in range(len(a)):
        swapped = False
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
                swapped = True
        if not swapped:
            break
    return a


@program(sample=lambda n: (ints(n, 1000),), sizes=dict(tiny=8, standard=100, large=1000))
def insertion_sorted(a):
    for i in range(1, len(a)):
        x, j = a[i], i
        while j > 0 and a[j - 1] > x:
            a[j] = a[j - 1]
            j -= 1
        a[j] = x
    return a


@program(sample=lambda n: (floats(n),), sizes=dict(tiny=10, standard=500, large=20000))
def shell_sorted(a):
    gap = len(a) // 2
    while gap > 0:
        for i in range(gap, len(a)):
            x, j = a[i], i
            while j >= gap and a[j - gap] > x:
                a[j] = a[j - gap]
                j -= gap
            a[j] = x
        gap //= 2
    return a


@program(sample=lambda n: (floats(n),), sizes=dict(tiny=10, standard=500, large=20000))
def merge_sorted(a):
    width, source, target = 1, a, [0.0] * len(a)
    while width < len(a):
        for start in range(0, len(a), 2 * width):
            middle, end = min(start + width, len(a)), min(start + 2 * width, len(a))
            left, right = start, middle
            for k in range(start, end):
                if left < middle and (right >= end or source[left] <= source[right]):
                    target[k] = source[left]
                    left += 1
                else:
                    target[k] = source[right]
                    right += 1
        source, target = target, source
        width *= 2
    return source


@program(sample=lambda n: (floats(n),), sizes=dict(tiny=10, standard=500, large=20000))
def quick_sorted(a):
    stack = [0, len(a) - 1]
    while stack:
        high = stack.pop()
        low = stack.pop()
        if low >= high:
            continue
        pivot, i = a[(low + high) // 2], low
        j = high
        while i <= j:
            while a[i] < pivot:
                i += 1
            while a[j] > pivot:
                j -= 1
            if i <= j:
                a[i], a[j] = a[j], a[i]
                i += 1
                j -= 1
        stack.append(low)
        stack.append(j)
        stack.append(i)
        stack.append(high)
    return a


@program(sample=lambda n: (floats(n),), sizes=dict(tiny=10, standard=500, large=20000))
def heap_sorted(a):
    n = len(a)
    for start in list(range(n // 2 - 1, -1, -1)) + [-end for end in range(n - 1, 0, -1)]:
        end = n
        if start < 0:
            end = -start
            a[0], a[end] = a[end], a[0]
        root = max(start, 0)
        while 2 * root + 1 < end:
            child = 2 * root + 1
            if child + 1 < end and a[child] < a[child + 1]:
                child += 1
            if a[root] >= a[child]:
                break
            a[root], a[child] = a[child], a[root]
            root = child
    return a


@program(sample=lambda n: (ints(n, 256),), sizes=dict(tiny=10, standard=2000, large=100000))
def counting_sorted(a):
    counts = [0] * 256
    for x in a:
        counts[x] += 1
    out = []
    for value in range(256):
        for _ in range(counts[value]):
            out.append(value)
    return out


@program(sample=lambda n: (ints(n, 1000),), sizes=dict(tiny=8, standard=80, large=1000))
def longest_increasing(a):
    best = [1] * len(a)
    for i in range(len(a)):
        for j in range(i):
            if a[j] < a[i] and best[j] + 1 > best[i]:
                best[i] = best[j] + 1
    return max(best)


@program(sample=lambda n: (ints(n, 4), ints(n, 4, seed=1)), sizes=dict(tiny=6, standard=60, large=600))
def alignment(a, b):
    scores = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        scores[i][0] = -i
    for j in range(1, len(b) + 1):
        scores[0][j] = -j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            same = scores[i - 1][j - 1] + (1 if a[i - 1] == b[j - 1] else -1)
            scores[i][j] = max(same, scores[i - 1][j] - 1, scores[i][j - 1] - 1)
    return scores[-1][-1]


@program(sample=lambda n: (n, [1, 5, 10, 25, 50]), sizes=dict(tiny=12, standard=1000, large=50000))
def ways_to_change(amount, coins):
    ways = [0] * (amount + 1)
    ways[0] = 1
    for coin in coins:
        for value in range(coin, amount + 1):
            ways[value] += ways[value - coin]
    return ways[amount] % 1000000007


@program(sample=lambda n: (n, [1, 7, 12, 33]), sizes=dict(tiny=10, standard=500, large=20000))
def fewest_coins(amount, coins):
    fewest = [0] + [amount + 1] * amount
    for value in range(1, amount + 1):
        for coin in coins:
            if coin <= value and fewest[value - coin] + 1 < fewest[value]:
                fewest[value] = fewest[value - coin] + 1
    return fewest[amount]


@program(sample=lambda n: (table(n, n), table(n, n, seed=1)), sizes=dict(tiny=3, standard=15, large=80))
def product_of_tables(a, b):
    c = [[0.0] * len(b[0]) for _ in range(len(a))]
    for i in range(len(a)):
        for j in range(len(b[0])):
            total = 0.0
            for k in range(len(b)):
                total += a[i][k] * b[k][j]
            c[i][j] = total
    return c


@program(sample=lambda n: ([ints(n, 2, seed=row) for row in range(n)], 4), sizes=dict(tiny=5, standard=16, large=100))
def life_on_lists(cells, generations):
    n = len(cells)
    for _ in range(generations):
        following = [[0] * n for _ in range(n)]
        for i in range(n):
            for j in range(n):
                around = 0
                for di in (-1, 0, 1):
                    for dj in (-1, 0, 1):
                        if di != 0 or dj != 0:
                            around += cells[(i + di) % n][(j + dj) % n]
                following[i][j] = 1 if around == 3 or (around == 2 and cells[i][j] == 1) else 0
        cells = following
    return cells


@program(sample=lambda n: (table(n, n), 10), sizes=dict(tiny=5, standard=20, large=120))
def heat_on_lists(u, steps):
    for _ in range(steps):
        for i in range(1, len(u) - 1):
            for j in range(1, len(u[0]) - 1):
                u[i][j] = 0.25 * (u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1])
    return u


@program(sample=lambda n: ([[float(w) for w in ints(n, 100, seed=row)] for row in range(n)],), sizes=dict(tiny=4, standard=16, large=90))
def all_shortest_paths(d):
    n = len(d)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i][k] + d[k][j] < d[i][j]:
                    d[i][j] = d[i][k] + d[k][j]
    return d


@program(sample=lambda n: (n,), sizes=dict(tiny=4, standard=6, large=8))
def queens(n):
    columns, row, found = [-1] * n, 0, 0
    while row >= 0:
        columns[row] += 1
        while columns[row] < n:
            free = True
            for before in range(row):
                if columns[before] == columns[row] or abs(columns[before] - columns[row]) == row - before:
                    free = False
                    break
            if free:
                break
            columns[row] += 1
        if columns[row] >= n:
            columns[row] = -1
            row -= 1
        elif row == n - 1:
            found += 1
        else:
            row += 1
    return found


@program(sample=lambda n: (n,), sizes=dict(tiny=8, standard=30, large=60))
def pascals_triangle(n):
    rows = [[1]]
    for i in range(1, n):
        row = [1] * (i + 1)
        for j in range(1, i):
            row[j] = rows[i - 1][j - 1] + rows[i - 1][j]
        rows.append(row)
    return rows


@program(sample=lambda n: (floats(n), 0.2), sizes=dict(tiny=10, standard=1000, large=100000))
def smoothed(values, weight):
    out, level = [], values[0]
    for value in values:
        level += weight * (value - level)
        out.append(level)
    return out


@program(sample=lambda n: (floats(n), 8), sizes=dict(tiny=12, standard=1000, large=50000))
def moving_averages(values, width):
    out, total = [], 0.0
    for i in range(len(values)):
        total += values[i]
        if i >= width:
            total -= values[i - width]
        if i >= width - 1:
            out.append(total / width)
    return out


@program(sample=lambda n: (sorted(floats(n)), floats(n, seed=1)), sizes=dict(tiny=10, standard=300, large=20000))
def places_in(ordered, wanted):
    places = []
    for x in wanted:
        low, high = 0, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] < x:
                low = middle + 1
            else:
                high = middle
        places.append(low)
    return places


@program(sample=lambda n: ([x - 0.5 for x in floats(n)],), sizes=dict(tiny=10, standard=1000, large=100000))
def largest_sum_of_a_part(a):
    best = here = a[0]
    for x in a[1:]:
        here = max(x, here + x)
        best = max(best, here)
    return best


@program(sample=lambda n: (n, ints(2 * n, n), ints(2 * n, n, seed=1)), sizes=dict(tiny=8, standard=300, large=20000))
def components(count, left, right):
    parent = list(range(count))
    for a, b in zip(left, right):
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            parent[a] = b
            count -= 1
    return count, parent


@program(sample=lambda n: ([ints(n, 4, seed=row) for row in range(n)],), sizes=dict(tiny=4, standard=20, large=150))
def steps_through_a_maze(walls):
    n = len(walls)
    distance = [[-1] * n for _ in range(n)]
    distance[0][0] = 0
    queue, first = [0], 0
    while first < len(queue):
        i, j = divmod(queue[first], n)
        first += 1
        for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            a, b = i + di, j + dj
            if 0 <= a < n and 0 <= b < n and walls[a][b] != 0 and distance[a][b] < 0:
                distance[a][b] = distance[i][j] + 1
                queue.append(a * n + b)
    return distance


@program(sample=lambda n: (n,), sizes=dict(tiny=4, standard=6, large=8))
def pancake_flips(n):
    """The most reversals of a beginning that bring 1 to the front, over the permutations in the benchmark game's order."""
    order, counts, most, rounds = list(range(n)), [0] * n, 0, n
    while True:
        while rounds != 1:
            counts[rounds - 1] = rounds
            rounds -= 1
        turned, flips = order[:], 0
        while turned[0] != 0:
            low, high = 0, turned[0]
            while low < high:
                turned[low], turned[high] = turned[high], turned[low]
                low += 1
                high -= 1
            flips += 1
        most = max(most, flips)
        while True:
            if rounds == n:
                return most
            first = order[0]
            for i in range(rounds):
                order[i] = order[i + 1]
            order[rounds] = first
            counts[rounds] -= 1
            if counts[rounds] > 0:
                break
            rounds += 1


def entry(i, j):
    return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)


@program(sample=lambda n: (n,), sizes=dict(tiny=5, standard=20, large=120))
def spectral_norm(n):
    u, v, w = [1.0] * n, [0.0] * n, [0.0] * n
    for _ in range(5):
        for i in range(n):
            total = 0.0
            for j in range(n):
                total += entry(i, j) * u[j]
            w[i] = total
        for i in range(n):
            total = 0.0
            for j in range(n):
                total += entry(j, i) * w[j]
            v[i] = total
        u, v = v, u
    above = below = 0.0
    for i in range(n):
        above += u[i] * v[i]
        below += v[i] * v[i]
    return above / below


@program(sample=lambda n: (table(5, 3), table(5, 3, seed=1), [1.0, 0.5, 0.25, 2.0, 1.5], n), sizes=dict(tiny=2, standard=50, large=3000))
def planets(position, velocity, mass, steps):
    for _ in range(steps):
        for i in range(len(mass)):
            for j in range(i + 1, len(mass)):
                dx = position[i][0] - position[j][0]
                dy = position[i][1] - position[j][1]
                dz = position[i][2] - position[j][2]
                pull = 0.001 / ((dx * dx + dy * dy + dz * dz) * (dx * dx + dy * dy + dz * dz) ** 0.5)
                velocity[i][0] -= dx * mass[j] * pull
                velocity[i][1] -= dy * mass[j] * pull
                velocity[i][2] -= dz * mass[j] * pull
                velocity[j][0] += dx * mass[i] * pull
                velocity[j][1] += dy * mass[i] * pull
                velocity[j][2] += dz * mass[i] * pull
        for i in range(len(mass)):
            for k in range(3):
                position[i][k] += 0.001 * velocity[i][k]
    return position, velocity


@program(sample=lambda n: (table(n, n), floats(n)), sizes=dict(tiny=4, standard=16, large=90))
def solved_by_elimination(a, b):
    n = len(b)
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(a[i][k]) > abs(a[pivot][k]):
                pivot = i
        a[k], a[pivot] = a[pivot], a[k]
        b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k, n):
                a[i][j] -= factor * a[k][j]
            b[i] -= factor * b[k]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            b[i] -= a[i][j] * b[j]
        b[i] /= a[i][i]
    return b


@program(sample=lambda n: (floats(12), floats(n)), sizes=dict(tiny=5, standard=200, large=20000))
def polynomial_at(coefficients, points):
    values = []
    for x in points:
        y = 0.0
        for c in coefficients:
            y = y * x + c
        values.append(y)
    return values


@program(sample=lambda n: (ints(n, 3),), sizes=dict(tiny=10, standard=1000, large=100000))
def majority(votes):
    candidate, count = None, 0
    for vote in votes:
        if count == 0:
            candidate, count = vote, 1
        elif vote == candidate:
            count += 1
        else:
            count -= 1
    return candidate
