"""Chromium and Firefox, driven by the protocols that they speak themselves.

Chromium has the DevTools protocol, Firefox has WebDriver BiDi: both are JSON over a WebSocket, so
neither needs a driver program. `browser("chromium", folder)` starts one; its `Page` is the same for
both: scripts are evaluated as a person's console would, clicks and keys are real input events.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.debian_programs import program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START_TIMEOUT_S = 60
WAIT_S = 15
LOOK_AGAIN_S = 0.03
ENTER = "Enter"
_CODES = {
    "Enter": (13, "\ue007"),
    "Escape": (27, "\ue00c"),
    "Tab": (9, "\ue004"),
    "ArrowDown": (40, "\ue015"),
    "ArrowUp": (38, "\ue013"),
    "PageDown": (34, "\ue00f"),
    "Home": (36, "\ue011"),
    "End": (35, "\ue010"),
}
"""Key to its code of Windows, for DevTools, and to its character, for BiDi."""
WATCH = """
window.seen = {violations: [], errors: []};
document.addEventListener("securitypolicyviolation", (event) =>
  window.seen.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.addEventListener("error", (event) => window.seen.errors.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) =>
  window.seen.errors.push(String(event.reason && event.reason.stack || event.reason)));
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => { window.hacked = name; };
"""
"""Runs before each page: what a hostile name would do if it were taken for script."""
_CENTRE = """(() => {
  const all = [...document.querySelectorAll(%s)].filter((one) => one.checkVisibility());
  const one = all.find((each) => each.textContent.trim() === %s)
    ?? all.find((each) => each.textContent.trim().startsWith(%s));
  if (!one) return null;
  one.scrollIntoView({block: "center", behavior: "instant"});
  const box = one.getBoundingClientRect();
  return [box.x + Math.min(box.width / 2, 200), box.y + box.height / 2];
})()"""


class BrowserError(Exception):
    """What the browser answered instead of a result, or what did not come in time."""


class _Channel:
    """Commands by number over a WebSocket, and the events in between."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            future = self._waiting.pop(content.get("id"), None)
            if future is not None and not future.done():
                future.set_result(content)

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(future, START_TIMEOUT_S)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']} {answer.get('message', '')}")
        result: dict[str, Any] = answer["result"]
        return result

    async def close(self) -> None:
        """Close the socket."""
        await self._socket.close()
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader


class Page(ABC):
    """A tab. `js` takes an expression, which may be a promise, and returns its value."""

    name: str

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel

    @abstractmethod
    async def goto(self, url: str) -> None:
        """Load a page."""

    @abstractmethod
    async def js(self, expression: str) -> Any:
        """Evaluate an expression in the page; its value as JSON."""

    @abstractmethod
    async def mouse(self, x: float, y: float) -> None:
        """Click at a place of the viewport."""

    @abstractmethod
    async def press(self, key: str) -> None:
        """Press a key: a character or a name of `_CODES`."""

    @abstractmethod
    async def write(self, text: str) -> None:
        """Write into what has the focus."""

    @abstractmethod
    async def screenshot(self) -> bytes:
        """The viewport as PNG."""

    @abstractmethod
    async def resize(self, width: int, height: int) -> None:
        """Set the size of the viewport."""

    async def wait(self, expression: str, timeout_s: float = WAIT_S) -> Any:
        """Return the value of the expression as soon as it is true."""
        end = asyncio.get_running_loop().time() + timeout_s
        while not (value := await self.js(expression)):
            if asyncio.get_running_loop().time() > end:
                shown = await self.js("document.body.innerText.slice(0, 1500)")
                seen = await self.js("window.seen")
                raise BrowserError(f"never true: {expression}\n{seen}\n{shown}")
            await asyncio.sleep(LOOK_AGAIN_S)
        return value

    async def text(self, selector: str = "main") -> str:
        """What a person reads in an element; nothing if it is not there."""
        return str(
            await self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        )

    async def wait_text(self, text: str, selector: str = "main", timeout_s: float = WAIT_S) -> None:
        """Wait until an element shows a text."""
        inside = f"document.querySelector({json.dumps(selector)})?.innerText"
        await self.wait(f"({inside} ?? '').includes({json.dumps(text)})", timeout_s)

    async def click(self, selector: str, text: str = "") -> None:
        """Click the first visible element of a selector whose text is, or begins with, this one."""
        find = _CENTRE % (json.dumps(selector), json.dumps(text), json.dumps(text))
        x, y = await self.wait(find)
        await self.mouse(x, y)

    async def fill(self, selector: str, text: str) -> None:
        """Write a text instead of what a field holds."""
        await self.wait(f"document.querySelector({json.dumps(selector)})")
        await self.js(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            "one.focus(); one.select(); return true})()"
        )
        await self.write(text)

    async def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select."""
        await self.js(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            f"one.value = {json.dumps(value)};"
            "one.dispatchEvent(new Event('change', {bubbles: true})); return true})()"
        )


class _Chromium(Page):
    name = "chromium"

    async def goto(self, url: str) -> None:
        await self._channel.ask("Page.navigate", url=url)
        await self.wait(f"location.href.startsWith({json.dumps(url.partition('#')[0])})")

    async def js(self, expression: str) -> Any:
        answer = await self._channel.ask(
            "Runtime.evaluate",
            expression=_as_json(expression),
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return json.loads(answer["result"]["value"])

    async def mouse(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self._channel.ask(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def press(self, key: str) -> None:
        code, _ = _CODES.get(key, (0, key))
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == ENTER else {}
        down = "keyDown" if text else "rawKeyDown"
        shared = {"key": key, "windowsVirtualKeyCode": code}
        await self._channel.ask("Input.dispatchKeyEvent", type=down, **shared, **text)
        await self._channel.ask("Input.dispatchKeyEvent", type="keyUp", **shared)

    async def write(self, text: str) -> None:
        await self._channel.ask("Input.insertText", text=text)

    async def screenshot(self) -> bytes:
        answer = await self._channel.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])

    async def resize(self, width: int, height: int) -> None:
        await self._channel.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def media(self, **features: str) -> None:
        """Set media features: `prefers_color_scheme="dark"`."""
        given = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        await self._channel.ask("Emulation.setEmulatedMedia", features=given)

    async def heap(self) -> int:
        """Bytes that the page's objects take, after everything unused is collected."""
        await self._channel.ask("HeapProfiler.collectGarbage")
        return int((await self._channel.ask("Runtime.getHeapUsage"))["usedSize"])


class _Firefox(Page):
    name = "firefox"

    def __init__(self, channel: _Channel, context: str) -> None:
        super().__init__(channel)
        self._context = context

    async def goto(self, url: str) -> None:
        await self._channel.ask(
            "browsingContext.navigate", context=self._context, url=url, wait="interactive"
        )

    async def js(self, expression: str) -> Any:
        answer = await self._channel.ask(
            "script.evaluate",
            expression=_as_json(expression),
            awaitPromise=True,
            target={"context": self._context},
        )
        if answer["type"] != "success":
            raise BrowserError(f"{expression}: {answer['exceptionDetails']['text']}")
        return json.loads(answer["result"]["value"])

    async def mouse(self, x: float, y: float) -> None:
        steps = [
            {"type": "pointerMove", "x": round(x), "y": round(y)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        await self._act({"type": "pointer", "id": "mouse", "actions": steps})

    async def press(self, key: str) -> None:
        await self._keys([_CODES.get(key, (0, key))[1]])

    async def write(self, text: str) -> None:
        if text:
            await self._keys(list(text))
        else:
            await self._keys(["\ue003"])

    async def _keys(self, signs: list[str]) -> None:
        steps = [{"type": kind, "value": sign} for sign in signs for kind in ("keyDown", "keyUp")]
        await self._act({"type": "key", "id": "keys", "actions": steps})

    async def _act(self, actions: dict[str, Any]) -> None:
        await self._channel.ask("input.performActions", context=self._context, actions=[actions])

    async def screenshot(self) -> bytes:
        answer = await self._channel.ask(
            "browsingContext.captureScreenshot", context=self._context, origin="viewport"
        )
        return base64.b64decode(answer["data"])

    async def resize(self, width: int, height: int) -> None:
        await self._channel.ask(
            "browsingContext.setViewport",
            context=self._context,
            viewport={"width": width, "height": height},
        )


def _as_json(expression: str) -> str:
    return f"(async () => JSON.stringify(await ({expression})) ?? 'null')()"


@asynccontextmanager
async def _process(arguments: list[str], ready: str) -> AsyncIterator[str]:
    """Start a program; yields what the group of the pattern matches in its error output."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    draining = None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while (line := await process.stderr.readline()) or process.returncode is None:
                if match := re.search(ready, line.decode(errors="replace")):
                    break
            else:
                raise BrowserError(f"{arguments[0]} ended with {process.returncode}")
        draining = asyncio.create_task(process.stderr.read())
        yield match[1]
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if draining is not None:
            await draining


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[_Chromium]:
    """Chromium without a window, with its profile in the folder."""
    arguments = [
        str(program("chromium")),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
    ]
    async with (
        _process(arguments, r"DevTools listening on ws://([^/]+)/") as address,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"http://{address}/json/list") as response:
            tab = next(one for one in await response.json() if one["type"] == "page")
        url = tab["webSocketDebuggerUrl"]
        async with session.ws_connect(url, max_msg_size=0) as socket:
            channel = _Channel(socket)
            page = _Chromium(channel)
            await channel.ask("Page.enable")
            await channel.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            await page.resize(1280, 800)
            try:
                yield page
            finally:
                await channel.close()


@asynccontextmanager
async def firefox(folder: Path) -> AsyncIterator[_Firefox]:
    """Firefox without a window, with its profile in the folder."""
    arguments = [
        str(program("firefox-esr")),
        "--headless",
        "--no-remote",
        "--remote-debugging-port=0",
        "--profile",
        str(folder),
        "about:blank",
    ]
    async with (
        _process(arguments, r"WebDriver BiDi listening on (ws://\S+)") as address,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}/session", max_msg_size=0) as socket,
    ):
        channel = _Channel(socket)
        await channel.ask("session.new", capabilities={})
        tree = await channel.ask("browsingContext.getTree")
        page = _Firefox(channel, tree["contexts"][0]["context"])
        await channel.ask("script.addPreloadScript", functionDeclaration=f"() => {{{WATCH}}}")
        await page.resize(1280, 800)
        try:
            yield page
        finally:
            await channel.close()


BROWSERS = {"chromium": chromium, "firefox": firefox}
