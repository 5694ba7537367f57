"""A worker's side of the socket of attempts, small and in memory, for tests of what runs on the other side."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKEN = "7" * 64


class AttemptServer:
    """Answers programs on one socket, one thread for each connection, and keeps what they said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[dict[str, Any]] = []
        self.payloads: list[tuple[str, bytes]] = []  # accepted checkpoints, by kind
        self.by_digest: dict[str, bytes] = {}
        self.receipts: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, str] = {}
        self.waits: dict[str, Any] | None = None
        self.stopping = ""
        self.stop_after = 0  # checkpoints after which it asks to stop, 0 for never
        self.lose_replies = 0  # of the next checkpoints that are accepted
        self.refuse: dict[str, str] = {}  # op -> code
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def environment(self, folder: Path, params: Any = None) -> dict[str, str]:
        params_path = folder / "params.json"
        params_path.write_text(json.dumps(params or {}))
        return {
            "FENCEPOST_SOCKET": str(self.path),
            "FENCEPOST_TOKEN": TOKEN,
            "FENCEPOST_ATTEMPT": "attempt_" + "1" * 32,
            "FENCEPOST_WORK_ORDER": "order_" + "2" * 32,
            "FENCEPOST_FENCE": "1",
            "FENCEPOST_WORKSPACE": str(folder),
            "FENCEPOST_PARAMS": str(params_path),
        }

    def said(self, op: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["op"] == op]

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(link,), daemon=True).start()

    def _talk(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                payload = lines.read(request.get("bytes", 0))
                with self._lock:
                    self.requests.append(request)
                    reply, data = self._reply(request, payload)
                    lost = request["op"] == "checkpoint" and self.lose_replies > 0
                    self.lose_replies -= lost
                if lost:
                    return
                if data:
                    reply["bytes"] = len(data)
                link.sendall(json.dumps(reply).encode() + b"\n" + data)

    def _reply(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        op = request["op"]
        code = "denied" if request["token"] != TOKEN else self.refuse.get(op, "")
        if code:
            error = {"code": code, "message": f"no {op}", "where": None, "next": ""}
            return {"ok": False, "error": error, "exit": 5}, b""
        reply, data = getattr(self, f"_{op}")(request, payload)
        if self.stop_after and len(self.payloads) >= self.stop_after:
            self.stopping = "draining"
        return {"ok": True, "stopping": self.stopping, **reply}, data

    def _hello(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        return {"answers": self.answers, "children": {}}, b""

    def _status(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        return {"lease_left_us": 30_000_000}, b""

    def _heartbeat(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        return {"recorded": True}, b""

    def _checkpoint(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        digest = f"sha256:{hashlib.sha256(payload).hexdigest()}"
        count = len(self.payloads)
        builds_on = request.get("builds_on", count)
        if builds_on == count - 1 and self.payloads[-1] == (request["kind"], payload):
            return {"number": count, "digest": digest}, b""  # said twice
        if builds_on != count:
            error = {"code": "checkpoint_moved", "message": "others were first", "where": "/builds_on", "next": ""}
            return {"ok": False, "error": error, "exit": 5}, b""
        self.payloads.append((request["kind"], payload))
        self.by_digest[digest] = payload
        return {"number": len(self.payloads), "digest": digest}, b""

    def _resume(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        if "digest" in request:
            return {"number": 1, "count": len(self.payloads)}, self.by_digest[request["digest"]]
        kept = [data for kind, data in self.payloads if kind == request["kind"]]
        reply = {"number": len(kept), "count": len(self.payloads)}
        return (reply, kept[-1]) if kept else (reply, b"")

    def _charge(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        known = request["receipt"] in self.receipts
        self.receipts.setdefault(request["receipt"], request["amounts"])
        return {"duplicate": known, "left": {}, "over": {}}, b""

    def _answer(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        value = self.answers.get(request["question"])
        return {"answered": value is not None, "value": value or ""}, b""

    def _yield(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        self.waits = request
        return {"yielding": True}, b""


@contextmanager
def attempt_server(folder: Path) -> Iterator[AttemptServer]:
    server = AttemptServer(folder / "s")
    try:
        yield server
    finally:
        server.close()
