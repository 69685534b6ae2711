%% Channels with very many readers. What looks through all of them for each takes minutes, and a test has one.
-module(thalweg_channel_SUITE).
-compile([export_all, nowarn_export_all]).

-define(MANY, 60000).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [readers_in_turn, many_readers_that_give_up, many_readers_that_end].

init_per_suite(Config) ->
    _ = application:load(thalweg),
    ok = application:set_env(thalweg, pool, none),
    {ok, _} = application:ensure_all_started(thalweg),
    Config.

end_per_suite(_Config) -> application:stop(thalweg).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

%% The one that has waited longest has its turn, whichever left in between.
readers_in_turn(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    Readers = [reader(Channel, infinity) || _ <- lists:seq(1, 9)],
    {Ended, Staying} = lists:partition(fun({At, _}) -> At rem 3 =:= 0 end, lists:enumerate(Readers)),
    [ended(Reader) || {_, Reader} <- Ended],
    {error, timeout} = thalweg_channel:read(Channel, 1),
    [ok = thalweg_channel:write(Channel, At) || {At, _} <- Staying],
    [{ok, At} = told(Reader) || {At, Reader} <- Staying],
    0 = thalweg_channel:size(Channel),
    Last = reader(Channel, infinity),
    ok = thalweg_channel:close(Channel),
    {error, closed} = told(Last).

many_readers_that_give_up(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    Readers = [begun(Channel, 1) || _ <- lists:seq(1, ?MANY)],
    %% In whatever order they are told: to look for one of them among all messages takes long.
    Told = [receive {Reader, {error, timeout}} -> Reader end || _ <- Readers],
    true = lists:sort(Readers) =:= lists:sort(Told),
    ok = thalweg_channel:write(Channel, last),
    {ok, last} = thalweg_channel:read(Channel).

many_readers_that_end(_Config) ->
    {ok, Channel} = thalweg_channel:open(),
    Readers = [begun(Channel, infinity) || _ <- lists:seq(1, ?MANY)],
    Last = reader(Channel, infinity),
    [ended(Reader) || Reader <- Readers],
    ok = thalweg_channel:write(Channel, last),
    {ok, last} = told(Last).

%% A process that reads.
begun(Channel, Timeout) ->
    Test = self(),
    spawn(fun() -> Test ! {self(), thalweg_channel:read(Channel, Timeout)} end).

%% One that waits already.
reader(Channel, Timeout) ->
    Reader = begun(Channel, Timeout),
    thalweg_test:until(fun() -> process_info(Reader, current_function) =:= {current_function, {gen, do_call, 4}} end),
    %% What it asked was asked before this.
    _ = thalweg_channel:size(Channel),
    Reader.

told(Reader) ->
    receive
        {Reader, Told} -> Told
    end.

ended(Reader) ->
    Monitor = monitor(process, Reader),
    exit(Reader, kill),
    receive
        {'DOWN', Monitor, process, _, _} -> ok
    end.
