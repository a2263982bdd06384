"""Who imports which op: the dialects' handlers, the rows of the op table, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import onnx
from onnx import NodeProto

from ...errors import UnsupportedOp
from ...ir.ops.spec import NotCovered
from ..importer import Handler, Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode, normal_domain, signature, version_of
from ..structure import subgraphs
from . import (
    attention,
    blocked,
    channel_blocks,
    codebook,
    embedding,
    experts,
    fake_quantize,
    fused,
    gated,
    group_query,
    linear_attention,
    qonnx,
    qoperator,
    quantize_dequantize,
    quark,
    recurrent,
    relative,
    rotary,
    run_time,
    standard_attention,
)
from .cast_and_scale import import_decoded
from .einsums import EINSUMS
from .foreign import import_foreign
from .standard import import_newest, keep
from .upgrade import newest
from .written_out import import_written_out

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = MappingProxyType(
    {
        **fake_quantize.HANDLERS,
        **quantize_dequantize.HANDLERS,
        **qoperator.HANDLERS,
        **qonnx.HANDLERS,
        **quark.HANDLERS,
        **run_time.HANDLERS,
        **blocked.HANDLERS,
        **codebook.HANDLERS,
        **recurrent.HANDLERS,
        **fused.HANDLERS,
        **gated.HANDLERS,
        **attention.HANDLERS,
        **group_query.HANDLERS,
        **experts.HANDLERS,
        **linear_attention.HANDLERS,
        **embedding.HANDLERS,
        **rotary.HANDLERS,
        **relative.HANDLERS,
        **channel_blocks.HANDLERS,
        **standard_attention.HANDLERS,
    }
)
"""(domain, op) -> handler of the ops that a dialect explains."""

_EVALUATED: Final = frozenset(
    {DEFAULT_DOMAIN, "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
)
"""Domains whose ops the reference evaluator may know."""

_SHOWN_NODES: Final = 3
_SHOWN_OPS: Final = 20
OTHER_DOMAINS: Final[Mapping[str, str]] = {
    "com.microsoft": "save the model without ONNX Runtime's own fusions (ORT_DISABLE_ALL), and quantize it in QDQ format",
    "com.ms.internal.nhwc": "save the model without ONNX Runtime's layout changes (ORT_DISABLE_ALL)",
    "org.openvinotoolkit": "of OpenVINO's own ops fqfuse knows FakeQuantize only: export with NNCF, or in the Q/DQ form",
    "qonnx.custom_op.general": "of QONNX fqfuse knows its quantizers: run QONNX's transformations to plain ONNX first",
    "org.pytorch.aten": "export with torch.onnx.export(..., dynamo=True), or give the ATen ops an ONNX translation",
    "com.amd.quark": "of Quark's operators fqfuse knows its quantizers: leave normalization and LSTM ONNX's own",
    "com.vai.quantize": "of Quark's operators fqfuse knows its quantizers: leave normalization and LSTM ONNX's own",
    "trt": "of NVIDIA's operators fqfuse knows QuantizeLinear and DequantizeLinear: export with these",
}
"""Domains of which no other op is known -> what to do about them."""

_WEIGHTS: Final = (
    "quantize the weights to integers, which become MatMulNBits or DequantizeLinear with block_size"
)
_BUFFERS: Final = "export attention as MultiHeadAttention or GroupQueryAttention"
_SEARCH: Final = "it is a program that runs a model: export the decoder by itself, and write the search around it"
_TEXTS: Final = "texts are no numbers: run the tokenizer in front of the model"
_ON_GPUS: Final = "it has a kernel for GPUs only: save the model as it is optimized for CPUs"
_TRAINING: Final = "export the model for inference"
UNWRITTEN: Final = (
    "BranchwiseRMSNorm",
    "CDist",
    "EngramGate",
    "ExpandDims",
    "GatedRelativePositionBias",
    "GatherND",
    "GemmaRotaryEmbedding",
    "HyperConnectionPostMix",
    "HyperConnectionPreMix",
    "MRotaryEmbedding",
    "MoEGroupRouter",
    "Pad",
    "QLinearReduceMean",
    "Range",
    "ScaledSiLU",
    "TorchEmbedding",
    "TransposeMatMul",
    "UnfoldTensor",
    "Unique",
)
"""Ops of com.microsoft that no exporter, builder or optimizer of today writes."""

_UNWRITTEN: Final = (
    "no exporter or optimizer of today writes it: write the node as ONNX's own operators"
)
_BINARIES: Final = "it is a program for one device: export the model as ONNX"
_OTHER_OPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "MatMulFpQ4",
            "MatMulBlockQuantizedFp4Weight",
            "MatMulBlockQuantizedFp8Weight",
            "MatMulPacked",
            "GatherPacked",
        ),
        _WEIGHTS,
    ),
    **dict.fromkeys(
        (
            "DecoderMaskedSelfAttention",
            "PagedAttention",
            "SparsePagedAttention",
            "SparseAttention",
            "DynamicSparseAttention",
        ),
        _BUFFERS,
    ),
    **dict.fromkeys(
        ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch", "SpeculativePrefixCommit"),
        _SEARCH,
    ),
    **dict.fromkeys(("Tokenizer", "MurmurHash3", "WordConvEmbedding"), _TEXTS),
    **dict.fromkeys(
        (
            "GemmFloat8",
            "LongformerAttention",
            "MoEPacked",
            "PackedAttention",
            "PackedMultiHeadAttention",
            "QOrderedAttention",
            "QOrderedGelu",
            "QOrderedLayerNormalization",
            "QOrderedLongformerAttention",
            "QOrderedMatMul",
            "QuantizeWithOrder",
            "DequantizeWithOrder",
            "RemovePadding",
            "RestorePadding",
        ),
        _ON_GPUS,
    ),
    **dict.fromkeys(("BitmaskDropout", "BitmaskBiasDropout", "IsAllFinite"), _TRAINING),
    **dict.fromkeys(("EPContext", "Snpe"), _BINARIES),
    **dict.fromkeys(UNWRITTEN, _UNWRITTEN),
}
"""Ops of com.microsoft that are not taken, and not ONNX Runtime's fusions for CPUs -> what to do about them."""


def handler_of(op: str, domain: str) -> Handler:
    """Who imports the op: its dialect, the op table, or nobody (then it stays as it is)."""
    return (
        HANDLERS.get((domain, op))
        or EINSUMS.get((domain, op))
        or (_import_standard if domain == DEFAULT_DOMAIN else import_foreign)
    )


def _import_standard(ctx: Importer, node: OnnxNode) -> None:
    try:
        upgraded = newest(ctx, node)
    except NotCovered as reason:  # training, say: the reference evaluator knows the old forms
        keep(ctx, node, reason)
        return
    if upgraded is None or import_decoded(ctx, upgraded) or import_written_out(ctx, upgraded):
        return
    import_newest(ctx, upgraded)


def check_known(nodes: Iterable[NodeProto], opsets: Mapping[str, int]) -> None:
    """Looks at every node, those of subgraphs too, before any is imported.

    Raises:
        UnsupportedOp: ops that nobody knows; the message lists all of them with their nodes.
    """
    unknown: dict[tuple[str, str], list[str]] = {}
    _collect(nodes, opsets, unknown)
    if not unknown:
        return
    listed = [
        f"{domain + '.' if domain else ''}{op} (node {_names(names)})"
        for (domain, op), names in list(unknown.items())[:_SHOWN_OPS]
    ]
    more = f", and {len(unknown) - _SHOWN_OPS} more" if len(unknown) > _SHOWN_OPS else ""
    count = "an operator" if len(unknown) == 1 else f"{len(unknown)} operators"
    raise UnsupportedOp(
        f"the model uses {count} that nothing here can run: {', '.join(listed)}{more}",
        hint=_hint(unknown, opsets),
    )


def _collect(
    nodes: Iterable[NodeProto],
    opsets: Mapping[str, int],
    unknown: dict[tuple[str, str], list[str]],
) -> None:
    for node in nodes:
        domain = normal_domain(node.domain)
        if not (_is_evaluated(node.op_type, domain, opsets) or (domain, node.op_type) in HANDLERS):
            unknown.setdefault((domain, node.op_type), []).append(
                node.name or next(filter(None, node.output), "")
            )
        for body in subgraphs(node):
            _collect(body.node, opsets, unknown)


def _is_evaluated(op: str, domain: str, opsets: Mapping[str, int]) -> bool:
    return (
        domain in _EVALUATED and signature(op, version_of(op, domain, opsets), domain) is not None
    )


def _names(names: list[str]) -> str:
    shown = ", ".join(repr(name[:100]) for name in names[:_SHOWN_NODES])
    return shown if len(names) <= _SHOWN_NODES else f"{shown} and {len(names) - _SHOWN_NODES} more"


def _hint(unknown: Iterable[tuple[str, str]], opsets: Mapping[str, int]) -> str:
    hints = dict.fromkeys(
        (domain == "com.microsoft" and _OTHER_OPS.get(op)) or OTHER_DOMAINS[domain]
        for domain, op in unknown
        if domain in OTHER_DOMAINS
    )
    for domain, op in unknown:
        if domain in OTHER_DOMAINS:
            continue
        newest = _newest_version(op, domain)
        if newest:
            hints[
                f"{op} exists from opset {newest} on, and the model imports {opsets.get(domain, 1)}: import the opset that has it"
            ] = None
        elif domain == DEFAULT_DOMAIN:
            hints[f"ONNX has no op {op}: check its name and its domain"] = None
        else:
            hints[
                "export without custom ops, or give the model local functions (ONNX FunctionProto) that say what they mean"
            ] = None
    return "; ".join(list(hints)[:_SHOWN_NODES])


def _newest_version(op: str, domain: str) -> int:
    try:
        return int(onnx.defs.get_schema(op, domain=domain).since_version)
    except onnx.defs.SchemaError:
        return 0
