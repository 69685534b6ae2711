%% @private One worker: a process of the operating system that runs Python, its connection, and what it asks by itself.
%%
%% Ends with either of the two, and takes the other along; its place starts another. What it prints and logs is another
%% process's affair (`thalweg_output'), so that nothing that it asks or is told waits behind that.
-module(thalweg_worker).
-behaviour(gen_server).

-export([start_link/3, keep/3]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include_lib("kernel/include/file.hrl").

%% Milliseconds that a worker whose applications are late has to say which.
-define(SAYS_SO_WITHIN, 500).
%% Milliseconds that a connection goes on being made, at the least, when its worker is late already.
-define(CONNECT_WITHIN, 1000).
%% Milliseconds until a worker that was asked to look for what was given up is asked again.
-define(LOOK_AGAIN, 50).

-record(state, {
    pool :: atom(),
    index :: pos_integer(),
    output :: pid(),
    port :: port(),
    %% None where it had ended before it could be asked for.
    os_pid :: non_neg_integer() | none,
    router :: pid(),
    connection :: thalweg_nif:connection(),
    endpoint :: file:filename_all(),
    %% The namespaces that end with their processes.
    scopes = #{} :: #{reference() => binary()},
    %% The callbacks that have no answer yet, and the process of each that only waits for something to take along.
    running = #{} :: #{non_neg_integer() => pid() | none},
    %% The process that sends to other nodes, once it was needed.
    courier = none :: pid() | none,
    %% Milliseconds that what runs there may take to shut down, and whether anything does that wants to.
    shut_down_within :: non_neg_integer(),
    has_lifespan = false :: boolean()
}).

%% A worker that starts: the process that keeps its place, its pool, its index there, and the options.
-type start() :: {pid(), atom(), pos_integer(), thalweg_pool:options()}.

%% @doc Begins to start a worker. The caller is sent `{ready, Worker}' when it is, or told why it ended instead.
-spec start_link(atom(), pos_integer(), thalweg_pool:options()) -> {ok, pid()} | {error, term()}.
start_link(Pool, Index, Options) -> gen_server:start_link(?MODULE, {self(), Pool, Index, Options}, []).

%% @doc Has a namespace go when a process does.
-spec keep(pid(), pid(), binary()) -> ok.
keep(Worker, Owner, Scope) -> gen_server:cast(Worker, {keep, Owner, Scope}).

-spec init(start()) -> {ok, start(), {continue, start}}.
init(Start) ->
    process_flag(trap_exit, true),
    process_flag(message_queue_data, off_heap),
    {ok, Start, {continue, start}}.

-spec handle_continue(start, start()) -> {noreply, #state{}} | {stop, term(), start()}.
handle_continue(start, {Place, Pool, Index, Options} = Start) ->
    %% Before there is a directory: one that is missing ends this here.
    Interpreter = thalweg_python:interpreter(Options),
    Endpoint = endpoint(),
    Output = thalweg_output:start_link(Interpreter, port_options(Endpoint, Options), #{pool => Pool, worker => Index}),
    case connected(Start, Endpoint, Output) of
        {ok, State} ->
            Place ! {ready, self()},
            {noreply, State};
        %% Its place says so.
        {error, Reason} -> {stop, {shutdown, Reason}, Start}
    end.

-spec connected(start(), file:filename_all(), {ok, pid(), port(), non_neg_integer() | none} | {error, term()}) ->
    {ok, #state{}} | {error, term()}.
connected(_Start, Endpoint, {error, Reason}) ->
    ok = forget_endpoint(Endpoint),
    {error, Reason};
connected({Place, Pool, Index, Options}, Endpoint, {ok, Output, Port, OsPid}) ->
    Within = maps:get(start_within, Options, 10000),
    %% The wait below ends first and reports the delay: the connection's own words would be that there is no server yet.
    Wishes = {none, maps:get(in_flight_max, Options, 1024), 2 * Within + ?CONNECT_WITHIN, false, false, true},
    case thalweg_router:start_link(Endpoint, Wishes) of
        {ok, Router, Connection} ->
            State = #state{
                pool = Pool, index = Index, output = Output, port = Port, os_pid = OsPid, router = Router,
                connection = Connection, endpoint = Endpoint, shut_down_within = thalweg_place:shut_down_within(Options)
            },
            case thalweg_nif:attend(Connection) of
                ok -> until_ready(State, Place, Within);
                %% Nobody can listen there, and nobody ever will.
                {error, Reason} -> failed(State, Reason)
            end;
        {error, Reason} ->
            %% Its input ends, and so does it, unless it has ended already.
            _ = catch port_close(Port),
            ok = forget_endpoint(Endpoint),
            {error, Reason}
    end.

%% What a worker says before it is ready is why it does not become so.
-spec until_ready(#state{}, pid(), timeout()) -> {ok, #state{}} | {error, term()}.
until_ready(#state{output = Output, port = Port, router = Router} = State, Place, Within) ->
    receive
        {thalweg_event, ready, _, _} ->
            ok = thalweg_output:ready(Output),
            %% Its connection and its output do not tell of its end as long as a child of it has them.
            _ = thalweg_nif:watch_process(State#state.connection),
            %% Before that no call waits for what may never be.
            #state{pool = Pool, index = Index, connection = Connection, os_pid = OsPid} = State,
            ok = thalweg_directory:publish(Pool, Index, Connection, OsPid),
            {ok, State};
        {Port, {exit_status, Status}} -> failed(State, {exit_status, Status});
        {'EXIT', Bound, Reason} when Bound =:= Router; Bound =:= Output -> failed(State, Reason);
        {'EXIT', Place, Reason} ->
            finish(State),
            {error, Reason}
    after Within -> failed(State, timeout)
    end.

-spec failed(#state{}, term()) -> {error, term()}.
failed(#state{output = Output} = State, Reason) ->
    finish(State),
    {error, {worker_failed, Reason, thalweg_output:printed(Output)}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_Request, _From, State) -> {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({keep, Owner, Scope}, #state{scopes = Scopes} = State) ->
    {noreply, State#state{scopes = Scopes#{monitor(process, Owner) => Scope}}};
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({thalweg_event, callback, Number, Call}, #state{pool = Pool, connection = Connection, running = Running} = State) ->
    Callback = thalweg_callbacks:run(Pool, Connection, Number, Call),
    Waits =
        case thalweg_callbacks:only_waits(Call) of
            true -> Callback;
            false -> none
        end,
    HasLifespan = State#state.has_lifespan orelse thalweg_callbacks:is_lifespan(Call),
    {noreply, State#state{running = Running#{Number => Waits}, has_lifespan = HasLifespan}};
handle_info({thalweg_event, unwanted, Number, _}, #state{running = Running} = State) ->
    %% Its outcome is not awaited any more. A user's function goes on; a reader of a channel ends, so that it takes no value along.
    _ = [exit(Callback, kill) || #{Number := Callback} <- [Running], is_pid(Callback)],
    {noreply, State};
handle_info({answered, Number}, #state{running = Running} = State) ->
    {noreply, State#state{running = maps:remove(Number, Running)}};
handle_info({{callback, Number}, _, process, _, Reason}, #state{running = Running} = State) when is_map_key(Number, Running) ->
    ok = thalweg_callbacks:died(State#state.connection, Number, Reason),
    {noreply, State#state{running = maps:remove(Number, Running)}};
handle_info(interrupt, State) ->
    %% A caller gave up: the worker looks whether the function that runs is still wanted, and once more, because Python does not
    %% hear of a signal between its last look for one and the system's call that it waits in.
    ok = has_it_look(State),
    _ = erlang:send_after(?LOOK_AGAIN, self(), look_again),
    {noreply, State};
handle_info(look_again, State) ->
    ok = has_it_look(State),
    {noreply, State};
handle_info({thalweg_event, send, _, {To, Message}}, State) when is_pid(To) ->
    %% To another node; what goes to a process of this one went there.
    Courier = thalweg_courier:living(State#state.courier),
    ok = thalweg_courier:send(Courier, To, Message),
    {noreply, State#state{courier = Courier}};
handle_info({thalweg_event, log, Level, {Logger, Words}}, #state{output = Output, connection = Connection} = State) ->
    ok = thalweg_output:logged(Output, Connection, {level(Level), Words, #{python_logger => Logger}}),
    {noreply, State};
handle_info({thalweg_event, error, 0, Reason}, #state{output = Output} = State) ->
    %% A message to a process, which has no answer.
    Words = io_lib:format("a message that Python sent is lost: ~tp", [Reason], [{chars_limit, 4096}]),
    ok = thalweg_output:log(Output, warning, unicode:characters_to_binary(Words), #{}),
    {noreply, State};
handle_info({thalweg_event, error, Number, Reason}, #state{connection = Connection} = State) ->
    %% A callback whose arguments are no terms here; anything else has no number that is waited for.
    ok = thalweg_callbacks:tell(fun() -> thalweg_nif:answer(Connection, Number, false, Reason) end),
    {noreply, State};
handle_info({thalweg_event, _, down}, State) ->
    %% Nothing that it says by itself will be heard any more, be the process there or not.
    {stop, {worker_died, down}, State};
handle_info({Port, {exit_status, Status}}, #state{port = Port} = State) ->
    {stop, {worker_died, {exit_status, Status}}, State};
handle_info({select, Connection, _, ready_input}, #state{connection = Connection} = State) ->
    {stop, {worker_died, ended}, State};
handle_info({'EXIT', Router, Reason}, #state{router = Router} = State) ->
    {stop, {worker_died, Reason}, State};
handle_info({'EXIT', _Parent, Reason}, State) ->
    {stop, Reason, State};
handle_info({'DOWN', Monitor, process, _, _}, #state{scopes = Scopes} = State) ->
    case maps:take(Monitor, Scopes) of
        {Scope, Left} ->
            Connection = State#state.connection,
            ok = thalweg_callbacks:tell(fun() -> thalweg_nif:forget(Connection, Scope) end),
            {noreply, State#state{scopes = Left}};
        error -> {noreply, State}
    end;
handle_info(_Message, State) -> {noreply, State}.

%% One that has not read the ones before needs no other.
-spec has_it_look(#state{}) -> ok.
has_it_look(#state{port = Port}) ->
    _ = catch port_command(Port, <<"!">>, [nosuspend]),
    ok.

-spec terminate(term(), #state{} | start()) -> ok.
terminate(_Reason, {_Place, _Pool, _Index, _Options}) -> ok;
terminate(shutdown, State) -> finish(shut_down(State));
terminate(_Reason, State) -> finish(State).

%% What is in flight is given up, and it and applications end before their worker does, which goes on meanwhile: no new caller finds it.
%% What went wrong is logged.
-spec shut_down(#state{}) -> #state{}.
shut_down(#state{connection = Connection, has_lifespan = HasLifespan} = State) ->
    ok = thalweg_directory:withdraw(State#state.pool, State#state.index, self()),
    case thalweg_nif:load(Connection) > 0 orelse HasLifespan of
        true ->
            ok = thalweg_nif:give_up(Connection),
            leave(State);
        false -> State
    end.

-spec leave(#state{}) -> #state{}.
leave(#state{connection = Connection, shut_down_within = Within} = State) ->
    Reference = make_ref(),
    Call = {<<"thalweg.worker">>, <<"leave">>, [Within / 1000], #{}, none},
    case thalweg_nif:call(Connection, Reference, Call, false) of
        {pending, _, _} ->
            %% It says itself what was late, where it can.
            Timer = erlang:start_timer(Within + ?SAYS_SO_WITHIN, self(), shut_down),
            until_shut_down(State, Reference, Timer);
        Result -> have_shut_down(State, Result)
    end.

-spec until_shut_down(#state{}, reference(), reference()) -> #state{}.
until_shut_down(#state{port = Port} = State, Reference, Timer) ->
    receive
        {thalweg, Reference, Result} -> have_shut_down(State, Result);
        {timeout, Timer, shut_down} -> have_shut_down(State, {error, timeout});
        {thalweg_event, _, down} -> have_shut_down(State, {error, down});
        {select, _, _, ready_input} -> have_shut_down(State, {error, ended});
        {Port, {exit_status, Status}} -> have_shut_down(State, {error, {exit_status, Status}});
        %% It may be amid a function that is given up just now.
        Message when
            Message =:= interrupt;
            Message =:= look_again;
            element(1, Message) =:= thalweg_event;
            element(1, Message) =:= answered;
            element(1, element(1, Message)) =:= callback;
            element(1, Message) =:= 'DOWN'
        ->
            {noreply, Next} = handle_info(Message, State),
            until_shut_down(Next, Reference, Timer)
    end.

-spec have_shut_down(#state{}, thalweg:result()) -> #state{}.
have_shut_down(State, {ok, Wrong}) when is_list(Wrong) ->
    _ = [thalweg_output:log(State#state.output, warning, Words, #{}) || Words <- Wrong],
    State;
have_shut_down(#state{output = Output} = State, Result) ->
    Words = io_lib:format("it did not see to its end: ~tp", [Result], [{chars_limit, 4096}]),
    ok = thalweg_output:log(Output, warning, unicode:characters_to_binary(Words), #{}),
    State.

%% The connection first, so that every caller is told; then the process, however busy it is.
-spec finish(#state{}) -> ok.
finish(#state{pool = Pool, index = Index, connection = Connection, port = Port, os_pid = OsPid} = State) ->
    ok = thalweg_directory:withdraw(Pool, Index, self()),
    _ = catch thalweg_nif:close(Connection),
    IsThere = erlang:port_info(Port) =/= undefined,
    _ = catch port_close(Port),
    %% Only one that never was ready is killed by its number: that of another may belong to a different process by now.
    IsKilled = thalweg_nif:kill_process(Connection),
    _ = [os:cmd("kill -KILL " ++ integer_to_list(OsPid)) || not IsKilled, IsThere, is_integer(OsPid)],
    ok = forget_endpoint(State#state.endpoint),
    _ = [exit(Callback, kill) || Callback <- maps:values(State#state.running), is_pid(Callback)],
    ok.

%% Python's levels.
-spec level(non_neg_integer()) -> logger:level().
level(Level) when Level >= 50 -> critical;
level(Level) when Level >= 40 -> error;
level(Level) when Level >= 30 -> warning;
level(Level) when Level >= 20 -> info;
level(_Level) -> debug.

%% In a directory that no other user may enter, and that is made for this worker: no other user can be there first.
-spec endpoint() -> file:filename_all().
endpoint() ->
    Unique = integer_to_list(rand:uniform(1 bsl 64), 36),
    Directory = filename:join(runtime_directory(), "thalweg-" ++ os:getpid() ++ "-" ++ Unique),
    case file:make_dir(Directory) of
        ok ->
            ok = file:change_mode(Directory, 8#700),
            filename:join(Directory, "worker.shm");
        {error, eexist} -> endpoint();
        {error, Reason} -> error({Reason, Directory})
    end.

-spec forget_endpoint(file:filename_all()) -> ok.
forget_endpoint(Endpoint) ->
    _ = file:delete(Endpoint),
    _ = file:del_dir(filename:dirname(Endpoint)),
    ok.

-spec runtime_directory() -> file:filename_all().
runtime_directory() ->
    case os:getenv("XDG_RUNTIME_DIR") of
        Directory when is_list(Directory), Directory =/= "" ->
            %% What one user's session says may be handed on to another's, or outlive it.
            case file:read_file_info(Directory) of
                {ok, #file_info{type = directory, access = Access}} when Access =:= read_write; Access =:= write ->
                    Directory;
                _ -> "/tmp"
            end;
        _ -> "/tmp"
    end.

-spec port_options(file:filename_all(), thalweg_pool:options()) -> list().
port_options(Endpoint, Options) ->
    Environment = thalweg_python:environment(Options),
    Directory = [{cd, Where} || {directory, Where} <- maps:to_list(Options)],
    Directory ++
        [
            {args, ["-u", "-m", "thalweg.worker", Endpoint]},
            {env, Environment},
            binary,
            exit_status,
            stderr_to_stdout,
            use_stdio
        ].
