%% Python calls Erlang: within a function, a coroutine, a thread; as deep as it goes; and everything that is made of it.
-module(thalweg_callback_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        callback, from_a_coroutine, from_a_thread, from_threads_that_are_waited_for, beside_a_thread_that_takes_in, errors, by_an_atom, no_python_value, nested, too_deep, beside_others, while_one_waits, given_up_while_one_waits,
        given_up_below_another, interrupt_while_another_is_described, interrupt_while_another_is_answered, interrupt_while_a_future_is_resolved, too_large_to_be_said, in_time, module_and_function, names_that_are_none,
        outlive_what_begins_anew, unregistered_while_it_runs, sent, sent_while_it_runs, sent_beyond_what_is_read, sent_to_a_node_that_does_not_read, sent_to_the_dead, shared_values, counters, channels_to_erlang,
        channels_to_python, channels_between, channels_of_bytes, channels_of_bytes_to_python, channels_close, channels_pass_over_the_dead,
        channels_pass_over_those_who_gave_up, callbacks_that_die,
        channels_in_no_time, channels_outlive_wrong_arguments, channels_are_forgotten, nothing_awaited_within, nothing_streamed_within
    ].

init_per_suite(Config) ->
    Started = thalweg_test:start(Config, #{size => 2}),
    ok = thalweg:register(add, fun([A, B]) -> A + B end),
    ok = thalweg:register(fail, fun(_) -> error(badly) end),
    ok = thalweg:register(throw, fun([Term]) -> throw(Term) end),
    ok = thalweg:register(no_value, fun(_) -> fun() -> ok end end),
    %% A map whose key is a list: no Python value.
    ok = thalweg:register(unhashable, fun(_) -> #{[1] => 1} end),
    ok = thalweg:register(wait, fun(_) -> timer:sleep(infinity) end),
    ok = thalweg:register(factorial, fun([N]) ->
        case thalweg:call(sample, factorial, [N]) of
            {ok, Factorial} -> Factorial;
            {error, Reason} -> throw(Reason)
        end
    end),
    ok = thalweg:register(double, fun([N]) -> thalweg:call(sample, double, [N]) end),
    ok = thalweg:register(reverse, {lists, reverse}),
    Started.
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

callback(_Config) -> {ok, 3} = thalweg:call(sample, call_back, [<<"add">>, 1, 2]).

from_a_coroutine(_Config) ->
    {ok, 3} = thalweg:call(sample, call_back_later, [<<"add">>, 1, 2]),
    Expected = [{ok, N + 1} || N <- lists:seq(1, 50)],
    Expected = thalweg:async_gather([{sample, call_back_later, [<<"add">>, N, 1]} || N <- lists:seq(1, 50)]).

from_a_thread(_Config) -> {ok, 3} = thalweg:call(sample, call_back_from_thread, [<<"add">>, 1, 2]).

%% Nobody else could take their answers in: the worker's own thread waits for them.
from_threads_that_are_waited_for(_Config) ->
    ok = thalweg:register(next, fun([N]) -> N + 1 end),
    {ok, [2, 3, 4, 5, 6]} = thalweg:call(sample, call_back_from_threads, [<<"next">> | lists:seq(1, 5)]),
    %% What comes meanwhile is not lost.
    Requests = [
        {
            thalweg:spawn_call(sample, call_back_from_threads, [<<"next">>, N, N]),
            thalweg:spawn_call(sample, call_back_later, [<<"next">>, N]),
            thalweg:spawn_call(sample, double, [N]),
            N
        }
     || N <- lists:seq(1, 20)
    ],
    [
        begin
            Next = N + 1,
            {ok, [Next, Next]} = thalweg:await(Threads),
            {ok, Next} = thalweg:await(Coroutine),
            Double = 2 * N,
            {ok, Double} = thalweg:await(Other)
        end
     || {Threads, Coroutine, Other, N} <- Requests
    ].

%% Whichever thread takes an answer in, the caller that waits for it gets it.
beside_a_thread_that_takes_in(_Config) ->
    ok = thalweg:register(next, fun([N]) -> N + 1 end),
    {ok, 4000} = thalweg:call(sample, call_back_beside_a_taker, [<<"next">>, 2000], #{timeout => infinity}).

%% What a callback came to may have no value in Python: then that is what it came to.
no_python_value(_Config) ->
    [
        {error, {exception, <<"TypeError">>, _, _}} = thalweg:call(sample, Function, [<<"unhashable">>])
     || Function <- [call_back, call_back_later]
    ],
    {ok, {<<"caught">>, {exception, <<"TypeError">>, _, _}}} = caught([<<"unhashable">>]),
    {ok, 3} = thalweg:call(sample, call_back_later, [<<"add">>, 1, 2]).

errors(_Config) ->
    {ok, {<<"caught">>, {exception, <<"error">>, <<"badly">>, _}}} = caught([<<"fail">>]),
    {ok, {<<"caught">>, {any, 1}}} = caught([<<"throw">>, {any, 1}]),
    {ok, {<<"caught">>, {no_function, <<"nothing">>}}} = caught([<<"nothing">>]),
    {ok, {<<"caught">>, <<"{no_python_value", _/binary>>}} = caught([<<"no_value">>]),
    [
        begin
            {error, {erlang, {no_function, <<"nothing">>}}} = thalweg:call(sample, Function, [<<"nothing">>]),
            %% None of this is the library's own.
            [
                {error, {erlang, Reason}} = thalweg:call(sample, Function, [<<"throw">>, Reason])
             || Reason <- [timeout, no_worker, {overloaded, 5, 5}, {fault, disconnected, <<>>}, {erlang, 1}, {exception, 1}]
            ],
            {error, {exception, <<"error">>, <<"badly">>, [_ | _]}} = thalweg:call(sample, Function, [<<"fail">>]),
            %% What a callback passes on of what Python raised is that still.
            Raised = {exception, <<"ValueError">>, <<"words">>, []},
            {error, Raised} = thalweg:call(sample, Function, [<<"throw">>, Raised])
        end
     || Function <- [call_back, call_back_later, call_back_from_thread]
    ],
    {ok, Stream} = thalweg_stream:open(sample, bring_called_back, [<<"throw">>, timeout]),
    {[], {error, {erlang, timeout}}} = thalweg_test:collect(Stream, []).

%% A name in Python is a string or an atom, as it is here.
by_an_atom(_Config) ->
    [
        {ok, 3} = thalweg:call(sample, Function, [add, 1, 2])
     || Function <- [call_back, call_back_later, call_back_from_thread]
    ],
    {error, {erlang, {no_function, <<"nothing">>}}} = thalweg:call(sample, call_back, [nothing]),
    %% Nor does it matter whether Erlang knows the atom.
    {error, {erlang, {no_function, <<"an atom that nobody knows">>}}} = thalweg:call(sample, call_back_by_an_atom, []).

caught(Arguments) -> thalweg:call(sample, caught, Arguments).

%% Python calls Erlang calls Python, in one worker, on one stack.
nested(_Config) -> {ok, 479001600} = thalweg:call(sample, factorial, [12]).

too_deep(_Config) ->
    {error, {exception, <<"RecursionError">>, <<"callbacks are nested too deep">>, _}} =
        thalweg:call(sample, factorial, [200], #{timeout => 20000}),
    {ok, 6} = thalweg:call(sample, factorial, [3]).

%% While functions wait for callbacks, others' calls are not mixed up with theirs.
beside_others(_Config) ->
    Self = self(),
    Callers = [
        spawn_link(fun() ->
            [{ok, 120} = thalweg:call(sample, factorial, [5], #{timeout => infinity}) || _ <- lists:seq(1, 20)],
            Self ! {done, self()}
        end)
     || _ <- lists:seq(1, 20)
    ],
    [receive {done, Caller} -> ok end || Caller <- Callers].

%% What came while a coroutine waited in a later step has its turn.
while_one_waits(_Config) ->
    in_one_worker(fun(Options, Gate) ->
        Waiting = thalweg:spawn_call(sample, call_back_and_sleep, [<<"gate">>], Options),
        Callback = Gate(),
        Other = thalweg:spawn_call(sample, double, [1], Options),
        timer:sleep(20),
        Callback ! go,
        {ok, 2} = thalweg:await(Other),
        ok = thalweg:cancel(Waiting)
    end).

%% What was given up before its turn came is never begun.
given_up_while_one_waits(_Config) ->
    in_one_worker(fun(Options, Gate) ->
        Waiting = thalweg:spawn_call(sample, call_back, [<<"gate">>], Options),
        Callback = Gate(),
        {error, timeout} = thalweg:call(sample, add_often, [<<"never">>, 1], Options#{timeout => 20}),
        Callback ! go,
        {ok, ok} = thalweg:await(Waiting),
        {ok, 1} = thalweg:call(sample, echo, [1], Options),
        0 = thalweg_shared:get(<<"never">>, 0)
    end).

%% What is given up while something else runs on top of it is interrupted as soon as that is done.
given_up_below_another(_Config) ->
    Self = self(),
    ok = thalweg:register(above, fun([]) ->
        {ok, none} = thalweg:call(sample, tell_and_block, [Self, above, 0.3]),
        timer:sleep(infinity)
    end),
    [
        begin
            Options = #{affinity => ?FUNCTION_NAME},
            Below = thalweg:spawn_call(sample, Function, [<<"above">>], Options),
            receive
                above -> ok = thalweg:cancel(Below)
            end,
            {ok, 1} = thalweg:call(sample, echo, [1], Options#{timeout => infinity})
        end
     || Function <- [call_back, call_back_and_sleep]
    ],
    ok = thalweg:unregister(above).

%% An interrupt is for whom it is meant: what failed on top of that is told as it is, and then that is interrupted.
interrupt_while_another_is_described(_Config) ->
    Self = self(),
    Options = without_threads(),
    ok = thalweg:register(above, fun([]) ->
        Self ! {failed, thalweg:call(sample, fail_hearing, [Self], Options)},
        timer:sleep(infinity)
    end),
    Below = thalweg:spawn_call(sample, call_back, [<<"above">>], Options),
    receive
        above -> ok = thalweg:cancel(Below)
    end,
    receive
        {failed, Result} -> {error, {exception, <<"sample.Hearing">>, <<"described">>, _}} = Result
    end,
    {ok, 1} = thalweg:call(sample, echo, [1], Options),
    ok = thalweg:unregister(above),
    ok = thalweg:stop_pool(alone).

%% A worker of its own, in which no other thread takes a signal that is held back.
without_threads() ->
    {ok, _} = thalweg:start_pool(alone, thalweg_test:pool(#{size => 1})),
    #{pool => alone}.

%% And the outcome of another callback reaches the caller that waits for it.
interrupt_while_another_is_answered(_Config) ->
    Self = self(),
    Options = without_threads(),
    ok = thalweg:register(above, fun([]) ->
        Self ! above,
        timer:sleep(infinity)
    end),
    ok = thalweg:register(beside, fun([]) ->
        Self ! {beside, self()},
        receive go -> 1 end
    end),
    Below = thalweg:spawn_call(sample, call_back_beside_another, [Self, <<"above">>, <<"beside">>], Options),
    Beside = receive {beside, Pid} -> Pid end,
    receive
        above -> ok = thalweg:cancel(Below)
    end,
    %% By then the interrupt has come.
    timer:sleep(100),
    Beside ! go,
    receive
        {<<"interrupted">>, 1} -> ok
    after 60000 -> ct:fail(not_interrupted)
    end,
    {ok, 1} = thalweg:call(sample, echo, [1], Options),
    [ok = thalweg:unregister(Name) || Name <- [above, beside]],
    ok = thalweg:stop_pool(alone).

%% What a call waits for may be about to be resolved by another: it is given up behind that.
interrupt_while_a_future_is_resolved(_Config) ->
    Options = without_threads(),
    Waiting = thalweg:spawn_call(sample, wait_for_another, [self()], Options),
    receive waits -> ok end,
    Another = thalweg:spawn_call(sample, go_on_with_another, [self()], Options),
    receive
        above -> ok = thalweg:cancel(Waiting)
    end,
    {ok, <<"resolved">>} = thalweg:await(Another, infinity),
    receive
        cancelled -> ok
    after 60000 -> ct:fail(not_cancelled)
    end,
    ok = thalweg:stop_pool(alone).

%% More than Erlang takes at once is refused where it is said, and the worker is heard as before.
too_large_to_be_said(_Config) ->
    Options = #{affinity => ?FUNCTION_NAME},
    Large = 16 bsl 20,
    [
        {error, {exception, <<"ValueError">>, _, _}} = thalweg:call(sample, Function, [<<"add">>, Large], Options)
     || Function <- [call_back_with_bytes, call_back_later_with_bytes, call_back_from_thread_with_bytes]
    ],
    {ok, none} = thalweg:call(sample, log_bytes, [Large], Options),
    ok = thalweg:cast(sample, call_back_with_bytes, [<<"add">>, Large], Options),
    ok = thalweg:register(size, fun([Bytes]) -> byte_size(Bytes) end),
    Most = Large - 100,
    {ok, Most} = thalweg:call(sample, call_back_with_bytes, [<<"size">>, Most], Options#{timeout => infinity}),
    {ok, 3} = thalweg:call(sample, call_back, [<<"add">>, 1, 2], Options).

in_one_worker(Test) ->
    Self = self(),
    ok = thalweg:register(gate, fun([]) -> Self ! {at_gate, self()}, receive go -> ok end end),
    Test(#{affinity => ?FUNCTION_NAME}, fun() -> receive {at_gate, Callback} -> Callback end end),
    ok = thalweg:unregister(gate).

in_time(_Config) ->
    {ok, <<"timeout">>} = thalweg:call(sample, call_back_patiently, [<<"wait">>, 0.05]),
    %% Nobody waits for less than nothing, in whichever thread; and nobody knows how long what is no number is.
    [
        {Where, Seconds, Expected} = {Where, Seconds, patiently(Where, Seconds)}
     || Where <- ["(lambda call: call())", "__import__('concurrent.futures').futures.ThreadPoolExecutor().submit"],
        {Seconds, Expected} <- [{"-1", <<"TimeoutError">>}, {"float('-inf')", <<"TimeoutError">>}, {"float('nan')", <<"ValueError">>}]
    ],
    {error, timeout} = thalweg:call(sample, call_back, [<<"wait">>], #{timeout => 50}),
    {ok, 3} = thalweg:call(sample, call_back, [<<"add">>, 1, 2]).

patiently(Where, Seconds) ->
    Call = "lambda: __import__('thalweg.erlang').erlang.call('wait', timeout=" ++ Seconds ++ ")",
    Result = case Where of "__import__" ++ _ -> ".result()"; _ -> "" end,
    {error, {exception, Kind, _, _}} = thalweg:eval(Where ++ "(" ++ Call ++ ")" ++ Result),
    Kind.

module_and_function(_Config) ->
    {ok, [2, 1]} = thalweg:call(sample, call_back, [<<"reverse">>, 1, 2]),
    ok = thalweg:unregister(reverse),
    {error, {erlang, {no_function, <<"reverse">>}}} = thalweg:call(sample, call_back, [<<"reverse">>]).

%% What Python could never call by has no callback.
names_that_are_none(_Config) ->
    [
        {'EXIT', {badarg, _}} = (catch Act())
     || Name <- [<<255>>, [<<"half ">>, <<16#c3>>], [16#d800], 5, {a}, <<"thalweg:send">>],
        Act <- [
            fun() -> thalweg:register(Name, {lists, reverse}) end,
            fun() -> thalweg:unregister(Name) end
        ]
    ],
    ok = thalweg:register("ž", {lists, reverse}),
    {ok, [2, 1]} = thalweg:call(sample, call_back, [<<"ž"/utf8>>, 1, 2]),
    ok = thalweg:unregister(<<"ž"/utf8>>).

%% A callback is there as long as the application, whatever of it ends.
outlive_what_begins_anew(_Config) ->
    Servers = [{Id, Server} || {Id, Server, worker, _} <- supervisor:which_children(thalweg_sup)],
    [
        begin
            exit(Server, kill),
            thalweg_test:until(fun() ->
                {Id, Now, _, _} = lists:keyfind(Id, 1, supervisor:which_children(thalweg_sup)),
                is_pid(Now) andalso Now =/= Server
            end)
        end
     || {Id, Server} <- Servers
    ],
    {ok, 3} = thalweg:call(sample, call_back, [<<"add">>, 1, 2]).

%% The function that was called goes on, and its answer is delivered; later calls find none, or the one that came in its place.
unregistered_while_it_runs(_Config) ->
    Self = self(),
    ok = thalweg:register(gate, fun([]) -> Self ! {runs, self()}, receive go -> first end end),
    Request = thalweg:spawn_call(sample, call_back, [<<"gate">>]),
    Running = receive {runs, Pid} -> Pid end,
    ok = thalweg:unregister(gate),
    {error, {erlang, {no_function, <<"gate">>}}} = thalweg:call(sample, call_back_later, [<<"gate">>]),
    ok = thalweg:register(gate, fun([]) -> second end),
    {ok, second} = thalweg:call(sample, call_back_later, [<<"gate">>]),
    true = is_process_alive(Running),
    ok = thalweg:unregister(gate),
    Running ! go,
    {ok, first} = thalweg:await(Request),
    {error, {erlang, {no_function, <<"gate">>}}} = thalweg:call(sample, call_back, [<<"gate">>]).

nothing_awaited_within(_Config) ->
    {ok, {error, {exception, <<"RuntimeError">>, _, _}}} =
        thalweg:call(sample, call_back, [<<"double">>, 2]),
    {ok, {ok, 4}} = thalweg:call(sample, call_back_later, [<<"double">>, 2]).

%% A generator goes on in the event loop, which a coroutine leaves running and a function does not.
nothing_streamed_within(_Config) ->
    ok = thalweg:register(fold, fun([Last]) ->
        {ok, Stream} = thalweg_stream:open(sample, count, [1, Last]),
        thalweg_stream:fold(fun(Value, Sum) -> Value + Sum end, 0, Stream)
    end),
    {ok, {error, {exception, <<"RuntimeError">>, _, _}}} = thalweg:call(sample, call_back, [<<"fold">>, 3]),
    {ok, {ok, 6}} = thalweg:call(sample, call_back_later, [<<"fold">>, 3]).

sent(_Config) ->
    {ok, none} = thalweg:call(sample, send, [self(), {<<"message">>, [1]}]),
    receive
        {<<"message">>, [1]} -> ok
    end.

%% What a function sends is there while it runs, be it several one behind the other.
sent_while_it_runs(Config) ->
    Path = filename:join(proplists:get_value(priv_dir, Config), "received"),
    Messages = [<<"first">>, <<"second">>, <<"third">>],
    Request = thalweg:spawn_call(sample, send_and_wait_for, [self(), Messages, unicode:characters_to_binary(Path)]),
    [receive Message -> ok after 60000 -> error({not_sent, Message}) end || Message <- Messages],
    ok = file:write_file(Path, <<>>),
    {ok, none} = thalweg:await(Request).

%% More than may be unread at a time: who tries again while it runs is heard again.
sent_beyond_what_is_read(_Config) ->
    Request = thalweg:spawn_call(sample, send_many, [self(), 150000]),
    {ok, none} = thalweg:await(Request, 60000),
    [receive {<<"number">>, N} -> ok end || N <- lists:seq(1, 150000)].

%% It holds up what is sent there, and nothing else. Nodes find each other by a server of their own.
sent_to_a_node_that_does_not_read(_Config) ->
    Source =
        "ok = application:load(thalweg), ok = application:set_env(thalweg, pool, none), {ok, _} = application:ensure_all_started(thalweg), "
        "{ok, _} = thalweg:start_pool(#{size => 1, path => [\"" ++ thalweg_test:path() ++ "\"], start_within => 60000}), "
        "ok = thalweg:register(echo, fun([Term]) -> Term end), "
        "{ok, _, Node} = peer:start_link(#{name => peer:random_name(), args => [\"-start_epmd\", \"false\"]}), "
        "Other = erpc:call(Node, erlang, spawn, [timer, sleep, [infinity]]), "
        "Signal = fun(Name) -> os:cmd(\"kill -\" ++ Name ++ \" \" ++ erlang:get(os_pid)) end, "
        "put(os_pid, erpc:call(Node, os, getpid, [])), Signal(\"STOP\"), "
        "[{ok, _} = thalweg:call(sample, send, [Other, binary:copy(<<255>>, 1 bsl 20)]) || _ <- lists:seq(1, 20)], "
        "Came = thalweg:call(sample, call_back_later, [<<\"echo\">>, 1]), Signal(\"CONT\"), "
        "io:format(\"~nCame: ~0p\", [Came]), halt().",
    {ok, Listener} = gen_tcp:listen(0, []),
    {ok, Free} = inet:port(Listener),
    ok = gen_tcp:close(Listener),
    Number = integer_to_list(Free),
    Names = open_port({spawn_executable, os:find_executable("epmd")}, [{args, ["-port", Number]}]),
    {os_pid, NamesPid} = erlang:port_info(Names, os_pid),
    Run = ["ERL_EPMD_PORT=", Number, " erl -noshell -start_epmd false -sname sender", os:getpid(), " -pa "],
    Said = os:cmd(lists:flatten([Run, filename:dirname(code:which(thalweg)), " -eval '", Source, "'"])),
    [] = os:cmd("kill " ++ integer_to_list(NamesPid)),
    {_, "Came: {ok,1}"} = {Said, lists:last(string:split(Said, "\n", all))}.

sent_to_the_dead(_Config) ->
    {Dead, Monitor} = spawn_monitor(fun() -> ok end),
    receive
        {'DOWN', Monitor, _, _, _} -> ok
    end,
    %% As in Erlang nobody is told, unless it is asked for; one of a node that is not there is as dead.
    Foreign = binary_to_term(<<131, 88, 119, 13, "nobody@nowhere", 1:32, 0:32, 1:32>>),
    [{ok, none} = thalweg:call(sample, send_to, [To, 1, false]) || To <- [Dead, Foreign]],
    [
        {error, {exception, <<"ProcessLookupError">>, _, _}} = thalweg:call(sample, send_to, [To, 1, true])
     || To <- [Dead, Foreign]
    ],
    {ok, none} = thalweg:call(sample, send_to, [self(), {here, 1}, true]),
    receive
        {here, 1} -> ok
    end,
    {error, {exception, <<"TypeError">>, _, _}} = thalweg:call(sample, send_to, [<<"no pid">>, 1, false]),
    noproc = exited(fun() -> thalweg_events:poll(Dead, 0) end),
    {ok, 1} = thalweg:call(sample, echo, [1]).

exited(Function) ->
    try Function() of
        Value -> Value
    catch
        exit:Reason -> Reason
    end.

shared_values(_Config) ->
    ok = thalweg_shared:put(<<"name">>, {value, 1}),
    {ok, {value, 1}} = thalweg:eval("__import__('thalweg.erlang').erlang.shared.get('name')"),
    {ok, none} = thalweg:eval("__import__('thalweg.erlang').erlang.shared.put('name', [2])"),
    [2] = thalweg_shared:get(<<"name">>),
    true = lists:member(<<"name">>, thalweg_shared:names()),
    ok = thalweg_shared:delete(<<"name">>),
    {ok, 7} = thalweg:eval("__import__('thalweg.erlang').erlang.shared.get('name', 7)").

%% Two workers and Erlang count together.
counters(_Config) ->
    Requests = [thalweg:spawn_call(sample, add_often, [<<"count">>, 200]) || _ <- lists:seq(1, 4)],
    [thalweg_shared:add(<<"count">>, 1) || _ <- lists:seq(1, 200)],
    [{ok, none} = thalweg:await(Request, infinity) || Request <- Requests],
    1000 = thalweg_shared:get(<<"count">>).

channels_to_erlang(_Config) ->
    {ok, Channel} = thalweg_channel:open(#{capacity => 10}),
    Number = thalweg_channel:number(Channel),
    {ok, 10} = thalweg:call(sample, fill, [Number, {<<"v">>, 1}]),
    [{ok, {<<"v">>, 1}} = thalweg_channel:read(Channel) || _ <- lists:seq(1, 10)],
    {error, timeout} = thalweg_channel:read(Channel, 10),
    {ok, 10} = thalweg:call(sample, fill, [Number, 2]).

channels_to_python(_Config) ->
    {ok, Channel} = thalweg_channel:open(#{capacity => 2}),
    Request = thalweg:spawn_call(sample, receive_, []),
    {error, {exception, <<"AttributeError">>, _, _}} = thalweg:await(Request),
    Waiting = thalweg:spawn_call(sample, 'receive', [thalweg_channel:number(Channel)]),
    ok = thalweg_channel:write(Channel, {sent, 1}),
    {ok, {sent, 1}} = thalweg:await(Waiting),
    [ok, ok, busy] = [thalweg_channel:write(Channel, N) || N <- [1, 2, 3]].

%% Through a worker, one value after the other, and the end as well.
channels_between(_Config) ->
    {ok, Source} = thalweg_channel:open(),
    {ok, Target} = thalweg_channel:open(),
    Numbers = [thalweg_channel:number(Channel) || Channel <- [Source, Target]],
    Passing = thalweg:spawn_call(sample, pass_on, Numbers),
    [ok = thalweg_channel:write(Source, N) || N <- lists:seq(1, 100)],
    [{ok, N} = thalweg_channel:read(Target) || N <- lists:seq(1, 100)],
    ok = thalweg_channel:close(Source),
    {ok, 100} = thalweg:await(Passing).

channels_of_bytes(_Config) ->
    {ok, Channel} = thalweg_channel:open(#{kind => bytes, capacity => 8}),
    [ok, ok, busy] = [thalweg_channel:write(Channel, Bytes) || Bytes <- [<<"abcd">>, "efgh", <<"i">>]],
    8 = thalweg_channel:size(Channel),
    {ok, <<"abcdefgh">>} = thalweg_channel:read(Channel).

%% Python reads bytes from a channel of bytes, UTF-8 or not, whether it waits for them or not; from others what the terms are.
channels_of_bytes_to_python(_Config) ->
    {ok, Bytes} = thalweg_channel:open(#{kind => bytes}),
    {ok, Terms} = thalweg_channel:open(),
    Expected = [
        {Bytes, <<"text">>, {<<"bytes">>, <<"text">>}},
        {Bytes, <<255>>, {<<"bytes">>, <<255>>}},
        {Terms, <<"text">>, {<<"str">>, <<"text">>}},
        {Terms, <<255>>, {<<"bytes">>, <<255>>}},
        {Terms, {bytes, <<"text">>}, {<<"bytes">>, <<"text">>}}
    ],
    [
        begin
            Number = thalweg_channel:number(Channel),
            ok = thalweg_channel:write(Channel, Value),
            {ok, Seen} = thalweg:call(sample, receive_kind, [Number]),
            Waiting = thalweg:spawn_call(sample, receive_kind_later, [Number]),
            thalweg_test:until(fun() -> length(element(2, process_info(Channel, monitors))) =:= 2 end),
            ok = thalweg_channel:write(Channel, Value),
            {ok, Seen} = thalweg:await(Waiting)
        end
     || {Channel, Value, Seen} <- Expected
    ],
    %% And Erlang what was written.
    ok = thalweg_channel:write(Terms, {bytes, <<"text">>}),
    {ok, {bytes, <<"text">>}} = thalweg_channel:read(Terms),
    {ok, none} = thalweg:call(sample, send_bytes, [thalweg_channel:number(Bytes), 4]),
    {ok, <<0, 1, 2, 3>>} = thalweg_channel:read(Bytes).

channels_close(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    Number = thalweg_channel:number(Channel),
    ok = thalweg_channel:write(Channel, 1),
    ok = thalweg_channel:close(Channel),
    {error, closed} = thalweg_channel:write(Channel, 2),
    {ok, 1} = thalweg_channel:read(Channel),
    {error, closed} = thalweg_channel:read(Channel),
    {error, {exception, <<"BrokenPipeError">>, _, _}} = thalweg:call(sample, fill, [Number, 1]),
    {error, {exception, <<"EOFError">>, _, _}} = thalweg:call(sample, 'receive', [Number]),
    Self = self(),
    spawn_link(fun() -> {ok, Of} = thalweg_channel:open(), Self ! {channel, Of} end),
    receive
        {channel, Orphan} -> thalweg_test:until(fun() -> thalweg_channel:write(Orphan, 1) =:= {error, closed} end)
    end.

%% What was answered `ok' is there for the next reader, whether its end was told of before or not.
channels_pass_over_the_dead(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    [
        begin
            Reader = waiting_reader(Channel),
            Monitor = monitor(process, Reader),
            exit(Reader, kill),
            _ = [receive {'DOWN', Monitor, _, _, _} -> ok end || IsToldOf],
            ok = thalweg_channel:write(Channel, {value, IsToldOf}),
            {ok, {value, IsToldOf}} = thalweg_channel:read(Channel, 0)
        end
     || IsToldOf <- [true, false]
    ],
    %% Those behind it still wait.
    Dead = waiting_reader(Channel),
    Self = self(),
    Living = waiting_reader(Channel, fun(Outcome) -> Self ! {outcome, Outcome} end),
    exit(Dead, kill),
    ok = thalweg_channel:write(Channel, last),
    receive
        {outcome, {ok, last}} -> ok
    end,
    %% Nobody is watched who does not wait.
    thalweg_test:until(fun() -> not is_process_alive(Living) end),
    {monitors, [{process, Self}]} = process_info(Channel, monitors),
    {error, timeout} = thalweg_channel:read(Channel, 10),
    {monitors, [{process, Self}]} = process_info(Channel, monitors).

%% Python's readers that were interrupted, cancelled or killed take nothing along.
channels_pass_over_those_who_gave_up(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    Number = thalweg_channel:number(Channel),
    {error, timeout} = thalweg:call(sample, 'receive', [Number], #{timeout => 300}),
    nobody_reads(Channel),
    {ok, <<"given up">>} = thalweg:call(sample, receive_for, [Number, 0.1]),
    nobody_reads(Channel),
    {ok, <<"given up">>} = thalweg:call(sample, receive_in_thread_for, [Number, 0.1]),
    nobody_reads(Channel),
    {ok, <<"interrupted">>} = thalweg:call(sample, receive_and_be_interrupted, [Number]),
    nobody_reads(Channel),
    {ok, <<"closed">>} = thalweg:call(sample, receive_and_be_closed, [Number]),
    nobody_reads(Channel),
    {ok, Victim} = thalweg:call(os, getpid, [], #{affinity => victim}),
    Request = thalweg:spawn_call(sample, 'receive', [Number], #{affinity => victim}),
    thalweg_test:until(fun() -> length(element(2, process_info(Channel, monitors))) =:= 2 end),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Victim)),
    {error, {fault, _, _}} = thalweg:await(Request),
    nobody_reads(Channel),
    ok = thalweg_channel:write(Channel, kept),
    {ok, kept} = thalweg_channel:read(Channel, 0),
    thalweg_test:until(fun() -> length(thalweg:workers(default)) =:= 2 end).

%% Only who opened the channel is watched.
nobody_reads(Channel) ->
    thalweg_test:until(fun() -> length(element(2, process_info(Channel, monitors))) =:= 1 end).

%% One that ends by a link, or is killed, has no outcome; who called it hears so.
callbacks_that_die(_Config) ->
    ok = thalweg:register(die, fun([Reason]) ->
        spawn_link(fun() -> exit(Reason) end),
        timer:sleep(infinity)
    end),
    {error, {erlang, {exit, <<"boom">>}}} = thalweg:call(sample, call_back, [<<"die">>, boom]),
    %% Nor is an end without an answer one that nobody hears of because it is called normal.
    ok = thalweg:register(end_normally, fun([]) -> exit(self(), normal) end),
    ok = thalweg:register(leave_its_function, fun([]) -> erlang:hibernate(?MODULE, is_woken, [self() ! woken]) end),
    [
        {error, {erlang, {exit, <<"normal">>}}} = thalweg:call(sample, Function, [Name])
     || Function <- [call_back, call_back_later, call_back_from_thread], Name <- [<<"end_normally">>, <<"leave_its_function">>]
    ],
    {ok, 3} = thalweg:call(sample, call_back, [<<"add">>, 1, 2]).

is_woken(Woken) -> receive Woken -> ok end.

waiting_reader(Channel) -> waiting_reader(Channel, fun(_) -> ok end).

%% A process that waits for a value, and whom the channel watches.
waiting_reader(Channel, Tell) ->
    Reader = spawn(fun() -> Tell(thalweg_channel:read(Channel, infinity)) end),
    thalweg_test:until(fun() ->
        {monitors, Watched} = process_info(Channel, monitors),
        lists:member({process, Reader}, Watched)
    end),
    Reader.

channels_in_no_time(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    [{error, timeout} = thalweg_channel:read(Channel, Timeout) || Timeout <- [0, -1, -(1 bsl 70)]],
    {error, badarg} = thalweg_channel:read(Channel, soon),
    [{error, {exception, <<"TimeoutError">>, _, _}} = received(Channel, Seconds) || Seconds <- ["-0.01", "float('-inf')"]],
    {error, {exception, <<"ValueError">>, _, _}} = received(Channel, "float('nan')"),
    {error, {exception, <<"TypeError">>, _, _}} = received(Channel, "'soon'"),
    ok = thalweg_channel:write(Channel, 0),
    {ok, 0} = received(Channel, "float('inf')"),
    %% Longer than any timer goes.
    Reader = waiting_reader(Channel),
    exit(Reader, kill),
    Self = self(),
    spawn_link(fun() -> Self ! {outcome, thalweg_channel:read(Channel, 1 bsl 70)} end),
    ok = thalweg_channel:write(Channel, 1),
    receive
        {outcome, {ok, 1}} -> ok
    end,
    ok = thalweg_channel:write(Channel, 2),
    {ok, 2} = thalweg_channel:read(Channel, -1).

received(Channel, Timeout) ->
    Number = integer_to_list(thalweg_channel:number(Channel)),
    thalweg:eval("__import__('thalweg.erlang').erlang.Channel(" ++ Number ++ ").receive(timeout=" ++ Timeout ++ ")").

channels_outlive_wrong_arguments(_Config) ->
    {ok, Channel} = thalweg_channel:open(#{kind => bytes}),
    ok = thalweg_channel:write(Channel, <<"before">>),
    [{error, badarg} = thalweg_channel:write(Channel, Wrong) || Wrong <- [5, atom, [256], <<1:1>>, {}]],
    {error, {erlang, badarg}} = thalweg:call(sample, fill, [thalweg_channel:number(Channel), 5]),
    ok = thalweg_channel:write(Channel, [<<" and">>, " after"]),
    {ok, <<"before and after">>} = thalweg_channel:read(Channel).

%% However a channel ends, its number leads nowhere and is kept by nobody.
channels_are_forgotten(_Config) ->
    Self = self(),
    {ok, Closed} = thalweg_channel:open(),
    Number = thalweg_channel:number(Closed),
    Closed = thalweg_shared:channel(Number),
    ok = thalweg_channel:close(Closed),
    spawn_link(fun() -> {ok, Of} = thalweg_channel:open(), Self ! {number, thalweg_channel:number(Of)} end),
    Orphan = receive {number, Of} -> Of end,
    [
        thalweg_test:until(fun() -> ets:lookup(thalweg_shared, {channel, Ended}) =:= [] end)
     || Ended <- [Number, Orphan]
    ].
