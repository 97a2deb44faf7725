/**
 * Parameters and results of the methods that only a database answers: leases of turns that are driven on many hosts
 * (session-recovery.md section 4), the sessions of their hosts (section 5), and its schema. Folders have locks of the
 * kernel instead, and need no schema.
 */
import * as Schema from "effect/Schema"
import { AFTER, field, LIMIT, NEXT, ONE_GOAL, PATH } from "./Fields.ts"

/** A lease of a day is renewed long before it ends, or its holder is gone. */
export const MAX_LEASE_MS = 24 * 60 * 60 * 1000
/** What a holder may say of itself, as JSON text. */
export const MAX_HOLDER_BYTES = 4096

const ROOT = field(Schema.String, "The runtime root: postgresql://….")
const LeaseNumber = Schema.Int.check(Schema.isGreaterThan(0))
const NUMBER = field(LeaseNumber, "The number of the lease, as it was taken.")
const TTL = field(
  Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_LEASE_MS })),
  "Milliseconds that the lease holds from now on, by the database's clock, unless it is renewed."
)

/** For whoever finds the turn busy: process, host, and what it likes. */
const Holder = Schema.Record(Schema.String, Schema.Json)

// --- leases

export const AcquireLeaseParams = Schema.Struct({
  path: PATH,
  holder: field(Holder, "What the holder says of itself."),
  ttl_ms: TTL,
  take_over: field(
    Schema.optionalKey(Schema.Boolean),
    "Whether it is taken also from a holder whose time is not up, whose writes are refused from then on."
  ),
  claim: field(
    Schema.optionalKey(Schema.String.check(Schema.isUUID())),
    "A UUID of this very acquisition: asked for again, because no answer came, it is the same one."
  )
}).annotate({ description: "The turn that is to be driven, and by whom." })
export type AcquireLeaseParams = typeof AcquireLeaseParams.Type

/** A number is never used again. */
export const HeldLease = Schema.Struct({
  number: field(LeaseNumber, "The fencing number, which grows with each holder and which a write takes as `lease`."),
  expires_at: field(Schema.String, "When the lease ends, by the database's clock: ISO 8601, UTC.")
}).annotate({ identifier: "HeldLease", description: "A lease that was taken or renewed." })
export type HeldLease = typeof HeldLease.Type

export const RenewLeaseParams = Schema.Struct({ path: PATH, number: NUMBER, ttl_ms: TTL }).annotate({
  description: "The lease that is to hold on."
})
export type RenewLeaseParams = typeof RenewLeaseParams.Type

export const ReleaseLeaseParams = Schema.Struct({ path: PATH, number: NUMBER }).annotate({
  description: "The lease that is given back."
})
export type ReleaseLeaseParams = typeof ReleaseLeaseParams.Type

export const ReleaseLeaseResult = Schema.Struct({
  released: field(Schema.Boolean, "False where it had been given back before, or taken over.")
}).annotate({ identifier: "ReleaseLeaseResult", description: "Whether the lease was given back." })
export type ReleaseLeaseResult = typeof ReleaseLeaseResult.Type

export const LeaseHolderParams = Schema.Struct({ path: PATH }).annotate({
  description: "The turn that is asked about."
})

export const LeaseHolder = Schema.Struct({
  number: field(Schema.NullOr(LeaseNumber), "The latest number; null: the turn was never leased."),
  holder: field(Schema.NullOr(Holder), "What the holder says of itself; null: there is none."),
  since: field(Schema.NullOr(Schema.String), "Since when it holds the lease: ISO 8601, UTC."),
  expires_at: field(Schema.NullOr(Schema.String), "When the lease ends: ISO 8601, UTC."),
  remaining_ms: field(Schema.Int, "Milliseconds until then; 0: the time is up, and anybody may take the lease.")
}).annotate({ identifier: "LeaseHolder", description: "Who drives a turn." })
export type LeaseHolder = typeof LeaseHolder.Type

// --- sessions of hosts

const LINE = field(Schema.String, "The line of work, by a name that its goal has once.")
const line = { runtime_root: ROOT, goal_id: field(Schema.String, "The goal that the line is of."), line: LINE }
export const SessionLine = Schema.Struct(line).annotate({ description: "The line of work whose session is asked for." })
export type SessionLine = typeof SessionLine.Type

const Binding = Schema.NullOr(Schema.Record(Schema.String, Schema.Json))

export const WriteSessionParams = Schema.Struct({
  ...line,
  binding: field(Binding, "The session's id and whose it is; null: it is gone, and the line starts another one.")
}).annotate({ description: "A line of work, and its session." })
export type WriteSessionParams = typeof WriteSessionParams.Type

export const SessionBinding = Schema.Struct({
  binding: field(Binding, "The session as it is stored now; null: there is none.")
}).annotate({ identifier: "SessionBinding", description: "What is known of a line's last session." })
export type SessionBinding = typeof SessionBinding.Type

export const ListSessionsParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: ONE_GOAL,
  after: AFTER,
  limit: LIMIT
}).annotate({ description: "Which sessions are listed." })
export type ListSessionsParams = typeof ListSessionsParams.Type

export const ListSessionsResult = Schema.Struct({
  sessions: field(
    Schema.Array(
      Schema.Struct({
        goal_id: line.goal_id,
        line: LINE,
        binding: field(Schema.Record(Schema.String, Schema.Json), "The session's id and whose it is.")
      }).annotate({ identifier: "SessionOfLine", description: "The session of a line of work." })
    ),
    "The sessions, by goal and line."
  ),
  next: NEXT
}).annotate({ identifier: "ListSessionsResult", description: "A page of sessions." })
export type ListSessionsResult = typeof ListSessionsResult.Type

// --- the schema

export const MigrateParams = Schema.Struct({ runtime_root: ROOT }).annotate({
  description: "The database that gets the tables of this version."
})

export const MigrateResult = Schema.Struct({
  version: field(Schema.Int, "The number of the last migration: what this version of the store needs."),
  applied: field(Schema.Array(Schema.String), "The migrations that were run now, in order.")
}).annotate({ identifier: "MigrateResult", description: "What was done to a database's tables." })
export type MigrateResult = typeof MigrateResult.Type
