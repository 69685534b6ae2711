import rpc from "./index.js"

export const { RemoteError, RpcClient, Schema } = rpc
export default rpc
