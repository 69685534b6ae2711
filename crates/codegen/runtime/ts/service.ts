// What stands between generated code and what carries its frames: a transport under a client, a reply under a
// server. Generated code speaks these words, transports execute them, neither sees the other.

import { DecodeError, Reader, Writer } from "./messagepack.js";

/** What one call may be given where nothing runs meanwhile. */
export interface SyncCallOptions {
  /** How long anybody wants the answer, in milliseconds. */
  readonly deadlineMs?: number | undefined;
  /** Of a stream: how many items may come before they are taken. */
  readonly credit?: number | undefined;
}

/** What one call may be given. */
export interface CallOptions extends SyncCallOptions {
  /** Gives the call up when it is aborted: it rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Carries requests and lets others run meanwhile. */
export interface Transport {
  /** Sends a request; resolves to the frame that answers it. */
  call(request: Uint8Array, options?: CallOptions): Promise<Uint8Array>;
  /** Sends a request that a stream answers; yields its frames. */
  stream(request: Uint8Array, options?: CallOptions): AsyncIterable<Uint8Array>;
}

/** Carries one request at a time and waits. */
export interface SyncTransport {
  /** Sends a request and returns the frame that answers it. */
  call(request: Uint8Array, options?: SyncCallOptions): Uint8Array;
  /** Sends a request that a stream answers; yields its frames. */
  stream(request: Uint8Array, options?: SyncCallOptions): Iterable<Uint8Array>;
}

/** The server answered with its error. */
export class Refused extends Error {
  override readonly name = "Refused";
  readonly code = "REFUSED";
  readonly retry = "never";
}

/** What a call does to its fork, for servers that order calls per fork. */
export interface Access {
  readonly access: "read committed" | "read" | "write";
  readonly fork?: bigint | string | Uint8Array | undefined;
}

/** What a handler may know of the call it handles. */
export interface Call {
  /** Aborted once nobody waits for the answer: the call was cancelled, its deadline passed, its client is gone. */
  readonly signal: AbortSignal;
}

/** Where a server's frames for one request go. */
export interface Reply extends Call {
  /** Sends one item of a stream; resolves to `false` when nobody waits for more. */
  item(frame: Uint8Array): Promise<boolean>;
  /** Sends the frame that ends the call. Called once. */
  end(frame: Uint8Array): void;
  /** Ends the call with a fault. Called instead of `end`, which does where there is no such thing. */
  fail?(code: "BAD_REQUEST" | "UNKNOWN_COMMAND", message: string): void;
}

/** What a server serves. */
export interface Service {
  /** SHA-256 of the schema in hexadecimal. */
  readonly schema: string;
  /** The tag of the service's error, for those that the server itself answers with. */
  readonly errorTag: string;
  /** Has a request answered. */
  dispatch(frame: Uint8Array, reply: Reply): Promise<void>;
}

/** Orders calls that touch one fork: a read waits behind the writes that came before it, a write is alone, and reads of
 * what is committed wait for nobody. Nothing is kept for a fork that nobody uses. */
export class Forks {
  readonly #forks = new Map<string, { write: Promise<void>; reads: Set<Promise<void>>; users: number }>();

  /** Runs `job` when its turn has come. Of a call whose `signal` was aborted while it waited, nothing is done: it rejects
   * with the signal's reason. No other call is asked for its signal, which would have it watched. */
  order<T>(access: Access | undefined, job: () => Promise<T>, call?: { readonly signal: AbortSignal }): Promise<T> {
    // One that throws before it has returned a promise rejects, too, so that its turn ends.
    const begin = async (): Promise<T> => job();
    if (access === undefined || access.access === "read committed") return begin();
    const key = nameOf(access.fork);
    const fork = this.#forks.get(key) ?? { write: Promise.resolve(), reads: new Set(), users: 0 };
    this.#forks.set(key, fork);
    const before = access.access === "read" ? [fork.write] : [fork.write, ...fork.reads];
    // It takes its place before it begins, since what it begins may order a call of the same fork at once.
    let leave = (): void => {};
    const over = new Promise<void>((resolve) => {
      leave = () => {
        fork.reads.delete(over);
        if (--fork.users === 0) this.#forks.delete(key);
        resolve();
      };
    });
    if (access.access === "read") {
      fork.reads.add(over);
    } else {
      fork.write = over;
      fork.reads = new Set();
    }
    const isAlone = fork.users++ === 0;
    const signal = isAlone ? undefined : call?.signal;
    const running = isAlone ? begin() : Promise.all(before).then(() => {
      signal?.throwIfAborted();
      return begin();
    });
    running.then(leave, leave);
    return running;
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** What tells forks apart in every language: bytes, as text is too, or 64 bits. */
function nameOf(fork: Access["fork"]): string {
  if (typeof fork === "bigint") return `number ${BigInt.asUintN(64, fork)}`;
  return `bytes ${(typeof fork === "string" ? encoder.encode(fork) : fork)?.join()}`;
}

/** An error's frame. */
export function errorFrame(tag: string, error: unknown): Uint8Array {
  // A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD: the client is to have the rest of the words.
  const words = error instanceof Error ? error.message || error.name : error;
  const message = decoder.decode(encoder.encode(String(words)));
  const writer = new Writer();
  writer.response(tag);
  writer.fields(1, { message });
  writer.field("message", `${tag}.message`);
  writer.string(message);
  return writer.finish();
}

/** Says why a frame is no request. */
export function refuse(reply: Reply, tag: string, error: unknown): void {
  if (!(error instanceof DecodeError) || reply.fail === undefined) return reply.end(errorFrame(tag, error));
  reply.fail(error.isUnknownMessage ? "UNKNOWN_COMMAND" : "BAD_REQUEST", error.message);
}

/** What a frame of a stream says. */
type Heard<Item, End> = { item: Item } | { end: End };

/** The items of a stream, then its end. Closing it closes the transport's stream at once: JavaScript has a generator's
 * `return` and `throw` wait for the item that is awaited, which may never come. */
export function items<Item, End>(
  frames: AsyncIterable<Uint8Array>,
  hear: (frame: Uint8Array) => Heard<Item, End>,
): AsyncGenerator<Item, End, void> {
  const source = frames[Symbol.asyncIterator]();
  let isClosed = false;
  const generator = (async function* (): AsyncGenerator<Item, End, void> {
    try {
      for (;;) {
        const next = await source.next();
        if (isClosed) return undefined as End;
        if (next.done) throw unended();
        const heard = hear(next.value);
        if ("end" in heard) return heard.end;
        yield heard.item;
      }
    } finally {
      if (!isClosed) await source.return?.();
    }
  })();
  const closing = <Arguments extends unknown[], T>(close: (...how: Arguments) => Promise<T>) =>
    async (...how: Arguments): Promise<T> => {
      isClosed = true;
      await source.return?.();
      return close.apply(generator, how);
    };
  generator.return = closing(generator.return);
  generator.throw = closing(generator.throw);
  return generator;
}

/** The same, waiting for each item. */
export function* syncItems<Item, End>(
  frames: Iterable<Uint8Array>,
  hear: (frame: Uint8Array) => Heard<Item, End>,
): Generator<Item, End, void> {
  for (const frame of frames) {
    const heard = hear(frame);
    if ("end" in heard) return heard.end;
    yield heard.item;
  }
  throw unended();
}

/** What is thrown of a stream whose frames are over and whose response never came. */
function unended(): DecodeError {
  return new DecodeError("frame", "the stream ended without its response", 0);
}

/** The error in a frame whose tag was read already. */
export function refused(reader: Reader, place: string): Refused {
  let message: string | undefined;
  for (let left = reader.fields(place, 1); left > 0; left--) {
    if (reader.key() !== "message") throw reader.refuse("a field nobody declared", place);
    message = reader.once(message !== undefined, place).string();
  }
  reader.finish();
  return new Refused(reader.required(message, place));
}
