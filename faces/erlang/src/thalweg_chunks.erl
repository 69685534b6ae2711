%% @private Bodies in chunks (RFC 9112, 7.1), taken apart as they come.
%%
%% What is no chunk is refused, with nothing overlooked: a reader that sees another body here sees another request behind it. A line, the fields
%% behind the last chunk and the body are bounded. Knows nothing of sockets: it is given what came, and says what it lacks. The fields
%% behind the last chunk are no part of the request that an application is told of.
-module(thalweg_chunks).

-export([new/1, take/3]).
-export_type([chunks/0]).

%% Of a chunk's size and its extensions, and of the fields behind the last one.
-define(LINE_BYTES_MAX, 1024).
-define(TRAILER_BYTES_MAX, 8192).
%% Digits of a size: more than any body has.
-define(DIGITS_MAX, 16).

-record(chunks, {
    %% Before a size; within a chunk, so many bytes of which are left; among the fields behind the last, so many bytes of which were.
    at = size :: size | {data, non_neg_integer()} | {trailer, non_neg_integer()},
    %% Bytes that the body may still have.
    room :: non_neg_integer()
}).

-opaque chunks() :: #chunks{}.

%% @doc A body that begins, and has so many bytes at the most.
-spec new(non_neg_integer()) -> chunks().
new(Most) -> #chunks{room = Most}.

%% @doc Bytes of the body, some but not more than so many, and what is left of what came; or that there are no more, that more has to
%% come, or with what status it is to be refused.
-spec take(chunks(), binary(), pos_integer()) ->
    {data, binary(), binary(), chunks()} | {over, binary()} | {more, binary(), chunks()} | {refused, 400 | 413 | 431}.
take(#chunks{at = {data, 0}} = Chunks, <<"\r\n", Rest/binary>>, Most) -> take(Chunks#chunks{at = size}, Rest, Most);
take(#chunks{at = {data, 0}} = Chunks, Buffer, _Most) when Buffer =:= <<>>; Buffer =:= <<"\r">> -> {more, Buffer, Chunks};
take(#chunks{at = {data, 0}}, _Buffer, _Most) -> {refused, 400};
take(#chunks{at = {data, _}} = Chunks, <<>>, _Most) -> {more, <<>>, Chunks};
take(#chunks{at = {data, Left}} = Chunks, Buffer, Most) ->
    {Bytes, Rest} = split_binary(Buffer, lists:min([Left, Most, byte_size(Buffer)])),
    {data, Bytes, Rest, Chunks#chunks{at = {data, Left - byte_size(Bytes)}}};
take(#chunks{at = size, room = Room} = Chunks, Buffer, Most) ->
    case line(Buffer, ?LINE_BYTES_MAX) of
        {ok, Line, Rest} ->
            case said(Line) of
                none -> {refused, 400};
                0 -> take(Chunks#chunks{at = {trailer, 0}}, Rest, Most);
                Size when Size > Room -> {refused, 413};
                Size -> take(Chunks#chunks{at = {data, Size}, room = Room - Size}, Rest, Most)
            end;
        more -> {more, Buffer, Chunks};
        too_long -> {refused, 400}
    end;
take(#chunks{at = {trailer, Before}} = Chunks, Buffer, Most) ->
    case line(Buffer, ?TRAILER_BYTES_MAX - Before) of
        {ok, <<>>, Rest} -> {over, Rest};
        {ok, Line, Rest} ->
            case thalweg_request:is_field(Line) of
                true -> take(Chunks#chunks{at = {trailer, Before + byte_size(Line) + 2}}, Rest, Most);
                false -> {refused, 400}
            end;
        more -> {more, Buffer, Chunks};
        too_long -> {refused, 431}
    end.

%% A line without its end, which is one of two bytes, and what is behind it.
-spec line(binary(), integer()) -> {ok, binary(), binary()} | more | too_long.
line(Buffer, Most) ->
    case binary:match(Buffer, <<"\n">>) of
        {At, 1} when At + 1 > Most -> too_long;
        {At, 1} ->
            case Buffer of
                <<Line:(At - 1)/binary, "\r\n", Rest/binary>> when At > 0 -> {ok, Line, Rest};
                %% Shown as a line that says nothing which may stand there.
                <<_:At/binary, _, Rest/binary>> -> {ok, <<"\n">>, Rest}
            end;
        nomatch when byte_size(Buffer) >= Most -> too_long;
        nomatch -> more
    end.

%% What a line says that a chunk's size is: extensions may stand behind it, and none is known.
-spec said(binary()) -> non_neg_integer() | none.
said(Line) ->
    [Said | Extensions] = binary:split(Line, <<";">>),
    Digits = blanks_cut(Said, Extensions),
    IsSize = Digits =/= <<>> andalso byte_size(Digits) =< ?DIGITS_MAX andalso lists:all(fun is_digit/1, binary_to_list(Digits)),
    case IsSize andalso lists:all(fun is_text/1, Extensions) of
        true -> binary_to_integer(Digits, 16);
        false -> none
    end.

%% Blanks may stand in front of an extension and nowhere else.
-spec blanks_cut(binary(), [binary()]) -> binary().
blanks_cut(Said, []) -> Said;
blanks_cut(Said, [_]) -> string:trim(Said, trailing, " \t").

-spec is_digit(byte()) -> boolean().
is_digit(Byte) -> (Byte >= $0 andalso Byte =< $9) orelse (Byte >= $a andalso Byte =< $f) orelse (Byte >= $A andalso Byte =< $F).

-spec is_text(binary()) -> boolean().
is_text(Bytes) -> lists:all(fun(Byte) -> Byte =:= $\t orelse (Byte >= $\s andalso Byte =/= 127) end, binary_to_list(Bytes)).
