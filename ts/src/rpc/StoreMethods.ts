/** The protocol's methods on a store of turns: runtime.md sections 2 and 6. */
import {
  CopyParams,
  CopyResult,
  FindPrunedParams,
  FindPrunedResult,
  FindSettlementParams,
  FindSettlementResult,
  HeadsParams,
  HeadsResult,
  HistoryParams,
  HistoryResult,
  ListParams,
  ListResult,
  PruneParams,
  PruneResult,
  RecoverableParams,
  RecoverableResult,
  RepairParams,
  RepairResult,
  VerifyParams,
  VerifyResult
} from "../contract/Store.ts"
import { JournalStore } from "../store/JournalStore.ts"
import type { Range } from "../store/Walk.ts"
import { make } from "./Method.ts"

type RangeParams = Pick<typeof HeadsParams.Type, "runtime_root" | "goal_id" | "after" | "limit">

const rangeOf = (params: RangeParams): Range => ({
  runtimeRoot: params.runtime_root,
  goalId: params.goal_id,
  after: params.after,
  limit: params.limit
})

export const history = make("turn_journal.history", { params: HistoryParams, result: HistoryResult }, (params) =>
  JournalStore.use((store) => store.history(params))
)

export const findSettlement = make(
  "turn_journal.find_settlement",
  { params: FindSettlementParams, result: FindSettlementResult },
  (params) =>
    JournalStore.use((store) =>
      store.findSettlement({
        runtimeRoot: params.runtime_root,
        goalId: params.goal_id,
        agentId: params.agent_id,
        todoId: params.todo_id,
        turnInstanceId: params.turn_instance_id
      })
    )
)

export const list = make("turn_journal.list", { params: ListParams, result: ListResult }, (params) =>
  JournalStore.use((store) => store.list({ ...rangeOf(params), status: params.status }))
)

export const recoverable = make(
  "turn_journal.recoverable",
  { params: RecoverableParams, result: RecoverableResult },
  (params) => JournalStore.use((store) => store.recoverable({ ...rangeOf(params), retryFailed: params.retry_failed }))
)

export const verify = make("turn_journal.verify", { params: VerifyParams, result: VerifyResult }, (params) =>
  JournalStore.use((store) => store.verify({ ...rangeOf(params), turnKey: params.turn_key, heads: params.heads }))
)

export const heads = make("turn_journal.heads", { params: HeadsParams, result: HeadsResult }, (params) =>
  JournalStore.use((store) => store.heads(rangeOf(params)))
)

export const prune = make("turn_journal.prune", { params: PruneParams, result: PruneResult }, (params) =>
  JournalStore.use((store) =>
    store.prune({
      ...rangeOf(params),
      olderThan: params.older_than,
      keep: params.keep,
      givenUp: params.given_up,
      dryRun: params.dry_run
    })
  )
)

export const findPruned = make(
  "turn_journal.find_pruned",
  { params: FindPrunedParams, result: FindPrunedResult },
  (params) =>
    JournalStore.use((store) =>
      store.findPruned({ runtimeRoot: params.runtime_root, goalId: params.goal_id, turnKeys: params.turn_keys })
    )
)

export const copy = make("store.copy", { params: CopyParams, result: CopyResult }, (params) =>
  JournalStore.use((store) =>
    store.copy({ ...rangeOf(params), targetRoot: params.target_root, verifyOnly: params.verify_only })
  )
)

export const repair = make("turn_journal.repair", { params: RepairParams, result: RepairResult }, (params) =>
  JournalStore.use((store) => store.repair(params))
)
