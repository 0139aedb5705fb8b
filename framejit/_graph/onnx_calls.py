"""Calls of the library that ONNX has operators for: `functions`, by name.

An entry has the parameters of the library's function behind the Model; arrays are Values, a size that differs between calls is a text.
It returns a Value, or a tuple of them, with None for one that ONNX does not give. Half types are ONNX's own here: a product or a
convolution is what takes the time.
"""
import ast
import inspect
import itertools
import operator

from framejit._graph import calls
from framejit._graph.onnx import Unwritable, Value


_CEILS = "pooling with ceil_mode that makes another size"


def name_of(node):
    """The name of the function that a call is of; "" for one without a text."""
    callee = node.attrs["callee"]
    return callee.partition("(")[0].rpartition(" ")[2] if calls.is_text(callee) else ""


def is_known(node):
    return name_of(node) in functions or is_indexed(node)


def is_indexed(node):
    """Whether it is `x[i, j]` of arrays of indices for the first axes, which broadcast: more than a gather, and no call with a text."""
    core, handle = node.graph._core, node.attrs["handle"]
    call = core.calls[handle] if core is not None and 0 <= handle < len(core.calls) else None
    indices = [("operand", i) for i in range(1, len(node.operands))]
    return call is not None and call[0] is operator.getitem and list(call[1]) == [("operand", 0), ("tuple", indices)] and all(
        x.dtype in ("i32", "i64") for x in node.operands[1:])


def write(model, node, operands):
    """The results, in order: those of the function, then what it has written."""
    statement, results, written = calls.parsed(node.attrs["callee"])
    call = statement.value
    arguments = [_argument(x, operands) for x in call.args]
    keywords = {keyword.arg: _argument(keyword.value, operands) for keyword in call.keywords}
    name = name_of(node)
    function = functions[name]
    try:
        bound = inspect.signature(function).bind(_Call(model, node), *arguments, **keywords)
    except TypeError as error:
        raise Unwritable(f"`{node.attrs['callee']}` has arguments that ONNX has no form of: {error}") from None
    made = function(*bound.args, **bound.kwargs)
    made = list(made) if isinstance(made, tuple) else [made]
    if results == []:  # it returns nothing, and has written its result
        return made
    evaluated = name.endswith("batch_norm")  # in eval mode, or refused: what it would write stays as it is
    _refuse(written and not evaluated and not keywords.get("inplace"), "a call that writes into its operands")
    made += [operands[int(x[1:])] if evaluated else made[0] for x in written]
    if results is not None:
        made = [made[results.index(f"r{i}")] for i in range(len(results) - results.count("_"))]
    read = {x.attrs["index"] for x in node.users if x.op == "result" and (x.users or x in node.graph.outputs)}
    _refuse(any(x is None and i in read for i, x in enumerate(made)), "the indices that it gives")
    return [x and x.cast(type.dtype) for x, type in zip(made, _types(node))]


def _types(node):
    return [node.type] if hasattr(node.type, "dtype") else list(node.type)


class _Call:
    """The Model, and the node for its type."""

    def __init__(self, model, node):
        self.model, self.node = model, node
        self.types = _types(node)

    shape = property(lambda self: self.types[0].shape)
    __getattr__ = lambda self, name: getattr(self.model, name)


def _argument(tree, operands):
    if isinstance(tree, ast.Name):
        return operands[int(tree.id[1:])] if tree.id[0] == "x" else tree.id
    if isinstance(tree, ast.Tuple | ast.List):
        return [_argument(x, operands) for x in tree.elts]
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.operand, ast.Constant):
        return -tree.operand.value
    if isinstance(tree, ast.Call) and tree.args:  # float("inf")
        return float(_argument(tree.args[0], operands))
    return ast.unparse(tree)


def _refuse(condition, what):
    if condition:
        raise Unwritable(f"ONNX has no form of {what}")


def _list(value, count):
    values = value if isinstance(value, list) else [value]
    values = values * count if len(values) == 1 else values
    if not all(type(x) is int for x in values):
        raise Unwritable("ONNX needs the kernel, the stride, the padding and the dilation as numbers")
    return values


# ---- layers


def _linear(model, input, weight, bias=None):
    rank = len(weight.shape)
    if rank == 1:
        product = model.op("MatMul", input, weight, shape=model.shape)
    else:
        product = model.op("MatMul", input, model.transpose(weight, [1, 0]), shape=model.shape)
    return product if bias is None else product + bias


def _conv(model, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    spatial = len(weight.shape) - 2
    kernel, dilation = _list(list(weight.shape[2:]), spatial), _list(dilation, spatial)
    if padding == "same":
        both = [d * (k - 1) for k, d in zip(kernel, dilation)]
        pads = [x // 2 for x in both] + [x - x // 2 for x in both]
    else:
        pads = _list(0 if padding == "valid" else padding, spatial) * 2
    return _batched(model, input, spatial, lambda x, shape: model.op(
        "Conv", x, weight, bias, shape=shape, strides=_list(stride, spatial), pads=pads, dilations=dilation, group=groups,
        kernel_shape=kernel))


def _batched(model, x, spatial, function):
    """Of an array with or without the axis of the batch."""
    if len(x.shape) == spatial + 2:
        return function(x, model.shape)
    return model.reshape(function(model.reshape(x, (1, *x.shape)), (1, *model.shape)), model.shape)


def _conv_transpose(model, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    spatial = len(weight.shape) - 2
    return _batched(model, input, spatial, lambda x, shape: model.op(
        "ConvTranspose", x, weight, bias, shape=shape, strides=_list(stride, spatial), pads=_list(padding, spatial) * 2, group=groups,
        output_padding=_list(output_padding, spatial), dilations=_list(dilation, spatial),
        kernel_shape=_list(list(weight.shape[2:]), spatial)))


def _pooled(sizes, kernel, stride, padding, dilation):
    return [(size + 2 * p - d * (k - 1) - 1) // s + 1 if isinstance(size, int) else size
            for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation)]


def _ceils(model, input, spatial, ceil_mode, *how):
    """Whether rounding up makes another size."""
    return bool(ceil_mode) and _pooled(input.shape[-spatial:], *how) != list(model.shape[-spatial:])


def _max_pool(spatial):
    def pool(model, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        _refuse(return_indices, "max_pool's indices")
        kernel = _list(kernel_size, spatial)
        stride, padding, dilation = _list(stride or kernel, spatial), _list(padding, spatial), _list(dilation, spatial)
        _refuse(_ceils(model, input, spatial, ceil_mode, kernel, stride, padding, dilation), _CEILS)
        return _batched(model, input, spatial, lambda x, shape: model.op(
            "MaxPool", x, shape=shape, kernel_shape=kernel, strides=stride, pads=padding * 2, dilations=dilation))

    return pool


def _avg_pool(spatial):
    def pool(model, input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        _refuse(divisor_override is not None, "avg_pool with divisor_override")
        kernel = _list(kernel_size, spatial)
        stride, padding = _list(stride or kernel, spatial), _list(padding, spatial)
        _refuse(_ceils(model, input, spatial, ceil_mode, kernel, stride, padding, [1] * spatial), _CEILS)
        return _batched(model, input, spatial, lambda x, shape: model.op(
            "AveragePool", x, shape=shape, kernel_shape=kernel, strides=stride, pads=padding * 2,
            count_include_pad=int(bool(count_include_pad))))

    return pool


def _adaptive_pool(spatial, kind):
    def pool(model, input, output_size, return_indices=False):
        _refuse(return_indices, "max_pool's indices")
        sizes, wanted = input.shape[-spatial:], model.shape[-spatial:]
        if all(size == 1 for size in wanted):
            reduce = "ReduceMean" if kind == "AveragePool" else "ReduceMax"
            return model.op(reduce, input, model.array(range(-spatial, 0)), shape=model.shape, keepdims=1)
        even = all(isinstance(size, int) and isinstance(part, int) and part and size % part == 0 for size, part in zip(sizes, wanted))
        _refuse(not even, "adaptive pooling into parts of several sizes; choose an output size that divides the input's")
        kernel = [size // part for size, part in zip(sizes, wanted)]
        return _batched(model, input, spatial, lambda x, shape: model.op(kind, x, shape=shape, kernel_shape=kernel, strides=kernel))

    return pool


def _with_indices(pool):
    """The function that gives indices as well, where nobody reads them."""
    return lambda model, input, output_size: (pool(model, input, output_size), None)


def _interpolate(model, input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                 antialias=False):
    _refuse(antialias, "interpolate with antialias")
    spatial = len(input.shape) - 2
    how = {"nearest": dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
           "nearest-exact": dict(mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"),
           "bicubic": dict(mode="cubic", cubic_coeff_a=-0.75), **dict.fromkeys(("linear", "bilinear", "trilinear"), dict(mode="linear"))}
    _refuse(mode not in how, f"interpolate of mode {mode!r}; use nearest, linear, bilinear, trilinear or bicubic")
    attrs = {"coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel", **how[mode]}
    factors = scale_factor if isinstance(scale_factor, list) else [scale_factor] * spatial
    if size is None and not recompute_scale_factor and all(type(x) in (int, float) for x in factors):
        return model.op("Resize", input, None, model.array([1, 1, *factors], "f32"), shape=model.shape, **attrs)
    return model.op("Resize", input, None, None, model.dims(model.shape), shape=model.shape, **attrs)


def _batch_norm(model, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    _refuse(training or running_mean is None, "batch_norm in training mode; call eval() on the module")
    count = input.shape[1]
    filled = [x if x is not None else model.full(model.number(value, input.dtype), (count,)) for x, value in ((weight, 1), (bias, 0))]
    return model.op("BatchNormalization", input, *filled, running_mean, running_var, shape=model.shape, epsilon=float(eps))


def _batch_norm_of_torch(model, input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True):
    return _batch_norm(model, input, running_mean, running_var, weight, bias, training, momentum, eps)


def _instance_norm(model, input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True):
    if not use_input_stats:
        return _batch_norm(model, input, running_mean, running_var, weight, bias, eps=eps)
    count = input.shape[1]
    filled = [x if x is not None else model.full(model.number(value, input.dtype), (count,)) for x, value in ((weight, 1), (bias, 0))]
    return model.op("InstanceNormalization", input, *filled, shape=model.shape, epsilon=float(eps))


def _instance_norm_of_modules(model, input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
                              eps=1e-5):
    return _instance_norm(model, input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


def _layer_norm(model, input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    shape = input.shape[len(input.shape) - len(normalized_shape):]
    weight = weight if weight is not None else model.full(model.number(1, input.dtype), shape)
    return model.op("LayerNormalization", input, weight, bias, shape=model.shape, axis=-len(normalized_shape), epsilon=float(eps))


def _softmax(kind):
    def softmax(model, input, dim=None, dtype=None, _stacklevel=3):
        _refuse(type(dim) is not int, "softmax along an axis that is not said")
        return model.op(kind, input.cast(model.types[0].dtype), shape=model.shape, axis=dim)

    return softmax


def _gelu(model, input, approximate="none"):
    if approximate == "tanh":
        inside = (input + input * input * input * 0.044715) * 0.7978845608028654
        return input * 0.5 * (model.op("Tanh", inside) + 1)
    return input * 0.5 * (model.op("Erf", input * 0.7071067811865476) + 1)


def _embedding(model, input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    _refuse(max_norm is not None, "an embedding that changes its weights (max_norm)")
    return model.op("Gather", weight, input, shape=model.shape, axis=0)


def _embedding_of_torch(model, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return model.op("Gather", weight, indices, shape=model.shape, axis=0)


# ---- recurrent layers


def _gates(model, x, order, size):
    """The gates' rows in ONNX's order."""
    parts = [model.op("Slice", x, model.array([i * size]), model.array([(i + 1) * size]), model.array([0]), shape=(size, *x.shape[1:]))
             for i in order]
    return model.op("Concat", *parts, shape=x.shape, axis=0) if len(parts) > 1 else x


def _recurrent(kind, order, states, **attrs):
    """order: of torch's gates in ONNX's."""
    def layers(model, input, hidden, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        _refuse(not isinstance(params, list), f"{kind} on packed sequences")
        _refuse(dropout and train, "dropout in training mode; call eval() on the module")
        directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
        _refuse(len(params) != num_layers * directions * each, f"{kind} with projections")
        hidden = hidden if isinstance(hidden, list) else [hidden]
        size = params[1].shape[1]
        single = len(input.shape) == 2
        x = model.reshape(input, (input.shape[0], 1, input.shape[1])) if single else input
        x = model.transpose(x, [1, 0, 2]) if batch_first and not single else x
        if single:
            hidden = [model.reshape(h, (h.shape[0], 1, h.shape[1])) for h in hidden]
        steps, batch, _ = x.shape
        last = [[] for _ in range(states)]
        for layer in range(num_layers):
            stacked = []
            for i in range(each):
                of_directions = [_gates(model, params[(layer * directions + d) * each + i], order, size) for d in range(directions)]
                if i >= 2:
                    of_directions = [(x,) for x in of_directions]
                stacked.append(of_directions)
            weights = [_stack(model, rows) for rows in stacked[:2]]
            bias = None
            if has_biases:
                rows = [model.op("Concat", a[0], b[0], shape=(2 * len(order) * size,), axis=0) for a, b in zip(*stacked[2:])]
                bias = _stack(model, rows)
            first = layer * directions
            initial = [model.op("Slice", h, model.array([first]), model.array([first + directions]), model.array([0]),
                                shape=(directions, batch, size)) for h in hidden]
            types = [(x.dtype, (steps, directions, batch, size))] + [(x.dtype, (directions, batch, size))] * states
            extra = {"activations": attrs["activations"] * directions} if "activations" in attrs else {}
            y, *after = model.several(kind, [x, *weights, bias, None, *initial], types, hidden_size=size,
                                      direction="bidirectional" if bidirectional else "forward", **{**attrs, **extra})
            x = model.reshape(model.transpose(y, [0, 2, 1, 3]), (steps, batch, directions * size))
            for kept, value in zip(last, after):
                kept.append(value)
        whole = [model.op("Concat", *parts, shape=(num_layers * directions, batch, size), axis=0) for parts in last]
        x = model.transpose(x, [1, 0, 2]) if batch_first and not single else x
        if single:
            x, whole = model.reshape(x, (steps, directions * size)), [model.reshape(h, (num_layers * directions, size)) for h in whole]
        return x, *whole

    return layers


def _stack(model, rows):
    rows = [model.reshape(x, (1, *x.shape)) for x in rows]
    return model.op("Concat", *rows, shape=(len(rows), *rows[0].shape[1:]), axis=0) if len(rows) > 1 else rows[0]


# ---- order, and others


def _top(model, input, count, axis, largest):
    _refuse(not input.shape, "an array of no axes, sorted")
    axis = axis % len(input.shape) if axis is not None else None
    _refuse(input.dtype == "u64", "sorting uint64; cast it")
    wide = model.wide(input)
    shape = tuple(count if i == axis else size for i, size in enumerate(input.shape))
    values, places = model.several("TopK", [wide, model.sizes(count)], [(wide.dtype, shape), ("i64", shape)],
                                   axis=axis, largest=int(bool(largest)), sorted=1)
    return values.cast(input.dtype), places


def _topk(model, input, k, dim=-1, largest=True, sorted=True):
    return _top(model, input, k, dim, largest)


def _sort(model, input, dim=-1, descending=False, stable=None):
    return _top(model, input, input.shape[dim] if input.shape else 1, dim, descending)


def _numpy_sort(model, a, axis=-1, kind=None, order=None, stable=None):
    _refuse(order is not None, "sorting by fields")
    return _top(model, a, a.shape[axis], axis, False)[0]


def _numpy_argsort(model, a, axis=-1, kind=None, order=None, stable=None):
    _refuse(kind not in ("stable", "mergesort") and not stable, "an argsort whose order of equal elements is not said; use kind='stable'")
    return _top(model, a, a.shape[axis], axis, False)[1]


def _einsum(model, equation, *operands, optimize=None):
    operands = list(itertools.chain.from_iterable(x if isinstance(x, list) else [x] for x in operands))
    _refuse(not isinstance(equation, str), "einsum of lists of axes; write its equation as a text")
    return model.op("Einsum", *operands, shape=model.shape, equation=equation)


def _det(model, x):
    return model.op("Det", x, shape=model.shape)


def _unary(kind):
    return lambda model, input, inplace=False: model.op(kind, input)


functions = {
    "torch.conv1d": _conv,
    "torch.conv2d": _conv,
    "torch.conv3d": _conv,
    "torch.conv_transpose1d": _conv_transpose,
    "torch.conv_transpose2d": _conv_transpose,
    "torch.conv_transpose3d": _conv_transpose,
    **{f"torch.nn.functional.max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"torch.max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"torch.nn.functional.avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"torch._C._nn.avg_pool{n}d": _avg_pool(n) for n in (2, 3)},
    "torch.avg_pool1d": _avg_pool(1),
    **{f"torch.nn.functional.adaptive_avg_pool{n}d": _adaptive_pool(n, "AveragePool") for n in (1, 2, 3)},
    **{f"torch.nn.functional.adaptive_max_pool{n}d": _adaptive_pool(n, "MaxPool") for n in (1, 2, 3)},
    **{f"torch._C._nn.adaptive_max_pool{n}d": _with_indices(_adaptive_pool(n, "MaxPool")) for n in (2, 3)},
    "torch.adaptive_avg_pool1d": _adaptive_pool(1, "AveragePool"),
    "torch.adaptive_max_pool1d": _with_indices(_adaptive_pool(1, "MaxPool")),
    "torch.nn.functional.interpolate": _interpolate,
    "torch.nn.functional.linear": _linear,
    "torch.nn.functional.batch_norm": _batch_norm,
    "torch.batch_norm": _batch_norm_of_torch,
    "torch.instance_norm": _instance_norm,
    "torch.nn.functional.instance_norm": _instance_norm_of_modules,
    "torch.nn.functional.layer_norm": _layer_norm,
    "torch.nn.functional.softmax": _softmax("Softmax"),
    "torch.softmax": _softmax("Softmax"),
    "torch.Tensor.softmax": _softmax("Softmax"),
    "torch.nn.functional.log_softmax": _softmax("LogSoftmax"),
    "torch.nn.functional.gelu": _gelu,
    "torch.nn.functional.relu": _unary("Relu"),
    "torch.relu": _unary("Relu"),
    "torch.sigmoid": _unary("Sigmoid"),
    "torch.tanh": _unary("Tanh"),
    "torch.nn.functional.embedding": _embedding,
    "torch.embedding": _embedding_of_torch,
    "torch.lstm": _recurrent("LSTM", [0, 3, 1, 2], 2),
    "torch.gru": _recurrent("GRU", [1, 0, 2], 1, linear_before_reset=1),
    "torch.rnn_tanh": _recurrent("RNN", [0], 1, activations=["Tanh"]),
    "torch.rnn_relu": _recurrent("RNN", [0], 1, activations=["Relu"]),
    "torch.topk": _topk,
    "torch.Tensor.topk": _topk,
    "torch.sort": _sort,
    "torch.Tensor.sort": _sort,
    "numpy.sort": _numpy_sort,
    "numpy.ndarray.sort": _numpy_sort,
    "numpy.argsort": _numpy_argsort,
    "numpy.ndarray.argsort": _numpy_argsort,
    "torch.einsum": _einsum,
    "numpy.einsum": _einsum,
    "torch.linalg.det": _det,
    "numpy.linalg.det": _det,
}
