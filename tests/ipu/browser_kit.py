"""Opens pages in headless Chromium, over its debugging protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 60
# Chromium reads from 3 and writes to 4. Both pipes get out of their way first.
# (A function that Popen runs after a fork is none for processes with threads.)
_CONNECT = """
import os, sys
read, write = (os.dup2(int(n), 20 + i) for i, n in enumerate(sys.argv[1:3]))
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
  """The path of an installed Chromium."""
  return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
  """A headless Chromium with one page; use as a context.

  Attributes:
    requests: addresses that the page has asked for.
    errors: messages of errors in its console.
  """

  def __init__(
    self, width: int = 1280, height: int = 900, dark: bool = False
  ) -> None:
    self.requests: list[str] = []
    self.errors: list[str] = []
    self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    self._numbers = itertools.count(1)
    self._events: list[dict[str, Any]] = []
    self._rest = b""
    path = find()
    assert path is not None
    to_read, self._write = os.pipe()
    self._read, to_write = os.pipe()

    flags = [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio",
      "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage",
      "--disable-background-networking", "--remote-debugging-pipe",
      f"--user-data-dir={self._folder.name}", "about:blank",
    ]  # fmt: skip
    self._process = subprocess.Popen(
      [sys.executable, "-c", _CONNECT, str(to_read), str(to_write), path,
       *flags],
      pass_fds=(to_read, to_write),
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(to_write)
    os.set_blocking(self._read, False)
    self._session: str | None = None
    self._session = self._attach()
    for domain in ("Page", "Runtime", "Network", "Log"):
      self.call(f"{domain}.enable")
    self.call(
      "Emulation.setDeviceMetricsOverride",
      width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
    )  # fmt: skip
    features = [
      {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    ]
    self.call("Emulation.setEmulatedMedia", features=features)

  def __enter__(self) -> Browser:
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    self._process.kill()
    self._process.wait()
    os.close(self._read)
    os.close(self._write)
    self._folder.cleanup()

  def _attach(self) -> str:
    targets = self.call("Target.getTargets")["targetInfos"]
    page = next(t["targetId"] for t in targets if t["type"] == "page")
    return self.call("Target.attachToTarget", targetId=page, flatten=True)[
      "sessionId"
    ]

  def call(self, method: str, **params: Any) -> dict[str, Any]:
    """Calls a method of the protocol, and returns its result."""
    number = next(self._numbers)
    message: dict[str, Any] = {
      "id": number, "method": method, "params": params,
    }  # fmt: skip
    if self._session:
      message["sessionId"] = self._session
    os.write(self._write, json.dumps(message).encode() + b"\0")
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
      for answer in self._messages():
        if answer.get("id") == number:
          if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
          return answer["result"]
        self._note(answer)
      time.sleep(0.005)
    raise TimeoutError(f"{method} has no answer within {_SECONDS} s")

  def _messages(self) -> list[dict[str, Any]]:
    try:
      while data := os.read(self._read, 1 << 20):
        self._rest += data
    except BlockingIOError:
      pass
    *whole, self._rest = self._rest.split(b"\0")
    return [json.loads(text) for text in whole]

  def _note(self, event: dict[str, Any]) -> None:
    params = event.get("params", {})
    if event.get("method") == "Network.requestWillBeSent":
      self.requests.append(params["request"]["url"])
    elif event.get("method") == "Runtime.exceptionThrown":
      self.errors.append(json.dumps(params["exceptionDetails"])[:500])
    elif event.get("method") == "Log.entryAdded":
      self.errors.append(params["entry"]["text"])
    elif event.get("method") == "Runtime.consoleAPICalled" and params[
      "type"
    ] in ("error", "warning"):
      self.errors.append(json.dumps(params["args"])[:500])

  def open(self, path: Path) -> None:
    """Opens a report's page, and waits until it has been painted."""
    self.call("Page.navigate", url=path.absolute().as_uri())
    self.wait("window.reportReady === true")

  def evaluate(self, expression: str) -> Any:
    """The value of a JavaScript expression in the page."""
    found = self.call(
      "Runtime.evaluate", expression=expression, returnByValue=True,
      awaitPromise=True,
    )  # fmt: skip
    if "exceptionDetails" in found:
      raise RuntimeError(str(found["exceptionDetails"])[:800])
    return found["result"].get("value")

  def wait(self, condition: str) -> None:
    """Waits until a JavaScript expression is true."""
    end = time.monotonic() + _SECONDS
    while not self.evaluate(condition):
      if time.monotonic() > end:
        raise TimeoutError(f"{condition}: never; errors: {self.errors}")
      time.sleep(0.05)

  def click(self, selector: str) -> None:
    """Clicks the middle of an element."""
    x, y = self.evaluate(
      f"(() => {{const e = document.querySelector({selector!r});"
      "e.scrollIntoView({block: 'center'});"
      "const r = e.getBoundingClientRect();"
      "return [r.x + r.width / 2, r.y + r.height / 2];})()"
    )
    self.click_at(x, y)

  def click_at(self, x: float, y: float) -> None:
    """Clicks a point of the window."""
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
      self.call(
        "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
        clickCount=1,
      )  # fmt: skip

  def press(self, text: str) -> None:
    """Types characters."""
    for c in text:
      self.call("Input.dispatchKeyEvent", type="keyDown", text=c, key=c)
      self.call("Input.dispatchKeyEvent", type="keyUp", key=c)

  def processor_seconds(self) -> float:
    """Processor time of all of the browser's processes so far (Linux)."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
      with contextlib.suppress(OSError):  # it has ended
        fields = stat.read_text().rpartition(")")[2].split()
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))  # its ended children, too
    found, young = set(), {self._process.pid}
    while young:
      found |= young
      young = {p for p, parent in parents.items() if parent in young} - found
    return sum(ticks.get(p, 0) for p in found) / os.sysconf("SC_CLK_TCK")

  def screenshot(self, path: Path, whole: bool = False) -> None:
    """Writes a PNG of the window, or of the `whole` page."""
    found = self.call(
      "Page.captureScreenshot", format="png", captureBeyondViewport=whole
    )
    path.write_bytes(base64.b64decode(found["data"]))
