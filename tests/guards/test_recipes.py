"""A segment makes its objects, then performs its effects, and leaves nothing behind when it fails."""
import collections
import gc
import sys
import weakref

import numpy as np
import pytest

native = pytest.importorskip("framejit_recipe_tests", reason="run by ctest, which builds the module")


def make(op, *args, **words):
    """One step that makes an object out of `args`, put into registers first as constants."""
    steps = [dict(op="Constant", target=i, object=value) for i, value in enumerate(args)]
    steps.append(dict(op=op, target=len(args), args=list(range(len(args))), **words))
    return native.run((), steps=steps, result=len(args))


def effect(op, *args, **words):
    steps = [dict(op="Constant", target=i, object=value) for i, value in enumerate(args)]
    steps.append(dict(op=op, args=list(range(len(args))), **words))
    steps.append(dict(op="Constant", target=len(args), object=None))
    return native.run((), steps=steps, result=len(args))


Point = collections.namedtuple("Point", "x y")


class Plain:
    pass


class Raises(Exception):
    def __init__(self, *words):
        raise AssertionError("user code ran")


def test_containers():
    assert make("Tuple", 1, 2) == (1, 2)
    assert make("List", 1, 2) == [1, 2]
    assert make("Set", 1, 2) == {1, 2}
    assert make("FrozenSet", 1) == frozenset([1])
    assert make("Dict", "a", 1, "b", 2) == {"a": 1, "b": 2}
    assert make("Slice", 1, None, 2) == slice(1, None, 2)
    assert make("Range", 1, 9, 2) == range(1, 9, 2)
    assert list(make("Iter", [1, 2])) == [1, 2]


def test_named_tuples_are_made_without_their_python_code():
    point = make("NamedTuple", 1, 2, object=Point)
    assert point == Point(1, 2) and type(point) is Point


def test_structures_of_c_code():
    import time

    now = make("NamedTuple", *time.gmtime(0), object=time.struct_time)
    assert now == time.gmtime(0) and now.tm_year == 1970


def test_instances_and_exceptions_run_no_init():
    assert type(make("Instance", object=Plain)) is Plain
    error = make("Exception", "words", object=Raises)
    assert type(error) is Raises and error.args == ("words",)
    error = make("Exception", 2, "gone", object=FileNotFoundError)
    assert error.errno == 2 and error.strerror == "gone"
    assert make("Exception", 5, object=StopIteration).value == 5


def test_functions_cells_and_methods():
    def outer():
        kept = 3

        def inner(a, b=1, *, c=2):
            return a, b, c, kept

        return inner

    inner = outer()
    names = [globals(), (10,), {"c": 20}, None, (make("Cell", 7),), "outer.<locals>.inner"]
    steps = [dict(op="Constant", target=i, object=value) for i, value in enumerate(names)]
    steps.append(dict(op="Function", target=6, args=[0, 1, 2, -1, 4, 5], object=inner.__code__))
    made = native.run((), steps=steps, result=6)
    assert made(1) == (1, 10, 20, 7) and made.__qualname__ == "outer.<locals>.inner"
    with pytest.raises(ValueError):
        make("Cell").cell_contents
    assert make("BoundMethod", len, "abc")() == 3


def test_effects_keep_the_identity_of_containers():
    items, table, members = [1, 2, 3], {"a": 1, "b": 2}, {1, 2}
    effect("SetItems", items, [4])
    effect("SetItem", table, "c", 4)
    effect("SetItem", table, "a")
    effect("SetItem", table, "b", 3)
    effect("Mutate", members, 5, object=set.add)
    effect("Mutate", members, {1, 2}, object=set.difference_update)
    assert items == [4] and list(table.items()) == [("b", 3), ("c", 4)] and members == {5}


def test_attributes_globals_and_cells():
    class Guarded:
        def __setattr__(self, name, value):
            raise AssertionError("user code ran")

    owner = Guarded()
    effect("SetAttr", owner, 5, object="field")
    assert owner.field == 5
    effect("DelAttr", owner, object="field")
    assert not hasattr(owner, "field")
    effect("SetAttr", Plain, 6, object="on_class")
    assert Plain().on_class == 6
    effect("DelAttr", Plain, object="on_class")
    names = {}
    effect("SetItem", names, "name", 7)
    assert names == {"name": 7}
    cell = make("Cell", 1)
    effect("SetCell", cell, 2)
    assert cell.cell_contents == 2
    effect("SetCell", cell)
    with pytest.raises(ValueError):
        cell.cell_contents


def test_effects_happen_in_order_after_all_objects():
    items = [0]
    steps = [
        dict(op="Constant", target=0, object=items),
        dict(op="SetItems", args=[0, 1]),
        dict(op="Constant", target=1, object=[1]),
        dict(op="SetItems", args=[0, 2]),
        dict(op="Constant", target=2, object=[1, 2]),
    ]
    native.run((), steps=steps, result=0)
    assert items == [1, 2]


def test_a_finalizer_of_what_is_let_go_of_runs_in_python():
    log = []

    class Watch:
        def __del__(self):
            log.append(len(items))

    items = [Watch()]
    steps = [dict(op="Constant", target=0, object=items), dict(op="Constant", target=1, object=[1]), dict(op="SetItems", args=[0, 1])]
    what, reason = native.run((), steps=steps, result=0)
    assert what == "eager" and "whose end runs Python code" in reason
    assert [type(item) for item in items] == [Watch] and not log  # nothing has happened


# ---- programs


def vector(n=3):
    return np.arange(float(n))


def test_one_output_is_returned_as_it_is():
    x = vector()
    result = native.run((x,), arrays=1, outputs=1, steps=[dict(op="Output", target=0)])
    np.testing.assert_array_equal(result, x + 1)
    own = x + 1  # nobody else has: an argument counts until CPython 3.14
    assert sys.getrefcount(result) == sys.getrefcount(own) and result.flags.owndata


def test_outputs_views_scalars_and_inputs():
    x, y = vector(), vector()
    steps = [
        dict(op="FromSource", target=0, slot=0),
        dict(op="Output", target=1, index=1),
        dict(op="View", target=2, args=[1]),
        dict(op="OutputScalar", target=3, index=0),
        dict(op="Int", target=4, index=2),
        dict(op="Output", target=5, index=1),
        dict(op="Tuple", target=6, args=[0, 1, 2, 3, 4, 5]),
    ]
    given, out, view, scalar, number, again = native.run((x, y), arrays=2, outputs=2, steps=steps, result=6)
    assert given is x and again is out and number == 6
    assert type(scalar) is np.float64 and scalar == 1.0
    np.testing.assert_array_equal(out, y + 1)
    assert view.base is out
    np.testing.assert_array_equal(view, out[1:])


def test_frame_slots_are_filled_kept_or_cleared():
    x = vector()
    steps = [dict(op="Output", target=0), dict(op="Constant", target=1, object="new")]
    filled = native.run((x, "old"), arrays=1, outputs=1, steps=steps, result=[..., 1, None, 0])
    assert filled[0] is x and filled[1:3] == ["new", ...]
    np.testing.assert_array_equal(filled[3], x + 1)


def test_a_failed_program_has_no_effect_and_says_why():
    x, items = vector(), [1]
    steps = [
        dict(op="Constant", target=0, object=items),
        dict(op="Constant", target=1, object=[2]),
        dict(op="SetItems", args=[0, 1]),
    ]
    status, reason = native.run((x,), arrays=1, outputs=1, steps=steps, fails=1)
    assert (status, reason) == ("eager", "an index is out of range") and items == [1]


def test_what_can_fail_fails_before_the_program_writes():
    x = vector()
    steps = [dict(op="Constant", target=0, object=Plain()), dict(op="GetAttr", target=1, args=[0], object="missing")]
    status, _ = native.run((x,), arrays=1, writes=True, steps=steps, result=1)
    assert status == "eager"
    np.testing.assert_array_equal(x, vector())
    native.run((x,), arrays=1, writes=True, steps=[dict(op="FromSource", target=0, slot=0)])
    np.testing.assert_array_equal(x, vector() * 2)


def test_nothing_is_kept_alive():
    x = vector()
    seen = weakref.ref(x)
    before = sys.getrefcount(x)
    result = native.run((x,), arrays=1, outputs=1, steps=[dict(op="Output", target=0), dict(op="FromSource", target=1, slot=0),
                                                           dict(op="Tuple", target=2, args=[0, 1])], result=2)
    assert sys.getrefcount(x) == before + 1
    del result, x
    gc.collect()
    assert seen() is None


def test_deques_and_ordered_dicts_keep_their_own_rules():
    items, table = collections.deque([1, 2], maxlen=2), collections.OrderedDict(a=1, b=2)
    elements = iter(items)
    effect("SetItem", items, 0, 7)
    assert next(elements) == 7  # an item that is assigned is no change of the deque
    effect("Mutate", items, 5, object=collections.deque.append)
    with pytest.raises(RuntimeError):
        next(elements)
    assert list(items) == [2, 5] and items.maxlen == 2
    effect("SetItem", table, "c", 3)
    effect("SetItem", table, "b")
    effect("Mutate", table, "c", False, object=collections.OrderedDict.move_to_end)
    assert list(table) == ["c", "a"] and list(reversed(table)) == ["a", "c"]


def test_an_expected_result():
    assert make("Expect", (3,), {"base": 5}, 3, object=lambda n, base: n) == 3
    x = vector()
    steps = [dict(op="Constant", target=i, object=value) for i, value in enumerate([(2,), {}, 3])]
    steps.append(dict(op="Expect", target=3, args=[0, 1, 2], object=abs))
    status, reason = native.run((x,), arrays=1, outputs=1, steps=steps)
    assert status == "eager"


def test_calls_with_keywords():
    assert make("CallWithKeywords", {"base": 8}, "17", object=int) == 15
