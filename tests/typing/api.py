"""What programs may import and rely on, as types. This file is checked by mypy and never run.

Whoever changes a name or a signature below breaks somebody's program, and sees it here first: the package's own
version, the kernel as a library over a home or over fakes, and the kit for testing adapters of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import fencepost
import fencepost as fp
from fencepost.app import App, NoHome, find_home, home_for, make_home
from fencepost.core.chain import Link
from fencepost.core.commands import CancelPlan, OrderDraft, Request, SubmitPlan
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.reasons import REASONS, Reason, Refusal
from fencepost.core.records.plan import Acceptance
from fencepost.core.state import OrderState, PlanState
from fencepost.core.views import order_document, plan_document, plan_outcome
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.read import Look, ReadinessPlan
from fencepost.kernel.receipts import Receipt, Refused
from fencepost.kernel.replay import Compared, Replayed, Verified
from fencepost.ports.errors import FencepostError, IntegrityError, StorageError
from fencepost.ports.journal import Journal
from fencepost.ports.threads import Threads
from fencepost.ports.wakeups import Wakeups
from fencepost.services.worker import Status, Worker
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.fakes import FakeAuthority, FakeClock, FakeEntropy, MemoryKeyring, MemoryLedger


def version() -> str:
    return assert_type(fencepost.__version__, str)


@fp.executor("summarize", version=1)
def a_callable(attempt: fp.Attempt) -> fp.Result:
    found = attempt.step("fetch", fetch, "https://example.org", tries=3)
    assert_type(found, dict[str, int])
    attempt.charge(receipt="r", provider="p", tokens_input=1, tokens_output=1, calls=1, money={"USD": "0.004"})
    attempt.charge(receipt="s", calls=1, unknown=("tokens_output", "money:USD"))
    attempt.heartbeat("half")
    attempt.go_on()
    if assert_type(attempt.stopping, str):
        raise fp.TransientError("away")
    if not attempt.params:
        raise fp.Failure("odd", kind="validation") from fp.InputError("no page")
    try:
        assert_type(attempt.ask("who", "Who?"), str)
    except (fp.StepChanged, fp.StepRefused, fp.StaleFence) as error:
        return assert_type(fp.Result.failed("validation", str(error)), fp.Result)
    except fp.Stopping as stop:
        assert_type(stop.reason, str)
        raise
    return assert_type(fp.Result.succeeded(files=["a"]), fp.Result)


def fetch(url: str, *, tries: int) -> dict[str, int]:
    return {url: tries}


def one_name_where_several_are_meant(attempt: fp.Attempt) -> fp.Result:
    """What a type checker has to flag: a suppression that nothing needs is an error itself."""
    attempt.child("kid", "true")  # type: ignore[arg-type]  # a text is no list of words
    attempt.wait(children="kid")  # type: ignore[arg-type]  # nor one of names
    return fp.Result.succeeded(files="a.txt")  # type: ignore[arg-type]  # nor one of files


def a_name_that_is_not_there() -> object:
    """A name is found when it is asked for, and a type checker still knows one that cannot be."""
    return fp.Atempt  # type: ignore[attr-defined]  # there is no such name


def open_a_home(folder: Path) -> App:
    home = find_home(folder) or home_for(folder)
    assert_type(make_home(home), bool)
    try:
        app = App(home, scope="default", environment={"PATH": "/usr/bin"})
    except NoHome as error:
        raise SystemExit(assert_type(error.message, str)) from error
    app.kernel.open()
    return app


def over_fakes(wakeups: Wakeups, threads: Threads, limits: Limits = FIRST_VALUES) -> Kernel:
    journal: Journal = MemoryJournal("0" * 32)
    return Kernel(
        journal=journal,
        scope="default",
        clock=FakeClock(),
        entropy=FakeEntropy(),
        authority=FakeAuthority(),
        keyring=MemoryKeyring(),
        ledger=MemoryLedger(),
        wakeups=wakeups,
        threads=threads,
        limits=limits,
    )


def submission(content: str) -> SubmitPlan:
    order = OrderDraft(
        task="hello",
        work_kind="command/1",
        priority="normal",
        classification="internal",
        effects="declared",
        attempt_time_us=60_000_000,
        accept=Acceptance(exit_code=0, files=("hello.txt",)),
        run=("sh", "-c", "echo hello > hello.txt"),
        outputs=("hello.txt",),
    )
    return SubmitPlan(
        name="plan",
        objective="say hello",
        content=content,
        orders=(order,),
        recovery="replace",
        mode="continue",
        ceilings={"attempts": 3},
    )


def write(kernel: Kernel, command: SubmitPlan, plan: str) -> Mapping[str, Any]:
    request = assert_type(kernel.request("human", command, "my-key"), Request)
    receipt = assert_type(kernel.write(request), Receipt)
    assert_type(kernel.write_many([request, kernel.request("human", CancelPlan(plan=plan))]), list[Receipt])
    assert_type(kernel.recall(request), Receipt | None)
    assert_type(receipt.sequence, int)
    refusal = assert_type(receipt.refusal, Refusal | None)
    if refusal is not None:
        assert_type(refusal.reason, Reason)
        assert_type(REASONS[refusal.code].exit_code, int)
        assert_type((refusal.message, refusal.next_step), tuple[str, str])
    try:
        return receipt.required()
    except Refused as error:
        raise SystemExit(error.code) from error


async def write_from_a_task(kernel: Kernel, request: Request) -> Receipt:
    return await kernel.write_async(request)


def read(kernel: Kernel, plan: str) -> dict[str, Any]:
    with kernel.reader.look() as look:
        assert_type(look, Look)
        found = assert_type(look.find(plan, PlanState), PlanState | None)
        orders = assert_type(look.orders(plan), list[OrderState])
        clock = look.clock()
        observation = clock.last_seq if clock is not None else 0
        assert_type(look.ready(observation, look.head.seq, 10), ReadinessPlan | Refusal)
        assert_type([order_document(order, look.facts(order.result_seq)) for order in orders], list[dict[str, Any]])
        return {} if found is None else plan_document(found, plan_outcome(found, orders, clock, look.get))


def check(kernel: Kernel, kept: Link) -> bool:
    verified = assert_type(kernel.verify(), Verified)
    assert_type(kernel.verify(kept), Verified)
    try:
        compared = assert_type(kernel.compare(), Compared)
        assert_type(kernel.replay_to(verified.sequence), Replayed)
        assert_type(kernel.rebuild(), Replayed)
    except IntegrityError as error:
        raise SystemExit(assert_type(error.next_step, str | None)) from error
    return verified.ok and compared.match


def inside_an_attempt() -> str:
    attempt = assert_type(fencepost.attempt(), fencepost.Attempt)
    assert_type(attempt.params, dict[str, Any])
    done = assert_type(attempt.resume(), bytes | None)
    assert_type(attempt.heartbeat("a note"), dict[str, Any])
    try:
        attempt.checkpoint({"done": len(done or b"")}, builds_on=0)
        attempt.charge(receipt="r", provider="p", calls=1, tokens_input=2, tokens_output=3, money={"USD": "0.004"})
        attempt.artifact("trace.log")
        attempt.child("kid", ["true"], outputs=["a.txt"])
    except fencepost.StaleFence as stale:
        raise SystemExit(assert_type(stale.exit_code, int)) from stale
    except fencepost.Refused as refused:
        raise SystemExit(assert_type(refused.code, str)) from refused
    assert_type(attempt.output("kid", "a.txt"), bytes)
    assert_type(attempt.answer("colour"), str | None)
    assert_type(attempt.stopping, str)
    if not attempt.children():
        attempt.wait(children=["kid"], question="colour", prompt="which?", after="1h")
    return assert_type(attempt.ask("colour", "which?"), str)


def work(app: App) -> Status:
    worker = assert_type(app.worker(jobs=2, plan=None), Worker)
    try:
        worker.start()
        assert_type(worker.is_idle(), bool)
    except StorageError as error:
        raise SystemExit(error.code) from error
    finally:
        worker.stop()
        app.close()
    if worker.fatal is not None:
        raise assert_type(worker.fatal, FencepostError)
    return worker.status()
