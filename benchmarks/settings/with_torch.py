"""Settings of PyTorch's quantizers, each followed by an export to ONNX: PT2E (torchao), FX graph mode,
fake quantizers of quantization-aware training, `quantize_dynamic`, torchao's `quantize_`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.ao import quantization as ao
from torch.ao.quantization import quantize_fx

from .setting import Setting
from .torch_networks import load, share_relus

Args = tuple[torch.Tensor, ...]


def torch_settings(
    network: str, source: Path, feeds: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Setting]]:
    """Yield the table and the setting, for one of the networks; `source`: its f32 file."""
    module = load(network, source)
    names = list(feeds[0])
    data = [tuple(map(torch.from_numpy, feed.values())) for feed in feeds]
    for shown, quantize in _settings(network):
        yield f"torch-{network}", Setting(shown, partial(_run, quantize, module, data, names))


Quantize = Callable[[nn.Module, Sequence[Args]], tuple[nn.Module, dict[str, Any]]]
"""Gives the quantized module, and arguments of `torch.onnx.export`."""


def _run(
    quantize: Quantize, module: nn.Module, data: Sequence[Args], names: list[str], target: Path
) -> None:
    quantized, options = quantize(copy.deepcopy(module), data)
    with torch.no_grad():
        torch.onnx.export(
            quantized,
            data[0],
            str(target),
            input_names=names,
            external_data=False,
            verbose=False,
            **options,
        )


def _settings(network: str) -> Iterator[tuple[str, Quantize]]:
    yield "**the recipe** (PT2E, `dynamo=True`)", partial(_pt2e, {}, (), {"dynamo": True})
    if network == "bert":
        functions = (torch.matmul,)
        yield "PT2E, attention's products, too", partial(_pt2e, {}, functions, {"dynamo": True})
    reduced, dynamic = {"reduce_range": True}, {"is_dynamic": True}
    yield "PT2E, `reduce_range=True`", partial(_pt2e, reduced, (), {"dynamo": True})
    yield "PT2E, `is_dynamic=True`", partial(_pt2e, dynamic, (), {"dynamo": True})
    if network == "resnet":
        yield "PT2E, one `nn.ReLU` used twice in a block", _shared
        for opset in (18, 21, 23):
            options = {"dynamo": True, "opset_version": opset}
            yield f"PT2E, `opset_version={opset}`", partial(_pt2e, {}, (), options)
        yield "PT2E, `dynamo=False`", partial(_pt2e, {}, (), {"dynamo": False})
    yield from _fx_settings(network)
    yield "`quantize_dynamic`, `dynamo=False`", partial(_dynamic, False)
    if network in ("resnet", "lstm"):
        yield "`quantize_dynamic`, `dynamo=True`", partial(_dynamic, True)
    if network in ("bert", "lstm"):
        yield "torchao, `Int8DynamicActivationInt8WeightConfig`", _torchao


def _fx_settings(network: str) -> Iterator[tuple[str, Quantize]]:
    script, dynamo = {"dynamo": False}, {"dynamo": True}
    backends = ("x86", "qnnpack", "onednn") if network == "resnet" else ("x86",)
    for backend in backends:
        mapping = ao.get_default_qconfig_mapping(backend)
        shown = f'FX, `get_default_qconfig_mapping("{backend}")`'
        yield f"{shown}, `dynamo=False`", partial(_fx, mapping, quantize_fx.convert_fx, script)
    default = ao.get_default_qconfig_mapping("x86")
    if network == "resnet":
        yield 'FX, `"x86"`, `dynamo=True`', partial(_fx, default, quantize_fx.convert_fx, dynamo)
        convert = quantize_fx.convert_to_reference_fx
        for options in (script, dynamo):
            shown = f"FX, `convert_to_reference_fx`, `dynamo={options['dynamo']}`"
            yield shown, partial(_fx, default, convert, options)
    if network == "resnet":
        yield from _observer_settings(script)
    plain = ao.QConfigMapping().set_global(_fake_config())
    shown = "QAT, plain `FakeQuantize`, not converted"
    yield f"{shown}, `dynamo=False`", partial(_fake, plain, script)
    if network == "resnet":
        yield f"{shown}, `dynamo=True`", partial(_fake, plain, dynamo)
        fused = ao.get_default_qat_qconfig_mapping("x86")
        shown = 'QAT, `get_default_qat_qconfig_mapping("x86")`, not converted, `dynamo=False`'
        yield shown, partial(_fake, fused, script)


def _observer_settings(options: dict[str, Any]) -> Iterator[tuple[str, Quantize]]:
    observers = {
        "`MinMaxObserver`, all 8 bits": _config(),
        "the same, `qscheme=torch.per_tensor_symmetric`": _config(
            activation={"qscheme": torch.per_tensor_symmetric}
        ),
        "`HistogramObserver`, all 8 bits": _config(observer=ao.HistogramObserver),
        "weights per tensor": _config(weight=ao.default_weight_observer),
    }
    for shown, config in observers.items():
        mapping = ao.QConfigMapping().set_global(config)
        run = partial(_fx, mapping, quantize_fx.convert_fx, options)
        yield f"FX, {shown}, `dynamo=False`", run


def _config(
    observer: Any = ao.MinMaxObserver,
    activation: Mapping[str, Any] | None = None,
    weight: Any = ao.default_per_channel_weight_observer,
) -> ao.QConfig:
    asked = {"dtype": torch.quint8, "reduce_range": False, **(activation or {})}
    return ao.QConfig(activation=observer.with_args(**asked), weight=weight)


def _fake_config() -> ao.QConfig:
    activation = ao.FakeQuantize.with_args(
        observer=ao.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
    )
    weight = ao.FakeQuantize.with_args(
        observer=ao.MovingAveragePerChannelMinMaxObserver,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )
    return ao.QConfig(activation=activation, weight=weight)


def _calibrate(module: nn.Module, data: Sequence[Args]) -> None:
    with torch.no_grad():
        for args in data:
            module(*args)


def _pt2e(
    config: Mapping[str, Any],
    functions: Sequence[Any],
    options: dict[str, Any],
    module: nn.Module,
    data: Sequence[Args],
) -> tuple[nn.Module, dict[str, Any]]:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    wanted = get_default_x86_inductor_quantization_config(**config)
    quantizer = X86InductorQuantizer().set_global(wanted)
    for function in functions:
        quantizer.set_function_type_qconfig(function, wanted)
    prepared = prepare_pt2e(torch.export.export(module, data[0]).module(), quantizer)
    _calibrate(prepared, data)
    return convert_pt2e(prepared), options


def _shared(module: nn.Module, data: Sequence[Args]) -> tuple[nn.Module, dict[str, Any]]:
    return _pt2e({}, (), {"dynamo": True}, share_relus(module), data)


def _fx(
    mapping: ao.QConfigMapping,
    convert: Callable[[nn.Module], nn.Module],
    options: dict[str, Any],
    module: nn.Module,
    data: Sequence[Args],
) -> tuple[nn.Module, dict[str, Any]]:
    prepared = quantize_fx.prepare_fx(module, mapping, data[0])
    _calibrate(prepared, data)
    return convert(prepared), options


def _fake(
    mapping: ao.QConfigMapping,
    options: dict[str, Any],
    module: nn.Module,
    data: Sequence[Args],
) -> tuple[nn.Module, dict[str, Any]]:
    """As behind training, which does not take place: statistics of normalizations stay."""
    prepared = quantize_fx.prepare_qat_fx(module.train(), mapping, data[0]).eval()
    _calibrate(prepared, data)
    prepared.apply(ao.disable_observer)
    return prepared, options


def _dynamic(
    dynamo: bool, module: nn.Module, data: Sequence[Args]
) -> tuple[nn.Module, dict[str, Any]]:
    del data
    return ao.quantize_dynamic(module, {nn.Linear, nn.LSTM}), {"dynamo": dynamo}


def _torchao(module: nn.Module, data: Sequence[Args]) -> tuple[nn.Module, dict[str, Any]]:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    del data
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    return module, {"dynamo": True}
