from __future__ import annotations

import json

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support.paths import CASES

_FILE = CASES / "plan" / "reference.jsonl"
HEADER, *ROWS = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]


def runs(app: str) -> bool:
    try:
        check_supported(bind(parse(app)))
    except MeshError:
        return False
    return True
