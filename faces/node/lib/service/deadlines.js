"use strict"

// Calls that wait, by when their time is over: a binary heap, the earliest first. Each call keeps its own place in it, so that one
// which leaves earlier is taken out at the cost of the heap's depth, however many wait.

class Deadlines {
  constructor() {
    this.calls = []
  }

  /** When the earliest is due; Infinity when none is. */
  get due() {
    return this.calls.length === 0 ? Infinity : this.calls[0].due
  }

  /** The one that is due first; undefined when there is none. */
  get first() {
    return this.calls[0]
  }

  add(call) {
    this.calls.push(call)
    this.rise(call, this.calls.length - 1)
  }

  remove(call) {
    const { place } = call
    const last = this.calls.pop()
    if (last === call) return
    if (place > 0 && this.calls[(place - 1) >> 1].due > last.due) this.rise(last, place)
    else this.sink(last, place)
  }

  rise(call, place) {
    const { calls } = this
    while (place > 0) {
      const above = (place - 1) >> 1
      if (calls[above].due <= call.due) break
      this.put(calls[above], place)
      place = above
    }
    this.put(call, place)
  }

  sink(call, place) {
    const { calls } = this
    for (;;) {
      let below = 2 * place + 1
      if (below >= calls.length) break
      if (below + 1 < calls.length && calls[below + 1].due < calls[below].due) below++
      if (calls[below].due >= call.due) break
      this.put(calls[below], place)
      place = below
    }
    this.put(call, place)
  }

  put(call, place) {
    this.calls[place] = call
    call.place = place
  }
}

module.exports = { Deadlines }
