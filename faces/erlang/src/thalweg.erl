%% @doc Python for Erlang: calls into worker processes, whose results arrive as messages.
%%
%% `{ok, Value}' is what a function returned, `{error, Reason}' why it did not: what Python raised is
%% `{exception, Kind, Words, Trace}', a bound that was reached `{overloaded, Current, Max}', a worker that ended
%% `{fault, Name, Words}', a term that Python has no value for `{no_python_value, Words}'. See docs/erlang.md.
-module(thalweg).

-export([start_pool/1, start_pool/2, stop_pool/1, workers/1, load/1]).
-export([call/2, call/3, call/4, cast/2, cast/3, cast/4]).
-export([spawn_call/2, spawn_call/3, spawn_call/4, await/1, await/2, cancel/1, reference/1]).
-export([async_call/2, async_call/3, async_call/4, async_await/1, async_await/2, async_gather/1, async_gather/2]).
-export([eval/1, eval/2, eval/3, exec/1, exec/2, exec/3]).
-export([register/2, unregister/1]).
-export([within/3, route/1, flush/1, patience/1, receive_of/2]).
-export_type([request/0, options/0, result/0, name/0]).

%% What a name in Python is: `math', <<"os.path">>.
-type name() :: atom() | binary().
-type result() :: {ok, term()} | {error, term()}.
-type options() :: #{
    %% Which; `default' otherwise.
    pool => atom(),
    %% Keywords, of one call or of a stream.
    keywords => #{name() => term()},
    %% Of what waits: milliseconds; 5000 otherwise.
    timeout => timeout(),
    %% Calls with the same term go to the same worker.
    affinity => term(),
    %% Of `eval' and `exec': whose variables they see; the calling process's otherwise.
    namespace => term(),
    %% Of a stream: how many values may be on their way.
    credit => pos_integer(),
    %% And how many come together, in a list.
    batch => pos_integer()
}.
%% A call that has begun.
-opaque request() :: {reference(), pending | {thalweg_nif:connection(), non_neg_integer()}}.

-define(TIMEOUT, 5000).
%% The longest that the virtual machine waits.
-define(TIMEOUT_MAX, 16#ffffffff).

%% @doc Starts the pool `default'.
-spec start_pool(thalweg_pool:options()) -> {ok, pid()} | {error, term()}.
start_pool(Options) -> start_pool(default, Options).

%% @doc Starts a pool, and returns when all of its workers are ready.
-spec start_pool(atom(), thalweg_pool:options()) -> {ok, pid()} | {error, term()}.
start_pool(Name, Options) when is_atom(Name) ->
    case thalweg_options:check(pool, Options) of
        ok ->
            case thalweg_python:check(Options) of
                ok -> thalweg_pool:start(Name, Options);
                {error, Reason} -> {error, Reason}
            end;
        {error, Wrong} -> {error, Wrong}
    end;
start_pool(_Name, _Options) -> error(badarg).

%% @doc Ends a pool: calls that are under way are told that it ended.
-spec stop_pool(atom()) -> ok | {error, not_found}.
stop_pool(Name) -> thalweg_pool:stop(Name).

%% @doc The numbers that the operating system knows a pool's workers by.
-spec workers(atom()) -> [non_neg_integer()].
workers(Name) -> thalweg_directory:os_pids(Name).

%% @doc Calls in flight, per worker.
-spec load(atom()) -> [non_neg_integer()].
load(Name) ->
    {Connections, _} = thalweg_directory:workers(Name),
    [thalweg_nif:load(Connection) || Connection <- tuple_to_list(Connections)].

%% Calls

-spec call(name(), name()) -> result().
call(Module, Function) -> call(Module, Function, [], #{}).

-spec call(name(), name(), list()) -> result().
call(Module, Function, Arguments) -> call(Module, Function, Arguments, #{}).

%% @doc Calls a function and waits for what it returns. What it returns to be awaited is awaited in the worker.
-spec call(name(), name(), list(), options()) -> result().
call(Module, Function, Arguments, Options) ->
    ok = thalweg_options:demand(call, Options),
    Timeout = maps:get(timeout, Options, ?TIMEOUT),
    {_, Connections, Within} = route(Options),
    Reference = make_ref(),
    Call = {Module, Function, Arguments, maps:get(keywords, Options, #{}), Within},
    case thalweg_nif:call(Connections, Reference, Call, true) of
        {pending, Connection, Number} ->
            receive
                {thalweg, Reference, Result} -> Result
            after Timeout -> give_up(Connection, Number, Reference)
            end;
        Result -> Result
    end.

-spec cast(name(), name()) -> ok | {error, term()}.
cast(Module, Function) -> cast(Module, Function, [], #{}).

-spec cast(name(), name(), list()) -> ok | {error, term()}.
cast(Module, Function, Arguments) -> cast(Module, Function, Arguments, #{}).

%% @doc Calls a function whose outcome is dropped.
-spec cast(name(), name(), list(), options()) -> ok | {error, term()}.
cast(Module, Function, Arguments, Options) ->
    ok = thalweg_options:demand(begun, Options),
    {_, Connections, Within} = route(Options),
    Call = {Module, Function, Arguments, maps:get(keywords, Options, #{}), Within},
    thalweg_nif:cast(Connections, Call).

-spec spawn_call(name(), name()) -> request().
spawn_call(Module, Function) -> spawn_call(Module, Function, [], #{}).

-spec spawn_call(name(), name(), list()) -> request().
spawn_call(Module, Function, Arguments) -> spawn_call(Module, Function, Arguments, #{}).

%% @doc Begins a call. Its result comes as `{thalweg, Reference, Result}', by {@link reference/1}, or is waited for with
%% {@link await/2}.
-spec spawn_call(name(), name(), list(), options()) -> request().
spawn_call(Module, Function, Arguments, Options) ->
    ok = thalweg_options:demand(begun, Options),
    {_, Connections, Within} = route(Options),
    Reference = make_ref(),
    Call = {Module, Function, Arguments, maps:get(keywords, Options, #{}), Within},
    case thalweg_nif:call(Connections, Reference, Call, false) of
        {pending, Connection, Number} -> {Reference, {Connection, Number}};
        Result ->
            self() ! {thalweg, Reference, Result},
            {Reference, pending}
    end.

-spec await(request()) -> result().
await(Request) -> await(Request, ?TIMEOUT).

%% @doc Waits for the result of a call that was begun. One that does not come in time is cancelled. What came already, was cancelled,
%% or is another process's to wait for, is `badarg'.
-spec await(request(), timeout()) -> result().
await(Request, Timeout) -> await_within(Request, patience(Timeout)).

-spec await_within(request(), timeout()) -> result().
await_within({Reference, pending}, _Timeout) ->
    %% It was there before the call was said to have begun.
    receive
        {thalweg, Reference, Result} -> Result
    after 0 -> error(badarg)
    end;
await_within({Reference, {Connection, Number}}, Timeout) ->
    case thalweg_nif:await(Connection, Number) of
        pending ->
            receive
                {thalweg, Reference, Result} -> Result
            after Timeout -> give_up(Connection, Number, Reference)
            end;
        done -> await_within({Reference, pending}, Timeout);
        Result -> Result
    end;
await_within(_Request, _Timeout) -> error(badarg).

%% @doc Cancels a call: a coroutine is cancelled, a function that runs is interrupted. Its
%% result does not come, and did not.
-spec cancel(request()) -> ok.
cancel({Reference, pending}) -> flush(Reference);
cancel({Reference, {Connection, Number}}) ->
    _ = give_up(Connection, Number, Reference),
    ok;
cancel(_Request) -> error(badarg).

%% @doc What the message with its result is told by.
-spec reference(request()) -> reference().
reference({Reference, _}) -> Reference;
reference(_Request) -> error(badarg).

-spec async_call(name(), name()) -> request().
async_call(Module, Function) -> spawn_call(Module, Function).

-spec async_call(name(), name(), list()) -> request().
async_call(Module, Function, Arguments) -> spawn_call(Module, Function, Arguments).

%% @doc Begins a call: the same as {@link spawn_call/4}, because coroutines are awaited whichever function calls them.
-spec async_call(name(), name(), list(), options()) -> request().
async_call(Module, Function, Arguments, Options) -> spawn_call(Module, Function, Arguments, Options).

-spec async_await(request()) -> result().
async_await(Request) -> await(Request).

-spec async_await(request(), timeout()) -> result().
async_await(Request, Timeout) -> await(Request, Timeout).

-spec async_gather([{name(), name(), list()} | {name(), name(), list(), #{name() => term()}}]) -> [result()] | {error, term()}.
async_gather(Calls) -> async_gather(Calls, #{}).

%% @doc Makes several calls at once, in one worker, and waits for all of them: their results in the order of the calls.
-spec async_gather([{name(), name(), list()} | {name(), name(), list(), #{name() => term()}}], options()) ->
    [result()] | {error, term()}.
async_gather(Calls, Options) ->
    ok = thalweg_options:demand(gather, Options),
    gather(Calls, Options).

-spec gather([tuple()], options()) -> [result()] | {error, term()}.
gather([], _Options) -> [];
gather(Calls, Options) when is_list(Calls) ->
    _ = length(Calls),
    Timeout = maps:get(timeout, Options, ?TIMEOUT),
    {_, Connections, Within} = route(Options),
    Reference = make_ref(),
    case thalweg_nif:gather(Connections, Reference, [whole(Call, Within) || Call <- Calls]) of
        {pending, Connection, Group} ->
            ok = thalweg_nif:await_group(Connection, Group),
            receive
                {thalweg, Reference, Results} -> Results
            after Timeout ->
                ok = thalweg_nif:cancel_group(Connection, Group),
                flush(Reference),
                {error, timeout}
            end;
        {error, Reason} -> {error, Reason}
    end;
gather(_Calls, _Options) -> error(badarg).

-spec whole(tuple(), none | non_neg_integer()) -> thalweg_nif:call().
whole({Module, Function, Arguments}, Within) -> {Module, Function, Arguments, #{}, Within};
whole({Module, Function, Arguments, Keywords}, Within) -> {Module, Function, Arguments, Keywords, Within};
whole(_Call, _Within) -> error(badarg).

%% Source

-spec eval(unicode:chardata()) -> result().
eval(Source) -> eval(Source, #{}, #{}).

-spec eval(unicode:chardata(), #{name() => term()}) -> result().
eval(Source, Variables) -> eval(Source, Variables, #{}).

%% @doc The value of an expression, in the namespace of the calling process.
-spec eval(unicode:chardata(), #{name() => term()}, options()) -> result().
eval(Source, Variables, Options) -> source(true, Source, Variables, Options).

-spec exec(unicode:chardata()) -> result().
exec(Source) -> exec(Source, #{}, #{}).

-spec exec(unicode:chardata(), #{name() => term()}) -> result().
exec(Source, Variables) -> exec(Source, Variables, #{}).

%% @doc Runs statements in the namespace of the calling process, which goes when that process does.
-spec exec(unicode:chardata(), #{name() => term()}, options()) -> result().
exec(Source, Variables, Options) -> source(false, Source, Variables, Options).

-spec source(boolean(), unicode:chardata(), map(), options()) -> result().
source(IsExpression, Source, Variables, Options) ->
    ok = thalweg_options:demand(source, Options),
    %% A string is characters, whatever the bytes are that they would be.
    Text = characters(Source),
    {Scope, Owner} =
        case Options of
            #{namespace := Name} -> {term_to_binary({name, Name}), none};
            %% What a process is called whether or not its node has a name by now.
            _ -> {list_to_binary(pid_to_list(self())), self()}
        end,
    {Pool, Connection, Within} = route(Options#{affinity => maps:get(affinity, Options, Scope)}),
    keep(Pool, Connection, Owner, Scope),
    Reference = make_ref(),
    Timeout = maps:get(timeout, Options, ?TIMEOUT),
    case thalweg_nif:source(Connection, Reference, {IsExpression, Text, Variables, Scope, Within}, true) of
        {pending, _, Number} ->
            receive
                {thalweg, Reference, Result} -> Result
            after Timeout -> give_up(Connection, Number, Reference)
            end;
        Result -> Result
    end.

%% A worker lets a process's namespace go when the process ends: it is told once.
-spec keep(atom(), thalweg_nif:connection(), pid() | none, binary()) -> ok.
keep(_Pool, _Connection, none, _Scope) -> ok;
keep(Pool, Connection, Owner, Scope) ->
    Key = {?MODULE, scope, Connection},
    case get(Key) of
        undefined ->
            {Connections, _} = thalweg_directory:workers(Pool),
            Known = tuple_to_list(Connections),
            %% Nothing is kept of workers that have ended, however many there were.
            _ = [erase(Old) || {{?MODULE, scope, Before} = Old, Of} <- get(), Of =:= Pool, not lists:member(Before, Known)],
            put(Key, Pool),
            case worker(Pool, Connection) of
                none -> ok;
                Worker -> thalweg_worker:keep(Worker, Owner, Scope)
            end;
        _ -> ok
    end.

%% Callbacks

%% @doc Gives a function a name that Python can call it by, with the list of its arguments.
-spec register(name(), thalweg_callbacks:callback()) -> ok.
register(Name, Callback) when is_function(Callback, 1) -> thalweg_callbacks:register(theirs(text(Name)), Callback);
register(Name, {Module, Function} = Callback) when is_atom(Module), is_atom(Function) ->
    thalweg_callbacks:register(theirs(text(Name)), Callback);
register(_Name, _Callback) -> error(badarg).

-spec unregister(name()) -> ok.
unregister(Name) -> thalweg_callbacks:unregister(theirs(text(Name))).

%% Names of what workers need cannot be given to other things.
-spec theirs(binary()) -> binary().
theirs(<<"thalweg:", _/binary>>) -> error(badarg);
theirs(Name) -> Name.

%% @private Calls of this process are made in the course of a callback.
-spec within(atom(), thalweg_nif:connection(), non_neg_integer()) -> ok.
within(Pool, Connection, Number) ->
    put({?MODULE, within}, {Pool, Connection, Number}),
    ok.

%% @private How long is waited, checked before anything leaves: what a wait refuses afterwards would leave a result behind.
-spec patience(term()) -> timeout().
patience(infinity) -> infinity;
patience(Timeout) when is_integer(Timeout), Timeout >= 0, Timeout =< ?TIMEOUT_MAX -> Timeout;
patience(_) -> error(badarg).

%% Where calls go

%% @private The pool, its connections or the one that the call has to take, and the callback that it is made in.
-spec route(options()) -> {atom(), thalweg_nif:connections(), none | non_neg_integer()}.
route(Options) ->
    Pool = maps:get(pool, Options, default),
    case get({?MODULE, within}) of
        {Pool, Connection, Number} -> {Pool, Connection, Number};
        _ ->
            case Options of
                #{affinity := Term} ->
                    case thalweg_directory:place(Pool, Term) of
                        {ok, Connection} -> {Pool, Connection, none};
                        none -> {Pool, {}, none}
                    end;
                _ ->
                    {Connections, _} = thalweg_directory:workers(Pool),
                    {Pool, Connections, none}
            end
    end.

-spec worker(atom(), thalweg_nif:connection()) -> pid() | none.
worker(Pool, Connection) ->
    {Connections, Workers} = thalweg_directory:workers(Pool),
    Pairs = lists:zip(tuple_to_list(Connections), tuple_to_list(Workers)),
    proplists:get_value(Connection, Pairs, none).

-spec give_up(thalweg_nif:connection(), non_neg_integer(), reference()) -> {error, timeout}.
give_up(Connection, Number, Reference) ->
    ok = thalweg_nif:cancel(Connection, Number),
    flush(Reference),
    {error, timeout}.

%% @private What comes next of a call or a stream of this process: `none' where nothing will, because its end was taken already, and
%% `late' where nothing does in time. Whatever it came to is in the mailbox before it is known here to be over, so looking once more
%% then misses nothing.
-spec receive_of({reference(), thalweg_nif:connection(), non_neg_integer()}, timeout()) -> {told, term()} | late | none.
receive_of({Reference, Connection, Number}, Patience) ->
    case receive_within(Reference, 0) of
        late ->
            case {thalweg_nif:awaits(Connection, Number), receive_within(Reference, 0)} of
                {_, {told, _} = Told} -> Told;
                {true, late} -> receive_within(Reference, Patience);
                {false, late} -> none
            end;
        Told -> Told
    end.

-spec receive_within(reference(), timeout()) -> {told, term()} | late.
receive_within(Reference, Patience) ->
    receive
        {thalweg, Reference, Told} -> {told, Told}
    after Patience -> late
    end.

%% @private What came before a call was cancelled.
-spec flush(reference()) -> ok.
flush(Reference) ->
    receive
        {thalweg, Reference, _} -> flush(Reference)
    after 0 -> ok
    end.

-spec text(name() | unicode:chardata()) -> binary().
text(Name) when is_atom(Name) -> atom_to_binary(Name);
text(Name) -> characters(Name).

-spec characters(unicode:chardata()) -> binary().
characters(Characters) ->
    case unicode:characters_to_binary(Characters) of
        Text when is_binary(Text) -> Text;
        _ -> error(badarg)
    end.
