/**
 * The statements of the store. They ask for nothing that a database of PostgreSQL's protocol might not have: no locks
 * but a row's own, no notifications, no functions.
 */

/** The state of a turn that nothing was written to. */
export const NOTHING_WRITTEN = "00000000-0000-0000-0000-000000000000"

const TURN = "t.state::text AS state, t.base::text AS base, t.line AS head, t.found, t.updated_at, t.lease_number"
const LINE = "h.line, h.ends_at, h.record, h.exact"

const FROM = "CASE WHEN t.base = $2::uuid THEN $3::int4 ELSE 0 END"
const UNTIL = "CASE WHEN t.base = $2::uuid THEN $4::int8 ELSE $5::int8 END"

/**
 * A turn and the beginning of its lines, up to the byte $5 of the history. Where it only grew since $2: those after the
 * line $3, up to the byte $4. One of them, however long it is.
 */
export const LOAD = `SELECT ${TURN}, ${LINE}
FROM turn_journal_turns t LEFT JOIN turn_journal_transitions h
  ON h.turn = t.turn AND h.line > ${FROM} AND (h.ends_at <= ${UNTIL} OR h.line = ${FROM} + 1)
WHERE t.path = $1 ORDER BY h.line`

/** Lines after $2, up to the byte $3 of the history, and one of them however long it is. */
export const LINES = `SELECT ${LINE}
FROM turn_journal_turns t JOIN turn_journal_transitions h ON h.turn = t.turn
WHERE t.path = $1 AND h.line > $2::int4 AND (h.ends_at <= $3::int8 OR h.line = $2::int4 + 1)
ORDER BY h.line`

/** The journal as it stands, unless it is still of the state $2. */
export const SNAPSHOT = `SELECT ${TURN}, h.record, h.exact
FROM turn_journal_turns t LEFT JOIN turn_journal_transitions h
  ON h.turn = t.turn AND h.line = t.line AND t.state <> $2::uuid
WHERE t.path = $1`

const NAMED = "t.path = ANY($1::text[])"

/** The journals of the turns $1, but of those whose history is longer than $2 bytes. */
export const JOURNALS = `SELECT t.path, t.found, t.updated_at, h.record, h.exact
FROM turn_journal_turns t LEFT JOIN turn_journal_transitions h ON h.turn = t.turn AND h.line = t.line
WHERE ${NAMED} AND COALESCE(h.ends_at, octet_length(t.found)) <= $2::int8`

/** The histories of the turns $1, but of those that are longer than $2 bytes. */
export const HISTORIES = `SELECT t.path, t.line AS head, t.found, t.updated_at, ${LINE}
FROM turn_journal_turns t JOIN turn_journal_transitions l ON l.turn = t.turn AND l.line = t.line
  JOIN turn_journal_transitions h ON h.turn = t.turn AND h.ends_at <= $2::int8
WHERE ${NAMED} AND l.ends_at <= $2::int8 ORDER BY h.turn, h.line`

const WRITTEN = "(line > 0 OR found IS NOT NULL)"
export const GOALS = `SELECT DISTINCT goal_id FROM turn_journal_turns WHERE goal_id IS NOT NULL AND ${WRITTEN}`
export const TURNS = `SELECT turn_key FROM turn_journal_turns WHERE goal_id = $1 AND ${WRITTEN}`

const STATUS = "h.record->'journal'->>'status'"
/**
 * Those of the status $2, and of those that are over none when $3 is true. Most turns are over: to look at each of them
 * would take most of the time of whoever looks for the others. What tells no status is never left out.
 */
export const WANTED_TURNS = `SELECT t.turn_key
FROM turn_journal_turns t LEFT JOIN turn_journal_transitions h ON h.turn = t.turn AND h.line = t.line
WHERE t.goal_id = $1 AND (t.found IS NOT NULL OR t.line > 0 AND (
  ${STATUS} IS NULL OR (($2::text IS NULL OR ${STATUS} = $2) AND NOT ($3::bool AND ${STATUS} IN ('committed', 'stopped')))
))`

const ADDED = `INSERT INTO turn_journal_transitions (turn, line, ends_at, attempt, record, exact)
  SELECT turn, $4::int4, $5::int8, $3::uuid, $6::jsonb, $7::text FROM turn`

/** Adds the line $4 to a turn of the state $2, under the lease $8 where one is given. */
export const APPEND = `WITH turn AS (
  UPDATE turn_journal_turns
  SET state = $3::uuid, base = CASE WHEN line = 0 THEN $3::uuid ELSE base END, line = $4::int4, found = NULL,
    updated_at = now()
  WHERE path = $1 AND state = $2::uuid AND ($8::int8 IS NULL OR lease_number = $8::int8)
  RETURNING turn, base, updated_at
), added AS (
  ${ADDED}
)
SELECT base::text AS base, updated_at FROM turn`

/** Writes the first line, which $4 is, of a turn without a lease. It may have a row, of the state $2. */
export const BEGIN = `WITH turn AS (
  INSERT INTO turn_journal_turns AS t (path, goal_id, turn_key, state, base, line)
  VALUES ($1, $8, $9, $3::uuid, $3::uuid, $4::int4)
  ON CONFLICT (path) DO UPDATE SET state = $3::uuid, base = $3::uuid, line = $4::int4, updated_at = now()
  WHERE t.state = $2::uuid
  RETURNING turn, base, updated_at
), added AS (
  ${ADDED}
)
SELECT base::text AS base, updated_at FROM turn`

/** Makes a turn's row where there is none. */
export const ENSURE = `INSERT INTO turn_journal_turns (path, goal_id, turn_key, state, base)
VALUES ($1, $2, $3, '${NOTHING_WRITTEN}'::uuid, '${NOTHING_WRITTEN}'::uuid) ON CONFLICT (path) DO NOTHING`

/** Changes a turn of the state $2 in any way; the lines are changed by what follows in the transaction. */
export const CHANGE = `UPDATE turn_journal_turns SET
  state = $3::uuid, base = $3::uuid, line = $4::int4, found = $5::bytea,
  updated_at = COALESCE($6::timestamptz, now())
WHERE path = $1 AND state = $2::uuid AND ($7::int8 IS NULL OR lease_number = $7::int8)
RETURNING turn, updated_at`

export const SET_ASIDE = `INSERT INTO turn_journal_set_aside (turn, name, line, record, exact)
SELECT turn, $3, line, record, exact FROM turn_journal_transitions WHERE turn = $1::int8 AND line > $2::int4`
export const CUT_AFTER = "DELETE FROM turn_journal_transitions WHERE turn = $1::int8 AND line > $2::int4"
export const CUT_BEFORE = "DELETE FROM turn_journal_transitions WHERE turn = $1::int8 AND line < $2::int4"
/** The line $2 begins where the history begins: it ends after as many bytes as it has. */
export const SHORTEN = `UPDATE turn_journal_transitions AS h SET ends_at = h.ends_at - (
  SELECT before.ends_at + 1 FROM turn_journal_transitions before WHERE before.turn = $1::int8 AND before.line = $2::int4 - 1
) WHERE h.turn = $1::int8 AND h.line = $2::int4`
export const RENUMBER = "UPDATE turn_journal_transitions SET line = 1 WHERE turn = $1::int8 AND line = $2::int4"
/** Adds the lines $3, which end at $4, and whose text is $5: kept as a value, or as it is where $6 says so. */
export const ADD = `INSERT INTO turn_journal_transitions (turn, line, ends_at, attempt, record, exact)
SELECT $1::int8, line, ends_at, $2::uuid,
  CASE WHEN is_exact THEN NULL ELSE content::jsonb END, CASE WHEN is_exact THEN content END
FROM unnest($3::int4[], $4::int8[], $5::text[], $6::bool[]) AS added (line, ends_at, content, is_exact)`

/**
 * Takes the turn from a write of the state $2 whose end is not known: it waits for that write where it still runs, and
 * makes sure that it comes too late where it does not run yet.
 */
export const FENCE = `INSERT INTO turn_journal_turns AS t (path, goal_id, turn_key, state, base)
VALUES ($1, $4, $5, $3::uuid, $3::uuid)
ON CONFLICT (path) DO UPDATE SET state = $3::uuid WHERE t.state = $2::uuid`
/** Whether the line $2 is what the attempt $3 wrote. */
export const STANDS = `SELECT 1 AS stands FROM turn_journal_turns t JOIN turn_journal_transitions h ON h.turn = t.turn
WHERE t.path = $1 AND h.line = $2::int4 AND h.attempt = $3::uuid`

const HELD = "t.lease_number, t.lease_expires_at"
const END = "now() + $3::int8 * INTERVAL '1 millisecond'"

/** Takes a lease that is free, whose time is up, or, with $4, from whoever has it. */
export const ACQUIRE = `INSERT INTO turn_journal_turns AS t
  (path, goal_id, turn_key, state, base, lease_number, lease_holder, lease_token, lease_since, lease_expires_at)
VALUES ($1, $6, $7, '${NOTHING_WRITTEN}'::uuid, '${NOTHING_WRITTEN}'::uuid, 1, $2, $5::uuid, now(), ${END})
ON CONFLICT (path) DO UPDATE SET
  lease_number = COALESCE(t.lease_number, 0) + 1, lease_holder = $2, lease_token = $5::uuid, lease_since = now(),
  lease_expires_at = ${END}
WHERE t.lease_expires_at IS NULL OR t.lease_expires_at <= now() OR $4::bool
RETURNING ${HELD}`
export const RENEW = `UPDATE turn_journal_turns AS t SET lease_expires_at = ${END}
WHERE t.path = $1 AND t.lease_number = $2::int8 AND t.lease_holder IS NOT NULL RETURNING ${HELD}`
export const RELEASE = `UPDATE turn_journal_turns AS t
SET lease_holder = NULL, lease_token = NULL, lease_since = NULL, lease_expires_at = NULL
WHERE t.path = $1 AND t.lease_number = $2::int8 AND t.lease_holder IS NOT NULL RETURNING t.lease_number`
export const HOLDER = `SELECT ${HELD}, t.lease_holder, t.lease_token::text AS lease_token, t.lease_since,
  GREATEST(0, EXTRACT(EPOCH FROM t.lease_expires_at - now()) * 1000)::int8 AS remaining
FROM turn_journal_turns t WHERE t.path = $1`
