"""Pictures of a live view at moments of one plan's life, made by hand: what is drawn of them is written down."""

from __future__ import annotations

from fencepost.surfaces.cli.view.picture import Detail, Meter, Picture, Row

SECOND = 1_000_000
MINUTE = 60 * SECOND
NOW = 1_790_000_000 * SECOND
HINT = "Ctrl-C stops cleanly; rerun to continue"


def row(name: str, state: str, step: int = 1, **fields: object) -> Row:
    return Row(order=f"order_{name}", name=name, state=state, step=step, **fields)  # type: ignore[arg-type]  # any field


def _meters(attempts: int, held: int, time: int, tokens: int, money: int) -> tuple[Meter, ...]:
    return (
        Meter(dimension="attempts", charged=attempts, held=held, ceiling=24),
        Meter(dimension="time_us", charged=time, held=held * 2 * MINUTE, ceiling=30 * MINUTE),
        Meter(dimension="tokens_input", charged=tokens, held=held * 9_000, ceiling=200_000),
        Meter(dimension="tokens_output", charged=tokens // 5, held=held * 2_000, ceiling=50_000),
        Meter(dimension="calls", charged=tokens // 3_000, held=held, ceiling=40),
        Meter(dimension="money_micros:USD", charged=money, held=held * 100_000, ceiling=2_500_000),
    )


def _picture(rows: list[Row], elapsed: int, meters: tuple[Meter, ...], **fields: object) -> Picture:
    given = {"name": "nightly", "steps": 4, "began_us": NOW - elapsed, "hint": HINT, **fields}
    return Picture(rows=rows, meters=meters, **given)  # type: ignore[arg-type]  # any field


def start() -> tuple[Picture, dict[str, Detail]]:
    rows = [
        row("fetch", "ready"),
        row("format", "reserved"),
        row("spelling", "active", tries=1, since_us=NOW, may_fail=True),
        row("crawl-service", "blocked_dependency", 2),
        row("unit-tests", "blocked_dependency", 2),
        row("summaries", "blocked_dependency", 2),
        row("package", "blocked_dependency", 3),
        row("deploy-to-staging", "blocked_dependency", 4),
        row("announce", "blocked_dependency", 4),
    ]
    details = {
        "order_crawl-service": Detail(why="needs", names=("fetch",)),
        "order_unit-tests": Detail(why="needs", names=("fetch", "format")),
        "order_summaries": Detail(why="needs", names=("format", "end of spelling")),
        "order_package": Detail(why="needs", names=("unit-tests", "summaries", "crawl-service")),
        "order_deploy-to-staging": Detail(why="needs", names=("package",)),
        "order_announce": Detail(why="needs", names=("package or summaries", "end of unit-tests")),
    }
    return _picture(rows, SECOND, _meters(0, 2, 0, 0, 0)), details


def middle() -> tuple[Picture, dict[str, Detail]]:
    rows = [
        row("fetch", "applied", tries=1, tries_max=3, time_us=3 * SECOND + 400_000, moved_us=5),
        row("format", "applied", tries=1, time_us=82_000, moved_us=4),
        row("spelling", "failed", tries=1, time_us=212_000, may_fail=True),
        row("crawl-service", "retry_wait", 2, tries=2, tries_max=3, time_us=8 * SECOND, due_us=NOW + 14 * SECOND),
        row("unit-tests", "active", 2, tries=1, tries_max=3, since_us=NOW - 62 * SECOND),
        row("summaries", "active", 2, tries=1, since_us=NOW - 48 * SECOND, cost="USD 0.31, calls 12"),
        row("translate", "blocked_budget", 2),
        row("typing", "failed", 2, tries=2, tries_max=2, time_us=9 * SECOND),
        row("package", "blocked_dependency", 3),
        row("deploy-to-staging", "dependency_failed", 4),
        row("announce", "blocked_dependency", 4),
    ]
    details = {
        "order_spelling": Detail(why="exit code 1, not 0"),
        "order_crawl-service": Detail(why="exit code 75, not 0"),
        "order_unit-tests": Detail(log="tests/unit/test_store.py ....................................... [ 42%]"),
        "order_summaries": Detail(
            note="page 12 of 40", log="summary of ページ十二「予算の話」を書いています, 三百字 so far"
        ),
        "order_translate": Detail(why="USD: needs 0.50, 0.19 free of 2.50"),
        "order_typing": Detail(why="src/store.py:88: error: Incompatible return value type"),
        "order_package": Detail(why="needs", names=("unit-tests", "summaries", "crawl-service", "translate")),
        "order_deploy-to-staging": Detail(why="because of", names=("typing",)),
        "order_announce": Detail(why="needs", names=("package or summaries", "end of unit-tests")),
    }
    return _picture(rows, 192 * SECOND, _meters(7, 2, 250 * SECOND, 61_200, 310_000)), details


def person() -> tuple[Picture, dict[str, Detail]]:
    """Near the end: one order waits for a person, one is being checked, its worker has gone."""
    rows = [
        row("fetch", "applied", tries=1, time_us=3 * SECOND, moved_us=5),
        row("publish", "conflict", 2, tries=1, time_us=4 * SECOND),
        row("report", "result_pending", 2, tries=1, since_us=NOW - 5 * SECOND),
        row("index", "active", 2, tries=1, since_us=NOW - 3_700 * SECOND),
        row("later", "asking", 3, tries=1),
        row("chapters", "waiting", 3, tries=1),
        row("poll", "waiting", 3, tries=1, due_us=NOW + 95 * SECOND),
    ]
    details = {
        "order_publish": Detail(
            why="Two different results were reported for one attempt; a person must say which counts."
        ),
        "order_report": Detail(why="the verifier runs", note="", log="checking 40 links"),
        "order_index": Detail(why="its worker is gone", note="its worker is gone; the next one takes it up"),
        "order_later": Detail(why="Which region?"),
        "order_chapters": Detail(why="waits for", names=("chapters.one", "chapters.two", "chapters.three")),
        "order_poll": Detail(why="waits for its time"),
    }
    notice = "stopping: what runs is stopped cleanly and costs no attempt; another signal kills it"
    return _picture(rows, 2 * 60 * MINUTE, _meters(4, 2, 40 * SECOND, 0, 0)[:2], steps=3, notices=(notice,)), details


def many(count: int = 300) -> tuple[Picture, dict[str, Detail]]:
    """More orders than any screen has rows."""
    rows: list[Row] = []
    details: dict[str, Detail] = {}
    for number in range(count):
        name = f"page-{number:03}"
        step = 1 + number // 100
        if number in (17, 41):
            rows.append(row(name, "failed", step, tries=3, tries_max=3, time_us=SECOND))
            details[f"order_{name}"] = Detail(why="exit code 2, not 0")
        elif number < 120:
            rows.append(row(name, "applied", step, tries=1, time_us=(number % 9 + 1) * SECOND, moved_us=number))
        elif number < 124:
            rows.append(row(name, "active", step, tries=1, since_us=NOW - number * SECOND))
            details[f"order_{name}"] = Detail(log=f"fetching part {number} of {name}")
        elif number < 130:
            rows.append(row(name, "ready", step))
        else:
            rows.append(row(name, "blocked_dependency", step))
            details[f"order_{name}"] = Detail(why="needs", names=(f"page-{number - 100:03}",))
    return _picture(rows, 500 * SECOND, _meters(130, 4, 500 * SECOND, 0, 0)[:1], name="crawl", steps=3), details


def hostile() -> tuple[Picture, dict[str, Detail]]:
    """Names and texts that would steer a terminal, or that no column is wide enough for."""
    long = "n" + "o-end-to-this-name" * 3
    rows = [
        row(long[:63], "active", tries=1, since_us=NOW - 5 * SECOND),
        row("日本語の長い名前がここにあります", "failed", tries=1),
        row("steers\x1b[2J\x1b]0;title\x07", "active", tries=1, since_us=NOW - 5 * SECOND),
    ]
    details = {
        rows[0].order: Detail(
            log="\x1b[31mred\x1b[0m\ttab \x1b[1A\x1b[2Kup \x9b31m family 👩‍👩‍👧‍👦 and e" + "\u0301" * 20
        ),
        rows[1].order: Detail(
            why="\u202egnorw\u202c エラー: データベースに接続できませんでした。設定を確認してください。"
        ),
        rows[2].order: Detail(log="\x1bP1;2|device\x1b\\ rest\r\nnext"),
    }
    return _picture(rows, SECOND, (), name="plan\x1b[31m", steps=1), details


SAMPLES = {"start": start, "middle": middle, "person": person, "many": many, "hostile": hostile}
