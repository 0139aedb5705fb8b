"""`framejit.export(..., training=True)`: a program in two graphs, forward with what it saves, and backward."""
import itertools
import threading

from framejit import _core
from framejit._errors import GraphError
from framejit._export import arguments, library
from framejit._graph.face import face_of
from framejit._graph.calls import refuse_without_text
from framejit._graph.core import from_core


class Saved:
    """What `TrainingProgram.forward` has saved for one `backward`. arrays: in the order of the backward graph's inputs.

    Among them are arguments, parameters and results themselves, which are not to be changed before `backward`. torch counts changes.
    """

    def __init__(self, arrays, results):
        self.arrays, self.results = arrays, results
        self.versions = [_version(x) for x in arrays]


class TrainingProgram:
    """A program of a training step: what `framejit.export(function, args, training=True)` makes.

    forward_graph: the `Graph` of what is computed; its outputs are the results' arrays, then what is saved. backward_graph: of what is
    saved, and of one gradient for each result that has a derivative, in order; its outputs are gradients. program: the `ExportedProgram`
    that is called as the function is. gradients_of: the names of what gets a gradient, paths of parameters and names of
    arguments: in torch what requires one, in NumPy every array of floats.

        program = framejit.export(net, (x,), training=True)
        result, saved = program.forward(x)
        gradients = program.backward(saved, 2 * (result - y))       # {"0.weight": ..., "0.bias": ...}
    """

    def __init__(self, program, captured, wanted):
        """captured: the program's graph, which knows what has no derivative, or one of its own."""
        self.program = program
        saved = program.graph._saved
        self._whole, self._results = library.with_results(captured, program, library.Names())
        try:
            forward, backward, self._saved, self._derived, gradients = _core.training_graphs(self._whole._as_core(), wanted)
        except ValueError as error:
            raise GraphError(f"framejit.export: {program.graph._title()} can't be trained: {error}") from None
        if not gradients:
            raise GraphError(f"framejit.export: {program.graph._title()} can't be trained: nothing that it returns depends on an array "
                             "that gets a gradient (in torch one that requires it)")
        self.forward_graph, self.backward_graph = from_core(forward), from_core(backward)
        refuse_without_text(self.backward_graph, f"framejit.export: {program.graph._title()} can't be trained")
        self._gradients = gradients
        self.gradients_of = [_name(saved.signature["inputs"][number]) for number in gradients]
        self._name_inputs()
        self._kept = threading.local()
        described = {**saved.signature, "result": _of_outputs(saved.signature["result"], itertools.count())}
        self._face = face_of(described, self._whole._as_core(), saved.library, self._body, saved.state)

    signature = property(lambda self: self.program.signature)
    state = property(lambda self: self.program.state)
    ranges = property(lambda self: self.program.ranges)

    def _name_inputs(self):
        """The inputs of the backward graph are called as what they are."""
        inputs, count = self.backward_graph.inputs, len(self._saved)
        taken = set()
        for number, node in enumerate(inputs):
            if number >= count:
                name = f"gradient_{number - count}"
            else:
                at, _ = self._saved[number]
                name = self.forward_graph.inputs[at].name if at >= 0 else f"saved_{number}"
            if name not in taken:
                node.name = name
            taken.add(name)
        self.forward_graph._size_names = dict(self.program.graph._size_names)
        self.backward_graph._size_names = dict(self.program.graph._size_names)

    def _body(self, *inputs):
        """The graph's function of the face: it keeps what is saved for `forward`."""
        outputs = len(self._results)
        with self._quietly():
            found = self.forward_graph(*inputs)
        self._kept.value = Saved([inputs[at] if at >= 0 else found[output] for at, output in self._saved], [found[x] for x in self._derived])
        return [*found[:outputs], *found[len(self.forward_graph.outputs):]]

    def _quietly(self):
        return library.without_gradients(self.program.graph._saved.library)

    def forward(self, *args, **kwargs):
        """(result, saved): what the function returns, and what `backward` needs. Raises GraphError for other arguments."""
        with self._quietly():
            result = self.program._called(self._face, args, kwargs)
        saved, self._kept.value = self._kept.value, None
        return result, saved

    def backward(self, saved, *gradients):
        """The gradients, by the names of `gradients_of`, of what `forward` has saved.

        gradients: an array, or a number for all of its elements, for each array of the result that has a derivative, in order; of one
        result with one element it is 1 where it is not given. Raises GraphError for another number of gradients or another shape, and
        where a tensor that was saved has been written since; what is written into NumPy's arrays nobody counts.
        """
        if not gradients and len(saved.results) == 1 and _count(saved.results[0]) == 1:
            gradients = (1,)
        if len(gradients) != len(saved.results):
            raise GraphError(f"backward takes a gradient for each of the {len(saved.results)} results that have one, not {len(gradients)}")
        for node, array, version in zip(self.backward_graph.inputs, saved.arrays, saved.versions):
            if _version(array) != version:
                raise GraphError(f"backward: %{node.name} was saved by forward, and has been written since: clone it, or write it afterwards")
        given = []
        for number, (gradient, result) in enumerate(zip(gradients, saved.results)):
            if arguments.is_array(gradient) and tuple(gradient.shape) != tuple(result.shape):
                raise GraphError(f"backward: gradient {number} has the shape {tuple(gradient.shape)}, and the result has {tuple(result.shape)}")
            given.append(_like(result, gradient))
        with self._quietly():
            found = self.backward_graph(*saved.arrays, *given)
        return dict(zip(self.gradients_of, found))

    def __call__(self, *args, **kwargs):
        return self.program(*args, **kwargs)

    def build(self, folder, *, name=None, cpu="native"):
        """Makes a shared library and a header with two functions, `<name>_forward` and `<name>_backward`; see `ExportedProgram.build`.

        Parameters and other arrays of `state` are arguments of both, which the caller changes between steps. What is saved is written by
        the first into arrays of the caller's, which the second reads.

            built = program.build("step", name="step")
            print(built.header.read_text())
        """
        return _build(self, folder, name, cpu)

    def __str__(self):
        return (f"program for training {self.signature}\n  gradients of {', '.join(self.gradients_of)}\n"
                f"{self.forward_graph}\n{self.backward_graph}")

    def __repr__(self):
        return f"<framejit program for training {self.signature}>"

    def __reduce__(self):
        raise TypeError("a program for training is not pickled")


def _of_outputs(recipe, numbers):
    """The result's recipe where each array is an output of its own (library.with_results)."""
    kind, what = next(iter(recipe.items()))
    if kind in ("tuple", "list", "dict"):
        return {kind: [_of_outputs(part, numbers) for part in what]}
    if kind == "detached":
        raise GraphError("a program for training returns no detached array: detach it where it is used")
    if kind not in ("output", "scalar", "number", "input", "view"):
        return recipe
    number = next(numbers)
    return recipe if kind == "input" else {"output" if kind == "view" else kind: number}


def _name(entry):
    return arguments.place_text(entry["argument"]) if "argument" in entry else entry["state"]


def _version(array):
    """How often torch has written it; None where nobody counts."""
    return None if not hasattr(array, "_version") or array.is_inference() else array._version


def _count(array):
    return array.numel() if hasattr(array, "numel") else array.size


def _like(result, gradient):
    """The gradient as an array of the result's dtype and shape."""
    if hasattr(result, "new_empty"):
        torch = __import__("torch")
        return torch.as_tensor(gradient, dtype=result.dtype, device=result.device).expand(result.shape).contiguous()
    import numpy

    return numpy.array(numpy.broadcast_to(numpy.asarray(gradient, result.dtype), result.shape))


def wanted_inputs(graph, signature, state, bound):
    """The numbers of inputs that get a gradient."""
    found = []
    places = {str(place): array for name, value in bound.items() for place, array in arguments.arrays_in([name], value)}
    for number, entry in enumerate(signature["inputs"]):
        array = places.get(str(entry["argument"])) if "argument" in entry else state.get(number)
        required = getattr(array, "requires_grad", None)
        if required if required is not None else graph.inputs[number].dtype in ("f16", "bf16", "f32", "f64"):
            found.append(number)
    return found


# ---- for C


def _build(training, folder, name, cpu):
    program = training.program
    graph, data = program.graph, program.graph._saved.signature
    name = library.checked_name(program, name)
    names = library.Names()
    sizes = library.sizes_of(program, names)
    given = []
    for number, (entry, node) in enumerate(zip(data["inputs"], graph.inputs)):
        what = _name(entry)
        given.append(library.Array(names.of(what), node.dtype, tuple(map(program.signature._size, node.shape)), what, number in graph._writes))

    def array(node, name):
        return library.Array(names.of(name), node.dtype, tuple(map(program.signature._size, node.shape)), "")

    forward = training.forward_graph.copy()
    forward._layouts = [None] * len(forward.outputs)
    results = [x._replace(name=names.of(x.what)) for x in training._results]
    results += [array(node, f"saved_{i}") for i, node in enumerate(forward.outputs[len(results):])]
    backward = training.backward_graph.copy()
    backward._layouts = [None] * len(backward.outputs)
    known = [given[at]._replace(written=False) if at >= 0 else results[output] for at, output in training._saved]
    known += [array(node, f"gradient_of_{results[output].name}")
              for node, output in zip(backward.inputs[len(known):], training._derived)]
    each = list({x.name: x for x in known}.values())  # two saved values may be one array
    order = [[x.name for x in each].index(x.name) for x in known]
    gradients = [array(node, f"gradient_of_{given[number].name}")
                 for node, number in zip(backward.outputs, training._gradients)]
    return library.write(folder, name, cpu, f"{training.signature}", [
        library.Function(f"{name}_forward", forward, sizes, given, list(range(len(given))), results, [],
                         "The results, and what the backward function reads of them."),
        library.Function(f"{name}_backward", backward, sizes, each, order, gradients, [],
                         "Gradients, of what the forward function has saved and of the gradients of its results.")])
