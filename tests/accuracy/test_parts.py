"""Parts of an output: held against the definition on their slices, and what `compare` says of one that is dead."""

from __future__ import annotations

import io
import math

import numpy as np
import onnx
import pytest
from rich.console import Console
from support.finding_networks import Net
from support.onnx_cases import random
from support.ort_quantizer import quantized_by_ort

from fqfuse.accuracy.compare import compared, read_models
from fqfuse.accuracy.data import given
from fqfuse.accuracy.document import as_data
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.accuracy.parts import Whole
from fqfuse.accuracy.reduce import cut_layer
from fqfuse.accuracy.screen import comparison_report
from fqfuse.accuracy.suggest import suggestion_of
from fqfuse.report.layout import Layout


def test_parts_are_measured_as_their_slices_and_dead_ones_are_told() -> None:
    """Outputs of some groups of channels, each a hundred times larger or smaller than the last, some of them
    constant, in two samples.
    """
    rng = np.random.default_rng(3)
    for _ in range(60):
        groups = [int(size) for size in rng.integers(1, 5, rng.integers(2, 5))]
        large = 100.0 ** rng.permutation(len(groups))
        dead = rng.random(len(groups)) < 0.4
        channels = np.repeat(np.arange(len(groups)), groups)
        noise = rng.choice([0.001, 0.1])
        whole, wanted, found = Whole(), [], []
        for _ in range(2):
            f32 = rng.uniform(0.5, 1, (1, sum(groups), 9, 3)) * large[channels][None, :, None, None]
            other = f32 * (1 + noise * rng.standard_normal(f32.shape))
            other[:, dead[channels]] = 0
            whole.add(f32.astype(np.float32), other.astype(np.float32))
            wanted.append(f32.astype(np.float32))
            found.append(other.astype(np.float32))
        f32, other = np.concatenate(wanted), np.concatenate(found)
        ends = np.cumsum(groups)
        assert [(part.axis, part.first, part.last) for part in whole.parts] == [
            (1, end - size, end - 1) for end, size in zip(ends, groups, strict=True)
        ]
        for part, is_dead in zip(whole.parts, dead, strict=True):
            rows = slice(part.first, part.last + 1)
            # sums in another order: the last bits of f64
            assert math.isclose(
                part.measure.sqnr, sqnr_of(f32[:, rows], other[:, rows]), abs_tol=1e-6
            )
            assert (part.constant is not None) == is_dead
            assert (part.low, part.high) == (f32[:, rows].min(), f32[:, rows].max())
        assert whole.least == min([whole.sqnr, *(part.measure.sqnr for part in whole.parts)])


def test_an_output_of_channels_that_are_alike_has_no_parts() -> None:
    whole = Whole()
    f32 = np.random.default_rng(1).standard_normal((4, 10, 20)).astype(np.float32)
    whole.add(f32, f32 + np.float32(0.01))
    assert whole.parts == ()
    assert whole.least == whole.sqnr


@pytest.fixture(scope="module")
def head() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Boxes and class scores, joined and reshaped, in f32 and as ONNX Runtime quantizes them."""
    net = Net()
    hidden = net.op("Relu", "x", name="relu")
    boxes, scores = (
        net.op("Conv", hidden, net.constant(random([rows, 8, 1, 1], rows)), name=f"conv{rows}")
        for rows in (4, 6)
    )
    boxes = net.op("Mul", boxes, net.constant(np.float32(60)), name="boxes")
    scores = net.op("Sigmoid", scores, name="scores")
    joined = net.op("Concat", boxes, scores, name="head", axis=1)
    net.op("Reshape", joined, net.constant(np.int64([1, 10, -1])), name="flat", out="y")
    model = net.proto(inputs={"x": [1, 8, 6, 6]})
    return model, quantized_by_ort(model)


def test_a_dead_part_is_named_first_and_what_cures_it_is_found(head) -> None:
    models = read_models(*head)
    samples = given(models.f32, [{"x": random([1, 8, 6, 6], 5)}], "data")
    found = compared(models, samples)
    assert found.worst > 20  # of the whole output, which hides it
    suggestion = suggestion_of(found)
    shown = io.StringIO()
    report = comparison_report(found, suggestion, Layout(80), title="head")
    Console(file=shown, width=80).print(report)
    text = " ".join(shown.getvalue().split())
    assert "Channels 4 to 9 of the output are all 0, where f32 has" in text
    assert text.index("Channels 4 to 9") < text.index("SQNR")
    assert "very close to f32" not in text
    assert "nodes_to_exclude=['head']" in suggestion.change
    assert suggestion.before.sqnr < 1
    assert suggestion.chosen.sqnr > 20
    parts = as_data(found)["outputs"]["y"]["parts"]
    assert [(part["first"], part["last"], part["constant"]) for part in parts] == [
        (0, 3, None),
        (4, 9, 0.0),
    ]
    # the quantizer itself, told so: as good as what was tried
    mended = quantized_by_ort(head[0], nodes_to_exclude=list(suggestion.nodes))
    again = read_models(head[0], mended)
    assert compared(again, samples).outputs["y"].least > 20


def test_what_is_cut_out_is_what_kills_a_part(head) -> None:
    """The Concat, whose whole output is 30 dB and more from f32."""
    models = read_models(*head)
    found = compared(models, given(models.f32, [{"x": random([1, 8, 6, 6], 5)}], "data"))
    assert found.ranking[0].pair.layer == "head"
    part = cut_layer(found)
    assert part is not None
    assert part.output == found.ranking[0].pair.name
    assert part.sqnr < 1


def test_outputs_without_entries_or_of_other_sizes_have_no_parts() -> None:
    for shapes in ([(1, 4, 0)], [(3, 1)], [(5,)], [()], [(2, 3, 4), (2, 5, 6)]):
        whole = Whole()
        for shape in shapes:
            whole.add(np.ones(shape, np.float32), np.zeros(shape, np.float32))
        assert whole.parts == ()
