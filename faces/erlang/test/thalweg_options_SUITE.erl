%% Options that are none, or are what they cannot be: said at once and by name, wherever they are taken, and nothing is begun.
-module(thalweg_options_SUITE).
-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {seconds, 300}}].

all() ->
    [
        of_a_pool, of_a_pool_that_is_there, late_starts, of_a_call, of_another_call, of_a_stream, of_a_channel, of_events, of_a_server, of_a_client,
        arguments_that_are_none, said_in_words, every_usual_one
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

%% One that nobody knows, by a slip of the hand; and of each that there is what it cannot be.
of_a_pool(_Config) ->
    Wrong = [
        {sise, 1}, {size, 0}, {size, -1}, {size, foo}, {size, 1.0}, {in_flight_max, 0}, {in_flight_max, foo}, {in_flight_max, 1 bsl 32},
        {start_within, 0}, {start_within, foo}, {start_within, infinity}, {shut_down_within, -1}, {shut_down_within, 1 bsl 32},
        {path, "/tmp"}, {path, <<"/tmp">>}, {path, [foo]}, {path, [<<255>>]}, {environment, ["A=1"]}, {environment, [{"A", 1}]},
        {environment, [{"A=B", "1"}]}, {environment, [{"A", "\0"}]}, {environment, #{"A" => "1"}}, {python, foo}, {venv, 5},
        {directory, [<<"a">>, 5]}, {python, <<"a", 0>>}, {python, [16#d800]}, {path, [[$/, 16#dfff]]}
    ],
    [{Option, {error, {bad_option, Key, <<_, _/binary>>}}} =
        {Option, thalweg:start_pool(wrong, thalweg_test:pool(#{Key => Value, size => 1}))}
     || {Key, Value} = Option <- Wrong, Key =/= size, Key =/= path, Key =/= start_within],
    [{Option, {error, {bad_option, Key, <<_, _/binary>>}}} = {Option, thalweg:start_pool(wrong, #{Key => Value})}
     || {Key, Value} = Option <- Wrong],
    {error, {no_such_directory, "/nope"}} = thalweg:start_pool(wrong, #{directory => "/nope"}),
    [] = thalweg:workers(wrong).

of_a_pool_that_is_there(_Config) ->
    {ok, Events} = thalweg_events:start_link(),
    [{error, no_worker} = thalweg_events:to_worker(Events, default, Index) || Index <- [0, -1, 2, 99]],
    ok = thalweg_events:stop(Events).

%% What takes longer to start than it may is a timeout, whatever was being waited for.
late_starts(_Config) ->
    {error, {worker_failed, timeout, _}} =
        thalweg:start_pool(late, (thalweg_test:pool(#{size => 1}))#{start_within => 1}).

of_a_call(_Config) ->
    Calls = [
        fun(Options) -> thalweg:call(sample, echo, [1], Options) end,
        fun(Options) -> thalweg:cast(sample, echo, [1], Options) end,
        fun(Options) -> thalweg:spawn_call(sample, echo, [1], Options) end,
        fun(Options) -> thalweg:async_call(sample, echo, [1], Options) end,
        fun(Options) -> thalweg:async_gather([{sample, echo, [1]}], Options) end,
        fun(Options) -> thalweg:async_gather([], Options) end,
        fun(Options) -> thalweg:eval("1", #{}, Options) end,
        fun(Options) -> thalweg:exec("1", #{}, Options) end
    ],
    Wrong = [#{tiemout => 1}, #{timeout => -1}, #{timeout => foo}, #{pool => <<"default">>}, #{keywords => []}, #{credit => 1}],
    [{Options, badarg} = {Options, wrong(Call, Options)} || Call <- Calls, Options <- Wrong].

%% What a function has no use for it does not take: whoever says it means something else by it.
of_another_call(_Config) ->
    Call = fun(Options) -> thalweg:call(sample, echo, [1], Options) end,
    Begun = [
        fun(Options) -> thalweg:cast(sample, echo, [1], Options) end,
        fun(Options) -> thalweg:spawn_call(sample, echo, [1], Options) end,
        fun(Options) -> thalweg:async_call(sample, echo, [1], Options) end
    ],
    Gather = fun(Options) -> thalweg:async_gather([{sample, echo, [1]}], Options) end,
    Source = [
        fun(Options) -> thalweg:eval("1", #{}, Options) end,
        fun(Options) -> thalweg:exec("1", #{}, Options) end
    ],
    Open = fun(Options) -> thalweg_asgi:open(<<"web:app">>, #{}, <<>>, Options) end,
    [
        {Name, badarg} = {Name, wrong(Act, #{Name => Value})}
     || {Name, Value, Acts} <- [
            {namespace, any, [Call, Gather | Begun]}, {keywords, #{}, [Gather | Source]}, {timeout, 1000, [Open | Begun]}
        ],
        Act <- Acts
    ].

of_a_stream(Config) ->
    Wrong = [#{credit => 0}, #{credit => 1 bsl 32}, #{batch => 0}, #{timeout => 1}, #{crdit => 1}],
    [{Options, badarg} = {Options, wrong(fun(O) -> thalweg_stream:open(builtins, range, [3], O) end, Options)} || Options <- Wrong],
    Log = filename:join(proplists:get_value(priv_dir, Config), "nobody.sock"),
    {ok, Client} = thalweg_log:connect(Log),
    badarg = wrong(fun(Credit) -> thalweg_log:tail(Client, <<"name">>, <<"-1">>, Credit) end, 0),
    ok = thalweg_client:close(Client).

of_a_channel(_Config) ->
    Wrong = [{capasity, 1}, {capacity, 0}, {capacity, foo}, {kind, words}],
    [{Option, {error, {bad_option, Key, _}}} = {Option, thalweg_channel:open(#{Key => Value})} || {Key, Value} = Option <- Wrong].

of_events(_Config) ->
    Wrong = [{capcity, 1}, {capacity, 0}, {capacity, foo}],
    [{Option, {error, {bad_option, Key, _}}} = {Option, thalweg_events:start_link(#{Key => Value})} || {Key, Value} = Option <- Wrong].

of_a_server(_Config) ->
    {error, {bad_option, app, _}} = thalweg_asgi:listen(#{port => 0}),
    Wrong = [
        {prot, 1}, {port, -1}, {port, 65536}, {ip, "127.0.0.1"}, {runner, <<"no colon">>}, {timeout, -1}, {pool, "default"},
        {body_bytes_max, 0}, {connections_max, 0}, {idle_ms_max, 0}, {app, web}
    ],
    Listen = fun(Option) -> thalweg_asgi:listen(maps:merge(#{app => <<"web:app">>}, Option)) end,
    [{Option, {error, {bad_option, Key, _}}} = {Option, Listen(#{Key => Value})} || {Key, Value} = Option <- Wrong],
    [
        {Options, badarg} = {Options, wrong(Answer, Options)}
     || Answer <- [fun(O) -> thalweg_asgi:run(<<"web:app">>, #{}, <<>>, O) end, fun(O) -> thalweg_asgi:open(<<"web:app">>, #{}, <<>>, O) end],
        Options <- [#{timout => 1}, #{timeout => foo}, #{runner => <<"no colon">>}, #{port => 1}]
    ].

of_a_client(Config) ->
    Endpoint = filename:join(proplists:get_value(priv_dir, Config), "nobody.sock"),
    Wrong = [{shema, <<>>}, {schema, <<1>>}, {shared, 1}, {connect_within, -1}, {reconnect, yes}, {in_flight_max, 0}, {deadline, 1}],
    [{Option, {error, {bad_option, Key, _}}} = {Option, thalweg_client:connect(Endpoint, #{Key => Value})} || {Key, Value} = Option <- Wrong],
    {ok, Client} = thalweg_client:connect(Endpoint),
    [
        {Options, badarg} = {Options, wrong(Send, Options)}
     || Send <- [
            fun(O) -> thalweg_client:call(Client, <<>>, O) end,
            fun(O) -> thalweg_client:send(Client, <<>>, O) end,
            fun(O) -> thalweg_client:stream(Client, <<>>, O) end,
            fun(O) -> thalweg_client:transport(Client, O) end,
            fun(O) -> thalweg_client:stream_transport(Client, O) end
        ],
        Options <- [#{dedline => 1}, #{deadline => -1}, #{credit => 0}]
    ],
    ok = thalweg_client:close(Client).

%% Whatever is no name, no request, no stream, no client and no list of calls is a wrong argument, as everywhere in Erlang.
arguments_that_are_none(Config) ->
    Endpoint = filename:join(proplists:get_value(priv_dir, Config), "nobody.sock"),
    {ok, Client} = thalweg_client:connect(Endpoint),
    Sum = fun(Value, Before) -> Value + Before end,
    Acts = [
        fun(Wrong) -> thalweg:start_pool(Wrong, #{size => 1}) end,
        fun thalweg:await/1, fun(Wrong) -> thalweg:await(Wrong, 0) end, fun thalweg:cancel/1, fun thalweg:reference/1,
        fun thalweg:async_await/1, fun(Wrong) -> thalweg:async_gather({Wrong}) end, fun(Wrong) -> thalweg:async_gather([Wrong]) end,
        fun(Wrong) -> thalweg:async_gather([{math, sqrt, [4]} | Wrong]) end,
        fun(Wrong) -> thalweg:eval("1", Wrong) end, fun(Wrong) -> thalweg:exec("1", #{5 => Wrong}) end,
        fun thalweg_stream:next/1, fun(Wrong) -> thalweg_stream:next(Wrong, 0) end, fun thalweg_stream:close/1,
        fun(Wrong) -> thalweg_stream:grant(Wrong, 1) end, fun thalweg_stream:reference/1,
        fun(Wrong) -> thalweg_stream:fold(Sum, 0, Wrong) end, fun(Wrong) -> thalweg_stream:fold(Wrong, 0, Wrong) end,
        fun thalweg_channel:number/1,
        fun thalweg_client:close/1, fun thalweg_client:in_flight/1, fun(Wrong) -> thalweg_client:call(Wrong, <<>>) end,
        fun(Wrong) -> thalweg_client:send(Wrong, <<>>) end, fun(Wrong) -> thalweg_client:stream(Wrong, <<>>) end,
        fun(Wrong) -> thalweg_client:await(Wrong, 0) end, fun thalweg_client:cancel/1, fun thalweg_client:next/1,
        fun(Wrong) -> thalweg_client:grant(Wrong, 1) end, fun thalweg_client:reference/1,
        fun(Wrong) -> thalweg_client:call(Client, {Wrong}) end,
        fun(Wrong) -> thalweg_log:connect(Endpoint, Wrong) end, fun(Wrong) -> thalweg_log:append(Wrong, <<"a">>, <<>>) end,
        fun(Wrong) -> thalweg_log:tail(Wrong, <<"a">>, <<"-1">>) end, fun thalweg_log:next/1, fun thalweg_log:message/1,
        fun thalweg_log:close/1
    ],
    [
        {At, Wrong, badarg} = {At, Wrong, wrong(Act, Wrong)}
     || {At, Act} <- lists:enumerate(Acts), Wrong <- [5, "text", {a}, {one, two, three, four, five}, make_ref()]
    ],
    ok = thalweg_client:close(Client),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% What fails says which option it was, as Erlang's own functions say which argument.
said_in_words(_Config) ->
    {error, {bad_option, size, Size}} = thalweg:start_pool(wrong, #{size => 0}),
    <<"an integer from 1 on, not 0">> = Size,
    {error, {bad_option, sise, Unknown}} = thalweg:start_pool(wrong, #{sise => 1}),
    {match, _} = re:run(Unknown, "^no such option, there are directory, .*, size, "),
    try thalweg:call(sample, echo, [1], #{tiemout => 1}) of
        Result -> error({not_wrong, Result})
    catch
        error:badarg:Stack ->
            [{Module, _, _, _} | _] = Stack,
            #{general := Words} = Module:format_error(badarg, Stack),
            {match, _} = re:run(Words, "^tiemout: no such option, there are affinity, ")
    end.

%% Each option as it may be said.
every_usual_one(_Config) ->
    Path = thalweg_test:path(),
    {ok, _} = thalweg:start_pool(usual, #{
        size => 1, path => [Path, unicode:characters_to_binary(Path)], directory => "/tmp", environment => [{"A", "1"}, {"B", false}],
        in_flight_max => 10, start_within => 60000, shut_down_within => 0
    }),
    Options = #{pool => usual, timeout => infinity, affinity => {any, 1}},
    {ok, 1} = thalweg:call(sample, echo, [1], Options#{keywords => #{}}),
    [{ok, 1}] = thalweg:async_gather([{sample, echo, [1], #{}}], Options),
    {ok, 1} = thalweg:eval("1", #{}, Options#{namespace => any}),
    {ok, 1} = thalweg:await(thalweg:spawn_call(sample, echo, [1], #{pool => usual, keywords => #{}, affinity => {any, 1}})),
    {ok, Stream} = thalweg_stream:open(builtins, range, [3], #{pool => usual, affinity => 1, credit => 1, batch => none}),
    {[0, 1, 2], done} = thalweg_test:collect(Stream, []),
    ok = thalweg:stop_pool(usual).

%% How an act failed.
wrong(Act, Options) ->
    try Act(Options) of
        Result -> {not_wrong, Result}
    catch
        error:Reason -> Reason
    end.
