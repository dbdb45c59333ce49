"""Firefox, driven by its own protocol (Marionette) over a socket: no other program and no package is needed.

Playwright drives a Firefox of its own build only, so this opens the one that is installed.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("firefox-esr", "firefox")
_WAIT = 120  # seconds until it has started, or answers
# No first-run page, no updates, no telemetry: what the browser fetches for itself is not the page's doing.
_SETTINGS = {
    "marionette.port": 0,
    "browser.startup.page": 0,
    "browser.shell.checkDefaultBrowser": False,
    "browser.aboutwelcome.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.disabledForTesting": True,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "devtools.console.stdout.content": True,  # what a page logs is printed
    "intl.accept_languages": "en-US",
}
# In the browser's own scope: every message of the console, and every request that the page makes.
_WATCH = """const seen = { asked: [] };
Services.lab = seen;
Services.console.reset();
Services.obs.addObserver((subject) => {
  const channel = subject.QueryInterface(Ci.nsIHttpChannel);
  if (channel.loadInfo.browsingContext) seen.asked.push(channel.URI.spec);
}, "http-on-opening-request");"""
_HEARD = """const own = (address) => /^(file|data|blob):/.test(address);
const errors = Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError);
const said = errors.filter((one) => own(one.sourceName)).map((one) => `console: ${one.errorMessage}`);
return [...said, ...Services.lab.asked.map((one) => `request: ${one}`)];"""
_LOGGED = re.compile(r"^console\.\w+: (?!RSLoader:).*", re.MULTILINE)  # which is the browser's own, for its settings


class Firefox:
    """One window. `run` calls a function of the page; `wrong` is what the page said or asked for."""

    def __init__(self, port: int, printed: Path) -> None:
        self._printed, self._known = printed, 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_WAIT)
        self._file = self._socket.makefile("rb")
        self._calls = 0
        self._read()  # its greeting
        self.ask("WebDriver:NewSession", {})

    def _read(self) -> Any:
        digits = b""
        while (byte := self._file.read(1)) != b":":
            assert byte, "Firefox has ended"
            digits += byte
        return json.loads(self._file.read(int(digits)))

    def ask(self, command: str, given: dict[str, Any]) -> Any:
        self._calls += 1
        text = json.dumps([0, self._calls, command, given]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, number, error, answer = self._read()
        assert number == self._calls
        assert error is None, error
        return answer.get("value") if isinstance(answer, dict) else answer

    def run(self, script: str, *given: Any) -> Any:
        return self.ask("WebDriver:ExecuteScript", {"script": script, "args": list(given)})

    def _inside(self, script: str) -> Any:
        self.ask("Marionette:SetContext", {"value": "chrome"})
        answer = self.run(script)
        self.ask("Marionette:SetContext", {"value": "content"})
        return answer

    def open(self, path: Path) -> None:
        self._inside(_WATCH)
        self._known = len(self._printed.read_text(errors="replace"))
        self.ask("WebDriver:Navigate", {"url": path.as_uri()})

    def until(self, condition: str) -> None:
        """Until an expression of the page is true."""
        end = time.monotonic() + _WAIT
        while not self.run(f"return Boolean({condition});"):
            assert time.monotonic() < end, f"not within {_WAIT} s: {condition}"
            time.sleep(0.05)

    def wrong(self) -> list[str]:
        return [*self._inside(_HEARD), *_LOGGED.findall(self._printed.read_text(errors="replace")[self._known :])]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def opened_firefox(folder: Path) -> Iterator[Firefox]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no Firefox: none of {', '.join(BROWSERS)} is on the PATH; apt-get install firefox-esr")
    settings = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in _SETTINGS.items())
    (folder / "user.js").write_text("".join(settings), encoding="utf-8")
    options = ["--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", str(folder)]
    printed = folder / "printed.txt"
    with (
        printed.open("wb") as out,
        subprocess.Popen(
            [path, *options],
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        ) as process,
    ):
        try:
            place, end = folder / "MarionetteActivePort", time.monotonic() + _WAIT
            while not (place.is_file() and place.read_text()):
                assert process.poll() is None, "Firefox ended at its start"
                assert time.monotonic() < end, f"Firefox has not started within {_WAIT} s"
                time.sleep(0.1)
            with closing(Firefox(int(place.read_text()), printed)) as opened:
                yield opened
        finally:
            os.killpg(process.pid, signal.SIGKILL)
