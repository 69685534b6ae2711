import service from "./index.js"

export const { Client, FAULTS, Server, ServiceError, SpawnError, SyncClient, spawn } = service
export default service
