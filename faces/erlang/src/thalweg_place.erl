%% @private The place of one worker in its pool: keeps a worker there as long as the pool lasts.
%%
%% The first one has to start, or the pool does not. One that ended is followed by another at once; as long as those do not
%% last, or do not even start, each waits longer than the one before, so that an interpreter which is gone costs next to
%% nothing, hurts no other pool, and is used again when it is back. Meanwhile the place is empty, and callers are told so.
-module(thalweg_place).
-behaviour(gen_server).

-export([start_link/3, shut_down_within/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% Milliseconds: what the second one in a row waits, and what none waits longer than. Whoever lasted as long was sound.
-define(PAUSE_FIRST, 50).
-define(PAUSE_MAX, 10000).
%% Milliseconds that a worker may take to end, and before that what runs there.
-define(END_WITHIN, 2000).
-define(SHUT_DOWN_WITHIN, 5000).

-record(state, {
    pool :: atom(),
    index :: pos_integer(),
    options :: thalweg_pool:options(),
    worker :: pid() | none,
    %% When that one had started, in monotonic milliseconds.
    since :: integer(),
    %% What the next one waits.
    pause = 0 :: non_neg_integer()
}).

-spec start_link(atom(), pos_integer(), thalweg_pool:options()) -> {ok, pid()} | {error, term()}.
start_link(Pool, Index, Options) ->
    case gen_server:start_link(?MODULE, {Pool, Index, Options}, []) of
        {ok, Place} -> {ok, Place};
        {error, {shutdown, Reason}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Milliseconds that what runs in a worker may take to shut down.
-spec shut_down_within(thalweg_pool:options()) -> non_neg_integer().
shut_down_within(Options) -> maps:get(shut_down_within, Options, ?SHUT_DOWN_WITHIN).

-spec init({atom(), pos_integer(), thalweg_pool:options()}) -> {ok, #state{}} | {stop, term()}.
init({Pool, Index, Options}) ->
    process_flag(trap_exit, true),
    case thalweg_worker:start_link(Pool, Index, Options) of
        {ok, Worker} ->
            {ok, #state{pool = Pool, index = Index, options = Options, worker = Worker, since = now_ms()}};
        %% The worker said already what is wrong.
        {error, Reason} -> {stop, {shutdown, Reason}}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_Request, _From, State) -> {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'EXIT', Worker, _}, #state{worker = Worker, since = Since} = State) ->
    case now_ms() - Since >= ?PAUSE_MAX of
        true -> {noreply, later(State#state{worker = none, pause = 0})};
        false -> {noreply, later(State#state{worker = none})}
    end;
handle_info(start, #state{pool = Pool, index = Index, options = Options, worker = none} = State) ->
    case thalweg_worker:start_link(Pool, Index, Options) of
        {ok, Worker} -> {noreply, State#state{worker = Worker, since = now_ms()}};
        {error, Reason} ->
            Meta = #{pool => Pool, worker => Index},
            logger:warning("no worker starts, the next attempt is in ~b ms: ~tp", [State#state.pause, Reason], Meta),
            {noreply, later(State)}
    end;
handle_info(_Message, State) -> {noreply, State}.

%% Until it has ended the place is its own: the pool's next one would listen where it does.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{worker = none}) -> ok;
terminate(_Reason, #state{worker = Worker, options = Options}) ->
    exit(Worker, shutdown),
    receive
        {'EXIT', Worker, _} -> ok
    after ?END_WITHIN + shut_down_within(Options) ->
        exit(Worker, kill),
        receive
            {'EXIT', Worker, _} -> ok
        end
    end.

-spec later(#state{}) -> #state{}.
later(#state{pause = Pause} = State) ->
    _ = erlang:send_after(Pause, self(), start),
    State#state{pause = min(max(?PAUSE_FIRST, 2 * Pause), ?PAUSE_MAX)}.

-spec now_ms() -> integer().
now_ms() -> erlang:monotonic_time(millisecond).
