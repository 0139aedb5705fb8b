"""Containers around arrays: lists, tuples, dicts and their views, sets, collections, named tuples; made inside and from outside."""
import collections
import copy
import itertools
import operator
import typing

import numpy as np
import pytest

from constructs import run_construct, table

construct, PROGRAMS = table()
LISTS, TUPLES, DICTS, SETS, COLLECTIONS, OUTSIDE = "lists", "tuples", "dicts", "sets", "collections", "containers from outside"


# ---- lists

@construct(LISTS)
def append_extend_insert(x):
    a = []
    a.append(x)
    a.extend([1, 2])
    a.insert(0, 3)
    a.insert(-1, 4)
    a += (5,)
    return a[1] * len(a), a[0], a[2:]


@construct(LISTS)
def pop_remove_clear(x):
    a = [1, 2, x, 3]
    a.pop()
    a.pop(0)
    a.remove(2)
    b = a.copy()
    a.clear()
    return b[0] * len(b) + len(a)


@construct(LISTS)
def slices(x):
    a = list(range(6))
    a[1:3] = [7]
    a[::2] = [0, 0, 0]
    del a[1]
    del a[1:2]
    a[len(a):] = [x]
    return a, a[::-1], a[-1] * 2, a[1:][0]


@construct(LISTS)
def delete_extended_slice(x):
    a = list(range(8))
    del a[::3]
    return x * a[0], a


@construct(LISTS)
def sort_with_key(x):
    a = ["ccc", "a", "bb"]
    a.sort(key=len)
    b = sorted([3, 1, 2], reverse=True)
    c = sorted([(1, "b"), (0, "z"), (1, "a")], key=lambda p: p[0])
    d = sorted("hello")
    return x * b[0], a, c, d, sorted({"b": 1, "a": 2}), sorted([1.5, 1], key=operator.neg)


@construct(LISTS)
def sort_arrays_by_an_int(x):
    pairs = [(2, x), (1, x * 2)]
    pairs.sort(key=lambda p: p[0])
    return pairs[0][1] + 1


@construct(LISTS)
def reverse_index_count(x):
    a = [1, 2, 3, 2]
    a.reverse()
    return x * a.index(2) + a.count(2) + a.index(2, 1) + (2 in a)


@construct(LISTS)
def repetition_and_concatenation(x):
    a = [0] * 3 + [1]
    b = 2 * [x]
    a *= 2
    return a, b[0] + b[1], (b[0] is b[1])


@construct(LISTS)
def nested_comprehensions(x):
    grid = [[i * j for j in range(3)] for i in range(2)]
    flat = [v for row in grid for v in row if v]
    return x * sum(flat), grid, [*flat, *[1, 2]]


@construct(LISTS)
def comparison(x):
    return x + ([1, 2] < [1, 3]) + ([1] == [1]) * 2 + ([1, [2]] == [1, [2]]) * 4 + ([] < [1]) * 8 + ([1, 2] != [1, 2]) * 16


@construct(LISTS)
def list_in_itself_and_aliases(x):
    a = [x]
    b = [a, a]
    b[0].append(2)
    return len(a) * x, b[0] is b[1], b


@construct(LISTS)
def unpacking(x):
    first, *middle, last = [1, x, 3, 4]
    (p, q), r = (x, 2), 3
    return first * middle[0] + last + q + r, middle[1:]


@construct(LISTS)
def index_error_caught(x):
    a = [1]
    try:
        a[5]
    except IndexError as error:
        return x * 2, str(error)


@construct(LISTS)
def value_errors_caught(x):
    n = 0
    for action in (lambda: [1].remove(2), lambda: [1].index(5), lambda: [].pop(), lambda: (1,).index(3)):
        try:
            action()
        except (ValueError, IndexError) as error:
            n += len(str(error))
    return x * n


@construct(LISTS)
def mutated_while_iterated(x):
    a = [1, 2, 3]
    out = []
    for v in a:
        out.append(v)
        if v == 1:
            a.remove(1)
    return x * len(out), out


@construct(LISTS)
def list_methods_by_class(x):
    a = [3, 1]
    list.append(a, 2)
    list.sort(a)
    return x * list.__len__(a), a, list.pop(a)


@construct(LISTS)
def aggregate_builtins(x):
    a = [3, 1, 2]
    return x * max(a) + min(a) + sum(a) + len(a) + any(a) + all(a), max(a, key=lambda v: -v), min([], default=4), sum([[1], [2]], []), max("ab", "b")


@construct(LISTS)
def zip_enumerate_map_filter(x):
    a = [1, 2, 3]
    return (x * sum(i * v for i, v in enumerate(a, 1)), list(zip(a, "abc")), list(map(operator.add, a, a)), list(filter(None, [0, 1, 2])),
            dict(zip("ab", a)), [*zip(*[(1, 2), (3, 4)])], list(reversed(a)), list(zip([1, 2], [3, 4], strict=True)))


# ---- tuples

Pair = collections.namedtuple("Pair", "x y", defaults=[5])


class Typed(typing.NamedTuple):
    a: object
    b: int = 3

    def total(self):
        return self.a + self.b

    @property
    def twice(self):
        return self.b * 2


@construct(TUPLES)
def operations(x):
    t = (1, 2) + (x,)
    u = t * 2
    return u[2] * len(u), t[:2], t.index(2), (1, 2, 1).count(1), (1, 2) < (1, 3), hash((1, 2)) == hash((1, 2)), 2 in t[:2], tuple("ab")


@construct(TUPLES)
def named_tuples(x):
    p = Pair(x)
    q = p._replace(y=7)
    return q.x * q.y + p.y, q._asdict(), Pair._fields, Pair._make([1, 2]), Pair(1, 2) == (1, 2), p[1], len(q)


@construct(TUPLES)
def typed_named_tuples(x):
    t = Typed(x)
    a, b = t
    return t.total() + t.twice + b, t._replace(b=1), Typed(1, b=4), Typed._field_defaults


@construct(TUPLES)
def named_tuple_from_keywords_and_unpacking(x):
    p = Pair(**{"x": x, "y": 2})
    return p.x + p.y, Pair(*p), isinstance(p, tuple), p + (1,), p[::-1], repr(Pair(1, 2))


@construct(TUPLES, breaks=None)
def named_tuple_repr_error_and_class(x):
    try:
        Pair()
    except TypeError as error:
        return x + len(str(error)), type(Pair(1)).__name__


# ---- dicts

@construct(DICTS)
def get_set_delete(x):
    d = {"a": x, "b": 2}
    d["c"] = 3
    del d["b"]
    d["a"] = d["a"] * d.get("c") + d.get("zz", 4)
    return d, "a" in d, len(d), d.get("nothing") is None


@construct(DICTS)
def update_setdefault_pop_popitem(x):
    d = dict(a=1)
    d.update({"b": 2}, c=3)
    d.update([("e", 5)])
    d.update(zip("f", [6]))
    s = d.setdefault("b", 9) + d.setdefault("d", 4)
    return x * s + d.pop("a") + d.pop("q", 7), d.popitem(), d


@construct(DICTS)
def union_operators(x):
    d = {"a": 1} | {"b": x}
    d |= {"c": 3}
    d |= [("e", 1)]
    return d["b"] * d["c"], d


@construct(DICTS)
def views_and_their_operations(x):
    d = {"a": 1, "b": 2}
    k = d.keys()
    d["c"] = 3
    return (x * len(k) + ("c" in k) + (3 in d.values()) + (("a", 1) in d.items()), sorted(k & {"a", "z"}), sorted(k | {"z"}),
            sorted(d.keys() - ["a"]), list(d.items()), k == {"a", "b", "c"}, d.items() == {"a": 1, "b": 2, "c": 3}.items(), k.isdisjoint(["q"]))


@construct(DICTS)
def views_follow_the_dict(x):
    d = {"a": x}
    values, items = d.values(), d.items()
    d["b"] = 2
    return sum(values), len(items), [k for k, v in items], list(reversed(d))


@construct(DICTS)
def iteration_order(x):
    d = {}
    for k in ("z", "a", "m"):
        d[k] = len(d)
    d["z"] = 9
    del d["a"]
    d["a"] = 1
    return x * d["a"], list(d), [f"{k}{v}" for k, v in d.items()]


@construct(DICTS)
def comprehension_and_merging(x):
    d = {k: v for k, v in zip("abc", range(3))}
    e = {**d, "a": x, **{"z": 1}}
    return e["a"] + sum(d.values()), {v: k for k, v in d.items()}, dict(d, q=1), {**e}["z"]


@construct(DICTS)
def fromkeys_copy_clear(x):
    d = dict.fromkeys("ab", 0)
    e = d.copy()
    d.clear()
    return x + len(d) + len(e), e, dict.fromkeys([1, 2])


@construct(DICTS)
def dict_of_arrays_by_tuple_keys(x):
    d = {(i, j): x * i + j for i in range(2) for j in range(2)}
    return d[1, 1] + d[0, 1], list(d)


@construct(DICTS)
def equality(x):
    return x + ({"a": 1, "b": 2} == {"b": 2, "a": 1}) + ({"a": [1]} == {"a": [1]}) * 2 + ({} != {1: 2}) * 4


@construct(DICTS)
def mixed_keys(x):
    d = {1: "a", 1.0: "b", True: "c", None: 2, "k": 3, (1, "x"): 4, frozenset([1]): 5, int: 6, len: 7, ...: 8}
    return x * len(d) + d[None] + d[int] + d[len] + d[frozenset([1])] + d[...], d[1], list(d)[0]


@construct(DICTS)
def key_error_caught(x):
    try:
        {"a": 1}["b"]
    except KeyError as error:
        return x * 2, error.args, str(error)


@construct(DICTS)
def changed_while_iterated(x):
    d = {"a": 1, "b": 2}
    try:
        for k in d:
            d[k + k] = 1
    except RuntimeError as error:
        return x + 1, str(error)
    return x


@construct(DICTS, breaks=None)
def keys_replaced_while_iterated(x):
    d = {0: 0}
    try:
        for i in d:
            del d[0]
            d[0] = 0
    except RuntimeError as error:
        return x + 1, str(error)
    return x


class Reversed(dict):
    def keys(self):
        return reversed(list(dict.keys(self)))

    __iter__ = keys


@construct(DICTS)
def dict_of_a_dict_that_iterates_in_its_own_way(x):
    return x * len(dict(Reversed(a=1, b=2))), dict(Reversed(a=1, b=2))


@construct(DICTS)
def keyword_arguments_in_and_out(x):
    def g(*args, k=1, **kw):
        kw["z"] = k
        return kw, args

    d = {"k": 2, "b": x}
    kw, args = g(1, 2, **d)
    return kw["b"] * kw["z"] + len(args), d, sorted(kw)


@construct(DICTS)
def dict_in_itself_by_a_list(x):
    d = {"items": []}
    d["items"].append(x)
    d["items"].append(d)
    return d["items"][1]["items"][0] * 2


@construct(DICTS)
def dict_of_sequences_and_nested_defaults(x):
    d = {}
    for i, name in enumerate(["a", "b", "a"]):
        d.setdefault(name, []).append(x * i)
    return {k: sum(v) for k, v in d.items()}


# ---- sets

@construct(SETS)
def add_discard_remove_pop(x):
    s = {1, 2}
    s.add(3)
    s.discard(9)
    s.remove(1)
    t = {7}
    return x * len(s) + (2 in s) + t.pop() + len(t), s


@construct(SETS)
def operators(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    return x * len(a | b) + len(a & b), a - b, a ^ b, a <= b, a < (a | b), {1} >= {1}, a == {3, 2, 1}, a != b


@construct(SETS)
def in_place_operators(x):
    a = {1, 2, 3}
    alias = a
    a |= {4}
    a &= {1, 2, 4}
    a -= {1}
    a ^= {9}
    return x * len(a), alias, alias is a


@construct(SETS)
def methods(x):
    a = {1, 2}
    a.update([3], (4,))
    b = a.copy()
    a.intersection_update({1, 2, 3})
    a.difference_update([1])
    a.symmetric_difference_update({8})
    return (x * len(a) + len(b), a.union([1], [2]), a.intersection(b), a.difference(b), a.symmetric_difference({2}), a.issubset(b),
            b.issuperset(a), a.isdisjoint({77}), sorted(b))


@construct(SETS)
def frozensets(x):
    f = frozenset([1, 2])
    return x * len(f) + (1 in f), f | {3}, f & {1}, {f: 2}[frozenset([2, 1])], hash(f) == hash(frozenset({1, 2})), f == {1, 2}, type(f | {3}) is frozenset


@construct(SETS)
def comprehension_and_conversion(x):
    s = {i % 3 for i in range(7)}
    return x * sum(s), sorted(s), set("aab") == {"a", "b"}, len(set()), list({5}), tuple(sorted({2, 1}))


@construct(SETS)
def iteration_over_ints(x):
    total = 0
    for v in {3, 1, 2}:
        total = total * 10 + v
    return x * total, list({8, 0, 16}), [v for v in frozenset([4, 2])]


@construct(SETS)
def of_strings_and_tuples(x):
    s = {"a", ("b", 1)}
    s.add(None)
    return x + len(s) + ("a" in s) + (("b", 1) in s)


@construct(SETS)
def min_max_sum_any(x):
    s = {3, 1}
    return x * max(s) + min(s) + sum(s) + any(s) + all(s)


@construct(SETS)
def key_error_of_remove(x):
    try:
        {1}.remove(2)
    except KeyError as error:
        return x * error.args[0]


# ---- collections

@construct(COLLECTIONS)
def ordered_dict(x):
    d = collections.OrderedDict(a=x, b=2)
    d["c"] = 3
    d.move_to_end("a")
    first = d.popitem(last=False)
    return d["a"] * d["c"], list(d), first, d


@construct(COLLECTIONS)
def ordered_dict_methods(x):
    d = collections.OrderedDict([("p", 1), ("q", x)])
    d.update(r=3)
    d.setdefault("s", 4)
    d.move_to_end("r", last=False)
    e = d.copy()
    e.pop("p")
    return e["q"] + len(d), list(d), list(e.values())[0], d == e, list(reversed(e))


@construct(COLLECTIONS)
def ordered_dict_equality(x):
    a, b = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    return x + (a == b) + (a == {"b": 2, "a": 1}) * 2


@construct(COLLECTIONS)
def default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(x * 2)
    d["b"]
    return sum(d["a"]), len(d), d.get("zz"), d, "q" in d


@construct(COLLECTIONS)
def default_dict_of_ints_and_lambdas(x):
    d = collections.defaultdict(int)
    for c in "abca":
        d[c] += 1
    e = collections.defaultdict(lambda: x, k=1)
    return e["new"] * d["a"] + e["k"], dict(d), d.default_factory is int


@construct(COLLECTIONS)
def nested_default_dict(x):
    d = collections.defaultdict(lambda: collections.defaultdict(float))
    d["a"]["b"] += 2.5
    return x * d["a"]["b"] + len(d)


@construct(COLLECTIONS, breaks=None)
def counter(x):
    c = collections.Counter("abca")
    c["z"] += 2
    c.update(["a"])
    return x * c["a"] + c["missing"], c.most_common(1), sorted(c.elements())[:2], c.total()


@construct(COLLECTIONS)
def counter_arithmetic(x):
    a, b = collections.Counter(a=3, b=1), collections.Counter(a=1, c=2)
    a.subtract(b)
    return x * (a + b)["a"], a & b, a | b, +a, a == b


@construct(COLLECTIONS)
def deques(x):
    d = collections.deque([1, 2])
    d.append(x)
    d.appendleft(0)
    d.rotate(1)
    d.extend([5, 6])
    d.extendleft([7])
    return d[1] + d.popleft() + d.pop() * len(d) if d[0] == 7 else x, d


@construct(COLLECTIONS)
def bounded_deque(x):
    d = collections.deque(maxlen=2)
    for i in range(4):
        d.append(x * i)
    return sum(d), len(d), d.maxlen, list(d)[0]


@construct(COLLECTIONS)
def deque_items_and_methods(x):
    d = collections.deque([1, 2, 3, 2])
    d[0] = 9
    d.remove(3)
    d.reverse()
    d.insert(1, 4)
    return x * d.count(2) + d.index(9), list(d), 4 in d, d == collections.deque([2, 4, 2, 9]), list(reversed(d)), d.copy(), bool(d)


@construct(COLLECTIONS)
def chain_map(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": x})
    return m["b"] * m["a"] + ("zz" in m)


@construct(COLLECTIONS)
def user_dict_and_user_list(x):
    d = collections.UserDict(a=x)
    d["b"] = 2
    items = collections.UserList([1, 2])
    items.append(3)
    return d["a"] * d["b"] + len(items)


# ---- from outside

def outside(name):
    return construct(OUTSIDE, name, state=True)


@outside("list changed")
def _():
    values = [1, 2, 3]

    def f(x):
        values.append(4)
        values[0] = 10
        values.sort(reverse=True)
        del values[1]
        return x * values[0] + len(values)

    return f, values


@outside("list reached in two ways")
def _():
    inner = [1]
    holder = {"a": inner, "b": [inner, inner]}

    def f(x):
        holder["a"].append(len(inner))
        holder["b"][0].append(5)
        return x * sum(holder["b"][1]), holder["a"] is inner

    return f, holder


@outside("dict changed")
def _():
    d = {"a": 1, "b": 2}

    def f(x):
        d["n"] = d.get("n", 0) + 1
        d.pop("a", None)
        d.setdefault("z", []).append(3)
        return x * d["n"] + len(d["z"])

    return f, d


@outside("dict iterated and changed")
def _():
    d = {"a": 1, "b": 2}

    def f(x):
        for k in list(d):
            d[k] += 1
        return x * sum(d.values()), {k: v for k, v in d.items()}

    return f, d


@outside("set changed")
def _():
    s = {1, 2}

    def f(x):
        s.add(len(s) + 1)
        s.discard(1)
        return x * len(s) + (2 in s)

    return f, s


@outside("set read")
def _():
    s, names = {1, 2, 3}, frozenset(["a", "b"])

    def f(x):
        return x * len(s) + (2 in s) + ("a" in names) + (9 not in s), sorted(s), s | {5}

    return f, s


@outside("deque changed")
def _():
    d = collections.deque([1, 2], maxlen=3)

    def f(x):
        d.append(len(d))
        d.popleft()
        return x * d[0] + len(d)

    return f, d


@construct(OUTSIDE, "deque of NumPy scalars as a history", state=True, breaks=None)
def _():
    d = collections.deque(maxlen=2)

    def f(x):
        d.append(x.mean() * 2)
        return sum(d)

    return f, d


@outside("OrderedDict changed")
def _():
    d = collections.OrderedDict(a=1, b=2)

    def f(x):
        d["c"] = d["a"] + 1
        d.move_to_end("a")
        return x * d["c"], list(d)

    return f, d


@outside("OrderedDict iterated")
def _():
    d = collections.OrderedDict(a=1, b=2)
    d.move_to_end("a")

    def f(x):
        return x * sum(d.values()) + len(d), [k for k in d], list(d.items())

    return f, d


@outside("defaultdict changed")
def _():
    d = collections.defaultdict(list)

    def f(x):
        d["a"].append(x.shape[0])
        return x * len(d["a"]) + ("b" in d)

    return f, d


@outside("Counter changed")
def _():
    c = collections.Counter("ab")

    def f(x):
        c["a"] += 1
        c.update("bq")
        return x * c["a"] + c["none"]

    return f, c


@outside("dict subclass")
def _():
    class Bag(dict):
        def total(self):
            return sum(self.values())

    b = Bag(a=1)

    def f(x):
        b["k"] = b.get("k", 0) + 2
        return x * b.total() + len(b)

    return f, b


@outside("list subclass")
def _():
    class Stack(list):
        def push(self, v):
            self.append(v)

    s = Stack([1])

    def f(x):
        s.push(2)
        return x * s[-1] + len(s)

    return f, s


@outside("named tuple")
def _():
    p = Pair([1], 2)

    def f(x):
        p.x.append(p.y)
        return x * len(p.x) + p.y

    return f, p


@outside("iterator of a list")
def _():
    values = [1, 2, 3]

    def f(x):
        it = iter(values)
        first = next(it)
        return x * first + sum(it), next(it, 9)

    return f, values


@outside("global and nonlocal names")
def _():
    count = 0
    log = []

    def f(x):
        nonlocal count
        count += 1
        log.append(count)
        return x * count

    return f, log


@outside("mapping proxy")
def _():
    import types
    m = types.MappingProxyType({"a": 2})

    def f(x):
        return x * m["a"] + len(m) + ("b" in m)

    return f, None


COUNT = 0
LOG = []


@construct(OUTSIDE, state=True)
def globals_written():
    names = {"COUNT": 0, "LOG": []}
    exec("def f(x):\n    global COUNT\n    COUNT += 1\n    LOG.append(COUNT)\n    return x * COUNT", names)
    names.pop("__builtins__")
    f = names.pop("f")
    return f, names


@construct(OUTSIDE, state=True)
def globals_deleted_and_made():
    names = {}
    exec("def f(x):\n    global T\n    T = x * 2\n    y = T + 1\n    del T\n    return y", names)
    f = names.pop("f")
    names.pop("__builtins__")
    return f, names


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)
