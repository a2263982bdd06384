"""Sound plans: one with everything in it, written by hand, and a Hypothesis strategy for chains
with post-ops of every kind.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from onnx import helper
from support.text_strategies import arrays, decisions, names, texts

from fqfuse.ir.decision import (
    Alternative,
    Decision,
    DequantizeFate,
    Fate,
    Half,
    Outcome,
    QuantizeFate,
    Quantizer,
)
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from fqfuse.plan.types import Plan, Step

F32, U8, S8 = DType.F32, DType.U8, DType.S8


def f32(value: float) -> float:
    """The nearest f32 value."""
    return float(np.float32(value))


def foreign_params(
    op: str = "NonZero", metadata: str | None = None, domain: str = ""
) -> dict[str, object]:
    """Parameters of a foreign step as the frontend leaves them."""
    node = helper.make_node(op, ["before"], ["after"], name="original", domain=domain)
    if metadata:
        node.metadata_props.add(key="fqfuse.inputs", value=metadata)
    return {
        "op_type": op,
        "domain": domain,
        "opset": 13,
        "proto": node.SerializeToString(deterministic=True),
    }


def full_plan() -> Plan:
    """int8 convolutions with groups, a sum and many post-ops, a matmul, a binary, a concat,
    standard and foreign steps; two inputs.
    """
    rng = np.random.default_rng(7)

    def codes(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    q = Quantization.of(0.02, 3)
    image = ("N", 4, 6, 6)
    quiet = np.array([[[[1.5]], [[-0.0]], [[np.inf]], [[0.0]]]], np.float32)
    quiet.view(np.uint32)[0, 3] = 0x7FC00123
    conv = {
        "kernel_shape": (3, 3),
        "strides": (1, 1),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
        "group": 1,
        "auto_pad": "NOTSET",
    }
    per_channel = Scale(tuple(map(f32, (0.01, 0.02, 0.03, 0.04))), 1)
    src = {"src": Scale((f32(0.02),))}
    steps = (
        Step(
            "fq in",
            "reorder",
            "Identity",
            (("src", "x"),),
            ("xq",),
            {},
            PrimitiveAttr({"dst": src["src"]}, {"dst": ZeroPoint((3,))}),
            ("FQ 1",),
        ),
        Step(
            "conv",
            "convolution",
            "Conv",
            (("src", "xq"), ("weights", "w1"), ("bias", "b1")),
            ("c1",),
            conv,
            PrimitiveAttr(
                {**src, "weights": per_channel, "dst": Scale((f32(0.1),))},
                {"src": ZeroPoint((3,)), "dst": ZeroPoint((7,))},
                (Eltwise("relu"), Binary("add", "quiet")),
            ),
            ("conv", "relu/1", "add"),
        ),
        Step(
            "depthwise",
            "convolution",
            "Conv",
            (("src", "xq"), ("weights", "w2")),
            ("c2",),
            {**conv, "group": 4},
            PrimitiveAttr(
                {**src, "weights": Scale(per_channel.values, 3), "dst": Scale((f32(0.1),))},
                {"src": ZeroPoint((3,))},
                (Sum("c1", f32(0.1), 7, U8), Eltwise("clip", 0.0, 6.0), Prelu("slope")),
            ),
            ("depthwise",),
        ),
        Step(
            "cat",
            "concat",
            "Concat",
            (("src_0", "c2"), ("src_1", "xq")),
            ("k",),
            {"axis": 1},
            PrimitiveAttr({"src_0": src["src"]}),
        ),
        Step(
            "pool",
            "pooling",
            "MaxPool",
            (("src", "k"),),
            ("p",),
            {
                "kernel_shape": (2, 2),
                "strides": (2, 2),
                "pads": (0, 0, 0, 0),
                "dilations": (1, 1),
                "ceil_mode": 0,
                "auto_pad": "NOTSET",
                "storage_order": 0,
            },
            origin=("pool",),
        ),
        Step(
            "flat", "onnx.Flatten", "Flatten", (("x", "p"),), ("f",), {"axis": 1}, origin=("flat",)
        ),
        Step(
            "fc",
            "matmul",
            "MatMul",
            (("src", "f"), ("weights", "w3")),
            ("y",),
            {},
            PrimitiveAttr({**src, "weights": Scale((f32(0.1), f32(0.2)), 2)}),
            ("fc",),
        ),
        Step(
            "clip", "onnx.Clip", "Clip", (("x", "y"), ("max", "six")), ("z",), {}, origin=("clip",)
        ),
        Step(
            "cast",
            "onnx.Cast",
            "Cast",
            (("x", "y"),),
            ("half",),
            {"to": DType.F16, "saturate": 1, "round_mode": "up"},
        ),
        Step(
            "twice",
            "binary",
            "Add",
            (("src_0", "y"), ("src_1", "y")),
            ("out",),
            {"algorithm": "add"},
            PrimitiveAttr({"src_1": Scale((2.0,))}),
        ),
        Step(
            "where",
            "onnx.NonZero",
            "Onnx",
            (("x_0", "z"),),
            ("nz",),
            foreign_params(),
            origin=("where",),
        ),
        Step(
            "no rank",
            "onnx.NonZero",
            "Onnx",
            (("x_0", "z"),),
            ("nowhere",),
            foreign_params(),
            origin=("where",),
        ),
        Step("tags", "onnx.Identity", "Identity", (("x", "words"),), ("tag",), {}),
    )
    t = TensorType
    values = {
        "x": t(F32, image),
        "unused input": t(DType.S64, ()),
        "xq": t(U8, image, q),
        "c1": t(U8, image, Quantization.of(0.1, 7)),
        "c2": t(S8, image, Quantization.of(0.1)),
        "k": t(S8, ("N", 8, 6, 6)),
        "p": t(S8, ("N", 8, 3, 3)),
        "f": t(S8, ("N", 72)),
        "y": t(F32, ("N", 2)),
        "z": t(F32, ("N", 2)),
        "half": t(DType.F16, ("N", 2)),
        "out": t(F32, ("N", 2)),
        "nz": t(DType.S64, (2, "nonzero of z")),
        "nowhere": t(DType.S64, None),
        "tag": t(DType.STRING, (2,)),
    }
    words = np.empty(2, object)
    words[:] = ["ja", "größer 🦜"]
    constants = {
        "w1": codes(4, 4, 3, 3),
        "b1": rng.normal(size=4).astype(np.float32),
        "quiet": quiet,
        "w2": codes(4, 1, 3, 3),
        "slope": np.full((1, 4, 1, 1), 0.25, np.float32),
        "w3": codes(72, 2),
        "six": np.float32(6).reshape(()),
        "words": words,
        "no one reads it": np.zeros((0, 3), bool),
    }
    fates = (
        Fate("fq", Half.QUANTIZE, QuantizeFate.STANDALONE, "it quantizes an input", step=0),
        Fate("fq", Half.DEQUANTIZE, DequantizeFate.SOURCE_SCALE, "scale of the source", "conv", 1),
        Fate("fq 2", Half.QUANTIZE, QuantizeFate.DST_SCALE, "stores codes", step=1),
        Fate("fq 2", Half.DEQUANTIZE, DequantizeFate.SUM, "", "add", 2),
    )
    weighed = (Alternative("sum", 1.0), Alternative("own step", 0.0, "no"))
    told = (
        Decision("x*A*C = x*(A*C)", "conv", Outcome.FIRED, "folded", alternatives=weighed),
        Decision("sum", "add", Outcome.REFUSED, "no", "1", "2", 'use "x"'),
    )
    quantizers = {
        "fq": Quantizer("fq", "FakeQuantize", "x"),
        "fq 2": Quantizer("fq 2", "QuantizeLinear", "c1"),
    }
    options = {"target": "onednn-v3", "levels": (1, 2.5, None), "fast": True}
    return Plan(
        "everything",
        "onednn-v3",
        ("x", "unused input"),
        ("out", "nz", "tag", "half", "six"),
        values,
        constants,
        steps,
        quantizers,
        fates,
        told,
        options,
    )


def tiny_plan() -> Plan:
    """One convolution, for tests that walk over every byte of the file."""
    attr = PrimitiveAttr({"src": Scale((0.5,)), "weights": Scale((0.25,))}, {}, (Eltwise("relu"),))
    step = Step(
        "c",
        "convolution",
        "Conv",
        (("src", "x"), ("weights", "w")),
        ("y",),
        {"group": 1},
        attr,
        ("c",),
    )
    values = {
        "x": TensorType(U8, (1, 1, 2, 2), Quantization.of(0.5)),
        "y": TensorType(F32, (1, 1, 2, 2)),
    }
    return Plan(
        "tiny", "onednn-v3", ("x",), ("y",), values, {"w": np.ones((1, 1, 1, 1), np.int8)}, (step,)
    )


_SCALES = st.floats(0.0078125, 8.0, width=32)
_FINITE = st.floats(-100, 100, width=32) | st.floats(-100, 100)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A sound plan: int8 and f32 convolutions, matmuls and binaries over [N, C, H, W], with
    post-ops of every kind, on both targets.
    """
    builder = _Builder(draw)
    for _ in range(draw(st.integers(1, 4))):
        draw(
            st.sampled_from(
                [builder.convolution, builder.binary, builder.data_movement, builder.matmul]
            )
        )()
    return builder.plan()


def tame(plan: Plan) -> Plan:
    """The plan with operands and post-ops of ordinary size: what becomes of NaN, infinity and
    numbers near them is the oracle's business.
    """
    rng = np.random.default_rng(0)
    weights = {step.arg("weights") for step in plan.steps}
    constants = {
        name: rng.uniform(0.5, 1.5, data.shape).astype(np.float32)
        if data.dtype == np.float32 and name not in weights
        else data
        for name, data in plan.constants.items()
    }
    steps = tuple(
        replace(
            step, attr=replace(step.attr, post_ops=tuple(map(tame_post_op, step.attr.post_ops)))
        )
        for step in plan.steps
    )
    return replace(plan, constants=constants, steps=steps)


def tame_post_op(op: PostOp) -> PostOp:
    if not isinstance(op, Eltwise):
        return op
    alpha = float(np.float32(np.clip(op.alpha, -4, 4)))
    beta = float(np.float32(max(alpha, np.clip(op.beta, -50, 50))))
    if op.algorithm == "linear" and abs(alpha) < 0.01:
        alpha = 0.5
    return Eltwise(op.algorithm, alpha, beta, 1.0 if op.scale == 1.0 else 0.75)


class _Builder:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.v2 = draw(st.booleans())
        self.odd = iter(dict.fromkeys(draw(st.lists(names, max_size=4))))
        self.count = 0
        self.shape = (draw(st.just("N") | st.integers(1, 3)), draw(st.integers(1, 4)), 3, 2)
        x, xq = self.name(), self.name()
        self.input = x
        self.values = {x: TensorType(F32, self.shape), xq: TensorType(U8, self.shape, self.quant())}
        self.constants: dict[str, np.ndarray] = {}
        point = {"dst": ZeroPoint((draw(st.integers(0, 255)),))}
        scale = Scale((draw(_SCALES),))
        attr = (
            PrimitiveAttr({}, point, (), scale) if self.v2 else PrimitiveAttr({"dst": scale}, point)
        )
        self.steps = [
            Step(
                self.name(),
                "reorder",
                "Identity",
                (("src", x),),
                (xq,),
                {},
                attr,
                tuple(draw(st.lists(names, max_size=2))),
            )
        ]
        self.last = xq
        self.live = [xq]

    def name(self) -> str:
        self.count += 1
        return next((n for n in self.odd if not n.startswith("v")), f"v{self.count}")

    def quant(self) -> Quantization:
        return Quantization.of(
            self.draw(_SCALES), self.draw(st.integers(0, 255) | st.floats(0, 255, width=32))
        )

    def constant(self, data: np.ndarray) -> str:
        name = self.name()
        self.constants[name] = data
        return name

    def operand(self) -> str:
        _, channels, height, width = self.shape
        shape = self.draw(
            st.sampled_from([(1, channels, 1, 1), (1, 1, 1, 1), (1, channels, height, width)])
        )
        bits = self.draw(
            st.lists(
                st.integers(0, 2**32 - 1),
                min_size=int(np.prod(shape)),
                max_size=int(np.prod(shape)),
            )
        )
        return self.constant(np.asarray(bits, np.uint32).view(np.float32).reshape(shape))

    def eltwise(self) -> Eltwise:
        algorithm = self.draw(st.sampled_from(["relu", "linear", "gelu_erf", "round", "clip"]))
        low, high = sorted((self.draw(_FINITE), self.draw(_FINITE)))
        return Eltwise(algorithm, low, high, self.draw(_FINITE) if self.v2 else 1.0)

    def post_ops(
        self, dst: DType, *, depthwise: bool = False, with_sum: bool = True
    ) -> tuple[PostOp, ...]:
        found: list[PostOp] = []
        old = [
            v
            for v in self.live
            if with_sum
            and v != self.last
            and self.values[v].dtype.numpy.itemsize == dst.numpy.itemsize
        ]
        for kind in self.draw(
            st.lists(
                st.sampled_from(["eltwise", "binary", "prelu", "sum", "depthwise"]), max_size=5
            )
        ):
            if kind == "eltwise":
                found.append(self.eltwise())
            elif kind == "binary":
                found.append(
                    Binary(self.draw(st.sampled_from(["add", "mul", "max", "lt"])), self.operand())
                )
            elif kind == "prelu":
                found.append(Prelu(self.operand(), 15))
            elif kind == "sum" and old:
                operand = old.pop(0)
                self.live.remove(operand)
                read_as = self.values[operand].dtype
                point = self.draw(st.integers(-128, 255)) if read_as.is_integer else 0
                found.append(
                    Sum(
                        operand,
                        self.draw(_FINITE),
                        point,
                        read_as if read_as is not dst else self.draw(st.sampled_from([None, dst])),
                    )
                )
                old = []
            elif kind == "depthwise" and depthwise:
                depthwise = False  # no runtime has two
                weights = self.constant(np.ones((self.shape[1], 1, 3, 3), np.int8))
                bias = (
                    self.constant(np.ones(self.shape[1], np.float32))
                    if self.draw(st.booleans())
                    else ""
                )
                found.append(
                    DepthwiseConv(
                        weights,
                        bias,
                        3,
                        1,
                        1,
                        S8,
                        dst,
                        Scale((0.5,) * int(self.shape[1]), 3),
                        Scale((self.draw(_SCALES),)),
                    )
                )
        return tuple(found)

    def output_scales(self, weights: Scale, channels: int) -> Scale:
        """Along the channels, as those of the weights are, or along another dimension."""
        axis = self.draw(st.sampled_from([channels] * 5 + [2, 3]))
        if axis == channels:
            return Scale(weights.values, 1 << axis if weights.mask else 0)
        size = int(self.shape[axis])
        return Scale(tuple(self.draw(st.lists(_SCALES, min_size=size, max_size=size))), 1 << axis)

    def attributes(
        self, dst: DType, weights: Scale, post_ops: tuple[PostOp, ...], channels: int = 1
    ) -> PrimitiveAttr:
        integer = self.values[self.last].dtype.is_integer
        points = {"src": ZeroPoint((self.draw(st.integers(-9, 255)),))} if integer else {}
        if dst.is_integer:
            points["dst"] = ZeroPoint((self.draw(st.integers(-128, 255)),))
        if self.v2:
            return PrimitiveAttr(
                {}, points, post_ops, self.output_scales(weights, channels) if integer else None
            )
        scales = {"src": Scale((self.draw(_SCALES),)), "weights": weights} if integer else {}
        return PrimitiveAttr(
            scales | ({"dst": Scale((self.draw(_SCALES),))} if dst.is_integer else {}),
            points,
            post_ops,
        )

    def add(
        self,
        primitive: str,
        op: str,
        args: list[tuple[str, str]],
        dst: DType,
        params: dict[str, object],
        attr: PrimitiveAttr,
    ) -> None:
        written = self.name()
        self.values[written] = TensorType(dst, self.shape, self.quant() if dst.is_integer else None)
        self.steps.append(
            Step(
                self.name(),
                primitive,
                op,
                tuple(args),
                (written,),
                params,
                attr,
                tuple(self.draw(st.lists(names, max_size=2))),
            )
        )
        self.last = written
        self.live.append(written)

    def dst(self) -> DType:
        return (
            self.draw(st.sampled_from([U8, S8, F32]))
            if self.values[self.last].dtype.is_integer
            else F32
        )

    def convolution(self) -> None:
        dst, channels = self.dst(), int(self.shape[1])
        group = channels if self.draw(st.booleans()) else 1
        element = np.int8 if self.values[self.last].dtype.is_integer else np.float32
        kernel = self.draw(st.sampled_from([1, 3]))
        weights = self.constant(
            np.arange(channels * channels // group * kernel**2)
            .reshape(channels, -1, kernel, kernel)
            .astype(element)
        )
        args = [("src", self.last), ("weights", weights)]
        if self.draw(st.booleans()):
            args.append(("bias", self.constant(np.zeros(channels, np.float32))))
        per_channel = self.draw(st.booleans()) and (not self.v2 or channels > 1)
        values = (
            self.draw(st.lists(_SCALES, min_size=channels, max_size=channels))
            if per_channel
            else [self.draw(_SCALES)]
        )
        scale = Scale(tuple(values), (3 if group > 1 else 1) if per_channel else 0)
        pad = kernel // 2
        params = {
            "kernel_shape": (kernel, kernel),
            "pads": (pad,) * 4,
            "strides": (),
            "dilations": (),
            "group": group,
            "auto_pad": "NOTSET",
        }
        post_ops = self.post_ops(dst, depthwise=kernel == 1 and group == 1)
        self.add("convolution", "Conv", args, dst, params, self.attributes(dst, scale, post_ops))

    def matmul(self) -> None:
        dst, columns = self.dst(), int(self.shape[3])
        element = np.int8 if self.values[self.last].dtype.is_integer else np.float32
        weights = self.constant(np.eye(columns).astype(element))
        scale = Scale(tuple(self.draw(st.lists(_SCALES, min_size=columns, max_size=columns))), 2)
        attr = self.attributes(dst, scale, self.post_ops(dst), channels=3)
        self.add("matmul", "MatMul", [("src", self.last), ("weights", weights)], dst, {}, attr)

    def binary(self) -> None:
        dst = self.draw(st.sampled_from([U8, S8, F32]))
        post_ops = tuple(
            op for op in self.post_ops(dst, with_sum=False) if not isinstance(op, Prelu)
        )
        scales = {"src_1": Scale((self.draw(_SCALES),))} if self.draw(st.booleans()) else {}
        self.add(
            "binary",
            "Add",
            [("src_0", self.last), ("src_1", self.operand())],
            dst,
            {"algorithm": "add"},
            PrimitiveAttr(scales, {}, post_ops),
        )

    def data_movement(self) -> None:
        dtype = self.values[self.last].dtype
        axes = self.constant(np.array([2, 3], np.int64))
        middle = self.name()
        self.values[middle] = TensorType(
            dtype, (self.shape[0], self.shape[1], self.shape[3], self.shape[2])
        )
        self.steps.append(
            Step(
                self.name(),
                "onnx.Transpose",
                "Transpose",
                (("x", self.last),),
                (middle,),
                {"perm": (0, 1, 3, 2)},
            )
        )
        # as if a subgraph read a value that is called `outer` no more
        foreign = foreign_params(metadata="before\nouter")
        self.steps.append(
            Step(
                self.name(),
                "onnx.NonZero",
                "Onnx",
                (("x_0", middle), ("x_1", axes)),
                (self.name(),),
                foreign,
            )
        )
        self.values[self.steps[-1].output] = TensorType(DType.S64, None)
        self.add(
            "onnx.Transpose",
            "Transpose",
            [("x", middle)],
            dtype,
            {"perm": (0, 1, 3, 2)},
            PrimitiveAttr(),
        )

    def plan(self) -> Plan:
        quantizer = Quantizer(
            self.draw(names), self.draw(texts) or "FakeQuantize", self.draw(texts) or "x"
        )
        fates = (
            Fate(quantizer.name, Half.QUANTIZE, QuantizeFate.STANDALONE, self.draw(texts), step=0),
            Fate(
                quantizer.name,
                Half.DEQUANTIZE,
                DequantizeFate.REDUNDANT,
                self.draw(texts),
                self.draw(names),
            ),
        )
        if self.draw(st.booleans()):
            self.constant(self.draw(arrays(byte_strings=False)))
        target = "onednn-v2" if self.v2 else "onednn-v3"
        outputs = tuple(dict.fromkeys([self.last, *self.live[-1:]]))
        return Plan(
            self.draw(texts),
            target,
            (self.input,),
            outputs,
            self.values,
            self.constants,
            tuple(self.steps),
            {quantizer.name: quantizer},
            fates,
            tuple(  # of no step: the verifier holds steps and post-ops to the plan
                replace(decision, step=None, post_ops=())
                for decision in self.draw(st.lists(decisions(), max_size=2))
            ),
            {"target": target, "x": self.draw(st.none() | _FINITE)},
        )
