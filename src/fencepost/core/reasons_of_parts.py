"""Rows of the registry of reasons that belong to one part each: decoding, authority, files, keys, schemas,
the door of a worker.

Plain data, (code, exit code, sentence, next step): `reasons` makes rows of them. A code says the same wherever it is
shown, so that a part that meets a known situation uses the known code.
"""

from __future__ import annotations

Rows = tuple[tuple[str, int, str, str], ...]

_DECODING: Rows = (
    ("bad_value", 2, "A value is outside what its field takes.", "correct the field that is named"),
    ("bool_for_integer", 2, "A truth value stands where a number belongs.", "write a whole number"),
    ("duplicate_key", 2, "A key stands twice in one object.", "leave one of them out"),
    ("float", 2, "A fraction stands where only whole numbers are taken.", "write a scaled whole number or a string"),
    ("integer_out_of_range", 2, "A number lies outside +-(2^53 - 1).", "write a smaller one, or a string"),
    ("invalid_utf8", 2, "The bytes are not UTF-8.", "write the document in UTF-8"),
    ("lone_surrogate", 2, "A text holds half of a character.", "write whole characters"),
    ("missing_field", 2, "A required field is missing.", "add it"),
    ("not_a_number", 2, "A value is not a number.", "write a whole number"),
    ("not_canonical", 8, "The bytes are not the canonical ones of what they say.", "fencepost journal verify"),
    ("nul_character", 2, "A text holds a NUL character.", "take it out"),
    ("too_deep", 2, "The document is nested too deeply.", "make it flatter"),
    ("trailing_bytes", 2, "Something follows the end of the document.", "send one document alone"),
    ("unknown_field", 2, "A field is not known here.", "take it out, or use a newer version"),
    ("unknown_tag", 2, "This kind of object is not known here.", "use a registered kind"),
)

_AUTHORITY: Rows = (
    ("permitted", 0, "The constitution permits it.", "nothing"),
    ("not_permitted", 4, "No rule of the constitution permits it.", "ask someone it permits"),
    ("forbidden", 4, "A rule of the constitution forbids it.", "ask someone it permits"),
    ("unregistered_principal_kind", 4, "This kind of principal is not in the vocabulary.", "use a registered kind"),
    ("unregistered_action", 4, "This action on this resource is not in the vocabulary.", "use a registered pair"),
    ("human_only", 4, "Only a person may do this.", "let a person ask for it"),
    (
        "inside_attempt",
        4,
        "Only a person may do this, and it was asked from inside {subject} of this store.",
        "end this attempt with a question: fencepost attempt yield --question NAME",
    ),
    ("unregistered_attribute", 4, "An attribute of the question is not in the vocabulary.", "leave it out"),
    ("attribute_too_long", 4, "An attribute of the question is too long.", "make it shorter"),
    ("constitution_invalid", 4, "The constitution in force cannot be evaluated.", "fencepost doctor"),
    ("evaluation_error", 4, "A rule of the constitution failed to evaluate.", "fencepost doctor"),
    ("no_decision", 4, "The constitution came to no decision.", "fencepost doctor"),
    ("grant_malformed", 4, "The grant cannot be read.", "use a grant as it was issued"),
    ("grant_forged", 4, "The grant was not issued by this scope's key.", "use a grant as it was issued"),
    ("grant_empty", 4, "The grant permits nothing.", "use a grant that names operations and an audience"),
    ("grant_work_order", 4, "The grant is for another work order.", "use a grant for this one"),
    ("grant_attempt", 4, "The grant is for another attempt.", "use a grant for this one"),
    ("grant_fence", 4, "The grant is for another fence.", "use a grant for this one"),
    ("key_damaged", 8, "A key file is not what was written.", "restore the keys folder from a backup"),
    ("keys_exposed", 1, "Others may read the keys folder.", "chmod 700 on the keys folder, 600 on its files"),
    ("ledger_damaged", 8, "The safety ledger is not what was written.", "fencepost journal verify"),
    (
        "journal_not_as_signed",
        8,
        "The store is older than what was signed, or another one: nothing new is started on it.",
        "put its newest copy back, or go on in a new home: --home DIR",
    ),
    (
        "home_is_copy",
        5,
        "The home is a copy of one that stands, and both would run the same orders.",
        "work in the other home, or move it away",
    ),
)

_FILES: Rows = (
    (
        "too_few_descriptors",
        1,
        "This process may not open as many files as it needs.",
        "raise the limit (ulimit -n), or use fewer --jobs",
    ),
    ("artifact_missing", 1, "A kept file is no longer there.", "fencepost doctor"),
    ("source_changed", 1, "A file changed while it was read.", "try again when nothing writes to it"),
    ("covers_pinned", 7, "An output has replaced a pinned input.", "write outputs beside the inputs"),
    ("not_regular", 2, "The path is not a regular file.", "name a regular file"),
    ("unwritable", 2, "The path cannot be written.", "name a path that can be written"),
    ("file_exists", 5, "A file is there already; it is not replaced.", "name another place"),
    ("no_file", 2, "There is no such file.", "name an existing file"),
    ("bad_path_name", 2, "A path's name cannot be kept as text.", "rename the file"),
    ("too_many", 2, "There are more files than the bound allows.", "narrow the patterns"),
    ("unreadable", 1, "A file cannot be read.", "check its permissions"),
    ("git_missing", 1, "git is not installed.", "install git"),
    ("git_refused", 1, "git refuses to work in this repository.", "read git's message"),
    ("git_failed", 1, "git failed.", "read git's message"),
    ("bad_document", 7, "The document is not JSON that can be checked.", "fencepost order log NAME"),
    ("bad_schema", 2, "The schema is not a JSON Schema that can be evaluated.", "correct the schema"),
    ("remote_reference", 2, "The schema refers to another document.", "put the definition into the schema"),
    ("mismatch", 7, "The document does not follow its schema.", "fencepost order files NAME --attempt N"),
)

_DOOR: Rows = (
    ("busy", 5, "The worker has no room for this just now.", "ask again"),
    ("no_attempt", 2, "This is not running inside an attempt.", "make it the command of a work order"),
    ("no_checkpoint", 3, "The order has no checkpoint yet.", "begin at the beginning"),
    ("unreachable", 1, "The worker of this attempt cannot be reached.", "stop: the attempt ends with its worker"),
    ("unsupported_protocol", 2, "The worker speaks another version of the protocol.", "use the version of the worker"),
)

PARTS: Rows = (*_DECODING, *_AUTHORITY, *_FILES, *_DOOR)
