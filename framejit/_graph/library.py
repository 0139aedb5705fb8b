"""Graphs of library calls: `framejit.capture(f, ..., level="library")`.

The graph is captured as ever, with a note of each call of the array library that the user's code makes (`calls` of what tracing finds). Each
takes the place of the operations that it is made of here, as an `extern_call` with the text of the call (calls.py). What has no such
text (operators, indexing, a call with an argument that is no array and no constant) stays as operations.
"""
from framejit._graph.calls import library_of, text_of
from framejit._graph.nodes import Node


def write_stops(graph, stops):
    """Puts a call of `torch.detach` behind each of these values, which have no derivative (`detach`, `no_grad`): text says it no other way."""
    for node in stops:
        if node.graph is not graph or "detach" in node._attrs.get("callee", ""):
            continue
        call = Node(graph, "extern_call", (node,),
                    {"callee": "torch.detach(x0)", "handle": -1, "operand_strides": [None], "result_strides": [None]}, node._type,
                    (node.file, node.line, node.module))
        _replace(graph, node, call, all_but=call)
        graph._link(call, graph._place(None, node))
    graph._touch()


def stopped(graph):
    """The values without a derivative that the graph's results are made of. None of NumPy has a derivative."""
    stops = {x.result for x in graph._composites if not x.operands and x.is_whole()} if graph._library() == "torch" else set()
    needed, waiting = set(), list(graph._outputs) if stops else []
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node._operands)
    return [node for node in graph._all() if node in stops and node in needed]


def collapse(graph, noted):
    """Puts the calls into the graph, in the place of their operations. noted: `found["calls"]`."""
    values = {node._number: node for node in graph._all() if node._number is not None}
    stops = stopped(graph)
    inside = []  # what other calls have made
    done = 0  # of the values that calls have made: a call inside of another one that is in the graph is not
    for function, positional, keywords, structure, written, operands, results, first, last, location in sorted(
            noted, key=lambda call: (call[7], -call[8])):
        if last <= done:
            continue
        callee = text_of((function, positional, keywords, structure, written))
        if callee is None or library_of(callee) != graph._library() or not all(x in values for x in operands):
            continue
        given = [values[x] for x in operands]
        if any(given.count(given[i]) > 1 for i in written):
            continue  # as text, it would write into one of two copies
        found = [values.get(x) for x in results]
        # A result that is an operand, or that was there before, is no new array: the call is a view or nothing.
        if any(node is None or node in given or not first <= number < last for node, number in zip(found, results)):
            continue
        done = last
        types = [node._type for node in found]
        call = Node(graph, "extern_call", given,
                    {"callee": callee, "handle": -1, "operand_strides": [None] * len(given), "result_strides": [None] * len(found)},
                    types[0] if len(found) == 1 else tuple(types), location)
        place = _first(graph, found)
        graph._link(call, place)
        made = [call] if len(found) == 1 else []
        for number, type in enumerate(types if len(found) > 1 else ()):
            made.append(Node(graph, "result", (call,), {"index": number}, type, location))
            graph._link(made[-1], place)
        for node, by, number in zip(found, made, results):
            _replace(graph, node, by)
            values[number] = by
            stops = [by if x is node else x for x in stops]
        for node in found:  # the call itself, which had no operations
            if node._op == "result":
                node.erase()
        for node in {x._operands[0] if x._op == "result" else x for x in found}:
            if node._op == "extern_call" and not node._users:
                node.erase()
        inside += (values[x] for x in range(first, last) if x in values and values[x] not in made and values[x]._op == "extern_call")
    write_stops(graph, stops)
    graph._composites = []
    graph._core = None
    graph._touch()
    graph.eliminate_dead_code()
    for node in reversed(inside):
        if node.graph is graph and not node._users:
            node.erase()
            graph.eliminate_dead_code()


def _first(graph, nodes):
    """The one of the nodes that comes first."""
    wanted = set(nodes)
    return next(node for node in graph if node in wanted)


def _replace(graph, node, by, all_but=None):
    for user in list(node._users):
        if user is not all_but:
            user._operands = tuple(by if x is node else x for x in user._operands)
            by._users[user] = None
            del node._users[user]
    graph._outputs = [by if x is node else x for x in graph._outputs]
    graph._writes = {i: by if x is node else x for i, x in graph._writes.items()}
