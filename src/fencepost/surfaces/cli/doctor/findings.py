"""What a diagnosis can find: every fault with its code, its level, what it means and what to do. One registry.

`bad` does not work, or is not safe; `warn` works, but less well, less safely, or not as was meant. docs/DOCTOR.md and
`fencepost help CODE` are made from the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Level = Literal["ok", "warn", "bad"]

SEVERITY: Final[Mapping[Level, str]] = {"ok": "ok", "warn": "warning", "bad": "error"}
WELL: Final = "ok"


class Fault(NamedTuple):
    """One thing that can be wrong. Names in braces of `message` and `following` are filled in from the case."""

    code: str
    check: str
    level: Level
    message: str
    following: str


class Line(NamedTuple):
    """What one check says: `where` is a path, a variable or a name, empty where the whole host is meant."""

    check: str
    level: Level
    message: str
    following: str = ""
    code: str = WELL
    where: str = ""


_ROWS: Final = (
    # The host
    Fault("python_too_old", "python", "bad", "Python {found} is older than 3.11", "use Python 3.11 or later"),
    Fault(
        "containment_weak",
        "platform",
        "warn",
        "macOS: process trees are contained by lock and marker only",
        "use Linux where orders start daemons",
    ),
    Fault("platform_unsupported", "platform", "bad", "{found} is not supported", "use Linux or macOS"),
    Fault(
        "git_missing",
        "git",
        "warn",
        "no git on PATH: a repository cannot be pinned, a plain folder can",
        "install git, or put it on PATH",
    ),
    Fault(
        "locale_not_utf8",
        "locale",
        "warn",
        "names of files are read as {found}, not as UTF-8: those with other letters cannot be pinned or shown",
        "set LC_ALL=C.UTF-8",
    ),
    Fault(
        "umask_open",
        "umask",
        "warn",
        "the umask {found} lets others write into every file that is made",
        "umask 022",
    ),
    Fault("umask_closed", "umask", "bad", "the umask {found} takes this user's own rights away", "umask 022"),
    Fault(
        "descriptors_low",
        "limits",
        "bad",
        "{found} files may be open at once, and {jobs} jobs may need {needed}",
        "ulimit -n {needed}, or fewer --jobs",
    ),
    Fault(
        "file_size_low",
        "limits",
        "bad",
        "no file may grow beyond {found} MiB: the store stops there",
        "ulimit -f unlimited",
    ),
    Fault(
        "temporary_unusable",
        "temporary",
        "warn",
        "TMPDIR is {where}, where no file can be made",
        "unset TMPDIR, or name a folder that this user may write to",
    ),
    Fault(
        "temporary_noexec",
        "temporary",
        "warn",
        "programs in {where} cannot be run (noexec): what orders or their tools unpack there fails",
        "set TMPDIR to a folder on a file system without noexec",
    ),
    Fault(
        "boot_unknown",
        "boot",
        "warn",
        "the kernel's boot id cannot be read: every start counts as a restart, so that nobody is proved gone by one "
        "and deadlines come later",
        "make /proc/sys/kernel/random/boot_id readable, as it is in most containers",
    ),
    Fault(
        "processes_unseen",
        "processes",
        "bad",
        "there is no /proc here: what an order leaves running cannot be found and ended",
        "mount -t proc proc /proc",
    ),
    Fault(
        "program_other_version",
        "program",
        "warn",
        "`fencepost` on PATH is {where} ({found}), this one is {version}",
        "put {folder} first on PATH, or remove the other",
    ),
    Fault(
        "program_missing_in_attempts",
        "program",
        "warn",
        "there is no `fencepost` beside {where}: programs inside attempts cannot call it",
        "install the package into this Python",
    ),
    # Configuration
    Fault("config_refused", "config", "bad", "{told}", "fencepost config validate"),
    Fault(
        "variable_unknown",
        "config",
        "warn",
        "{where} is no setting and is ignored{like}",
        "unset it, or correct its name, as listed by fencepost config view",
    ),
    Fault(
        "config_of_others",
        "config",
        "warn",
        "others than this user may write {where}, which chooses store and scope",
        "chmod go-w {where}, and own it",
    ),
    Fault(
        "store_unsupported",
        "config",
        "bad",
        "{told}",
        "take the store out of flags, FENCEPOST_STORE and configuration",
    ),
    # The source tree
    Fault(
        "repository_bare",
        "repository",
        "bad",
        "{where} is a git repository without a working tree: nothing can be pinned from it",
        "cd into a working tree: git clone, or git worktree add",
    ),
    Fault(
        "repository_without_commits",
        "repository",
        "warn",
        "{where} has no commit: plans cannot say what they were submitted from",
        "git add and git commit",
    ),
    Fault("repository_refused", "repository", "bad", "{told}", "own the folder"),
    Fault(
        "untracked_large",
        "repository",
        "warn",
        "{count} untracked files of {mebibytes} MiB, the largest {where}: every order without `inputs` pins them",
        "let .gitignore name what no order needs, or give the orders `inputs`",
    ),
    Fault(
        "home_in_git",
        "repository",
        "bad",
        "git tracks {count} files of {where}, which may hold keys",
        "git rm -r --cached {name}; what has been pushed is known to others: begin a new home",
    ),
    # The home
    Fault(
        "home_missing",
        "home",
        "warn",
        "there is no home here or above",
        "fencepost init, or fencepost run PLAN",
    ),
    Fault(
        "home_is_inside",
        "home",
        "bad",
        "{where} is no home, it has one",
        "--home {inner}",
    ),
    Fault(
        "layout_other",
        "home",
        "bad",
        "{where}: its layout is {found}, this program has {known}",
        "use the fencepost that made it",
    ),
    Fault("layout_missing", "home", "bad", "{where}: its layout is missing", "fencepost init"),
    Fault("home_incomplete", "home", "bad", "{where}: {missing} missing", "fencepost init"),
    Fault(
        "home_file_strange",
        "home",
        "bad",
        "{where} is {found}, where a home has a file",
        "move it away, and restore the file from a backup",
    ),
    Fault(
        "home_unwritable",
        "home",
        "bad",
        "{where}: {closed} cannot be written",
        "give this user the right to write",
    ),
    Fault(
        "home_read_only",
        "home",
        "bad",
        "{where} lies on a file system that is mounted read-only",
        "mount it for writing, or name another home with --home",
    ),
    Fault(
        "home_of_another",
        "owner",
        "warn",
        "{where} belongs to user {found}, and user {user} runs this: files of two owners get in each other's way",
        "run as its owner, or chown -R {user} {where}",
    ),
    Fault(
        "folder_elsewhere",
        "home",
        "warn",
        "{where} lies on another file system than the home: space and locks are those of two",
        "put all of the home on one file system, and link to the whole of it",
    ),
    Fault(
        "network_file_system",
        "filesystem",
        "bad",
        "{where} lies on {found}, where locks and shared memory do not hold: a store there can be damaged",
        "put the home on a local disk: --home DIR, or `home` in the configuration",
    ),
    Fault(
        "work_noexec",
        "filesystem",
        "warn",
        "programs in {where} cannot be run (noexec): orders that run a script of their own fail",
        "mount it without noexec, or put the home elsewhere",
    ),
    Fault("disk_full", "disk", "bad", "{found} MiB free where the home lies", "free space: nothing is lost"),
    Fault("disk_low", "disk", "warn", "{found} MiB free where the home lies", "free space"),
    Fault(
        "inodes_low",
        "disk",
        "bad",
        "{found} more files can be made where the home lies",
        "remove small files, or put the home on another file system",
    ),
    Fault(
        "gitignore_missing",
        "home",
        "warn",
        "{where} is missing or does not name everything: the home shows up in git",
        "fencepost init, or write a line with *",
    ),
    Fault(
        "locks_ineffective",
        "locks",
        "bad",
        "two holders could have one lock in {where} at once: workers would run the same attempt twice",
        "put the home on a local file system: --home DIR",
    ),
    Fault(
        "process_stopped",
        "locks",
        "bad",
        "process {pid} is stopped (state T) and {told}: others wait for it, and leases run out meanwhile",
        "kill -CONT {pid}, or kill -KILL {pid}: what it had begun is found by whoever comes next",
    ),
    Fault("keys_open", "keys", "bad", "others may read or own {found}", "chmod -R go= {where}, and chown it"),
    Fault(
        "keys_missing",
        "authority",
        "bad",
        "{told}",
        "restore .fencepost/keys from a backup, or use a new home",
    ),
    # The store
    Fault(
        "store_missing",
        "store",
        "bad",
        "{where} is missing",
        "restore it from a backup; with none, move the home away and run fencepost init",
    ),
    Fault(
        "store_not_sqlite",
        "store",
        "bad",
        "{where} is no SQLite database",
        "stop every process of this store, keep a copy of its folder, restore from a backup",
    ),
    Fault(
        "store_journal_mode",
        "store",
        "bad",
        "{where} is not in WAL mode any more, some other program has changed it: readers and writers block each other",
        "stop every process of this store, then: sqlite3 {where} 'PRAGMA journal_mode = WAL'",
    ),
    Fault(
        "store_unwritable",
        "store",
        "bad",
        "{where} cannot be written by this user",
        "give this user the right to write it; a store is used by one user",
    ),
    Fault("store_unusable", "store", "bad", "{told}", "fencepost journal verify"),
    Fault(
        "store_head_wrong",
        "store",
        "bad",
        "the last record is not the one that the head names ({sequence})",
        "fencepost journal verify",
    ),
    Fault("store_not_as_signed", "store", "bad", "{told}", "fencepost journal verify"),
    Fault("store_unsigned", "store", "warn", "{told}", "fencepost journal verify"),
    Fault(
        "scope_not_open",
        "scope",
        "warn",
        "{told}",
        "fencepost init; run and plan submit open the first scope of a store by themselves",
    ),
    Fault(
        "home_copied",
        "ledger",
        "warn",
        "{other} is another home of the same store, and both sign into {where}: only one of them can be worked in",
        "keep the one that has gone on; begin the other anew, in a folder without .fencepost",
    ),
    Fault(
        "ledger_beside",
        "ledger",
        "warn",
        "{where} lies beside the home: who can write the store can write it too",
        "set HOME, make ~/.local/state writable, or set XDG_STATE_HOME",
    ),
    Fault(
        "authority_wrong",
        "authority",
        "bad",
        "{told}",
        "restore .fencepost/keys from a backup, or use a new home",
    ),
    Fault(
        "artifacts_damaged",
        "artifacts",
        "bad",
        "{count} of {checked} kept files that were read are damaged, among them {digest} of {where}",
        "restore .fencepost/artifacts, or fencepost run PLAN --again",
    ),
    Fault(
        "artifacts_missing",
        "artifacts",
        "bad",
        "{count} kept files are missing, among them {digest} of {where}",
        "restore .fencepost/artifacts and packs, or fencepost run PLAN --again",
    ),
    Fault("clock_blocked", "clock", "bad", "{told}", "fencepost clock show"),
    Fault(
        "clock_behind",
        "clock",
        "warn",
        "{state}; logical time is {seconds} s behind UTC, since this host was restarted",
        "nothing: deadlines only come later",
    ),
    Fault(
        "processes_left",
        "processes",
        "bad",
        "{count} are left of attempts that have ended: {pids}",
        "kill {pids}",
    ),
    Fault(
        "folders_left",
        "workspaces",
        "warn",
        "{count} folders in {where} belong to no attempt of this store, among them {name}",
        "remove them when no process uses them",
    ),
    Fault(
        "wakeups_missing",
        "wake-ups",
        "warn",
        "no sockets can be made in {where}: processes look once a second",
        "nothing: it works; a local file system has sockets",
    ),
    Fault(
        "door_missing",
        "door",
        "bad",
        "no folder takes the socket through which programs inside attempts speak: {where} and those after it have too "
        "long a path, or belong to others",
        "set XDG_RUNTIME_DIR or TMPDIR to a folder of this user with a short path",
    ),
    Fault(
        "door_unheard",
        "door",
        "bad",
        "{alive} workers of this home are alive, and {heard} of their sockets can be reached: what the programs of the "
        "others say is not heard",
        "end the workers with SIGTERM and start them again; leave {where} to them",
    ),
    Fault(
        "executor_failed",
        "executor",
        "bad",
        "`true` could not be run: {told}",
        "check PATH, and that processes may be started",
    ),
    # A plan
    Fault(
        "plan_invalid",
        "plan",
        "bad",
        "{where}: {count}, the first [{first}]: {told}",
        "fencepost plan check {where}",
    ),
    Fault(
        "python_unusable",
        "plan",
        "bad",
        "{where} calls Python functions: {told}",
        "name an interpreter of Python 3.11 or later with the plan's key python",
    ),
    Fault(
        "command_missing",
        "plan",
        "bad",
        "order {where} runs {word}, which is neither on its PATH nor among its files",
        "install it, or correct run in the plan",
    ),
    Fault(
        "verifier_missing",
        "plan",
        "bad",
        "order {where} is verified by {word}, which is neither on its PATH nor among its files: that would show when "
        "its work is done and paid for",
        "install it, or correct accept.verify in the plan",
    ),
    Fault(
        "attempts_few_at_once",
        "plan",
        "warn",
        "the plan's time of {ceiling} has room for {fits} at once, where {wanted} could run: each holds {hold}, the "
        "first value of attempt_time",
        "set attempt_time to the longest that an attempt may take, or raise the plan's time",
    ),
    Fault(
        "command_not_executable",
        "plan",
        "bad",
        "order {where} runs {word}, which is a file that may not be run",
        "chmod +x {word}, or name its interpreter in run",
    ),
    Fault(
        "variable_not_set",
        "plan",
        "warn",
        "order {where} passes on {names}, not set here",
        "set it, or take it out of environment",
    ),
)

FAULTS: Final[Mapping[str, Fault]] = {row.code: row for row in _ROWS}
"""Code -> fault, in the order in which they are looked for."""


def fault(code: str, *, where: str = "", following: str | None = None, **detail: object) -> Line:
    """A fault that was found; `following` replaces the registry's next step."""
    row = FAULTS[code]
    words = {"where": where, **detail}
    step = following if following is not None else row.following.format(**words)
    return Line(row.check, row.level, row.message.format(**words), step, code, where)


def well(check: str, message: str) -> Line:
    return Line(check, "ok", message)
