"""How Sphinx makes the site of this folder: `./run docs`, into build/docs.

The pages are Markdown (MyST). The reference is made of the docstrings, whose text is plain: names stand in single backticks and examples
are indented, which `as_restructured_text` says in the way autodoc wants it.
"""
import pathlib
import re
import tomllib

project = "framejit"
release = version = tomllib.loads((pathlib.Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]["version"]
author = "framejit developers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["licenses"]
html_theme = "furo"
html_title = f"framejit {release}"
html_copy_source = html_show_copyright = False
highlight_language = "text"     # of a block that names no language: graphs, reports, commands
myst_heading_anchors = 3        # links such as derivatives.md#derivatives-of-your-own
autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
nitpicky = True


def as_restructured_text(lines):
    """A docstring's lines: indented paragraphs are code, and what is in single backticks is too."""
    text = []
    in_code = False
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and not in_code and (i == 0 or not lines[i - 1]):
            text += [".. code-block:: python", ""]
            in_code = True
        elif line and not indented:
            in_code = False
        text.append(line if in_code else "".join(as_words(part) for part in re.split("(`[^`]+`)", line)))
    return text


def as_words(part):
    return f"`{part}`" if part[:1] == "`" else part.replace("*", r"\*")


def setup(app):
    def rewrite(app, what, name, obj, options, lines):
        lines[:] = as_restructured_text(lines)

    app.connect("autodoc-process-docstring", rewrite)
