"""Secrets of options: put in where a sink runs, and shown nowhere else."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest

from mesh.errors import MeshError, MeshErrors
from mesh.language.substitution import substitute
from mesh.model import codec, secrets
from mesh.plan.build import plan
from mesh.receiver.opened import Opened
from tests.support.secret_apps import VALUE

TEXT = """@App:name('Alarm')
define stream Readings (sensor string, value double);
@sink(type='http', publisher.url='http://127.0.0.1:1/x', basic.auth.username='ann',
      basic.auth.password='${secret:alarm.password}', @map(type='json'))
define stream Alarms (sensor string, value double);
from Readings[value > 40.0] select sensor, value insert into Alarms;
"""


def _sink() -> Opened:
    spec = plan(substitute(TEXT, {})).spec
    (group,) = [one for one in spec.groups if one.name.startswith("sink-")]
    return Opened.of_group(group)


def test_the_reference_stays_in_plans_and_the_value_is_in_the_options_alone() -> None:
    spec = plan(substitute(TEXT, {"secret": "no variable"})).spec
    assert b"${secret:alarm.password}" in codec.encode(spec)
    opened = _sink()
    assert secrets.names_in(opened.connector.options.values()) == {"alarm.password"}
    values = opened.values(None, secrets={"alarm.password": VALUE})  # type: ignore[arg-type]  # unused
    assert values["basic.auth.password"] == VALUE


def test_a_secret_outside_of_a_string_is_refused() -> None:
    with pytest.raises((MeshError, MeshErrors)):
        plan(substitute(TEXT.replace("40.0", "${secret:limit}"), {}))


@pytest.mark.parametrize("value", ["Zq7@ss/w0rd-S3cr3t%x", "a:b@c?d#e", "plain", "p%40ss"])
def test_a_part_of_a_secret_is_no_host_and_in_no_endpoint(value: str) -> None:
    text = TEXT.replace("http://127.0.0.1:1/x", "http://u:${secret:p}@h:81/${secret:p}?k=1")
    spec = plan(substitute(text.replace("alarm.password", "p"), {})).spec
    opened = Opened.of_group(next(one for one in spec.groups if one.name.startswith("sink-")))
    url = urlsplit(opened.values(None, secrets={"p": value})["publisher.url"])  # type: ignore[arg-type]  # unused
    assert (url.hostname, url.port, url.username) == ("h", 81, "u")
    assert unquote(url.password or "") == unquote(value)
    assert opened.endpoint(None) == "http://h:81/***"  # type: ignore[arg-type]  # unused
    assert secrets.filled("${secret:p}", {"p": value}) == value
    servers = secrets.filled("nats://u:${secret:p}@h,nats://u:${secret:p}@i", {"p": value})
    assert [urlsplit(one).hostname for one in servers.split(",")] == ["h", "i"]
    secrets.remember([value])
    assert secrets.masked(f"{url.geturl()} {value}").count(value) == 0
    assert (url.password or "") not in secrets.masked(url.geturl())
