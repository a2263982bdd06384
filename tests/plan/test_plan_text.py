"""parse(print(plan)) == plan, for sound plans and for plans of any content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plan_strategies import full_plan, plans, tiny_plan
from support.plan_text import parse_plan
from support.text_strategies import exactly, loose_plans

from fqfuse.errors import FqfuseError, InvalidModel
from fqfuse.ir.text_write import shortened, string_text
from fqfuse.plan.text import print_plan
from fqfuse.plan.verify import verify_plan


@given(loose_plans())
def test_a_plan_of_any_content_survives_the_text_form(plan):
    text = print_plan(plan)
    again = parse_plan(text)
    assert again == plan
    assert print_plan(again) == text
    assert all(str(found) for found in verify_plan(plan))  # findings, and no crash
    for old, new in zip(plan.steps, again.steps, strict=True):
        assert {k: exactly(v) for k, v in old.params.items()} == {
            k: exactly(v) for k, v in new.params.items()
        }
        assert repr(old.attr.post_ops) == repr(new.attr.post_ops)


@given(plans())
def test_a_sound_plan_survives_the_text_form(plan):
    assert verify_plan(plan) == []
    assert parse_plan(print_plan(plan)) == plan


def test_the_full_plan_survives_and_is_sound():
    plan = full_plan()
    assert "\n".join(map(str, verify_plan(plan))) == ""
    assert parse_plan(print_plan(plan)) == plan


@pytest.mark.golden("plan_text")
def test_the_plan_reads_well(golden):
    plan = {"full": full_plan, "tiny": tiny_plan}[golden.name]()
    golden.check(print_plan(plan, data="digest"))


@given(plans())
def test_what_a_tool_wrote_is_never_shortened(plan):
    assert shortened(print_plan(plan)) == print_plan(plan)


LONG_NAMES = [
    ("n" * 500, 500),
    ("n" * 501, 500),
    ("é" * 10**6, 500),
    ("a+b" * 300, 500),
    ('a"\\ ' * 10**6, 4000),
]


@pytest.mark.parametrize(("name", "length"), LONG_NAMES, ids=lambda value: str(value)[:4])
def test_long_names_are_shortened_wherever_they_stand(name, length):
    text = print_plan(
        parse_plan(
            f"plan p target=t\n  in %{string_text(name)} : f32[2,3]\n  out %{string_text(name)}\n"
        )
    )
    before, shown, after = re.fullmatch(
        r"(.*in %)(.*)( : f32\[2,3\]\n.*)", shortened(text), flags=re.DOTALL
    ).groups()
    assert (len(shown), before) == (length, text[: len(before)])
    assert f"out %{shown}\n" in after
    assert (shortened(text) == text) == (len(name) <= 500)


HEAD = "plan p target=onednn-v3\n  in %x : f32[2,3]\n"

CASES = {
    "": "the text form is empty",
    "graph p\n": "expected `plan` and its name",
    "plan p\n  out": "expected `target=` and the plan's target",
    "plan p target=onednn-v3\n": "the text ends without a line `out`",
    "plan p target=onednn-v3 steps=2\n  out": "the header says steps=2, the text has 0",
    HEAD + "  inn %y : f32[1]": "expected `in`, `const`, a step",
    HEAD + "  in %x : f32[1]": "x is defined a second time",
    HEAD + "  const %c : f32[1] = [1.0]": "a constant's name begins with `@`",
    HEAD
    + "  const @c : s4[1] = [1]": "a plan's constant is a plain array, and s4[1] is not the type of one",
    HEAD + "  #1 %y : f32[1] = eltwise<Relu>(src=%x)": "expected step #0, found #1",
    HEAD + "  #0 %y : f32[1] = eltwise<Relu(src=%x)": "expected `>`",
    HEAD + "  #0 %y : f32[1] = eltwise<Relu>(%x)": "expected the role of an argument",
    HEAD + "  #0 %y : f32[1] = eltwise<Relu>(src=@x)": "no constant @x is defined above",
    HEAD + "  #0 @y : f32[1] = eltwise<Relu>(src=%x)": "a constant cannot be written",
    HEAD
    + "  #0 %y : f32[1] = pooling<MaxPool>(src=%x)": "MaxPool needs the parameter kernel_shape",
    HEAD
    + "  #0 %y : f32[1] = softmax<Softmax>(src=%x){axis=1,!axis}": "the parameter axis stands here twice",
    HEAD
    + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) scales(src=1,src=2)": "a role stands here twice",
    HEAD + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) scales(src=[1,2])": "expected `:`",
    HEAD
    + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) | relu": "expected a post-op (eltwise, binary, sum, prelu, depthwise_conv)",
    HEAD
    + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) | eltwise(relu,gamma=1)": "gamma is no option here, or stands twice",
    HEAD
    + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) | sum(%x,scale=1,scale=1)": "scale is no option here, or stands twice",
    HEAD
    + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) | depthwise_conv(%x,%x,kernel=3)": "depthwise_conv needs stride, padding",
    HEAD
    + "  #0 %y : f32[1] = matmul<MatMul>(src=%x) ; a quantizer q": "a step has no quantizers of its own",
    HEAD + "  option a = 1\n  option a = 2": "the option a stands here twice",
    HEAD + "  out %x\n  out %x": "a second line `out`",
    HEAD + "  quantizer q : F of x\n  quantizer q : F of x": "the quantizer q stands here twice",
}


@pytest.mark.parametrize(("text", "message"), CASES.items(), ids=range(len(CASES)))
def test_the_error_says_what_was_expected(text, message):
    with pytest.raises(InvalidModel) as caught:
        parse_plan(text)
    assert message in caught.value.what


def test_a_plan_written_by_hand_takes_defaults_from_the_op_table():
    plan = parse_plan(HEAD + "  #0 %y : f32[2,3] = softmax<Softmax>(src=%x)\n  out %y\n")
    assert plan.steps[0].params == {"axis": -1}
    assert plan.steps[0].name == "softmax_0"
    assert verify_plan(plan) == []


@given(st.data())
def test_any_change_of_a_text_gives_a_plan_or_an_error_with_a_place(data):
    text = print_plan(full_plan(), data="digest")
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 6, len(text))))
        piece = data.draw(
            st.sampled_from(
                ["", "%", "@", "{", "[", '"', "\n", "0", "-", "|", "nan", "#", ";", "(", "é"]
            )
            | st.text(max_size=3)
        )
        text = text[:start] + piece + text[end:]
    try:
        plan = parse_plan(text)
    except FqfuseError as error:
        assert re.search(r"line \d+, column \d+|empty", str(error))  # noqa: PT017  # the alternative is a plan, not a failure
    else:
        verify_plan(plan)
        assert parse_plan(print_plan(plan)) == plan


def test_the_examples_of_the_grammar_are_what_the_printer_writes():
    text = (Path(__file__).parents[2] / "docs" / "contributing" / "text-form.md").read_text(
        encoding="utf-8"
    )
    examples = [block for block in text.split("```\n") if block.startswith("plan ")]
    assert examples
    for example in examples:
        plan = parse_plan(example)
        # zlib may pack the data in another way elsewhere
        assert print_plan(plan).split("\ndata\n")[0] == example.split("\ndata\n")[0]
        assert verify_plan(plan) == []
