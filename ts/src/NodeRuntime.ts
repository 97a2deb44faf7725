/** The core on Node: its services on this machine's files and streams, and how to run a program with them. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Runtime from "effect/Runtime"
import { Core } from "./rpc/Core.ts"
import { Limits } from "./rpc/Limits.ts"
import { methods } from "./rpc/Methods.ts"
import * as Server from "./rpc/Server.ts"
import * as StdioWire from "./rpc/StdioWire.ts"
import { Databases } from "./store/Databases.ts"
import * as FileDriver from "./store/FileDriver.ts"
import { JournalStore } from "./store/JournalStore.ts"

/** The store of turn journals in files and databases, with the limits of the environment. */
export const layerStore = Layer.unwrap(
  Effect.map(Limits, ({ journalBytes, depth }) =>
    JournalStore.layer({ journalBytes, depth }).pipe(
      Layer.provideMerge(Databases.layer),
      Layer.provide(FileDriver.layer({ journalBytes }))
    )
  )
)

/** Everything that the methods of the protocol need. */
export const layer = Layer.provideMerge(layerStore, Layer.merge(Core.layer, Limits.layer))

/** The protocol on the standard streams, until the other side has left or asked to stop. */
export const serve = Server.serve(methods).pipe(
  Effect.provide(Layer.merge(layer, StdioWire.layer)),
  Effect.provideService(Logger.LogToStderr, true)
)

const SIGNALS = ["SIGINT", "SIGTERM"] as const

const run = Runtime.makeRunMain(({ fiber, teardown }) => {
  const interrupt = () => {
    leaveToNode()
    fiber.interruptUnsafe()
  }
  const leaveToNode = () => {
    for (const signal of SIGNALS) process.removeListener(signal, interrupt)
  }
  for (const signal of SIGNALS) process.on(signal, interrupt)
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(code)))
})

/**
 * Runs a program to its end and leaves, whatever is still open: with the number it answers, else with 0 or 1. SIGINT and
 * SIGTERM interrupt it, and it leaves with 130 when its finalizers are done; a second one ends it at once.
 */
export const runMain = (program: Effect.Effect<unknown, unknown>): void =>
  run(program, {
    teardown: (exit, leave) => {
      if (exit._tag === "Success" && typeof exit.value === "number") leave(exit.value)
      else Runtime.defaultTeardown(exit, leave)
    }
  })
