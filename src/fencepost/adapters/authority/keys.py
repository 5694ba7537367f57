"""The keys folder: Ed25519 keys of principals and of the checkpoint signer, and root keys of grants.

Each key is two files, both 0600 in a folder of mode 0700:
- `<name>.key`: the secret with a check value, one line;
- `<name>.id`: what the key is known by (the public key, or a hash of a root key), one line.

The `.id` file is written last and a key is used only once it stands, so it is the mark of use: a `.key` that
is missing or half-written *without* it has never signed anything and is made anew; *with* it the key was in
use, and the loss is an error that a person has to see (`KeyDamaged`), because a new key would silently disown
everything that the old one signed. Creation is serialized by a lock, each file appears whole by a rename, so
any number of processes may start at once on a fresh folder and all get the same keys.

The assurance is *session*: whoever runs as this user can use these keys. Executors do not see the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.adapters.durable import exclusive, place_file, storage_errors
from fencepost.core.vocabulary import HUMAN_PRINCIPAL, SERVICE_PRINCIPALS
from fencepost.ports.authority import CHECKPOINT_SIGNER, KeyDamaged, KeysExposed
from fencepost.ports.entropy import Entropy

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SECRET_BYTES = 32
FILE_BYTES_MAX = 512
_SAFE_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_ED25519 = "ed25519"
_ROOT = "grant-root"


class KeyFolder:
    """`Keyring` over a folder. Loads nothing before it is asked; makes a key when it is first needed.

    Signing keys are the store's, whatever its scopes, and are made only as long as `in_use` says that no record of any
    scope stands yet: whoever lost those of a store that has records must hear of it, and not be given others.
    """

    def __init__(self, folder: Path, entropy: Entropy, *, in_use: Callable[[], bool] = lambda: False) -> None:
        self._folder = folder
        self._in_use = in_use
        self._entropy = entropy
        self._lock = threading.RLock()
        self._secrets: dict[str, bytes] = {}
        self._public_keys: dict[str, bytes] = {}
        self._signers: dict[str, Ed25519PrivateKey] = {}

    def check(self) -> None:
        """See `Keyring.check`: reads every signing key, and loads no cryptography."""
        with self._lock, storage_errors(self._folder):
            if self._folder.is_dir():
                _check_private(self._folder.stat(), self._folder)
            for name in (HUMAN_PRINCIPAL, *SERVICE_PRINCIPALS, CHECKPOINT_SIGNER):
                stem = _stem("signing", name)
                identity = self._read_id(stem, _ED25519)
                if identity is None or _parse(self._read(f"{stem}.key"), _ED25519, stem) is None:
                    raise _lost(stem, self._folder)

    def public_key(self, name: str) -> bytes:
        """Ed25519 public key; makes the pair if there is none. Does not read the secret of a known one."""
        with self._lock:
            known = self._public_keys.get(name)
            if known is None:
                stem = _stem("signing", name)
                known = self._read_id(stem, _ED25519)
                if known is None:
                    self._create(stem, _ED25519)
                    known = self._read_id(stem, _ED25519)
                if known is None:
                    raise KeyDamaged(f"{stem}.id vanished from {self._folder}")
                self._public_keys[name] = known
            return known

    def sign(self, name: str, message: bytes) -> bytes:
        with self._lock:
            signer = self._signers.get(name)
            if signer is None:
                from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

                signer = Ed25519PrivateKey.from_private_bytes(self._secret(_stem("signing", name), _ED25519))
                self._signers[name] = signer
        return signer.sign(message)

    def grant_root(self, *, scope: str, epoch: int) -> bytes:
        return self._secret(f"{_stem('grants', scope)}.{epoch:d}", _ROOT)

    def _secret(self, stem: str, kind: str) -> bytes:
        """The secret, made if it was never used. Raises `KeyDamaged`, `KeysExposed`."""
        with self._lock:
            known = self._secrets.get(stem)
            if known is not None:
                return known
            public_id = self._read_id(stem, kind)
            if public_id is None:
                self._create(stem, kind)
                public_id = self._read_id(stem, kind)
            secret = _parse(self._read(f"{stem}.key"), kind, stem)
            if secret is None or public_id != _identify(kind, secret):
                raise _lost(stem, self._folder)
            self._secrets[stem] = secret
            return secret

    def _create(self, stem: str, kind: str) -> None:
        """Make a key that has no `.id` yet; a whole `.key` that a crash left without one is kept."""
        # Every scope has roots of its own, made with it; a store in use that has no signer has lost its folder.
        standing = stem if kind == _ED25519 else _stem("signing", CHECKPOINT_SIGNER)
        if self._in_use() and self._read_id(standing, _ED25519) is None:
            raise _lost(standing, self._folder)
        with storage_errors(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(self._folder.stat(), self._folder)
            with exclusive(self._folder / ".lock"):
                if self._read_id(stem, kind) is not None:
                    return
                secret = _parse(self._read(f"{stem}.key"), kind, stem)
                if secret is None:
                    secret = self._entropy.seed() + self._entropy.seed()
                    place_file(self._folder / f"{stem}.key", _line(kind, secret, stem))
                place_file(self._folder / f"{stem}.id", _line(kind, _identify(kind, secret), stem))

    def _read_id(self, stem: str, kind: str) -> bytes | None:
        """The public id, or None if there is none and so the key was never used."""
        data = self._read(f"{stem}.id")
        identity = _parse(data, kind, stem)
        if data is not None and identity is None:
            raise KeyDamaged(
                f"{stem}.id in {self._folder} is damaged",
                next_step="restore the keys folder from a backup",
            )
        return identity

    def _read(self, name: str) -> bytes | None:
        """The file's bytes, None if there is none. Refuses a file that others can read or that is not
        ours."""
        path = self._folder / name
        with storage_errors(path):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                return None
            try:
                _check_private(os.fstat(descriptor), path)
                return os.read(descriptor, FILE_BYTES_MAX + 1)
            finally:
                os.close(descriptor)


def verify_signature(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature is genuine; False for keys and signatures of a wrong length too."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _lost(stem: str, folder: Path) -> KeyDamaged:
    return KeyDamaged(
        f"the key {stem} in {folder} was in use and is missing or damaged",
        next_step="restore the keys folder from a backup, or use a new home (--home DIR)",
    )


def _identify(kind: str, secret: bytes) -> bytes:
    """What a secret is known by: its public key, or for a root key a hash that does not reveal it."""
    if kind == _ROOT:
        return hashlib.sha256(b"fencepost grant root id\x00" + secret).digest()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _stem(use: str, name: str) -> str:
    """File name of a key without its ending: readable where the name permits, hashed where it does not."""
    if _SAFE_NAME.fullmatch(name):
        return f"{use}-{name}"
    return f"{use}-x.{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _line(kind: str, value: bytes, stem: str) -> bytes:
    """`fencepost 1 <kind> <64 digits> <check value>`; the check value also covers the file's own name."""
    body = f"fencepost 1 {kind} {value.hex()}"
    check = hashlib.sha256(f"{stem}\x00{body}".encode()).hexdigest()[:16]
    return f"{body} {check}\n".encode()


def _parse(data: bytes | None, kind: str, stem: str) -> bytes | None:
    """The value of a whole, undamaged line; None for anything else."""
    words = (data or b"").split(b" ")
    try:
        value = bytes.fromhex(words[3].decode("ascii")) if len(words) == 5 else b""
    except ValueError:
        return None
    return value if len(value) == SECRET_BYTES and _line(kind, value, stem) == data else None


def _check_private(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise KeysExposed(f"{path} belongs to another user", next_step="run as the user who ran init")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise KeysExposed(f"{path} can be read by others", next_step=f"chmod go= '{path}'")
