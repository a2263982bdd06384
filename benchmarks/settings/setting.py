"""What a setting is, and what comes of one: a plan's figures, or why there is no plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import fqfuse
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.errors import printable
from fqfuse.measure.arrays import Array
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import Machine

# Findings depend on the machine in one point: where products saturate. They are taken for one that
# does saturate; its other figures order findings, and are not shown.
_WITHOUT_VNNI = Machine("AVX2 without VNNI", 2, 2.6, 32.0, 16.0, "avx2")
_SATURATES = "saturation-without-vnni"
_MESSAGE = 160


@dataclass(frozen=True)
class Setting:
    """A way to quantize a network.

    Attributes:
        shown: in the words of the quantizer, in Markdown.
        quantize: writes the model to the path; raises whatever the quantizer raises.
    """

    shown: str
    quantize: Callable[[Path], object]


@dataclass(frozen=True)
class Outcome:
    """What comes of a setting.

    Attributes:
        shown: the setting.
        failed: which tool gave up, and its words; the figures below then say nothing.
        int8: share of the multiply-adds that run in int8, 0 to 1.
        f32_bytes: between steps, in one run of batch 1.
        steps: of the plan.
        findings: code -> layers, of what another setting would mend.
        saturating: layers whose products may saturate on a CPU without VNNI.
        sqnr_db: against the f32 network, over all outputs and inputs, of the NumPy runtime.
        peer_db: the same, of ONNX Runtime without optimizations; None where it is not installed or
            cannot run the file.
        foreign: what ONNX Runtime says of a file that it cannot run.
    """

    shown: str
    failed: str = ""
    int8: float = 0.0
    f32_bytes: int = 0
    steps: int = 0
    findings: Mapping[str, int] | None = None
    saturating: int = 0
    sqnr_db: float = 0.0
    peer_db: float | None = None
    foreign: str = ""

    def as_json(self) -> dict[str, Any]:
        """As plain data; infinite figures as null."""
        data = asdict(self)
        return {
            key: None if isinstance(item, float) and not math.isfinite(item) else item
            for key, item in data.items()
        }


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as a caller writes them: `per_channel=True, preset=MIXED`."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in arguments.items())


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}": {_shown(item)}' for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value)


def figures(
    setting: Setting,
    target: Path,
    feeds: Sequence[Mapping[str, Array]],
    reference: Sequence[Sequence[Array]],
) -> Outcome:
    """Quantize, compile and run.

    Args:
        setting: what to try.
        target: where the quantizer writes.
        feeds: inputs.
        reference: outputs of the f32 network, a list for each feed.
    """
    try:
        setting.quantize(target)
    except Exception as error:  # noqa: BLE001  # what quantizers raise is part of the result
        return Outcome(setting.shown, f"fails: {_message(error)}")
    try:
        plan = fqfuse.compile(target)
        with fqfuse.InferenceSession(plan, "numpy", threads=1) as session:
            found = [session.run(None, dict(feed)) for feed in feeds]
    except fqfuse.FqfuseError as error:
        return Outcome(setting.shown, f"fqfuse refuses the file: {_message(error)}")
    verdict = verdict_of(plan, _WITHOUT_VNNI)
    shares = verdict.shares
    peer_db, foreign = _on_peer(target, feeds, reference)
    return Outcome(
        setting.shown,
        int8=(shares.int8_macs + shares.f32_code_macs) / shares.macs if shares.macs else 0.0,
        f32_bytes=shares.f32_between,
        steps=len(plan.steps),
        findings=_findings(verdict),
        saturating=sum(
            len(item.layers) for item in verdict.findings if item.kind.code == _SATURATES
        ),
        sqnr_db=_sqnr(reference, found),
        peer_db=peer_db,
        foreign=foreign,
    )


def outputs_of(path: Path, feeds: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    """What ONNX Runtime without optimizations computes: a list of outputs for each feed."""
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(feed)) for feed in feeds]


def _findings(verdict: Verdict) -> dict[str, int]:
    return {
        item.kind.code: len(item.layers)
        for item in verdict.findings
        if item.kind.gain is not Gain.NOTHING
        and not item.kind.no_remedy
        and item.kind.code != _SATURATES
    }


def _sqnr(reference: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> float:
    """The lowest of the outputs."""
    pairs = zip(zip(*reference, strict=True), zip(*found, strict=True), strict=True)
    return min(sqnr_of(_joined(one), _joined(other)) for one, other in pairs)


def _joined(arrays: Sequence[Array]) -> Array:
    import numpy as np

    joined: Array = np.concatenate([np.asarray(array).ravel() for array in arrays])
    return joined


def _on_peer(
    path: Path, feeds: Sequence[Mapping[str, Array]], reference: Sequence[Sequence[Array]]
) -> tuple[float | None, str]:
    try:
        found = outputs_of(path, feeds)
    except Exception as error:  # noqa: BLE001  # it says whether this peer can run the file
        return None, _message(error)
    return _sqnr(reference, found), ""


def _message(error: BaseException) -> str:
    """The first line of what an error says, with its type, for a table; of its first cause, since
    exporters wrap what went wrong.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {printable(lines[0]) if lines else ''}".replace("|", "/")
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 3] + "..."
