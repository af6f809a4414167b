"""The tutorial is followed word by word, in a browser, on the cluster of ``mesh dev``.

A step of the page begins with what a person does: open, press, follow, write, use a key, see or
find.  ``--rewrite`` makes the pictures of the page.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.cli.test_dev import DEADLINE_S, running_dev
from tests.support.browser import axe_problems, browsing, chromium
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Page

PAGE: Final = ROOT / "docs" / "tutorial.md"
_FORMS: Final = {
    "open": r"Open `([^`]+)`",
    "press": r"Press \*\*([^*]+)\*\*",
    "follow": r"Follow \*\*([^*]+)\*\*",
    "write": r"Write `([^`]+)` into \*\*([^*]+)\*\*",
    "key": r"Use the key `([^`]+)`",
    "find": r"Find `([^`]+)` in \*\*([^*]+)\*\*",
    "picture": r"!\[[^]]+\]\(images/([\w-]+\.png)\)",
    "see": r"See `([^`]+)`(?:(?:,)? and `([^`]+)`)?",
}
TIMEOUT_MS: Final = 1000 * DEADLINE_S


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the page: its action and the texts that it names."""

    line: int
    action: str
    words: tuple[str, ...]


def steps_of(text: str) -> list[Step]:
    """The numbered steps and the pictures of the page, in order; no step has another form."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        step = re.match(r"(?:\d+\. |(?=!\[))(.*)", line)
        if step is None:
            continue
        forms = [
            (action, match)
            for action, form in _FORMS.items()
            if (match := re.match(form, step[1])) is not None
        ]
        assert len(forms) == 1, f"line {number} of the tutorial: {line}"
        action, match = forms[0]
        found.append(Step(number, action, tuple(one for one in match.groups() if one)))
    return found


async def _do(page: Page, step: Step, url: str, rewrite: bool) -> None:
    first, *rest = step.words
    match step.action:
        case "picture":
            if rewrite:
                await page.screenshot(path=PAGE.parent / "images" / first, full_page=True)
        case "open":
            await page.goto(url + first)
        case "press":
            await page.get_by_role("button", name=first, exact=True).click()
        case "follow":
            await page.get_by_role("main").get_by_role("link", name=first, exact=True).first.click()
        case "write":
            await page.get_by_label(rest[0], exact=True).fill(first)
        case "key":
            await page.keyboard.press(first)
        case "find":
            events = page.get_by_role("region", name=f"Last events of {rest[0]}")
            await events.get_by_text(first).first.wait_for(timeout=TIMEOUT_MS)
        case _:
            for words in step.words:
                shown = page.get_by_text(words).locator("visible=true")
                await shown.first.wait_for(timeout=TIMEOUT_MS)


async def _follow(said: str, rewrite: bool) -> None:
    url, user, password = _printed(said)
    async with browsing() as browser:
        context = await browser.new_context(
            ignore_https_errors=True, viewport={"width": 1440, "height": 900}
        )
        page = await context.new_page()
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        await page.goto(url)
        await page.get_by_role("textbox", name="User").fill(user)
        await page.get_by_label("Password").fill(password)
        await page.get_by_role("button", name="Sign in").click()
        for step in steps_of(PAGE.read_text("utf-8")):
            try:
                await _do(page, step, url, rewrite)
            except Exception as error:
                error.add_note(f"line {step.line} of the tutorial, {step}, at {page.url}")
                raise
        assert await axe_problems(page) == []
        await context.close()


def _printed(said: str) -> tuple[str, str, str]:
    """Address, user and password that ``mesh dev`` prints."""
    found = re.search(r"REST API +(https://\S+).*?user +(\S+) +password (\S+)", said, re.DOTALL)
    assert found is not None, said
    return found[1], found[2], found[3]


def test_every_step_has_a_known_form() -> None:
    steps = steps_of(PAGE.read_text("utf-8"))
    assert len(steps) > 15
    assert {one.action for one in steps} == set(_FORMS)


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_tutorial_is_followed(tmp_path: Path, rewrite: bool) -> None:
    chromium()
    for dev in running_dev(tmp_path):
        asyncio.run(_follow(dev.wait_for("The manager is up"), rewrite))
