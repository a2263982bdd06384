"""What `make site` makes of the repository's files; mkdocs itself has an environment of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from inspect import unwrap
from pathlib import Path
from types import FunctionType

import pytest

import fqfuse

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"[\w.-]+==[\w.]+")


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "site" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_names_pages_that_there_are(pages) -> None:
    named = re.findall(
        r"^ +- ([\w./-]+\.md)$",
        (ROOT / "docs" / ".nav.yml").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert len(named) > 20
    made = set(pages.PAGES.values())
    assert [
        name for name in named if name not in made and not (ROOT / "docs" / name).is_file()
    ] == []


def test_links_lead_to_where_a_file_is_on_the_site(pages) -> None:
    text = "[a](docs/contributing/rules.md#x) [b](CONTRIBUTING.md) [c](ir) [d](LICENSE) [e](#f) [g](https://h)"
    turned = "[a](contributing/rules.md#x) [b](contributing.md) c d [e](#f) [g](https://h)"
    assert pages.linked(text, "README.md", "index.md") == turned
    assert pages.linked("[r](../README.md)", "docs/why-slow.md", "why-slow.md") == "[r](index.md)"
    inside = "[r](../why-slow.md) [i](../images/page-light.png)"
    notebook = "[n](docs/notebooks/slow-to-fast.ipynb)"
    assert pages.linked(notebook, "README.md", "index.md") == "[n](notebooks/slow-to-fast.md)"
    assert pages.linked(inside, "docs/notebooks/a.ipynb", "notebooks/a.md") == inside
    code = "```\n[c](ir)\n```"
    assert pages.linked(code, "README.md", "index.md") == code


def test_the_api_has_each_public_name_once(pages) -> None:
    text = pages.api_page()
    assert sorted(re.findall(r"^::: fqfuse\.(\w+)$", text, flags=re.MULTILINE)) == sorted(
        fqfuse.__all__
    )
    errors = text.split("## Errors", 1)[1]
    assert set(re.findall(r"fqfuse\.(\w+)", errors)) == {
        name
        for name in fqfuse.__all__
        if isinstance(getattr(fqfuse, name), type)
        and issubclass(getattr(fqfuse, name), BaseException)
    }


def test_a_notebook_becomes_its_text_code_and_output(pages) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "[b](../why-slow.md)"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}]},
        {"cell_type": "code", "source": ["!ls"], "outputs": []},
    ]
    text = pages.notebook_page({"cells": cells}, "docs/notebooks/a.ipynb", "notebooks/a.md")
    assert text == (
        "# A\n[b](../why-slow.md)\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```sh\n!ls\n```\n\n"
        "[The notebook itself](a.ipynb), for Jupyter.\n"
    )


def test_versions_are_pinned_and_pages_ask_no_server() -> None:
    lines = (ROOT / "docs" / "site" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line.partition("#")[0].strip() for line in lines]
    assert [line for line in wanted if line and not PINNED.fullmatch(line)] == []
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings  # the theme would fetch fonts
    assert "polyfills: [assets/iframe-worker.js]" in settings  # and the search a script
    assert (ROOT / "docs" / "assets" / "iframe-worker.js").is_file()
    assert "http" not in settings


def inherited() -> set[str]:
    """`Class.member` for the methods that public classes have from bases of this package; what only says
    that ONNX Runtime's method is absent has no `def`.
    """
    classes = [
        value
        for value in (getattr(fqfuse, name) for name in fqfuse.__all__)
        if isinstance(value, type) and not issubclass(value, BaseException)
    ]
    return {
        f"{owner.__name__}.{name}"
        for owner in classes
        for base in owner.__mro__[1:]
        if base.__module__.startswith("fqfuse")
        for name, member in vars(base).items()
        if not name.startswith("_") and isinstance(member, FunctionType)
        if unwrap(member).__code__.co_name == name
    }


def test_the_api_is_asked_for_what_classes_inherit() -> None:
    wanted = {"run", "profile", "placement", "get_inputs"}
    assert {f"InferenceSession.{name}" for name in wanted} <= inherited()
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^ +inherited_members: true\b", settings, flags=re.MULTILINE)


@pytest.mark.slow
def test_the_api_page_has_the_members_that_classes_inherit(tmp_path: Path) -> None:
    mkdocs = ROOT / ".venv-site" / "bin" / "mkdocs"
    if not mkdocs.is_file():
        pytest.skip("the site's environment is not there: `make site` makes it")
    subprocess.run(
        [mkdocs, "build", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    page = (tmp_path / "python.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="fqfuse\.(\w+\.\w+)"', page))
    assert inherited() <= shown
