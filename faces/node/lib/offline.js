"use strict"

// What is done to a store's files without opening it: verify, back up, put back, take apart.

const binding = require("./binding.js")
const { path } = require("./arguments.js")
const { settled, typed } = require("./error.js")

/** Every batch of every segment, without opening the store for writing. */
async function verify(at) {
  return settled(binding.verify(path(at)))
}

/** Backs up the store in one directory, which may be open, to another. */
async function backup(from, to) {
  return settled(binding.backup(path(from), path(to)))
}

/** A backup is verified and put back. */
async function restore(from, to) {
  return settled(binding.restore(path(from), path(to)))
}

/** What stands in a store or a segment file, piece by piece. */
function parse(at) {
  return new Parse(new binding.NativeParse(path(at)))
}

const OVER = Object.freeze({ value: undefined, done: true })

/** Pieces as they are asked for; some of them cross over at a time. */
class Parse {
  constructor(parse) {
    this.parse = parse
    this.pieces = []
    this.at = 0
    this.failure = null
    // Calls that are made before there was an answer are answered in turn.
    this.turn = Promise.resolve()
  }

  next() {
    const answer = this.turn.then(() => this.advance())
    this.turn = answer.catch(() => {})
    return answer
  }

  return() {
    this.parse = null
    this.pieces = []
    this.failure = null
    return Promise.resolve(OVER)
  }

  [Symbol.asyncIterator]() {
    return this
  }

  async advance() {
    if (this.at === this.pieces.length && this.failure === null) await this.fetch()
    if (this.at < this.pieces.length) return { value: this.pieces[this.at++], done: false }
    const { failure } = this
    if (failure === null) return OVER
    this.failure = null
    throw typed(failure)
  }

  async fetch() {
    const { parse } = this
    if (parse === null) return
    const { pieces, failure = null } = await settled(parse.next())
    if (this.parse === null) return
    this.pieces = pieces
    this.at = 0
    this.failure = failure === null ? null : { message: failure }
    if (pieces.length === 0 && failure === null) this.parse = null
  }
}

module.exports = { backup, parse, restore, verify }
