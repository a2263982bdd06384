"""What the table of targets leaves out because oneDNN 3.2 refuses it, or has no compiled kernel:
where this fails, a step can be saved.
"""

from __future__ import annotations

import pytest

from fqfuse.onednn.attributes import Attributes, Binary, PRelu
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.enums import AlgKind, Arg, DataType, arg_post_op
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe
from fqfuse.plan.targets import TARGETS

U8, S8, F32 = DataType.u8, DataType.s8, DataType.f32
SHAPE = (2, 16, 6, 6)


@pytest.fixture(autouse=True)
def _is_3_2(engine: Engine) -> None:
    if (engine.library.version.major, engine.library.version.minor) != (3, 2):
        pytest.skip("the table holds for oneDNN 3.2")


PLAIN = Attributes()


def averaged(
    engine: Engine, src: DataType, dst: DataType, attributes: Attributes = PLAIN
) -> PrimitiveDesc:
    source = channels_last(engine.library, SHAPE, src)
    target = MemoryDesc.any(engine.library, (2, 16, 3, 3), dst)
    two, none = (2, 2), (0, 0)
    return describe(
        engine,
        "pooling",
        source,
        target,
        alg=AlgKind.pooling_avg_exclude_padding,
        kernel=two,
        strides=two,
        dilations=none,
        padding_l=none,
        padding_r=none,
        attributes=attributes,
    )


@pytest.mark.parametrize("dtype", [U8, S8, F32])
def test_an_average_has_its_sources_type(engine: Engine, dtype: DataType) -> None:
    averaged(engine, dtype, dtype)
    for other in {U8, S8, F32} - {dtype}:
        with pytest.raises(OneDnnError):
            averaged(engine, dtype, other)


@pytest.mark.parametrize(
    "attributes", [Attributes(zero_points={Arg.SRC: 0}), Attributes({Arg.DST: 0})]
)
def test_an_average_takes_no_zero_point_and_no_scale(
    engine: Engine, attributes: Attributes
) -> None:
    with pytest.raises(OneDnnError):
        averaged(engine, U8, U8, attributes)


@pytest.mark.parametrize(
    "attributes", [Attributes(zero_points={Arg.SRC: 0}), Attributes({Arg.DST: 0})]
)
def test_binary_takes_no_zero_point_and_no_destination_scale(
    engine: Engine, attributes: Attributes
) -> None:
    codes = row_major(engine.library, SHAPE, U8)
    describe(engine, "binary", codes, codes, codes, alg=AlgKind.binary_mul)
    with pytest.raises(OneDnnError):
        describe(
            engine, "binary", codes, codes, codes, alg=AlgKind.binary_mul, attributes=attributes
        )


@pytest.mark.parametrize("dtype", [U8, F32])
def test_with_a_prelu_neither_has_a_compiled_kernel(engine: Engine, dtype: DataType) -> None:
    prelu = Attributes(post_ops=(PRelu(2),))
    data = channels_last(engine.library, SHAPE, dtype)
    for plain, behind in (
        (averaged(engine, dtype, dtype), averaged(engine, dtype, dtype, prelu)),
        (
            describe(engine, "binary", data, data, data, alg=AlgKind.binary_mul),
            describe(engine, "binary", data, data, data, alg=AlgKind.binary_mul, attributes=prelu),
        ),
    ):
        assert plain.impl_info.startswith("jit")
        assert not behind.impl_info.startswith("jit")


SPATIAL = (2, 16, 12, 12)
WITHOUT_SCALES = {
    "eltwise": (S8, SHAPE, {"alg": AlgKind.eltwise_relu}),
    "shuffle": (S8, SHAPE, {"axis": 1, "group_size": 4}),
    "resampling": (S8, SPATIAL, {"alg": AlgKind.resampling_nearest}),
    "reduction": (S8, (2, 16, 1, 1), {"alg": AlgKind.reduction_max}),
    "batch_normalization": (S8, SHAPE, {"epsilon": 1e-5, "flags": 1}),  # by given statistics
    "lrn": (F32, SHAPE, {"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0}),
    "prelu": (S8, SHAPE, {}),
}
"""Primitive -> type, shape of the destination, parameters."""


@pytest.mark.parametrize("arg", [Arg.SRC, Arg.DST], ids=lambda arg: arg.name)
@pytest.mark.parametrize("primitive", WITHOUT_SCALES)
def test_most_primitives_take_no_scales(engine: Engine, primitive: str, arg: Arg) -> None:
    dtype, shape, parameters = WITHOUT_SCALES[primitive]
    operands = [channels_last(engine.library, SHAPE, dtype)]
    if primitive == "prelu":
        operands.append(row_major(engine.library, (1, 16, 1, 1), F32))
    operands.append(channels_last(engine.library, shape, dtype))
    describe(engine, primitive, *operands, **parameters)
    with pytest.raises(OneDnnError):
        describe(engine, primitive, *operands, attributes=Attributes({arg: 0}), **parameters)
    for target in ("onednn-v3", "onednn-v2"):
        capability = TARGETS[target].capability(primitive)
        assert not capability.src_scale
        assert not capability.dst_scale
        assert not capability.output_scale


def test_the_operand_of_a_binary_post_op_takes_no_scale(engine: Engine) -> None:
    codes = row_major(engine.library, (16, 16), U8)
    weights = row_major(engine.library, (16, 16), S8)
    add = (Binary(AlgKind.binary_add, codes),)
    operand = arg_post_op(0, Arg.SRC_1)
    plain, scaled = Attributes(post_ops=add), Attributes({operand: 0}, post_ops=add)
    describe(engine, "matmul", codes, weights, None, codes, attributes=plain)
    with pytest.raises(OneDnnError):
        describe(engine, "matmul", codes, weights, None, codes, attributes=scaled)
    assert [name for name, target in TARGETS.items() if target.operand_scale] == ["unified"]
