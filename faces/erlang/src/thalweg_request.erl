%% @private Requests of HTTP/1.1 and 1.0 as they come through a socket: a head, then a body of a known length or in chunks.
%%
%% The socket is raw and passive, and what was received and not taken yet goes from call to call: a line that is too long is still
%% answered, and what comes behind a request is the next one. A line, the fields of a head together and their number are bounded,
%% and a head has so long to come from its first byte on, however many pieces it comes in. Knows nothing of what is asked, but that it
%% is asked of one host.
-module(thalweg_request).
-compile({no_auto_import, [length/1]}).

-export([head/3, length/1, digits/1, expectation/1, is_field/1, body/4, linger/1, lowered/1]).
-export_type([head/0]).

%% Names of fields are in lower case. The host is the target's, where that names one.
-type head() :: {Method :: binary(), {Path :: binary(), Query :: binary()}, Minor :: 0..9, [{binary(), binary()}]}.

-type line() :: {ok, Line :: binary(), Rest :: binary()} | too_long | late | closed.

%% Bytes of one line, its end included, and of all fields, their names and values.
-define(LINE_BYTES_MAX, 8192).
-define(FIELDS_BYTES_MAX, 65536).
-define(FIELDS_MAX, 100).
%% What is still read of a client that was refused, so that it finds the answer, and for how many milliseconds.
-define(LINGER_BYTES_MAX, 1 bsl 22).
-define(LINGER, 2000).

-define(IS_BLANK(Byte), (Byte =:= $\s orelse Byte =:= $\t)).

%% @doc The next head and what came behind it; `refused' with a status for what is none, or does not come to its end in time, `closed'
%% where none begins.
-spec head(gen_tcp:socket(), binary(), timeout()) -> {ok, head(), binary()} | {refused, pos_integer()} | closed.
head(Socket, <<>>, Idle) ->
    case gen_tcp:recv(Socket, 0, Idle) of
        {ok, Bytes} -> begun(Socket, Bytes, until(Idle));
        {error, _} -> closed
    end;
head(Socket, Buffer, Idle) -> begun(Socket, Buffer, until(Idle)).

%% One empty line may stand in front of it, as some clients send one behind a body (RFC 9112, 2.2). That alone begins none.
-spec begun(gen_tcp:socket(), binary(), integer() | infinity) -> {ok, head(), binary()} | {refused, pos_integer()} | closed.
begun(Socket, Buffer, Until) ->
    case line(Socket, Buffer, Until) of
        {ok, <<>>, <<>>} ->
            case gen_tcp:recv(Socket, 0, left(Until)) of
                {ok, Bytes} -> first_line(Socket, line(Socket, Bytes, Until), Until);
                {error, _} -> closed
            end;
        {ok, <<>>, Rest} -> first_line(Socket, line(Socket, Rest, Until), Until);
        Line -> first_line(Socket, Line, Until)
    end.

-spec first_line(gen_tcp:socket(), line(), integer() | infinity) -> {ok, head(), binary()} | {refused, pos_integer()} | closed.
first_line(Socket, First, Until) ->
    case First of
        {ok, Line, Rest} ->
            case binary:split(Line, <<" ">>, [global]) of
                [Method, Target, <<"HTTP/1.", Minor>>] when Minor >= $0, Minor =< $9 ->
                    case is_name(Method) andalso thalweg_target:read(Method, Target) of
                        {ok, Read} -> with_fields(Socket, Rest, Until, {Method, Read, Minor - $0});
                        _ -> {refused, 400}
                    end;
                _ -> {refused, 400}
            end;
        too_long -> {refused, 414};
        late -> {refused, 408};
        closed -> closed
    end.

-spec with_fields(gen_tcp:socket(), binary(), integer() | infinity, {binary(), thalweg_target:target(), 0..9}) ->
    {ok, head(), binary()} | {refused, pos_integer()}.
with_fields(Socket, Buffer, Until, {Method, {Path, Query, Host}, Minor}) ->
    case fields(Socket, Buffer, Until, [], 0) of
        {ok, Fields, Rest} ->
            case has_host(Minor, Fields) of
                true -> {ok, {Method, {Path, Query}, Minor, with_host(Host, Fields)}, Rest};
                false -> {refused, 400}
            end;
        {refused, Status} -> {refused, Status}
    end.

%% One, and what may be one; older clients need not say it (RFC 9112, 3.2).
-spec has_host(0..9, [{binary(), binary()}]) -> boolean().
has_host(Minor, Fields) ->
    case [Value || {<<"host">>, Value} <- Fields] of
        [] -> Minor =:= 0;
        [Value] -> thalweg_target:is_host(Value);
        _ -> false
    end.

%% The target's counts, whatever the head says (RFC 9112, 3.2.2).
-spec with_host(binary() | none, [{binary(), binary()}]) -> [{binary(), binary()}].
with_host(none, Fields) -> Fields;
with_host(Host, Fields) -> lists:keystore(<<"host">>, 1, Fields, {<<"host">>, Host}).

%% @doc How long the body is that a head announces, or that it comes in chunks; `refused' where that is not said, or not once. Digits and
%% nothing else (RFC 9110, 8.6), one way to divide it, which is known (RFC 9112, 6.1), and not both (6.3): a proxy in front that read
%% another length would see another request behind it.
-spec length(head()) -> {ok, non_neg_integer() | chunks} | {refused, pos_integer()}.
length({_, _, Minor, Fields}) ->
    Codings = [lowered(Value) || {<<"transfer-encoding">>, Value} <- Fields],
    case {Codings, [Value || {<<"content-length">>, Value} <- Fields]} of
        {[<<"chunked">>], []} when Minor >= 1 -> {ok, chunks};
        {[_], []} when Minor >= 1 -> {refused, 501};
        {[], []} -> {ok, 0};
        {[], [Value]} ->
            case digits(Value) of
                none -> {refused, 400};
                Length -> {ok, Length}
            end;
        _ -> {refused, 400}
    end.

%% @doc The number that digits say.
-spec digits(binary()) -> non_neg_integer() | none.
digits(Value) ->
    case Value =/= <<>> andalso lists:all(fun(Byte) -> Byte >= $0 andalso Byte =< $9 end, binary_to_list(Value)) of
        true -> binary_to_integer(Value);
        false -> none
    end.

%% @doc What has to be done for a client to go on (RFC 9110, 10.1.1): nothing, an interim answer, or an expectation that is not known here.
-spec expectation(head()) -> none | continue | unknown.
expectation({_, _, 0, _}) -> none;
expectation({_, _, _, Fields}) ->
    case [lowered(Value) || {<<"expect">>, Value} <- Fields] of
        [] -> none;
        [<<"100-continue">>] -> continue;
        _ -> unknown
    end.

-spec fields(gen_tcp:socket(), binary(), integer() | infinity, [{binary(), binary()}], non_neg_integer()) ->
    {ok, [{binary(), binary()}], binary()} | {refused, pos_integer()}.
fields(Socket, Buffer, Until, Fields, Bytes) ->
    case line(Socket, Buffer, Until) of
        {ok, <<>>, Rest} -> {ok, lists:reverse(Fields), Rest};
        {ok, Line, _} when erlang:length(Fields) >= ?FIELDS_MAX; Bytes + byte_size(Line) > ?FIELDS_BYTES_MAX -> {refused, 431};
        {ok, Line, Rest} ->
            case field(Line) of
                {ok, Field} -> fields(Socket, Rest, Until, [Field | Fields], Bytes + byte_size(Line));
                error -> {refused, 400}
            end;
        too_long -> {refused, 431};
        late -> {refused, 408};
        closed -> {refused, 400}
    end.

%% @doc Whether a line is a field.
-spec is_field(binary()) -> boolean().
is_field(Line) -> field(Line) =/= error.

%% Nothing stands between a name and its colon, and no line goes on in the next one (RFC 9112, 5.1 and 5.2): a proxy in front
%% that read another field would see another request behind it.
-spec field(binary()) -> {ok, {binary(), binary()}} | error.
field(Line) ->
    case binary:split(Line, <<":">>) of
        [Name, Value] ->
            case is_name(Name) andalso binary:match(Value, [<<"\r">>, <<0>>]) =:= nomatch of
                true -> {ok, {lowered(Name), trimmed(Value)}};
                false -> error
            end;
        [_] -> error
    end.

%% A line without its end, and what is behind it.
-spec line(gen_tcp:socket(), binary(), integer() | infinity) -> line().
line(Socket, Buffer, Until) ->
    case binary:match(Buffer, <<"\n">>, [{scope, {0, min(byte_size(Buffer), ?LINE_BYTES_MAX)}}]) of
        {At, 1} ->
            <<Line:At/binary, _, Rest/binary>> = Buffer,
            {ok, without_return(Line), Rest};
        nomatch when byte_size(Buffer) >= ?LINE_BYTES_MAX -> too_long;
        nomatch ->
            case gen_tcp:recv(Socket, 0, left(Until)) of
                {ok, Bytes} -> line(Socket, <<Buffer/binary, Bytes/binary>>, Until);
                {error, timeout} -> late;
                {error, _} -> closed
            end
    end.

-spec without_return(binary()) -> binary().
without_return(Line) ->
    case byte_size(Line) - 1 of
        Last when Last >= 0, binary_part(Line, Last, 1) =:= <<"\r">> -> binary_part(Line, 0, Last);
        _ -> Line
    end.

%% @doc A body of so many bytes, of which some may have come with the head, and what is behind it.
-spec body(gen_tcp:socket(), binary(), non_neg_integer(), timeout()) -> {ok, binary(), binary()} | {error, term()}.
body(_Socket, Buffer, Length, _Idle) when byte_size(Buffer) >= Length ->
    <<Body:Length/binary, Rest/binary>> = Buffer,
    {ok, Body, Rest};
body(Socket, Buffer, Length, Idle) ->
    case gen_tcp:recv(Socket, Length - byte_size(Buffer), Idle) of
        {ok, Bytes} -> {ok, <<Buffer/binary, Bytes/binary>>, <<>>};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Closes behind an answer that a client may get while it still sends: what is not read by then would take the answer along
%% (RFC 9112, 9.6).
-spec linger(gen_tcp:socket()) -> ok.
linger(Socket) ->
    _ = gen_tcp:shutdown(Socket, write),
    _ = inet:setopts(Socket, [{active, false}]),
    drain(Socket, ?LINGER_BYTES_MAX, until(?LINGER)).

-spec drain(gen_tcp:socket(), integer(), integer() | infinity) -> ok.
drain(Socket, Left, Until) ->
    case Left > 0 andalso gen_tcp:recv(Socket, 0, left(Until)) of
        {ok, Bytes} -> drain(Socket, Left - byte_size(Bytes), Until);
        _ -> gen_tcp:close(Socket)
    end.

%% In monotonic milliseconds.
-spec until(timeout()) -> integer() | infinity.
until(infinity) -> infinity;
until(Milliseconds) -> erlang:monotonic_time(millisecond) + Milliseconds.

-spec left(integer() | infinity) -> timeout().
left(infinity) -> infinity;
left(Until) -> max(0, Until - erlang:monotonic_time(millisecond)).

%% A token (RFC 9110, 5.6.2).
-spec is_name(binary()) -> boolean().
is_name(Name) -> Name =/= <<>> andalso lists:all(fun is_of_name/1, binary_to_list(Name)).

-spec is_of_name(byte()) -> boolean().
is_of_name(Byte) -> Byte > $\s andalso Byte < 127 andalso not lists:member(Byte, "()<>@,;:\\\"/[]?={}").

%% @doc Letters of ASCII alone: what else there is may be no text at all.
-spec lowered(binary()) -> binary().
lowered(Bytes) -> << <<(lower(Byte))>> || <<Byte>> <= Bytes >>.

-spec lower(byte()) -> byte().
lower(Byte) when Byte >= $A, Byte =< $Z -> Byte + ($a - $A);
lower(Byte) -> Byte.

-spec trimmed(binary()) -> binary().
trimmed(<<Byte, Rest/binary>>) when ?IS_BLANK(Byte) -> trimmed(Rest);
trimmed(Bytes) -> binary_part(Bytes, 0, trimmed_size(Bytes, byte_size(Bytes))).

-spec trimmed_size(binary(), non_neg_integer()) -> non_neg_integer().
trimmed_size(_Bytes, 0) -> 0;
trimmed_size(Bytes, Size) ->
    case binary:at(Bytes, Size - 1) of
        Byte when ?IS_BLANK(Byte) -> trimmed_size(Bytes, Size - 1);
        _ -> Size
    end.
