import state from "./index.js"

export const { Session, StateError } = state
export default state
