"""The outside world of the example, on loopback: pages to read, and a model that is paid for each answer.

    python examples/pipeline/server.py 8765

`GET /pages/N` is a page. `POST /summaries` takes `{"key", "text"}` and answers `{"id", "summary", "tokens_input",
"tokens_output", "price"}`. A key that was answered before gets the same answer under the same id and is not billed
again, as a provider does that takes idempotency keys. Everything that was asked stands in `Site.log`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import model

SUBJECTS = ("river", "harbour", "bridge", "market", "garden", "tower", "ferry", "orchard")
DEEDS = ("opens before dawn", "was rebuilt twice", "feeds the whole quarter", "is older than the town", "hums at night")


def page(number: int) -> str:
    """A page of eight sentences, the same for the same number."""
    subject = SUBJECTS[number % len(SUBJECTS)]
    sentences = [
        f"Page {number} says that the {SUBJECTS[(number * 7 + index * 3) % len(SUBJECTS)]} "
        f"{DEEDS[(number + index) % len(DEEDS)]} beside the {subject}"
        for index in range(8)
    ]
    return ". ".join(sentences) + "."


def answer(key: str, text: str) -> dict[str, Any]:
    """What the model answers and asks for it."""
    summary = model.summarize(text)
    tokens_input, tokens_output = len(model.words(text)), len(model.words(summary))
    micros = model.PRICE_MICROS_PER_TOKEN * (tokens_input + tokens_output)
    return {
        "id": f"resp_{hashlib.sha256(key.encode()).hexdigest()[:16]}",
        "summary": summary,
        "tokens_input": tokens_input,
        "tokens_output": tokens_output,
        "price": f"{micros // 1_000_000}.{micros % 1_000_000:06}",
    }


class Site:
    """The server. `log` holds (what, which, billed) of each request."""

    def __init__(self, port: int = 0) -> None:
        self.log: list[tuple[str, str, bool]] = []
        self._answered: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def read(self, number: str) -> str:
        with self._lock:
            self.log.append(("page", number, False))
        return page(int(number))

    def summarize(self, key: str, text: str) -> dict[str, Any]:
        with self._lock:
            self.log.append(("summary", key, key not in self._answered))
            return self._answered.setdefault(key, answer(key, text))


def _handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"text": site.read(self.path.rpartition("/")[2])})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(site.summarize(asked["key"], asked["text"]))

        def _send(self, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """What was asked stands in the log of the site."""

    return Handler


if __name__ == "__main__":
    started = Site(int(sys.argv[1]) if len(sys.argv) > 1 else 8765)
    print(f"pages and model at {started.url}", flush=True)
    try:
        started.server.serve_forever()
    except KeyboardInterrupt:
        print(f"{len(started.log)} requests, {sum(billed for _, _, billed in started.log)} answers billed")
