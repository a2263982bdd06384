"""Settings of Brevitas: its graph quantizer on a PyTorch module, exported in each of its dialects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from brevitas import export
from brevitas.graph import calibrate
from brevitas.graph.quantize import preprocess_for_quantize, quantize
from torch import nn

from .setting import Setting
from .torch_networks import load

_EXPORTS: Mapping[str, Callable[..., Any]] = {
    "export_onnx_qcdq": export.export_onnx_qcdq,
    "export_qonnx": export.export_qonnx,
}


def brevitas_settings(
    network: str, source: Path, feeds: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Setting]]:
    """Yield the table and the setting, for one of the networks; `source`: its f32 file."""
    module = load(network, source)
    data = [tuple(map(torch.from_numpy, feed.values())) for feed in feeds]
    for name in _EXPORTS:
        for dynamo in (False, True):
            shown = f"`{name}`, `dynamo={dynamo}`"
            run = partial(_run, name, dynamo, module, data, list(feeds[0]))
            yield f"brevitas-{network}", Setting(shown, run)


def _run(
    name: str,
    dynamo: bool,
    module: nn.Module,
    data: Sequence[tuple[torch.Tensor, ...]],
    names: list[str],
    target: Path,
) -> None:
    prepared = preprocess_for_quantize(copy.deepcopy(module), trace_model=True)
    quantized = quantize(prepared)
    with torch.no_grad():
        with calibrate.calibration_mode(quantized):
            for args in data:
                quantized(*args)
        _EXPORTS[name](
            quantized.eval(),
            args=data[0],
            export_path=str(target),
            input_names=names,
            dynamo=dynamo,
        )
