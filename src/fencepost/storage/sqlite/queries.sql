-- Named queries. Each has a name, a comment, and one statement that ends with a semicolon at a line's end.

-- name: meta
-- Identity of the store, as text pairs.
SELECT key, value FROM meta;

-- name: meta_insert
-- Written once, at creation.
INSERT INTO meta (key, value) VALUES (?1, ?2);

-- name: stream
-- A stream's number and where it stands.
SELECT id, epoch, seq, digest, fold_version FROM stream WHERE scope = ?1 AND name = ?2;

-- name: streams
-- Streams with a record. A stream that only answered commands has none.
SELECT scope, name FROM stream WHERE seq > 0 ORDER BY scope, name;

-- name: stream_insert
-- A stream's first append gives it a number; the head follows with the rows.
INSERT INTO stream (scope, name, epoch, seq, digest, fold_version) VALUES (?1, ?2, 0, 0, '', 0) RETURNING id;

-- name: stream_update
-- The new head, under the lock that its comparison was made under.
UPDATE stream SET epoch = ?2, seq = ?3, digest = ?4, fold_version = ?5 WHERE id = ?1;

-- name: fold_version_update
-- The caches were written anew; the records and so the rest of the head stay.
UPDATE stream SET fold_version = ?2 WHERE id = ?1;

-- name: record_insert
-- A record that exists already is refused by its key.
INSERT INTO record (id, data) VALUES (?1, ?2);

-- name: records
-- ?1 and ?2 are exclusive bounds of the stream's numbers.
SELECT id & 1099511627775, data FROM record WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3;

-- name: command_insert
-- A key that was answered already is refused by its uniqueness.
INSERT INTO command (stream, key, digest, first_seq, count, receipt) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: command
-- One answer by its key.
SELECT key, digest, first_seq, count, receipt FROM command WHERE stream = ?1 AND key = ?2;

-- name: state_put
-- Later state replaces earlier state.
INSERT INTO state (stream, subject, version, data) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (stream, subject) DO UPDATE SET version = excluded.version, data = excluded.data;

-- name: state
-- One subject's state.
SELECT subject, version, data FROM state WHERE stream = ?1 AND subject = ?2;

-- name: state_page_after
-- States beyond a subject, bytewise; the reader stops where the prefix ends.
SELECT subject, version, data FROM state WHERE stream = ?1 AND subject > ?2 ORDER BY subject LIMIT ?3;

-- name: state_page_from
-- As `state_page_after`, the bound included: the first page of a prefix.
SELECT subject, version, data FROM state WHERE stream = ?1 AND subject >= ?2 ORDER BY subject LIMIT ?3;

-- name: index_put
-- Unique by stage and subject: putting again moves the row.
INSERT INTO findable (stream, stage, subject, due_us, rank, "group") VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (stream, stage, subject)
DO UPDATE SET due_us = excluded.due_us, rank = excluded.rank, "group" = excluded."group";

-- name: index_delete
-- Deleting what is not there does nothing.
DELETE FROM findable WHERE stream = ?1 AND stage = ?2 AND subject = ?3;

-- name: find_due
-- One range of one index, whatever the stage holds: ?3 to ?5 is the cursor, ?6 the time.
SELECT stage, "group", due_us, rank, subject FROM findable INDEXED BY findable_due
WHERE stream = ?1 AND stage = ?2 AND (due_us, rank, subject) > (?3, ?4, ?5) AND due_us <= ?6
ORDER BY due_us, rank, subject LIMIT ?7;

-- name: find_due_group
-- As `find_due`, of one group ?8.
SELECT stage, "group", due_us, rank, subject FROM findable INDEXED BY findable_group
WHERE stream = ?1 AND stage = ?2 AND "group" = ?8 AND (due_us, rank, subject) > (?3, ?4, ?5) AND due_us <= ?6
ORDER BY due_us, rank, subject LIMIT ?7;

-- name: find_last
-- The end of one group, backwards.
SELECT stage, "group", due_us, rank, subject FROM findable INDEXED BY findable_group
WHERE stream = ?1 AND stage = ?2 AND "group" = ?3
ORDER BY due_us DESC, rank DESC, subject DESC LIMIT ?4;

-- name: next_due
-- The first entry of the stage's range.
SELECT due_us FROM findable INDEXED BY findable_due WHERE stream = ?1 AND stage = ?2 ORDER BY due_us LIMIT 1;

-- name: index_page_first
-- All rows in key order.
SELECT stage, "group", due_us, rank, subject FROM findable WHERE stream = ?1 ORDER BY stage, subject LIMIT ?2;

-- name: index_page
-- All rows in key order beyond (?2, ?3).
SELECT stage, "group", due_us, rank, subject FROM findable
WHERE stream = ?1 AND (stage, subject) > (?2, ?3) ORDER BY stage, subject LIMIT ?4;

-- name: edge_insert
-- Written once; a position that is taken is refused by its key.
INSERT INTO edge (stream, member, position, dependent, "group", outcomes) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: edges
-- Dependents of one member beyond a position.
SELECT member, position, dependent, "group", outcomes FROM edge
WHERE stream = ?1 AND member = ?2 AND position > ?3 ORDER BY position LIMIT ?4;

-- name: edge_count
-- Positions have no gap, so the last one tells; a count would read every row.
SELECT position + 1 FROM edge WHERE stream = ?1 AND member = ?2 ORDER BY position DESC LIMIT 1;

-- name: states_drop
-- Before the caches are written anew.
DELETE FROM state WHERE stream = ?1;

-- name: index_drop
-- Before the caches are written anew.
DELETE FROM findable WHERE stream = ?1;

-- name: edges_drop
-- Before the caches are written anew.
DELETE FROM edge WHERE stream = ?1;
