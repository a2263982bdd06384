"""docs/dialects.md is what the handlers and the places that refuse say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from make.dialects import dialects_document
from support.onnx_cases import model, node

import fqfuse
from fqfuse.frontend.operators.dialects import HANDLERS, OTHER_DOMAINS

DOCUMENT = Path(__file__).parents[2] / "docs" / "dialects.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_document_is_current() -> None:
    assert dialects_document() == TEXT, "run `make docs` to write docs/dialects.md anew"


@pytest.mark.parametrize(("domain", "op"), HANDLERS)
def test_each_operator_that_is_read_has_a_row_with_its_meaning(domain: str, op: str) -> None:
    rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
    named = [
        row
        for row in rows
        if op in row[0].strip("| ").split(", ") and (domain or "ai.onnx") in row[1].split(", ")
    ]
    assert len(named) == 1
    assert named[0][2].strip(" |")


def test_a_message_that_a_model_provokes_stands_in_its_section() -> None:
    quantizer = node("BipolarQuant", ["x", "x"], domain="qonnx.custom_op.general", name="quantizer")
    with pytest.raises(fqfuse.UnsupportedOp) as caught:
        fqfuse.compile(model([quantizer], domains={"qonnx.custom_op.general": 1}))
    shared = TEXT.split("## All of them", 1)[1].split("\n## ", 1)[0]
    messages = re.findall(r"^\| (.+?) \| (.+?) \|$", shared, flags=re.MULTILINE)
    said = {
        re.escape(what).replace(re.escape("..."), ".*").replace("the\\ operator", ".*"): hint
        for what, hint in messages
    }
    hints = [hint for what, hint in said.items() if re.fullmatch(what, caught.value.what)]
    assert hints == [caught.value.hint]


def test_domains_that_are_not_read_are_listed() -> None:
    listed = TEXT.split("## Domains that are not read", 1)[1]
    assert set(re.findall(r"^\| ([\w.]+) \|", listed, flags=re.MULTILINE)) == {
        "domain",
        *OTHER_DOMAINS,
    }
