"""A study as one HTML page and as Markdown: the same words and tables, figures in the page only."""

from __future__ import annotations

import re
from pathlib import Path

from pagebench.harness import seed
from pagebench.harness.report import markdown
from pagebench.harness.section import Section
from pagebench.harness.study import QUESTION, Study


def html(study: Study) -> str:
    """One self-contained page: nothing is loaded and nothing runs."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pagebench.harness", "")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"marked": marked, "breakable": breakable}
    return environment.get_template("study.html.jinja").render(
        question=QUESTION, seed=seed, study=study
    )


def marked(text: str) -> str:
    """Text as HTML: `code` and **strong** become elements, all else is escaped."""
    from markupsafe import Markup, escape

    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe))


def breakable(text: str) -> str:
    """Text as HTML in which a line may end after an underscore: cell names are long."""
    from markupsafe import Markup, escape

    return Markup(str(escape(text)).replace("_", "_<wbr>"))


def as_markdown(study: Study) -> str:
    """The words and tables alone."""
    head = f"# {QUESTION}\n\nMeasured on {study.device}, beside the study on one {seed.GPU}."
    return "\n\n".join([head, *map(_section, study.sections)]) + "\n"


def _section(section: Section) -> str:
    parts = [f"## {section.title}", *section.text, *filter(None, [section.missing])]
    for table in section.tables:
        parts += [table.caption, markdown(table.headings, table.rows)]
    return "\n\n".join(parts)


def write(study: Study, folder: Path) -> tuple[Path, Path]:
    """Write study.html and study.md into the folder and return where they are."""
    page, text = folder / "study.html", folder / "study.md"
    drawn = html(study)
    folder.mkdir(parents=True, exist_ok=True)
    page.write_text(drawn, encoding="utf-8")
    text.write_text(as_markdown(study), encoding="utf-8")
    return page, text
