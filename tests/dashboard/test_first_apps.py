"""Apps of the cookbook with their events and their changes."""

from __future__ import annotations

import random

import pytest

from mesh.control.simulating import check, value
from mesh.dashboard.first_apps import FIRST_APPS, FirstApp, text_of
from mesh.model.simulation import feed_of
from mesh.plan.build import plan
from mesh.plan.changes import changes_between
from tests.dashboard.test_overview import parses


@pytest.mark.parametrize("one", FIRST_APPS, ids=lambda one: one.file)
def test_events_fit_the_app_and_its_change_is_another_app(one: FirstApp) -> None:
    spec = plan(text_of(one)).spec
    assert spec.name == one.app
    feed = feed_of(one.simulation())
    check(feed)
    streams = {channel.stream.name: channel.stream for channel in spec.channels}
    for source in feed.sources:
        attributes = streams[source.stream].attributes
        assert list(one.inputs[source.stream]) == [a.name for a in attributes]
        for rule, attribute in zip(source.attributes, attributes, strict=True):
            drawn = value(rule, random.Random(1))
            assert isinstance(drawn, str) == (str(attribute.type) == "string")
    for before, after in one.change:
        assert before in text_of(one)
        assert before != after
    changed = plan(one.changed(text_of(one))).spec
    assert changes_between(spec, changed).to_reset == (one.reset,)
    for command in (f"mesh test {one.path}", f"mesh deploy {one.path}"):
        assert parses(command.split()[1:])
