"""How many more files this process may open: the bound that connections, jobs and everything else share."""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

_PLACES: Final = ("/proc/self/fd", "/dev/fd")


def free_descriptors() -> int | None:
    """Descriptors that this process can still open, at least 0. None without a limit, or where the host does not say
    how many are open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    for place in _PLACES:
        try:
            return max(limit - len(os.listdir(place)) + 1, 0)  # the list has the folder itself, which is closed again
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return 0  # there is not even one to look with
            continue
    return None
