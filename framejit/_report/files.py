"""Where a report is written to: a page, or its figures as JSON."""
from framejit._support.files import write_whole


def write_text(text, path):
    write_whole(path, text.encode(errors="backslashreplace"))


def json_text(report, path, indent):
    """The text of what has `as_dict`; with a path it is written there too."""
    import json

    text = json.dumps(report.as_dict(), indent=indent)
    if path is not None:
        write_text(text + "\n", path)
    return text
