"""What `compare --suggest` proposes, given to the real quantizer."""

from __future__ import annotations

from pathlib import Path

from support.masked_attention import cosine, feed, quantized

import fqfuse


def test_leaving_out_what_is_suggested_mends_a_quantized_mask(tmp_path: Path) -> None:
    broken = quantized(tmp_path, [])
    before = cosine(broken)
    found = fqfuse.compare(tmp_path / "f32.onnx", broken, data=feed(9), suggest=True)
    suggestion = found["suggestion"]
    assert suggestion["nodes"][0] in ("/attn/bias", "/attn/biased")
    assert suggestion["trials"][0]["why"] == "absurd-scale"
    assert before < 0.98
    mended = quantized(tmp_path, suggestion["nodes"])
    print(before, cosine(mended), suggestion)
    assert cosine(mended) >= 0.95
