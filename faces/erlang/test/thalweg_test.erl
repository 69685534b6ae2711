%% What the suites have in common.
-module(thalweg_test).

-export([start/2, stop/1, pool/1, path/0, until/1, collect/2, none_left/0]).

%% Starts the application and a pool that finds the tests' modules.
start(Config, Options) ->
    _ = application:load(thalweg),
    ok = application:set_env(thalweg, pool, none),
    {ok, _} = application:ensure_all_started(thalweg),
    {ok, _} = thalweg:start_pool(default, pool(Options)),
    Config.

%% The options of a pool that finds the tests' modules.
pool(Options) -> Options#{path => [path()], start_within => 60000}.

stop(_Config) -> application:stop(thalweg).

path() -> filename:join(filename:dirname(code:which(?MODULE)), "python").

%% Looks again until something is so; the test's own time limit is the only one.
until(Condition) ->
    case Condition() of
        true -> ok;
        _ ->
            timer:sleep(5),
            until(Condition)
    end.

%% Everything that a stream brings, and how it ends.
collect(Stream, Values) ->
    case thalweg_stream:next(Stream, infinity) of
        {data, Value} -> collect(Stream, [Value | Values]);
        End -> {lists:reverse(Values), End}
    end.

%% What a test leaves in its mailbox that nobody waits for any more fails it: every suite ends its tests by this.
none_left() ->
    receive
        {thalweg, _, _} = Stray -> {fail, {stray, Stray}}
    after 50 -> ok
    end.
