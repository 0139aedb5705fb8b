"""Names of what a graph reads, as the user's program has them.

The tracer names a thing by how it is reached from the frame: "G.model.layers.0" through a global, "L.model" through a local variable,
"F.__closure__[0].cell_contents" through a variable of the function around.
"""
import dataclasses
import functools
import re
import types

_PREFIX = re.compile(r"(?<![\w.'\"])[GL]\.(?=\w)")
_CELL = re.compile(r"(?<![\w.])([\w.]+)\.__closure__\[(\d+)\]\.cell_contents")


def in_words(text, function):
    """`text` with "model" for each of them. function: whose frame it is read from; None: it is not known, and cells stay as they are."""
    def variable(found):
        path, number = found[1], int(found[2])
        name = path.removeprefix("G.")
        owner = function if path == "F" else getattr(function, "__globals__", {}).get(name)
        names = owner.__code__.co_freevars if isinstance(owner, types.FunctionType) else ()
        if number >= len(names):
            return found[0]
        return names[number] if path == "F" else f"{name}.{names[number]}"

    return _PREFIX.sub("", _CELL.sub(variable, text))


def name_in_words(report, function):
    """Puts the user's names into the modules of a report's kernels and graphs and into its guards on what the user passes and sets."""
    @functools.cache  # most operations of a network share a few modules
    def words(text, owner):
        return in_words(text, function if function is not None and owner == function.__qualname__ else None)

    for i, kernel in enumerate(report.kernels):
        report.kernels[i] = dataclasses.replace(kernel, module=words(kernel.module, kernel.function))
    for number, graph in enumerate(report.graphs):
        owner = report.guards[number].function
        for node in graph.nodes:
            node.module = words(node.module, owner)
    for group in report.guards:
        group.users = list(dict.fromkeys(words(guard, group.function) for guard in group.users))
