%% Calls everything that an echo server answers, or takes single steps. What is expected of it: conformance/matrix/README.md.
-module(echo_caller).
-export([main/1]).

-define(LAST, 16#ffffffff).
-define(UNKNOWN, <<16#91, 16#92, 16#af, "EchoNoSuchThing", 16#80>>).

main([_, Endpoint, Within | Steps]) ->
    echo_probe:run(Endpoint, Within, Steps),
    halt(0);
main([Golden, Endpoint]) ->
    {ok, Client} = thalweg_client:connect(Endpoint, #{schema => echo_types:schema_hash(), connect_within => 20000}),
    Every = requests(Golden),
    Steps = [
        fun() -> [echoes(Client, Request) || Request <- Every] end,
        fun() -> forks(Client, Golden) end,
        fun() -> at_once(Client, Every) end,
        fun() -> counted(Client) end,
        fun() -> refused(Client, Golden) end,
        fun() -> unknown(Client) end,
        fun() -> cancelled(Client) end,
        fun() -> overdue(Client) end,
        fun() -> [echoes(Client, hd(Every))] end
    ],
    try lists:sum([length(lists:flatten([Step()])) || Step <- Steps]) of
        Calls ->
            io:format("ok ~b~n", [Calls]),
            halt(0)
    catch
        Class:Reason:Stack ->
            io:format("~p: ~p~n~p~n", [Class, Reason, Stack]),
            halt(1)
    end.

%% Every golden request that is answered with what it asks, as its frame says it.
requests(Golden) ->
    Frames = [read(Path) || Path <- filelib:wildcard(filename:join(Golden, "*.bin"))],
    Decoded = [element(2, echo_types:decode_request(Frame)) || <<16#91, _/binary>> = Frame <- Frames],
    [Request || Request <- Decoded, not lists:member(element(1, Request), [count, fail, put, peek, peek_committed])].

read(Path) ->
    {ok, Bytes} = file:read_file(Path),
    Bytes.

golden(Golden, Name) ->
    {ok, {_, Request}} = echo_types:decode_request(read(filename:join(Golden, "echo_" ++ Name ++ "_request.bin"))),
    Request.

echoes(Client, {Command, Request}) ->
    {ok, Response} = echo_client:Command(thalweg_client:transport(Client), Request),
    equal(Response, Request).

equal(Same, Same) -> same.

forks(Client, Golden) ->
    Fork = integer_to_binary(erlang:unique_integer([positive]) + erlang:system_time()),
    #{value := Value} = golden(Golden, "put"),
    Transport = thalweg_client:transport(Client),
    [
        equal(echo_client:peek(Transport, #{fork => Fork}), {ok, #{value => undefined}}),
        equal(echo_client:put(Transport, #{fork => Fork, value => Value}), {ok, #{version => 1}}),
        equal(echo_client:put(Transport, #{fork => Fork, value => Value}), {ok, #{version => 2}}),
        equal(echo_client:peek(Transport, #{fork => Fork}), {ok, #{value => Value}}),
        equal(echo_client:peek_committed(Transport, #{fork => Fork}), {ok, #{value => Value}})
    ].

%% 64 in flight, waited for in another order than they were sent.
at_once(Client, Every) ->
    Sent = [
        begin
            {_, Request} = Asked = lists:nth(1 + Number rem length(Every), Every),
            {ok, Call} = thalweg_client:send(Client, echo_types:encode_request(Asked)),
            {Request, Call}
        end
     || Number <- lists:seq(0, 63)
    ],
    [
        begin
            {ok, Frame} = thalweg_client:await(Call, 20000),
            {ok, {_, Response}} = echo_types:decode_response(Frame),
            equal(Response, Request)
        end
     || {Request, Call} <- lists:reverse(Sent)
    ].

counted(Client) ->
    Transport = thalweg_client:stream_transport(Client, #{credit => 16}),
    Fold = fun(#{value := Value}, Values) -> [Value | Values] end,
    {ok, {#{count := 1000}, Values}} = echo_client:count(Transport, #{first => 1, last => 1000}, Fold, []),
    equal(lists:reverse(Values), lists:seq(1, 1000)).

refused(Client, Golden) ->
    #{reason := Reason} = Request = golden(Golden, "fail"),
    equal(echo_client:fail(thalweg_client:transport(Client), Request), {refused, Reason}).

%% An error frame, or the fault.
unknown(Client) ->
    case thalweg_client:call(Client, ?UNKNOWN) of
        {error, {fault, unknown_command, _}} -> same;
        {ok, Frame} ->
            {ok, {error_response, _}} = echo_types:decode_response(Frame),
            same
    end.

endless() -> echo_types:encode_request({count, #{first => 0, last => ?LAST}}).

cancelled(Client) ->
    {ok, Stream} = thalweg_client:stream(Client, endless(), #{credit => 4}),
    {item, _} = thalweg_client:next(Stream),
    ok = thalweg_client:cancel(Stream),
    receive Late -> error({after_the_cancel, Late})
    after 20 -> ok
    end,
    badarg = try thalweg_client:next(Stream) catch error:Reason -> Reason end,
    same.

overdue(Client) ->
    {ok, Stream} = thalweg_client:stream(Client, endless(), #{credit => 1, deadline => 50}),
    timer:sleep(100),
    Left = drain(Stream),
    {error, {fault, deadline_exceeded, _}} = Left,
    same.

drain(Stream) ->
    case thalweg_client:next(Stream) of
        {item, _} -> drain(Stream);
        End -> End
    end.
