/** A network between the store and its database that is cut where a test wants it. */
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net"
import * as Effect from "effect/Effect"

/**
 * What becomes of the next thing that is said to the database: it is lost on its way; it arrives, and the answer is
 * lost; it arrives, and the database never learns that nobody listens any more.
 */
export type Cut = "before" | "after" | "forgotten"

export interface Network {
  /** The URL through this network. */
  readonly url: string
  /** Cuts the connection at the next thing that is said, or at a later one. */
  readonly cut: (cut: Cut, after?: number) => void
  /** Loses everything that has a text in it, and the connection with it. */
  readonly lose: (text: string) => void
  /** How many messages went to the database so far; statements that are sent in one go are one. */
  readonly said: () => number
  /** Whether new connections are let through. */
  readonly open: (open: boolean) => void
}

export const networkTo = (target: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => listen(new URL(target))),
      ({ close }) => Effect.promise(close)
    ),
    (made): Network => made
  )

const listen = async (target: URL) => {
  let next: Cut | null = null
  let before = 0
  let lost: string | null = null
  let isOpen = true
  let messages = 0
  const sockets = new Set<Socket>()

  const server = createServer((client) => {
    if (!isOpen) {
      client.destroy()
      return
    }
    const database = createConnection(Number(target.port), target.hostname)
    for (const socket of [client, database]) {
      sockets.add(socket)
      socket.on("error", () => socket.destroy())
      socket.on("close", () => sockets.delete(socket))
    }
    let isCut = false
    let listens = true
    client.on("data", (said) => {
      if (isCut) return
      messages++
      if (lost !== null && said.includes(lost)) next = "before"
      else if (next === null || before-- > 0) {
        database.write(said)
        return
      }
      const cut = next
      next = null
      if (cut !== "before") database.write(said)
      if (cut === "after") listens = false
      else {
        isCut = true
        client.destroy()
        if (cut === "before") database.destroy()
      }
    })
    database.on("data", (answer) => {
      if (isCut) return
      if (listens) {
        client.write(answer)
        return
      }
      isCut = true
      client.destroy()
      database.destroy()
    })
    client.on("close", () => isCut || database.destroy())
    database.on("close", () => client.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const url = new URL(target)
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    cut: (cut: Cut, after = 0) => {
      next = cut
      before = after
    },
    lose: (text: string) => {
      lost = text
    },
    said: () => messages,
    open: (open: boolean) => {
      isOpen = open
    },
    close: () =>
      new Promise<void>((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      })
  }
}
