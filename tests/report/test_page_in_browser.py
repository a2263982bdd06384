"""What the page of `inspect --html` does in a browser: a real Chromium, driven without a screen.

Skipped where there is no Chromium, or no playwright to drive it.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.browsers import chromium, launch_options
from support.finding_networks import Net
from support.large_plans import residual_plan

import fqfuse
from fqfuse.errors import printable
from fqfuse.models.digits import digits_model_path
from fqfuse.report.html.page import to_html
from fqfuse.report.html.picture import to_svg

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")

HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=alert(1)>\"'&\u202egnp\x1b[31m\x00"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(**launch_options())
        yield running
        running.close()


@pytest.fixture
def opened(browser, tmp_path):
    """opened(text, **how) -> the page in the browser, ready; a request that leaves it, an error or a
    word on the console fails the test at its end.
    """
    wrong: list[str] = []
    contexts = []

    def at(text: str, suffix: str = ".html", **how):
        file = tmp_path / f"page{suffix}"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **how})
        contexts.append(context)
        page = context.new_page()
        page.on(
            "request",
            lambda found: (
                wrong.append(f"request: {found.url[:200]}")
                if found.url != file.as_uri() and not found.url.startswith("data:")
                else None
            ),
        )
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda said: wrong.append(f"console: {said.text}"))
        page.on("dialog", lambda shown: wrong.append(f"dialog: {shown.message}"))
        page.goto(file.as_uri())
        if suffix == ".html":
            page.wait_for_selector("html[data-ready]", state="attached")
        return page

    at.wrong = wrong
    yield at
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def digits() -> str:
    return to_html(fqfuse.compile(digits_model_path("fakequantize")), title="digits.onnx")


def selected(page) -> str:
    """What the story tells of; empty where none is told."""
    story = page.locator("#story")
    return story.locator("h2").inner_text() if story.is_visible() else ""


def test_the_verdict_and_the_steps_are_shown(opened, digits) -> None:
    page = opened(digits)
    assert page.locator("#name").inner_text() == "digits.onnx"
    assert "multiply-adds run in int8" in page.locator("#answer").inner_text()
    assert page.locator(".tile").count() == 3
    assert page.locator("#canvas .node").count() > 3
    assert page.locator(".card").count() > 0


def test_on_a_narrow_screen_nothing_lies_over_anything(opened, digits) -> None:
    page = opened(digits, viewport={"width": 480, "height": 900})
    parts = ("#legend", "#zoom", "#strip", "#lists")
    boxes = [page.locator(part).bounding_box() for part in parts]
    for place, one in enumerate(boxes):
        assert one["x"] >= 0
        assert one["x"] + one["width"] <= 480
        for other in boxes[:place]:
            apart = [
                one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at]
                for at, size in (("x", "width"), ("y", "height"))
            ]
            assert any(apart)
    assert page.locator("#canvas").bounding_box()["width"] > 400
    assert page.locator("#canvas .node").count() > 3


@pytest.mark.each_case
@pytest.mark.parametrize("wide", [1920, 1400, 1280, 1024])
def test_no_tab_is_cut_off(opened, wide: int) -> None:
    page = opened(to_html(residual_plan(1500)), viewport={"width": wide, "height": 900})
    box = page.locator("#lists").bounding_box()
    for tab in page.locator("#tabs .tab").all():
        own = tab.bounding_box()
        assert own["x"] + own["width"] <= box["x"] + box["width"], tab.inner_text()


def test_a_click_tells_the_story(opened, digits) -> None:
    page = opened(digits)
    page.locator(".node.k-int8 .what").first.click()
    assert re.match(r"#\d+ ", selected(page))
    told = page.locator("#story").inner_text()
    for part in (
        "Fused, in order",
        "of the model",
        "Attributes",
        "scale of src",
        "Decisions",
        "estimated time",
    ):
        assert part in told
    assert page.locator(".node.selected").count() == 1
    page.locator("#story .link").first.click()
    assert selected(page)
    page.locator("#story .close").click()
    assert selected(page) == ""


def test_search_finds_goes_on_and_ends(opened, digits) -> None:
    page = opened(digits)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("convolution")
    found = int(page.locator("#hits").inner_text().split()[0])
    assert found == page.locator("#panel .rows .row").count() > 1
    assert page.locator(".node.faint").count() > 0
    page.keyboard.press("Enter")
    first = selected(page)
    page.keyboard.press("Enter")
    assert "convolution" in first
    assert "convolution" in selected(page) != first
    assert page.locator("#hits").inner_text() == f"2 of {found}"
    page.keyboard.press("Escape")
    assert page.locator(".node.faint").count() == 0
    page.fill("#search", "no such layer anywhere")
    assert page.locator("#hits").inner_text() == "0 found"
    assert "Nothing matches" in page.locator("#panel").inner_text()


def test_keys_walk_the_graph_and_unfold(opened, digits) -> None:
    page = opened(digits)
    page.focus("#canvas")
    page.keyboard.press("ArrowDown")
    first = selected(page)
    page.keyboard.press("ArrowDown")
    assert selected(page) not in {"", first}
    page.keyboard.press("ArrowUp")
    assert selected(page) == first
    for _ in range(4):
        page.keyboard.press("ArrowDown")
        if page.locator("#story li").count():
            break
    before = page.locator(".node.selected .box").bounding_box()["height"]
    page.keyboard.press("Enter")
    assert page.locator(".node.selected .inside text").count() > 0
    assert page.locator(".node.selected .box").bounding_box()["height"] > before
    page.keyboard.press("Enter")
    assert page.locator(".node.selected .inside").count() == 0
    page.keyboard.press("Escape")
    assert selected(page) == ""
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()


def test_the_focus_is_seen(opened, digits) -> None:
    page = opened(digits)
    for _ in range(6):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid", page.evaluate("document.activeElement.outerHTML")


def test_tables_lead_to_steps(opened, digits) -> None:
    page = opened(digits)
    for tab in ("Steps", "Quantizers", "Decisions"):
        page.click(f"[data-tab={tab}]")
        assert page.locator("#panel .rows .row").count() > 3
        page.locator("#panel .rows .row").nth(1).click(position={"x": 60, "y": 10})
        assert selected(page)
        page.keyboard.press("Escape")
    page.click("[data-tab=Steps]")
    page.locator(".headrow .cost").click()
    times = [float(text.split()[0]) for text in page.locator(".rows .cost").all_inner_texts()]
    assert times == sorted(times, reverse=True)
    page.focus(".scroll")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert selected(page)


def test_the_table_follows_the_graph(opened) -> None:
    page = opened(to_html(residual_plan(300)))
    page.click("[data-tab=Steps]")
    page.click("#strip", position={"x": 30, "y": 400})
    page.focus("#canvas")
    page.keyboard.press("ArrowDown")
    (number,) = re.findall(r"^#(\d+)", selected(page))
    assert int(number) > 50
    row = page.locator("#panel .rows .row.here")
    assert row.locator(".cell").first.inner_text() == number
    assert row.is_visible()
    assert page.evaluate("location.hash") == f"#step-{number}"


def test_an_address_leads_to_a_step(opened, browser, tmp_path, digits) -> None:
    opened(digits)
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri() + "#step-2")
    assert selected(page).startswith("#2 ")
    page.close()


def test_within_another_page(opened, digits) -> None:
    # as a notebook shows it: no address of its own, and nothing allowed but scripts
    page = opened("<!doctype html><html data-ready=yes><body></body></html>")
    page.evaluate(
        """(text) => {
            const frame = document.createElement('iframe');
            frame.setAttribute('sandbox', 'allow-scripts');
            Object.assign(frame, { width: 1200, height: 700, srcdoc: text });
            document.body.append(frame);
        }""",
        digits,
    )
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    frame.locator("#canvas").focus()
    page.keyboard.press("ArrowDown")
    assert frame.locator("#story h2").inner_text().startswith("#")


def test_a_finding_shows_its_steps(opened) -> None:
    page = opened(to_html(residual_plan(60)))
    page.locator(".card .head").first.click()
    assert page.locator(".node.faint").count() > 0
    page.locator(".card .chip").first.click()
    assert "Belongs to:" in page.locator("#story").inner_text()


def test_light_and_dark(opened, digits) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page = opened(digits, color_scheme=scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    page.click("#theme")
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor") == colours[0] != colours[1]
    )


def test_measured_times_and_errors(opened) -> None:
    plan = residual_plan(20)
    page = opened(to_html(plan, times={3: 1.5, 4: 0.5}, errors={3: 7.0, 4: float("inf")}))
    assert "2.0 ms" in page.locator("#tiles").inner_text()
    assert page.locator("#size").input_value() == "time"
    page.select_option("#colour", "error")
    assert page.locator(".node.k-e0").count() == 1
    page.locator(".node.k-e0 .what").click()
    told = page.locator("#story").inner_text()
    assert "1.5 ms, 75 %" in told.replace("\n", " ")
    assert "7 dB" in told


def test_hostile_names_are_texts(opened) -> None:
    plan = residual_plan(12, name=HOSTILE, prefix=HOSTILE)
    page = opened(to_html(plan, title=HOSTILE))
    assert page.title() == f"{printable(HOSTILE)} – fqfuse"
    for tab in ("Findings", "Steps", "Quantizers", "Decisions"):
        page.click(f"[data-tab={tab}]")
    page.locator(".node .what").first.click()
    page.keyboard.press("Enter")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    shown = page.evaluate("document.body.innerText + document.title")
    assert "</script>" in shown
    assert not re.search("[\u202e\x1b\x00]", shown)


def test_nothing_may_be_fetched_or_run_from_outside(opened, digits) -> None:
    page = opened(
        digits.replace(
            "<noscript>",
            "<script>document.title = 'run'</script><img src='https://example.com/x.png'><noscript>",
        )
    )
    assert page.title() != "run"
    assert len(opened.wrong) > 1
    assert all(
        "Content Security Policy" in said for said in opened.wrong if said.startswith("console")
    )
    refused = [said for said in opened.wrong if "script" in said and "blocked" in said]
    assert refused
    opened.wrong.clear()


@pytest.mark.slow
def test_five_thousand_steps(opened) -> None:
    page = opened(to_html(residual_plan(5000)))
    watched = page.context.new_cdp_session(page)
    watched.send("Performance.enable")
    told = watched.send("Performance.getMetrics")["metrics"]
    # the promise is 3 s to be ready; processor time, since a clock tells of what else is busy
    assert {entry["name"]: entry["value"] for entry in told}["ProcessTime"] < 3
    ready = int(page.locator("html").get_attribute("data-ready")) / 1000
    print(f"\nready after {ready:.2f} s")  # 0.25 s of it are work; the rest is what else is busy
    assert page.locator("#canvas .node").count() < 200, "only what is in sight is drawn"
    page.fill("#search", "layer1249/conv3")
    page.press("#search", "Enter")
    assert selected(page).startswith("#4999 ")
    assert page.locator(".node.selected").is_visible()
    page.click("#fit")
    assert page.locator("#overview path").count() > 0
    page.click("#strip", position={"x": 30, "y": 300})
    page.focus("#canvas")
    page.keyboard.press("ArrowDown")
    assert page.locator("#overview").is_hidden(), "it lay over the steps"
    page.click("[data-tab=Decisions]")
    assert page.locator("#panel .rows .row").count() < 100


def test_the_picture_is_drawn(opened) -> None:
    page = opened(to_svg(residual_plan(12, name=HOSTILE, prefix=HOSTILE)), ".svg")
    assert page.locator("text=#11").count() == 1
    assert page.locator("script").count() == 0


@pytest.mark.parametrize("steps", [0, 1])
def test_a_plan_without_steps_or_edges(opened, steps: int) -> None:
    plan = residual_plan(1)
    plan = (
        plan
        if steps
        else replace(
            plan, steps=(), outputs=("in",), quantizers={}, fate_records=(), decision_records=()
        )
    )
    page = opened(to_html(plan))
    page.focus("#canvas")
    page.keyboard.press("ArrowDown")
    assert selected(page)


def test_no_time_is_shown_where_open_sizes_decide_it(opened) -> None:
    net = Net()
    net.op("Relu", "x", name="relu", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": ["batch", "length"]}))
    tile = opened(to_html(plan)).locator("#tiles").inner_text()
    assert "not known" in tile
    assert "sizes guessed: batch=1, length=128" in tile
    assert " ms" not in tile
    assert " ms" in opened(to_html(plan, sizes={"length": 64})).locator("#tiles").inner_text()
