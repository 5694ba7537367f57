"""The process that checks outputs against schemas: what it is asked comes over one socket, and it may not take long.

A pattern of a schema may need ages for fifty bytes, and Python's matcher holds the interpreter's lock meanwhile; the
same holds for `uniqueItems`, and for references that multiply. So the whole of it is done here, in a process that has
nothing else to do and that the system ends: by a limit of processor time for each document, and by one of memory.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import socket
import struct
import sys
import time
from typing import Final

from fencepost.adapters.artifacts.schema import check_schema

DOCUMENT_CPU_S_MAX: Final = 10
PROCESS_CPU_S_MAX: Final = 60
"""Of all documents that one process checks. Each that is ended is followed by one that begins at nothing, at most
`schema_checks.ENDED_MAX` times in one result, which so may take that many times as long in all."""
MEMORY_BYTES_MAX: Final = 2**30
LINE_CHARACTERS_MAX: Final = 1_000  # of one problem, which may stand behind a long pointer
LENGTHS: Final = struct.Struct(">QQ")  # of a document and of its schema, which follow
LENGTH: Final = struct.Struct(">I")  # of an answer, a JSON list of texts
_CHUNK_BYTES: Final = 2**20


def serve(link: socket.socket) -> None:
    """Answer until the other side closes."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES_MAX)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (lengths := _received(link, LENGTHS.size)) is not None:
        document_bytes, schema_bytes = LENGTHS.unpack(lengths)
        document, schema = _received(link, document_bytes), _received(link, schema_bytes)
        if document is None or schema is None:
            return
        answer = json.dumps(_problems(document, schema)).encode("ascii")
        link.sendall(LENGTH.pack(len(answer)) + answer)


def _problems(document: bytes, schema: bytes) -> list[str]:
    used_s = math.ceil(time.process_time())
    if used_s >= PROCESS_CPU_S_MAX:
        return [f"not checked: the checks of this result have taken {PROCESS_CPU_S_MAX}s of processor time"]
    # What passes the soft limit is ended by SIGXCPU, which says why.
    _limit(resource.RLIMIT_CPU, used_s + DOCUMENT_CPU_S_MAX)
    try:
        found = check_schema(document, schema)
        return [f"{problem.pointer or '/'}: {problem.message}"[:LINE_CHARACTERS_MAX] for problem in found]
    except MemoryError:
        return [f"its check needs more than {MEMORY_BYTES_MAX // 2**20} MiB of memory"]


def _limit(which: int, most: int) -> None:
    """Lower a soft limit; where it is lower already, or the system has none, it stays as it is."""
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    try:
        resource.setrlimit(which, (most, hard))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"no limit {which} here: {error}\n")


def _received(link: socket.socket, count: int) -> bytes | None:
    """So many bytes, None where the other side has closed before."""
    parts = bytearray()
    while len(parts) < count:
        data = link.recv(min(count - len(parts), _CHUNK_BYTES))
        if not data:
            return None
        parts += data
    return bytes(parts)


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
