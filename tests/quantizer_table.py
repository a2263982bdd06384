"""Small networks by the tools that quantize for run time: what each becomes, against ONNX Runtime.

    PYTHONPATH=FOLDER .venv-bench/bin/python tests/quantizer_table.py [--network NAME]

FOLDER holds this checkout under the name `fqfuse`. Each network is quantized by ONNX Runtime's
`quantize_dynamic` (u8 and s8 weights, per tensor and per channel), by its MatMulNBits and by NNCF's
`compress_weights` (4 and 8 bits, for two opsets), compiled and run on both runtimes. A cell is the largest distance
to ONNX Runtime without optimizations, in 1e-6 of the largest number; `left` names steps that stayed
an ONNX operator where a product, a quantizer or a recurrence stands; `-` is a tool that changes
nothing in the network, `refused` a model that ONNX Runtime cannot read either. Exits with 1 where
something is left, or a distance is above 10.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from support.onnx_cases import run_ort
from support.small_networks import NETWORKS, Writer, feeds_of, left_to_operators

import fqfuse

LARGEST = 10.0
"""Millionths of the largest number: sums of floats in another order, a few last places of it. One
code of a hidden state or of an activation next to a tie may be another one, too; none of these
networks shows it.
"""

Quantizer = Callable[[onnx.ModelProto], onnx.ModelProto]


def dynamic(proto: onnx.ModelProto, *, weights: str, per_channel: bool) -> onnx.ModelProto:
    """By `quantize_dynamic`."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "f32.onnx", Path(folder) / "int8.onnx"
        onnx.save(proto, source)
        kind = quantization.QuantType[weights]
        quantization.quantize_dynamic(source, target, weight_type=kind, per_channel=per_channel)
        return onnx.load(target)


def nbits(proto: onnx.ModelProto, *, bits: int) -> onnx.ModelProto:
    """By MatMulNBits, symmetric, blocks of 32."""
    module: Any = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    quantizer = module.MatMulNBitsQuantizer(proto, bits=bits, block_size=32, is_symmetric=True)
    quantizer.process()
    made: onnx.ModelProto = quantizer.model.model
    return made


def compressed(proto: onnx.ModelProto, *, mode: str, opset: int, **options: Any) -> onnx.ModelProto:
    """By NNCF's `compress_weights`: up to opset 20 it writes blocks as MatMulNBits."""
    proto.opset_import[0].version = opset  # what these networks use is the same in both
    os.environ.setdefault("NNCF_CI", "1")  # switches off its usage reports; read on import
    with contextlib.redirect_stdout(sys.stderr):  # where its log and progress go
        nncf: Any = importlib.import_module("nncf")
        made: onnx.ModelProto = nncf.compress_weights(
            proto, mode=nncf.CompressWeightsMode[mode], **options
        )
    return made


_BLOCKS = {
    # asymmetric ones of an odd count, as the last layers have, NNCF 3.4 fails to write
    "INT4_SYM": {"group_size": 16, "ratio": 1.0, "all_layers": True},
    "INT4_ASYM": {"group_size": 16, "ratio": 1.0},
}

QUANTIZERS: Mapping[str, Quantizer] = {
    **{
        f"dynamic {kind} {'channel' if per_channel else 'tensor'}": partial(
            dynamic, weights=f"Q{name}", per_channel=per_channel
        )
        for kind, name in (("s8", "Int8"), ("u8", "UInt8"))
        for per_channel in (False, True)
    },
    "nbits 4": partial(nbits, bits=4),
    "nbits 8": partial(nbits, bits=8),
    **{
        f"nncf {mode.lower()} {opset}": partial(
            compressed, mode=mode, opset=opset, **_BLOCKS.get(mode, {})
        )
        for mode in ("INT4_SYM", "INT4_ASYM", "INT8_SYM", "INT8_ASYM")
        for opset in (17, 21)
    },
}


def cell(network: str, quantize: Quantizer) -> tuple[str, bool]:
    """What a network becomes, and whether that is as it should be."""
    plain = NETWORKS[network](Writer(0))
    given = onnx.ModelProto()
    given.CopyFrom(plain)
    quantized = quantize(given)
    if [n.op_type for n in quantized.graph.node] == [n.op_type for n in plain.graph.node]:
        return "-", True
    if is_refused(quantized):
        return "refused", True
    plan = fqfuse.compile(quantized)
    left = left_to_operators(plan)
    if left:
        return f"left: {', '.join(sorted(left))}", False
    worst = max(
        distance(fqfuse.InferenceSession(plan, runtime, 1), quantized, batch)
        for runtime in ("numpy", "onednn")
        for batch in (1, 3)
    )
    return f"{worst:.2f}", worst <= LARGEST


def is_refused(proto: onnx.ModelProto) -> bool:
    """True of a model that neither reads, since it is none: NNCF 3.4 writes the scales of a
    convolution's weights with three dimensions, and the zero points of MatMulNBits a byte each.
    """
    try:
        fqfuse.compile(proto)
    except fqfuse.InvalidModel:
        try:
            run_ort(proto, feeds_of(proto, 1))
        except Exception as error:  # noqa: BLE001  # ONNX Runtime's own, of no common base
            return type(error).__module__.startswith("onnxruntime")
        raise
    return False


def distance(session: fqfuse.InferenceSession, proto: onnx.ModelProto, batch: int) -> float:
    """The largest distance to ONNX Runtime, in millionths of the largest number."""
    feeds = feeds_of(proto, batch)
    (found,), (expected,) = session.run(None, feeds), run_ort(proto, feeds)
    return float(np.abs(found - expected).max() / np.abs(expected).max() * 1e6)


def main() -> int:
    """Prints the table, a row a quantizer; 1 where a cell is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--network", choices=NETWORKS, action="append")
    networks = parser.parse_args().network or list(NETWORKS)
    print(f"{'':22}", *(f"{name:>10}" for name in networks))
    wrong = 0
    for name, quantize in QUANTIZERS.items():
        cells = [cell(network, quantize) for network in networks]
        wrong += sum(not fine for _, fine in cells)
        print(f"{name:22}", *(f"{text:>10}" for text, _ in cells), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
