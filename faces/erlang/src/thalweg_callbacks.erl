%% @private The functions that Python may call, by name. They run in processes of their own, so that one that waits or fails
%% holds no other up. Which there are is kept as long as the application runs, whatever else of it begins anew.
-module(thalweg_callbacks).

-export([create/0, register/2, unregister/1, run/4, only_waits/1, is_lifespan/1, lifespan/1, died/3, tell/1, send/1]).
-export_type([callback/0]).

-define(TABLE, ?MODULE).

%% Called with the list of arguments.
-type callback() :: fun((list()) -> term()) | {module(), atom()}.

%% @doc The table belongs to the caller.
-spec create() -> ok.
create() ->
    _ = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    Ours = [
        {<<"thalweg:body">>, {thalweg_body, from_python}},
        {<<"thalweg:channel">>, {thalweg_channel, from_python}},
        {<<"thalweg:shared">>, {thalweg_shared, from_python}},
        {<<"thalweg:send">>, {?MODULE, send}},
        {<<"thalweg:lifespan">>, {?MODULE, lifespan}}
    ],
    true = ets:insert(?TABLE, Ours),
    ok.

-spec register(binary(), callback()) -> ok.
register(Name, Callback) ->
    true = ets:insert(?TABLE, {Name, Callback}),
    ok.

-spec unregister(binary()) -> ok.
unregister(Name) ->
    true = ets:delete(?TABLE, Name),
    ok.

%% @doc Runs a callback and gives its outcome to the worker that waits for it. Calls that are made in its course run in that
%% very worker, while the function that called back waits. The caller of this is sent `{answered, Number}' then, and in any case
%% `{{callback, Number}, _, process, _, Reason}' when it is over: whatever the reason, it tells the worker if only that came.
-spec run(atom(), thalweg_nif:connection(), non_neg_integer(), term()) -> pid().
run(Pool, Connection, Number, {Name, Arguments}) ->
    Keeper = self(),
    Run = fun() ->
        thalweg:within(Pool, Connection, Number),
        {IsOk, Value} = outcome(Name, Arguments),
        ok = answer(Connection, Number, IsOk, Value),
        Keeper ! {answered, Number}
    end,
    {Callback, _} = spawn_opt(Run, [{monitor, [{tag, {callback, Number}}]}]),
    Callback.

%% @doc Whether a callback does nothing but wait for a value, which is lost with the process that waited for the callback.
-spec only_waits(term()) -> boolean().
only_waits({<<"thalweg:channel">>, [<<"read">> | _]}) -> true;
only_waits(_) -> false.

%% @doc Tells the worker of a callback that came to nothing.
-spec died(thalweg_nif:connection(), non_neg_integer(), term()) -> ok.
died(Connection, Number, Reason) ->
    Words = {exit, text(Reason)},
    tell(fun() -> thalweg_nif:answer(Connection, Number, false, Words) end).

%% @doc Tells a worker what it has to hear, for a caller that may not wait: where more waits to be sent than may, another process waits.
-spec tell(fun(() -> ok | {error, term()})) -> ok.
tell(Say) ->
    case Say() of
        {error, {overloaded, _, _}} ->
            _ = spawn(fun() -> insist(Say) end),
            ok;
        _ -> ok
    end.

%% Says it again until there is room. Where the worker is gone there is nothing to wait for.
-spec insist(fun(() -> ok | {error, term()})) -> ok | {error, term()}.
insist(Say) ->
    case Say() of
        {error, {overloaded, _, _}} ->
            timer:sleep(1),
            insist(Say);
        Told -> Told
    end.

-spec answer(thalweg_nif:connection(), non_neg_integer(), boolean(), term()) -> ok.
answer(Connection, Number, IsOk, Value) ->
    case insist(fun() -> thalweg_nif:answer(Connection, Number, IsOk, Value) end) of
        {error, {no_python_value, _} = Reason} -> answer(Connection, Number, false, text(Reason));
        {error, {fault, frame_too_large, _} = Reason} -> answer(Connection, Number, false, text(Reason));
        _ -> ok
    end.

-spec outcome(binary(), list()) -> {boolean(), term()}.
outcome(Name, Arguments) ->
    try
        case ets:lookup(?TABLE, Name) of
            [{_, {Module, Function}}] -> {true, Module:Function(Arguments)};
            [{_, Function}] -> {true, Function(Arguments)};
            [] -> {false, {no_function, Name}}
        end
    catch
        throw:Reason -> {false, Reason};
        Class:Reason:Stack ->
            {false, {exception, atom_to_binary(Class), text(Reason), [text(Frame) || Frame <- Stack]}}
    end.

%% @doc Whether a callback says that something in the worker wants to hear of its end beforehand.
-spec is_lifespan(term()) -> boolean().
is_lifespan({<<"thalweg:lifespan">>, _}) -> true;
is_lifespan(_) -> false.

%% @private Whose worker it is took notice when it was called.
-spec lifespan([]) -> true.
lifespan([]) -> true.

%% @private Sends a process a message, and says whether there is such a process.
-spec send([pid() | term()]) -> boolean().
send([Pid, Message]) ->
    Pid ! Message,
    is_there(Pid).

-spec is_there(pid()) -> boolean().
is_there(Pid) when node(Pid) =:= node() -> is_process_alive(Pid);
is_there(Pid) ->
    try erpc:call(node(Pid), erlang, is_process_alive, [Pid], 5000)
    catch _:_ -> false
    end.

%% In so many letters: what failed may quote what failed within it, and that again.
-spec text(term()) -> binary().
text(Term) -> unicode:characters_to_binary(io_lib:format("~tp", [Term], [{chars_limit, 4096}])).
