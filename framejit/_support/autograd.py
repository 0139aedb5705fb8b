"""What compiled programs need of torch's autograd. Imported when the first gradient is needed."""
import torch
from torch.autograd import forward_ad


with torch.inference_mode(False):
    nothing = (torch.empty(0, device="cpu"),)


def node_maker(forward, backward):
    """What makes a node of torch's graph with these two: apply(*sources), without the layer of torch's own that looks for transforms of
    functions, since under one nothing compiled runs (segment/autograd/autograd_node.cpp)."""
    kind = type("Compiled", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
    return super(torch.autograd.Function, kind).apply


def owners(results, saved):
    """Where a function of torch gave a view of a tensor it had made, so is our result: of the memory under another name, since torch lets
    nobody write into views that a node of Python's returns. These names, and what is saved with them: a second derivative goes through it."""
    made = tuple(result.data if result._is_view() else result for result in results)
    owner_of = {id(result): owner for result, owner in zip(results, made)}
    return made, tuple(owner_of.get(id(tensor), tensor) for tensor in saved)


def views(made, results):
    return tuple(new.view(new.shape) if result._is_view() else new for new, result in zip(made, results))


def _plain(cotangent):
    """The elements as a tensor with memory of its own kind; itself where it is one, or a wrapper that only its level can open."""
    if cotangent.layout != torch.strided:
        return cotangent.to_dense()
    if cotangent._is_zerotensor():
        return torch.zeros(cotangent.shape, dtype=cotangent.dtype)
    if cotangent.is_neg() or cotangent.is_conj():
        return cotangent.resolve_conj().resolve_neg()
    return cotangent if type(cotangent) in (torch.Tensor, torch.nn.Parameter) else cotangent.as_subclass(torch.Tensor)


def backward_of_others(backward, node, *cotangents):
    """backward(node, ...) of cotangents that are no plain tensors."""
    plain = tuple(None if cotangent is None else _plain(cotangent) for cotangent in cotangents)
    if any(new is not old for new, old in zip(plain, cotangents)):
        return backward(node, *plain)
    return _backward_of_batches(backward, node, *plain)


def backward_of_duals(backward, node, *cotangents):
    """backward(node, ...) inside of torch's forward mode: it is linear in the cotangents."""
    pairs = [(None, None) if cotangent is None else forward_ad.unpack_dual(cotangent) for cotangent in cotangents]
    values = backward(node, *(pair[0] for pair in pairs))
    if all(pair[1] is None for pair in pairs):
        return values
    tangents = backward(node, *(pair[1] for pair in pairs))
    return tuple(value if tangent is None else forward_ad.make_dual(value, tangent) for value, tangent in zip(values, tangents))


def _backward_of_batches(backward, node, *cotangents):
    """Of is_grads_batched=True and torch.func.vmap: once for each example, under what is outside the innermost batch."""
    batches = torch._C._functorch
    given = [cotangent for cotangent in cotangents if cotangent is not None]
    level = max((batches.maybe_get_level(cotangent) for cotangent in given if batches.is_batchedtensor(cotangent)), default=None)
    legacy = level is None
    if legacy:
        torch._C._vmapmode_increment_nesting()
        level = torch._C._vmapmode_decrement_nesting()
        if level == 0:
            raise RuntimeError(f"framejit can't derive by cotangents of type {', '.join(type(cotangent).__name__ for cotangent in given)}")
        torch._C._vmapmode_decrement_nesting()
    try:
        # One example where it is not of this batch.
        whole = [(torch if legacy else batches)._remove_batch_dim(cotangent, level, 1, 0) for cotangent in given]
        sizes = {len(cotangent) for cotangent in whole}
        count = max(sizes) if 0 not in sizes else 0
        examples = [cotangent.expand(count, *cotangent.shape[1:]) if count else cotangent.new_zeros((1, *cotangent.shape[1:]))
                    for cotangent in whole]
        made = []
        for number in range(max(count, 1)):
            own = iter(examples)
            made.append(backward(node, *(None if cotangent is None else next(own)[number] for cotangent in cotangents)))
        gradients = [None if several[0] is None else torch.stack(several) if count else torch.stack(several)[:0] for several in zip(*made)]
        return tuple(None if gradient is None else (torch if legacy else batches)._add_batch_dim(gradient, 0, level) for gradient in gradients)
    finally:
        if legacy:
            torch._C._vmapmode_increment_nesting()


class Freed(torch.autograd.Function):
    """The node of a result whose history a backward in compiled code has used up."""

    @staticmethod
    def forward(ctx, results, leaf):
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx, *cotangents):
        raise RuntimeError("Trying to backward through the graph a second time (or directly access saved tensors after they have already "
                           "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
                           "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
                           "saved tensors after calling backward.")


def freed(result, leaf):
    """The result as eager leaves it: it requires a gradient, and its backward raises."""
    return Freed.apply((result,), leaf)[0]


def _tensors(value, found):
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _tensors(item, found)
    elif isinstance(value, dict):
        _tensors(list(value.values()), found)
    return found


def _replaced(value, by_id):
    """With other tensors in the places of some."""
    if isinstance(value, torch.Tensor):
        return by_id.get(id(value), value)
    if isinstance(value, (tuple, list)):
        return type(value)([_replaced(item, by_id) for item in value])
    if isinstance(value, dict):
        return {key: _replaced(item, by_id) for key, item in value.items()}
    return value


def recorded(function, places):
    """`Recorded`, or None for a function whose derivative does not need it."""
    return None if function in _direct and not torch.is_autocast_enabled("cpu") else Recorded(function, places)


class Recorded:
    """A function that calls this one under autograd: of the same arguments, it gives (what that returns, a record that a `Vjp` of it takes).

    places: which of the tensors among the arguments, each counted once, it is derived by. One call of the user's has its own, which is given
    tensors in the same places of its arguments each time.
    """

    def __init__(self, function, places):
        self.function, self.places, self.spots = function, places, None

    def __call__(self, *args, **kwargs):
        if self.spots is None:
            self.spots = self._spots(args, kwargs)
        if self.spots:
            given, args = [args[spot] for spot in self.spots], list(args)
            leaves = [tensor.detach().requires_grad_() for tensor in given]
            for spot, leaf in zip(self.spots, leaves):
                args[spot] = leaf
        else:
            tensors = _each_once(args, kwargs)
            given = [tensors[place] for place in self.places]
            leaves = [tensor.detach().requires_grad_() for tensor in given]
            by_id = {id(tensor): leaf for tensor, leaf in zip(given, leaves)}
            args, kwargs = _replaced(args, by_id), _replaced(kwargs, by_id)
        with torch.enable_grad():
            returned = self.function(*args, **kwargs)
        made = leaves[0].new_empty(0, dtype=torch.float32)
        if type(returned) is torch.Tensor:  # most do
            for tensor, leaf in zip(given, leaves):
                if returned is leaf:  # at other sizes than those it was predicted for: whoever calls looks at that
                    return tensor, made
            made.record = (returned,), leaves
            return returned.detach(), made
        made.record = results, _ = _made(returned, args, kwargs), leaves
        return _replaced(returned, {id(result): result.detach() for result in results}), made

    def _spots(self, args, kwargs):
        """Where in `args` the tensors are that it is derived by, if each is there once and nowhere inside of another argument; else ()."""
        if any(isinstance(argument, (tuple, list, dict)) and _tensors(argument, []) for argument in (*args, *kwargs.values())):
            return ()
        derived = {id(tensor) for k, tensor in enumerate(_each_once(args, kwargs)) if k in self.places}
        spots = [spot for spot, argument in enumerate(args) if id(argument) in derived]
        return spots if len(spots) == len(self.places) and not any(id(argument) in derived for argument in kwargs.values()) else ()


def _each_once(args, kwargs):
    return list({id(tensor): tensor for tensor in _tensors((args, kwargs), [])}.values())


def _made(returned, args, kwargs):
    """The tensors among what a function returned that are no argument."""
    given = {id(tensor) for tensor in _tensors((args, kwargs), [])}
    return [tensor for tensor in _tensors(returned, []) if id(tensor) not in given]


class Vjp:
    """torch's own derivative of one tensor that a function of torch returns, or of several.

    vjp(cotangent, derived, record, *args, **kwargs): `derived` are tensors among the arguments; returns a tuple of their gradients, contiguous
    and each with memory of its own. `record` is what `recorded` gave; without one (None, or a copy that a user's hooks made of it) the
    function is called again under autograd. Of several results, `cotangent` is a tuple.
    """

    def __init__(self, function, results, written=()):
        """`results`: numbers among the tensors it returns. `written`: which of the tensors among the arguments the function writes into, as running
        statistics. It has been called once and writes no second time: here it is given copies."""
        self.function, self.results, self.written = function, results, written
        self.autocast = torch.is_autocast_enabled("cpu")
        self.autocast_dtype = torch.get_autocast_dtype("cpu")

    def again(self, cotangent, derived, record, /, *args, **kwargs):
        """The same as a function that can be derived: of tensors that are part of a graph."""
        # What stands for an operand that the derivative does not read is a constant, but it has a derivative by it.
        return self._recorded(cotangent, derived, args, kwargs, {id(tensor): tensor for tensor in derived if not tensor.requires_grad}, create_graph=True)

    @torch.no_grad()
    def __call__(self, cotangent, derived, record, /, *args, **kwargs):
        direct = None if self.autocast else _direct.get(self.function)
        gradients = None if direct is None else direct(cotangent, derived, *args, **kwargs)
        if gradients is None and hasattr(record, "record"):
            gradients = self._of_record(*record.record, cotangent)
        if gradients is None:
            new = {id(tensor): tensor for tensor in (*derived, *(tensor for tensor in _tensors((args, kwargs), []) if tensor.requires_grad))}
            with torch.enable_grad():
                gradients = self._recorded(cotangent, derived, args, kwargs, new)
        taken, own = {tensor.untyped_storage().data_ptr() for tensor in _tensors(cotangent, [])}, []
        for gradient in map(_plain, gradients):
            storage = gradient.untyped_storage().data_ptr()
            whole = gradient.is_contiguous() and storage not in taken and gradient._base is None and not gradient.requires_grad
            taken.add(storage)
            own.append(gradient if whole else gradient.clone(memory_format=torch.contiguous_format))
        return tuple(own)

    def _of_record(self, results, leaves, cotangent):
        """None: what torch recorded was written since. Where that is an error in eager, what the program has saved has said so already; else the
        user has written into a copy that the program did not need to make."""
        try:
            found = [results[number] for number in self.results]
            gradients = _of_one_node(found[0], leaves, cotangent) if len(found) == 1 else None
            return _gradients(found, leaves, cotangent, retain_graph=True) if gradients is None else gradients
        except RuntimeError:
            return None

    def _recorded(self, cotangent, derived, args, kwargs, new, create_graph=False):
        """`new`: tensors among the arguments, by their id, that are no part of a graph here; those that are derived are leaves."""
        by = {id(tensor) for tensor in derived}
        tensors = _tensors((args, kwargs), [])
        replaced = {id(tensors[place]): tensors[place].clone() for place in self.written}
        replaced |= {name: tensor.detach().requires_grad_(name in by) for name, tensor in new.items()}
        args, kwargs, leaves = _replaced(args, replaced), _replaced(kwargs, replaced), [replaced.get(id(tensor), tensor) for tensor in derived]
        # Results of torch's functions that are an argument are not counted. A derivative's are: that of a sum is its cotangent.
        derives = isinstance(getattr(self.function, "__self__", None), Vjp)
        with torch.autocast("cpu", dtype=self.autocast_dtype, enabled=self.autocast):
            returned = self.function(*args, **kwargs)
        made = _tensors(returned, []) if derives else _made(returned, args, kwargs)
        return _gradients([made[number] for number in self.results], leaves, cotangent, create_graph=create_graph)


def _of_one_node(result, leaves, cotangent):
    """The gradients where one node of torch's leads from the leaves to the result: called without torch's engine, which costs more than
    many a derivative. None: it is another graph, or the engine has more to do."""
    node = result.grad_fn
    if len(getattr(node, "_input_metadata", ())) != 1 or not callable(node):  # more outputs than one, no node, one of Python's
        return None
    variables = [getattr(following, "variable", None) for following, _ in node.next_functions]
    if any(following is not None and variable is None for (following, _), variable in zip(node.next_functions, variables)):
        return None
    made = node(cotangent)
    made = made if isinstance(made, tuple) else (made,)
    found = {id(variable): gradient for variable, gradient in zip(variables, made) if variable is not None}
    if len(found) != sum(variable is not None for variable in variables):
        return None  # one leaf by two ways: the engine adds
    gradients = tuple(found.get(id(leaf)) for leaf in leaves)
    same = all(gradient is not None and gradient.shape == leaf.shape and gradient.dtype == leaf.dtype for gradient, leaf in zip(gradients, leaves))
    return gradients if same else None


def _gradients(results, leaves, cotangents, **how):
    gradients, cotangents = [None] * len(leaves), cotangents if isinstance(cotangents, tuple) else (cotangents,)
    if pairs := [(result, cotangent) for result, cotangent in zip(results, cotangents) if result.requires_grad]:
        gradients = torch.autograd.grad([result for result, _ in pairs], leaves, [cotangent for _, cotangent in pairs], allow_unused=True, **how)
    return tuple(torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in zip(gradients, leaves))


def saved_storages(result):
    """The storages of what autograd has saved between a tensor and its leaves, by their identity: their bytes."""
    open_nodes, seen, found = [result.grad_fn], set(), {}
    while open_nodes:
        node = open_nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_") or name == "saved_tensors":
                for tensor in _tensors(getattr(node, name), []):
                    storage = tensor.untyped_storage()
                    found[storage._cdata] = storage.nbytes()
        open_nodes += [following for following, _ in node.next_functions]
    return found


@torch.enable_grad()
def saved_of(function, operands, derived, args, kwargs):
    """What torch saves of a call on meta tensors: of each operand whether its derivative reads (r)ead it, reads a (c)opy, or does not depend on it (u);
    of each result whether it is saved (r); whether anything is, which a backward frees; and the paths as `paths_of` gives them."""
    if (name := getattr(function, "__name__", "")) in _on_another_path:
        return "r" * len(operands), _on_another_path[name], True, ""
    results = _derivable_results(function, operands, derived, args, kwargs)
    saved = {}
    for result in results:
        saved.update(saved_storages(result))
    own = [operand.untyped_storage()._cdata for operand in operands]
    more = sum(size for storage, size in saved.items() if storage not in own)
    depends = more > 0  # what torch made and saved may depend on every operand
    of_operands = ""
    for operand, storage in zip(operands, own):
        size = operand.nbytes
        if storage in saved or not operand.is_floating_point():
            of_operands += "r"
        elif not depends or name in _by_indices_alone:
            of_operands += "u"
        elif size <= more or name not in _large:
            of_operands, more = of_operands + "c", more - size
        else:
            of_operands += "r"
    of_results = "".join("r" if result.untyped_storage()._cdata in saved else "n" for result in results)
    return of_operands, of_results, bool(saved), _paths(results, [operands[k] for k in derived])


@torch.enable_grad()
def paths_of(function, operands, derived, args, kwargs):
    """How torch's graph of a call on meta tensors leads from each result to each of `derived`, one after another: a (g)radient arrives, the result only
    (r)equires one by it, or (n)othing does. "": torch does not say."""
    return _paths(_derivable_results(function, operands, derived, args, kwargs), [operands[k] for k in derived])


def _derivable_results(function, operands, derived, args, kwargs):
    for k in derived:
        operands[k].requires_grad_()
    return _tensors(function(*args, **kwargs), [])


def _leaves_behind(tensor):
    """The ids of leaves that nodes behind the tensor have as operands, whether or not a gradient reaches them: by them it requires one."""
    found, seen, waiting = set(), set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting.extend(behind for behind, _ in node.next_functions)
    return found


def _paths(results, leaves):
    found = ""
    try:
        for result in results:
            if not result.requires_grad:
                found += "n" * len(leaves)
                continue
            gradients = torch.autograd.grad(result, leaves, torch.empty_like(result), retain_graph=True, allow_unused=True)
            behind = _leaves_behind(result)
            found += "".join("g" if gradient is not None else "r" if id(leaf) in behind else "n" for gradient, leaf in zip(gradients, leaves))
    except (RuntimeError, NotImplementedError):
        return ""
    return found


# What torch saves for these does not depend on the elements of floating-point operands: indices that were given.
_by_indices_alone = {"getitem"}
# A copy of an operand of these would take memory that torch does not need: tables of many rows, of which a few are read.
_large = {"embedding_bag"}


# What torch does with these on the CPU it does not do with meta tensors. Which results it saves there.
_on_another_path = {"scaled_dot_product_attention": "r", "lstm": "rnn", "gru": "", "rnn_tanh": "", "rnn_relu": ""}


def _convolution(cotangent, derived, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Needs nothing of what forward made, so forward is not run again. None: not such a call."""
    rank = weight.dim() - 2
    if isinstance(padding, str) or input.dim() != weight.dim() or input is weight:
        return None
    stride, padding, dilation = ([value] * rank if isinstance(value, int) else list(value) * (rank if len(value) == 1 else 1)
                                 for value in (stride, padding, dilation))
    wanted = [any(tensor is part for tensor in derived) for part in (input, weight, bias)]
    made = torch.ops.aten.convolution_backward.default(cotangent, input, weight, None if bias is None else list(bias.shape), stride, padding,
                                               dilation, False, [0] * rank, groups, wanted)
    return [gradient for tensor in derived for gradient, part in zip(made, (input, weight, bias)) if tensor is part]


def _linear(cotangent, derived, input, weight, bias=None):
    """As above: two products and a sum."""
    if weight.dim() != 2 or input is weight or input.dim() < 2:
        return None
    rows, inputs = cotangent.reshape(-1, weight.shape[0]), input.reshape(-1, weight.shape[1])
    gradient_of = {id(input): lambda: (rows @ weight).view(input.shape), id(weight): lambda: rows.t() @ inputs, id(bias): lambda: rows.sum(0)}
    return [gradient_of[id(tensor)]() for tensor in derived]


_direct = {torch.conv1d: _convolution, torch.conv2d: _convolution, torch.conv3d: _convolution, torch.nn.functional.linear: _linear}
