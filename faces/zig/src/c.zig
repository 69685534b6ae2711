//! The C interface as `thalweg.h` declares it, by hand: nothing is imported, so the header is not needed to build.

pub const Client = opaque {};
pub const Server = opaque {};
pub const Stopper = opaque {};
pub const Reply = opaque {};
pub const Answer = opaque {};
pub const Spawned = opaque {};
pub const Rpc = opaque {};

pub const ClientOptions = extern struct {
    schema: [32]u8,
    connect_within_ms: u64,
    deadline_ms: u64,
    reconnect_first_ms: u64,
    reconnect_most_ms: u64,
    unsent_bytes_max: u64,
    in_flight_max: u32,
    frame_bytes_max: u32,
    ring_bytes: u32,
    shared: bool,
    spin: bool,
    plain: bool,
    same_user_only: bool,
};

pub const CallOptions = extern struct {
    deadline_ms: u64 = 0,
    credit: u32 = 0,
    unary: bool = false,
};

pub const EventKind = enum(c_uint) { nothing = 0, item = 1, end = 2, failed = 3 };

pub const Event = extern struct {
    call: u64,
    frame: ?[*]const u8,
    length: usize,
    detail: [*:0]const u8,
    fault: u16,
    kind: EventKind,
};

pub const ClientState = extern struct {
    in_flight: usize,
    credit: u32,
    shared: bool,
    connected: bool,
};

pub const ServerOptions = extern struct {
    schema: [32]u8,
    error_tag: ?[*:0]const u8,
    unsent_bytes_max: u64,
    in_flight_bytes_max: u64,
    drain_grace_ms: u64,
    hello_within_ms: u64,
    frame_bytes_max: u32,
    ring_bytes_max: u32,
    clients_max: u32,
    in_flight_max: u32,
    stream_credit: u32,
    spin: bool,
    same_user_only: bool,
};

pub const ServerStatistics = extern struct {
    clients: u64,
    shared_clients: u64,
    in_flight: u64,
    in_flight_bytes: u64,
    requests: u64,
    answers: u64,
    reads: u64,
    writes: u64,
    bells: u64,
    waits: u64,
};

pub const SpawnOptions = extern struct {
    arguments: ?[*]const [*:0]const u8,
    arguments_count: usize,
    environment: ?[*]const [*:0]const u8,
    environment_count: usize,
    directory: ?[*:0]const u8,
    log: ?[*:0]const u8,
    ready_within_ms: u64,
    end_within_ms: u64,
    respawn_within_ms: u64,
    respawn_most: u32,
    plain: bool,
    pipes: bool,
};

pub const ExitKind = enum(c_uint) { running = 0, code = 1, signal = 2, unknown = 3 };

pub const Exit = extern struct { kind: ExitKind, number: i32 };

pub const Request = extern struct {
    client: u64,
    frame: ?[*]const u8,
    length: usize,
    deadline_ms: i64,
    reply: ?*Reply,
    alone: bool,
};

pub const RpcOptions = extern struct {
    deadline_ms: u64,
    idle_for_ms: u64,
    answer_bytes_max: u64,
    connections_max: u32,
    idle_max: u32,
    in_flight_max: u32,
    targets_max: u32,
    token: ?[*:0]const u8 = null,
    spin: bool,
};

pub const RpcCall = extern struct { method: [*:0]const u8, params: ?[*:0]const u8 };

pub const RpcAsk = extern struct {
    deadline_ms: u64 = 0,
    target: u32 = 0,
    batch: bool = false,
    notifies: bool = false,
    idempotent: bool = false,
};

pub const RpcDone = extern struct { call: u64, answers: usize, detail: [*:0]const u8, fault: u16 };

pub const RpcAnswer = extern struct {
    json: ?[*]const u8,
    length: usize,
    message: [*:0]const u8,
    code: i64,
    fault: u16,
    is_error: bool,
};

pub const RpcStatistics = extern struct {
    opened: u64,
    closed: u64,
    reused: u64,
    waits: u64,
    retried: u64,
    idle: usize,
    connections: usize,
    in_flight: usize,
};

pub const Flow = enum(c_uint) { go = 0, wait = 1, gone = 2 };

pub const Call = *const fn (context: ?*anyopaque) callconv(.c) void;
pub const Handle = *const fn (?*anyopaque, ?[*]const u8, usize, *Answer) callconv(.c) void;
pub const Take = *const fn (?*anyopaque, *const Request) callconv(.c) void;

pub extern fn thalweg_error_detail() [*:0]const u8;

pub extern fn thalweg_client_defaults() ClientOptions;
pub extern fn thalweg_client_open(endpoint: [*:0]const u8, options: ?*const ClientOptions, client: *?*Client) u16;
pub extern fn thalweg_client_begin(endpoint: [*:0]const u8, options: ?*const ClientOptions, client: *?*Client) u16;
pub extern fn thalweg_client_close(client: ?*Client) void;
pub extern fn thalweg_client_descriptor(client: *Client, descriptor: *c_int) u16;
pub extern fn thalweg_client_call(
    client: *Client,
    request: ?[*]const u8,
    length: usize,
    options: ?*const CallOptions,
    call: *u64,
) u16;
pub extern fn thalweg_client_cancel(client: *Client, call: u64) u16;
pub extern fn thalweg_client_forget(client: *Client, call: u64) u16;
pub extern fn thalweg_client_grant(client: *Client, call: u64, items: u32) u16;
pub extern fn thalweg_client_flush(client: *Client) u16;
pub extern fn thalweg_client_turn(client: *Client, wait_ms: i64, happened: ?*usize) u16;
pub extern fn thalweg_client_turn_for(client: *Client, call: u64, wait_ms: i64, happened: ?*usize) u16;
pub extern fn thalweg_client_next(client: *Client, event: *Event) u16;
pub extern fn thalweg_client_take(client: *Client, call: u64, event: *Event) u16;
pub extern fn thalweg_client_wait(client: *Client, call: u64, event: *Event) u16;
pub extern fn thalweg_client_state_of(client: *const Client) ClientState;

pub extern fn thalweg_server_defaults() ServerOptions;
pub extern fn thalweg_server_open(
    endpoints: [*]const [*:0]const u8,
    count: usize,
    options: ?*const ServerOptions,
    server: *?*Server,
) u16;
pub extern fn thalweg_server_close(server: ?*Server) void;
pub extern fn thalweg_server_descriptor(server: *const Server) c_int;
pub extern fn thalweg_server_turn(server: *Server, wait_ms: i64, happened: ?*usize) u16;
pub extern fn thalweg_server_is_stopped(server: *const Server) bool;
pub extern fn thalweg_server_next(server: *Server, request: *Request) u16;
pub extern fn thalweg_server_run(server: *Server, handle: Handle, context: ?*anyopaque) u16;
pub extern fn thalweg_answer_write(answer: *Answer, bytes: ?[*]const u8, length: usize) u16;
pub extern fn thalweg_server_run_reactor(server: *Server, take: Take, context: ?*anyopaque) u16;
pub extern fn thalweg_server_stopper(server: *const Server, stopper: *?*Stopper) u16;
pub extern fn thalweg_stopper_stop(stopper: *const Stopper) void;
pub extern fn thalweg_stopper_free(stopper: ?*Stopper) void;
pub extern fn thalweg_server_statistics_of(server: *const Server) ServerStatistics;

pub extern fn thalweg_reply_end(reply: *Reply, frame: ?[*]const u8, length: usize) u16;
pub extern fn thalweg_reply_fail(reply: *Reply, fault: u16, message: ?[*]const u8, length: usize) u16;
pub extern fn thalweg_reply_drop(reply: ?*Reply) void;
pub extern fn thalweg_reply_item(reply: *Reply, frame: ?[*]const u8, length: usize) Flow;
pub extern fn thalweg_reply_cancelled(reply: *const Reply) bool;
pub extern fn thalweg_reply_changed(reply: *Reply, wake: Call, context: ?*anyopaque, release: ?Call) u16;

pub extern fn thalweg_spawn_defaults() SpawnOptions;
pub extern fn thalweg_spawned_start(
    program: [*:0]const u8,
    endpoint: [*:0]const u8,
    options: ?*const SpawnOptions,
    spawned: *?*Spawned,
) u16;
pub extern fn thalweg_spawned_close(spawned: ?*Spawned) void;
pub extern fn thalweg_spawned_tend(spawned: *Spawned, respawned: ?*Exit) u16;
pub extern fn thalweg_spawned_connect(spawned: *Spawned, options: ?*const ClientOptions, client: *?*Client) u16;
pub extern fn thalweg_spawned_restart(spawned: *Spawned) u16;
pub extern fn thalweg_spawned_stop(spawned: *Spawned, exit: ?*Exit) u16;
pub extern fn thalweg_spawned_descriptor(spawned: *const Spawned) c_int;
pub extern fn thalweg_spawned_process(spawned: *const Spawned) u32;

pub extern fn thalweg_rpc_defaults() RpcOptions;
pub extern fn thalweg_rpc_open(url: [*:0]const u8, options: ?*const RpcOptions, client: *?*Rpc) u16;
pub extern fn thalweg_rpc_close(client: ?*Rpc) void;
pub extern fn thalweg_rpc_target(client: *Rpc, url: [*:0]const u8, target: *u32) u16;
pub extern fn thalweg_rpc_descriptor(client: *Rpc, descriptor: *c_int) u16;
pub extern fn thalweg_rpc_begin(
    client: *Rpc,
    calls: [*]const RpcCall,
    calls_count: usize,
    ask: ?*const RpcAsk,
    number: *u64,
) u16;
pub extern fn thalweg_rpc_cancel(client: *Rpc, call: u64) u16;
pub extern fn thalweg_rpc_turn(client: *Rpc, wait_ms: i64, happened: ?*usize) u16;
pub extern fn thalweg_rpc_next(client: *Rpc, done: *RpcDone) u16;
pub extern fn thalweg_rpc_wait(client: *Rpc, call: u64, done: *RpcDone) u16;
pub extern fn thalweg_rpc_answer_at(client: *Rpc, place: usize, answer: *RpcAnswer) u16;
pub extern fn thalweg_rpc_expect_schema(client: *Rpc, hash: *const [32]u8) u16;
pub extern fn thalweg_rpc_statistics_of(client: *const Rpc) RpcStatistics;
