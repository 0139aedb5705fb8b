"""A set that has held compares words of memory instead of running its steps: it must still see every change."""
import collections
import random

import numpy as np
import pytest

native = pytest.importorskip("framejit_guard_tests", reason="run by ctest, which builds the module")


class Base:
    shared = 1.5

    def method(self):
        pass


class Other(Base):
    pass


class Leaf(Base):
    def __init__(self):
        self.number = 2.5
        self.name = "leaf"
        self.weight = np.ones(3)


class Root(Base):
    def __init__(self):
        self.table = {"a": Leaf(), "b": Leaf()}
        self.items = [Leaf(), Leaf()]
        self.pair = (Leaf(), 7)
        self.hooks = collections.OrderedDict()
        self.flag = True


def world():
    """A function with globals, a closure and defaults of its own, and a tree of objects."""
    names = {"GLOBAL": 3.5, "W": np.ones(2), "__builtins__": __builtins__}
    exec("def make(cell):\n def running(default=1.0, *, keyword=2.0):\n  return cell, GLOBAL\n return running", names)
    return Root(), names["make"](Leaf()), names


def guarded(root, function):
    """Guards on all of it, as a trace would make them."""
    guards = native.Guards()
    self_ = guards.slot(0, "self")
    get = lambda base, kind, **where: guards.make(kind, base, **where)
    attribute = lambda base, name: get(base, "Attribute", key=name)

    def leaf(source, object):
        guards.add("TypeIs", source, object=type(object))
        guards.add("Equals", attribute(source, "number"), object=object.number)
        guards.add("Equals", attribute(source, "name"), object=object.name)
        guards.add("LacksKey", get(source, "InstanceDict"), object="shared")
        guards.add("Array", attribute(source, "weight"), type=np.ndarray, dtype="f64", shape=(3,))

    guards.add("TypeIs", self_, object=Root)
    guards.add("Equals", attribute(self_, "flag"), object=root.flag)
    table = attribute(self_, "table")
    guards.add("DictKeys", table, object=tuple(root.table))
    for name in root.table:
        leaf(get(table, "DictItem", key=name), root.table[name])
    items = attribute(self_, "items")
    guards.add("Length", items, number=len(root.items))
    for i, item in enumerate(root.items):
        leaf(get(items, "ListItem", index=i), item)
    pair = attribute(self_, "pair")
    guards.add("Length", pair, number=2)
    leaf(get(pair, "TupleItem", index=0), root.pair[0])
    guards.add("Equals", get(pair, "TupleItem", index=1), object=7)
    guards.add("Length", attribute(self_, "hooks"), number=0)
    guards.add("LacksKey", attribute(self_, "hooks"), object="hook")
    guards.add("TypeVersion", guards.make("Constant", key=Base), object=Base, names=["shared", "method"])
    guards.add("Equals", guards.make("Global", key="GLOBAL"), object=3.5)
    guards.add("Array", guards.make("Global", key="W"), type=np.ndarray, dtype="f64", shape=(2,))
    guards.add("Identity", guards.make("Builtin", key="len"), object=len)
    own = guards.make("Function")
    leaf(get(get(own, "ClosureCell", index=0), "Cell"), function.__closure__[0].cell_contents)
    guards.add("Equals", get(own, "FunctionDefault", index=0), object=1.0)
    guards.add("Equals", get(own, "FunctionKwDefault", key="keyword"), object=2.0)
    guards.add("FunctionCode", own, object=function.__code__)
    guards.add("SameObject", get(table, "DictItem", key="a"), others=[get(table, "DictItem", key="a")])
    guards.add("NotSame", get(table, "DictItem", key="b"), others=[get(table, "DictItem", key="a")])
    return guards


def leaves(root, function):
    found = [*root.table.values(), *root.items, root.pair[0], function.__closure__[0].cell_contents]
    return [leaf for leaf in found if isinstance(leaf, Base)]


def changes(root, function, names, choose):
    """One change of the world, by chance. Some matter, some do not, some undo others; floats are new objects each time."""
    leaf = choose(leaves(root, function))
    value = choose([2.5, 3.0])
    fresh = float(str(value))

    def replace(container, key, make=Leaf):
        container[key] = make()

    def other_dict():
        leaf.__dict__ = dict(leaf.__dict__)

    return choose([
        lambda: None,
        lambda: setattr(leaf, "number", fresh),
        lambda: setattr(leaf, "number", 2.5),
        lambda: setattr(leaf, "unrelated", fresh),
        lambda: setattr(leaf, "shared", 1.5),
        lambda: vars(leaf).pop("shared", None),
        lambda: setattr(leaf, "weight", np.ones(choose([3, 3, 4]))),
        lambda: setattr(leaf, "name", choose(["leaf", "".join(["le", "af"]), "other"])),
        lambda: setattr(leaf, "__class__", choose([Leaf, Leaf, Other])),
        other_dict,
        lambda: replace(root.table, choose(["a", "b"])),
        lambda: replace(root.items, choose([0, 1])),
        lambda: root.items.reverse(),
        lambda: root.items.append(0) if len(root.items) == 2 else root.items.pop(),
        lambda: setattr(root, "pair", (Leaf(), choose([7, 8]))),
        lambda: setattr(root, "items", list(root.items)),
        lambda: setattr(root, "table", dict(root.table)),
        lambda: root.table.update(c=1) if "c" not in root.table else root.table.pop("c"),
        lambda: root.hooks.update(hook=1) if not root.hooks else root.hooks.clear(),
        lambda: setattr(root, "flag", choose([True, True, False])),
        lambda: setattr(Base, "shared", choose([1.5, float("1.5"), 2.0])),
        lambda: setattr(Base, "unrelated", fresh),
        lambda: setattr(Leaf, "unrelated", fresh),
        lambda: names.update(GLOBAL=choose([3.5, float("3.5"), 4.0])),
        lambda: names.update(unrelated=fresh),
        lambda: names.update(W=np.ones(choose([2, 2, 3]))),
        lambda: setattr(function.__closure__[0], "cell_contents", Leaf()),
        lambda: setattr(function, "__defaults__", (choose([1.0, float("1.0"), 9.0]),)),
        lambda: function.__kwdefaults__.update(keyword=choose([2.0, 9.0])),
    ])


@pytest.mark.parametrize("seed", range(12))
def test_a_set_that_has_held_sees_what_its_steps_see(seed):
    random_ = random.Random(seed)
    root, function, names = world()
    guards = guarded(root, function)
    slots = (root,)
    assert guards.failures(slots, function) == []
    held = failed = 0
    for _ in range(1500):
        changes(root, function, names, random_.choice)()
        holds = guards.holds(slots, function) is not None
        assert holds == (guards.failures(slots, function) == [])
        held, failed = held + holds, failed + (not holds)
        if not holds and random_.random() < 0.5:  # back to a world that fits
            root.__init__()
            function.__closure__[0].cell_contents = Leaf()
            function.__defaults__, function.__kwdefaults__["keyword"] = (1.0,), 2.0
            names.update(GLOBAL=3.5, W=np.ones(2))
            Base.shared = 1.5
    Base.shared = 1.5
    assert held > 100 and failed > 100


def test_another_object_in_the_slot_is_looked_at_itself():
    root, function, names = world()
    guards = guarded(root, function)
    assert guards.holds((root,), function) is not None
    other = Root()
    assert guards.holds((other,), function) is not None
    other.flag = False
    assert guards.holds((root,), function) is not None
    assert guards.holds((other,), function) is None
    assert guards.holds((root,), function) is not None


def test_the_objects_of_dead_trees_are_not_mistaken_for_new_ones():
    _, function, names = world()
    guards = None
    for i in range(200):
        root = Root()  # at the address of the one before, as often as not
        root.flag = i % 3 != 0
        if guards is None:
            root.flag = True
            guards = guarded(root, function)
        assert (guards.holds((root,), function) is not None) == root.flag
        del root


def test_no_object_of_the_users_is_kept_alive():
    import gc
    import weakref

    root, function, names = world()
    guards = guarded(root, function)
    assert guards.holds((root,), function) is not None
    watched = [weakref.ref(root), weakref.ref(root.table["a"]), weakref.ref(root.items[0]), weakref.ref(root.table["a"].weight)]
    del root
    gc.collect()
    assert [w() for w in watched] == [None] * 4


def test_a_hundred_parts_cost_little_more_than_their_words():
    root, function, names = world()
    guards = guarded(root, function)
    assert guards.holds((root,), function) is not None
    assert guards.nanoseconds((root,), function, 20) < 20000  # some 100 steps: microseconds would be a lookup for each
