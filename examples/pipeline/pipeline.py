"""Reads pages, has a model summarize each, and writes a report: two steps a page, each done and paid for once.

Killed at any moment it goes on behind the last recorded step. A step that was under way is done again: a page is read
once more, the model knows the key and answers under the same receipt, and a receipt is charged once.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import fencepost as fp

TIMEOUT_S = 30


@fp.executor("digest-pages", version=1)
def digest_pages(attempt: fp.Attempt) -> fp.Result:
    site, pages = attempt.params["site"], attempt.params["pages"]

    def summarized(number: int, text: str) -> str:
        said = ask(f"{site}/summaries", {"key": f"{attempt.order}/{number}", "text": text})
        attempt.charge(
            receipt=said["id"],
            provider="example-model",
            tokens_input=said["tokens_input"],
            tokens_output=said["tokens_output"],
            money={"USD": said["price"]},
        )
        return str(said["summary"])

    lines = [f"# {pages} pages", ""]
    for number in range(1, pages + 1):
        page = attempt.step(f"read page {number}", ask, f"{site}/pages/{number}")
        lines.append(f"{number}. {attempt.step(f'summarize page {number}', summarized, number, page['text'])}")
        attempt.heartbeat(f"{number} of {pages} pages")
    Path("report.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return fp.Result.succeeded(files=["report.md"])


def ask(url: str, document: Any = None) -> Any:
    """GET, or POST a document. A service that is away is a failure that may pass."""
    data = None if document is None else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=TIMEOUT_S) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        kind = "transient_dependency" if error.code >= 500 else "deterministic_input"
        raise fp.Failure(f"{url} answered {error.code}", kind=kind) from error
    except OSError as error:
        raise fp.TransientError(f"{url}: {error}") from error
