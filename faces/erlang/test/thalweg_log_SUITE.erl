%% The streams of a server beside us: appended to, read, and followed with credit.
-module(thalweg_log_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        appended_and_read, followed, with_credit, with_the_servers_credit, left, closed, refused, reconnected, lost_for_good, ends_that_were_taken, names_and_data,
        timeouts_that_are_none
    ].

init_per_suite(Config) ->
    {Store, OsPid} = served(),
    [{server, OsPid}, {store, Store}, {endpoint, endpoint(Store)} | thalweg_test:start(Config, #{size => 1})].

served() ->
    %% A socket's path is short.
    Store = string:trim(os:cmd("mktemp -d")),
    {Store, serve(Store)}.

serve(Store) ->
    Program = os:getenv("THALWEG_SERVER"),
    Port = open_port({spawn_executable, Program}, [
        {args, ["serve", "--data", Store, "--listen", "127.0.0.1:0"]}, {line, 1024}, exit_status, stderr_to_stdout
    ]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    OsPid.

endpoint(Store) -> filename:join(Store, "thalweg.shm").

end_per_suite(Config) ->
    struck("TERM", proplists:get_value(server, Config)),
    ok = file:del_dir_r(proplists:get_value(store, Config)),
    thalweg_test:stop(Config).

struck(Signal, Server) ->
    OsPid = integer_to_list(Server),
    _ = os:cmd("kill -" ++ Signal ++ " " ++ OsPid),
    thalweg_test:until(fun() -> not filelib:is_dir("/proc/" ++ OsPid) end).

init_per_testcase(Case, Config) ->
    {ok, Client} = connected(proplists:get_value(endpoint, Config)),
    Name = atom_to_binary(Case),
    created(Client, Name),
    thalweg_client:close(Client),
    [{name, Name} | Config].
end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

created(Client, Name) ->
    Request = #{name => Name, content_type => undefined, lifetime => undefined, data => undefined, closed => false},
    {ok, #{created := true}} = log_client:create(thalweg_client:transport(Client), Request).

connected(Endpoint) -> thalweg_log:connect(Endpoint, #{connect_within => 60000}).

with(Config) ->
    {ok, Client} = connected(proplists:get_value(endpoint, Config)),
    {Client, proplists:get_value(name, Config)}.

appended_and_read(Config) ->
    {Client, Name} = with(Config),
    {ok, _} = thalweg_log:append(Client, Name, <<"one">>),
    {ok, Next} = thalweg_log:append(Client, Name, <<"two">>),
    {ok, {data, <<"onetwo">>, Next}} = thalweg_log:read(Client, Name, <<"-1">>),
    {ok, {data, <<>>, Next}} = thalweg_log:read(Client, Name, Next).

followed(Config) ->
    {Client, Name} = with(Config),
    {ok, Tail} = thalweg_log:tail(Client, Name, <<"-1">>),
    {ok, First} = thalweg_log:append(Client, Name, <<"one">>),
    {data, <<"one">>, First} = thalweg_log:next(Tail),
    {ok, Second} = thalweg_log:append(Client, Name, <<"two">>),
    {data, <<"two">>, Second} = thalweg_log:next(Tail),
    ok = thalweg_log:close(Tail),
    {ok, _} = thalweg_log:append(Client, Name, <<"three">>),
    {'EXIT', {badarg, _}} = (catch thalweg_log:next(Tail, 50)),
    ok.

%% Behind the end of a tail, and of a request that was answered, nothing comes and nobody waits.
ends_that_were_taken(Config) ->
    {Client, Name} = with(Config),
    Transport = thalweg_client:transport(Client),
    Last = #{name => Name, data => <<"last">>, content_type => undefined, producer => undefined, close => true},
    {ok, _} = log_client:append(Transport, Last),
    {ok, Tail} = thalweg_log:tail(Client, Name, <<"-1">>),
    {data, <<"last">>, Next} = thalweg_log:next(Tail),
    {closed, Next} = thalweg_log:next(Tail),
    [{'EXIT', {badarg, _}} = (catch thalweg_log:next(Tail, Timeout)) || Timeout <- [0, 60000, infinity]],
    [{'EXIT', {badarg, _}} = (catch thalweg_client:next(Tail, Timeout)) || Timeout <- [0, 60000, infinity]],
    {ok, Request} = thalweg_client:send(Client, log_types:encode_request({read, #{name => Name, offset => <<"-1">>}})),
    {ok, _} = thalweg_client:await(Request, 60000),
    [{'EXIT', {badarg, _}} = (catch thalweg_client:await(Request, Timeout)) || Timeout <- [0, 60000, infinity]],
    ok.

%% A name is an atom or text, everywhere; what is neither, and data that is none, is a wrong argument.
names_and_data(Config) ->
    {Client, Name} = with(Config),
    Atom = binary_to_atom(Name),
    {ok, Next} = thalweg_log:append(Client, Atom, <<"one">>),
    {ok, {data, <<"one">>, Next}} = thalweg_log:read(Client, Atom, <<"-1">>),
    {ok, Tail} = thalweg_log:tail(Client, Atom, <<"-1">>),
    {data, <<"one">>, Next} = thalweg_log:next(Tail),
    ok = thalweg_log:close(Tail),
    [
        {Wrong, {'EXIT', {badarg, _}}} = {Wrong, catch Act(Wrong)}
     || {Act, Several} <- [
            {fun(W) -> thalweg_log:append(Client, W, <<>>) end, [<<255>>, "name", 1]},
            {fun(W) -> thalweg_log:append(Client, Name, W) end, [data, "data", 1, <<1:1>>]},
            {fun(W) -> thalweg_log:read(Client, W, <<"-1">>) end, [<<255>>, "name", 1]},
            {fun(W) -> thalweg_log:read(Client, Name, W) end, [<<255>>, "-1", -1]},
            {fun(W) -> thalweg_log:tail(Client, W, <<"-1">>) end, [<<255>>, "name", 1]},
            {fun(W) -> thalweg_log:tail(Client, Name, W) end, [<<255>>, "-1", -1]}
        ],
        Wrong <- Several
    ].

%% No more pieces than there is credit for, and nothing is lost meanwhile.
with_credit(Config) ->
    {Client, Name} = with(Config),
    {ok, Tail} = thalweg_log:tail(Client, Name, <<"-1">>, 1),
    Reference = thalweg_client:reference(Tail),
    Appended = [integer_to_binary(N) || N <- lists:seq(1, 50)],
    [{ok, _} = thalweg_log:append(Client, Name, Data) || Data <- Appended],
    {messages, Messages} = process_info(self(), messages),
    true = length([Of || {thalweg, Of, _} <- Messages, Of =:= Reference]) =< 1,
    Whole = iolist_to_binary(Appended),
    Whole = iolist_to_binary(received(Tail, Reference, byte_size(Whole))),
    ok = thalweg_log:close(Tail),
    {ok, Again} = thalweg_log:tail(Client, Name, <<"-1">>, 1),
    Whole = iolist_to_binary(gathered(Again, byte_size(Whole))).

%% Who receives by itself is sent a piece for each that it says it took.
received(_Tail, _Reference, 0) -> [];
received(Tail, Reference, Left) ->
    receive
        {thalweg, Reference, Message} ->
            {data, Data, _} = thalweg_log:message(Message),
            ok = thalweg_client:grant(Tail, 1),
            [Data | received(Tail, Reference, Left - byte_size(Data))]
    end.

gathered(_Tail, 0) -> [];
gathered(Tail, Left) ->
    {data, Data, _} = thalweg_log:next(Tail),
    [Data | gathered(Tail, Left - byte_size(Data))].

%% Who asks for no credit has what the server says, which a server of ours says in its welcome.
with_the_servers_credit(Config) ->
    Endpoint = filename:join(proplists:get_value(store, Config), "says.sock"),
    {ok, Listener} = gen_tcp:listen(0, [{ifaddr, {local, Endpoint}}, binary, {active, false}]),
    {ok, Client} = thalweg_client:connect(Endpoint),
    {ok, Socket} = gen_tcp:accept(Listener),
    {ok, <<"TwSv", _/binary>>} = gen_tcp:recv(Socket, 48),
    ok = gen_tcp:send(Socket, [<<"TwSv", 1:16/little, 0:16, 0:32, 2:32/little>>, <<0:256>>]),
    Asked = fun(Options) ->
        {ok, Stream} = thalweg_client:stream(Client, <<"asked">>, Options),
        {ok, <<5:32/little, 1, 0, 0:16, Call:64/little, 0:32, Credit:32/little>>} = gen_tcp:recv(Socket, 24),
        {ok, <<"asked">>} = gen_tcp:recv(Socket, 5),
        {Stream, Call, Credit}
    end,
    {Stream, Call, 0} = Asked(#{}),
    [ok = gen_tcp:send(Socket, <<1:32/little, 2, 0, 0:16, Call:64/little, 0:64, Item>>) || Item <- "ab"],
    {item, <<"a">>} = thalweg_client:next(Stream),
    {item, <<"b">>} = thalweg_client:next(Stream),
    [{ok, <<0:32, 5, 0, 0:16, Call:64/little, 0:32, 1:32/little>>} = gen_tcp:recv(Socket, 24) || _ <- "ab"],
    {Other, _, 3} = Asked(#{credit => 3}),
    ok = thalweg_client:cancel(Other),
    ok = thalweg_client:cancel(Stream),
    ok = thalweg_client:close(Client),
    ok = gen_tcp:close(Socket),
    ok = gen_tcp:close(Listener).

%% Who is thrown out of reading a stream has left it: nothing of it is under way, and nothing comes of it.
left(Config) ->
    {Client, Name} = with(Config),
    Transport = thalweg_client:stream_transport(Client),
    Tail = fun(Fold) -> log_client:tail(Transport, #{name => Name, offset => <<"-1">>}, Fold, none) end,
    {ok, _} = thalweg_log:append(Client, Name, <<"one">>),
    {'EXIT', thrown_out} = (catch Tail(fun(_, _) -> exit(thrown_out) end)),
    0 = thalweg_client:in_flight(Client),
    {ok, _} = thalweg_log:append(Client, Name, <<"two">>).

closed(Config) ->
    {Client, Name} = with(Config),
    {ok, Tail} = thalweg_log:tail(Client, Name, <<"-1">>),
    Request = #{name => Name, data => <<"last">>, content_type => undefined, producer => undefined, close => true},
    {ok, #{next := Next}} = log_client:append(thalweg_client:transport(Client), Request),
    {data, <<"last">>, Next} = thalweg_log:next(Tail),
    {closed, Next} = thalweg_log:next(Tail).

refused(Config) ->
    {Client, _} = with(Config),
    {ok, Tail} = thalweg_log:tail(Client, <<"no such stream">>, <<"-1">>),
    {refused, _} = thalweg_log:next(Tail),
    {refused, _} = thalweg_log:append(Client, <<"no such stream">>, <<"x">>).

%% Calls and tails hear that their server is gone, and the next ones go to the one that came after it.
reconnected(_Config) ->
    {Store, Server} = served(),
    {ok, Client} = thalweg_log:connect(endpoint(Store), #{connect_within => 60000, reconnect => true}),
    created(Client, <<"lasting">>),
    {ok, First} = thalweg_log:append(Client, <<"lasting">>, <<"one">>),
    {ok, Tail} = thalweg_log:tail(Client, <<"lasting">>, First),
    struck("KILL", Server),
    {error, {fault, disconnected, _}} = thalweg_log:next(Tail),
    Again = serve(Store),
    {ok, {data, <<"one">>, First}} = thalweg_log:read(Client, <<"lasting">>, <<"-1">>),
    {ok, Second} = thalweg_log:append(Client, <<"lasting">>, <<"two">>),
    {ok, Behind} = thalweg_log:tail(Client, <<"lasting">>, First),
    {data, <<"two">>, Second} = thalweg_log:next(Behind),
    ok = thalweg_client:close(Client),
    {error, {fault, _, _}} = thalweg_log:next(Behind),
    struck("TERM", Again),
    ok = file:del_dir_r(Store).

%% Who did not ask for that is told so, however often.
lost_for_good(_Config) ->
    {Store, Server} = served(),
    {ok, Client} = connected(endpoint(Store)),
    created(Client, <<"lost">>),
    struck("KILL", Server),
    Again = serve(Store),
    {ok, Other} = connected(endpoint(Store)),
    {ok, _} = thalweg_log:append(Other, <<"lost">>, <<"one">>),
    {error, {fault, _, _}} = thalweg_log:append(Client, <<"lost">>, <<"two">>),
    [{error, {fault, not_sent, _}} = thalweg_log:append(Client, <<"lost">>, <<"two">>) || _ <- lists:seq(1, 3)],
    ok = thalweg_client:close(Client),
    struck("TERM", Again),
    ok = file:del_dir_r(Store).

%% They are refused before anything is waited for, and what was asked goes on.
timeouts_that_are_none(Config) ->
    {Client, Name} = with(Config),
    {ok, _} = thalweg_log:append(Client, Name, <<"one">>),
    {ok, Tail} = thalweg_log:tail(Client, Name, <<"-1">>),
    {ok, Request} = thalweg_client:send(Client, log_types:encode_request({read, #{name => Name, offset => <<"-1">>}})),
    [
        {Timeout, {'EXIT', {badarg, _}}} = {Timeout, catch Waits(Timeout)}
     || Timeout <- [-1, 1.5, soon, 1 bsl 32],
        Waits <- [
            fun(T) -> thalweg_log:next(Tail, T) end,
            fun(T) -> thalweg_client:next(Tail, T) end,
            fun(T) -> thalweg_client:await(Request, T) end
        ]
    ],
    {data, <<"one">>, _} = thalweg_log:next(Tail, infinity),
    {ok, _} = thalweg_client:await(Request, infinity),
    ok = thalweg_log:close(Tail).
