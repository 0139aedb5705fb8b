"""Does a relation of sizes ("s0*2 - 1 > 4") hold for all of their ranges? `holds` says yes only where interval arithmetic proves it."""
import math
import operator
import re

_RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Interval:
    """All numbers from low to high; high, and low of a difference, may be infinite."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __add__(self, other):
        other = _interval(other)
        return Interval(self.low + other.low, self.high + other.high)

    def __neg__(self):
        return Interval(-self.high, -self.low)

    def __sub__(self, other):
        return self + -_interval(other)

    def __mul__(self, other):
        other = _interval(other)
        ends = [0 if 0 in (a, b) else a * b for a in (self.low, self.high) for b in (other.low, other.high)]  # of 0 and infinity: 0
        return Interval(min(ends), max(ends))

    def __rsub__(self, other):
        return _interval(other) - self

    __radd__, __rmul__ = __add__, __mul__

    def divided(self, divisor):
        ends = [end if math.isinf(end) else end // divisor for end in (self.low, self.high)]
        return Interval(*ends)


def _interval(number):
    return number if isinstance(number, Interval) else Interval(number, number)


def intervals(symbols, definitions):
    """By name, the interval of each size. symbols: (name, low, high); definitions: (number, dividend, divisor, is it the remainder)."""
    found = {name: Interval(low, high) for name, low, high in symbols}
    for number, dividend, divisor, remainder in definitions:
        if str(divisor).isdigit() and int(divisor) > 0:
            whole = _interval(_value(str(dividend), found))
            computed = Interval(0, int(divisor) - 1) if remainder else whole.divided(int(divisor))
            known = found.get(f"s{number}", computed)
            found[f"s{number}"] = Interval(max(known.low, computed.low), min(known.high, computed.high))
    return found


def quotient(dividend, divisor, remainder):
    """The text of a size that is computed from others by a division."""
    return f"{dividend if dividend.isidentifier() else f'({dividend})'} {'%' if remainder else '//'} {divisor}"


def holds(relation, found):
    """Whether it holds for all numbers of the intervals; False as well where that can't be said."""
    parts = re.fullmatch(r"([s0-9*+\- ()]+) (<|<=|==|!=|>|>=) ([s0-9*+\- ()]+)", relation)
    if parts is None or not set(re.findall(r"s\d+", relation)) <= set(found):
        return False
    difference = _interval(_value(f"({parts[1]}) - ({parts[3]})", found))
    if parts[2] == "!=":
        return difference.low > 0 or difference.high < 0
    if parts[2] == "==":
        return difference.low == difference.high == 0
    return all(_RELATIONS[parts[2]](end, 0) for end in (difference.low, difference.high))


def _value(text, found):
    """Of sums and products of sizes, which the caller has looked at."""
    return eval(text, {"__builtins__": {}}, found)
