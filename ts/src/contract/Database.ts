/**
 * Parameters and results of the methods that only a database answers: leases of turns that are driven on many hosts
 * (session-recovery.md section 4), the sessions of their hosts (section 5), and its schema. Folders have locks of the
 * kernel instead, and need no schema.
 */
import * as Schema from "effect/Schema"
import { MAX_PAGE } from "./Store.ts"

/** A lease of a day is renewed long before it ends, or its holder is gone. */
export const MAX_LEASE_MS = 24 * 60 * 60 * 1000
/** What a holder may say of itself, as JSON text. */
export const MAX_HOLDER_BYTES = 4096

const Milliseconds = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_LEASE_MS }))
const LeaseNumber = Schema.Int.check(Schema.isGreaterThan(0))

/** What a holder says of itself, for whoever finds the turn busy: process, host, and what it likes. */
const Holder = Schema.Record(Schema.String, Schema.Json)

// --- leases

export const AcquireLeaseParams = Schema.Struct({
  path: Schema.String,
  holder: Holder,
  /** How long the lease holds from now on, by the database's clock, unless it is renewed. */
  ttl_ms: Milliseconds,
  /** Take it also from a holder whose time is not up: what that one writes from then on is refused. */
  take_over: Schema.optionalKey(Schema.Boolean),
  /** A UUID of this very acquisition: when it is asked for again, because no answer came, it is the same one. */
  claim: Schema.optionalKey(Schema.String.check(Schema.isUUID()))
})
export type AcquireLeaseParams = typeof AcquireLeaseParams.Type

export const HeldLease = Schema.Struct({
  /** The fencing number: `turn_journal.write` takes it as `lease`. It grows with each holder, and is never used again. */
  number: LeaseNumber,
  /** When the lease ends, by the database's clock: ISO 8601, UTC. */
  expires_at: Schema.String
}).annotate({ identifier: "HeldLease" })
export type HeldLease = typeof HeldLease.Type

export const RenewLeaseParams = Schema.Struct({ path: Schema.String, number: LeaseNumber, ttl_ms: Milliseconds })
export type RenewLeaseParams = typeof RenewLeaseParams.Type

export const ReleaseLeaseParams = Schema.Struct({ path: Schema.String, number: LeaseNumber })
export type ReleaseLeaseParams = typeof ReleaseLeaseParams.Type

/** `released` is false where the lease had been released before, or taken over. */
export const ReleaseLeaseResult = Schema.Struct({ released: Schema.Boolean }).annotate({
  identifier: "ReleaseLeaseResult"
})
export type ReleaseLeaseResult = typeof ReleaseLeaseResult.Type

export const LeaseHolderParams = Schema.Struct({ path: Schema.String })

export const LeaseHolder = Schema.Struct({
  /** The latest number; null where the turn was never leased. */
  number: Schema.NullOr(LeaseNumber),
  /** Null where the lease was released, or never taken. */
  holder: Schema.NullOr(Holder),
  since: Schema.NullOr(Schema.String),
  expires_at: Schema.NullOr(Schema.String),
  /** How long the holder's time still is; 0 when it is up, and anybody may take the lease. */
  remaining_ms: Schema.Int
}).annotate({ identifier: "LeaseHolder" })
export type LeaseHolder = typeof LeaseHolder.Type

// --- sessions of hosts

/** A line of work, by a name that its goal has once: who gives it knows what it stands for. */
const line = { runtime_root: Schema.String, goal_id: Schema.String, line: Schema.String }
export const SessionLine = Schema.Struct(line)
export type SessionLine = typeof SessionLine.Type

/** What is known of the line's last session: an id and whose it is. */
const Binding = Schema.NullOr(Schema.Record(Schema.String, Schema.Json))

export const WriteSessionParams = Schema.Struct({
  ...line,
  /** Null: the session is gone, and the line starts another one. */
  binding: Binding
})
export type WriteSessionParams = typeof WriteSessionParams.Type

/** The binding as it is stored now; null where there is none. */
export const SessionBinding = Schema.Struct({ binding: Binding }).annotate({ identifier: "SessionBinding" })
export type SessionBinding = typeof SessionBinding.Type

export const ListSessionsParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
  /** The `next` of the page before; absent or null: from the beginning. */
  after: Schema.optionalKey(Schema.NullOr(Schema.String)),
  limit: Schema.optionalKey(Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_PAGE }))))
})
export type ListSessionsParams = typeof ListSessionsParams.Type

export const ListSessionsResult = Schema.Struct({
  sessions: Schema.Array(
    Schema.Struct({
      goal_id: Schema.String,
      line: Schema.String,
      binding: Schema.Record(Schema.String, Schema.Json)
    }).annotate({ identifier: "SessionOfLine" })
  ),
  next: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ListSessionsResult" })
export type ListSessionsResult = typeof ListSessionsResult.Type

// --- the schema

export const MigrateParams = Schema.Struct({ runtime_root: Schema.String })

export const MigrateResult = Schema.Struct({
  /** The number of the last migration: what this version of the store needs. */
  version: Schema.Int,
  /** The migrations that were run now, in order; empty where the schema was up to date. */
  applied: Schema.Array(Schema.String)
}).annotate({ identifier: "MigrateResult" })
export type MigrateResult = typeof MigrateResult.Type
