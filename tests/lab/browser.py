"""A headless Chromium, spoken to through its debugging pipe: no driver, no port, no library."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0


def find():
    """The first browser on the path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page, without a network; ``errors`` gathers what its console complains about.

    Messages are JSON, ended by a zero byte: ours go in at its descriptor 3, its own come out at 4.
    """

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        options = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions "
            "--disable-background-networking --remote-debugging-pipe --host-resolver-rules='MAP * ~NOTFOUND'"
        )
        command = f"exec '{program}' {options} --user-data-dir='{self.profile.name}' 3<&{theirs_in} 4>&{theirs_out}"
        self.process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.writer, self.reader = ours_out, ours_in
        self.waiting, self.number, self.errors, self.session = b"", 0, [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def send(self, method, **parameters):
        """Ask for something and wait for the answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.waiting:
            if not select.select([self.reader], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.reader, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.waiting += piece
        raw, self.waiting = self.waiting.split(b"\0", 1)
        message = json.loads(raw)
        self._listen(message)
        return message

    def _listen(self, message):
        parameters = message.get("params", {})
        complaints = {
            "Runtime.exceptionThrown": lambda: parameters["exceptionDetails"],
            "Runtime.consoleAPICalled": lambda: parameters["args"] if parameters["type"] == "error" else None,
            "Log.entryAdded": lambda: parameters["entry"] if parameters["entry"]["level"] == "error" else None,
            "Network.requestWillBeSent": lambda: self._request(parameters["request"]["url"]),
        }
        found = complaints.get(message.get("method"), lambda: None)()
        if found is not None:
            self.errors.append(found)

    @staticmethod
    def _request(url):
        return None if url.startswith(("file:", "data:", "about:", "blob:")) else f"the page asks for {url}"

    def open(self, path, width=1280, height=900, dark=False):
        """Load a file in a window of some size, and wait until its charts are drawn."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.errors.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        drawn = (
            "document.readyState === 'complete' && document.querySelectorAll('.chart .main-svg').length > 0 && "
            "[...document.querySelectorAll('.chart')].every(box => box.querySelector('.main-svg'))"
        )
        end = time.monotonic() + PATIENCE
        while not self.ask(drawn):
            if time.monotonic() > end:
                raise TimeoutError(f"the charts of {path.name} are not drawn: {self.errors}")
            time.sleep(0.05)

    def ask(self, expression):
        """Evaluate an expression of the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def drag(self, start, end):
        """Press the mouse at a point, move it to another, and let go."""
        steps = [
            ("mouseMoved", start),
            ("mousePressed", start),
            ("mouseMoved", tuple((a + b) / 2 for a, b in zip(start, end, strict=True))),
            ("mouseMoved", end),
            ("mouseReleased", end),
        ]
        for kind, (x, y) in steps:
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def click(self, place, times=1):
        """Click so often, without a pause."""
        x, y = place
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def close(self):
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.process.kill()
        self.process.wait()
        os.close(self.writer)
        os.close(self.reader)
        self.profile.cleanup()
