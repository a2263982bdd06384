"""Attribute descriptions, and what is said when the library refuses one. What they compute:
test_binding_compute.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support.binding_library import no_primitive_cache

from fqfuse.onednn.attributes import Attributes, Binary, Depthwise, Eltwise, PRelu, Sum, attr_of
from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.onednn.enums import (
    AlgKind,
    Arg,
    DataType,
    arg_multiple_src,
    arg_post_op,
    arg_scales,
    arg_zero_points,
)
from fqfuse.onednn.layouts import row_major
from fqfuse.onednn.library import Engine, Library, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc
from fqfuse.onednn.primitive import ExecArgs, Primitive
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe


def small_matmul(engine: Engine, attributes: Attributes, origin: str = "") -> Any:
    library = engine.library
    return describe(
        engine,
        "matmul",
        MemoryDesc.any(library, (4, 16), DataType.u8),
        MemoryDesc.any(library, (16, 8), DataType.s8),
        None,
        MemoryDesc.any(library, (4, 8), DataType.u8),
        attributes=attributes,
        origin=origin,
    )


def test_descriptions_are_frozen() -> None:
    scales = {Arg.SRC: 0}
    attributes = Attributes(scales, post_ops=[Sum()])  # type: ignore[arg-type]
    scales[Arg.DST] = 0
    assert dict(attributes.scales) == {Arg.SRC: 0}
    assert attributes.post_ops == (Sum(),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        attributes.post_ops = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        attributes.scales[Arg.DST] = 0  # type: ignore[index]
    assert attributes == Attributes({Arg.SRC: 0}, post_ops=(Sum(),))


def test_text_names_every_part(library: Library) -> None:
    md = row_major(library, (1, 8), DataType.f32)
    attributes = Attributes(
        {Arg.SRC: 0, Arg.WEIGHTS: 1, arg_multiple_src(2): 0, Arg.ATTR_POST_OP_DW | Arg.WEIGHTS: 3},
        {Arg.DST: 0},
        (
            Sum(0.5, 3, DataType.s8),
            Eltwise(AlgKind.eltwise_clip, -1, 2),
            Binary(AlgKind.binary_add, md),
            PRelu(2),
            Depthwise(DataType.s8, DataType.f32, DataType.u8, 3, 1, 1),
        ),
    )
    assert str(attributes) == (
        "scales={src: common, weights: per_dim_0, src2: common, "
        "depthwise weights: per_dim_0+per_dim_1} zero_points={dst: common} post_ops=[sum(scale=0.5, zero_point=3, dtype=s8), "
        "eltwise_clip(-1, 2), binary_add(f32[1,8]:ab), prelu(mask=2), depthwise(kernel=3, stride=1, padding=1)]"
    )
    assert str(Attributes()) == ""


def test_post_ops_are_appended_in_order(library: Library) -> None:
    attr, chain = (
        attr_of(library, Attributes(post_ops=(Sum(), Eltwise(AlgKind.eltwise_relu), PRelu(2)))),
        ctypes.c_void_p(),
    )
    library.c["dnnl_primitive_attr_get_post_ops"](
        ctypes.c_void_p(attr.pointer), ctypes.byref(chain)
    )
    assert library.c["dnnl_post_ops_len"](chain) == 3
    to_text = library.c["dnnl_prim_kind2str"]
    to_text.restype = ctypes.c_char_p
    kinds = [
        to_text(library.c["dnnl_post_ops_get_kind"](chain, index)).decode() for index in range(3)
    ]
    assert kinds == ["sum", "eltwise", "prelu"]


def test_the_33rd_post_op_is_refused_by_name(library: Library) -> None:
    relu = Eltwise(AlgKind.eltwise_relu)
    attr_of(library, Attributes(post_ops=(relu,) * 32))
    with pytest.raises(
        OneDnnError,
        match=r"post-op 32 of 33, eltwise_relu\(0, 0\), failed with out_of_memory.*32 post-ops",
    ) as caught:
        attr_of(library, Attributes(post_ops=(relu,) * 33), origin="Relu_40")
    assert caught.value.where == "Relu_40"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (Attributes({Arg.SRC: -1}), "scales of src with mask -1 failed with invalid_arguments"),
        (Attributes({77: 0}), "scales of argument 77 with mask common"),
        (Attributes(zero_points={Arg.BIAS: 0}), "zero points of bias with mask common"),
        (
            Attributes(post_ops=(Eltwise(AlgKind.eltwise_clip, 2.0, 1.0),)),
            r"eltwise_clip\(2, 1\), failed with invalid_arguments",
        ),
        (Attributes(post_ops=(Eltwise(AlgKind.pooling_max),)), "pooling_max"),
    ],
    ids=["mask", "unknown", "bias", "clip", "algorithm"],
)
def test_refused_attributes_are_named(
    library: Library, attributes: Attributes, message: str
) -> None:
    with pytest.raises(OneDnnError, match=message):
        attr_of(library, attributes)


def test_refused_primitive_names_shapes_attributes_and_origin(engine: Engine) -> None:
    attributes = Attributes({Arg.SRC: 0, Arg.DST: 1}, post_ops=(Eltwise(AlgKind.eltwise_relu),))
    with pytest.raises(Unimplemented) as caught:
        small_matmul(engine, attributes, origin="MatMul_3, Relu_4")
    message = str(caught.value)
    for part in (
        "matmul src=u8[4,16]:any weights=s8[16,8]:any dst=u8[4,8]:any",
        "scales={src: common, dst: per_dim_0}",
        "eltwise_relu(0, 0)",
    ):
        assert part in message
    assert "unimplemented (3)" in message
    assert "MatMul_3, Relu_4" in message


def test_contradicting_shapes_are_invalid_arguments(engine: Engine) -> None:
    library = engine.library
    descs = [MemoryDesc.any(library, shape, DataType.f32) for shape in ((4, 16), (15, 8), (4, 8))]
    with pytest.raises(OneDnnError) as caught:
        describe(engine, "matmul", descs[0], descs[1], None, descs[2])
    assert caught.value.status is Status.invalid_arguments
    assert not isinstance(caught.value, Unimplemented)


def test_too_few_spatial_parameters_never_reach_the_library(engine: Engine) -> None:
    library = engine.library
    image, weights = (
        MemoryDesc.any(library, (1, 8, 5, 5), DataType.u8),
        MemoryDesc.any(library, (8, 8, 3, 3), DataType.s8),
    )
    window: dict[str, Any] = {
        "strides": (1,),
        "dilations": (0, 0),
        "padding_l": (1, 1),
        "padding_r": (1, 1),
    }
    with pytest.raises(ValueError, match=r"needs 2 entries for u8\[1,8,5,5\]:any"):
        describe(engine, "convolution", image, weights, None, image, **window)
    with pytest.raises(ValueError, match="needs 2 entries"):
        describe(engine, "pooling", image, image, alg=AlgKind.pooling_max, kernel=(3, 3), **window)


def test_missing_argument_names_the_primitive_and_its_origin(
    engine: Engine, stream: Stream
) -> None:
    desc = small_matmul(engine, Attributes({Arg.SRC: 0}), origin="MatMul_3")
    rest = {
        Arg.SCRATCHPAD: Memory.allocate(engine, desc.scratchpad_md),
        arg_scales(Arg.SRC): Memory.wrap(engine, np.ones(1, np.float32)),
    }
    args = ExecArgs(desc, {Arg.SRC: Memory.wrap(engine, np.zeros((4, 16), np.uint8))} | rest)
    with pytest.raises(
        OneDnnError, match=r"executing matmul src=u8\[4,16\].* by .*failed with invalid_arguments"
    ) as caught:
        Primitive(desc).execute(stream, args)
    assert caught.value.where == "MatMul_3"


def test_queries_of_a_descriptor(engine: Engine) -> None:
    desc = small_matmul(engine, Attributes())
    assert desc.kind == "matmul"
    assert desc.src_md().dims == (4, 16)
    assert desc.dst_md() == desc.exec_arg_md(Arg.DST)
    assert desc.scratchpad_size == desc.scratchpad_md.size
    assert repr(desc).startswith("<matmul src=u8[4,16]:any")
    assert desc.exec_arg_md(Arg.BIAS).dims == (), "no such argument"


def test_next_impl_walks_to_the_reference(engine: Engine, library: Library) -> None:
    with no_primitive_cache(library):
        desc = small_matmul(engine, Attributes())
        found = [(desc.impl_info, desc.is_reference)]
        while desc.next_impl():
            found.append((desc.impl_info, desc.is_reference))
    assert len({name for name, _ in found}) == len(found) > 1
    assert found[-1][0].startswith("ref")
    assert found[-1][1]
    assert not found[0][1]


def test_fpmath_mode_is_ours_and_not_the_environments() -> None:
    """ONEDNN_DEFAULT_FPMATH_MODE must not make f32 primitives compute in bf16."""
    code = """
import ctypes
from fqfuse.onednn.attributes import Attributes, attr_of
from fqfuse.onednn.loading import load
library = load()
attr, value = attr_of(library, Attributes()), ctypes.c_int(-1)
library.c["dnnl_primitive_attr_get_fpmath_mode"](ctypes.c_void_p(attr.pointer), ctypes.byref(value))
print(value.value)
"""
    environment = {**os.environ, "ONEDNN_DEFAULT_FPMATH_MODE": "ANY"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert ran.stdout.split() == ["0"], "strict"


@pytest.mark.parametrize("shape", [(3, 8), (1, 7), (8,), (1, 1, 8)], ids=str)
def test_operands_that_do_not_broadcast_are_refused(engine: Engine, shape: tuple[int, ...]) -> None:
    """The library itself takes them, and reads past their end."""
    other = row_major(engine.library, shape, DataType.f32)
    with pytest.raises(OneDnnError, match="does not broadcast to dst") as caught:
        small_matmul(
            engine, Attributes(post_ops=(Binary(AlgKind.binary_add, other),)), origin="Add_5"
        )
    assert caught.value.status is Status.invalid_arguments
    assert caught.value.where == "Add_5"


def test_int8_eltwise_takes_two_algorithms_only(engine: Engine) -> None:
    md = row_major(engine.library, (4, 8), DataType.s8)
    with pytest.raises(OneDnnError, match=r"eltwise eltwise_tanh\(0, 0\) src=s8"):
        describe(engine, "eltwise", md, md, alg=AlgKind.eltwise_tanh)


# ---- what ExecArgs checks, because the library would crash or read past the end ----


def complete(engine: Engine) -> tuple[PrimitiveDesc, dict[int, Memory]]:
    operand = row_major(engine.library, (1, 8), DataType.f32)
    chain = (Eltwise(AlgKind.eltwise_relu), Binary(AlgKind.binary_mul, operand), PRelu(2))
    desc = small_matmul(
        engine, Attributes({Arg.SRC: 0, Arg.WEIGHTS: 2}, {Arg.SRC: 0}, chain), origin="MatMul_3"
    )
    memories = {
        arg: Memory.allocate(engine, desc.exec_arg_md(arg))
        for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST)
    }
    memories[Arg.SCRATCHPAD] = Memory.allocate(engine, desc.scratchpad_md)
    memories[arg_scales(Arg.SRC)] = Memory.wrap(engine, np.ones(1, np.float32))
    memories[arg_scales(Arg.WEIGHTS)] = Memory.wrap(engine, np.ones(8, np.float32))
    memories[arg_zero_points(Arg.SRC)] = Memory.wrap(engine, np.zeros(1, np.int32))
    memories[arg_post_op(1, Arg.SRC_1)] = memories[arg_post_op(2, Arg.WEIGHTS)] = Memory.wrap(
        engine, np.ones((1, 8), np.float32)
    )
    return desc, memories


def test_complete_arguments_are_accepted(engine: Engine, stream: Stream) -> None:
    desc, memories = complete(engine)
    Primitive(desc).execute(stream, ExecArgs(desc, memories))


@pytest.mark.parametrize(
    ("arg", "name"),
    [
        (Arg.SCRATCHPAD, "scratchpad"),
        (arg_scales(Arg.WEIGHTS), "scales of weights"),
        (arg_zero_points(Arg.SRC), "zero points of src"),
        (arg_post_op(1, Arg.SRC_1), "src_1 of post-op 1"),
        (arg_post_op(2, Arg.WEIGHTS), "weights of post-op 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_that_attributes_call_for(engine: Engine, arg: int, name: str) -> None:
    desc, memories = complete(engine)
    del memories[arg]
    with pytest.raises(ValueError, match=f"needs memories for {name}$"):
        ExecArgs(desc, memories)


@pytest.mark.parametrize(
    ("arg", "shape", "dtype", "message"),
    [
        (Arg.SRC, (4, 16), np.int8, r"wants src as u8\[4,16\]:ab, not as s8\[4,16\]:ab"),
        (Arg.DST, (8, 4), np.uint8, "wants dst as"),
        (
            arg_scales(Arg.WEIGHTS),
            (1,),
            np.float32,
            r"wants scales of weights as f32\[8\], not as f32\[1\]:a",
        ),
        (arg_zero_points(Arg.SRC), (1,), np.float32, r"wants zero points of src as s32\[1\]"),
        (arg_post_op(1, Arg.SRC_1), (4, 8), np.float32, "wants src_1 of post-op 1 as"),
        (Arg.SCRATCHPAD, (1,), np.uint8, "bytes of scratchpad, not 1"),
    ],
    ids=["type", "shape", "scales", "zero_points", "operand", "scratchpad"],
)
def test_memories_of_another_layout(
    engine: Engine, arg: int, shape: tuple[int, ...], dtype: Any, message: str
) -> None:
    desc, memories = complete(engine)
    wrong = Memory.wrap(engine, np.zeros(shape, dtype))
    with pytest.raises(ValueError, match=message):
        ExecArgs(desc, {**memories, arg: wrong})
