"""One step of a plan on the real oneDNN: the oracle of the kernels. Layouts are left to the
library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from support.binding_order import Runner

from fqfuse.ir.types import DType
from fqfuse.onednn.attributes import Attributes, Binary, Depthwise, Eltwise, PostOp, PRelu, Sum
from fqfuse.onednn.enums import (
    AlgKind,
    Arg,
    DataType,
    NormalizationFlags,
    arg_multiple_src,
    arg_post_op,
    arg_scales,
    arg_zero_points,
)
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe
from fqfuse.plan import attributes as planned
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.numpy_runtime import run_step

TYPES = {
    DType.U8: DataType.u8,
    DType.S8: DataType.s8,
    DType.S32: DataType.s32,
    DType.F32: DataType.f32,
}
ROLES = {
    "src": Arg.SRC,
    "weights": Arg.WEIGHTS,
    "dst": Arg.DST,
    "src_0": Arg.SRC,
    "src_1": Arg.SRC_1,
}


@dataclass
class Oracle:
    """Runs steps on the library."""

    run: Runner

    def __call__(
        self, plan: Plan, step: Step, live: Mapping[str, np.ndarray], shape: tuple[int, ...]
    ) -> tuple[np.ndarray, PrimitiveDesc]:
        """The destination of shape `shape`, and the descriptor that made it."""
        return _Request(self.run, plan, step, {**plan.constants, **live}, shape).answer()

    def describe(
        self, plan: Plan, step: Step, live: Mapping[str, np.ndarray], shape: tuple[int, ...]
    ) -> PrimitiveDesc:
        """The descriptor that a call would run."""
        return _Request(self.run, plan, step, {**plan.constants, **live}, shape).described()

    def compare(
        self,
        plan: Plan,
        step: Step,
        live: Mapping[str, np.ndarray],
        *,
        lsb: int = 0,
        threads: int = 2,
    ) -> PrimitiveDesc:
        """Both runtimes on the same inputs: equal bytes, or at most `lsb` apart."""
        (mine,) = run_step(plan, step, live, threads=threads)
        real, desc = self(plan, step, live, mine.shape)
        assert mine.dtype == real.dtype
        if lsb:
            apart = np.abs(mine.astype(np.int64) - real.astype(np.int64)).max(initial=0)
            assert apart <= lsb, f"{apart} LSB apart: {desc} by {desc.impl_info}"
        else:
            np.testing.assert_array_equal(
                mine.view(np.uint8), real.view(np.uint8), err_msg=f"{desc} by {desc.impl_info}"
            )
        return desc


class _Request:
    def __init__(
        self,
        run: Runner,
        plan: Plan,
        step: Step,
        data: Mapping[str, np.ndarray],
        shape: tuple[int, ...],
    ) -> None:
        self.run, self.plan, self.step, self.data, self.shape = run, plan, step, data, shape
        self.library = run.engine.library
        self.arguments: dict[int, np.ndarray] = {}
        self.old: np.ndarray | None = None
        self.masks: dict[int, int] = {}
        self.dst = TYPES[plan.type(step.output).dtype]

    def answer(self) -> tuple[np.ndarray, PrimitiveDesc]:
        desc = self.described()
        return self.run(desc, self.arguments, self.old), desc

    def described(self) -> PrimitiveDesc:
        desc: PrimitiveDesc = getattr(self, "_" + self.step.primitive)()
        return desc

    # -- pieces ------------------------------------------------------------------------------------

    def arg(self, role: str) -> np.ndarray | None:
        name = self.step.arg(role)
        return None if name is None else self.data[name]

    def ints(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.step.params.get(name) or default)

    def any(self, array: np.ndarray) -> MemoryDesc:
        return MemoryDesc.any(self.library, array.shape, TYPES[DType.from_numpy(array.dtype)])

    def last(self, shape: tuple[int, ...], dtype: DataType) -> MemoryDesc:
        """Channels last, as convolutions leave it."""
        return channels_last(self.library, shape, dtype)

    def last_of(self, array: np.ndarray) -> MemoryDesc:
        return self.last(array.shape, TYPES[DType.from_numpy(array.dtype)])

    def result(self, *, chosen: bool = True) -> MemoryDesc:
        return (
            MemoryDesc.any(self.library, self.shape, self.dst)
            if chosen
            else self.last(self.shape, self.dst)
        )

    def attributes(self) -> Attributes:
        attr = self.step.attr
        scales, zero_points = {}, {}
        for role, scale in attr.scales.items():
            arg = (
                arg_multiple_src(int(role.removeprefix("src_")))
                if self.step.primitive == "concat"
                else ROLES[role]
            )
            scales[arg] = scale.mask
            self.arguments[arg_scales(arg)] = scale.array
        for role, zero in attr.zero_points.items():
            zero_points[ROLES[role]] = zero.mask
            self.arguments[arg_zero_points(ROLES[role])] = zero.array
        post_ops = tuple(self.post_op(i, op) for i, op in enumerate(attr.post_ops))
        return Attributes(scales | self.masks, zero_points, post_ops)

    def post_op(self, index: int, op: planned.PostOp) -> PostOp:
        if isinstance(op, planned.Eltwise):
            return Eltwise(AlgKind["eltwise_" + op.algorithm], op.alpha, op.beta)
        if isinstance(op, planned.DepthwiseConv):
            return self.depthwise(op)
        operand = self.data[op.operand]
        if isinstance(op, planned.Binary):
            self.arguments[arg_post_op(index, Arg.SRC_1)] = operand
            type_ = TYPES[DType.from_numpy(operand.dtype)]
            # a product of matrices, batched too, is row-major, and so is what it reads
            plain = self.step.primitive == "matmul"
            made = row_major(self.library, operand.shape, type_) if plain else self.last_of(operand)
            return Binary(AlgKind["binary_" + op.algorithm], made)
        if isinstance(op, planned.Prelu):
            self.arguments[arg_post_op(index, Arg.WEIGHTS)] = operand
            return PRelu(op.mask)
        assert isinstance(op, planned.Sum)
        self.old = operand.view(self.plan.type(self.step.output).dtype.numpy)
        return Sum(op.scale, op.zero_point, DataType.undef if op.dtype is None else TYPES[op.dtype])

    def depthwise(self, op: planned.DepthwiseConv) -> PostOp:
        weights = Arg.ATTR_POST_OP_DW | Arg.WEIGHTS
        self.arguments |= {
            weights: self.data[op.weights][:, None],
            Arg.ATTR_POST_OP_DW | Arg.BIAS: self.data[op.bias],
        }
        self.arguments |= {
            arg_scales(weights): op.weights_scale.array,
            arg_scales(Arg.ATTR_POST_OP_DW | Arg.DST): op.dst_scale.array,
        }
        self.masks |= {weights: op.weights_scale.mask, Arg.ATTR_POST_OP_DW | Arg.DST: 0}
        # the library wants the 1x1 result's
        self.shape = (
            self.shape[0],
            self.shape[1],
            *self.arg("src").shape[2:],
        )
        return Depthwise(
            TYPES[op.weights_dtype],
            DataType.f32,
            TYPES[op.dst_dtype],
            op.kernel,
            op.stride,
            op.padding,
        )

    # -- primitives --------------------------------------------------------------------------------

    def _window(self, spatial: int, weights: np.ndarray | None) -> dict[str, tuple[int, ...]]:
        pads = self.ints("pads", (0,) * (2 * spatial))
        found = {
            "strides": self.ints("strides", (1,) * spatial),
            "dilations": tuple(d - 1 for d in self.ints("dilations", (1,) * spatial)),
            "padding_l": pads[:spatial],
            "padding_r": pads[spatial:],
        }
        if weights is None:
            found["kernel"] = self.ints("kernel_shape", ())
        return found

    def _convolution(self) -> PrimitiveDesc:
        return self._product("convolution", transposed=False)

    def _deconvolution(self) -> PrimitiveDesc:
        return self._product("deconvolution", transposed=True)

    def _product(self, kind: str, *, transposed: bool) -> PrimitiveDesc:
        x, w, b = self.arg("src"), self.arg("weights"), self.arg("bias")
        groups = self.step.params.get("group", 1)
        if transposed:  # ONNX [IC, OC/g, k...] -> [g, OC/g, IC/g, k...]
            w = np.swapaxes(w.reshape(groups, w.shape[0] // groups, *w.shape[1:]), 1, 2)
        else:
            w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        if groups == 1:
            w = w[0]
        self.arguments |= {Arg.SRC: x, Arg.WEIGHTS: np.ascontiguousarray(w)}
        if b is not None:
            self.arguments[Arg.BIAS] = b
        window = self._window(x.ndim - 2, w)
        bias = None if b is None else self.any(b)
        attributes = self.attributes()  # a depthwise post-op changes what the destination is
        return describe(
            self.run.engine,
            kind,
            self.any(x),
            self.any(w),
            bias,
            self.result(),
            **window,
            attributes=attributes,
        )

    def _matmul(self) -> PrimitiveDesc:
        x, w, b = self.arg("src"), self.arg("weights"), self.arg("bias")
        self.arguments |= {Arg.SRC: x, Arg.WEIGHTS: w}
        bias = None
        if b is not None:
            b = b.reshape((1,) * (len(self.shape) - b.ndim) + b.shape)
            self.arguments[Arg.BIAS] = b
            bias = self.any(b)
        plain = MemoryDesc.like(self.library, x)
        dst = row_major(self.library, self.shape, self.dst)
        return describe(
            self.run.engine, "matmul", plain, self.any(w), bias, dst, attributes=self.attributes()
        )

    def _pooling(self) -> PrimitiveDesc:
        x = self.arg("src")
        self.arguments[Arg.SRC] = x
        window = self._window(x.ndim - 2, None)
        if self.step.op.startswith("Global"):
            window["kernel"] = x.shape[2:]
        include = self.step.params.get("count_include_pad", 0)
        alg = (
            "pooling_max"
            if "Max" in self.step.op
            else f"pooling_avg_{'include' if include else 'exclude'}_padding"
        )
        return describe(
            self.run.engine,
            "pooling",
            self.last_of(x),
            self.result(),
            alg=AlgKind[alg],
            **window,
            attributes=self.attributes(),
        )

    def _binary(self) -> PrimitiveDesc:
        a, b = (
            v.reshape((1,) * (len(self.shape) - v.ndim) + v.shape)
            for v in (self.arg("src_0"), self.arg("src_1"))
        )
        self.arguments |= {Arg.SRC: a, Arg.SRC_1: b}
        alg = AlgKind["binary_" + self.step.params["algorithm"]]
        return describe(
            self.run.engine,
            "binary",
            self.last_of(a),
            self.last_of(b),
            self.result(),
            alg=alg,
            attributes=self.attributes(),
        )

    def _eltwise(self) -> PrimitiveDesc:
        x, params = self.arg("src"), self.step.params
        self.arguments[Arg.SRC] = x
        alg = AlgKind["eltwise_" + params["algorithm"]]
        alpha, beta = params.get("alpha", 0.0), params.get("beta", 0.0)
        return describe(
            self.run.engine,
            "eltwise",
            self.last_of(x),
            self.last(self.shape, self.dst),
            alg=alg,
            alpha=alpha,
            beta=beta,
            attributes=self.attributes(),
        )

    def _reorder(self) -> PrimitiveDesc:
        x = self.arg("src")
        self.arguments[Arg.SRC] = x
        chosen = self.last if self.step.params.get("layout") == "last" else self._plain
        return describe(
            self.run.engine,
            "reorder",
            chosen(x.shape, TYPES[DType.from_numpy(x.dtype)]),
            chosen(self.shape, self.dst),
            attributes=self.attributes(),
        )

    def _plain(self, shape: tuple[int, ...], dtype: DataType) -> MemoryDesc:
        return row_major(self.library, shape, dtype)

    def _softmax(self) -> PrimitiveDesc:
        x = self.arg("src")
        self.arguments[Arg.SRC] = x
        axis = self.step.params.get("axis", -1) % x.ndim
        alg = AlgKind.softmax_log if self.step.op == "LogSoftmax" else AlgKind.softmax_accurate
        plain = MemoryDesc.like(self.library, x)
        return describe(
            self.run.engine,
            "softmax",
            plain,
            self._plain(self.shape, self.dst),
            axis=axis,
            alg=alg,
            attributes=self.attributes(),
        )

    def _layer_normalization(self) -> PrimitiveDesc:
        x, epsilon = self.arg("src"), self.step.params.get("epsilon", 1e-5)
        self.arguments |= {Arg.SRC: x, Arg.SCALE: self.arg("scale"), Arg.SHIFT: self.arg("bias")}
        flags = NormalizationFlags.use_scale | NormalizationFlags.use_shift
        dst = self._plain(self.shape, self.dst)
        plain = MemoryDesc.like(self.library, x)
        return describe(
            self.run.engine,
            "layer_normalization",
            plain,
            dst,
            epsilon=epsilon,
            flags=flags,
            attributes=self.attributes(),
        )

    def _reduction(self) -> PrimitiveDesc:
        x = self.arg("src")
        self.arguments[Arg.SRC] = x
        alg = AlgKind["reduction_" + self.step.op.removeprefix("Reduce").lower()]
        return describe(
            self.run.engine,
            "reduction",
            MemoryDesc.like(self.library, x),
            self._plain(self.shape, self.dst),
            alg=alg,
            attributes=self.attributes(),
        )

    def _resampling(self) -> PrimitiveDesc:
        x = self.arg("src")
        self.arguments[Arg.SRC] = x
        alg = AlgKind["resampling_" + self.step.params["mode"]]
        return describe(
            self.run.engine,
            "resampling",
            self.last_of(x),
            self.last(self.shape, self.dst),
            alg=alg,
            attributes=self.attributes(),
        )

    def _prelu(self) -> PrimitiveDesc:
        x, slope = self.arg("src"), self.arg("slope")
        self.arguments |= {Arg.SRC: x, Arg.WEIGHTS: slope}
        return describe(
            self.run.engine,
            "prelu",
            self.last_of(x),
            self.any(slope),
            self.last(self.shape, self.dst),
            attributes=self.attributes(),
        )

    def _lrn(self) -> PrimitiveDesc:
        x, params = self.arg("src"), self.step.params
        self.arguments[Arg.SRC] = x
        values = {
            "local_size": params["size"],
            "alpha": params["alpha"],
            "beta": params["beta"],
            "k": params["bias"],
        }
        return describe(
            self.run.engine,
            "lrn",
            self.last_of(x),
            self.last(self.shape, self.dst),
            **values,
            attributes=self.attributes(),
        )

    def _batch_normalization(self) -> PrimitiveDesc:
        x = self.arg("src")
        self.arguments |= {Arg.SRC: x, Arg.SCALE: self.arg("scale"), Arg.SHIFT: self.arg("bias")}
        self.arguments |= {Arg.MEAN: self.arg("mean"), Arg.VARIANCE: self.arg("var")}
        flags = (
            NormalizationFlags.use_global_stats
            | NormalizationFlags.use_scale
            | NormalizationFlags.use_shift
        )
        epsilon = self.step.params.get("epsilon", 1e-5)
        dst = self.last(self.shape, self.dst)
        return describe(
            self.run.engine,
            "batch_normalization",
            self.last_of(x),
            dst,
            epsilon=epsilon,
            flags=flags,
            attributes=self.attributes(),
        )

    def _concat(self) -> PrimitiveDesc:
        sources = []
        while (array := self.arg(f"src_{len(sources)}")) is not None:
            self.arguments[arg_multiple_src(len(sources))] = array
            sources.append(self.last_of(array))
        return describe(
            self.run.engine,
            "concat",
            *sources,
            self.last(self.shape, self.dst),
            axis=self.step.params["axis"],
            attributes=self.attributes(),
        )
