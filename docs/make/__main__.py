"""Writes all pages, or those that are named: `PYTHONPATH=docs python -m make [PAGE ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

from fqfuse.onednn.defects import defects_document

from .dialects import dialects_document
from .findings import findings_document
from .options import options_document
from .rules import rules_document
from .schemas import schemas_document

PAGES = {
    "contributing/rules.md": rules_document,
    "findings.md": findings_document,
    "contributing/json-schema.md": schemas_document,
    "contributing/onednn-defects.md": defects_document,
    "dialects.md": dialects_document,
    "commands.md": options_document,
}

for page in sys.argv[1:] or PAGES:
    (Path(__file__).parents[1] / page).write_text(PAGES[page](), encoding="utf-8")
