/**
 * The agent of tests/chaos/run_journal/agent.py in TypeScript: the same loop, the same world of files, so that each
 * resumes what the other began. `node agent.ts JOURNAL FOLDER [KILL_AFTER]` drives it once and prints its answer, or
 * "settled"; with a number it is killed before the n-th step that it really takes records its result.
 */
import { createHash } from "node:crypto"
import { appendFileSync, existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import { Absent, Committed, CurrentIdempotencyKey, type DurableRun } from "../../src/run/DurableRun.ts"
import type { Value } from "../../src/run/Payload.ts"
import { make } from "../../src/run/RunJournal.ts"

const STEPS = 30
const RUN = "agent"
const TOOLS = ["send", "fetch", "pay"] as const

const [path = "", folder = "", killAfter] = process.argv.slice(2)
let left = Number(killAfter ?? Number.POSITIVE_INFINITY)

/** A number stands for a moment in real work; there the process is killed. */
const moment = Effect.sync(() => {
  left -= 1
  if (left === 0) process.kill(process.pid, "SIGKILL")
})

const sha = (text: string): string => createHash("sha256").update(text).digest("hex")
/** Python's `repr` of a list of such texts. */
const repr = (seen: ReadonlyArray<Value>): string => `[${seen.map((text) => `'${text}'`).join(", ")}]`

const lines = (name: string): ReadonlyArray<string> => {
  const file = join(folder, `${name}.txt`)
  return existsSync(file) ? readFileSync(file, "utf8").trimEnd().split("\n") : []
}
const add = (name: string, line: string): void => appendFileSync(join(folder, `${name}.txt`), `${line}\n`)
const resultOf = (key: string, known: string): string => sha(`${key} ${known}`).slice(0, 12)

const ask = (number: number, seen: ReadonlyArray<Value>) =>
  Effect.sync(() => {
    add("model", String(number))
    return { tool: TOOLS[number % TOOLS.length], args: { number, known: sha(repr(seen)).slice(0, 8) } }
  }).pipe(Effect.tap(moment))

const work = (name: string, known: string) =>
  Effect.gen(function* () {
    yield* moment
    const key = yield* CurrentIdempotencyKey
    add(name, key ?? "no key")
    yield* moment
    return resultOf(key ?? "no key", known)
  })

interface Decision {
  readonly tool: string
  readonly args: { readonly number: number; readonly known: string }
}

const loop = (run: DurableRun) =>
  Effect.gen(function* () {
    let seen: ReadonlyArray<Value> = []
    for (let number = 0; number < STEPS; number++) {
      yield* run.iteration(number)
      const decided = yield* run.model(ask(number, seen), { request: { seen, number } })
      const { tool, args } = decided as unknown as Decision
      const result = yield* run.tool(tool, args, work(tool, args.known), {
        restartSafe: tool === "fetch",
        ...(tool === "pay"
          ? {
              readback: (key: string) =>
                Effect.sync(() => (lines(tool).includes(key) ? Committed(resultOf(key, args.known)) : Absent))
            }
          : {})
      })
      seen = [...seen.slice(-5), result]
      if (number % 7 === 0) yield* run.verification("consistent", true, { number })
    }
    return sha(repr(seen))
  })

const program = Effect.gen(function* () {
  const journal = yield* make({ path })
  const settle = Effect.gen(function* () {
    for (const step of yield* journal.uncertain(RUN)) {
      const known = (step.args as Decision["args"]).known
      const happened = lines(step.tool).includes(step.idempotencyKey)
      const settlement = happened ? { result: resultOf(step.idempotencyKey, known) } : ({ absent: true } as const)
      yield* journal.settle(RUN, step.seq, settlement)
    }
    return "settled"
  })
  return yield* Effect.catchTag(journal.drive(RUN, loop, { maxResumes: 10_000 }), "UncertainEffect", () => settle)
})

process.stdout.write(await Effect.runPromise(Effect.scoped(program)))
