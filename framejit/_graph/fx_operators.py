"""ATen's operators, as GraphModules call them, by the functions of torch that the tracer knows. Start at `as_functions`.

An operator that is in no table stays as it is: the graph calls it in the array library.
"""
import operator

import torch
from torch.nn import functional

#: Called with the operator's own arguments: torch.<name>.
SAME_FUNCTION = set("""
    abs acos acosh add addcdiv addcmul addmm all amax amin any arange argmax argmin asin asinh atan atan2 atanh
    baddbmm bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clamp_max clamp_min clone conv1d
    conv2d convolution cos cosh cumprod cumsum detach div dot empty empty_like eq erf exp exp2 expm1 flatten flip
    floor floor_divide fmod full full_like gather ge gt index_select isfinite isinf isnan le linear log log10 log1p
    log2 logical_and logical_not logical_or logical_xor lt masked_fill matmul maximum mean minimum mm movedim mul ne
    neg ones ones_like outer permute pow prod reciprocal relu remainder repeat_interleave reshape round rsqrt rsub
    scalar_tensor select sigmoid sign sin sinh softmax split sqrt square squeeze stack std sub sum t take tan tanh
    transpose tril triu trunc unbind unflatten unsqueeze var where zeros zeros_like chunk dropout log_softmax
    scaled_dot_product_attention
""".split())

#: Methods of a tensor with the operator's own arguments.
SAME_METHOD = set("""
    add_ addcdiv_ addcmul_ clamp_ contiguous copy_ div_ exp_ expand expand_as fill_ mul_ neg_ new_empty new_full
    new_ones new_zeros relu_ repeat sigmoid_ sqrt_ sub_ tanh_ zero_
""".split())

#: Composites of torch.nn.functional with the operator's own arguments.
SAME_FUNCTIONAL = set("celu elu gelu glu hardsigmoid hardswish hardtanh leaky_relu mish selu silu softplus".split())


def _softmax(x, dim, half_to_float):
    return functional.softmax(x, dim, dtype=torch.float32 if half_to_float else None)


def _log_softmax(x, dim, half_to_float):
    return functional.log_softmax(x, dim, dtype=torch.float32 if half_to_float else None)


def _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    return functional.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)


def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    return functional.layer_norm(x, tuple(normalized_shape), weight, bias, eps)


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    return functional.group_norm(x, groups, weight, bias, eps)


def _native_layer_norm(x, normalized_shape, weight, bias, eps):
    return (functional.layer_norm(x, tuple(normalized_shape), weight, bias, eps),)


def _native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    return (functional.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps),)


def _native_group_norm(x, weight, bias, n, c, hxw, groups, eps):
    return (functional.group_norm(x, groups, weight, bias, eps),)


def _batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps):
    return (functional.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps),)


def _attention(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return (functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale),)


def _max_pool2d_with_indices(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return (functional.max_pool2d(x, kernel_size, stride or None, padding, dilation, ceil_mode),)


def _max_pool2d(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return functional.max_pool2d(x, kernel_size, stride or None, padding, dilation, ceil_mode)


def _embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return functional.embedding(indices, weight, None if padding_idx == -1 else padding_idx, scale_grad_by_freq=scale_grad_by_freq,
                                sparse=sparse)


def _slice(x, dim=0, start=None, end=None, step=1):
    end = None if end is not None and end == 2**63 - 1 else end
    dim = dim + x.dim() if dim < 0 else dim
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def _index(x, indices):
    return x[tuple(slice(None) if index is None else index for index in indices)]


def _to_copy(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    x = x.to(x.dtype if dtype is None else dtype, copy=True) if memory_format is None else x.to(
        x.dtype if dtype is None else dtype, copy=True, memory_format=memory_format)
    return x if device is None else x.to(device)


def _clone(x):
    return x.clone()


def _expand(x, size, *, implicit=False):
    return x.expand(size)


def _size(x, axis):
    return x.size(axis)


def _reshape(x, shape):
    return x.reshape(shape)


#: By name of the operator, for all of its overloads or, "name.overload", for one.
FUNCTIONS = {
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "_to_copy": _to_copy,
    "_unsafe_view": _reshape,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "expand": _expand,
    "group_norm": _group_norm,
    "index.Tensor": _index,
    "layer_norm": _layer_norm,
    "lift_fresh_copy": _clone,
    "max_pool2d": _max_pool2d,
    "slice.Tensor": _slice,
    "sym_size.int": _size,
    "sym_numel": torch.numel,
}

#: Operators that give more than one array, whose function here gives the first alone: only where nothing reads the others.
FIRST_OF_SEVERAL = {
    "_native_batch_norm_legit_no_training": _batch_norm_no_training,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "max_pool2d_with_indices": _max_pool2d_with_indices,
    "native_batch_norm": _native_batch_norm,
    "native_group_norm": _native_group_norm,
    "native_layer_norm": _native_layer_norm,
}


def function_of(target, users=()):
    """The function in the place of an operator, and whether it is a method's name; None: the operator is called as it is."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target._opname
    full = f"{name}.{target._overloadname}"
    if "out" in target._overloadname.split("_") or target._overloadname.endswith("out"):
        return None
    if full in FUNCTIONS or name in FUNCTIONS:
        return FUNCTIONS.get(full) or FUNCTIONS[name]
    if name in FIRST_OF_SEVERAL:
        read = all(user.op == "call_function" and user.target is operator.getitem and user.args[1] == 0 for user in users if user.users)
        return FIRST_OF_SEVERAL[name] if read else None
    if name in SAME_FUNCTIONAL:
        return getattr(functional, name)
    if name in SAME_FUNCTION and hasattr(torch, name):
        return getattr(torch, name)
    if name in SAME_FUNCTION and hasattr(functional, name):
        return getattr(functional, name)
    if name in SAME_METHOD:
        return getattr(torch.Tensor, name)
    return None


def as_functions(gm):
    """A copy of the module whose operators are functions of torch. It takes and returns arrays without structure around them."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    writes = any(node.op in ("call_function", "call_method") and _writes(node.target) for node in graph.nodes)
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":
            graph.erase_node(node)  # torch.export's: capture guards what there is to guard
        if node.op != "call_function":
            continue
        if node.target in (torch.ops.aten.view.default, torch.ops.aten.reshape.default):
            # Memory may be laid out another way than torch has it, and nobody tells a view from a copy where nothing is written.
            node.target = torch.Tensor.view if writes and node.target is torch.ops.aten.view.default else torch.reshape
            continue
        found = function_of(node.target, node.users)
        if found is not None:
            _call(node, found)
        node.target = _CONTROL.get(node.target, node.target)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            continue
        # A device is printed as a call that makes it. Where torch takes a device, it takes its name.
        node.args, node.kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), _device_by_name)
    for node in reversed(list(graph.nodes)):
        # What make_fx leaves for a backward that is not there.
        if node.op == "call_function" and not node.users and (node.target in (torch.detach, operator.getitem)):
            graph.erase_node(node)
    made = torch.fx.GraphModule(gm, graph)
    for node in graph.nodes:
        # What a branch or loop calls. A name with a dot is that of a part of a module, which calls are made of.
        if node.op == "get_attr" and isinstance(getattr(made, node.target, None), torch.fx.GraphModule):
            setattr(made, node.target, as_functions(getattr(made, node.target)))
    return made


def _cond(condition, first, second, operands=()):
    return first(*operands) if condition else second(*operands)


def _while_loop(condition, body, carried, others=()):
    carried = tuple([x.clone() for x in carried])
    while condition(*carried, *others):
        carried = tuple(body(*carried, *others))
    return carried


_CONTROL = {torch.ops.higher_order.cond: _cond, torch.ops.higher_order.while_loop: _while_loop}


def _writes(target):
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable and target is not torch.ops.aten.native_batch_norm.default
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.endswith("_") and not name.endswith("__") or name in ("setitem", "__setitem__")


def _device_by_name(argument):
    return str(argument) if isinstance(argument, torch.device) else argument


#: Arguments of operators that say what there is anyway.
_NOTHING = {"layout": (None, torch.strided), "pin_memory": (None, False), "device": (None,), "dtype": (None,), "memory_format": (None,)}


def _call(node, function):
    node.target = function
    node.kwargs = {key: value for key, value in node.kwargs.items() if not any(value is x for x in _NOTHING.get(key, ()))}
