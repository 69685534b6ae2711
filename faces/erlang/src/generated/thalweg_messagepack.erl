%% MessagePack as typed services use it, driven by terms that describe types. Integers of any width are read where the
%% value fits, and written in the fewest bytes; a field nobody declared is refused, and so is one that comes twice.
%% Strings and bytes that were read are parts of the frame: copy them (binary:copy/1) to keep them longer.
-module(thalweg_messagepack).

-export([decode/3, encode/3, error_frame/3]).
-export_type([type/0, message/0, decode_error/0, reason/0, number64/0]).

%% What the values of a frame may take in memory: 64 bytes for each of its bytes, and 16 MiB besides, as in the
%% other languages. Only structs are counted here: an absent field takes memory and nothing on the wire. Lists, maps and
%% texts stay below the bound by themselves, since each of their values takes a byte on the wire, and at most a list's
%% cell (16 bytes) and an empty map or a part of the frame (40 bytes).
-define(HELD_PER_BYTE, 64).
-define(HELD_BESIDES, (16 bsl 20)).
%% What a struct takes, and each of its fields; those of a map with more than so many stand in a tree.
-define(STRUCT_HELD, 40).
-define(FIELD_HELD(Count), (if Count =< 32 -> 16; true -> 32 end)).
%% Where the process that reads a frame keeps how much of that is left.
-define(ROOM, '$thalweg_messagepack_room').

%% A float, or what Erlang's floats cannot say.
-type number64() :: float() | nan | infinity | negative_infinity.

-type reason() ::
    truncated
    | memory
    | trailing
    | {expected, atom()}
    | out_of_range
    | not_utf8
    | wrong_length
    | unknown_field
    | duplicate
    | missing
    | unknown_word
    | unknown_message.

%% Where (field or message), what, and at which byte.
-type decode_error() :: {decode_error, binary(), reason(), non_neg_integer()}.

-type type() ::
    boolean
    | {integer, integer(), integer()}
    | f32
    | f64
    | string
    | bytes
    | bin32
    | {optional, type()}
    | {list, pos_integer(), type()}
    | {array, pos_integer(), type()}
    | {map, pos_integer(), type()}
    | {enum, [{binary(), atom()}]}
    | {struct, binary(), [{binary(), atom(), required | optional, type()}]}
    | fun(() -> type()).

%% A message's tag on the wire, its name here and its fields.
-type message() :: {binary(), atom(), type()}.

%% Reads a whole frame of one of these messages.
-spec decode(request | response, [message()], binary()) -> {ok, {atom(), map()}} | {error, decode_error()}.
decode(Kind, Messages, Frame) ->
    try
        erlang:put(?ROOM, byte_size(Frame) * ?HELD_PER_BYTE + ?HELD_BESIDES),
        {Tag, Rest} = envelope(Kind, Frame),
        case lists:keyfind(Tag, 1, Messages) of
            {_, Name, Type} -> {ok, {Name, whole(read(Type, Rest))}};
            false -> refuse(unknown_message, Rest)
        end
    catch
        throw:{refused, Place, Reason, At} -> {error, {decode_error, Place, Reason, byte_size(Frame) - byte_size(At)}}
    after
        erlang:erase(?ROOM)
    end.

envelope(request, Frame) -> envelope(response, exactly(1, Frame));
envelope(response, Frame) -> key(exactly(2, Frame)).

whole({Value, <<>>}) -> Value;
whole({_, Rest}) -> refuse(trailing, Rest).

%% What is wrong, and what of the frame was left then.
-spec refuse(reason(), binary()) -> no_return().
refuse(Reason, Rest) -> throw({refused, <<"frame">>, Reason, Rest}).

-spec read(type(), binary()) -> {term(), binary()}.
read({integer, Least, Most}, Frame) ->
    case integer(Frame) of
        {Value, _} = Read when Value >= Least, Value =< Most -> Read;
        _ -> refuse(out_of_range, Frame)
    end;
read(string, Frame) ->
    {Text, Rest} = key(Frame),
    case unicode:characters_to_binary(Text) of
        Text -> {Text, Rest};
        _ -> refuse(not_utf8, binary:part(Frame, byte_size(Frame), -byte_size(Text) - byte_size(Rest)))
    end;
read(bytes, <<16#c4, Length, Value:Length/binary, Rest/binary>>) -> {Value, Rest};
read(bytes, <<16#c5, Length:16, Value:Length/binary, Rest/binary>>) -> {Value, Rest};
read(bytes, <<16#c6, Length:32, Value:Length/binary, Rest/binary>>) -> {Value, Rest};
read(bytes, Frame) -> wrong_type(Frame, bytes, [16#c4, 16#c5, 16#c6]);
read(bin32, Frame) ->
    case read(bytes, Frame) of
        {<<_:32/binary>>, _} = Read -> Read;
        _ -> refuse(wrong_length, Frame)
    end;
read(boolean, <<16#c2, Rest/binary>>) -> {false, Rest};
read(boolean, <<16#c3, Rest/binary>>) -> {true, Rest};
read(boolean, Frame) -> wrong_type(Frame, boolean, []);
read({optional, _}, <<16#c0, Rest/binary>>) -> {undefined, Rest};
read({optional, Type}, Frame) -> read(Type, Frame);
read({struct, Place, Fields}, Frame) ->
    {Count, Rest} = in_place(Place, fun() -> believed(several(Frame, 16#80, 16#de, map), 2) end),
    Declared = length(Fields),
    held(?STRUCT_HELD + ?FIELD_HELD(Declared) * Declared, Place, Rest),
    fields(Count, Place, Fields, #{}, Rest);
read({list, BytesMin, Type}, Frame) ->
    {Count, Rest} = believed(several(Frame, 16#90, 16#dc, array), BytesMin),
    items(Count, Type, [], Rest);
read({array, Count, Type}, Frame) ->
    items(Count, Type, [], exactly(Count, Frame));
read({map, BytesMin, Type}, Frame) ->
    {Count, Rest} = believed(several(Frame, 16#80, 16#de, map), BytesMin + 1),
    entries(Count, Type, #{}, Rest);
read({enum, Words}, Frame) ->
    {Word, Rest} = key(Frame),
    case lists:keyfind(Word, 1, Words) of
        {_, Atom} -> {Atom, Rest};
        false -> refuse(unknown_word, Frame)
    end;
read(Described, Frame) when is_function(Described) -> read(Described(), Frame);
read(f32, <<16#ca, Bits:4/binary, Rest/binary>>) -> {single(Bits), Rest};
read(f32, Frame) -> wrong_type(Frame, f32, [16#ca]);
read(f64, <<16#ca, Bits:4/binary, Rest/binary>>) -> {single(Bits), Rest};
read(f64, <<16#cb, Value/float, Rest/binary>>) -> {Value, Rest};
read(f64, <<16#cb, 0:1, 16#7ff:11, 0:52, Rest/binary>>) -> {infinity, Rest};
read(f64, <<16#cb, 1:1, 16#7ff:11, 0:52, Rest/binary>>) -> {negative_infinity, Rest};
read(f64, <<16#cb, _:64, Rest/binary>>) -> {nan, Rest};
read(f64, Frame) -> wrong_type(Frame, f64, [16#ca, 16#cb]).

single(<<Value:32/float>>) -> Value;
single(<<0:1, 16#ff:8, 0:23>>) -> infinity;
single(<<1:1, 16#ff:8, 0:23>>) -> negative_infinity;
single(_) -> nan.

integer(<<Value, Rest/binary>>) when Value < 16#80 -> {Value, Rest};
integer(<<16#cc, Value, Rest/binary>>) -> {Value, Rest};
integer(<<16#cd, Value:16, Rest/binary>>) -> {Value, Rest};
integer(<<16#ce, Value:32, Rest/binary>>) -> {Value, Rest};
integer(<<16#cf, Value:64, Rest/binary>>) -> {Value, Rest};
integer(<<16#d0, Value:8/signed, Rest/binary>>) -> {Value, Rest};
integer(<<16#d1, Value:16/signed, Rest/binary>>) -> {Value, Rest};
integer(<<16#d2, Value:32/signed, Rest/binary>>) -> {Value, Rest};
integer(<<16#d3, Value:64/signed, Rest/binary>>) -> {Value, Rest};
integer(<<Tag, Rest/binary>>) when Tag >= 16#e0 -> {Tag - 256, Rest};
integer(Frame) -> wrong_type(Frame, integer, lists:seq(16#cc, 16#d3)).

%% A string's bytes, not yet known to be UTF-8.
key(<<5:3, Length:5, Text:Length/binary, Rest/binary>>) -> {Text, Rest};
key(<<16#d9, Length, Text:Length/binary, Rest/binary>>) -> {Text, Rest};
key(<<16#da, Length:16, Text:Length/binary, Rest/binary>>) -> {Text, Rest};
key(<<16#db, Length:32, Text:Length/binary, Rest/binary>>) -> {Text, Rest};
key(Frame) -> wrong_type(Frame, string, lists:seq(16#a0, 16#bf) ++ [16#d9, 16#da, 16#db]).

several(<<Tag, Rest/binary>>, Few, _, _) when Tag >= Few, Tag < Few + 16 -> {Tag - Few, Rest};
several(<<Many, Count:16, Rest/binary>>, _, Many, _) -> {Count, Rest};
several(<<Tag, Count:32, Rest/binary>>, _, Many, _) when Tag =:= Many + 1 -> {Count, Rest};
several(Frame, _, Many, Expected) -> wrong_type(Frame, Expected, [Many, Many + 1]).

%% Nothing matched: a value of another type, or a right one cut short.
-spec wrong_type(binary(), atom(), [byte()]) -> no_return().
wrong_type(<<Tag, _/binary>> = Frame, Expected, Tags) ->
    case lists:member(Tag, Tags) of
        true -> refuse(truncated, <<>>);
        false -> refuse({expected, Expected}, Frame)
    end;
wrong_type(<<>>, _, _) ->
    refuse(truncated, <<>>).

exactly(Expected, Frame) ->
    case several(Frame, 16#90, 16#dc, array) of
        {Expected, Rest} -> Rest;
        _ -> refuse(wrong_length, Frame)
    end.

%% A count of values that the rest of the frame can hold.
believed({Count, Rest}, BytesMin) when Count * BytesMin =< byte_size(Rest) -> {Count, Rest};
believed(_, _) -> refuse(truncated, <<>>).

%% Counts what a struct takes in memory: one that is a byte on the wire may be large there.
held(Size, Place, Rest) ->
    Room = erlang:get(?ROOM) - Size,
    Room >= 0 orelse throw({refused, Place, memory, Rest}),
    erlang:put(?ROOM, Room).

items(0, _, Items, Rest) ->
    {lists:reverse(Items), Rest};
items(Count, Type, Items, Frame) ->
    {Item, Rest} = read(Type, Frame),
    items(Count - 1, Type, [Item | Items], Rest).

entries(0, _, Entries, Rest) ->
    {Entries, Rest};
entries(Count, Type, Entries, Frame) ->
    {Key, AfterKey} = read(string, Frame),
    is_map_key(Key, Entries) andalso refuse(duplicate, Frame),
    {Value, Rest} = read(Type, AfterKey),
    entries(Count - 1, Type, Entries#{Key => Value}, Rest).

fields(0, Place, Fields, Values, Rest) ->
    {lists:foldl(fun(Field, All) -> present(Field, All, Place, Rest) end, Values, Fields), Rest};
fields(Count, Place, Fields, Values, Frame) ->
    {Key, AfterKey} = in_place(Place, fun() -> key(Frame) end),
    case lists:keyfind(Key, 1, Fields) of
        {_, Name, _, _} when is_map_key(Name, Values) ->
            throw({refused, place(Place, Key), duplicate, AfterKey});
        {_, Name, _, Type} ->
            {Value, Rest} = in_place(place(Place, Key), fun() -> read(Type, AfterKey) end),
            fields(Count - 1, Place, Fields, Values#{Name => Value}, Rest);
        false ->
            throw({refused, Place, unknown_field, AfterKey})
    end.

%% What goes wrong at a place says so, unless something further in has said it.
in_place(Place, Read) ->
    try
        Read()
    catch
        throw:{refused, <<"frame">>, Reason, At} -> throw({refused, Place, Reason, At})
    end.

present({_, Name, _, _}, Values, _, _) when is_map_key(Name, Values) -> Values;
present({_, Name, optional, _}, Values, _, _) -> Values#{Name => undefined};
present({Key, _, required, _}, _, Place, Rest) -> throw({refused, place(Place, Key), missing, Rest}).

place(Place, Key) -> <<Place/binary, ".", Key/binary>>.

%% Writes a whole frame. A value its type cannot hold is the caller's mistake, and placed as a decoder's would be:
%% error({bad_value, Place, Type, Value}).
-spec encode(request | response, [message()], {atom(), map()}) -> iodata().
encode(Kind, Messages, {Name, Value}) ->
    case lists:keyfind(Name, 2, Messages) of
        {Tag, _, Type} -> [head(Kind), string(Tag), write(Type, Value, <<"message">>)];
        false -> misfit(<<"message">>, Kind, Name)
    end.

head(request) -> <<16#91, 16#92>>;
head(response) -> <<16#92>>.

%% Where a value stands: what holds it, or that and its key there.
-type at() :: binary() | {binary(), binary()}.

-spec misfit(at(), term(), term()) -> no_return().
misfit({Place, Key}, Type, Value) -> misfit(place(Place, Key), Type, Value);
misfit(Place, Type, Value) -> error({bad_value, Place, Type, Value}).

-spec write(type(), term(), at()) -> iodata().
write({integer, Least, Most}, Value, _) when is_integer(Value), Value >= Least, Value =< Most -> number(Value);
write(string, Value, At) when is_binary(Value) ->
    case unicode:characters_to_binary(Value) of
        Value -> string(Value);
        _ -> misfit(At, string, Value)
    end;
write(bytes, Value, _) when is_binary(Value) -> [counted(16#c4, byte_size(Value)), Value];
write(bin32, <<_:32/binary>> = Value, _) -> [<<16#c4, 32>>, Value];
write(boolean, true, _) -> <<16#c3>>;
write(boolean, false, _) -> <<16#c2>>;
write({optional, _}, undefined, _) -> <<16#c0>>;
write({optional, Type}, Value, At) -> write(Type, Value, At);
write({struct, Place, Fields}, Value, _) when is_map(Value) ->
    Known = [Name || {_, Name, _, _} <- Fields],
    maps:keys(maps:without(Known, Value)) =:= [] orelse misfit(Place, Known, Value),
    [few(16#80, length(Fields)) | [[string(Key), member(Field, Value, {Place, Key})] || {Key, _, _, _} = Field <- Fields]];
write({list, _, Type}, Values, At) when length(Values) >= 0 ->
    [few(16#90, length(Values)) | [write(Type, Value, At) || Value <- Values]];
write({array, Count, Type}, Values, At) when length(Values) =:= Count ->
    [few(16#90, Count) | [write(Type, Value, At) || Value <- Values]];
write({map, _, Type}, Values, At) when is_map(Values) ->
    %% Binaries sort by their bytes, as the wire wants it.
    Entries = lists:keysort(1, maps:to_list(Values)),
    [few(16#80, length(Entries)) | [[write(string, Key, At), write(Type, Value, At)] || {Key, Value} <- Entries]];
write({enum, Words} = Type, Value, At) ->
    case lists:keyfind(Value, 2, Words) of
        {Word, _} -> string(Word);
        false -> misfit(At, Type, Value)
    end;
write(Described, Value, At) when is_function(Described) -> write(Described(), Value, At);
write(f32, Value, At) when is_number(Value) -> <<16#ca, (float_of(32, Value, At))/binary>>;
write(f32, nan, _) -> <<16#ca, 16#7fc00000:32>>;
write(f32, infinity, _) -> <<16#ca, 16#7f800000:32>>;
write(f32, negative_infinity, _) -> <<16#ca, 16#ff800000:32>>;
write(f64, Value, At) when is_number(Value) -> <<16#cb, (float_of(64, Value, At))/binary>>;
write(f64, nan, _) -> <<16#cb, 16#7ff8000000000000:64>>;
write(f64, infinity, _) -> <<16#cb, 16#7ff0000000000000:64>>;
write(f64, negative_infinity, _) -> <<16#cb, 16#fff0000000000000:64>>;
write(Type, Value, At) -> misfit(At, Type, Value).

member({_, Name, optional, Type}, Value, At) -> write(Type, maps:get(Name, Value, undefined), At);
member({_, Name, required, Type}, Value, At) when is_map_key(Name, Value) -> write(Type, maps:get(Name, Value), At);
member({_, Name, required, _}, Value, At) -> misfit(At, {missing, Name}, Value).

float_of(Bits, Value, At) ->
    %% What is too large becomes an infinity in 32 bits, and no float at all in 64.
    try <<Value:Bits/float>> of
        <<_:1, 16#ff, 0:23>> -> misfit(At, {float, Bits}, Value);
        Bytes -> Bytes
    catch
        error:badarg -> misfit(At, {float, Bits}, Value)
    end.

number(Value) when Value >= 16#100000000 -> <<16#cf, Value:64>>;
number(Value) when Value >= 16#10000 -> <<16#ce, Value:32>>;
number(Value) when Value >= 16#100 -> <<16#cd, Value:16>>;
number(Value) when Value >= 16#80 -> <<16#cc, Value>>;
number(Value) when Value >= -32 -> <<Value>>;
number(Value) when Value >= -16#80 -> <<16#d0, Value>>;
number(Value) when Value >= -16#8000 -> <<16#d1, Value:16>>;
number(Value) when Value >= -16#80000000 -> <<16#d2, Value:32>>;
number(Value) -> <<16#d3, Value:64>>.

string(Text) when byte_size(Text) < 32 -> [16#a0 bor byte_size(Text), Text];
string(Text) -> [counted(16#d9, byte_size(Text)), Text].

counted(First, Length) when Length < 16#100 -> <<First, Length>>;
counted(First, Length) when Length < 16#10000 -> <<(First + 1), Length:16>>;
counted(First, Length) -> <<(First + 2), Length:32>>.

%% The count of an array (16#90) or a map (16#80).
few(Few, Count) when Count < 16 -> <<(Few + Count)>>;
few(16#90, Count) when Count < 16#10000 -> <<16#dc, Count:16>>;
few(16#90, Count) -> <<16#dd, Count:32>>;
few(16#80, Count) when Count < 16#10000 -> <<16#de, Count:16>>;
few(16#80, Count) -> <<16#df, Count:32>>.

%% The frame of a service's error; what is no text is printed.
-spec error_frame([message()], atom(), term()) -> iodata().
error_frame(Messages, Name, Problem) ->
    Text =
        case catch unicode:characters_to_binary(Problem) of
            Binary when is_binary(Binary) -> Binary;
            _ -> unicode:characters_to_binary(io_lib:format("~0tp", [Problem]))
        end,
    encode(response, Messages, {Name, #{message => Text}}).
