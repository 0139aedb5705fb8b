"""What a call of torch's returns, found without the call (segment/library_calls/extern_prediction.cpp)."""
import sys
import types

import torch


def _like(tensor):
    """On the CPU, of the same sizes and strides; its memory is never touched."""
    return None if tensor is None else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch chooses its kernel by sizes, strides and dtypes. The fused one lays its result out as the query. Of the other one the meta call
    is right."""
    tensors = [_like(tensor) for tensor in (query, key, value, attn_mask)]
    kernel = torch._fused_sdp_choice(*tensors, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return torch.empty_like(tensors[0]) if kernel == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value else NotImplemented


def _convolution(axes, transposed=False):
    """The CPU's kernel decides whether the channels of the result come last. Where the meta call is wrong, a model is traced once more for each
    size of convolution in it; and its first call imports sympy."""
    names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
    names = ("input", "weight", "bias", "stride", "padding", *names)

    def result(*given, **named):
        named = dict(dict.fromkeys(names), stride=1, padding=0, dilation=1, output_padding=0, groups=1) | dict(zip(names, given)) | named
        tensors, groups = [_like(named[name]) for name in ("input", "weight", "bias")], named["groups"]
        given, weight = tensors[:2]
        lists = [named[name] for name in ("stride", "padding", "dilation", "output_padding")]
        if any(tensor is not None and tensor.dtype != given.dtype for tensor in tensors) or not given.dim() == weight.dim() == axes + 2:
            return NotImplemented
        lists = [[value] * axes if isinstance(value, int) else [*value] * (axes if len(value) == 1 else 1) for value in lists]
        if any(len(values) != axes or not all(isinstance(value, int) for value in values) for values in lists):
            return NotImplemented  # a padding has a name
        stride, padding, dilation, more = lists
        kernel = torch._C._select_conv_backend(*tensors, stride, padding, dilation, transposed, more, groups)  # refuses sizes that do not fit
        shape = [given.shape[0], weight.shape[1] * groups if transposed else weight.shape[0]]
        for i in range(axes):
            reach = dilation[i] * (weight.shape[2 + i] - 1) + 1 - 2 * padding[i]
            size = given.shape[2 + i]
            shape.append((size - 1) * stride[i] + reach + more[i] if transposed else (size - reach) // stride[i] + 1)
        if min(shape) <= 0 or any(more[i] >= max(stride[i], dilation[i]) for i in range(axes) if more[i]):
            return NotImplemented
        layout = torch._C._conv_determine_backend_memory_format(given, weight, kernel)
        return torch.empty(shape, dtype=given.dtype, device="meta", memory_format=layout)
    return result


def _recurrent(gates):
    """Stacks of recurrent layers of `gates` matrices in each weight. The meta call runs every step of every layer in Python. Only what is plainly
    right is answered, so that what torch refuses is refused by the meta call; but of packed sequences that call would read the sizes. (Where all
    of them are as long, torch's oneDNN gives a view.)"""
    def results(given, *rest):
        packed = len(rest) == 8 and isinstance(rest[2], (list, tuple))  # (data, sizes, hx, params, ...) for (input, hx, params, ..., batch_first)
        sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first = (*rest, False) if packed else (None, *rest)
        if given.dim() != (2 if packed else 3) or packed and (sizes.dim() != 1 or sizes.dtype != torch.int64):
            return NotImplemented
        states = hx if gates == 4 else (hx,)
        length, batch = (given.shape[1], given.shape[0]) if batch_first else given.shape[:2]
        if packed:
            length, batch = given.shape[0], states[0].shape[1]
        ways, width = 2 if bidirectional else 1, states[0].shape[-1]
        projected = len(states) == 2 and states[1].shape[-1] != width
        hidden, each = states[-1].shape[-1], 2 + 2 * has_biases + projected
        expected = []
        for layer in range(num_layers):
            parts = [(gates * hidden, width * ways if layer else given.shape[-1]), (gates * hidden, width)]
            expected += (parts + [(gates * hidden,)] * 2 * has_biases + [(width, hidden)] * projected) * ways
        alike = all(tensor.dtype == given.dtype for tensor in (*states, *params)) and given.dtype in (torch.float32, torch.float64)
        if not (alike and length and batch and len(states) == 1 + (gates == 4) and len(params) == each * num_layers * ways
                and [tuple(tensor.shape) for tensor in params] == expected
                and all(tuple(state.shape[:2]) == (num_layers * ways, batch) and state.dim() == 3 for state in states)):
            return NotImplemented
        output = given.new_empty(*(length,) if packed else (length, batch), width * ways)
        # The CPU's strides of the states are those of the meta call: they are stacked.
        return (output.transpose(0, 1) if batch_first else output, *(state.new_empty(state.shape) for state in states))
    return results


def _grouped_products(input, mat2, offs=None, bias=None, out_dtype=None):
    """Products of groups of rows, columns or matrices. The meta call wants bfloat16, which CPUs do not; each row begins at 16 bytes."""
    if bias is not None or out_dtype not in (None, input.dtype) or input.dtype != mat2.dtype or input.dtype not in (torch.float32, torch.float16):
        return NotImplemented
    ranks = input.dim(), mat2.dim()
    if not all(rank in (2, 3) for rank in ranks) or (offs is None) != (ranks == (3, 3)) or input.shape[-1] != mat2.shape[-2]:
        return NotImplemented
    if offs is not None and (offs.dim() != 1 or offs.dtype != torch.int32):
        return NotImplemented
    groups = {(2, 3): mat2.shape, (3, 2): input.shape, (3, 3): input.shape}.get(ranks, (None,))[0]
    if groups is not None and (groups != mat2.shape[0] if offs is None else groups != offs.shape[0]):
        return NotImplemented
    rows, columns, each = input.shape[-2], mat2.shape[-1], 16 // input.element_size()
    wide = (columns + each - 1) // each * each
    if ranks in ((2, 3), (3, 2)):
        return torch.empty_strided((rows, columns), (wide, 1), dtype=input.dtype, device="meta")
    count = offs.shape[0] if offs is not None else groups
    return torch.empty_strided((count, rows, columns), (rows * wide, wide, 1), dtype=input.dtype, device="meta")


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=0, zero_infinity=False):
    """The meta call has no kernel to ask. The lengths are contents: what torch refuses in them, the call refuses."""
    batch = [log_probs.shape[1]] if log_probs.dim() == 3 else []
    if log_probs.dim() == 2 and reduction == 0:
        return NotImplemented  # a view of a row of one
    if log_probs.dim() not in (2, 3) or 0 in log_probs.shape or log_probs.dtype not in (torch.float32, torch.float64) or reduction not in (0, 1, 2):
        return NotImplemented
    return log_probs.new_empty(() if reduction else batch)


# By the name of a function: what gives a result like that of the function on the CPU. It takes the function's own arguments, with meta
# tensors in the places of tensors. NotImplemented, or an error: the rule does not say, and the function runs on the meta tensors. A row is
# worth its line where that gives other strides than the CPU does, imports much, or takes long.
rules = {"scaled_dot_product_attention": _attention, "_grouped_mm": _grouped_products, "grouped_mm": _grouped_products,
         "ctc_loss": _ctc_loss,
         **{name: _recurrent(gates) for name, gates in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4))},
         **{f"conv{axes}d": _convolution(axes) for axes in (1, 2, 3)},
         **{f"conv_transpose{axes}d": _convolution(axes, transposed=True) for axes in (1, 2, 3)}}


_switched = None


def _find_switched():
    """torch's Python functions for meta tensors that ask torch's compiler to leave them alone, and import it to ask (torch._compile)."""
    asking = torch._compile._disable_dynamo(lambda: None).__code__
    names = [name for name in sys.modules if name == "torch._refs" or name.startswith(("torch._refs.", "torch._decomp."))]
    waiting = [function for name in names for function in vars(sys.modules[name]).values()]
    for table in torch._decomp.global_decomposition_table.values():
        waiting += table.values()
    found, seen = {}, set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen or not isinstance(function, types.FunctionType):
            continue
        seen.add(id(function))
        # Those that wrap another have it in a cell; `__wrapped__` may name what it is a copy of.
        inside = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
        waiting += inside.values()
        if function.__code__ is asking:
            found[id(inside["fn"])] = inside["fn"]
    return list(found.values())


def leave_compiler_out():
    """Until `let_compiler_in` of what this returns, such functions ask no compiler: none is imported that they could ask."""
    global _switched
    if "torch._dynamo" in sys.modules:
        return ()
    if _switched is None:
        try:
            _switched = _find_switched()
        except (AttributeError, KeyError, ValueError):
            _switched = []  # another version of torch
    for function in _switched:
        if not hasattr(function, "__dynamo_disable"):
            function.__dynamo_disable = function
    return _switched


def let_compiler_in(functions):
    for function in functions:
        if getattr(function, "__dynamo_disable", None) is function:
            del function.__dynamo_disable
