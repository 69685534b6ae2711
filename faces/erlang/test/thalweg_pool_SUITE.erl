%% Workers that die, are killed, cannot start, or say something by themselves.
-module(thalweg_pool_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        named_pools, as_many_as_schedulers, sockets_are_nobody_elses, no_runtime_directory, no_room_for_an_endpoint, options_that_meet, heard_between_two_looks, given_up_and_not_gone, many_callers_that_are_no_more, dies_before_its_child, starting_holds_nobody_up, ending_holds_nobody_up, in_flight_when_it_is_stopped, all_workers_end_at_once, all_pools_end_at_once, late_when_it_is_stopped, killed_under_callers, killed_while_idle, affinity_outlives_a_neighbour, ends_by_itself, no_interpreter, interpreter_from_here, no_venv, venv, broken_worker, program_that_has_ended,
        cannot_start_again, flapping, failed_start_leaves_nothing, directory_comes_again, lost_message, logging_while_it_runs, logging_in_a_child,
        standard_output, output_without_end, lines_that_nobody_takes, stopped_in_time, output_in_pieces, standard_input, logging, logging_what_is_no_line, ends_while_it_starts, environment, load_is_spread, streams_are_spread,
        calls_pass_over_who_is_not_there_yet, not_heard_any_more, worker_ends_with_the_pool, native_half_stays, native_half_comes_again, no_native_half, application_that_does_not_start, code_is_loaded_again_and_again,
        workers_end_with_the_virtual_machine
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 2}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

named_pools(_Config) ->
    {ok, _} = thalweg:start_pool(other, thalweg_test:pool(#{size => 1})),
    {error, {already_started, other}} = thalweg:start_pool(other, #{size => 1}),
    {ok, Here} = thalweg:call(os, getpid, [], #{pool => other}),
    [Here] = thalweg:workers(other),
    false = lists:member(Here, thalweg:workers(default)),
    ok = thalweg:stop_pool(other),
    {error, not_found} = thalweg:stop_pool(other),
    {error, no_worker} = thalweg:call(os, getpid, [], #{pool => other}).

%% However many processors the machine has.
as_many_as_schedulers(_Config) ->
    Source = "io:format(\"~b\", [thalweg_pool:size(#{})]), halt().",
    Run = ["erl -noshell -pa ", filename:dirname(code:which(thalweg)), " -eval '", Source, "' "],
    ["4", "1"] = [os:cmd(lists:flatten([Run, Schedulers])) || Schedulers <- ["+S 5:5", "+S 5:1"]].

%% Whoever forgot to build it is told where it belongs.
no_native_half(Config) ->
    Home = filename:join(proplists:get_value(priv_dir, Config), "halved"),
    Ebin = filename:dirname(code:which(thalweg)),
    ok = filelib:ensure_path(filename:join(Home, "ebin")),
    [{ok, _} = file:copy(File, filename:join([Home, "ebin", filename:basename(File)])) || File <- filelib:wildcard(Ebin ++ "/thalweg*")],
    Source = "{error, {thalweg, {Why, _}}} = application:ensure_all_started(thalweg), io:format(\"~nWhy: ~0p.~n\", [Why]), halt().",
    %% Which may name a folder with the whole application.
    Said = os:cmd(lists:flatten(["env -u ERL_LIBS erl -noshell -pa ", Home, "/ebin -eval '", Source, "'"])),
    Native = filename:join(Home, "priv/thalweg_nif.so"),
    ["Why: {no_native_half," ++ Where] = [Line || "Why: " ++ _ = Line <- string:split(Said, "\n", all)],
    {true, _} = {string:find(Where, Native) =/= nomatch, Said}.

%% Nothing of one that could not start is in the way of the next attempt.
application_that_does_not_start(_Config) ->
    Source =
        "ok = application:load(thalweg), ok = application:set_env(thalweg, pool, #{venv => \"/no/such/venv\"}), "
        "{error, {no_such_venv, _}} = thalweg_app:start(normal, []), io:format(\"~nLeft: ~p\", [whereis(thalweg_sup)]), halt().",
    Said = os:cmd(lists:flatten(["erl -noshell -pa ", filename:dirname(code:which(thalweg)), " -eval '", Source, "'"])),
    {_, "Left: undefined"} = {Said, lists:last(string:split(Said, "\n", all))}.

%% A worker listens where no other user can be before it, and nothing is left of that behind it.
sockets_are_nobody_elses(_Config) ->
    {ok, _} = thalweg:start_pool(hidden, thalweg_test:pool(#{size => 2})),
    Directories = [filename:dirname(argument(Worker, ".shm")) || Worker <- thalweg:workers(hidden)],
    2 = length(lists:usort(Directories)),
    [8#40700 = mode(Directory) || Directory <- Directories],
    [Killed | _] = thalweg:workers(hidden),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Killed)),
    thalweg_test:until(fun() -> not filelib:is_dir(hd(Directories)) end),
    ok = thalweg:stop_pool(hidden),
    [false = filelib:is_dir(Directory) || Directory <- Directories].

%% What names such a directory may name one that is not there.
no_runtime_directory(_Config) ->
    Before = os:getenv("XDG_RUNTIME_DIR"),
    os:putenv("XDG_RUNTIME_DIR", "/nowhere/there"),
    try
        {ok, _} = thalweg:start_pool(hidden, thalweg_test:pool(#{size => 1})),
        [Worker] = thalweg:workers(hidden),
        "/tmp/" ++ _ = argument(Worker, ".shm"),
        ok = thalweg:stop_pool(hidden)
    after
        case Before of
            false -> os:unsetenv("XDG_RUNTIME_DIR");
            _ -> os:putenv("XDG_RUNTIME_DIR", Before)
        end
    end.

%% One that cannot even be connected to is told of, and leaves nothing behind, be it that its program has ended by then.
no_room_for_an_endpoint(Config) ->
    Before = os:getenv("XDG_RUNTIME_DIR"),
    Long = filename:join(proplists:get_value(priv_dir, Config), lists:duplicate(100, $a)),
    ok = file:make_dir(Long),
    os:putenv("XDG_RUNTIME_DIR", Long),
    try
        [
            {error, {worker_failed, {fault, bad_argument, _}, _}} =
                thalweg:start_pool(nowhere, thalweg_test:pool(#{size => 1, python => Program}))
         || Program <- ["/bin/cat" | lists:duplicate(20, "/bin/true")]
        ],
        {ok, []} = file:list_dir(Long)
    after
        case Before of
            false -> os:unsetenv("XDG_RUNTIME_DIR");
            _ -> os:putenv("XDG_RUNTIME_DIR", Before)
        end
    end.

%% Folders stand before those that the environment of a pool says, and a virtual environment is where it is, from here.
options_that_meet(_Config) ->
    Options = thalweg_test:pool(#{size => 1, environment => [{"PYTHONPATH", "/mine"}]}),
    {ok, _} = thalweg:start_pool(meeting, Options),
    {ok, Path} = thalweg:eval("__import__('os').environ['PYTHONPATH']", #{}, #{pool => meeting}),
    [<<"/mine">>, _ | _] = lists:reverse(binary:split(Path, <<":">>, [global])),
    ok = thalweg:stop_pool(meeting),
    absolute = filename:pathtype(thalweg_python:interpreter(#{venv => "relative"})).

%% A router that looks again and again hears what one hears that sleeps.
heard_between_two_looks(_Config) ->
    {{Connection, _}, _} = thalweg_directory:workers(default),
    nothing = thalweg_router:hear(Connection, 0),
    self() ! tend,
    heard = thalweg_router:hear(Connection, 0),
    %% Callers are looked after from then on.
    heard = thalweg_router:hear(Connection, 5000),
    {_, Monitor} = spawn_monitor(fun() ->
        self() ! {'DOWN', make_ref(), process, self(), normal},
        {ok, _, Own} = thalweg_router:start("/nowhere/there.sock", {none, 1, 0, false, false, true}),
        thalweg_router:hear(Own, 0)
    end),
    receive
        {'DOWN', Monitor, process, _, Reason} -> normal = Reason
    end.

%% They are looked after a part at a time, until none of their calls is left.
many_callers_that_are_no_more(_Config) ->
    {ok, _} = thalweg:start_pool(many, thalweg_test:pool(#{size => 1})),
    Call = fun() -> thalweg:call(asyncio, sleep, [3600], #{pool => many, timeout => infinity}) end,
    Callers = [spawn(Call) || _ <- lists:seq(1, 600)],
    Stays = spawn(Call),
    thalweg_test:until(fun() -> thalweg:load(many) =:= [601] end),
    [exit(Caller, kill) || Caller <- Callers],
    thalweg_test:until(fun() -> thalweg:load(many) =:= [1] end),
    true = is_process_alive(Stays),
    exit(Stays, kill),
    thalweg_test:until(fun() -> thalweg:load(many) =:= [0] end),
    ok = thalweg:stop_pool(many).

%% What was given up before it left is taken back and counts no more; and where bytes are what is bounded, they
%% are what is told.
given_up_and_not_gone(Config) ->
    Gate = filename:join(proplists:get_value(priv_dir, Config), "heard"),
    {ok, _} = thalweg:start_pool(deaf, thalweg_test:pool(#{size => 1, in_flight_max => 100})),
    Deaf = thalweg:spawn_call(sample, deaf_until, [list_to_binary(Gate)], #{pool => deaf}),
    thalweg_test:until(fun() -> filelib:is_file(Gate ++ ".begun") end),
    Large = binary:copy(<<"x">>, 1 bsl 20),
    GivenUp = [thalweg:call(sample, echo, [Large], #{pool => deaf, timeout => 0}) || _ <- lists:seq(1, 200)],
    [{error, timeout}] = lists:usort(GivenUp),
    Self = self(),
    Call = fun() -> Self ! {said, thalweg:call(sample, echo, [Large], #{pool => deaf, timeout => infinity})} end,
    Callers = [spawn_link(Call) || _ <- lists:seq(1, 80)],
    Overloaded = receive {said, Said} -> Said end,
    {error, {overloaded, Bytes, Most}} = Overloaded,
    true = Most =:= 64 bsl 20 andalso Bytes > Most - (2 bsl 20) andalso Bytes =< Most,
    ok = file:write_file(Gate, <<>>),
    {ok, <<"back">>} = thalweg:await(Deaf, infinity),
    Others = [receive {said, Other} -> element(1, Other) end || _ <- tl(Callers)],
    true = lists:member(ok, Others),
    thalweg_test:until(fun() -> thalweg:load(deaf) =:= [0] end),
    {ok, 1} = thalweg:call(sample, echo, [1], #{pool => deaf, timeout => infinity}),
    ok = thalweg:stop_pool(deaf).

%% A child that has what its worker had open keeps nobody from hearing of the worker's end.
dies_before_its_child(_Config) ->
    {ok, _} = thalweg:start_pool(parents, thalweg_test:pool(#{size => 1})),
    [
        begin
            {ok, Child} = thalweg:call(sample, Fork, [], #{pool => parents}),
            [Worker] = thalweg:workers(parents),
            Call = thalweg:spawn_call(time, sleep, [3600], #{pool => parents}),
            [] = os:cmd("kill -KILL " ++ integer_to_list(Worker)),
            {error, {fault, _, _}} = thalweg:await(Call, infinity),
            thalweg_test:until(fun() -> [true || Other <- thalweg:workers(parents), Other =/= Worker] =:= [true] end),
            {Fork, true} = {Fork, filelib:is_dir("/proc/" ++ integer_to_list(Child))},
            [] = os:cmd("kill -KILL " ++ integer_to_list(Child))
        end
     || Fork <- [fork_and_stay, fork_unheard]
    ],
    ok = thalweg:stop_pool(parents).

%% Of those that a process was started with the one that ends so.
argument(OsPid, Ending) ->
    {ok, Line} = file:read_file("/proc/" ++ integer_to_list(OsPid) ++ "/cmdline"),
    [Found] = [Word || Word <- string:split(binary_to_list(Line), [0], all), lists:suffix(Ending, Word)],
    Found.

mode(Path) ->
    {ok, Info} = file:read_file_info(Path),
    element(8, Info).

%% A pool whose worker is not ready, for the first time or again, is in no other's way, and can be ended.
starting_holds_nobody_up(Config) ->
    Gate = filename:join(proplists:get_value(priv_dir, Config), "slow"),
    Slow = script(Config, "slow-python", ["[ -e ", Gate, " ] && exec ", interpreter(), " \"$@\"; exec sleep 3600"]),
    Options = #{size => 1, python => Slow, path => [thalweg_test:path()], start_within => 3600000},
    {_, Monitor} = spawn_monitor(fun() -> exit(thalweg:start_pool(slow, Options)) end),
    thalweg_test:until(fun() -> lists:keymember({pool, slow}, 1, supervisor:which_children(thalweg_sup)) end),
    {error, {already_started, slow}} = thalweg:start_pool(slow, Options),
    started_and_stopped(quick),
    ok = thalweg:stop_pool(slow),
    receive
        {'DOWN', Monitor, process, _, Told} -> {error, _} = Told
    end,
    ok = file:write_file(Gate, <<>>),
    {ok, _} = thalweg:start_pool(slow, Options),
    ok = file:delete(Gate),
    {error, {fault, _, _}} = thalweg:call(sample, die, [3], #{pool => slow}),
    %% The next one is on its way, and nobody waits for that.
    thalweg_test:until(fun() -> thalweg:load(slow) =:= [] end),
    thalweg_test:until(fun() -> is_starting(slow) end),
    [] = thalweg:workers(slow),
    {error, no_worker} = thalweg:call(sample, echo, [1], #{pool => slow, timeout => 3000}),
    {error, no_worker} = thalweg:call(sample, echo, [1], #{pool => slow, timeout => 3000, affinity => 1}),
    started_and_stopped(quick),
    ok = thalweg:stop_pool(slow),
    {error, not_found} = thalweg:stop_pool(slow).

%% Nor is one whose applications take their time to shut down.
ending_holds_nobody_up(_Config) ->
    {ok, _} = thalweg:start_pool(lasting, thalweg_test:pool(#{size => 1, shut_down_within => 3600000})),
    {ok, {200, [], <<>>}} = thalweg_asgi:run(<<"web:stays">>, #{}, <<>>, #{pool => lasting}),
    [Worker] = thalweg:workers(lasting),
    {_, Monitor} = spawn_monitor(fun() -> exit(thalweg:stop_pool(lasting)) end),
    thalweg_test:until(fun() -> thalweg:workers(lasting) =:= [] end),
    started_and_stopped(quick),
    {error, {already_started, lasting}} = thalweg:start_pool(lasting, #{size => 1}),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Worker)),
    receive
        {'DOWN', Monitor, process, _, Told} -> ok = Told
    end.

%% Callers are told at once, and whatever was in flight cleans up to its end, calling Erlang where it wants to.
in_flight_when_it_is_stopped(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1})),
    Self = self(),
    ok = thalweg:register(cleaning, fun([]) -> Self ! cleaning, none end),
    Options = #{pool => ending},
    Coroutine = thalweg:spawn_call(sample, wait_and_clean, [Self], Options),
    ok = thalweg:cast(sample, wait_and_clean, [Self], Options),
    {ok, Stream} = thalweg_stream:open(sample, bring_and_clean, [Self], Options#{credit => 4}),
    {data, 1} = thalweg_stream:next(Stream, infinity),
    {_, Monitor} = spawn_monitor(fun() ->
        exit([thalweg:async_gather([{asyncio, sleep, [3600]}, {math, sqrt, [4]}], Options#{timeout => infinity})])
    end),
    [receive begun -> ok end || _ <- [1, 2]],
    thalweg_test:until(fun() -> thalweg:load(ending) =:= [4] end),
    ok = thalweg:stop_pool(ending),
    {error, {fault, disconnected, _}} = thalweg:await(Coroutine),
    {error, {fault, disconnected, _}} = thalweg_stream:next(Stream),
    receive
        {'DOWN', Monitor, process, _, Gathered} -> [[{error, {fault, disconnected, _}}, {ok, 2.0}]] = Gathered
    end,
    [receive Said -> ok after 0 -> error({not_said, Said}) end || Said <- [cleaning, cleaning, cleaned, cleaned, cleaned]],
    ok = thalweg:unregister(cleaning).

%% No caller waits for what another worker, or another pool, does about its end.
all_workers_end_at_once(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 2, shut_down_within => 120000})),
    at_once([ending, ending], fun() -> thalweg:stop_pool(ending) end).

all_pools_end_at_once(Config) ->
    Pools = [ending, elsewhere],
    [{ok, _} = thalweg:start_pool(Pool, thalweg_test:pool(#{size => 1, shut_down_within => 120000})) || Pool <- Pools],
    at_once(Pools, fun() -> application:stop(thalweg) end),
    Config = init_per_suite(Config),
    ok.

%% Has each of these clean up, which goes on until all of them do.
at_once(Pools, Stop) ->
    Self = self(),
    ok = thalweg:register(cleaning, fun([]) -> Self ! {cleaning, self()}, receive go -> none end end),
    Requests = [thalweg:spawn_call(sample, wait_and_clean, [Self, 0], #{pool => Pool}) || Pool <- Pools],
    [receive begun -> ok end || _ <- Pools],
    {_, Monitor} = spawn_monitor(fun() -> exit(Stop()) end),
    Cleaning = [receive {cleaning, Callback} -> Callback after 60000 -> ct:fail(waits_for_another) end || _ <- Pools],
    [{error, {fault, disconnected, _}} = thalweg:await(Request, infinity) || Request <- Requests],
    [Callback ! go || Callback <- Cleaning],
    [receive cleaned -> ok end || _ <- Pools],
    receive
        {'DOWN', Monitor, process, _, Outcome} -> ok = Outcome
    end.

%% For as long as it may, and no longer.
late_when_it_is_stopped(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1, shut_down_within => 300})),
    ok = thalweg:register(cleaning, fun([]) -> none end),
    ok = thalweg:cast(sample, wait_and_clean, [self(), 3600], #{pool => ending}),
    receive begun -> ok end,
    with_log(fun() ->
        ok = thalweg:stop_pool(ending),
        heard(warning, <<"calls that were given up have not ended within 0.3 s: 1">>)
    end),
    receive cleaned -> error(cleaned) after 0 -> ok end,
    ok = thalweg:unregister(cleaning).

%% Whether the worker of a pool of one has a process that is not ready.
is_starting(Name) ->
    {_, Pool, _, _} = lists:keyfind({pool, Name}, 1, supervisor:which_children(thalweg_sup)),
    [{_, Place, _, _}] = supervisor:which_children(Pool),
    {links, Links} = process_info(Place, links),
    [Worker || Worker <- Links, is_pid(Worker), Worker =/= Pool] =/= [].

started_and_stopped(Name) ->
    {ok, _} = thalweg:start_pool(Name, thalweg_test:pool(#{size => 1})),
    {ok, 1} = thalweg:call(sample, echo, [1], #{pool => Name}),
    ok = thalweg:stop_pool(Name).

%% Every caller has its answer or an error, the pool is whole again, and the virtual machine went on all the while.
killed_under_callers(_Config) ->
    Self = self(),
    Beats = counters:new(1, []),
    Beating = spawn_link(fun() -> beat(Beats) end),
    Callers = [spawn_link(fun() -> Self ! {outcome, self(), calls(100)} end) || _ <- lists:seq(1, 100)],
    [Victim | _] = Before = thalweg:workers(default),
    Started = erlang:monotonic_time(millisecond),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Victim)),
    Outcomes = lists:append([receive {outcome, Caller, Outcome} -> Outcome end || Caller <- Callers]),
    10000 = length(Outcomes),
    [case Outcome of {ok, _} -> ok; {error, {fault, _, _}} -> ok end || Outcome <- Outcomes],
    thalweg_test:until(fun() ->
        After = thalweg:workers(default),
        length(After) =:= 2 andalso After =/= Before
    end),
    ct:pal("whole after ~b ms, ~b beats meanwhile", [
        erlang:monotonic_time(millisecond) - Started, counters:get(Beats, 1)
    ]),
    unlink(Beating),
    exit(Beating, kill),
    [{ok, 1} = thalweg:call(sample, echo, [1]) || _ <- lists:seq(1, 100)].

calls(Count) -> [thalweg:call(sample, echo, [N], #{timeout => infinity}) || N <- lists:seq(1, Count)].

beat(Beats) ->
    counters:add(Beats, 1, 1),
    timer:sleep(1),
    beat(Beats).

%% While one worker is started anew, what goes to the others by affinity goes there still.
affinity_outlives_a_neighbour(_Config) ->
    {ok, _} = thalweg:start_pool(four, thalweg_test:pool(#{size => 4})),
    Of = fun(Term) -> thalweg:call(os, getpid, [], #{pool => four, affinity => Term, timeout => infinity}) end,
    Terms = lists:seq(1, 40),
    Before = [Of(Term) || Term <- Terms],
    {ok, Victim} = hd(Before),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Victim)),
    Survivors = [{Term, Was} || {Term, {ok, Worker} = Was} <- lists:zip(Terms, Before), Worker =/= Victim],
    true = length(Survivors) > 10,
    %% All the while until it is whole again, and then.
    thalweg_test:until(fun() ->
        [Was = Of(Term) || {Term, Was} <- Survivors],
        After = thalweg:workers(four),
        length(After) =:= 4 andalso not lists:member(Victim, After)
    end),
    [Was = Of(Term) || {Term, Was} <- Survivors],
    %% Nor does a call land elsewhere for a while when all of them ended at once.
    Whole = thalweg:workers(four),
    _ = [os:cmd("kill -KILL " ++ integer_to_list(Worker)) || Worker <- Whole],
    Heard = asked_until_whole(Of, Terms, Whole, []),
    After = [{Term, Of(Term)} || Term <- Terms],
    [] = [Wrong || {Term, {ok, Worker}} = Wrong <- Heard, not lists:member(Worker, Whole), not lists:member({Term, {ok, Worker}}, After)],
    ok = thalweg:stop_pool(four),
    {error, no_worker} = Of(1).

%% What each term was answered until nobody of before is there.
asked_until_whole(Of, Terms, Before, Heard) ->
    Now = Heard ++ [{Term, Of(Term)} || Term <- Terms],
    Workers = thalweg:workers(four),
    case length(Workers) =:= 4 andalso Workers -- Before =:= Workers of
        true -> Now;
        false -> asked_until_whole(Of, Terms, Before, Now)
    end.

killed_while_idle(_Config) ->
    Before = lists:sort(thalweg:workers(default)),
    [os:cmd("kill -KILL " ++ integer_to_list(Worker)) || Worker <- Before],
    thalweg_test:until(fun() ->
        After = lists:sort(thalweg:workers(default)),
        length(After) =:= 2 andalso After -- Before =:= After
    end),
    {ok, 1} = thalweg:call(sample, echo, [1]).

ends_by_itself(_Config) ->
    Before = lists:sort(thalweg:workers(default)),
    {error, {fault, _, _}} = thalweg:call(sample, die, [3]),
    %% Its caller hears of it before its supervisor does.
    thalweg_test:until(fun() ->
        After = lists:sort(thalweg:workers(default)),
        length(After) =:= 2 andalso After =/= Before
    end),
    {ok, 1} = thalweg:call(sample, echo, [1]).

no_interpreter(_Config) ->
    {error, {no_such_interpreter, "no-such-python"}} = thalweg:start_pool(none, #{python => "no-such-python"}),
    {error, no_worker} = thalweg:call(os, getpid, [], #{pool => none}).

%% A path is one from here, and is not looked for elsewhere.
interpreter_from_here(Config) ->
    {ok, Here} = file:get_cwd(),
    Home = proplists:get_value(priv_dir, Config),
    Program = script(Config, "from-here", "exit 1"),
    ok = file:set_cwd(Home),
    try
        [ok = thalweg_python:check(#{python => Python}) || Python <- ["./from-here", <<"./from-here">>]],
        Program = filename:join(Home, filename:basename(thalweg_python:interpreter(#{python => "./from-here"}))),
        absolute = filename:pathtype(thalweg_python:interpreter(#{python => "./from-here"})),
        {error, {no_such_interpreter, "from-here"}} = thalweg_python:check(#{python => "from-here"})
    after
        ok = file:set_cwd(Here)
    end.

no_venv(_Config) -> {error, {no_such_venv, "/no/such/venv"}} = thalweg:start_pool(none, #{venv => "/no/such/venv"}).

%% A virtual environment's interpreter is the one that runs.
venv(Config) ->
    Venv = filename:join(proplists:get_value(priv_dir, Config), "venv"),
    {ok, Interpreter} = thalweg:eval("__import__('sys').executable"),
    "" = os:cmd(unicode:characters_to_list([Interpreter, " -m venv --without-pip --system-site-packages ", Venv])),
    {ok, Paths} = thalweg:eval("__import__('sys').path"),
    Path = [unicode:characters_to_list(P) || P <- Paths, P =/= <<>>],
    {ok, _} = thalweg:start_pool(venv, #{size => 1, venv => Venv, path => Path, start_within => 60000}),
    {ok, Prefix} = thalweg:eval("__import__('sys').prefix", #{}, #{pool => venv}),
    Prefix = unicode:characters_to_binary(Venv),
    ok = thalweg:stop_pool(venv).

%% One that cannot start says why.
broken_worker(_Config) ->
    {error, {worker_failed, {exit_status, 1}, Said}} =
        thalweg:start_pool(broken, #{
            size => 1, environment => [{"PYTHONPATH", "/nowhere"}, {"PYTHONHOME", "/nowhere"}], start_within => 60000
        }),
    true = is_list(Said),
    {error, {worker_failed, {exit_status, 0}, _}} = thalweg:start_pool(broken, thalweg_test:pool(#{size => 1, python => "/bin/true"})).

%% One that has ended before anybody could look at it says how, and so does one that cannot be run.
program_that_has_ended(Config) ->
    Wishes = [binary, exit_status, stderr_to_stdout, use_stdio],
    none = looked_at_late(Wishes, 100),
    None = script(Config, "none", []),
    ok = file:write_file(None, <<"#!/no/such/interpreter\n">>),
    {error, {worker_failed, {exit_status, _}, _}} = thalweg:start_pool(broken, thalweg_test:pool(#{size => 1, python => None})),
    {error, {worker_failed, enoent, []}} = thalweg_output:start_link("/no/such/program", Wishes, #{}).

%% Again, until a program has ended before its number was asked for.
looked_at_late(Wishes, Attempts) when Attempts > 0 ->
    Self = self(),
    Caller = spawn(fun() ->
        {ok, _, Port, OsPid} = thalweg_output:start_link("/bin/true", Wishes, #{}),
        receive
            {Port, {exit_status, Status}} -> Self ! {self(), OsPid, Status}
        end
    end),
    Held = held_at_its_port(Caller),
    timer:sleep(50),
    _ = [true = erlang:resume_process(Output) || Output <- Held],
    receive
        {Caller, none, 0} -> none;
        {Caller, _, 0} -> looked_at_late(Wishes, Attempts - 1)
    after 60000 -> ct:fail(not_told)
    end.

%% The process that another has started to open a port, held as soon as it has one; none where that was seen too late.
held_at_its_port(Caller) ->
    Linked = fun(Process) -> [Link || {links, Links} <- [process_info(Process, links)], Link <- Links] end,
    Opened = [Output || Output <- Linked(Caller), is_pid(Output), lists:any(fun erlang:is_port/1, Linked(Output))],
    case Opened =:= [] andalso is_process_alive(Caller) of
        true -> held_at_its_port(Caller);
        false -> [Output || Output <- Opened, (catch erlang:suspend_process(Output)) =:= true]
    end.

%% It hurts no other pool, is tried again and again, and is whole when its interpreter is back.
cannot_start_again(Config) ->
    Python = script(Config, "python", ["exec ", interpreter(), " \"$@\""]),
    {ok, _} = thalweg:start_pool(fragile, thalweg_test:pool(#{size => 1, python => Python})),
    [Victim] = thalweg:workers(fragile),
    Monitor = monitor(process, thalweg_sup),
    with_log(fun() ->
        ok = file:rename(Python, Python ++ ".gone"),
        [] = os:cmd("kill -KILL " ++ integer_to_list(Victim)),
        [
            receive
                {logged, warning, <<"no worker starts", _/binary>>} -> ok;
                {'DOWN', Monitor, _, _, Reason} -> error({application_ended, Reason})
            end
         || _ <- lists:seq(1, 5)
        ]
    end),
    demonitor(Monitor, [flush]),
    {error, no_worker} = thalweg:call(sample, echo, [1], #{pool => fragile}),
    {ok, 1} = thalweg:call(sample, echo, [1]),
    ok = file:rename(Python ++ ".gone", Python),
    thalweg_test:until(fun() -> thalweg:call(sample, echo, [1], #{pool => fragile}) =:= {ok, 1} end),
    ok = thalweg:stop_pool(fragile),
    %% Nor does an attempt leave a directory, in which nothing is.
    Mine = "thalweg-" ++ os:getpid() ++ "-*",
    Made = [Directory || Place <- ["/tmp", os:getenv("XDG_RUNTIME_DIR", "/tmp")], Directory <- filelib:wildcard(filename:join(Place, Mine))],
    [] = [Directory || Directory <- Made, file:list_dir(Directory) =:= {ok, []}].

%% Workers that start and do not last hurt no other pool either.
flapping(_Config) ->
    {ok, _} = thalweg:start_pool(flapping, thalweg_test:pool(#{size => 1})),
    Supervisor = whereis(thalweg_sup),
    [
        thalweg_test:until(fun() ->
            case thalweg:call(sample, die, [3], #{pool => flapping}) of
                {error, {fault, _, _}} -> true;
                %% The next one is not there yet.
                {error, _} -> false
            end
        end)
     || _ <- lists:seq(1, 5)
    ],
    thalweg_test:until(fun() -> thalweg:call(sample, echo, [1], #{pool => flapping}) =:= {ok, 1} end),
    Supervisor = whereis(thalweg_sup),
    ok = thalweg:stop_pool(flapping).

%% A pool of the same name has the places of its own workers and no others.
failed_start_leaves_nothing(Config) ->
    Places = filename:join(proplists:get_value(priv_dir, Config), "place"),
    OnlyTwo = ["for n in 1 2; do mkdir ", Places, "$n && exec ", interpreter(), " \"$@\"; done; exit 1"],
    Options = thalweg_test:pool(#{python => script(Config, "twice", OnlyTwo)}),
    {error, {worker_failed, {exit_status, 1}, _}} = thalweg:start_pool(again, Options#{size => 4}),
    {error, no_worker} = thalweg:call(sample, echo, [1], #{pool => again}),
    {ok, _} = thalweg:start_pool(again, thalweg_test:pool(#{size => 1})),
    [{ok, N} = thalweg:call(sample, echo, [N], #{pool => again, affinity => N}) || N <- lists:seq(1, 20)],
    ok = thalweg:stop_pool(again).

%% The process that keeps the list of workers may end: workers, and what they share with Erlang, are still there.
directory_comes_again(_Config) ->
    ok = thalweg_shared:put(kept, 1),
    [Victim, Other] = thalweg:workers(default),
    Before = whereis(thalweg_directory),
    exit(Before, kill),
    thalweg_test:until(fun() -> is_pid(whereis(thalweg_directory)) andalso whereis(thalweg_directory) =/= Before end),
    [Victim, Other] = thalweg:workers(default),
    1 = thalweg_shared:get(kept),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Victim)),
    thalweg_test:until(fun() ->
        case thalweg:workers(default) of
            [New, Other] -> New =/= Victim;
            _ -> false
        end
    end),
    ok = thalweg_shared:delete(kept).

%% An executable file.
script(Config, Name, Line) ->
    Path = filename:join(proplists:get_value(priv_dir, Config), Name),
    ok = file:write_file(Path, ["#!/bin/sh\n", Line, "\n"]),
    ok = file:change_mode(Path, 8#755),
    Path.

interpreter() ->
    {ok, Interpreter} = thalweg:eval("__import__('sys').executable"),
    Interpreter.

%% What Python sent and Erlang has no term for is nobody's message, and is not passed over in silence.
lost_message(_Config) ->
    with_log(fun() ->
        {ok, none} = thalweg:call(sample, send_the_unknown, [self()]),
        receive
            {logged, warning, <<"a message that Python sent is lost: {no_erlang_value,", _/binary>>} -> ok
        after 60000 -> error(nothing_was_said)
        end
    end).

%% What a function says is heard while it runs, not when it is over.
logging_while_it_runs(Config) ->
    Path = filename:join(proplists:get_value(priv_dir, Config), "heard"),
    with_log(fun() ->
        Request = thalweg:spawn_call(sample, log_and_wait_for, [<<"at work">>, unicode:characters_to_binary(Path)]),
        receive
            {logged, warning, <<"at work">>} -> ok
        after 60000 -> error(nothing_was_said)
        end,
        ok = file:write_file(Path, <<>>),
        {ok, none} = thalweg:await(Request)
    end).

%% A child has the rings in its memory, too.
logging_in_a_child(_Config) ->
    {ok, _} = thalweg:start_pool(family, thalweg_test:pool(#{size => 1})),
    [Worker] = thalweg:workers(family),
    [
        begin
            {ok, 0} = thalweg:call(sample, log_in_a_child, [], #{pool => family}),
            {ok, N} = thalweg:call(sample, echo, [N], #{pool => family})
        end
     || N <- lists:seq(1, 10)
    ],
    [Worker] = thalweg:workers(family),
    ok = thalweg:stop_pool(family).

standard_output(_Config) ->
    with_log(fun() ->
        {ok, none} = thalweg:call(sample, write, [<<"žluťoučký"/utf8>>]),
        heard(notice, <<"žluťoučký"/utf8>>),
        heard(notice, <<"žluťoučký as an error"/utf8>>)
    end).

%% Whatever a worker says, and however fast: nothing grows, what it is told does not wait, and the log says what it has not.
output_without_end(_Config) ->
    {ok, _} = thalweg:start_pool(loud, thalweg_test:pool(#{size => 1})),
    [OsPid] = thalweg:workers(loud),
    {_, {Worker}} = thalweg_directory:workers(loud),
    [
        with_log(fun() ->
            Before = erlang:memory(total),
            Request = thalweg:spawn_call(sample, Function, [], #{pool => loud}),
            left_out(),
            [
                begin
                    timer:sleep(20),
                    {message_queue_len, Waiting} = process_info(Worker, message_queue_len),
                    true = Waiting < Most,
                    true = erlang:memory(total) - Before < 64 bsl 20
                end
             || _ <- lists:seq(1, 50)
            ],
            ok = thalweg:cancel(Request),
            {ok, 1} = thalweg:call(sample, echo, [1], #{pool => loud})
        end)
     %% What is printed passes the worker by; what is logged comes to it as fast as it is given time, and is handed on.
     || {Function, Most} <- [{print_for_ever, 1000}, {log_for_ever, 5000}]
    ],
    [OsPid] = thalweg:workers(loud),
    ok = thalweg:stop_pool(loud).

%% Lines of a log wait up to a bound, whatever the worker's credit. What was left out is said, all of it.
lines_that_nobody_takes(_Config) ->
    {ok, _} = thalweg:start_pool(unheard, thalweg_test:pool(#{size => 1})),
    {_, {Worker}} = thalweg_directory:workers(unheard),
    with_log(fun() ->
        true = erlang:suspend_process(Worker),
        {ok, none} = thalweg:call(sample, log_many, [6000], #{pool => unheard, timeout => infinity}),
        {message_queue_len, Waiting} = process_info(Worker, message_queue_len),
        true = Waiting =< 4100,
        true = erlang:resume_process(Worker),
        true = left_out() >= 5500 * 100
    end),
    ok = thalweg:stop_pool(unheard).

%% A worker in the middle of something that started no application is not waited for.
stopped_in_time(_Config) ->
    {ok, _} = thalweg:start_pool(busy, thalweg_test:pool(#{size => 1})),
    Request = thalweg:spawn_call(time, sleep, [3600], #{pool => busy}),
    Began = erlang:monotonic_time(millisecond),
    ok = thalweg:stop_pool(busy),
    true = erlang:monotonic_time(millisecond) - Began < 60_000,
    {error, {fault, _, _}} = thalweg:await(Request).

%% So many lines and no more come before it is said that some do not.
left_out() -> left_out(0).
left_out(Lines) ->
    receive
        {logged, warning, <<"xxx", _/binary>>} -> left_out(Lines + 1);
        {logged, notice, <<"xxx", _/binary>>} -> left_out(Lines + 1);
        {logged, warning, Words} ->
            {match, [Bytes]} = re:run(
                Words, "^([0-9]+) bytes that it printed or logged too fast were left out$", [{capture, all_but_first, list}]
            ),
            true = Lines =< 500,
            list_to_integer(Bytes)
    end.

%% A line is a line in however many pieces it comes; one that has no end in sight is several.
output_in_pieces(_Config) ->
    with_log(fun() ->
        [{ok, none} = thalweg:call(sample, print_at_once, [Text], #{affinity => one}) || Text <- [<<"on">>, <<"e\ntwo\nth">>]],
        heard(notice, <<"one">>),
        heard(notice, <<"two">>),
        {ok, none} = thalweg:call(sample, print_at_once, [<<"ree\n">>], #{affinity => one}),
        heard(notice, <<"three">>),
        Long = binary:copy(<<"y">>, 8192),
        {ok, none} = thalweg:call(sample, print_at_once, [<<Long/binary, "\n", Long/binary, "z\n">>], #{affinity => one}),
        [heard(notice, Line) || Line <- [Long, Long, <<"z">>]]
    end).

logging(_Config) ->
    with_log(fun() ->
        {ok, none} = thalweg:call(sample, log, [40, <<"an error">>]),
        heard(error, <<"an error">>),
        {ok, none} = thalweg:call(sample, log, [30, <<"a warning">>]),
        heard(warning, <<"a warning">>),
        %% Levels are any integers in Python.
        {ok, none} = thalweg:call(sample, log, [1 bsl 100, <<"beyond all">>]),
        heard(critical, <<"beyond all">>),
        {ok, none} = thalweg:exec(
            "import logging\n"
            "logging.getLogger().handle(logging.makeLogRecord({'levelno': -5, 'msg': 'below', 'name': '\\ud800'}))"
        )
    end).

%% A line that cannot be made out costs nobody anything but a complaint.
logging_what_is_no_line(_Config) -> {ok, <<"fine">>} = thalweg:call(sample, log_badly, []).

%% Nothing is to be read, here or in a program that is started here: what the worker hears with is its own.
standard_input(_Config) ->
    Read = {0, <<>>, <<>>, <<>>},
    {ok, Read} = thalweg:call(sample, read_input, [[<<"cat">>]]).

%% A worker hears that nobody is there any more, whenever that came.
ends_while_it_starts(_Config) ->
    {ok, Interpreter} = thalweg:eval("__import__('sys').executable"),
    Endpoint = filename:join("/tmp", "thalweg-nobody-" ++ os:getpid() ++ ".shm"),
    Port = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", "exec \"$0\" -m thalweg.worker \"$1\" < /dev/null", Interpreter, Endpoint]}, exit_status
    ]),
    receive
        {Port, {exit_status, Status}} -> 0 = Status
    end,
    false = filelib:is_file(Endpoint).

with_log(Test) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{to => self()}}),
    try
        Test()
    after
        logger:remove_handler(?MODULE)
    end.

%% A handler of the logger's.
log(#{level := Level, msg := {Format, Arguments}}, #{config := #{to := To}}) when is_list(Arguments) ->
    To ! {logged, Level, unicode:characters_to_binary(io_lib:format(Format, Arguments))};
log(_Event, _Config) -> ok.

heard(Level, Words) ->
    receive
        {logged, Level, Words} -> ok
    end.

environment(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    Options = #{size => 1, directory => Directory, environment => [{"THALWEG_TESTED", "yes"}]},
    {ok, _} = thalweg:start_pool(elsewhere, Options),
    {ok, <<"yes">>} = thalweg:call(os, getenv, [<<"THALWEG_TESTED">>], #{pool => elsewhere}),
    {ok, Where} = thalweg:call(os, getcwd, [], #{pool => elsewhere}),
    true = filename:split(unicode:characters_to_list(Where)) =:= filename:split(Directory),
    ok = thalweg:stop_pool(elsewhere).

%% While one worker is busy the other has the calls.
load_is_spread(_Config) ->
    Self = self(),
    ok = thalweg:register(gate, fun(_) -> Self ! {at_gate, self()}, receive go -> ok end end),
    Busy = thalweg:spawn_call(sample, call_back_later, [<<"gate">>]),
    Gate = receive {at_gate, Callback} -> Callback end,
    [0, 1] = lists:sort(thalweg:load(default)),
    {ok, Other} = thalweg:call(os, getpid, []),
    [{ok, Other} = thalweg:call(os, getpid, []) || _ <- lists:seq(1, 20)],
    Gate ! go,
    {ok, ok} = thalweg:await(Busy).

%% A generator that is under way counts, and goes to the worker that has the fewest.
streams_are_spread(_Config) ->
    {ok, _} = thalweg:start_pool(few, thalweg_test:pool(#{size => 2, in_flight_max => 2})),
    Open = fun() -> thalweg_stream:open(sample, count_for_ever, [<<"few">>], #{pool => few}) end,
    Streams = [Stream || {ok, Stream} <- [Open() || _ <- lists:seq(1, 4)]],
    4 = length(Streams),
    [2, 2] = thalweg:load(few),
    {error, {overloaded, 2, 2}} = Open(),
    [ok = thalweg_stream:close(Stream) || Stream <- Streams],
    [0, 0] = thalweg:load(few),
    ok = thalweg:stop_pool(few).

%% A worker that is started anew has no calls, which is no reason to wait for it while another is there.
calls_pass_over_who_is_not_there_yet(Config) ->
    {ok, Interpreter} = thalweg:eval("__import__('sys').executable"),
    Directory = proplists:get_value(priv_dir, Config),
    [Script, Gate] = [filename:join(Directory, Name) || Name <- ["python", "gate"]],
    Source = ["#!/bin/sh\nwhile [ -e ", Gate, " ]; do sleep 0.01; done\nexec ", Interpreter, " \"$@\"\n"],
    ok = file:write_file(Script, Source),
    ok = file:change_mode(Script, 8#755),
    {ok, _} = thalweg:start_pool(gated, thalweg_test:pool(#{size => 2, python => Script})),
    {_, {_, Second}} = thalweg_directory:workers(gated),
    [Victim, Survivor] = thalweg:workers(gated),
    ok = file:write_file(Gate, <<>>),
    [] = os:cmd("kill -KILL " ++ integer_to_list(Victim)),
    thalweg_test:until(fun() ->
        {_, Workers} = thalweg_directory:workers(gated),
        Workers =:= {Second}
    end),
    [{ok, Survivor} = thalweg:call(os, getpid, [], #{pool => gated}) || _ <- lists:seq(1, 20)],
    ok = file:delete(Gate),
    thalweg_test:until(fun() -> length(thalweg:workers(gated)) =:= 2 end),
    ok = thalweg:stop_pool(gated).

%% A worker that says nothing to anybody any more, be it alive, is started anew.
not_heard_any_more(_Config) ->
    {ok, _} = thalweg:start_pool(deaf, thalweg_test:pool(#{size => 1})),
    [Before] = thalweg:workers(deaf),
    {_, {Worker}} = thalweg_directory:workers(deaf),
    Worker ! {thalweg_event, undefined, down},
    thalweg_test:until(fun() ->
        case thalweg:workers(deaf) of
            [After] -> After =/= Before;
            [] -> false
        end
    end),
    {ok, 1} = thalweg:call(sample, echo, [1], #{pool => deaf}),
    ok = thalweg:stop_pool(deaf).

%% The application's modules may be loaded anew; another build of the native half is refused, and what is there goes on.
native_half_stays(Config) ->
    {module, thalweg_nif} = load_native_half(),
    _ = code:purge(thalweg_nif),
    {ok, 1} = thalweg:call(sample, echo, [1]),
    %% A library in another place is another one, whatever is in it.
    Library = filename:join([filename:dirname(filename:dirname(code:which(thalweg_nif))), "priv", "thalweg_nif.so"]),
    Elsewhere = filename:join([proplists:get_value(priv_dir, Config), "thalweg", "priv", "thalweg_nif.so"]),
    Ebin = filename:join(filename:dirname(filename:dirname(Elsewhere)), "ebin"),
    ok = filelib:ensure_path(Ebin),
    ok = filelib:ensure_dir(Elsewhere),
    {ok, _} = file:copy(Library, Elsewhere),
    true = code:add_patha(Ebin),
    ok = file:rename(Library, Library ++ ".aside"),
    try
        {error, on_load_failure} = load_native_half()
    after
        ok = file:rename(Library ++ ".aside", Library),
        true = code:del_path(Ebin)
    end,
    {ok, 1} = thalweg:call(sample, echo, [1]),
    {ok, _} = thalweg:start_pool(later, thalweg_test:pool(#{size => 1})),
    {ok, 1} = thalweg:call(sample, echo, [1], #{pool => later}),
    ok = thalweg:stop_pool(later).

%% It may be taken out and loaded again, be it that somebody still has something of it.
native_half_comes_again(_Config) ->
    Source =
        "{ok, Client} = thalweg_client:connect(\"nobody.sock\", #{connect_within => 600000}), ok = thalweg_client:close(Client), "
        "true = code:delete(thalweg_nif), false = code:purge(thalweg_nif), {module, _} = code:ensure_loaded(thalweg_nif), "
        %% What belongs to what was taken out is nothing any more.
        "{badarg, _} = element(2, (catch thalweg_client:in_flight(Client))), "
        "{ok, Other} = thalweg_client:connect(\"nobody.sock\", #{connect_within => 600000}), 0 = thalweg_client:in_flight(Other), "
        "io:format(\"~nAgain\", []), halt().",
    Said = os:cmd(lists:flatten(["erl -noshell -pa ", filename:dirname(code:which(thalweg)), " -eval '", Source, "'"])),
    {_, "Again"} = {Said, lists:last(string:split(Said, "\n", all))}.

load_native_half() ->
    _ = code:purge(thalweg_nif),
    code:load_file(thalweg_nif).

%% Erlang kills a process that still runs the code before the last. One that lasts does not: while it waits it goes over by itself.
code_is_loaded_again_and_again() -> [{timetrap, {seconds, 120}}].
code_is_loaded_again_and_again(_Config) ->
    Workers = thalweg:workers(default),
    {ok, Events} = thalweg_events:start_link(),
    {ok, Full} = thalweg_events:start_link(),
    ok = thalweg_events:post(Full, 1, 1, none),
    {ok, Server} = thalweg_asgi:listen(#{app => <<"web:app">>}),
    {ok, Client} = thalweg_client:connect("nobody.sock", #{connect_within => 600000}),
    {ok, Channel} = thalweg_channel:open(),
    Modules = application_modules() -- [thalweg_nif],
    [
        begin
            [{module, Module} = code:load_file(Module) || Module <- Modules],
            %% So long as somebody runs what was there before, it stays, and this waits.
            [thalweg_test:until(fun() -> code:soft_purge(Module) end) || Module <- Modules],
            {ok, 1} = thalweg:call(sample, echo, [1])
        end
     || _ <- [1, 2]
    ],
    Workers = thalweg:workers(default),
    [] = thalweg_events:poll(Events, 0),
    [{1, 1, none}] = thalweg_events:poll(Full, 0),
    true = is_integer(thalweg_asgi:port(Server)),
    true = is_process_alive(element(1, Client)),
    0 = thalweg_channel:size(Channel),
    ok = thalweg_client:close(Client),
    ok = thalweg_asgi:stop(Server),
    [ok = thalweg_events:stop(Each) || Each <- [Events, Full]],
    ok = thalweg_channel:close(Channel).

application_modules() ->
    {ok, Modules} = application:get_key(thalweg, modules),
    [Module || Module <- Modules, code:is_loaded(Module) =/= false, lists:prefix("thalweg", atom_to_list(Module))].

worker_ends_with_the_pool(_Config) ->
    {ok, _} = thalweg:start_pool(brief, thalweg_test:pool(#{size => 1})),
    [Worker] = thalweg:workers(brief),
    %% However busy it is.
    ok = thalweg:cast(sample, spin, [], #{pool => brief}),
    ok = thalweg:stop_pool(brief),
    thalweg_test:until(fun() -> not filelib:is_dir("/proc/" ++ integer_to_list(Worker)) end).

%% A virtual machine that ends without a word takes its workers along, those that are busy as well, and what they listened at.
workers_end_with_the_virtual_machine(_Config) ->
    Source =
        "ok = application:load(thalweg), ok = application:set_env(thalweg, pool, none), "
        "{ok, _} = application:ensure_all_started(thalweg), "
        "{ok, _} = thalweg:start_pool(default, #{size => 2, start_within => 60000, path => [\"" ++ thalweg_test:path() ++ "\"]}), "
        "ok = thalweg:cast(sample, spin, []), {ok, none} = thalweg:call(time, sleep, [0]), "
        "io:format(\"~w ~s~n\", [thalweg:workers(default), os:getpid()]), timer:sleep(infinity).",
    Ebin = filename:dirname(code:which(thalweg)),
    Port = open_port({spawn_executable, os:find_executable("erl")}, [
        {args, ["-noshell", "-pa", Ebin, "-eval", Source]}, {line, 1024}, exit_status
    ]),
    Line = receive {Port, {data, {eol, Of}}} -> Of end,
    {ok, Tokens, _} = erl_scan:string(Line),
    [First, Second, OsPid] = [Number || {integer, _, Number} <- Tokens],
    [] = os:cmd("kill -KILL " ++ integer_to_list(OsPid)),
    Gone = fun(Process) -> not filelib:is_dir("/proc/" ++ integer_to_list(Process)) end,
    thalweg_test:until(fun() -> Gone(First) andalso Gone(Second) end),
    Places = [Place || Place <- ["/tmp", os:getenv("XDG_RUNTIME_DIR", "")], Place =/= ""],
    [] = lists:append([filelib:wildcard(Place ++ "/thalweg-" ++ integer_to_list(OsPid) ++ "-*") || Place <- Places]).
