%% ASGI applications: asked directly, through another runner, and over HTTP.
-module(thalweg_asgi_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        asked, no_lifespan, failing, another_runner, over_http, older_clients, kept_alive, headers_that_are_no_text, asked_to_close, refusals,
        long_heads, refused_while_it_sends, no_field, empty_lines, slow_lines, slow_reader, path_that_is_no_text, hosts, targets, late_heads, expectations, long_bodies, long_bodies_are_waited_for,
        bodies_in_chunks, chunks_that_are_none, chunks_taken_apart, bodies_that_stop, bodies_that_nobody_reads, requests_behind_the_last_answer, pieces_that_are_given_up, pieces_for_several, said_behind_the_last_part,
        clients_that_leave, clients_that_end_what_they_send, chunks_that_trickle, many_chunks, returned_before_the_last_part, parts_of_any_length, parts_that_nobody_takes,
        answers_that_are_none, statuses, dates, closed_by_the_application, ends_of_a_connection, as_long_as_it_says, chunks_are_ours, head, short_of_descriptors, ends_with_its_owner, stopped_by_another, timeouts_that_are_none, told_to_shut_down, interrupted_to_shut_down, amid_answers_when_it_is_to_shut_down
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1}).
end_per_suite(Config) -> thalweg_test:stop(Config).

init_per_testcase(_Case, Config) ->
    {ok, Server} = thalweg_asgi:listen(#{app => <<"web:app">>, body_bytes_max => 100}),
    [{server, Server} | Config].
end_per_testcase(_Case, Config) ->
    ok = thalweg_asgi:stop(proplists:get_value(server, Config)),
    thalweg_test:none_left().

asked(_Config) ->
    Scope = #{<<"path">> => <<"/there">>, <<"method">> => <<"POST">>, <<"headers">> => [{<<"X-Mine">>, <<"yes">>}]},
    {ok, {201, Headers, <<"POST /there  body 1">>}} = thalweg_asgi:run(<<"web:app">>, Scope, <<"body">>),
    <<"yes">> = proplists:get_value(<<"x-seen">>, Headers),
    %% It starts up once.
    {ok, {201, _, <<"GET /   1">>}} = thalweg_asgi:run(<<"web:app">>, #{<<"path">> => <<"/">>}, <<>>),
    %% A body is bytes, whatever they are: what is no text fails where it is read as such.
    {error, {exception, <<"UnicodeDecodeError">>, _, _}} = thalweg_asgi:run(<<"web:app">>, #{}, <<255>>).

%% What ends with its worker is told so beforehand, and may still call; what goes wrong with that is logged.
told_to_shut_down(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1, shut_down_within => 2500})),
    Self = self(),
    ok = thalweg:register(left, fun([]) -> Self ! left, none end),
    [
        {ok, {200, [], <<>>}} = thalweg_asgi:run(App, #{}, <<>>, #{pool => ending})
     || App <- [<<"web:leaves">>, <<"web:fails">>, <<"web:raises">>, <<"web:stays">>]
    ],
    thalweg_pool_SUITE:with_log(fun() ->
        ok = thalweg:stop_pool(ending),
        receive
            left -> ok
        after 0 -> error(not_told)
        end,
        Wrong = [<<"web:fails: not so soon">>, <<"web:raises: ValueError: badly">>, <<"web:stays has not shut down within 2.5 s">>],
        [thalweg_pool_SUITE:heard(warning, Words) || Words <- Wrong]
    end).

%% Also behind a function that would not end by itself.
interrupted_to_shut_down(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1})),
    Self = self(),
    ok = thalweg:register(left, fun([]) -> Self ! left, none end),
    {ok, {200, [], <<>>}} = thalweg_asgi:run(<<"web:leaves">>, #{}, <<>>, #{pool => ending}),
    Before = thalweg_shared:get(<<"begun">>, 0),
    Options = #{pool => ending, timeout => infinity},
    {_, Monitor} = spawn_monitor(fun() -> {error, {fault, disconnected, _}} = thalweg:call(sample, begin_and_spin, [], Options) end),
    thalweg_test:until(fun() -> thalweg_shared:get(<<"begun">>, 0) > Before end),
    ok = thalweg:stop_pool(ending),
    receive
        left -> ok
    after 0 -> error(not_told)
    end,
    receive
        {'DOWN', Monitor, process, _, Reason} -> normal = Reason
    end.

%% What is done about an answer that is given up comes to its end before the application shuts down.
amid_answers_when_it_is_to_shut_down(_Config) ->
    {ok, _} = thalweg:start_pool(ending, thalweg_test:pool(#{size => 1})),
    Self = self(),
    ok = thalweg:register(said, fun([Words]) -> Self ! {said, Words}, none end),
    Streams = [
        begin
            {ok, Stream} = thalweg_asgi:open(<<"web:cleans">>, #{<<"path">> => Path}, <<>>, #{pool => ending}),
            {data, {200, []}} = thalweg_stream:next(Stream, infinity),
            Stream
        end
     || Path <- [<<"/sleeps">>, <<"/sends">>, <<"/hears">>]
    ],
    ok = thalweg:stop_pool(ending),
    [{_, {error, {fault, disconnected, _}}} = thalweg_test:collect(Stream, []) || Stream <- Streams],
    Said = fun() -> receive {said, Words} -> Words after 0 -> nothing end end,
    [<<"cleaned">>, <<"cleaned">>, <<"cleaned">>, <<"shut down">>, nothing] = [Said() || _ <- [1, 2, 3, 4, 5]],
    ok = thalweg:unregister(said).

no_lifespan(_Config) -> {ok, {204, [], <<>>}} = thalweg_asgi:run(<<"web:without_lifespan">>, #{}, <<>>).

failing(_Config) ->
    {error, {exception, <<"ValueError">>, <<"badly">>, _}} =
        thalweg_asgi:run(<<"web:app">>, #{<<"path">> => <<"/fail">>}, <<>>),
    {error, {exception, <<"AttributeError">>, _, _}} = thalweg_asgi:run(<<"web:nothing">>, #{}, <<>>),
    {error, no_worker} = thalweg_asgi:run(<<"web:app">>, #{}, <<>>, #{pool => nowhere}).

another_runner(_Config) ->
    {ok, {299, [{<<"x-runner">>, <<"any">>}], <<"mine">>}} =
        thalweg_asgi:run(<<"any">>, #{}, <<>>, #{runner => <<"web:runner">>}).

over_http(Config) ->
    {<<"HTTP/1.1 201 ", _/binary>>, <<"GET /a b q=1  1">>} = http(Config, <<"GET /a%20b?q=1 HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {<<"HTTP/1.1 200 ", _/binary>>, <<"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n">>} =
        http(Config, <<"GET /stream HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {<<"HTTP/1.1 201 ", _/binary>>, <<"POST /  body 1">>} =
        http(Config, <<"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody">>).

%% Who speaks HTTP/1.0 knows of no chunks: a body of no known length ends with the connection.
older_clients(Config) ->
    {Head, <<"onetwo">>} = http(Config, <<"GET /stream HTTP/1.0\r\n\r\n">>),
    nomatch = re:run(Head, "transfer-encoding", [caseless]),
    {match, _} = re:run(Head, "connection: close").

kept_alive(Config) ->
    {Head, Rest} = http(Config, <<"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    <<"HTTP/1.1 201 ", _/binary>> = Head,
    {match, _} = re:run(Rest, "^GET /1 .*HTTP/1.1 201 .*GET /2 ", [dotall]).

%% What they say is bytes, on either side.
headers_that_are_no_text(Config) ->
    Request = <<"GET /no-text HTTP/1.1\r\nconnection: \xff\r\nx-mine: \xff\r\n\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n">>,
    {<<"HTTP/1.1 200 ", _/binary>> = Head, <<"6\r\nbehind\r\n0\r\n\r\nHTTP/1.1 201 ", _/binary>>} = http(Config, Request),
    {_, _} = binary:match(Head, <<"X-\xe9: \xe9\r\n">>).

%% Among other wishes, in letters of any size, in the first such header or a later one.
asked_to_close(Config) ->
    [
        {<<"HTTP/1.1 201 ", _/binary>>, <<"GET /1   1">>} =
            http(Config, <<"GET /1 HTTP/1.1\r\n", Headers/binary, "\r\n\r\nGET /2 HTTP/1.1\r\n\r\n">>)
     || Headers <- [<<"connection: Close">>, <<"connection: te,\tclose">>, <<"Connection: close , te">>, <<"connection: te\r\nconnection: close">>]
    ],
    {_, Rest} = http(Config, <<"GET /1 HTTP/1.1\r\nconnection: closed\r\n\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {match, _} = re:run(Rest, "HTTP/1.1 201 .*GET /2 ", [dotall]).

refusals(Config) ->
    [
        begin
            {Head, <<>>} = http(Config, Request),
            {match, _} = re:run(Head, "^HTTP/1.1 " ++ integer_to_list(Status))
        end
     || {Status, Request} <- [
            {500, <<"GET /fail HTTP/1.1\r\n\r\n">>},
            {413, <<"POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n">>},
            {501, <<"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n">>},
            {501, <<"POST / HTTP/1.1\r\ntransfer-encoding: \r\n\r\n">>},
            {400, <<"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n">>},
            {400, <<"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n">>},
            {400, <<"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n">>},
            {400, <<"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n">>},
            {400, <<"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n">>},
            {400, <<"POST / HTTP/1.1\r\ncontent-length: +4\r\n\r\nbody">>},
            {400, <<"POST / HTTP/1.1\r\ncontent-length: -0\r\n\r\n">>},
            {400, <<"POST / HTTP/1.1\r\ncontent-length: \r\n\r\n">>},
            {400, <<"nonsense\r\n\r\n">>}
        ]
    ].

%% Up to its bounds a head is answered as any other, and beyond them with what it is too long for.
long_heads(Config) ->
    Line = fun(Bytes) -> <<"GET /", (filled(Bytes - 16))/binary, " HTTP/1.1\r\n">> end,
    Field = fun(Bytes) -> <<"x:", (filled(Bytes - 4))/binary, "\r\n">> end,
    Fields = fun(Count, Bytes) -> binary:copy(Field(Bytes), Count) end,
    [
        begin
            Expected = integer_to_binary(Status),
            {<<"HTTP/1.1 ", Expected:3/binary, " ", Head/binary>>, _} = http(Config, Request),
            {_, _} = binary:match(Head, <<"connection: close">>)
        end
     || {Status, Request} <- [
            {201, <<(Line(8192))/binary, "connection: close\r\n\r\n">>},
            {414, <<(Line(8193))/binary, "connection: close\r\n\r\n">>},
            {414, filled(8192)},
            {201, <<(Line(20))/binary, (Field(8192))/binary, "connection: close\r\n\r\n">>},
            {431, <<(Line(20))/binary, (Field(8193))/binary, "connection: close\r\n\r\n">>},
            {431, <<(Line(20))/binary, (filled(8192))/binary>>},
            {201, <<(Line(20))/binary, (Fields(98, 8))/binary, "connection: close\r\n\r\n">>},
            {431, <<(Line(20))/binary, (Fields(99, 8))/binary, "connection: close\r\n\r\n">>},
            {201, <<(Line(20))/binary, (Fields(8, 8000))/binary, "connection: close\r\n\r\n">>},
            {431, <<(Line(20))/binary, (Fields(9, 8000))/binary, "connection: close\r\n\r\n">>}
        ]
    ].

filled(Bytes) -> binary:copy(<<"a">>, Bytes).

%% A client that is refused finds the answer, however much of what was refused is still on its way.
refused_while_it_sends(Config) ->
    [
        {<<"HTTP/1.1 ", Status:3/binary, " ", _/binary>>, <<>>} = http(Config, <<Request/binary, (filled(1 bsl 20))/binary>>)
     || {Status, Request} <- [
            {<<"414">>, <<"GET /">>},
            {<<"431">>, <<"GET / HTTP/1.1\r\nx: ">>},
            {<<"413">>, <<"POST / HTTP/1.1\r\ncontent-length: 1048576\r\n\r\n">>}
        ]
    ].

%% What others would take for another field than is taken here.
no_field(Config) ->
    [
        {<<"HTTP/1.1 400 ", _/binary>>, <<>>} = http(Config, <<"GET / HTTP/1.1\r\n", Field/binary, "\r\n\r\n">>)
     || Field <- [<<"x : 1">>, <<"x">>, <<": 1">>, <<" x: 1">>, <<"x: 1\r\n 2">>, <<"x: 1\r2">>, <<"x: ", 0>>, <<"\xff: 1">>]
    ],
    [
        {<<"HTTP/1.1 400 ", _/binary>>, <<>>} = http(Config, <<Line/binary, "\r\n\r\n">>)
     || Line <- [<<"GET  / HTTP/1.1">>, <<"GET / HTTP/2.0">>, <<"GET / HTTP/1.10">>, <<"GET /">>, <<" / HTTP/1.1">>, <<"G\xff / HTTP/1.1">>, <<>>]
    ].

%% As some clients send one behind a body. Where nothing follows nothing was begun.
empty_lines(Config) ->
    Behind = <<"\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n">>,
    {<<"HTTP/1.1 201 ", _/binary>>, <<"POST /  body 1HTTP/1.1 201 ", _/binary>>} =
        http(Config, <<"\r\nPOST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody", Behind/binary>>),
    with_server(#{idle_ms_max => 300}, fun(Other) ->
        Socket = connected(Other),
        ok = gen_tcp:send(Socket, <<"\r\n">>),
        {error, closed} = gen_tcp:recv(Socket, 0)
    end).

%% A line has so long to come, whatever comes of it meanwhile.
slow_lines(_Config) ->
    {ok, Server} = thalweg_asgi:listen(#{app => <<"web:app">>, idle_ms_max => 100}),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, thalweg_asgi:port(Server), [binary, {active, false}, {nodelay, true}]),
    ok = gen_tcp:send(Socket, <<"GET /">>),
    true = dripped(Socket, 0) < 8000,
    ok = gen_tcp:close(Socket),
    ok = thalweg_asgi:stop(Server).

%% The bytes that were taken, one after the other, until the connection ended.
dripped(Socket, Bytes) ->
    case {gen_tcp:send(Socket, <<"a">>), gen_tcp:recv(Socket, 0, 5)} of
        {ok, {error, timeout}} -> dripped(Socket, Bytes + 1);
        _ -> Bytes
    end.

%% An answer that nobody reads ends, and its connection.
slow_reader(_Config) ->
    {ok, Server} = thalweg_asgi:listen(#{app => <<"web:app">>, idle_ms_max => 200}),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, thalweg_asgi:port(Server), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"GET /endless HTTP/1.1\r\nhost: test\r\n\r\n">>),
    thalweg_test:until(fun() -> thalweg:load(default) =:= [1] end),
    thalweg_test:until(fun() -> thalweg:load(default) =:= [0] end),
    ok = gen_tcp:close(Socket),
    ok = thalweg_asgi:stop(Server).

%% Bytes in percent are decoded first, and what is no such byte stays; what the path was is there as well.
path_that_is_no_text(Config) ->
    {_, <<"GET /\xef\xbf\xbd \xc3\xa9%zz%   1">>} = http(Config, <<"GET /%fF%20%c3%A9%zz% HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {_, <<"/told /%74old a=%20 test">>} = http(Config, <<"GET /%74old?a=%20 HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {<<"HTTP/1.1 201 ", _/binary>>, <<"GET /\xef\xbf\xbd   1">>} = http(Config, <<"GET /\xff HTTP/1.1\r\nconnection: close\r\n\r\n">>).

%% One, and one that may be one (RFC 9112, 3.2); older clients need name none.
hosts(Config) ->
    [
        {Fields, {<<"HTTP/1.1 400 ", _/binary>>, <<>>}} = {Fields, raw(Config, <<"GET / ", Version/binary, "\r\n", Fields/binary, "\r\n">>)}
     || {Version, Fields} <- [
            {<<"HTTP/1.1">>, <<>>},
            {<<"HTTP/1.1">>, <<"host: a\r\nhost: a\r\n">>},
            {<<"HTTP/1.0">>, <<"host: a\r\nhost: b\r\n">>},
            {<<"HTTP/1.1">>, <<"host: a b\r\n">>},
            {<<"HTTP/1.1">>, <<"host: a@b\r\n">>},
            {<<"HTTP/1.1">>, <<"host: a/b\r\n">>}
        ]
    ],
    [
        {Fields, {<<"HTTP/1.1 200 ", _/binary>>, Told}} =
            {Fields, raw(Config, <<"GET /told ", Version/binary, "\r\n", Fields/binary, "connection: close\r\n\r\n">>)}
     || {Version, Fields, Told} <- [
            {<<"HTTP/1.0">>, <<>>, <<"/told /told  -">>},
            {<<"HTTP/1.1">>, <<"host: \r\n">>, <<"/told /told  ">>},
            {<<"HTTP/1.1">>, <<"Host: [::1]:80\r\n">>, <<"/told /told  [::1]:80">>}
        ]
    ].

%% In every form that a server is asked in, the target's host counts (RFC 9112, 3.2.2), and the asterisk is the path of `OPTIONS'.
targets(Config) ->
    [
        {Line, {<<"HTTP/1.1 200 ", _/binary>>, Told}} = {Line, http(Config, <<Line/binary, " HTTP/1.1\r\nconnection: close\r\n\r\n">>)}
     || {Line, Told} <- [
            {<<"GET http://other:8080/told?a=b?c">>, <<"/told /told a=b?c other:8080">>},
            {<<"GET HTTPS://other/%74old">>, <<"/told /%74old  other">>},
            {<<"GET /told?http://other/">>, <<"/told /told http://other/ test">>},
            {<<"OPTIONS *">>, <<"* *  test">>},
            {<<"OPTIONS http://other">>, <<"* *  other">>}
        ]
    ],
    [
        {Line, {<<"HTTP/1.1 201 ", _/binary>>, Told}} = {Line, http(Config, <<Line/binary, " HTTP/1.1\r\nconnection: close\r\n\r\n">>)}
     || {Line, Told} <- [{<<"GET http://other">>, <<"GET /   1">>}, {<<"GET http://other?a=b">>, <<"GET / a=b  1">>}]
    ],
    [
        {Line, {<<"HTTP/1.1 400 ", _/binary>>, <<>>}} = {Line, http(Config, <<Line/binary, " HTTP/1.1\r\n\r\n">>)}
     || Line <- [
            <<"GET *">>, <<"GET ftp://other/">>, <<"GET http://">>, <<"GET http:///told">>, <<"GET http://me@other/">>, <<"CONNECT other:80">>,
            <<"GET told">>, <<"OPTIONS *a">>, <<"GET /told\rme">>, <<"GET /\ttold">>, <<"GET /told", 127>>, <<"GET http://other/", 0>>
        ]
    ],
    %% Its own host has to be named all the same.
    {<<"HTTP/1.1 400 ", _/binary>>, <<>>} = raw(Config, <<"GET http://other/ HTTP/1.1\r\n\r\n">>).

%% A head that was begun and does not come to its end is 408, wherever it stops; who asks nothing is told nothing.
late_heads(_Config) ->
    with_server(#{idle_ms_max => 1000}, fun(Config) ->
        [
            {Begun, {<<"HTTP/1.1 408 ", _/binary>>, <<>>}} = {Begun, raw(Config, Begun)}
         || Begun <- [<<"G">>, <<"GET / HTTP/1.1\r\n">>, <<"GET / HTTP/1.1\r\nhost: a\r\nx: ">>]
        ],
        %% However steadily its lines come.
        Socket = connected(Config),
        ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\n">>),
        _ = [{timer:sleep(100), gen_tcp:send(Socket, <<"x: 1\r\n">>)} || _ <- lists:seq(1, 20)],
        {ok, <<"HTTP/1.1 408 ", _/binary>>} = gen_tcp:recv(Socket, 0),
        {error, closed} = gen_tcp:recv(connected(Config), 0)
    end).

%% A client that waits to be asked for a body is asked when the application receives it, and not where it answers first.
expectations(Config) ->
    Head = fun(Path, Expected) ->
        <<"POST ", Path/binary, " HTTP/1.1\r\nhost: test\r\nexpect: ", Expected/binary, "\r\ncontent-length: 4\r\n\r\n">>
    end,
    Socket = connected(Config),
    Answers = fun() ->
        ok = gen_tcp:send(Socket, Head(<<"/">>, <<"100-Continue">>)),
        {ok, <<"HTTP/1.1 100 Continue\r\n\r\n">>} = gen_tcp:recv(Socket, 25),
        {error, timeout} = gen_tcp:recv(Socket, 0, 50),
        ok = gen_tcp:send(Socket, <<"body">>),
        ok = comes(Socket, "^HTTP/1.1 201 .*POST /  body 1$")
    end,
    %% The connection stays.
    [Answers() || _ <- [1, 2]],
    {<<"HTTP/1.1 200 ", First/binary>>, <<"/told /told  test">>} = raw(Config, Head(<<"/told">>, <<"100-continue">>)),
    {match, _} = re:run(First, "connection: close"),
    %% Who sends already waits for nothing.
    {<<"HTTP/1.1 201 ", _/binary>>, <<"POST /  body 1", _/binary>>} =
        raw(Config, <<(Head(<<"/">>, <<"100-continue">>))/binary, "body", "GET /2 HTTP/1.0\r\n\r\n">>),
    [{<<"HTTP/1.1 417 ", _/binary>>, <<>>} = raw(Config, Head(<<"/">>, Other)) || Other <- [<<"more">>, <<"100-continue, more">>, <<>>]],
    {<<"HTTP/1.1 201 ", _/binary>>, <<"POST /  body 1">>} =
        http(Config, <<"POST / HTTP/1.0\r\nexpect: more\r\ncontent-length: 4\r\n\r\nbody">>).

%% They come in pieces, to their end and no further, however long they are.
long_bodies(_Config) ->
    with_server(#{body_bytes_max => 1 bsl 30}, fun(Config) ->
        [
            begin
                Length = integer_to_binary(Bytes),
                Socket = connected(Config),
                ok = gen_tcp:send(Socket, <<"POST /count HTTP/1.1\r\nhost: test\r\ncontent-length: ", Length/binary, "\r\n\r\n">>),
                _ = [ok = gen_tcp:send(Socket, binary:copy(<<"a">>, Part)) || Part <- parts_of(Bytes)],
                ok = gen_tcp:send(Socket, <<"GET /told HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n">>),
                Answers = iolist_to_binary(all_of(Socket)),
                Expected = ["\r\n", Length, " (\\d+)HTTP/1.1 200 .*/told /told  test$"],
                {match, [Longest]} = re:run(Answers, Expected, [dotall, {capture, all_but_first, binary}]),
                true = binary_to_integer(Longest) =< 65536
            end
         || Bytes <- [65535, 65536, 65537, 200000, 80 bsl 20]
        ]
    end).

parts_of(Bytes) when Bytes =< 1 bsl 20 -> [Bytes];
parts_of(Bytes) -> [1 bsl 20 | parts_of(Bytes - (1 bsl 20))].

%% A client that sends one is held up while nobody asks for more, and is not late meanwhile; nor is the answer while the body comes.
long_bodies_are_waited_for(_Config) ->
    Self = self(),
    ok = thalweg:register(gate, fun([]) ->
        Self ! {gate, self()},
        receive open -> none end
    end),
    Bytes = 80 bsl 20,
    with_server(#{body_bytes_max => Bytes, timeout => 2000}, fun(Config) ->
        Socket = connected(Config),
        Length = integer_to_binary(Bytes),
        ok = gen_tcp:send(Socket, <<"POST /count-later HTTP/1.1\r\nhost: test\r\ncontent-length: ", Length/binary, "\r\n\r\n">>),
        {_, Sender} = spawn_monitor(fun() ->
            Parts = parts_of(Bytes),
            [ok = gen_tcp:send(Socket, binary:copy(<<"a">>, Part)) || Part <- tl(Parts)],
            timer:sleep(3000),
            ok = gen_tcp:send(Socket, binary:copy(<<"a">>, hd(Parts)))
        end),
        Gate = receive {gate, Pid} -> Pid after 60000 -> ct:fail({never_asked, gen_tcp:recv(Socket, 0, 0)}) end,
        receive
            {'DOWN', Sender, process, _, Reason} -> ct:fail({not_held_up, Reason})
        after 200 -> Gate ! open
        end,
        receive
            {'DOWN', Sender, process, _, Ended} -> normal = Ended
        end,
        ok = comes(Socket, ["^HTTP/1.1 200 .*", Length])
    end),
    ok = thalweg:unregister(gate).

%% Of whatever chunks, with what stands beside them, to the last and no further; another request may follow.
bodies_in_chunks(_Config) ->
    with_server(#{body_bytes_max => 1 bsl 20}, fun(Config) ->
        Ask = fun(Path, Extra, Body) ->
            Head = <<"POST ", Path/binary, " HTTP/1.1\r\nhost: test\r\nTransfer-Encoding: Chunked\r\n", Extra/binary, "\r\n">>,
            <<Head/binary, Body/binary, "GET /told HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n">>
        end,
        Counted = fun(Bytes, Body) ->
            {<<"HTTP/1.1 200 ", _/binary>>, Answers} = raw(Config, Ask(<<"/count">>, <<>>, Body)),
            Expected = ["^", integer_to_binary(Bytes), " \\d+HTTP/1.1 200 .*/told /told  test$"],
            {match, _} = re:run(Answers, Expected, [dotall])
        end,
        Counted(0, <<"0\r\n\r\n">>),
        Counted(3, <<"3\r\nabc\r\n0\r\n\r\n">>),
        Counted(3, <<"1;x=\"y\"\r\na\r\n0002 \t;z\r\nbc\r\n000\r\nx: 1\r\ny:\r\n\r\n">>),
        Chunk = <<"fffF\r\n", (filled(65535))/binary, "\r\n">>,
        Counted(10 * 65535, <<(binary:copy(Chunk, 10))/binary, "0\r\n\r\n">>),
        %% One that is there is whole for those who ask but once.
        {<<"HTTP/1.1 201 ", _/binary>>, <<"POST /  abc 1", _/binary>>} = raw(Config, Ask(<<"/">>, <<>>, <<"3\r\nabc\r\n0\r\n\r\n">>)),
        %% Byte by byte, once it is asked for.
        Socket = connected(Config),
        ok = gen_tcp:send(Socket, <<"POST /count HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n">>),
        {ok, <<"HTTP/1.1 100 Continue\r\n\r\n">>} = gen_tcp:recv(Socket, 25),
        _ = [{timer:sleep(1), ok = gen_tcp:send(Socket, <<Byte>>)} || <<Byte>> <= <<"2\r\nab\r\nA\r\n0123456789\r\n0\r\nx: 1\r\n\r\n">>],
        ok = comes(Socket, "^HTTP/1.1 200 .*\r\n12 ")
    end).

%% Nothing is overlooked, and nobody who sends one waits for an answer.
chunks_that_are_none(Config) ->
    Head = <<"POST /count HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n">>,
    [
        {{<<"HTTP/1.1 ", Status:3/binary, " ", _/binary>>, <<>>}, Body} = {raw(Config, <<Head/binary, Body/binary>>), Body}
     || {Status, Body} <- [
            {<<"400">>, <<"x\r\n">>},
            {<<"400">>, <<"\r\n">>},
            {<<"400">>, <<"1\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<"1\r\nab\r\n0\r\n\r\n">>},
            {<<"400">>, <<"1\r\na\n0\r\n\r\n">>},
            {<<"400">>, <<"1 \r\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<" 1\r\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<"+1\r\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<"0x1\r\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<"1;a\rb\r\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<"00000000000000001\r\na\r\n0\r\n\r\n">>},
            {<<"400">>, <<"1;", (filled(2000))/binary>>},
            {<<"400">>, <<"0\r\nx : 1\r\n\r\n">>},
            {<<"400">>, <<"0\r\n x\r\n\r\n">>},
            {<<"400">>, <<"0\r\n\n">>},
            {<<"431">>, <<"0\r\nx: ", (filled(9000))/binary>>},
            {<<"413">>, <<"65\r\n">>},
            {<<"413">>, <<"64\r\n", (filled(100))/binary, "\r\n1\r\n">>},
            {<<"413">>, <<"ffffffffffffffff\r\n">>}
        ]
    ].

%% However it comes, it says the same.
chunks_taken_apart(_Config) ->
    Body = <<"3;x\r\nabc\r\n0A\r\n0123456789\r\n0\r\ny: z\r\n\r\nbehind">>,
    All = fun
        All(Chunks, Buffer, Rest, Step, Parts) ->
            case thalweg_chunks:take(Chunks, Buffer, 4) of
                {data, Part, Left, Next} when byte_size(Part) >= 1, byte_size(Part) =< 4 -> All(Next, Left, Rest, Step, [Part | Parts]);
                {over, Left} -> {iolist_to_binary(lists:reverse(Parts)), <<Left/binary, Rest/binary>>};
                {more, Left, Next} when Rest =/= <<>> ->
                    {Came, Later} = split_binary(Rest, min(Step, byte_size(Rest))),
                    All(Next, <<Left/binary, Came/binary>>, Later, Step, Parts);
                Other -> Other
            end
    end,
    [{<<"abc0123456789">>, <<"behind">>} = All(thalweg_chunks:new(13), <<>>, Body, Step, []) || Step <- lists:seq(1, byte_size(Body))],
    [{refused, 413} = All(thalweg_chunks:new(12), <<>>, Body, Step, []) || Step <- [1, 7, 100]],
    %% Short of its end it always lacks something.
    Whole = byte_size(Body) - byte_size(<<"behind">>),
    [{more, _, _} = All(thalweg_chunks:new(13), <<>>, binary_part(Body, 0, Cut), Cut, []) || Cut <- lists:seq(1, Whole - 1)].

%% To the application the client is gone, and then the connection is.
bodies_that_stop(_Config) ->
    with_server(#{idle_ms_max => 100}, fun(Config) ->
        {<<"HTTP/1.1 200 ", Head/binary>>, <<"gone">>} =
            http(Config, <<"POST /count HTTP/1.1\r\ncontent-length: 100000\r\n\r\nbegun">>),
        {match, _} = re:run(Head, "connection: close"),
        {<<"HTTP/1.1 200 ", _/binary>>, <<"gone">>} =
            http(Config, <<"POST /count HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegun">>),
        %% Of a short one nobody heard yet.
        {<<"HTTP/1.1 408 ", _/binary>>, <<>>} = http(Config, <<"POST /count HTTP/1.1\r\ncontent-length: 10\r\n\r\nbegun">>)
    end).

%% What is left of one is no other request, and who sends it finds the answer.
bodies_that_nobody_reads(_Config) ->
    with_server(#{}, fun(Config) ->
        Rest = binary:copy(<<"GET /2 HTTP/1.1\r\nhost: test\r\n\r\n">>, 30000),
        Length = integer_to_binary(byte_size(Rest)),
        {<<"HTTP/1.1 200 ", Head/binary>>, <<"/told /told  test">>} =
            raw(Config, <<"POST /told HTTP/1.1\r\nhost: test\r\ncontent-length: ", Length/binary, "\r\n\r\n", Rest/binary>>),
        {match, _} = re:run(Head, "connection: close")
    end).

%% They find no answer, and take the one before them from nobody, be it one that is cut off: a reset might.
requests_behind_the_last_answer(Config) ->
    Port = thalweg_asgi:port(proplists:get_value(server, Config)),
    Rest = binary:copy(<<"GET /2 HTTP/1.1\r\nhost: test\r\n\r\n">>, 30000),
    [
        begin
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {show_econnreset, true}]),
            ok = gen_tcp:send(Socket, [<<"GET ">>, Path, <<" HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n">>, Rest]),
            {match, _} = re:run(all_of(Socket), ["^HTTP/1.1 200 .*\r\n\r\n", Told, "$"], [dotall]),
            ok = gen_tcp:close(Socket)
        end
     || {Path, Told} <- [{<<"/told">>, <<"/told /told  test">>}, {<<"/longer">>, <<"first">>}]
    ].

%% A piece whose receiver gave up waiting is the next one's.
pieces_that_are_given_up(_Config) ->
    with_server(#{}, fun(Config) ->
        Socket = connected(Config),
        ok = gen_tcp:send(Socket, <<"POST /impatient HTTP/1.1\r\nhost: test\r\ncontent-length: 200000\r\n\r\n">>),
        _ = [{timer:sleep(50), ok = gen_tcp:send(Socket, binary:copy(<<"a">>, 50000))} || _ <- lists:seq(1, 4)],
        ok = comes(Socket, "^HTTP/1.1 200 .*200000$")
    end).

%% Of several who wait each has a piece of its own.
pieces_for_several(_Config) ->
    with_server(#{}, fun(Config) ->
        Socket = connected(Config),
        ok = gen_tcp:send(Socket, <<"POST /together HTTP/1.1\r\nhost: test\r\ncontent-length: 150000\r\n\r\n">>),
        ok = gen_tcp:send(Socket, binary:copy(<<"a">>, 150000)),
        ok = comes(Socket, "^HTTP/1.1 200 .*\r\n150000$")
    end).

%% A timeout that is none is refused before anybody is served.
timeouts_that_are_none(_Config) ->
    [
        begin
            {error, {bad_option, timeout, _}} = thalweg_asgi:listen(#{app => <<"web:app">>, timeout => Timeout}),
            {'EXIT', {badarg, _}} = (catch thalweg_asgi:run(<<"web:app">>, #{}, <<>>, #{timeout => Timeout}))
        end
     || Timeout <- [-1, 1.5, soon, 1 bsl 32]
    ],
    [0] = thalweg:load(default).

%% An application that goes on behind its last part is told so; the answer is whole, and the connection goes on.
said_behind_the_last_part(Config) ->
    Second = <<"GET /2 HTTP/1.1\r\nconnection: close\r\n\r\n">>,
    {<<"HTTP/1.1 200 ", _/binary>>, <<"wholeHTTP/1.1 201 ", _/binary>>} =
        http(Config, <<"GET /say-more HTTP/1.1\r\n\r\n", Second/binary>>),
    {ok, <<"http.response.body behind the last part of an answer">>} = thalweg:call(web, what_was_raised, []),
    thalweg_pool_SUITE:with_log(fun() ->
        {<<"HTTP/1.1 200 ", _/binary>>, <<"5\r\nwhole\r\n0\r\n\r\nHTTP/1.1 201 ", _/binary>>} =
            http(Config, <<"GET /fail-behind HTTP/1.1\r\n\r\n", Second/binary>>),
        receive
            {logged, error, <<"an application failed behind its answer", Words/binary>>} -> {_, _} = binary:match(Words, <<"ValueError: behind">>)
        after 60000 -> ct:fail(not_logged)
        end
    end),
    {ok, {200, [], <<"whole">>}} = thalweg_asgi:run(<<"web:app">>, #{<<"path">> => <<"/fail-behind">>}, <<>>).

%% An answer whose last part is missing is not taken for a whole one by any client.
returned_before_the_last_part(Config) ->
    {<<"HTTP/1.1 200 ", _/binary>>, <<"4\r\nhalf\r\n">>} = http(Config, <<"GET /half HTTP/1.1\r\n\r\n">>),
    {error, {exception, <<"RuntimeError">>, _, _}} = thalweg_asgi:run(<<"web:app">>, #{<<"path">> => <<"/half">>}, <<>>).

%% A part that no frame holds comes whole. Where another runner brings one, that is said where somebody may read it.
parts_of_any_length(Config) ->
    {<<"HTTP/1.1 200 ", Head/binary>>, Body} = http(Config, <<"GET /large HTTP/1.0\r\n\r\n">>),
    {Head, 17825792} = {Head, byte_size(Body)},
    {ok, {200, [], Same}} = thalweg_asgi:run(<<"web:app">>, #{<<"path">> => <<"/large">>}, <<>>),
    Body = Same,
    thalweg_pool_SUITE:with_log(fun() ->
        with_server(#{runner => <<"web:runner_of_large_parts">>}, fun(Other) ->
            {<<"HTTP/1.1 200 ", _/binary>>, <<>>} = http(Other, <<"GET / HTTP/1.1\r\n\r\n">>)
        end),
        receive
            {logged, warning, <<"an answer was cut off: {fault,frame_too_large,", _/binary>>} -> ok
        after 60000 -> ct:fail(not_logged)
        end
    end).

%% Of what a client does not take no more waits in its connection's process than a few parts.
parts_that_nobody_takes(_Config) ->
    {ok, Server} = thalweg_asgi:listen(#{app => <<"web:app">>, idle_ms_max => 500}),
    Port = thalweg_asgi:port(Server),
    {links, Before} = process_info(Server, links),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"GET /endless HTTP/1.1\r\nhost: test\r\n\r\n">>),
    thalweg_test:until(fun() -> thalweg:load(default) =:= [1] end),
    {links, After} = process_info(Server, links),
    [Connection] = [Process || Process <- After -- Before, is_pid(Process)],
    Waiting = most_waiting(Connection, 0),
    {Waiting, true} = {Waiting, Waiting > 0 andalso Waiting =< 8},
    ok = gen_tcp:close(Socket),
    ok = thalweg_asgi:stop(Server).

%% The most that a process was seen not to have received, until it ended.
most_waiting(Process, Most) ->
    case process_info(Process, message_queue_len) of
        {message_queue_len, Length} ->
            timer:sleep(1),
            most_waiting(Process, max(Length, Most));
        undefined -> Most
    end.

%% An application hears that its client is gone, before its answer and amid it; what the client still sent is no reason to stay.
clients_that_leave(Config) ->
    Self = self(),
    ok = thalweg:register(listens, fun([]) -> Self ! listens, none end),
    ok = thalweg:register(gone, fun([Type]) -> Self ! {heard, Type}, none end),
    %% One that takes nothing any more is heard of at once.
    [left_by(Config, [{linger, {true, 0}}], Query) || Query <- [<<>>, <<"?part">>]],
    %% One that may still read is taken to be there, as long as an answer may take.
    with_server(#{timeout => 500}, fun(Patient) -> left_by(Patient, [], <<>>) end),
    [ok = thalweg:unregister(Name) || Name <- [listens, gone]].

left_by(Config, Way, Query) ->
    Socket = connected(Config),
    ok = gen_tcp:send(Socket, <<"GET /until-gone", Query/binary, " HTTP/1.1\r\nhost: test\r\n\r\n">>),
    receive listens -> ok end,
    ok = inet:setopts(Socket, Way),
    ok = gen_tcp:close(Socket),
    heard_of_the_end(Query).

heard_of_the_end(Of) ->
    receive
        {heard, Type} -> <<"http.disconnect">> = Type
    after 20000 -> ct:fail({not_heard, Of})
    end,
    thalweg_test:until(fun() -> thalweg:load(default) =:= [0] end).

%% Who says that nothing more comes of it waits for its answers all the same: they come whole, and then the end.
clients_that_end_what_they_send(Config) ->
    [
        begin
            Socket = connected(Config),
            ok = gen_tcp:send(Socket, Request),
            %% Before the answer, or amid it.
            _ = [timer:sleep(100) || Pause <- [pause], Pause =:= When],
            ok = gen_tcp:shutdown(Socket, write),
            {Request, Told} = {Request, iolist_to_binary(all_of(Socket))},
            {Request, {match, _}} = {Request, re:run(Told, ["^HTTP/1.1 20", Expected, "$"], [dotall])}
        end
     || When <- [at_once, pause],
        {Request, Expected} <- [
            {<<"GET /told HTTP/1.1\r\nhost: test\r\n\r\n">>, ".*/told /told  test"},
            {<<"GET /told HTTP/1.0\r\n\r\n">>, ".*/told /told  -"},
            {<<"GET /slowly HTTP/1.1\r\nhost: test\r\n\r\n">>, ".*4\r\nlate\r\n5\r\nlater\r\n0\r\n\r\n"},
            {<<"GET /slowly HTTP/1.0\r\n\r\n">>, ".*latelater"},
            {<<"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody">>, ".*POST /  body 1"},
            {<<"POST /count HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n">>, ".*4 4"},
            {<<"GET /slowly HTTP/1.1\r\nhost: test\r\n\r\nGET /told HTTP/1.1\r\nhost: test\r\n\r\n">>, ".*0\r\n\r\nHTTP/1.1 200 .*/told  test"}
        ]
    ].

%% What comes byte by byte, be it of a body or of what stands between its chunks, is not waited for any longer than the rest.
chunks_that_trickle(_Config) ->
    with_server(#{idle_ms_max => 200}, fun(Config) ->
        [
            begin
                {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, thalweg_asgi:port(proplists:get_value(server, Config)), [binary, {active, false}]),
                Head = <<"POST /count HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n">>,
                ok = gen_tcp:send(Socket, [Head, Begun]),
                {Begun, {ok, <<"HTTP/1.1 200 ", _/binary>> = Answer}} = {Begun, trickled(Socket, Bytes, 400)},
                {match, _} = re:run([Answer | all_of(Socket)], "gone$"),
                ok = gen_tcp:close(Socket)
            end
         || {Begun, Bytes} <- [{<<"1;">>, <<"a">>}, {<<>>, <<"1\r\na\r\n">>}]
        ]
    end).

%% Sends the same again and again until there is an answer.
trickled(_Socket, _Bytes, 0) -> no_answer;
trickled(Socket, Bytes, Times) ->
    _ = gen_tcp:send(Socket, Bytes),
    case gen_tcp:recv(Socket, 0, 10) of
        {error, timeout} -> trickled(Socket, Bytes, Times - 1);
        Told -> Told
    end.

%% Short chunks are asked for together.
many_chunks(_Config) ->
    with_server(#{}, fun(Config) ->
        Chunks = binary:copy(<<"1\r\na\r\n">>, 5000),
        {<<"HTTP/1.1 200 ", _/binary>>, Told} =
            http(Config, <<"POST /count HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n", Chunks/binary, "0\r\n\r\n">>),
        [5000, Longest] = [binary_to_integer(Word) || Word <- binary:split(Told, <<" ">>)],
        true = Longest > 100
    end).

with_server(Options, Test) ->
    {ok, Server} = thalweg_asgi:listen(Options#{app => <<"web:app">>}),
    try
        Test([{server, Server}])
    after
        thalweg_asgi:stop(Server)
    end.

connected(Config) ->
    Port = thalweg_asgi:port(proplists:get_value(server, Config)),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    Socket.

%% What an application may not say ends its request, and nobody reads it.
answers_that_are_none(Config) ->
    [
        {<<"HTTP/1.1 500 \r\ncontent-length: 0\r\nconnection: close\r\ndate: ", _:29/binary>>, <<>>} =
            http(Config, <<"GET ", Path/binary, " HTTP/1.1\r\n\r\n">>)
     || Path <- [<<"/body-first">>, <<"/value">>, <<"/name">>, <<"/no-name">>, <<"/two-lengths">>, <<"/no-length">>]
    ],
    %% It is cut off where it began already.
    {<<"HTTP/1.1 200 ", _/binary>>, <<"5\r\nfirst\r\n">>} = http(Config, <<"GET /two-starts HTTP/1.1\r\n\r\n">>),
    %% An application that sends out of turn is told so, and the client what became of it.
    [
        {error, {exception, <<"RuntimeError">>, Words, _}} = thalweg_asgi:run(<<"web:app">>, #{<<"path">> => Path}, <<>>)
     || {Path, Words} <- [
            {<<"/body-first">>, <<"http.response.body where http.response.start is expected">>},
            {<<"/two-starts">>, <<"http.response.start where http.response.body is expected">>}
        ]
    ],
    {<<"HTTP/1.1 201 ", _/binary>>, _} = http(Config, <<"GET / HTTP/1.1\r\nconnection: close\r\n\r\n">>).

%% What is no final status is no answer, and what has no body is not said to have one: another request may follow.
statuses(Config) ->
    Behind = <<"GET / HTTP/1.1\r\nconnection: close\r\n\r\n">>,
    [
        {Status, {<<"HTTP/1.1 500 ", _/binary>>, <<>>}} = {Status, http(Config, <<"GET /status?", Status/binary, " HTTP/1.1\r\n\r\n", Behind/binary>>)}
     || Status <- [<<"99">>, <<"100">>, <<"101">>, <<"103">>, <<"199">>, <<"1000">>]
    ],
    [
        begin
            {<<"HTTP/1.1 ", Status:3/binary, " ", Head/binary>>, <<"HTTP/1.1 201 ", _/binary>>} =
                http(Config, <<Method/binary, " /status?", Status/binary, " HTTP/1.1\r\n\r\n", Behind/binary>>),
            {Status, nomatch} = {Status, re:run(Head, "transfer-encoding", [caseless])},
            Lengths = [<<"content-length: 0">> || Status =:= <<"205">>],
            {Status, Lengths} = {Status, [Line || <<"content-length", _/binary>> = Line <- binary:split(Head, <<"\r\n">>, [global])]}
        end
     || Status <- [<<"204">>, <<"205">>, <<"304">>], Method <- [<<"GET">>, <<"HEAD">>]
    ],
    %% Nor where the application says so.
    {<<"HTTP/1.1 205 ", Said/binary>>, <<"HTTP/1.1 201 ", _/binary>>} =
        http(Config, <<"GET /status-of-length?205 HTTP/1.1\r\n\r\n", Behind/binary>>),
    {match, [[<<"content-length: 0">>]]} = re:run(Said, "content-length.*", [global, {newline, crlf}, {capture, all, binary}]),
    {<<"HTTP/1.1 204 ", None/binary>>, <<"HTTP/1.1 201 ", _/binary>>} =
        http(Config, <<"GET /status-of-length?204 HTTP/1.1\r\n\r\n", Behind/binary>>),
    nomatch = re:run(None, "content-length", [caseless]).

%% Every answer says when it was made, once.
dates(Config) ->
    Known = "date: (Mon|Tue|Wed|Thu|Fri|Sat|Sun), \\d\\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \\d{4} \\d\\d:\\d\\d:\\d\\d GMT(\r|$)",
    [
        begin
            {Head, _} = http(Config, Request),
            {Request, {match, [_]}} = {Request, re:run(Head, Known, [global])},
            {Request, {match, [_]}} = {Request, re:run(Head, "\r\ndate:", [global, caseless])}
        end
     || Request <- [<<"GET / HTTP/1.1\r\nconnection: close\r\n\r\n">>, <<"GET /stream HTTP/1.0\r\n\r\n">>, <<"GET / HTTP/1.1\r\nnone\r\n\r\n">>]
    ],
    {Own, _} = http(Config, <<"GET /own-date HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {match, [[<<"Date: mine">>]]} = re:run(Own, "date.*", [global, caseless, {newline, crlf}, {capture, all, binary}]).

%% An application that says that it closes the connection does, and says so once.
closed_by_the_application(Config) ->
    {<<"HTTP/1.1 200 ", Head/binary>>, <<"6\r\nbehind\r\n0\r\n\r\n">>} =
        http(Config, <<"GET /closes HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {match, [_]} = re:run(Head, "\r\nconnection:", [global, caseless]).

%% Both ends of the connection, in their scope.
ends_of_a_connection(Config) ->
    Socket = connected(Config),
    {ok, {_, Client}} = inet:sockname(Socket),
    {ok, {_, Server}} = inet:peername(Socket),
    ok = gen_tcp:send(Socket, <<"GET /ends HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n">>),
    Expected = io_lib:format("('127.0.0.1', ~w) ('127.0.0.1', ~w)", [Client, Server]),
    {_, _} = binary:match(iolist_to_binary(all_of(Socket)), iolist_to_binary(Expected)),
    %% Of a request that another server read it is that server's to say.
    {ok, {200, _, <<"None None">>}} = thalweg_asgi:run(<<"web:app">>, #{<<"path">> => <<"/ends">>}, <<>>).

%% A body that is longer, or shorter, than the application said is cut off, and with it the connection: nothing of it, and of what
%% is asked next, is taken for the other.
as_long_as_it_says(Config) ->
    [
        {<<"HTTP/1.1 200 ", _/binary>>, Told} =
            http(Config, <<"GET ", Path/binary, " HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nconnection: close\r\n\r\n">>)
     || {Path, Told} <- [{<<"/longer">>, <<"first">>}, {<<"/shorter">>, <<"behind">>}]
    ],
    %% What has no body has nothing to be counted.
    {<<"HTTP/1.1 200 ", _/binary>>, <<"HTTP/1.1 201 ", _/binary>>} =
        http(Config, <<"HEAD /shorter HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nconnection: close\r\n\r\n">>).

%% How a body is divided is said once, whatever the application says of it.
chunks_are_ours(Config) ->
    {Head, <<"6\r\nbehind\r\n0\r\n\r\n">>} = http(Config, <<"GET /chunked HTTP/1.1\r\nconnection: close\r\n\r\n">>),
    {match, [_]} = re:run(Head, "transfer-encoding: chunked", [caseless, global]),
    {Older, <<"behind">>} = http(Config, <<"GET /chunked HTTP/1.0\r\n\r\n">>),
    nomatch = re:run(Older, "transfer-encoding", [caseless]).

head(Config) ->
    {<<"HTTP/1.1 201 ", _/binary>>, <<>>} = http(Config, <<"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n">>).

%% Where nobody can be accepted any more, those who were stay, and others are when there is room again.
short_of_descriptors(_Config) ->
    Source =
        "{ok, Server} = thalweg_asgi:listen(#{app => <<\"none:none\">>}), "
        "io:format(\"~w ~s~n\", [thalweg_asgi:port(Server), os:getpid()]), timer:sleep(infinity).",
    Ebin = filename:dirname(code:which(thalweg)),
    Most = 100,
    Program = "ulimit -n " ++ integer_to_list(Most) ++ "; exec \"$0\" \"$@\"",
    Machine = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", Program, os:find_executable("erl"), "-noshell", "-pa", Ebin, "-eval", Source]}, {line, 1024}, exit_status
    ]),
    Line = receive {Machine, {data, {eol, Of}}} -> Of end,
    {ok, [{integer, _, Port}, {integer, _, OsPid}], _} = erl_scan:string(Line),
    Connected = fun() ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        Socket
    end,
    Answered = fun(Socket) ->
        ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\nhost: test\r\n\r\n">>),
        {ok, <<"HTTP/1.1 502 ", _/binary>>} = gen_tcp:recv(Socket, 0)
    end,
    %% Everything that it takes to answer is loaded from here on.
    Answered(Connected()),
    [First | Others] = [Connected() || _ <- lists:seq(1, 2 * Most)],
    thalweg_test:until(fun() ->
        {ok, Descriptors} = file:list_dir("/proc/" ++ integer_to_list(OsPid) ++ "/fd"),
        length(Descriptors) >= Most
    end),
    Answered(First),
    [ok = gen_tcp:close(Socket) || Socket <- Others],
    Answered(Connected()),
    [] = os:cmd("kill -KILL " ++ integer_to_list(OsPid)),
    receive {Machine, {exit_status, _}} -> ok end.

%% For whatever reason that ends: with the same one, and so do its connections.
ends_with_its_owner(_Config) ->
    [ends_as(Reason, Told) || {Reason, Told} <- [{done, normal}, {shutdown, shutdown}, {badly, badly}, {kill, killed}]],
    %% Before it has taken a first look.
    {Owner, Monitor} = spawn_monitor(fun() -> exit(thalweg_asgi:listen(#{app => <<"web:app">>})) end),
    receive
        {'DOWN', Monitor, process, Owner, {ok, Server}} -> thalweg_test:until(fun() -> not is_process_alive(Server) end)
    end.

%% A process that stops a server stops nothing else.
stopped_by_another(_Config) ->
    {Owner, Server} = owned(),
    Monitor = monitor(process, Owner),
    ok = thalweg_asgi:stop(Server),
    receive
        {'DOWN', Monitor, process, Owner, Reason} -> ct:fail({owner_ended, Reason})
    after 50 -> Owner ! done
    end.

%% A server, and another process that it belongs to.
owned() ->
    Self = self(),
    Owner = spawn(fun() ->
        {ok, Server} = thalweg_asgi:listen(#{app => <<"web:app">>}),
        Self ! {server, Server},
        receive done -> ok end
    end),
    receive {server, Server} -> {Owner, Server} end.

ends_as(Reason, Told) ->
    {Owner, Server} = owned(),
    Port = thalweg_asgi:port(Server),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"HEAD / HTTP/1.1\r\nhost: test\r\n\r\n">>),
    {ok, <<"HTTP/1.1 201 ", _/binary>>} = gen_tcp:recv(Socket, 0),
    Monitor = monitor(process, Server),
    _ = case Reason of done -> Owner ! done; _ -> exit(Owner, Reason) end,
    receive
        {'DOWN', Monitor, process, Server, Told} -> ok
    end,
    {error, closed} = gen_tcp:recv(Socket, 0),
    thalweg_test:until(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, []) =:= {error, econnrefused} end).

%% Everything that comes until the connection ends: the first head, and what is behind it. Each request names a host.
http(Config, Request) -> raw(Config, binary:replace(Request, <<" HTTP/1.1\r\n">>, <<" HTTP/1.1\r\nhost: test\r\n">>, [global])).

raw(Config, Request) ->
    Port = thalweg_asgi:port(proplists:get_value(server, Config)),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, Request),
    Bytes = iolist_to_binary(all_of(Socket)),
    [Head, Body] = binary:split(Bytes, <<"\r\n\r\n">>),
    {Head, Body}.

%% What is sent in parts may come in parts.
comes(Socket, Expected) -> comes(Socket, Expected, <<>>).

comes(Socket, Expected, Before) ->
    {ok, Bytes} = gen_tcp:recv(Socket, 0, 60000),
    Answer = <<Before/binary, Bytes/binary>>,
    case re:run(Answer, Expected, [dotall]) of
        {match, _} -> ok;
        nomatch -> comes(Socket, Expected, Answer)
    end.

all_of(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Bytes} -> [Bytes | all_of(Socket)];
        {error, closed} -> []
    end.
