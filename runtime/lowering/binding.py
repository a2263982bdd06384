"""Binds a plan for concrete shapes: walks the steps in order, gives each to its lowering, and
carries layouts from step to step.

A lowering makes a primitive descriptor, asks `objection` whether it will do, and `commit`s it; what
it raises `NotLowered` for runs on NumPy. A value has one tensor for each layout that a reader asked
for; a reorder makes the further ones, once each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from ...ir.ops.spec import Array
from ...onednn.capi import OneDnnError
from ...onednn.defects import defect_of
from ...onednn.enums import AlgKind, Arg, CpuIsa, DataType
from ...onednn.layouts import channels_last, relaid, row_major, spaced, viewed
from ...onednn.library import Engine
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc, describe
from ...onednn.saturation import LARGEST, cannot_saturate, may_saturate
from ...plan.saturation import Codes, codes_of_plan
from ...plan.shapes import StaticShape, settled_results
from ...plan.summation import gemm_blocks
from ...plan.types import Plan, Step
from ...plan.verify_shapes import SCHEMAS
from ..bodies import BodyRunner
from ..budget import RunBudget
from ..placement import Placement
from .coded import CodedAction, CodedRows
from .constants import Constants
from .decoder import Decoder, PartsAction, RowsAction
from .host import HostAction, HostRunner, HostStep
from .program import (
    Action,
    Buffer,
    Owner,
    PrimitiveAction,
    Program,
    Tensor,
    data_type,
    hand_out,
    plan_buffers,
)
from .scales import ScalesCheck, scales_check
from .values import NotLowered, Offer, Values, Wanted, Weights, beyond_reach

Lowering = Callable[["Binder", Step], None]
C = TypeVar("C")
H = TypeVar("H", bound=Hashable)

RESHAPES = frozenset(
    {"onnx.Reshape", "onnx.Flatten", "onnx.Squeeze", "onnx.Unsqueeze", "onnx.Identity"}
)
"""Steps whose output is their first input under another shape."""

# of one primitive that are looked at; the list repeats itself where one is in the library's cache
_IMPLEMENTATIONS = 8

_WITH_BLOCKS = frozenset({"convolution", "deconvolution", "matmul"})
"""Primitives whose weights lie in blocks that the library chooses."""

_BLOCKS_OF = (3, 2)
_CUT_ALIKE = {CpuIsa.sse41: "sse41", CpuIsa.avx2: "avx2"}
"""Instruction sets whose gemm cuts the depth of a matmul alike, whatever the threads."""


class Binder(Values):
    """Binds one program.

    Args:
        told: the user's plan: its steps are placed, and run on NumPy.
        plan: the same steps with the attributes of `onednn-v3`: they are lowered.
        shapes: the shape of every value that is known.
        settled: the values whose data is known, too (`bind_shapes`).
        engine: the engine; its library's threads are set already.
        constants: the plan's constants, shared by all programs.
        threads: for steps on NumPy.
        budget: how much memory such a step may take.
        exact: refuse implementations that may saturate.
        refused: index of a step -> why it must run on NumPy.

    Attributes:
        index: of the step that is being lowered.
        threads: for steps on NumPy, and for our functions in C.
        exact: implementations that may saturate are refused.
        joined: concat steps that run as such, so far, by their first two sources.
    """

    def __init__(
        self,
        told: Plan,
        plan: Plan,
        shapes: Mapping[str, StaticShape],
        settled: Mapping[str, Array],
        engine: Engine,
        constants: Constants,
        threads: int,
        budget: RunBudget,
        bodies: Mapping[str, BodyRunner],
        *,
        exact: bool,
        refused: Mapping[int, str],
    ) -> None:
        super().__init__(plan, shapes, engine, constants)
        self._told = told
        self._settled = settled
        self._results = settled_results(plan, settled)
        self.exact = exact
        self._refused = refused
        self.threads = threads
        self._budget, self._bodies = budget, bodies
        self._placements: list[Placement] = []
        self._host_views: dict[str, str] = {}
        self.joined: dict[tuple[str, str], list[Step]] = {}
        self._readers: dict[str, list[Step]] = {}
        for step in plan.steps:
            for value in dict.fromkeys(step.inputs):
                self._readers.setdefault(value, []).append(step)

    def bind(self, lowerings: Mapping[str, Lowering]) -> Program:
        """The bound program."""
        for name in (*self.plan.inputs, *self._results):
            self._input(name)
        owners: list[int] = []
        for index, step in enumerate(self.plan.steps):
            self.index = index
            self._impl = []
            self._step(step, None if step.op == "Onnx" else lowerings.get(step.primitive))
            owners += [index] * (len(self._actions) - len(owners))
        between = self._reorders  # what callers read is row-major: no reorder between primitives
        outputs = {name: self._straight(name) for name in self.plan.outputs if self.reaches(name)}
        owners += [len(self.plan.steps)] * (len(self._actions) - len(owners))
        result_bytes = hand_out(self._actions, outputs.values())
        offsets, size = plan_buffers(self._actions, self._seen, outputs.values())
        scratchpad = max(map(scratchpad_of, self._actions), default=0)
        tensors = self._first
        return Program(
            actions=tuple(self._actions),
            steps=tuple(owners),
            tensors=tensors,
            outputs=outputs,
            shapes=self._shapes,
            written=self._written,
            placements=tuple(self._placements),
            reorders=between,
            host_views=self._host_views,
            settled=self._results,
            lanes={value: zero_point for value, (_, zero_point) in self._lanes.items()},
            offsets=offsets,
            arena_bytes=size,
            scratchpad_bytes=scratchpad,
            result_bytes=result_bytes,
        )

    # -- what lowerings ask ------------------------------------------------------------------------

    def readers(self, value: str) -> list[Step]:
        """The steps that read a value."""
        return self._readers.get(value, [])

    def is_settled(self, step: Step) -> bool:
        """True when what a step reads besides its first input is known: its axes, or its shape,
        were looked at for these shapes.
        """
        return all(value in self._settled for _, value in step.args[1:])

    def settled(self, value: str) -> Array | None:
        """The data of a value that is known for these shapes, or None."""
        return self._settled.get(value)

    def objection(self, desc: PrimitiveDesc) -> str:
        """Why an implementation will not do; empty where it will."""
        if desc.is_reference:
            return f"oneDNN has only the reference implementation {desc.impl_info} for it"
        defect = defect_of(desc)
        if defect is not None:
            return f"{desc.impl_info} computes it wrongly ({defect.name}): {defect.when}"
        return self._not_packed(desc)

    def saturates(
        self,
        desc: PrimitiveDesc,
        weights: Weights | None,
        source: str | None,
    ) -> bool:
        """True where an exact result is asked for, and not proven; arguments as of `first_accepted`."""
        if not self.exact or not may_saturate(desc):
            return False
        given, largest = desc.request.operands.get("src"), self._largest_code(desc, source)
        data = None if weights is None else weights.data
        if weights is None or data is None:
            return not cannot_saturate(desc, None, largest, None)
        kind = None if given is None else given.dtype
        blocks = self._gemm_blocks(desc, weights.dims)
        proof = "fits", weights.name, weights.form, desc.impl_info, kind, largest, str(blocks)
        return not self.constants.once(
            proof, lambda: cannot_saturate(desc, data(), largest, blocks)
        )

    def _not_packed(self, desc: PrimitiveDesc) -> str:
        """Why weights cannot be brought into the blocks that an implementation wants; empty where they can.

        oneDNN 3.13 has 1x1 convolutions of groups whose blocks of 48 channels no reorder of its own makes. 3.2
        is not asked: that it has such blocks was never seen, and asking takes some 0.1 ms each.
        """
        if self.library.version.triple[:2] == _BLOCKS_OF or desc.kind not in _WITH_BLOCKS:
            return ""
        wanted = desc.weights_md()
        if wanted.is_plain:
            return ""
        given = row_major(self.library, wanted.dims, wanted.dtype)
        try:
            describe(self.engine, "reorder", given, wanted)
        except OneDnnError as error:
            if not error.is_refusal:
                raise
            return f"nothing packs {wanted} for {desc.impl_info}"
        return ""

    def _largest_code(self, desc: PrimitiveDesc, source: str | None) -> int:
        """The largest u8 code that a primitive multiplies, where its source is a value of the plan."""
        given = desc.request.operands.get("src")
        as_is = given is not None and given.dtype == DataType.u8
        if source is None or not as_is or self.dtype(source) != DataType.u8:
            return LARGEST
        return self._codes.get(source, (0, LARGEST))[1]

    def _gemm_blocks(
        self, desc: PrimitiveDesc, weights: tuple[int, ...]
    ) -> list[tuple[int, int]] | None:
        """Where gemm cuts the depth of a matmul; None where it is not known: with AVX-512 it depends on
        the threads, and the blocks are those of oneDNN 3.2.
        """
        isa = _CUT_ALIKE.get(self.library.effective_isa())
        known = self.library.version.triple[:2] == _BLOCKS_OF
        if desc.kind != "matmul" or isa is None or not known:
            return None
        return gemm_blocks(isa, weights[-2])

    def codes(self, value: str) -> Codes:
        """The least and the largest code that a value of codes can hold."""
        return self._codes.get(value, self.plan.type(value).dtype.range)

    @property
    def _codes(self) -> dict[str, Codes]:
        return self.constants.once("codes", lambda: codes_of_plan(self._told))

    def describe(
        self, step: Step, kind: str, *operands: MemoryDesc | None, **parameters: Any
    ) -> PrimitiveDesc:
        """Asks the library for a primitive, see `primitive_desc.describe`."""
        origin = ", ".join(step.origin) or step.name
        return describe(self.engine, kind, *operands, origin=origin, **parameters)

    # -- what lowerings do -------------------------------------------------------------------------

    def commit(
        self,
        step: Step,
        offer: Offer,
        *,
        layout: MemoryDesc | None = None,
        relay: MemoryDesc | None = None,
    ) -> None:
        """Runs a primitive as the step: fetches its arguments in the layouts asked for, and makes
        the tensor of its output.

        Args:
            step: the step.
            offer: the primitive.
            layout: how the bytes that the primitive writes are the step's output; None: as the
                primitive sees them, under that shape.
            relay: the layout that a reorder behind the primitive brings its result into; None: it
                stays.
        """
        wanted = offer.desc.dst_md()
        layout = layout or viewed(wanted, self.dims(step.output))
        if layout is None:
            raise NotLowered(
                f"{offer.desc.impl_info} writes a layout that cannot be seen as {list(self.dims(step.output))}"
            )
        found, dst = self._destined(step, offer, wanted)
        self._run(offer.desc, {**found, Arg.DST: dst})
        buffer = dst.buffer
        out = dst if layout == wanted else Tensor(buffer, layout)
        if relay is not None:
            last = Buffer(step.output, Owner.ARENA, relay.size)
            out = self._moved(out, relay, last, f"layout of {step.output}")
        dtype = self.dtype(step.output)
        if offer.zero_point is not None:
            self._define_lanes(step.output, offer.zero_point, out)
        elif out.desc.dtype != dtype:
            if relaid(out.desc, out.desc.dims, dtype) is None:
                straight = channels_last(self.library, out.desc.dims, out.desc.dtype)
                room = Buffer(f"{step.output} channels last", Owner.ARENA, straight.size)
                out = self._moved(out, straight, room, f"layout of {step.output}")
            self._define(step.output, self._retyped(out, dtype, {step.output}, {}))
        else:
            self._define(step.output, out)

    def _destined(
        self, step: Step, offer: Offer, wanted: MemoryDesc
    ) -> tuple[dict[int, Tensor | Memory], Tensor]:
        """What a primitive reads, fetched, and where it writes: over the operand of its sum, or into
        a new buffer.
        """
        summed = None
        if offer.sum_operand is not None:
            kind = self.dtype(offer.sum_operand)
            like = wanted if kind == wanted.dtype else relaid(wanted, wanted.dims, kind)
            if like is None:
                raise NotLowered(f"the operand of sum cannot lie as {wanted}")
            summed = Wanted(offer.sum_operand, like)
        found = {
            arg: self.fetch(need) if isinstance(need, Wanted) else need
            for arg, need in offer.args.items()
        }
        read = {arg.buffer for arg in found.values() if isinstance(arg, Tensor)}
        buffer = (
            Buffer(step.output, Owner.ARENA, wanted.size)
            if summed is None
            else self._in_place(summed, read)
        )
        return found, Tensor(buffer, wanted)

    def commit_parts(
        self,
        step: Step,
        offer: Offer,
        target: MemoryDesc,
        parts: Sequence[tuple[PrimitiveDesc, int]],
        decoder: Decoder,
    ) -> None:
        """Runs a step with packed weights part by part of its columns.

        Args:
            step: the step.
            offer: its widest part, with what the whole step reads.
            target: the whole destination, row-major.
            parts: the primitive of each part, and its first column.
            decoder: decodes the weights.
        """
        layout = viewed(target, self.dims(step.output))
        if layout is None:
            raise NotLowered(f"{target} cannot be seen as {list(self.dims(step.output))}")
        found, dst = self._destined(step, offer, target)
        self._actions.append(self._parts(step, offer, found, dst, parts, decoder))
        self._define(step.output, dst if layout == target else Tensor(dst.buffer, layout))

    def _parts(
        self,
        step: Step,
        offer: Offer,
        found: Mapping[int, Tensor | Memory],
        dst: Tensor,
        parts: Sequence[tuple[PrimitiveDesc, int]],
        decoder: Decoder,
    ) -> PartsAction:
        made = {desc: self._made(desc) for desc in dict.fromkeys(desc for desc, _ in parts)}
        weights = offer.desc.weights_md()
        _, size = decoder.desc(self.library, weights.dims[-1])
        buffer = Buffer(f"{step.name} columns", Owner.ARENA, size)
        self._impl += [decoder.name, offer.desc.impl_info]
        return PartsAction(
            [(made[desc], start) for desc, start in parts],
            {**found, Arg.DST: dst},
            Tensor(buffer, weights),
            decoder,
        )

    def parts_action(
        self,
        step: Step,
        offer: Offer,
        product: Tensor,
        parts: Sequence[tuple[PrimitiveDesc, int]],
        decoder: Decoder,
    ) -> PartsAction:
        """A bare product with packed weights, part by part; arguments as of `commit_parts`."""
        found, _ = self._destined(step, offer, product.desc)
        return self._parts(step, offer, found, product, parts, decoder)

    def rows_action(self, source: Wanted, product: Tensor, decoder: Decoder) -> RowsAction:
        """A bare product of rows with packed weights, by our functions in C.

        Raises:
            NotLowered: the rows are constant.
        """
        src = self.fetch(source)
        if not isinstance(src, Tensor):
            raise NotLowered("rows that are constant")
        self._impl.append(decoder.multiplier)
        rows, scratch, panels = source.desc.dims[0], None, None
        if copies := decoder.copies(rows):
            shape = (copies, rows, decoder.blocks.width)
            desc = row_major(self.library, shape, product.desc.dtype)
            scratch = Tensor(Buffer(f"{source.value} apart", Owner.ARENA, desc.size), desc)
        if size := decoder.panel_bytes(rows):
            panels = self._bytes(f"{source.value} panels", size)
        return RowsAction(source.value, src, product, scratch, panels, decoder)

    def coded_action(self, source: Wanted, product: Tensor, weights: CodedRows) -> CodedAction:
        """A bare product of rows that become codes with packed weights, by our functions in C.

        Raises:
            NotLowered: the rows are constant.
        """
        src = self.fetch(source)
        if not isinstance(src, Tensor):
            raise NotLowered("rows that are constant")
        rows = source.desc.dims[0]
        self._impl.append(weights.name(rows))
        scratch = self._bytes(f"{source.value} as codes", weights.scratch_bytes(rows))
        return CodedAction(source.value, src, product, scratch, weights)

    def _bytes(self, name: str, size: int) -> Tensor:
        """Bytes of a run's own memory."""
        desc = row_major(self.library, (size,), DataType.u8)
        return Tensor(Buffer(name, Owner.ARENA, desc.size), desc)

    def commit_product(
        self, step: Step, action: Action, product: Tensor, behind: Offer | None
    ) -> None:
        """Runs a bare product.

        Args:
            step: the step.
            action: the product.
            product: what it gives, row-major f32.
            behind: the primitive that makes the step's output of it; None: it is that.
        """
        self._actions.append(action)
        if behind is not None:
            self.commit(step, behind)
            return
        layout = row_major(self.library, self.dims(step.output), product.desc.dtype)
        self._define(step.output, Tensor(product.buffer, layout))

    def commit_several(
        self, step: Step, offer: Offer, outputs: Mapping[int, tuple[str, MemoryDesc]]
    ) -> None:
        """Runs a primitive that writes several values as the step.

        Args:
            step: the step.
            offer: the primitive.
            outputs: execution argument -> the value ('' where the step has none for it), and how
                the bytes that the primitive writes are that value.
        """
        found = {
            arg: self.fetch(need) if isinstance(need, Wanted) else need
            for arg, need in offer.args.items()
        }
        written = {}
        for arg, (value, _) in outputs.items():
            desc = offer.desc.exec_arg_md(arg)
            buffer = Buffer(value or f"{step.name}, {arg}", Owner.ARENA, desc.size)
            written[arg] = Tensor(buffer, desc)
        self._run(offer.desc, {**found, **written})
        for arg, (value, layout) in outputs.items():
            if value:
                self._define(value, Tensor(written[arg].buffer, layout))

    def multiplied(self, left: Wanted | Memory, right: Wanted | Memory) -> Tensor:
        """The product of two f32 operands, one of which may be a single number."""
        wide, one = sorted((left, right), key=lambda factor: -math.prod(factor.desc.dims))
        made = describe(
            self.engine,
            "binary",
            wide.desc,
            one.desc,
            wide.desc,
            alg=AlgKind.binary_mul,
            origin="scales",
        )
        target = Tensor(Buffer("scales", Owner.ARENA, wide.desc.size), wide.desc)
        self.commit_part(Offer(made, {Arg.SRC_0: wide, Arg.SRC_1: one}), target)
        return target

    def commit_part(self, offer: Offer, target: Tensor) -> None:
        """Runs a primitive as a part of a step, whose other actions read its result.

        Args:
            offer: the primitive.
            target: where it writes.
        """
        found = {
            arg: self.fetch(need) if isinstance(need, Wanted) else need
            for arg, need in offer.args.items()
        }
        self._run(offer.desc, {**found, Arg.DST: target})

    def commit_boxes(self, step: Step, whole: MemoryDesc, parts: Sequence[Offer]) -> None:
        """Runs primitives as the step, each of which writes a part of its output.

        Args:
            step: the step.
            whole: how the output lies; the destination of a part is a box of it.
            parts: the primitives.
        """
        buffer = Buffer(step.output, Owner.ARENA, whole.size)
        for part in parts:
            self.commit_part(part, Tensor(buffer, part.desc.dst_md()))
        self._define(step.output, Tensor(buffer, whole))

    def commit_kernel(
        self, action: Action, implementation: str, outputs: Mapping[str, Tensor]
    ) -> None:
        """Runs a step by a function in C of our own.

        Args:
            action: the action.
            implementation: what takes it, for the placement.
            outputs: value -> the tensor in which the action leaves it.
        """
        self._impl.append(implementation)
        self._actions.append(action)
        for value, tensor in outputs.items():
            self._define(value, tensor)

    def commit_box(
        self,
        step: Step,
        source: str,
        dims: Sequence[int],
        offsets: Sequence[int],
        strides: Sequence[int] = (),
    ) -> None:
        """Copies a box out of a value, in the value's order of dimensions.

        Args:
            step: the step; its output has as many elements as the box.
            source: the value.
            dims, offsets: shape of the box, and its first element.
            strides: along each dimension, how far apart the box's elements lie in the value; empty:
                side by side.

        Raises:
            NotLowered: the value's layout has no such boxes, or the box is empty.
        """
        first = self._found(source)[0]
        if not first.desc.is_plain or 0 in dims:
            raise NotLowered("a layout that strides cannot describe")
        try:
            box, shape = (
                spaced(first.desc, dims, offsets, strides or (1,) * len(dims)),
                self.dims(step.output),
            )
        except OneDnnError as error:
            raise NotLowered(
                f"{list(dims)} elements {list(strides)} apart, from {list(offsets)} on: {error.what}"
            ) from error
        straight = row_major(self.library, dims, box.dtype)
        target = (
            straight if len(shape) != len(dims) else relaid(first.desc, dims, box.dtype) or straight
        )
        layout = viewed(target, shape)
        if layout is None:
            raise NotLowered(f"{target} cannot be seen as {list(shape)}")
        self.commit_move(step, first, box, target, layout)

    def commit_move(
        self, step: Step, source: Tensor, part: MemoryDesc, target: MemoryDesc, layout: MemoryDesc
    ) -> None:
        """Moves elements by one reorder.

        Args:
            step: the step.
            source: where they lie.
            part: how they are read there.
            target: how they are written, of the shape of `part`.
            layout: the same bytes as the step's output.

        Raises:
            NotLowered: the library has the reference implementation only.
        """
        move = self.describe(step, "reorder", part, target)
        if move.is_reference:
            raise NotLowered(f"oneDNN copies it by {move.impl_info}")
        self.commit(step, Offer(move, {Arg.SRC: Tensor(source.buffer, part)}), layout=layout)

    def alias(self, step: Step, desc: MemoryDesc, source: str) -> None:
        """Defines the step's output as another view of a value's bytes.

        Args:
            step: the step.
            desc: the output's shape and layout, over the first tensor of `source`.
            source: the value.
        """
        buffer = self._found(source)[0].buffer
        self._define(step.output, Tensor(buffer, desc))
        self._place("view")

    # -- one step ----------------------------------------------------------------------------------

    def _step(self, step: Step, lowering: Lowering | None) -> None:
        if all(value in self._results for value in step.outputs if value):
            self._place("view", reason="the sizes of the inputs settle it")
            return
        before = len(self._placements)
        try:
            chosen = self._checked(step, lowering)
            check = self._scales_check()
            chosen(self, step)
        except NotLowered as refusal:
            self._on_host(self._told.steps[self.index], str(refusal))
            return
        if check is not None:
            self._run_on_host(check)
        if len(self._placements) == before:
            self._place("onednn", " + ".join(self._impl))

    def _place(self, runtime: str, implementation: str = "", reason: str = "") -> None:
        self._placements.append(
            Placement(self._told.steps[self.index], runtime, implementation, reason)
        )

    def _checked(self, step: Step, lowering: Lowering | None) -> Lowering:
        """The lowering, where it can write the output. Raises NotLowered otherwise."""
        if self.index in self._refused:
            raise NotLowered(self._refused[self.index])
        if step.bodies is not None:
            raise NotLowered("NumPy counts its trips; its bodies run here as plans of their own")
        if lowering is None:
            raise NotLowered(f"oneDNN has no primitive for {step.primitive.removeprefix('onnx.')}")
        several = step.primitive in SCHEMAS and SCHEMAS[step.primitive].outputs > 1
        if len([value for value in step.outputs if value]) != 1 and not several:
            raise NotLowered("it has several outputs")
        for value in filter(None, step.outputs):
            self.dims(value)
            self.dtype(value)
        return lowering

    def _scales_check(self) -> ScalesCheck | None:
        """What looks at the scales of the step in each run, if anything. Raises NotLowered where it knows."""
        check = scales_check(self.plan, self.index, self.constants.once)
        if isinstance(check, str):
            raise NotLowered(check)
        return check

    def _on_host(self, step: Step, reason: str) -> None:
        if self._is_host_view(step):
            self._host_views[step.output] = step.args[0][1]
            self._written.setdefault(len(self._actions) - 1, []).append(step.output)
            self._place("view")
            return
        unsized = not all(value in self._shapes for value in step.outputs if value)
        runner = HostStep(
            self._told,
            step,
            self.threads,
            self.library.effective_isa(),
            self._budget if unsized else None,
            self._bodies,
        )
        self._run_on_host(runner)
        self._place("numpy", reason=reason)

    def commit_runner(self, runner: HostRunner) -> None:
        """Runs a step by calls of its own, between those of the program.

        Raises:
            NotLowered: what it reads lies outside of oneDNN's reach.
        """
        for value in runner.inputs:
            self.desc(value)
        self._run_on_host(runner)
        self._place("onednn", " + ".join(dict.fromkeys(runner.implementations)))

    def _run_on_host(self, runner: HostStep | HostRunner) -> None:
        inputs = {value: self._readable(value) for value in runner.inputs if self.reaches(value)}
        outputs: dict[str, Tensor] = {}
        self._actions.append(HostAction(runner, inputs, outputs))
        for value in runner.outputs:
            shape, kind = self._shapes.get(value), data_type(self.plan.type(value).dtype)
            if shape is not None and kind is not None and not beyond_reach(shape):
                owner = Owner.ARENA if runner.single_call is not None else Owner.HOST
                like = (
                    relaid(inputs[runner.inputs[0]].desc, shape or (1,), kind)
                    if runner.follows and runner.inputs[0] in inputs
                    else None
                )
                desc = like or row_major(self.library, shape, kind)
                outputs[value] = Tensor(Buffer(value, owner, desc.size, {value}), desc)
                self._define(value, outputs[value])
            else:
                self._written.setdefault(len(self._actions) - 1, []).append(value)

    def _is_host_view(self, step: Step) -> bool:
        """True for another shape of an array that only NumPy sees, because primitives take none of
        its type, or none of no elements.
        """
        source, shape = step.args[0][1] if step.args else "", self._shapes.get(step.output)
        settled = step.op != "Onnx" and self.is_settled(step)
        hidden = (
            source in self.plan.values
            and not self.reaches(source)
            and self.index not in self._refused
        )
        if shape is None or step.primitive not in RESHAPES or not (settled and hidden):
            return False
        return data_type(self.plan.type(step.output).dtype) is None or bool(beyond_reach(shape))

    def _input(self, name: str) -> None:
        kind, shape = data_type(self.plan.type(name).dtype), self._shapes[name]
        if kind is not None and not beyond_reach(shape):
            self._define(
                name, Tensor(Buffer(name, Owner.INPUT), row_major(self.library, shape, kind))
            )


def scratchpad_of(action: Action) -> int:
    """Bytes that the primitives of an action need while they run, one after the other."""
    if isinstance(action, PrimitiveAction):
        return action.primitive.desc.scratchpad_size
    parts = action.parts if isinstance(action, PartsAction) else ()
    return max((primitive.desc.scratchpad_size for primitive, _ in parts), default=0)


def need(step: Step, role: str) -> str:
    """The value in a role. NotLowered where the step has none."""
    value = step.arg(role)
    if value is None:
        raise NotLowered(f"it has no {role}")
    return value


def first_accepted(
    binder: Binder,
    candidates: Iterable[C],
    attempt: Callable[[C], Offer],
    weights: Weights | None = None,
    source: str | None = None,
) -> Offer:
    """The first primitive that the library makes and nothing objects to.

    Args:
        binder: the binder.
        candidates: what to try, best first.
        attempt: makes the primitive of a candidate; the library's refusals and `NotLowered` lead to
            the next one.
        weights: those that are multiplied; their data is asked for only if it matters.
        source: the value that the primitive reads as its source, under any layout; None: it may
            read any codes.

    Raises:
        NotLowered: there is none; the message says why, for each attempt.
        OneDnnError: the library fails, other than by refusing.
    """
    reasons: list[str] = []
    for candidate in candidates:
        try:
            offer = attempt(candidate)
        except OneDnnError as error:
            if not error.is_refusal:
                raise
            reasons.append(error.what)
            continue
        except NotLowered as refusal:
            reasons.append(str(refusal))
            continue
        for _ in range(_IMPLEMENTATIONS):
            if binder.saturates(offer.desc, weights, source):
                # the implementations behind it add pairs of products in 16 bits as well
                reasons.append(
                    f"{offer.desc.impl_info} may saturate: its int8 products are added in 16 bits"
                )
                break
            objection = binder.objection(offer.desc)
            if not objection:
                return offer
            reasons.append(objection)
            if offer.desc.is_reference or not offer.desc.next_impl():
                break
    raise NotLowered("; ".join(dict.fromkeys(reasons)))


def first_lowered(ways: Iterable[H], lower: Callable[[H], None]) -> None:
    """Lowers a step in the first way that goes, best first.

    Raises:
        NotLowered: none does; the message says why, for each.
    """
    refusals: dict[H, list[str]] = {}
    for way in ways:
        if way in refusals:
            continue
        try:
            lower(way)
        except NotLowered as refusal:
            refusals[way] = str(refusal).split("; ")
        else:
            return
    raise NotLowered("; ".join(dict.fromkeys(chain.from_iterable(refusals.values()))))
