%% Source that is run, and whose names it sees.
-module(thalweg_source_SUITE).
-compile([export_all, nowarn_export_all]).

all() -> [eval, exec, namespaces_of_processes, namespaces_on_a_node_that_gets_a_name, named_namespaces, namespaces_end, nothing_is_kept_of_workers_that_ended, affinity, errors, awaited].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 2}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

eval(_Config) ->
    {ok, 3} = thalweg:eval("1 + 2"),
    {ok, 5} = thalweg:eval(<<"a + b">>, #{a => 2, <<"b">> => 3}),
    {ok, [1, 1]} = thalweg:eval("[x for _ in range(2)]", #{x => 1}),
    {ok, 1} = thalweg:eval("(lambda: x)()", #{x => 1}),
    {error, {exception, <<"NameError">>, _, _}} = thalweg:eval("a").

exec(_Config) ->
    {ok, none} = thalweg:exec("x = 1\ndef f(): return x + y", #{y => 2}),
    {ok, 3} = thalweg:eval("f()"),
    {ok, none} = thalweg:exec("x = 10"),
    {ok, 12} = thalweg:eval("f()").

namespaces_of_processes(_Config) ->
    {ok, none} = thalweg:exec("mine = 1"),
    Self = self(),
    spawn_link(fun() -> Self ! {other, thalweg:eval("mine")} end),
    receive
        {other, {error, {exception, <<"NameError">>, _, _}}} -> {ok, 1} = thalweg:eval("mine")
    end.

%% Which changes how a process is written, and not which it is.
namespaces_on_a_node_that_gets_a_name(_Config) ->
    {ok, none} = thalweg:exec("before = 1"),
    {ok, _} = net_kernel:start(named, #{name_domain => shortnames, dist_listen => false}),
    Found = thalweg:eval("before"),
    ok = net_kernel:stop(),
    {ok, 1} = Found,
    {ok, 1} = thalweg:eval("before").

named_namespaces(_Config) ->
    Options = #{namespace => {any, "term"}},
    {ok, none} = thalweg:exec("ours = 1", #{}, Options),
    Self = self(),
    spawn_link(fun() -> Self ! {other, thalweg:eval("ours", #{}, Options)} end),
    receive
        {other, {ok, 1}} -> ok
    end.

%% What a process left behind goes with it.
namespaces_end(_Config) ->
    {Process, Monitor} = spawn_monitor(fun() ->
        {ok, none} = thalweg:exec("left = 1"),
        receive
            stop -> ok
        end
    end),
    Options = #{affinity => list_to_binary(pid_to_list(Process))},
    Scopes = fun() ->
        {ok, Count} = thalweg:eval(
            "sum('left' in names for names in __import__('thalweg.erlang').erlang._worker._scopes.values())",
            #{},
            Options#{namespace => counter}
        ),
        Count
    end,
    thalweg_test:until(fun() -> Scopes() =:= 1 end),
    Process ! stop,
    receive
        {'DOWN', Monitor, _, _, normal} -> thalweg_test:until(fun() -> Scopes() =:= 0 end)
    end.

%% A process that goes on for long outlives many workers.
nothing_is_kept_of_workers_that_ended(_Config) ->
    Options = #{pool => ?FUNCTION_NAME},
    Kept = fun() -> length([Key || {{thalweg, scope, _} = Key, _} <- get()]) end,
    Others = Kept(),
    [
        begin
            {ok, _} = thalweg:start_pool(?FUNCTION_NAME, thalweg_test:pool(#{size => 1})),
            {ok, none} = thalweg:exec("x = 1", #{}, Options),
            {ok, 1} = thalweg:eval("x", #{}, Options),
            ok = thalweg:stop_pool(?FUNCTION_NAME),
            1 = Kept() - Others
        end
     || _ <- [1, 2, 3]
    ].

affinity(_Config) ->
    Of = fun(Term) -> thalweg:call(os, getpid, [], #{affinity => Term}) end,
    [true = Of(Term) =:= Of(Term) || Term <- lists:seq(1, 20)],
    2 = length(lists:usort([Of(Term) || Term <- lists:seq(1, 50)])).

errors(_Config) ->
    {error, {exception, <<"SyntaxError">>, _, _}} = thalweg:eval("1 +"),
    {error, {exception, <<"SyntaxError">>, _, _}} = thalweg:exec("def"),
    {error, {exception, <<"ZeroDivisionError">>, _, Trace}} = thalweg:eval("1 / 0"),
    {match, _} = re:run(iolist_to_binary(Trace), "<erlang>"),
    {error, {no_python_value, _}} = thalweg:eval("a", #{a => fun() -> ok end}).

awaited(_Config) ->
    {ok, none} = thalweg:exec("import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return x"),
    {ok, 7} = thalweg:eval("later(7)").
