%% @private Which workers there are, per pool. Written by one process, so that workers which end at once do not undo each
%% other; read by every process as a constant term, because it is read for every call and changes when a worker comes or goes.
%%
%% A worker keeps its place while another is started for it, so that what goes to one of them by its place goes there still.
%% What was written outlives its writer: a directory that is started anew begins with the workers that are still there.
-module(thalweg_directory).
-behaviour(gen_server).

-export([start_link/0, publish/4, withdraw/3, forget/1, workers/1, os_pids/1, place/2, placed/2]).
-export([init/1, handle_call/3, handle_cast/2]).

%% A worker's connection, its process, and the number that the operating system knows it by, if it is known.
-type place() :: {thalweg_nif:connection(), pid(), os_pid()}.
-type os_pid() :: non_neg_integer() | none.
%% Of the workers that there are, and which connection belongs to each place.
-type published() :: {Connections :: tuple(), Workers :: tuple(), ByPlace :: tuple(), [os_pid()]}.
-type places() :: #{pos_integer() => place() | none}.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc The calling process is a worker that is ready.
-spec publish(atom(), pos_integer(), thalweg_nif:connection(), os_pid()) -> ok.
publish(Pool, Index, Connection, OsPid) ->
    gen_server:call(?MODULE, {publish, Pool, Index, {Connection, self(), OsPid}}, infinity).

%% @doc A worker is not there any more, if it was.
-spec withdraw(atom(), pos_integer(), pid()) -> ok.
withdraw(Pool, Index, Worker) -> gen_server:call(?MODULE, {withdraw, Pool, Index, Worker}, infinity).

%% @doc A pool has no places from now on; another of its name may have fewer.
-spec forget(atom()) -> ok.
forget(Pool) -> gen_server:call(?MODULE, {forget, Pool}, infinity).

%% @doc The connections and the processes of a pool's workers, in the order of their indices.
-spec workers(atom()) -> {tuple(), tuple()}.
workers(Pool) ->
    {Connections, Workers, _, _} = read(Pool),
    {Connections, Workers}.

%% @doc The numbers that the operating system knows a pool's workers by.
-spec os_pids(atom()) -> [non_neg_integer()].
os_pids(Pool) ->
    {_, _, _, OsPids} = read(Pool),
    [OsPid || OsPid <- OsPids, is_integer(OsPid)].

%% @doc The connection in the place that a term stands for, always the same while the pool has as many places.
-spec place(atom(), term()) -> {ok, thalweg_nif:connection()} | none.
place(Pool, Term) ->
    {_, _, Places, _} = read(Pool),
    case tuple_size(Places) of
        0 -> none;
        Size -> at(Places, 1 + erlang:phash2(Term, Size))
    end.

%% @doc The connection of a pool's worker by its index, and the worker's process.
-spec placed(atom(), pos_integer()) -> {ok, thalweg_nif:connection(), pid()} | none.
placed(Pool, Index) ->
    {Connections, Workers, Places, _} = read(Pool),
    case is_integer(Index) andalso Index >= 1 andalso Index =< tuple_size(Places) andalso element(Index, Places) of
        NoConnection when NoConnection =:= false; NoConnection =:= none -> none;
        Connection ->
            {_, Worker} = lists:keyfind(Connection, 1, lists:zip(tuple_to_list(Connections), tuple_to_list(Workers))),
            {ok, Connection, Worker}
    end.

-spec at(tuple(), pos_integer()) -> {ok, thalweg_nif:connection()} | none.
at(Places, Index) ->
    case element(Index, Places) of
        none -> none;
        Connection -> {ok, Connection}
    end.

-spec read(atom()) -> published().
read(Pool) -> persistent_term:get({?MODULE, Pool}, {{}, {}, {}, []}).

-spec init([]) -> {ok, #{atom() => places()}}.
init([]) ->
    Known = [{Pool, living(Term)} || {{?MODULE, Pool}, Term} <- persistent_term:get()],
    {ok, lists:foldl(fun({Pool, Places}, State) -> keep(Pool, Places, State) end, #{}, Known)}.

%% The places of a pool as they were written, of those whose workers did not end meanwhile.
-spec living(published()) -> places().
living({Connections, Workers, Places, OsPids}) ->
    Known = lists:zip3(tuple_to_list(Connections), tuple_to_list(Workers), OsPids),
    Living = maps:from_list([{Connection, Of} || {Connection, Worker, _} = Of <- Known, is_process_alive(Worker)]),
    Place = fun(Connection) -> maps:get(Connection, Living, none) end,
    case map_size(Living) of
        0 -> #{};
        _ -> maps:from_list([{Index, Place(Of)} || {Index, Of} <- lists:enumerate(tuple_to_list(Places))])
    end.

-spec handle_call(term(), gen_server:from(), map()) -> {reply, ok, map()}.
handle_call({publish, Pool, Index, Place}, _From, State) ->
    Places = maps:get(Pool, State, #{}),
    {reply, ok, keep(Pool, Places#{Index => Place}, State)};
handle_call({withdraw, Pool, Index, Worker}, _From, State) ->
    case State of
        #{Pool := #{Index := {_, Worker, _}} = Places} -> {reply, ok, keep(Pool, Places#{Index => none}, State)};
        %% It never was ready, or its place is another's: nothing is written, which would cost every process something.
        _ -> {reply, ok, State}
    end;
handle_call({forget, Pool}, _From, State) -> {reply, ok, keep(Pool, #{}, State)}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) -> {noreply, State}.

%% What is kept of a pool, and read by every process.
-spec keep(atom(), places(), #{atom() => places()}) -> #{atom() => places()}.
keep(Pool, Places, State) when Places =:= #{} ->
    _ = persistent_term:erase({?MODULE, Pool}),
    maps:remove(Pool, State);
keep(Pool, Places, State) ->
    put_term(Pool, [maps:get(At, Places, none) || At <- lists:seq(1, lists:max(maps:keys(Places)))]),
    State#{Pool => Places}.

-spec put_term(atom(), [place() | none]) -> ok.
put_term(Pool, Places) ->
    {Connections, Workers, OsPids} = lists:unzip3([Place || Place <- Places, Place =/= none]),
    ByPlace = [case Place of none -> none; {Connection, _, _} -> Connection end || Place <- Places],
    Term = {list_to_tuple(Connections), list_to_tuple(Workers), list_to_tuple(ByPlace), OsPids},
    persistent_term:put({?MODULE, Pool}, Term).
