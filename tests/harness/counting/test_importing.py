"""Pages that were made elsewhere: read whole, or refused in one line that begins with the file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fakes import DATA
from fakes.ncu_pages import NAME, PAGE, THREE, edited, one_launch, units
from pagebench.harness.counting.baseline import counts_of
from pagebench.harness.counting.importing import import_file, imported
from pagebench.harness.errors import UserError
from pagebench.harness.records import store
from pagebench.harness.records.counters import Counters
from pagebench.harness.show.card import joined, joined_card
from pagebench.harness.show.counters import counters_card
from pagebench.profiles import ncu_page


def written(page: str, folder: Path) -> Path:
    (folder / "page.csv").write_text(page)
    return folder / "page.csv"


def import_page(page: str, folder: Path) -> list[Counters]:
    return import_file(written(page, folder))


def test_thousands_separators_are_read() -> None:
    """An older recording, in the locale that ncu met."""
    text = (DATA / "ncu_thousands_separators.csv").read_text()
    assert '"407,552"' in text
    (record,) = imported(text)
    assert record.value("ldg") == 407_552
    assert record.total["dram_read_bytes"].value > 50e6


def test_an_imported_page_gives_a_record_a_cell_with_a_row_a_kernel_and_their_sum() -> None:
    records = {record.cell: record for record in imported(THREE)}
    assert set(records) == {"fidecode_distinct_p1", "tritontile_distinct_p64", "xqa_shared_p64"}
    decode, merge = records["fidecode_distinct_p1"].kernels
    assert "BatchDecode" in decode.symbol
    assert "MergeStates" in merge.symbol
    both = [kernel.values["ldg"][0] or 0 for kernel in (decode, merge)]
    assert records["fidecode_distinct_p1"].value("ldg") == sum(both)


def test_what_a_page_cannot_say_is_not_there() -> None:
    (record,) = imported(PAGE)
    assert record.how.imported
    assert (record.how.chip, record.how.launches) == ("gh100", 2)
    assert (record.how.ncu, record.how.l2, record.how.cells) == (None, None, None)
    assert (record.environment.capability, record.environment.gpu) == ((9, 0), None)
    assert (record.resolved, record.predicted.ldg) == ({}, None)
    assert not record.calibrated


def test_what_was_counted_once_is_not_stable_and_shown_as_such(tmp_path: Path) -> None:
    (record,) = import_page(one_launch(PAGE), tmp_path)
    assert not any(count.stable for count in record.total.values())
    assert not any(counts_of([record]).values())
    card = counters_card(record)
    assert "counted once" in card
    assert "not calibrated, kernels not checked" in card
    store.append(tmp_path / "c.jsonl", record)
    shown = joined_card(joined(NAME, [tmp_path / "c.jsonl"]))
    assert "counters  on a GPU not named in the report" in shown


def test_unknown_launch_facts_leave_a_card_without_them(tmp_path: Path) -> None:
    page = PAGE.replace('"launch__registers_per_thread"', '"launch__other"')
    (record,) = import_page(page, tmp_path)
    assert "registers" not in counters_card(record)


@pytest.mark.parametrize(
    ("page", "match"),
    [
        (units(PAGE, "byte", "Mbyte"), "is in Mbyte, not byte: export with LC_ALL=C"),
        (edited(ldg="407.552"), "ldg is 407.552 inst: not a number of the C locale"),
        (edited(ldg="407.552.123"), "not a number of the C locale"),
        (edited(ldg="407.000"), "not a number of the C locale"),
        (PAGE.rstrip()[:-4], "cut off"),
        (PAGE.replace("xqa_shared_p16", "no cell"), "has a cell's name: profile with `page"),
        (PAGE + PAGE.splitlines()[-1].replace("kernel_mha", "other"), "xqa_shared_p16: "),
        (edited(l2_hit_all_pct="9,138"), "not a number of the C locale"),
        (edited(l2_hit_all_pct="-91.38"), "l2_hit_all_pct is -91.38 %"),
        (edited(ldg="-407552"), "ldg is -407552 inst"),
        (edited(ldg="1e400"), "ldg is 1e400 inst"),
        (PAGE + PAGE, "several pages in one file: import each page on its own"),
        (
            PAGE.replace("kernel_mha", "kernel\0mha"),
            "not a text file: give a report the suffix .ncu-rep",
        ),
        (PAGE.replace('"CC"', '"CD"'), "no compute capability"),
        (PAGE.replace('"9.0"', '""'), "no compute capability"),
        (
            PAGE.replace('"9.0"', '"7.5"'),
            "no counters are mapped for compute capability 7.5, only for 8.0",
        ),
        (PAGE.replace('"Grid Size"', '"Size"'), "not a raw CSV page"),
        (
            PAGE.replace("smsp__", "x__")
            .replace("l1tex__", "x__")
            .replace("lts__", "x__")
            .replace("dram__", "x__")
            .replace("sm__", "x__"),
            "no counter of pagebench",
        ),
        (PAGE[:-400], "cut off"),
        ("", "not a raw CSV page"),
    ],
)
def test_a_page_that_would_be_misread_is_refused_in_one_line(
    page: str, match: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=match) as caught:
        import_page(page, tmp_path)
    assert "\n" not in str(caught.value)
    assert "page.csv: " in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_page_that_a_shell_wrote_in_its_own_encoding_is_read(
    encoding: str, tmp_path: Path
) -> None:
    file = tmp_path / "page.csv"
    file.write_text(PAGE, encoding=encoding)
    (record,) = import_file(file)
    assert record.value("ldg") == 407_552


def test_a_missing_report_is_named_before_a_tool_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.ncu-rep: No such file"):
        import_file(tmp_path / "none.ncu-rep")


def test_a_report_is_read_without_ncu_as_ncu_exports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ncu_report")
    monkeypatch.setenv("PATH", "/nowhere")
    (read,) = import_file(DATA / "ncu_xqa_shared_p16.ncu-rep")
    (exported,) = import_page(PAGE, tmp_path)
    assert read.total == exported.total
    (kernel,), (other,) = read.kernels, exported.kernels
    for name in ("symbol", "grid", "block", "passes"):
        assert getattr(kernel, name) == getattr(other, name)
    # ncu prints two decimals.
    assert kernel.launch == pytest.approx(other.launch, abs=0.005)
    for name, values in kernel.values.items():
        assert values == pytest.approx(other.values[name], abs=0.005)


def test_a_file_that_is_no_report_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ncu_report")
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "r.ncu-rep").write_bytes(b"no report")
    with pytest.raises(UserError, match=r"r\.ncu-rep: ncu-report finds no kernels here"):
        import_file(tmp_path / "r.ncu-rep")


def test_a_report_that_no_tool_can_read_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.ncu-rep"
    file.write_bytes(b"no report")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(UserError, match="pip install ncu-report"):
        import_file(file)


def test_a_bug_in_reading_is_no_fault_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its own type, and so reaches the user with its traceback."""
    file = written(PAGE, tmp_path)
    for planted in (KeyError("planted"), ValueError("planted"), TypeError("planted")):

        def broken(*_: object, error: Exception = planted) -> None:
            raise error

        monkeypatch.setattr(ncu_page, "number", broken)
        with pytest.raises(type(planted), match="planted"):
            import_file(file)
