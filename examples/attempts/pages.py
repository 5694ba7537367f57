"""Reads five pages that cost money, asks a person, and reports. Killed at any moment it goes on where it was."""

from __future__ import annotations

import time
from pathlib import Path

import fencepost as fp

PAGES = 5

attempt = fp.attempt()
texts: list[str] = attempt.resume_value() or []  # what an earlier attempt has checkpointed

for page in range(len(texts) + 1, PAGES + 1):
    attempt.heartbeat(f"page {page} of {PAGES}")
    time.sleep(0.2)
    texts.append(f"text of page {page}")
    # A receipt is booked once, however often it is said: after a kill nobody knows whether it was said already. A real
    # one is the provider's id of the payment; this one holds its order, so that another run pays for itself.
    for _ in range(2):
        receipt = f"{attempt.order}-page-{page}"
        booked = attempt.charge(receipt=receipt, provider="pages", calls=1, money={"USD": "0.001"})
        print(booked, flush=True)
    # Refused, unless this attempt goes on from the last checkpoint of its order.
    print(attempt.checkpoint(texts, builds_on=page - 1), flush=True)

Path("pages.txt").write_text("\n".join(texts) + "\n")
print(attempt.artifact("pages.txt"), flush=True)
# Waiting holds nothing: without an answer this attempt ends here, and the next one starts when the answer is there.
answer = attempt.ask("publish", f"Publish the {PAGES} pages?")
Path("report.txt").write_text(f"{PAGES} pages, publish: {answer}\n")
