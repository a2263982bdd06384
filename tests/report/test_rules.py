"""docs/contributing/rules.md is what the docstrings say."""

from __future__ import annotations

from pathlib import Path

import pytest
from make.rules import rules_document

from fqfuse.composer.registry import all_rules
from fqfuse.passes import PIPELINE, passes_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "contributing" / "rules.md"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == rules_document(), (
        "run `make docs` to write docs/contributing/rules.md anew"
    )


@pytest.mark.parametrize(
    "described",
    [*(step.rewrite for step in passes_of(PIPELINE)), *(rule.apply for rule in all_rules())],
)
def test_every_rule_says_why_it_is_legal_and_when_it_refuses(described: object) -> None:
    text = described.__doc__ or ""
    assert "Legal because:" in text
    assert "Refuses when:" in text
