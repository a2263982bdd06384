"""Random nodes of attention and embeddings, as ONNX Runtime's transformer tools and exporters write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from support.contrib_cases import Case, Draw, chosen, floats, given, maybe, number, sizes, some

LOWEST = float(np.finfo(np.float32).min)


def mask_of(
    rng: Generator, batch: int, rows: int, total: int, attrs: dict[str, Any] | None = None
) -> Any:
    """A mask in one of its forms, or none. Each query sees a key, where `attrs` does not get another number that hides them."""
    form = chosen(rng, "none", "padding", "square", "ends", "spans", "starts", "dummy")
    if form == "padding":
        mask = rng.integers(0, 2, (batch, total))
        if attrs is not None and rng.random() < 0.5:
            attrs["mask_filter_value"] = LOWEST  # with -1e4 the scores round
        else:
            mask[:, 0] = 1
        return mask.astype(np.int32)
    if form == "square":
        mask = rng.integers(0, 2, (batch, rows, total))
        mask[:, :, 0] = 1
        return mask.astype(np.int32)
    ends = rng.integers(1, total + 1, batch)
    if form == "ends":
        return ends.astype(np.int32)
    if form == "spans":
        return np.concatenate([ends, (rng.random(batch) * ends).astype(int)]).astype(np.int32)
    if form == "starts":  # of queries and keys in a packed batch, behind the lengths
        return np.concatenate([ends, rng.integers(0, total, 2 * batch + 2)]).astype(np.int32)
    return np.ones((batch, 1), np.int32) if form == "dummy" else None


def _scores(rng: Generator) -> dict[str, Any]:
    attrs = given(
        rng, {"scale": number(rng, 0.1, 1), "mask_filter_value": chosen(rng, -10000.0, LOWEST)}
    )
    return attrs | ({"unidirectional": 1} if rng.random() < 0.4 else {})


def _attention(rng: Generator) -> Case:
    b, s, n, h, d = sizes(rng, 5, 5)
    past_length = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0
    v = h if past_length else chosen(rng, h, h + 1)
    attrs = _scores(rng) | {"num_heads": n}
    if v != h:
        attrs["qkv_hidden_sizes"] = [n * h, n * h, n * v]
    width = n * (2 * h + v)
    total = past_length + s
    bias = None
    if not past_length and rng.random() < 0.4:
        bias = floats(rng, chosen(rng, 1, b), chosen(rng, 1, n), s, total)
    inputs = {
        "x": floats(rng, b, s, d),
        "w": floats(rng, d, width),
        "b": floats(rng, width),
        "mask": mask_of(rng, b, s, total, attrs),
        "past": floats(rng, 2, b, n, past_length, h) if past_length else None,
        "bias": bias,
    }
    outputs = ("y", "present") if past_length or (v == h and rng.random() < 0.3) else ("y",)
    return Case("Attention", inputs, attrs, frozenset("wb"), outputs, scale=5.0)


def _multi_head(rng: Generator) -> Case:
    b, s, n, h, keys = sizes(rng, 5, 5)
    past = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0
    v = chosen(rng, h, h + 1) if not past else h
    crossed = v == h and rng.random() < 0.3
    shape_k, shape_v = (
        ((b, n, keys, h), (b, n, keys, v)) if crossed else ((b, keys, n * h), (b, keys, n * v))
    )
    total = keys + past
    attrs = _scores(rng) | {"num_heads": n}
    if keys != s:
        attrs.pop("unidirectional", None)
    mask = mask_of(rng, b, s, total, attrs) if not past else None
    if mask is not None and mask.shape in ((2 * b,), (b, 1)):  # refused there
        mask = None
    inputs = {
        "q": floats(rng, b, s, n * h),
        "k": floats(rng, *shape_k),
        "v": floats(rng, *shape_v),
        "b": maybe(rng, floats(rng, n * (2 * h + v))),
        "mask": mask,
        "bias": maybe(rng, floats(rng, chosen(rng, 1, b), chosen(rng, 1, n), s, total)),
        "pk": floats(rng, b, n, past, h) if past else None,
        "pv": floats(rng, b, n, past, v) if past else None,
    }
    outputs = ("y", "present_k", "present_v") if past else ("y",)
    if past and rng.random() < 0.4:
        outputs = (*outputs, "qk")
    return Case("MultiHeadAttention", inputs, attrs, some(rng, "b"), outputs, scale=5.0)


def _one_token(rng: Generator) -> Case:
    b, n, h, keys = sizes(rng, 4, 5)
    crossed, before = rng.random() < 0.4, int(rng.integers(1, 5))
    total = keys if crossed else before + 1
    mask = rng.integers(0, 2, (b, total)).astype(np.int32)
    mask[:, 0] = 1
    states = (b, n, keys, h) if crossed else (b, 1, n * h)
    slots = before + int(rng.integers(1, 4))
    inputs = {
        "q": floats(rng, b, 1, n * h),
        "k": floats(rng, *states),
        "v": floats(rng, *states),
        "mask": maybe(rng, mask),
        "added": None
        if crossed
        else maybe(rng, floats(rng, chosen(rng, 1, b), chosen(rng, 1, n), 1, total)),
        "pk": None if crossed else floats(rng, b, n, slots, h),
        "pv": None if crossed else floats(rng, b, n, slots, h),
        "length": None if crossed else np.array([before], np.int32),
    }
    inputs |= dict.fromkeys(("beams", "sources"))
    inputs["bias"] = maybe(rng, floats(rng, 3 * n * h))
    outputs = ("y",) if crossed else ("y", "present_k", "present_v")
    attrs = given(rng, {"scale": number(rng, 0.1, 1)}) | {"num_heads": n}
    attrs |= {} if crossed else {"past_present_share_buffer": 1}  # as ONNX Runtime's CPUs want it
    op = "DecoderMaskedMultiHeadAttention"
    return Case(op, inputs, attrs, some(rng, "bias"), outputs, scale=5.0)


def _attention_on_codes(rng: Generator) -> Case:
    b, s, n, h, d = sizes(rng, 5, 5)
    past = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0
    width = 3 * n * h
    kind = chosen(rng, np.uint8, np.int8)
    columns = rng.random() < 0.5
    scale = rng.uniform(0.005, 0.02, width if columns else ()).astype(np.float32)
    low, high = (-128, 128) if kind is np.int8 else (0, 256)
    zero = rng.integers(low // 4, high // 4, scale.shape if columns else ()).astype(kind)
    zero = np.zeros_like(zero) if columns else zero
    attrs = _scores(rng) | {"num_heads": n}
    inputs = {
        "x": rng.integers(0, 256, (b, s, d)).astype(np.uint8),
        "w": rng.integers(low, high, (d, width)).astype(kind),
        "b": floats(rng, width),
        "xs": np.float32(number(rng, 0.005, 0.03)),
        "ws": scale,
        "mask": mask_of(rng, b, s, s + past, attrs),
        "xz": np.uint8(rng.integers(100, 150)),
        "wz": zero,
        "past": floats(rng, 2, b, n, past, h) if past else None,
    }
    outputs = ("y", "present") if past else ("y",)
    return Case(
        "QAttention",
        inputs,
        attrs,
        frozenset({"w", "b", "xs", "ws", "xz", "wz"}),
        outputs,
        scale=5.0,
    )


def _rotary(rng: Generator) -> Case:
    b, s, n = sizes(rng, 3, 5)
    h, most = 2 * sizes(rng, 1)[0] + 2, s + 4
    width = chosen(rng, 0, 0, 2 * int(rng.integers(1, h // 2 + 1)))
    half = (width or h) // 2
    attrs = {"interleaved": int(rng.integers(2))}
    if width:
        attrs |= {"rotary_embedding_dim": width, "num_heads": n}
    elif rng.random() < 0.5:
        attrs["num_heads"] = n
    attrs |= {"is_packed_batching": 1} if rng.random() < 0.2 else {}
    shape = chosen(rng, (b, s, n * h), (b, n, s, h))
    ids = chosen(rng, rng.integers(0, 4, 1), rng.integers(0, most, (b, s)))
    angles = rng.uniform(-3, 3, (most, half)).astype(np.float32)
    inputs = {"x": floats(rng, *shape), "ids": ids, "cos": np.cos(angles), "sin": np.sin(angles)}
    return Case("RotaryEmbedding", inputs, attrs, some(rng, "cos", "sin"))


def _group_query(rng: Generator) -> Case:
    b, few, n_of, new = sizes(rng, 4, 4)
    prompt = rng.random() < 0.4
    b, new = (b, new) if prompt else chosen(rng, (b, 1), (1, new))  # what ONNX Runtime takes
    buffered = not prompt or rng.random() < 0.3
    before = np.zeros(b, np.int64) if prompt else rng.integers(1, 5, b)
    longest = int(before.max()) + new
    slots = int(before.max()) + chosen(rng, 0, 0, new, 3) if buffered else 0
    rotary = rng.random() < 0.5
    h = 16 if rotary else 8  # ONNX Runtime takes multiples of these
    width = few * (n_of + 2) * h
    n = few * n_of
    packed = rng.random() < 0.3
    attrs: dict[str, Any] = {"num_heads": n, "kv_num_heads": few}
    attrs |= given(rng, {"scale": number(rng, 0.1, 1), "softcap": number(rng, 0.5, 5)})
    attrs |= {"local_window_size": int(rng.integers(1, 5))} if rng.random() < 0.4 else {}
    attrs |= {"q_norm_epsilon": 1e-6, "k_norm_epsilon": 1e-6} if rng.random() < 0.1 else {}
    angles = rng.uniform(-3, 3, (longest + 3, h // 2)).astype(np.float32)
    if rotary:
        attrs |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(2))}
    bias = floats(rng, chosen(rng, 1, b), chosen(rng, 1, n), new, longest)
    if "local_window_size" not in attrs and rng.random() < 0.3:
        attrs["causal"] = 0
    inputs = {
        "q": floats(rng, b, new, width if packed else n * h),
        "k": None if packed else floats(rng, b, new, few * h),
        "v": None if packed else floats(rng, b, new, few * h),
        "pk": floats(rng, b, few, slots, h) if buffered else None,
        "pv": floats(rng, b, few, slots, h) if buffered else None,
        "lengths": (before + new - 1).astype(np.int32),
        "total": np.asarray(longest, np.int32),
        "cos": np.cos(angles) if rotary else None,
        "sin": np.sin(angles) if rotary else None,
        "ids": None,
        "bias": bias if rng.random() < 0.4 else None,
        "sink": maybe(rng, floats(rng, n)) if rng.random() < 0.5 else None,
    }
    if inputs["sink"] is None and rng.random() < 0.2:
        attrs["smooth_softmax"] = 1
    outputs = ("y", "present_k", "present_v")
    case = Case("GroupQueryAttention", inputs, attrs, some(rng, "cos", "sin"), outputs, scale=5.0)
    window = attrs.get("local_window_size", 0)
    if buffered and window and rng.random() < 0.6:
        _slide(rng, case, window)
    # in a sliding buffer ONNX Runtime takes codes of 8 bits of heads of 16, and of 4 bits of 32
    if buffered and (h == 16 or not case.visible) and rng.random() < 0.4:
        _as_codes(rng, case)
    return case


def _slide(rng: Generator, case: Case, window: int) -> None:
    """Makes the buffer one of the newest positions, as onnxruntime-genai's builder does for Gemma 2."""
    room = chosen(rng, 0, 1, 3)
    for name in ("pk", "pv"):
        b, n, _, h = case.inputs[name].shape
        case.inputs[name] = floats(rng, b, n, window + room, h)
    case.attrs["sliding_window_cache"] = 1
    _show(case, lambda total: total - (room + 1) * -(-max(total - window - room, 0) // (room + 1)))


def _show(case: Case, kept: Callable[[int], int]) -> None:
    """Compares of each sequence the positions that are kept of so many."""
    lengths = [kept(int(last) + 1) for last in case.inputs["lengths"]]

    def rows(state: Any) -> Any:
        return np.concatenate([of[:, :n].ravel() for of, n in zip(state, lengths, strict=True)])

    case.visible = dict.fromkeys(("present_k", "present_v"), rows)


def _as_codes(rng: Generator, case: Case) -> None:
    """Makes codes of 8 or 4 bits of the past, with a scale for the tensor or for each channel."""
    b, few, slots, h = case.inputs["pk"].shape
    bits = 8 if case.visible else chosen(rng, 8, 4)
    sizes = (b, few, slots, h * bits // 8)
    low, high, dtype = (-128, 128, np.int8) if bits == 8 else (0, 256, np.uint8)
    how = chosen(rng, "PER_TENSOR", "PER_CHANNEL")
    case.inputs.setdefault("sink", None)
    for letter in "kv":
        case.inputs[f"p{letter}"] = rng.integers(low, high, sizes).astype(dtype)
        shape = (1,) if how == "PER_TENSOR" else (1, few, 1, h)
        scale = rng.uniform(0.5, 1.5, shape) * (0.02 if bits == 8 else 0.3)
        case.inputs[f"scale_{letter}"] = scale.astype(np.float32)
        case.attrs[f"{letter}_quant_type"] = how
    case.attrs["kv_cache_bit_width"] = bits
    case.constant |= {"scale_k", "scale_v"}
    if not case.visible:
        _show(case, int)


def _embedded(rng: Generator) -> Case:
    b, s, h, words = sizes(rng, 4, 7)
    h += 2
    most = s + 3
    segments, told = rng.random() < 0.7, rng.random() < 0.7
    mask = maybe(rng, rng.integers(0, 2, (b, s)).astype(np.int32))
    inputs = {
        "ids": rng.integers(0, words, (b, s)).astype(np.int32),
        "kinds": rng.integers(0, 2, (b, s)).astype(np.int32) if segments and told else None,
        "words": floats(rng, words, h),
        "places": floats(rng, most, h),
        "tables": floats(rng, 2, h) if segments else None,
        "gamma": floats(rng, h),
        "beta": floats(rng, h),
        "mask": mask,
        "steps": maybe(rng, rng.integers(0, most, (chosen(rng, 1, b), s)).astype(np.int32)),
    }
    outputs = chosen(rng, ("y", "index"), ("y", "index", "sum"))
    constant = frozenset({"words", "places", "tables", "gamma", "beta"})
    attrs = given(rng, {"epsilon": number(rng, 1e-6, 1e-2)})
    return Case("EmbedLayerNormalization", inputs, attrs, constant, outputs, scale=3.0)


def _embedded_codes(rng: Generator) -> Case:
    b, s, h, words = sizes(rng, 4, 7)
    h += 2
    segments = rng.random() < 0.7
    names = ("words", "places", "tables", "gamma", "beta")
    shapes = ((words, h), (s + 3, h), (2, h), (h,), (h,))
    kind = chosen(rng, np.uint8, np.int8)
    low, high = (-128, 128) if kind is np.int8 else (0, 256)
    used = {name: segments or name != "tables" for name in names}
    codes = {
        name: rng.integers(low, high, shape).astype(kind) if used[name] else None
        for name, shape in zip(names, shapes, strict=True)
    }
    inputs: dict[str, Any] = {
        "ids": rng.integers(0, words, (b, s)).astype(np.int32),
        "kinds": rng.integers(0, 2, (b, s)).astype(np.int32) if segments else None,
        **codes,
        "mask": maybe(rng, rng.integers(0, 2, (b, s)).astype(np.int32)),
    }
    inputs |= {f"{n}_s": np.float32(number(rng, 0.005, 0.03)) if used[n] else None for n in names}
    inputs |= {
        f"{n}_z": kind(rng.integers(low // 4, high // 4)) if used[n] else None for n in names
    }
    constant = frozenset(inputs) - {"ids", "kinds", "mask"}
    return Case("QEmbedLayerNormalization", inputs, {}, constant, ("y", "index"), scale=3.0)


def _standard(rng: Generator) -> Case:
    b, s, few, h, v, keys = sizes(rng, 6, 5)
    n = few * chosen(rng, 1, 1, 2, 3)
    past = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0
    total = past + keys
    flat = rng.random() < 0.4
    attrs = given(rng, {"scale": number(rng, 0.1, 1), "softcap": number(rng, 0.5, 5)})
    attrs |= {"is_causal": 1} if rng.random() < 0.4 and keys == s else {}
    attrs |= {"q_num_heads": n, "kv_num_heads": few} if flat else {}
    shapes = ((n, s, h), (few, keys, h), (few, keys, v))
    inputs: dict[str, Any] = {
        name: floats(rng, b, length, heads * width)
        if flat
        else floats(rng, b, heads, length, width)
        for name, (heads, length, width) in zip("qkv", shapes, strict=True)
    }
    shape = (chosen(rng, 1, b), chosen(rng, 1, n), s, total)[int(rng.integers(3)) :]
    mask: Any = chosen(rng, None, floats(rng, *shape), rng.random(shape) < 0.6)
    if mask is not None and mask.dtype == np.float32 and rng.random() < 0.5:
        mask[rng.random(shape) < 0.4] = -np.inf
    if mask is not None and rng.random() < 0.7:  # a query that sees no key
        mask[..., int(rng.integers(s)), :] = False if mask.dtype == np.bool_ else -np.inf
    inputs["mask"] = mask
    inputs |= (
        {"pk": floats(rng, b, few, past, h), "pv": floats(rng, b, few, past, v)} if past else {}
    )
    outputs = ("y", "present_k", "present_v") if past else ("y",)
    constant = frozenset({"mask"} if rng.random() < 0.25 else ())
    return Case("Attention", inputs, attrs, constant, outputs, "", scale=5.0, opset=23)


def _standard_rotary(rng: Generator) -> Case:
    b, s, n = sizes(rng, 3, 5)
    h, most = 2 * sizes(rng, 1)[0] + 2, s + 4
    width = chosen(rng, 0, 0, 2 * int(rng.integers(1, h // 2 + 1)))
    flat = rng.random() < 0.5
    attrs = {"interleaved": int(rng.integers(2)), "rotary_embedding_dim": width}
    attrs |= {"num_heads": n} if flat else {}
    ids = maybe(rng, rng.integers(0, most, (b, s)))
    lead = (b, s) if ids is None else (most,)
    angles = rng.uniform(-3, 3, (*lead, (width or h) // 2)).astype(np.float32)
    inputs = {
        "x": floats(rng, b, s, n * h) if flat else floats(rng, b, n, s, h),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "ids": ids,
    }
    return Case("RotaryEmbedding", inputs, attrs, some(rng, "cos", "sin"), ("y",), "", opset=23)


ATTENTION: Mapping[str, Draw] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "DecoderMaskedMultiHeadAttention": _one_token,
    "GroupQueryAttention": _group_query,
    "QAttention": _attention_on_codes,
    "RotaryEmbedding": _rotary,
    "EmbedLayerNormalization": _embedded,
    "QEmbedLayerNormalization": _embedded_codes,
    "ai.onnx.Attention": _standard,
    "ai.onnx.RotaryEmbedding": _standard_rotary,
}
