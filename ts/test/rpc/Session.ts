/** One conversation with the core: in memory, or with the built bundle as a process. The tests see no difference. */
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { layerStore } from "../../src/NodeRuntime.ts"
import { Core } from "../../src/rpc/Core.ts"
import { Limits } from "../../src/rpc/Limits.ts"
import { Lines } from "../../src/rpc/Lines.ts"
import type { Method } from "../../src/rpc/Method.ts"
import { serve } from "../../src/rpc/Server.ts"
import { type Listener, Wire } from "../../src/rpc/Wire.ts"

export interface Session {
  readonly send: (bytes: Uint8Array | string) => void
  /** The next line that the core says, without its newline; null when it says no more. */
  readonly next: () => Promise<string | null>
  /** Closes the core's input. */
  readonly close: () => void
  /** The exit code, once the core has ended. */
  readonly ended: Promise<number>
}

/** The file store, as the process has it. */
export const store = Layer.orDie(Layer.provide(layerStore, Layer.succeed(Limits, Limits.defaults)))

/** What was said and not yet heard. */
class Mailbox {
  readonly #lines = new Lines(Number.MAX_SAFE_INTEGER)
  #closed = false
  #waiting: Array<() => void> = []

  put(bytes: Uint8Array): void {
    this.#lines.push(bytes)
    this.#wake()
  }

  close(): void {
    this.#closed = true
    this.#wake()
  }

  async next(): Promise<string | null> {
    for (;;) {
      const cut = this.#lines.next()
      if (cut?._tag === "Line") return new TextDecoder("utf-8", { fatal: true }).decode(cut.bytes)
      if (this.#closed) return null
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  #wake(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const resolve of waiting) resolve()
  }
}

const bytesOf = (bytes: Uint8Array | string): Uint8Array => (typeof bytes === "string" ? Buffer.from(bytes) : bytes)

/** A wire whose peer is this test. */
export class MemoryWire {
  readonly heard = new Mailbox()
  paused = false
  /** Set to make the peer look busy: what is sent is kept, and the server is told to wait. */
  busy = false
  #listener: Listener | undefined
  #waiting: Array<(() => void) | Uint8Array> = []

  readonly layer = Layer.succeed(Wire, {
    listen: (listener) => {
      this.#listener = listener
      this.#deliver()
    },
    pause: () => {
      this.paused = true
    },
    resume: () => {
      this.paused = false
      queueMicrotask(() => this.#deliver())
    },
    send: (text) => {
      this.heard.put(Buffer.from(text))
      return !this.busy
    },
    flushed: Effect.suspend(() => (this.busy ? Effect.never : Effect.void)),
    hungUp: Effect.suspend(() => Deferred.await(this.#hungUp))
  })
  readonly #hungUp = Deferred.makeUnsafe<void>()

  hangUp(): void {
    Deferred.doneUnsafe(this.#hungUp, Effect.void)
  }

  say(bytes: Uint8Array | string): void {
    this.#waiting.push(bytesOf(bytes))
    this.#deliver()
  }

  end(): void {
    this.#waiting.push(() => this.#listener?.end())
    this.#deliver()
  }

  catchUp(): void {
    this.busy = false
    this.#listener?.drained()
  }

  #deliver(): void {
    while (this.#listener !== undefined && !this.paused) {
      const item = this.#waiting.shift()
      if (item === undefined) return
      if (typeof item === "function") item()
      else {
        const lent = Buffer.from(item)
        this.#listener.chunk(lent)
        lent.fill(0)
      }
    }
  }
}

export const inMemory = <R>(
  methods: ReadonlyArray<Method<R | Core | Limits>>,
  services: Layer.Layer<R>,
  {
    limits = Limits.defaults,
    context = Context.empty()
  }: { limits?: Limits["Service"]; context?: Context.Context<never> } = {}
): Session & { readonly wire: MemoryWire } => {
  const wire = new MemoryWire()
  const program = Effect.provide(
    serve(methods),
    Layer.mergeAll(Core.layer, Layer.succeed(Limits, limits), wire.layer, services)
  )
  const fiber = Effect.runForkWith(context)(program)
  const ended = Effect.runPromise(Fiber.join(fiber)).then(() => {
    wire.heard.close()
    return 0
  })
  return {
    wire,
    send: (bytes) => wire.say(bytes),
    next: () => wire.heard.next(),
    close: () => wire.end(),
    ended
  }
}

export const BUNDLE = fileURLToPath(new URL("../../../dist/core.mjs", import.meta.url))

export interface ProcessSession extends Session {
  readonly pid: number
  /** Stops listening to what the core says. */
  readonly hangUp: () => void
  readonly stderr: () => string
  /** Stops reading what the core logs. */
  readonly closeStderr: () => void
}

/** `nodeFlags` stand before the bundle, `late` keeps what the core says in its pipe until `next` asks for it. */
export const overPipes = ({
  nodeFlags = [],
  late = false
}: {
  nodeFlags?: ReadonlyArray<string>
  late?: boolean
} = {}): ProcessSession => {
  if (!existsSync(BUNDLE)) throw new Error(`${BUNDLE} is missing: run \`npm run build\``)
  const child = spawn(process.execPath, [...nodeFlags, BUNDLE, "serve"], { stdio: "pipe" })
  const heard = new Mailbox()
  let listening = false
  const listen = () => {
    if (listening) return
    listening = true
    child.stdout.on("data", (bytes: Buffer) => heard.put(bytes))
    child.stdout.on("end", () => heard.close())
  }
  if (!late) listen()
  let stderr = ""
  child.stderr.on("data", (bytes: Buffer) => {
    stderr += bytes.toString()
  })
  // A core that has ended does not take what is sent afterwards.
  child.stdin.on("error", () => {})
  return {
    pid: child.pid ?? -1,
    send: (bytes) => {
      child.stdin.write(bytesOf(bytes))
    },
    next: () => {
      listen()
      return heard.next()
    },
    close: () => {
      child.stdin.end()
    },
    hangUp: () => {
      child.stdout.destroy()
    },
    stderr: () => stderr,
    closeStderr: () => {
      child.stderr.destroy()
    },
    ended: new Promise((resolve) => child.on("close", (code) => resolve(code ?? -1)))
  }
}
