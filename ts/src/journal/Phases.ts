/** The phases of a turn and what each status says of them: turn-journal.md sections 1, 3 (8 and 9) and 7. */
import type { JsonObject, JsonValue } from "../contract/Json.ts"
import { TERMINAL_CLOSEOUT, TRANSACTION_PHASES } from "../contract/Names.ts"
import { get, has, isIdentity, isText, textOf } from "./Value.ts"

/** Where `scheduler_apply`, and with it `terminal_closeout`, stands. */
const CLOSEOUT_INDEX = TRANSACTION_PHASES.indexOf("scheduler_apply")

export interface PhasePlan {
  readonly phases: ReadonlyArray<string>
  /** The phases that call the host. */
  readonly hostPhases: ReadonlyArray<string>
  /** Whether the phases are the plan's own instead of the transaction's. */
  readonly custom: boolean
  /** Whether what the plan says of its phases is malformed; the defaults are used then. */
  readonly malformed: boolean
}

export const TRANSACTION_PLAN: PhasePlan = {
  phases: TRANSACTION_PHASES,
  hostPhases: ["host_execute", "typed_result"],
  custom: false,
  malformed: false
}

/** The phases that a plain turn's plan names. */
export const plainPhasePlan = (plan: JsonObject): PhasePlan => {
  const named = has(plan, "phases") ? distinctTexts(get(plan, "phases")) : TRANSACTION_PHASES
  const phases = named ?? TRANSACTION_PHASES
  const custom = phases.length !== TRANSACTION_PHASES.length || !isPrefix(phases, TRANSACTION_PHASES)
  const defaults = custom ? phases.slice(0, 1) : TRANSACTION_PLAN.hostPhases
  const hosts = has(plan, "host_phases") ? subset(get(plan, "host_phases"), phases) : defaults
  return { phases, hostPhases: hosts ?? defaults, custom, malformed: named === null || hosts === null }
}

const distinctTexts = (value: JsonValue | undefined): ReadonlyArray<string> | null => {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isIdentity)) return null
  return new Set(value).size === value.length ? value : null
}

const subset = (value: JsonValue | undefined, phases: ReadonlyArray<string>): ReadonlyArray<string> | null =>
  Array.isArray(value) && value.every((phase) => isText(phase) && phases.includes(phase)) ? value : null

/** The completed phases as texts; null when they are no array. */
export const completedTexts = (journal: JsonObject): ReadonlyArray<string> | null => {
  const completed = get(journal, "completed_phases")
  return Array.isArray(completed) ? completed.map(textOf) : null
}

export const isPrefix = (texts: ReadonlyArray<string>, phases: ReadonlyArray<string>): boolean =>
  texts.length <= phases.length && texts.every((text, index) => text === phases[index])

/** The place of a step among the phases; null when the plan has no such step. */
export const indexOfStep = (plan: PhasePlan, step: string): number | null => {
  if (!plan.custom && step === TERMINAL_CLOSEOUT) return CLOSEOUT_INDEX
  const index = plan.phases.indexOf(step)
  return index < 0 ? null : index
}

export interface StatusRule {
  readonly open: boolean
  /** Whether a journal of that status may have so many phases completed. */
  readonly fits: (count: number, plan: PhasePlan, failedPhase: JsonValue | undefined) => boolean
}

const failedAtNext: StatusRule["fits"] = (count, plan, failedPhase) =>
  isText(failedPhase) &&
  (failedPhase === plan.phases[count] ||
    (!plan.custom && failedPhase === TERMINAL_CLOSEOUT && count === CLOSEOUT_INDEX))

const TRANSACTION_STATUSES: ReadonlyMap<string, StatusRule> = new Map<string, StatusRule>([
  ["in_progress", { open: true, fits: (count) => count <= 5 }],
  ["scheduler_action_required", { open: true, fits: (count) => count === 5 }],
  ["committed", { open: false, fits: (count, plan) => count === plan.phases.length }],
  ["stopped", { open: false, fits: (count) => count === 3 }],
  ["failed", { open: false, fits: failedAtNext }]
])

const PLAIN_STATUSES: ReadonlyMap<string, StatusRule> = new Map<string, StatusRule>([
  ...TRANSACTION_STATUSES,
  ["started", { open: true, fits: (count) => count === 0 }],
  ["stopped", { open: false, fits: () => true }]
])

const CUSTOM_STATUSES: ReadonlyMap<string, StatusRule> = new Map<string, StatusRule>([
  ...[...PLAIN_STATUSES].filter(([status]) => status !== "scheduler_action_required"),
  ["in_progress", { open: true, fits: () => true }]
])

/** The rule of a status; undefined when this kind of turn has no such status. */
export const statusRule = (status: string, plain: boolean, plan: PhasePlan): StatusRule | undefined =>
  (plan.custom ? CUSTOM_STATUSES : plain ? PLAIN_STATUSES : TRANSACTION_STATUSES).get(status)

/** The status as text; `""` when it is null, false, 0 or `""`. */
export const statusText = (journal: JsonObject): string => {
  const status = get(journal, "status")
  return status === undefined || status === null || status === false || status === 0 ? "" : textOf(status)
}
