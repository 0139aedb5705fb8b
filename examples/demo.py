"""Runs every example: what was captured, and the speed against eager.

    ./run demo                     a table, one row for each example
    ./run demo chain print         those whose name contains a word
    ./run demo --verbose           each example's report too: graphs, breaks and why, kernels, guards
    ./run demo --html report.html  the table and the reports as one page
"""
import argparse
import contextlib
import dataclasses
import html
import importlib.util
import io
import os
import sys
import time

import numpy as np

import framejit

import add_mul
import branch
import chain_ops
import graphs
import printing
import spring_mass

try:
    import torch
except ImportError:
    torch = None


def examples():
    """(title, function or module, arguments)"""
    for lib in ("numpy", "torch") if torch else ("numpy",):
        yield f"chain_ops, {lib}", getattr(chain_ops, "chain_" + lib), chain_ops.arguments(lib)
        yield f"(x + y) * 2, {lib}", add_mul.add_mul, add_mul.arguments(lib)
        yield f"concatenation, {lib}", getattr(add_mul, "concat_" + lib), add_mul.concat_arguments(lib, 300_000, 700_000)
        yield f"branch on data, {lib}", branch.branch, add_mul.arguments(lib)[:1]
        yield f"print in the middle, {lib}", printing.print_between, add_mul.arguments(lib)[:1]
        yield f"print in a loop, {lib}", printing.print_in_loop, add_mul.arguments(lib)[:1]
    random = np.random.default_rng(0)
    yield "tanh and sum, numpy", graphs.energy, (random.random((400, 300)), random.random(300))
    springs, start, seen = spring_mass.truth()
    yield "masses and springs, numpy", spring_mass.loss, (springs * 1.1, start, seen)
    if installed("sklearn"):
        import logistic_regression

        x, y = logistic_regression.data()
        parameters = {"weights": random.standard_normal(x.shape[1]), "bias": np.zeros(())}
        yield "logistic regression, numpy", logistic_regression.loss, (parameters, x, y)
    if torch:
        yield from torch_examples()


def torch_examples():
    import activation
    import bridges
    import changing_course
    import character_transformer
    import mixed
    import test_net

    net = test_net.TestNet()
    for name, x in test_net.arguments().items():
        yield f"TestNet, branch: {name}", net, (x,)
    for flag in (False, True):
        switch = activation.Switch()
        switch.use_gelu = flag
        yield f"activation, gelu={flag}", switch, activation.arguments()
    yield "torch -> NumPy -> torch", mixed.mixed, mixed.arguments()
    yield "product and relu, torch", bridges.scaled, bridges.arguments(64)
    yield from changing_course.examples()
    alphabet, text = character_transformer.corpus()
    x, _ = character_transformer.batches(text)(0)
    yield "character transformer", character_transformer.Writer(len(alphabet)).eval(), (x,)
    if installed("sklearn"):
        import digits

        import digits_convolution
        import digits_mlp

        yield "digits, perceptron", digits_mlp.network().eval(), digits.batches((64,))(0)[:1]
        yield "digits, convolutional net", digits_convolution.network().eval(), digits.batches((1, 8, 8))(0)[:1]


def installed(name):
    return importlib.util.find_spec(name) is not None


@dataclasses.dataclass
class Row:
    """What became of one example."""
    title: str
    report: object
    first: float  # seconds of the first compiled call, compilation included
    eager: float
    compiled: float

    @property
    def times(self):
        return self.eager / self.compiled

    def cells(self):
        return (self.title, str(len(self.report.graphs)), str(len(self.report.breaks)), duration(self.first), duration(self.eager),
                duration(self.compiled), f"{self.times:.2f}")


def duration(seconds):
    """Three digits: 0.00123 is "1.23 ms"."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3), ("s", 1)):
        if seconds < 999.5 * size or unit == "s":
            return f"{seconds / size:#.3g}".rstrip(".") + " " + unit


def interleaved(functions, arguments, least_rounds=10, least_seconds=0.3):
    """Least seconds of one call of each, measured in turn: other programs disturb some rounds, and a disturbed one is not the least."""
    def seconds(function, calls):
        started = time.perf_counter()
        for _ in range(calls):
            function(*arguments)
        return (time.perf_counter() - started) / calls

    calls = max(1, min(1000, int(0.002 / min(seconds(functions[0], 1) for _ in range(3)))))
    end, rounds = time.perf_counter() + least_seconds, []
    while len(rounds) < least_rounds or time.perf_counter() < end:
        rounds.append([seconds(function, calls) for function in functions])
    return [min(times) for times in zip(*rounds)]


def measured(title, function, arguments):
    """The Row of an example. What the example prints is not shown."""
    with contextlib.redirect_stdout(io.StringIO()):
        function(*arguments)  # what the library sets up when it is first used is not part of the first compiled call
        compiled = framejit.compile(function, cache_bytes=0)  # kernels of an earlier run would make the first call shorter
        started = time.perf_counter()
        compiled(*arguments)
        first = time.perf_counter() - started
        report = framejit.explain(compiled).so_far()
        for _ in range(3):
            compiled(*arguments)
        optimised(5)
        return Row(title, report, first, *interleaved([function, compiled], arguments))


def optimised(most_seconds):
    """Waits for the optimised code, which is made in the background while the quick code runs."""
    end = time.perf_counter() + most_seconds
    while framejit.cache_info()["background_jobs"] and time.perf_counter() < end:
        time.sleep(0.005)


# ---- the table

HEADS = (("", "example"), ("", "graphs"), ("", "breaks"), ("first", "call"), ("", "eager"), ("", "compiled"), ("times", "as fast"))
WIDTHS = (26, 6, 6, 7, 7, 8, 7)  # 79 characters with two blanks between columns


def aligned(cells):
    return "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, WIDTHS))).rstrip()


def rich_console():
    """rich's Console, if it is installed and standard output is a terminal with colours."""
    try:
        if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return None
        from rich.console import Console
    except (ImportError, AttributeError, ValueError):  # no rich; no standard output, or a closed one
        return None
    console = Console(highlight=False)
    return console if console.color_system else None


def each_shown(rows, show):
    """Shows each row when it has been measured; the list of them."""
    done = []
    for row in rows:
        show(row)
        done.append(row)
    return done


def table_shown(rows, console):
    if console is None:
        for heads in zip(*HEADS):
            print(aligned(heads))
        print(aligned(["-" * width for width in WIDTHS]))
        return each_shown(rows, lambda row: print(aligned(row.cells()), flush=True))
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold cyan")
    for i, head in enumerate(HEADS):
        table.add_column("\n".join(head), justify="right" if i else "left", no_wrap=True)
    with Live(table, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        def add(row):
            *cells, times = map(Text, row.cells())  # Text: nothing in a name is markup
            times.stylize("green" if row.times > 1 else "yellow")
            table.add_row(*cells, times)
            live.refresh()

        return each_shown(rows, add)


NOTES = ["First calls include compilation. Times are the least of 10 rounds or more.",
         "next: ./run demo --verbose (each example's report), --html report.html (one",
         "      page), ./run demo chain (the examples whose name contains the word)"]


def show_report(row):
    print("=" * 79, row.title, "=" * 79, row.report, "", sep="\n")
    print(f"first call {duration(row.first)}, eager {duration(row.eager)}, compiled {duration(row.compiled)}, "
          f"{row.times:.2f} times as fast\n", flush=True)


def busy():
    """A remark if the processor had work before the demo began: threads that wait for each other, as torch's do, suffer most."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return [f"Load before the start: {load:.1f} on {cores} cores. Times are uncertain, torch's most."] if load > cores / 2 else []


# ---- the page

STYLE = """:root { color-scheme: light dark; } body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem;
  margin: 0 auto; padding: 1rem; }
table { border-collapse: collapse; } th, td { text-align: right; padding: .15rem .6rem; } tr > :first-child { text-align: left; }
pre { overflow-x: auto; } @media (prefers-color-scheme: dark) { body { background: #14171f; color: #e3e6ee; } a { color: #8ab4f8; } }"""


def page(rows):
    """The table, and below it the report of each example as a notebook shows it."""
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    table = [line([html.escape(" ".join(head).strip()) for head in HEADS], "th")]
    reports = []
    for number, row in enumerate(rows):
        title, *cells = map(html.escape, row.cells())
        table.append(line([f'<a href="#example-{number}">{title}</a>', *cells], "td"))
        reports.append(f'<h2 id="example-{number}">{title}</h2>{row.report._repr_html_()}')
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>framejit: the examples</title>'
            f'<style>{STYLE}</style></head>'
            f'<body><h1>The examples</h1><p>{html.escape(NOTES[0])}</p><table>{"".join(table)}</table>{"".join(reports)}</body></html>\n')


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of examples' names; none: all of them")
    parser.add_argument("--verbose", action="store_true", help="the report of each example")
    parser.add_argument("--html", metavar="FILE", help="the table and the reports as one page")
    options = parser.parse_args(arguments)
    notes = NOTES[:1] + busy() + NOTES[1:]
    with torch.no_grad() if torch else contextlib.nullcontext():
        chosen = [each for each in examples() if not options.words or any(word.lower() in each[0].lower() for word in options.words)]
        if not chosen:
            names = "; ".join(title for title, _, _ in examples())
            parser.error(f"no example has {' or '.join(map(repr, options.words))} in its name; there are: {names}")
        rows = (measured(*each) for each in chosen)
        if options.verbose:
            done = each_shown(rows, show_report)
        else:
            done = table_shown(rows, rich_console())
            print("", *notes, sep="\n")
    if options.html:
        with open(options.html, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(page(done))
        print(f"written: {os.path.abspath(options.html)}")


if __name__ == "__main__":
    try:
        main()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has gone, as `head` does
        sys.exit(1)
