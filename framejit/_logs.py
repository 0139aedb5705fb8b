"""Where the entries of the logs go: a sink, the file of FRAMEJIT_LOGS_FILE, or Python's logging and stderr. Start at `deliver`.

What is logged is chosen in the core, by FRAMEJIT_LOGS and set_logs. `logging` is imported with the first entry.
"""
import atexit
import inspect
import os
import re
import sys

from framejit import _core, _progress
from framejit._nearest import did_you_mean

_PACKAGE = os.path.dirname(__file__) + os.sep


def deliver(artifact, level, text):
    """An entry, from the core. level: a number of `logging`."""
    if _sink is None:
        _to_loggers(artifact, level, text)
    else:
        _sink(artifact, text)


def as_sink(given, caller):
    """The function of an artifact and a text that is meant: `given` itself, or one that writes to its file."""
    if isinstance(given, (str, bytes, os.PathLike)):
        return _Appended(given, caller)
    if not isinstance(given, type):
        if hasattr(given, "write"):
            return _Written(given, caller)
        if callable(given) and _takes_two(given):
            return given
    raise TypeError(f"{caller}: a sink is a callable of an artifact and a text, a path or a text file, not {given!r}")


def _takes_two(function):
    try:
        inspect.signature(function).bind("", "")
    except TypeError:
        return False
    except ValueError:  # of C, without a signature
        pass
    return True


class _Appended:
    """Entries go to the end of a file, which is open only meanwhile: it may be moved, and several processes may write to it."""

    def __init__(self, path, caller):
        self.path = os.path.abspath(os.fsdecode(path))
        try:
            open(self.path, "ab").close()
        except OSError as error:
            raise OSError(error.errno, f"{caller}: the file of the logs can't be written: {error.strerror}", self.path) from None

    def __call__(self, artifact, text):
        with open(self.path, "ab", buffering=0) as file:  # one write: entries of several threads don't mix
            file.write(_lines(text).encode("utf-8", "backslashreplace"))


class _Written:
    """Entries are written to an object of the user's."""

    def __init__(self, file, caller):
        self.file = file
        try:
            file.write("")
        except Exception as error:  # of bytes, closed, for reading
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{caller}: no text can be written to the sink {file!r}: {error}") from None

    def __call__(self, artifact, text):
        self.file.write(_lines(text))
        if hasattr(self.file, "flush"):
            self.file.flush()


def _lines(text):
    return text if text.endswith("\n") else text + "\n"


def _to_loggers(artifact, level, text):
    import logging

    logger = logging.getLogger(f"framejit.{artifact}")
    if logger.disabled or logger.manager.disable >= level or level < _least_level(logger):
        return
    if logger.hasHandlers():
        # Not `logger.log`: the root's level, WARNING in most programs, says nothing about what was asked for by name.
        record = logger.makeRecord(logger.name, level, *_place(), text.removeprefix("framejit: "), (), None)
        logger.handle(record)
    if not _is_handled(logger):
        _progress.erase()
        try:
            sys.stderr.write(_lines(text))
            sys.stderr.flush()
        except Exception:  # it is None, closed, or nobody reads the pipe: nothing can be said, and the program goes on
            pass


def _least_level(logger):
    """That of the nearest logger that has one, the root left out."""
    while logger.parent is not None:
        if logger.level:
            return logger.level
        logger = logger.parent
    return 0


def _is_handled(logger):
    """Whether the user has said where entries go. pytest's handlers keep what is logged for its report and for `caplog`."""
    while logger is not None:
        if any(type(handler).__module__ != "_pytest.logging" for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _place():
    """File and line of the user's that runs."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def choose(text):
    """As FRAMEJIT_LOGS. Raises ValueError for an artifact that does not exist."""
    try:
        _core.set_logs(text)
    except ValueError as error:
        asked, known = re.fullmatch(r"no log is called '(.*)'; there are: (.*)", str(error), re.S).groups()
        raise ValueError(f"{error}{did_you_mean(asked, known.split(', '))}") from None


def _choose_by_environment():
    text = _core.environment_options()["logs"]
    try:
        choose(text)
    except ValueError as error:
        print(f"framejit: FRAMEJIT_LOGS is ignored: {error}", file=sys.stderr)
        choose("")


def _of_the_environment():
    path = _core.environment_options()["logs_file"]
    if not path:
        return None
    try:
        return as_sink(path, "FRAMEJIT_LOGS_FILE")
    except OSError as error:
        print(f"framejit: FRAMEJIT_LOGS_FILE is ignored: {error}", file=sys.stderr)
        return None


def set_sink(sink):
    """sink: as `as_sink` returns it; None: what the environment says."""
    global _sink
    _sink = _from_environment if sink is None else sink


_choose_by_environment()
_sink = _from_environment = _of_the_environment()
_core.set_log_sink(deliver)
atexit.register(_core.end_logs)
