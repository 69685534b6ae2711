// What a user of the package sees. Times are microseconds since the Unix epoch.

/// <reference types="node" />

import type { ServiceCode, SpawnCode } from "./service.js"
import type { StateCode } from "./state.js"

/** What can go wrong: a code, and what it means. */
export const CODES: Readonly<Record<ErrorCode, string>>

export type ErrorCode =
  | "BAD_ARGUMENT"
  | "BAD_NAME"
  | "CLOSED"
  | "CONFLICT"
  | "DAMAGED"
  | "DELETED"
  | "EMPTY_ENTRY"
  | "FAILED"
  | "FULL"
  | "HELD"
  | "IN_MEMORY"
  | "IO"
  | "LOG_CLOSED"
  | "NEWER"
  | "NO_LOG"
  | "NOT_A_STORE"
  | "NOT_CLOSED"
  | "OCCUPIED"
  | "PENDING"
  | "READ_ONLY"
  | "TOO_LARGE"
  | "TRANSACTION_OVER"
  | "UNSUPPORTED"

/** The code of any error of the package: of the log, of services, of programs that are started, of JSON-RPC, of the state. */
export type AnyCode = ErrorCode | ServiceCode | SpawnCode | "REMOTE_ERROR" | StateCode

/** Every error that this package throws or rejects with. */
export class ThalwegError extends Error {
  /** Made by this package alone. */
  protected constructor()
  readonly name: string
  /** Of the log's errors an `ErrorCode`; those of services, JSON-RPC and the state have codes of their own. */
  readonly code: AnyCode
  /** Of `DAMAGED`: the file. */
  readonly file?: string
  /** Of `DAMAGED`: position of the first damaged byte. */
  readonly from?: number
  /** Of `DAMAGED`: position at which the log goes on; null when that is unknown. */
  readonly resumes?: number | null
  /** Of `DAMAGED`: ids of the logs it touches; null when they can no longer be told. */
  readonly logs?: readonly number[] | null
  /** Of `appendMany` and `appendTimed`: how many entries, the first ones, are appended nevertheless. */
  readonly appended?: number
  /**
   * What led to it: of an append that was not done since one in front of it in its turn was refused, that one's error. Others have
   * whatever was thrown, which may be anything.
   */
  readonly cause?: unknown
  /** Of an append whose sync failed, or could not be waited for: it may last, or not. */
  readonly outcome?: "unknown"
}

/** What an acknowledged entry survives: a power cut, the death of the process, or nothing. */
export type Durability = "sync" | "os" | "memory"

/** What an entry is made of: text is stored as UTF-8. */
export type Data = string | NodeJS.ArrayBufferView

/** Bytes whose buffer is no `SharedArrayBuffer`, as `fetch`, `Blob` and `crypto` ask for. Before TypeScript 5.7 any `Uint8Array`. */
export type Bytes = ReturnType<Uint8Array["slice"]>

export interface OpenOptions {
  /** "sync" unless said otherwise, or as it is where this process has the store open already. */
  durability?: Durability | undefined
  /**
   * Attach to a store that another process writes, or wrote; nothing else that is asked for matters then. Nothing of it need be
   * writable: where the file `signal` is, tails are woken, and where it is not, they look every 10 ms.
   */
  readOnly?: boolean | undefined
  /** Size of the first segment file, 4 MiB unless said otherwise; each next one is twice as large. A multiple of 4096. */
  segmentBytesMin?: number | undefined
  /** Size of the largest segment file, 64 MiB unless said otherwise: a multiple of 4096 from 8192 to 1 GiB. One commit holds a little less. */
  segmentBytesMax?: number | undefined
  /**
   * Housekeeping removes entries older than this, in microseconds: all of them once the newest is, before that whole segments at a time.
   * An integer, as every number here.
   */
  retainUs?: number | undefined
  /**
   * Housekeeping lets go of the oldest entries, whole segments at a time, while segment files take more bytes than this, the one that is
   * written to included, which stays. Segments grow to a sixteenth of it, 1 MiB at least.
   */
  retainBytes?: number | undefined
  /** Housekeeping begins a new segment when the first entry of the newest is older than this by its own time, in microseconds, idle or not. */
  rotateAfterUs?: number | undefined
}

/**
 * Opens the store in a directory, or makes one there. Within a process the store itself is
 * opened once, by the first opening, and closed with the last. A store in memory is shared by name. Options that differ from those of a
 * store that is open are refused as `CONFLICT`, which says what differs; options that are left out are as they are.
 */
export function open(path: string, options?: OpenOptions): Store

/** Looks at every byte of a store without opening it. */
export function verify(path: string): Promise<Report>

export interface Report {
  readonly segments: number
  /** Batches whose checksums hold. */
  readonly batches: number
  /** Logs that are neither deleted nor lost, as the newest checkpoint and what came behind it say. */
  readonly logs: number
  /** Bytes of batches. */
  readonly bytes: number
  /** Checkpoints that are whole. */
  readonly checkpoints: number
  /** Position behind the last batch. */
  readonly end: number
  /** Unacknowledged bytes at the end that the next opening discards. */
  readonly tornBytes: number
  /** Spans that should be whole and are not. */
  readonly damage: readonly Damage[]
}

/**
 * Writes a backup of the store in a directory, which may be open, to another that is empty or not there: a store as of
 * one moment, that was closed then. Sealed segments are hard links where the file system knows them. It holds everything
 * that was durable before the call, in "os" mode everything that was appended.
 */
export function backup(from: string, to: string): Promise<Backup>

/**
 * Puts a backup back, to a directory that is empty or not there. All of it is verified first; `DAMAGED` names what is. The
 * backup stays as it is.
 */
export function restore(backup: string, to: string): Promise<Backup>

export interface Backup {
  /** Position in front of which it holds everything. */
  readonly end: number
  /** Segments that share their bytes with the source. */
  readonly linked: number
  /** Segments that were copied. */
  readonly copied: number
  /** Bytes of batches in those. */
  readonly copiedBytes: number
  /** Checkpoints in it. */
  readonly checkpoints: number
  /** Times it was begun: anew when files went away meanwhile. */
  readonly attempts: number
}

/**
 * What stands in a segment file, or in all those of a store, piece by piece, whole or not. The store should not be
 * open: what is being written may look torn. A file that cannot be read rejects one `next()`; the following one goes on
 * with the next file.
 */
export function parse(path: string): AsyncIterableIterator<Piece>

/** Every byte of a file lies in one batch, one damaged span, the segment's header, or behind its end. */
export type Piece = SegmentPiece | BatchPiece | FramePiece | DamagePiece | EndPiece

/** A segment begins. */
export interface SegmentPiece {
  readonly piece: "segment"
  readonly file: string
  readonly number: number
  /** The store it belongs to, in hexadecimal. */
  readonly storeId: string
  /** Bytes it has. */
  readonly capacity: number
  /** It was begun by a recovery that had found damage. */
  readonly afterDamage: boolean
  /** The largest time of any entry in an earlier segment. */
  readonly latest: number
}

/** A batch whose header stands: one commit. */
export interface BatchPiece {
  readonly piece: "batch"
  /** Where it begins. */
  readonly position: number
  readonly bytes: number
  readonly time: number
  /** What was known to be durable then. */
  readonly durable: number
  /** Frames it says it has. */
  readonly frames: number
  /** Ids of the logs it touches, and the offset at which each ends with it. */
  readonly touched: readonly { readonly log: number; readonly end: number }[]
  /** It carries the link of the batch before it; what does not is not believed. */
  readonly linked: boolean
  /** Its body matches its checksum; of one that does not the frames are not shown. */
  readonly whole: boolean
}

/** One thing that the batch before it says; an entry is one of the kind "data". */
export interface FramePiece {
  readonly piece: "frame"
  readonly position: number
  readonly kind: "data" | "create" | "close" | "delete" | "producer" | "writerSeq" | "note" | "trim" | "gone" | "places"
  /** Id of the log it is about. */
  readonly log: number
  /** That log's name; null when nothing says it. */
  readonly name: string | null
  readonly offset: number
  readonly time: number
  /** The last entry of its transaction in its log. */
  readonly last: boolean
  /** What it carries: a copy. */
  readonly payload: Bytes
}

/** Bytes that do not read back as they were written. */
export interface DamagePiece {
  readonly piece: "damage"
  /** The same in words. */
  readonly message: string
  readonly file: string
  /** Position of the first damaged byte. */
  readonly from: number
  /** Position at which the batches go on; null when that is unknown. */
  readonly resumes: number | null
  /** Ids of the logs it touches; null when they can no longer be told. */
  readonly logs: readonly number[] | null
}

/** The batches of a segment end. */
export interface EndPiece {
  readonly piece: "end"
  readonly position: number
  /** Bytes behind it. */
  readonly unusedBytes: number
  /** How many of these belong to commits that were never acknowledged. */
  readonly tornBytes: number
}

/** What opening a store found. */
export interface Recovery {
  /** Logs that exist. */
  readonly logs: number
  /** Position of the checkpoint that it began with; null when there was none. */
  readonly checkpoint: number | null
  /** Batches replayed behind that. */
  readonly batches: number
  /** The store had been closed. */
  readonly clean: boolean
  /** Bytes of unacknowledged batches at the end that were not whole and were discarded. */
  readonly discardedBytes: number
  /** Spans that should be whole and are not. */
  readonly damage: readonly Damage[]
  /** One of them that may have held the creation of logs whose names are lost: while it is there no log is created. */
  readonly unnamed: Damage | null
}

/** A span of a store that does not read back as it was written. */
export interface Damage {
  /** The same in words. */
  readonly message: string
  readonly file: string
  /** Position of the first damaged byte. */
  readonly from: number
  /** Position at which the batches go on; null when that is unknown. */
  readonly resumes: number | null
  /** Ids of the logs it touches; null when they can no longer be told. */
  readonly logs: readonly number[] | null
}

export interface Stats {
  readonly logs: number
  readonly segments: number
  readonly segmentBytes: number
  /** Bytes of files that say again what segments hold, each log's bytes together. */
  readonly settledBytes: number
  /** Bytes of this process's address space that segments are mapped at, once: what is lent of them is mapped again. */
  readonly mappedBytes: number
  /** Position at which the next entry will be written. */
  readonly stagedEnd: number
  /** Position up to which everything lasts. */
  readonly durable: number
  /** Bytes of memory that the time indexes of segments may take. */
  readonly indexBytes: number
  /** Batches written since the store was opened: commits and transactions, each once. */
  readonly batches: number
  /** Bytes of segment files that they took. */
  readonly batchBytes: number
  /** Entries written since the store was opened. */
  readonly entries: number
  /** Segments begun since then. */
  readonly rotations: number
  /** Calls of `purge` that were carried out since then. */
  readonly purges: number
  /** Payload bytes let go since then. */
  readonly purgedBytes: number
  /** Payload bytes that some log still needs, as they are let go of: up to 256 KiB of a log at a time. */
  readonly liveBytes: number
  /** Bytes of segment files removed since the store was opened. */
  readonly freedBytes: number
  /** Batches since then that no segment could be begun for: the disk had no room, or refused otherwise. */
  readonly failures: number
  /** Transactions under way. */
  readonly transactions: number
  /** A write or a sync failed: the store takes no entries until it is opened again. */
  readonly failed: boolean
}

/**
 * What to purge: of one log, or of all. A word that is left out asks for more, so one that is there says something: undefined is refused
 * (`BAD_ARGUMENT`).
 */
export interface Purge {
  /** Its name; all logs when it is left out. */
  log?: string
  /** Entries in front of the first one of this time or a later one; all there are unless said. Not before the epoch. */
  before?: number
  /** Delete the logs themselves, with all that is in them: not together with `before`. */
  destroy?: boolean
  /** Count what goes. */
  countEntries?: boolean
}

export interface Purged {
  readonly name: string
  /** The first offset that is left. */
  readonly first: number
  readonly bytes: number
  readonly entries?: number
  readonly destroyed: boolean
}

export interface TimeOption {
  /** That of the call, for a transaction that of `transaction()`, unless said otherwise; a whole number, not before the epoch. It may repeat or go back. */
  time?: number | undefined
}

export interface Store {
  readonly path: string
  /** What an entry survives here, as the first opening has it; of a store that is only read, what was asked for. */
  readonly durability: Durability
  readonly readOnly: boolean
  /** What opening it found; null of a store that is only read, or is in memory. */
  readonly recovery: Recovery | null
  /** Spans that were damaged when it was opened, also for one that is only read, and, of one that is written, those that reads came upon since. */
  damage(): Damage[]
  /** The log of that name, made if there is none. */
  log(name: string): Log
  /** Names of all logs, sorted. */
  logs(): string[]
  /**
   * Names of logs as they become visible, each once, in the order of their creation: of those to come, and of those there
   * are as well if they are asked for. A name comes again when a log takes it anew.
   */
  newLogs(options?: { existing?: boolean | undefined; signal?: AbortSignal | undefined }): AsyncIterableIterator<string>
  /** Begins a transaction. */
  transaction(options?: TimeOption): Transaction
  /** Runs a function in a transaction: committed when it is done, aborted when it fails. */
  transaction<T>(work: (transaction: Transaction) => T | Promise<T>, options?: TimeOption): Promise<T>
  /**
   * Lets go of the oldest entries, or of whole logs. Readers keep what they have. Segment files in which no log needs
   * anything any more are removed by then; the newest is ended for that when all that is in it goes. An object with no word in it does
   * not say what to let go of, and is refused.
   */
  purge(purge: Purge): Promise<Purged[]>
  /** Lets go of all entries of all logs. */
  purge(): Promise<Purged[]>
  /** Begins a new segment file. */
  rotate(): void
  /** Counts of the process that writes: one that only reads has none (`READ_ONLY`). */
  stats(): Stats
  /** Looks at every byte of its files; of a store in memory there are none. */
  verify(): Promise<Report>
  /** Writes a backup of it, while it is written; see the function of that name. What was appended before is in it. */
  backup(to: string): Promise<Backup>
  /**
   * Housekeeping, done by itself as the store grows: checkpoints, and segments that no log needs. Resolves with whether there is more to
   * do: one call does a bounded part of it, and a caller that repeats it until there is no more takes only housekeeping's share of the time.
   */
  maintain(): Promise<boolean>
  /** Writes what was appended, and closes the store if it is not open elsewhere in the process: once what is under way is done. */
  close(): Promise<void>
  /** Closes the store for everybody in the process, once what is under way is done, and removes its files. */
  destroy(): Promise<void>
  /** Closes it, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Entries of one or several logs that are written together, or not at all. */
export interface Transaction {
  readonly count: number
  /** Adds an entry. One that brings it beyond what a commit holds (`segmentBytesMax`) is refused as `TOO_LARGE`, and the rest stays. */
  append(log: Log, data: Data): void
  commit(): Promise<void>
  abort(): void
}

/** The places where a query can begin. Times are whole numbers, or an infinity; an offset is a whole number, and not negative. */
interface Starts {
  /** Entries of this time or a later one. */
  start?: number | undefined
  /** Entries of a later time. */
  after?: number | undefined
  /** From the first entry of exactly this time on, whatever follows it. */
  exact?: number | undefined
  /** From this offset on; of an entry that begins in front of it, only the rest. */
  offset?: number | undefined
  /** From now on. */
  tail?: boolean | undefined
  /** What the newest checkpoint does not cover. */
  checkpoint?: boolean | undefined
}

/** One member at most. The others are absent, or flags that are not set. */
type AtMostOne<All> = {
  [One in keyof All]: Pick<All, One> & {
    [Other in Exclude<keyof All, One>]?: (true extends All[Other] ? false : undefined) | undefined
  }
}[keyof All]

/** What is asked for: where to begin, which is one place at most and otherwise the oldest entry, and which entries to leave out. */
export type Query = NonNullable<AtMostOne<Starts>> & {
  /** Only entries before this time. */
  end?: number | undefined
  /** Also what is written and not durable yet. In "sync" mode a power cut may take it back. */
  uncommitted?: boolean | undefined
}

/**
 * An entry. Its data is a view of the store's file where that is written for good, else a copy. Writing to it
 * changes what this thread reads there later, and nothing else: not the file, and no other thread or process.
 */
export interface Entry {
  readonly time: number
  /** Offset of its first byte within the log: with the log, its identity. */
  readonly offset: number
  /** The last entry of its transaction in this log. */
  readonly last: boolean
  readonly data: Bytes
}

/** An entry whose fields are read when they are asked for. */
export interface LazyEntry extends Entry {
  readonly length: number
  /** One byte of it, read where it lies: no view is made. Counted from the end when the place is negative; undefined where there is none. A place is a whole number. */
  byte(place: number): number | undefined
  /** What a plain entry says, for `JSON.stringify`. */
  toJSON(): Entry
}

export interface Log {
  readonly name: string
  /** Its number within the store, never used again: by it damage and `parse` name the log. */
  readonly id: number
  readonly store: Store
  /**
   * Appends an entry together with what else is appended to this log in this turn, in order; resolves with its offset once it is as durable as
   * the store promises. Entries of several logs in one turn are handed over log by log. `appendSync`, `appendMany` and the commit of a
   * transaction come behind all that was appended before, to whichever log.
   */
  append(data: Data, options?: TimeOption): Promise<number>
  /**
   * Appends everything that an iterable yields, each a transaction of its own; resolves with how many there were, once they are
   * as durable as the store promises. They are handed over before this returns, in groups of some megabytes, at a fraction of what as many
   * calls of `append` cost; what the iterable itself appends meanwhile comes between two of them, or in front. When one is refused, or the
   * iterable throws, those before it may be appended already: a `ThalwegError` says in `appended` how many are.
   */
  appendMany(entries: Iterable<Data>, options?: TimeOption): Promise<number>
  /** The same with a time for each; now where it is undefined. */
  appendTimed(entries: Iterable<readonly [time: number | undefined, data: Data]>): Promise<number>
  /** Appends one at once: in "sync" mode, waits for the disk. */
  appendSync(data: Data, options?: TimeOption): number
  /** Entries up to what is visible now, oldest first. */
  query(query: Query & { lazy: true }): IterableIterator<LazyEntry>
  query(query?: Query & { lazy?: boolean | undefined }): IterableIterator<Entry>
  /** A place that moves forward, without making an object per entry. */
  cursor(query?: Query): Cursor
  /** Entries as they come: from now on, or from where the query says. */
  tail(query?: Query, options?: { signal?: AbortSignal | undefined }): AsyncIterableIterator<Entry>
}

/**
 * A place in a log. What it says of an entry holds from a `next()` that answered true to the following call. Where it stands at none,
 * before the first and once `next()` answered false or threw, `time`, `offset` and `length` are 0, which no entry's length is, and `last` is
 * false; `byte` answers undefined, and `data` throws `BAD_ARGUMENT`.
 */
export interface Cursor {
  /**
   * Moves to the next entry; false when there is none yet: it may be asked again. Of a closed store it throws `CLOSED` once it came by what
   * it had at hand, no further than the end of a segment.
   */
  next(): boolean
  /** Stands where another query begins. */
  seek(query?: Query): void
  /** Goes on behind damage, after `DAMAGED` was thrown. */
  resume(): void
  readonly time: number
  readonly offset: number
  readonly length: number
  readonly last: boolean
  readonly data: Bytes
  /** One byte of the payload, as of a lazy entry. */
  byte(place: number): number | undefined
  /** Payload bytes that had been purged before the cursor came to them. */
  readonly skippedBytes: number
  /** Why nothing more will come. */
  readonly ended: "closed" | "deleted" | "damaged" | null
}
