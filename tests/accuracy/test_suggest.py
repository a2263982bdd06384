"""What `compare --suggest` proposes, given to the real quantizer."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.masked_attention import cosine, feed, quantized
from support.small_networks import NETWORKS, Writer, feeds_of

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
    assert cosine(mended) >= 0.95


@pytest.mark.parametrize("network", ["cnn", "attention", "gpt2"])
def test_the_gain_is_what_the_quantizer_brings(network: str, tmp_path: Path) -> None:
    proto = NETWORKS[network](Writer(1))
    source = tmp_path / "f32.onnx"
    onnx.save(proto, source)
    data = feeds_of(proto, 2, 9)
    broken = by_onnxruntime(proto, source, [])
    suggestion = fqfuse.compare(source, broken, data=data, suggest=True)["suggestion"]
    assert suggestion["nodes"]
    mended = fqfuse.compare(source, by_onnxruntime(proto, source, suggestion["nodes"]), data=data)
    (output,) = mended["outputs"].values()
    # a session may round a tie otherwise than the run without fusing
    assert output["sqnr"] == pytest.approx(suggestion["chosen"]["sqnr"], abs=0.3)
    assert output["sqnr"] > suggestion["before"]["sqnr"] + 0.4


def by_onnxruntime(proto: onnx.ModelProto, source: Path, exclude: list[str]) -> Path:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([feeds_of(proto, 2, seed) for seed in range(4)])

        def get_next(self):
            return next(self.feeds, None)

    target = source.with_name(f"int8-{len(exclude)}.onnx")
    quantization.quantize_static(
        str(source),
        str(target),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        per_channel=True,
        nodes_to_exclude=exclude,
    )
    return target
