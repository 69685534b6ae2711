import thalweg from "./index.js"

export const { CODES, ThalwegError, open, verify } = thalweg
export default thalweg
