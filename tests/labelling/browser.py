"""A real browser for tests: Chromium, driven over ChromeDriver's W3C WebDriver interface with nothing but HTTP."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
UP = {"type": "pointerUp", "button": 0}
PATIENCE = 900
"""Seconds to wait for something to appear; only a broken page needs them."""


def missing():
    """The name of a program that is not installed, or None."""
    return next((name for name in ("chromium", "chromedriver") if shutil.which(name) is None), None)


class Browser:
    def __init__(self, port, width, height, touch):
        self.base = f"http://127.0.0.1:{port}"
        self.profile = tempfile.mkdtemp()
        options = {"args": [*FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]}
        if touch:
            metrics = {"width": width, "height": height, "pixelRatio": 1.0, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        logs = {"browser": "ALL"}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}}
        self.base += f"/session/{self.call('POST', '/session', {'capabilities': wanted})['sessionId']}"

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, address):
        self.call("POST", "/url", {"url": address})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script, *arguments):
        """Wait until a script returns something true, and return that."""
        end = time.monotonic() + PATIENCE
        while not (found := self.run(script, *arguments)):
            assert time.monotonic() < end, f"never true: {script}\n{self.complaints()}"
            time.sleep(0.1)
        return found

    def press(self, key, *held):
        codes = {"Enter": "\ue007", "Shift": "\ue008", "Control": "\ue009", "ArrowUp": "\ue013", "ArrowDown": "\ue015"}
        keys = [codes.get(one, one) for one in (*held, key)]
        steps = [{"type": "keyDown", "value": one} for one in keys]
        steps += [{"type": "keyUp", "value": one} for one in reversed(keys)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    def stroke(self, points, pointer="mouse", release=True):
        """Press at the first point of the window, move through the others and let go."""
        at = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)} for x, y in points]
        self._point([at[0], {"type": "pointerDown", "button": 0}, *at[1:]] + [UP] * release, pointer)

    def release(self, pointer="mouse"):
        self._point([UP], pointer)

    def _point(self, steps, pointer):
        kind = {"pointerType": pointer}
        source = {"type": "pointer", "id": pointer, "parameters": kind, "actions": steps}
        self.call("POST", "/actions", {"actions": [source]})

    def complaints(self):
        """What the page wrote to the browser's console: errors and warnings."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def close(self):
        self.call("DELETE", "")
        shutil.rmtree(self.profile, ignore_errors=True)


@contextmanager
def browser(port, width=1440, height=900, touch=False):
    """A browser whose driver listens on ``port``."""
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        opened = Browser(port, width, height, touch)
        try:
            yield opened
        finally:
            opened.close()
    finally:
        driver.terminate()
        driver.wait()


def _wait_for(port):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as answer:
                if json.load(answer)["value"]["ready"]:
                    return
        except OSError:
            assert time.monotonic() < end, "ChromeDriver does not start"
            time.sleep(0.1)
