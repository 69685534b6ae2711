// Debian's package index as records. apt keeps its lists compressed in whatever way it was told to; its own
// helper unpacks all of them.

import { execFileSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"

const LISTS = "/var/lib/apt/lists"
const HELPER = "/usr/lib/apt/apt-helper"
const BUFFER_MAX = 1 << 30

const lists = () =>
  existsSync(LISTS) ? readdirSync(LISTS).filter((name) => /_Packages(\.\w+)?$/.test(name)).sort() : []

/** The text of all lists, fetched first if there are none and we may. */
function text() {
  if (!existsSync(HELPER)) throw new Error("this is no Debian: apt is missing, and its package lists with it")
  if (lists().length === 0 && process.getuid() === 0) execFileSync("apt-get", ["update"], { stdio: "ignore" })
  const names = lists()
  if (names.length === 0) throw new Error(`no package lists in ${LISTS}: run "apt-get update" as root`)
  const paths = names.map((name) => join(LISTS, name))
  return paths.map((path) => execFileSync(HELPER, ["cat-file", path], { maxBuffer: BUFFER_MAX }).toString()).join("\n")
}

/** One stanza as an object: `Field: value`, with continuation lines that begin with a blank. */
export function parse(stanza) {
  const record = {}
  let field
  for (const line of stanza.split("\n")) {
    if (/^[ \t]/.test(line)) {
      if (field === undefined) throw new Error(`a continuation of nothing: ${line}`)
      record[field] += `\n${line}`
      continue
    }
    const colon = line.indexOf(":")
    if (colon < 1) throw new Error(`not a field: ${line}`)
    field = line.slice(0, colon)
    record[field] = line.slice(colon + 1).trimStart()
  }
  return record
}

/** All records, in the order of the lists, as parsed and as the JSON text that is appended. */
export function records(limit = Infinity) {
  const stanzas = text().split(/\n{2,}/).filter((stanza) => stanza.trim() !== "")
  return stanzas.slice(0, limit).map((stanza) => JSON.stringify(parse(stanza.replace(/^\n+|\n+$/g, ""))))
}
