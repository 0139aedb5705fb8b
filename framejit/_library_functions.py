"""Functions that a graph calls as they are: library_function.

To the tracer such a function is a `Node`, one operation of the graph (tracer/library_calls/extern_call.cpp); what it returns is found by running the
rule for its result on stand-ins. Derivatives are those of custom_derivative, whose function the node is.
"""
from framejit._custom_derivatives import CustomDerivative
from framejit._transforms import _leaves, _map, _stack


def _is_array(leaf):
    return hasattr(leaf, "ndim") and hasattr(leaf, "dtype")


def _is_tensor(leaf):
    return hasattr(leaf, "new_empty")


def _in_order(args, kwargs):
    return [leaf for leaf in _leaves((args, list(kwargs.values()))) if _is_array(leaf)]


def _each(function, args, kwargs):
    """function of arrays with one more axis in front: of one index of it after the other."""
    arrays = _in_order(args, kwargs)
    results = [function(*_map(lambda leaf: leaf[i] if _is_array(leaf) else leaf, args),
                        **{name: _map(lambda leaf: leaf[i] if _is_array(leaf) else leaf, value) for name, value in kwargs.items()})
               for i in range(arrays[0].shape[0])]
    columns = [_stacked(column) for column in zip(*map(_leaves, results))]
    rest = iter(columns)
    return _map(lambda leaf: next(rest), results[0])


def _stacked(leaves):
    if _is_tensor(leaves[0]):
        import torch

        return torch.stack(leaves)
    import numpy

    return numpy.ascontiguousarray(numpy.stack(leaves))


def _untouched(leaf):
    """An array of the same layout that shares no memory with an argument."""
    if _is_tensor(leaf):
        import torch

        return torch.empty_like(leaf, device="meta")
    import numpy

    return numpy.empty_like(leaf) if isinstance(leaf, numpy.ndarray) else leaf


class _Call:
    """The function for arguments of these kinds: of each array the rank; "scalar" for a NumPy scalar and "number" for a Python number, which programs
    have as arrays of rank 0."""

    def __init__(self, owner, kinds):
        self.owner, self.kinds = owner, kinds
        self.__name__ = owner.__name__
        self.rule = self._untouched_result  # one object: predictions are remembered by it
        self.of_one = self if any(isinstance(kind, str) for kind in kinds) else owner._function.function

    def _given(self, args, kwargs):
        kinds = iter(self.kinds)

        def back(leaf):
            if not _is_array(leaf):
                return leaf
            kind = next(kinds)
            return leaf.item() if kind == "number" else leaf[()] if kind == "scalar" else leaf

        return _map(back, args), {name: _map(back, value) for name, value in kwargs.items()}

    def __call__(self, *args, **kwargs):
        ranks = [0 if isinstance(kind, str) else kind for kind in self.kinds]
        more = max((leaf.ndim - rank for leaf, rank in zip(_in_order(args, kwargs), ranks)), default=0)
        return self._of_all(more, args, kwargs)

    def _of_all(self, more, args, kwargs):
        if more == 0:
            args, kwargs = self._given(args, kwargs)
            return self.owner._function.function(*args, **kwargs)
        if more == 1 and self.owner._batched is not None:
            return self.owner._batched(*args, **kwargs)
        return _each(lambda *args, **kwargs: self._of_all(more - 1, args, kwargs), args, kwargs)

    def _untouched_result(self, *args, **kwargs):
        if self.owner._result is None:
            raise TypeError(f"{self.owner._text} has no rule for its result: decorate one with @{self.__name__}.result")
        args, kwargs = self._given(args, kwargs)
        return _map(_untouched, self.owner._result(*args, **kwargs))


class Node:
    """What is called in the place of the function. In CPython it is the function."""

    def __init__(self, owner, function):
        self.owner, self.function = owner, function
        self.__name__ = f"{getattr(function, '__module__', None) or 'builtins'}.{getattr(function, '__qualname__', type(function).__name__)}"
        self._calls = {}

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def call_of(self, kinds):
        """What a graph calls for arguments of these kinds; always the same object."""
        return self._calls.setdefault(kinds, _Call(self.owner, kinds))

    def forget(self):
        self._calls = {}


class LibraryFunction(CustomDerivative):
    """A function that is one node of a graph: what `library_function` returns."""

    _keywords_allowed, _what = True, "framejit.library_function"

    def __init__(self, function):
        if not callable(function):
            raise TypeError(f"framejit.library_function takes a callable, not {function!r}")
        super().__init__(function)
        self._function, self._result, self._batched = Node(self, function), None, None
        if not hasattr(self, "__name__"):
            self.__name__ = type(function).__name__

    def result(self, rule):
        """Decorates the rule for the type of the result: it takes the function's arguments and returns arrays like the results."""
        if not callable(rule):
            raise TypeError(f"framejit.library_function: a rule is a callable, not {rule!r}")
        self._result = rule
        self._function.forget()
        return rule

    def batched(self, rule):
        """Decorates the rule for vmap: it takes the function's arguments, all arrays with one more axis in front, and returns the results with it."""
        if not callable(rule):
            raise TypeError(f"framejit.library_function: a rule is a callable, not {rule!r}")
        self._batched = rule
        return rule

    def __repr__(self):
        return f"<framejit.library_function of {self._text}>"

    def __call__(self, *args, **kwargs):
        if self._vjp is None and self._jvp is None and not _stack():
            return self._function(*args, **kwargs)
        return super().__call__(*args, **kwargs)


def library_function(function):
    """Decorates a function that compiled code calls as it is, as one operation of its graph: Python code that can't be traced, or C.

    function: of NumPy arrays or of tensors of the CPU, and of anything else that is constant; returns arrays (dtypes of NumPy or torch that framejit
    compiles, any shape), or tuples or lists of such. It is taken to be a function of its arguments alone: it may be called more often or less often
    than the code says, and must not write into what it is given. Then

    - `@f.result` decorates the rule for the type of the result: it takes the arguments of f and returns arrays of the shape and dtype that f returns,
      np.empty(...), or an argument where the result is like it. It is called with stand-ins (of tensors, those of the device "meta"): their contents
      say nothing. Where f returns something else the result is right all the same, and the call becomes a graph break that says so.
    - `@f.vjp` and `@f.jvp` decorate a derivative, as those of `custom_derivative`: of arguments by position. Without one, tensors that require gradients
      are left to CPython.
    - `@f.batched` decorates the rule for framejit.vmap: it takes arrays with one more axis in front. Without one, f is called for each example.

    Called where nothing is compiled, f is the function as written. Raises TypeError for what is not callable, and what f raises. A call that can't be
    one operation (no rule for the result, an argument that is neither array, number nor constant) is a graph break that says why.

        @framejit.library_function
        def smoothed(x, width):
            return scipy.ndimage.uniform_filter1d(x, width)

        @smoothed.result
        def smoothed_result(x, width):
            return x

        @framejit.compile
        def f(x):
            return np.sum(smoothed(np.sin(x), 5) ** 2)      # one graph: two kernels and a call
    """
    return LibraryFunction(function)
