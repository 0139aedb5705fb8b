"""Enums and flags around arrays."""
import enum

import pytest

from constructs import run_construct, table

construct, PROGRAMS = table()
ENUMS = "enums"


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def pretty(self):
        return self.name.lower()

    def next(self):
        return Color.BLUE if self is Color.RED else Color.RED

    @classmethod
    def default(cls):
        return cls.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Mode(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class IntMode(enum.IntFlag):
    A = 1
    B = 2


class Kind(str, enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Auto(enum.Enum):
    A = enum.auto()
    B = enum.auto()


OPERATIONS = {Color.RED: lambda x: x + 1, Color.BLUE: lambda x: x * 2}


@construct(ENUMS)
def members_names_and_values(x):
    return x * Color.BLUE.value + len(Color.RED.name) + (Color.RED is Color.RED) + (Color.RED == Color.BLUE) + Auto.B.value


@construct(ENUMS)
def member_properties_and_methods(x):
    return x + len(Color.RED.pretty) + Color.RED.next().value + Color.default().value


@construct(ENUMS)
def lookup_by_value_and_name(x):
    return x * Color(2).value + Color["RED"].value


@construct(ENUMS)
def iterating_and_len(x):
    return x * sum(c.value for c in Color) + len(Color) + (Color.RED in Color), [c.name for c in Color], list(Color.__members__)


@construct(ENUMS)
def as_keys(x):
    return OPERATIONS[Color.BLUE](x) + {Color.RED: 4}[Color.RED]


@construct(ENUMS)
def int_enum_arithmetic(x):
    return x * Level.HIGH + Level.LOW + (Level.HIGH > Level.LOW) + (Level.HIGH + 1) + x[Level.LOW] + max(Level.LOW, Level.HIGH)


@construct(ENUMS)
def int_enum_from_value(x):
    return x * Level(5) + int(Level.LOW) + (Level.LOW == 1)


@construct(ENUMS)
def flags(x):
    m = Mode.READ | Mode.WRITE
    return x * m.value + bool(m & Mode.READ) + (Mode.READ in m) + (m is Mode.BOTH) + (~Mode.READ == Mode.WRITE) + bool(m ^ m)


@construct(ENUMS)
def int_flags(x):
    return x * (IntMode.A | IntMode.B) + (IntMode.A & 1)


@construct(ENUMS)
def str_enum(x):
    return x * (Kind.SUM == "sum") + len(Kind.MEAN) + (Kind("sum") is Kind.SUM), Kind.SUM.upper()


@construct(ENUMS)
def match_on_members(x, c=Color.BLUE):
    match c:
        case Color.RED:
            return x
        case Color.BLUE:
            return x * 2


@construct(ENUMS)
def text_of_members(x):
    return x + 1, str(Color.RED), repr(Color.BLUE), f"{Level.HIGH}", f"{Color.RED!r}"


@construct(ENUMS)
def isinstance_of_an_enum(x, c=Color.BLUE):
    return x + isinstance(c, Color) + isinstance(Level.LOW, int) + issubclass(Level, int)


@construct(ENUMS)
def unknown_value_is_refused(x):
    try:
        Color(7)
    except ValueError:
        return x * 2
    return x


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_construct(program):
    run_construct(program)
