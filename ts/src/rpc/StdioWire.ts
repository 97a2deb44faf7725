/** The wire over this process's standard streams. While it is open, standard output belongs to it alone. */
import { fstatSync, writeSync } from "node:fs"
import { Socket } from "node:net"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { isErrno } from "../store/Failure.ts"
import { type Listener, Wire } from "./Wire.ts"

const STDIN = 0
const STDOUT = 1
/** What a pipe holds on Linux. */
const CHUNK_BYTES = 64 * 1024

/** Whether the short ways below are open: files and terminals have none, and on Windows a write to a pipe may block. */
const isPipe = (fd: number): boolean => {
  if (process.platform === "win32") return false
  const stat = fstatSync(fd)
  return stat.isFIFO() || stat.isSocket()
}

interface Input {
  readonly listen: (listener: Listener) => void
  readonly pause: () => void
  readonly resume: () => void
}

const inputOf = (stream: Socket | typeof process.stdin, listen: (listener: Listener) => void): Input => ({
  listen: (listener) => {
    stream.once("end", listener.end)
    stream.once("error", listener.end)
    listen(listener)
    stream.resume()
  },
  pause: () => stream.pause(),
  resume: () => stream.resume()
})

const streamInput = (): Input => inputOf(process.stdin, ({ chunk }) => process.stdin.on("data", chunk))

/** Reads into one buffer that is lent to the listener, which spares a stream's work for each chunk. */
const pipeInput = (): Input => {
  let listener: Listener | undefined
  const socket = new Socket({
    fd: STDIN,
    readable: true,
    writable: false,
    onread: {
      buffer: Buffer.allocUnsafe(CHUNK_BYTES),
      callback: (bytes, buffer) => {
        listener?.chunk(buffer.subarray(0, bytes))
        return true
      }
    }
  })
  return inputOf(socket, (listening) => {
    listener = listening
  })
}

type Write = (bytes: Uint8Array, done?: () => void) => boolean

/** Whatever else writes to standard output from now on, such as `console.log`, is sent to standard error. */
const claimStdout = Effect.acquireRelease(
  Effect.sync(() => {
    const { stdout } = process
    const { write } = stdout
    stdout.write = process.stderr.write.bind(process.stderr) as typeof write
    return { stdout, write }
  }),
  ({ stdout, write }) =>
    Effect.sync(() => {
      stdout.write = write
    })
)

/**
 * Writes at once what the pipe takes and leaves the rest to the stream: libuv has made the pipe non-blocking, and a
 * write of its own costs a third of a stream's.
 */
const pipeOutput =
  (write: Write, isBehind: () => boolean): Write =>
  (bytes) => {
    if (isBehind()) return write(bytes)
    const written = writeNow(bytes)
    return written === bytes.length || write(bytes.subarray(written))
  }

const writeNow = (bytes: Uint8Array): number => {
  try {
    return writeSync(STDOUT, bytes)
  } catch (error) {
    // What is wrong, if it is more than a full pipe, the stream says in its own way.
    if (isErrno(error)) return 0
    throw error
  }
}

export const layer: Layer.Layer<Wire> = Layer.effect(
  Wire,
  Effect.gen(function* () {
    const { stdout, write } = yield* claimStdout
    const hungUp = yield* Deferred.make<void>()
    // A broken pipe: nobody is left to answer to.
    stdout.on("error", () => Deferred.doneUnsafe(hungUp, Effect.void))
    // Nobody reads what is logged: that is no reason to stop answering.
    process.stderr.on("error", () => {})

    const input = isPipe(STDIN) ? pipeInput() : streamInput()
    const streamOutput: Write = (bytes) => write.call(stdout, bytes)
    const output = isPipe(STDOUT) ? pipeOutput(streamOutput, () => stdout.writableLength > 0) : streamOutput
    return {
      listen: (listener) => {
        stdout.on("drain", listener.drained)
        input.listen(listener)
      },
      pause: input.pause,
      resume: input.resume,
      send: (text) => output(Buffer.from(text)),
      flushed: Effect.callback<void>((resume) => {
        write.call(stdout, "", "utf8", () => resume(Effect.void))
      }),
      hungUp: Deferred.await(hungUp)
    }
  })
)
