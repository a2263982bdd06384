"""Settings of NNCF's `nncf.quantize` on ONNX files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx

from ..quantizers import prepare
from .setting import Setting, shown_arguments

# Arguments by the names of nncf.quantize; those of AdvancedQuantizationParameters, and of
# IgnoredScope, without the object around them. Enums by the names of their members.
_ADVANCED = (
    "overflow_fix",
    "quantize_outputs",
    "disable_bias_correction",
    "smooth_quant_alpha",
    "activations_quantization_params",
    "weights_quantization_params",
    "activations_range_estimator_params",
)
_SCOPE = ("types", "names", "patterns")
_EVERYWHERE: tuple[Mapping[str, Any], ...] = (
    {"preset": "MIXED"},
    {"overflow_fix": "ENABLE"},
    {"overflow_fix": "DISABLE"},
    {"activations_range_estimator_params": "MINMAX"},
)
_OF_NETWORKS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "resnet": (
        *_EVERYWHERE,
        {"subset_size": 1},
        {"subset_size": 8},
        {"fast_bias_correction": False},
        {"disable_bias_correction": True},
        {"types": ["Add"]},
        {"names": ["/conv1/Conv", "/fc/Gemm"]},
        {"names": ["/layer2/layer2.0/conv2/Conv"]},
        {"quantize_outputs": True},
        {"activations_quantization_params": {"per_channel": True}},
        {"weights_quantization_params": {"per_channel": False}},
        {"weights_quantization_params": {"mode": "asymmetric"}, "overflow_fix": "DISABLE"},
        {"model_type": "TRANSFORMER"},
        {"target_device": "NPU"},
    ),
    "mobilenet": (
        *_EVERYWHERE,
        {"fast_bias_correction": False},
        {"activations_quantization_params": {"per_channel": True}},
        {"types": ["HardSigmoid", "Mul"]},
    ),
    "bert": (
        *_EVERYWHERE,
        {"model_type": "TRANSFORMER"},
        {"model_type": "TRANSFORMER", "preset": "PERFORMANCE"},
        {"model_type": "TRANSFORMER", "smooth_quant_alpha": -1},
        {"types": ["Add"]},
        {"types": ["LayerNormalization"]},
        {"types": ["Softmax"]},
        {"fast_bias_correction": False},
    ),
    "lstm": (*_EVERYWHERE[:1],),
}


def nncf_settings(
    network: str, source: Path, feeds: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Setting]]:
    """Yield the table and the setting, for one of the networks; `source`: its f32 file."""
    name = f"nncf-{network}"
    yield name, Setting("**the recipe**: all defaults", _quantize(source, feeds, {}))
    shown = "behind ONNX Runtime's `quant_pre_process`"
    yield name, Setting(shown, _quantize(source, feeds, {}, prepared=True))
    for change in _OF_NETWORKS[network]:
        yield name, Setting(_words(change), _quantize(source, feeds, change))
        if "fast_bias_correction" in change:
            prepared = _quantize(source, feeds, change, prepared=True)
            yield name, Setting(f"{_words(change)}, {shown}", prepared)
    if network == "bert":
        for mode in ("INT8_ASYM", "INT8_SYM", "INT4_SYM"):
            shown = f"`nncf.compress_weights`, `mode={mode}`"
            yield name, Setting(shown, _compress(source, mode))


def _quantize(
    source: Path,
    feeds: Sequence[Mapping[str, Any]],
    arguments: Mapping[str, Any],
    prepared: bool = False,
) -> Callable[[Path], None]:
    def quantize(target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = source
            if prepared:
                file = Path(folder) / "prepared.onnx"
                prepare(source, file)
            nncf = _nncf()
            asked = {"subset_size": len(feeds), **_real(nncf, arguments)}
            onnx.save(nncf.quantize(onnx.load(file), nncf.Dataset(list(feeds)), **asked), target)

    return quantize


def _words(arguments: Mapping[str, Any]) -> str:
    """Arguments in Markdown, with the objects that group them."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in arguments.items():
        group = "advanced" if name in _ADVANCED else "IgnoredScope" if name in _SCOPE else ""
        groups.setdefault(group, {})[name] = value
    texts = {group: shown_arguments(found) for group, found in groups.items()}
    return ", ".join(
        f"`{text}`"
        if not group
        else f"{group}: `{text}`"
        if group == "advanced"
        else f"`ignored_scope={group}({text})`"
        for group, text in texts.items()
    )


def _compress(source: Path, mode: str) -> Callable[[Path], None]:
    def compress(target: Path) -> None:
        nncf = _nncf()
        mode_of = nncf.CompressWeightsMode[mode]
        onnx.save(nncf.compress_weights(onnx.load(source), mode=mode_of), target)

    return compress


def _nncf() -> Any:
    # switches off NNCF's usage reports; read when it is imported
    os.environ.setdefault("NNCF_CI", "1")
    return import_module("nncf")


def _real(nncf: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `nncf.quantize`."""
    parameters: Any = import_module("nncf.quantization.advanced_parameters")
    enums = {
        "preset": nncf.QuantizationPreset,
        "model_type": nncf.ModelType,
        "target_device": nncf.TargetDevice,
        "overflow_fix": parameters.OverflowFix,
    }
    ranges: Any = import_module("nncf.quantization.range_estimator").RangeEstimatorParametersSet
    found: dict[str, Any] = {}
    advanced: dict[str, Any] = {}
    scope: dict[str, Any] = {}
    for name, value in arguments.items():
        group = advanced if name in _ADVANCED else scope if name in _SCOPE else found
        if name in enums:
            group[name] = enums[name][value]
        elif name == "activations_range_estimator_params":
            group[name] = getattr(ranges, value)
        elif isinstance(value, Mapping):
            group[name] = parameters.QuantizationParameters(**value)
        else:
            group[name] = value
    if advanced:
        found["advanced_parameters"] = parameters.AdvancedQuantizationParameters(**advanced)
    if scope:
        found["ignored_scope"] = nncf.IgnoredScope(**scope)
    return found
