"""torch's functions as they are put into graphs.

Those whose results have sizes that depend on data are calls of a graph: what they found, padded to the most there can be, and a mask of what
counts. On meta tensors they say only how large that is. `attention` and `layers` are traced."""
import math
import types

import torch

from framejit._checkpoint import checkpoint


def _call(function, *arguments, **named): return function(*arguments, **named)  # noqa: E704  (one line is what `calling_from` moves)


def calling_from(file, line, names):
    """A function that calls its first argument with the others, at a line of a file and with the globals of what stands there."""
    code = _call.__code__.replace(co_filename=file, co_firstlineno=line)
    return types.FunctionType(code, names)


def _padded(found, count):
    """The tensors as rows of `count` elements; the mask of the first tensor's own."""
    rows = [torch.cat([part, part.new_zeros(count - len(part))]) for part in found]
    return rows, torch.arange(count) < len(found[0])


def _unique(function, tensor, return_inverse, return_counts, options):
    count = tensor.numel()
    if tensor.is_meta:
        made = [tensor.new_empty(count), torch.empty(count, dtype=torch.bool, device="meta")]
        made += [torch.empty(tensor.shape, dtype=torch.int64, device="meta")] * return_inverse
        return tuple(made + [torch.empty(count, dtype=torch.int64, device="meta")] * return_counts)
    found = function(tensor, return_inverse=return_inverse, return_counts=return_counts, **options)
    found = found if isinstance(found, tuple) else (found,)
    rows, mask = _padded([found[0], found[-1]] if return_counts else [found[0]], count)
    return (rows[0], mask, *found[1:1 + return_inverse], *rows[1:])


def unique(tensor, sorted, return_inverse, return_counts):
    """(values, mask, inverse if asked for, counts if asked for)."""
    return _unique(torch.unique, tensor, return_inverse, return_counts, {"sorted": sorted})


def unique_consecutive(tensor, return_inverse, return_counts):
    """As `unique`."""
    return _unique(torch.unique_consecutive, tensor, return_inverse, return_counts, {})


def _added_mask(mask, dtype):
    """What is added to scores: 0, or minus infinity where a mask of bools is false."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not(), -math.inf) if mask.dtype == torch.bool else mask


def attention(query, key, value, attn_mask, dropout_p, is_causal, scale):
    """torch.nn.functional.scaled_dot_product_attention where it drops weights: the operations it is made of, in their order."""
    if not torch._C._get_math_sdp_enabled() or (is_causal and attn_mask is not None):
        return torch._C._nn.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    if scale is None:
        scale = 1 / math.sqrt(query.size(-1))
    factor = math.sqrt(abs(scale))
    if is_causal:
        attn_mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
    if attn_mask is not None:
        attn_mask = _added_mask(attn_mask, query.dtype)
    weights = (query * (-factor if scale < 0 else factor)) @ (key.transpose(-2, -1) * factor)
    weights = weights.softmax(-1) if attn_mask is None else torch._safe_softmax(weights + attn_mask, -1)
    return torch.dropout(weights, dropout_p, True) @ value


def blocked_attention(query, key, value, attn_mask, is_causal, scale, derived):
    """torch.nn.functional.scaled_dot_product_attention where torch has a kernel of its own that keeps no scores: the operations it is made of,
    which our programs compute in blocks of rows as well. A row in which everything is masked gives zeros, as there. derived: a gradient flows
    through it; backward computes the scores again, as torch's does."""
    in_rows = _attention_computed_again if derived else _attention_in_rows
    result = torch.empty_like(query)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    rows = query.size(2)
    if is_causal and key.size(2) >= rows >= _rows_worth_parts:
        ends = [rows * part // _causal_parts for part in range(_causal_parts + 1)]  # a part reads no key that only later parts see
        for begin, end in zip(ends, ends[1:]):
            mask = torch.arange(end) <= torch.arange(begin, end).unsqueeze(1)
            result[:, :, begin:end] = in_rows(query[:, :, begin:end], key[:, :, :end], value[:, :, :end], mask, scale)
        return result
    if is_causal:
        attn_mask = torch.ones(rows, key.size(2), dtype=torch.bool).tril()
    return result.copy_(in_rows(query, key, value, attn_mask, scale))


_causal_parts, _rows_worth_parts = 4, 1024


def _attention_in_rows(query, key, value, mask, scale):
    heads, rows, groups = query.size(1), query.size(2), key.size(1)
    if heads != groups:
        query = query.unflatten(1, (groups, -1)).flatten(2, 3)  # the rows of the heads that share keys: one product
    scores = ((query @ key.transpose(-2, -1)) * scale).view(-1, heads, rows, key.size(2))
    if mask is None:
        weights = scores.softmax(-1)
    else:
        scores = scores + _added_mask(mask, query.dtype)
        nothing = scores.amax(-1, keepdim=True) == -math.inf
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)  # the first for the derivative, where 0 times NaN is NaN
    return (weights.view(-1, groups, query.size(2), key.size(2)) @ value).view(-1, heads, rows, value.size(3))


_attention_computed_again = checkpoint(_attention_in_rows)


_operations_of_attention = torch.ops.aten._scaled_dot_product_attention_math


def attention_by_operations(query, key, value, attn_mask, is_causal, scale, enable_gqa):
    """torch.nn.functional.scaled_dot_product_attention where it drops nothing and yet has no kernel of its own: torch's call for that."""
    return _operations_of_attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


def multi_head_attention(query, key, value, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, need_weights, average):
    """torch._native_multi_head_attention without a mask: the operations it is made of."""
    functional = torch.nn.functional
    if query is key and key is value:
        q, k, v = functional.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        q, k, v = (functional.linear(*of) for of in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3)))
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
    weights = None
    if need_weights:
        weights = torch.softmax(q * (1 / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1), -1)
        found = weights @ v
        if average:
            weights = weights.mean(1)
    else:
        found = functional.scaled_dot_product_attention(q, k, v)
    return functional.linear(found.transpose(1, 2).flatten(-2), proj_weight, proj_bias), weights


def encoder_layer(src, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, gelu, norm_first, eps, first, second, ffn_1, ffn_2):
    """torch._transformer_encoder_layer_fwd without a mask: the operations it is made of. `first`, `second`, `ffn_1`, `ffn_2`: a weight and a bias."""
    functional, width = torch.nn.functional, src.shape[-1:]

    def attention(x):
        parts = functional.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return functional.linear(found.transpose(1, 2).flatten(-2), proj_weight, proj_bias)

    def feed_forward(x):
        hidden = functional.linear(x, *ffn_1)
        return functional.linear(functional.gelu(hidden) if gelu else functional.relu(hidden), *ffn_2)

    if norm_first:
        x = src + attention(functional.layer_norm(src, width, *first, eps))
        return (x + feed_forward(functional.layer_norm(x, width, *second, eps))).contiguous()  # whatever the strides of src
    x = functional.layer_norm(src + attention(src), width, *first, eps)
    return functional.layer_norm(x + feed_forward(x), width, *second, eps)


def lstm_cell(x, h, c, w_ih, w_hh, b_ih, b_hh):
    """torch.lstm_cell as torch computes it on the CPU, step for step; so are the cells below."""
    linear = torch.nn.functional.linear
    into, forget, new, out = linear(h, w_hh, b_hh).add_(linear(x, w_ih, b_ih)).chunk(4, 1)
    c = (forget.sigmoid() * c).add_(into.sigmoid() * new.tanh())
    return out.sigmoid() * c.tanh(), c


def gru_cell(x, h, w_ih, w_hh, b_ih, b_hh):
    linear = torch.nn.functional.linear
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = linear(x, w_ih, b_ih).chunk(3, 1), linear(h, w_hh, b_hh).chunk(3, 1)
    new = (new_x + new_h * (reset_h + reset_x).sigmoid()).tanh()
    return (h - new).mul_((update_h + update_x).sigmoid()).add_(new)


def rnn_tanh_cell(x, h, w_ih, w_hh, b_ih, b_hh):
    return torch.nn.functional.linear(h, w_hh, b_hh).add_(torch.nn.functional.linear(x, w_ih, b_ih)).tanh()


def rnn_relu_cell(x, h, w_ih, w_hh, b_ih, b_hh):
    return torch.nn.functional.linear(h, w_hh, b_hh).add_(torch.nn.functional.linear(x, w_ih, b_ih)).relu()


def steps(function, found, state, weights, biases, count, dropout, train, bidirectional, batch_first):
    """torch.lstm, gru, rnn_tanh or rnn_relu that drops nothing, step by step."""
    cell = getattr(torch, function.__name__ + "_cell")
    if batch_first:
        found = found.transpose(0, 1)
    several, directions, states = isinstance(state, tuple), 2 if bidirectional else 1, []
    of_each = len(weights) // (count * directions)
    for layer in range(count):
        rows = []
        for direction in range(directions):
            row = layer * directions + direction
            own = weights[row * of_each:(row + 1) * of_each]
            w_ih, w_hh, b_ih, b_hh = own[:4] if biases else (*own[:2], None, None)
            now, made = tuple(part[row] for part in state) if several else state[row], []
            for step in range(found.shape[0]) if direction == 0 else reversed(range(found.shape[0])):
                now = cell(found[step], now, w_ih, w_hh, b_ih, b_hh)
                made.append(now[0] if several else now)
            rows.append(torch.stack(made if direction == 0 else made[::-1]))
            states.append(now if several else (now,))
        found = torch.cat(rows, 2) if bidirectional else rows[0]
    return (found.transpose(0, 1) if batch_first else found, *(torch.stack(parts) for parts in zip(*states)))


def layers(function, found, state, weights, biases, count, dropout, train, bidirectional, batch_first):
    """torch.lstm, gru, rnn_tanh or rnn_relu where it drops elements between its layers: layer by layer, as torch's code does it."""
    if batch_first:
        found = found.transpose(0, 1)
    of_each, directions, states = len(weights) // count, 2 if bidirectional else 1, []
    for layer in range(count):
        rows = slice(layer * directions, (layer + 1) * directions)
        own = tuple(part[rows] for part in state) if isinstance(state, tuple) else state[rows]
        found, *after = function(found, own, weights[layer * of_each:(layer + 1) * of_each], biases, 1, 0.0, train, bidirectional, False)
        states.append(after)
        if layer < count - 1:
            found = torch.dropout(found, dropout, True)
    return (found.transpose(0, 1) if batch_first else found, *(torch.cat(parts) for parts in zip(*states)))
