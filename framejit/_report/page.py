"""A report as HTML: one page that needs nothing from outside, or the part of it that a notebook shows.

jinja2 escapes every text that goes in. What would make the page too large for a browser is cut, and the page says where the rest is.
"""
import collections
import html
import itertools
import linecache
import pkgutil
import re

from framejit._errors import Error
from framejit._report.files import write_text
from framejit._report.parts import base_name, size_text, work_text
from framejit._report.sources import is_library, marked_functions
from framejit._report.summary import advice, graph_entry, headline, kernels_alike, numbered, summary_text, verdict

_MOST_TEXT = 1_500_000  # characters of all graphs, and of all guards
_MOST_ROWS = 2000       # kernels, functions, lines of libraries
_MOST_LINES = 5000      # of the source, together
_MOST_STRIPS = 40       # graphs in the figure of the kernels
_REGION = re.compile(r"framejit: loop at line (\d+) of (.*?): one region")
_KINDS = {"compiled": "array operations of the line are in a graph", "loop": "the loop runs as machine code of its own",
          "break": "Python runs the instruction", "eager": "nothing of the function is compiled"}


def _part(name):
    return pkgutil.get_data("framejit._report", name).decode()


def environment():
    """jinja2's, in which templates are the files beside this one."""
    try:
        import jinja2
    except ImportError:
        raise Error("a report's HTML page needs the package jinja2: pip install framejit[report]") from None
    return jinja2.Environment(loader=jinja2.FunctionLoader(_part), autoescape=True, trim_blocks=False)


def _template(name):
    return environment().get_template(name)


def _cut(texts, where):
    """The texts as long as there is room; then what is left out, counted in lines."""
    room, result = _MOST_TEXT, []
    for title, text, *rest in texts:
        kept = text[:room] if len(text) <= room else text[:room].rpartition("\n")[0]
        if len(kept) < len(text):
            kept += f"\n... {text.count(chr(10)) - kept.count(chr(10)):,} more lines: {where}"
        room = max(0, room - len(kept))
        result.append((title, kept, *rest))
    return result


def _sources(report):
    """What the page says of source lines: {"functions", "unmarked", "left_functions", "kinds", "libraries", "left_libraries"}."""
    counts = collections.Counter((node.file, node.line) for graph in report.graphs for node in graph.nodes if node.line > 0)
    compiled = {place for place in counts if not is_library(place[0])}
    regions = [_REGION.match(text) for text in report.loops]
    loops = {(int(found[1]), found[2]) for found in regions if found}
    eager = not (report.graphs or loops or report.needs_no_graph)
    place = report.place if not report.needs_no_graph or report.breaks else None
    functions, room, shown = marked_functions(compiled, report.breaks, loops, place, eager), _MOST_LINES, []
    for file, name, rows in functions[:_MOST_ROWS]:
        if room > 0:
            shown.append((file, name, rows[:room], len(rows[room:])))
        room -= len(rows)
    kinds = {row.kind for _, _, rows, _ in shown for row in rows}
    libraries = [(file, line, times, linecache.getline(file, line).strip()) for (file, line), times in counts.most_common()
                 if is_library(file)]
    return {"functions": shown, "unmarked": "" in kinds, "left_functions": len(functions) - len(shown),
            "kinds": [(kind, text) for kind, text in _KINDS.items() if kind in kinds], "libraries": libraries[:_MOST_ROWS],
            "left_libraries": len(libraries[_MOST_ROWS:])}


def _step(kernel):
    """What a kernel or a call does, in words."""
    done = ", ".join(name if times == 1 else f"{times} {name}" for name, times in collections.Counter(kernel.operations).items())
    if kernel.kind == "call":
        return f"library call {kernel.name}"
    if kernel.kind == "matmul":
        return f"{done or 'matmul'} (by framejit or {kernel.name})"
    if kernel.kind == "loops":
        return done or ("parts of a reduction, combined" if kernel.read_bytes else "fill")
    return done or {"copy": "copy into another layout"}.get(kernel.kind, kernel.kind)


def _place(kernel):
    own = [line for line in kernel.lines if not is_library(line)]
    places = list(dict.fromkeys(map(base_name, own or kernel.lines)))
    return ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def _alike(group, total):
    """A row of the table of kernels: those that do the same in layers that differ in their number alone."""
    first, moved = group[0], sum(kernel.bytes for kernel in group)
    work = None if first.float_operations is None else work_text(sum(kernel.float_operations for kernel in group))
    return {"what": _step(first), "module": first.module if len(group) == 1 else numbered(first.module), "place": _place(first),
            "kind": first.kind, "times": sum(kernel.count for kernel in group), "bytes": size_text(moved),
            "share": 100 * moved / total, "work": work}


def _strips(report, total):
    """The figure: for each graph its number and (x, width, kind, text) of each step in the order of running; 1000 is all bytes."""
    result, x = [], 0.0
    for number, kernels in itertools.groupby(report.kernels[:_MOST_ROWS], key=lambda kernel: kernel.graph):
        steps = []
        for kernel in kernels:
            width = 1000 * kernel.bytes / total
            steps.append((x, width, kernel.kind, " ".join(filter(None, [kernel.module, _step(kernel), size_text(kernel.bytes)]))))
            x += width
        result.append((number, steps))
    return result[:_MOST_STRIPS]


def _contents(report):
    graphs = _cut([(graph_entry(report, number)[0][1].strip(), str(graph)) for number, graph in enumerate(report.graphs)],
                  "str(report.graphs[i])")
    guards = []
    for group in report.guards:
        title = f"[{group.graph}] {group.function}" if group.graph is not None else "pieces without a graph"
        ((_, users),) = _cut([("", "\n".join(group.users))], "report.guards[i].users")
        guards.append((title, users, "\n".join(group.internal)))
    guards = [(title, users, internal) for title, internal, users in _cut([(t, i, u) for t, u, i in guards], "report.guards[i].internal")]
    texts = [("eager", "Ran eagerly", report.fallbacks), ("loops", "Loops", report.loops), ("recompiles", "Recompiles", report.recompiles)]
    texts = [(anchor, title, [text.removeprefix("framejit: ") for text in entries]) for anchor, title, entries in texts if entries]
    total = max(1, sum(kernel.bytes for kernel in report.kernels))
    alike = [_alike(group, total) for group in kernels_alike(report.kernels)[:_MOST_ROWS]]
    sources = _sources(report)
    sections = [("source", "Source", None)] if sources["functions"] or sources["libraries"] else []
    sections += [("breaks", "Breaks", len(report.breaks))] if report.breaks else []
    sections += [(anchor, title, len(entries)) for anchor, title, entries in texts]
    sections += [("kernels", "Kernels", len(report.kernels))] if report.kernels else []
    sections += [("graphs", "Graphs", len(graphs))] if graphs else []
    sections += [("guards", "Guards", None)] if guards else []
    return {
        "report": report, "headline": headline(report).removeprefix(f"{report.name}: "), "verdict": verdict(report),
        "first": advice(report), **sources, "sections": sections, "texts": texts, "kernels": report.kernels[:_MOST_ROWS],
        "alike": alike, "total": size_text(total),
        "strips": _strips(report, total), "size": size_text, "work": work_text, "step": _step, "place": _place, "base_name": base_name,
        "graphs": graphs, "guards": guards, "memory": "\n".join(map(str, report.memory[:_MOST_ROWS])),
        "nothing": not (report.graphs or report.breaks or report.fallbacks or report.loops or report.guards or report.error),
    }


def page(report):
    return _template("page.html").render(style=safe_style(), anchors=True, **_contents(report))


def safe_style():
    """The style sheet, which is not to be escaped."""
    from markupsafe import Markup

    return Markup(_part("page.css"))


def fragment(report):
    """For a notebook: the summary, and the page folded below it. Without jinja2 the summary alone."""
    summary = f"<pre>{html.escape(summary_text(report))}</pre>"
    try:
        body = _template("body.html").render(anchors=False, **_contents(report))  # a notebook shows several
    except Error:
        return summary
    return f"{summary}<details><summary>source lines, kernels, graphs, guards</summary><style>{_part('page.css')}</style>{body}</details>"


def write_page(report, path):
    write_text(page(report), path)
