"""Recurrent layers as oneDNN primitives: one call a layer, both directions of a bidirectional one
in it. Others are a kernel's: see `recurrent_f32.py` and `recurrent_dynamic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.ops import OPS
from ...ir.ops.recurrent import activations_of, directions_of, gates_of
from ...ir.ops.spec import Attrs
from ...onednn.attributes import Attributes
from ...onednn.enums import AlgKind, Arg, DataType, RnnDirection
from ...onednn.layouts import row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.strides import agree
from ...plan.recurrent import RNN_ACTIVATIONS, beyond_primitive, gates_first, peepholes_first
from ...plan.recurrent_parameters import GATES_AND_OUTPUTS, qparams_of
from ...plan.types import Step
from .binding import Binder, first_accepted, need
from .program import Tensor
from .recurrent_f32 import directions_apart, lstm_by_kernel
from .values import Args, NotLowered, Offer, Wanted, Weights


def rnn(binder: Binder, step: Step) -> None:
    """A layer of an RNN, GRU or LSTM."""
    attrs = OPS[step.op].known(step.params)
    roles = [role for role, _ in step.args]
    if _goes_through_all(binder, step):
        roles.remove("sequence_lens")
    refusal = beyond_primitive(step.op, attrs, roles)
    if refusal is not None:
        raise NotLowered(refusal.reason)
    if step.op == "LSTM":
        try:
            lstm_by_kernel(binder, step)
        except NotLowered:
            pass  # by the primitive, then
        else:
            return
    _Lowered(binder, step, attrs).commit()


def _goes_through_all(binder: Binder, step: Step) -> bool:
    """True where lengths that follow from shapes are the number of steps, as converters from
    TensorFlow write them.
    """
    name = step.arg("sequence_lens")
    lens = None if name is None else binder.settled(name)
    return lens is not None and bool((lens == binder.dims(step.output)[0]).all())


class _Lowered:
    """The lowering of one layer.

    Attributes:
        directions: the library's word for them.
        d, n, h, t: sizes: directions, sequences, hidden values, steps.
    """

    def __init__(self, binder: Binder, step: Step, attrs: Attrs) -> None:
        self._binder, self._step, self._attrs = binder, step, attrs
        backwards = directions_of(attrs)
        self.direction = (
            RnnDirection.concat
            if len(backwards) == 2
            else RnnDirection.right2left
            if backwards[0]
            else RnnDirection.left2right
        )
        self.t, self.d, self.n, self.h = binder.dims(step.output)
        self.src, self.dst = binder.dtype(need(step, "src")), binder.dtype(step.output)
        self._int8 = Attributes()
        found = qparams_of(step.attr)
        if found is not None:
            data, scales = found[0].values, found[1].array
            if scales.size > 1:
                scales = gates_first(step.op, scales[None]).ravel()
            self._int8 = Attributes(
                rnn_data=(data[0], data[1]),
                rnn_weights=tuple(scales.tolist()),
                rnn_weights_mask=GATES_AND_OUTPUTS if scales.size > 1 else 0,
            )

    def commit(self) -> None:
        """Runs the primitive as the step."""
        binder, step = self._binder, self._step
        src = need(step, "src")
        lies = binder.desc(src)
        straight = row_major(binder.library, binder.dims(src), self.src)
        sources = [Wanted(src, straight)]
        for layout in (self._sequences_first(*straight.dims), straight):
            # primitives take the rows' distance from the strides, of single steps and rows, too
            if lies.is_plain and not lies.offset and agree(lies.dims, lies.strides, layout.strides):
                sources.insert(0, binder.seen_as(src, layout))
        codes = Weights(step.name, (), DataType.s8, "all of a layer", self._codes)
        offer = first_accepted(binder, sources, self._offer, codes)
        dims = (self.t, self.d, self.n, self.h)
        apart = directions_apart(binder.library, dims, self.dst)
        outputs: dict[int, tuple[str, MemoryDesc]] = {Arg.DST_LAYER: (step.output, apart)}
        named = dict(enumerate(step.outputs))
        for index, arg in ((1, Arg.DST_ITER), (2, Arg.DST_ITER_C)):
            if self._has_last(index):
                outputs[arg] = (named.get(index, ""), self._straight(self.d, self.n, self.h))
        binder.commit_several(step, offer, outputs)

    def _straight(self, *dims: int) -> MemoryDesc:
        return row_major(self._binder.library, dims, DataType.f32)

    @property
    def _is_lstm(self) -> bool:
        return self._step.op == "LSTM"

    @property
    def _weights(self) -> DataType:
        return DataType.f32 if self.src == DataType.f32 else DataType.s8

    def _codes(self) -> NDArray[Any]:
        """All weights in a row."""
        names = [need(self._step, role) for role in ("w", "r")]
        constants = self._binder.constants
        return np.concatenate([constants.data(name).ravel() for name in names])

    def _has_last(self, index: int) -> bool:
        """Whether the primitive writes a last state: of LSTM both or none."""
        states = 2 if self._is_lstm else 1
        return index <= states and any(self._step.outputs[1:])

    def _sequences_first(self, steps: int, batch: int, inputs: int) -> MemoryDesc:
        """[T, N, I] that lies as [N, T, I]."""
        return MemoryDesc.with_strides(
            self._binder.library,
            (steps, batch, inputs),
            self.src,
            (inputs, steps * inputs, 1),
        )

    def _offer(self, src: Wanted) -> Offer:
        binder, step, source = self._binder, self._step, src.desc
        inputs, gates = source.dims[2], gates_of(step.op)
        weights = [
            MemoryDesc.any(binder.library, (1, self.d, size, gates, self.h), self._weights)
            for size in (inputs, self.h)
        ]
        args: dict[int, Wanted | Tensor | Memory] = {Arg.SRC_LAYER: src}
        state = self._straight(1, self.d, self.n, self.h)
        first = self._first_states(state)
        args |= first
        last = state if self._has_last(1) else None
        begin = state if first else None
        y = row_major(binder.library, (self.t, self.n, self.d * self.h), self.dst)
        bias = self._bias()
        peephole = self._peepholes() if self._is_lstm else None
        args[Arg.BIAS] = bias
        if peephole is not None:
            args[Arg.WEIGHTS_PEEPHOLE] = peephole
        known: dict[str, Any] = {"direction": self.direction, "attributes": self._int8}
        if self._is_lstm:
            peephole_desc = None if peephole is None else peephole.desc
            desc = binder.describe(
                step,
                "lstm",
                *(source, begin, begin, *weights, peephole_desc, None, bias.desc, y, last, last),
                **known,
            )
        else:
            kind = "gru"
            if step.op == "RNN":
                activation = activations_of(step.op, self._attrs)[0][0]
                kind, known["alpha"] = "vanilla_rnn", activation.alpha
                known["alg"] = AlgKind[f"eltwise_{RNN_ACTIVATIONS[activation.name]}"]
            elif self._attrs.get("linear_before_reset"):
                kind = "lbr_gru"
            more: list[MemoryDesc] = []
            if step.op == "AUGRU":
                kind, more = "augru", [self._straight(self.t, self.n, 1)]
                args[Arg.ATTENTION] = Wanted(need(step, "attention"), more[0])
            desc = binder.describe(
                step, kind, source, begin, *more, *weights, bias.desc, y, last, **known
            )
        for role, arg in (("w", Arg.WEIGHTS_LAYER), ("r", Arg.WEIGHTS_ITER)):
            args[arg] = self._constant(
                role, "inputs in front of gates", self._inputs_first, desc.exec_arg_md(arg)
            )
        return Offer(desc, args)

    def _first_states(self, state: MemoryDesc) -> Args:
        """The states in front of the first step: of LSTM both or none."""
        roles = (("initial_h", Arg.SRC_ITER), ("initial_c", Arg.SRC_ITER_C))
        given = {arg: self._step.arg(role) for role, arg in roles[: 2 if self._is_lstm else 1]}
        if not any(given.values()):
            return {}
        zeros = np.zeros(state.dims, np.float32)
        return {
            arg: Memory(self._binder.engine, state, zeros)
            if value is None
            else Wanted(value, state)
            for arg, value in given.items()
        }

    # -- constants ---------------------------------------------------------------------------------

    def _constant(
        self,
        role: str,
        form: str,
        view: Callable[[NDArray[Any]], NDArray[Any]],
        desc: MemoryDesc | None = None,
    ) -> Memory:
        """A constant as the primitive reads it, packed once for all programs; row-major where no
        layout is given.
        """
        constants, name = self._binder.constants, need(self._step, role)
        if name not in constants:
            raise NotLowered(f"its {role} is computed at run time")
        array = np.ascontiguousarray(view(constants.data(name)))
        return constants.packed(
            name,
            f"{self._step.op}: {form} {self._int8.rnn_data} {self._int8.rnn_weights}",
            array,
            desc or self._straight(*array.shape),
            Attributes() if desc is None else self._int8,
        )

    def _inputs_first(self, array: NDArray[Any]) -> NDArray[Any]:
        """Weights [D, G*H, I] as [1, D, I, G, H]."""
        return gates_first(self._step.op, array).transpose(0, 3, 1, 2)[None]

    def _bias(self) -> Memory:
        """The biases, zeros where the layer has none: oneDNN 3.2 has no implementation without."""
        apart = bool(self._attrs.get("linear_before_reset"))
        if self._step.arg("b") is None:
            count = gates_of(self._step.op) + apart
            zeros = np.zeros((1, self.d, count, self.h), np.float32)
            return Memory(self._binder.engine, self._straight(*zeros.shape), zeros)
        return self._constant(
            "b", "bias, linear before reset" if apart else "bias", lambda b: self._biases(b, apart)
        )

    def _biases(self, b: NDArray[Any], apart: bool) -> NDArray[Any]:
        """[D, 2*G*H] as the [1, D, G, H] of their sums; where the product with the hidden state
        has a bias of its own in front of the reset, that is a fourth one.
        """
        of_w, of_r = (gates_first(self._step.op, half) for half in np.split(b, 2, axis=1))
        if not apart:
            return np.asarray((of_w + of_r)[None])
        both = of_w[:, :2] + of_r[:, :2]
        return np.concatenate([both, of_w[:, 2:], of_r[:, 2:]], axis=1)[None]

    def _peepholes(self) -> Memory | None:
        if self._step.arg("p") is None:
            return None
        return self._constant("p", "peepholes", lambda p: peepholes_first(p)[None])
