/** Turns in PostgreSQL, and in what speaks its protocol: the same turns as in files, for many hosts. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { type Database, type DatabaseOptions, type DatabaseService, DEFAULTS } from "../Databases.ts"
import { Driver, type Near, type Snapshot } from "../Driver.ts"
import type { StoreError } from "../Failure.ts"
import * as Place from "../Place.ts"
import * as Ahead from "./Ahead.ts"
import * as Leases from "./Leases.ts"
import * as Reading from "./Reading.ts"
import * as Schema from "./Schema.ts"
import * as Server from "./Server.ts"
import * as Sessions from "./Sessions.ts"
import { GOALS, TURNS, WANTED_TURNS } from "./Statements.ts"
import * as Writing from "./Writing.ts"

/** A driver for roots that are databases. */
export const layer = (options: Partial<DatabaseOptions> = {}): Layer.Layer<Driver> =>
  Layer.effect(
    Driver,
    Effect.gen(function* () {
      const { driver } = yield* make({ ...DEFAULTS, ...options }, yield* Effect.scope)
      return driver
    })
  )

export const make = (options: DatabaseOptions, scope: Scope.Scope): Effect.Effect<Database> =>
  Effect.sync(() => {
    const servers = makeServers(options, scope)
    return { driver: makeDriver(servers), service: makeService(servers) }
  })

interface Servers {
  /** The database of a root, whatever its tables are. */
  readonly any: (root: string) => Effect.Effect<Server.Server, StoreError>
  /** The database of a root, whose tables are the store's. */
  readonly ready: (root: string) => Effect.Effect<Server.Server, StoreError>
}

const makeServers = (options: DatabaseOptions, scope: Scope.Scope): Servers => {
  const connected = new Map<string, Server.Server>()
  const checked = new Map<string, Server.Server>()
  const inTurn = makeQueues()

  const any: Servers["any"] = (root) =>
    Effect.suspend(() => {
      const known = connected.get(root)
      if (known !== undefined) return Effect.succeed(known)
      const connect = Scope.provide(Server.connect(root, options), scope)
      return Effect.tap(connect, (server) => Effect.sync(() => connected.set(root, server)))
    })

  const check = (root: string) =>
    Effect.gen(function* () {
      const before = checked.get(root)
      if (before !== undefined) return before
      const server = yield* any(root)
      yield* Schema.check(server)
      checked.set(root, server)
      return server
    })

  return {
    any: (root) => inTurn(root, any(root)),
    ready: (root) => {
      const known = checked.get(root)
      return known === undefined ? inTurn(root, check(root)) : Effect.succeed(known)
    }
  }
}

const makeDriver = (servers: Servers): Driver["Service"] => {
  const reading = Reading.make()
  const writing = Writing.make(reading)
  // Writers of one turn in this process would only take it from each other.
  const inTurn = makeQueues()

  const at = <A, E>({ root }: Place.Place, call: (server: Server.Server) => Effect.Effect<A, E | StoreError>) =>
    Effect.flatMap(servers.ready(root ?? ""), call)
  const names = (root: string, statement: string, parameters: ReadonlyArray<unknown>) =>
    Effect.flatMap(servers.ready(root), (server) =>
      Effect.map(server.ask(statement, parameters), (rows) => rows.map((row) => String(Object.values(row)[0])).sort())
    )
  const snapshot: Driver["Service"]["snapshot"] = (place) => at(place, (server) => reading.snapshot(server, place))
  const near: Near = {
    // A turn whose journal is not there, or is none, is no turn that went away.
    glance: (place) =>
      Effect.flatMap(snapshot(place), (found) =>
        found !== null
          ? Effect.succeed(found)
          : at(place, (server) =>
              Effect.map(reading.load(server, place), ({ head, encoded }) =>
                encoded.snapshot === null && head > 0 ? NO_JOURNAL : encoded.snapshot
              )
            )
      ),
    scan: (place, visit, _mode) => at(place, (server) => reading.scan(server, place, visit))
  }

  return {
    snapshot,
    ...near,
    ahead: (places, what) => {
      const [first] = places
      return first === undefined ? Effect.succeed(near) : at(first, (server) => Ahead.read(server, places, what, near))
    },
    isDriven: (place) =>
      at(place, (server) => Effect.map(Leases.holder(server, place), ({ remaining_ms }) => remaining_ms > 0)),
    load: (place) => at(place, (server) => Effect.map(reading.load(server, place), ({ encoded }) => encoded)),
    transact: (place, decide, lease) =>
      at(place, (server) => inTurn(place.path, writing.transact(server, place, decide, lease))),
    goals: (root) => names(root, GOALS, []),
    turns: (root, goalId, wanted) =>
      wanted === undefined || (wanted.status === null && !wanted.open)
        ? names(root, TURNS, [goalId])
        : names(root, WANTED_TURNS, [goalId, wanted.status, wanted.open])
  }
}

/** What stands where a history has no journal. */
const NO_JOURNAL: Snapshot = { bytes: new Uint8Array(), updatedAt: 0 }

const makeService = (servers: Servers): DatabaseService => {
  const at = <A, E>(path: string, call: (server: Server.Server, place: Place.Place) => Effect.Effect<A, E>) =>
    Effect.flatMap(Effect.fromResult(Place.ofPath(path)), (place) =>
      Effect.flatMap(servers.ready(place.root ?? ""), (server) => call(server, place))
    )
  const isRoot = (root: string) => Result.map(Place.ofTurn(root, { goalId: "goal", turnKey: "turn" }), () => root)
  const within = <A, E>(root: string, call: (server: Server.Server) => Effect.Effect<A, E>) =>
    Effect.flatMap(Effect.fromResult(isRoot(root)), (root) => Effect.flatMap(servers.ready(root), call))
  return {
    acquire: (request) => at(request.path, (server, place) => Leases.acquire(server, place, request)),
    renew: (request) => at(request.path, (server, place) => Leases.renew(server, place, request)),
    release: (request) => at(request.path, (server, place) => Leases.release(server, place, request)),
    holder: (path) => at(path, Leases.holder),
    readSession: (request) => within(request.runtime_root, (server) => Sessions.read(server, request)),
    writeSession: (request) => within(request.runtime_root, (server) => Sessions.write(server, request)),
    listSessions: (request) => within(request.runtime_root, (server) => Sessions.list(server, request)),
    migrate: (root) =>
      Effect.flatMap(Effect.fromResult(isRoot(root)), (root) => Effect.flatMap(servers.any(root), Schema.migrate))
  }
}

/** Runs one effect of a name at a time. */
const makeQueues = () => {
  const queues = new Map<string, { readonly semaphore: Semaphore.Semaphore; users: number }>()
  return <A, E>(name: string, work: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.suspend(() => {
      const queue = queues.get(name) ?? { semaphore: Semaphore.makeUnsafe(1), users: 0 }
      queues.set(name, queue)
      queue.users++
      const leave = Effect.sync(() => {
        if (--queue.users === 0) queues.delete(name)
      })
      return Effect.ensuring(queue.semaphore.withPermits(1)(work), leave)
    })
}
