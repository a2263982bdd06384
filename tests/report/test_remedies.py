"""Remedies tried with a real quantizer: what the finding names, given to ONNX Runtime, mends the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.masked_attention import cosine, quantized

import fqfuse
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.remedies import Tool

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


@pytest.mark.parametrize(
    ("lowest", "named"),
    [
        (-3.4028235e38, ["/attn/bias", "/attn/biased", "/attn/probabilities"]),
        (-1e4, ["/attn/biased", "/attn/probabilities"]),
    ],
)
def test_excluding_what_the_finding_names_mends_a_quantized_mask(
    tmp_path: Path, lowest: float, named: list[str]
) -> None:
    broken = quantized(tmp_path, [], lowest)
    before = cosine(broken)
    first = verdict_of(fqfuse.compile(broken), MACHINE).findings[0]
    assert first.kind.code == "absurd-scale"
    assert set(first.layers) == set(named)
    assert first.change().startswith(f"nodes_to_exclude=['{named[0]}'")
    mended = quantized(tmp_path, list(first.layers), lowest)
    # with the mask quantized, all positions get the same attention; SQNR 11 dB and 34 dB
    assert before < 0.98
    assert cosine(mended) > 0.999
    assert "absurd-scale" not in kinds(mended)


def test_the_mask_that_is_advised_leaves_codes_for_the_scores(tmp_path: Path) -> None:
    assert "with -100 for what is masked" in CATALOGUE["absurd-scale"].remedies[Tool.ORT]
    quantized_so = quantized(tmp_path, [], -100.0)
    assert cosine(quantized_so) > 0.99
    assert "absurd-scale" not in kinds(quantized_so)


def kinds(model: Path) -> set[str]:
    return {each.kind.code for each in verdict_of(fqfuse.compile(model), MACHINE).findings}
