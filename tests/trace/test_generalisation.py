"""A recompile only where the code looked, and a second miss of a leaf generalises it."""
import numpy as np
import pytest

import framejit
from harness import Outcome, compare, needs_torch, torch  # noqa: F401

X = np.linspace(1.0, 2.0, 5)


def graphs_for(function, argument_lists):
    """Calls with every list of arguments, compared with the function; the counts afterwards."""
    framejit.reset()
    compiled = framejit.compile(function)
    for arguments in argument_lists:
        compare(Outcome(compiled, arguments, {}), Outcome(function, arguments, {}))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0
    return info


class Counted:
    """A class that counts its calls, with what it counts not looked at by what is compiled."""

    calls, factor = 0, 3.0

    def scale(self, x):
        return x * self.factor


def test_a_class_attribute_nobody_looked_at_may_change():
    framejit.reset()
    compiled = framejit.compile(Counted().scale)
    for _ in range(20):
        Counted.calls += 1
        assert (compiled(X) == X * 3).all()
    info = framejit.cache_info()
    assert info["segments"] == 1 and info["recompiles"] == 0


@pytest.mark.parametrize("change", ["Base.factor = 5.0", "Derived.factor = 7.0", "Derived.__getattribute__ = Odd.__getattribute__",
                                    "Derived.factor = property(lambda self: 9.0)", "Derived.__bases__ = (Other,)",
                                    "thing.factor = 11.0", "Base.apply = lambda self, x: x - 1", "Kind.__set__ = Kind.put"])
def test_a_class_attribute_that_was_looked_at_is_seen(change):
    space = {"X": X}
    exec("""
class Kind:
    def __get__(self, thing, type): return 2.0
    def put(self, thing, value): pass
class Odd:
    def __getattribute__(self, name): return object.__getattribute__(self, name) if name != "factor" else 13.0
class Root: pass
class Base(Root):
    factor, kind = 3.0, Kind()
    def apply(self, x): return x * self.factor + self.kind
class Other(Root):
    factor, kind = 4.0, Kind()
    def apply(self, x): return x / self.factor + self.kind
class Derived(Base):
    def apply(self, x): return super().apply(x) + isinstance(self, Base)
thing = Derived()
thing.__dict__["kind"] = 6.0
def f(x): return thing.apply(x)
""", space)
    framejit.reset()
    compiled = framejit.compile(space["f"])
    for step in ("pass", change, "Root.calls = 1", "Derived.unrelated = 1"):
        exec(step, space)
        for _ in range(3):
            compare(Outcome(compiled, (X,), {}), Outcome(space["f"], (X,), {}))
    info = framejit.cache_info()
    assert info["internal_errors"] == 0 and info["recompiles"] <= 1


class Thing:
    def __init__(self, k):
        self.k, self.name, self.rate = k, "n" * k, k / 7


SIZES = (5, 6, 7, 1, 0, 8)
LEAVES = {
    "int": (lambda x, k: x * k, [(X, k) for k in range(20)]),
    "int_attribute": (lambda x, a: x * a.k, [(X, Thing(k)) for k in range(20)]),
    "item_of_dict": (lambda x, d: x * d["k"], [(X, {"k": k}) for k in range(20)]),
    "item_of_tuple": (lambda x, t: x * t[0] + t[1], [(X, (k, k + 1)) for k in range(20)]),
    "index": (lambda x, i: x[i] * 2, [(X, k % 5) for k in range(20)]),
    "end_of_slice": (lambda x, i: x[:i] * 2, [(X, k % 5) for k in range(20)]),
    "size": (lambda x: x * 2 + 1, [(np.ones(n),) for n in SIZES]),
    "size_reduced": (lambda x: (x * 2).sum(), [(np.ones(n),) for n in SIZES]),
    "size_of_two": (lambda x, y: x + y.sum(), [(np.ones(n), np.ones((3, n))) for n in SIZES]),
    "size_used_as_number": (lambda x: x * x.shape[0] + x.size, [(np.ones(n),) for n in SIZES]),
    "string_unused": (lambda x, s: x * 2, [(X, str(k)) for k in range(20)]),
    "string_length": (lambda x, s: x * len(s), [(X, "a" * k) for k in range(1, 21)]),
    "bytes_length": (lambda x, s: x + len(s), [(X, b"a" * k) for k in range(1, 21)]),
    "string_length_of_attribute": (lambda x, a: x * len(a.name) + len(a.name), [(X, Thing(k)) for k in range(20)]),
    "string_compared": (lambda x, s: x * 2 if s == "7" else x * 3, [(X, str(k)) for k in range(20)]),
    "string_among": (lambda x, s: x * 2 if s in ("relu", "gelu") else x * 3, [(X, str(k)) for k in range(20)]),
    "float": (lambda x, k: x * k + 1, [(X, k + 0.5) for k in range(20)]),
    "float_of_float32": (lambda x, k: x * k + 1, [(X.astype(np.float32), k + 0.1) for k in range(20)]),
    "float_returned_too": (lambda x, k: (x / k, k), [(X, k + 0.5) for k in range(20)]),
    "float_attribute": (lambda x, a: x - a.rate * x, [(X, Thing(k)) for k in range(20)]),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_second_miss_of_a_leaf_generalises_it(name):
    function, argument_lists = LEAVES[name]
    info = graphs_for(function, argument_lists)
    assert info["graphs"] <= 2 and info["recompiles"] <= 1 and info["eager_replays"] == 0


def test_a_first_call_without_array_work_decides_for_such_calls_only():
    def f(x, k):
        return None if k is None else x * k

    info = graphs_for(f, [(X, None)] * 3 + [(X, 3.0)] * 3 + [(X, None)] * 3)
    assert info["graphs"] == 1 and info["segments"] == 2 and info["hits"] == 7


def test_a_float_that_varies_keeps_its_special_values():
    specials = [1.5, 2.5, 0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-310, 1e300]
    for x in (X, X.astype(np.float32), X.astype(np.float16), np.arange(5)):
        for under in ("ignore", "warn"):  # np.where casts a Python number as an array: that reports underflow, ufuncs don't
            with np.errstate(under=under):
                graphs_for(lambda x, k: (x * k, k + x, x < k, np.where(x > 1, k, x), np.pad(x, 1, constant_values=k if x.dtype.kind == "f" else 1)),
                           [(x, k) for k in specials])


@needs_torch
def test_a_float_that_varies_is_a_number_to_torch():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool):
        x = torch.tensor([0.0, 1, 2, 3]).to(dtype)
        info = graphs_for(lambda x, k: (x * k, k / (x + 1.0), torch.where(x > 1, x * 1.0, k), torch.clamp(x * 1.0, max=k)),
                          [(x, k) for k in (1.5, 2.5, 0.1, -0.0, float("nan"), float("inf"), 7.25)])
        assert info["graphs"] <= 8


@needs_torch
def test_a_learning_rate_that_decays_is_one_graph():
    def step(w, g, rate):
        return w - rate * g

    info = graphs_for(step, [(torch.ones(4), torch.ones(4), 0.1 * 0.9 ** k) for k in range(20)])
    assert info["graphs"] == 2 and info["recompiles"] == 1 and info["eager_replays"] == 0


def test_a_float_that_decides_is_guarded_by_value():
    info = graphs_for(lambda x, k: x * k if k > 3 else x + k, [(X, k + 0.5) for k in range(6)])
    assert info["internal_errors"] == 0


def test_giving_up_is_said_once_with_the_table_of_misses():
    def f(x, s):
        return x * (2.0 if s.upper() == s else 3.0)

    framejit.reset()
    compiled = framejit.compile(f)
    for k in range(30):
        compare(Outcome(compiled, (X, f"a{k}"), {}), Outcome(f, (X, f"a{k}"), {}))
    fallbacks = framejit.explain(compiled).so_far().fallbacks
    assert len(fallbacks) == 1
    assert "recompile_limit (8) reached" in fallbacks[0]
    assert "L.s missed 8 times: 'a1', 'a2', 'a3', 'a4', ..." in fallbacks[0] and "test_generalisation.py:" in fallbacks[0]
    assert framejit.cache_info()["segments"] == 8


def small_functions(count):
    """So many, and the bytes that the piece of one counts."""
    framejit.reset()
    functions = [eval(f"lambda x: x * {k} + 1") for k in range(count)]
    compiled = [framejit.compile(f) for f in functions]
    for f in compiled:
        f(X)
    one = framejit.cache_info()["bytes"] // count
    assert one > 500 and framejit.cache_info()["dropped_segments"] == 0
    framejit.reset()
    return functions, one


def test_caches_are_bounded_in_bytes_and_the_least_recently_used_goes():
    functions, one = small_functions(12)
    compiled = [framejit.compile(f, kept_bytes=one * 6) for f in functions]
    for f, plain in zip(compiled, functions):
        assert (f(X) == plain(X)).all()
        assert (compiled[0](X) == functions[0](X)).all()  # used all the time: stays
        assert framejit.cache_info()["bytes"] <= one * 8
    info = framejit.cache_info()
    assert info["segments"] == 12 and info["dropped_segments"] >= 5 and info["kept_segments"] <= 7
    # What was dropped is compiled again.
    assert (compiled[1](X) == functions[1](X)).all()
    assert framejit.cache_info()["segments"] == 13


def test_pieces_that_are_dropped_and_made_again_leave_few_graphs():
    """Of one function hundreds were kept, which no bound counted."""
    functions, one = small_functions(4)
    compiled = [framejit.compile(f, kept_bytes=one) for f in functions]
    for _ in range(40):
        for f, plain in zip(compiled, functions):
            assert (f(X) == plain(X)).all()
    assert framejit.cache_info()["segments"] > 120
    assert all(0 < len(framejit.explain(f).so_far().graphs) <= 10 for f in compiled)


def counted(source, arguments=(X,), after=lambda result: None, **names):
    """The bytes that the pieces of a new function count."""
    framejit.reset()
    namespace = dict(names)
    exec(source, namespace)
    compiled = framejit.compile(namespace["f"])
    after(compiled(*arguments))
    return framejit.cache_info()["bytes"]


def test_the_bytes_of_a_piece_grow_with_operations_and_guards_and_pieces():
    def chain(length):
        return "def f(x):\n" + "".join(f"    x = x * {k}.25 + 1.5\n" for k in range(length)) + "    return x\n"

    def sums(count):
        names = [f"k{i}" for i in range(count)]
        return counted(f"def f(x):\n    return x * ({' + '.join(names)} + 3.75)\n", **dict.fromkeys(names, 1))

    # A node is more than its own struct and its type, a guard more than its own.
    assert counted(chain(40)) - counted(chain(20)) > 40 * 300
    assert sums(40) - sums(10) > 30 * 300
    whole = "def f(x):\n    x = x * 2.125\n    return x + 3.375\n"
    assert counted(whole.replace("    return", "    print(end='')\n    return")) > counted(whole)


@needs_torch
def test_a_backward_counts_when_it_is_compiled():
    given = {"arguments": (torch.ones(4),), "w": torch.ones(4, requires_grad=True)}
    source = "def f(x):\n    return ((x * 4.625 * w).tanh() * 5.875).sum()\n"
    assert counted(source, after=lambda result: result.backward(), **given) > counted(source, **given) + 1000


def test_an_axis_marked_dynamic_is_a_symbol_from_the_first_call():
    def f(x):
        return (x * 2).sum(1)

    framejit.reset()
    compiled = framejit.compile(f)
    for n in (5, 6, 1, 0, 9):
        x = np.ones((n, 4))
        framejit.mark_dynamic(x, 0)
        compare(Outcome(compiled, (x,), {}), Outcome(f, (x,), {}))
    info = framejit.cache_info()
    assert info["graphs"] == 1 and info["recompiles"] == 0
    for wrong, error in (((3,), TypeError), ((X, 1), IndexError), ((X, -2), IndexError)):
        with pytest.raises(error):
            framejit.mark_dynamic(*wrong)


def test_bounds_of_a_dim_decide_what_follows_from_them():
    def f(x, y):
        if x.shape[0] > 1 and x.shape[0] != 200 and 3 * x.shape[0] - 2 <= 300:
            return x * 2 + y
        return x

    framejit.reset()
    compiled = framejit.compile(f)
    rows = framejit.Dim("rows", min=2, max=100)

    def call(n, marked=True):
        x, y = np.ones((n, 4)), np.ones((n, 4))
        if marked:
            framejit.mark_dynamic(x, {0: rows})
            framejit.mark_dynamic(y, {-2: rows})
        compare(Outcome(compiled, (x, y), {}), Outcome(f, (x, y), {}))

    for n in (5, 2, 100, 64):
        call(n)
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert info["graphs"] == 1 and info["recompiles"] == 0
    relations = [guard for guard in report.guards.all if guard.startswith("s0 ")]
    assert relations == ["s0 >= 2", "s0 <= 100"], report.guards
    # Outside of the bounds: another graph, and right.
    for n in (1, 101, 200, 0, 300):
        call(n, marked=False)
    assert framejit.cache_info()["internal_errors"] == 0


def test_sizes_that_share_a_dim_may_differ():
    def f(x, y):
        return x.sum() + y.sum()

    framejit.reset()
    compiled = framejit.compile(f)
    for n, m in ((3, 3), (4, 4), (4, 5), (6, 7)):
        x, y = np.ones(n), np.ones(m)
        for array in (x, y):
            framejit.mark_dynamic(array, {0: framejit.Dim("n")})
        assert compiled(x, y) == n + m
    assert framejit.cache_info()["graphs"] == 2


def test_a_wrong_dim_says_why():
    for arguments, error, text in (((3,), TypeError, "the name is a str"), (("n", 1.5), TypeError, "a bound is an int"),
                                   (("n", 3, 2), ValueError, "at least 3 and at most 2"),
                                   (("n", -1), ValueError, "at least -1"), (("n", 0, 2**80), ValueError, "without a max"),
                                   (("n", 2**63), ValueError, "without a max")):
        with pytest.raises(error, match=text):
            framejit.Dim(*arguments)
    with pytest.raises(ValueError, match="axis 0 has 3 elements, which is outside of framejit.Dim"):
        framejit.mark_dynamic(np.ones((3, 2)), {0: framejit.Dim("n", min=4)})
    for axes, text in (({0: "n"}, "axis 0 is given a framejit.Dim, not 'n'"), ([0], r"an axis is an int, not \[0\]"), (True, "an axis is an int, not True"),
                       ({"rows": framejit.Dim("n")}, "an axis is an int, not 'rows'")):
        with pytest.raises(TypeError, match=text):
            framejit.mark_dynamic(np.ones((3, 2)), axes)


def test_dynamic_true_and_false():
    sizes = [(np.ones(n),) for n in (5, 6, 1, 0)]
    for dynamic, graphs in ((True, 1), (False, 4)):
        framejit.reset()
        compiled = framejit.compile(lambda x: x * 2, dynamic=dynamic)
        for (x,) in sizes:
            assert (compiled(x) == x * 2).all()
        assert framejit.cache_info()["graphs"] == graphs


def test_a_relation_the_code_forces_is_a_guard_with_its_line():
    def f(x, y):
        if x.shape[0] == y.shape[0]:
            return x * 2
        return x + y.shape[0] if x.shape[0] % 8 == 0 else x - 1

    info = graphs_for(f, [(np.ones(n), np.ones(m)) for n, m in ((8, 8), (9, 9), (3, 4), (5, 6), (7, 7), (16, 3), (24, 5), (1, 1), (1, 2))])
    assert info["graphs"] <= 5
    compiled = framejit.compile(f, dynamic=True)
    compiled(np.ones(3), np.ones(3))
    assert "s0 == s1" in framejit.explain(compiled).so_far().guards
    compiled(np.ones(3), np.ones(4))
    (recompile,) = framejit.explain(compiled).so_far().recompiles
    assert "s0 == s1 no longer holds" in recompile and "test_generalisation.py:" in recompile and "now   3 against 4" in recompile


DATA_DEPENDENT = {
    "nonzero": lambda x: np.nonzero(x * 2 > 3)[0] + 1,
    "mask": lambda x: (x * 2)[x > 1.5] * 2 + 1,
    "compress": lambda x: (x * 2).compress(x > 1.5) - 1,
}


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_a_size_that_depends_on_data_is_a_size_of_the_graph(name):
    info = graphs_for(DATA_DEPENDENT[name], [(X,), (X + 0.3,), (np.linspace(0.0, 4.0, 9),)] * 2)
    assert info["breaks"] == 0 and info["graphs"] == 2 and info["eager_replays"] == 0, info


def test_a_size_that_only_the_library_knows_is_a_break_that_goes_on():
    info = graphs_for(lambda x: np.unique(np.round(x), axis=0) * 2, [(X,), (X + 0.3,), (np.linspace(0.0, 4.0, 9),)] * 2)
    assert info["breaks"] >= 1 and info["graphs"] >= 2


@needs_torch
def test_torchs_questions_whether_code_is_traced_are_answered_as_in_eager_code():
    def f(x):
        factor = 2.0 if torch.compiler.is_compiling() and torch.compiler.is_dynamo_compiling() else 1.0
        assert not torch.jit.is_tracing() and not torch.jit.is_scripting() and not torch.compiler.is_exporting()
        return x * factor, framejit.is_compiling()

    framejit.reset()
    compiled = framejit.compile(f)
    x = torch.ones(3)
    assert (compiled(x)[0] == 1).all() and compiled(x)[1] is True
    assert (f(x)[0] == 1).all() and f(x)[1] is False
    assert framejit.cache_info()["breaks"] == 0


def test_fullgraph_explains_the_first_break_and_runs_nothing_before_it():
    out = []

    def f(x):
        y = x * 2
        out.append(1)
        framejit.graph_break()
        return y + 1

    with pytest.raises(framejit.GraphBreakError) as error:
        framejit.compile(f, fullgraph=True)(X)
    assert "FJ113" in str(error.value) and "test_generalisation.py" in str(error.value) and out == []
    assert (framejit.compile(lambda x: x * 2, fullgraph=True)(X) == X * 2).all()


def shapes_alone(x):
    return x.shape[0] * 2 + x.ndim, [n for n in range(3)]


def branches_on_a_number(n):
    return f"{n} is odd" if n % 2 else n // 2


@pytest.mark.parametrize("f, arguments", [
    (shapes_alone, (X,)), (branches_on_a_number, (7,)), (branches_on_a_number, (8,)), (lambda x: x, (X,)),
    (lambda x: (x[1:3], x[None].T), (X,)), (lambda *given, **named: (given, named), (1, "two")), (lambda: None, ())])
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"follow": True}], ids=str)
def test_what_needs_no_graph_is_whole(f, arguments, options):
    compiled = framejit.compile(f, **options)
    for _ in range(3):
        compare(Outcome(compiled, arguments, {}), Outcome(f, arguments, {}))
    report = framejit.explain(compiled).so_far()
    assert (report.graphs, report.breaks, report.fallbacks) == ([], [], [])
    assert "no graph is needed: " in report.text() and framejit.explain(f)(*arguments).text().count("no graph is needed") == 1


@needs_torch
def test_views_of_tensors_need_no_graph_until_something_is_computed():
    def f(x, k):
        return x[k].view(-1) if k else x + 1

    x = torch.ones(3, 2)
    compiled = framejit.compile(f, fullgraph=True)
    view = compiled(x, 2)
    assert view.data_ptr() == x[2].data_ptr() and view._base is x
    assert torch.equal(compiled(x, 0), x + 1)
    report = framejit.explain(compiled).so_far()
    assert len(report.graphs) == 1 and not report.breaks and "no graph is needed" not in report.text()


def test_a_break_without_a_graph_is_a_break():
    def f(n):
        framejit.graph_break()
        return n + 1

    with pytest.raises(framejit.GraphBreakError, match="FJ113"):
        framejit.compile(f, fullgraph=True)(3)
    assert "no graph is needed" not in framejit.explain(f)(3).text()


@needs_torch
def test_a_number_that_does_not_fit_is_refused_as_eager_refuses_it():
    x = torch.tensor([0.0, 1, 2, 3])
    for f in (lambda x, k: torch.where(x > 1, x, k), lambda x, k: x.masked_fill(x > 1, k), lambda x, k: torch.full((3,), k) + x[:3],
              lambda x, k: x * k + k / (x + 1)):
        graphs_for(f, [(x, k) for k in (1.5, 2.5, 1e300, 0.5, -1e300)])
        graphs_for(f, [(x, 1e300), (x.half(), 70000.0), (x.half(), 1.5)])


@needs_torch
def test_parameters_whose_sizes_change_with_the_input_s():
    def f(x, y, weight, bias):
        return x + torch.nn.functional.layer_norm(y, (y.shape[-1],), weight, bias)

    framejit.reset()
    compiled = framejit.compile(f)
    for n, k in ((8, 3), (16, 4), (24, 5)):
        arguments = [torch.randn(2, n, k), torch.randn(2, n, k), torch.randn(k), torch.randn(k)]
        gradients = []
        for run in (f, compiled):
            leaves = [array.clone().requires_grad_() for array in arguments]
            run(*leaves).square().sum().backward()
            gradients.append([leaf.grad for leaf in leaves])
        for eager, ours in zip(*gradients):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    info = framejit.cache_info()
    assert info["graphs"] == 2 and info["internal_errors"] == 0


LAYOUTS = {
    "zeros": lambda x: torch.zeros(3, x.shape[1]).stride(), "sum": lambda x: (x + 1).stride(), "turned": lambda x: (x.T + 1).stride(),
    "like": lambda x: torch.empty_like(x).stride(), "copy": lambda x: x.T.clone().stride(), "joined": lambda x: torch.cat([x, x], 1).stride(0),
    "itself": lambda x: x.stride(), "its transpose": lambda x: x.T.stride(), "NumPy's": lambda x: (x.numpy().T + 1).strides,
    "NumPy's zeros": lambda x: np.zeros((3, x.shape[1])).strides,
}


@needs_torch
@pytest.mark.parametrize("sizes", [(4, 5, 0, 1, 6), (0, 1, 5, 6, 1, 0)], ids=str)
@pytest.mark.parametrize("function", LAYOUTS.values(), ids=LAYOUTS)
def test_strides_that_are_read_are_eager_s_at_sizes_0_and_1_too(function, sizes):
    graphs_for(function, [(torch.ones(3, n),) for n in sizes])


# Python's ints have any number of bits; an int argument that changed is a symbol of 31.
WIDE = {
    "cube": ("x + i * i * i * i", [1, 2, 3, 1000, 10**4, 10**5]),
    "coefficient": ("x + i * i * 1024", [1, 2, 3, 2**30]),
    "divisor": ("x / (i * i * i * i)", [2, 3, 4, 60000]),
    "sum": ("x + float(i * 2**62 + i * 2**61 + i)", [1, 2, 3, 4]),
    "squares": ("x * (i * i + i * i + i * i + i * i)", [3, 4, 5, 2**31 - 1]),
    "size": ("x + len(x) * i * 2**33", [1, 2, 3, 2**28]),
    "compared": ("x if i * i * i * i > 10**19 else -x", [1, 2, 3, 60000]),
    "returned": ("(i * i * i * i, x)", [1, 2, 3, 10**5]),
    "negated": ("(-(i * i * 2 + i * 2), x)", [1, 2, 3, -2**31 + 1, 2**31 - 1]),
    "remainder": ("x + (i * i * 3 + 7) % (i * i + 1)", [2, 3, 4, -5, 2**31 - 1, -2**31, -2**63]),
    "quotient": ("x + (i - 2**62) // (i * i + 1)", [2, 3, 4, -5, 2**31 - 1, -2**31]),
    "enumerated": ("[n for n, _ in enumerate((1, 2, 3), i * 2**31 * 2)] + [x]", [1, 2, 3, 2**30]),
}


@pytest.mark.parametrize("name", WIDE)
def test_arithmetic_on_ints_has_no_last_bit(name):
    expression, values = WIDE[name]
    scope = {}
    exec(f"def f(i, x):\n    return {expression}", scope)
    graphs_for(scope["f"], [(i, X) for i in values])


def test_doubling_and_squaring_in_a_loop_leave_64_bits():
    def doubled(i, x):
        for _ in range(40):
            i = i + i
        return i, x * 2

    def squared(i, x):
        for _ in range(6):
            i = i * i
        return i, x * 2

    for function in (doubled, squared):
        graphs_for(function, [(i, X) for i in (1, 2, 3, 1000, 2**24)])


@pytest.mark.parametrize("operator", ["//", "%"])
def test_the_smallest_int_by_minus_one_does_not_trap(operator):
    scope = {}
    exec(f"def f(i, j, x):\n    return x + i {operator} j", scope)
    graphs_for(scope["f"], [(5, 2, X), (6, 3, X), (7, 4, X), (-2**63, -1, X), (-2**31, -1, X)])


def test_the_sign_plus_gives_the_same_number():
    def f(x, number):
        return +number is number, x * number

    graphs_for(f, [(X, number) for number in (1.5, 2.5, 3.5)] + [(X, number) for number in (1000, 2000, 3000)])


SCALARS = {
    "factor": lambda x, k: (x * k, k), "chain": lambda x, k: ((k + 0.5) * 2 - k / 4.0) * x, "among arrays": lambda x, k: (np.where(x > k, x, k), np.array([k, 1.0]), x ** k),
    "written": lambda x, k: (x.fill(k), x), "function": lambda x, k: np.sqrt(k) * x + np.maximum(x, k), "held": lambda x, k: {"k": [k, k], "x": x - k},
    "as float": lambda x, k: x * float(k), "attributes": lambda x, k: (x * k.astype(np.float32), k.dtype, k.shape),
}


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_of_numpy_that_varies_is_read_by_the_program(name, kind):
    for x in (X, X.astype(np.float32), np.arange(5)):
        info = graphs_for(SCALARS[name], [(x.copy(), kind(k)) for k in (1, 2, 3, 0, 100, 7)])
        assert info["graphs"] <= 2 or name == "as float", info


def test_an_int_of_numpy_that_varies_is_an_index():
    for f in (lambda x, k: x[k] * 2, lambda x, k: x[k:] + x[0], lambda x, k: x[:, None][k, 0] + x, lambda x, k: x * int(k), lambda x, k: x.reshape(k, -1) * 2):
        info = graphs_for(f, [(np.arange(12.0), np.int64(k)) for k in (1, 2, 3, 4, 6)])
        assert info["graphs"] <= 2 and info["breaks"] == 0, info


def test_a_scalar_of_numpy_that_decides_is_right():
    graphs_for(lambda x, k: x + 1 if k > 3 else x - k, [(X, np.float64(k)) for k in (1, 2, 7, 0, 5)])
    graphs_for(lambda x, k: x * max(k, 2) if k else x, [(X, np.int32(k)) for k in (1, 2, 7, 0, 5)])
    graphs_for(lambda x, k, n: x * n if k is n else x, [(X, *([np.float64(k)] * 2)) for k in (1, 2, 7)] + [(X, np.float64(1), np.float64(1))] * 2)


@pytest.mark.parametrize("function", [
    lambda x, y: (x * y + x) / (y + 2), lambda x, y: np.where(x > y, x, y * 2) - x.mean(axis=0), lambda x, y: np.concatenate([x, y]) * 2,
    lambda x, y: x.reshape(-1) + y.reshape(-1), lambda x, y: x * y.shape[0] + y,
])
def test_sizes_that_have_to_be_equal_are_one_symbol(function):
    def square(n):
        return np.arange(n * n, dtype=float).reshape(n, n), np.ones((n, n))

    framejit.reset()
    compiled = framejit.compile(function)
    for n in (3, 5):
        compiled(*square(n))
    before = framejit.cache_info()["kernels_launched"]
    constant = framejit.compile(function, dynamic=False)
    constant(*square(4))
    of_constants = framejit.cache_info()["kernels_launched"] - before
    for arguments in (square(7), square(1), square(0), square(4), (np.ones((3, 3)), np.ones((3, 1))), (np.ones((4, 2)), np.ones((4, 2)))):
        compare(Outcome(compiled, arguments, {}), Outcome(function, arguments, {}))
    before = framejit.cache_info()["kernels_launched"]
    compiled(*square(7))
    assert framejit.cache_info()["kernels_launched"] - before == of_constants


def drawn(*shape):
    return np.random.default_rng(0).random(shape)


def places(*shape):
    return np.random.default_rng(0).integers(0, 5, shape)


@pytest.mark.parametrize("function, sample", [
    (lambda i, w: np.bincount(i, weights=w), lambda n, m: (places(n), drawn(m))),
    (lambda i, w: np.bincount(i.ravel(), weights=w.ravel()), lambda n, m: (places(n, n), drawn(m, m))),
], ids=["bincount", "bincount of all"])
def test_two_sizes_that_the_library_wants_equal_may_change(function, sample):
    graphs_for(function, [sample(n, n) for n in (4, 6, 7, 3)] + [sample(5, 8), sample(9, 9)])


@needs_torch
@pytest.mark.parametrize("name", ["bincount", "vmap", "vmap of columns", "vmap twice", "vmap cat", "gradients by example", "jvp", "vjp", "hvp"])
def test_two_sizes_that_torch_wants_equal_may_change(name):
    def pairs(n, m):
        return torch.from_numpy(drawn(n, 2)), torch.from_numpy(drawn(m, 2))

    func = torch.func
    function, sample = {
        "bincount": (lambda i, w: torch.bincount(i, weights=w), lambda n, m: (torch.from_numpy(places(n)), torch.from_numpy(drawn(m)))),
        "vmap": (lambda x, y: func.vmap(lambda a, b: ((a * 2 - b) ** 2).sum())(x, y), pairs),
        "vmap of columns": (lambda x, y: func.vmap(lambda a, b: a @ b, in_dims=(0, 1))(x, y.T), pairs),
        "vmap twice": (lambda x, y: func.vmap(func.vmap(lambda a, b: a * b + b))(x, y), lambda n, m: (pairs(n, n)[0] @ pairs(n, n)[1].T,
                                                                                                     pairs(m, m)[0] @ pairs(m, m)[1].T)),
        "vmap cat": (lambda x, y: func.vmap(lambda a, b: torch.cat([a, b]))(x, y), pairs),
        "gradients by example": (lambda x, y: func.vmap(func.grad(lambda w, a, b: ((w * a - b) ** 2).sum()), in_dims=(None, 0, 0))(
            torch.ones(2, dtype=torch.float64), x, y), pairs),
        "jvp": (lambda x, y: func.jvp(torch.sin, (x,), (y,)), pairs),
        "vjp": (lambda x, y: func.vjp(torch.sin, x)[1](y), pairs),
        "hvp": (lambda x, y: func.jvp(func.grad(lambda a: (a ** 3).sum()), (x,), (y,)), pairs),
    }[name]
    function(*sample(2, 2))  # the first jvp of a process imports what warns
    graphs_for(function, [sample(n, n) for n in (4, 6, 7, 3)] + [sample(5, 8), sample(9, 9)])


def served_by_kinds(f, calls, rounds):
    """Compares `rounds` rounds of the calls with eager's; the pieces of f, and the counts."""
    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(rounds):
        for arguments in calls:
            compare(Outcome(compiled, arguments, {}), Outcome(f, arguments, {}))
    return compiled, framejit.cache_info()


def test_pieces_that_pay_for_themselves_are_no_storm():
    large = np.linspace(0, 1, 300_000)
    calls = [(large, f"a{k}") for k in range(20)]

    def f(x, s):
        return np.sin(x) * len(s) + (2.0 if s.upper() == s else 3.0)

    compiled, info = served_by_kinds(f, calls, 1)
    assert info["segments"] == 8
    compiled, info = served_by_kinds(f, calls, 12)
    assert info["segments"] == 20 == info["kept_segments"]
    before = framejit.cache_info()["hits"]
    for arguments in calls:
        compiled(*arguments)
    assert framejit.cache_info()["hits"] - before == 20


def test_pieces_that_never_pay_are_few():
    def f(x, s):
        return x * (2.0 if s.upper() == s else 3.0)

    _, info = served_by_kinds(f, [(X, f"a{k}") for k in range(1000)], 1)
    assert 8 <= info["segments"] <= 8 + 4  # one more when the calls that got none have doubled
    _, info = served_by_kinds(f, [(X, f"a{k}") for k in range(500) for _ in range(2)], 1)
    assert 8 <= info["segments"] <= 8 + 4


def test_thirty_kinds_of_arrays_in_turn_find_their_pieces():
    dtypes = [np.float64, np.float32, np.int32, np.int64, np.uint8, np.int16]
    calls = [(np.ones((2,) * rank, dtype),) for dtype in dtypes for rank in range(5)]
    framejit.reset()
    compiled = framejit.compile(lambda x: (x + 1).sum(), recompile_limit=100)
    for _ in range(3):
        for (x,) in calls:
            compare(Outcome(compiled, (x,), {}), Outcome(lambda x: (x + 1).sum(), (x,), {}))
    info = framejit.cache_info()
    assert info["segments"] == 30 and info["hits"] == 60


def test_a_call_that_was_refused_is_served_when_its_values_fit():
    """An attribute that changes back: the call looks alike and is another one."""
    class Setting:
        name = ""

    def f(x, setting):
        return x * (2.0 if setting.name.upper() == setting.name else 3.0)

    framejit.reset()
    compiled = framejit.compile(f)
    setting = Setting()
    for k in [*range(12), *range(40), *range(12)] * 3:
        setting.name = f"a{k}"
        compare(Outcome(compiled, (X, setting), {}), Outcome(f, (X, setting), {}))
    before = framejit.cache_info()["hits"]
    setting.name = "a3"
    for _ in range(40):
        compiled(X, setting)
    assert framejit.cache_info()["hits"] - before >= 24
