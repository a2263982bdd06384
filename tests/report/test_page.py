"""The page and the picture as files: what is in them, and that a model's names stay texts. What the
page does is tested in a browser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from support.finding_networks import Net
from support.large_plans import residual_plan
from support.screen_networks import NETWORKS

import fqfuse
from fqfuse.errors import InvalidInput, printable
from fqfuse.models.digits import digits_model_path
from fqfuse.report.html.data import CATEGORIES, document
from fqfuse.report.html.page import SCRIPTS, to_html
from fqfuse.report.html.picture import to_svg

HOSTILE = (
    "</script><!--<img src=x onerror=alert(1)>&\"'`{{data}}{{script}}\u202e\u2028\x1b[31m\x00\ud800"
)
ASSETS = files("fqfuse.report.html") / "assets"


def data_in(page: str) -> dict:
    """The document in a page: what it needs at once, and what it reads when asked."""
    data, details = (
        json.loads(re.search(f'json" id="{name}">(.*?)</script>', page, re.DOTALL)[1])
        for name in ("data", "details")
    )
    return {**data, "details": details}


@pytest.fixture(scope="module")
def plan():
    return fqfuse.compile(digits_model_path("qdq"))


def test_the_page_holds_the_whole_plan(plan) -> None:
    data = data_in(to_html(plan, title="digits.onnx"))
    assert data == json.loads(json.dumps(document(plan, title="digits.onnx")))
    details = data["details"]
    texts = data["texts"] + details["texts"]
    assert len(data["steps"]) == len(plan.steps)
    assert [[texts[name] for name in step["origin"]] for step in details["steps"]] == [
        list(step.origin) for step in plan.steps
    ]
    assert [texts[row[0]] for row in details["quantizers"]] == list(plan.quantizers)
    assert len(details["fates"]) == len(plan.fate_records)
    assert len(details["decisions"]) == data["decisions"] == len(plan.decision_records)
    assert [finding["code"] for finding in data["findings"]] == [
        finding["code"] for finding in fqfuse.findings(plan)
    ]


def test_each_value_between_steps_is_an_edge(plan) -> None:
    data = data_in(to_html(plan))
    first = data["first"]
    writer = {value: index for index, step in enumerate(plan.steps) for value in step.outputs}
    wanted = {
        (writer[value], index)
        for index, step in enumerate(plan.steps)
        for value in step.inputs
        if value in writer
    }
    drawn = {(source - first, target - first) for source, target, *_ in data["edges"]}
    steps = range(len(plan.steps))
    assert {edge for edge in drawn if edge[0] in steps and edge[1] in steps} == wanted
    assert len(data["places"]) == first + len(plan.steps) + len(plan.outputs)


def test_scales_zero_points_and_post_ops_are_told() -> None:
    data = document(fqfuse.compile(digits_model_path("qdq"), target="onednn-v2"))
    texts = data["texts"] + data["details"]["texts"]
    facts = {texts[name] for step in data["details"]["steps"] for name, _ in step["facts"]}
    assert {"output_scales", "zero point of src", "codes written"} <= facts


def test_categories_follow_the_types(plan) -> None:
    data = document(plan)
    kinds = {CATEGORIES[step["category"]] for step in data["steps"]}
    assert "int8" in kinds
    f32 = document(fqfuse.compile(digits_model_path("f32")))
    assert "int8" not in {CATEGORIES[step["category"]] for step in f32["steps"]}


def test_the_same_plan_gives_the_same_page(plan) -> None:
    assert to_html(plan) == to_html(plan)
    assert to_svg(plan) == to_svg(plan)


# -- what a stranger's model may hold --------------------------------------------------------------


def test_hostile_names_cannot_leave_their_place() -> None:
    page = to_html(residual_plan(12, name=HOSTILE, prefix=HOSTILE), title=HOSTILE)
    assert page.isascii() is False  # the page has dashes of its own
    assert page.count("<script") == 3
    assert page.count("</script") == 3
    assert "<img" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2028\ud800]", page)
    data = data_in(page)
    assert data["title"] == printable(HOSTILE)
    assert all(text.isprintable() for text in data["texts"] + data["details"]["texts"])
    page.encode("utf-8")


def test_only_the_scripts_of_the_package_may_run(plan) -> None:
    page = to_html(plan)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'")
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}';" in policy


def test_scripts_never_make_markup_of_texts_and_name_no_address() -> None:
    scripts = {entry.name: entry.read_text("utf-8") for entry in ASSETS.iterdir()}
    assert {name for name in scripts if name.endswith(".js")} == set(SCRIPTS)
    for name, script in scripts.items():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser",
            script,
        )
        assert found == [], name
        addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[\w/.]*", script))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name


def test_hostile_names_in_the_picture() -> None:
    picture = to_svg(residual_plan(12, name=HOSTILE, prefix=HOSTILE), title=HOSTILE)
    space = "{http://www.w3.org/2000/svg}"
    tree = ET.fromstring(picture)  # noqa: S314  # our own file
    assert {element.tag for element in tree.iter()} == {
        space + tag for tag in ("svg", "title", "style", "rect", "text", "path")
    }
    assert printable(HOSTILE) in [element.text for element in tree.iter(f"{space}text")]
    names = [
        element.text for element in tree.iter(f"{space}text") if element.get("class") == "what"
    ]
    assert len(names) == 12


# -- what was measured -----------------------------------------------------------------------------


def test_measured_times_and_errors_stand_with_their_steps(plan) -> None:
    data = data_in(to_html(plan, times={0: 0.25}, errors={1: 31.5, 2: float("inf")}))
    assert data["steps"][0]["time"] == 0.25
    assert data["steps"][1]["error"] == 31.5
    assert data["steps"][2]["error"] == 999.0
    assert "time" not in data["steps"][1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"times": [1.0]}, "times are of type list"),
        ({"times": {10_000: 1.0}}, "times hold 10000"),
        ({"times": {-1: 1.0}}, "times hold -1"),
        ({"times": {0: -1.0}}, r"times hold -1\.0 for step 0"),
        ({"times": {0: float("inf")}}, "times hold inf"),
        ({"errors": {0: float("nan")}}, "errors hold nan for step 0"),
        ({"errors": {0: "31"}}, "errors hold '31'"),
        ({"sizes": {"nothing": 3}}, "no size 'nothing'"),
    ],
)
def test_wrong_arguments_are_told(plan, given: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        to_html(plan, **given)


def test_boxes_of_names_that_differ_in_their_middles_stay_apart() -> None:
    net, outputs = Net(), []
    for layer in (1, 2):
        scope = f"/model/decoder/layers.{layer}/self_attention"
        outputs.append(f"{scope}/projection/output/key")
        net.conv(net.quantized("x"), f"{scope}/projection/output/MatMul", out=outputs[-1])
    data = document(fqfuse.compile(net.proto(outputs=outputs)))
    boxes = [data["texts"][index] for index in data["boxes"]]
    assert len(boxes) == len(data["inputs"]) + len(data["steps"]) + len(data["outputs"])
    named = [box for box in boxes if "layers." in box]
    assert len(named) == len(set(named)) == 4


@pytest.mark.parametrize("name", ["bert-nncf", "yolo-nncf", "lstm-ort", "resnet50-ort"])
def test_all_that_a_picture_draws_lies_inside_of_it(name: str) -> None:
    """Edges bend around boxes, on either side of all of them; a chain is narrower than its title."""
    drawn = ET.fromstring(  # noqa: S314  (our own)
        to_svg(fqfuse.compile(NETWORKS[name]()), title="m" * 50)
    )
    wide, high = (float(size) for size in drawn.attrib["viewBox"].split()[2:])
    ways = [path.attrib["d"] for path in drawn.iter("{http://www.w3.org/2000/svg}path")]
    points = [point for way in ways for point in re.findall(r"(-?\d+) (-?\d+)", way)]
    assert points
    assert all(0 < float(x) < wide and 0 < float(y) < high for x, y in points)
    for text in drawn.iter("{http://www.w3.org/2000/svg}text"):
        width = {"": 6, "title": 9}.get(
            text.attrib.get("class", ""), 0
        )  # pixels a character, about
        assert float(text.attrib["x"]) + width * len(text.text) < wide


def test_a_wide_picture_begins_where_it_opens() -> None:
    """A trunk with many branches at its end: it stands in the middle of these, and what a browser shows first is the
    left edge. Boxes of one rank stay apart.
    """
    net = Net()
    trunk = net.quantized(net.conv(net.quantized("x"), "trunk"))
    outputs = [f"y{branch}" for branch in range(16)]
    for name in outputs:
        net.op("Relu", net.conv(trunk, f"branch/{name}"), name=name, out=name)
    text = to_svg(fqfuse.compile(net.proto(outputs=outputs)))
    boxes = re.findall(r'class="box" x="(-?\d+)" y="(-?\d+)" width="(\d+)"', text)
    places = sorted((int(y), int(x), int(width)) for x, y, width in boxes)
    assert places[0][1] + places[0][2] < 600
    assert max(x for _, x, _ in places) > 3000
    for (y, x, width), (below, right, _) in pairwise(places):
        assert y != below or x + width <= right
