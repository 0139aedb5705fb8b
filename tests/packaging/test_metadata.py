"""pyproject.toml says what an index and an installer ask for."""
import importlib
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_what_an_index_shows_is_there():
    assert PROJECT["readme"] == {"file": "README.md", "content-type": "text/markdown"} and (ROOT / "README.md").read_text().startswith("# framejit\n")
    assert PROJECT["authors"] == [{"name": "framejit developers"}] and PROJECT["description"] and PROJECT["keywords"]
    assert all(re.fullmatch(r"[A-Z][\w /+-]*( :: [\w /+.-]+)+", row) for row in PROJECT["classifiers"])
    assert sorted(PROJECT["classifiers"]) == PROJECT["classifiers"]


def test_classifiers_name_the_versions_that_are_known():
    rows = re.findall(r"^FJ_VERSION\((\d+), (\d+)\)", (ROOT / "cpython/versions.def").read_text(), re.M)
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == [f"{major}.{minor}" for major, minor in rows] and PROJECT["requires-python"] == f">={named[0]},<{rows[-1][0]}.{int(rows[-1][1]) + 1}"


def test_the_command_is_a_function():
    module, _, function = PROJECT["scripts"]["framejit"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_version_is_written_once():
    version = PROJECT["version"]
    named = [path.name for path in (ROOT / "framejit").rglob("*.py") if re.search(rf"""["']{re.escape(version)}["']""", path.read_text())]
    assert named == []
