"""A graph as a table and as a picture."""
import shutil

from framejit._errors import Error

_COLUMNS = ("value", "type", "operation", "operands", "attributes", "users", "line", "module")


def _text(value):
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, tuple) else str(value)


def _row(node):
    attrs = ", ".join(f"{key} = {_text(value)}" for key, value in node.attrs.items() if key not in ("shape", "sizes"))
    place = f"{node.file.rpartition('/')[2]}:{node.line}" if node.line else ""
    type = str(node.type) if hasattr(node.type, "dtype") else ", ".join(map(str, node.type))
    return (f"%{node.name}", type, node.op, ", ".join(f"%{x.name}" for x in node.operands), attrs,
            ", ".join(f"%{x.name}" for x in node.users), place, node.module)


def tabular(graph):
    rows = [_COLUMNS, *(_row(node) for node in [*graph.inputs, *graph])]
    used = [i for i in range(len(_COLUMNS)) if any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in used}
    lines = ["  ".join(row[i].ljust(widths[i]) for i in used).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * widths[i] for i in used))
    lines += [f"write  %{target.name} <- %{value.name}" for target, value in graph.writes]
    lines.append("return " + ", ".join(f"%{node.name}" for node in graph.outputs))
    return "\n".join(lines)


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def dot(graph):
    """Each module is a box around its operations."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  node [shape=box, fontname=monospace, fontsize=10];"]
    number = {node: f"n{i}" for i, node in enumerate([*graph.inputs, *graph])}
    boxes = {}
    for node in graph:
        boxes.setdefault(node.module, []).append(node)
    for node in graph.inputs:
        lines.append(f"  {number[node]} [label={_quoted(f'%{node.name}') [:-1]}\\n{node.type}\", style=rounded];")
    for i, (module, nodes) in enumerate(boxes.items()):
        inside = [f"{number[node]} [label={_quoted(node.op)[:-1]}\\n{_row(node)[1]}\"];" for node in nodes]
        if module:
            lines += [f"  subgraph cluster{i} {{ label={_quoted(module)};", *("    " + line for line in inside), "  }"]
        else:
            lines += ["  " + line for line in inside]
    for node in graph:
        lines += [f"  {number[x]} -> {number[node]};" for x in node.operands]
    for i, node in enumerate(graph.outputs):
        lines += [f"  out{i} [label=\"output {i}\", style=rounded];", f"  {number[node]} -> out{i};"]
    for target, value in graph.writes:
        lines.append(f"  {number[value]} -> {number[target]} [style=dashed, label=\"write\", constraint=false];")
    return "\n".join([*lines, "}", ""])


def svg(graph):
    try:
        import graphviz
    except ImportError:
        raise Error("framejit: Graph.svg needs the package graphviz: pip install graphviz; Graph.dot() gives the text") from None
    if shutil.which("dot") is None:
        raise Error("framejit: Graph.svg needs Graphviz's program dot (https://graphviz.org/download); Graph.dot() gives the text")
    return graphviz.Source(dot(graph)).pipe(format="svg", encoding="utf-8")
