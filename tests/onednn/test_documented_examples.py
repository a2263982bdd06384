"""The examples of oneDNN's guide to quantization and of oneAPI's specification of attributes, run on
the bare library: weights quantized by a reorder, with and without groups, and the convolutions that
read them; attributes that are copied; scratchpads.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from support.binding_cases import convolve
from support.binding_order import F32, Runner, dequantize, f32, requantize
from support.codes import has_vnni, s8_codes

from fqfuse.onednn.attributes import Attributes, Eltwise, attr_of
from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.onednn.enums import (
    AlgKind,
    Arg,
    DataType,
    ScratchpadMode,
    arg_scales,
    arg_zero_points,
)
from fqfuse.onednn.layouts import row_major
from fqfuse.onednn.library import Engine, Handle, Library, Stream
from fqfuse.onednn.library import create as created
from fqfuse.onednn.memory import Memory, MemoryDesc
from fqfuse.onednn.primitive import ExecArgs, Primitive, run_once
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe

U8, S8, S32, FLOAT = DataType.u8, DataType.s8, DataType.s32, DataType.f32
IMAGE = (2, 16, 7, 6)
HALVED = pytest.mark.of_vnni("weights behind s8 are halved elsewhere, and odd ones rounded")
WINDOW = {"strides": (1, 1), "dilations": (0, 0), "padding_l": (1, 1), "padding_r": (1, 1)}


@pytest.fixture
def run(engine: Engine, stream: Stream) -> Runner:
    if (engine.library.version.major, engine.library.version.minor) != (3, 2):
        pytest.skip("the float order here is that of oneDNN 3.2")
    return Runner(engine, stream)


def convolution(
    run: Runner, weights: tuple[int, ...], src: DataType, dst: DataType, attributes: Attributes
) -> PrimitiveDesc:
    """Of an image, the layouts left to the library."""
    library = run.engine.library
    outputs = weights[0] if len(weights) == 4 else weights[0] * weights[1]
    return describe(
        run.engine,
        "convolution",
        MemoryDesc.any(library, IMAGE, src),
        MemoryDesc.any(library, weights, S8 if src != FLOAT else FLOAT),
        None,
        MemoryDesc.any(library, (IMAGE[0], outputs, *IMAGE[2:]), dst),
        attributes=attributes,
        **WINDOW,
    )


def quantized(run: Runner, weights: np.ndarray, scales: np.ndarray, to: MemoryDesc) -> Memory:
    """f32 weights in the user's layout, by a reorder that divides by scales: one for each output
    channel, or for each group and output channel.
    """
    mask = 1 if weights.ndim == 4 else 3
    src, dst = Memory.wrap(run.engine, weights), Memory.allocate(run.engine, to)
    divide = Attributes({Arg.DST: mask})
    desc = describe(run.engine, "reorder", src.desc, to, attributes=divide)
    factors = Memory.wrap(run.engine, scales.reshape(-1))
    run_once(run.stream, desc, {Arg.SRC: src, Arg.DST: dst, arg_scales(Arg.DST): factors})
    return dst


def hwio(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Weights of O, I, H, W, or of G, O, I, H, W, that lie as the document has them: hwio, hwigo."""
    order = (2, 3, 1, 0) if len(shape) == 4 else (3, 4, 2, 0, 1)
    lies = f32(rng.normal(0, 1, [shape[axis] for axis in order]))
    return lies.transpose(np.argsort(order))


@pytest.mark.parametrize("src", [U8, pytest.param(S8, marks=HALVED)], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(24, 16, 3, 3), (4, 6, 4, 3, 3)], ids=["plain", "groups"])
def test_weights_by_a_reorder_and_the_convolution_that_reads_them(
    run: Runner, shape: tuple[int, ...], src: DataType
) -> None:
    rng = np.random.default_rng(len(shape))
    weights = hwio(rng, shape)
    leading = shape[: len(shape) - 3]
    scales = f32(rng.uniform(0.01, 0.05, leading))
    column = scales.reshape(*leading, 1, 1, 1)
    codes = np.clip(np.rint(weights * (F32(1) / column)), -128, 127).astype(np.int8)
    assert {-128, 127} <= set(np.unique(codes).tolist()), "the store saturates"

    # as they lie plain, each code is that of the formula
    plain = quantized(run, weights, scales, row_major(run.engine.library, shape, S8))
    np.testing.assert_array_equal(plain.view(), codes)

    mask = 1 if len(shape) == 4 else 3
    attributes = Attributes({Arg.SRC: 0, Arg.WEIGHTS: mask, Arg.DST: 0}, {Arg.SRC: 0, Arg.DST: 0})
    desc = convolution(run, shape, src, S8, attributes)
    packed = quantized(run, weights, scales, desc.weights_md())
    # with weights of 8 bits products of sources of 7 bits saturate on no CPU
    above = 256 if has_vnni() else 128
    x = rng.integers(*((0, above) if src == U8 else (-128, 128)), IMAGE)
    x = x.astype(np.uint8 if src == U8 else np.int8)
    src_scale, dst_scale, zero, dst_zero = F32(0.02), F32(0.7), 3, -5
    image = Memory.allocate(run.engine, desc.src_md())
    run.reorder(Memory.wrap(run.engine, x), image)
    result = Memory.allocate(run.engine, desc.dst_md())
    arguments = {
        Arg.SRC: image,
        Arg.WEIGHTS: packed,
        Arg.DST: result,
        arg_scales(Arg.SRC): Memory.wrap(run.engine, f32([src_scale])),
        arg_scales(Arg.WEIGHTS): Memory.wrap(run.engine, scales.reshape(-1)),
        arg_scales(Arg.DST): Memory.wrap(run.engine, f32([dst_scale])),
        arg_zero_points(Arg.SRC): Memory.wrap(run.engine, np.array([zero], np.int32)),
        arg_zero_points(Arg.DST): Memory.wrap(run.engine, np.array([dst_zero], np.int32)),
    }
    run_once(run.stream, desc, arguments)
    sums = convolve(
        x.astype(np.int64) - zero,
        codes if len(shape) == 5 else codes[None],
        (1, 1),
        (0, 0),
        (1, 1),
    )
    real = dequantize(sums, src_scale, scales.reshape(1, -1, 1, 1))
    np.testing.assert_array_equal(run.plain(result), requantize(real, dst_scale, dst_zero, S8))


def test_output_channels_are_dimension_0_of_the_weights(run: Runner) -> None:
    """Mask 1, or 3 with groups. 1 << 1, which the example in the specification has, is refused."""
    plain, groups = (24, 16, 3, 3), (4, 6, 4, 3, 3)
    for shape, mask in ((plain, 1), (groups, 3)):
        convolution(run, shape, U8, U8, Attributes({Arg.WEIGHTS: mask}))
    for shape, mask in ((plain, 2), (groups, 2), (groups, 1)):
        with pytest.raises(Unimplemented):
            convolution(run, shape, U8, U8, Attributes({Arg.WEIGHTS: mask}))


@pytest.mark.parametrize("arg", [Arg.SRC, Arg.WEIGHTS, Arg.DST], ids=lambda a: a.name)
def test_a_convolution_of_f32_takes_no_scales(run: Runner, arg: Arg) -> None:
    shape = (24, 16, 3, 3)
    convolution(run, shape, FLOAT, FLOAT, Attributes())
    with pytest.raises(Unimplemented):
        convolution(run, shape, FLOAT, FLOAT, Attributes({arg: 0}))


def test_tanh_between_the_scales_of_the_sources_and_of_the_destination(run: Runner) -> None:
    """dst = 1/scale_dst * tanh(scale_src * scale_weights * conv(src, weights))."""
    rng = np.random.default_rng(5)
    shape = (24, 16, 3, 3)
    x = rng.integers(-128, 128, IMAGE).astype(np.int8)
    w = s8_codes(rng, shape, 127)
    attributes = Attributes(
        {Arg.SRC: 0, Arg.WEIGHTS: 0, Arg.DST: 0}, post_ops=(Eltwise(AlgKind.eltwise_tanh),)
    )
    numbers = {Arg.SRC: 0.003, Arg.WEIGHTS: 0.004, Arg.DST: 1 / 127}
    got = run(
        convolution(run, shape, S8, S8, attributes),
        {Arg.SRC: x, Arg.WEIGHTS: w}
        | {arg_scales(arg): f32([number]) for arg, number in numbers.items()},
    )
    sums = convolve(x, w[None], (1, 1), (0, 0), (1, 1))
    exact = np.tanh(sums * 0.003 * 0.004) * 127
    # half a code for the rounding, and 2e-4 of one for f32 and the library's polynomial
    assert np.abs(got - exact).max() <= 0.5 + 2e-4
    assert len(np.unique(got)) > 150


# ---- attributes, and what belongs to a descriptor ----


def test_a_descriptor_has_a_copy_of_its_attributes(library: Library, engine: Engine) -> None:
    """Changed and destroyed behind it, they leave it as it is."""
    attr = attr_of(library, Attributes({Arg.SRC: 0}))
    codes, weights, product = (
        row_major(library, shape, dtype)
        for shape, dtype in (((4, 16), U8), ((16, 8), S8), ((4, 8), FLOAT))
    )
    made = ctypes.c_void_p()
    create = library.c.dnnl_matmul_primitive_desc_create
    assert create(ctypes.byref(made), engine, codes, weights, None, product, attr) == Status.success
    any_type = 3  # dnnl_fpmath_mode_any
    assert library.c.dnnl_primitive_attr_set_fpmath_mode(attr, any_type) == Status.success
    del attr

    held, mode = ctypes.c_void_p(), ctypes.c_int(-1)
    get = library.c["dnnl_primitive_desc_get_attr"]
    assert get(made, ctypes.byref(held)) == Status.success
    read = library.c["dnnl_primitive_attr_get_fpmath_mode"]
    assert read(held, ctypes.byref(mode)) == Status.success
    assert mode.value == 0, "strict, as it was when the descriptor was made"
    library.c.dnnl_primitive_desc_destroy(made)


def test_attributes_that_are_left_out_are_the_default_ones(
    library: Library, engine: Engine
) -> None:
    """No pointer, and a pointer to attributes that nobody set: no post-ops, and the library's scratchpad."""
    types = (((4, 16), U8), ((16, 8), S8), ((4, 8), S32))
    codes, weights, product = (row_major(library, shape, dtype) for shape, dtype in types)
    empty = created(library.c.dnnl_primitive_attr_create, lambda: "creating attributes")
    found = []
    for attr in (None, Handle(library, "primitive_attr", empty)):
        made, held, chain, mode = (*(ctypes.c_void_p() for _ in range(3)), ctypes.c_int(-1))
        create = library.c.dnnl_matmul_primitive_desc_create
        of = (engine, codes, weights, None, product, attr)
        assert create(ctypes.byref(made), *of) == Status.success
        library.c["dnnl_primitive_desc_get_attr"](made, ctypes.byref(held))
        library.c["dnnl_primitive_attr_get_post_ops"](held, ctypes.byref(chain))
        library.c["dnnl_primitive_attr_get_scratchpad_mode"](held, ctypes.byref(mode))
        found.append((library.c["dnnl_post_ops_len"](chain), mode.value))
        library.c.dnnl_primitive_desc_destroy(made)
    assert found == [(0, ScratchpadMode.library)] * 2


def test_values_are_given_at_execution_and_may_change(run: Runner) -> None:
    """One primitive, made with masks alone; scales are powers of two, so that the results are exact."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (4, 16)).astype(np.uint8)
    w = s8_codes(rng, (16, 8))
    attributes = Attributes({Arg.SRC: 0, Arg.WEIGHTS: 2, Arg.DST: 0}, {Arg.SRC: 0})
    types = ((x.shape, U8), (w.shape, S8), ((4, 8), FLOAT))
    codes, weights, product = (row_major(run.engine.library, *type_) for type_ in types)
    desc = describe(run.engine, "matmul", codes, weights, None, product, attributes=attributes)
    primitive = Primitive(desc)
    for zero, of_src, of_dst in ((3, 0.5, 4.0), (200, 0.125, 2.0**-3)):
        columns = f32(2.0 ** rng.integers(-4, 5, 8))
        result = Memory.wrap(run.engine, np.zeros((4, 8), np.float32))
        arguments = {
            Arg.SRC: Memory.wrap(run.engine, x),
            Arg.WEIGHTS: Memory.wrap(run.engine, w),
            Arg.DST: result,
            Arg.SCRATCHPAD: Memory.allocate(run.engine, desc.scratchpad_md),
            arg_scales(Arg.SRC): Memory.wrap(run.engine, f32([of_src])),
            arg_scales(Arg.WEIGHTS): Memory.wrap(run.engine, columns),
            arg_scales(Arg.DST): Memory.wrap(run.engine, f32([of_dst])),
            arg_zero_points(Arg.SRC): Memory.wrap(run.engine, np.array([zero], np.int32)),
        }
        primitive.execute(run.stream, ExecArgs(desc, arguments))
        sums = (x.astype(np.int64) - zero) @ w.astype(np.int64)
        np.testing.assert_array_equal(result.view(), sums * (of_src / of_dst) * columns)


def test_any_attributes_may_be_set_and_are_refused_when_a_primitive_is_made(
    library: Library, engine: Engine
) -> None:
    """Their setters know no primitive: pooling's descriptor is where a source scale is refused."""
    attributes = Attributes({Arg.SRC: 0})
    attr_of(library, attributes)
    codes = row_major(library, (1, 16, 4, 4), U8)
    window = {"strides": (2, 2), "kernel": (2, 2), "dilations": (0, 0)}
    padding = {"padding_l": (0, 0), "padding_r": (0, 0)}
    halves = MemoryDesc.any(library, (1, 16, 2, 2), U8)
    pooling = {"alg": AlgKind.pooling_max, **window, **padding}
    describe(engine, "pooling", codes, halves, **pooling)
    with pytest.raises(OneDnnError):
        describe(engine, "pooling", codes, halves, attributes=attributes, **pooling)


def test_a_scratchpad_is_described_to_the_user_and_counted_by_the_library(run: Runner) -> None:
    """In the one mode its descriptor has a size and the library allocates nothing, in the other it
    is the other way round.
    """
    shape = (24, 16, 3, 3)
    library, user = (
        convolution(run, shape, U8, U8, Attributes(scratchpad=mode)) for mode in ScratchpadMode
    )
    assert user.scratchpad_md.size == user.scratchpad_size == library.memory_consumption > 0
    assert user.memory_consumption == 0
    assert library.scratchpad_md.dims == ()
    assert library.scratchpad_md.size == library.scratchpad_size == 0


def test_a_primitive_without_a_scratchpad_needs_none(engine: Engine, stream: Stream) -> None:
    """And takes one without bytes."""
    x = f32([[-1.0, 2.0, -3.0, 4.0]])
    source = Memory.wrap(engine, x)
    desc = describe(engine, "eltwise", source.desc, source.desc, alg=AlgKind.eltwise_relu)
    assert desc.scratchpad_size == desc.scratchpad_md.size == 0
    for given in ({}, {Arg.SCRATCHPAD: Memory.allocate(engine, desc.scratchpad_md)}):
        result = Memory.wrap(engine, np.zeros_like(x))
        arguments = ExecArgs(desc, {Arg.SRC: source, Arg.DST: result, **given})
        Primitive(desc).execute(stream, arguments)
        np.testing.assert_array_equal(result.view(), [[0, 2, 0, 4]])


def test_a_scratchpad_is_of_the_one_engine_that_the_cpu_has(run: Runner) -> None:
    """Another handle of that engine is the same one."""
    cpu = 1  # dnnl_cpu
    assert run.engine.library.c["dnnl_engine_get_count"](cpu) == 1
    shape = (24, 16, 3, 3)
    desc = convolution(run, shape, U8, S32, Attributes())
    rng = np.random.default_rng(6)
    x = rng.integers(0, 256, IMAGE).astype(np.uint8)
    w = s8_codes(rng, shape)
    image, packed, result = (
        Memory.allocate(run.engine, md) for md in (desc.src_md(), desc.weights_md(), desc.dst_md())
    )
    run.reorder(Memory.wrap(run.engine, x), image)
    run.reorder(Memory.wrap(run.engine, w), packed)
    scratchpad = Memory.allocate(Engine(run.engine.library), desc.scratchpad_md)
    memories = {Arg.SRC: image, Arg.WEIGHTS: packed, Arg.DST: result, Arg.SCRATCHPAD: scratchpad}
    Primitive(desc).execute(run.stream, ExecArgs(desc, memories))
    sums = convolve(x.astype(np.int64), w[None], (1, 1), (0, 0), (1, 1))
    np.testing.assert_array_equal(run.plain(result), sums)
