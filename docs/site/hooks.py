"""What mkdocs asks while it builds the site: see `pages.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))  # a hook is a file, and no module of a package

from pages import PAGES, ROOT, api_page, linked, notebook_page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made of other files."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=linked(text, source, page)))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = notebook.src_uri.removesuffix(".ipynb") + ".md"
        document = json.loads(notebook.content_string)
        text = notebook_page(document, f"docs/{notebook.src_uri}", page)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turns the links of pages in docs/ that lead out of it; adds the reference to that of the API."""
    if page.file.generated_by:
        return markdown
    text = linked(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)
    return f"{text}\n{api_page()}" if page.file.src_uri == "python.md" else text
