"""The quantizers that most int8 and int4 ONNX files come from, with the options their documentation
recommends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx

from fqfuse.measure.arrays import Feeds, split_feeds


def quantize_ort(
    source: Path,
    target: Path,
    calibration: Feeds,
    transformer: bool,
    operators: Sequence[str] | None = None,
) -> None:
    """Quantize with ONNX Runtime: pre-processing, then static QDQ, u8 activations, s8 weights per
    channel.

    ``transformer`` changes nothing here: the quantizer has no such preset. ``operators`` replaces
    the types of operators that it quantizes by itself, to which recurrent ones do not belong.
    """
    del transformer
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        prepare(source, prepared)
        feeds = list(split_feeds(calibration))
        quantize_static(prepared, target, feeds, per_channel=True, operators=operators)


def prepare(source: Path, target: Path, *, symbolic: bool = True) -> None:
    """Write what ONNX Runtime's pre-processing makes of a model: constants folded, shapes inferred.

    ``symbolic=False`` leaves out its symbolic shape inference, which gives up on models that
    compute shapes.
    """
    pre_process: Any = import_module("onnxruntime.quantization.shape_inference").quant_pre_process
    pre_process(str(source), str(target), skip_symbolic_shape=not symbolic)


def quantize_static(
    source: Path,
    target: Path,
    feeds: Sequence[Feeds],
    *,
    layout: str = "QDQ",
    activations: str = "QUInt8",
    per_channel: bool = False,
    exclude: Sequence[str] = (),
    operators: Sequence[str] | None = None,
) -> None:
    """Quantize with ONNX Runtime's ``quantize_static``; s8 weights, ranges of activations from
    ``feeds``.

    ``layout`` and ``activations`` are names of ``QuantFormat`` and ``QuantType``; ``exclude`` names
    nodes that stay in f32; ``operators`` the types to quantize where the default is not meant.
    """
    quantization: Any = import_module("onnxruntime.quantization")
    quantization.quantize_static(
        str(source),
        str(target),
        reader(quantization.CalibrationDataReader, feeds),
        quant_format=quantization.QuantFormat[layout],
        activation_type=quantization.QuantType[activations],
        weight_type=quantization.QuantType.QInt8,
        per_channel=per_channel,
        nodes_to_exclude=list(exclude),
        op_types_to_quantize=operators and list(operators),
    )


def quantize_dynamic(
    source: Path,
    target: Path,
    operators: Sequence[str] | None = None,
    *,
    per_channel: bool = False,
) -> None:
    """Quantize with ONNX Runtime's ``quantize_dynamic``: s8 weights, with a scale for each channel or
    one for all, ranges of activations taken in each run; ``operators``: the types to quantize where
    the default is not meant.
    """
    quantization: Any = import_module("onnxruntime.quantization")
    quantization.quantize_dynamic(
        str(source),
        str(target),
        weight_type=quantization.QuantType.QInt8,
        op_types_to_quantize=operators and list(operators),
        per_channel=per_channel,
    )


def quantize_nncf(source: Path, target: Path, calibration: Feeds, transformer: bool) -> None:
    """Quantize with NNCF's post-training quantization on the ONNX graph, default preset.

    ``transformer`` passes ``model_type=TRANSFORMER``, as its documentation asks for encoders.
    """
    quantize_with_nncf(source, target, list(split_feeds(calibration)), transformer)


def quantize_with_nncf(
    source: Path,
    target: Path,
    feeds: Sequence[Feeds],
    transformer: bool,
    exclude: Sequence[str] = (),
) -> None:
    """Quantize as ``quantize_nncf`` does, with feeds that need not be of one shape; ``exclude`` names
    nodes that stay in f32.
    """
    # switches off NNCF's usage reports; read when it is imported
    os.environ.setdefault("NNCF_CI", "1")
    nncf: Any = import_module("nncf")
    model_type = nncf.ModelType.TRANSFORMER if transformer else None
    quantized = nncf.quantize(
        onnx.load(source),
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=model_type,
        ignored_scope=nncf.IgnoredScope(names=list(exclude)) if exclude else None,
    )
    onnx.save(quantized, target)


def quantize_int4(source: Path, target: Path, accuracy_level: int | None = None) -> None:
    """Quantize the weights of products with ONNX Runtime's MatMulNBits: 4 bits, symmetric, blocks
    of 32; at accuracy_level 4 it makes s8 codes of the activations, too, block by block.
    """
    module: Any = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    quantizer = module.MatMulNBitsQuantizer(
        onnx.load(source),
        bits=4,
        block_size=32,
        is_symmetric=True,
        accuracy_level=accuracy_level,
    )
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def _without_data(
    quantize: Callable[[Path, Path], object],
) -> Callable[[Path, Path, Feeds, bool], None]:
    """A quantizer that reads no calibration data, with the parameters of those that do."""

    def run(source: Path, target: Path, calibration: Feeds, transformer: bool) -> None:
        del calibration, transformer
        quantize(source, target)

    return run


QUANTIZERS: Mapping[str, Callable[[Path, Path, Feeds, bool], None]] = {
    "ort": quantize_ort,
    "nncf": quantize_nncf,
    "dynamic": _without_data(quantize_dynamic),
    # all else, the mask's sum among it, stays in f32
    "products": partial(quantize_ort, operators=("MatMul", "Gemm")),
    "qdq": partial(quantize_ort, operators=("LSTM", "Gemm")),
    "int4": _without_data(quantize_int4),
    "int4-dynamic": _without_data(partial(quantize_int4, accuracy_level=4)),
    "f32": _without_data(shutil.copyfile),
}


CODED: Mapping[str, bool] = {"int4": False, "int4-dynamic": True}
"""Quantizer of weights in blocks -> whether every engine makes codes of activations as it runs."""


def reader(base: Any, feeds: Sequence[Feeds]) -> Any:
    """Return ONNX Runtime's reader protocol over the feeds: ``get_next`` gives a feed, then
    None.
    """

    class Reader(base):  # type: ignore[misc]  # the base comes from a package that is imported on demand
        def __init__(self) -> None:
            self._feeds = iter(feeds)

        def get_next(self) -> Feeds | None:
            return next(self._feeds, None)

    return Reader()
