"""A report for standard output: in colour and as wide as the terminal, if it is one and `rich` is installed."""
import os
import shutil
import sys

from framejit._report.summary import summary_lines

_STYLES = {"head": "bold", "title": "bold cyan", "break": "yellow", "first": "bold green", "try": "green", "dim": "dim", "plain": ""}


def is_terminal(stream):
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # closed, or no file
        return False


def rich_text(report, width):
    """rich's Text of the summary. Nothing in a name is markup to it."""
    from rich.text import Text

    result = Text(no_wrap=True)
    for number, (style, text) in enumerate(summary_lines(report, width)):
        result.append(("\n" if number else "") + text, style=_STYLES[style])
    return result


def shown(report):
    """What print writes."""
    width = output_width()
    text = coloured(report, width) if width is not None and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR") else None
    if text is None:
        text = "\n".join(line for _, line in summary_lines(report, width))
    return printable(text)


def output_width():
    """The columns of standard output; None: it is no terminal."""
    return shutil.get_terminal_size((120, 40)).columns - 1 if is_terminal(sys.stdout) else None


def printable(text):
    """The text in characters that standard output has; others are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def coloured(report, width):
    """None: rich is not installed, or the terminal has no colours."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(width=max(width, 20) + 1, highlight=False)
    if console.color_system is None:
        return None
    with console.capture() as captured:
        console.print(rich_text(report, width), end="", soft_wrap=True)
    return captured.get()
