%% Clients of services, before a server made by hand: what it sends, and in which order, is the test's to say.
-module(thalweg_client_SUITE).
-compile([export_all, nowarn_export_all]).

-define(REQUEST, 1).
-define(ITEM, 2).
-define(END, 3).
%% More than one look reads where it finds it.
-define(LARGE, 200000).
-define(OVERLOADED, 13).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [items_before_a_failure, items_that_are_read_when_a_connection_ends, items_before_the_end_of_a_connection, an_answer_before_the_end_of_a_connection, much_that_came_at_once, a_request_in_pieces, a_tail_of_what_is_none, no_endpoint].

init_per_suite(Config) ->
    _ = application:load(thalweg),
    ok = application:set_env(thalweg, pool, none),
    {ok, _} = application:ensure_all_started(thalweg),
    Config.

end_per_suite(_Config) -> application:stop(thalweg).

init_per_testcase(Case, Config) ->
    %% The path of a socket is a short one.
    Path = filename:join("/tmp", lists:concat(["thalweg-", os:getpid(), "-", erlang:phash2(Case), ".sock"])),
    _ = file:delete(Path),
    [{path, Path} | Config].

end_per_testcase(_Case, Config) ->
    _ = file:delete(proplists:get_value(path, Config)),
    thalweg_test:none_left().

%% What came before a stream failed is read first, be it so long that it is read apart.
items_before_a_failure(Config) ->
    Peer = peer(Config, fun(Socket, Number) ->
        ok = gen_tcp:send(Socket, [items(Number), frame(?END, ?OVERLOADED, Number, <<"later">>)])
    end),
    {ok, Client} = thalweg_client:connect(proplists:get_value(path, Config)),
    [begin
        {ok, Stream} = thalweg_client:stream(Client, <<"items">>),
        ok = items_of(Stream),
        {error, {fault, overloaded, _}} = thalweg_client:next(Stream)
    end || _ <- lists:seq(1, 20)],
    ok = thalweg_client:close(Client),
    ended(Peer).

items_before_the_end_of_a_connection(Config) ->
    [begin
        Peer = peer(Config, fun(Socket, Number) ->
            ok = gen_tcp:send(Socket, items(Number)),
            ok = gen_tcp:shutdown(Socket, write)
        end),
        {ok, Client} = thalweg_client:connect(proplists:get_value(path, Config)),
        {ok, Stream} = thalweg_client:stream(Client, <<"items">>),
        ok = items_of(Stream),
        {error, {fault, _, _}} = thalweg_client:next(Stream),
        ended(Peer)
    end || _ <- lists:seq(1, 20)],
    ok.

%% Some are being read apart by another process when the connection is found to have ended.
items_that_are_read_when_a_connection_ends(Config) ->
    Item = binary:copy(<<"a">>, 20 * ?LARGE),
    Count = 16,
    [begin
        Peer = peer(Config, fun(Socket, Number) ->
            ok = gen_tcp:send(Socket, [frame(?ITEM, 0, Number, Item) || _ <- lists:seq(1, Count)]),
            ok = gen_tcp:shutdown(Socket, write)
        end),
        {ok, Client} = thalweg_client:connect(proplists:get_value(path, Config)),
        {ok, Stream} = thalweg_client:stream(Client, <<"items">>),
        [{item, Item} = thalweg_client:next(Stream) || _ <- lists:seq(1, Count)],
        {error, {fault, _, _}} = thalweg_client:next(Stream),
        ended(Peer)
    end || _ <- lists:seq(1, 10)],
    ok.

an_answer_before_the_end_of_a_connection(Config) ->
    Answer = binary:copy(<<"a">>, ?LARGE),
    [begin
        Peer = peer(Config, fun(Socket, Number) ->
            ok = gen_tcp:send(Socket, frame(?END, 0, Number, Answer)),
            ok = gen_tcp:shutdown(Socket, write)
        end),
        {ok, Client} = thalweg_client:connect(proplists:get_value(path, Config)),
        {ok, Answer} = thalweg_client:call(Client, <<"answer">>),
        ended(Peer)
    end || _ <- lists:seq(1, 20)],
    ok.

%% One look hands out a part of it, so that whatever else its scheduler runs has a turn before the rest.
much_that_came_at_once(Config) ->
    Count = 2000,
    Test = self(),
    Peer = peer(Config, fun(Socket, Number) ->
        Test ! {asked, self()},
        receive go -> ok end,
        Items = [frame(?ITEM, 0, Number, <<N:16>>) || N <- lists:seq(1, Count)],
        ok = gen_tcp:send(Socket, [Items, frame(?END, ?OVERLOADED, Number, <<"later">>)]),
        Test ! sent
    end),
    {ok, {Router, Connection} = Client} = thalweg_client:connect(proplists:get_value(path, Config)),
    {ok, Stream} = thalweg_client:stream(Client, <<"items">>, #{credit => Count}),
    receive {asked, Server} -> true = erlang:suspend_process(Router), Server ! go end,
    receive sent -> ok end,
    again = thalweg_nif:turn(Connection),
    {message_queue_len, Some} = process_info(self(), message_queue_len),
    true = Some > 0 andalso Some =< 256,
    %% Nobody else asks for more: the rest comes all the same.
    true = erlang:resume_process(Router),
    [{item, <<N:16>>} = thalweg_client:next(Stream) || N <- lists:seq(1, Count)],
    {error, {fault, overloaded, _}} = thalweg_client:next(Stream),
    ok = thalweg_client:close(Client),
    ended(Peer).

%% To put pieces together takes as many turns as it takes, and none of them is longer than another.
a_request_in_pieces(Config) ->
    {ok, Client} = thalweg_client:connect(proplists:get_value(path, Config)),
    Frame = [<<"head">> | lists:duplicate(12, binary:copy(<<"a">>, 1 bsl 20))],
    {Caller, Monitor} = spawn_monitor(fun() -> receive go -> {ok, _} = thalweg_client:send(Client, Frame) end end),
    1 = erlang:trace(Caller, true, [running]),
    Caller ! go,
    ended({Caller, Monitor}),
    Delivered = erlang:trace_delivered(Caller),
    receive {trace_delivered, Caller, Delivered} -> ok end,
    true = turns(Caller, 0) > 8,
    ok = thalweg_client:close(Client).

turns(Process, Count) ->
    receive
        {trace, Process, out, _} -> turns(Process, Count + 1);
        {trace, Process, _, _} -> turns(Process, Count)
    after 0 -> Count
    end.

%% A server that answers a tail with what is no part of one.
a_tail_of_what_is_none(_Config) ->
    Item = log_types:encode_response({tail_item, #{data => <<"a">>, next => <<"1">>}}),
    End = log_types:encode_response({tail_response, #{next => <<"1">>}}),
    Head = log_types:encode_response({remove_response, #{}}),
    {data, <<"a">>, <<"1">>} = thalweg_log:message({frame, iolist_to_binary(Item)}),
    {closed, <<"1">>} = thalweg_log:message({ok, iolist_to_binary(End)}),
    {error, {unexpected, tail_item}} = thalweg_log:message({ok, iolist_to_binary(Item)}),
    {error, {unexpected, tail_response}} = thalweg_log:message({frame, iolist_to_binary(End)}),
    [{error, {unexpected, remove_response}} = thalweg_log:message({Kind, iolist_to_binary(Head)}) || Kind <- [frame, ok]],
    ok.

%% What can be no endpoint is refused in words, and what is no text as a wrong argument, where it was given.
no_endpoint(_Config) ->
    [{error, {fault, bad_argument, <<_/binary>>}} = thalweg_client:connect(Endpoint) || Endpoint <- ["", "a.pipe", <<255, ".sock">>]],
    [{'EXIT', {badarg, _}} = catch thalweg_client:connect(Endpoint) || Endpoint <- [endpoint, [256], {"a.sock"}, <<1:1>>]],
    ok.

%% Three items: one that is read where it is found, and two behind it that are not.
items(Number) -> [frame(?ITEM, 0, Number, binary:copy(Letter, ?LARGE)) || Letter <- [<<"a">>, <<"b">>, <<"c">>]].

items_of(Stream) ->
    lists:foreach(
        fun(Letter) ->
            {item, Item} = thalweg_client:next(Stream),
            Item = binary:copy(Letter, ?LARGE)
        end,
        [<<"a">>, <<"b">>, <<"c">>]
    ).

%% The server

%% Listens, says welcome, and answers each request by what is said here.
peer(Config, Answers) ->
    Path = proplists:get_value(path, Config),
    _ = file:delete(Path),
    Options = [binary, {active, false}, {ifaddr, {local, Path}}, {sndbuf, 4 * ?LARGE}],
    {ok, Listener} = gen_tcp:listen(0, Options),
    spawn_monitor(fun() ->
        {ok, Socket} = gen_tcp:accept(Listener),
        {ok, <<"TwSv", _/binary>>} = gen_tcp:recv(Socket, 48),
        ok = gen_tcp:send(Socket, <<"TwSv", 1:16/little, 0:16, 0:32, 64:32/little, 0:256>>),
        serve(Socket, Answers)
    end).

ended({_, Monitor}) ->
    receive
        {'DOWN', Monitor, process, _, normal} -> ok
    end.

serve(Socket, Answers) ->
    case gen_tcp:recv(Socket, 24) of
        {ok, <<Length:32/little, Kind, _:3/binary, Number:64/little, _/binary>>} ->
            _ = [{ok, _} = gen_tcp:recv(Socket, Length) || Length > 0],
            _ = [Answers(Socket, Number) || Kind =:= ?REQUEST],
            serve(Socket, Answers);
        {error, _} -> ok
    end.

frame(Kind, Fault, Number, Payload) ->
    [<<(byte_size(Payload)):32/little, Kind, 0, Fault:16/little, Number:64/little, 0:64>>, Payload].
