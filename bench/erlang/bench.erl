%% Figures of the Erlang application: `erl … -run bench main MILLISECONDS FOLDER FLOORS WORK …' prints a line of JSON for each
%% work, one after the other in the same virtual machine.
%%
%% Works that say so are floors: what the virtual machine does without us. A work is repeated until the time is over, at least
%% once, so that a tiny run does everything.
-module(bench).
-export([main/1]).

main([Milliseconds, Folder, Floors | Works]) ->
    Until = list_to_integer(Milliseconds),
    ok = floors:load(Floors),
    %% What is said of workers that are killed is no figure.
    ok = logger:set_primary_config(level, none),
    ok = application:load(thalweg),
    ok = application:set_env(thalweg, pool, #{path => [Folder]}),
    {ok, _} = application:ensure_all_started(thalweg),
    %% So that nothing is imported, and nobody wakes up, for the first time.
    _ = rate(fun() -> {ok, 1.0} = thalweg:call(math, sqrt, [1]), 1 end, min(100, Until)),
    [print(in_a_process(fun() -> work(Work, Until) end)) || Work <- Works],
    halt(0).

print(Figures) ->
    io:format("{~ts}~n", [lists:join(",", [io_lib:format("\"~ts\":~p", [Name, Value]) || {Name, Value} <- Figures])]).

%% None finds what another left in its heap.
in_a_process(Work) ->
    Self = self(),
    Process = spawn_link(fun() -> Self ! {self(), Work()} end),
    receive
        {Process, Figures} -> Figures
    end.

work("sync call", Until) -> per_second(fun() -> {ok, 1.0} = thalweg:call(math, sqrt, [1]), 1 end, Until);
work("async call", Until) -> callers(1, fun async/0, Until);
work("gather of 10", Until) -> per_second(fun() -> gather(10) end, Until);
work("gather of 50", Until) -> per_second(fun() -> gather(50) end, Until);
work("10 callers", Until) -> callers(10, fun sync/0, Until);
work("50 callers", Until) -> callers(50, fun sync/0, Until);
work("100 callers", Until) -> callers(100, fun sync/0, Until);
work("timers to the event process", Until) ->
    {ok, Events} = thalweg_events:start_link(),
    per_second(fun() -> timers(fun(N) -> thalweg_events:timer(Events, 0, N) end, fun(Left) -> polled(Events, Left) end) end, Until);
work("floor: send_after", Until) ->
    Collector = collector(),
    Send = fun(N) -> erlang:send_after(0, Collector, {3, N, none}) end,
    per_second(fun() -> timers(Send, fun(Left) -> collected(Collector, Left) end) end, Until);
work("results batched into a mailbox", Until) -> per_second(fun batches/0, Until);
work("floor: send and receive", Until) ->
    Echo = spawn_link(fun echo/0),
    per_second(fun() -> Echo ! {self(), 1}, receive 1 -> 1 end end, Until);
work("floor: port", Until) ->
    Port = open_port({spawn_executable, os:find_executable("cat")}, [binary]),
    per_second(fun() -> port_command(Port, <<"x">>), receive {Port, {data, _}} -> 1 end end, Until);
work("floor: gen_tcp", Until) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {nodelay, true}, {ip, {127, 0, 0, 1}}]),
    {ok, Number} = inet:port(Listener),
    spawn_link(fun() -> {ok, Socket} = gen_tcp:accept(Listener), tcp_echo(Socket) end),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Number, [binary, {active, false}, {nodelay, true}]),
    per_second(fun() -> ok = gen_tcp:send(Socket, <<"x">>), {ok, <<"x">>} = gen_tcp:recv(Socket, 1), 1 end, Until);
work("floor: call into machine code", Until) ->
    per_second(fun() -> [ok = floors:nothing() || _ <- lists:seq(1, 1000)], 1000 end, Until);
work("floor: the same on a dirty scheduler", Until) ->
    per_second(fun() -> [ok = floors:nothing_dirty() || _ <- lists:seq(1, 100)], 100 end, Until);
work("floor: enif_send", Until) -> per_second(fun() -> sent(1000, 1) end, Until);
work("floor: enif_send, batched by 64", Until) -> per_second(fun() -> sent(1000, 64) end, Until);
work("floor: enif_select", Until) ->
    Watched = floors:watched(),
    per_second(
        fun() ->
            ok = floors:ring(Watched),
            receive {select, Watched, _, ready_input} -> ok = floors:hush(Watched), 1 end
        end,
        Until
    );
work("killed under 100 callers", _Until) -> killed().

%% How often something is done in a second, which says itself how much it did.
per_second(Do, Until) -> [{per_second, rate(Do, Until)}].

rate(Do, Until) ->
    Started = erlang:monotonic_time(),
    Count = repeat(Do, Started + erlang:convert_time_unit(Until, millisecond, native), 0),
    Count * erlang:convert_time_unit(1, second, native) / max(1, erlang:monotonic_time() - Started).

repeat(Do, Until, Count) ->
    Done = Count + Do(),
    case erlang:monotonic_time() < Until of
        true -> repeat(Do, Until, Done);
        false -> Done
    end.

sync() -> {ok, 1.0} = thalweg:call(math, sqrt, [1], #{timeout => infinity}).
async() -> {ok, 1} = thalweg:async_await(thalweg:async_call(work, one, [1]), infinity).

gather(Count) ->
    Results = thalweg:async_gather(lists:duplicate(Count, {work, one, [1]})),
    [{ok, 1} = Result || Result <- Results],
    Count.

%% Callers at once, each with its own clock: how many calls in a second, and how long they took, in microseconds.
callers(Count, Call, Until) ->
    Self = self(),
    Started = erlang:monotonic_time(),
    End = Started + erlang:convert_time_unit(Until, millisecond, native),
    Callers = [spawn_link(fun() -> Self ! {self(), timed(Call, End, [])} end) || _ <- lists:seq(1, Count)],
    Times = lists:sort(lists:append([receive {Caller, Of} -> Of end || Caller <- Callers])),
    Took = erlang:convert_time_unit(erlang:monotonic_time() - Started, native, microsecond),
    Total = length(Times),
    Sorted = list_to_tuple(Times),
    At = fun(Part) -> erlang:convert_time_unit(element(max(1, round(Total * Part)), Sorted), native, nanosecond) / 1000 end,
    [
        {per_second, Total * 1.0e6 / max(1, Took)},
        {p50_us, At(0.5)}, {p90_us, At(0.9)}, {p99_us, At(0.99)}, {p999_us, At(0.999)}, {worst_us, At(1)}
    ].

timed(Call, End, Times) ->
    Began = erlang:monotonic_time(),
    _ = Call(),
    Now = erlang:monotonic_time(),
    case Now < End of
        true -> timed(Call, End, [Now - Began | Times]);
        false -> [Now - Began | Times]
    end.

%% A thousand timers that are due at once, and every one of them told of.
timers(Start, Collect) ->
    [Start(N) || N <- lists:seq(1, 1000)],
    Collect(1000).

polled(_Events, Left) when Left =< 0 -> 1000;
polled(Events, Left) -> polled(Events, Left - length(thalweg_events:poll(Events, infinity))).

%% The least that can be done with events: keep them until there are as many as somebody waits for.
collector() -> spawn_link(fun() -> collect([], 0) end).

collect(Events, Count) ->
    receive
        {Kind, _, _} = Event when is_integer(Kind) -> collect([Event | Events], Count + 1);
        {take, From} ->
            From ! {taken, Events},
            collect([], 0)
    end.

collected(_Collector, Left) when Left =< 0 -> 1000;
collected(Collector, Left) ->
    Collector ! {take, self()},
    receive
        {taken, Events} -> collected(Collector, Left - length(Events))
    end.

%% So many messages of so many integers each, from machine code to a process.
sent(Messages, Items) ->
    Self = self(),
    spawn_link(fun() -> ok = floors:send(Self, Messages, Items) end),
    lists:sum([receive [0 | _] = Of -> length(Of) end || _ <- lists:seq(1, Messages)]).

%% From a generator in Python to the caller's mailbox.
batches() ->
    {ok, Stream} = thalweg_stream:open(work, numbers, [64000], #{batch => 64, credit => 256}),
    {ok, 64000} = thalweg_stream:fold(fun(Values, Count) -> Count + length(Values) end, 0, Stream),
    64000.

echo() ->
    receive
        {From, Value} -> From ! Value
    end,
    echo().

tcp_echo(Socket) ->
    case gen_tcp:recv(Socket, 1) of
        {ok, Byte} ->
            ok = gen_tcp:send(Socket, Byte),
            tcp_echo(Socket);
        {error, closed} -> ok
    end.

%% The longest that any caller waited for a result or an error, when the pool was whole again, and the longest that the virtual
%% machine stood still meanwhile; in milliseconds.
killed() ->
    Self = self(),
    [Victim | _] = Before = thalweg:workers(default),
    %% Made ready, so that starting a program is no part of the blow.
    Striker = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", "read go; kill -KILL " ++ integer_to_list(Victim)]}, exit_status
    ]),
    Over = atomics:new(1, []),
    Beating = spawn_link(fun() -> beat(erlang:monotonic_time(), 0) end),
    Callers = [spawn_link(fun() -> Self ! {self(), call_until_error(Over, 0)} end) || _ <- lists:seq(1, 100)],
    timer:sleep(50),
    Struck = erlang:monotonic_time(),
    true = port_command(Striker, "go\n"),
    whole(Before),
    Whole = erlang:monotonic_time(),
    ok = atomics:put(Over, 1, 1),
    Waits = [receive {Caller, Wait} -> Wait end || Caller <- Callers],
    Beating ! {stop, self()},
    Longest = receive {beat, Of} -> Of end,
    Ms = fun(Time) -> erlang:convert_time_unit(Time, native, microsecond) / 1000 end,
    [{told_ms, Ms(lists:max(Waits))}, {whole_ms, Ms(Whole - Struck)}, {stood_still_ms, Ms(Longest)}].

%% Until its worker is no more, or, where there were several, until it is known to have been another's. The longest wait.
call_until_error(Over, Longest) ->
    Began = erlang:monotonic_time(),
    Result = thalweg:call(math, sqrt, [1], #{timeout => infinity}),
    Wait = max(Longest, erlang:monotonic_time() - Began),
    case Result of
        {ok, _} ->
            case atomics:get(Over, 1) of
                0 -> call_until_error(Over, Wait);
                1 -> Wait
            end;
        {error, _} -> Wait
    end.

whole(Before) ->
    case thalweg:workers(default) of
        After when length(After) =:= length(Before), After =/= Before -> ok;
        _ ->
            timer:sleep(1),
            whole(Before)
    end.

beat(Last, Longest) ->
    receive
        {stop, From} -> From ! {beat, Longest}
    after 1 ->
        Now = erlang:monotonic_time(),
        beat(Now, max(Longest, Now - Last))
    end.
