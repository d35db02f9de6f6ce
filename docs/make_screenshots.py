# ruff: noqa: INP001 (a program beside the pages, not a package)
"""Makes `docs/images/web.png` and `docs/images/dashboard/` anew: `.venv/bin/python docs/make_screenshots.py`.

A real `ethos serve` on a new data directory, a real Chromium on its page, a desktop's and a phone's width side by side.
Of the dashboard every page is kept in light, in dark and as a phone shows it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from gateway.web.dashboard.page import all_pages

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "web.png"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
DESKTOP, PHONE = (960, 640), (320, 640)
DASHBOARD = ROOT / "docs" / "images" / "dashboard"
# Name, colours and size of the pictures of each page; together they stay below two MB.
VIEWS = (("light", "light", (1120, 760)), ("dark", "dark", (1120, 760)), ("phone", "light", (360, 720)))
MAX_PICTURE_BYTES = 120_000

SCENE = (
    ("hello", "I am the offline model"),
    ("remember that my name is Ada", "Name: Ada"),
    ("remember that the release is on Friday", "I will remember this: the release"),
    ("when is the release?", "From my notes: the release"),
    ("/memory", "MEMORY.md"),
)
FRAME = """\
<body style="margin: 0; padding: 14px; display: flex; gap: 14px; background: #e4e7ec; width: max-content">
{pictures}
</body>"""
SHOT = '<img style="border-radius: 10px; border: 1px solid #c3c9d3" src="data:image/png;base64,{data}">'


@contextlib.contextmanager
def served() -> Iterator[str]:
    """A gateway of our own; gives the address that logs in."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text("web: {port: 0}\n")
        gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
            cwd=ROOT,
            env={**os.environ, "ETHOS_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for line in gateway.stderr or ():
                if '"channel_up"' in line and '"web"' in line:
                    break
            else:
                raise RuntimeError("the gateway did not start")
            url = json.loads((home / "run" / "gateway.json").read_text())["url"]
            yield f"{url}?token={(home / 'web-token').read_text().strip()}"
        finally:
            gateway.terminate()
            gateway.communicate(timeout=30)


def opened(browser: Browser, address: str, size: tuple[int, int]) -> Page:
    """The chat page, logged in and connected."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="light", reduced_motion="reduce", locale="en-GB"
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#connection[data-state=connected]", state="attached")
    return page


def talk(page: Page) -> None:
    """Play the scene."""
    answers = page.locator("#log article.agent")
    for number, (text, expected) in enumerate(SCENE):
        page.fill("#text", text)
        page.press("#text", "Enter")
        expect(answers.nth(number)).to_contain_text(expected)


def shoot(page: Page) -> bytes:
    """The page with its newest messages in sight."""
    expect(page.locator("#log article.agent")).to_have_count(len(SCENE))
    expect(page.locator("#previews article, #pending article")).to_have_count(0)
    page.evaluate("document.activeElement.blur()")
    return page.screenshot(animations="disabled")


def shoot_dashboard(browser: Browser, address: str) -> None:
    """Every page of the dashboard, each way; what is larger than a document can bear is refused."""
    DASHBOARD.mkdir(exist_ok=True)
    for old in DASHBOARD.glob("*.jpg"):
        old.unlink()
    home, _, token = address.partition("?")
    for name, colours, (width, height) in VIEWS:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=colours, reduced_motion="reduce", locale="en-GB"
        )
        page = context.new_page()
        page.goto(f"{home}?{token}")
        for shown in all_pages():
            page.goto(home.rstrip("/") + shown.path)
            expect(page.locator("h1")).to_be_visible()
            path = DASHBOARD / f"{shown.name}-{name}.jpg"
            page.screenshot(path=path, type="jpeg", quality=72, animations="disabled")
            if path.stat().st_size > MAX_PICTURE_BYTES:
                raise RuntimeError(f"{path.name} has {path.stat().st_size} bytes; {MAX_PICTURE_BYTES} is the most")
        context.close()


def main() -> None:
    """Write the pictures."""
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        desktop = opened(browser, address, DESKTOP)
        talk(desktop)
        shots = [shoot(desktop), shoot(opened(browser, address, PHONE))]
        frame = browser.new_page(viewport={"width": DESKTOP[0] + PHONE[0] + 50, "height": DESKTOP[1] + 50})
        pictures = "\n".join(SHOT.format(data=base64.b64encode(shot).decode()) for shot in shots)
        frame.set_content(FRAME.format(pictures=pictures))
        PICTURE.parent.mkdir(exist_ok=True)
        frame.locator("body").screenshot(path=PICTURE)
        shoot_dashboard(browser, address)
        browser.close()
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
