"""Dataclasses around arrays."""
import dataclasses
import sys

import pytest

from constructs import run_construct, table
from points import Point

construct, PROGRAMS = table()
DATACLASSES = "dataclasses"


@dataclasses.dataclass
class Data:
    a: int
    b: float = 2.0
    c: list = dataclasses.field(default_factory=list)
    d: int = dataclasses.field(default=4, compare=False, repr=False)

    def total(self):
        return self.a * self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float = 2.0


@dataclasses.dataclass(order=True)
class Ranked:
    k: int
    name: str = "x"


@dataclasses.dataclass(slots=True)
class DataSlots:
    a: object
    b: int = 3


@dataclasses.dataclass
class PostInit:
    a: object
    scale: dataclasses.InitVar[int] = 2
    b: object = dataclasses.field(init=False)

    def __post_init__(self, scale):
        self.b = self.a * scale


@dataclasses.dataclass(kw_only=True)
class KeywordOnly:
    a: object
    b: int = 2


@dataclasses.dataclass
class DataChild(Data):
    e: int = 9


@dataclasses.dataclass(eq=True, frozen=True)
class FrozenKey:
    a: int
    b: str


@dataclasses.dataclass
class Outer:
    inner: Frozen
    items: list


@construct(DATACLASSES)
def made_and_changed(x):
    d = Data(3)
    d.c.append(x)
    d.b = x
    return d.total() + len(d.c) + d.d


@construct(DATACLASSES)
def returned(x):
    return Data(1, c=[x]), DataSlots(x * 2)


@construct(DATACLASSES)
def equality(x):
    return x + (Data(1) == Data(1)) + (Data(1) != Data(2)) * 2 + (Frozen(1) == Frozen(1, 3.0)) * 4 + (Data(1) == 1) * 8


@construct(DATACLASSES)
def order(x):
    return x + (Ranked(1) < Ranked(2)) + sorted([Ranked(3), Ranked(1)])[0].k + max(Ranked(1, "a"), Ranked(1, "b")).k


@construct(DATACLASSES)
def representation(x):
    return x + len(repr(Data(1))), f"{Frozen(2)}"


@construct(DATACLASSES)
def hash_as_a_key(x):
    table = {FrozenKey(1, "a"): 3, FrozenKey(2, "b"): 4}
    return x * table[FrozenKey(1, "a")] + (FrozenKey(2, "b") in table)


@construct(DATACLASSES)
def replace(x):
    d = dataclasses.replace(Data(3, c=[1]), b=5.0)
    f = dataclasses.replace(Frozen(1), a=7)
    return x * d.b + d.a + f.a


@construct(DATACLASSES, breaks=() if sys.version_info < (3, 12) else None)  # 3.12 asks a frozenset of types
def asdict_and_astuple(x):
    d = dataclasses.asdict(Outer(Frozen(1), [Frozen(2), 3]))
    return x + d["inner"]["a"] + d["items"][0]["a"], d, dataclasses.astuple(Frozen(5))


@construct(DATACLASSES)
def fields(x):
    return x + sum(getattr(Frozen(3), f.name) for f in dataclasses.fields(Frozen)), [f.name for f in dataclasses.fields(Data(1))]


@construct(DATACLASSES)
def is_dataclass(x):
    return x + dataclasses.is_dataclass(Data) + dataclasses.is_dataclass(Point)


@construct(DATACLASSES)
def post_init_and_initvar(x):
    p = PostInit(x, scale=3)
    return p.b + p.a


@construct(DATACLASSES)
def keyword_only_and_inherited(x):
    k, c = KeywordOnly(a=x), DataChild(1, e=2)
    return k.a * k.b + c.e + c.b


@construct(DATACLASSES)
def slots_dataclass(x):
    s = DataSlots(x)
    s.b = 4
    return s.a * s.b


@construct(DATACLASSES)
def frozen_write_refused(x):
    f = Frozen(1)
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError:
        return x * 2
    return x


@construct(DATACLASSES, state=True)
def outside_dataclass_changed():
    d = Data(1)

    def f(x):
        d.a += 1
        d.c.append(d.a)
        return x * d.a + len(d.c)

    return f, d


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)
