/** The wire over this process's standard streams. While it is open, standard output belongs to it alone. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Wire } from "./Wire.ts"

/** Whatever else writes to standard output from now on, such as `console.log`, is sent to standard error. */
const claimStdout = Effect.acquireRelease(
  Effect.sync(() => {
    const { stdout } = process
    const write = stdout.write
    stdout.write = process.stderr.write.bind(process.stderr) as typeof write
    return { stdout, write }
  }),
  ({ stdout, write }) =>
    Effect.sync(() => {
      stdout.write = write
    })
)

export const layer: Layer.Layer<Wire> = Layer.effect(
  Wire,
  Effect.gen(function* () {
    const { stdout, write } = yield* claimStdout
    const { stdin } = process
    const hungUp = yield* Deferred.make<void>()
    // A broken pipe: nobody is left to answer to.
    stdout.on("error", () => Deferred.doneUnsafe(hungUp, Effect.void))
    // Nobody reads what is logged: that is no reason to stop answering.
    process.stderr.on("error", () => {})
    return {
      listen: ({ chunk, end, drained }) => {
        stdin.on("data", chunk)
        stdin.once("end", end)
        stdin.once("error", end)
        stdout.on("drain", drained)
      },
      pause: () => stdin.pause(),
      resume: () => stdin.resume(),
      send: (text) => write.call(stdout, text),
      flushed: Effect.callback<void>((resume) => {
        write.call(stdout, "", "utf8", () => resume(Effect.void))
      }),
      hungUp: Deferred.await(hungUp)
    }
  })
)
