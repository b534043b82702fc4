"""A study of several GPUs: the newest is drawn, and everything says which it is of."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes import H200
from fakes.study_records import column, section, written
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.timing import Timing
from pagebench.harness.study import page as study_page
from pagebench.harness.study.read import read
from pagebench.harness.study.sections import study

pytestmark = pytest.mark.skipif(not H200.exists(), reason="the records are not installed")

BOTH = [H200 / "study_other_gpu.jsonl", H200 / "study_third_gpu.jsonl"]
NEWER, OLDER = "GPU-73505915", "GPU-dc69e1e5"


def test_of_several_gpus_the_newest_is_drawn_whatever_the_order_of_files() -> None:
    one, other = (study_page.as_markdown(study(read(paths))) for paths in (BOTH, BOTH[::-1]))
    assert one == other
    alone = section(study(read(BOTH[:1])), "verdicts").tables[0].rows
    assert section(study(read(BOTH)), "verdicts").tables[0].rows == alone


def test_of_several_gpus_every_table_and_figure_says_which() -> None:
    page = study(read(BOTH))
    assert f"The records are of 2 GPUs of that model: {NEWER}, {OLDER}." in (
        study_page.as_markdown(page)
    )
    for each in page.sections:
        for table in each.tables if each.anchor not in ("environment", "reproduce") else ():
            assert "GPU" in table.headings or NEWER in table.caption, table.caption
        assert all(NEWER in figure.alt or OLDER in figure.alt for figure in each.figures)
    counted = section(page, "replay").tables[1]
    assert set(column(counted, "GPU")) == {NEWER, OLDER}


def test_counters_beside_times_are_the_same_gpus_where_it_has_any(tmp_path: Path) -> None:
    path = written(tmp_path, *store.read(BOTH[:1], Timing).of(Timing))
    mixed = section(study(read([path, BOTH[1]])), "pages").tables[1]
    assert mixed.caption.endswith(f"On {NEWER}, {OLDER}.")  # it has none: of its model
    same = section(study(read([path, *BOTH])), "pages").tables[1]
    assert same.caption.endswith(f"On {NEWER}.")


def test_one_gpu_is_named_at_the_top_alone() -> None:
    text = study_page.as_markdown(study(read(BOTH[:1])))
    assert f"on NVIDIA H200 ({NEWER})" in text
    assert "On GPU-" not in text


def test_records_of_several_models_are_no_page(tmp_path: Path) -> None:
    timing = store.read([H200 / "plan.jsonl"], Timing).of(Timing)[0]
    other = replace(timing, environment=replace(timing.environment, gpu="NVIDIA B200"))
    with pytest.raises(UserError, match="NVIDIA B200, NVIDIA H200"):
        read([H200 / "plan.jsonl", written(tmp_path, other)])
