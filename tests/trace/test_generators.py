"""Generators, itertools and iteration by the users' own classes, consumed inside a compiled function: one graph each."""
import contextlib
import functools
import itertools
import sys

import numpy as np
import pytest

import framejit
from harness import both_libraries, same_as_eager

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
WHOLE, BROKEN = [], []


def whole(function):
    WHOLE.append(function)
    return function


def broken(function):
    """Python runs a part of it; the result must be the same."""
    BROKEN.append(function)
    return function


def numbers(x, n):
    for i in range(n):
        yield x * i


def talker(x):
    total = x
    while True:
        got = yield total
        if got is None:
            return total
        total = total + got


def returns(x, n):
    for i in range(n):
        yield x + i
    return n * 10


def delegates(x):
    a = yield from returns(x, 2)
    b = yield from returns(x * 2, 3)
    yield x * (a + b)
    yield from [x, x + 1]
    yield from range(2)
    return "done"


@whole
def a_generator_in_a_for_loop(x):
    for y in numbers(x, 3):
        x = x + y
    return x


@whole
def a_generator_expression(x):
    return sum(x * i for i in range(4) if i != 2)


@whole
def nested_generator_expressions(x):
    return sum(a * b for a in (x + i for i in range(2)) for b in range(3))


@whole
def send(x):
    g = talker(x)
    y = next(g)
    y = y + g.send(x * 2)
    y = y + g.send(x * 3)
    return y


@whole
def the_value_of_return(x):
    g = returns(x, 1)
    y = next(g)
    try:
        next(g)
    except StopIteration as stop:
        return y * stop.value
    return None


@whole
def yield_from(x):
    return [y * 2 for y in delegates(x)]


@whole
def yield_from_and_send(x):
    def outer(x):
        result = yield from talker(x)
        yield result * 100

    g = outer(x)
    return next(g), g.send(x), g.send(x), g.send(None), next(g, "end")


@whole
def the_result_of_yield_from(x):
    def run(x):
        value = yield from returns(x, 2)
        return value * 2

    def collect(x):
        out = yield from run(x)
        yield x * out

    return list(collect(x))


@whole
def throw(x):
    def g(x):
        while True:
            try:
                yield x
            except ValueError as error:
                x = x * error.args[0]
            except KeyError:
                return

    it = g(x)
    a = next(it)
    b = it.throw(ValueError(3))
    try:
        it.throw(KeyError)
        c = 0
    except StopIteration:
        c = 1
    return a, b, c


@whole
def close_runs_finally(x):
    seen = []

    def g(x):
        try:
            yield x
            yield x + 1
        finally:
            seen.append("closed")

    it = g(x)
    y = next(it)
    it.close()
    it.close()
    return y * len(seen), next(it, 5)


@whole
def close_of_a_generator_that_has_not_started(x):
    it = numbers(x, 3)
    it.close()
    return x + len(list(it))


@whole
def a_stop_iteration_inside_becomes_a_runtime_error(x):
    def g(x):
        yield x
        raise StopIteration(3)

    try:
        return [y + 1 for y in g(x)]
    except RuntimeError as error:
        return x * 2, str(error), isinstance(error.__cause__, StopIteration), error.__cause__.value


@whole
def an_exception_out_of_a_generator(x):
    def g(x):
        yield x
        raise KeyError("k")

    total = x
    try:
        for y in g(x):
            total = total + y
    except KeyError as error:
        total = total * len(error.args)
    return total


@whole
def a_generator_that_handles_an_exception_while_it_yields(x):
    def g(x):
        try:
            raise ValueError("a")
        except ValueError as error:
            yield x
            yield str(error)

    out = []
    for y in g(x):
        try:
            raise KeyError("b")
        except KeyError as error:
            out.append((y, str(error)))
    return x + 1, out


@whole
def a_generator_started_twice_over(x):
    a, b = numbers(x, 3), numbers(x + 1, 3)
    return [p - q for p, q in zip(a, b)] + [next(a, 0), next(b, 1)]


@whole
def a_partly_consumed_generator_is_gone_on_with(x):
    g = numbers(x, 5)
    next(g)
    for y in g:
        if y is not None:
            x = x + y
            break
    return x, list(g)


@whole
def a_recursive_generator(x):
    def walk(tree):
        if isinstance(tree, tuple):
            for part in tree:
                yield from walk(part)
        else:
            yield tree

    return list(walk((x, (x + 1, (x * 2,)), x - 1)))


class Source:
    def __init__(self, x):
        self.x, self.taken = x, 0

    def __iter__(self):
        for i in range(3):
            self.taken += 1
            yield self.x + i


@whole
def iteration_by_a_generator_method(x):
    s = Source(x)
    total = sum(s)
    return total * s.taken, max(s.taken, 2)


class Countdown:
    def __init__(self, x, n):
        self.x, self.n = x, n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration("over")
        self.n -= 1
        return self.x * self.n


class Sequence:
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return self.x + i


@whole
def iteration_by_next(x):
    c = Countdown(x, 3)
    return [y + 1 for y in c], c.n, list(c)


@whole
def iteration_by_getitem(x):
    return list(Sequence(x)), sum(reversed(Sequence(x)))


@whole
def unpacking_of_any_iterable(x):
    a, b, c = numbers(x, 3)
    d, *e = Countdown(x, 3)
    *f, g = (x + i for i in range(3))
    (h, i, j), k = Sequence(x), 1
    return a, b, c, d, e, f, g, h * i + j, k


UNPACK_FAILS = [lambda x: [*numbers(x, 2), *Countdown(x, 2)], lambda x: (*Sequence(x),), lambda x: {**dict(zip("ab", numbers(x, 2)))}]


@whole
def starred_displays_and_calls(x):
    def f(*args, **kwargs):
        return sum(args) + kwargs["k"]

    return f(*numbers(x, 3), *[x], **{"k": x}), [*numbers(x, 2), 1], (*Countdown(x, 2), x)


@whole
def iter_with_a_sentinel(x):
    items = [1, 2, 3, 0, 5]
    total = x
    for item in iter(lambda: items.pop(0), 0):
        total = total * item
    return total, items


@whole
def zip_strict(x):
    out = [a * b for a, b in zip([x, x + 1], (2, 3), strict=True)]
    for left, right in (([x], [1, 2]), ([x, x], [1])):
        try:
            list(zip(left, right, strict=True))
        except ValueError as error:
            out.append(str(error))
    return out


@whole
def builtins_over_iterators(x):
    return (list(enumerate(numbers(x, 2), start=5)), list(map(lambda a, b: a * b, numbers(x, 3), range(2))),
            list(filter(None, [0, 1, 2])), list(reversed([x, 1])), list(reversed({"a": 1, "b": 2})), sorted([3, 1, 2], key=lambda v: -v),
            min([3, 1, 2], key=lambda v: -v), max(4, 7, default=None) if False else max([4, 7]), any(v > 3 for v in range(5)),
            all(v for v in (1, 0, 2)), sum([1, 2], start=3), dict(zip("ab", [x, 1])), tuple(numbers(x, 2)), set(v % 2 for v in range(4)))


@whole
def next_with_a_default(x):
    it = iter([x])
    return next(it), next(it, None), next(iter(()), x * 2)


@whole
def a_list_that_grows_while_it_is_iterated_over(x):
    items = [1]
    for item in items:
        if item < 4:
            items.append(item + 1)
        x = x * item
    return x, items


ITERTOOLS = {
    "accumulate": lambda x: list(itertools.accumulate([x, x + 1, x * 2])),
    "accumulate with a function": lambda x: list(itertools.accumulate([x, 2, 3], lambda a, b: a * b)),
    "accumulate with an initial value": lambda x: list(itertools.accumulate([x, 2], initial=x)),
    "chain": lambda x: list(itertools.chain([x], (1, 2), numbers(x, 2))),
    "chain.from_iterable": lambda x: list(itertools.chain.from_iterable([[x, 1], numbers(x, 2)])),
    "combinations": lambda x: [a * b for a, b in itertools.combinations([x, 2, 3], 2)],
    "combinations_with_replacement": lambda x: [a * b for a, b in itertools.combinations_with_replacement([x, 2], 2)],
    "compress": lambda x: list(itertools.compress([x, 1, x + 1], [True, False, 1])),
    "count": lambda x: [x * i for i in itertools.islice(itertools.count(), 3)],
    "count with a step": lambda x: [x * i for _, i in zip(range(3), itertools.count(5, -2))],
    "cycle": lambda x: [y for y, _ in zip(itertools.cycle([x, x + 1]), range(5))],
    "dropwhile": lambda x: [x * i for i in itertools.dropwhile(lambda v: v < 2, [0, 1, 2, 0])],
    "filterfalse": lambda x: [x * i for i in itertools.filterfalse(lambda v: v % 2, range(5))],
    "filterfalse of nothing": lambda x: [x + i for i in itertools.filterfalse(None, [0, 1, 0])],
    "groupby": lambda x: [(k, [x * v for v in group]) for k, group in itertools.groupby([1, 1, 2, 2, 1])],
    "groupby with a key": lambda x: [(k, [x + v for v in g]) for k, g in itertools.groupby(range(6), key=lambda v: v // 2)],
    "groupby whose groups are not read": lambda x: [x * k for k, g in itertools.groupby([1, 1, 2, 3, 3])],
    "islice": lambda x: list(itertools.islice(numbers(x, 9), 1, 7, 2)),
    "islice leaves the rest": lambda x: (lambda it: (list(itertools.islice(it, 2)), list(it)))(iter([x * 2, 1, 2, 3])),
    "islice past the end": lambda x: list(itertools.islice([1, x * 2], 1, None)) + list(itertools.islice([x], 3, 9)),
    "pairwise": lambda x: [a - b for a, b in itertools.pairwise([x, 1, x * 2])],
    "permutations": lambda x: [a - b for a, b in itertools.permutations([x, 1, 2], 2)],
    "permutations of all": lambda x: [x * sum(p) for p in itertools.permutations(range(3))],
    "product": lambda x: [a * b for a, b in itertools.product([x, x + 1], range(2))],
    "product with repeat": lambda x: [x * a + b for a, b in itertools.product((1, 2), repeat=2)],
    "repeat": lambda x: [x * i for i in itertools.repeat(2, 3)],
    "repeat for ever": lambda x: list(map(lambda a, b: a * b, [x, 1], itertools.repeat(3))),
    "starmap": lambda x: list(itertools.starmap(lambda a, b: a * b, [(x, 1), (x, 2)])),
    "takewhile": lambda x: [x * i for i in itertools.takewhile(lambda v: v < 3, itertools.count())],
    "tee": lambda x: (lambda a, b: [next(a), next(a), *b])(*itertools.tee(numbers(x, 3))),
    "zip_longest": lambda x: list(itertools.zip_longest([x + 1, 1], [2])),
    "zip_longest with a fill value": lambda x: [a * b for a, b in itertools.zip_longest([x, 1], [2], fillvalue=3)],
    "functools.reduce": lambda x: functools.reduce(lambda a, b: a * b, numbers(x, 3), 1),
}
if sys.version_info >= (3, 12):
    ITERTOOLS["batched"] = lambda x: [(len(b), x * b[0]) for b in itertools.batched(range(5), 2)]


@broken
def a_break_in_the_body_of_a_loop_over_a_generator(x):
    for y in numbers(x, 4):
        x = x + y * 2
        print("body")
    return x


@broken
def a_break_inside_the_generator(x):
    def g(x):
        for i in range(3):
            print("inside", i)
            yield x * i

    for y in g(x + 1):
        x = x + y
    return x


@broken
def a_generator_that_is_half_consumed_at_the_end(x):
    g = numbers(x, 4)
    next(g)
    return x + 1, list(itertools.islice(g, 1)), g.gi_frame is not None


@broken
def a_generator_dropped_inside_its_try(x):
    seen = []

    def g(x):
        try:
            yield x
        finally:
            seen.append("finally")

    for y in g(x * 2):
        x = x + y
        break
    del y
    return x, seen


@broken
def a_generator_returned_to_the_caller(x):
    y = x * 2
    return next(iter([y])), sum(numbers(y, 2))


@broken
def an_endless_generator_is_unpacked(x):
    y = x + 1
    try:
        a, b = itertools.count()
    except ValueError as error:
        return y * 2, str(error)


@broken
def throw_into_a_delegating_generator(x):
    def inner(x):
        try:
            yield x
        except ValueError:
            yield x * 10

    def outer(x):
        yield from inner(x)

    g = outer(x + 1)
    return next(g), g.throw(ValueError("v")), next(g, "end")


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_whole(function):
    same_as_eager(function, X, breaks=())


@pytest.mark.parametrize("function", ITERTOOLS.values(), ids=ITERTOOLS.keys())
def test_itertools(function):
    same_as_eager(function, X, breaks=())


@pytest.mark.parametrize("function", UNPACK_FAILS)
def test_unpacking_displays(function):
    same_as_eager(function, X, breaks=())


@pytest.mark.parametrize("function", BROKEN, ids=lambda f: f.__name__)
def test_broken(function):
    same_as_eager(function, X, calls=3)


@both_libraries
def test_other_arrays_and_lengths_on_later_calls(lib):
    def f(x, n):
        return sum(y * i for i, y in enumerate(itertools.chain(numbers(x, n), returns(x, n))))

    compiled = framejit.compile(f)
    for n in (3, 2, 3, 5, 1):
        for seed in range(2):
            x = lib.sample((3, 4), seed=seed)
            a, b = compiled(x, n), f(x, n)
            assert np.allclose(np.asarray(a), np.asarray(b), rtol=1e-5)
    assert framejit.cache_info()["internal_errors"] == 0


def test_an_iterator_and_an_iterable_at_one_place():
    class Once:
        def __init__(self, items):
            self.items = list(items)

        def __iter__(self):
            return self

        def __next__(self):
            if not self.items:
                raise StopIteration
            return self.items.pop()

    class Other(Once):
        def __iter__(self):
            return iter([7])

    def f(x, kinds):
        for kind in kinds:
            for n in kind([1, 2]):
                x = x + n
                print(end="")
        return x * 2

    compiled = framejit.compile(f)
    for kinds in ((Once, list), (list, Once), (Sequence3, Once), (Once, Sequence3, iter, Other), (Other, Sequence3, tuple)):
        np.testing.assert_array_equal(compiled(X, kinds), f(X, kinds))


class Sequence3:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]
