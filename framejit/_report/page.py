"""A report as HTML: one page that needs nothing from outside, or the part of it that a notebook shows.

jinja2 escapes every text that goes in. What would make the page too large for a browser is cut, and the page says where the rest is.
"""
import contextlib
import html
import os
import pkgutil
import threading

from framejit._errors import Error
from framejit._report.parts import base_name, size_text
from framejit._report.sources import is_library, marked_functions
from framejit._report.summary import advice, graph_entry, headline, summary_text, verdict

_MOST_TEXT = 1_500_000  # characters of all graphs, and of all guards
_MOST_ROWS = 2000       # kernels, functions


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


def _contents(report):
    located = {(node.file, node.line) for graph in report.graphs for node in graph.nodes if node.line > 0}
    compiled = {place for place in located if not is_library(place[0])}
    eager = {report.place} if report.place and not compiled and not report.needs_no_graph else set()
    functions = marked_functions(compiled, report.breaks, eager)
    graphs = _cut([(graph_entry(report, number)[0][1].strip(), str(graph)) for number, graph in enumerate(report.graphs)], "str(report.graphs[i])")
    guards = []
    for group in report.guards:
        title = f"[{group.graph}] {group.function}" if group.graph is not None else "pieces without a graph"
        ((_, users),) = _cut([("", "\n".join(group.users))], "report.guards[i].users")
        guards.append((title, users, "\n".join(group.internal)))
    guards = [(title, users, internal) for title, internal, users in _cut([(t, i, u) for t, u, i in guards], "report.guards[i].internal")]
    return {
        "report": report, "headline": headline(report), "verdict": verdict(report), "first": advice(report),
        "functions": functions[:_MOST_ROWS], "left_functions": len(functions[_MOST_ROWS:]), "libraries": len(located - compiled),
        "texts": [("Ran eagerly", report.fallbacks), ("Loops", report.loops), ("Recompiles", report.recompiles)],
        "kernels": report.kernels[:_MOST_ROWS], "most": max([kernel.bytes for kernel in report.kernels] + [1]), "size": size_text,
        "lines": lambda kernel: [base_name(line) for line in kernel.lines], "graphs": graphs, "guards": guards,
    }


def page(report):
    return _template("page.html").render(style=safe_style(), **_contents(report))


def safe_style():
    """The style sheet, which is not to be escaped."""
    from markupsafe import Markup

    return Markup(_part("page.css"))


def fragment(report):
    """For a notebook: the summary, and the page folded below it. Without jinja2 the summary alone."""
    summary = f"<pre>{html.escape(summary_text(report))}</pre>"
    try:
        body = _template("body.html").render(**_contents(report))
    except Error:
        return summary
    return f"{summary}<details><summary>source lines, kernels, graphs, guards</summary><style>{_part('page.css')}</style>{body}</details>"


def write_page(report, path):
    write_text(page(report), path)


def write_text(text, path):
    """Written beside the file and renamed: a reader sees the old page or the new one."""
    path = os.path.abspath(os.fspath(path))
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(temporary, "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
