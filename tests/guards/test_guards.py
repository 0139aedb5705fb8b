"""Each kind of guard holds while its fact does, fails when it does not, and says how."""
import collections
import gc
import random
import types
import weakref

import numpy as np
import pytest

native = pytest.importorskip("framejit_guard_tests", reason="run by ctest, which builds the module")
Dim = native.Dim


def one(kind, slots, *, source=None, **words):
    """A set with one guard on slot 0."""
    guards = native.Guards()
    slot = guards.slot(0, "x")
    guards.add(kind, slot if source is None else source(guards, slot), **words)
    assert guards.holds(slots) is not None, guards.failures(slots)
    assert guards.failures(slots) == []
    return guards


def fails(guards, slots, function=None):
    """The first failure, on which the fast path agrees."""
    assert guards.holds(slots, function) is None
    return guards.failures(slots, function)[0]


def array(guards, source, value, shape=None, **words):
    itemsize = value.dtype.itemsize
    words.setdefault("strides", [s // itemsize for s in value.strides])
    dtype = {"float64": "f64", "float32": "f32", "int64": "i64", "bool": "bool"}[value.dtype.name]
    guards.add("Array", source, type=np.ndarray, dtype=dtype, shape=value.shape if shape is None else shape, **words)


# ---- sources


class Plain:
    kind = "class attribute"

    def __init__(self):
        self.weight = 3


class Slotted:
    __slots__ = ("field",)


def test_sources_fetch_what_their_text_says():
    guards = native.Guards()
    item = Plain()
    slotted = Slotted()
    slotted.field = "f"
    x = guards.slot(0, "x")
    key = lambda kind, name: guards.make(kind, x, key=name)
    cases = [
        (x, item, "L.x", item),
        (key("Attribute", "weight"), item, "L.x.weight", 3),
        (key("Attribute", "kind"), item, "L.x.kind", ...),  # of the class
        (key("ClassVariable", "kind"), Plain, "L.x.kind", "class attribute"),
        (key("ClassVariable", "kind"), type("Derived", (Plain,), {}), "L.x.kind", ...),
        (guards.make("InstanceDict", x), item, "L.x.__dict__", item.__dict__),
        (guards.make("Type", x), item, "type(L.x)", Plain),
        (key("DictItem", "k"), {"k": 5}, "L.x['k']", 5),
        (key("DictItem", 7), {7: 5}, "L.x[7]", 5),
        (guards.make("ListItem", x, 1), [1, 2], "L.x[1]", 2),
        (guards.make("TupleItem", x, 1), (1, 2), "L.x[1]", 2),
        (key("SlotMember", "field"), slotted, "L.x.field", "f"),
        (guards.make("DictKey", x, 1), {"a": 1, "b": 2}, "list(L.x)[1]", "b"),
        (guards.make("Cell", x), types.CellType(4), "L.x.cell_contents", 4),
        (guards.make("IteratorBase", x), iter([1, 2]), "iter(L.x)", [1, 2]),
    ]
    for source, value, text, expected in cases:
        assert source.text() == text
        assert guards.fetch(source, (value,)) == expected, text
        if source is not x and text not in ("L.x.__dict__", "type(L.x)", "L.x.kind"):
            assert guards.fetch(source, (object(),)) is ..., text  # fails without an error


def outer():
    shared = [1]

    def inner(a, b=2, *, c=3):
        return shared

    return inner


def test_sources_of_functions():
    f = outer()
    guards = native.Guards()
    function = guards.make("Function")
    cases = [
        (guards.make("ClosureCell", function, 0), f.__closure__[0], "F.__closure__[0]"),
        (guards.make("FunctionDefault", function, 0), 2, "F.__defaults__[0]"),
        (guards.make("FunctionKwDefault", function, key="c"), 3, "F.__kwdefaults__['c']"),
        (guards.make("FunctionGlobals", function), globals(), "F.__globals__"),
        (guards.make("Global", key="outer"), outer, "G.outer"),
        (guards.make("Builtin", key="len"), len, "B.len"),
    ]
    for source, expected, text in cases:
        assert source.text() == text
        assert guards.fetch(source, (), f) is expected


def test_equal_sources_are_one_source():
    guards = native.Guards()
    base = guards.slot(0, "x")
    guards.add("Equals", guards.make("DictItem", base, key="k"), object=1)
    guards.add("Equals", guards.make("DictItem", base, key="".join(["k"])), object=1)
    assert guards.text() == ["L.x['k'] == 1"]
    # 1 and True are one key of a dict, but not one source.
    guards.add("Equals", guards.make("DictItem", base, key=1), object=1)
    guards.add("Equals", guards.make("DictItem", base, key=True), object=1)
    assert len(guards.text()) == 3


# ---- values


@pytest.mark.parametrize(
    "value, other",
    [(3, 4), (3, 3.0), (1, True), (True, 1), (2.5, 2.0), (0.0, -0.0), ("a", "b"), (b"a", "a"), (None, 0),
     ((1, (2, "x")), (1, (2, "y"))), ((0.0,), (-0.0,)), (2**70, 2**70 + 1), (1j, 2j), ("x" * 50, "y" * 50)],
)
def test_equals_tells_constants_apart(value, other):
    guards = one("Equals", (value,), object=value)
    text, expected, found, _ = fails(guards, (other,))
    assert text == f"L.x == {value!r}" and expected == repr(value) and found == repr(other)


def test_equals_takes_an_equal_object_that_is_another():
    guards = one("Equals", ("framejit",), object="".join(["frame", "jit"]))
    assert guards.holds(("".join(["fra", "mejit"]),)) is not None
    nan = float("nan")
    assert one("Equals", (nan,), object=nan).holds((float("nan"),)) is not None


def test_identity_and_type():
    a, b = Plain(), Plain()
    assert fails(one("Identity", (a,), object=a), (b,))[1] == "Plain object"
    text, expected, found, _ = fails(one("TypeIs", (a,), object=Plain), (3,))
    assert (text, expected, found) == ("type(L.x) is Plain", "Plain", "int")


def test_identity_keeps_nothing_alive_and_a_dead_object_never_matches():
    a = Plain()
    guards = one("Identity", (a,), object=a)
    seen = weakref.ref(a)
    del a
    gc.collect()
    assert seen() is None
    for _ in range(100):  # some of these may live where `a` was
        assert guards.holds((Plain(),)) is None


def test_length():
    for value in ([1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, "ab", b"ab"):
        assert fails(one("Length", (value,), number=2), (value.__class__(),))[2] == "0"
    assert fails(one("Length", ([],), number=0), (5,))


def test_function_code():
    def f():
        return 1

    def g():
        return 2

    guards = one("FunctionCode", (f,), object=f.__code__)
    assert guards.holds((types.FunctionType(f.__code__, {}),)) is not None
    f.__code__ = g.__code__
    assert "code of" in fails(guards, (f,))[2]


def test_unbound():
    guards = one("Unbound", (...,))
    assert fails(guards, (1,))[0] == "L.x is unbound"
    empty = one("Unbound", (types.CellType(),), source=lambda g, slot: g.make("Cell", slot))
    assert empty.holds((types.CellType(1),)) is None


# ---- dicts and classes


def test_dict_keys_in_order():
    guards = one("DictKeys", ({"a": 1, "b": 2},), object=["a", "b"])
    for other in ({"b": 2, "a": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}, 5):
        assert guards.holds((other,)) is None
        assert guards.failures((other,))


def test_elements_in_the_order_of_iteration():
    ordered = collections.OrderedDict(a=1, b=2)
    guards = one("Elements", (ordered,), object=["a", "b"])
    ordered.move_to_end("a")  # which is no change of the dict it is built on
    assert guards.holds((ordered,)) is None and guards.failures((ordered,))
    ordered.move_to_end("b")
    assert guards.holds((ordered,)) is not None
    assert guards.holds(({"a": 1, "b": 2},)) is None
    numbers = one("Elements", ({8, 1},), object=list({8, 1}))
    for other in ({8}, {8, 2}, {8, 1, 3}, [8, 1], set()):
        assert numbers.holds((other,)) is None
    assert one("Elements", (frozenset([3]),), object=[3]).holds((frozenset([3]),)) is not None


def test_items_of_a_deque():
    items = collections.deque([5, 6])
    guards = one("Equals", (items,), object=6, source=lambda g, slot: g.make("DequeItem", slot, 1))
    assert guards.holds((collections.deque([1, 6]),)) is not None
    for other in (collections.deque([1]), collections.deque([6, 1]), [1, 6]):
        assert guards.holds((other,)) is None
    assert one("Length", (items,), number=2).holds((collections.deque([1]),)) is None


def test_has_and_lacks_key_follow_every_change_of_the_dict():
    d = {"a": 1}
    has, lacks = one("HasKey", (d,), object="a"), one("LacksKey", (d,), object="b")
    d["b"] = 2
    assert has.holds((d,)) is not None and fails(lacks, (d,))[2] == "'b' is there"
    del d["b"], d["a"]
    assert lacks.holds((d,)) is not None and fails(has, (d,))[2] == "'a' is not there"
    d["a"] = 3
    assert has.holds((d,)) is not None


def test_remembered_lookups_see_every_kind_of_store():
    owner = Plain()
    guards = native.Guards()
    slot = guards.slot(0, "x")
    guards.add("Equals", guards.make("Attribute", slot, key="weight"), object=3)
    stores = [
        (lambda: setattr(owner, "weight", 4), False),
        (lambda: setattr(owner, "weight", 3), True),
        (lambda: owner.__dict__.update(weight=5), False),
        (lambda: owner.__dict__.__setitem__("weight", 3), True),
        (lambda: delattr(owner, "weight"), False),
        (lambda: owner.__dict__.setdefault("weight", 3), True),
        (lambda: owner.__dict__.clear(), False),
        (lambda: setattr(owner, "__dict__", {"weight": 3}), True),
        (lambda: setattr(owner, "__dict__", {"weight": 4}), False),
    ]
    assert guards.holds((owner,)) is not None
    for store, holds in stores:
        for _ in range(3):
            guards.holds((owner,))
        store()
        assert (guards.holds((owner,)) is not None) == holds
        assert (guards.failures((owner,)) == []) == holds


def test_stores_of_hot_code_are_seen():
    class Counter:
        pass

    def store(counter, value):
        counter.n = value

    counter = Counter()
    counter.n = 0
    guards = native.Guards()
    guards.add("Equals", guards.make("Attribute", guards.slot(0, "c"), key="n"), object=7)
    for value in range(100):
        store(counter, value)
        assert (guards.holds((counter,)) is not None) == (value == 7)


def test_an_attribute_is_the_objects_own():
    child = Plain()
    child.kind = "class attribute"
    guards = native.Guards()
    guards.add("Equals", guards.make("Attribute", guards.slot(0, "c"), key="kind"), object="class attribute")
    assert guards.holds((child,)) is not None
    del child.kind  # the class has an equal one
    assert guards.holds((child,)) is None
    child.kind = "own"
    assert guards.holds((child,)) is None


def test_a_class_variable_is_the_classs_own():
    class Child(Plain):
        kind = "class attribute"

    guards = native.Guards()
    guards.add("Equals", guards.make("ClassVariable", guards.make("Constant", key=Child), key="kind"), object="class attribute")
    assert guards.holds(()) is not None
    del Child.kind  # the base has an equal one
    assert guards.holds(()) is None
    Child.kind = "class attribute"
    assert guards.holds(()) is not None


def test_type_version_without_names_fails_at_any_change():
    class Base:
        pass

    class Derived(Base):
        pass

    guards = one("TypeVersion", (Derived,), object=Derived)
    Base.added = 1
    assert fails(guards, (Derived,))[2] == "L.x was changed"


def test_type_version_with_names_ignores_other_attributes():
    class Base:
        def forward(self):
            return 1

    class Derived(Base):
        count = 0

    guards = one("TypeVersion", (Derived,), object=Derived, names=["forward", "missing"])
    for i in range(5):
        Derived.count = i
        assert guards.holds((Derived,)) is not None
        assert guards.holds((Derived,)) is not None
    original = Base.forward
    Base.forward = lambda self: 2
    assert guards.holds((Derived,)) is None
    Base.forward = original
    assert guards.holds((Derived,)) is not None
    Derived.missing = 1
    assert guards.holds((Derived,)) is None
    assert guards.holds((Base,)) is None


# ---- arrays


def test_array_metadata():
    x = np.ones((3, 4))
    guards = native.Guards()
    array(guards, guards.slot(0, "x"), x)
    assert guards.text() == ["L.x: f64[3, 4]"]
    assert guards.holds((x,)) == []
    assert fails(guards, (np.ones((3, 5)),))[1:] == ("f64[3, 4]", "f64[3, 5]", [1])
    assert fails(guards, (np.ones((2, 5)),))[3] == [0, 1]
    assert fails(guards, (np.ones((3, 4), np.float32),))[1:] == ("f64[3, 4]", "f32[3, 4]", [])
    assert fails(guards, (np.ones(3),))[2] == "f64[3]"
    assert fails(guards, (np.asfortranarray(x),))[2] == "f64[3, 4] strides (1, 3)"
    assert fails(guards, (3,))[2] == "int 3"
    assert fails(guards, (x.view(np.matrix),))


def test_unaligned_and_read_only_arrays():
    raw = np.zeros(33, np.uint8)
    unaligned = raw[1:].view(np.float64)
    x = np.zeros(4)
    guards = native.Guards()
    array(guards, guards.slot(0, "x"), x, writeable=True)
    assert guards.holds((x,)) is not None
    assert "unaligned" in fails(guards, (unaligned,))[2]
    x.flags.writeable = False
    assert "read-only" in fails(guards, (x,))[2]


def test_strides_of_dimensions_with_one_element_count():
    """Views have them, and torch's choice of a memory format reads them."""
    x = np.ones((1, 4))
    guards = native.Guards()
    array(guards, guards.slot(0, "x"), x)
    assert guards.holds((np.ones((2, 4))[1:],)) is not None
    assert guards.holds((np.ones((1, 8))[:, :4],)) is None
    assert guards.holds((np.ones((4, 1)).T,)) is None


def test_strides_of_numpy_arrays_without_elements_do_not_count():
    guards = native.Guards()
    array(guards, guards.slot(0, "x"), np.ones((0, 4)))
    for x in (np.ones((3, 4))[:0], np.ones((4, 0)).T, np.ones((6, 8))[3:3, ::2]):
        assert guards.holds((x,)) is not None


def test_sizes_bind_symbols_and_must_agree():
    guards = native.Guards()
    x, y = guards.slot(0, "x"), guards.slot(1, "y")
    n, m = Dim(0), Dim(1)
    array(guards, x, np.ones((2, 3)), [n, m], strides=[m, 1])
    array(guards, y, np.ones((3,)), [m], strides=[1])
    assert guards.text() == ["L.x: f64[s0, s1]", "L.y: f64[s1]"]
    assert guards.holds((np.ones((2, 3)), np.ones(3))) == [2, 3]
    assert guards.holds((np.ones((7, 1)), np.ones(1))) == [7, 1]
    assert guards.holds((np.ones((0, 5)), np.ones(5))) == [0, 5]
    assert fails(guards, (np.ones((2, 3)), np.ones(4)))[3] == [0]
    assert guards.holds((np.ones((2, 6))[:, ::2], np.ones(3))) is None
    assert guards.holds((np.asfortranarray(np.ones((2, 3))), np.ones(3))) is None


def test_expressions_are_compared_once_all_symbols_are_bound():
    guards = native.Guards()
    x, k = guards.slot(0, "x"), guards.slot(1, "k")
    array(guards, x, np.ones(7), [Dim(0) * 2 + 1], strides=[1])
    guards.add("IntSymbol", k, symbol=0)
    assert guards.holds((np.ones(7), 3)) == [3]
    assert guards.holds((np.ones(9), 4)) == [4]
    assert fails(guards, (np.ones(8), 4))[3] == [0]


def test_symbolic_strides():
    guards = native.Guards()
    n, s = Dim(0), Dim(1)
    array(guards, guards.slot(0, "x"), np.ones(4), [n], strides=[s])
    assert guards.holds((np.ones(6)[::2],)) == [3, 2]
    assert guards.holds((np.ones(6)[::-1],)) == [6, -1]


def test_int_symbol_takes_exact_ints_of_64_bits():
    guards = one("IntSymbol", (5,), symbol=0)
    assert guards.holds((-3,)) == [-3]
    for other in (True, 2**63, 1.0, None):
        assert guards.holds((other,)) is None


def test_relations():
    guards = native.Guards()
    a, b = guards.slot(0, "a"), guards.slot(1, "b")
    guards.add("IntSymbol", a, symbol=0)
    guards.add("IntSymbol", b, symbol=1)
    guards.add("Relation", None, left=Dim(0) + 1, number=0, right=Dim(1) * 2)  # a + 1 < 2 b
    assert guards.holds((2, 2)) == [2, 2]
    assert fails(guards, (3, 2))[2] == "4 against 4"


def test_quotients_are_defined_before_relations():
    guards = native.Guards()
    guards.add("IntSymbol", guards.slot(0, "a"), symbol=0)
    guards.define(1, Dim(0), 4, False)
    guards.define(2, Dim(0), 4, True)
    guards.add("Relation", None, left=Dim(1), number=2, right=-2)
    guards.add("Relation", None, left=Dim(2), number=2, right=3)
    assert guards.holds((-5,)) == [-5, -2, 3]
    assert guards.holds((-4,)) is None


def test_same_and_not_same():
    guards = native.Guards()
    x, y = guards.slot(0, "x"), guards.slot(1, "y")
    guards.add("SameObject", x, others=[y])
    a = np.ones(3)
    assert guards.holds((a, a)) is not None
    assert fails(guards, (a, a.copy()))[0] == "L.x is L.y"
    apart = native.Guards()
    x, y = apart.slot(0, "x"), apart.slot(1, "y")
    apart.add("NotSame", x, others=[y])
    assert apart.holds((a, a.copy())) is not None and apart.holds((a, a)) is None


def test_overlap_is_judged_by_the_interval_of_elements():
    guards = native.Guards()
    x, y = guards.slot(0, "x"), guards.slot(1, "y")
    guards.add("NoOverlap", x, others=[y])
    base = np.arange(12.0)
    assert guards.holds((base[:6], base[6:])) is not None
    assert fails(guards, (base[:7], base[6:]))[2] == "shared memory"
    assert guards.holds((base[5::-1], base[6:])) is not None
    assert guards.holds((base[6::-1], base[6:])) is None
    assert guards.holds((base[3:3], base)) is not None           # no elements
    assert guards.holds((base, base)) is None
    assert guards.holds((base[::2], base[1::2])) is None         # interleaved counts as shared
    assert guards.holds((np.broadcast_to(base[5:6], (9,)), base[6:])) is not None


def test_written_arrays_are_apart_from_all_and_read_ones_may_share():
    guards = native.Guards()
    p, q, x, y = (guards.slot(i, name) for i, name in enumerate("pqxy"))
    guards.add("NoOverlap", p, others=[q, x, y], number=1)  # p and q are written
    base = np.arange(24.0)
    p, q, x = base[:6], base[6:12], base[12:]
    assert guards.holds((p, q, x, x)) is not None
    assert guards.holds((q, p, x[2:], x[:5])) is not None
    assert guards.holds((p, base[5:9], x, x)) is None            # both written
    assert guards.holds((p, q, x, base[11:13])) is None          # written and read
    assert guards.holds((p, q, base[3:4], x)) is None
    assert guards.holds((base[2:4], base[4:6], base, x)) is None  # inside of what is read
    assert guards.holds((p[:0], q, base[:6], x)) is not None     # no elements


def test_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones(2, 3)
    guards = native.Guards()
    guards.add("Array", guards.slot(0, "x"), type=torch.Tensor, dtype="f32", shape=(2, 3))
    assert guards.holds((x,)) is not None, guards.failures((x,))
    assert guards.holds((torch.ones(3, 2).T.contiguous(),)) is not None
    assert fails(guards, (torch.ones(3, 2).T,))[2] == "f32[2, 3] strides (1, 2)"
    assert fails(guards, (torch.ones(2, 3, requires_grad=True),))[2] == "f32[2, 3] requires_grad"
    for other in (torch.nn.Parameter(x), x.double(), torch.ones(2, 4), x.numpy(), torch.ones(2, 3, device="meta"), x.to_sparse()):
        assert guards.holds((other,)) is None
        assert guards.failures((other,))
    parameter = native.Guards()
    parameter.add("Array", parameter.slot(0, "x"), type=torch.nn.Parameter, dtype="f32", shape=(2, 3), requires_grad=True)
    assert parameter.holds((torch.nn.Parameter(x),)) is not None
    x.data = torch.ones(2, 4)
    assert fails(guards, (x,))[3] == [1]


def test_grad_mode():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    guards = native.Guards()
    guards.add("GradMode", None)
    assert guards.holds(()) is not None
    with torch.no_grad():
        assert fails(guards, ())[1:3] == ("on", "off")
    assert guards.holds(()) is not None


def test_torch_modes():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    guards = native.Guards()
    guards.add("TorchModes", None)
    assert guards.holds(()) is not None
    with torch.autocast("cpu"):
        assert guards.holds(()) is None
    with torch.inference_mode():
        assert guards.holds(()) is None
    assert guards.holds(()) is not None


# ---- the whole


def test_duplicates_are_dropped():
    guards = native.Guards()
    x = guards.slot(0, "x")
    for _ in range(3):
        guards.add("TypeIs", x, object=Plain)
        guards.add("Equals", guards.make("Attribute", x, key="weight"), object=3)
        array(guards, guards.make("Attribute", x, key="w"), np.ones(3))
    assert guards.text() == ["type(L.x) is Plain", "L.x.weight == 3", "L.x.w: f64[3]"]


def test_an_array_that_is_read_and_written_has_one_guard():
    guards = native.Guards()
    x = guards.slot(0, "x")
    for writeable in (False, True, False):
        array(guards, x, np.ones(3), writeable=writeable)
    assert guards.text() == ["L.x: f64[3] writeable"]
    assert guards.holds((np.ones(3),)) is not None and guards.holds((np.broadcast_to(1.0, 3),)) is None


def test_guards_on_a_whole_are_tested_before_its_parts_are_fetched():
    class Trap:
        @property
        def field(self):
            raise AssertionError("user code ran")

    slotted = Slotted()
    slotted.field = 1
    guards = native.Guards()
    x = guards.slot(0, "x")
    guards.add("Equals", guards.make("SlotMember", x, key="field"), object=1)
    guards.add("TypeIs", x, object=Slotted)
    assert guards.holds((slotted,)) is not None
    assert fails(guards, (Trap(),))[0] == "type(L.x) is Slotted"


def test_every_leaf_that_changed_is_reported_at_once():
    guards = native.Guards()
    x, y, k = (guards.slot(i, name) for i, name in enumerate("xyk"))
    array(guards, x, np.ones((2, 3)))
    array(guards, y, np.ones(4))
    guards.add("Equals", k, object=2)
    found = guards.failures((np.ones((2, 5)), np.ones(5), 3))
    assert [(text, axes) for text, _, _, axes in found] == [("L.x: f64[2, 3]", [1]), ("L.y: f64[4]", [0]), ("L.k == 2", [])]


def random_value(random):
    return random.choice(
        [lambda: random.randrange(3), lambda: random.random() < 0.5, lambda: random.choice("ab"), lambda: None,
         lambda: [random.randrange(2) for _ in range(random.randrange(3))], lambda: {"k": random.randrange(2)},
         lambda: np.zeros([random.randrange(1, 3) for _ in range(random.randrange(3))]), Plain, lambda: Ellipsis]
    )()


@pytest.mark.parametrize("seed", range(40))
def test_explanation_agrees_with_the_fast_path(seed):
    rng = random.Random(seed)
    seen = tuple(random_value(rng) for _ in range(4))
    guards = native.Guards()
    for i, value in enumerate(seen):
        slot = guards.slot(i, f"v{i}")
        if value is Ellipsis:
            guards.add("Unbound", slot)
            continue
        guards.add("TypeIs", slot, object=type(value))
        if isinstance(value, np.ndarray):
            array(guards, slot, value, [Dim(0) if rng.random() < 0.5 else n for n in value.shape]
                  if len(set(value.shape)) <= 1 else value.shape)
        elif isinstance(value, (list, dict)):
            guards.add("Length", slot, number=len(value))
            if value:
                key = "k" if isinstance(value, dict) else 0
                part = guards.make("DictItem", slot, key="k") if key == "k" else guards.make("ListItem", slot, 0)
                guards.add("Equals", part, object=value[key])
        elif isinstance(value, Plain):
            guards.add("Equals", guards.make("Attribute", slot, key="weight"), object=3)
        else:
            guards.add("Equals", slot, object=value)
    assert guards.holds(seen) is not None, guards.failures(seen)
    for _ in range(60):
        values = tuple(old if rng.random() < 0.7 else random_value(rng) for old in seen)
        assert (guards.holds(values) is not None) == (guards.failures(values) == []), (guards.text(), values)
