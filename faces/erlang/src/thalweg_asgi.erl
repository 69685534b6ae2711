%% @doc ASGI applications of Python's, served from Erlang.
%%
%% {@link run/3} has an application answer one request that was read already, by a web server in Erlang say. {@link listen/1} is
%% a small server of its own: HTTP/1.1, one process per connection, heads, bodies and connections bounded, long bodies read as they are
%% asked for (`thalweg_body'). Either way a `runner', a
%% generator function in Python, makes an application's answer: `thalweg.asgi:respond' unless another is named.
-module(thalweg_asgi).

-export([run/3, run/4, open/4, listen/1, port/1, stop/1]).
-export([accept/3, acceptor/2, go_on/2, connections/4]).
-export_type([scope/0, answer/0, options/0]).

%% As ASGI has it; what is left out is filled in.
-type scope() :: #{binary() => term()}.
-type answer() :: {Status :: pos_integer(), [{binary(), binary()}], binary()}.
-type options() :: #{
    pool => atom(),
    %% `module:function', called with the application's name, the scope and the body, or the process that `thalweg.asgi.Body' reads it by.
    runner => binary(),
    timeout => timeout(),
    %% Of the server.
    app => binary(),
    ip => inet:ip_address(),
    port => inet:port_number(),
    body_bytes_max => pos_integer(),
    connections_max => pos_integer(),
    idle_ms_max => pos_integer()
}.

%% How the body of an answer is divided: not at all, in chunks, by the end of the connection, by its length.
-type body() :: none | chunks | until_closed | {left, non_neg_integer()}.
%% An answer that is under way, and the request's body.
-type exchange() :: {thalweg_stream:stream(), thalweg_body:body()}.

%% Parts of an answer that wait here for a client to take them: as many as keep a worker from waiting for each.
-define(PARTS_MAX, 4).
%% Characters that are told of why an answer was cut off.
-define(REASON_CHARACTERS_MAX, 4096).
%% Milliseconds until the next attempt to accept a client, after one that failed.
-define(ACCEPT_PAUSE, 50).
%% Milliseconds without a client after which an acceptor begins anew, or hibernates: a process that runs no code of this module
%% survives the loading of a newer one.
-define(LIE_DOWN, 1000).

-spec run(binary(), scope(), iodata()) -> {ok, answer()} | {error, term()}.
run(App, Scope, Body) -> run(App, Scope, Body, #{}).

%% @doc The whole answer of an application, called `module:attribute', to one request; `no_answer' where what a runner
%% brings is none: a body without a status in front of it.
-spec run(binary(), scope(), iodata(), options()) -> {ok, answer()} | {error, term()}.
run(App, Scope, Body, Options) ->
    ok = thalweg_options:demand(answer, Options),
    Timeout = maps:get(timeout, Options, 5000),
    case begin_answer(App, Scope, {bytes, iolist_to_binary(Body)}, maps:with([pool, runner], Options)) of
        {ok, Stream} -> whole(Stream, Timeout, none, []);
        {error, Reason} -> {error, Reason}
    end.

%% Status and headers come first, and once.
-spec whole(thalweg_stream:stream(), timeout(), none | {pos_integer(), list()}, [binary()]) -> {ok, answer()} | {error, term()}.
whole(Stream, Timeout, Head, Parts) ->
    case {thalweg_stream:next(Stream, Timeout), Head} of
        {{data, {_, _} = Told}, none} -> whole(Stream, Timeout, Told, Parts);
        {{data, Part}, {_, _}} when is_binary(Part) -> whole(Stream, Timeout, Head, [Part | Parts]);
        {{data, _}, _} ->
            ok = thalweg_stream:close(Stream),
            {error, no_answer};
        {done, none} -> {ok, {500, [], <<>>}};
        {done, {Status, Headers}} -> {ok, {Status, Headers, iolist_to_binary(lists:reverse(Parts))}};
        {{error, Reason}, _} -> {error, Reason}
    end.

%% @doc An application's answer as it comes: `{Status, Headers}', then its body in parts.
-spec open(binary(), scope(), iodata(), options()) -> {ok, thalweg_stream:stream()} | {error, term()}.
open(App, Scope, Body, Options) ->
    ok = thalweg_options:demand(answer_stream, Options),
    begin_answer(App, Scope, {bytes, iolist_to_binary(Body)}, Options).

-spec begin_answer(binary(), scope(), {bytes, binary()} | pid(), map()) -> {ok, thalweg_stream:stream()} | {error, term()}.
begin_answer(App, Scope, Body, Options) ->
    [Module, Function] = binary:split(maps:get(runner, Options, <<"thalweg.asgi:respond">>), <<":">>),
    thalweg_stream:open(Module, Function, [App, Scope, Body], maps:without([runner], Options)).

%% @doc Serves an application. The server ends with the process that starts it.
-spec listen(options()) -> {ok, pid()} | {error, term()}.
listen(Options) ->
    case thalweg_options:check(server, Options) of
        ok -> begin_server(Options);
        {error, Wrong} -> {error, Wrong}
    end.

-spec begin_server(options()) -> {ok, pid()} | {error, term()}.
begin_server(Options) ->
    Address = maps:get(ip, Options, {127, 0, 0, 1}),
    Wishes = [binary, {packet, raw}, {active, false}, {reuseaddr, true}, {ip, Address}, {buffer, 8192}, {backlog, 1024}],
    %% A client that sends nothing more may still wait for its answers; one that takes nothing more either is told of by a reset.
    Ends = [{exit_on_close, false}, {show_econnreset, true}],
    %% A client that takes nothing of an answer does not keep its connection for ever.
    Patience = [{send_timeout, maps:get(idle_ms_max, Options, 30000)}, {send_timeout_close, true}],
    case gen_tcp:listen(maps:get(port, Options, 0), [{nodelay, true} | Wishes ++ Ends ++ Patience]) of
        {ok, Socket} ->
            {ok, Server} = proc_lib:start_link(?MODULE, accept, [Socket, Options, self()]),
            ok = gen_tcp:controlling_process(Socket, Server),
            Server ! {socket, Socket},
            {ok, Server};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Where it listens.
-spec port(pid()) -> inet:port_number().
port(Server) ->
    Reference = monitor(process, Server),
    Server ! {port, self(), Reference},
    receive
        {Reference, Port} ->
            demonitor(Reference, [flush]),
            Port;
        {'DOWN', Reference, process, _, Reason} -> exit(Reason)
    end.

%% @doc Ends it, and every connection. From any process.
-spec stop(pid()) -> ok.
stop(Server) ->
    Reference = monitor(process, Server),
    unlink(Server),
    exit(Server, shutdown),
    receive
        {'DOWN', Reference, process, _, _} -> ok
    end.

%% @private Accepts as many connections as there may be.
-spec accept(gen_tcp:socket(), options(), pid()) -> no_return().
accept(Socket, Options, Owner) ->
    %% Before the owner goes on: its end is told of from here on, whatever the reason.
    _ = process_flag(trap_exit, true),
    proc_lib:init_ack({ok, self()}),
    receive
        {socket, Socket} -> ok;
        {'EXIT', Owner, Reason} -> exit(Reason)
    end,
    Server = self(),
    Acceptor = spawn_link(?MODULE, acceptor, [Socket, Server]),
    connections(Socket, Options, {Owner, Acceptor}, 0).

%% @private
-spec acceptor(gen_tcp:socket(), pid()) -> no_return().
acceptor(Listener, Server) ->
    case gen_tcp:accept(Listener, ?LIE_DOWN) of
        {ok, Socket} ->
            ok = gen_tcp:controlling_process(Socket, Server),
            Server ! {accepted, self(), Socket},
            go_on(Listener, Server);
        {error, timeout} -> ?MODULE:acceptor(Listener, Server);
        {error, closed} -> exit({shutdown, closed});
        %% A client left again, or the machine is short of something: there is more once connections end.
        {error, _} ->
            timer:sleep(?ACCEPT_PAUSE),
            ?MODULE:acceptor(Listener, Server)
    end.

%% @private At the bound that takes as long as a connection does.
-spec go_on(gen_tcp:socket(), pid()) -> no_return().
go_on(Listener, Server) ->
    receive
        go_on -> ?MODULE:acceptor(Listener, Server)
    after ?LIE_DOWN -> erlang:hibernate(?MODULE, go_on, [Listener, Server])
    end.

%% @private
-spec connections(gen_tcp:socket(), options(), {pid(), pid()}, non_neg_integer()) -> no_return().
connections(Listener, Options, {Owner, Acceptor} = Both, Count) ->
    Most = maps:get(connections_max, Options, 1024),
    receive
        {accepted, Acceptor, Socket} ->
            Connection = spawn_link(fun() -> receive go -> serve(Socket, Options, <<>>) end end),
            ok = gen_tcp:controlling_process(Socket, Connection),
            Connection ! go,
            %% At the bound no client is accepted until one leaves.
            _ = [Acceptor ! go_on || Count + 1 < Most],
            ?MODULE:connections(Listener, Options, Both, Count + 1);
        {port, From, Reference} ->
            {ok, Port} = inet:port(Listener),
            From ! {Reference, Port},
            ?MODULE:connections(Listener, Options, Both, Count);
        {'EXIT', Owner, Reason} -> end_all(Reason);
        {'EXIT', Acceptor, Reason} -> exit(Reason);
        {'EXIT', _, shutdown} ->
            %% A process stops it. Its owner did not ask for that, and goes on.
            true = unlink(Owner),
            exit(shutdown);
        {'EXIT', _, _} ->
            _ = [Acceptor ! go_on || Count =:= Most],
            ?MODULE:connections(Listener, Options, Both, max(0, Count - 1))
    after ?LIE_DOWN -> proc_lib:hibernate(?MODULE, connections, [Listener, Options, Both, Count])
    end.

%% Ends as the owner did. Connections end whatever the reason was; links alone would leave them after a `normal' one.
-spec end_all(term()) -> no_return().
end_all(Reason) ->
    {links, Links} = process_info(self(), links),
    _ = [exit(Linked, shutdown) || Linked <- Links, is_pid(Linked)],
    exit(Reason).

%% One connection: request after request. What came and was not taken yet is handed on.
-spec serve(gen_tcp:socket(), options(), binary()) -> ok.
serve(Socket, Options, Buffer) ->
    case thalweg_request:head(Socket, Buffer, maps:get(idle_ms_max, Options, 30000)) of
        {ok, Head, Rest} -> request(Socket, Options, Head, Rest);
        {refused, Status} -> refuse(Socket, Status);
        closed -> gen_tcp:close(Socket)
    end.

-spec request(gen_tcp:socket(), options(), thalweg_request:head(), binary()) -> ok.
request(Socket, Options, Head, Buffer) ->
    Most = maps:get(body_bytes_max, Options, 1 bsl 20),
    case {thalweg_request:length(Head), thalweg_request:expectation(Head)} of
        {{refused, Status}, _} -> refuse(Socket, Status);
        {_, unknown} -> refuse(Socket, 417);
        {{ok, Length}, _} when is_integer(Length), Length > Most -> refuse(Socket, 413);
        {{ok, Length}, Expected} ->
            Size =
                case Length of
                    chunks -> {chunks, Most};
                    _ -> Length
                end,
            case thalweg_body:begin_with(Socket, Buffer, {Size, Expected =:= continue}, maps:get(idle_ms_max, Options, 30000)) of
                {ok, Body} -> answer(Socket, Options, Head, Body);
                late -> refuse(Socket, 408);
                closed -> gen_tcp:close(Socket)
            end
    end.

-spec answer(gen_tcp:socket(), options(), thalweg_request:head(), thalweg_body:body()) -> ok.
answer(Socket, Options, {Method, {Path, Query}, Minor, Headers}, Body) ->
    Scope = #{
        <<"method">> => Method,
        <<"path">> => thalweg_target:decoded(Path),
        <<"raw_path">> => {bytes, Path},
        <<"query_string">> => {bytes, Query},
        <<"http_version">> => <<"1.", (integer_to_binary(Minor))/binary>>,
        <<"headers">> => [{{bytes, Name}, {bytes, Value}} || {Name, Value} <- Headers],
        <<"client">> => end_of(inet:peername(Socket)),
        <<"server">> => end_of(inet:sockname(Socket))
    },
    IsKept = Minor =:= 1 andalso not lists:any(fun is_close/1, Headers),
    Way = (maps:with([pool, runner], Options))#{credit => ?PARTS_MAX},
    case begin_answer(maps:get(app, Options), Scope, thalweg_body:argument(Body), Way) of
        {ok, Stream} ->
            {First, Read} = thalweg_body:next(Stream, maps:get(timeout, Options, 30000), Body, Socket, head),
            case is_head(First) of
                gone -> gen_tcp:close(Socket);
                {refused, Status} -> refuse(Socket, Status);
                {true, Status, Told, Length} ->
                    %% What is left of a body would be taken for the next request. An application may end the connection as well
                    %% (RFC 9112, 9.6).
                    Stays = IsKept andalso thalweg_body:is_read(Read) andalso not lists:any(fun is_close/1, Told),
                    Outcome = respond(Socket, Options, {Stream, Read}, {Status, Told, Length, {Minor, Stays}, Method}),
                    behind(Socket, Options, Outcome, Stays);
                false ->
                    ok = thalweg_stream:close(Stream),
                    refuse(Socket, 500)
            end;
        {error, {overloaded, _, _}} -> refuse(Socket, 503);
        {error, _} -> refuse(Socket, 502)
    end.

%% One end of a connection, as its scope has it; none where it is gone already.
-spec end_of({ok, {inet:ip_address(), inet:port_number()}} | {error, term()}) -> {binary(), inet:port_number()} | none.
end_of({ok, {Address, Port}}) -> {list_to_binary(inet:ntoa(Address)), Port};
end_of({error, _}) -> none.

%% The connection when an answer has ended, or was cut off. A client that still sends, be it the next request, finds what there is of the
%% answer all the same.
-spec behind(gen_tcp:socket(), options(), {ok | error, thalweg_body:body()}, boolean()) -> ok.
behind(Socket, Options, {ok, Body}, true) -> serve(Socket, Options, thalweg_body:rest(Body, Socket));
behind(Socket, _Options, {_, _}, _) -> thalweg_request:linger(Socket).

%% Whether a header, of either end, asks for the end of the connection, among whatever else it asks for (RFC 9110, 7.6.1).
-spec is_close({binary(), binary()}) -> boolean().
is_close({Name, Value}) ->
    Words = [<<",">>, <<" ">>, <<"\t">>],
    is_called(Name, <<"connection">>) andalso
        lists:member(<<"close">>, binary:split(thalweg_request:lowered(Value), Words, [global, trim_all])).

%% Whether an answer begins so, what it says, and how long it says that its body is: with a status that no other follows (RFC 9110,
%% 15.2), nothing that would be read as more than it is (5.5), and one length (8.6). How a body is divided is not the application's affair.
-spec is_head(term()) ->
    {true, pos_integer(), [{binary(), binary()}], non_neg_integer() | none} | {refused, pos_integer()} | gone | false.
is_head({error, {refused, Status}}) -> {refused, Status};
is_head({error, gone}) -> gone;
is_head({data, {Status, Told}}) when is_integer(Status), Status >= 200, Status =< 999, is_list(Told) ->
    case lists:all(fun is_line/1, Told) andalso lengths_of(Told) of
        %% It has no body, and unlike others that have none it has to say so (RFC 9110, 15.3.6; RFC 9112, 6.3).
        Lengths when Status =:= 205, is_list(Lengths) ->
            {true, Status, [{<<"content-length">>, <<"0">>} | without(<<"content-length">>, without_encoding(Told))], none};
        %% It has none either, and may not say so (RFC 9110, 8.6).
        Lengths when Status =:= 204, is_list(Lengths) ->
            {true, Status, without(<<"content-length">>, without_encoding(Told)), none};
        [] -> {true, Status, without_encoding(Told), none};
        [Length] when is_integer(Length) -> {true, Status, without_encoding(Told), Length};
        _ -> false
    end;
is_head(_) -> false.

-spec lengths_of([{binary(), binary()}]) -> [non_neg_integer() | none].
lengths_of(Told) -> [thalweg_request:digits(Value) || {Name, Value} <- Told, is_called(Name, <<"content-length">>)].

-spec without_encoding([{binary(), binary()}]) -> [{binary(), binary()}].
without_encoding(Told) -> without(<<"transfer-encoding">>, Told).

-spec without(binary(), [{binary(), binary()}]) -> [{binary(), binary()}].
without(Lowered, Told) -> [Line || {Name, _} = Line <- Told, not is_called(Name, Lowered)].

-spec is_called(binary(), binary()) -> boolean().
is_called(Name, Lowered) -> thalweg_request:lowered(Name) =:= Lowered.

-spec is_line(term()) -> boolean().
is_line({<<_, _/binary>> = Name, Value}) when is_binary(Value) ->
    Ends = [<<"\r">>, <<"\n">>, <<0>>],
    binary:match(Name, [<<":">>, <<" ">> | Ends]) =:= nomatch andalso binary:match(Value, Ends) =:= nomatch;
is_line(_) -> false.

%% In chunks, unless the application says how long it will be, or the client knows of no chunks: then it ends with the connection.
-spec respond(gen_tcp:socket(), options(), exchange(), tuple()) -> {ok | error, thalweg_body:body()}.
respond(Socket, Options, Exchange, {Status, Told, Length, {Minor, Stays}, Method}) ->
    HasBody = Method =/= <<"HEAD">> andalso not lists:member(Status, [204, 205, 304]),
    Body =
        case {HasBody, Length} of
            {false, _} -> none;
            {true, none} when Minor >= 1 -> chunks;
            {true, none} -> until_closed;
            {true, _} -> {left, Length}
        end,
    Own =
        [<<"transfer-encoding: chunked\r\n">> || Body =:= chunks] ++
            [<<"connection: close\r\n">> || not Stays, not lists:any(fun is_close/1, Told)] ++
            [date_line() || not lists:any(fun({Name, _}) -> is_called(Name, <<"date">>) end, Told)],
    Lines = [[Name, <<": ">>, Value, <<"\r\n">>] || {Name, Value} <- Told],
    Head = [<<"HTTP/1.1 ">>, integer_to_binary(Status), <<" \r\n">>, Lines, Own, <<"\r\n">>],
    case gen_tcp:send(Socket, Head) of
        ok -> parts(Socket, Exchange, maps:get(timeout, Options, 30000), Body);
        {error, _} ->
            {Stream, Read} = Exchange,
            ok = thalweg_stream:close(Stream),
            {error, Read}
    end.

%% Where it is cut off the client learns that by the end of the connection.
-spec parts(gen_tcp:socket(), exchange(), timeout(), body()) -> {ok | error, thalweg_body:body()}.
parts(Socket, {Stream, Before}, Timeout, Body) ->
    {Next, Read} = thalweg_body:next(Stream, Timeout, Before, Socket, parts),
    case Next of
        {data, Part} when is_binary(Part) ->
            case part(Socket, Part, Body) of
                {ok, Rest} -> parts(Socket, {Stream, Read}, Timeout, Rest);
                error ->
                    ok = thalweg_stream:close(Stream),
                    {error, Read}
            end;
        {data, _} ->
            %% Another status, behind the one that is on its way already.
            ok = thalweg_stream:close(Stream),
            {error, Read};
        done when Body =:= chunks ->
            _ = gen_tcp:send(Socket, <<"0\r\n\r\n">>),
            {ok, Read};
        %% Whatever came next would be taken for what is missing.
        done when element(1, Body) =:= left, element(2, Body) > 0 -> {error, Read};
        done -> {ok, Read};
        %% The client's own doing.
        {error, {refused, _}} -> {error, Read};
        {error, gone} -> {error, Read};
        {error, Reason} ->
            %% Of what comes behind a head its client is told nothing but the end, so it is said here.
            Words = io_lib:format("~tp", [Reason], [{chars_limit, ?REASON_CHARACTERS_MAX}]),
            ok = logger:warning("an answer was cut off: ~ts", [Words]),
            {error, Read}
    end.

%% One part of a body, and what may follow it.
-spec part(gen_tcp:socket(), binary(), body()) -> {ok, body()} | error.
part(_Socket, _Part, none) -> {ok, none};
part(_Socket, <<>>, Body) -> {ok, Body};
%% What is beyond the length would be taken for the next answer.
part(_Socket, Part, {left, Left}) when byte_size(Part) > Left -> error;
part(Socket, Part, Body) ->
    {Bytes, Rest} =
        case Body of
            chunks -> {[integer_to_binary(byte_size(Part), 16), "\r\n", Part, "\r\n"], chunks};
            until_closed -> {Part, until_closed};
            {left, Left} -> {Part, {left, Left - byte_size(Part)}}
        end,
    case gen_tcp:send(Socket, Bytes) of
        ok -> {ok, Rest};
        {error, _} -> error
    end.

-spec refuse(gen_tcp:socket(), pos_integer()) -> ok.
refuse(Socket, Status) ->
    Head = ["HTTP/1.1 ", integer_to_list(Status), " \r\ncontent-length: 0\r\nconnection: close\r\n", date_line(), "\r\n"],
    _ = gen_tcp:send(Socket, Head),
    thalweg_request:linger(Socket).

%% When an answer was made, which whoever has a clock has to say (RFC 9110, 6.6.1).
-spec date_line() -> iodata().
date_line() ->
    {{Year, Month, Day} = Date, {Hour, Minute, Second}} = calendar:universal_time(),
    DayName = element(calendar:day_of_the_week(Date), {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}),
    MonthName = element(Month, {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}),
    Clock = lists:join($:, [two_digits(Part) || Part <- [Hour, Minute, Second]]),
    ["date: ", DayName, ", ", two_digits(Day), $\s, MonthName, $\s, integer_to_list(Year), $\s, Clock, " GMT\r\n"].

-spec two_digits(0..59) -> string().
two_digits(Number) -> [$0 + Number div 10, $0 + Number rem 10].
