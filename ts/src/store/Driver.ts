/**
 * What keeps the turns: an encoded store that speaks bytes and revisions, and knows nothing of what a journal means.
 * `JournalStore` speaks journals over it. Files and memory are drivers; a database is one more.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Result from "effect/Result"
import type { JournalConflict } from "../contract/Errors.ts"
import type { StoreError } from "./Failure.ts"
import type { LineFault, Link } from "./History.ts"
import type { Place } from "./Place.ts"

/** A journal as it stands: JSON text in UTF-8, or what somebody made of it. */
export interface Snapshot {
  readonly bytes: Uint8Array
  readonly updatedAt: number
}

/** A transition of the history, and the revision at which the next one is written. */
export interface Position extends Link {
  readonly revision: number
  /** Its line in the history, counted from 1. */
  readonly line: number
}

/** A place in the history from which on nothing can be relied on. */
export interface Damage {
  readonly fault: LineFault
  /** Counted from 1. */
  readonly line: number
  readonly revision: number
}

/** How a history ends. A driver that commits in one transaction only ever has `sealed`. */
export interface HistoryEnd {
  /** The last transition whose snapshot is known to have stood. */
  readonly sealed: Position | null
  /** Transitions after it whose snapshot may not have appeared: the writer was cut off. */
  readonly open: ReadonlyArray<Position>
  /** Whether something follows that is no whole transition: the writer was cut off in its middle. */
  readonly torn: boolean
  readonly damage: Damage | null
}

export interface Encoded {
  readonly snapshot: Snapshot | null
  /** Null where there is none: the turn is new, or another program's. */
  readonly history: HistoryEnd | null
}

/** What a write leaves. */
export interface Commit {
  /** The transition that it follows; what stands after that is cut. Null: nothing is kept. */
  readonly after: Position | null
  /** The lines to append; the last one's journal is the snapshot. */
  readonly lines: ReadonlyArray<{ readonly text: string; readonly link: Link }>
  readonly snapshot: string
  /** When the turn was written last; now, unless it is given. */
  readonly updatedAt?: number
  /** Set when what is cut is to be kept beside the history, under this name. */
  readonly setAside?: string
}

/** What a decision comes to: an answer, and a commit where something is to change. */
export interface Step<A> {
  readonly answer: A
  readonly commit: Commit | null
  /** Whether the history then begins with its last transition. */
  readonly forget?: boolean
}

/** A line of the history as it is read: `end` is empty for what is left of a torn one. */
export interface Piece {
  readonly text: string
  readonly end: "\n" | "\r" | ""
  readonly revision: number
}

/** Takes one line; false: no more are wanted. */
export type Visit = (piece: Piece) => boolean

export interface Scanned {
  readonly snapshot: Snapshot | null
  /** Whether there is a history, be it empty. */
  readonly history: boolean
}

/**
 * Which turns are asked for, by the status of their journals. A driver that knows it may leave out the others, and no turn
 * whose status it cannot tell.
 */
export interface Wanted {
  /** Only those of this status; null: of any. */
  readonly status: string | null
  /** Only those that are not over. */
  readonly open: boolean
}

/** How turns are looked at one after another. */
export interface Near {
  /** The journal as it stands, without waiting for a writer: it may be undone by a power cut. */
  readonly glance: (place: Place) => Effect.Effect<Snapshot | null, StoreError>

  /**
   * The journal, and its history line by line: of one moment, or, at a glance, without waiting for a writer, who may
   * come in between.
   */
  readonly scan: (place: Place, visit: Visit, mode: "settled" | "glance") => Effect.Effect<Scanned, StoreError>
}

export class Driver extends Context.Service<
  Driver,
  Near & {
    /** The journal as it stands, durable; null when there is none. */
    readonly snapshot: (place: Place) => Effect.Effect<Snapshot | null, StoreError>

    /** The journal and the end of its history, of one moment. */
    readonly load: (place: Place) => Effect.Effect<Encoded, StoreError>

    /**
     * Decides on what stands and commits the decision, as one: nothing else is committed in between. `decide` is pure
     * and may be asked again. What it read is durable when the answer is given, also where nothing is written. A writer
     * that names the `lease` of its driver is refused when that one is not the latest.
     */
    readonly transact: <A, E>(
      place: Place,
      decide: (stored: Encoded) => Result.Result<Step<A>, E>,
      lease: number | null
    ) => Effect.Effect<A, E | StoreError | JournalConflict>

    /** The goals of a root, in order. */
    readonly goals: (root: string) => Effect.Effect<ReadonlyArray<string>, StoreError>

    /** The keys of a goal's turns, in order; of those that are not wanted as many as it likes. */
    readonly turns: (root: string, goalId: string, wanted?: Wanted) => Effect.Effect<ReadonlyArray<string>, StoreError>

    /**
     * Reads what is about to be looked at, turn after turn, where that is quicker at once: the answer looks at these
     * turns as `glance` and `scan` do, and at the journals, or histories, of some of them as they stood just now.
     */
    readonly ahead: (places: ReadonlyArray<Place>, what: "journals" | "histories") => Effect.Effect<Near, StoreError>

    /** Whether somebody holds the turn's lease: session-recovery.md section 4. */
    readonly isDriven: (place: Place) => Effect.Effect<boolean, StoreError>
  }
>()("turn-journal-core/store/Driver") {}
