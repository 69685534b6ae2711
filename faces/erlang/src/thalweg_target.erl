%% @private What a request asks for, as RFC 9112, 3.2 has it: its path and its query, and the host where the target names one.
%%
%% A function of bytes: reads nothing, keeps nothing, and knows no other part of a request.
-module(thalweg_target).

-export([read/2, decoded/1, is_host/1]).
-export_type([target/0]).

%% The path as it came, the query without its mark, and the host that is to be taken for the one that the head names.
-type target() :: {Path :: binary(), Query :: binary(), Host :: binary() | none}.

%% @doc A target in origin form, in absolute form, which servers have to take as well (3.2.2), or the asterisk of `OPTIONS' (3.2.4). An
%% absolute one without path and query is the whole server to `OPTIONS', and `/' to everything else. None has a blank or a control
%% character in it: a bare CR is invalid wherever it stands (2.2).
-spec read(Method :: binary(), binary()) -> {ok, target()} | error.
read(Method, Target) ->
    case lists:all(fun(Byte) -> Byte > $\s andalso Byte =/= 127 end, binary_to_list(Target)) of
        true -> of_text(Method, Target);
        false -> error
    end.

-spec of_text(binary(), binary()) -> {ok, target()} | error.
of_text(_Method, <<"/", _/binary>> = Target) -> {ok, divided(Target, none)};
of_text(<<"OPTIONS">>, <<"*">>) -> {ok, {<<"*">>, <<>>, none}};
of_text(Method, Target) ->
    case binary:split(Target, <<"://">>) of
        [Scheme, Rest] ->
            case lists:member(thalweg_request:lowered(Scheme), [<<"http">>, <<"https">>]) of
                true -> absolute(Method, Rest);
                false -> error
            end;
        [_] -> error
    end.

-spec absolute(binary(), binary()) -> {ok, target()} | error.
absolute(Method, Target) ->
    {Host, Rest} =
        case binary:match(Target, [<<"/">>, <<"?">>]) of
            {At, 1} -> split_binary(Target, At);
            nomatch -> {Target, <<>>}
        end,
    case {Host =/= <<>> andalso is_host(Host), Method, Rest} of
        {false, _, _} -> error;
        {true, <<"OPTIONS">>, <<>>} -> {ok, {<<"*">>, <<>>, Host}};
        {true, _, <<"/", _/binary>>} -> {ok, divided(Rest, Host)};
        {true, _, _} -> {ok, divided(<<"/", Rest/binary>>, Host)}
    end.

-spec divided(binary(), binary() | none) -> target().
divided(Target, Host) ->
    case binary:split(Target, <<"?">>) of
        [Path, Query] -> {Path, Query, Host};
        [Path] -> {Path, <<>>, Host}
    end.

%% @doc Whether that may be a host, perhaps with its port (RFC 3986, 3.2.2): no user in front of it (RFC 9110, 4.2.4). None is one, too.
-spec is_host(binary()) -> boolean().
is_host(Host) -> lists:all(fun is_of_host/1, binary_to_list(Host)).

-spec is_of_host(byte()) -> boolean().
is_of_host(Byte) when Byte >= $a, Byte =< $z; Byte >= $A, Byte =< $Z; Byte >= $0, Byte =< $9 -> true;
is_of_host(Byte) -> lists:member(Byte, "-._~%!$&'()*+,;=:[]").

%% @doc A path with the bytes that are written in percent; what is none of those stays as it is. They need be no text.
-spec decoded(binary()) -> binary().
decoded(Path) -> decoded(Path, <<>>).

-spec decoded(binary(), binary()) -> binary().
decoded(<<"%", High, Low, Rest/binary>>, Done) ->
    case {digit(High), digit(Low)} of
        {Sixteens, Ones} when is_integer(Sixteens), is_integer(Ones) -> decoded(Rest, <<Done/binary, (16 * Sixteens + Ones)>>);
        _ -> decoded(<<High, Low, Rest/binary>>, <<Done/binary, "%">>)
    end;
decoded(<<Byte, Rest/binary>>, Done) -> decoded(Rest, <<Done/binary, Byte>>);
decoded(<<>>, Done) -> Done.

-spec digit(byte()) -> 0..15 | none.
digit(Byte) when Byte >= $0, Byte =< $9 -> Byte - $0;
digit(Byte) when Byte >= $a, Byte =< $f -> Byte - $a + 10;
digit(Byte) when Byte >= $A, Byte =< $F -> Byte - $A + 10;
digit(_) -> none.
