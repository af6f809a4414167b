"""The programs of the connector's two pages, run as they are, with the outputs that they show."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_nats
from pyspark_nats.errors import RefusedError
from tests.support.pages import passages
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.nats


def program(page: str, directory: Path) -> str:
    """The blocks in Python of a page; Spark's own process has another directory."""
    blocks = [one.text for one in passages(ROOT / page) if one.language == "python"]
    return "\n".join(blocks).replace('"checkpoints/', f'"{directory}/checkpoints/')


def shown(text: str) -> list[str]:
    """The outputs that a program shows in its comments, in order."""
    return re.findall(r"^print\(.*\)(?:  |\n)# (.+)$", text, re.MULTILINE)


def printed(text: str) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(text, "page", "exec"), {"__name__": "page"})
    return output.getvalue().splitlines()


@pytest.mark.spark
def test_the_first_page_is_pasted_whole(spark: SparkSession, alone: Path) -> None:
    # The session is that of the other tests.
    text = program("docs/connector.md", alone).replace("spark.stop()", "")
    assert len(shown(text)) == 4
    assert printed(text) == shown(text)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
def test_the_readme_is_pasted_whole(spark: SparkSession, broker: Any, alone: Path) -> None:
    text = program("connectors/README.md", alone)
    text = text.replace("nats://127.0.0.1:4222", broker.url)
    assert len(shown(text)) == 1
    assert printed(text) == shown(text)


def test_a_stream_that_is_there_like_this_stays_and_another_is_refused(broker: Any) -> None:
    for _ in range(2):
        pyspark_nats.create_stream(broker.url, "S", ["a.*", "b"], max_age_s=60.5)
    with pytest.raises(RefusedError, match='"S" exists with another configuration') as refused:
        pyspark_nats.create_stream(broker.url, "S", "c")
    assert "mesh._marker.S.>" in refused.value.hint
    with pytest.raises(RefusedError, match="overlap"):
        pyspark_nats.create_stream(broker.url, "T", "a.*")
