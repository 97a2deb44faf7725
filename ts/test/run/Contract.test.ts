/** The run journal's cases in TypeScript; tests/contract/run_journal/test_run_journal_cases.py runs the same ones. */
import { mkdtempSync, readFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import { Absent, Committed, type DurableRun, type Readback, Unknown } from "../../src/run/DurableRun.ts"
import type { Kind } from "../../src/run/Events.ts"
import { canonical, DamagedPayload, decode, digest, type Payload, same, type Value } from "../../src/run/Payload.ts"
import { make, type RunJournal } from "../../src/run/RunJournal.ts"
import type { Step } from "../../src/run/Runs.ts"

type Journal = RunJournal["Service"]

const read = (name: string): Value =>
  decode(readFileSync(new URL(`../../../tests/contract/run_journal/${name}.json`, import.meta.url)))

interface Operation extends Payload {
  readonly do: string
  readonly run: string
  readonly seq: number
}
interface Case {
  readonly name: string
  readonly script: ReadonlyArray<Operation>
}

/** Ends a drive as a crash would. */
class Died extends Data.TaggedError("Died") {}
/** What a tool or a model of a case fails with. */
class Failure extends Data.TaggedError("failure")<{ readonly message: string }> {}

class Stage {
  readonly #names = new Map<string, Value>()
  #folder = mkdtempSync(join(tmpdir(), "run-journal-"))
  #scope: Scope.Closeable | null = null
  #journal: Journal | null = null

  readonly open = Effect.gen({ self: this }, function* () {
    this.#scope = yield* Scope.make()
    this.#journal = yield* Scope.provide(make({ path: join(this.#folder, "journal.db") }), this.#scope)
  })

  readonly close = Effect.suspend(() => (this.#scope === null ? Effect.void : Scope.close(this.#scope, Exit.void)))

  get journal(): Journal {
    return this.#journal ?? assert.fail("not open")
  }

  perform(operation: Operation): Effect.Effect<void, unknown> {
    const ran: Array<string> = []
    const act = this.operations[operation.do] ?? assert.fail(`no operation ${operation.do}`)
    return Effect.map(Effect.exit(act(operation, ran)), (exit) => {
      const found = Exit.isSuccess(exit) ? ((exit.value ?? null) as Value) : null
      const shown = `${canonical(operation)}: ${Exit.isSuccess(exit) ? canonical(found) : exit.cause}`
      const error = Exit.isFailure(exit) ? errorOf(exit) : null
      assert.strictEqual(error?.kind, operation["fails"], shown)
      for (const [name, value] of Object.entries((operation["details"] ?? {}) as Payload)) {
        assert.isTrue(same((error?.details[name] ?? null) as Value, value), `${shown}: ${name}`)
      }
      if (operation["returns"] !== undefined && Exit.isSuccess(exit)) {
        this.compare(operation["returns"], found, shown)
      }
      if (operation["ran"] !== undefined) assert.deepStrictEqual(ran, operation["ran"], shown)
    })
  }

  compare(expected: Value, found: Value, shown: string): void {
    if (typeof expected === "string" && expected.startsWith("$")) {
      const named = this.#names.get(expected) ?? found
      this.#names.set(expected, named)
      assert.isTrue(same(named, found), shown)
    } else if (Array.isArray(expected) && Array.isArray(found)) {
      assert.strictEqual(found.length, expected.length, shown)
      for (const [at, one] of expected.entries()) this.compare(one, found[at], shown)
    } else assert.isTrue(same(expected, found), shown)
  }

  readonly operations: Readonly<
    Record<string, (operation: Operation, ran: Array<string>) => Effect.Effect<unknown, unknown>>
  > = {
    open_run: (o) =>
      this.journal.openRun(o.run, {
        ...(o["agent"] === undefined ? {} : { agent: o["agent"] as string }),
        ...(o["task"] === undefined ? {} : { task: o["task"] as string }),
        ...(o["checkpoint"] === undefined ? {} : { checkpointId: o["checkpoint"] as string }),
        ...(o["metadata"] === undefined ? {} : { metadata: o["metadata"] })
      }),
    set_checkpoint: (o) => this.journal.setCheckpoint(o.run, o["checkpoint"] as string),
    close_run: (o) => this.journal.closeRun(o.run, o["outcome"] as string | undefined),
    run_meta: (o) =>
      Effect.map(this.journal.runMeta(o.run), (run): Value => {
        if (run === null) return null
        const all: Payload = {
          agent: run.agent,
          task: run.task,
          status: run.status,
          outcome: run.outcome,
          checkpoint_id: run.checkpointId,
          metadata: run.metadata
        }
        const names = Object.keys((o["returns"] ?? {}) as Payload)
        return Object.fromEntries(names.map((name) => [name, all[name] ?? null]))
      }),
    interrupted_runs: (o) => this.journal.interruptedRuns({ includeOwned: o["include_owned"] === true }),
    delete_run: (o) => this.journal.deleteRun(o.run),
    prune: (o) =>
      this.journal.prune(o["older_than"] as number, {
        keep: (o["keep"] ?? null) as number | null,
        dryRun: o["dry_run"] === true
      }),
    vacuum: () => this.journal.vacuum,
    append: (o) =>
      this.journal.append({ runId: o.run, seq: o.seq, kind: o["kind"] as Kind, payload: o["payload"] as Payload }),
    append_many: (o) =>
      this.journal.appendMany(
        (o["events"] as ReadonlyArray<[string, number, Kind, Payload]>).map(([runId, seq, kind, payload]) => ({
          runId,
          seq,
          kind,
          payload
        }))
      ),
    events: (o) =>
      Effect.map(this.journal.events(o.run), (events) => events.map(({ seq, kind, payload }) => [seq, kind, payload])),
    replay_index: (o) =>
      Effect.map(this.journal.replayIndex(o.run), (index) =>
        [...index]
          .map(([key, payload]): [number, string, Payload] => {
            const [seq = "", kind = ""] = key.split(" ")
            return [Number(seq), kind, payload]
          })
          .sort(([a, one], [b, other]) => a - b || (one < other ? -1 : 1))
      ),
    last_iteration: (o) => this.journal.lastIteration(o.run),
    assert_replay_order: (o) =>
      this.journal.assertReplayOrder(o.run, o["expected"] as unknown as ReadonlyArray<Step> | ReadonlyArray<Kind>),
    uncertain: (o) =>
      Effect.map(this.journal.uncertain(o.run), (steps) =>
        steps.map(({ seq, tool, args, idempotencyKey }) => [seq, tool, args, idempotencyKey])
      ),
    settle: (o) => this.journal.settle(o.run, o.seq, o["absent"] === true ? { absent: true } : { result: o["result"] }),
    approve: (o) => this.journal.approve(o.run, o.seq, o["decision"], o["by"] as string),
    pending: (o) =>
      Effect.map(this.journal.pendingApprovals(o["run"] as string | undefined), (waiting) =>
        waiting.map(({ runId, seq, question, binds }) => [runId, seq, question, binds])
      ),
    pending_sleeps: (o) =>
      Effect.map(this.journal.pendingSleeps(o["run"] as string | undefined), (sleeps) =>
        sleeps.map(({ runId, seq, until }) => [runId, seq, until])
      ),
    fork: (o) => this.journal.fork(o.run, o["new"] as string, o["upto"] as number),
    parent: (o) =>
      Effect.map(this.journal.parent(o.run), (parent) => (parent === null ? null : [parent.runId, parent.upto])),
    diff: (o) =>
      Effect.map(this.journal.diff(o["a"] as string, o["b"] as string), (found) =>
        found === null ? null : { seq: found.seq, kind: found.kind, fields: found.fields }
      ),
    reopen: () => Effect.andThen(this.close, this.open),
    raw: (o) =>
      Effect.sync(() => {
        const connection = new DatabaseSync(join(this.#folder, "journal.db"))
        connection.exec(o["sql"] as string)
        connection.close()
      }),
    // From here on the case plays in another file, which has this run alone.
    move: (o) =>
      Effect.gen({ self: this }, function* () {
        const lines = yield* this.journal.exportRun(o.run)
        yield* this.close
        this.#folder = mkdtempSync(join(tmpdir(), "run-journal-"))
        yield* this.open
        assert.strictEqual(yield* this.journal.importRun(lines), o.run)
      }),
    drive: (o, ran) => {
      const results: Array<Value> = []
      const options = {
        ...(o["max_resumes"] === undefined ? {} : { maxResumes: o["max_resumes"] as number }),
        takeOver: o["take_over"] === true
      }
      const meanwhile = (step: Payload) =>
        Effect.forEach((step["meanwhile"] ?? []) as never as ReadonlyArray<Operation>, (operation) =>
          this.perform(operation)
        )
      const loop = (run: DurableRun) =>
        Effect.gen(function* () {
          for (const step of o["steps"] as ReadonlyArray<Payload>) {
            if (step["stop"] === true) return yield* new Died()
            yield* meanwhile(step)
            if (step["meanwhile"] !== undefined) continue
            const result = yield* take(run, step, ran)
            if (result !== undefined) results.push(result)
          }
        })
      return this.journal.drive(o.run, loop, options).pipe(
        Effect.catch((error) => (error instanceof Died ? Effect.void : Effect.fail(error))),
        Effect.catchDefect((defect) => (defect instanceof Died ? Effect.void : Effect.die(defect))),
        Effect.map(() => results)
      )
    }
  }
}

/** One step of a drive; what it gives the loop. */
const take = (run: DurableRun, step: Payload, ran: Array<string>): Effect.Effect<Value | undefined, unknown> => {
  if (step["caught"] !== undefined) {
    return Effect.catch(take(run, step["caught"] as Payload, ran), (error) =>
      Effect.succeed(["failed", (error as Error).message])
    )
  }
  if (step["iteration"] !== undefined) return run.iteration(step["iteration"] as number)
  if (step["model"] !== undefined) {
    const options = {
      ...(step["request"] === undefined ? {} : { request: step["request"] }),
      ...(step["on_change"] === undefined ? {} : { onChange: step["on_change"] as "ask_again" })
    }
    return run.model(working("model", step, step["model"], ran), options)
  }
  if (step["tool"] !== undefined) {
    const name = step["tool"] as string
    const answer = step["readback"]
    return run.tool(name, step["args"], working(name, step, step["result"] ?? null, ran), {
      restartSafe: step["restart_safe"] === true,
      ...(answer === undefined ? {} : { readback: (key) => readingBack(answer, key, ran) }),
      ...(step["label"] === undefined ? {} : { label: step["label"] as string })
    })
  }
  if (step["approval"] !== undefined) return run.approval(step["approval"] as string, step["binds"])
  if (step["verification"] !== undefined) {
    return run.verification(step["verification"] as string, step["success"] as boolean, step["details"] as Payload)
  }
  const suspend = step["suspend"] === true
  if (step["sleep"] !== undefined) {
    return Effect.as(run.sleep(Duration.seconds(step["sleep"] as number), { suspend }), null)
  }
  if (step["sleep_until"] !== undefined) {
    return Effect.as(run.sleepUntil(step["sleep_until"] as number, { suspend }), null)
  }
  if (step["value"] !== undefined) return run[step["value"] as "now" | "random" | "uuid"]
  return Effect.as(run.finish(step["finish"] as string), undefined)
}

const working = (name: string, step: Payload, result: Value, ran: Array<string>): Effect.Effect<Value, Failure> =>
  Effect.suspend(() => {
    ran.push(name)
    if (step["dies"] === true) return Effect.die(new Died())
    const message = step["fails"]
    return message === undefined ? Effect.succeed(result) : new Failure({ message: message as string })
  })

const readingBack = (answer: Value, key: string, ran: Array<string>): Effect.Effect<Readback> =>
  Effect.sync(() => {
    ran.push(`readback ${key}`)
    if (answer === "absent") return Absent
    return answer === "unknown" ? Unknown : Committed((answer as Payload)["committed"])
  })

interface Shown {
  readonly kind: string
  readonly details: Readonly<Record<string, unknown>>
}

/** What a failed operation says; a tool that failed of itself is the case's own failure. */
const errorOf = (exit: Exit.Failure<unknown, unknown>): Shown => {
  const found = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  const error = found?._tag === "Fail" ? (found.error as Shown) : assert.fail(String(exit.cause))
  return error.kind === "tool_failed" ? { kind: "failure", details: {} } : error
}

describe("run journal", () => {
  for (const { name, script } of [...(read("journal") as never), ...(read("steps") as never)] as ReadonlyArray<Case>) {
    it.live(name, () =>
      Effect.gen(function* () {
        const stage = new Stage()
        yield* stage.open
        for (const operation of script) yield* stage.perform(operation)
        yield* stage.close
      })
    )
  }

  const payloads = read("payloads") as unknown as {
    readonly canonical: ReadonlyArray<{ readonly value: Value; readonly canonical: string; readonly digest: string }>
    readonly stored: ReadonlyArray<{ readonly text: string; readonly value?: Value }>
  }
  for (const payload of payloads.canonical) {
    it(`canonical ${payload.canonical}`, () => {
      assert.strictEqual(canonical(payload.value), payload.canonical)
      assert.strictEqual(digest(payload.value), payload.digest)
    })
  }
  for (const { text, value } of payloads.stored) {
    it(`stored ${text}`, () => {
      if (value === undefined) assert.throws(() => decode(text), DamagedPayload)
      else assert.isTrue(same(decode(text), value))
    })
  }
})
