"""What a simulation measures, held to sessions and to arithmetic by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fqfuse
from fqfuse.accuracy.data import given
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.accuracy.simulation import Subject, scores, simulated, subject_of
from fqfuse.errors import InvalidInput
from fqfuse.models.digits import digits_model_path, digits_test_set
from fqfuse.plan.saturation import steps_at_risk

IMAGES = digits_test_set()[0][:16]


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of(digits_model_path("qdq"), "avx2", digits_model_path("f32"))


def test_outputs_are_those_of_sessions(subject: Subject) -> None:
    found = simulated(subject, given(subject.graph, [{"image": IMAGES}], "digits"))
    path = digits_model_path("qdq")
    exact, there = (
        fqfuse.InferenceSession(path, "numpy", isa=isa).run(None, {"image": IMAGES})[0]
        for isa in ("vnni", "avx2")
    )
    (f32,) = fqfuse.InferenceSession(digits_model_path("f32")).run(None, {"image": IMAGES})
    answer = found.outputs["logits"]
    assert answer.there.sqnr == pytest.approx(sqnr_of(exact, there))
    assert (answer.entries, answer.differ) == (160, np.count_nonzero(exact != there))
    assert answer.rows == 16
    assert answer.changed == np.count_nonzero(exact.argmax(axis=1) != there.argmax(axis=1))
    assert answer.exact_to_f32 is not None
    assert answer.there_to_f32 is not None
    assert answer.exact_to_f32.sqnr == pytest.approx(sqnr_of(f32, exact))
    assert answer.there_to_f32.sqnr == pytest.approx(sqnr_of(f32, there))


def test_samples_add_up(subject: Subject) -> None:
    whole = simulated(subject, given(subject.graph, [{"image": IMAGES}], "digits"))
    halves = [{"image": IMAGES[:8]}, {"image": IMAGES[8:]}]
    parts = simulated(subject, given(subject.graph, halves, "digits"))
    for one, other in zip(whole.effects, parts.effects, strict=True):
        assert (one.entries, one.differ) == (other.entries, other.differ)
        assert one.alone.sqnr == pytest.approx(other.alone.sqnr)
    assert whole.worst == pytest.approx(parts.worst)


def test_a_layer_alone_has_exact_inputs(subject: Subject) -> None:
    """The first layer that differs differs as much alone as so far, and none differs that is proven."""
    found = simulated(subject, given(subject.graph, [{"image": IMAGES}], "digits"))
    first = next(effect for effect in found.effects if effect.differ)
    assert first.alone.noise == first.total.noise > 0
    assert [e.sums.index for e in found.effects] == list(steps_at_risk(subject.plan, "avx2"))
    assert found.differing[0].alone.sqnr == min(e.alone.sqnr for e in found.effects if e.differ)


def test_without_an_f32_model_it_is_the_model_without_rounding() -> None:
    """Its quantizers' ranges stay, which may stand for a Relu; f32 is near to that."""
    told = subject_of(digits_model_path("fakequantize"), "avx2")
    assert told.told == "the model without rounding"
    assert told.reference is not None
    (derived,) = fqfuse.InferenceSession(told.reference).run(None, {"image": IMAGES})
    f32, int8 = (
        fqfuse.InferenceSession(digits_model_path(form)).run(None, {"image": IMAGES})[0]
        for form in ("f32", "fakequantize")
    )
    assert sqnr_of(f32, derived) > sqnr_of(f32, int8) + 5


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((4, 10), 4), ((4, 10, 1, 1), 4), ((4, 1, 10), 4), ((4, 1), 0), ((4,), 0), ((2, 3, 5), 0)],
)
def test_what_looks_like_scores(shape: tuple[int, ...], rows: int) -> None:
    found = scores(np.zeros(shape, np.float32))
    assert (0 if found is None else len(found)) == rows


def test_models_that_do_not_belong_together(tmp_path: Path) -> None:
    plan = tmp_path / "plan.onnx"
    fqfuse.save_plan(fqfuse.compile(digits_model_path("qdq")), plan)
    with pytest.raises(InvalidInput, match="this is a plan"):
        subject_of(plan, "avx2")
    with pytest.raises(InvalidInput, match="no instruction set 'neon'"):
        fqfuse.simulate(digits_model_path("qdq"), "neon")
    with pytest.raises(InvalidInput, match="no instruction set None"):
        fqfuse.simulate(digits_model_path("qdq"), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="is of type int"):
        fqfuse.simulate(digits_model_path("qdq"), data=3)  # type: ignore[arg-type]
