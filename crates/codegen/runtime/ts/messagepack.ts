// MessagePack as typed services use it. Integers of any width are read where the value fits, and written in the fewest
// bytes; a field nobody declared is refused, and so is one that comes twice.

export { DecodeError, Reader } from "./reader.js";
export { EncodeError, Writer } from "./writer.js";
