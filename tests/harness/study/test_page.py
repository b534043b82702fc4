"""The study's page: HTML that loads nothing from outside, and the command that writes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import H200, pagebench
from fakes.study_records import FILES, OTHER_KINDS, SCATTER, medians, written
from pagebench.harness.records import codec, store
from pagebench.harness.records.timing import Timing
from pagebench.harness.study import page as study_page
from pagebench.harness.study.figures import strip
from pagebench.harness.study.read import read
from pagebench.harness.study.sections import Study, study
from pagebench.harness.timing.stats import Modes

pytestmark = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Of every kind of record."""
    return study(read([*FILES, written(tmp_path_factory.mktemp("kinds"), *OTHER_KINDS)]))


class Elements(HTMLParser):
    """Start tags with their attributes; `open` is what was not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_runs_nothing(whole: Study) -> None:
    page = study_page.html(whole)
    found = Elements(page)
    assert found.open == []
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.tags}
    places = [value or "" for _, attributes in found.tags for name, value in attributes.items()
              if name in ("src", "href", "xlink:href", "srcset", "data")]  # fmt: skip
    assert all(place.startswith("#") for place in places)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_ids_are_unique_and_what_is_referred_to_is_there(whole: Study) -> None:
    tags = Elements(study_page.html(whole)).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {(a.get("xlink:href") or "#")[1:] for _, a in tags} - {""} <= set(ids)
    headings = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_every_figure_is_described(whole: Study) -> None:
    tags = Elements(study_page.html(whole)).tags
    described = [a["aria-label"] for _, a in tags if a.get("role") == "img"]
    figures = sum(len(each.figures) for each in whole.sections)
    assert len(described) == sum(tag == "svg" for tag, _ in tags) == figures
    assert all(described)


def test_words_from_records_are_escaped() -> None:
    assert study_page.marked("<b> `a<b` **c**") == (
        "&lt;b&gt; <code>a&lt;b</code> <strong>c</strong>"
    )


def test_two_drawings_are_equal_bytes(whole: Study, tmp_path: Path) -> None:
    again = study(read([*FILES, written(tmp_path, *OTHER_KINDS)]))
    assert study_page.html(again) == study_page.html(whole)
    assert study_page.as_markdown(again) == study_page.as_markdown(whole)


def test_the_markdown_has_the_pages_words_and_tables(whole: Study) -> None:
    text = study_page.as_markdown(whole)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        each.title for each in whole.sections
    ]
    assert "| 16 | 224.94 |" in text
    assert f"| {medians('pages')['xqa_shared_p16']:.2f} |" in text


def test_both_modes_of_a_strip_are_marked_apart() -> None:
    svg = strip("one", "", (1.0, 2.0, 1.1, 2.1), Modes(1.05, 2.05, 0.5)).svg
    assert svg.startswith("<svg")
    assert {"#0072b2", "#d55e00"} <= set(re.findall(r"#[0-9a-f]{6}", svg))


# --- The command ----------------------------------------------------------------------------------


def test_the_command_writes_both_and_says_where(tmp_path: Path) -> None:
    done = pagebench("study", str(H200 / "plan.jsonl"), "--out", "page", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["page/study.html", "page/study.md"]
    assert (tmp_path / "page" / "study.html").read_text().startswith("<!doctype html>")


def another_gpu(folder: Path) -> Path:
    timing = store.read([H200 / "plan.jsonl"], Timing).of(Timing)[0]
    other = replace(timing, environment=replace(timing.environment, gpu="NVIDIA B200"))
    return written(folder, other)


def test_input_that_cannot_be_drawn_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    whole = codec.to_json(SCATTER)
    without = {name: value for name, value in whole.items() if name != "cells"}
    bad = {
        "no record that a study draws": [str(H200 / "speed.jsonl")],
        "no record that a study draws in empty": ["empty.jsonl"],
        "name results files": [],
        "--measure needs a GPU": ["--measure", "--device", "cpu"],
        "--measure makes its own records": [str(H200 / "plan.jsonl"), "--measure"],
        "give the folder": [str(H200 / "plan.jsonl"), "--out", "x.html"],
        "No such file": ["nowhere.jsonl"],
        "NVIDIA B200, NVIDIA H200": [str(H200 / "plan.jsonl"), str(another_gpu(tmp_path))],
        "a verdict record: Object missing required field `cells`": [
            str(a_line(tmp_path / "lacks.jsonl", without))
        ],
        "a verdict record: Object missing required field `word` - at `$.time`": [
            str(a_line(tmp_path / "odd.jsonl", whole | {"time": {}}))
        ],
        "Not a directory": [str(H200 / "plan.jsonl"), "--out", "empty.jsonl/page"],
    }
    for message, words in bad.items():
        done = pagebench("study", *words, cwd=tmp_path)
        assert done.returncode == 2, message
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "runs").exists()


def a_line(path: Path, line: dict[str, object]) -> Path:
    path.write_text(json.dumps(line))
    return path


# --- A browser ------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
               None)  # fmt: skip
# Headless windows have a least width of 500 pixels, an iframe has none.
MEASURE = """<iframe src="study.html" style="width:375px;height:2000px;border:0"></iframe>
<script>onload = () => { const page = frames[0].document, root = page.documentElement;
  const out = [...page.querySelectorAll("main *")].filter(e => !e.closest(".table") &&
    e.getBoundingClientRect().right > 375.5).map(e => e.tagName);
  document.title = root.clientWidth + " " + root.scrollWidth + " " + out.length; }</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_phone_sees_the_page_without_scrolling_sideways(whole: Study, tmp_path: Path) -> None:
    study_page.write(whole, tmp_path)
    (tmp_path / "measure.html").write_text(MEASURE)
    done = subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom",
         (tmp_path / "measure.html").as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert re.findall(r"<title>(.*?)</title>", done.stdout) == ["375 375 0"], done.stderr[-500:]
