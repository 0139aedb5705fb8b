"""Bounds of sizes."""
LARGEST = 2**63 - 1  # what has no bound


class Dim:
    """A size that changes between calls, within bounds: for `mark_dynamic`.

    name: a str; axes marked with one name that are of one size stay so together. min, max: the bounds, both included; what follows
    from them (`if x.shape[0] > 1:` where min is 2) needs no guard. Sizes outside of the bounds are right too, in a graph of their own.

    Raises TypeError for a name that is no str or a bound that is no int, ValueError for a negative min, a max below min, or a bound that
    no array's size can be.

        rows = framejit.Dim("rows", min=2, max=4096)
        framejit.mark_dynamic(x, {0: rows})
    """

    def __init__(self, name, min=0, max=None):
        if not isinstance(name, str) or not name:
            raise TypeError(f"framejit.Dim: the name is a str, not {name!r}")
        for bound in (min, 0 if max is None else max):
            if not isinstance(bound, int) or isinstance(bound, bool):
                raise TypeError(f"framejit.Dim({name!r}): a bound is an int, not {bound!r}")
        if min < 0 or (max is not None and max < min):
            raise ValueError(f"framejit.Dim({name!r}): no size is at least {min} and at most {max}")
        if min > LARGEST or (max is not None and max > LARGEST):
            raise ValueError(f"framejit.Dim({name!r}): no size is above {LARGEST}; without a max there is no bound")
        self.name, self.min, self.max = name, min, max

    def __repr__(self):
        return f"framejit.Dim({self.name!r}, min={self.min}, max={self.max})"
