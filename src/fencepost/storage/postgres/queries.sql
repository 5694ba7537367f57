-- Named queries. Each has a name, a comment, and one statement that ends with a semicolon at a line's end.
-- Writes take whole columns: one statement a table, however many rows.

-- name: meta
-- Identity of the store, as text pairs.
SELECT key, value FROM fencepost.meta;

-- name: store_id
-- Whose tables these are. Asked together with whatever a connection that is used again asks first.
SELECT value FROM fencepost.meta WHERE key = 'store_id';

-- name: meta_insert
-- Written once, at creation.
INSERT INTO fencepost.meta (key, value) SELECT key, value FROM unnest($1::text[], $2::text[]) AS new (key, value);

-- name: encoding
-- What the database's text is made of. Only UTF8 holds every character, in the order of code points.
SELECT current_setting('server_encoding');

-- name: store_exists
-- Whether the schema holds a store, or anything that calls itself so.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    WHERE space.nspname = $1 AND class.relname = 'meta'
);

-- name: create_lock
-- Creators of one database come one after the other; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(7378413942534435440);

-- name: stream_lock
-- The first lock of every writer: who holds the head row may append to the stream. Later statements have no bound of
-- time; this one's has begun already.
SELECT
    id, epoch, seq, digest, fold_version,
    (SELECT value FROM fencepost.meta WHERE key = 'store_id'),
    set_config('statement_timeout', '0', true)
FROM fencepost.stream WHERE scope = $1 AND name = $2 FOR UPDATE;

-- name: stream_insert
-- A stream that nobody has written to. A rival that inserts it at the same time is waited for.
INSERT INTO fencepost.stream (scope, name, epoch, seq, digest, fold_version, commits)
VALUES ($1, $2, 0, 0, '', 0, 0) ON CONFLICT (scope, name) DO NOTHING;

-- name: stream
-- A stream's number and where it stands.
SELECT id, epoch, seq, digest, fold_version FROM fencepost.stream WHERE scope = $1 AND name = $2;

-- name: streams
-- Streams with a record. A stream that only answered commands has none.
SELECT scope, name FROM fencepost.stream WHERE seq > 0 ORDER BY scope, name;

-- name: stream_update
-- The new head, under the lock that its comparison was made under.
UPDATE fencepost.stream SET epoch = $2, seq = $3, digest = $4, fold_version = $5, commits = commits + 1 WHERE id = $1;

-- name: fold_version_update
-- The caches were written anew; the records and so the rest of the head stay.
UPDATE fencepost.stream SET fold_version = $2, commits = commits + 1 WHERE id = $1;

-- name: change_token
-- Grows with every commit, and only when it is visible; a sequence would run ahead of its commit.
SELECT coalesce(sum(commits), 0)::bigint, (SELECT value FROM fencepost.meta WHERE key = 'store_id')
FROM fencepost.stream;

-- name: record_insert
-- A record that exists already is refused by its key.
INSERT INTO fencepost.record (stream, seq, data)
SELECT $1, seq, data FROM unnest($2::bigint[], $3::bytea[]) AS new (seq, data);

-- name: records
-- A range of the stream's numbers.
SELECT seq, data FROM fencepost.record WHERE stream = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- name: command_insert
-- A key that was answered already is refused by its key.
INSERT INTO fencepost.command (stream, key, digest, first_seq, count, receipt)
SELECT $1, key, digest, first_seq, count, receipt
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[])
    AS new (key, digest, first_seq, count, receipt);

-- name: commands
-- Answers by their keys.
SELECT key, digest, first_seq, count, receipt FROM fencepost.command WHERE stream = $1 AND key = ANY ($2::text[]);

-- name: state_put
-- Later state replaces earlier state.
INSERT INTO fencepost.state (stream, subject, version, data)
SELECT $1, subject, version, data
FROM unnest($2::text[], $3::bigint[], $4::bytea[]) AS new (subject, version, data)
ON CONFLICT (stream, subject) DO UPDATE SET version = excluded.version, data = excluded.data;

-- name: states
-- States of subjects.
SELECT subject, version, data FROM fencepost.state WHERE stream = $1 AND subject = ANY ($2::text[]);

-- name: state_page_after
-- States beyond a subject, bytewise; the reader stops where the prefix ends.
SELECT subject, version, data FROM fencepost.state WHERE stream = $1 AND subject > $2 ORDER BY subject LIMIT $3;

-- name: state_page_from
-- As `state_page_after`, the bound included: the first page of a prefix.
SELECT subject, version, data FROM fencepost.state WHERE stream = $1 AND subject >= $2 ORDER BY subject LIMIT $3;

-- name: index_put
-- Unique by stage and subject: putting again moves the row.
INSERT INTO fencepost.findable (stream, stage, "group", due_us, rank, subject)
SELECT $1, stage, "group", due_us, rank, subject
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
    AS new (stage, "group", due_us, rank, subject)
ON CONFLICT (stream, stage, subject)
DO UPDATE SET due_us = excluded.due_us, rank = excluded.rank, "group" = excluded."group";

-- name: index_delete
-- Deleting what is not there does nothing.
DELETE FROM fencepost.findable AS row USING unnest($2::text[], $3::text[]) AS gone (stage, subject)
WHERE row.stream = $1 AND row.stage = gone.stage AND row.subject = gone.subject;

-- name: find_due
-- One range of one index, whatever the stage holds: $3 to $5 is the cursor, $6 the time.
SELECT stage, "group", due_us, rank, subject FROM fencepost.findable
WHERE stream = $1 AND stage = $2 AND (due_us, rank, subject) > ($3, $4, $5) AND due_us <= $6
ORDER BY due_us, rank, subject LIMIT $7;

-- name: find_due_group
-- As `find_due`, of one group $8.
SELECT stage, "group", due_us, rank, subject FROM fencepost.findable
WHERE stream = $1 AND stage = $2 AND "group" = $8 AND (due_us, rank, subject) > ($3, $4, $5) AND due_us <= $6
ORDER BY due_us, rank, subject LIMIT $7;

-- name: find_last
-- The end of one group, backwards.
SELECT stage, "group", due_us, rank, subject FROM fencepost.findable
WHERE stream = $1 AND stage = $2 AND "group" = $3
ORDER BY due_us DESC, rank DESC, subject DESC LIMIT $4;

-- name: next_due
-- The first entry of the stage's range.
SELECT due_us FROM fencepost.findable WHERE stream = $1 AND stage = $2 ORDER BY due_us LIMIT 1;

-- name: index_page_first
-- All rows in key order.
SELECT stage, "group", due_us, rank, subject FROM fencepost.findable
WHERE stream = $1 ORDER BY stage, subject LIMIT $2;

-- name: index_page
-- All rows in key order beyond ($2, $3).
SELECT stage, "group", due_us, rank, subject FROM fencepost.findable
WHERE stream = $1 AND (stage, subject) > ($2, $3) ORDER BY stage, subject LIMIT $4;

-- name: edge_insert
-- Written once; a position that is taken is refused by its key.
INSERT INTO fencepost.edge (stream, member, position, dependent, "group", outcomes)
SELECT $1, member, "position", dependent, "group", outcomes
FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[])
    AS new (member, "position", dependent, "group", outcomes);

-- name: edges
-- Dependents of one member beyond a position.
SELECT member, "position", dependent, "group", outcomes FROM fencepost.edge
WHERE stream = $1 AND member = $2 AND "position" > $3 ORDER BY "position" LIMIT $4;

-- name: edge_count
-- Positions have no gap, so the last one tells; a count would read every row.
SELECT "position" + 1 FROM fencepost.edge WHERE stream = $1 AND member = $2 ORDER BY "position" DESC LIMIT 1;

-- name: states_drop
-- Before the caches are written anew.
DELETE FROM fencepost.state WHERE stream = $1;

-- name: index_drop
-- Before the caches are written anew.
DELETE FROM fencepost.findable WHERE stream = $1;

-- name: edges_drop
-- Before the caches are written anew.
DELETE FROM fencepost.edge WHERE stream = $1;
