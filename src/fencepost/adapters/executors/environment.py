"""The environment that an attempt's command sees: named variables, the attempt's own folders, and who it
is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fencepost.core.matching import passes_on

NAMES_FIRST = ("PATH", "LANG", "LC_*", "TZ")
"""What a work order passes on when it names nothing."""

_OURS = "FENCEPOST_"


def attempt_environment(
    names: Sequence[str],
    base: Mapping[str, str],
    *,
    bin_folder: str,
    home: str,
    temporary: str,
    order: str,
    attempt: str,
    fence: int,
    workspace: str,
    repository: str,
    params_path: str,
    checkpoint_path: str = "",
    socket: str = "",
    token: str = "",
) -> dict[str, str]:
    """The whole environment for a `Job`.

    `names` are variables of `base` to pass on; one that ends in `*` is a prefix. HOME and TMPDIR are `home`
    and `temporary` unless named. `bin_folder` is first on PATH; without PATH among the names (or in `base`)
    the system's own first value follows it. Names that begin with FENCEPOST_ are the attempt's and are never
    passed on. Without a `socket`, as for a verifier, there is nobody to speak to.
    """
    environment = {name: value for name, value in base.items() if not name.startswith(_OURS) and passes_on(names, name)}
    environment.setdefault("HOME", home)
    environment.setdefault("TMPDIR", temporary)
    environment["PATH"] = os.pathsep.join([bin_folder, environment.get("PATH") or os.defpath])
    environment["FENCEPOST_WORK_ORDER"] = order
    environment["FENCEPOST_ATTEMPT"] = attempt
    environment["FENCEPOST_FENCE"] = str(fence)
    environment["FENCEPOST_WORKSPACE"] = workspace
    environment["FENCEPOST_REPO"] = repository
    environment["FENCEPOST_PARAMS"] = params_path
    if socket:
        environment["FENCEPOST_CHECKPOINT"] = checkpoint_path
        environment["FENCEPOST_SOCKET"] = socket
        environment["FENCEPOST_TOKEN"] = token
    return environment
