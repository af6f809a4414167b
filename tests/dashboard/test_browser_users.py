"""Pages of users in a browser: on a phone too, with JavaScript and without, and their pictures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.api.users import hash_of
from mesh.jetstream.directory import DirectoryUser
from mesh.model.access import ROLES, Grant
from tests.support.browser import browsing, chromium, look
from tests.support.dashboard import site
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from mesh.jetstream.server import NatsServer
    from tests.support.dashboard import Site

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGES = {
    "users": "/users",
    "user": "/users/eve",
    "user-new": "/users/+new",
    "account": "/account",
    "audit": "/audit",
}
IMAGES = ROOT / "docs" / "images"


async def people(at: Site) -> None:
    """Users with all roles, one of them disabled."""
    hashed = await asyncio.to_thread(hash_of, "ada", "twelve letters")
    for name, role, apps, active in (
        ("ada", "admin", "*", True), ("eve", "developer", "Shop*", True),
        ("oli", "operator", "*", True), ("vic", "viewer", "*", False),
    ):  # fmt: skip
        grants = (Grant(ROLES[role], apps),)
        user = DirectoryUser(name, hashed, grants, "ada", 1_795_440_000_000, active)
        await at.directory.put_user(user)


async def sign_in(page: Page, at: Site, name: str) -> None:
    await page.goto(at.url + "/login")
    await page.get_by_role("textbox", name="User").fill(name)
    await page.get_by_label("Password").fill("twelve letters")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("link", name="Your account").wait_for()


async def _looked_at(browser: Browser, at: Site, is_whole: bool, rewrite: bool) -> None:
    told: list[str] = []
    for width, theme in ((375, "dark"), (1440, "light")) if is_whole else ((375, "dark"),):
        scheme: Any = theme
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        page = await context.new_page()
        told += await look(page, at.url + "/login", width, is_axe=True)
        await sign_in(page, at, "ada")
        for name, path in PAGES.items():
            end = "-phone" if width == 375 else ""
            shot = IMAGES / f"dashboard-{name}{end}.png" if rewrite else None
            if width == 375 and name not in ("users", "user"):
                shot = None
            told += await look(page, at.url + path, width, is_axe=True, shot=shot)
        await context.close()
    assert told == [], "\n".join(told)


async def _users(browser: Browser, at: Site, *, has_script: bool) -> None:
    """A user is added, gets and loses a token, a role, a password; is disabled, and removed."""
    context = await browser.new_context(java_script_enabled=has_script)
    page = await context.new_page()
    await sign_in(page, at, "ada")
    await page.goto(at.url + "/users/+new")
    await page.get_by_label("Name").fill("new.one")
    await page.get_by_label("Password").fill("twelve letters")
    await page.get_by_role("radio", name="viewer sees").check()
    await page.get_by_role("button", name="Add the user").click()
    await _says(page, "The user is added.")
    other = await browser.new_context(java_script_enabled=has_script)
    theirs = await other.new_page()
    await sign_in(theirs, at, "new.one")
    await theirs.goto(at.url + "/account")
    await theirs.get_by_role("textbox", name="What it is for").fill("reports")
    await theirs.get_by_role("button", name="Make the token").click()
    assert "mesh_" in await theirs.get_by_role("status").first.inner_text()
    await theirs.goto(at.url + "/account")
    assert "mesh_" not in await theirs.content()
    await theirs.get_by_role("button", name="Revoke token reports").click()
    await _says(theirs, "The token is revoked.")
    await page.reload()
    await page.get_by_role("radio", name="operator").first.check()
    await page.get_by_role("button", name="Change the role").click()
    await _says(page, "The role is changed. It holds from the next request.")
    await page.get_by_role("button", name="Sign out everywhere").click()
    await _says(page, "Signed out everywhere.")
    await theirs.goto(at.url)
    assert theirs.url.endswith("/login")
    await page.get_by_role("button", name="Disable").click()
    await _says(page, "The user is disabled: its sessions are ended, its tokens refused.")
    await page.get_by_role("button", name="Enable").click()
    await _says(page, "The user may sign in again.")
    await page.get_by_label("New password").fill("twelve letters")
    await page.get_by_role("button", name="Change the password").click()
    await _says(page, "The password is changed, and the sessions are ended.")
    await sign_in(theirs, at, "new.one")
    await theirs.get_by_role("button", name="Sign out", exact=True).click()
    await theirs.wait_for_url("**/login")
    await page.get_by_text("Remove this user").click()
    await page.get_by_label("Type new.one").fill("new.one")
    await page.get_by_role("button", name="Remove the user").click()
    await _says(page, "User new.one is removed, with its tokens and sessions.")
    await page.goto(at.url + "/audit")
    await page.get_by_label("User", exact=True).fill("new.one")
    await page.get_by_role("button", name="Show").click()
    await page.wait_for_url("**user=new.one**")
    assert await page.get_by_role("link", name="new.one").count()
    await other.close()
    await context.close()


async def _says(page: Page, text: str) -> None:
    await page.locator("main [role=status]", has_text=text).first.wait_for(timeout=15_000)


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.extended)])
async def test_pages_of_users_in_a_browser(
    nats_server: NatsServer, is_whole: bool, rewrite: bool
) -> None:
    chromium()

    async with (
        site(nats_server, anonymous=False, requests_per_s=0.0) as at,
        browsing() as browser,
    ):
        await people(at)
        await _looked_at(browser, at, is_whole, rewrite)
        for has_script in (True, False) if is_whole else (True,):
            await _users(browser, at, has_script=has_script)
