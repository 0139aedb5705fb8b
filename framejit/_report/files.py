"""Where a report is written to: a page, or its figures as JSON."""
import contextlib
import os
import threading


def write_text(text, path):
    """Written beside the file and renamed: a reader sees the old file or the new one."""
    given, path = os.fspath(path), os.path.abspath(os.fspath(path))
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(temporary, "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is not None:
            raise type(error)(error.errno, error.strerror, given) from None  # in the words of the caller, who knows no other file
        raise


def json_text(report, path, indent):
    """The text of what has `as_dict`; with a path it is written there too."""
    import json

    text = json.dumps(report.as_dict(), indent=indent)
    if path is not None:
        write_text(text + "\n", path)
    return text
