"""W6, X10: a step is recorded once, before it returns, and never run again after that."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from fencepost.core import canonical
from fencepost.sdk import failures, steps, values
from fencepost.sdk.client import Attempt, Yield
from fencepost.sdk.executor import Result
from fencepost.sdk.names import several
from fencepost.sdk.wire import Refused, Unreachable
from tests.support.attempt_server import AttemptServer, attempt_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AttemptServer]:
    with attempt_server(tmp_path) as made:
        yield made


MADE: list[Attempt] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


def attempt(server: AttemptServer) -> Attempt:
    """A new attempt of the same order."""
    MADE.append(Attempt(server.environment(server.path.parent)))
    return MADE[-1]


class Counted:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append((arguments, named))
        return {"got": list(arguments), **named}


def test_w6_a_recorded_step_is_not_run_again(server: AttemptServer) -> None:
    work = Counted()
    first = attempt(server).step("fetch", work, 1, "zwei", key=[None, 2.5])
    assert len(server.payloads) == 1
    again = attempt(server).step("fetch", work, 1, "zwei", key=[None, 2.5])
    assert first == again == {"got": [1, "zwei"], "key": [None, 2.5]}
    assert len(work.calls) == 1 and len(server.payloads) == 1


def test_w6_the_record_is_there_before_the_step_returns(server: AttemptServer) -> None:
    server.refuse["checkpoint"] = "storage_error"
    work = Counted()
    one = attempt(server)
    with pytest.raises(Refused):
        one.step("fetch", work, 1)
    del server.refuse["checkpoint"]
    assert one.step("fetch", work, 1) == {"got": [1]}
    assert len(work.calls) == 2


def test_x10_the_first_run_sees_what_a_later_one_will_see(server: AttemptServer) -> None:
    def pair() -> Any:
        return (1, {"b": (2, 3), "a": True})

    assert attempt(server).step("pair", pair) == [1, {"b": [2, 3], "a": True}] == attempt(server).step("pair", pair)


def test_x10_other_arguments_under_a_recorded_name_are_refused(server: AttemptServer) -> None:
    attempt(server).step("fetch", Counted(), 1)
    work = Counted()
    for arguments, named in (((2,), {}), ((), {}), ((1,), {"more": 1}), (("1",), {}), ((1.0,), {})):
        with pytest.raises(failures.StepChanged, match="'fetch' was recorded with other arguments"):
            attempt(server).step("fetch", work, *arguments, **named)
    assert work.calls == []


def test_x10_a_name_is_asked_for_once_in_a_run(server: AttemptServer) -> None:
    one = attempt(server)
    one.step("a", Counted())
    with pytest.raises(failures.StepRefused, match="twice in one run"):
        one.step("a", Counted())
    two = attempt(server)
    two.step("a", Counted())
    with pytest.raises(failures.StepRefused, match="twice in one run"):
        two.step("a", Counted())


def test_x10_a_step_that_raised_is_not_recorded_and_may_be_tried_again(server: AttemptServer) -> None:
    one = attempt(server)
    with pytest.raises(ZeroDivisionError):
        one.step("a", lambda: 1 // 0)
    assert server.payloads == []
    assert one.step("a", lambda: 1) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"bytes", " is of type bytes"),
        ({"deep": [1, {2, 3}]}, "['deep'][1] is of type set"),
        ({1: 2}, " has the key '1', of type int; keys are text"),
        (float("nan"), " is nan, which JSON does not have"),
        ("\ud800", " has a text that holds half of a character"),
        (1 << 20_000, " cannot be written as JSON"),
        ("x" * steps.VALUE_BYTES_MAX, " bytes as JSON, at most 1048576 are recorded"),
        (object(), " is of type object"),
        (iter([1]), "write it as a list"),
        (MappingProxyType({}), "write it as a dict"),
        (len, "call it, and give what it returns"),
    ],
    ids=["bytes", "set", "key", "nan", "surrogate", "digits", "large", "object", "iterator", "mapping", "function"],
)
def test_x10_what_cannot_be_recorded_says_where_and_why(server: AttemptServer, value: Any, said: str) -> None:
    for what, arguments, named in (
        ("the value of step 'a'", (), {}),
        ("argument 1 of step 'a'", (value,), {}),
        ("argument key of step 'a'", (), {"key": value}),
    ):
        with pytest.raises(failures.StepRefused) as caught:
            attempt(server).step(
                "a", (lambda: value) if what.startswith("the value") else Counted(), *arguments, **named
            )
        assert said in str(caught.value)
        assert what in str(caught.value) or str(caught.value).startswith("what step 'a' is called with")
    assert server.payloads == []


def test_x10_a_step_calls_a_plain_function(server: AttemptServer) -> None:
    async def later() -> int:
        return 1

    with pytest.raises(
        failures.StepRefused, match=r"'a' is of type coroutine.* runs the coroutine, such as by asyncio"
    ):
        attempt(server).step("a", later)
    with pytest.raises(failures.StepRefused, match="step 'a' is given a value of type int where a function is meant"):
        attempt(server).step("a", 5)  # type: ignore[arg-type]  # on purpose
    assert server.payloads == []


@pytest.mark.parametrize("names", ["ok", b"ok", Path("ok"), 5, [5], None], ids=repr)
def test_x10_one_name_where_several_are_meant_is_refused(server: AttemptServer, names: Any) -> None:
    one = attempt(server)
    for call in (
        lambda: Result.succeeded(files=names),
        lambda: one.wait(children=names),
        lambda: one.child("c", names if names is not None else 5),
    ):
        with pytest.raises(TypeError, match=r"^the (files of a result|children|words of `run`) are a list of texts"):
            call()
    assert server.requests == []


def test_x10_several_names_come_in_any_list(server: AttemptServer) -> None:
    for names in (["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), iter(["a", "b"]), {1: "a", 2: "b"}.values()):
        assert Result.succeeded(files=names).files == ("a", "b")
    assert several([Path("a"), "b"], "files") == ("a", "b")
    attempts = attempt(server)
    with pytest.raises(Yield):
        attempts.wait(children=iter(["a", "b"]))
    assert server.waits["children"] == ["a", "b"]


@pytest.mark.parametrize(
    ("money", "said"),
    [
        ("USD:0.5", "money is a dictionary of currency to decimal text, not of type str"),
        ([("USD", "0.5")], "not of type list"),
        ({"USD": 0.5}, "0.5 is no text"),
        ({1: "0.5"}, "1 is no text"),
    ],
)
def test_w18_money_is_a_table_of_texts(server: AttemptServer, money: Any, said: str) -> None:
    with pytest.raises(Refused) as refused:
        attempt(server).charge(receipt="r", money=money)
    assert said in refused.value.message
    assert (refused.value.code, refused.value.where) == ("wrong_type", "/amounts/money")
    assert refused.value.next == 'write it like money={"USD": "0.004"}'
    assert server.requests == []


def test_w18_a_charge_that_names_nothing_is_refused(server: AttemptServer) -> None:
    one = attempt(server)
    for fields in ({}, {"money": {}}, {"unknown": []}):
        with pytest.raises(Refused, match="names no amount") as refused:
            one.charge(receipt="r", **fields)  # type: ignore[arg-type]  # one of several
        assert (refused.value.code, refused.value.where, refused.value.exit_code) == ("out_of_range", "/amounts", 2)
    assert server.requests == []
    for number, said in enumerate(({"calls": 0}, {"money": {"USD": "0"}}, {"unknown": ["calls"]})):
        one.charge(receipt=f"{number}", **said)  # type: ignore[arg-type]  # one of several
    assert list(server.receipts) == ["0", "1", "2"]


def test_w6_a_checkpoint_of_text_is_no_value(server: AttemptServer) -> None:
    for kept in ("half a page", b"\xff\x00", "[" * 100_000):
        attempt(server).checkpoint(kept)
        with pytest.raises(Refused) as refused:
            attempt(server).resume_value()
        assert (refused.value.code, refused.value.next) == ("bad_value", "read it by resume()")
    attempt(server).checkpoint([1, "2"])
    assert attempt(server).resume_value() == [1, "2"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (object(), "bad_value"),
        (float("nan"), "bad_value"),
        ("\ud800", "lone_surrogate"),
        (["\ud800"], "lone_surrogate"),
    ],
    ids=["object", "nan", "text", "list"],
)
def test_w6_what_cannot_be_checkpointed_is_refused(server: AttemptServer, value: Any, code: str) -> None:
    with pytest.raises(Refused) as refused:
        attempt(server).checkpoint(value)
    assert (refused.value.code, refused.value.exit_code) == (code, 2)
    assert server.requests == []


def test_x10_nesting_has_a_bound(server: AttemptServer) -> None:
    nested: Any = 1
    for _ in range(values.DEPTH_MAX):
        nested = [nested]
    assert attempt(server).step("a", lambda: nested) == nested
    with pytest.raises(failures.StepRefused, match="nested more than 64 deep"):
        attempt(server).step("b", lambda: [nested])


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "\ud800", 7, "é" * 101])
def test_x10_a_name_has_a_bound_and_can_be_printed(server: AttemptServer, name: Any) -> None:
    with pytest.raises(failures.StepRefused, match=r"name of a step|is no name"):
        attempt(server).step(name, Counted())


def test_w6_a_lost_reply_records_a_step_once(server: AttemptServer) -> None:
    server.lose_replies = 1
    work = Counted()
    one = attempt(server)
    one.step("a", work)
    one.step("b", work)
    assert len(server.said("checkpoint")) == 3 and len(server.payloads) == 2  # the first one was said twice
    two = attempt(server)
    two.step("b", work)
    two.step("a", work)
    assert len(work.calls) == 2


def test_w6_a_record_that_nobody_heard_of_counts_all_the_same(server: AttemptServer) -> None:
    """The worker kept it and could not say so: the step raised, and when it is tried again it is done."""
    work = Counted()
    one = attempt(server)
    one.step("a", work)
    server.lose_replies = 4
    with pytest.raises(Unreachable):
        one.step("b", work, 1)
    assert one.step("b", work, 1) == {"got": [1]}
    assert one.step("c", work) == {"got": []}
    assert len(work.calls) == 3
    two = attempt(server)
    assert [two.step("c", work), two.step("b", work, 1), two.step("a", work)] == [
        {"got": []},
        {"got": [1]},
        {"got": []},
    ]
    assert len(work.calls) == 3


def test_w6_many_steps_are_a_short_chain(server: AttemptServer) -> None:
    count = 4 * steps.GROUP_STEPS_MAX + 3
    one = attempt(server)
    for index in range(count // 2):
        one.step(f"step {index}", lambda index=index: index)  # type: ignore[misc]  # bound now
    two = attempt(server)
    for index in range(count):
        assert two.step(f"step {index}", lambda index=index: index) == index  # type: ignore[misc]  # bound now
    assert len(server.payloads) == count
    assert max(len(payload) for _, payload in server.payloads) < 4 * 1024
    server.requests.clear()
    three = attempt(server)
    assert [three.step(f"step {index}", Counted()) for index in range(count)] == list(range(count))
    assert len(server.said("resume")) <= 7
    assert len(server.payloads) == count


def test_w6_two_that_record_beside_each_other_lose_nothing(server: AttemptServer) -> None:
    """Two processes of one attempt, by turns: each has read before the other has written."""
    one, two = attempt(server), attempt(server)
    for index in range(2 * steps.GROUP_STEPS_MAX):
        assert one.step(f"one {index}", lambda index=index: index) == index  # type: ignore[misc]  # bound now
        assert two.step(f"two {index}", lambda index=index: -index) == -index  # type: ignore[misc]  # bound now
        if index % 5 == 0:
            one.checkpoint(b"something else")
    three = attempt(server)
    server.requests.clear()
    for index in range(2 * steps.GROUP_STEPS_MAX):
        assert three.step(f"one {index}", Counted()) == index
        assert three.step(f"two {index}", Counted()) == -index
    assert server.said("checkpoint") == []
    assert len(server.said("resume")) <= 6, "they have filled the same payloads"


def test_w6_of_a_step_that_two_run_at_once_the_first_record_counts(server: AttemptServer) -> None:
    one, two = attempt(server), attempt(server)

    def first() -> str:
        assert two.step("same", lambda: "second's") == "second's"
        return "first's"

    assert one.step("same", first) == "second's", "it was recorded before"
    assert one.step("next", lambda: 1) == 1
    assert attempt(server).step("same", Counted()) == "second's"

    def other() -> int:
        attempt(server).step("changed", lambda given: given, 1)
        return 2

    with pytest.raises(failures.StepChanged, match="'changed' was recorded with other arguments"):
        one.step("changed", other)
    assert attempt(server).step("changed", Counted(), 1) == 1


def test_w6_coming_too_late_for_ever_has_an_end(server: AttemptServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SAVES_MAX", 3)
    monkeypatch.setattr(steps, "PAUSE_S", 0.0)
    server.refuse["checkpoint"] = "checkpoint_moved"
    one = attempt(server)
    with pytest.raises(Refused) as refused:
        one.step("a", lambda: 1)
    assert (refused.value.code, len(server.said("checkpoint"))) == ("checkpoint_moved", 3)
    del server.refuse["checkpoint"]
    assert one.step("a", lambda: 2) == 2


def test_w6_what_others_recorded_is_read_from_there_on(server: AttemptServer) -> None:
    """Not from the beginning: whoever records beside others would read everything anew each time."""
    one, two = attempt(server), attempt(server)
    for index in range(4 * steps.GROUP_STEPS_MAX):
        one.step(f"{index}", lambda: 1)
    two.step("two", lambda: 2)
    one.step("more", lambda: 1)
    server.requests.clear()
    assert two.step("two more", lambda: 2) == 2
    assert len(server.said("resume")) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"7",
        b'{"base":null,"steps":[]}',
        b'{"base":null,"steps":7}',
        b'{"base":null,"steps":[7]}',
        b'{"base":null,"steps":[{"name":"a","value":"1"}]}',
        b'{"base":null,"steps":[{"arguments":"","name":"a","value":1}]}',
        b'{"base":7,"steps":[{"arguments":"","name":"a","value":"1"}]}',
        b'{"base":null,"steps":[{"arguments":"","name":"a","value":"1"}] }',
    ],
)
def test_w6_recorded_steps_that_are_none_are_damaged(server: AttemptServer, payload: bytes) -> None:
    server.payloads.append(("steps/1", payload))
    with pytest.raises(steps.Damaged, match="the recorded steps are none"):
        attempt(server).step("a", Counted())


def test_w6_a_recorded_value_that_is_none_is_damaged(server: AttemptServer) -> None:
    none = values.digest_of(b'{"args":[],"kwargs":{}}')
    for text in ('"one', "[" * 100_000):
        step = {"arguments": none, "name": "a", "value": text}
        server.payloads.append(("steps/1", json.dumps({"base": None, "steps": [step]}, separators=(",", ":")).encode()))
        with pytest.raises(steps.Damaged, match="the recorded value of step 'a' cannot be read"):
            attempt(server).step("a", Counted())


def test_w6_steps_that_are_gone_are_damaged(server: AttemptServer) -> None:
    one = attempt(server)
    for index in range(steps.GROUP_STEPS_MAX + 1):
        one.step(f"{index}", lambda: 1)
    server.payloads[-1:] = [server.payloads[0]] * 2
    with pytest.raises(steps.Damaged, match="no longer among those of this order"):
        one.step("a", lambda: 1)


def test_w6_large_values_are_written_once(server: AttemptServer) -> None:
    one = attempt(server)
    text = "x" * (steps.VALUE_BYTES_MAX - 2)
    for index in range(3):
        one.step(f"{index}", lambda: text)
    assert sum(len(payload) for _, payload in server.payloads) < 3.1 * steps.VALUE_BYTES_MAX
    assert attempt(server).step("0", Counted()) == text


def test_w6_a_payload_has_the_registered_form(server: AttemptServer) -> None:
    attempt(server).step('q"uote', lambda: 1)
    attempt(server).step("b", lambda: {"z": (1.5, "\0"), "a": "ü"})
    attempt(server).step("large", lambda: "x" * steps.GROUP_BYTES_MAX)
    first, second, third = (payload for _, payload in server.payloads)
    none = values.digest_of(b'{"args":[],"kwargs":{}}')
    assert first == f'{{"base":null,"steps":[{{"arguments":"{none}","name":"q\\"uote","value":"1"}}]}}'.encode()
    assert second.startswith(first.removesuffix(b"]}") + b",")
    assert json.loads(second)["steps"][1]["value"] == '{"a":"ü","z":[1.5,"\\u0000"]}'
    assert json.loads(third)["base"] == values.digest_of(second)
    assert [step["name"] for step in json.loads(third)["steps"]] == ["large"]
    for payload in (first, second, third):
        assert canonical.encode(canonical.parse(payload)) == payload


def test_w6_what_is_not_what_was_recorded_stops_the_attempt(server: AttemptServer) -> None:
    one = attempt(server)
    for index in range(steps.GROUP_STEPS_MAX + 1):
        one.step(f"{index}", lambda: 1)
    answer = server._resume

    def tampered(request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        reply, data = answer(request, payload)
        return reply, data.replace(b'"value":"1"', b'"value":"2"') if "digest" in request else data

    server._resume = tampered  # type: ignore[method-assign]  # somebody's hand
    with pytest.raises(steps.Damaged):
        attempt(server).step("0", Counted())


def test_x10_steps_may_run_beside_and_inside_one_another(server: AttemptServer) -> None:
    one = attempt(server)
    found: dict[int, Any] = {}

    def outer(index: int) -> Any:
        return one.step(f"inner {index}", lambda: index) * 2

    def run(index: int) -> None:
        found[index] = one.step(f"outer {index}", outer, index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {index: 2 * index for index in range(8)}
    two = attempt(server)
    assert {index: two.step(f"outer {index}", Counted(), index) for index in range(8)} == found


def test_c8_stopping_is_raised_at_the_next_step(server: AttemptServer) -> None:
    one = attempt(server)
    server.stop_after = 1
    assert one.step("a", lambda: 1) == 1
    work = Counted()
    with pytest.raises(failures.Stopping, match="draining"):
        one.step("b", work)
    assert work.calls == []
    assert not issubclass(failures.Stopping, Exception)
