"""The report as a person reads it first: at most 40 lines, whatever the program.

`blocks` says everything in sections of entries; `fitted` takes of each section as many entries as there is room for, and counts the rest.
Lines are (style, text); terminal.py has the colours of the styles.
"""
import collections
import re
import textwrap

from framejit._report.parts import base_name, counted, readable, size_text, work_text
from framejit._report.sources import is_library

MOST_LINES = 40
_WIDEST = 120  # without a terminal


class Section:
    """A title and entries of [(style, text), ...] each. rest(entries): one line about those that there is no room for."""

    def __init__(self, title, entries, rest=None, share=1, most=MOST_LINES):
        self.title, self.entries, self.rest, self.share, self.most = title, entries, rest, share, most
        self.taken, self.full = 0, False  # full: one entry more does not fit

    def lines(self, width):
        left = self.entries[self.taken:]
        result = wrapped("title", self.title, width, 1) if self.title else []
        for entry in self.entries[:self.taken]:
            result += [line for style, text in entry for line in wrapped(style, text, width)]
        if left:
            result += wrapped("dim", "  " + self.rest(left), width, 1)
        return result


def wrapped(style, text, width, most=2):
    """One text as lines of the width, of which what is left after `most` is "..."."""
    indent = len(text) - len(text.lstrip(" "))
    label = re.match(r" *(?:cost|try|was|now|from) +", text)
    hanging = " " * min(label.end() if label else indent + 2, max(0, width - 20))
    body = text[:label.end()] if label else " " * indent
    lines = textwrap.wrap(" ".join(text[len(body):].split()), max(width, 20), initial_indent=body, subsequent_indent=hanging, max_lines=most,
                          placeholder=" ...", break_on_hyphens=False) or [""]
    return [(style, line) for line in lines]


def place(file, line):
    return f"{base_name(file)}:{line}"


def summary_lines(report, width=None):
    width = min(width or _WIDEST, 160)
    sections = blocks(report)
    while len(lines := [line for section in sections for line in section.lines(width)]) <= MOST_LINES:
        # The section that shows the least for its share gets one entry more, as long as there is room for it.
        growing = [section for section in sections if section.taken < min(section.most, len(section.entries)) and not section.full]
        if not growing:
            return lines
        section = min(growing, key=lambda section: section.taken / section.share)
        section.taken += 1
        if sum(len(section.lines(width)) for section in sections) > MOST_LINES:
            section.taken -= 1
            section.full = True
    return lines[:MOST_LINES]


def summary_text(report, width=None):
    return "\n".join(text for _, text in summary_lines(report, width))


def headline(report):
    calls = [kernel for kernel in report.kernels if kernel.is_library_call]
    launched = f", {counted(sum(kernel.count for kernel in calls), 'library call')}" if calls else ""
    operations = sum(len(graph.nodes) for graph in report.graphs)
    return (f"{report.name}: {counted(len(report.graphs), 'graph')}, {counted(operations, 'operation')}, {counted(report.kernel_count, 'kernel')}"
            f"{launched}, {counted(len(report.breaks), 'break')}, {counted(len(report.recompiles), 'recompile')}")


_LIBRARY_ALONE = " of library calls alone, so none of it is faster"


def library_alone(report):
    """Every step of the graphs is a call of the library, as arithmetic on complex numbers is."""
    return bool(report.kernels) and all(kernel.kind == "call" for kernel in report.kernels)


def verdict(report):
    """One sentence: what was captured, in words."""
    if report.error:
        return f"The call raised {report.error}"
    if not report.graphs and report.needs_no_graph and not report.breaks:
        return "no graph is needed: the function computes no array (it may make views), and Python runs it"
    if not report.graphs and not report.breaks and not report.fallbacks and not report.loops:
        return "Nothing is compiled: the function was not called yet, or it works on no arrays."
    if not report.graphs and any("no region" not in text for text in report.loops):
        return "No graph is captured, but a loop runs as machine code of its own."
    if not report.graphs:
        return "Nothing is compiled: Python runs the function as it is written."
    seconds = sum(row["seconds"] for row in report.timings)
    if report.breaks or report.fallbacks:
        captured = f"{counted(len(report.graphs), 'graph is', 'graphs are')} compiled; Python runs what is between and beside them"
    elif len(report.graphs) == 1:
        captured = "The whole function is one graph" + (_LIBRARY_ALONE if library_alone(report) else "")
    else:
        captured = f"{len(report.graphs)} graphs are compiled, without a break"
    return f"{captured}; compiling took {seconds * 1e3:.0f} ms, on first calls only."


def _one_line(text):
    return " ".join(text.split())


def recompile_parts(text):
    """The fields of a recompile's text: function, guard, was, now, from."""
    first, *rest = text.split("\n")
    found = {"function": first.removeprefix("framejit: recompile of "), "guard": rest[0].strip().removesuffix(" no longer holds") if rest else ""}
    found.update((key, value.strip()) for key, _, value in (line.strip().partition(" ") for line in rest[1:]))
    return found


def advice(report):
    """What to do first: (where or "", what). None: nothing."""
    internal = next((text for text in report.fallbacks if text.startswith("framejit: internal failure")), None)
    if internal:
        return "", f"report this failure of framejit's own, {_one_line(internal.partition('failure ')[2])}"
    if report.breaks:
        avoidable = [b for b in report.breaks if b.remedy and not b.remedy.startswith(("nothing to do", "none needed"))]
        if avoidable:
            reason, times = collections.Counter(b.name for b in avoidable).most_common(1)[0]
            first = next(b for b in avoidable if b.name == reason)
            return place(first.file, first.line) + (f" and {times - 1} more like it" if times > 1 else ""), first.remedy
    if report.fallbacks and not report.error:  # what was raised is said already
        return "", "read under `ran eagerly` why calls were left to Python"
    if len(report.recompiles) > 2:
        guard, times = collections.Counter(recompile_parts(text)["guard"] for text in report.recompiles).most_common(1)[0]
        return "", (f"keep `{readable(guard)}` the same between calls ({counted(times, 'recompile')} because of it), or name the sizes that change with "
                    "framejit.mark_dynamic")
    return None


def blocks(report):
    first = advice(report)
    head = [[("head", headline(report))], [("plain", "  " + verdict(report))]]
    if first:
        where, what = first
        head.append([("first", f"  do first: {where + ': ' if where else ''}{_one_line(what)}")])
    section = Section("", head)
    section.taken = len(head)
    result = [section]

    def add(title, entries, rest, share=1, most=MOST_LINES):
        if entries:
            result.append(Section(title, entries, rest, share, most))

    add("breaks: one instruction runs in Python, and the graph ends before it", [break_entry(b) for b in report.breaks],
        lambda left: f"and {len(left)} more: {by_reason(report.breaks[-len(left):])}", 3)
    add("ran eagerly, as it is written", [[("break", "  " + _one_line(text.removeprefix("framejit: ").removeprefix("ran eagerly: ")))]
                                          for text in report.fallbacks], lambda left: f"and {len(left)} more: report.fallbacks")
    add("graphs", [graph_entry(report, number) for number in range(len(report.graphs))],
        lambda left: f"and {counted(len(left), 'more graph')}: report.graphs", 2)
    alike = kernels_alike(report.kernels)
    add("kernels and library calls (bytes read and written, floating-point operations)",
        [[("plain", "  " + kernel_text(kernels))] for kernels in alike],
        lambda left: f"and {sum(map(len, alike[-len(left):]))} more, of {total_bytes(alike[-len(left):])}: report.kernels", 2, 10)
    add("loops: a region is machine code for all the passes of a loop", [[("plain", "  " + _one_line(text.removeprefix("framejit: ")))]
                                                                        for text in report.loops],
        lambda left: f"and {counted(len(left), 'more loop')}: report.loops")
    add("recompiles: what a later call had otherwise", [recompile_entry(text) for text in report.recompiles],
        lambda left: f"and {counted(len(left), 'more recompile')}: report.recompiles", 2)
    add("guards: what must hold for a compiled piece to be used again", guard_entries(report),
        lambda left: f"and those of {counted(len(left), 'more piece')}: report.guards")
    more = Section("more", [[("dim", "  " + text)] for text in where_more(report)])
    more.taken = len(more.entries)
    return result + [more]


def break_entry(b):
    calls = " -> ".join(name.rpartition("<locals>.")[2] for name in b.calls) if len(b.calls) > 1 else b.function
    reason = b.text.split("\n")[1].strip() if "\n" in b.text else f"{b.number} {b.detail}"
    return [("break", f"  {place(b.file, b.line)} in {calls}"), ("plain", f"    {_one_line(reason.replace('`` ', ''))}"),
            ("plain", f"    cost  {b.cost}"), ("try", f"    try   {b.remedy}")]


def by_reason(breaks):
    counts = collections.Counter(f"{b.number} {b.what}" for b in breaks)
    return ", ".join(f"{times} {reason}" for reason, times in counts.most_common())


def _input_name(name):
    return re.sub(r"^stack_(\d+)_$", r"stack[\1]", name)


def graph_entry(report, number):
    graph = report.graphs[number]
    kernels = [kernel for kernel in report.kernels if kernel.graph == number]
    own = [node for node in graph.nodes if node.line > 0 and not is_library(node.file)]
    where = f", from {place(own[0].file, own[0].line)} on" if own else ""
    calls = sum(kernel.count for kernel in kernels if kernel.is_library_call)
    passed = [node for i, node in enumerate(graph.inputs) if i not in report._parameters.get(number, ())]
    given = [f"{_input_name(node.name)}: {node.type}" for node in passed[:4]] + (["..."] if len(passed) > 4 else [])
    if len(passed) < len(graph.inputs):
        given.append(f"and {counted(len(graph.inputs) - len(passed), 'parameter')}")
    given = ", ".join(given)
    steps = f", {counted(sum(kernel.is_own for kernel in kernels), 'kernel')}" + (f", {counted(calls, 'library call')}" if calls else "") if kernels else ""
    return [("plain", f"  [{number}] {graph.name}({given}): {counted(len(graph.nodes), 'operation')}{steps}{where}"),
            *[("plain", f"      {memory_text(row)}") for row in report.memory if row.graph == number and _is_much(row)]]


def _is_much(row):
    return row.saved_for_backward or row.temporaries > (row.inputs + row.results) // 8


def memory_text(row):
    texts = [f"{size_text(row.temporaries)} of temporaries"] if row.temporaries else []
    texts += [f"{size_text(row.saved_for_backward)} saved for backward"] if row.saved_for_backward else []
    return f"memory: {' and '.join(texts)}, beside inputs of {size_text(row.inputs)} and results of {size_text(row.results)}"


_MOVES = ("transpose", "reshape", "slice", "cast")  # said only of kernels that do nothing else


def numbered(module):
    """"layers.3.norm" as "layers.*.norm"."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


def kernels_alike(kernels):
    """Lists of kernels that do the same in layers that differ in their number alone; those that move most memory together come first."""
    groups = {}
    for kernel in kernels:
        key = kernel.graph, kernel.kind, kernel.operations, numbered(kernel.module), kernel.lines, kernel.bytes, kernel.count
        groups.setdefault(key, []).append(kernel)
    return sorted(groups.values(), key=lambda group: -sum(kernel.bytes for kernel in group))


def total_bytes(groups):
    return size_text(sum(kernel.bytes for group in groups for kernel in group))


def kernel_label(kernel, alike=1):
    """Where a kernel's work stands in the program, and what it is. alike: of how many such kernels it is the first."""
    counts = collections.Counter(name for name in kernel.operations if name not in _MOVES) or collections.Counter(kernel.operations)
    combined = "the parts of a reduction, combined" if kernel.name.endswith("_combine") else "an array of one value"
    alone = {"copy": "copy into another layout", "loop": "a loop over elements"}.get(kernel.kind, combined)
    shown = ", ".join(name if times == 1 else f"{times} {name}" for name, times in counts.items()) or alone
    what = f"library call {kernel.name}" if kernel.kind == "call" else f"{shown} (by framejit or {kernel.name})" if kernel.kind == "matmul" else shown
    own = [line for line in kernel.lines if not is_library(line)]
    module = kernel.module if alike == 1 else numbered(kernel.module)
    where = module or ", ".join(map(base_name, (own or kernel.lines)[:2]))
    if kernel.module and own:
        where += f", {base_name(own[0])}"
    return f"{where + ': ' if where else ''}{what}"


def kernel_text(alike):
    kernel = alike[0]
    work = "" if not kernel.float_operations else f", {work_text(kernel.float_operations // kernel.count)}"
    times = sum(kernel.count for kernel in alike)
    return f"{kernel_label(kernel, len(alike))}; {f'{times} times ' if times > 1 else ''}{size_text(kernel.bytes // kernel.count)}{work}"


def recompile_entry(text):
    found = recompile_parts(text)
    where = f" ({base_name(found['from'])})" if found.get("from") else ""
    return [("plain", f"  {found['function']}{where}: `{readable(found['guard'])}` held no longer: was {found.get('was', '')}, now {found.get('now', '')}")]


def guard_entries(report):
    entries = []
    for group in report.guards:
        which = f"[{group.graph}] {group.function}" if group.graph is not None else "pieces without a graph"
        shown = "; ".join(group.users[:4]) + (f"; {len(group.users) - 4} more" if len(group.users) > 4 else "")
        hidden = f"{'; and ' if shown else ''}{counted(len(group.internal), 'guard')} on classes, modules and functions" if group.internal else ""
        entries.append([("plain", f"  {which}: {shown}{hidden}")])
    return entries


def where_more(report):
    if not (report.graphs or report.breaks or report.fallbacks or report.guards):
        return ["call the function, then explain it again"]
    parts = ["report.graphs[0]: a graph as text"] if report.graphs else []
    parts += ["report.kernels"] if report.kernels else []
    parts += ["report.breaks"] if report.breaks else []
    parts += ["report.guards[0].all"] if report.guards else []
    parts += ["report.recompiles"] if report.recompiles else []
    return [", ".join(parts), "with framejit.profile() as p: f(...), then print(p): what each kernel takes",
            'report.text(): everything. report.to_html("report.html"): a page with the source lines. report.to_json("report.json")']
