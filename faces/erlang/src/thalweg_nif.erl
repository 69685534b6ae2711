%% @private The native half: see `native/nif.rs' for what each of these does. None of them waits; one that takes long
%% does so on a scheduler apart.
-module(thalweg_nif).

-export([
    open/3, turn/1, call/4, source/4, gather/3, stream/4, request/4, request_stream/4, attend/1, watch_process/1, kill_process/1, answer/4, post/4,
    forget/2, cast/2, grant/3, taken/2, cancel/2, cancel_group/2, await/2, awaits/2, await_group/2, load/1, tend/1, give_up/1, close/1, unpack/1, encode/1, decode/1
]).
-export_type([connection/0, connections/0, call/0, wishes/0]).

-on_load(on_load/0).

%% A connection to a service.
-type connection() :: reference().
%% The connections a call may go over: the one with the fewest calls in flight is taken.
-type connections() :: connection() | tuple().
%% Module, function, arguments, keywords, and the callback in whose course the call is made.
-type call() ::
    {atom() | iodata(), atom() | iodata(), [term()], map(), none | non_neg_integer()}.
%% The schema, or that of Python workers; calls in flight; milliseconds to connect; shared memory on a plain socket; whether a call
%% makes a connection that was lost anew.
-type wishes() :: {none | <<_:256>>, pos_integer(), non_neg_integer(), boolean(), boolean(), boolean()}.
-type pending() :: {pending, connection(), non_neg_integer()}.

-spec on_load() -> ok | {error, term()}.
on_load() ->
    %% Beside this very module: another folder in the path may begin with the application's name.
    Beside = filename:join([filename:dirname(filename:dirname(code:which(?MODULE))), "priv", "thalweg_nif"]),
    case {filelib:is_regular(Beside ++ ".so"), code:priv_dir(thalweg)} of
        {false, Directory} when is_list(Directory) -> erlang:load_nif(filename:join(Directory, "thalweg_nif"), 0);
        _ -> erlang:load_nif(Beside, 0)
    end.

-spec open(iodata(), pid(), wishes()) -> {ok, connection()} | {error, term()}.
open(_Endpoint, _Router, _Wishes) -> erlang:nif_error(not_loaded).

-spec turn(connection()) -> again | idle | {down, term()}.
turn(_Connection) -> erlang:nif_error(not_loaded).

-spec call(connections(), reference(), call(), boolean()) -> {ok, term()} | {error, term()} | pending().
call(_Connections, _Reference, _Call, _MayLook) -> erlang:nif_error(not_loaded).

-spec source(connection(), reference(), tuple(), boolean()) -> {ok, term()} | {error, term()} | pending().
source(_Connection, _Reference, _Source, _MayLook) -> erlang:nif_error(not_loaded).

-spec gather(connections(), reference(), [call()]) -> pending() | {error, term()}.
gather(_Connections, _Reference, _Calls) -> erlang:nif_error(not_loaded).

-spec stream(connections(), reference(), tuple(), pos_integer()) -> pending() | {error, term()}.
stream(_Connections, _Reference, _Call, _Credit) -> erlang:nif_error(not_loaded).

-spec request(connection(), reference(), binary(), {boolean(), none | non_neg_integer()}) -> {ok, binary()} | {error, term()} | pending().
request(_Connection, _Reference, _Frame, _Wishes) -> erlang:nif_error(not_loaded).

-spec request_stream(connection(), reference(), binary(), {pos_integer(), none | non_neg_integer()}) -> pending() | {error, term()}.
request_stream(_Connection, _Reference, _Frame, _Wishes) -> erlang:nif_error(not_loaded).

-spec attend(connection()) -> ok | {error, term()}.
attend(_Connection) -> erlang:nif_error(not_loaded).

-spec watch_process(connection()) -> boolean().
watch_process(_Connection) -> erlang:nif_error(not_loaded).

-spec kill_process(connection()) -> boolean().
kill_process(_Connection) -> erlang:nif_error(not_loaded).

-spec answer(connection(), non_neg_integer(), boolean(), term()) -> ok | {error, term()}.
answer(_Connection, _Number, _IsOk, _Value) -> erlang:nif_error(not_loaded).

-spec post(connection(), non_neg_integer(), non_neg_integer(), term()) -> ok | {error, term()}.
post(_Connection, _Kind, _Number, _Payload) -> erlang:nif_error(not_loaded).

-spec forget(connection(), binary()) -> ok | {error, term()}.
forget(_Connection, _Scope) -> erlang:nif_error(not_loaded).

-spec grant(connection(), non_neg_integer(), non_neg_integer()) -> ok.
grant(_Connection, _Number, _Items) -> erlang:nif_error(not_loaded).

-spec taken(connection(), pos_integer()) -> non_neg_integer().
taken(_Connection, _Lines) -> erlang:nif_error(not_loaded).

-spec cancel(connection(), non_neg_integer()) -> ok.
cancel(_Connection, _Number) -> erlang:nif_error(not_loaded).

-spec cast(connections(), call()) -> ok | {error, term()}.
cast(_Connections, _Call) -> erlang:nif_error(not_loaded).

-spec cancel_group(connection(), non_neg_integer()) -> ok.
cancel_group(_Connection, _Number) -> erlang:nif_error(not_loaded).

-spec await(connection(), non_neg_integer()) -> {ok, term()} | {error, term()} | pending | done.
await(_Connection, _Number) -> erlang:nif_error(not_loaded).

-spec awaits(connection(), non_neg_integer()) -> boolean().
awaits(_Connection, _Number) -> erlang:nif_error(not_loaded).

-spec await_group(connection(), non_neg_integer()) -> ok.
await_group(_Connection, _Number) -> erlang:nif_error(not_loaded).

-spec load(connection()) -> non_neg_integer().
load(_Connection) -> erlang:nif_error(not_loaded).

-spec tend(connection()) -> again | boolean().
tend(_Connection) -> erlang:nif_error(not_loaded).

-spec give_up(connection()) -> ok.
give_up(_Connection) -> erlang:nif_error(not_loaded).

-spec close(connection()) -> ok.
close(_Connection) -> erlang:nif_error(not_loaded).

-spec unpack(connection()) -> ok | busy.
unpack(_Connection) -> erlang:nif_error(not_loaded).

-spec encode(term()) -> {ok, binary()} | {error, term()}.
encode(_Term) -> erlang:nif_error(not_loaded).

-spec decode(binary()) -> {ok, term()} | {error, term()}.
decode(_Bytes) -> erlang:nif_error(not_loaded).
