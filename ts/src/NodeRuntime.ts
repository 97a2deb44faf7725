/** The core on Node: every service on this machine's files and streams, and how to run a program with them. */
import * as Runtime from "effect/Runtime"

/** Runs a program to its end and leaves with its exit code, whatever is still open. */
export const runMain = Runtime.makeRunMain(({ fiber, teardown }) => {
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(code)))
})
