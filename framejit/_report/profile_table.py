"""A profile as text, in colour on a terminal that has it, and as one HTML page."""
import html

from framejit._report.parts import counted, size_text
from framejit._report.sources import is_library
from framejit._report.summary import kernel_label, numbered

_MOST_ROWS = 25  # of kernels, in text


def seconds_text(seconds):
    """0.00123 as "1.23 ms"."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= 0.9995 * size or unit == "ns":
            return f"{seconds / size:.3g} {unit}"


def rate_text(amount, seconds, unit):
    """Of a second, in thousands of millions: "12.3 GB/s"."""
    return f"{amount / seconds / 1e9:.1f} {unit}" if amount and seconds else ""


class Row:
    """Kernels that do the same work in layers whose number alone differs, together."""

    def __init__(self, kernels):
        first = kernels[0]
        self.kernels, self.runs = kernels, sum(kernel.runs for kernel in kernels)
        self.seconds = sum(kernel.seconds for kernel in kernels)
        self.bytes = sum(kernel.bytes for kernel in kernels)
        self.float_operations = sum(kernel.float_operations or 0 for kernel in kernels)
        limits = [kernel.share_of_limit for kernel in kernels]
        known = [(limit, kernel.seconds) for limit, kernel in zip(limits, kernels) if limit is not None]
        self.limit = sum(limit * seconds for limit, seconds in known) / sum(seconds for _, seconds in known) if known else None
        self.label = kernel_label(first, len(kernels))

    def cells(self, all_seconds):
        share = self.seconds / all_seconds if all_seconds else 0
        return [seconds_text(self.seconds), f"{share:.0%}", f"{self.runs:,}", seconds_text(self.seconds / self.runs),
                rate_text(self.bytes, self.seconds, "GB/s"), rate_text(self.float_operations, self.seconds, "Gflop/s"),
                "" if self.limit is None else f"{self.limit:.0%}", self.label]


HEADINGS = ("time", "share", "runs", "each", "memory", "work", "of limit", "what")


def rows_of(profile):
    groups = {}
    for kernel in profile.kernels:
        key = kernel.function, kernel.kind, kernel.operations, numbered(kernel.module), kernel.lines
        groups.setdefault(key, []).append(kernel)
    return sorted(map(Row, groups.values()), key=lambda row: -row.seconds)


def headline(profile):
    runs, seconds = sum(program.runs for program in profile.programs), sum(program.seconds for program in profile.programs)
    if not runs:
        return f"no compiled graph ran in {seconds_text(profile.seconds)}: explain(f)(...) says why one is not compiled"
    in_kernels = sum(kernel.seconds for kernel in profile.kernels)
    return (f"{counted(runs, 'run')} of {counted(len(profile.programs), 'compiled graph')} took {seconds_text(seconds)} in a block of "
            f"{seconds_text(profile.seconds)}: {seconds_text(in_kernels)} in the steps below, the rest for memory between them")


def remarks(profile):
    """A kernel whose optimised code is not there yet takes several times as long, and nothing else in the table tells."""
    if not profile.programs or not profile.compiled_inside:
        return []
    return ["kernels were still compiled or optimised inside the block: profile once more for the times of later calls"]


def program_lines(profile):
    result = []
    for number, program in enumerate(profile.programs):
        where = " on a GPU" if program.on_device else ""
        result.append(f"[{number}] {program.function}: {counted(program.runs, 'run')}, {seconds_text(program.seconds)}{where}")
    return result


def plain(profile, width):
    lines = [headline(profile)] + ["  " + line for line in remarks(profile) + program_lines(profile)[:8]]
    if len(profile.programs) > 8:
        lines.append(f"  and {len(profile.programs) - 8} more: profile.programs")
    rows = rows_of(profile)
    if not rows:
        return "\n".join(lines)
    all_seconds = sum(row.seconds for row in rows)
    cells = [list(HEADINGS)] + [row.cells(all_seconds) for row in rows[:_MOST_ROWS]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS) - 1)]
    for row in cells:
        line = "  ".join(cell.rjust(size) for cell, size in zip(row, widths)) + "  " + row[-1]
        lines.append(line if len(line) <= width else line[:width - 3] + "...")
    if len(rows) > _MOST_ROWS:
        left = sum(row.seconds for row in rows[_MOST_ROWS:])
        lines.append(f"and {len(rows) - _MOST_ROWS} more, {seconds_text(left)}: profile.kernels")
    return "\n".join(lines)


def table(profile):
    """What print writes."""
    from framejit._report.terminal import output_width, printable

    return printable(plain(profile, output_width() or 140))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>framejit: profile</title><style>{{ style }}</style></head><body><main><div class="framejit">
<h1>Profile</h1><p class="head">{{ headline }}</p>
{% for line in programs %}<p>{{ line }}</p>{% endfor %}
<p>Memory is what the arrays of a step hold, each read or written once and whole. The limit is this machine's memory bandwidth for as many
bytes, or for products its fastest product of large matrices. The bar is the share of the time.</p>
<table class="kernels"><tr>{% for heading in headings %}<th>{{ heading }}</th>{% endfor %}<th></th><th>lines</th></tr>
{% for row, cells in rows %}<tr>{% for cell in cells %}<td class="{{ "number" if not loop.last }}">{{ cell }}</td>{% endfor %}
<td><div class="bar" style="width:{{ "%.1f"|format(100 * row.seconds / most) }}px"></div></td><td>{{ row.kernels[0].lines|join(", ") }}</td></tr>
{% endfor %}</table></div></main></body></html>
"""


def page(profile):
    from framejit._report.page import environment, safe_style

    rows = rows_of(profile)
    all_seconds = sum(row.seconds for row in rows)
    return environment().from_string(_PAGE).render(
        style=safe_style(), headline=headline(profile), programs=remarks(profile) + program_lines(profile), headings=HEADINGS,
        rows=[(row, row.cells(all_seconds)) for row in rows], most=max([row.seconds for row in rows] + [1e-12]))


def write_page(profile, path):
    from framejit._report.files import write_text

    write_text(page(profile), path)


def fragment(profile):
    """For a notebook."""
    return f"<pre>{html.escape(plain(profile, 160))}</pre>"
