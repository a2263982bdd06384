"""No half-filled rows: every row says what it must, agrees with ONNX's own definition, and its
traits are true.
"""

from __future__ import annotations

import inspect

import numpy as np
import onnx
import pytest

from fqfuse.ir.algorithms import BINARY, ELTWISE
from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import REQUIRED, OpSpec, Trait
from fqfuse.ir.types import DType
from fqfuse.plan.verify_shapes import SCHEMAS

from .cases import CASES
from .harness import ELEMENT_TYPES, ORT_OPSET, rng, run_row
from .own_cases import OWN_CASES
from .trait_laws import LAWS, NOT_CLAIMED, NOT_TOLD, PLANNED, SHOWN, applies

every_row = pytest.mark.parametrize("spec", OPS.values(), ids=lambda spec: spec.name)
rows_of_onnx = pytest.mark.parametrize(
    "spec", [s for s in OPS.values() if s.onnx], ids=lambda spec: spec.name
)


@every_row
def test_row_is_whole(spec: OpSpec):
    assert OPS[spec.name] is spec
    assert spec.doc.endswith(".")
    assert len(spec.doc) > len("x.") or spec.name in ("Identity", "Neg", "Abs", "Not", "And", "Or")
    assert "\n" not in spec.doc
    assert callable(spec.infer)
    assert (spec.evaluate is None) == (spec.name == "Onnx")
    assert spec.inputs
    assert spec.outputs
    names = [param.name for param in spec.inputs]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in [*names, *spec.outputs])
    assert not any(param.variadic for param in spec.inputs[:-1])
    required = [not (param.optional or param.variadic) for param in spec.inputs]
    assert required == sorted(required, reverse=True), (
        "an input that must be there behind one that may be absent"
    )


@every_row
def test_names_of_onednn(spec: OpSpec):
    assert spec.eltwise is None or spec.eltwise in ELTWISE
    assert spec.binary is None or spec.binary in BINARY
    assert spec.primitive is None or spec.primitive in SCHEMAS
    assert not (spec.eltwise and spec.binary)
    assert len(spec.parameters) <= 2
    assert all(
        spec.attrs.get(name) is not None for name in spec.parameters if isinstance(name, str)
    )
    if spec.primitive == "eltwise":
        assert spec.eltwise
    if spec.primitive == "binary":
        assert spec.binary
    if spec.eltwise or spec.binary:
        assert Trait.ELEMENTWISE in spec.traits


@every_row
def test_traits_fit_together(spec: OpSpec):
    implied = {
        Trait.RESHAPES: {Trait.LAYOUT_ONLY},
        Trait.LAYOUT_ONLY: {Trait.SCALE_COMMUTING},
        Trait.SELECTS: {Trait.SCALE_COMMUTING},
        Trait.PRODUCT: {Trait.KEEPS_ZERO},
        Trait.AVERAGES: {Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO},
        Trait.QUANTIZER: {Trait.ELEMENTWISE, Trait.POST_OP},
        Trait.POST_OP: {Trait.ELEMENTWISE},
    }
    for trait, others in implied.items():
        if trait in spec.traits:
            assert others <= spec.traits


@rows_of_onnx
def test_agrees_with_onnx(spec: OpSpec):
    """Inputs and attributes are those of ONNX's newest definition; what the row leaves out or adds
    is listed here.
    """
    schema = onnx.defs.get_schema(spec.name)
    optional = [p.optional for p in spec.inputs]
    assert len(spec.inputs) == len(schema.inputs)
    for param, formal in zip(spec.inputs, schema.inputs, strict=True):
        assert param.variadic == (
            formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        ), param.name
        assert param.optional == (
            formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional
        ), param.name
    assert schema.min_input <= optional.count(False)
    assert len(spec.outputs) <= len(schema.outputs)
    ours = {"ConstantOfShape": {"dtype"}}.get(spec.name, set())
    assert set(spec.attrs) - ours == set(schema.attributes)
    for name, attribute in schema.attributes.items():
        ours_default = spec.attrs[name]
        if name in ("output_dtype", "precision"):  # by default 0, which is no element type
            assert ours_default is None, name
            continue
        if attribute.required:
            assert ours_default is REQUIRED, name
        elif attribute.default_value.name:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            if isinstance(value, float):  # ONNX keeps them in f32
                assert np.float32(ours_default) == np.float32(value), name
            elif isinstance(value, list):
                assert ours_default == tuple(text.decode() for text in value), name
            else:
                assert ours_default == (value.decode() if isinstance(value, bytes) else value), name
        else:
            assert ours_default in ((), None, 0.0) or (spec.name, name) == (
                "Split",
                "num_outputs",
            ), name


@every_row
def test_every_row_has_a_case(spec: OpSpec):
    covered = {case.op for case in (*CASES, *OWN_CASES)}
    assert spec.name in covered or spec.name == "Onnx"


@rows_of_onnx
def test_every_attribute_is_tried(spec: OpSpec):
    """Each attribute takes a value other than its default in some case, or changes nothing the row
    gives.
    """
    tried = {
        name
        for case in CASES
        if case.op == spec.name
        for name, value in case.attrs.items()
        if value != spec.attrs[name]
    }
    idle = {
        "Cast": {"saturate", "round_mode"},  # float8 only
        "DequantizeLinear": {"output_dtype"},  # f32, which a Cast follows
        "BatchNormalization": {"momentum", "training_mode"},  # training only
        "LayerNormalization": {"stash_type"},
        "GroupNormalization": {"stash_type"},
        "Range": {"stash_type"},
        "ConvInteger": {"auto_pad", "dilations", "kernel_shape"},  # Conv's own code
        "ConvTranspose": {"kernel_shape"},
        "TopK": {"sorted"},  # sorted is also a legal answer where order does not matter
        # not covered, and said so
        **{op: {"layout"} for op in ("GRU", "LSTM", "RNN")},
        "Resize": {
            "antialias",
            "keep_aspect_ratio_policy",
            "extrapolation_value",
        },
    }
    assert set(spec.attrs) - tried - idle.get(spec.name, set()) == set()


def test_oracles_take_the_rows_element_types():
    assert set(ELEMENT_TYPES) == {
        d for d in DType if d.bits >= 8 and not d.is_small_float and d is not DType.STRING
    }
    assert onnx.defs.onnx_opset_version() >= ORT_OPSET


# -- traits ----------------------------------------------------------------------------------------

_ALL = [*CASES, *OWN_CASES]
_CLAIMS = [
    (case, trait)
    for case in _ALL
    for trait in LAWS
    if trait in OPS[case.op].traits and applies(case, trait)
]


@pytest.mark.parametrize(
    ("case", "trait"),
    _CLAIMS,
    ids=lambda value: value.value if isinstance(value, Trait) else str(value),
)
def test_claimed_traits_hold(case, trait):
    for attempt in range(3):
        assert LAWS[trait](case, rng("trait", str(case), attempt)), f"{case} is not {trait.value}"


@pytest.mark.parametrize("trait", LAWS, ids=lambda trait: trait.value)
@every_row
def test_unclaimed_traits_fail_somewhere(spec: OpSpec, trait: Trait):
    """A trait that every case has, and the row does not claim, is either missing or listed with the
    reason why it is not claimed.
    """
    cases = [case for case in _ALL if case.op == spec.name and applies(case, trait)]
    if trait in spec.traits or not cases:
        return
    if trait is Trait.SELECTS and Trait.LAYOUT_ONLY in spec.traits:
        return  # it selects by place, not by order: LAYOUT_ONLY says more
    holds = all(
        LAWS[trait](case, rng("unclaimed", str(case), attempt))
        for case in cases
        for attempt in range(3)
    )
    listed = (spec.name, trait) in NOT_CLAIMED
    assert listed == holds


@pytest.mark.parametrize("trait", SHOWN, ids=lambda trait: trait.value)
@every_row
def test_some_case_shows_what_the_row_claims(spec: OpSpec, trait: Trait):
    if spec.name == "Onnx":
        return  # anything may be behind it
    shown = any(
        SHOWN[trait](case) for case in _ALL if case.op == spec.name and case.op not in NOT_TOLD
    )
    claimed = {Trait.TELLS_ZERO: spec.tells_zero, Trait.JUMPS: spec.jumps}
    assert shown == claimed.get(trait, trait in spec.traits)


def test_every_trait_has_a_law():
    assert {*LAWS, *SHOWN, *PLANNED} == set(Trait)


def test_evaluate_takes_short_input_lists():
    """Absent trailing inputs may be left out of the list."""
    for case in CASES:
        trimmed = list(case.inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        if len(trimmed) < len(case.inputs):
            for a, b in zip(run_row(case, trimmed), run_row(case), strict=True):
                np.testing.assert_array_equal(a, b)


def test_no_row_registers_itself_on_import():
    """The table is one written list: a row in a module that is not in it would be lost silently."""
    import fqfuse.ir.ops as table

    source = inspect.getsource(table)
    assert source.count("    *") == len(
        [
            line
            for line in source.splitlines()
            if line.startswith("from .") and line.split("import ")[1].isupper()
        ]
    )
