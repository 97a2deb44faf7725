/**
 * Turns in databases beside turns in folders: the root says which. What speaks to a database is loaded when the first
 * such root is asked for, so that who has folders pays nothing for it.
 */
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type { Scope } from "effect/Scope"
import type {
  AcquireLeaseParams,
  HeldLease,
  LeaseHolder,
  ListSessionsParams,
  ListSessionsResult,
  MigrateResult,
  ReleaseLeaseParams,
  ReleaseLeaseResult,
  RenewLeaseParams,
  SessionBinding,
  SessionLine,
  WriteSessionParams
} from "../contract/Database.ts"
import { InvalidJournal, type JournalConflict } from "../contract/Errors.ts"
import { Driver } from "./Driver.ts"
import type { StoreError } from "./Failure.ts"
import * as Place from "./Place.ts"

type Answer<A, E = never> = Effect.Effect<A, E | StoreError | InvalidJournal>

/** What a database answers beside what every driver does. */
export interface DatabaseService {
  readonly acquire: (request: AcquireLeaseParams) => Answer<HeldLease>
  readonly renew: (request: RenewLeaseParams) => Answer<HeldLease, JournalConflict>
  readonly release: (request: ReleaseLeaseParams) => Answer<ReleaseLeaseResult>
  readonly holder: (path: string) => Answer<LeaseHolder>
  /** What is known of the session of a line of work. */
  readonly readSession: (request: SessionLine) => Answer<SessionBinding>
  readonly writeSession: (request: WriteSessionParams) => Answer<SessionBinding>
  readonly listSessions: (request: ListSessionsParams) => Answer<ListSessionsResult>
  /** Brings the schema up to what this version needs. */
  readonly migrate: (root: string) => Answer<MigrateResult>
}

export interface DatabaseOptions {
  /** The connections that are kept open to a database, and the most that are opened. */
  readonly minConnections: number
  readonly maxConnections: number
  /** Seconds after which a connection that nobody used is closed, but for those that are kept. */
  readonly idle: number
  /** Seconds that a statement may take, and that a call waits for a server that does not answer. */
  readonly timeout: number
}

export const DEFAULTS: DatabaseOptions = { minConnections: 0, maxConnections: 10, idle: 120, timeout: 10 }

const Connections = Schema.Int.check(Schema.isGreaterThan(0))
const Seconds = Schema.Finite.check(Schema.isGreaterThan(0))
const { withDefault, schema } = Config

const configured: Config.Config<DatabaseOptions> = Config.unwrap({
  minConnections: withDefault(schema(Connections, "TURN_JOURNAL_POSTGRES_MIN_CONNECTIONS"), DEFAULTS.minConnections),
  maxConnections: withDefault(schema(Connections, "TURN_JOURNAL_POSTGRES_MAX_CONNECTIONS"), DEFAULTS.maxConnections),
  idle: Config.succeed(DEFAULTS.idle),
  timeout: withDefault(schema(Seconds, "TURN_JOURNAL_POSTGRES_TIMEOUT"), DEFAULTS.timeout)
})

/** A database's driver, and what else it answers. */
export interface Database {
  readonly driver: Driver["Service"]
  readonly service: DatabaseService
}

export class Databases extends Context.Service<Databases, DatabaseService>()("turn-journal-core/store/Databases") {
  /** Folders are kept by the driver below; databases by their own, which is loaded for the first of them. */
  static readonly layer: Layer.Layer<Databases | Driver, Config.ConfigError, Driver> = Layer.effectContext(
    Effect.gen(function* () {
      const folders = yield* Driver
      const options = yield* configured
      const scope = yield* Effect.scope
      const database = yield* Effect.cached(load(options, scope))
      return Context.make(Driver, route(folders, database)).pipe(Context.add(Databases, refuseFolders(database)))
    })
  )
}

const load = (options: DatabaseOptions, scope: Scope): Effect.Effect<Database> =>
  Effect.flatMap(
    Effect.promise(() => import("./postgres/PostgresDriver.ts")),
    ({ make }) => make(options, scope)
  )

const route = (folders: Driver["Service"], database: Effect.Effect<Database>): Driver["Service"] => {
  const at = <A, E>(where: string, call: (driver: Driver["Service"]) => Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Place.isDatabase(where) ? Effect.flatMap(database, ({ driver }) => call(driver)) : call(folders)
  return {
    snapshot: (place) => at(place.path, (driver) => driver.snapshot(place)),
    load: (place) => at(place.path, (driver) => driver.load(place)),
    scan: (place, visit, mode) => at(place.path, (driver) => driver.scan(place, visit, mode)),
    transact: (place, decide, lease) => at(place.path, (driver) => driver.transact(place, decide, lease)),
    goals: (root) => at(root, (driver) => driver.goals(root)),
    turns: (root, goalId, wanted) => at(root, (driver) => driver.turns(root, goalId, wanted)),
    glance: (place) => at(place.path, (driver) => driver.glance(place)),
    ahead: (places, what) => at(places[0]?.path ?? "", (driver) => driver.ahead(places, what)),
    isDriven: (place) => at(place.path, (driver) => driver.isDriven(place))
  }
}

const refuseFolders = (database: Effect.Effect<Database>): DatabaseService => {
  const at = <A, E>(
    field: string,
    where: string,
    call: (service: DatabaseService) => Effect.Effect<A, E>
  ): Effect.Effect<A, E | InvalidJournal> =>
    Place.isDatabase(where)
      ? Effect.flatMap(database, ({ service }) => call(service))
      : Effect.fail(
          new InvalidJournal({
            kind: "invalid_request",
            message:
              "Only a database has tables to make, leases and sessions to ask for, and this is a folder, which needs none of it. Give postgresql://….",
            details: { field }
          })
        )
  return {
    acquire: (request) => at("path", request.path, (service) => service.acquire(request)),
    renew: (request) => at("path", request.path, (service) => service.renew(request)),
    release: (request) => at("path", request.path, (service) => service.release(request)),
    holder: (path) => at("path", path, (service) => service.holder(path)),
    readSession: (request) => at("runtime_root", request.runtime_root, (service) => service.readSession(request)),
    writeSession: (request) => at("runtime_root", request.runtime_root, (service) => service.writeSession(request)),
    listSessions: (request) => at("runtime_root", request.runtime_root, (service) => service.listSessions(request)),
    migrate: (root) => at("runtime_root", root, (service) => service.migrate(root))
  }
}
