"""Does a relation of sizes ("s0*2 - 1 > 4") hold for all of their ranges? `holds` says yes only where it is proved: by interval arithmetic,
or by the polynomial of what each size is more than its lower bound, which is at least its constant if no coefficient is negative.
"""
import collections
import math
import operator

from framejit._errors import GraphError
from framejit._graph import code

_LARGEST = 10_000  # of polynomials: terms that a product is made of
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
        if str(divisor).isdigit() and int(divisor) > 0 and code.symbols(dividend) <= set(found):
            whole = _interval(code.evaluated(dividend, found))
            computed = Interval(0, int(divisor) - 1) if remainder else whole.divided(int(divisor))
            known = found.get(f"s{number}", computed)
            found[f"s{number}"] = Interval(max(known.low, computed.low), min(known.high, computed.high))
    return found


def quotient(dividend, divisor, remainder):
    """The text of a size that is computed from others by a division."""
    return f"{dividend if dividend.isidentifier() else f'({dividend})'} {'%' if remainder else '//'} {divisor}"


def holds(relation, found):
    """Whether it holds for all numbers of the intervals; False as well where that can't be said. relation: a text, or (size, "<", size)."""
    try:
        left, comparison, right = relation if isinstance(relation, tuple) else code.relation(relation)
    except (TypeError, GraphError):
        return False
    names = code.symbols(left) | code.symbols(right)
    if not names <= set(found):
        return False

    def difference_of(values):
        return code.evaluated(left, values) - code.evaluated(right, values)

    difference = _interval(difference_of(found))
    if all(math.isfinite(found[name].low) for name in names):
        above = {name: Polynomial({(name,): 1}) + found[name].low for name in names}
        try:
            exact = (difference_of(above) + Polynomial({})).interval()
        except OverflowError:
            return False
        difference = Interval(max(difference.low, exact.low), min(difference.high, exact.high))
    if comparison == "!=":
        return difference.low > 0 or difference.high < 0
    if comparison == "==":
        return difference.low == difference.high == 0
    return all(_RELATIONS[comparison](end, 0) for end in (difference.low, difference.high))


class Polynomial:
    """Of variables that are not negative. terms: by the sorted names of a product, its coefficient."""

    def __init__(self, terms):
        self.terms = {names: coefficient for names, coefficient in terms.items() if coefficient}

    def __add__(self, other):
        sums = collections.Counter(self.terms)
        sums.update(_polynomial(other).terms)
        return Polynomial(sums)

    def __mul__(self, other):
        products, other = collections.Counter(), _polynomial(other).terms
        if len(self.terms) * len(other) > _LARGEST:
            raise OverflowError("a product of too many terms")
        for names, coefficient in self.terms.items():
            for more, factor in other.items():
                products[tuple(sorted(names + more))] += coefficient * factor
        return Polynomial(products)

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -_polynomial(other)

    def __rsub__(self, other):
        return _polynomial(other) - self

    __radd__, __rmul__ = __add__, __mul__

    def interval(self):
        constant, others = self.terms.get((), 0), [x for names, x in self.terms.items() if names]
        return Interval(constant if all(x > 0 for x in others) else -math.inf, constant if all(x < 0 for x in others) else math.inf)


def _polynomial(number):
    return number if isinstance(number, Polynomial) else Polynomial({(): number})
