"""Numbers, places and names as the commands print them."""
import os


def size(count):
    """1234567 as "1.2 MB"."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def counted(number, what):
    """"1 graph", "2 graphs"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def place(file, line):
    """The file and line as one writes them in the folder one is in: relative if the file is below it."""
    below = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{file if below.startswith(os.pardir) else below}:{line}"
