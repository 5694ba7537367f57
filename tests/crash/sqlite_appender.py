"""Appends to a store in a loop, as a process that a test kills. Prints a line for each commit that returned.

python sqlite_appender.py FOLDER TIMES
"""

from __future__ import annotations

import sys
from pathlib import Path

from fencepost.ports.journal import Append, CommandRow, IndexRow, StateRow, StoredRecord, Stream
from fencepost.storage import sqlite
from fencepost.storage.sqlite import SqliteJournal

MAIN = Stream("default", "main")


def append_next(journal: SqliteJournal, records: int = 3) -> int:
    """Append `records` records and caches that all tell the same sequence; return it."""
    with journal.transaction(MAIN) as transaction:
        head = transaction.head(MAIN)
        sequences = range(head.seq + 1, head.seq + 1 + records)
        last = sequences[-1]
        transaction.append(
            Append(
                MAIN,
                head,
                head._replace(seq=last, digest=f"sha256:{last:064x}", fold_version=1),
                [StoredRecord(seq, f"{seq}:{seq - 1}:".encode() + b"x" * 400) for seq in sequences],
                [StateRow("subject", last, str(last).encode())],
                [IndexRow("ready", "", last, 0, "subject")],
                commands=[CommandRow(f"key-{last}", "sha256:0", sequences[0], records, str(last).encode())],
            )
        )
        transaction.commit()
    return last


def main(folder: Path, times: int) -> None:
    journal = sqlite.create(folder / "store.db", "0" * 32, folder / "locks")
    print("open", flush=True)
    for _ in range(times):
        print(append_next(journal), flush=True)
    journal.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
