"""The two quantizers that most int8 ONNX files come from, with the options their documentation recommends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx

from .arrays import Array, Feeds, split_feeds

__all__ = ["QUANTIZERS", "quantize_nncf", "quantize_ort"]


def quantize_ort(source: Path, target: Path, calibration: Feeds, transformer: bool) -> None:
    """Quantize with ONNX Runtime: pre-processing, then static QDQ, u8 activations, s8 weights per channel.

    ``transformer`` changes nothing here: the quantizer has no such preset.
    """
    del transformer
    quantization: Any = import_module("onnxruntime.quantization")
    pre_process: Any = import_module("onnxruntime.quantization.shape_inference").quant_pre_process
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        pre_process(str(source), str(prepared))
        quantization.quantize_static(
            str(prepared),
            str(target),
            _reader(quantization.CalibrationDataReader, calibration),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        )


def quantize_nncf(source: Path, target: Path, calibration: Feeds, transformer: bool) -> None:
    """Quantize with NNCF's post-training quantization on the ONNX graph, default preset.

    ``transformer`` passes ``model_type=TRANSFORMER``, as its documentation asks for encoders.
    """
    os.environ.setdefault("NNCF_CI", "1")  # switches off NNCF's usage reports; read when it is imported
    nncf: Any = import_module("nncf")
    feeds = list(split_feeds(calibration))
    model_type = nncf.ModelType.TRANSFORMER if transformer else None
    quantized = nncf.quantize(onnx.load(source), nncf.Dataset(feeds), subset_size=len(feeds), model_type=model_type)
    onnx.save(quantized, target)


QUANTIZERS: Mapping[str, Callable[[Path, Path, Feeds, bool], None]] = {"ort": quantize_ort, "nncf": quantize_nncf}


def _reader(base: Any, calibration: Feeds) -> Any:
    """Return ONNX Runtime's reader protocol over the feeds: ``get_next`` gives a feed, then None."""

    class Reader(base):  # type: ignore[misc]  # the base comes from a package that is imported on demand
        def __init__(self) -> None:
            self._feeds = split_feeds(calibration)

        def get_next(self) -> dict[str, Array] | None:
            return next(self._feeds, None)

    return Reader()
