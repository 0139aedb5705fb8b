"""What ONNX's nodes compute each operation: `operations` has one entry per row of ops.def.

An entry is given the `Model`, the graph's node and the operands' Values (onnx.py), and returns a Value, which is cast to the node's dtype
where it is of another. `_plain` entries are given operands in the dtype that arithmetic is done in.
"""
import math

from framejit._graph.onnx import Value, write_branch, write_loop

_BITS = {"bool": 8, "u8": 8, "i8": 8, "u16": 16, "i16": 16, "u32": 32, "i32": 32, "u64": 64, "i64": 64}
_UNSIGNED = {"bool", "u8", "u16", "u32", "u64"}


def _wide(function):
    return lambda model, node, *xs: function(model, node, *map(model.wide, xs))


def _plain(kind, **attrs):
    """ONNX's operation of this name."""
    return _wide(lambda model, node, *xs: model.op(kind, *xs, **attrs))


def _formula(function):
    """What Value's operators write."""
    return _wide(lambda model, node, *xs: function(model, *xs))


def _half(function):
    """In float64 where the operands are narrower: what ONNX has no operation for is then rounded once, nearly always."""
    def call(model, node, *xs):
        return function(model, *(x.cast("f64") for x in xs))

    return call


# ---- one operand


def _neg(model, x):
    return -x if x.dtype != "u64" else (-x.cast("i64")).cast("u64")


def _abs(model, node, x):
    return x if x.dtype in _UNSIGNED else abs(model.wide(x))


def _sign(model, x):
    found = (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype) if x.dtype != "u64" else (x > 0).cast(x.dtype)
    return model.where(model.op("IsNaN", x), x, found) if x.is_float else found


def _expm1(model, x):
    # Kahan: the rounding of exp(x) is in both factors, and cancels.
    u = model.op("Exp", x)
    v = u - 1
    exact = v * (x / model.op("Log", u))
    return model.where(u.equals(1), x, model.where(v.equals(-1) | model.op("IsInf", u), v, exact))


def _log1p(model, x):
    u = x + 1
    logarithm = model.op("Log", u)
    exact = logarithm * (x / (u - 1))
    return model.where(u.equals(1), x, model.where(model.op("IsInf", u), logarithm, exact))


def _logarithm(base):
    return _half(lambda model, x: model.op("Log", x) / math.log(base))


def _rounded(kind):
    def call(model, node, x):
        return model.op(kind, model.wide(x)) if x.is_float else x

    return call


def _trunc(model, node, x):
    if not x.is_float:
        return x
    x = model.wide(x)
    return model.where(x < 0, model.op("Ceil", x), model.op("Floor", x))


def _is_nan(model, x):
    return model.op("IsNaN", x) if x.is_float else ~x.equals(x)


def _is_inf(model, x):
    return model.op("IsInf", x) if x.is_float else ~x.equals(x)


def _is_finite(model, x):
    return ~(model.op("IsNaN", x) | model.op("IsInf", x)) if x.is_float else x.equals(x)


def _sign_bit(model, x):
    # -0.0 has a reciprocal below zero. A NaN's sign has no meaning, and counts as +.
    return (x < 0) | (1.0 / x < 0) if x.is_float else x < 0


def _bitwise(kind, logical):
    def call(model, node, *xs):
        return model.op(logical if xs[0].dtype == "bool" else kind, *xs)

    return call


def _popcount(model, node, x):
    bits = _BITS[x.dtype]
    x = model.reshape(x.cast(f"u{bits}").cast("u64"), (*x.shape, 1))
    each = model.op("BitShift", x, model.array(range(bits), "u64"), direction="RIGHT")
    ones = model.op("BitwiseAnd", each, model.number(1, "u64")).cast("i64")
    return model.op("ReduceSum", ones, model.array([-1]), shape=x.shape[:-1], keepdims=0)


# ---- two operands


def _int_or_float(of_ints, of_floats):
    return _formula(lambda model, a, b: (of_floats if a.is_float else of_ints)(model, a, b))


def _int_floor_div(model, a, b):
    quotient = a / b  # towards zero
    if a.dtype == "u64":
        return quotient
    return quotient - (~model.op("Mod", a, b).equals(0) & ((a < 0) ^ (b < 0))).cast(a.dtype)


def _float_floor_div(model, a, b):
    # As NumPy and torch compute it: from the exact remainder, so that the quotient is rounded where they round it.
    rest = model.op("Mod", a, b, fmod=1)
    quotient = (a - rest) / b - (~rest.equals(0) & ((rest < 0) ^ (b < 0))).cast(a.dtype)
    whole = model.op("Floor", quotient)
    return model.where(b.equals(0), a / b, whole + (quotient - whole > 0.5).cast(a.dtype))


def _float_mod(model, a, b):
    rest = model.op("Mod", a, b, fmod=1)
    return model.where(~rest.equals(0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


def _pow(model, node, a, b):
    if a.is_float:
        return model.op("Pow", model.wide(a), model.wide(b))
    # Squares and products wrap around as the libraries' do; ONNX's Pow goes by floating point.
    exponent, bits = node.operands[1], _BITS[a.dtype] - (a.dtype not in _UNSIGNED)
    while exponent.op in ("broadcast", "reshape", "cast"):
        exponent = exponent.operands[0]
    known = exponent.attrs["value"] if exponent.op == "constant" else None
    if known is not None and known >= 0:
        bits = int(known).bit_length()
    base, power = model.wide(a), model.number(1, model.wide(a).dtype)
    b = b.cast("u64")
    for bit in range(bits):
        if known is None:
            odd = model.op("BitwiseAnd", model.op("BitShift", b, model.number(bit, "u64"), direction="RIGHT"), model.number(1, "u64"))
            power = model.where(odd.equals(1), power * base, power)
        elif int(known) >> bit & 1:
            power = power * base
        base = base * base if bit + 1 < bits else base
    if known is not None and known >= 0:
        return power
    if a.dtype in _UNSIGNED:
        return power
    # The reciprocal: of 1 and -1 a whole number, of others 0.
    b, base = b.cast("i64"), model.wide(a)
    odd = ~model.op("Mod", b, model.number(2, "i64")).equals(0)
    below = model.where(base.equals(1) | (base.equals(-1) & ~odd), 1, model.where(base.equals(-1), -1, model.number(0, base.dtype)))
    return model.where(b < 0, below, power)


def _atan2(model, y, x):
    up, across = abs(y), abs(x)
    angle = model.op("Atan", up / across)
    angle = model.where(model.op("IsInf", up) & model.op("IsInf", across), math.pi / 4, angle)
    angle = model.where(up.equals(0) & across.equals(0), 0.0, angle)
    angle = model.where(_sign_bit(model, x), math.pi - angle, angle)
    return _copysign(model, angle, y)


def _hypot(model, a, b):
    a, b = abs(a), abs(b)
    more, less = model.where(a >= b, a, b), model.where(a >= b, b, a)
    ratio = less / more
    length = model.where(more.equals(0), more, more * model.op("Sqrt", ratio * ratio + 1))
    length = model.where(model.op("IsNaN", a) | model.op("IsNaN", b), a + b, length)
    return model.where(model.op("IsInf", a) | model.op("IsInf", b), math.inf, length)


def _copysign(model, a, b):
    return model.where(_sign_bit(model, b), -abs(a), abs(a))


def _extreme(kind, ignores_nan=False):
    """The first of two equal operands; a NaN where one is, or where both are. ONNX's Max and Min say nothing of NaN."""
    def call(model, a, b):
        first = model.op(kind, a, b)
        if a.is_float:
            first = first | model.op("IsNaN", b if ignores_nan else a)
        return model.where(first, a, b)

    return _formula(call)


def _shift(left):
    def call(model, node, x, count):
        bits, dtype = _BITS[x.dtype], x.dtype
        count = count.cast("u64")  # a negative one is a large one
        outside = count >= bits
        if left:
            shifted = model.op("BitShift", x.cast("u64"), model.where(outside, 0, count), direction="LEFT")
            return model.where(outside, 0, shifted.cast("i64").cast(dtype))
        count = model.where(outside, bits - 1, count)
        if dtype in _UNSIGNED:
            shifted = model.op("BitShift", x.cast("u64"), count, direction="RIGHT")
            return model.where(outside, 0, shifted.cast(dtype))
        negative, x = x < 0, x.cast("i64")
        # ~(~x >> n) has ones where x >> n of unsigned numbers has zeros.
        kept = model.where(negative, model.op("BitwiseNot", x), x)
        shifted = model.op("BitShift", kept.cast("u64"), count, direction="RIGHT").cast("i64")
        return model.where(negative, model.op("BitwiseNot", shifted), shifted)

    return call


# ---- index maps


def _broadcast(model, node, x):
    """The operand's axes in their places; ONNX makes them longer where they are read."""
    if not x.shape:
        return x
    dims, within = node.attrs["dims"], [1] * len(node.shape)
    for axis, size in zip(dims[len(dims) - len(x.shape):], x.shape):
        within[axis] = size
    return model.reshape(x, within[dims[-len(x.shape)]:])


def _slice_of(model, x, shape, starts, sizes, steps):
    """`x` of the shape, sliced; a step below zero slices forwards and turns the axis round."""
    low, high, by, axes, turned = [], [], [], [], []
    for axis, (whole, start, size, step) in enumerate(zip(shape, starts, sizes, steps)):
        if step < 0:
            turned.append(axis)
            start = _sum(start, _times(size, step), -step)
        if start == 0 and size == whole and abs(step) == 1:
            continue
        axes.append(axis)
        low.append(start)
        high.append(_sum(start, _times(size, abs(step)), 1 - abs(step) if size != 0 else 0))
        by.append(abs(step))
    if axes:
        x = model.op("Slice", x, model.dims(low), model.dims(high), model.array(axes), model.array(by), shape=sizes)
    if turned:
        ones = [-1] * len(turned)
        first = model.array([-2**63 + 1] * len(turned))
        x = model.op("Slice", x, model.array(ones), first, model.array(turned), model.array(ones), shape=sizes)
    return x


def _sum(*sizes):
    known = sum(size for size in sizes if isinstance(size, int))
    texts = [f"({size})" for size in sizes if isinstance(size, str)]
    return " + ".join([*texts, str(known)]) if texts else known


def _times(size, factor):
    return size * factor if isinstance(size, int) else f"({size}) * ({factor})"


def _full(model, node, i, x):
    return model.full(x, node.operands[i].shape)


def _slice(model, node, x):
    return _slice_of(model, _full(model, node, 0, x), node.operands[0].shape, node.attrs["starts"], node.shape, node.attrs["steps"])


def _windows(model, node, x):
    axis, size, step = node.attrs["axis"], node.attrs["size"], node.attrs["step"]
    count = node.shape[axis]
    places = model.reshape(model.count(count) * step, (count, 1)) + model.array(range(size))
    x = _full(model, node, 0, x)
    shape = [*x.shape[:axis], count, size, *x.shape[axis + 1:]]
    gathered = model.op("Gather", x, places, shape=shape, axis=axis)
    return model.transpose(gathered, [*range(axis + 1), *range(axis + 2, len(shape)), axis + 1])


def _pad(model, node, x, value):
    x = model.wide(_full(model, node, 0, x)) if x.dtype != "bool" else _full(model, node, 0, x)
    pads = model.dims([*node.attrs["low"], *node.attrs["high"]])
    return model.op("Pad", x, pads, model.reshape(value, ()).cast(x.dtype), shape=node.shape)


def _concat(model, node, *xs):
    return model.op("Concat", *(_full(model, node, i, x) for i, x in enumerate(xs)), shape=node.shape, axis=node.attrs["axis"])


def _slice_update(model, node, base, update):
    base, update = _full(model, node, 0, base), _full(model, node, 1, update)
    starts, steps, sizes = node.attrs["starts"], node.attrs["steps"], update.shape
    partial = [axis for axis, (start, size) in enumerate(zip(starts, sizes)) if start != 0 or size != node.shape[axis] or steps[axis] != 1]
    if not partial:
        return update
    if len(partial) == 1 and steps[partial[0]] == 1:
        axis, = partial
        after = _sum(starts[axis], sizes[axis])
        parts = [update]
        for start, size in ((0, starts[axis]), (after, _sum(node.shape[axis], _times(after, -1)))):
            if size != 0:
                part = list(sizes)
                part[axis] = size
                begin = [0] * len(part)
                begin[axis] = start
                parts.insert(len(parts) if start != 0 else 0, _slice_of(model, base, node.shape, begin, part, [1] * len(part)))
        return model.op("Concat", *parts, shape=node.shape, axis=axis)
    # The places that the slice reads, as numbers in row-major order.
    places = model.reshape(model.count(model.product(node.shape)), node.shape)
    places = _flat(model, _slice_of(model, places, node.shape, starts, sizes, steps))
    made = model.op("ScatterElements", _flat(model, base), places, _flat(model, update), shape=(model.product(node.shape),), axis=0)
    return model.reshape(made, node.shape)


def _flat(model, x):
    return model.op("Reshape", x, model.array([-1]), shape=(model.product(x.shape),)) if len(x.shape) != 1 else x


# ---- reductions and scans


def _ordered(model, x):
    """uint64 as int64 of the same order, which ONNX has reductions of; others as they are. Its own inverse."""
    if x.dtype != "u64":
        return model.wide(x)
    return model.op("BitwiseXor", x.cast("i64"), model.number(-2**63, "i64"))


def _unordered(model, x, dtype):
    return model.op("BitwiseXor", x, model.number(-2**63, "i64")).cast(dtype) if dtype == "u64" else x


def _added(model, x):
    """Integers as int64, whose sums and products have the bits of theirs: runtimes round int32's to floats, or stop at the largest."""
    return model.wide(x) if x.is_float else x.cast("i64")


def _sum_of(kind):
    def call(model, node, x):
        x = _added(model, _full(model, node, 0, x))
        if not node.attrs["axes"]:
            return x
        return model.op(kind, x, model.array(node.attrs["axes"]), shape=node.shape, keepdims=0)

    return call


def _extreme_of(kind):
    def call(model, node, x):
        x, axes = _ordered(model, _full(model, node, 0, x)), model.array(node.attrs["axes"])
        if not node.attrs["axes"]:
            return _unordered(model, x, node.dtype)
        found = model.op(kind, x, axes, shape=node.shape, keepdims=0)
        if not x.is_float:
            return _unordered(model, found, node.dtype)
        holes = model.op("ReduceMax", model.op("IsNaN", x).cast("i32"), axes, shape=node.shape, keepdims=0)
        return model.where(holes > 0, math.nan, found)

    return call


def _place_of(kind):
    def call(model, node, x):
        x, axis = _ordered(model, _full(model, node, 0, x)), node.attrs["axis"]
        how = dict(dtype="i64", shape=node.shape, axis=axis, keepdims=0)
        if not x.is_float:
            return model.op(kind, x, **how)
        # The first NaN, where there is one.
        holes = model.op("IsNaN", x).cast("i32")
        some = model.op("ReduceMax", holes, model.array([axis]), shape=node.shape, keepdims=0) > 0
        return model.where(some, model.op("ArgMax", holes, **how), model.op(kind, x, **how))

    return call


def _cumsum(model, node, x):
    x = _added(model, _full(model, node, 0, x))
    return model.op("CumSum", x, model.number(node.attrs["axis"], "i64"), shape=node.shape)


def _cumprod(model, node, x):
    helper = model.onnx.helper
    x, axis = model.wide(_full(model, node, 0, x)), node.attrs["axis"]
    rest = [*node.shape[:axis], *node.shape[axis + 1:]]
    number = model.type_number(x.dtype)
    infos = {name: helper.make_tensor_value_info(name, number, [None] * len(rest)) for name in ("before", "factor", "after", "product")}
    steps = [helper.make_node("Mul", ["before", "factor"], ["after"]), helper.make_node("Identity", ["after"], ["product"])]
    body = helper.make_graph(steps, "product", [infos["before"], infos["factor"]], [infos["after"], infos["product"]])
    ones = model.full(model.number(1, x.dtype), rest)
    _, products = model.several("Scan", [ones, x], [(x.dtype, rest), (x.dtype, node.shape)], body=body, num_scan_inputs=1,
                                scan_input_axes=[axis], scan_output_axes=[axis])
    return products


# ---- indices as data


def _merged(model, shape, axis, indices):
    """(the shape with the indexed axes in one, the indices of that axis)."""
    if len(indices) == 1:
        return list(shape), indices[0]
    sizes = shape[axis:axis + len(indices)]
    whole = model.product(sizes)
    place, outside = None, None
    for size, index in zip(sizes, indices):
        length = model.scalar(size)
        wrong, index = (index >= length) | (index < -length), model.where(index < 0, index + length, index)
        place = index if place is None else place * length + index
        outside = wrong if outside is None else outside | wrong
    # Out of one axis may be inside of the whole: it stays an error.
    return [*shape[:axis], whole, *shape[axis + len(indices):]], model.where(outside, model.scalar(whole), place)


def _indices(model, node, first, xs):
    shape = node.operands[first].shape
    return [model.full(x, shape) for x in xs]


def _gather(model, node, x, *indices):
    axis = node.attrs["axis"]
    shape, index = _merged(model, node.operands[0].shape, axis, _indices(model, node, 1, indices))
    return model.op("Gather", model.reshape(_full(model, node, 0, x), shape), index, shape=node.shape, axis=axis)


def _take_along(model, node, x, indices):
    return model.op("GatherElements", _full(model, node, 0, x), _full(model, node, 1, indices), shape=node.shape, axis=node.attrs["axis"])


def _scattered(model, node, base, updates, indices):
    """(base, updates, indices): of one axis, the updates and the indices of one shape."""
    axis = node.attrs["axis"]
    shape, index = _merged(model, node.shape, axis, _indices(model, node, 2, indices))
    rows = model.product(index.shape)
    of_updates = [*shape[:axis], rows, *shape[axis + 1:]]
    updates = model.reshape(_full(model, node, 1, updates), of_updates)
    index = model.reshape(_flat(model, index), [rows] + [1] * (len(shape) - axis - 1))
    return model.reshape(_full(model, node, 0, base), shape), updates, model.full(index, of_updates)


def _scatter(model, node, base, updates, *indices):
    axis = node.attrs["axis"]
    base, updates, places = _scattered(model, node, base, updates, indices)
    # Of repeated indices the last counts: which update is the last at each place, by number; -1 where there is none.
    rows = updates.shape[axis]
    numbers = model.full(model.reshape(model.count(rows), [rows] + [1] * (len(base.shape) - axis - 1)), updates.shape)
    none = model.full(model.number(-1, "i64"), base.shape)
    last = model.op("ScatterElements", none, places, numbers, shape=base.shape, axis=axis, reduction="max")
    updates = _padded(model, updates, axis)  # there may be none
    taken = model.op("GatherElements", updates, model.where(last < 0, model.scalar(rows), last), shape=base.shape, axis=axis)
    return model.reshape(model.where(last >= 0, taken, base), node.shape)


def _padded(model, x, axis):
    """One element more along the axis."""
    more = [1 if i == axis else size for i, size in enumerate(x.shape)]
    row = model.full(model.number(0, x.dtype), more)
    return model.op("Concat", x, row, shape=[_sum(size, 1) if i == axis else size for i, size in enumerate(x.shape)], axis=axis)


def _scatter_add(model, node, base, updates, *indices):
    base, updates, places = _scattered(model, node, base, updates, indices)
    base, updates = model.wide(base), model.wide(updates)
    made = model.op("ScatterElements", base, places, updates, shape=base.shape, axis=node.attrs["axis"], reduction="add")
    return model.reshape(made, node.shape)


def _nonzero(model, node, x):
    count = node.attrs["count"]
    places = model.op("NonZero", _flat(model, _full(model, node, 0, x)), dtype="i64", shape=(1, count))
    places = model.reshape(places, (count,)) if isinstance(count, int) else _flat(model, places)
    places = Value(model, places.name, "i64", (count,))
    _define_size(model, node, model.op("Shape", places, dtype="i64", shape=(1,)))
    return places


def _as_size(model, node, x):
    known = model.reshape(x, (1,))
    # A negative number is no size: an index that is out of range ends the run.
    known = known + model.op("Gather", model.array([0]), (known < 0).cast("i64"), shape=(1,), axis=0)
    _define_size(model, node, known)
    return x


def _define_size(model, node, known):
    for wrong in node.attrs["excluded"]:
        # The graph is of other numbers: an index that is out of range ends the run.
        known = known + model.op("Gather", model.array([0]), known.equals(wrong).cast("i64"), shape=(1,), axis=0)
    model.sizes.known[str(node.attrs["count"])] = known


# ---- others


def _constant(model, node):
    return model.number(node.attrs["value"], node.dtype)


def _iota(model, node):
    axis = node.attrs["axis"]
    return model.reshape(model.count(node.shape[axis]), [node.shape[axis]] + [1] * (len(node.shape) - axis - 1))


def _reshape(model, node, x):
    return model.reshape(_full(model, node, 0, x), node.shape)


def _transpose(model, node, x):
    return model.transpose(_full(model, node, 0, x), node.attrs["permutation"])


def _matmul(model, node, a, b):
    a, b = _full(model, node, 0, a), _full(model, node, 1, b)
    if a.dtype == "u64":  # the bits are those of int64
        a, b = a.cast("i64"), b.cast("i64")
    elif a.dtype != "f16":  # which devices have products of
        a, b = model.wide(a), model.wide(b)
    return model.op("MatMul", a, b, shape=node.shape)


def _where(model, node, condition, a, b):
    if a.dtype == "bool":
        return (condition & a) | (~condition & b)
    return model.where(condition, a, b)


def _fma(model, node, a, b, c):
    if a.dtype == "f32":
        a, b, c = (x.cast("f64") for x in (a, b, c))
    return a * b + c


def _extern(model, node, *xs):
    from framejit._graph.onnx_calls import is_indexed, write

    xs = [_full(model, node, i, x) for i, x in enumerate(xs)]
    if not is_indexed(node):
        return write(model, node, xs)
    x, *others = xs
    of_indices = node.shape[:len(node.shape) - len(x.shape) + len(others)]
    shape, index = _merged(model, x.shape, 0, [model.full(i.cast("i64"), of_indices) for i in others])
    return [model.op("Gather", model.reshape(x, shape), index, shape=node.shape, axis=0)]


operations = {
    "constant": _constant,
    "dim": lambda model, node: model.scalar(node.attrs["value"]),
    "iota": _iota,
    # one operand
    "neg": _formula(_neg),
    "abs": _abs,
    "sign": _formula(_sign),
    "sqrt": _plain("Sqrt"),
    "rsqrt": _formula(lambda model, x: model.op("Reciprocal", model.op("Sqrt", x))),
    "exp": _plain("Exp"),
    "exp2": _formula(lambda model, x: model.op("Pow", model.number(2, x.dtype), x)),
    "expm1": _formula(_expm1),
    "log": _plain("Log"),
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "log1p": _formula(_log1p),
    "sin": _plain("Sin"),
    "cos": _plain("Cos"),
    "tan": _plain("Tan"),
    "asin": _plain("Asin"),
    "acos": _plain("Acos"),
    "atan": _plain("Atan"),
    "sinh": _plain("Sinh"),
    "cosh": _plain("Cosh"),
    "tanh": _plain("Tanh"),
    "asinh": _plain("Asinh"),
    "acosh": _plain("Acosh"),
    "atanh": _plain("Atanh"),
    "erf": _plain("Erf"),
    "floor": _rounded("Floor"),
    "ceil": _rounded("Ceil"),
    "round": _rounded("Round"),
    "trunc": _trunc,
    "is_nan": _formula(_is_nan),
    "is_inf": _formula(_is_inf),
    "is_finite": _formula(_is_finite),
    "sign_bit": _formula(_sign_bit),
    "logical_not": _formula(lambda model, x: x.equals(0)),
    "bit_not": _bitwise("BitwiseNot", "Not"),
    "popcount": _popcount,
    "cast": lambda model, node, x: x.cast(node.dtype),
    # two operands
    "add": _plain("Add"),
    "sub": _plain("Sub"),
    "mul": _plain("Mul"),
    "div": _plain("Div"),
    "floor_div": _int_or_float(_int_floor_div, _float_floor_div),
    "mod": _int_or_float(lambda model, a, b: model.op("Mod", a, b), _float_mod),
    "trunc_div": _plain("Div"),
    "fmod": _int_or_float(lambda model, a, b: a - (a / b) * b, lambda model, a, b: model.op("Mod", a, b, fmod=1)),
    "pow": _pow,
    "atan2": _formula(_atan2),
    "hypot": _formula(_hypot),
    "copysign": _formula(_copysign),
    "maximum": _extreme("GreaterOrEqual"),
    "minimum": _extreme("LessOrEqual"),
    "fmax": _extreme("GreaterOrEqual", ignores_nan=True),
    "fmin": _extreme("LessOrEqual", ignores_nan=True),
    "eq": _plain("Equal"),
    "ne": _formula(lambda model, a, b: ~a.equals(b)),
    "lt": _plain("Less"),
    "le": _plain("LessOrEqual"),
    "gt": _plain("Greater"),
    "ge": _plain("GreaterOrEqual"),
    "bit_and": _bitwise("BitwiseAnd", "And"),
    "bit_or": _bitwise("BitwiseOr", "Or"),
    "bit_xor": _bitwise("BitwiseXor", "Xor"),
    "shift_left": _shift(left=True),
    "shift_right": _shift(left=False),
    "where": _where,
    "fma": _fma,
    # index maps
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "windows": _windows,
    "pad": _pad,
    "concat": _concat,
    "slice_update": _slice_update,
    # reductions
    "reduce_sum": _sum_of("ReduceSum"),
    "reduce_prod": _sum_of("ReduceProd"),
    "reduce_max": _extreme_of("ReduceMax"),
    "reduce_min": _extreme_of("ReduceMin"),
    "reduce_and": _extreme_of("ReduceMin"),
    "reduce_or": _extreme_of("ReduceMax"),
    "argmax": _place_of("ArgMax"),
    "argmin": _place_of("ArgMin"),
    # scans
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    # indices as data
    "gather": _gather,
    "take_along": _take_along,
    "scatter_add": _scatter_add,
    "scatter": _scatter,
    "nonzero": _nonzero,
    "as_size": _as_size,
    # products and the library's own functions
    "matmul": _matmul,
    "extern_call": _extern,
    "cond": write_branch,
    "loop": write_loop,
}
