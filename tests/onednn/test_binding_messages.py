"""What messages say of each primitive: kind, parameters, operands, attributes, and the place in the
user's model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fqfuse.onednn.attributes import Attributes, PRelu
from fqfuse.onednn.capi import PRIMITIVES, Unimplemented
from fqfuse.onednn.enums import AlgKind, Arg, DataType, NormalizationFlags, RnnDirection
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe

WINDOW = {"strides": (1, 2), "dilations": (0, 1), "padding_l": (1, 0), "padding_r": (2, 3)}
WINDOW_TEXT = "strides=[1, 2] {}dilations=[0, 1] padding=[1, 0]..[2, 3]"
MATRICES = "src=f32[4,8]:ab dst=f32[4,8]:ab"
MAPS = "src=f32[1,8,5,5]:acdb dst=f32[1,8,5,5]:acdb"

TEXTS = {
    "convolution": WINDOW_TEXT.format("")
    + " src=f32[1,8,5,5]:any weights=f32[8,8,3,3]:any bias=f32[8]:any dst=f32[1,8,6,2]:any",
    "deconvolution": WINDOW_TEXT.format("")
    + " src=f32[1,8,5,5]:any weights=f32[8,8,3,3]:any dst=f32[1,8,4,10]:any",
    "matmul": "src=f32[4,8]:ab weights=f32[8,3]:any bias=f32[1,3]:any dst=f32[4,3]:any",
    "pooling": "pooling_max "
    + WINDOW_TEXT.format("kernel=[3, 3] ")
    + " src=f32[1,8,5,5]:acdb dst=f32[1,8,6,2]:any",
    "eltwise": f"eltwise_clip(-1.5, 2) {MATRICES}",
    "binary": "binary_add src0=f32[4,8]:ab src1=f32[1,8]:ab dst=f32[4,8]:ab",
    "prelu": "src=f32[4,8]:ab weights=f32[1,8]:ab dst=f32[4,8]:ab",
    "inner_product": "src=f32[4,8]:ab weights=f32[3,8]:any bias=f32[3]:any dst=f32[4,3]:any",
    "sum": "scales=[0.5, 2.0] src0=f32[4,8]:ab src1=f32[4,8]:ab dst=f32[4,8]:ab",
    "concat": "axis=1 src0=f32[4,8]:ab src1=f32[4,3]:ab dst=f32[4,11]:ab",
    "reorder": MATRICES,
    "shuffle": f"axis=1 group_size=4 {MAPS}",
    "resampling": "resampling_linear src=f32[1,8,5,5]:acdb dst=f32[1,8,9,9]:acdb",
    "reduction": "reduction_mean src=f32[4,8]:ab dst=f32[4,1]:ab",
    "softmax": f"softmax_accurate axis=1 {MATRICES}",
    "layer_normalization": f"epsilon=1e-05 flags=6 {MATRICES}",
    "batch_normalization": f"epsilon=0.001 flags=1 {MAPS}",
    "lstm": "concat src_layer=f32[5,2,3]:abc src_iter=f32[1,2,2,6]:abcd src_iter_c=f32[1,2,2,6]:abcd "
    "weights_layer=f32[1,2,3,4,6]:any weights_iter=f32[1,2,6,4,6]:any bias=f32[1,2,4,6]:abcd "
    "dst_layer=f32[5,2,12]:abc dst_iter=f32[1,2,2,6]:abcd dst_iter_c=f32[1,2,2,6]:abcd",
    **{
        kind: "left2right src_layer=f32[5,2,3]:abc attention=f32[5,2,1]:abc weights_layer=f32[1,1,3,3,6]:any "
        f"weights_iter=f32[1,1,6,3,6]:any bias=f32[1,1,{biases},6]:abcd dst_layer=f32[5,2,6]:abc"
        for kind, biases in (("augru", 3), ("lbr_augru", 4))
    },
    **{
        kind: f"{way}left2right src_layer=f32[5,2,3]:abc weights_layer=f32[1,1,3,{gates},6]:any "
        f"weights_iter=f32[1,1,6,{gates},6]:any bias=f32[1,1,{biases},6]:abcd dst_layer=f32[5,2,6]:abc"
        for kind, way, gates, biases in (
            ("gru", "", 3, 3),
            ("lbr_gru", "", 3, 4),
            ("vanilla_rnn", "eltwise_relu ", 1, 1),
        )
    },
    "lrn": f"lrn_across_channels local_size=5 alpha=0.3 beta=0.75 k=1.5 {MAPS}",
}


def requests(engine: Engine) -> Mapping[str, Callable[[], PrimitiveDesc]]:
    def chosen(*dims: int) -> MemoryDesc:
        return MemoryDesc.any(engine.library, dims, DataType.f32)

    def plain(*dims: int) -> MemoryDesc:
        return row_major(engine.library, dims, DataType.f32)

    def last(*dims: int) -> MemoryDesc:
        return channels_last(engine.library, dims, DataType.f32)

    image, kernel, x, maps = chosen(1, 8, 5, 5), chosen(8, 8, 3, 3), plain(4, 8), last(1, 8, 5, 5)
    steps, state = plain(5, 2, 3), plain(1, 2, 2, 6)

    def layer(
        kind: str, gates: int, biases: int, *attention: MemoryDesc, **parameters: Any
    ) -> PrimitiveDesc:
        return describe(
            engine,
            kind,
            steps,
            None,
            *attention,
            chosen(1, 1, 3, gates, 6),
            chosen(1, 1, 6, gates, 6),
            plain(1, 1, biases, 6),
            plain(5, 2, 6),
            None,
            direction=RnnDirection.left2right,
            **parameters,
        )

    both = NormalizationFlags.use_scale | NormalizationFlags.use_shift
    return {
        "convolution": lambda: describe(
            engine, "convolution", image, kernel, chosen(8), chosen(1, 8, 6, 2), **WINDOW
        ),
        "deconvolution": lambda: describe(
            engine, "deconvolution", image, kernel, None, chosen(1, 8, 4, 10), **WINDOW
        ),
        "matmul": lambda: describe(engine, "matmul", x, chosen(8, 3), chosen(1, 3), chosen(4, 3)),
        "pooling": lambda: describe(
            engine,
            "pooling",
            maps,
            chosen(1, 8, 6, 2),
            alg=AlgKind.pooling_max,
            kernel=(3, 3),
            **WINDOW,
        ),
        "eltwise": lambda: describe(
            engine, "eltwise", x, x, alg=AlgKind.eltwise_clip, alpha=-1.5, beta=2
        ),
        "binary": lambda: describe(engine, "binary", x, plain(1, 8), x, alg=AlgKind.binary_add),
        "prelu": lambda: describe(engine, "prelu", x, plain(1, 8), x),
        "inner_product": lambda: describe(
            engine, "inner_product", x, chosen(3, 8), chosen(3), chosen(4, 3)
        ),
        "sum": lambda: describe(engine, "sum", x, x, x, scales=(0.5, 2.0)),
        "concat": lambda: describe(engine, "concat", *[x, plain(4, 3)], plain(4, 11), axis=1),
        "reorder": lambda: describe(engine, "reorder", x, x),
        "shuffle": lambda: describe(engine, "shuffle", maps, maps, axis=1, group_size=4),
        "resampling": lambda: describe(
            engine, "resampling", maps, last(1, 8, 9, 9), alg=AlgKind.resampling_linear
        ),
        "reduction": lambda: describe(
            engine, "reduction", x, plain(4, 1), alg=AlgKind.reduction_mean
        ),
        "softmax": lambda: describe(engine, "softmax", x, x, alg=AlgKind.softmax_accurate, axis=1),
        "layer_normalization": lambda: describe(
            engine, "layer_normalization", x, x, epsilon=1e-5, flags=both
        ),
        "batch_normalization": lambda: describe(
            engine,
            "batch_normalization",
            maps,
            maps,
            epsilon=1e-3,
            flags=NormalizationFlags.use_global_stats,
        ),
        "lstm": lambda: describe(
            engine,
            "lstm",
            steps,
            state,
            state,
            chosen(1, 2, 3, 4, 6),
            chosen(1, 2, 6, 4, 6),
            None,
            None,
            plain(1, 2, 4, 6),
            plain(5, 2, 12),
            state,
            state,
            direction=RnnDirection.concat,
        ),
        "gru": lambda: layer("gru", 3, 3),
        "augru": lambda: layer("augru", 3, 3, plain(5, 2, 1)),
        "lbr_augru": lambda: layer("lbr_augru", 3, 4, plain(5, 2, 1)),
        "lbr_gru": lambda: layer("lbr_gru", 3, 4),
        "vanilla_rnn": lambda: layer("vanilla_rnn", 1, 1, alg=AlgKind.eltwise_relu),
        "lrn": lambda: describe(
            engine, "lrn", maps, maps, local_size=5, alpha=0.3, beta=0.75, k=1.5
        ),
    }


@pytest.mark.parametrize("kind", PRIMITIVES)
def test_the_text_of_a_primitive(engine: Engine, kind: str) -> None:
    desc = requests(engine)[kind]()
    assert desc.kind == kind
    assert str(desc.request) == f"{kind} {TEXTS[kind]}"


def test_a_refusal_says_what_was_asked_for_and_where(engine: Engine) -> None:
    x = row_major(engine.library, (4, 8), DataType.f32)
    with pytest.raises(Unimplemented) as caught:
        describe(
            engine,
            "reorder",
            x,
            x,
            attributes=Attributes({Arg.SRC: 0}, post_ops=(PRelu(2),)),
            origin="Quantize_7",
        )
    assert str(caught.value) == (
        f"oneDNN: reorder {MATRICES} scales={{src: common}} post_ops=[prelu(mask=2)] failed with unimplemented (3): "
        "no implementation for this CPU takes this combination of shapes, data types and attributes\n  where: Quantize_7"
    )
