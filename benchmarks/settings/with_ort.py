"""Settings of ONNX Runtime's quantizers: `quantize_static` in both layouts, `quantize_dynamic` and
`MatMulNBitsQuantizer`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx

from ..quantizers import prepare, reader
from .setting import Setting, shown_arguments

RECIPE: Mapping[str, Any] = {
    "activation_type": "QUInt8",
    "weight_type": "QInt8",
    "per_channel": True,
}
"""Arguments of `quantize_static`, behind `quant_pre_process`; enums by the names of their members."""

_ENUMS = {
    "activation_type": "QuantType",
    "weight_type": "QuantType",
    "quant_format": "QuantFormat",
    "calibrate_method": "CalibrationMethod",
}
# Each changes the recipe in one point.
_CHANGES: tuple[Mapping[str, Any], ...] = (
    {"per_channel": False},
    {"reduce_range": True},
    {"activation_type": "QInt8"},
    {"extra_options": {"ActivationSymmetric": True}},
    {"activation_type": "QInt8", "extra_options": {"ActivationSymmetric": True}},
    {"weight_type": "QUInt8"},
    {"extra_options": {"WeightSymmetric": False}},
    {"activation_type": "QUInt16"},
    {"extra_options": {"QuantizeBias": False}},
    {"extra_options": {"DedicatedQDQPair": True}},
    {"extra_options": {"AddQDQPairToWeight": True}},
    {"calibrate_method": "Entropy"},
    {"calibrate_method": "Percentile"},
)
_OF_NETWORKS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "resnet": (
        *_CHANGES,
        {"op_types_to_quantize": ["Conv"]},
        {"op_types_to_quantize": ["Conv", "Gemm"]},
        {"nodes_to_exclude": ["/conv1/Conv", "/fc/Gemm"]},
        {"nodes_to_exclude": ["/layer2/layer2.0/Add"]},
        {"quant_format": "QOperator"},
    ),
    "mobilenet": (
        *_CHANGES[:6],
        {"op_types_to_quantize": ["Conv", "Gemm"]},
        {"quant_format": "QOperator"},
    ),
    "bert": (
        *_CHANGES[:7],
        *_CHANGES[9:10],
        *_CHANGES[12:],
        {"op_types_to_quantize": ["MatMul", "Gemm"]},
        {"op_types_to_quantize": ["MatMul", "Gemm", "Add", "LayerNormalization", "Gather"]},
        {"extra_options": {"MatMulConstBOnly": True}},
        {"quant_format": "QOperator"},
    ),
    "lstm": ({"op_types_to_quantize": ["LSTM", "Gemm"]},),
}


def ort_settings(
    network: str, source: Path, feeds: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Setting]]:
    """Yield the table and the setting, for one of the networks; `source`: its f32 file."""
    static = partial(_static, source, feeds)
    name = f"ort-{network}"
    changes = _OF_NETWORKS[network]
    yield name, Setting("**the recipe**", static(RECIPE))
    yield name, Setting("`quantize_static` with its defaults", static({}))
    yield name, Setting("its defaults, without `quant_pre_process`", static({}, prepared=False))
    yield name, Setting("the recipe, without `quant_pre_process`", static(RECIPE, prepared=False))
    for change in changes:
        yield name, Setting(f"`{shown_arguments(change)}`", static({**RECIPE, **change}))
    if network == "resnet":
        for count in (1, 8):
            yield name, Setting(f"calibrated on {count}", _static(source, feeds[:count], RECIPE))
    if network in ("bert", "lstm"):
        yield from _dynamic(name, network, source)
    if network == "bert":
        yield from _n_bits(name, source)


def _dynamic(name: str, network: str, source: Path) -> Iterator[tuple[str, Setting]]:
    yield name, Setting("`quantize_dynamic`", partial(_quantize_dynamic, source, {}))
    asked: list[Mapping[str, Any]] = [
        {"weight_type": "QUInt8"},
        {"per_channel": True},
        {"reduce_range": True},
    ]
    if network == "bert":
        asked.append({"extra_options": {"MatMulConstBOnly": False}})
    else:
        asked.append({"op_types_to_quantize": ["LSTM", "MatMul", "Gemm"]})
    for arguments in asked:
        shown = f"`quantize_dynamic`, `{shown_arguments(arguments)}`"
        yield name, Setting(shown, partial(_quantize_dynamic, source, arguments))


def _n_bits(name: str, source: Path) -> Iterator[tuple[str, Setting]]:
    for bits, symmetric in ((4, True), (4, False), (8, True)):
        arguments = {"bits": bits, "block_size": 32, "is_symmetric": symmetric}
        shown = f"`MatMulNBitsQuantizer`, `{shown_arguments(arguments)}`"
        yield name, Setting(shown, partial(_quantize_n_bits, source, arguments))


def _static(
    source: Path,
    feeds: Sequence[Mapping[str, Any]],
    arguments: Mapping[str, Any],
    prepared: bool = True,
) -> Callable[[Path], None]:
    def quantize(target: Path) -> None:
        quantization: Any = import_module("onnxruntime.quantization")
        with tempfile.TemporaryDirectory() as folder:
            file = source
            if prepared:
                file = Path(folder) / "prepared.onnx"
                prepare(source, file)
            quantization.quantize_static(
                str(file),
                str(target),
                reader(quantization.CalibrationDataReader, feeds),
                **_real(quantization, arguments),
            )

    return quantize


def _quantize_dynamic(source: Path, arguments: Mapping[str, Any], target: Path) -> None:
    quantization: Any = import_module("onnxruntime.quantization")
    quantization.quantize_dynamic(str(source), str(target), **_real(quantization, arguments))


def _quantize_n_bits(source: Path, arguments: Mapping[str, Any], target: Path) -> None:
    module: Any = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    quantizer = module.MatMulNBitsQuantizer(onnx.load(source), **arguments)
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def _real(quantization: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with members of enums for their names."""
    return {
        name: getattr(quantization, _ENUMS[name])[value] if name in _ENUMS else value
        for name, value in arguments.items()
    }
