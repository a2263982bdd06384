"""docs/operators.md is what ONNX's test models give."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from support.operator_table import operators_document

import fqfuse
from fqfuse.models.digits import digits_model_path

DOCUMENT = Path(__file__).parents[2] / "docs" / "operators.md"


@pytest.fixture
def text() -> str:
    written = DOCUMENT.read_text(encoding="utf-8")
    version = re.search(r"\(onnx ([\w.]+)\)", written)[1]
    if version != onnx.__version__:
        pytest.skip(f"docs/operators.md is of onnx {version}, and {onnx.__version__} is installed")
    return written


def test_each_operator_of_onnx_has_a_row(text: str) -> None:
    listed = set()
    for section in text.split("\n## ")[1:]:
        domain = section.partition("\n")[0]
        rows = re.findall(r"^\| (\w+)[ *]* \|", section, flags=re.MULTILINE)
        listed |= {("" if domain == "ai.onnx" else domain, op) for op in rows if op != "operator"}
    schemas = onnx.defs.get_all_schemas_with_history()
    assert listed == {(schema.domain, schema.name) for schema in schemas}


@pytest.mark.slow
def test_the_document_is_current(text: str) -> None:
    try:
        fqfuse.InferenceSession(digits_model_path("qdq"), "onednn")
    except fqfuse.BackendUnavailable as reason:
        pytest.skip(str(reason))
    assert text == operators_document(), "run `make docs` to write docs/operators.md anew"
