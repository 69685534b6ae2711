// What stands between generated code and whoever carries its frames: a transport under a client, a reply under a
// server. Generated code speaks these words, transports execute them, neither sees the other.

import { Reader, Writer } from "./messagepack.js";

/** Carries requests and lets others run meanwhile. */
export interface Transport {
  /** Sends a request; resolves to the frame that answers it. */
  call(request: Uint8Array): Promise<Uint8Array>;
  /** Sends a request that a stream answers; yields its frames. */
  stream(request: Uint8Array): AsyncIterable<Uint8Array>;
}

/** Carries one request at a time and waits. */
export interface SyncTransport {
  /** Sends a request and returns the frame that answers it. */
  call(request: Uint8Array): Uint8Array;
  /** Sends a request that a stream answers; yields its frames. */
  stream(request: Uint8Array): Iterable<Uint8Array>;
}

/** The server answered with its error. */
export class Refused extends Error {
  override readonly name = "Refused";
}

/** What a call does to its fork, for servers that order calls per fork. */
export interface Access {
  readonly access: "read committed" | "read" | "write";
  readonly fork?: bigint | string | Uint8Array | undefined;
}

/** Where a server's frames for one request go. */
export interface Reply {
  /** Sends one item of a stream; resolves to `false` when nobody waits for more. */
  item(frame: Uint8Array): Promise<boolean>;
  /** Sends the frame that ends the call. Called once. */
  end(frame: Uint8Array): void;
}

/** An error's frame. */
export function errorFrame(tag: string, error: unknown): Uint8Array {
  const writer = new Writer();
  writer.response(tag);
  writer.fields(1);
  writer.string("message");
  writer.string(error instanceof Error ? error.message : String(error));
  return writer.finish();
}

/** The error in a frame whose tag was read already. */
export function refused(reader: Reader, place: string): Refused {
  let message: string | undefined;
  for (let left = reader.fields(place); left > 0; left--) {
    if (reader.key() !== "message") throw reader.refuse("a field nobody declared", place);
    message = reader.once(message !== undefined, place).string();
  }
  reader.finish();
  return new Refused(reader.required(message, place));
}
