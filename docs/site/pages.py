"""Pages of the site that are made of other files: the README, CONTRIBUTING, the changelog, notebooks, and
the Python API. Links between them are turned to where they are on the site.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

PAGES: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Path in the repository -> page of the site."""

_FENCE: Final = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


_API: Final = """## Reference

From the docstrings; `help(fqfuse.compile)` prints the same.
"""


def linked(text: str, source: str, page: str) -> str:
    """The text of a file of the repository with links as the site has them; code stays as it is.

    Links to files that the site does not have become their text.
    """

    def turned(match: re.Match[str]) -> str:
        label, link = match.groups()
        path, mark, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return match[0]
        target = os.path.normpath(Path(source).parent / path)
        there = PAGES.get(target) or (
            target.removeprefix("docs/").replace(".ipynb", ".md")
            if target.startswith("docs/")
            else None
        )
        if there is None or not (ROOT / target).is_file():
            return label
        return f"[{label}]({os.path.relpath(there, Path(page).parent)}{mark}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(turned, part) for part in parts)


def notebook_page(notebook: Mapping[str, Any], source: str, page: str) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed when it was run.

    Args:
        notebook: its document.
        source: where it lies in the repository.
        page: where it will lie on the site.
    """
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(linked(text, source, page))
            continue
        language = "sh" if text.startswith("!") else "python"
        parts.append(f"```{language}\n{text}\n```")
        for output in cell["outputs"]:
            printed = "".join(output["text"]).rstrip()
            parts.append(f"```text\n{printed}\n```")
    parts.append(f"[The notebook itself]({Path(source).name}), for Jupyter.")
    return "\n\n".join(parts) + "\n"


def api_page() -> str:
    """The end of the page python.md: the public names, in the order in which the package's docstring lists them."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    names = re.findall(r"^    (\w+)  +\S", ast.get_docstring(tree) or "", flags=re.MULTILINE)
    errors = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "fqfuse.errors"
        for alias in node.names
    }
    public = [name for name in names if not name.startswith("_")]
    groups = {
        "Functions": [name for name in public if name.islower()],
        "Classes": [name for name in public if not name.islower() and name not in errors],
        "Errors": [name for name in public if name in errors],
    }
    parts = [_API]
    for title, found in groups.items():
        parts.append(f"## {title}\n")
        parts += [f"::: fqfuse.{name}\n    options:\n      heading_level: 3\n" for name in found]
    return "\n".join(parts)
