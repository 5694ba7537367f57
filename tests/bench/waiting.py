"""A store with many waiting orders: one reservation among them, the end of an order, and the memory of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from fencepost.core.commands import GroupDraft, MemberDraft, SubmitPlan
from fencepost.core.ids import sha256_of
from tests.bench import worlds

DEPENDENTS = (0, 100)
"""Orders that wait for the one that is finished; each batch tells that many at once."""


def percentiles(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def with_waiting(folder: Path, waiting: int, samples: int, finishes: int) -> dict[str, float]:
    """Beside so many waiting orders, in microseconds: one reservation out of them, and the end of an order that nobody
    or a hundred others wait for; and the memory of a process that reserves some."""
    with worlds.opened(folder) as kernel:
        crew = worlds.Crew(kernel)
        left = waiting
        while left > 0:
            left -= len(crew.do_many("human", [crew.submit()] * min(left, 1_000)))
        found = percentiles([reserve_us(crew) for _ in range(samples)])
    found["rss_mb"] = rss_mb(folder)
    with worlds.opened(folder) as kernel:  # behind the others: these let more orders wait
        crew = worlds.Crew(kernel)
        for dependents in DEPENDENTS:
            heads = [submitted_head(crew, number, dependents) for number in range(finishes)]
            ends = [finish_us(crew, head, dependents) for head in heads]
            found |= {f"finish_{dependents}_{name}": each for name, each in percentiles([e[0] for e in ends]).items()}
            found[f"finish_{dependents}_cpu"] = sum(cpu_us for _, cpu_us in ends) / finishes
    return found


def reserve_us(crew: worlds.Crew) -> float:
    begun = time.perf_counter()
    reserved = crew.do("dispatcher", crew.reserve_next(1))["reservations"]
    took_us = (time.perf_counter() - begun) * 1e6
    if len(reserved) != 1:
        raise RuntimeError("nothing was reserved")
    return took_us


def submitted_head(crew: worlds.Crew, number: int, dependents: int) -> worlds.Answer:
    """Submit a plan of one order and those that wait for it; name and version of the first."""
    name = f"head-{dependents}-{number}"
    head = replace(worlds.DRAFT, task="head")
    need = GroupDraft(kind="required", members=(MemberDraft(outcomes=("applied",), task="head"),))
    others = [replace(worlds.DRAFT, task=f"other-{place}", groups=(need,)) for place in range(dependents)]
    plan = SubmitPlan(
        name=name,
        objective="one order, and those that wait for it",
        content=sha256_of(name.encode()),
        orders=(head, *others),
        recovery="replace",
        mode="new",
        ceilings={name: amount * (1 + dependents) for name, amount in worlds.DRAFT.ceilings.items()},
    )
    placed = crew.do("human", plan)["plan"]
    with crew.kernel.reader.look() as look:
        order = next(each for each in look.orders(placed) if each.task == "head")
    return {"order": order.order, "version": order.version, "plan": placed}


def finish_us(crew: worlds.Crew, head: worlds.Answer, dependents: int) -> tuple[float, float]:
    """Run one order to its report, and measure its application, which lets its dependents go: by the clock, and by the
    processor."""
    reserved = crew.do("dispatcher", crew.reserve(head))["reservations"][0]
    crew.do("dispatcher", crew.activate(reserved))
    crew.do("executor", crew.report(reserved))
    begun, begun_cpu = time.perf_counter(), time.process_time()
    crew.do("reducer", crew.apply(reserved))
    took_us, cpu_us = (time.perf_counter() - begun) * 1e6, (time.process_time() - begun_cpu) * 1e6
    with crew.kernel.reader.look() as look:
        states = sorted(each.state for each in look.orders(head["plan"]))
    if states != ["applied", *["ready"] * dependents]:
        raise RuntimeError(f"the end of an order did not reach its dependents: {states}")
    return took_us, cpu_us


def rss_mb(folder: Path) -> float:
    """Peak resident memory of a fresh process that makes fifty reservations in this store."""
    program = (
        "import sys; from pathlib import Path; from tests.bench import worlds\n"
        "with worlds.opened(Path(sys.argv[1])) as kernel:\n"
        "    crew = worlds.Crew(kernel)\n"
        "    for _ in range(50): crew.do('dispatcher', crew.reserve_next(1))\n"
        # Not `ru_maxrss`, which starts with the peak of the process that this one was made from.
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, check=True, env=environment
    )
    return int(done.stdout) / 1024


def by_count(
    waits: dict[int, dict[str, float]],
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, dict[str, float]]]]:
    """What was measured by the number of waiting orders, as the document has it: reservations, and ends by the number
    of dependents."""
    reserve = {str(count): {"p50": each["p50"], "p99": each["p99"]} for count, each in waits.items()}
    finish = {
        str(count): {
            str(number): {name: each[f"finish_{number}_{name}"] for name in ("p50", "p99", "cpu")}
            for number in DEPENDENTS
        }
        for count, each in waits.items()
    }
    return reserve, finish
