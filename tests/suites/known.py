"""The rows of known.toml: differences that a user would accept, each with the reason. `unit`, `kind` and `place` are patterns."""
import fnmatch
import pathlib
import tomllib


class Row:
    def __init__(self, reason, unit, kind="*", place="*", text="*", sometimes=False):
        self.reason, self.unit, self.kind, self.place, self.text, self.sometimes, self.met = reason, unit, kind, place, text, sometimes, 0

    def explains(self, unit, difference):
        pairs = ((unit, self.unit), (difference["kind"], self.kind), (difference["place"], self.place), (difference["text"], self.text))
        return all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs)


def rows(path=pathlib.Path(__file__).with_name("known.toml")):
    return [Row(**row) for row in tomllib.loads(path.read_text()).get("known", [])]


def explained(rows, unit, difference):
    """The first row that explains the difference, which counts it."""
    for row in rows:
        if row.explains(unit, difference):
            row.met += 1
            return row
    return None


def stale(rows, names, run):
    """The rows that have explained nothing, though all units they name have been run."""
    for row in rows:
        of_row = {name for name in names if fnmatch.fnmatchcase(name, row.unit)}
        if not row.met and not row.sometimes and of_row and of_row <= run:
            yield row
