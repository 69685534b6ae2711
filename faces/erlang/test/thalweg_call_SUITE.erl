%% Calls: alone, in flight, gathered, given up, refused.
-module(thalweg_call_SUITE).
-compile([export_all, nowarn_export_all]).

%% Of calls that a busy machine may take long for: no time limit but that of the test.
-define(PATIENT, #{timeout => infinity}).

all() ->
    [
        call, source_in_characters, keywords, names_of_functions, coroutines, coroutines_in_several_steps, garbage_while_a_task_begins, tasks_of_their_own, cast, spawned, gathered, early_error_in_a_gather, many_callers,
        timeout_of_a_coroutine, timeout_of_a_function, timeout_of_the_system, timeout_of_a_gather, interrupt_is_raised,
        interrupt_of_a_coroutine, interrupt_of_a_later_step, interrupt_between_two_steps, interrupt_before_it_begins, interrupt_that_comes_to_nothing, interrupted_once, not_suspended, stopped_loop, ended_loop, stopped_pool, called_within_a_task, cancelled, overloaded, exceptions, exceptions_that_say_nothing_of_themselves,
        no_such_pool, results_that_were_taken, wrong_arguments, large_values, large_values_beside_small_ones, large_values_given_up, interrupts_beside_calls,
        given_up_before_much_else, results_as_messages, caller_that_ends, callers_that_are_killed
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1, in_flight_max => 256}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) ->
    %% Nothing is left behind, whatever the test did.
    thalweg_test:until(fun() -> thalweg:load(default) =:= [0] end),
    thalweg_test:none_left().

none_left() -> ok = thalweg_test:none_left().

call(_Config) ->
    {ok, 2.0} = thalweg:call(math, sqrt, [4]),
    {ok, 3} = thalweg:call(sample, add, [1, 2]),
    {ok, none} = thalweg:call(time, sleep, [0]).

%% Source is text: characters, bytes of UTF-8, or both.
source_in_characters(_Config) ->
    [
        {Source, {ok, <<"\x{e9}\x{65e5}"/utf8>>}} = {Source, thalweg:eval(Source)}
     || Source <- [[$', 16#e9, 16#65e5, $'], <<"'\x{e9}\x{65e5}'"/utf8>>, [$', <<"\x{e9}"/utf8>>, [16#65e5], "'"]]
    ],
    {ok, none} = thalweg:exec([<<"n = '">>, 16#e9, $']),
    {ok, 1} = thalweg:eval("len(n)"),
    [{'EXIT', {badarg, _}} = (catch thalweg:eval(Source)) || Source <- [<<255>>, [16#110000], 5, {}, undefined]].

keywords(_Config) ->
    {ok, 9} = thalweg:call(sample, add, [1], #{keywords => #{right => 2, <<"factor">> => 3}}),
    {error, {exception, <<"TypeError">>, _, _}} = thalweg:call(sample, add, [1], #{keywords => #{wrong => 2}}).

names_of_functions(_Config) ->
    {ok, <<"a/b">>} = thalweg:call(<<"os.path">>, join, [<<"a">>, <<"b">>]),
    {ok, <<"a/b">>} = thalweg:call(os, <<"path.join">>, [<<"a">>, <<"b">>]),
    {error, {exception, <<"ModuleNotFoundError">>, _, _}} = thalweg:call(no_such_module, f, []),
    {error, {exception, <<"AttributeError">>, _, _}} = thalweg:call(math, no_such_function, []).

coroutines(_Config) ->
    {ok, 14} = thalweg:call(sample, double, [7]),
    {error, {exception, <<"LookupError">>, <<"later">>, _}} = thalweg:call(sample, fail_later, [<<"later">>]).

%% A step may raise anything, the end of the interpreter included: it ends the call and nothing else.
coroutines_in_several_steps(_Config) ->
    {ok, Worker} = thalweg:call(os, getpid, []),
    [
        {error, {exception, Kind, _, _}} = thalweg:call(sample, raise_later, [Kind, Steps])
     || Kind <- [<<"SystemExit">>, <<"KeyboardInterrupt">>, <<"GeneratorExit">>, <<"ValueError">>], Steps <- [0, 1, 3]
    ],
    {error, {exception, <<"TypeError">>, _, _}} = thalweg:call(sample, no_value_later, []),
    {error, {exception, <<"asyncio.exceptions.CancelledError">>, _, _}} = thalweg:call(sample, cancel_itself, []),
    {ok, 5} = thalweg:call(sample, future_of, [5]),
    {ok, Worker} = thalweg:call(os, getpid, []).

%% Making a task collects garbage now and then, and what is collected has something called soon.
garbage_while_a_task_begins(_Config) ->
    [{ok, N} = thalweg:call(sample, litter, [N, 20 + N div 50 rem 40]) || N <- lists:seq(1, 2000)],
    {ok, Collected} = thalweg:call(sample, collected, []),
    Collected = lists:duplicate(2000, 3).

%% Each is the task that its call runs in, in a context of its own, from its first step on.
tasks_of_their_own(_Config) ->
    [{ok, {true, none, N}} = thalweg:call(sample, who_runs, [N, Steps]) || N <- lists:seq(1, 5), Steps <- [0, 1]].

cast(_Config) ->
    Self = self(),
    ok = thalweg:cast(sample, send, [Self, <<"cast">>]),
    receive
        <<"cast">> -> none_left()
    end.

spawned(_Config) ->
    Requests = [thalweg:spawn_call(sample, double, [N]) || N <- lists:seq(1, 100)],
    Expected = [{ok, 2 * N} || N <- lists:seq(1, 100)],
    Expected = [thalweg:await(Request) || Request <- Requests],
    {ok, 3} = thalweg:async_await(thalweg:async_call(sample, add, [1, 2])),
    none_left().

gathered(_Config) ->
    Expected = [{ok, N} || N <- lists:seq(1, 100)],
    Expected = thalweg:async_gather([{sample, echo, [N]} || N <- lists:seq(1, 100)]),
    [{ok, 2}, {ok, 9}] = thalweg:async_gather([{sample, double, [1]}, {sample, add, [1, 2], #{factor => 3}}]),
    [] = thalweg:async_gather([]),
    none_left().

%% One that fails, one that cannot even be asked, and one beyond the bound: each in its place, and nothing besides.
early_error_in_a_gather(_Config) ->
    [{ok, 1}, {error, {exception, <<"ValueError">>, <<"no">>, _}}, {error, {no_python_value, _}}, {ok, 4}] =
        thalweg:async_gather([
            {sample, echo, [1]}, {sample, fail, [<<"no">>]}, {sample, echo, [fun() -> ok end]}, {sample, double, [2]}
        ]),
    %% Coroutines that do not end at once: as many as may be in flight, and the rest is refused.
    Many = thalweg:async_gather([{sample, double, [N]} || N <- lists:seq(1, 300)]),
    300 = length(Many),
    {_, Refused} = lists:partition(fun({Word, _}) -> Word =:= ok end, Many),
    [{error, {overloaded, _, 256}} = Each || Each <- Refused],
    {error, timeout} = thalweg:async_gather([{sample, echo, [1]}, {sample, sleep, [3600]}], #{timeout => 50}),
    none_left().

many_callers(_Config) ->
    Self = self(),
    Callers = [
        spawn_link(fun() ->
            [{ok, {Caller, N}} = thalweg:call(sample, echo, [{Caller, N}]) || N <- lists:seq(1, 100)],
            none_left(),
            Self ! {done, self()}
        end)
     || Caller <- lists:seq(1, 100)
    ],
    [receive {done, Caller} -> ok end || Caller <- Callers].

timeout_of_a_coroutine(_Config) ->
    Self = self(),
    ok = thalweg:register(tell, fun([Word]) -> Self ! {told, Word}, ok end),
    {error, timeout} = given_up(sleep_until_cancelled, <<"cancelled">>),
    receive
        {told, <<"cancelled">>} -> none_left()
    end.

%% Again, while it could not even begin in time.
given_up(Function, Argument) -> given_up(Function, Argument, 50).
given_up(Function, Argument, Milliseconds) ->
    Before = thalweg_shared:get(<<"begun">>, 0),
    Result = thalweg:call(sample, Function, [Argument], #{timeout => Milliseconds}),
    case thalweg_shared:get(<<"begun">>, 0) of
        Before when Result =:= {error, timeout} -> given_up(Function, Argument, 2 * Milliseconds);
        _ -> Result
    end.

timeout_of_a_function(_Config) ->
    {error, timeout} = thalweg:call(sample, spin, [], #{timeout => 50}),
    {ok, 1} = thalweg:call(sample, echo, [1]),
    {error, timeout} = thalweg:call(sample, block, [3600], #{timeout => 50}),
    {ok, 2} = thalweg:call(sample, echo, [2]),
    none_left().

%% What the operating system holds up is interrupted as well.
timeout_of_the_system(_Config) ->
    [{error, timeout} = given_up(block_in, What) || What <- [<<"recv">>, <<"read">>, <<"flock">>, <<"waitpid">>]],
    {ok, 1} = thalweg:call(sample, echo, [1]).

timeout_of_a_gather(_Config) ->
    {error, timeout} = thalweg:async_gather([{sample, sleep, [3600]}, {sample, spin, []}], #{timeout => 50}),
    {ok, 1} = thalweg:call(sample, echo, [1]),
    none_left().

interrupt_is_raised(_Config) ->
    ok = thalweg_shared:put(<<"tester">>, self()),
    {error, timeout} = given_up(spin_and_catch, none),
    receive
        interrupted -> ok
    end.

%% A coroutine that computes in its first step is interrupted like any function.
interrupt_of_a_coroutine(_Config) ->
    ok = thalweg_shared:put(<<"tester">>, self()),
    {error, timeout} = given_up(spin_later_and_catch, none),
    receive
        interrupted -> ok
    end.

%% And so is one in any other step.
interrupt_of_a_later_step(_Config) ->
    ok = thalweg_shared:put(<<"tester">>, self()),
    {error, timeout} = given_up(spin_in_a_later_step, none),
    receive
        interrupted -> ok
    end,
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% Nobody waits for its second step by the time that it comes.
interrupt_between_two_steps(_Config) ->
    {error, timeout} = given_up(spin_behind_another_step, none),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% What is given up when it has been taken and has not begun is never begun, be it machine code that hears of nothing: here what is in
%% front of it holds its worker up without a look at what came.
interrupt_before_it_begins(_Config) ->
    Hash = [<<"sha256">>, {bytes, <<"word">>}, {bytes, <<"salt">>}, 400000],
    %% The others are taken together.
    First = thalweg:spawn_call(hashlib, pbkdf2_hmac, Hash),
    timer:sleep(20),
    Second = thalweg:spawn_call(hashlib, pbkdf2_hmac, Hash),
    Third = thalweg:spawn_call(time, sleep, [3600]),
    {ok, _} = thalweg:await(First, 60000),
    ok = thalweg:cancel(Third),
    %% Its answer leaves when the worker has nothing else to begin.
    {ok, _} = thalweg:await(Second, 60000),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% One is followed by another, in case that the first was heard a moment too early.
interrupt_that_comes_to_nothing(_Config) ->
    {error, timeout} = given_up(block_unheard, none),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% What cannot be handed to the event loop ends, and its call.
not_suspended(_Config) ->
    Before = thalweg_shared:get(<<"cancelled">>, 0),
    {error, {exception, <<"MemoryError">>, <<"not now">>, _}} = thalweg:call(sample, not_suspended, [3600]),
    thalweg_test:until(fun() -> thalweg_shared:get(<<"cancelled">>, 0) > Before end),
    {ok, <<"awake">>} = thalweg:call(sample, sleep, [0.01]).

%% What waits in a loop that somebody stops goes on.
stopped_loop(_Config) ->
    {ok, Worker} = thalweg:call(os, getpid, []),
    Beside = thalweg:spawn_call(sample, sleep, [0.2]),
    {ok, <<"gone on">>} = thalweg:call(sample, stop_the_loop, []),
    {ok, <<"awake">>} = thalweg:await(Beside),
    {ok, Worker} = thalweg:call(os, getpid, []).

%% What waits in a loop that ends is told so at once, be there threads that go on.
ended_loop(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1})),
    Beside = thalweg:spawn_call(sample, sleep, [3600], #{pool => ending}),
    {error, {fault, disconnected, _}} = thalweg:call(sample, end_the_loop, [3], #{pool => ending}),
    {error, {fault, disconnected, _}} = thalweg:await(Beside),
    ok = thalweg:stop_pool(ending).

%% And so is what waits in a worker whose pool is stopped.
stopped_pool(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1})),
    Beside = thalweg:spawn_call(sample, sleep, [3600], #{pool => ending}),
    {ok, 1} = thalweg:call(sample, echo, [1], #{pool => ending}),
    ok = thalweg:stop_pool(ending),
    {error, {fault, disconnected, _}} = thalweg:await(Beside).

%% What is done because of an interrupt comes to its end, whatever else is given up meanwhile.
interrupted_once(_Config) ->
    [
        begin
            Other = thalweg:spawn_call(sample, sleep, [3600]),
            Request = thalweg:spawn_call(sample, Function, [self()]),
            receive begun -> ok end,
            ok = thalweg:cancel(Request),
            receive cleaning -> ok end,
            ok = thalweg:cancel(Other),
            receive
                cleaned -> ok
            after 60000 -> ct:fail({interrupted_again, Function})
            end
        end
     || Function <- [
            spin_and_clean, spin_later_and_clean, spin_and_clean_later, spin_in_a_later_step_and_clean,
            spin_in_a_later_step_and_clean_later
        ]
    ],
    none_left().

%% What is called soon while a call's task is being made is no step of it.
called_within_a_task(_Config) ->
    {ok, Within} = thalweg:call(sample, call_within_the_next_task, [<<"word">>]),
    {ok, 1} = thalweg:call(sample, one, []),
    Heard = [<<"word">> || Within],
    thalweg_test:until(fun() -> {ok, Heard} =:= thalweg:call(sample, what_was_heard, []) end).

cancelled(_Config) ->
    Request = thalweg:spawn_call(sample, sleep, [3600]),
    ok = thalweg:cancel(Request),
    Done = thalweg:spawn_call(sample, echo, [1]),
    ok = thalweg:cancel(Done),
    none_left(),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% So many calls and no more; what they call back is answered all the same.
overloaded(_Config) ->
    Self = self(),
    ok = thalweg:register(gate, fun(_) -> Self ! {at_gate, self()}, receive go -> ok end end),
    Requests = [thalweg:spawn_call(sample, call_back_later, [<<"gate">>]) || _ <- lists:seq(1, 256)],
    Waiting = [receive {at_gate, Callback} -> Callback end || _ <- Requests],
    Overloaded = {error, {overloaded, 256, 256}},
    Overloaded = thalweg:call(sample, echo, [1]),
    Overloaded = thalweg:await(thalweg:spawn_call(sample, echo, [1])),
    Overloaded = thalweg:cast(sample, echo, [1]),
    Overloaded = thalweg:eval("1"),
    [Overloaded, Overloaded] = thalweg:async_gather([{sample, echo, [1]}, {sample, echo, [2]}]),
    Overloaded = thalweg_stream:open(sample, count, [1, 2]),
    [Callback ! go || Callback <- Waiting],
    [{ok, ok} = thalweg:await(Request, infinity) || Request <- Requests],
    none_left().

exceptions(_Config) ->
    {error, {exception, <<"ValueError">>, <<"words">>, Trace}} = thalweg:call(sample, fail, [<<"words">>]),
    {match, _} = re:run(iolist_to_binary(Trace), "sample.py"),
    {error, {exception, <<"json.decoder.JSONDecodeError">>, _, _}} = thalweg:call(json, loads, [<<"{">>]),
    {error, {exception, <<"SystemExit">>, _, _}} = thalweg:call(sys, exit, [3]),
    [
        {error, {exception, <<"TypeError">>, _, _}} = thalweg:call(sample, Function, [])
     || Function <- [fail_without_a_term, fail_without_a_term_later]
    ],
    {error, {exception, <<"RecursionError">>, _, _}} =
        thalweg:eval("(lambda f: f(f))(lambda f: f(f))").

no_such_pool(_Config) ->
    {error, no_worker} = thalweg:call(math, sqrt, [4], #{pool => nowhere}),
    {error, no_worker} = thalweg:cast(math, sqrt, [4], #{pool => nowhere}),
    Request = thalweg:spawn_call(math, sqrt, [4], #{pool => nowhere}),
    {error, no_worker} = thalweg:await(Request),
    %% As any other that was heard of already.
    badarg = caught(fun() -> thalweg:await(Request, infinity) end),
    {error, no_worker} = thalweg:async_gather([{math, sqrt, [4]}], #{pool => nowhere}).

%% What a call came to is there once, and to who made it; nobody waits for it a second time.
results_that_were_taken(_Config) ->
    Taken = fun(Request) -> [badarg = caught(fun() -> thalweg:await(Request, Timeout) end) || Timeout <- [0, 60000, infinity]] end,
    Slow = thalweg:spawn_call(asyncio, sleep, [0.01, 1]),
    {ok, 1} = thalweg:await(Slow),
    Taken(Slow),
    Quick = thalweg:spawn_call(math, sqrt, [4]),
    {ok, 2.0} = thalweg:await(Quick),
    Taken(Quick),
    Cancelled = thalweg:spawn_call(asyncio, sleep, [3600]),
    ok = thalweg:cancel(Cancelled),
    Taken(Cancelled),
    Late = thalweg:spawn_call(asyncio, sleep, [3600]),
    {error, timeout} = thalweg:await(Late, 10),
    Taken(Late),
    %% One that is there already is taken all the same, and one that is not stays its caller's.
    There = thalweg:spawn_call(math, sqrt, [9]),
    thalweg_test:until(fun() -> thalweg:load(default) =:= [0] end),
    {ok, 3.0} = thalweg:await(There, 0),
    Ours = thalweg:spawn_call(asyncio, sleep, [0.2, ours]),
    {_, Monitor} = spawn_monitor(fun() -> Taken(Ours) end),
    receive {'DOWN', Monitor, process, _, Reason} -> normal = Reason end,
    {ok, _} = thalweg:await(Ours).

wrong_arguments(_Config) ->
    badarg = caught(fun() -> thalweg:call(1, 2, []) end),
    badarg = caught(fun() -> thalweg:call(math, sqrt, [4], #{keywords => []}) end),
    badarg = caught(fun() -> thalweg:call(math, sqrt, not_a_list) end),
    %% Nothing has left when a wait is refused.
    [
        badarg = caught(Act)
     || Wrong <- [-1, soon, 1 bsl 60],
        Act <- [
            fun() -> thalweg:call(time, sleep, [0.01], #{timeout => Wrong}) end,
            fun() -> thalweg:eval("1", #{}, #{timeout => Wrong}) end,
            fun() -> thalweg:async_gather([{time, sleep, [0.01]}], #{timeout => Wrong}) end
        ]
    ],
    %% What workers need is nobody else's, and what is called is a function.
    badarg = caught(fun() -> thalweg:register(<<"thalweg:shared">>, fun(_) -> ok end) end),
    badarg = caught(fun() -> thalweg:unregister(<<"thalweg:shared">>) end),
    badarg = caught(fun() -> thalweg:register(bad, 5) end),
    Request = thalweg:spawn_call(math, sqrt, [4]),
    badarg = caught(fun() -> thalweg:await(Request, -1) end),
    {ok, 2.0} = thalweg:await(Request),
    none_left().

caught(Function) ->
    try Function() of
        Value -> Value
    catch
        error:Reason -> Reason
    end.

%% What an exception says of itself is anybody's code: it may fail in any way, end the program included. The call has failed all the same.
exceptions_that_say_nothing_of_themselves(_Config) ->
    [Worker] = thalweg:workers(default),
    Sources = [
        {<<"sample.Mute">>, <<>>, "class Mute(Exception):\n __module__ = 'sample'\n def __str__(self): raise SystemExit(1)\nraise Mute"},
        {<<"sample.Mute">>, <<>>, "class Mute(Exception):\n __module__ = 'sample'\n def __str__(self): raise GeneratorExit\nraise Mute"},
        {<<"?.Odd">>, <<>>, "class Odd(Exception):\n __module__ = '\\ud800'\nraise Odd"},
        {<<"SyntaxError">>, <<"m (f)">>, "raise SyntaxError('m', ('f', 'x', 'y', 'z'))"},
        {<<"__erlang__.Liar">>, <<"l">>, "class Liar(Exception):\n __class__ = property(lambda self: 1 / 0)\nraise Liar('l')"},
        {<<"__erlang__.Shy">>, <<"s">>, "class Shy(Exception):\n def __getattribute__(self, name): raise KeyError(name)\nraise Shy('s')"}
    ],
    [
        {Source, {error, {exception, Kind, Words, [_ | _]}}} = {Source, thalweg:exec(Source)}
     || {Kind, Words, Source} <- Sources
    ],
    {error, {exception, <<"<class '__erlang__.Unnamed'>">>, <<"u">>, [_ | _]}} = thalweg:exec(
        "class Kind(type):\n __module__ = property(lambda kind: 1 / 0)\n"
        "class Unnamed(Exception, metaclass=Kind): pass\nraise Unnamed('u')"
    ),
    {error, {erlang, none}} = thalweg:exec(
        "from thalweg.erlang import ErlangError\n"
        "class Without(ErlangError):\n def __init__(self): pass\nraise Without"
    ),
    [Worker] = thalweg:workers(default).

%% Larger than a ring; and larger than a frame may be.
large_values(_Config) ->
    Large = binary:copy(<<"0123456789abcdef">>, 1 bsl 19),
    {ok, Large} = thalweg:call(sample, echo, [Large], ?PATIENT),
    TooLarge = binary:copy(<<0>>, 17 bsl 20),
    {error, {fault, frame_too_large, _}} = thalweg:call(sample, echo, [TooLarge], ?PATIENT),
    {error, {fault, frame_too_large, _}} = thalweg:eval("b'0' * (17 << 20)", #{}, ?PATIENT),
    {ok, 1} = thalweg:call(sample, echo, [1], ?PATIENT).

%% What takes long to write or to read is written and read on a scheduler apart: nothing changes but where.
large_values_beside_small_ones(_Config) ->
    Large = lists:seq(1, 200000),
    {ok, Large} = thalweg:call(sample, echo, [Large], ?PATIENT),
    Binary = binary:copy(<<255>>, 1 bsl 20),
    Request = thalweg:spawn_call(sample, echo, [Binary]),
    [{ok, N} = thalweg:call(sample, echo, [N], ?PATIENT) || N <- lists:seq(1, 100)],
    {ok, Binary} = thalweg:await(Request, infinity),
    [{ok, 1}, {ok, Large}, {error, {no_python_value, _}}, {ok, Binary}] =
        thalweg:async_gather([
            {sample, echo, [1]}, {sample, echo, [Large]}, {sample, echo, [Large ++ [self | 1]]}, {sample, echo, [Binary]}
        ], ?PATIENT),
    ok = thalweg:register(length, fun([List]) -> {length(List), List} end),
    {ok, {200000, Large}} = thalweg:call(sample, call_back, [<<"length">>, Large], ?PATIENT),
    %% Source that is long, and many that are long together only.
    Source = [<<"len('">>, binary:copy(<<"x">>, 1 bsl 20), <<"')">>],
    {ok, 1048576} = thalweg:eval(iolist_to_binary(Source), #{}, ?PATIENT),
    Numbered = [{N, binary:copy(<<N>>, 60000)} || N <- lists:seq(1, 50)],
    Together = [{Value, thalweg:spawn_call(sample, echo, [Value])} || Value <- Numbered],
    [{ok, Value} = thalweg:await(Made, infinity) || {Value, Made} <- Together],
    ok = thalweg:cast(sample, echo, [Large]),
    {ok, none} = thalweg:call(sample, send, [self(), {large, Large}], ?PATIENT),
    receive
        {large, Large} -> ok
    end,
    {ok, Stream} = thalweg_stream:open(sample, small_and_large, [100000, 20]),
    {Values, done} = thalweg_test:collect(Stream, []),
    Expected = [case N rem 2 of 0 -> N; 1 -> lists:duplicate(100000, N) end || N <- lists:seq(0, 19)],
    Expected = Values,
    none_left().

%% Nothing comes of what was cancelled, be it on its way to being read.
large_values_given_up(_Config) ->
    Large = lists:seq(1, 200000),
    [
        begin
            Request = thalweg:spawn_call(sample, echo, [Large]),
            {ok, N} = thalweg:call(sample, echo, [N], ?PATIENT),
            ok = thalweg:cancel(Request)
        end
     || N <- lists:seq(1, 20)
    ],
    {ok, Large} = thalweg:call(sample, echo, [Large], ?PATIENT),
    none_left().

%% What arrives together with an interrupt is heard of all the same.
interrupts_beside_calls(_Config) ->
    [
        begin
            Request = thalweg:spawn_call(sample, sleep, [3600]),
            Other = spawn_link(fun() -> thalweg:cancel(Request) end),
            Monitor = monitor(process, Other),
            {ok, N} = thalweg:call(sample, echo, [N], #{timeout => infinity}),
            receive
                {'DOWN', Monitor, process, _, _} -> ok
            end
        end
     || N <- lists:seq(1, 500)
    ],
    none_left().

%% However much was asked before it was given up, less than a ring holds, or more than there is room for.
given_up_before_much_else(_Config) ->
    [
        begin
            Large = binary:copy(<<255>>, Bytes),
            Spinning = thalweg:spawn_call(sample, spin, []),
            Others = [thalweg:spawn_call(sample, echo, [Large]) || _ <- lists:seq(1, Count)],
            ok = thalweg:cancel(Spinning),
            [{ok, Large} = thalweg:await(Other, infinity) || Other <- Others]
        end
     || {Bytes, Count} <- [{1 bsl 20, 1}, {1 bsl 20, 3}, {1 bsl 20, 12}, {12 bsl 20, 2}]
    ],
    none_left().

results_as_messages(_Config) ->
    Reference = thalweg:reference(thalweg:spawn_call(sample, double, [4])),
    receive
        {thalweg, Reference, {ok, 8}} -> none_left()
    end,
    %% Of one that cannot even begin as well.
    Never = thalweg:reference(thalweg:spawn_call(sample, double, [4], #{pool => nowhere})),
    receive
        {thalweg, Never, {error, no_worker}} -> none_left()
    end.

%% What its calls come to is told to nobody, and nothing is held up.
caller_that_ends(_Config) ->
    {_, Monitor} = spawn_monitor(fun() -> [thalweg:spawn_call(sample, sleep, [0.05]) || _ <- lists:seq(1, 50)] end),
    receive
        {'DOWN', Monitor, _, _, normal} -> ok
    end,
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% Nobody is left who could give up what never ends, whichever way it was asked for; what was cast has nobody to wait for it.
callers_that_are_killed(_Config) ->
    Forever = #{timeout => infinity},
    [
        begin
            Before = thalweg_shared:get(<<"begun">>, 0),
            Caller = spawn(Ask),
            thalweg_test:until(fun() -> thalweg_shared:get(<<"begun">>, 0) > Before end),
            exit(Caller, kill),
            {ok, 1} = thalweg:call(sample, echo, [1], Forever)
        end
     || Ask <- [
            fun() -> thalweg:call(sample, begin_and_spin, [], Forever) end,
            fun() -> thalweg:await(thalweg:spawn_call(sample, begin_and_spin, []), infinity) end,
            fun() -> thalweg:async_gather([{sample, sleep, [3600]}, {sample, begin_and_spin, []}], Forever) end,
            fun() -> thalweg:eval("__import__('sample').begin_and_spin()", #{}, Forever) end
        ]
    ],
    Self = self(),
    spawn(fun() -> ok = thalweg:cast(sample, block_and_tell, [Self, cast, 1.2]) end),
    receive
        cast -> none_left()
    end.
