%% @private Which workers there are, per pool. Written by one process, so that workers which end at once do not undo each
%% other; read by everybody as a constant term, because it is read for every call and changes when a worker comes or goes.
-module(thalweg_directory).
-behaviour(gen_server).

-export([start_link/0, publish/4, workers/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-type place() :: {thalweg_nif:connection(), pid()}.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc A worker has a connection from now on, or none.
-spec publish(atom(), pos_integer(), pid(), thalweg_nif:connection() | none) -> ok.
publish(Pool, Index, Worker, Connection) ->
    gen_server:call(?MODULE, {publish, Pool, Index, Worker, Connection}, infinity).

%% @doc The connections and the processes of a pool's workers, in the order of their indices.
-spec workers(atom()) -> {tuple(), tuple()}.
workers(Pool) -> persistent_term:get({?MODULE, Pool}, {{}, {}}).

-spec init([]) -> {ok, #{atom() => #{pos_integer() => place()}}}.
init([]) ->
    ok = thalweg_shared:create(),
    {ok, #{}}.

-spec handle_call(term(), gen_server:from(), map()) -> {reply, ok, map()}.
handle_call({publish, Pool, Index, Worker, Connection}, _From, State) ->
    Old = maps:get(Pool, State, #{}),
    New =
        case {Connection, Old} of
            {none, #{Index := {_, Worker}}} -> maps:remove(Index, Old);
            {none, _} -> Old;
            _ -> Old#{Index => {Connection, Worker}}
        end,
    put_term(Pool, [Place || {_, Place} <- lists:sort(maps:to_list(New))]),
    {reply, ok, State#{Pool => New}}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) -> {noreply, State}.

-spec put_term(atom(), [place()]) -> ok.
put_term(Pool, Places) ->
    {Connections, Workers} = lists:unzip(Places),
    persistent_term:put({?MODULE, Pool}, {list_to_tuple(Connections), list_to_tuple(Workers)}).
