/** The protocol's methods that only a database answers: runtime.md section 2, session-recovery.md sections 4 and 5. */
import {
  AcquireLeaseParams,
  HeldLease,
  LeaseHolder,
  LeaseHolderParams,
  ListSessionsParams,
  ListSessionsResult,
  MigrateParams,
  MigrateResult,
  ReleaseLeaseParams,
  ReleaseLeaseResult,
  RenewLeaseParams,
  SessionBinding,
  SessionLine,
  WriteSessionParams
} from "../contract/Database.ts"
import { Databases } from "../store/Databases.ts"
import { make } from "./Method.ts"

export const acquireLease = make("turn_lease.acquire", { params: AcquireLeaseParams, result: HeldLease }, (params) =>
  Databases.use((databases) => databases.acquire(params))
)

export const renewLease = make("turn_lease.renew", { params: RenewLeaseParams, result: HeldLease }, (params) =>
  Databases.use((databases) => databases.renew(params))
)

export const releaseLease = make(
  "turn_lease.release",
  { params: ReleaseLeaseParams, result: ReleaseLeaseResult },
  (params) => Databases.use((databases) => databases.release(params))
)

export const leaseHolder = make("turn_lease.holder", { params: LeaseHolderParams, result: LeaseHolder }, ({ path }) =>
  Databases.use((databases) => databases.holder(path))
)

export const readSession = make("turn_session.read", { params: SessionLine, result: SessionBinding }, (params) =>
  Databases.use((databases) => databases.readSession(params))
)

export const writeSession = make(
  "turn_session.write",
  { params: WriteSessionParams, result: SessionBinding },
  (params) => Databases.use((databases) => databases.writeSession(params))
)

export const listSessions = make(
  "turn_session.list",
  { params: ListSessionsParams, result: ListSessionsResult },
  (params) => Databases.use((databases) => databases.listSessions(params))
)

export const migrate = make("store.migrate", { params: MigrateParams, result: MigrateResult }, (params) =>
  Databases.use((databases) => databases.migrate(params.runtime_root))
)
