-- Layout 1 of a store. Run once, by `create`, in one transaction. Every name stands in the schema `fencepost`, which
-- is replaced by the schema that the store was asked to live in.
-- Text is compared by its bytes (COLLATE "C"), whatever the database's own language: so pages have the order that
-- every engine gives them. Bodies are bytea, since the digests are of exactly these bytes.

CREATE TABLE fencepost.meta (
    key text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- `commits` counts what was committed to the stream. It is part of the row that every writer changes anyway.
CREATE TABLE fencepost.stream (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    digest text COLLATE "C" NOT NULL,
    fold_version bigint NOT NULL,
    commits bigint NOT NULL,
    UNIQUE (scope, name)
);

CREATE TABLE fencepost.record (
    stream bigint NOT NULL,
    seq bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (stream, seq)
);

CREATE TABLE fencepost.command (
    stream bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    count bigint NOT NULL,
    receipt bytea NOT NULL,
    PRIMARY KEY (stream, key)
);

CREATE TABLE fencepost.state (
    stream bigint NOT NULL,
    subject text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (stream, subject)
);

CREATE TABLE fencepost.findable (
    stream bigint NOT NULL,
    stage text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    due_us bigint NOT NULL,
    rank bigint NOT NULL,
    "group" text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, stage, subject)
);

CREATE INDEX findable_due ON fencepost.findable (stream, stage, due_us, rank, subject);
CREATE INDEX findable_group ON fencepost.findable (stream, stage, "group", due_us, rank, subject);

CREATE TABLE fencepost.edge (
    stream bigint NOT NULL,
    member text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    dependent text COLLATE "C" NOT NULL,
    "group" bigint NOT NULL,
    outcomes text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, member, position)
);

-- Append only, whoever asks: ALWAYS, so that also a session that plays back a replica's changes is refused, and by
-- statement, so that a change which would hit no row is refused as well. ON CONFLICT DO UPDATE and MERGE fire them too.
CREATE FUNCTION fencepost.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%s are append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER record_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON fencepost.record
FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse_change();
ALTER TABLE fencepost.record ENABLE ALWAYS TRIGGER record_append_only;

CREATE TRIGGER command_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON fencepost.command
FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse_change();
ALTER TABLE fencepost.command ENABLE ALWAYS TRIGGER command_append_only;
