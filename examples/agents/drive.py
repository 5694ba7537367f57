"""Runs a coding agent's command line as a work order: any agent that prints events and can resume a session.

This is the whole adapter. It needs nothing but the `fencepost` command that every attempt has on its PATH:

- `attempt resume` gives back what an earlier attempt kept: the agent's session and the files as it had left them;
- `attempt charge` books each response under the provider's own id, so that a response is paid once, however often it
  is told and whichever attempt tells it;
- `attempt checkpoint` keeps session and files after each turn, so that a killed attempt costs one turn at most;
- `attempt yield` ends the attempt, without holding anything, while a person decides about more budget; the attempt that
  comes after it reads what was decided (`attempt answer`), and spends nothing after anything but a "yes";
- the exit code says how it went. That the agent says "done" proves nothing: the order's verifier does.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SESSION = Path("session.json")
LIMITED = 75  # the agent's own exit code for a rate limit


def fencepost(*words: str, data: bytes | None = None) -> dict[str, Any]:
    """One word to the worker. Its answer, or the end of this program if this attempt no longer counts."""
    done = subprocess.run(["fencepost", "attempt", *words], input=data, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def resumed(target: Path) -> bool:
    """Put back what an earlier attempt of this order has kept."""
    words = ["fencepost", "attempt", "resume", "--optional", "--to", "kept.json"]
    found = subprocess.run(words, stdout=subprocess.DEVNULL, check=False)
    if found.returncode:
        sys.exit(found.returncode)
    if not Path("kept.json").exists():
        return False
    kept = json.loads(Path("kept.json").read_text())
    SESSION.write_text(kept["session"])
    target.write_bytes(base64.b64decode(kept["target"]))
    return True


def keep(target: Path) -> None:
    kept = {"session": SESSION.read_text(), "target": base64.b64encode(target.read_bytes()).decode()}
    fencepost("checkpoint", "-", data=json.dumps(kept).encode())


def charge(event: dict[str, Any]) -> dict[str, Any]:
    return fencepost(
        "charge",
        *("--provider", "model-shop", "--receipt", event["id"], "--calls", "1"),
        *("--tokens-input", str(event["tokens_input"]), "--tokens-output", str(event["tokens_output"])),
        *("--money", f"USD:{event['cost_usd']}"),
    )


def question(number: int) -> str:
    """An answer stays as it is, so each time is a question of its own."""
    return f"go-on-{number}"


def asked() -> int:
    """How many questions of this order were answered: all of them are ours, and one is asked at a time."""
    greeting = fencepost("hello")
    return len(greeting["answers"]) + len(greeting["answers_left_off"])


def main() -> int:
    questions = asked()
    if questions and fencepost("answer", question(questions))["value"] != "yes":
        print("a person has decided that this does not go on", file=sys.stderr)
        return 1
    params = json.loads(Path(os.environ["FENCEPOST_PARAMS"]).read_text())
    target = Path(params["target"])
    again = resumed(target)
    ordinal = int(os.environ["FENCEPOST_FENCE"])
    script = params.get("script", ["work"])
    command = [sys.executable, "coding_agent.py", "--task", params["task"], "--target", str(target)]
    command += ["--session", str(SESSION), "--behave", script[min(ordinal, len(script)) - 1]]
    command += ["--resume"] if again else []
    # A provider makes ids of responses unique; those of this stand-in hold its session, which is the order's.
    environment = {"AGENT_SESSION": os.environ["FENCEPOST_WORK_ORDER"], **os.environ}
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    over: dict[str, Any] = {}
    for line in agent.stdout or ():
        print(line, end="", flush=True)
        event = json.loads(line)
        if event["type"] == "response":
            over |= charge(event)["over"]
            fencepost("heartbeat", "--note", event["text"])
        elif event["type"] == "session":
            keep(target)
        if over:
            # It has spent more than was set aside for it. What it has said until now is still read, and paid.
            agent.kill()
    code = agent.wait()
    if over:
        # Nothing more is spent until a person has decided.
        if SESSION.exists():
            keep(target)
        prompt = f"{target} is half done and over its budget ({', '.join(over)}). "
        prompt += "Raise the plan's ceiling first (fencepost budget set), then answer yes; anything else ends it."
        fencepost("yield", "--question", question(questions + 1), "--prompt", prompt)
        return 0
    if code == LIMITED:
        print("the provider's rate limit: the order's backoff decides when it goes on", file=sys.stderr)
    if code:
        return 1
    # What it changed is handed in beside the original, which stays as it was pinned: the verifier puts it in place.
    Path("out").mkdir(exist_ok=True)
    shutil.copyfile(target, Path("out", target.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
