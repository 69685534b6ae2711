%% Calls: alone, in flight, gathered, given up, refused.
-module(thalweg_call_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        call, keywords, names_of_functions, coroutines, cast, spawned, gathered, early_error_in_a_gather, many_callers,
        timeout_of_a_coroutine, timeout_of_a_function, interrupt_is_raised, cancelled, overloaded, exceptions,
        no_such_pool, wrong_arguments, large_values, results_as_messages, caller_that_ends
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1, in_flight_max => 256}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) ->
    %% Nothing is left behind, whatever the test did.
    thalweg_test:until(fun() -> thalweg:load(default) =:= [0] end).

none_left() ->
    receive
        {thalweg, _, _} = Stray -> ct:fail({stray, Stray})
    after 50 -> ok
    end.

call(_Config) ->
    {ok, 2.0} = thalweg:call(math, sqrt, [4]),
    {ok, 3} = thalweg:call(sample, add, [1, 2]),
    {ok, none} = thalweg:call(time, sleep, [0]).

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
    Many = thalweg:async_gather([{sample, double, [N]} || N <- lists:seq(1, 300)]),
    300 = length(Many),
    {_, [_ | _] = Refused} = lists:partition(fun({Word, _}) -> Word =:= ok end, Many),
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
    ok = thalweg:register(tell, fun([Name]) -> Self ! {told, Name} , ok end),
    {error, timeout} = thalweg:call(sample, sleep_until_cancelled, [<<"x">>], #{timeout => 50}),
    receive
        {told, <<"x">>} -> none_left()
    end.

timeout_of_a_function(_Config) ->
    {error, timeout} = thalweg:call(sample, spin, [], #{timeout => 50}),
    {ok, 1} = thalweg:call(sample, echo, [1]),
    {error, timeout} = thalweg:call(sample, block, [3600], #{timeout => 50}),
    {ok, 2} = thalweg:call(sample, echo, [2]),
    none_left().

interrupt_is_raised(_Config) ->
    ok = thalweg_shared:put(<<"tester">>, self()),
    {error, timeout} = thalweg:call(sample, spin_and_catch, [], #{timeout => 200}),
    receive
        interrupted -> ok
    end.

cancelled(_Config) ->
    Request = thalweg:spawn_call(sample, sleep, [3600]),
    ok = thalweg:cancel(Request),
    Done = thalweg:spawn_call(sample, echo, [1]),
    ok = thalweg:cancel(Done),
    none_left(),
    {ok, 1} = thalweg:call(sample, echo, [1]).

overloaded(_Config) ->
    Requests = [thalweg:spawn_call(sample, sleep, [0.2]) || _ <- lists:seq(1, 300)],
    {Slept, Refused} = lists:partition(fun(Result) -> Result =:= {ok, <<"awake">>} end, [
        thalweg:await(Request)
     || Request <- Requests
    ]),
    [{error, {overloaded, _, 256}} = Result || Result <- Refused],
    300 = length(Slept) + length(Refused),
    true = length(Slept) > 200 andalso Refused =/= [].

exceptions(_Config) ->
    {error, {exception, <<"ValueError">>, <<"words">>, Trace}} = thalweg:call(sample, fail, [<<"words">>]),
    {match, _} = re:run(iolist_to_binary(Trace), "sample.py"),
    {error, {exception, <<"json.decoder.JSONDecodeError">>, _, _}} = thalweg:call(json, loads, [<<"{">>]),
    {error, {exception, <<"SystemExit">>, _, _}} = thalweg:call(sys, exit, [3]),
    {error, {exception, <<"RecursionError">>, _, _}} =
        thalweg:eval("(lambda f: f(f))(lambda f: f(f))").

no_such_pool(_Config) ->
    {error, no_worker} = thalweg:call(math, sqrt, [4], #{pool => nowhere}),
    {error, no_worker} = thalweg:cast(math, sqrt, [4], #{pool => nowhere}),
    {error, no_worker} = thalweg:await(thalweg:spawn_call(math, sqrt, [4], #{pool => nowhere})),
    {error, no_worker} = thalweg:async_gather([{math, sqrt, [4]}], #{pool => nowhere}).

wrong_arguments(_Config) ->
    badarg = caught(fun() -> thalweg:call(1, 2, []) end),
    badarg = caught(fun() -> thalweg:call(math, sqrt, [4], #{keywords => []}) end),
    {error, {no_python_value, _}} = thalweg:call(math, sqrt, not_a_list).

caught(Function) ->
    try Function() of
        Value -> Value
    catch
        error:Reason -> Reason
    end.

%% Larger than a ring; and larger than a frame may be.
large_values(_Config) ->
    Large = binary:copy(<<"0123456789abcdef">>, 1 bsl 19),
    {ok, Large} = thalweg:call(sample, echo, [Large]),
    TooLarge = binary:copy(<<0>>, 17 bsl 20),
    {error, {fault, frame_too_large, _}} = thalweg:call(sample, echo, [TooLarge]),
    {error, {fault, frame_too_large, _}} = thalweg:eval("b'0' * (17 << 20)"),
    {ok, 1} = thalweg:call(sample, echo, [1]).

results_as_messages(_Config) ->
    {Reference, _} = thalweg:spawn_call(sample, double, [4]),
    receive
        {thalweg, Reference, {ok, 8}} -> none_left()
    end.

%% What its calls come to is told to nobody, and nothing is held up.
caller_that_ends(_Config) ->
    {_, Monitor} = spawn_monitor(fun() -> [thalweg:spawn_call(sample, sleep, [0.05]) || _ <- lists:seq(1, 50)] end),
    receive
        {'DOWN', Monitor, _, _, normal} -> ok
    end,
    {ok, 1} = thalweg:call(sample, echo, [1]).
