"""The signed checkpoint: what is said about a journal outside of it.

A hash chain alone can be recomputed by whoever writes the database. A checkpoint says "at this sequence the
chain had this digest", signed by a key that is not in the database, and is kept elsewhere (`ports.ledger`).
It travels as a DSSE envelope, so that standard tools can check one: the signature covers the payload's exact
bytes and its type (the pre-authentication encoding), and nobody has to re-encode JSON to verify it.

Pure: bytes in, bytes out. Signing and checking are handed in by callers.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import msgspec

from fencepost.core.canonical import decode, decode_canonical, encode

CHECKPOINT_PAYLOAD_TYPE = "application/vnd.fencepost.checkpoint.v1+json"
ENVELOPE_BYTES_MAX = 8192


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of one stream as its writer saw it after a commit."""

    store_id: str
    scope: str
    stream: str
    epoch: int
    sequence: int
    """Sequence number of the stream's last record."""
    digest: str
    """Digest of that record, `sha256:…`."""
    signed_utc_us: int
    """Wall clock of the signer, microseconds UTC; information only, nothing is decided by it."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keyid: str
    """Identifies the public key; not trusted, only a hint."""
    sig: str
    """Standard base64."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A DSSE 1.0 envelope with exactly one signature."""

    payload: str
    """Standard base64 of the signed bytes."""
    payloadType: str
    signatures: tuple[Signature, ...]


class AnchorMalformed(ValueError):
    """Bytes that are not an envelope with a checkpoint in it."""


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """DSSE's PAE: `DSSEv1`, then type and payload, each after its length in bytes as decimal digits."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id(public_key: bytes) -> str:
    """Name of a public key: SHA-256 of its raw bytes, in hexadecimal digits."""
    return hashlib.sha256(public_key).hexdigest()


def seal(checkpoint: Checkpoint, *, sign: Callable[[bytes], bytes], public_key: bytes) -> bytes:
    """The envelope's canonical bytes, one line without its end. Raises `ValueError` if it is too large."""
    payload = encode(checkpoint)
    signature = sign(pre_authentication_encoding(CHECKPOINT_PAYLOAD_TYPE, payload))
    data = encode(
        Envelope(
            payload=base64.standard_b64encode(payload).decode("ascii"),
            payloadType=CHECKPOINT_PAYLOAD_TYPE,
            signatures=(
                Signature(
                    keyid=key_id(public_key),
                    sig=base64.standard_b64encode(signature).decode("ascii"),
                ),
            ),
        )
    )
    if len(data) > ENVELOPE_BYTES_MAX:
        raise ValueError(f"a sealed checkpoint of {len(data)} bytes passes {ENVELOPE_BYTES_MAX}")
    return data


class SealedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An opened envelope whose signature has *not* been checked yet."""

    checkpoint: Checkpoint
    message: bytes
    """What the signature must cover."""
    signature: bytes
    keyid: str


def unseal(data: bytes) -> SealedCheckpoint:
    """Open an envelope without trusting it. Raises `AnchorMalformed` for anything that `seal` cannot have
    made."""
    if len(data) > ENVELOPE_BYTES_MAX:
        raise AnchorMalformed(f"{len(data)} bytes are more than an envelope has")
    try:
        envelope = decode(data, Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        checkpoint = decode_canonical(payload, Checkpoint)
        signatures = [base64.b64decode(entry.sig, validate=True) for entry in envelope.signatures]
    except ValueError as error:  # Undecodable, and base64 that is none
        raise AnchorMalformed(str(error)) from error
    if envelope.payloadType != CHECKPOINT_PAYLOAD_TYPE:
        raise AnchorMalformed(f"payload type {envelope.payloadType!r} is not a checkpoint's")
    if len(signatures) != 1:
        raise AnchorMalformed(f"{len(signatures)} signatures instead of one")
    if checkpoint.epoch < 0 or checkpoint.sequence < 0:
        raise AnchorMalformed("epoch or sequence is negative")
    return SealedCheckpoint(
        checkpoint=checkpoint,
        message=pre_authentication_encoding(envelope.payloadType, payload),
        signature=signatures[0],
        keyid=envelope.signatures[0].keyid,
    )
