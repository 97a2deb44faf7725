/**
 * A map that keeps what was set or asked for last: up to a number of entries, and half of it for sure. What it forgets
 * can be found out again.
 */
export class Recent<K, V> {
  readonly #half: number
  // In two halves, of which the older one goes when the newer one is full: nothing is ever looked for to be removed.
  #newer = new Map<K, V>()
  #older = new Map<K, V>()

  constructor(capacity: number) {
    this.#half = Math.ceil(capacity / 2)
  }

  get(key: K): V | undefined {
    const value = this.#newer.get(key)
    if (value !== undefined) return value
    const old = this.#older.get(key)
    if (old !== undefined) this.set(key, old)
    return old
  }

  set(key: K, value: V): void {
    if (this.#newer.size >= this.#half && !this.#newer.has(key)) {
      this.#older = this.#newer
      this.#newer = new Map()
    }
    this.#newer.set(key, value)
  }

  delete(key: K): void {
    this.#newer.delete(key)
    this.#older.delete(key)
  }
}
