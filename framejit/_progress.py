"""What is said of long compilations: a line on a terminal, or what the function of set_progress makes of it. Start at `watch`.

The core calls as stages begin and while it traces. While code is made it has let go of the GIL, and a thread of ours looks at the clock.
"""
import _thread
import os
import sys
import time

from framejit import _core

AFTER, EVERY = 1.0, 0.5  # seconds until the first word, and between two
WORDS = {"trace": "tracing", "passes": "rewriting the graph", "code": "making code"}

_callback = None
_running = {}  # by thread
_on_terminal = None  # the compilation whose line is there


def watch(function, stage):
    """From the core, on the thread that compiles. stage: a key of WORDS as it begins or goes on, "" at the end."""
    thread = _thread.get_ident()
    if stage == "":
        if thread in _running:
            _running.pop(thread).end()
        return
    if thread not in _running:
        if _callback is None and not _has_terminal():
            return
        _running[thread] = _Compilation(function)
    _running[thread].at(stage)


def _has_terminal():
    try:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except Exception:  # it is None, closed, or no file
        return False


class _Compilation:
    def __init__(self, function):
        self.function, self.stage, self.start, self.said, self.ended = function, "", time.monotonic(), -EVERY, None
        self.lock = _thread.allocate_lock()  # held while something is said: nothing is after the end

    def at(self, stage):
        changed, self.stage = stage != self.stage, stage
        self.say(changed)
        if stage == "code" and self.ended is None:
            self.ended = _thread.allocate_lock()
            self.ended.acquire()
            _thread.start_new_thread(self.look_at_clock, ())

    def look_at_clock(self):
        while True:
            left = AFTER - (time.monotonic() - self.start)
            if self.ended.acquire(timeout=left if left > 0 else EVERY):
                return
            self.say(False)

    def say(self, changed):
        now = time.monotonic()
        if now - self.start < AFTER or not (changed or now - self.said >= EVERY):
            return
        with self.lock:
            if self.stage == "":
                return
            self.said = now
            if _callback is not None:
                _callback(self.function, self.stage, now - self.start)
            else:
                self.show(f"framejit: compiling {self.function}: {WORDS[self.stage]}, {now - self.start:.0f} s")

    def show(self, line):
        global _on_terminal
        if _on_terminal not in (None, self):
            return  # another thread's compilation has the line
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
        _on_terminal = self
        _write(_ERASE + line[:width - 1])

    def end(self):
        global _on_terminal
        if self.ended is not None:
            self.ended.release()
        with self.lock:
            self.stage = ""
            if _on_terminal is self:
                erase()
                _on_terminal = None


_ERASE = "\r\x1b[K"  # from the line's beginning to its end


def erase():
    """Before something else is written to the terminal. The line comes back when there is something new to say."""
    if _on_terminal is not None:
        _write(_ERASE)


def _write(text):
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # it has been closed meanwhile
        pass


def set_progress(callback=None):
    """Who is told what a compilation of more than a second does, in the place of the line that a terminal shows until it is done.

    callback: `callback(function, stage, seconds)` is called with the name of the function that is compiled, a stage, "trace", "passes"
    (over the graph) or "code", and the seconds since the compilation began, when a stage begins and about twice a second; while code is
    made, on a thread of framejit's. None: nobody; stderr shows the line where it is a terminal. With the option `progress` off neither
    happens.

    Raises TypeError for what is not callable. What a callback raises is reported as unraisable, and the compilation goes on.

        framejit.set_progress(lambda function, stage, seconds: bar.set_description(f"{function}: {stage}, {seconds:.0f} s"))
    """
    global _callback
    if callback is not None and not callable(callback):
        raise TypeError(f"framejit.set_progress takes a callable of a function's name, a stage and seconds, not {callback!r}")
    _callback = callback


_core.set_compilation_watcher(watch)
