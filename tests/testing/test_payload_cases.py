"""``mesh test FILE.yaml``: payloads in, events and payloads out."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.errors import MeshError
from mesh.testing.payload_cases import read
from tests.support.pages import every_passage

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """@App:name('Shop')
@source(type='http', receiver.url='http://127.0.0.1:0/in',
        @map(type='json', @attributes(item='$.i', price='$.p', user='trp:x-user')))
define stream Orders (item string, price double, user string);
@sink(type='http', publisher.url='http://127.0.0.1:9/out', @map(type='json'))
@sink(type='log', @map(type='csv'))
define stream Dear (item string, price double);
@sink(type='log', @map(type='csv')) define stream Late (item string, n long);
from Orders[price > 100.0] select item, price insert into Dear;
from Orders#window.timeBatch(1 min) select item, count() as n insert into Late;
"""
GOOD: dict[str, Any] = {
    "name": "a dear order",
    "send": [
        {"stream": "Orders", "payload": '{"i":"lamp","p":120.5}', "properties": {"X-User": "u"}},
        {"stream": "Orders", "payload": {"i": "no price"}, "properties": {"X-User": "u"}},
        {"stream": "Orders", "event": {"item": "pen", "price": 1.0, "user": "v"}, "at": "5 sec"},
        {"at": "3 min"},
    ],
    "expect": {
        "Orders": [
            {"item": "lamp", "price": 120.5, "user": "u"},
            {"item": "pen", "price": 1.0, "user": "v"},
        ],
        "Dear": [{"item": "lamp", "price": 120.5}],
    },
    "payloads": {"Dear": [{"event": {"item": "lamp", "price": 120.5}}], "Late": ["pen,2"]},
    "errors": ["price"],
}


def written(directory: Path, *cases: dict[str, Any], text: str = TEXT) -> Path:
    (directory / "shop.siddhi").write_text(text)
    path = directory / "shop.yaml"
    path.write_text(yaml.safe_dump({"app": "shop.siddhi", "cases": list(cases)}))
    return path


def test_numbers_that_are_none_are_compared_as_they_are(tmp_path: Path) -> None:
    text = """@App:name('N') @source(type='http', receiver.url='http://127.0.0.1:0/in',
@map(type='csv')) define stream Readings (k string, v double, f float);
@sink(type='log', @map(type='csv')) define stream Out (k string, v double, f float);
from Readings select k, v * 2.0 as v, f insert into Out;"""
    case = {
        "name": "none",
        "send": [
            {"stream": "Readings", "payload": "a,NaN,Infinity"},
            {"stream": "Readings", "event": {"k": "b", "v": float("-inf"), "f": float("nan")}},
        ],
        "expect": {
            "Out": [
                {"k": "a", "v": float("nan"), "f": float("inf")},
                {"k": "b", "v": float("-inf"), "f": float("nan")},
            ]
        },
        "payloads": {"Out": ["a,NaN,Infinity", "b,-Infinity,NaN"]},
    }
    (found,) = read(written(tmp_path, case, text=text))
    found.check()
    wrong = {**case, "expect": {"Out": [{"k": "a", "v": None, "f": float("inf")}]}}
    (found,) = read(written(tmp_path, wrong, text=text))
    assert '"v":NaN' in found.differences()[0]


def test_an_error_in_the_text_names_the_file_of_the_text(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, text=TEXT.replace("select item, price", "select item, cost"))
    said = CliRunner().invoke(app, ["test", str(path)])
    assert said.exit_code == 1
    assert "shop.siddhi:9:" in said.output
    assert "cost" in said.output
    path.write_text(yaml.safe_dump({"app": TEXT.replace("price >", "cost >"), "cases": [GOOD]}))
    said = CliRunner().invoke(app, ["test", str(path)])
    assert "shop.yaml (app):9:" in said.output


def test_payloads_go_through_the_mappers_and_time_passes(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    (case,) = read(path)
    assert str(case) == "a dear order"
    case.check()
    said = CliRunner().invoke(app, ["test", str(path)])
    assert said.exit_code == 0, said.output
    assert said.stdout == f'{path}: app "Shop", a dear order: as expected\n'


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        (
            {"expect": {"Dear": [{"item": "lamp", "price": 1.0}]}},
            'Dear, event 1: {"item":"lamp","price":120.5}\n  expected: {"item":"lamp","price":1.0}',
        ),
        (
            {"expect": {"Dear": []}},
            'Dear, event 1: {"item":"lamp","price":120.5}\n  expected: nothing',
        ),
        (
            {"payloads": {"Late": ["pen,2", "more"]}},
            "Late, payload 2: nothing\n  expected: more",
        ),
        ({"payloads": {"Dear": ["x"]}}, 'Dear, payload 1: {"event":{"item":"lamp","price":120.5}}'),
        ({"errors": []}, "expected: nothing"),
        ({"errors": ["price", "other"]}, "error 2: nothing\n  expected: other"),
    ],
)
def test_differences_are_shown(tmp_path: Path, changes: dict[str, Any], shown: str) -> None:
    path = written(tmp_path, GOOD | changes)
    (case,) = read(path)
    with pytest.raises(AssertionError) as failed:
        case.check()
    assert shown in str(failed.value)
    said = CliRunner().invoke(app, ["test", str(path), "--output", "json"])
    assert said.exit_code == 1
    assert shown in json.loads(said.stdout)[0]["differences"][0]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"name": "x"}, "a case with other names"),
        ({"name": "x", "send": [], "sends": []}, "a case with other names"),
        ({"name": "x", "send": [{"steam": "Orders"}]}, "a step with other names"),
        ({"name": "x", "send": [{"at": "soon"}]}, "at: soon is a time"),
        ({"name": "x", "send": [{"stream": "Dear", "payload": "{}"}]}, "which has no source"),
        ({"name": "x", "send": [], "payloads": {"Orders": []}}, "which has no sink"),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, case: dict[str, Any], reason: str
) -> None:
    path = written(tmp_path, case)
    with pytest.raises(MeshError) as refused:
        read(path)[0].check()
    assert refused.value.code == "MESH-U160"
    assert reason in str(refused.value.detail)
    assert CliRunner().invoke(app, ["test", str(path)]).exit_code != 0


@pytest.mark.slow
def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    firsts = {
        "alarm.siddhi": "@App:name('Alarm')",
        "alarm.yaml": "app: alarm.siddhi",
        "test_alarm.py": "from pathlib import Path",
    }
    for name, first in firsts.items():
        (shown,) = (one for one in every_passage() if one.first == first)
        (tmp_path / name).write_text(shown.text)
    said = CliRunner().invoke(app, ["test", str(tmp_path / "alarm.yaml")])
    assert said.exit_code == 0, said.output
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "test_alarm.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr
