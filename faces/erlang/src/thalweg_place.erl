%% @private The place of one worker in its pool: keeps a worker there as long as the pool lasts.
%%
%% The first one has to start, or the pool does not: the process that starts the pool asks here what came of it. One that ended is followed by
%% another at once; as long as those do not last, or do not even start, each waits longer than the one before, so that an interpreter
%% which is gone costs next to nothing, hurts no other pool, and is used again when it is back. Meanwhile the place is empty, and
%% callers are told so. This process waits for no worker that starts: the place can be told to end all the while.
-module(thalweg_place).
-behaviour(gen_server).

-export([start_link/3, ready/1, shut_down_within/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% Milliseconds: what the second one in a row waits, and the upper bound of the pause. A worker that lasted as long was sound.
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
    %% When that one had started, in monotonic milliseconds; it has not yet.
    since = none :: integer() | none,
    %% What came of the first one, or the caller that asked.
    first = [] :: ok | {error, term()} | [gen_server:from()],
    %% What the next one waits.
    pause = 0 :: non_neg_integer()
}).

-spec start_link(atom(), thalweg_pool:options(), pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Pool, Options, Index) -> gen_server:start_link(?MODULE, {Pool, Index, Options}, []).

%% @doc Waits until the first worker is ready, or cannot be.
-spec ready(pid()) -> ok | {error, term()}.
ready(Place) -> gen_server:call(Place, ready, infinity).

%% @doc Milliseconds that what runs in a worker may take to shut down.
-spec shut_down_within(thalweg_pool:options()) -> non_neg_integer().
shut_down_within(Options) -> maps:get(shut_down_within, Options, ?SHUT_DOWN_WITHIN).

-spec init({atom(), pos_integer(), thalweg_pool:options()}) -> {ok, #state{}}.
init({Pool, Index, Options}) ->
    process_flag(trap_exit, true),
    {ok, start(#state{pool = Pool, index = Index, options = Options, worker = none})}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(ready, From, #state{first = Asked} = State) when is_list(Asked) -> {noreply, State#state{first = [From | Asked]}};
handle_call(ready, _From, #state{first = First} = State) -> {reply, First, State};
handle_call(_Request, _From, State) -> {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({ready, Worker}, #state{worker = Worker} = State) -> {noreply, first(ok, State#state{since = now_ms()})};
handle_info({'EXIT', Worker, Reason}, #state{worker = Worker, since = none} = State) ->
    {noreply, not_started(why(Reason), State#state{worker = none})};
handle_info({'EXIT', Worker, _}, #state{worker = Worker, since = Since} = State) ->
    case now_ms() - Since >= ?PAUSE_MAX of
        true -> {noreply, later(State#state{worker = none, pause = 0})};
        false -> {noreply, later(State#state{worker = none})}
    end;
handle_info(start, #state{worker = none} = State) -> {noreply, start(State)};
handle_info(_Message, State) -> {noreply, State}.

-spec start(#state{}) -> #state{}.
start(#state{pool = Pool, index = Index, options = Options} = State) ->
    {ok, Worker} = thalweg_worker:start_link(Pool, Index, Options),
    State#state{worker = Worker, since = none}.

%% The pool ends with its first worker. The process that starts the pool sees to that.
-spec not_started(term(), #state{}) -> #state{}.
not_started(Reason, #state{first = ok, pool = Pool, index = Index, pause = Pause} = State) ->
    Meta = #{pool => Pool, worker => Index},
    logger:warning("no worker starts, the next attempt is in ~b ms: ~tp", [Pause, Reason], Meta),
    later(State);
not_started(Reason, State) -> first({error, Reason}, State).

-spec first(ok | {error, term()}, #state{}) -> #state{}.
first(Outcome, #state{first = Asked} = State) when is_list(Asked) ->
    _ = [gen_server:reply(From, Outcome) || From <- Asked],
    State#state{first = Outcome};
first(_Outcome, State) -> State.

-spec why(term()) -> term().
why({shutdown, Reason}) -> Reason;
why(Reason) -> Reason.

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
