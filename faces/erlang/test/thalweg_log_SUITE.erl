%% The streams of a server beside us: appended to, read, and followed with credit.
-module(thalweg_log_SUITE).
-compile([export_all, nowarn_export_all]).

all() -> [appended_and_read, followed, with_credit, closed, refused].

init_per_suite(Config) ->
    %% A socket's path is short.
    Store = string:trim(os:cmd("mktemp -d")),
    Program = os:getenv("THALWEG_SERVER"),
    Port = open_port({spawn_executable, Program}, [
        {args, ["serve", "--data", Store, "--listen", "127.0.0.1:0"]}, {line, 1024}, exit_status, stderr_to_stdout
    ]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    [{server, OsPid}, {store, Store}, {endpoint, filename:join(Store, "thalweg.shm")} | thalweg_test:start(Config, #{size => 1})].
end_per_suite(Config) ->
    Server = integer_to_list(proplists:get_value(server, Config)),
    _ = os:cmd("kill -TERM " ++ Server),
    thalweg_test:until(fun() -> not filelib:is_dir("/proc/" ++ Server) end),
    ok = file:del_dir_r(proplists:get_value(store, Config)),
    thalweg_test:stop(Config).

init_per_testcase(Case, Config) ->
    {ok, Client} = thalweg_log:connect(proplists:get_value(endpoint, Config)),
    Name = atom_to_binary(Case),
    Request = #{name => Name, content_type => undefined, lifetime => undefined, data => undefined, closed => false},
    {ok, #{created := true}} = log_client:create(thalweg_client:transport(Client), Request),
    thalweg_client:close(Client),
    [{name, Name} | Config].
end_per_testcase(_Case, _Config) -> ok.

with(Config) ->
    {ok, Client} = thalweg_log:connect(proplists:get_value(endpoint, Config)),
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
    {error, timeout} = thalweg_log:next(Tail, 50).

%% No more pieces than there is credit for, and nothing is lost meanwhile.
with_credit(Config) ->
    {Client, Name} = with(Config),
    {ok, {Reference, _, _} = Tail} = thalweg_log:tail(Client, Name, <<"-1">>, 1),
    Appended = [integer_to_binary(N) || N <- lists:seq(1, 50)],
    [{ok, _} = thalweg_log:append(Client, Name, Data) || Data <- Appended],
    {messages, Messages} = process_info(self(), messages),
    true = length([Of || {thalweg, Of, _} <- Messages, Of =:= Reference]) =< 1,
    Whole = iolist_to_binary(Appended),
    Whole = iolist_to_binary(gathered(Tail, byte_size(Whole))).

gathered(_Tail, 0) -> [];
gathered(Tail, Left) ->
    {data, Data, _} = thalweg_log:next(Tail),
    [Data | gathered(Tail, Left - byte_size(Data))].

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
