// What a write costs in the core alone, beside its system calls with nothing around them: `node writes.mjs FOLDER ROWS`.
// The sides take turns, so that a busy moment hits all of them. Prints JSON: side → [median, 99th percentile, CPU] in ms.
import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, writeSync } from "node:fs"
import { join } from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as FileDriver from "../../ts/src/store/FileDriver.ts"
import { JournalStore } from "../../ts/src/store/JournalStore.ts"

const ROW = 20
const WARM = 5
const [folder, rows] = process.argv.slice(2)

const PHASES = ["a", "b", "c", "d"]
const journal = (turn, completed) => ({
  schema_version: "loopx_turn_journal_v0",
  goal_id: "goal-1",
  agent_id: "agent-1",
  turn_key: `turn-${turn}`,
  effect_id: `effect-${turn}`,
  status: "in_progress",
  completed_phases: PHASES.slice(0, completed),
  plan: {
    phases: [...PHASES, "e"],
    inputs: Array.from({ length: 18 }, (_, line) => ({ path: `src/module_${line}.py`, lines: line, note: "x".repeat(60) }))
  }
})

const alone = join(folder, "alone")
mkdirSync(alone, { recursive: true })
const descriptor = openSync(alone, "r")
const bytes = Buffer.from(JSON.stringify(journal(0, 0)))

const put = (path, flags) => {
  const file = openSync(path, flags)
  writeSync(file, bytes)
  fsyncSync(file)
  closeSync(file)
}

const store = await Effect.runPromise(
  Effect.provide(JournalStore, JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())))
)
const write = (turn, completed) => {
  const path = join(folder, "root", "goals", "goal-1", "turns", `turn-${turn}.json`)
  return Effect.runPromise(store.write({ path, journal: journal(turn, completed) }))
}

const sides = {
  alone: (number) => {
    put(join(alone, `${number}.draft`), "wx")
    put(join(alone, `${number}.history`), "a")
    renameSync(join(alone, `${number}.draft`), join(alone, `${number}.json`))
    fsyncSync(descriptor)
  },
  first: (number) => write(number, 0),
  next: (number) => write(Math.floor(number / PHASES.length), (number % PHASES.length) + 1)
}

const measured = { alone: [], first: [], next: [] }
for (let row = 0; row < Number(rows); row++) {
  for (const [name, side] of Object.entries(sides)) {
    for (let number = 0; number < ROW; number++) {
      const before = process.cpuUsage()
      const begin = performance.now()
      await side(row * ROW + number)
      const wall = performance.now() - begin
      const { user, system } = process.cpuUsage(before)
      if (number >= WARM) measured[name].push([wall, (user + system) / 1000])
    }
  }
}

const at = (values, share) => values.toSorted((one, other) => one - other)[Math.floor(values.length * share)]
const figures = Object.entries(measured).map(([name, pairs]) => {
  const walls = pairs.map(([wall]) => wall)
  return [name, [at(walls, 0.5), at(walls, 0.99), at(pairs.map(([, cpu]) => cpu), 0.5)]]
})
process.stdout.write(JSON.stringify(Object.fromEntries(figures)))
