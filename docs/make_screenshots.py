# ruff: noqa: INP001 (a program beside the pages, not a package)
"""Makes `docs/images/web.png` and `docs/images/dashboard/` again: `.venv/bin/python docs/make_screenshots.py`.

A real `ethos serve` on a new data directory, a real Chromium on its page, a desktop's and a phone's width side by side.
Of the dashboard every page is kept in light, in dark and as a phone shows it. A stranger asks to be let in meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from gateway.web.dashboard.page import all_pages

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "web.png"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
DESKTOP, PHONE = (1240, 720), (360, 720)
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
KEY = b"a key for these pictures alone!!"
FRAME = """\
<body style="margin: 0; padding: 14px; display: flex; gap: 14px; background: #e4e7ec; width: max-content">
{pictures}
</body>"""
SHOT = '<img style="border-radius: 10px; border: 1px solid #c3c9d3" src="data:image/png;base64,{data}">'


class Shop(http.server.BaseHTTPRequestHandler):
    """Takes what the agent answers on the channel `shop`."""

    def do_POST(self) -> None:
        """Take one answer; nothing is said back."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextlib.contextmanager
def shop() -> Iterator[str]:
    """A program that uses the webhook; gives its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def ask_to_be_let_in(url: str) -> None:
    """A stranger writes on the channel `shop`; signed as docs/channels/webhook.md says."""
    said = {"id": "1", "conversation": "42", "user": "42", "name": "Bob", "text": "Hello, may I ask something?"}
    body, moment = json.dumps(said).encode(), str(int(time.time()))
    digest = hmac.digest(KEY, f"msg_1.{moment}.".encode() + body, "sha256")
    signature = f"v1,{base64.b64encode(digest).decode()}"
    headers = {"webhook-id": "msg_1", "webhook-timestamp": moment, "webhook-signature": signature}
    urllib.request.urlopen(urllib.request.Request(f"{url}hooks/shop/", body, headers), timeout=30).close()  # noqa: S310 (our own)


@contextlib.contextmanager
def served(reply_url: str) -> Iterator[str]:
    """A gateway of our own; gives the address that logs in."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        secret = f"whsec_{base64.b64encode(KEY).decode()}"
        channels = {
            "shop": {"kind": "webhook", "secret": secret, "reply_url": reply_url, "access": "pairing"},
        }
        (home / "config.yaml").write_text(json.dumps({"web": {"port": 0}, "channels": channels}))
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
                if '"event": "serving"' in line:
                    break
            else:
                raise RuntimeError("the gateway did not start")
            break_something(home)
            url = json.loads((home / "run" / "gateway.json").read_text())["url"]
            yield f"{url}?token={(home / 'web-token').read_text().strip()}"
        finally:
            gateway.terminate()
            gateway.communicate(timeout=30)


def break_something(home: Path) -> None:
    """For the page of repairs."""
    (home / "personalities").chmod(0o755)
    at, file = datetime.now(UTC) - timedelta(days=12), home.parent / "backups" / "ethos.zip"
    (home / "run" / "last-backup.json").write_text(json.dumps({"at": at.isoformat(), "file": str(file)}))


def opened(browser: Browser, address: str, size: tuple[int, int]) -> Page:
    """The chat page, logged in."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="light", reduced_motion="reduce", locale="en-GB"
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#text")
    return page


def talk(page: Page) -> None:
    """Play the scene."""
    answers = page.locator("#log article.agent")
    for number, (text, expected) in enumerate(SCENE):
        page.fill("#text", text)
        page.press("#text", "Enter")
        expect(answers.nth(number)).to_contain_text(expected)


def shoot(page: Page) -> bytes:
    """The conversation with its newest messages in sight."""
    page.wait_for_selector("#connection[data-state=connected]", state="attached")
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
            if shown.name == "repairs":
                expect(page.get_by_text("at the whole database, the sandbox and servers, too")).to_be_visible()
            if shown.name == "people":
                expect(page.get_by_text("1 pending request")).to_be_visible()
            path = DASHBOARD / f"{shown.name}-{name}.jpg"
            page.screenshot(path=path, type="jpeg", quality=72, animations="disabled")
            if path.stat().st_size > MAX_PICTURE_BYTES:
                raise RuntimeError(f"{path.name} has {path.stat().st_size} bytes; {MAX_PICTURE_BYTES} is the most")
        context.close()


def main() -> None:
    """Write the pictures."""
    with shop() as reply_url, served(reply_url) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        desktop = opened(browser, address, DESKTOP)
        talk(desktop)
        phone = opened(browser, address, PHONE)
        phone.goto(desktop.url)
        shots = [shoot(desktop), shoot(phone)]
        frame = browser.new_page(viewport={"width": DESKTOP[0] + PHONE[0] + 50, "height": DESKTOP[1] + 50})
        pictures = "\n".join(SHOT.format(data=base64.b64encode(shot).decode()) for shot in shots)
        frame.set_content(FRAME.format(pictures=pictures))
        PICTURE.parent.mkdir(exist_ok=True)
        frame.locator("body").screenshot(path=PICTURE)
        ask_to_be_let_in(address.partition("?")[0])
        shoot_dashboard(browser, address)
        browser.close()
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
