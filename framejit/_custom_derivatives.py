"""Derivatives that the user gives: stop_gradient and custom_derivative.

A function with a derivative of its own is called as it is. Where a derivative is taken (`_transforms._levels`), its rule is called under the levels
outside of the innermost one, whose graph is cut at the results; the pullback is noted there. To outer levels the cut is the identity.
So rules are derived as other code is, and a rule that calls its own function gets the rule of the next level, as in JAX.
"""
import functools
import inspect

from framejit._api import is_compiling
from framejit._transforms import _batches, _fields, _leaves, _map, _pull, _stack, _watch, _within

_INTEGERS = {2: "int16", 4: "int32", 8: "int64"}


def _is_tensor(leaf):
    return hasattr(leaf, "detach") and hasattr(leaf, "requires_grad")


def _has_derivative(leaf):
    if isinstance(leaf, float):
        return True
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return False
    return dtype.is_floating_point if hasattr(dtype, "is_floating_point") else dtype.kind == "f"


def _is_complex(leaf):
    if isinstance(leaf, complex):
        return True
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return False
    return dtype.is_complex if hasattr(dtype, "is_complex") else dtype.kind == "c"


def _stopped(leaf):
    if _is_tensor(leaf):
        return leaf.detach()
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return leaf
    if not _stack() or dtype.kind not in "fc" or not is_compiling():
        return leaf.copy()
    if dtype.kind == "c" or dtype.itemsize > 8:
        raise TypeError(f"framejit.stop_gradient: {dtype} inside of a derivative, which floats of 16, 32 and 64 bits have; for complex numbers "
                        "stop the gradients of the real and the imaginary part")
    # No derivative goes through integers. Not even one of zeros, which would be nan where it meets an infinite one.
    if _batches:
        return _by_parts(leaf.astype("float64")).astype(dtype)
    one = leaf.reshape(1) if leaf.ndim == 0 else leaf
    bits = one.copy().view(_INTEGERS[dtype.itemsize]).view(dtype)
    if leaf.ndim > 0:
        return bits
    import numpy  # at the top it would be imported for functions that do without

    return bits[0] if isinstance(leaf, numpy.generic) else bits.reshape(())


def _by_parts(x):
    """x of float64 from integers and truth values; of operations that can be mapped, which a library's view of the bits can't."""
    import numpy

    finite = numpy.isfinite(x)
    size = numpy.where(finite, abs(x), 1.0)
    scaled = []
    for k in (512, 256, 128, 64, 32, 16, 8):             # size < 2**8
        large = size >= 2.0 ** k
        size = numpy.where(large, size * 2.0 ** -k, size)
        scaled.append((large, 2.0 ** k))
    for k in (512, 512, 256, 128, 64, 32, 16, 8):        # 1 <= size < 2**8, or 0
        little = size < 2.0 ** (8 - k)
        size = numpy.where(little, size * 2.0 ** k, size)
        scaled.append((little, 2.0 ** -k))
    found = (size * 2.0 ** 52).astype("int64").astype("float64") * 2.0 ** -52
    for condition, factor in reversed(scaled):
        found = numpy.where(condition, found * factor, found)
    found = numpy.where(numpy.signbit(x), -found, found)
    found = numpy.where(finite, found, numpy.where(numpy.isnan(x), numpy.nan, numpy.where(numpy.signbit(x), -numpy.inf, numpy.inf)))
    return found[()] if isinstance(x, numpy.generic) else found


def stop_gradient(x):
    """`x`, whose derivative is zero.

    x: an array or number, or a tuple, list or dict of such. Returns the same structure: of NumPy arrays copies, of tensors `x.detach()`. It holds for
    all derivatives: grad, vjp, jvp, ... to any order, and for torch's backward(). Raises TypeError for complex NumPy arrays where a derivative is taken.

        def loss(w, x):
            target = framejit.stop_gradient(np.tanh(x @ w))      # a constant for the derivative
            return np.sum((x @ w - target) ** 2)
    """
    return _map(_stopped, x)


class _Floats:
    """Those leaves of a tree that have a derivative, and the structure: of each leaf whether it has."""

    def __init__(self, tree):
        self.leaves = []
        self.structure = _map(self._place, tree)

    def _place(self, leaf):
        if _is_complex(leaf):
            raise TypeError("framejit.custom_derivative: functions of complex numbers, or with complex results, are not taken where a derivative is")
        if _has_derivative(leaf):
            self.leaves.append(leaf)
            return True
        return False

    def filled(self, leaves):
        """The structure with these in the places of floats, and None elsewhere."""
        rest = iter(leaves)
        return _map(lambda is_float: next(rest) if is_float else None, self.structure)

    def matched(self, given, what):
        """What belongs to each float: a cotangent or a tangent. None stands for zeros, of one or of all in a part."""
        found, rest = [], iter(self.leaves)

        def collect(part, structure):
            if structure is True:
                leaf = next(rest)
                found.append(_zero(leaf) if part is None else _checked(part, leaf, what))
            elif structure is None or structure is False:
                if part is not None:
                    raise TypeError(f"{what} of what is no float is None")
            elif isinstance(structure, dict):
                if part is not None and not (isinstance(part, dict) and len(part) == len(structure) and all(key in part for key in structure)):
                    raise TypeError(f"{what} has another structure than what it belongs to")
                for key in structure:
                    collect(None if part is None else part[key], structure[key])
            elif (names := _fields(structure)) is not None:
                if part is not None and type(part) is not type(structure):
                    raise TypeError(f"{what} has another structure than what it belongs to")
                for name in names:
                    collect(None if part is None else getattr(part, name), getattr(structure, name))
            else:
                if part is not None and not (isinstance(part, (tuple, list)) and len(part) == len(structure)):
                    raise TypeError(f"{what} has another structure than what it belongs to")
                for i in range(len(structure)):
                    collect(None if part is None else part[i], structure[i])

        collect(given, self.structure)
        return found


def _zero(leaf):
    if _is_tensor(leaf):
        return leaf.new_zeros(leaf.shape)
    import numpy

    return numpy.zeros_like(leaf) if hasattr(leaf, "dtype") else 0.0


def _checked(given, leaf, what):
    """The cotangent or tangent of an array; a number as one of its dtype."""
    if isinstance(given, (tuple, list, dict)):
        raise TypeError(f"{what} has another structure than what it belongs to")
    shape, found = tuple(getattr(leaf, "shape", ())), tuple(getattr(given, "shape", ()))
    if found != shape:
        raise ValueError(f"{what} has shape {found}, and what it belongs to {shape}")
    if not hasattr(leaf, "dtype"):
        return given
    if not hasattr(given, "dtype"):
        return _zero(leaf) + given
    if given.dtype != leaf.dtype:
        raise ValueError(f"{what} has dtype {given.dtype}, and what it belongs to {leaf.dtype}")
    return given


def _identity(cotangents):
    return cotangents


def _place(function):
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _blank(kind):
    return kind.__new__(kind)


class CustomDerivative:
    """A function with a derivative of its own: what `custom_derivative` returns."""

    _keywords_allowed, _what = False, "framejit.custom_derivative"

    def __init__(self, function):
        if not callable(function):
            raise TypeError(f"{self._what} takes a callable, not {function!r}")
        functools.update_wrapper(self, function)
        self._function, self._vjp, self._jvp = function, None, None
        self._text = _place(function)
        self._vjp_text = self._jvp_text = ""
        self._names, self._defaults = [], {}
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # a builtin that doesn't say
            parameters = []
        for parameter in parameters:
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
                if self._keywords_allowed:
                    continue
                raise TypeError(f"{self._what}: {self._text} has the keyword parameter {parameter.name!r}; "
                                "derivatives are given by position, and so are its arguments")
            if parameter.kind != parameter.VAR_POSITIONAL:
                self._names.append(parameter.name)
                if parameter.default is not parameter.empty:
                    self._defaults[parameter.name] = parameter.default

    def vjp(self, rule):
        """Decorates the rule f_vjp(*args) -> (value, pullback)."""
        if not callable(rule):
            raise TypeError(f"{self._what}: a rule is a callable, not {rule!r}")
        self._vjp, self._vjp_text = rule, _place(rule)
        return rule

    def jvp(self, rule):
        """Decorates the rule f_jvp(primals, tangents) -> (value, tangent)."""
        if not callable(rule):
            raise TypeError(f"{self._what}: a rule is a callable, not {rule!r}")
        self._jvp, self._jvp_text = rule, _place(rule)
        return rule

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self):
        from framejit._pickle import is_written_down

        # Its rules know it by its name, among what they have of its module: it is made before they are.
        return (_blank, (type(self),), vars(self)) if is_written_down(self.__module__) else self.__qualname__

    def __repr__(self):
        return f"<framejit.custom_derivative of {self._text}>"

    def __call__(self, *args, **kwargs):
        if not _stack():
            if _recorded_by_torch(args, kwargs):
                return _call_of_torch(self, self._positional(args, kwargs))
            return self._function(*args, **kwargs)
        return self._under_levels(self._positional(args, kwargs))

    def _positional(self, args, kwargs):
        """All arguments, with defaults: what rules are given."""
        args, left = list(args), dict(kwargs)
        for name in self._names[len(args):]:
            if name in left:
                args.append(left.pop(name))
            elif name in self._defaults:
                args.append(self._defaults[name])
            else:
                break
        if left:
            raise TypeError(f"{self._text} got the keyword argument {list(left)[0]!r}, which has no place")
        return args

    def _under_levels(self, args):
        stack = _stack()
        place = len(stack) - 1
        while place >= 0 and stack[place][0] in ("linear", "hidden"):
            place -= 1
        if place < 0:
            return self._function(*args)
        level = stack[place]
        stack[place] = ("hidden", [])
        try:
            value, back, inputs = self._value_and_pullback(args, level[0])
        finally:
            stack[place] = level
        if not inputs:
            return value
        values, outputs = [], []

        def cut(leaf):
            if not _has_derivative(leaf):
                return leaf
            new, mark = _watch(_stopped(leaf))
            values.append(leaf)
            outputs.append(mark)
            return new

        result = _map(cut, value)
        level[1].append((inputs, outputs, back))
        for other in range(len(stack)):
            if other != place and stack[other][0] != "hidden":
                stack[other][1].append((values, outputs, _identity))
        return result

    def _value_and_pullback(self, args, kind):
        """(value, what makes cotangents of its floats those of the arguments' floats, these)."""
        given = _Floats(tuple(args))
        if self._jvp is not None and (kind == "forward" or self._vjp is None):
            return self._by_jvp(args, given)
        if self._vjp is None:
            raise TypeError(f"{self._what}: a derivative of {self._text} is taken, and it has no rule; "
                            "decorate one with @f.vjp or @f.jvp")
        pair = self._vjp(*args)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"{self._what}: the rule {self._vjp_text} returns a pair (value, pullback)")
        value, pullback = pair
        result, text = _Floats(value), self._vjp_text

        def back(cotangents):
            found = pullback(result.filled(cotangents))
            if not isinstance(found, (tuple, list)) or len(found) != len(args):
                count = f"{len(found)} cotangents" if isinstance(found, (tuple, list)) else "no tuple"
                raise TypeError(f"{self._what}: the pullback of {text} returns a tuple of {len(args)} cotangents, "
                                f"one for each argument, not {count}")
            return given.matched(tuple(found), f"{self._what}: a cotangent that the pullback of {text} returns")

        return value, back, given.leaves

    def _by_jvp(self, args, given):
        # A tangent is linear in those of the arguments: wherever its derivative is taken, that is the rule transposed.
        marks, rules = [], []

        def seed(leaf):
            value, mark = _watch(_stopped(leaf))
            marks.append(mark)
            return value

        tangents = given.filled([seed(leaf) for leaf in given.leaves])
        pair = _within(("linear", rules), self._jvp, tuple(args), tangents)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"{self._what}: the rule {self._jvp_text} returns a pair (value, tangent)")
        value, tangent = pair
        result = _Floats(value)
        directions = result.matched(tangent, f"{self._what}: the tangent that {self._jvp_text} returns")

        def back(cotangents):
            return _pull(directions, cotangents, marks, rules)

        return value, back, given.leaves


def _recorded_by_torch(args, kwargs):
    for leaf in _leaves((args, kwargs)):
        if _is_tensor(leaf) and leaf.requires_grad:
            import torch  # which is there; sys.modules may be too large a dict to be traced

            return torch.is_grad_enabled()
    return False


def _call_of_torch(custom, args):
    """Of tensors that require gradients, for backward()."""
    from framejit._support.custom_derivatives import call

    return call(custom, args)


def custom_derivative(function):
    """Decorates a function whose derivative the user gives, as jax.custom_vjp and jax.custom_jvp do.

    function: of NumPy arrays or tensors, and trees of such; its arguments are positional or may be given so. Then one of

    - `@f.vjp` decorates f_vjp(*args) -> (value, pullback). pullback(cotangent), of the structure of the value, returns a tuple with a
      cotangent for each argument, of its structure, shape and dtype; None stands for zeros, and for what is no float.
    - `@f.jvp` decorates f_jvp(primals, tangents) -> (value, tangent), which is linear in the tangents; those of what is no float are None.

    or both: then framejit.jvp takes the second, all others the first. One is enough for either direction. Called where no derivative is taken, f is
    the function as written. Under grad, value_and_grad, vjp, jvp, jacobian and hessian the rule is called in its place; higher derivatives derive the
    rule's code. What f closes over counts as constant: give arrays as arguments. Of tensors that require gradients backward() calls the pullback, but
    not to the second order (a gradient of create_graph=True has no grad_fn), and results of framejit.grad and its like in which a rule was used
    are detached.

    Raises, where a derivative is taken, TypeError if there is no rule, or it returns another structure or number of cotangents, and ValueError for a
    cotangent or tangent of another shape or dtype; the text says the rule and its line. TypeError too for vmap of such a function inside of a
    derivative, as grad(vmap(f)): vmap(grad(f)) is mapped.

        @framejit.custom_derivative
        def softplus(x):
            return np.log(1 + np.exp(x))

        @softplus.jvp
        def softplus_jvp(primals, tangents):
            x, = primals
            dx, = tangents
            return softplus(x), dx * (1 - 1 / (1 + np.exp(x)))

        framejit.grad(softplus)(100.0)      # 1.0; the derivative of the code as written is nan
    """
    return CustomDerivative(function)
