"""Makes a failing case small: parts are dropped while what remains still fails in the same way.

Works on the source's syntax tree, so it knows nothing of how cases are made. Each attempt runs in a child process: a crash is a
way to fail like another.
"""
import ast
import copy
import gc
import itertools
import os
import pickle
import resource
import signal
import time

from case import Case, Difference, check

MOST_BYTES = 6 << 30  # a loop that lost its end may fill a list


def in_child(function, seconds=None):
    """What a forked process makes of `function()`; the signal's number if it died. What uses a device does so there: no fork takes one along."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(seconds or 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            made = function()
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(made, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else pickle.loads(data)


def outcome(case, options, seconds=60, check=check):
    """(kind, text, eager's error) of the difference, or None. "crash" if the process died, "invalid" if it is no program."""
    def run():
        try:
            check(case, **options)
            gc.collect()
            return None
        except Difference as difference:
            return difference.kind, str(difference), difference.eager_error
        except BaseException as error:
            return "invalid", repr(error), None

    found = in_child(run, seconds)
    return ("crash", f"signal {found}", None) if isinstance(found, int) else found


def bodies(tree):
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                yield node, field, block


def smaller_blocks(tree):
    """Trees with runs of statements left out, or a compound statement replaced by its body; largest steps first."""
    count = len(list(bodies(tree)))
    for index in range(count):
        length = len(list(bodies(tree))[index][2])
        size = length
        while size:
            for start in range(0, length, size):
                changed = copy.deepcopy(tree)
                node, field, block = list(bodies(changed))[index]
                del block[start:start + size]
                if not block and field == "body":
                    block.append(ast.Pass())
                if field == "handlers" and not block and not node.finalbody:
                    node.finalbody = [ast.Pass()]
                    node.orelse = []
                yield changed
            size //= 2
    for index, part in itertools.product(range(count), ("body", "orelse", "finalbody")):
        for position in range(len(list(bodies(tree))[index][2])):
            changed = copy.deepcopy(tree)
            block = list(bodies(changed))[index][2]
            inner = getattr(block[position], part, None)
            if isinstance(inner, list) and inner and not isinstance(block[position], (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
                block[position:position + 1] = inner
                yield changed


def smaller_expressions(tree):
    """Trees with one expression replaced by a part of it, or a call's argument left out."""
    def places(root):
        for node in ast.walk(root):
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.expr):
                    yield node, field, None, value
                elif isinstance(value, list):
                    for i, item in enumerate(value):
                        if isinstance(item, ast.expr):
                            yield node, field, i, item

    for index, (node, field, i, value) in enumerate(list(places(tree))):
        if isinstance(value, (ast.Name, ast.Constant)) and i is None:
            continue
        parts = [part for part in ast.walk(value) if isinstance(part, ast.expr) and part is not value]
        for choice in [None] * (i is not None) + list(range(min(len(parts), 6))):
            changed = copy.deepcopy(tree)
            owner, name, position, old = list(places(changed))[index]
            if choice is None:
                if name == "targets" or isinstance(owner, (ast.Compare, ast.BoolOp, ast.Dict, ast.JoinedStr)):
                    continue
                del getattr(owner, name)[position]
            else:
                part = [p for p in ast.walk(old) if isinstance(p, ast.expr) and p is not old][choice]
                if isinstance(part, (ast.FormattedValue, ast.Slice)):
                    continue
                if position is None:
                    setattr(owner, name, part)
                else:
                    getattr(owner, name)[position] = part
            yield changed


def shrink(case, options=None, report=lambda text: None, check=check, patience=float("inf")):
    """The smallest case found that fails as `case` does, after so many seconds at the latest."""
    end = time.monotonic() + patience
    options = options or {}
    first = outcome(case, options, check=check)
    if first is None or first[0] == "invalid":
        return case, first
    kind, _, error = first

    def fails(candidate):
        found = outcome(candidate, options, check=check)
        # A program that lost a name it needs fails in its own way in eager.
        return found is not None and found[0] == kind and (found[2] == error or found[2] not in ("NameError", "UnboundLocalError"))

    def texts(candidate):
        for start in reversed(range(len(candidate.calls))):
            if len(candidate.calls) > 1:
                yield candidate._replace(calls=candidate.calls[:start] + candidate.calls[start + 1:])

    def trees(candidate, smaller):
        tree = ast.parse(candidate.source)
        for changed in smaller(tree):
            try:
                source = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
                compile(source, "<smaller>", "exec")
            except Exception:
                continue
            if len(source) < len(candidate.source):
                yield candidate._replace(source=source)

    plain = case._replace(source=ast.unparse(ast.parse(case.source)) + "\n")
    case = plain if fails(plain) else case
    progress = True
    while progress:
        progress = False
        for step in (texts, lambda c: trees(c, smaller_blocks), lambda c: trees(c, smaller_expressions)):
            again = True
            while again:
                again = False
                for candidate in step(case):
                    if time.monotonic() > end:
                        return case, outcome(case, options, check=check)
                    if fails(candidate):
                        case, again, progress = candidate, True, True
                        report(f"{len(case.source.splitlines())} lines, {len(case.calls)} calls")
                        break
    return case, outcome(case, options, check=check)
