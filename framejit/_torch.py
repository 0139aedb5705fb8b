"""torch's functions whose results have sizes that depend on data, as calls of a graph: what they found, padded to the most there can be,
and a mask of what counts. On meta tensors they say only how large that is."""
import torch


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
