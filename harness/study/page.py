"""A study as one HTML page and as Markdown: the same words and tables, figures in the page only."""

from __future__ import annotations

import re
from pathlib import Path

from pagebench.harness.escape import in_markdown, visible
from pagebench.harness.records.store import write_whole
from pagebench.harness.show.text import markdown
from pagebench.harness.study import original
from pagebench.harness.study.section import ANEW, Section
from pagebench.harness.study.sections import QUESTION, Study


def html(study: Study) -> str:
    """One self-contained page: it loads nothing and runs nothing."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pagebench.harness.study", "")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"marked": marked, "breakable": breakable}
    environment.tests["name"] = is_name
    return environment.get_template("page.html.jinja").render(
        question=QUESTION, preface=preface(study), study=study
    )


def _shown(value: object) -> object:
    """What an expression of the template gives, without hidden characters."""
    from markupsafe import Markup

    if isinstance(value, Markup):
        return Markup(visible(value, keep="\n"))
    return visible(value, keep="\n") if isinstance(value, str) else value


def marked(text: str) -> str:
    """Text as HTML: `code` and **strong** become elements, all else is escaped."""
    from markupsafe import Markup, escape

    safe = re.sub(r"`([^`]+)`", _code, str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe))


def _code(found: re.Match[str]) -> str:
    return f"<code>{found[1].replace('_', '_<wbr>')}</code>"


def breakable(text: str) -> str:
    """Text as HTML in which a line may break after an underscore, but not in an interval."""
    from markupsafe import Markup, escape

    whole = re.sub(r"\[[^]]*\]", lambda found: found[0].replace(" ", "\u00a0"), text)
    return Markup(str(escape(whole)).replace("_", "_<wbr>"))


def is_name(text: str) -> bool:
    """Whether this is a name such as a cell's, which the page may break at underscores."""
    return " " not in text and text.count("_") > 1


def preface(study: Study) -> list[str]:
    """What the page is, the original study, the meaning of the mark and, if several, the GPUs."""
    on = f" ({study.gpus[0]})" if len(study.gpus) == 1 else ""
    text = [
        f"Measured by pagebench on {study.device}{on}, beside the figures of the original study: "
        f"{original.SOURCE}, on one {original.GPU}. {original.KEPT} Every other number is computed "
        "from records; the commands that make them are at the end.",
        f"{ANEW} marks what is recomputed when the page is drawn, by the rules of the pagebench "
        "that draws it: what binds, what the time follows over a dose, and predicted counters. "
        "Verdicts, attacks and planted effects are shown as recorded.",
    ]
    if len(study.gpus) > 1:
        text.append(
            f"The records are of {len(study.gpus)} GPUs of that model: {', '.join(study.gpus)}. "
            "If something was measured more than once, the newest is drawn; the sections on "
            "repeating counters, bimodal cells and environments show all. Every table names the "
            "GPU of its rows; if it names several, times are from the first and counters or "
            "ceilings from the others."
        )
    return text


def as_markdown(study: Study) -> str:
    """The words and tables alone."""
    above = [f"# {QUESTION}", *map(in_markdown, preface(study))]
    return "\n\n".join([*above, *map(_section, study.sections)]) + "\n"


def _section(section: Section) -> str:
    above = [f"## {section.title}", *section.text, *filter(None, [section.missing])]
    parts = list(map(in_markdown, above))
    for table in section.tables:
        parts += [in_markdown(table.caption), markdown(table.headings, table.rows)]
    return "\n\n".join([*parts, *map(in_markdown, section.after)])


def write(study: Study, folder: Path) -> tuple[Path, Path]:
    """Write study.html and study.md into the folder; StoreError where that fails."""
    page, text = folder / "study.html", folder / "study.md"
    drawn, told = html(study), as_markdown(study)
    write_whole(page, drawn)
    write_whole(text, told)
    return page, text
