"""Remedies tried with a real quantizer: what the finding names, given to ONNX Runtime, mends the model."""

from __future__ import annotations

import re
from pathlib import Path

from support.masked_attention import cosine, quantized

import fqfuse
from fqfuse.report.verdict import catalogue
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


def test_excluding_what_the_finding_names_mends_a_quantized_mask(tmp_path: Path) -> None:
    broken = quantized(tmp_path, [])
    before = cosine(broken)
    first = verdict_of(fqfuse.compile(broken), MACHINE).findings[0]
    assert first.kind.code == "absurd-scale"
    assert set(first.layers) == {"/attn/bias", "/attn/biased", "/attn/probabilities"}
    assert first.change().startswith("nodes_to_exclude=['/attn/bias'")
    mended = quantized(tmp_path, list(first.layers))
    # with the mask quantized, all positions get the same attention; SQNR 11 dB and 34 dB
    assert before < 0.98
    assert cosine(mended) > 0.999
    codes = {finding.kind.code for finding in verdict_of(fqfuse.compile(mended), MACHINE).findings}
    assert "absurd-scale" not in codes


def test_the_mask_that_is_advised_leaves_codes_for_the_scores() -> None:
    """Scores are a few units wide: one step of 8-bit codes that span the mask has to be finer than one."""
    source = Path(catalogue.__file__).read_text(encoding="utf-8")
    values = [int(value) for value in re.findall(r"(-\d+) in place of -3\.4e38", source)]
    assert len(values) == 4
    assert all(-value / 255 < 1 for value in values)
