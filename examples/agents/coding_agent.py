"""A stand-in for a coding agent's command line: it takes a task and a session, works in turns, and costs money.

Real ones differ in their flags, not in how they behave: they print events as lines of JSON, keep a session that they
can resume, spend tokens with every turn, hit rate limits, die half way, say that they are done when they are not, and
sometimes simply hang. This one does the same by a script, so that the example and its test need no model.

    python coding_agent.py --task TASK.md --session session.json [--resume] [--behave work|...]

Exit codes: 0 it says that it is done, 75 the provider's rate limit, 1 anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

SOLUTIONS = {
    "mean": "def mean(values):\n    return sum(values) / len(values)\n",
    "median": (
        "def median(values):\n"
        "    ordered = sorted(values)\n"
        "    middle = len(ordered) // 2\n"
        "    if len(ordered) % 2:\n"
        "        return ordered[middle]\n"
        "    return (ordered[middle - 1] + ordered[middle]) / 2\n"
    ),
    "spread": "def spread(values):\n    return max(values) - min(values)\n",
    "scale": "def scale(values, factor):\n    return [value * factor for value in values]\n",
}
"""What a model would have thought of. A task names the functions that it wants."""
SLOPPY = 'def scale(values, factor):\n    return [eval(f"{value} * {factor}") for value in values]\n'
"""What passes every test, and no second pair of eyes."""


BEHAVIOURS = ("work", "limit", "crash", "lie", "hang", "greedy", "sloppy")


def say(kind: str, **fields: object) -> None:
    print(json.dumps({"type": kind, **fields}), flush=True)


def wanted(task: str) -> list[str]:
    return [name for name in re.findall(r"^- `(\w+)", task, re.MULTILINE) if name in SOLUTIONS]


def turn(number: int, name: str, code: str, session: dict, target: Path, *, tokens_output: int) -> None:
    """One turn: think, write one function, remember it. The provider bills the turn whatever becomes of it."""
    time.sleep(float(os.environ.get("AGENT_TURN_S", "0.05")))
    response = f"resp-{session['id']}-{number}"
    say(
        "response",
        id=response,
        tokens_input=900 + 100 * number,
        tokens_output=tokens_output,
        cost_usd=f"0.00{number}",
        text=f"I will write {name} now.",
    )
    text = target.read_text()
    stub = re.compile(rf"def {name}\([^\n]*\n    raise NotImplementedError\n")
    target.write_text(stub.sub(lambda _: code, text))
    session["done"].append(name)
    say("edit", path=str(target), turn=number, done=list(session["done"]))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", type=Path, required=True)
    parser.add_argument("--target", type=Path, default=Path("statistics_tool.py"))
    parser.add_argument("--session", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--behave", default="work", choices=BEHAVIOURS)
    given = parser.parse_args()
    names = wanted(given.task.read_text())
    session = {"id": os.environ.get("AGENT_SESSION", "s1"), "turn": 0, "done": []}
    if given.resume:
        session = json.loads(given.session.read_text())
    say("start", session=session["id"], turn=session["turn"], left=[n for n in names if n not in session["done"]])
    if given.behave == "lie":
        say("done", text="Everything works, all tests pass.")
        return 0
    for number, name in enumerate(names, 1):
        if name in session["done"]:
            continue
        if given.behave == "hang" and session["done"]:
            time.sleep(3_600)
        if given.behave == "limit" and session["done"]:
            say("error", code="rate_limited", text="429: slow down")
            return 75
        code = SLOPPY if given.behave == "sloppy" and name == "scale" else SOLUTIONS[name]
        tokens_output = 40_000 if given.behave == "greedy" else 200 + 10 * number
        turn(number, name, code, session, given.target, tokens_output=tokens_output)
        if given.behave == "crash":
            os.abort()  # before the session is written: the turn is paid and, for the agent, forgotten
        session["turn"] = number
        fresh = given.session.with_suffix(".new")
        fresh.write_text(json.dumps(session))
        fresh.replace(given.session)
        say("session", path=str(given.session), turn=number)
    say("done", text="Everything works, all tests pass.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
