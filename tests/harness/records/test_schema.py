"""docs/schema holds the schema of every record kind as it is written today."""

from __future__ import annotations

import json

import pytest

from fakes import ROOT
from pagebench.harness.records.codec import KINDS, json_schema

SCHEMAS = ROOT / "docs" / "schema"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kinds_schema_is_the_one_in_the_docs(kind: str) -> None:
    """Where it is not: bash docs/schema/write."""
    assert json.loads((SCHEMAS / f"{kind}.json").read_text()) == json_schema(kind)


def test_there_is_a_schema_of_every_kind_and_of_nothing_else() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(KINDS)
