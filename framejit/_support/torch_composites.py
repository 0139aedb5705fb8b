"""Functions of torch as the calls they are made of, for the tracer: `einsum` by products, `associative_scan` step by step."""
import torch
from torch.utils import _pytree


def einsum(equation, *operands):
    """torch.einsum of an equation without ellipsis and without repeated letters in a term, operands from left to right as torch takes them.

    The order of the axes in memory is that of torch's results: each pair is one product of matrices, or of elements where nothing is summed.
    """
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if not arrow:
        wanted = "".join(sorted(letter for letter in set(given) - {","} if given.count(letter) == 1))
    summed = sorted(set(given) - {","} - set(wanted))
    letters, first = [*wanted, *summed], len(wanted)
    parts = [_aligned(operand, term, letters) for operand, term in zip(operands, terms, strict=True)]
    counts = [sum(part.shape[axis] != 1 for part in parts) for axis in range(len(letters))]
    found = parts[0]
    for part in parts[1:]:
        both, left, right = [], [], []
        for axis in range(first, len(letters)):
            if found.shape[axis] != 1 and part.shape[axis] != 1:
                counts[axis] -= 1
                if counts[axis] == 1:
                    both.append(axis)
            elif counts[axis] == 1:
                if found.shape[axis] != 1:
                    left.append(axis)
                elif part.shape[axis] != 1:
                    right.append(axis)
        if left:
            found = found.sum(left, True)
        if right:
            part = part.sum(right, True)
        found = _pair(found, part, both)
    if not summed:
        return found
    if len(parts) == 1:
        return found.sum(list(range(first, len(letters))))
    return found.squeeze(list(range(first, len(letters))))


def _aligned(operand, term, letters):
    """The operand with an axis for each letter, of size 1 for one that it does not have."""
    order = [term.index(letter) for letter in letters if letter in term]
    operand = operand.permute(order)
    for axis, letter in enumerate(letters):
        if letter not in term:
            operand = operand.unsqueeze(axis)
    return operand


def _pair(left, right, both):
    """The product of two, summed over the axes `both`, which stay with size 1."""
    if not both:
        return left * right
    batch, rows, columns = [], [], []
    for axis in range(left.dim()):
        if axis in both:
            continue
        if left.shape[axis] == 1:
            columns.append(axis)
        elif right.shape[axis] == 1:
            rows.append(axis)
        else:
            batch.append(axis)

    def size(part, axes):
        count = 1
        for axis in axes:
            count = count * part.shape[axis]
        return count

    sizes = [*(left.shape[axis] for axis in batch + rows), *(1 for _ in both), *(right.shape[axis] for axis in columns)]
    order = batch + rows + both + columns
    left = left.permute(batch + rows + both + columns).reshape(size(left, batch), size(left, rows), size(left, both))
    right = right.permute(batch + both + columns + rows).reshape(size(right, batch), size(right, both), size(right, columns))
    return torch.bmm(left, right).view(sizes).permute([order.index(axis) for axis in range(len(order))])


def associative_scan(function, xs, dim, reverse):
    """torch's associative_scan: torch applies the function along the axis to many elements at a time, which for a function that is
    associative, as it must be, is what it gives element after element."""
    leaves, structure = _pytree.tree_flatten(xs)
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    count, state, found = leaves[0].shape[0], None, [[] for _ in leaves]
    for step in range(count):
        now = [leaf[count - 1 - step if reverse else step] for leaf in leaves]
        if state is not None:
            now = _pytree.tree_leaves(function(_pytree.tree_unflatten(state, structure), _pytree.tree_unflatten(now, structure)))
        state = now
        for parts, part in zip(found, now, strict=True):
            parts.append(part)
    found = [torch.stack(parts[::-1] if reverse else parts).movedim(0, dim) for parts in found]
    return _pytree.tree_unflatten(found, structure)
