/** Cuts bytes into lines, in bounded memory. Pure; knows nothing of JSON. */

const NEWLINE = 10
/** Kept of a line that is too long, to find out whose it was. */
const HEAD_BYTES = 1024

export type Cut =
  | { readonly _tag: "Line"; readonly bytes: Uint8Array }
  /** Reported as soon as a line passes the limit; the rest of it is dropped as it comes. */
  | { readonly _tag: "TooLong"; readonly head: Uint8Array }

/**
 * Chunks are cut when a line is asked for, so that a reader that stops asking holds one chunk and no more. What was
 * pushed and what is cut from it are lent; `keep` makes the rest our own. The bytes of a line are without its newline.
 */
export class Lines {
  readonly #limit: number
  /** Parts of a line whose end has not come yet. */
  #parts: Array<Uint8Array> = []
  #partBytes = 0
  #discarding = false
  #chunks: Array<Uint8Array> = []
  #at = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  push(chunk: Uint8Array): void {
    if (chunk.length > 0) this.#chunks.push(chunk)
  }

  /** Copies what was pushed and not yet asked for. */
  keep(): void {
    this.#chunks = this.#chunks.map((chunk, index) => Buffer.from(chunk.subarray(index === 0 ? this.#at : 0)))
    this.#at = 0
  }

  /** The next cut, or undefined when more bytes are needed. */
  next(): Cut | undefined {
    for (;;) {
      const chunk = this.#chunks[0]
      if (chunk === undefined) return undefined
      const end = chunk.indexOf(NEWLINE, this.#at)
      const found = end >= 0
      const piece = chunk.subarray(this.#at, found ? end : chunk.length)
      if (found && end + 1 < chunk.length) this.#at = end + 1
      else {
        this.#chunks.shift()
        this.#at = 0
      }
      const cut = this.#take(piece, found)
      if (cut !== undefined) return cut
    }
  }

  /** What stands after the last newline, once no more bytes will come. */
  rest(): Cut | undefined {
    return this.#partBytes === 0 ? undefined : this.#take(new Uint8Array(0), true)
  }

  #take(piece: Uint8Array, complete: boolean): Cut | undefined {
    if (this.#discarding) {
      this.#discarding = !complete
      return undefined
    }
    const bytes = this.#partBytes + piece.length
    if (bytes > this.#limit) {
      const head = joined([...this.#parts, piece]).slice(0, HEAD_BYTES)
      this.#forget()
      this.#discarding = !complete
      return { _tag: "TooLong", head }
    }
    if (!complete) {
      this.#parts.push(Buffer.from(piece))
      this.#partBytes = bytes
      return undefined
    }
    const line = this.#parts.length === 0 ? piece : joined([...this.#parts, piece])
    this.#forget()
    return { _tag: "Line", bytes: line }
  }

  #forget(): void {
    this.#parts = []
    this.#partBytes = 0
  }
}

const joined = (parts: ReadonlyArray<Uint8Array>): Uint8Array => Buffer.concat(parts)
