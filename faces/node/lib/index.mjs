import thalweg from "./index.js"

export const { CODES, ThalwegError, backup, open, parse, restore, verify } = thalweg
export default thalweg
