/** Serves a table of methods on a wire: reading, holding back, answering, and the end. runtime.md, section 1. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import { Core } from "./Core.ts"
import * as Dispatcher from "./Dispatcher.ts"
import { encodeNotification } from "./JsonRpc.ts"
import { Limits } from "./Limits.ts"
import { type Cut, Lines } from "./Lines.ts"
import type { Method } from "./Method.ts"
import { Wire } from "./Wire.ts"

/** What stands around a journal in a line, and what escapes may add to it. */
export const ENVELOPE_BYTES = 64 * 1024
/** How long the calls in flight may take when the peer has left or asked to stop. */
export const DRAIN_TIME = "5 seconds"
/** Answers are gathered while lines are at hand, and sent together; not longer than this. */
const SEND_AT = 64 * 1024

/** Ends when the peer has closed its side or somebody has asked the core to stop, and all that was asked is answered. */
export const serve = Effect.fnUntraced(function* <R>(methods: ReadonlyArray<Method<R>>) {
  const wire = yield* Wire
  const core = yield* Core
  const limits = yield* Limits
  const dispatcher = yield* Dispatcher.make(methods, limits)
  const ended = yield* Deferred.make<void>()

  const lines = new Lines(limits.journalBytes + ENVELOPE_BYTES)
  let outbox = ""
  let peerBehind = false
  let atEnd = false
  let stopped = false
  let pumping = false
  let woken = false
  let idle: (() => void) | null = null

  const flush = () => {
    if (outbox === "") return
    const text = outbox
    outbox = ""
    peerBehind = !wire.send(text)
  }

  const answer: Dispatcher.Answer = (line) => {
    if (line !== null) outbox += `${line}\n`
    if (pumping) {
      if (outbox.length >= SEND_AT) flush()
    } else if (!woken) {
      woken = true
      queueMicrotask(pump)
    }
  }

  const work = (cut: Cut) => {
    if (cut._tag === "Line") dispatcher.line(cut.bytes, answer)
    else dispatcher.tooLong(cut.head, answer)
  }

  const blocked = () => stopped || peerBehind || dispatcher.open() >= limits.queuedRequests

  /** Works on what has come until there is nothing left or the peer has to wait, and sends what is answered. */
  const pump = () => {
    if (pumping) return
    pumping = true
    woken = false
    let exhausted = false
    while (!exhausted && !blocked()) {
      const cut = lines.next() ?? (atEnd ? lines.rest() : undefined)
      if (cut === undefined) exhausted = true
      else work(cut)
    }
    flush()
    pumping = false
    if (blocked()) wire.pause()
    else wire.resume()
    if (idle !== null && dispatcher.open() === 0 && (exhausted || stopped)) idle()
  }

  wire.send(`${encodeNotification("runtime.ready", core.ready)}\n`)
  wire.listen({
    chunk: (bytes) => {
      lines.push(bytes)
      pump()
      lines.keep()
    },
    end: () => {
      atEnd = true
      Deferred.doneUnsafe(ended, Effect.void)
    },
    drained: () => {
      peerBehind = false
      pump()
    }
  })

  const finished = Effect.callback<void>((resume) => {
    idle = () => resume(Effect.void)
    pump()
  })

  const untilEnd = Effect.gen(function* () {
    yield* Effect.raceFirst(Deferred.await(ended), core.stopped)
    stopped = !atEnd
    yield* Effect.timeoutOption(Effect.andThen(finished, wire.flushed), DRAIN_TIME)
  })
  // Nobody is left to answer to: what is in flight may be cut off, a commit is whole or not there.
  yield* Effect.raceFirst(untilEnd, wire.hungUp)
  yield* dispatcher.abandon
})
