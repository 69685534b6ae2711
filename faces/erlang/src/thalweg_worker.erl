%% @private One worker: a process of the operating system that runs Python, its connection, and what it says by itself.
%%
%% Ends with either of the two, and takes the other along; its place starts another.
-module(thalweg_worker).
-behaviour(gen_server).

-export([start_link/3, keep/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-record(state, {
    pool :: atom(),
    index :: pos_integer(),
    port :: port(),
    os_pid :: non_neg_integer(),
    router :: pid(),
    connection :: thalweg_nif:connection(),
    endpoint :: file:filename_all(),
    %% The namespaces that end with their processes.
    scopes = #{} :: #{reference() => binary()},
    %% The callbacks that run.
    running = #{} :: #{reference() => non_neg_integer()},
    %% Those of them that only wait for something to take along, and who runs each.
    waiting = #{} :: #{non_neg_integer() => pid()}
}).

-spec start_link(atom(), pos_integer(), thalweg_pool:options()) -> {ok, pid()} | {error, term()}.
start_link(Pool, Index, Options) -> gen_server:start_link(?MODULE, {Pool, Index, Options}, []).

%% @doc Has a namespace go when a process does.
-spec keep(pid(), pid(), binary()) -> ok.
keep(Worker, Owner, Scope) -> gen_server:cast(Worker, {keep, Owner, Scope}).

-spec init({atom(), pos_integer(), thalweg_pool:options()}) -> {ok, #state{}} | {stop, term()}.
init({Pool, Index, Options}) ->
    process_flag(trap_exit, true),
    process_flag(message_queue_data, off_heap),
    Endpoint = endpoint(Pool, Index),
    Port = open_port({spawn_executable, thalweg_python:interpreter(Options)}, port_options(Endpoint, Options)),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    Within = maps:get(start_within, Options, 10000),
    Wishes = {none, maps:get(in_flight_max, Options, 1024), Within, false, false},
    case thalweg_router:start_link(Endpoint, Wishes) of
        {ok, Router, Connection} ->
            State = #state{
                pool = Pool, index = Index, port = Port, os_pid = OsPid, router = Router, connection = Connection,
                endpoint = Endpoint
            },
            ok = thalweg_nif:attend(Connection),
            thalweg_directory:publish(Pool, Index, self(), Connection),
            until_ready(State, Within, []);
        {error, Reason} ->
            %% Its input ends, and so does it.
            port_close(Port),
            {stop, Reason}
    end.

%% What a worker says before it is ready is why it does not become so.
-spec until_ready(#state{}, timeout(), [binary()]) -> {ok, #state{}} | {stop, term()}.
until_ready(#state{port = Port, router = Router} = State, Within, Said) ->
    receive
        {thalweg_event, ready, _, _} ->
            [said(State, Line) || Line <- lists:reverse(Said)],
            {ok, State};
        {Port, {data, {_, Line}}} -> until_ready(State, Within, [Line | lists:sublist(Said, 49)]);
        {Port, {exit_status, Status}} -> failed(State, {exit_status, Status}, Said);
        {'EXIT', Router, Reason} -> failed(State, Reason, Said)
    after Within -> failed(State, timeout, Said)
    end.

-spec failed(#state{}, term(), [binary()]) -> {stop, term()}.
failed(State, Reason, Said) ->
    finish(State),
    {stop, {worker_failed, Reason, lists:reverse(Said)}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(os_pid, _From, State) -> {reply, State#state.os_pid, State};
handle_call(_Request, _From, State) -> {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({keep, Owner, Scope}, #state{scopes = Scopes} = State) ->
    {noreply, State#state{scopes = Scopes#{monitor(process, Owner) => Scope}}};
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({thalweg_event, callback, Number, Call}, #state{pool = Pool, connection = Connection} = State) ->
    {Callback, Monitor} = thalweg_callbacks:run(Pool, Connection, Number, Call),
    #state{running = Running, waiting = Waiting} = State,
    Now =
        case thalweg_callbacks:only_waits(Call) of
            true -> Waiting#{Number => Callback};
            false -> Waiting
        end,
    {noreply, State#state{running = Running#{Monitor => Number}, waiting = Now}};
handle_info({thalweg_event, unwanted, Number, _}, #state{waiting = Waiting} = State) ->
    %% Nobody waits for its outcome any more: a function of somebody's goes on, a reader takes nothing along.
    _ = [exit(Callback, kill) || #{Number := Callback} <- [Waiting]],
    {noreply, State};
handle_info(interrupt, State) ->
    %% Somebody gave up: the worker looks whether the function that runs is still wanted.
    _ = catch port_command(State#state.port, <<"!">>),
    {noreply, State};
handle_info({thalweg_event, send, _, {To, Message}}, State) when is_pid(To) ->
    %% To another node; what goes to a process of this one went there.
    To ! Message,
    {noreply, State};
handle_info({thalweg_event, log, Level, {Logger, Words}}, #state{pool = Pool, index = Index} = State) ->
    Meta = #{pool => Pool, worker => Index, os_pid => State#state.os_pid, python_logger => Logger},
    logger:log(level(Level), "~ts", [Words], Meta),
    {noreply, State};
handle_info({thalweg_event, error, 0, Reason}, #state{pool = Pool, index = Index} = State) ->
    %% A message to a process, which nobody waits for an answer to.
    Meta = #{pool => Pool, worker => Index, os_pid => State#state.os_pid},
    logger:warning("a message that Python sent is lost: ~tp", [Reason], Meta),
    {noreply, State};
handle_info({thalweg_event, error, Number, Reason}, #state{connection = Connection} = State) ->
    %% A callback whose arguments are no terms here; anything else has no number that anybody waits for.
    _ = thalweg_nif:answer(Connection, Number, false, Reason),
    {noreply, State};
handle_info({thalweg_event, _, down}, State) ->
    %% Nothing that it says by itself will be heard any more, be the process there or not.
    {stop, {worker_died, down}, State};
handle_info({Port, {data, {_, Line}}}, #state{port = Port} = State) ->
    said(State, Line),
    {noreply, State};
handle_info({Port, {exit_status, Status}}, #state{port = Port} = State) ->
    {stop, {worker_died, {exit_status, Status}}, State};
handle_info({'EXIT', Router, Reason}, #state{router = Router} = State) ->
    {stop, {worker_died, Reason}, State};
handle_info({'EXIT', _Parent, Reason}, State) ->
    {stop, Reason, State};
handle_info({'DOWN', Monitor, process, _, Reason}, #state{running = Running} = State) when
    is_map_key(Monitor, Running)
->
    {Number, Left} = maps:take(Monitor, Running),
    _ = [thalweg_callbacks:died(State#state.connection, Number, Reason) || Reason =/= normal],
    {noreply, State#state{running = Left, waiting = maps:remove(Number, State#state.waiting)}};
handle_info({'DOWN', Monitor, process, _, _}, #state{scopes = Scopes} = State) ->
    case maps:take(Monitor, Scopes) of
        {Scope, Left} ->
            _ = thalweg_nif:forget(State#state.connection, Scope),
            {noreply, State#state{scopes = Left}};
        error -> {noreply, State}
    end;
handle_info(_Message, State) -> {noreply, State}.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, State) -> finish(State).

%% The connection first, so that every caller is told; then the process, however busy it is.
-spec finish(#state{}) -> ok.
finish(#state{pool = Pool, index = Index, connection = Connection, port = Port} = State) ->
    thalweg_directory:publish(Pool, Index, self(), none),
    _ = catch thalweg_nif:close(Connection),
    IsThere = erlang:port_info(Port) =/= undefined,
    _ = catch port_close(Port),
    _ = [os:cmd("kill -KILL " ++ integer_to_list(State#state.os_pid)) || IsThere],
    _ = file:delete(State#state.endpoint),
    _ = [exit(Callback, kill) || Callback <- maps:values(State#state.waiting)],
    ok.

-spec said(#state{}, binary()) -> ok.
said(#state{pool = Pool, index = Index, os_pid = OsPid}, Line) ->
    logger:notice("~ts", [printable(Line)], #{pool => Pool, worker => Index, os_pid => OsPid}).

-spec printable(binary()) -> string() | binary().
printable(Line) ->
    case unicode:characters_to_list(Line) of
        Text when is_list(Text) -> Text;
        _ -> io_lib:format("~p", [Line])
    end.

%% Python's levels.
-spec level(non_neg_integer()) -> logger:level().
level(Level) when Level >= 50 -> critical;
level(Level) when Level >= 40 -> error;
level(Level) when Level >= 30 -> warning;
level(Level) when Level >= 20 -> info;
level(_Level) -> debug.

-spec endpoint(atom(), pos_integer()) -> file:filename_all().
endpoint(Pool, Index) ->
    Unique = integer_to_list(erlang:phash2({node(), Pool}), 36),
    Name = io_lib:format("thalweg-~s-~s-~b.shm", [os:getpid(), Unique, Index]),
    filename:join(runtime_directory(), lists:flatten(Name)).

-spec runtime_directory() -> file:filename_all().
runtime_directory() ->
    case os:getenv("XDG_RUNTIME_DIR") of
        Directory when is_list(Directory), Directory =/= "" -> Directory;
        _ -> "/tmp"
    end.

-spec port_options(file:filename_all(), thalweg_pool:options()) -> list().
port_options(Endpoint, Options) ->
    Environment = maps:get(environment, Options, []) ++ thalweg_python:environment(Options),
    Directory = [{cd, Where} || {directory, Where} <- maps:to_list(Options)],
    Directory ++
        [
            {args, ["-u", "-m", "thalweg.worker", Endpoint]},
            {env, Environment},
            {line, 8192},
            binary,
            exit_status,
            stderr_to_stdout,
            use_stdio
        ].
