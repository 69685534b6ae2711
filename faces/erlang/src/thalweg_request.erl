%% @private Requests of HTTP/1.1 and 1.0 as they come through a socket: a head, then a body of a known length.
%%
%% The socket is raw and passive, and what was received and not taken yet goes from call to call: a line that is too long is still
%% answered, and what comes behind a request is the next one. A line, the fields of a head together and their number are bounded,
%% and each line has so long to come, however many pieces it comes in. Knows nothing of what is asked.
-module(thalweg_request).

-export([head/3, body/4, linger/1, lowered/1]).
-export_type([head/0]).

%% Names of fields are in lower case.
-type head() :: {Method :: binary(), Target :: binary(), Minor :: 0..9, [{binary(), binary()}]}.

%% Bytes of one line, its end included, and of all fields, their names and values.
-define(LINE_BYTES_MAX, 8192).
-define(FIELDS_BYTES_MAX, 65536).
-define(FIELDS_MAX, 100).
%% What is still read of a client that was refused, so that it finds the answer, and for how many milliseconds.
-define(LINGER_BYTES_MAX, 1 bsl 22).
-define(LINGER, 2000).

-define(IS_BLANK(Byte), (Byte =:= $\s orelse Byte =:= $\t)).

%% @doc The next head and what came behind it; `refused' with a status for what is none, `closed' where none comes in time.
-spec head(gen_tcp:socket(), binary(), timeout()) -> {ok, head(), binary()} | {refused, pos_integer()} | closed.
head(Socket, Buffer, Idle) ->
    case line(Socket, Buffer, until(Idle)) of
        {ok, Line, Rest} ->
            case binary:split(Line, <<" ">>, [global]) of
                [Method, <<"/", _/binary>> = Target, <<"HTTP/1.", Minor>>] when Minor >= $0, Minor =< $9 ->
                    with_fields(Socket, Rest, Idle, {Method, Target, Minor - $0});
                _ -> {refused, 400}
            end;
        too_long -> {refused, 414};
        closed -> closed
    end.

-spec with_fields(gen_tcp:socket(), binary(), timeout(), {binary(), binary(), 0..9}) ->
    {ok, head(), binary()} | {refused, pos_integer()}.
with_fields(Socket, Buffer, Idle, {Method, Target, Minor}) ->
    case is_name(Method) andalso fields(Socket, Buffer, Idle, [], 0) of
        {ok, Fields, Rest} -> {ok, {Method, Target, Minor, Fields}, Rest};
        {refused, Status} -> {refused, Status};
        false -> {refused, 400}
    end.

-spec fields(gen_tcp:socket(), binary(), timeout(), [{binary(), binary()}], non_neg_integer()) ->
    {ok, [{binary(), binary()}], binary()} | {refused, pos_integer()}.
fields(Socket, Buffer, Idle, Fields, Bytes) ->
    case line(Socket, Buffer, until(Idle)) of
        {ok, <<>>, Rest} -> {ok, lists:reverse(Fields), Rest};
        {ok, Line, _} when length(Fields) >= ?FIELDS_MAX; Bytes + byte_size(Line) > ?FIELDS_BYTES_MAX -> {refused, 431};
        {ok, Line, Rest} ->
            case field(Line) of
                {ok, Field} -> fields(Socket, Rest, Idle, [Field | Fields], Bytes + byte_size(Line));
                error -> {refused, 400}
            end;
        too_long -> {refused, 431};
        closed -> {refused, 400}
    end.

%% Nothing stands between a name and its colon, and no line goes on in the next one (RFC 9112, 5.1 and 5.2): who sees another field
%% here sees another request behind it.
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
-spec line(gen_tcp:socket(), binary(), integer() | infinity) -> {ok, binary(), binary()} | too_long | closed.
line(Socket, Buffer, Until) ->
    case binary:match(Buffer, <<"\n">>, [{scope, {0, min(byte_size(Buffer), ?LINE_BYTES_MAX)}}]) of
        {At, 1} ->
            <<Line:At/binary, _, Rest/binary>> = Buffer,
            {ok, without_return(Line), Rest};
        nomatch when byte_size(Buffer) >= ?LINE_BYTES_MAX -> too_long;
        nomatch ->
            case gen_tcp:recv(Socket, 0, left(Until)) of
                {ok, Bytes} -> line(Socket, <<Buffer/binary, Bytes/binary>>, Until);
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
