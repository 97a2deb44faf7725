/**
 * The run journal as a service: the events of agent runs in one SQLite file, the same that Python's `RunJournal` reads and
 * writes, so that an agent in either language resumes a run that the other began. run-journal.md, sections 1 and 2.
 */
import { existsSync, renameSync, rmSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { backup as copyDatabase } from "node:sqlite"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { StoreFailure } from "../contract/Errors.ts"
import { Busy, createPrivate, type Database, type Durability, MEMORY, open } from "./Database.ts"
import * as Drive from "./Drive.ts"
import * as Driving from "./Driving.ts"
import type { DurableRun } from "./DurableRun.ts"
import {
  conflict,
  isRunError,
  type ResumeBudgetExhausted,
  type RunJournalError,
  type StepError,
  unknownRun
} from "./Errors.ts"
import type { JournalEvent, Kind, NewEvent, RunMeta } from "./Events.ts"
import * as Lineage from "./Lineage.ts"
import * as Ownership from "./Ownership.ts"
import type { Payload } from "./Payload.ts"
import * as Retention from "./Retention.ts"
import * as Runs from "./Runs.ts"
import * as Settlement from "./Settlement.ts"
import * as Sleeps from "./Sleeps.ts"
import * as Stepping from "./Stepping.ts"
import * as Transfer from "./Transfer.ts"

export interface RunJournalOptions {
  /** A file, or `":memory:"`; absent: `$TURN_JOURNAL_HOME/runs/journal.db`. */
  readonly path?: string
  /** What an acknowledged write survives: the death of the process (the default), or power loss too. */
  readonly durability?: Durability
  /** Called with a copy of what is to be stored; what it returns is stored instead. */
  readonly redact?: Runs.Redact
}

type Answer<A> = Effect.Effect<A, RunJournalError>

export class RunJournal extends Context.Service<
  RunJournal,
  {
    /** The journal's file, or `:memory:`. */
    readonly path: string
    /** SQLite's settings, read back from the connection in use. */
    readonly settings: Answer<Readonly<Record<string, unknown>>>
    /** Registers a run as `running`. Again: keeps its journal, its creation time and, when none is given, its checkpoint. */
    readonly openRun: (runId: string, run?: Runs.NewRun) => Answer<void>
    readonly setCheckpoint: (runId: string, checkpointId: string) => Answer<void>
    /**
     * Ends a run. Its status is the outcome when that is `done`, `succeeded`, `failed` or `cancelled`, else `done`. One that
     * somebody else drives is refused (`TurnBusy`); a loop may close the run that it drives through this journal.
     */
    readonly closeRun: (runId: string, outcome?: string) => Answer<void>
    readonly runMeta: (runId: string) => Answer<RunMeta | null>
    /** The runs that are still `running`, oldest first; those that a living process drives only on request. */
    readonly interruptedRuns: (options?: { readonly includeOwned?: boolean }) => Answer<ReadonlyArray<string>>
    readonly deleteRun: (runId: string) => Answer<void>
    /**
     * Removes the runs that ended more than `olderThan` seconds ago, each whole; their ids, oldest first. A run stays that
     * may still be needed: one that goes on, one with an effect whose outcome is not known, one inside of an open tool
     * call, and one of a turn.
     */
    readonly prune: (olderThan: number, options?: Retention.PruneOptions) => Answer<ReadonlyArray<string>>
    /** Gives the space of what was deleted back, and leaves no trace of it in the file; who writes has to wait. */
    readonly vacuum: Answer<void>
    /** Stores an event under its run, number and kind; the same again replaces the payload, not the place. */
    readonly append: (event: NewEvent) => Answer<void>
    readonly appendMany: (events: Iterable<NewEvent>) => Answer<void>
    /** A run's events by number, those of one step in the order in which they were first stored. */
    readonly events: (runId: string) => Answer<ReadonlyArray<JournalEvent>>
    /** A run's payloads by `replayKey(seq, kind)`. */
    readonly replayIndex: (runId: string) => Answer<ReadonlyMap<string, Payload>>
    /** The highest recorded iteration index, or null. */
    readonly lastIteration: (runId: string) => Answer<number | bigint | null>
    readonly assertReplayOrder: (
      runId: string,
      expected: ReadonlyArray<Runs.Step> | ReadonlyArray<Kind>
    ) => Answer<void>
    /** The tool calls that may have happened: recorded as begun, without an outcome. */
    readonly uncertain: (runId: string) => Answer<ReadonlyArray<Settlement.UncertainStep>>
    readonly settle: (runId: string, seq: number, settlement: Settlement.Settlement) => Answer<void>
    readonly approve: (runId: string, seq: number, decision: unknown, by: string) => Answer<void>
    readonly pendingApprovals: (runId?: string) => Answer<ReadonlyArray<Settlement.PendingApproval>>
    /** The sleeps of running runs whose time has not come. */
    readonly pendingSleeps: (runId?: string) => Answer<ReadonlyArray<Sleeps.PendingSleep>>
    /** Makes a run that replays another one's steps up to and with number `upto`, then goes its own way. */
    readonly fork: (runId: string, newRunId: string, upto: number) => Answer<void>
    readonly parent: (runId: string) => Answer<{ readonly runId: string; readonly upto: number } | null>
    readonly diff: (runA: string, runB: string) => Answer<Lineage.RunDifference | null>
    readonly exportRun: (runId: string) => Answer<ReadonlyArray<string>>
    readonly importRun: (lines: Iterable<string>, options?: { readonly overwrite?: boolean }) => Answer<string>
    /** Copies the whole journal while it is in use; it replaces nothing. */
    readonly backup: (path: string) => Answer<void>
    /**
     * Drives a run with a loop. A loop that ends closes the run (`done`, unless it said otherwise); one that fails leaves
     * it to be resumed. A new id begins a run, a known one resumes it, an ended one is replayed without side effects.
     */
    readonly drive: <A, E, R>(
      runId: string,
      loop: (run: DurableRun) => Effect.Effect<A, E, R>,
      options?: Drive.DriveOptions
    ) => Effect.Effect<A, E | StepError | ResumeBudgetExhausted, R>
  }
>()("turn-journal-core/run/RunJournal") {
  static readonly layer = (options: RunJournalOptions = {}): Layer.Layer<RunJournal, RunJournalError> =>
    Layer.effect(RunJournal, make(options))
}

/** A journal that is closed with the scope; the runs it still drives count as interrupted from then on. */
export const make = (
  options: RunJournalOptions = {}
): Effect.Effect<RunJournal["Service"], RunJournalError, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      attempting(() => {
        const database = open(options.path ?? defaultPath(), options.durability ?? "process")
        return { database, ownership: Ownership.make(database) }
      }),
      ({ database, ownership }) =>
        Effect.sync(() => {
          ownership.release()
          database.close()
        })
    ),
    ({ database, ownership }) => {
      const redact = options.redact ?? null
      const drive: RunJournal["Service"]["drive"] = (runId, loop, driveOptions = {}) =>
        Effect.acquireUseRelease(
          Effect.map(
            attempting(() => Drive.claim(database, ownership, redact, runId, driveOptions)) as Effect.Effect<
              Drive.Drive,
              RunJournalError | ResumeBudgetExhausted
            >,
            (claimed) => Driving.make(claimed, redact, attempting)
          ),
          (driving) =>
            loop(Stepping.make(driving, attempting)).pipe(
              // What a step in flight comes to is recorded while the run is still ours; who interrupts waits for nothing.
              Effect.catchCause((cause) =>
                Effect.andThen(Cause.hasInterrupts(cause) ? Effect.void : driving.left, Effect.failCause(cause))
              ),
              Effect.tap(driving.succeed)
            ),
          ({ release }, exit) => (Exit.isSuccess(exit) ? Effect.orDie(release) : Effect.ignore(release))
        )
      return RunJournal.of({
        path: database.path,
        settings: attempting(() => database.settings()),
        openRun: (runId, run = {}) => attempting(() => Runs.openRun(database, redact, runId, run)),
        setCheckpoint: (runId, checkpointId) => attempting(() => Runs.setCheckpoint(database, runId, checkpointId)),
        closeRun: (runId, outcome = "done") =>
          attempting(() =>
            database.transaction(() => {
              ownership.refuseDrivenElsewhere(runId)
              if (Runs.closeRun(database, runId, outcome) === 0) throw unknownRun(runId)
            })
          ),
        runMeta: (runId) => attempting(() => Runs.runMeta(database, runId)),
        interruptedRuns: ({ includeOwned = false } = {}) =>
          attempting(() => Runs.interruptedRuns(database, ownership, includeOwned)),
        deleteRun: (runId) => attempting(() => Retention.deleteRun(database, ownership, runId)),
        prune: (olderThan, options) => prune(database, ownership, olderThan, options),
        vacuum: attempting(() => database.vacuum()),
        append: (event) => attempting(() => Runs.append(database, redact, event)),
        appendMany: (events) => attempting(() => Runs.appendMany(database, redact, events)),
        events: (runId) => attempting(() => Runs.events(database, runId)),
        replayIndex: (runId) => attempting(() => Runs.replayIndex(database, runId)),
        lastIteration: (runId) => attempting(() => Runs.lastIteration(database, runId)),
        assertReplayOrder: (runId, expected) => attempting(() => Runs.assertReplayOrder(database, runId, expected)),
        uncertain: (runId) => attempting(() => Settlement.uncertain(database, runId)),
        settle: (runId, seq, settlement) =>
          attempting(() => Settlement.settle(database, redact, runId, seq, settlement)),
        approve: (runId, seq, decision, by) =>
          attempting(() => Settlement.approve(database, redact, runId, seq, decision, by)),
        pendingApprovals: (runId) => attempting(() => Settlement.pendingApprovals(database, runId ?? null)),
        pendingSleeps: (runId) =>
          Effect.flatMap(Sleeps.now, (now) => attempting(() => Sleeps.pendingSleeps(database, runId ?? null, now))),
        fork: (runId, newRunId, upto) => attempting(() => Lineage.fork(database, runId, newRunId, upto)),
        parent: (runId) => attempting(() => Lineage.parent(database, runId)),
        diff: (runA, runB) => attempting(() => Lineage.diff(database, runA, runB)),
        exportRun: (runId) => attempting(() => Transfer.exportRun(database, runId)),
        importRun: (lines, { overwrite = false } = {}) =>
          attempting(() => Transfer.importRun(database, ownership, redact, lines, overwrite)),
        backup: (path) => backup(database.connection, path),
        drive
      })
    }
  )

const defaultPath = (): string => join(process.env["TURN_JOURNAL_HOME"] ?? dataFolder(), "runs", "journal.db")

/** The platform's folder for user data, where Python's `platformdirs` finds it too. */
const dataFolder = (): string => {
  switch (process.platform) {
    case "darwin":
      return join(homedir(), "Library", "Application Support", "turn-journal")
    case "win32":
      return join(process.env["LOCALAPPDATA"] ?? join(homedir(), "AppData", "Local"), "turn-journal")
    default:
      return join(process.env["XDG_DATA_HOME"] || join(homedir(), ".local", "share"), "turn-journal")
  }
}

const PATIENCE_MS = 30_000
const PAUSE_MS = 5

/** Runs database calls; what they throw of ours is a failure, and a writer that is in the way is waited for. */
const attempting = <A>(calls: () => A, busySince?: number): Effect.Effect<A, RunJournalError> =>
  Effect.suspend((): Effect.Effect<A, RunJournalError> => {
    try {
      return Effect.succeed(calls())
    } catch (error) {
      if (error instanceof Busy) return waitAndTry(calls, busySince)
      return isRunError(error) ? Effect.fail(error as RunJournalError) : Effect.die(error)
    }
  })

const waitAndTry = <A>(calls: () => A, busySince?: number): Effect.Effect<A, RunJournalError> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) => {
    const since = busySince ?? now
    if (now - since < PATIENCE_MS) return Effect.andThen(Effect.sleep(PAUSE_MS), attempting(calls, since))
    return Effect.fail(
      new StoreFailure({
        kind: "store_io_failed",
        message: `Another process has kept the journal locked for ${PATIENCE_MS / 1000} s; nothing was written. Find the process that holds a transaction open.`,
        details: {}
      })
    )
  })

/** One transaction after the other, so that who writes gets in between, and what went before an error is not forgotten. */
const prune = Effect.fnUntraced(function* (
  database: Database,
  ownership: Ownership.Ownership,
  olderThan: number,
  { keep = null, dryRun = false }: Retention.PruneOptions = {}
): Effect.fn.Return<ReadonlyArray<string>, RunJournalError> {
  const { runIds, before } = yield* attempting(() => Retention.prunable(database, olderThan, keep))
  const gone: Array<string> = []
  for (let at = 0; at < runIds.length; ) {
    const part = { runIds: runIds.slice(at, at + Retention.LOOKED_AT), before }
    const [took, looked] = yield* Effect.timed(attempting(() => Retention.remove(database, ownership, part, dryRun)))
    for (const [runId, went] of looked) if (went) gone.push(runId)
    at += looked.size
    // As long as it took: without a pause who waits would hardly ever come between.
    if (at < runIds.length && !dryRun) yield* Effect.sleep(Math.min(Duration.toMillis(took), Retention.PAUSE))
  }
  if (gone.length > 0 && !dryRun) yield* attempting(() => database.emptyLog())
  return gone
})

const backup = (connection: Parameters<typeof copyDatabase>[0], path: string): Effect.Effect<void, RunJournalError> => {
  if (existsSync(path)) {
    return Effect.fail(conflict(`${path} exists, and a backup replaces nothing: name another file.`, { path }))
  }
  const temporary = `${path}.${process.pid}.part`
  return Effect.tryPromise({
    try: async () => {
      createPrivate(temporary)
      await copyDatabase(connection, temporary)
      renameSync(temporary, path)
    },
    catch: (error) =>
      new StoreFailure({
        kind: "store_io_failed",
        message: `The backup ${path} cannot be written: ${(error as Error).message}.`,
        details: { path }
      })
  }).pipe(Effect.ensuring(Effect.sync(() => rmSync(temporary, { force: true }))))
}

export { MEMORY }
