// Bytes as values. A reader walks one frame and throws nothing but DecodeError; the bytes that it returns are views of the
// frame.

/** Why bytes are not the value they should be. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
  /** Of an answer: what was asked may have been done. */
  readonly retry = "unknown";
  /** The field or message being read, as `EchoBytes.data`; `frame` outside of any. */
  readonly place: string;
  /** What is wrong. */
  readonly reason: string;
  /** Where in the frame. */
  readonly at: number;

  constructor(place: string, reason: string, at: number) {
    super(`${place}: ${reason} at byte ${at}`);
    this.place = place;
    this.reason = reason;
    this.at = at;
  }

  /** Whether it is the frame's name that nobody knows. */
  get isUnknownMessage(): boolean {
    return this.reason === "a message nobody declared";
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Below this many bytes a loop is faster than the decoder's start. */
const SHORT_BYTES = 24;
/** No name that is declared is longer. */
const KEY_BYTES_MAX = 255;
/** What structs, lists and maps of a frame may take in memory: so much for each of its bytes, and so much besides. */
const HELD_PER_BYTE = 64;
const HELD_BESIDES = 16 << 20;
/** What the smallest of each takes, in words of 8 bytes; a struct has one more for each field. */
const STRUCT_WORDS = 4;
const LIST_WORDS = 6;
const MAP_WORDS = 27;

/** Walks one frame. */
export class Reader {
  readonly #frame: Uint8Array;
  readonly #view: DataView;
  #at = 0;
  #place = "frame";
  #room: number;

  constructor(frame: Uint8Array) {
    this.#frame = frame;
    this.#room = frame.length * HELD_PER_BYTE + HELD_BESIDES;
    this.#view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  }

  #error(reason: string, at: number): DecodeError {
    return new DecodeError(this.#place, reason, at);
  }

  /** An error about what was read last. */
  refuse(reason: string, place: string): DecodeError {
    return new DecodeError(place, reason, this.#at);
  }

  /** Ends the frame. */
  finish(): void {
    if (this.#at < this.#frame.length) throw this.refuse("bytes behind the message", "frame");
  }

  /** Passes `count` bytes and returns where they begin. */
  #take(count: number): number {
    const at = this.#at;
    if (count > this.#frame.length - at) throw this.#error("the frame ends too early", this.#frame.length);
    this.#at = at + count;
    return at;
  }

  #byte(): number {
    return this.#frame[this.#take(1)] as number;
  }

  #wrongType(expected: string, found: number): DecodeError {
    return this.#error(`expected ${expected}, found byte 0x${found.toString(16).padStart(2, "0")}`, this.#at - 1);
  }

  boolean(): boolean {
    const tag = this.#byte();
    if (tag !== 0xc2 && tag !== 0xc3) throw this.#wrongType("a boolean", tag);
    return tag === 0xc3;
  }

  /** An integer of at most 32 bits between two bounds. */
  integer(least: number, most: number): number {
    const at = this.#at;
    const tag = this.#byte();
    let value: number;
    if (tag < 0x80) value = tag;
    else if (tag >= 0xe0) value = tag - 256;
    else {
      switch (tag) {
        case 0xcc: value = this.#view.getUint8(this.#take(1)); break;
        case 0xcd: value = this.#view.getUint16(this.#take(2)); break;
        case 0xce: value = this.#view.getUint32(this.#take(4)); break;
        case 0xd0: value = this.#view.getInt8(this.#take(1)); break;
        case 0xd1: value = this.#view.getInt16(this.#take(2)); break;
        case 0xd2: value = this.#view.getInt32(this.#take(4)); break;
        // Whether rounded or not, what does not fit 32 bits stays out of bounds.
        case 0xcf: value = Number(this.#view.getBigUint64(this.#take(8))); break;
        case 0xd3: value = Number(this.#view.getBigInt64(this.#take(8))); break;
        default: throw this.#wrongType("an integer", tag);
      }
    }
    if (value < least || value > most) throw this.#error("an integer out of range", at);
    return value;
  }

  u8(): number { return this.integer(0, 0xff); }
  u16(): number { return this.integer(0, 0xffff); }
  u32(): number { return this.integer(0, 0xffffffff); }
  i8(): number { return this.integer(-0x80, 0x7f); }
  i16(): number { return this.integer(-0x8000, 0x7fff); }
  i32(): number { return this.integer(-0x80000000, 0x7fffffff); }

  /** An integer of any width between two bounds. */
  #wide(least: bigint, most: bigint): bigint {
    const at = this.#at;
    const tag = this.#frame[at];
    let value: bigint;
    if (tag === 0xcf || tag === 0xd3) {
      this.#at = at + 1;
      const from = this.#take(8);
      value = tag === 0xcf ? this.#view.getBigUint64(from) : this.#view.getBigInt64(from);
    } else {
      value = BigInt(this.integer(-0x80000000, 0xffffffff));
    }
    if (value < least || value > most) throw this.#error("an integer out of range", at);
    return value;
  }

  u64(): bigint { return this.#wide(0n, 0xffffffffffffffffn); }
  i64(): bigint { return this.#wide(-0x8000000000000000n, 0x7fffffffffffffffn); }

  f32(): number {
    const tag = this.#byte();
    if (tag !== 0xca) throw this.#wrongType("a 32-bit float", tag);
    return this.#view.getFloat32(this.#take(4));
  }

  f64(): number {
    const tag = this.#byte();
    if (tag === 0xcb) return this.#view.getFloat64(this.#take(8));
    if (tag === 0xca) return this.#view.getFloat32(this.#take(4));
    throw this.#wrongType("a float", tag);
  }

  #stringLength(): number {
    const tag = this.#byte();
    if (tag >= 0xa0 && tag <= 0xbf) return tag & 31;
    if (tag === 0xd9) return this.#byte();
    if (tag === 0xda) return this.#view.getUint16(this.#take(2));
    if (tag === 0xdb) return this.#view.getUint32(this.#take(4));
    throw this.#wrongType("a string", tag);
  }

  string(): string {
    const length = this.#stringLength();
    const start = this.#take(length);
    const end = start + length;
    if (length < SHORT_BYTES) {
      let text = "";
      let at = start;
      for (; at < end; at++) {
        const byte = this.#frame[at] as number;
        if (byte >= 0x80) break;
        text += String.fromCharCode(byte);
      }
      if (at === end) return text;
    }
    try {
      return decoder.decode(this.#frame.subarray(start, end));
    } catch {
      throw this.#error("a string that is not UTF-8", start);
    }
  }

  /** A view of the frame: copy it to keep it longer than the frame. */
  bytes(): Uint8Array {
    const tag = this.#byte();
    let length: number;
    if (tag === 0xc4) length = this.#byte();
    else if (tag === 0xc5) length = this.#view.getUint16(this.#take(2));
    else if (tag === 0xc6) length = this.#view.getUint32(this.#take(4));
    else throw this.#wrongType("bytes", tag);
    const at = this.#take(length);
    return this.#frame.subarray(at, at + length);
  }

  bin32(): Uint8Array {
    const at = this.#at;
    const bytes = this.bytes();
    if (bytes.length !== 32) throw this.#error(`expected a length of 32, found ${bytes.length}`, at);
    return bytes;
  }

  optional<T>(read: (reader: Reader) => T): T | undefined {
    if (this.#frame[this.#at] === 0xc0) {
      this.#at++;
      return undefined;
    }
    return read(this);
  }

  #arrayLength(): number {
    const tag = this.#byte();
    if (tag >= 0x90 && tag <= 0x9f) return tag & 15;
    if (tag === 0xdc) return this.#view.getUint16(this.#take(2));
    if (tag === 0xdd) return this.#view.getUint32(this.#take(4));
    throw this.#wrongType("an array", tag);
  }

  #mapLength(): number {
    const tag = this.#byte();
    if (tag >= 0x80 && tag <= 0x8f) return tag & 15;
    if (tag === 0xde) return this.#view.getUint16(this.#take(2));
    if (tag === 0xdf) return this.#view.getUint32(this.#take(4));
    throw this.#wrongType("a map", tag);
  }

  /** Refuses a count of values that the rest of the frame cannot hold. */
  #believe(count: number, itemBytesMin: number): number {
    if (count * itemBytesMin > this.#frame.length - this.#at) {
      throw this.#error("the frame ends too early", this.#frame.length);
    }
    return count;
  }

  /** Counts what a value takes in memory: one that is a byte on the wire may be large there. */
  #hold(words: number): void {
    this.#room -= words * 8;
    if (this.#room < 0) throw this.#error("values that take too much memory for such a frame", this.#at);
  }

  list<T>(itemBytesMin: number, read: (reader: Reader) => T): T[] {
    const count = this.#believe(this.#arrayLength(), itemBytesMin);
    this.#hold(LIST_WORDS);
    // Of just that length: one that grows is given room for seventeen at once.
    const values = new Array<T>(count);
    this.#each(values, read);
    return values;
  }

  array<T>(expected: number, read: (reader: Reader) => T): T[] {
    const at = this.#at;
    const found = this.#arrayLength();
    if (found !== expected) throw this.#error(`expected a length of ${expected}, found ${found}`, at);
    this.#hold(LIST_WORDS);
    const values = new Array<T>(expected);
    this.#each(values, read);
    return values;
  }

  /** Reads as many values as there is room for. Behind a struct, the place is that of the whole again. */
  #each<T>(values: T[], read: (reader: Reader) => T): void {
    const place = this.#place;
    for (let n = 0; n < values.length; n++) values[n] = read(this);
    this.#place = place;
  }

  map<T>(itemBytesMin: number, read: (reader: Reader) => T): Map<string, T> {
    const count = this.#believe(this.#mapLength(), itemBytesMin + 1);
    this.#hold(MAP_WORDS);
    const values = new Map<string, T>();
    const place = this.#place;
    for (let n = 0; n < count; n++) {
      const at = this.#at;
      const key = this.string();
      if (values.has(key)) throw this.#error("a field or key that is there twice", at);
      values.set(key, read(this));
      this.#place = place;
    }
    return values;
  }

  /** Begins a struct of so many fields: how many of them follow. */
  fields(place: string, declared: number): number {
    this.#place = place;
    const count = this.#believe(this.#mapLength(), 2);
    this.#hold(STRUCT_WORDS + declared);
    return count;
  }

  /** The name of a struct's field, as `key`. */
  fieldOf(struct: string): string {
    // A field that holds a struct left that one's place.
    this.#place = struct;
    return this.key();
  }

  /** An error about an enum's word, which begins at `at`. */
  unknownWord(at: number): DecodeError {
    return this.#error("a word the enum does not have", at);
  }

  /** The byte that comes next. */
  get at(): number {
    return this.#at;
  }

  /** A string, to be compared with what is declared. One that is not UTF-8 is none that is declared, and neither is one too long, which comes out empty. */
  key(): string {
    const length = this.#stringLength();
    const start = this.#take(length);
    let text = "";
    if (length > KEY_BYTES_MAX) return text;
    for (let at = start; at < start + length; at++) text += String.fromCharCode(this.#frame[at] as number);
    return text;
  }

  /** Begins a field's value; `seen` says whether it was there already. */
  once(seen: boolean, place: string): this {
    this.#place = place;
    if (seen) throw this.#error("a field or key that is there twice", this.#at);
    return this;
  }

  /** A field that has to be there. */
  required<T>(value: T | undefined, place: string): T {
    if (value === undefined) throw this.refuse("a field is missing", place);
    return value;
  }

  /** Begins a request's envelope and returns its tag. */
  request(): string {
    this.#envelope(1);
    return this.response();
  }

  /** Begins the envelope of a response, an item or an error, and returns its tag. */
  response(): string {
    this.#envelope(2);
    return this.key();
  }

  #envelope(expected: number): void {
    const at = this.#at;
    const found = this.#arrayLength();
    if (found !== expected) throw this.#error(`expected a length of ${expected}, found ${found}`, at);
  }
}
