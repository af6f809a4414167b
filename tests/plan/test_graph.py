"""The picture of a plan as dot."""

from __future__ import annotations

import re

from mesh.plan.build import plan
from mesh.plan.picture import to_dot
from tests.support.paths import EXAMPLE


def test_dot_quotes_what_it_names() -> None:
    text = to_dot(plan(EXAMPLE.read_text()).spec)
    assert text.startswith('digraph "Temperature" {\n')
    assert '"channel mesh.Temperature.TempStream" -> "group group-1";' in text
    assert re.search(r'-> "group group-2" \[style=dashed label="round robin"\];', text)
    assert text.count("{") == text.count("}") == 1
