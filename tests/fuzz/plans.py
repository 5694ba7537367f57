"""Plans of random shape that stand near the edge of what a check lets pass: most of them should be taken.

A changed text is seldom a good plan. Here names, groups, budgets on both levels, shares, files and acceptance are
made to fit together, mostly, so that what the check takes goes on to the deciders.
"""

from __future__ import annotations

import random
from typing import Any, Final

NAMES: Final = ("a", "b", "c", "d", "e")
OUTCOMES: Final = ("applied", "failed", "cancelled", "dependency_failed", "budget_exhausted")
OUTPUTS: Final = ("report.xml", "logs/**", "out/*.txt", "**/deep/*", "x*/y*")
INSIDE: Final = ("report.xml", "logs/a.txt", "logs/**", "out/*.txt", "out/a*.txt", "z/deep/*", "xa/yb")


def some_plan(draw: random.Random) -> dict[str, Any]:
    """A plan as a tree of JSON."""
    count = draw.randrange(1, len(NAMES) + 1)
    plan: dict[str, Any] = {"budget": _budget(draw, 1), "work": []}
    plan["budget"].setdefault("attempts", draw.choice((count, count + 1, 3 * count, 1_000_000)))
    if draw.random() < 0.3:
        plan["deadline"] = draw.choice(("1ms", "2h", "365d", "1h30m"))
    if draw.random() < 0.3:
        plan |= {"name": "nightly", "objective": "\u00e9 " * draw.randrange(9), "recovery": "replace"}
    for place, name in enumerate(NAMES[:count]):
        plan["work"].append(_order(draw, name, plan["work"][:place]))
    if draw.random() < 0.3:
        draw.shuffle(plan["work"])
    return plan


def _budget(draw: random.Random, scale: int) -> dict[str, Any]:
    budget: dict[str, Any] = {}
    for key, amount in (
        ("time", draw.choice(("20m", "1h", "365d"))),
        ("calls", draw.choice((0, 1, 5, 40, 2**53 - 1)) // scale),
        ("tokens", {side: draw.choice((0, 7, 2**53 - 1)) // scale for side in draw.sample(("input", "output"), 1)}),
        ("money", {code: draw.choice(("0", "0.000001", "2.50")) for code in draw.sample(("USD", "EUR"), 1)}),
    ):
        if draw.random() < 0.25:
            budget[key] = amount
    return budget


def _order(draw: random.Random, name: str, before: list[dict[str, Any]]) -> dict[str, Any]:
    order: dict[str, Any] = {"name": name, "run": ["true", *(["\u00e9", ""] * draw.randrange(2))]}
    names = [each["name"] for each in before]
    needs: list[Any] = []
    if names and draw.random() < 0.7:
        needs += draw.sample(names, draw.randrange(1, len(names) + 1))
    if names and draw.random() < 0.4:
        members = draw.sample(names, draw.randrange(1, len(names) + 1))
        kind = draw.choice(("all", "any", "done"))
        group: dict[str, Any] = {kind: members}
        if kind != "done" and draw.random() < 0.7:
            group["outcomes"] = draw.sample(OUTCOMES, draw.randrange(1, 4))
        needs.append(group)
    if needs:
        order["needs"] = needs
    if draw.random() < 0.5:
        order["outputs"] = draw.sample(OUTPUTS, draw.randrange(1, 4))
    _files(draw, order, before)
    _terms(draw, order)
    return order


def _files(draw: random.Random, order: dict[str, Any], before: list[dict[str, Any]]) -> None:
    inputs: list[Any] = ["src/**"] if draw.random() < 0.2 else []
    plain = [need for need in order.get("needs", ()) if isinstance(need, str)]
    for other in before:
        if other["name"] in plain and other.get("outputs") and draw.random() < 0.5:
            inputs.append({"from": other["name"], "files": [draw.choice((*INSIDE, *other["outputs"]))]})
    if inputs:
        order["inputs"] = inputs
    if order.get("outputs") and draw.random() < 0.4:
        order["accept"] = {"files": [draw.choice((*order["outputs"], *INSIDE[:2]))], "exit_code": draw.choice((0, 255))}
        if draw.random() < 0.4:
            order["accept"]["schema"] = {draw.choice(order["outputs"]): "schema.json"}
        if draw.random() < 0.4:
            order["accept"]["verify"] = ["python", "a.py"]


def _terms(draw: random.Random, order: dict[str, Any]) -> None:
    if draw.random() < 0.4:
        order["budget"] = {**_budget(draw, draw.choice((1, 2, 7))), "attempts": draw.choice((1, 2, 3))}
        if draw.random() < 0.4:
            shares = {"calls": draw.choice((0, 1, 5)), "money": {"USD": "0.000001"}, "tokens": {"input": 1}}
            key = draw.choice(sorted(shares))
            order["budget"]["per_attempt"] = {key: shares[key]}
    if draw.random() < 0.3:
        order["attempt_time"] = draw.choice(("1ms", "5m", "20m", "365d"))
    if draw.random() < 0.3:
        order["retry"] = {"on": draw.sample(("executor", "transient_dependency", "validation"), draw.randrange(1, 4))}
        if draw.random() < 0.5:
            order["retry"] |= {"backoff": draw.choice(("1ms", "2s", "1h")), "backoff_max": draw.choice(("2s", "1h"))}
    if draw.random() < 0.2:
        order |= {"may_fail": True, "priority": draw.choice(("low", "high")), "classification": "public"}
    if draw.random() < 0.2:
        order["params"] = {"url": "https://example.org", "n": [1, True, {"\u00e9": -(2**53 - 1)}]}
    if draw.random() < 0.1:
        order |= {"effects": "none", "environment": ["PATH", "LC_*"], "may": ["workspace.write"]}
