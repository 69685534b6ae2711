%% @private Which workers there are, per pool. Written by one process, so that workers which end at once do not undo each
%% other; read by everybody as a constant term, because it is read for every call and changes when a worker comes or goes.
%%
%% A worker keeps its place while another is started for it, so that what goes to one of them by its place goes there still.
-module(thalweg_directory).
-behaviour(gen_server).

-export([start_link/0, publish/4, forget/1, workers/1, place/2, placed/2]).
-export([init/1, handle_call/3, handle_cast/2]).

-type place() :: {thalweg_nif:connection(), pid()}.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc A worker has a connection from now on, or none.
-spec publish(atom(), pos_integer(), pid(), thalweg_nif:connection() | none) -> ok.
publish(Pool, Index, Worker, Connection) ->
    gen_server:call(?MODULE, {publish, Pool, Index, Worker, Connection}, infinity).

%% @doc A pool is no more; another of its name may have fewer places.
-spec forget(atom()) -> ok.
forget(Pool) -> gen_server:call(?MODULE, {forget, Pool}, infinity).

%% @doc The connections and the processes of a pool's workers, in the order of their indices.
-spec workers(atom()) -> {tuple(), tuple()}.
workers(Pool) ->
    {Connections, Workers, _} = read(Pool),
    {Connections, Workers}.

%% @doc The connection in the place that a term stands for, always the same while the pool has as many places.
-spec place(atom(), term()) -> {ok, thalweg_nif:connection()} | none.
place(Pool, Term) ->
    {_, _, Places} = read(Pool),
    case tuple_size(Places) of
        0 -> none;
        Size -> at(Places, 1 + erlang:phash2(Term, Size))
    end.

%% @doc The connection of a pool's worker by its index.
-spec placed(atom(), pos_integer()) -> {ok, thalweg_nif:connection()} | none.
placed(Pool, Index) ->
    {_, _, Places} = read(Pool),
    case Index =< tuple_size(Places) of
        true -> at(Places, Index);
        false -> none
    end.

-spec at(tuple(), pos_integer()) -> {ok, thalweg_nif:connection()} | none.
at(Places, Index) ->
    case element(Index, Places) of
        none -> none;
        Connection -> {ok, Connection}
    end.

-spec read(atom()) -> {tuple(), tuple(), tuple()}.
read(Pool) -> persistent_term:get({?MODULE, Pool}, {{}, {}, {}}).

-spec init([]) -> {ok, #{atom() => #{pos_integer() => place() | none}}}.
init([]) ->
    ok = thalweg_shared:create(),
    {ok, #{}}.

-spec handle_call(term(), gen_server:from(), map()) -> {reply, ok, map()}.
handle_call({publish, Pool, Index, Worker, Connection}, _From, State) ->
    Old = maps:get(Pool, State, #{}),
    New =
        case {Connection, Old} of
            {none, #{Index := {_, Worker}}} -> Old#{Index => none};
            {none, _} -> Old;
            _ -> Old#{Index => {Connection, Worker}}
        end,
    put_term(Pool, [maps:get(At, New, none) || At <- lists:seq(1, lists:max([0 | maps:keys(New)]))]),
    {reply, ok, State#{Pool => New}};
handle_call({forget, Pool}, _From, State) ->
    _ = persistent_term:erase({?MODULE, Pool}),
    {reply, ok, maps:remove(Pool, State)}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) -> {noreply, State}.

-spec put_term(atom(), [place() | none]) -> ok.
put_term(Pool, Places) ->
    {Connections, Workers} = lists:unzip([Place || Place <- Places, Place =/= none]),
    ByPlace = [case Place of none -> none; {Connection, _} -> Connection end || Place <- Places],
    Term = {list_to_tuple(Connections), list_to_tuple(Workers), list_to_tuple(ByPlace)},
    persistent_term:put({?MODULE, Pool}, Term).
