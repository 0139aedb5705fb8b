"""Python numbers that a compiled piece computes: elements read from arrays, numbers drawn, and floats made of these."""
import math
import sys
import types

import numpy as np
import pytest

import framejit
from harness import both_libraries, needs_torch, same_as_eager, torch

X = np.linspace(-1, 2, 12).reshape(3, 4)


@both_libraries
def test_an_element_becomes_a_python_number(lib):
    def f(x, n, b):
        return x * 2, x.mean().item(), float(x.sum()), n.sum().item(), int(n[0]), b[0].item(), float(n[1]), float(b[1]), int(b[1])

    run = same_as_eager(f, lib.array(X), lib.array(np.arange(3)), lib.array(np.array([True, False])), breaks=())
    assert len(run.graphs) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "uint32", "bool"])
def test_an_element_of_any_dtype(dtype):
    def f(x):
        return x[:1], x[2].item(), float(x[1]), x[:1].item(), x[1:2, None].item()

    same_as_eager(f, np.arange(5).astype(dtype), breaks=())


def test_what_has_other_numbers_is_left_to_python():
    def f(x):
        return x + 1, x[0].item()

    same_as_eager(f, np.arange(3).astype(np.uint64) + 2 ** 63, breaks=["ScalarFromArray"])
    same_as_eager(f, np.arange(3) * 1j, breaks=["ScalarFromArray"])

    def g(x):
        y = x + 1
        return y, y.item()

    for _ in range(2):
        with pytest.raises(ValueError, match="can only convert an array of size 1"):
            framejit.compile(g)(X)


def test_an_int_of_a_float_is_left_to_python():
    def f(x):
        return x * 2, int(x[0, 0] * 10)

    same_as_eager(f, X, breaks=["ScalarFromArray"])
    with pytest.raises(OverflowError):
        framejit.compile(f)(X * np.inf)


def test_computing_with_such_numbers():
    def f(x, scale):
        mean = x.mean().item()
        spread = math.sqrt(float(((x - mean) ** 2).mean())) + scale
        return (x - mean) / (spread + 1e-8), spread, abs(mean), -mean, mean < spread, mean == mean, 1 >= mean, mean != 0

    for scale in (0.5, 0.25, 0.125):
        run = same_as_eager(f, X, scale, breaks=())
    assert run.graphs


def test_where_python_raises_so_does_the_compiled_piece():
    def f(x, log):
        log.append("before")
        x += 1
        root = math.sqrt(x[0].item())
        log.append(root)
        return x / root

    def divides(x):
        x += 1
        return x, 1 / float(x[0])

    for function, arguments in ((f, ([],)), (divides, ())):
        for values in ([3.0, 1.0], [-5.0, 1.0], [-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]):
            same_as_eager(function, np.array(values), *arguments, fallback=True, breaks=())


def test_a_comparison_with_an_int_no_float_holds_is_left_to_python():
    def f(x):
        return x + 1, float(x[0]) < 2 ** 53 + 1, float(x[0]) == 2 ** 53 + 1

    same_as_eager(f, np.array([2.0 ** 53, 1.0]))


def test_a_branch_on_such_a_number_goes_on_in_python():
    def f(x):
        mean = float(x.mean())
        if mean > 0.25:
            return x - mean
        return x + mean

    for factor in (1.0, -1.0):
        same_as_eager(f, X * factor, breaks=["BranchOnData"])


# ---- numbers drawn

G = np.random.default_rng(3)
R = np.random.RandomState(3)
DRAWS = {
    "rand": lambda x: x * np.random.rand(), "random": lambda x: x + np.random.random(), "uniform": lambda x: x + np.random.uniform(-1, 1),
    "normal": lambda x: x * np.random.normal(0, 2), "randint": lambda x: (x * 2, np.random.randint(0, 10)), "state": lambda x: x + R.standard_normal(),
    "generator": lambda x: x + G.normal(), "random of one": lambda x: x + G.random(), "integers": lambda x: (x * 2, G.integers(0, 9), G.integers(5) * 1.5),
    "binomial": lambda x: (x * 2, G.binomial(10, 0.5)), "many": lambda x: (x + G.random() * G.normal(1.5, 0.5) + np.random.rand(3, 1) * np.random.rand(), G.random(2)),
    "permutation": lambda x: (x[np.random.permutation(3)], G.permutation(4), G.permutation(x.shape[0])),
}


def drawn(function, calls=3):
    np.random.seed(5)
    R.seed(5)
    G.bit_generator.state = np.random.default_rng(5).bit_generator.state
    results = [function(X.copy()) for _ in range(calls)]
    return results, np.random.get_state()[1:], R.get_state()[1:], G.bit_generator.state


def same(a, b):
    if isinstance(b, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, dict):
        return all(same(a[key], b[key]) for key in b)
    if isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.allclose(a, b, rtol=1e-14)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", DRAWS)
def test_one_number_is_drawn_as_eager_draws_it(name):
    compiled = framejit.compile(DRAWS[name])
    expected = drawn(DRAWS[name])
    assert same(drawn(compiled), expected)
    report = framejit.explain(compiled).so_far()
    assert report.breaks == [] and len(report.graphs) == 1, report


@pytest.mark.parametrize("draw", [lambda x: G.choice([1.5, 2.5]) + x, lambda x: np.random.normal([0, 1]) + x[0, :2], lambda x: x + G.normal(size=()),
                                  lambda x: x + G.integers(5, dtype=np.int32), lambda x: np.random.permutation(x), lambda x: np.random.permutation([3, 4, 5]) + x[:, 0],
                                  lambda x: x[G.permutation([2, 1, 0])], lambda x: x + np.random.normal(np.zeros(4), 1)])
def test_other_draws_are_as_eagers_too(draw):
    assert same(drawn(framejit.compile(draw)), drawn(draw))


def test_a_parameter_that_changes_from_call_to_call_is_compiled_once():
    def f(x, spread):
        return x + np.random.normal(0, spread, 4) * spread

    def run(function):
        np.random.seed(1)
        return [function(X, 0.5 ** k) for k in range(12)]

    compiled = framejit.compile(f)
    assert same(run(compiled), run(f))
    assert len(framejit.explain(compiled).so_far().graphs) <= 2


def test_a_draw_before_a_failure_is_not_made_twice():
    def f(x, i):
        noise = np.random.rand()
        return x[i] + noise, np.random.rand()

    def run(function):
        np.random.seed(1)
        seen = []
        for k in (0, 7, 1):
            try:
                seen.append(function(X, np.array([k])))
            except IndexError as error:
                seen.append(str(error))
        return seen, np.random.get_state()[1:]

    assert same(run(framejit.compile(f)), run(f))


# ---- attributes of modules, cached functions after effects

def test_an_attribute_of_a_users_module_is_assigned_in_the_graph():
    def outcome(wrap):
        settings = types.ModuleType("settings_of_the_user")
        settings.calls, settings.last = 0, None
        exec("def scale(x):\n    return x * calls\n", vars(settings))

        def f(x):
            settings.calls += 1
            y = settings.scale(x)
            settings.last = y
            settings.fresh = settings.calls * 2
            return y, settings.fresh

        compiled = wrap(f)
        results = [compiled(X) for _ in range(4)]
        assert settings.last is results[-1][0]
        return results, settings.calls, settings.fresh, list(vars(settings)), compiled

    *ours, compiled = outcome(framejit.compile)
    *eager, _ = outcome(lambda f: f)
    assert same(ours, eager)
    report = framejit.explain(compiled).so_far()
    assert report.breaks == [] and len(report.graphs) <= 2, report


def test_an_attribute_of_a_library_is_assigned_by_python():
    def f(x):
        before, sys.framejit_test = getattr(sys, "framejit_test", 0), 3
        y = x + sys.framejit_test
        del sys.framejit_test
        return y, before

    same_as_eager(f, X, breaks=["UnsupportedObject", "UnsupportedObject"])


def test_a_cached_function_is_asked_after_effects_only_while_its_cache_holds_the_answer():
    import functools

    log = []

    @functools.lru_cache(maxsize=2)
    def size(n):
        log.append(("size", n))
        return n * 2

    def f(x, n):
        log.append("before")
        return x * size(n)

    compiled = framejit.compile(f)
    eager_log = []
    for call, n in enumerate([3, 3, 3, 4, 5, 3, 3]):
        log.clear()
        np.testing.assert_array_equal(compiled(X, n), X * n * 2)
        eager_log.append(list(log))
    ran = [("size", n) for n in (3, 4, 5, 3)]
    assert eager_log == [["before", ran[0]], ["before"], ["before"], ["before", ran[1]], ["before", ran[2]], ["before", ran[3]], ["before"]]
    assert size.cache_info()[:2] == (3, 4)


# ---- depth

def test_compiled_functions_calling_each_other_end_in_a_recursion_error():
    @framejit.compile
    def f(n, then):
        sys.getswitchinterval()
        return 0 if n == 0 else then(n - 1, then) + 1

    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(200_000)
        with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
            f(150_000, f)
        assert f(50, f) == 50
    finally:
        sys.setrecursionlimit(before)


def test_a_power_by_a_number_that_turns_out_to_be_a_half():
    """NumPy takes the square root there, which keeps the sign of zero and knows no root of minus infinity."""
    x = np.array([-0.0, -np.inf, 4.0])
    for m in (0.5, 2.0, 0.25, 1.0, -1.0):
        same_as_eager(lambda x, m: x ** m[0].item(), x, np.array([m]))


def exact(f, numbers):
    """The counts after calls with each number; every result is Python's to the last bit."""
    framejit.reset()
    compiled = framejit.compile(f)
    for n in numbers:
        results = []
        for run in (compiled, f):
            try:
                results.append(run(X, n))
            except ArithmeticError as error:
                results.append((X, type(error), str(error)))
        np.testing.assert_array_equal(results[0][0], results[1][0])
        assert [(type(v), v.hex() if isinstance(v, float) else v) for v in results[0][1:]] == [
            (type(v), v.hex() if isinstance(v, float) else v) for v in results[1][1:]], n
    return framejit.cache_info()


# What of an int gives a float: the quotient is rounded once, the power is C's.
OF_AN_INT = {
    "quotient": lambda x, n: (x * (n / 10), n / 7, n / 3.0),
    "quotient of a number": lambda x, n: (x * (10 / n), 2.5 / n),
    "quotient of two": lambda x, n: (x + n / (n + 7), (n - 1) / (n * n)),
    "quotient of large ints": lambda x, n: (x * 2, (n * 2**40 + 1) / (n * 3 + 2**20)),
    "power": lambda x, n: (x * 0.9**n, 1.0001**n, (-0.5)**n, 2.0**-n),
    "root": lambda x, n: (x * n**-0.5, n**0.3, math.sqrt(n), abs(-n / 3)),
    "float()": lambda x, n: (x * float(n), float(n), float(n) ** -1.5, -float(n)),
    "sum and product": lambda x, n: (x - n * 0.1, n + 0.3, 0.7 - n, 1e-3 * (n + 1) * 2.5),
    "a schedule": lambda x, n: (x * (1e-3 * (1 - n / 2**32) ** 0.9),),
}


@pytest.mark.parametrize("name", OF_AN_INT)
def test_a_float_made_of_an_int_that_varies_is_computed(name):
    info = exact(OF_AN_INT[name], [*range(1, 60), 1023, *([] if "of two" in name or "large" in name else [2**31 - 1])])
    assert info["graphs"] == 2 and info["breaks"] == 0


def test_a_float_made_of_a_size_is_computed():
    framejit.reset()
    f = lambda x: (x / math.sqrt(x.shape[0]), x * (1 / x.size), x.shape[0] * 0.5)  # noqa: E731
    compiled = framejit.compile(f)
    for n in range(1, 12):
        x = np.linspace(1, 2, n)
        for ours, eager in zip(compiled(x), f(x)):
            np.testing.assert_array_equal(ours, eager)
    assert framejit.cache_info()["graphs"] == 2


def test_an_int_that_no_double_holds_is_divided_by_python():
    exact(lambda x, n: (x + 1, (n * 2**58 + 1) / 3, (n * 2**58 + 1) / (n * 2**57 + 3)), range(1, 12))


def test_where_python_raises_so_do_we():
    exact(lambda x, n: (x * (1 / (n - 4)), n / 4), range(2, 9))
    exact(lambda x, n: (x * (2.5 / (n - 4)), 1), range(2, 9))
    exact(lambda x, n: (x * 10.0**n, 10.0**n), range(300, 315))
    exact(lambda x, n: (x, 0.0**n), [2, 1, 0, -1, -2])
    exact(lambda x, n: (x, type((n - 4) ** 0.5), (n - 4) ** 0.5), range(2, 9))


# What has to be known of it is: the int is guarded by its value.
KNOWN = {
    "branch": lambda x, n: (x * 2 if n / 10 > 0.5 else x, n / 4 == 1, not n / 3),
    "int()": lambda x, n: (x * int(n / 3), round(n / 3, 1), math.floor(n * 0.5), (n / 2) // 1, (n / 2) % 1, divmod(n / 2, 1)),
    "text and keys": lambda x, n: (x * 2, f"{n / 3:.2f}", str(n / 4), {n / 2: n}),
    "functions of C": lambda x, n: (x * math.cos(math.pi * n / 12), math.exp(n / 5)),
    "identity and kind": lambda x, n: (x * 2, isinstance(n / 2, float), (n / 2).is_integer(), n / 2 is None),
    "powers of an array": lambda x, n: (np.round(abs(x) ** (n / 4), 9),),
    "an array's dtype": lambda x, n: ((x * 9).astype(int) * 1 + np.array(n / 4),),
    "a library call": lambda x, n: (np.percentile(x, n / 4) + np.full(3, n / 4),),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_asked_of_a_float_made_of_an_int_is_answered(name):
    exact(KNOWN[name], [1, 2, 3, 4, 5, 2, 6, 1])


@needs_torch
def test_such_a_float_in_torch():
    def f(x, n):
        y = x.half() * (n / 10) + torch.add(x, x, alpha=n / 4).half()
        return y, x.clamp(max=n / 5), x.abs() ** (n / 4), torch.full((2,), n / 3), torch.where(x > n / 9, x, n / 7), x.int() * (n / 3)

    framejit.reset()
    compiled = framejit.compile(f)
    for n in [1, 2, 3, 4, 8, 2, 5]:
        x = torch.linspace(-2, 3, 7)
        for ours, eager in zip(compiled(x, n), f(x, n)):
            torch.testing.assert_close(ours, eager)
            assert ours.dtype == eager.dtype


def test_no_graph_for_numbers_alone():
    framejit.reset()
    f = framejit.compile(lambda n: 0.9**n / (n + 1))
    assert [f(n) for n in range(1, 5)] == [0.9**n / (n + 1) for n in range(1, 5)]
    assert framejit.cache_info()["graphs"] == 0


@needs_torch
def test_a_derivative_beside_such_a_float():
    weight = torch.ones(4, requires_grad=True)

    def f(x, n):
        return ((weight * x).tanh() * 0.9**n + weight * (n / 10) + weight ** (n / 3)).sum()

    framejit.reset()
    compiled = framejit.compile(f)
    for n in range(1, 8):
        x = torch.linspace(-1, 1, 4) + n
        results = [run(x, n) for run in (compiled, f)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(result, weight) for result in results))
    info = framejit.cache_info()
    assert info["graphs"] == 2 and info["breaks"] == 0 and info["eager_replays"] == 0


INTO_TENSORS = """
    m[2] = v
    m[:] = v
    m[m > 0] = v
    m.fill_(v)
    m.masked_fill_(m > 0, v)
    m = m.masked_fill(m > 0, v)
    m = m.clamp(max=v)
    m = torch.clamp_min(m, v)
    m = torch.where(m > 0, m, v)
    m = torch.full((3,), v, dtype=m.dtype)
    m = torch.full_like(m, v)
    m = m.new_full((2,), v)
    m = m.new_tensor(v)
    m = torch.tensor(v, dtype=m.dtype) + m
    m = torch.tensor([v, 1], dtype=m.dtype)
    m = torch.add(m, 1, alpha=v)
    m = torch.sub(m, m, alpha=v)
    m.add_(1, alpha=v)
    m = torch.nn.functional.pad(m, (1, 1), value=v)
    m = m + v
    m = m == v
    m = m < v
    m = m * v
    m = v - m
    m = m // v
    m = m.index_fill(0, torch.tensor([0]), v)
""".strip().splitlines()
INTO_ARRAYS = """
    m[2] = v
    m[:] = v
    m[m > 0] = v
    m.fill(v)
    m = m + v
    m = np.full((3,), v, dtype=m.dtype)
    m = np.where(m > 0, m, v)
    m = m.clip(None, v)
    m = np.full_like(m, v)
    m = np.array([v, 1], dtype=m.dtype)
    np.copyto(m, v)
    m = np.pad(m, 1, constant_values=v)
    m = np.arange(v, v + 3, dtype=m.dtype)
    m = m == v
    m = v - m
    np.add.at(m, [0], v)
    m = np.append(m, v)
""".strip().splitlines()
STORES = [pytest.param(torch, text.strip(), marks=needs_torch) for text in INTO_TENSORS]
STORES += [(np, text.strip()) for text in INTO_ARRAYS]


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("library, statement", STORES)
def test_ints_that_change_and_have_no_place_in_a_dtype_raise(library, statement, dtype):
    """The first ones fit: what follows is asked of each call's number."""
    space = {"torch": torch, "np": np}
    exec(f"def f(m, n):\n    v = n + {2**31 - 1}\n    {statement}\n    return m", space)
    f, offset = space["f"], 1 - 2**31
    compiled = framejit.compile(f, retire=False)
    for n in (offset, offset + 1, offset + 2, offset + 100, offset + 200, offset - 1, 0, 1, 5, 2**31):
        found = []
        for function in (f, compiled):
            m = library.arange(1, 5, dtype=getattr(library, dtype))
            try:
                result = function(m, n)
                found.append((type(result), result.dtype, result.tolist(), m.tolist()))
            except Exception as error:
                found.append((type(error), str(error), m.tolist()))
        assert found[1] == found[0], n
    assert framejit.cache_info()["internal_errors"] == 0


@pytest.mark.parametrize("f", [lambda x, b: np.clip(x, 0, b), lambda x, b: np.clip(x, None, b),
                               lambda x, b: np.clip(x, b, None)])
@pytest.mark.parametrize("bound", [np.array([1, 2], "int8"), np.array(2, "float32"), np.float16(3), 2, 2.5])
def test_what_clip_is_given_first_has_a_dtype(f, bound):
    """A Python number too, unlike the bounds."""
    compiled = framejit.compile(f, retire=False)
    for x in (3, 4, 2.5, 3.5, np.int8(3), True, np.ones(2, "float32"), [1, 2]):
        ours, eager = compiled(x, bound), f(x, bound)
        assert type(ours) is type(eager) and ours.dtype == eager.dtype and repr(ours) == repr(eager)
