"""How a dialect says what its nodes mean: as nodes of ONNX's own domain, imported one after another
in the node's place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto

from ...errors import UnsupportedOp
from ...ir.element_types import ELEMENT_TYPES
from ...ir.ops import dims
from ...ir.ops.rows import integers
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..importer import Handler, Importer
from ..nodes import OnnxNode, signature

RULE: Final = "import_quantize_dequantize"
"""Name of the rule in decisions: from codes, scales and zero points to Quantize and Dequantize."""

FOLD_HINT: Final = "make scale and zero point initializers: static quantization and constant folding before export do"

_TYPES: Final[dict[int, tuple[type, ...]]] = {
    AttributeProto.INT: (int,),
    AttributeProto.INTS: (int,),
    AttributeProto.FLOAT: (int, float),
    AttributeProto.FLOATS: (int, float),
    AttributeProto.STRING: (str,),
}
_LISTS: Final = frozenset({AttributeProto.INTS, AttributeProto.FLOATS})


@dataclass(frozen=True)
class Derived:
    """Writes what a dialect's node means."""

    ctx: Importer
    node: OnnxNode

    def input(self, index: int) -> str:
        """Input `index` of the node, '' when it is absent."""
        return self.node.input(index)

    def real(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        *,
        role: str = "",
        output: str = "",
        version: int = 0,
    ) -> str:
        """Imports an op of ONNX's own in the node's place; its output."""
        made = self.ctx.derived(self.node, role, op, inputs, attrs, output=output, version=version)
        _check_kinds(made)
        self.ctx.take(made)
        return made.output(0)

    def decoded(self, first: int, role: str, *, axis: int | None = None) -> str:
        """The real value of the codes that input `first` holds; their scale and zero point are the
        two behind it.
        """
        codes, scale, zero_point = (self.input(first + i) for i in range(3))
        return self.dequantized(codes, scale, zero_point, role, axis=axis)

    def dequantized(
        self, codes: str, scale: str, zero_point: str, role: str, *, axis: int | None = None
    ) -> str:
        """The real value of codes: a DequantizeLinear in the node's place, one for all nodes that
        read the same.
        """
        ctx, node = self.ctx, self.node
        if not codes or not scale:
            raise node.invalid(f"{node.op} lacks {'a tensor' if not codes else 'a scale'} ({role})")
        key = (codes, scale, zero_point, str(axis))
        if key not in ctx.decoded:
            ctx.quantizers_of_codes(node, codes)
            attrs = {} if axis is None else {"axis": axis}
            inputs = [name for name in (codes, scale, zero_point) if name]
            made = ctx.derived(node, role, "DequantizeLinear", inputs, attrs)
            ctx.take(made)
            ctx.decoded[key] = made.output(0)
        return ctx.decoded[key]

    def quantized(
        self,
        value: str,
        first: int,
        *,
        like: int = 0,
        perm: Sequence[int] = (),
        axis: int | None = None,
    ) -> None:
        """The codes of a real value, as the node's output: a QuantizeLinear in its place, whose
        scale is input `first`, and the zero point the one behind it. The quantizer is called like
        the node.

        Without a zero point the codes are of the type that the codes of input `like` have; `perm`:
        the output are the codes in this order of dimensions; `axis`: of scales that are a vector.
        """
        ctx, node = self.ctx, self.node
        scale, zero_point = self.input(first), self.input(first + 1)
        if not scale:
            raise node.invalid(f"{node.op} lacks the scale of its output")
        attrs = (
            {} if zero_point else {"output_dtype": ELEMENT_TYPES[ctx.type(self.input(like)).dtype]}
        )
        attrs |= {} if axis is None else {"axis": axis}
        inputs = [name for name in (value, scale, zero_point) if name]
        codes = ctx.fresh(f"{node.name}.codes") if perm else node.output(0)
        made = ctx.derived(node, "quantize", "QuantizeLinear", inputs, attrs, output=codes)
        name = ctx.add_quantizer(node, node.op, node.output(0))
        ctx.codes[codes] = (name,)
        ctx.take(made)
        if perm:
            turned = {"perm": tuple(perm)}
            self.real("Transpose", [codes], turned, role="turned", output=node.output(0))

    def turned_from(self, value: str) -> tuple[str, tuple[int, ...]]:
        """What a value is the transposed form of, and in which order of dimensions; the value itself
        and no order where it is none.
        """
        node = self.ctx.graph.producer(value, "Transpose")
        if node is None:
            return value, ()
        backwards = range(len(self.ctx.type(value).shape or ()))[::-1]
        return node.input, integers(node.attrs, "perm") or tuple(backwards)

    def turned(self, value: str, perm: Sequence[int], role: str) -> str:
        """The value in this order of dimensions: what it is the transposed form of, where that is it."""
        source, order = self.turned_from(value)
        if tuple(order[axis] for axis in perm if order) == tuple(range(len(perm))):
            return source
        return self.real("Transpose", [value], {"perm": tuple(perm)}, role=role)

    def once(self, key: Sequence[object], make: Callable[[], str]) -> str:
        """A value that all nodes with the same key share, made by the first of them.

        `key`: all that the value depends on; a size in it that is not known makes it the node's own.
        """
        texts = tuple(map(str, key))
        if dims.UNKNOWN in texts:
            return make()
        if texts not in self.ctx.decoded:
            self.ctx.decoded[texts] = make()
        return self.ctx.decoded[texts]

    def sizes(self, value: str, *axes: int) -> list[object]:
        """Sizes of dimensions, as a key has them; '' for those of no value, unknown where there is no such dimension."""
        if not value:
            return [""] * len(axes)
        known = dict(enumerate(self.ctx.type(value).shape or ()))
        return [known.get(axis, dims.UNKNOWN) for axis in axes]

    def data(self, value: str, role: str) -> Array:
        """The data of an input that must be constant.

        Raises:
            UnsupportedOp: it is known at run time only.
        """
        data = self.ctx.constant(value)
        if data is None:
            hint = (
                "make it an initializer: static quantization and constant folding before export do"
            )
            raise UnsupportedOp(
                f"the {role} of {self.node.op}, {value!r}, is known at run time only",
                where=self.node.where,
                hint=hint,
            )
        return data

    def floats(self, value: str, role: str) -> npt.NDArray[np.float32]:
        """The same in f32."""
        return np.asarray(self.data(value, role), np.float32)

    def constant(self, role: str, data: npt.ArrayLike) -> str:
        """A new f32 constant; its name."""
        return self.ctx.add_constant(self.node, role, data, DType.F32)

    def integers(self, role: str, data: npt.ArrayLike) -> str:
        """A new s64 constant; its name."""
        return self.ctx.add_constant(self.node, role, data, DType.S64)

    def pieces(
        self, value: str, axis: int, *, count: int = 0, sizes: Sequence[int] = (), given: str = ""
    ) -> tuple[str, ...]:
        """The pieces of a value along an axis: `count` equal ones, or those of the given sizes, or as
        many of sizes that the value `given` holds.
        """
        ctx, node = self.ctx, self.node
        inputs, attrs = [value], {"axis": axis}
        if sizes or given:
            inputs.append(given or self.integers("sizes", sizes))
        else:
            attrs["num_outputs"] = count
        names = tuple(ctx.fresh(f"{node.name}.piece{i}") for i in range(count or len(sizes)))
        made = ctx.derived(node, "pieces", "Split", inputs, attrs)
        made.proto.output[:] = names
        ctx.take(made.rewritten(outputs=names))
        return names

    def stacked(self, values: Sequence[str], axis: int = 0, *, output: str = "") -> str:
        """The values, all of one shape, along a new axis."""
        place = self.integers("new axis", [axis])
        rows = [
            self.real("Unsqueeze", [value, place], role=f"stacked {i}")
            for i, value in enumerate(values)
        ]
        return self.real(
            "Concat", rows, {"axis": axis}, role="" if output else "joined", output=output
        )

    def product_of_scales(self, scales: Sequence[str], factor: float = 1.0) -> str:
        """The product of scales, in f32, which is what an int32 bias is quantized with: a new constant, or
        where one is known at run time only, a value.
        """
        if any(self.ctx.constant(name) is None for name in scales):
            numbers = [self.constant("factor", np.float32(factor))] if factor != 1 else []
            first, *others = [*scales, *numbers]
            for name in others:
                first = self.real("Mul", [first, name], role="bias_scale")
            return first
        product: npt.NDArray[np.float32] = np.asarray(factor, np.float32)
        for name in scales:
            product = product * self.floats(name, "scale").reshape(-1)
        return self.constant(
            "bias_scale", product.reshape(-1) if product.size != 1 else product.reshape(())
        )


def written(run: Callable[[Derived], object]) -> Handler:
    """The handler that says by `run` what a node means, and is described as it is."""

    @wraps(run)
    def handler(ctx: Importer, node: OnnxNode) -> object:
        return run(Derived(ctx, node))

    return handler


def _check_kinds(made: OnnxNode) -> None:
    """The attributes come from a domain that has no schema here: they must be of the kinds that the
    op itself asks for.
    """
    found = signature(made.op, made.version, made.domain)
    for name, value in made.attrs.items():
        kind = found.attrs[name][0] if found and name in found.attrs else None
        types = _TYPES.get(kind or 0, (object,))
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) != (kind in _LISTS) or not all(
            isinstance(v, types) for v in values
        ):
            raise made.invalid(f"the attribute {name!r} has the wrong kind: {value!r}")
