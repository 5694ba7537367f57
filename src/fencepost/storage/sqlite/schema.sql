-- Layout 1 of a store. Run once, by `create`, on an empty database that nobody else can see yet.
-- Every stream is interned as a small integer, since its number stands in every row and every key.
-- Rows that carry a body (records, states, commands) live in ordinary tables: in a table WITHOUT ROWID the inner
-- pages hold whole rows too, so that bodies of 600 bytes leave six branches a page. Small rows are WITHOUT ROWID.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stream (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    digest TEXT NOT NULL,
    fold_version INTEGER NOT NULL,
    UNIQUE (scope, name)
) STRICT;

-- `id` is the stream's number in the upper 23 bits and `seq` in the lower 40: appending to one stream fills pages
-- from left to right, and no second tree is kept.
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    data BLOB NOT NULL,
    stream INTEGER NOT NULL GENERATED ALWAYS AS (id >> 40) VIRTUAL,
    seq INTEGER NOT NULL GENERATED ALWAYS AS (id & 1099511627775) VIRTUAL
) STRICT;

CREATE TABLE command (
    stream INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    count INTEGER NOT NULL,
    receipt BLOB NOT NULL,
    UNIQUE (stream, key)
) STRICT;

CREATE TABLE state (
    stream INTEGER NOT NULL,
    subject TEXT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (stream, subject)
) STRICT;

CREATE TABLE findable (
    stream INTEGER NOT NULL,
    stage TEXT NOT NULL,
    subject TEXT NOT NULL,
    due_us INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    "group" TEXT NOT NULL,
    PRIMARY KEY (stream, stage, subject)
) STRICT, WITHOUT ROWID;

CREATE INDEX findable_due ON findable (stream, stage, due_us, rank, subject);
CREATE INDEX findable_group ON findable (stream, stage, "group", due_us, rank, subject);

CREATE TABLE edge (
    stream INTEGER NOT NULL,
    member TEXT NOT NULL,
    position INTEGER NOT NULL,
    dependent TEXT NOT NULL,
    "group" INTEGER NOT NULL,
    outcomes TEXT NOT NULL,
    PRIMARY KEY (stream, member, position)
) STRICT, WITHOUT ROWID;

-- Append only, whoever asks. The two on INSERT answer REPLACE, which passes a trigger on DELETE wherever
-- `recursive_triggers` is off, as it is in most other programs.
CREATE TRIGGER record_no_update BEFORE UPDATE ON record
BEGIN SELECT RAISE (ABORT, 'records are append-only'); END;

CREATE TRIGGER record_no_delete BEFORE DELETE ON record
BEGIN SELECT RAISE (ABORT, 'records are append-only'); END;

CREATE TRIGGER record_no_replace BEFORE INSERT ON record
WHEN EXISTS (SELECT 1 FROM record WHERE id = NEW.id)
BEGIN SELECT RAISE (ABORT, 'records are append-only'); END;

CREATE TRIGGER command_no_update BEFORE UPDATE ON command
BEGIN SELECT RAISE (ABORT, 'commands are append-only'); END;

CREATE TRIGGER command_no_delete BEFORE DELETE ON command
BEGIN SELECT RAISE (ABORT, 'commands are append-only'); END;

CREATE TRIGGER command_no_replace BEFORE INSERT ON command
WHEN EXISTS (SELECT 1 FROM command WHERE rowid = NEW.rowid OR (stream = NEW.stream AND key = NEW.key))
BEGIN SELECT RAISE (ABORT, 'commands are append-only'); END;
