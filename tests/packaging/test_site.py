"""The site of docs/: it is built without a warning, has an entry for each public name, the version and the changelog, and leads to every page."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import framejit

ROOT = pathlib.Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
MISSING = [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]


def toctrees():
    """The pages that docs/index.md leads to."""
    trees = re.findall(r"^```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)^```", (DOCS / "index.md").read_text(), re.M | re.S)
    return " ".join(trees).split()


def test_every_page_is_in_one_toctree():
    assert sorted(toctrees()) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


def test_every_public_name_has_one_entry():
    entries = re.findall(r"^\.\. auto\w+:: (\w+)$", (DOCS / "reference.md").read_text(), re.M)
    assert sorted(entries) == sorted(framejit.__all__)


@pytest.mark.skipif(MISSING != [], reason="the site is not built: not installed: " + ", ".join(MISSING))
def test_the_site_is_built_without_a_warning(tmp_path):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command = [*sphinx, "-d", tmp_path / "doctrees", DOCS, tmp_path / "site"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"framejit {version}</" in (tmp_path / "site" / "index.html").read_text()
    releases = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    page = (tmp_path / "site" / "changelog.html").read_text()
    assert releases != [] and [name for name in releases if f"<h2>{name}<" not in page] == []
    page = (tmp_path / "site" / "reference.html").read_text()
    assert [name for name in framejit.__all__ if f'id="framejit.{name}"' not in page] == []
