"""The cells of examples/spark_stream.ipynb, in order, with the outputs that they show."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]


def code_cells() -> list[str]:
    values = json.loads((ROOT / "examples" / "spark_stream.ipynb").read_text(encoding="utf-8"))
    assert all(not one.get("outputs") for one in values["cells"]), "committed without outputs"
    return ["".join(one["source"]) for one in values["cells"] if one["cell_type"] == "code"]


def test_the_cells_of_the_notebook_show_what_they_say(spark: SparkSession) -> None:
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(code_cells()):
        # The session is that of the other tests.
        text = cell.replace("spark.stop()", "")
        shown = re.findall(r"^print\(.*\)(?:  |\n)# (.+)$", text, re.MULTILINE)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(text, f"cell {number}", "exec"), names)
        printed = output.getvalue().splitlines()
        assert printed[: len(shown)] == shown
