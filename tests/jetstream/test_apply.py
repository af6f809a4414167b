"""Actions of a decision, written one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import apply
from mesh.manager.manager import running
from mesh.model import names
from tests.support.faulty import settings_of, text, until

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
async def test_a_write_that_fails_keeps_no_other_from_being_done(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apply._LeaderWriter.write

    async def write(self: Any, key: str, record: Any) -> None:
        if key.startswith(names.form_key("First", "")):
            raise ValueError("not this one")
        await real(self, key, record)

    monkeypatch.setattr(apply._LeaderWriter, "write", write)

    async with running(settings_of(nats_server)) as (manager, service):
        await service.deploy(text("First"))
        await service.deploy(text("Second"))

        def forms() -> set[str]:
            return {form.value.app for form in manager.view.snapshot().forms}

        await until(manager, lambda: forms() == {"Second"})
