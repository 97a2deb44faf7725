/**
 * Leases of turns that are driven on many hosts, by the database's clock: session-recovery.md section 4. The number
 * fences: it is compared by the very statement that writes.
 */
import * as crypto from "node:crypto"
import * as Effect from "effect/Effect"
import {
  type AcquireLeaseParams,
  type HeldLease,
  type LeaseHolder,
  MAX_HOLDER_BYTES,
  type ReleaseLeaseParams,
  type ReleaseLeaseResult,
  type RenewLeaseParams
} from "../../contract/Database.ts"
import { InvalidJournal, type JournalConflict, TurnBusy } from "../../contract/Errors.ts"
import type { JsonObject, JsonValue } from "../../contract/Json.ts"
import type { StoreError } from "../Failure.ts"
import { leaseLost } from "../Lease.ts"
import { type Place, withinDatabase } from "../Place.ts"
import type { Row, Server } from "./Server.ts"
import { ACQUIRE, HOLDER, RELEASE, RENEW } from "./Statements.ts"

export const acquire = (
  server: Server,
  place: Place,
  { holder, ttl_ms, take_over = false, claim }: AcquireLeaseParams
): Effect.Effect<HeldLease, StoreError | InvalidJournal> =>
  Effect.gen(function* () {
    const said = JSON.stringify(holder)
    if (Buffer.byteLength(said) > MAX_HOLDER_BYTES) return yield* tooMuchSaid()
    const { goalId = null, turnKey = null } = place.address ?? {}
    const token = claim?.toLowerCase() ?? crypto.randomUUID()
    const path = withinDatabase(place)
    const [taken] = yield* server.change(ACQUIRE, [path, said, ttl_ms, take_over, token, goalId, turnKey])
    if (taken !== undefined) return heldOf(taken)
    const [row] = yield* server.ask(HOLDER, [path])
    // Where the answer was lost, the statement was sent again, and found the lease that it had taken itself.
    if (row !== undefined && row["lease_token"] === token) return heldOf(row)
    return yield* busy(holderOf(row))
  })

export const renew = (
  server: Server,
  place: Place,
  { number, ttl_ms }: RenewLeaseParams
): Effect.Effect<HeldLease, StoreError | JournalConflict> =>
  Effect.gen(function* () {
    const path = withinDatabase(place)
    const [renewed] = yield* server.change(RENEW, [path, number, ttl_ms])
    if (renewed !== undefined) return heldOf(renewed)
    const [row] = yield* server.ask(HOLDER, [path])
    return yield* leaseLost(number, holderOf(row).number)
  })

export const release = (
  server: Server,
  place: Place,
  { number }: ReleaseLeaseParams
): Effect.Effect<ReleaseLeaseResult, StoreError> =>
  Effect.map(server.change(RELEASE, [withinDatabase(place), number]), (rows) => ({ released: rows.length > 0 }))

export const holder = (server: Server, place: Place): Effect.Effect<LeaseHolder, StoreError> =>
  Effect.map(server.ask(HOLDER, [withinDatabase(place)]), ([row]) => holderOf(row))

const heldOf = (row: Row): HeldLease => ({
  number: Number(row["lease_number"]),
  expires_at: (row["lease_expires_at"] as Date).toISOString()
})

const holderOf = (row: Row | undefined): LeaseHolder => ({
  number: row?.["lease_number"] == null ? null : Number(row["lease_number"]),
  holder: row?.["lease_holder"] == null ? null : (JSON.parse(String(row["lease_holder"])) as JsonObject),
  since: instant(row?.["lease_since"]),
  expires_at: instant(row?.["lease_expires_at"]),
  remaining_ms: Number(row?.["remaining"] ?? 0)
})

const instant = (value: unknown): string | null => (value instanceof Date ? value.toISOString() : null)

const busy = (found: LeaseHolder): TurnBusy =>
  new TurnBusy({
    kind: "turn_busy",
    message:
      "The turn is driven by another holder of its lease. Wait for it to end, or until its time is up; if it hangs, end it, or take the turn over.",
    details: found as unknown as Readonly<Record<string, JsonValue>>
  })

const tooMuchSaid = (): InvalidJournal =>
  new InvalidJournal({
    kind: "invalid_request",
    message: `A holder may say ${MAX_HOLDER_BYTES} bytes of itself.`,
    details: { field: "holder" }
  })
