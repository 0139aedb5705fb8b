"""`ExportedProgram.module`: a program as a torch.nn.Module."""
import copy
import sys

from framejit._errors import GraphError
from framejit._graph.running import compiled


def module_of(program):
    if program.graph._library() != "torch":
        raise GraphError(f"the program of {program.graph.name} is of NumPy's arrays, and a torch.nn.Module has tensors: "
                         "call the program itself")
    return _module_class()(program)


class _Live:
    """The arrays of the graph's inputs, as the module has them when it is called: they may be others after `.to()` or an assignment."""

    def __init__(self, module, paths):
        self.places = {}
        for number, path in paths.items():
            owner, _, name = path.rpartition(".")
            self.places[number] = module.get_submodule(owner), name

    def __getitem__(self, number):
        owner, name = self.places[number]
        return getattr(owner, name)


def _module_class():
    torch = sys.modules["torch"]

    class ProgramModule(torch.nn.Module):
        """A program, whose state are the parameters and buffers."""

        def __init__(self, program):
            super().__init__()
            # As plain attributes: neither is part of the state.
            self._program = program
            self._paths = {number: program.graph.inputs[number].name for number in program.graph._saved.state}
            for number, array in program.graph._saved.state.items():
                owner, name = self._owner(self._paths[number])
                if isinstance(array, torch.nn.Parameter):
                    owner.register_parameter(name, array)
                else:
                    owner.register_buffer(name, array)

        def _owner(self, path):
            """(the module that has the array of this path, its name there)"""
            here, *names = self, *path.split(".")
            try:
                for name in names[:-1]:
                    if name not in here._modules:
                        here.add_module(name, torch.nn.Module())
                    here = here._modules[name]
                if hasattr(here, names[-1]):
                    raise KeyError(f"there is an attribute {names[-1]!r}")
            except (KeyError, TypeError) as error:
                raise GraphError(f"the program of {self._program.graph.name} can't be a torch.nn.Module: its array {path} has no place "
                                 f"({error.args[0]})") from None
            return here, names[-1]

        def forward(self, *args, **kwargs):
            run = self.__dict__.get("_run")
            if run is None or self.__dict__["_version"] != self._program.graph._version:
                # An argument must be where the parameters are, which `.to()` decides.
                run = self.__dict__["_run"] = compiled(self._program.graph, state=_Live(self, self._paths), on_device=False)
                self.__dict__["_version"] = self._program.graph._version
            return self._program._called(run, args, kwargs)

        def __deepcopy__(self, memo):
            made = type(self).__new__(type(self))
            memo[id(self)] = made
            kept = {name: value for name, value in self.__dict__.items() if name not in ("_program", "_run", "_version")}
            made.__dict__.update(copy.deepcopy(kept, memo), _program=self._program)
            return made

        def __reduce__(self):
            raise TypeError("the module of a framejit.ExportedProgram is not pickled: save the program, or the module's state_dict")

    return ProgramModule
