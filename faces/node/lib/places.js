"use strict"

// Where offsets of a log lie, as far as reads came by them: one entry for a block of offsets, so it takes little, and a walk from there
// is short. What was learnt holds as long as the list of segments does.

const BLOCK_BYTES = 4096
const SLOTS = 512
const FIELDS = 3

class Places {
  constructor() {
    // Of each slot a block, the offset of an entry that begins in it or before it, and the entry's position.
    this.slots = null
    this.generation = -1
  }

  /** The position of an entry that holds an offset or lies shortly before it; undefined when none is known. */
  find(offset, generation) {
    const { slots } = this
    if (slots === null || this.generation !== generation) return undefined
    const block = Math.floor(offset / BLOCK_BYTES)
    const slot = (block % SLOTS) * FIELDS
    return slots[slot] === block && slots[slot + 1] <= offset ? slots[slot + 2] : undefined
  }

  /** What holds an offset that was sought is the entry of another, at a position. */
  note(sought, offset, position, generation) {
    if (this.slots === null) this.slots = new Float64Array(FIELDS * SLOTS)
    if (this.generation !== generation) this.slots.fill(-1)
    this.generation = generation
    const block = Math.floor(sought / BLOCK_BYTES)
    const slot = (block % SLOTS) * FIELDS
    this.slots[slot] = block
    this.slots[slot + 1] = offset
    this.slots[slot + 2] = position
  }
}

module.exports = { Places }
