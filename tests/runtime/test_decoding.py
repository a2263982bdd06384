"""A language model with a cache, token by token in one session: both runtimes against ONNX Runtime
at every step, f32 and int8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from support import language_model
from support.language_model import LanguageModel, decode
from support.onnx_cases import ort_session

import fqfuse

PROMPT, STEPS = 5, 8
MOST_ERROR = 1e-4
"""Of an f32 output's largest value: three layers of sums of 32 to 48 products, each in an order of
its own.
"""
MOST_DB_BELOW = 0.5
"""How much further from the f32 model than ONNX Runtime, over all steps: one code that rounds the
other way moves all that follow.
"""


class Reader(CalibrationDataReader):
    """The feeds of a prompt and of what follows, then None."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.feeds = (
            feeds
            for feeds, _ in decode(partial(ort_session(proto).run, None), tokens(1, seed=1), PROMPT)
        )

    def get_next(self):
        return next(self.feeds, None)


def tokens(batch: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, batch]).integers(
        0, language_model.VOCABULARY, (batch, PROMPT + STEPS)
    )


def static(activations: QuantType, source: Path, target: Path) -> None:
    proto = onnx.load(source)
    # The mask's -3.4e38 in the range of a tensor would leave one code for everything else.
    makers = {node.output[0]: node.name for node in proto.graph.node}
    masked = [
        name
        for node in proto.graph.node
        if node.op_type == "Softmax"
        for name in (node.name, makers[node.input[0]])
    ]
    quantize_static(
        source,
        target,
        Reader(proto),
        quant_format=QuantFormat.QDQ,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        per_channel=True,
        nodes_to_exclude=masked,
    )


QUANTIZERS: dict[str, Callable[[Path, Path], None]] = {
    "u8": partial(static, QuantType.QUInt8),
    "s8": partial(static, QuantType.QInt8),
    "dynamic": partial(quantize_dynamic, weight_type=QuantType.QInt8),
}


def outputs(run: language_model.Run) -> list[np.ndarray]:
    """All outputs of the prompt and each step, for one text, then for two: with logits, then keys,
    then values.
    """
    return [
        array
        for batch in (1, 2)
        for _, found in decode(run, tokens(batch), PROMPT)
        for array in found
    ]


def session(model: onnx.ModelProto, backend: str) -> language_model.Run:
    return partial(fqfuse.InferenceSession(fqfuse.compile(model), backend, threads=1).run, None)


def db(reference: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Signal to noise in dB over all of them."""
    wanted, given = (
        np.concatenate([array.ravel() for array in arrays]).astype(np.float64)
        for arrays in (reference, found)
    )
    return float(10 * np.log10(np.square(wanted).sum() / np.square(wanted - given).sum()))


@pytest.fixture(scope="module")
def f32() -> onnx.ModelProto:
    return LanguageModel().build()


@pytest.fixture(scope="module")
def reference(f32: onnx.ModelProto) -> list[np.ndarray]:
    return outputs(partial(ort_session(f32).run, None))


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_f32_follows_onnx_runtime_token_by_token(f32, reference, backend):
    for found, wanted in zip(outputs(session(f32, backend)), reference, strict=True):
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= MOST_ERROR * np.abs(wanted).max()


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of the quantizer
def test_int8_is_as_near_to_f32_as_onnx_runtime(f32, reference, quantizer, tmp_path):
    onnx.save(f32, tmp_path / "f32.onnx")
    QUANTIZERS[quantizer](tmp_path / "f32.onnx", tmp_path / "int8.onnx")
    int8 = onnx.load(tmp_path / "int8.onnx")
    peer = db(reference, outputs(partial(ort_session(int8).run, None)))
    assert 15 < peer < 60  # it is quantized, and not broken by it
    for backend in ("numpy", "onednn"):
        own = db(reference, outputs(session(int8, backend)))
        print(f"{quantizer}: {backend} {own:.2f} dB, ONNX Runtime {peer:.2f} dB")
        assert own >= peer - MOST_DB_BELOW
