"""Recurrent layers as primitives of their own: what they write, in each scheme of attributes, and what
the library neglects of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from laws.recurrent_primitives import HIDDEN, QPARAMS, arguments, words

from fqfuse.errors import InvalidInput
from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.primitive import Primitive
from fqfuse.primitives import Eltwise, PrimitiveAttr, Scale, ZeroPoint, on_library, prim
from fqfuse.primitives.description import described
from fqfuse.primitives.kinds import CELLS
from fqfuse.primitives.recurrent import gates_of
from fqfuse.primitives.refusal import refusal

ENGINES = ["numpy", "onednn"]


def requires(engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "onednn":
        request.getfixturevalue("of_the_rules")


def sigmoid(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("engine", ENGINES)
def test_lstm_is_the_formula_in_float64(engine: str, request: pytest.FixtureRequest) -> None:
    requires(engine, request)
    made = prim("lstm", engine=engine, **words("lstm"))
    args = arguments(made, 3)
    wide = {role: array.astype(np.float64) for role, array in args.items()}
    h, c = wide["src_iter"][0, 0], wide["src_iter_c"][0, 0]
    rows = []
    for x in wide["src_layer"]:
        gates = np.einsum("ni,igh->gnh", x, wide["weights_layer"][0, 0])
        gates += np.einsum("ni,igh->gnh", h, wide["weights_iter"][0, 0])
        gates += wide["bias"][0, 0][:, None]
        i, f, g, o = sigmoid(gates[0]), sigmoid(gates[1]), np.tanh(gates[2]), sigmoid(gates[3])
        c = f * c + i * g
        h = o * np.tanh(c)
        rows.append(h)
    expected = {"dst_layer": np.stack(rows), "dst_iter": h[None, None], "dst_iter_c": c[None, None]}
    found = made.execute_all(args)
    assert found.keys() == expected.keys()
    for role, array in found.items():
        # sums of 9 products, and approximations of exp and tanh
        np.testing.assert_allclose(array, expected[role], rtol=0, atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", CELLS)
def test_it_writes_what_it_was_made_with(
    engine: str, kind: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    given = words(kind)
    made = prim(kind, engine=engine, **given)
    args = arguments(made, 1)
    states = [role for role in given if role.startswith("dst_iter")]
    found = made.execute_all(args)
    assert [*found] == ["dst_layer", *states]
    with pytest.raises(InvalidInput, match="writes dst_layer, dst_iter"):
        made.execute(args)
    alone = prim(kind, engine=engine, **{n: v for n, v in given.items() if n not in states})
    assert np.array_equal(alone.execute(args), found["dst_layer"])
    assert np.array_equal(found["dst_layer"][-1], found["dst_iter"][0, 0])


@pytest.mark.parametrize("engine", ENGINES)
def test_directions(engine: str, request: pytest.FixtureRequest) -> None:
    """Both, side by side or added, are one forwards and one backwards."""
    requires(engine, request)
    both = prim("gru", engine=engine, **words("gru", direction="concat"))
    args = arguments(both, 2)
    found = both.execute_all(args)
    apart = []
    for d, direction in enumerate(("left2right", "right2left")):
        own = {
            role: np.ascontiguousarray(array[:, d : d + 1]) if array.ndim > 3 else array
            for role, array in args.items()
        }
        one = prim("gru", engine=engine, **words("gru", direction=direction))
        apart.append(one.execute_all(own))
    # the library multiplies other numbers of rows at once
    near = {"rtol": 0, "atol": 1e-6}
    joined = np.concatenate([each["dst_layer"] for each in apart], axis=2)
    np.testing.assert_allclose(found["dst_layer"], joined, **near)
    summed = prim("gru", engine=engine, **words("gru", direction="sum")).execute_all(args)
    np.testing.assert_allclose(
        summed["dst_layer"], apart[0]["dst_layer"] + apart[1]["dst_layer"], **near
    )
    for d, each in enumerate(apart):
        np.testing.assert_allclose(found["dst_iter"][:, d : d + 1], each["dst_iter"], **near)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("by_output", [False, True])
def test_the_three_schemes_say_the_same(
    kind: str, by_output: bool, request: pytest.FixtureRequest
) -> None:
    """On `unified` parameters are scales and a zero point, given at creation or at execution."""
    count, mask = (gates_of(kind) * HIDDEN, 24) if by_output else (1, 0)
    factors = 2.0 ** np.arange(6, 6 + count % 7 + 1)
    factors = np.resize(factors, count)
    old = PrimitiveAttr(
        rnn_data_qparams=Scale((64.0, 128.0)),
        rnn_weights_qparams=Scale(tuple(factors.tolist()), mask),
    )
    zero, src = {"src_layer": ZeroPoint((128,))}, Scale((1 / 64,))
    weights = Scale(tuple((1 / factors).tolist()), mask)
    scales = {"src_layer": src, "weights_layer": weights, "weights_iter": weights}
    later = {**scales, **dict.fromkeys(("weights_layer", "weights_iter"), Scale((), mask))}
    given = words(kind, "u8")
    args = arguments(prim(kind, old, **given), 5)
    values = weights.array
    fed = {**args, "scales_weights_layer": values, "scales_weights_iter": values}
    found = [
        prim(kind, old, target="onednn-v3", **given).execute_all(args),
        prim(kind, old, target="onednn-v2", **given).execute_all(args),
        prim(kind, PrimitiveAttr(scales, zero), target="unified", **given).execute_all(args),
        prim(kind, PrimitiveAttr(later, zero), target="unified", **given).execute_all(fed),
    ]
    requires("onednn", request)
    attributes = {"onednn-v3": old, "onednn-v2": old, "unified": PrimitiveAttr(scales, zero)}
    for target, attr in attributes.items():
        made = prim(kind, attr, target=target, engine="onednn", **given)
        found.append(made.execute_all(args))
    made = prim(kind, PrimitiveAttr(later, zero), target="unified", engine="onednn", **given)
    found.append(made.execute_all(fed))
    for other in found[1:]:
        for role, array in other.items():
            if role == "dst_iter_c":
                # approximations of exp and tanh
                np.testing.assert_allclose(array, found[0][role], rtol=0, atol=2e-6)
            else:
                assert np.array_equal(array, found[0][role]), role


UNIFIED = {
    "a scale of the bias": PrimitiveAttr({"bias": Scale((1.0,))}),
    "scales of one of the weights": PrimitiveAttr({"weights_iter": Scale((0.5,))}),
    "scales along the inputs": PrimitiveAttr(
        dict.fromkeys(("weights_layer", "weights_iter"), Scale((1.0,) * 4, 4))
    ),
    "a zero point of weights": PrimitiveAttr(zero_points={"weights_layer": ZeroPoint((1,))}),
    "a post-op": PrimitiveAttr(post_ops=(Eltwise("relu"),)),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", UNIFIED)
def test_unified_refuses(name: str, engine: str, request: pytest.FixtureRequest) -> None:
    requires(engine, request)
    with pytest.raises(OneDnnError, match="unimplemented") as caught:
        prim("lstm", UNIFIED[name], target="unified", engine=engine, **words("lstm", "u8"))
    assert caught.value.status == Status.unimplemented


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "src"), [("lstm", "s8"), ("gru", "s8"), ("lstm", "f32"), ("lbr_gru", "f32")]
)
def test_a_shift_is_of_codes_of_u8_alone(
    engine: str, kind: str, src: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    with pytest.raises(Unimplemented):
        prim(kind, PrimitiveAttr(**QPARAMS), engine=engine, **words(kind, src))


def test_parameters_have_values_and_are_told_in_their_scheme() -> None:
    given = words("lstm", "u8")
    with pytest.raises(InvalidInput, match="rnn_weights_qparams of lstm with 0 values"):
        prim("lstm", PrimitiveAttr(rnn_weights_qparams=Scale(())), **given)
    with pytest.raises(InvalidInput, match="unified do not have rnn_data_qparams"):
        prim("lstm", PrimitiveAttr(**QPARAMS), target="unified", **given)
    with pytest.raises(InvalidInput, match="no direction 'up'"):
        prim("lstm", **{**given, "direction": "up"})


NEGLECTED = {
    "a mask that weights cannot be packed with": (
        {**QPARAMS, "rnn_weights_qparams": Scale((200.0,) * 4, 8)},
        "left2right",
        "cannot be packed",
    ),
    "fewer scales than outputs": (
        {**QPARAMS, "rnn_weights_qparams": Scale((200.0, 100.0), 24)},
        "left2right",
        "read beyond their end",
    ),
    "the sum of codes with a shift": (QPARAMS, "sum", "with the shift of both"),
}


@pytest.mark.parametrize("name", NEGLECTED)
@pytest.mark.usefixtures("of_the_rules")
def test_what_the_library_neglects_neither_engine_makes(name: str, engine: Engine) -> None:
    qparams, direction, told = NEGLECTED[name]
    attr, given = PrimitiveAttr(**qparams), words("lstm", "u8", direction)
    what = described("lstm", given, attr, "onednn-v3")
    assert refusal(what) is None
    on_library.descriptor(engine, what)
    for runtime in ENGINES:
        with pytest.raises(OneDnnError, match=told) as caught:
            prim("lstm", attr, engine=runtime, **given)
        assert caught.value.status == Status.unimplemented


@pytest.mark.usefixtures("of_the_rules")
def test_sums_of_codes_are_cut_with_the_shift_of_both(engine: Engine) -> None:
    """All is 0, whose code is 128: the library stores 255 for 0 + 0, which stands for 1."""
    found = of_zeros(engine, PrimitiveAttr(**QPARAMS), "sum")
    assert (found["dst_layer"] == 255).all()


@pytest.mark.usefixtures("of_the_rules")
def test_weights_cannot_be_packed_with_a_mask_of_other_dimensions(engine: Engine) -> None:
    qparams, direction, _ = NEGLECTED["a mask that weights cannot be packed with"]
    with pytest.raises(Unimplemented, match="reorder"):
        of_zeros(engine, PrimitiveAttr(**qparams), direction)


def of_zeros(engine: Engine, attr: PrimitiveAttr, direction: str) -> dict[str, Any]:
    """What the bare library gives for an LSTM of codes that are all 0."""
    what = described("lstm", words("lstm", "u8", direction), attr, "onednn-v3")
    args = {
        role: np.zeros(type_.static_shape, type_.dtype.numpy)
        for role, type_ in what.tensors.items()
        if not role.startswith("dst")
    }
    args["src_layer"][...] = 128
    primitive = Primitive(on_library.descriptor(engine, what))
    return on_library.execute(Stream(engine), what, primitive, attr, args)


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_of_codes_without_shift_are_cut_to_codes(
    engine: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    attr = PrimitiveAttr(rnn_data_qparams=Scale((200.0, 0.0)), rnn_weights_qparams=Scale((20.0,)))
    made = prim("gru", attr, engine=engine, **words("gru", "u8", "sum"))
    args = arguments(made, 9)
    found = made.execute_all(args)["dst_layer"]
    apart = prim("gru", attr, **words("gru", "u8", "concat")).execute_all(args)["dst_layer"]
    sums = apart[..., :HIDDEN].astype(int) + apart[..., HIDDEN:]
    assert sums.max() > 255
    assert np.array_equal(found, np.minimum(sums, 255))
