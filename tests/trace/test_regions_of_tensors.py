"""Loops over elements of torch's tensors, as machine code: views, tensors that are computed, stores and their versions."""
import math
import weakref

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")


def compiled_with_regions(function, **options):
    return framejit.compile(function, retire=True, **options)


def regions_entered(function, *arguments):
    before = framejit.cache_info()["regions_entered"]
    result = function(*arguments)
    return result, framejit.cache_info()["regions_entered"] - before


def same(ours, eager):
    if isinstance(eager, (tuple, list)):
        return len(ours) == len(eager) and all(map(same, ours, eager))
    if isinstance(eager, torch.Tensor):
        return type(ours) is type(eager) and ours.dtype == eager.dtype and ours.shape == eager.shape and ours._version == eager._version and torch.equal(ours, eager)
    return type(ours) is type(eager) and ours == eager


def items(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i].item() * 0.1
    return total


def numbers_become_tensors(x, y):
    total = 0
    for i in range(x.shape[0]):
        total += x[i]
    return total


def new_tensors(x, y):
    total = torch.zeros((), dtype=x.dtype)
    for i in range(x.size(0)):
        total = total + 1 / (x[i] * 2 - 300) - y[i] / 3
    return total


def changed_tensors(x, y):
    total = torch.zeros((), dtype=x.dtype)
    for i in range(x.numel()):
        total += x[i]
        total *= 0.5
    return total


def running(x, y):
    total = 0.0
    for i in range(len(x)):
        total = total + x[i].item()
        y[i] = total
    return y


def neighbours(x, y):
    for i in range(1, len(x) - 1):
        x[i] = (x[i - 1] + x[i + 1]) / 2 - y[i] ** 2
    return x


def in_place(x, y):
    for i in range(len(x)):
        x[i] += i
        x[i] *= y[i]
    return x


def largest(x, y):
    best, at = x[0], 0
    for i in range(1, len(x)):
        if x[i] > best:
            best, at = x[i], i
    return best, at


def extremes(x, y):
    low, high = math.inf, x[0]
    for i in range(len(x)):
        low = min(low, x[i].item())
        high = max(high, y[i])
    return low, high


def rows(x, y):
    m, count = x.reshape(-1, 10), 0
    for i in range(m.shape[0]):
        row = m[i]
        for j in range(m.shape[1]):
            if row[j] > 0 and (row[j] < 2) & (y[j] != 0):
                count += 1
        for v in row:
            count -= bool(v)
    return count


def scattered(x, y):
    k = torch.arange(len(x)) % 7
    h = torch.zeros(7, dtype=torch.int64)
    for i in range(len(k)):
        h[k[i]] += 1
    return h


def shared(x, y):
    t = x[0] * 2
    u = t
    for i in range(len(x)):
        t += x[i]
        if i % 3 == 0:
            u = t
    t += 1
    return t, u, t is u


def bubble(x, y):
    for i in range(20):
        for j in range(20 - i - 1):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1].item(), x[j].item()
    return x


def functions(x, y):
    total = 0.0
    for i in range(len(x)):
        total += math.sqrt(abs(x[i])) + float(y[i]) + int(x[i]) - (-x[i]).item() + x[i].abs().item()
    return total


def over_rows(x, y):
    total, last = 0.0, None
    for i, v in enumerate(x):
        if v > 0:
            total += v.item() * i
            last = v
        v *= 2
    for row, v in zip(x.reshape(-1, 4), y):
        total = total + row[1] * v - row[-1]
    return total, last, x


def helped(x, y):
    def add(e, f):
        e += f
        return e

    total = x[0] * 1
    for i in range(len(x)):
        add(total, y[i])
        add(x[i], 1)
    return total, x


def outcome(function, *arguments):
    """What a call returns, or the error it raises."""
    try:
        return function(*arguments)
    except (RuntimeError, ValueError, IndexError) as error:
        return type(error), str(error)


LOOPS = [items, numbers_become_tensors, new_tensors, changed_tensors, running, neighbours, in_place, largest, extremes, rows, scattered, shared, bubble, functions, over_rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("function", [*LOOPS, helped], ids=lambda f: f.__name__)
def test_loops_over_elements_give_what_eager_gives(function, dtype):
    compiled = compiled_with_regions(function)

    def arguments():
        generator = torch.Generator().manual_seed(3)
        return [(torch.randn(400, generator=generator) * 5).to(dtype), (torch.randn(400, generator=generator) * 3).to(dtype)]

    entered = 0
    for _ in range(3):
        ours, eager = arguments(), arguments()
        result, entered = regions_entered(outcome, compiled, *ours)
        assert same(result, outcome(function, *eager)) and same(ours, eager)
    if dtype != torch.int64 and function is not helped:
        assert entered > 0


@pytest.mark.parametrize("layout", ["transposed", "stepped", "expanded", "overlapping", "view"])
def test_tensors_of_any_strides(layout):
    def f(x, y):
        for i in range(x.shape[0]):
            y[i] = x[i] * 2 + y[i - 1]
        return y, y._version

    def arguments():
        base = torch.arange(200.0)
        if layout == "transposed":
            m = base.reshape(20, 10)
            return m[:, 3], m.t()[4]
        if layout == "stepped":
            return base[::4], base[1::4]
        if layout == "expanded":
            return base[5].expand(50), base[10:60]
        return (base[:100], base[50:150]) if layout == "overlapping" else (base[:50], base[100:150])

    compiled = compiled_with_regions(f)
    for _ in range(3):
        ours, eager = arguments(), arguments()
        (result, version), entered = regions_entered(compiled, *ours)
        expected, expected_version = f(*eager)
        assert torch.equal(result, expected) and version == expected_version and torch.equal(ours[0], eager[0])
        assert entered > 0


def test_a_view_is_read_where_it_is_used():
    def f(x):
        t = x[0]
        for i in range(len(x)):
            x[0] = i
            x[i] = t + 1
        return t, t.item()

    compiled = compiled_with_regions(f)
    for _ in range(3):
        ours, eager = torch.zeros(40), torch.zeros(40)
        assert same(compiled(ours), f(eager)) and same(ours, eager)
    result = compiled(ours)[0]
    assert result._base is ours and result.shape == ()


def test_what_autograd_has_saved_and_a_loop_has_written_is_an_error_of_backward():
    def f(x):
        for i in range(len(x)):
            x[i] = 0.0

    compiled = compiled_with_regions(f)
    for _ in range(3):
        x, w = torch.ones(50), torch.ones(50, requires_grad=True)
        loss = (w * x).sum()
        _, entered = regions_entered(compiled, x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert entered > 0


def total(x):
    s = 0.0
    for i in range(len(x)):
        s = s + x[i] * 2
    return s


def test_gradients_go_through_loops_as_eager_has_them():
    compiled = compiled_with_regions(total)
    compiled(torch.ones(40))
    for _ in range(3):
        x = torch.arange(40.0, requires_grad=True)
        compiled(x).backward()
        assert x.grad.tolist() == [2.0] * 40
    with torch.no_grad():
        assert not compiled(x).requires_grad


def test_other_meanings_of_torchs_operations_are_eagers():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            Counts.count += 1
            return function(*arguments, **(keywords or {}))

    compiled = compiled_with_regions(total)
    x = torch.arange(40)
    for _ in range(3):
        compiled(x)
    _, entered = regions_entered(compiled, x)
    assert entered == 1
    with Counts():
        total(x)
        expected, Counts.count = Counts.count, 0
        compiled(x)
        assert Counts.count == expected
    torch.set_default_dtype(torch.float64)
    try:
        assert same(compiled(x), total(x))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        made = torch.ones(40)
        assert same_in_inference(compiled(made), total(made))
    assert same(torch.func.vmap(compiled)(torch.ones(3, 40)), torch.func.vmap(total)(torch.ones(3, 40)))

    class Mine(torch.Tensor):
        pass

    assert type(compiled(torch.ones(40).as_subclass(Mine))) is Mine


def same_in_inference(ours, eager):
    return ours.is_inference() and eager.is_inference() and torch.equal(ours, eager)


@pytest.mark.parametrize("index", [50, -51, 10**12])
def test_errors_are_eagers_and_what_was_stored_before_stays(index):
    def f(x, k):
        for i in range(len(x)):
            x[i] = i
            if i == 30:
                x[k] = 1
        return x

    compiled = compiled_with_regions(f)
    for _ in range(3):
        compiled(torch.zeros(50), 3)
    ours, eager = torch.zeros(50), torch.zeros(50)
    expected = outcome(f, eager, index)
    assert expected[0] is IndexError and outcome(compiled, ours, index) == expected and same(ours, eager)


@pytest.mark.parametrize("value", [1e39, -1e39, 3.4028235e38, 3.4028235677973366e38, math.inf, math.nan, 2**60 + 1, True])
def test_numbers_that_a_type_does_not_hold_are_torchs(value):
    def f(x, v):
        for i in range(len(x)):
            x[i] = v if i > 20 else 0.0
        return x

    compiled = compiled_with_regions(f)
    for v in (0.5, value, value):
        ours, eager = torch.zeros(50), torch.zeros(50)
        results = [outcome(compiled, ours, v), outcome(f, eager, v)]
        for values in (ours, eager):
            values.nan_to_num_(7.0)
        assert same(*results) and same(ours, eager)


def test_ints_beyond_63_bits_are_torchs():
    def f(x, q):
        for i in range(len(x)):
            x[i] = q
        return x

    compiled = compiled_with_regions(f)
    for q in (2, 2**63 - 1, 2**63, 2**64 - 1, 2**63):
        ours, eager = torch.zeros(40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
        assert same(outcome(compiled, ours, q), outcome(f, eager, q)) and same(ours, eager)


def test_a_weak_reference_sees_when_a_tensor_ends():
    def f(x, n):
        t = torch.ones(())
        alive, ended, s = weakref.ref(t), 0, 0.0
        for i in range(n):
            if i == 30:
                ended += alive() is None
            s += x[i].item()
            t = x[i]
        return ended, s

    compiled = compiled_with_regions(f)
    for n in (31, 31, 40, 40):
        assert compiled(torch.ones(40), n) == f(torch.ones(40), n) == (1, float(n))


def test_iterators_that_are_left_in_the_middle_go_on():
    def f(m):
        found = []
        for i in range(m.shape[0]):
            for v in m[i]:
                if v > 8:
                    found.append(v)
                    print(end="")
                v *= 2
        return found, m

    compiled = compiled_with_regions(f)
    for _ in range(3):
        assert same(compiled(torch.arange(60.0).reshape(20, 3) % 10), f(torch.arange(60.0).reshape(20, 3) % 10))


def test_who_holds_rows_sees_them_change():
    def f(x, k):
        rows, found = x.unbind(), []
        for v in rows:
            v += 1
            if v.item() == k:
                found.append(v)
        for v in x:
            if v.item() == k:
                found.append(v)
                break
            v += 1
        for v in rows[:5]:
            v *= 2
        return found, rows, x, [v is w for v in found for w in rows]

    compiled = compiled_with_regions(f)
    for k in (3, 30, 41, 50):
        assert same(compiled(torch.arange(50.0), k), f(torch.arange(50.0), k))


def read_rows(make):
    total = 0.0
    for v in make():
        total += v.item()
    return total


def written_rows(make):
    total = 0.0
    for v in make():
        total += v.item()
        v += 1
    return total


@pytest.mark.parametrize("function", [read_rows, written_rows], ids=lambda f: f.__name__)
@pytest.mark.parametrize("rows", ["rows", "others", "one twice", "two tensors", "gradient", "none"])
def test_tuples_of_tensors_are_rows_or_left_to_cpython(rows, function):
    x, y = torch.arange(60.0), torch.arange(60.0)
    makers = {
        "rows": lambda: x,
        "others": lambda: iter((x[3], x[1], x[2], *x[5:40:3])),
        "one twice": lambda: iter((x[4],) * 30),
        "two tensors": lambda: iter(tuple(v for pair in zip(x, y) for v in pair)),
        "gradient": lambda: iter(torch.ones(40, requires_grad=True).unbind()),
        "none": lambda: iter(tuple(torch.tensor(float(k)) for k in range(40))),
    }
    compiled = compiled_with_regions(function)
    for _ in range(4):
        results = []
        for call in (compiled, function):
            x.copy_(torch.arange(60.0)), y.copy_(torch.arange(60.0))
            result, entered = regions_entered(outcome, call, makers[rows])
            results.append((result, x.tolist(), y.tolist()))
            if call is compiled:
                assert (entered > 0) == (rows == "rows")
        assert results[0] == results[1]


def last_unpacked(m):
    for i in range(m.shape[0]):
        a, b, c = m[i]
    return a, c


def last_of_rows(m):
    for i in range(m.shape[0]):
        for v in m[i]:
            if v.item() == 31:
                last = v
    return (last,)


def last_above(m):
    for v in m[:, 0]:
        if v.item() > 31:
            last = v
    return (last,)


def last_row(m):
    for i in range(m.shape[0]):
        r = m[i]
    for i in range(m.shape[0]):
        u = m[i, 1]
    return r, u


@pytest.mark.parametrize("function", [last_unpacked, last_of_rows, last_above, last_row], ids=lambda f: f.__name__)
def test_what_unbind_gives_is_its_output_where_a_loop_is_left(function):
    """Eager changes no output of it in place once a gradient is recorded, and any other view."""
    compiled, weight = compiled_with_regions(function), torch.ones((), requires_grad=True)
    for _ in range(3):
        ours, entered = regions_entered(compiled, torch.arange(90.0).reshape(30, 3))
        eager = function(torch.arange(90.0).reshape(30, 3))
        assert entered > 0 and same(ours, eager)
        changed = outcome(eager[-1].mul_, weight)
        assert same(outcome(ours[-1].mul_, weight), changed) and (function is last_row) == isinstance(changed, torch.Tensor)


def test_a_search_through_rows_is_eagers_after_some_calls():
    def f(x):
        for i, v in enumerate(x):
            if v > 0.5:
                return i

    compiled = compiled_with_regions(f)
    for k in (5, 300, 3) * 40:
        x = torch.zeros(2000)
        x[k] = 1
        found, entered = regions_entered(compiled, x)
        assert found == k
    assert entered == 0


def test_threads_read_tensors():
    def f(x):
        s = 0.0
        for i in framejit.prange(len(x)):
            s += x[i].item()
        return s

    def g(x):
        for i in framejit.prange(len(x)):
            x[i] = i
        return x._version

    x = torch.arange(50000) % 16 * 0.25
    compiled = compiled_with_regions(f, tier="optimised")
    for _ in range(3):
        assert compiled(x) == f(x)
    assert any("on several threads" in loop for loop in framejit.explain(compiled)(x).loops)
    compiled = compiled_with_regions(g)
    assert [compiled(torch.zeros(300)) for _ in range(3)] == [300] * 3
    assert any("versions are counted" in loop for loop in framejit.explain(compiled)(torch.zeros(300)).loops)
