"""Whole small networks, quantized as tools do or anywhere, give the numbers of ONNX Runtime without optimizations
and of ONNX's reference, each of them, while the sizes of their input change: see `networks.py`.
"""

from __future__ import annotations

import os
import secrets

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws.budget import examples
from laws.networks import Network
from laws.runtimes import RUNTIMES
from onnx.reference import ReferenceEvaluator
from support.onnx_cases import run_ort

import fqfuse

CASES = int(os.environ.get("FQFUSE_NETWORKS", examples(40, fuzz=5000).max_examples))
REFERENCE = 4
"""Of so many networks one is held to ONNX's reference, which takes longer than all else."""


def hold(seed: int) -> None:
    network = Network(seed)
    proto, feeds = network.model(), network.feeds()
    names = [info.name for info in proto.graph.output]
    wanted = [run_ort(proto, {"x": x}) for x in feeds]
    told = f"seed {seed}, {network.style}\n{onnx.printer.to_text(proto)}"
    if seed % REFERENCE == 0:
        for name, mine, theirs in zip(
            names, ReferenceEvaluator(proto).run(None, {"x": feeds[0]}), wanted[0], strict=True
        ):
            assert np.array_equal(mine, theirs), f"onnx.reference: {name}, {told}"
    plan = fqfuse.compile(proto)
    for runtime in RUNTIMES:
        session = fqfuse.InferenceSession(plan, runtime, 1)
        for x, right in zip(feeds, wanted, strict=True):
            for name, mine, theirs in zip(names, session.run(None, {"x": x}), right, strict=True):
                far = np.abs(mine - theirs).max(initial=0)
                assert mine.shape == theirs.shape, f"{runtime}: {name}, {told}"
                assert far == 0, f"{runtime} is {far} from {name} at {x.shape}, {told}"


@pytest.mark.hypothesis
def test_networks() -> None:
    start = 0 if settings.default.derandomize else secrets.randbits(48)
    for seed in range(start, start + CASES):
        hold(seed)
