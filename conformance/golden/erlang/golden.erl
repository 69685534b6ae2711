%% The generated Erlang against the golden frames; `crates/codegen/tests/golden.rs` says what is judged and why.
%% Arguments: the directory of frames, and the file that takes what became of each frame.
-module(golden).
-behaviour(echo_server).

-export([main/1]).
-export([bytes/1, fields/1, nested/1, aliases/1, blobs/1, fail/1, numbers/1, places/1, count/2]).
-export([put/1, peek/1, peek_committed/1]).

-compile({no_auto_import, [put/1]}).

main([Directory, Outcomes]) ->
    Golden = frames(Directory),
    Frames = [Frame || {_, Frame} <- Golden],
    Wrong = frames(filename:join(Directory, "refused")),
    Refused = [Frame || {_, Frame} <- Wrong],
    Checks =
        [{Name, fun() -> Frame = again(Frame) end} || {Name, Frame} <- Golden] ++
            [{Name, fun() -> refuses_prefixes(Frame) end} || {Name, Frame} <- Golden] ++
            [
                {Name, fun() -> same(named(hd(string:split(Name, ".")), Golden), again(Frame)) end}
             || {Name, Frame} <- frames(filename:join(Directory, "accepted"))
            ] ++
            [
                {Name, fun() -> {error, {decode_error, _, _, _}} = again(Frame) end}
             || {Name, Frame} <- Wrong
            ] ++
            [
                {"mutations", fun() -> mutations(Frames, Refused, Outcomes) end},
                {"values are what the frames say", fun() -> values(Golden) end},
                {"what reading holds in memory is bounded by the frame", fun memory/0},
                {"what is not counted stays below that bound by itself", fun uncounted/0},
                {"a frame that is refused leaves nothing behind", fun() -> undefined = get('$thalweg_messagepack_room') end},
                {"what is wrong is placed by its name on the wire", fun placed/0},
                {"values that do not fit are refused, by their place", fun misfits/0},
                {"calls are answered", fun calls/0},
                {"streams bring items and then their end", fun streams/0},
                {"streams are left, however reading them ends", fun left_streams/0},
                {"requests say how they are ordered", fun order/0}
            ],
    Failed = length([failed || Check <- Checks, not check(Check)]),
    io:format("golden-erlang: ~b passed, ~b failed~n", [length(Checks) - Failed, Failed]),
    halt(min(Failed, 1)).

check({Name, Judge}) ->
    try
        Judge(),
        true
    catch
        Class:Reason:Stack ->
            io:format(standard_error, "  FAILED: ~ts: ~p~n", [Name, {Class, Reason, Stack}]),
            false
    end.

same(Value, Value) -> ok.

frames(Directory) ->
    Names = lists:sort(filelib:wildcard("*.bin", Directory)),
    [{filename:basename(Name, ".bin"), read(filename:join(Directory, Name))} || Name <- Names].

read(Path) ->
    {ok, Bytes} = file:read_file(Path),
    Bytes.

named(Name, Golden) ->
    {_, Frame} = lists:keyfind(Name, 1, Golden),
    Frame.

%% Decodes a frame as what its first byte says it is, and encodes it again.
again(<<16#91, _/binary>> = Frame) ->
    encoded(echo_types:decode_request(Frame), fun echo_types:encode_request/1);
again(Frame) ->
    encoded(echo_types:decode_response(Frame), fun echo_types:encode_response/1).

encoded({ok, Message}, Encode) -> iolist_to_binary(Encode(Message));
encoded({error, {decode_error, _, _, _}} = Error, _) -> Error.

refuses_prefixes(Frame) ->
    [
        {error, {decode_error, _, truncated, _}} = again(binary:part(Frame, 0, Length))
     || Length <- lists:seq(0, byte_size(Frame) - 1)
    ].

%% The smallest values take less than 64 bytes of memory for each of their bytes on the wire.
uncounted() ->
    Many = 10000,
    Each = fun(Type, Item) -> {{list, 1, Type}, <<16#dd, Many:32>>, binary:copy(Item, Many)} end,
    Keys = [Key || High <- lists:seq(0, 127), Low <- lists:seq(0, 127), Key <- [<<High, Low>>]],
    Entries = << <<16#a2, Key/binary, 16#a0>> || Key <- Keys >>,
    Values = [
        Each(string, <<16#a0>>),
        Each({list, 1, string}, <<16#90>>),
        Each({map, 1, string}, <<16#80>>),
        Each({map, 1, string}, <<16#81, 16#a0, 16#a0>>),
        {{map, 1, string}, <<16#df, (length(Keys)):32>>, Entries}
    ],
    [
        begin
            Frame = <<16#92, 16#a1, $A, Head/binary, Items/binary>>,
            {ok, {a, Value}} = thalweg_messagepack:decode(response, [{<<"A">>, a, Type}], Frame),
            true = erts_debug:flat_size(Value) * erlang:system_info(wordsize) < 64 * byte_size(Frame)
        end
     || {Type, Head, Items} <- Values
    ],
    ok.

%% What is wrong is placed by its name on the wire, and where it begins.
placed() ->
    Head = <<16#91, 16#92, 16#aa, "EchoPlaces", 16#82, 16#a6, "places", 16#91, 16#83, 16#a4, "name", 16#a0>>,
    Aliases = <<16#91, 16#92, 16#ab, "EchoAliases">>,
    Number = <<Aliases/binary, 16#81, 16#ae, "sequenceNumber">>,
    [
        {error, {decode_error, Place, _, At}} = again(Frame)
     || {Frame, Place, At} <- [
            {<<Aliases/binary, 16#80>>, <<"EchoAliases.sequenceNumber">>, 15},
            {<<Number/binary, 16#c0>>, <<"EchoAliases.sequenceNumber">>, 30},
            {<<Number/binary, 16#ff>>, <<"EchoAliases.sequenceNumber">>, 30},
            %% An enum's word, by its field and where it begins; text, where that begins.
            {<<Head/binary, 16#a5, "moods", 16#81, 16#a1, "a", 16#a4, "glad">>, <<"Place.moods">>, 38},
            {<<Head/binary, 16#a5, "moods", 16#81, 16#a2, "a", 255, 16#a4, "calm">>, <<"Place.moods">>, 37},
            %% The struct, behind a field that holds another.
            {<<Head/binary, 16#a5, "inner", 16#81, 16#a6, "values", 16#90, 16#07>>, <<"Place">>, 44}
        ]
    ],
    ok.

%% A struct of optional fields is one byte on the wire, and takes far more memory than that.
memory() ->
    Names = [integer_to_binary(N) || N <- lists:seq(1, 40)],
    Fields = [{Name, binary_to_atom(<<"f", Name/binary>>), optional, string} || Name <- Names],
    Wide = {struct, <<"Wide">>, Fields},
    Messages = [{<<"X">>, x, {struct, <<"X">>, [{<<"a">>, a, required, {list, 1, Wide}}]}}],
    Frame = fun(Count) ->
        Values = binary:copy(<<16#80>>, Count),
        <<16#92, 16#a1, "X", 16#81, 16#a1, "a", 16#dd, Count:32, Values/binary>>
    end,
    {ok, {x, #{a := Few}}} = thalweg_messagepack:decode(response, Messages, Frame(5000)),
    5000 = length(Few),
    %% What was read is not told: to print it would take its memory again.
    Refused =
        case thalweg_messagepack:decode(response, Messages, Frame(20000)) of
            {ok, _} -> read;
            {error, {decode_error, Place, What, _}} -> {Place, What}
        end,
    {<<"Wide">>, memory} = Refused.

below(Bound) ->
    S0 = get(state),
    S1 = (S0 bxor (S0 bsl 13)) band 16#ffffffff,
    S2 = S1 bxor (S1 bsr 17),
    S3 = (S2 bxor (S2 bsl 5)) band 16#ffffffff,
    erlang:put(state, S3),
    S3 rem Bound.

mutate(Frames) ->
    Frame = element(below(tuple_size(Frames)) + 1, Frames),
    edit(below(2) + 1, Frame).

edit(0, Frame) ->
    Frame;
edit(Edits, Frame) ->
    What = below(8),
    At = below(byte_size(Frame)),
    Byte = below(256),
    <<Before:At/binary, Here, After/binary>> = Frame,
    Edited =
        case What of
            0 -> <<Before/binary, After/binary>>;
            1 -> <<Before/binary, Byte, Here, After/binary>>;
            2 -> <<Before/binary, Byte, After/binary>>;
            _ -> <<Before/binary, (Here bxor (1 bsl (Byte band 7))), After/binary>>
        end,
    edit(Edits - 1, Edited).

mutations(Frames, Refused, Outcomes) ->
    erlang:put(state, 16#7ea19e65),
    All = list_to_tuple(Frames),
    Mutated = [mutate(All) || _ <- lists:seq(1, 10000)],
    ok = file:write_file(Outcomes, [outcome(Frame) || Frame <- Refused ++ Mutated]).

outcome(Frame) ->
    case again(Frame) of
        {error, {decode_error, Place, _, At}} ->
            io_lib:format("- ~ts ~b~n", [Place, At]);
        Back ->
            Back = again(Back),
            [string:lowercase(binary:encode_hex(Back)), "\n"]
    end.

values(Golden) ->
    Numbers = #{
        tiny => 127,
        small => 128,
        medium => 256,
        large => 65536,
        signed_tiny => -128,
        signed_small => -32768,
        signed_medium => -2147483648,
        signed_large => -9223372036854775808,
        single => -1.5,
        precise => -math:pi()
    },
    Encoded = echo_types:encode_response({numbers_response, Numbers}),
    same(named("echo_numbers_min", Golden), iolist_to_binary(Encoded)),
    {ok, {places, Places}} = echo_types:decode_request(named("echo_places_request", Golden)),
    #{places := [#{moods := #{<<"tuesday">> := in_a_hurry}}, _]} = Places,
    #{grid := [[1, undefined], [-32768, -1], [32767, -32]]} = Places,
    #{counts := #{<<"\x{10000}"/utf8>> := 256}} = Places.

misfits() ->
    Refused = fun(Place, Request) ->
        try echo_types:encode_request(Request) of
            _ -> error(taken)
        catch
            error:{bad_value, At, _, _} -> same(Place, At)
        end
    end,
    Refused(<<"EchoFields.count">>, {fields, #{count => -1, total => 0, name => <<>>}}),
    Refused(<<"EchoFields.total">>, {fields, #{count => 0, total => 1 bsl 64, name => <<>>}}),
    Refused(<<"EchoFields.name">>, {fields, #{count => 0, total => 0, name => <<255>>}}),
    Refused(<<"EchoFields.name">>, {fields, #{count => 0, total => 0}}),
    Refused(<<"EchoFail">>, {fail, #{reason => <<>>, more => 1}}),
    Refused(<<"EchoBlobs.parts">>, {blobs, #{parts => []}}),
    Refused(<<"message">>, {nothing, #{}}),
    Refused(<<"EchoBytes.data">>, {bytes, #{data => 5}}),
    Refused(<<"message">>, {bytes, [data]}),
    Refused(<<"Inner.values">>, {nested, #{inner => #{values => [<<>> | <<>>]}}}),
    Refused(<<"EchoPlaces.counts">>, {places, #{
        places => [#{name => <<>>, moods => #{}}], counts => #{<<255>> => 1}, grid => [[1, 1], [1, 1], [1, 1]]
    }}),
    Refused(<<"Place.moods">>, {places, #{places => [#{name => <<>>, moods => #{<<>> => glad}}]}}),
    Refused(<<"Inner.flag">>, {nested, #{inner => #{values => [], flag => 1}}}),
    Numbers = #{
        tiny => 1,
        small => 1,
        medium => 1,
        large => 1,
        signed_tiny => 1,
        signed_small => 1,
        signed_medium => 1,
        signed_large => 1,
        single => 1,
        precise => 1
    },
    _ = echo_types:encode_request({numbers, Numbers}),
    Refused(<<"EchoNumbers.single">>, {numbers, Numbers#{single => 1.0e300}}),
    Refused(<<"EchoNumbers.precise">>, {numbers, Numbers#{precise => 1 bsl 2000}}),
    Refused(<<"EchoNumbers.precise">>, {numbers, Numbers#{precise => <<"5">>}}).

bytes(#{data := Data}) -> {ok, #{data => Data}}.
fields(Request) -> {ok, Request}.
nested(Request) -> {ok, Request}.
aliases(_) -> error(unprepared).
blobs(Request) -> {ok, Request}.
fail(#{reason := Reason}) -> {error, Reason}.
numbers(Request) -> {ok, Request}.
places(Request) -> {ok, Request}.
put(_) -> {ok, #{version => 1}}.
peek(_) -> {ok, #{}}.
peek_committed(_) -> {ok, #{value => <<"committed">>}}.

count(#{first := First, last := Last}, Send) ->
    {ok, #{count => count(First, Last, 0, Send)}}.

count(Value, Last, Count, _) when Value > Last -> Count;
count(Value, Last, Count, Send) ->
    case Send(#{value => Value}) of
        true -> count(Value + 1, Last, Count + 1, Send);
        false -> Count
    end.

%% Frames arrive in this process's mailbox; four items are enough for anybody.
carry(Request) ->
    Self = self(),
    erlang:put(items, 0),
    echo_server:dispatch_unordered(?MODULE, iolist_to_binary(Request), fun({Kind, Frame}) ->
        Self ! {came(Kind), iolist_to_binary(Frame)},
        erlang:put(items, get(items) + 1),
        get(items) < 5
    end).

came(item) -> item;
came(last) -> ok.

next() ->
    receive
        {ok, Frame} -> {ok, Frame};
        {item, Frame} -> {item, Frame}
    after 0 -> {error, nothing_came}
    end.

calls() ->
    Transport = fun(Request) ->
        carry(Request),
        next()
    end,
    {ok, #{data := <<1, 2>>}} = echo_client:bytes(Transport, #{data => <<1, 2>>}),
    {ok, #{value := <<"committed">>}} = echo_client:peek_committed(Transport, #{fork => <<>>}),
    {refused, <<"because">>} = echo_client:fail(Transport, #{reason => <<"because">>}),
    Aliases = #{sequence_number => 1, digest => <<0:256>>, chain => []},
    {refused, <<"{error,unprepared}">>} = echo_client:aliases(Transport, Aliases),
    {error, lost} = echo_client:bytes(fun(_) -> {error, lost} end, #{data => <<>>}),
    {ok, Nonsense} = Transport(<<"nonsense">>),
    {ok, {error_response, _}} = echo_types:decode_response(Nonsense).

streams() ->
    Transport = fun(Request) ->
        carry(Request),
        {ok, {fun next/0, fun left/0}}
    end,
    Fold = fun(#{value := Value}, Values) -> [Value | Values] end,
    {ok, {#{count := 3}, [9, 8, 7]}} = echo_client:count(Transport, #{first => 7, last => 9}, Fold, []),
    {ok, {#{count := 4}, _}} = echo_client:count(Transport, #{first => 0, last => 16#ffffffff}, Fold, []),
    ok = last_left(2).

left() ->
    self() ! left,
    ok.

%% So many streams were left since this was asked last.
last_left(Streams) ->
    receive
        left -> last_left(Streams - 1)
    after 0 ->
        0 = Streams,
        ok
    end.

%% However reading a stream ends, it is left; and what is no item, or no end, ends it.
left_streams() ->
    Item = iolist_to_binary(echo_types:encode_response({count_item, #{value => 7}})),
    End = iolist_to_binary(echo_types:encode_response({count_response, #{count => 1}})),
    Counted = fun(Came, Fold) ->
        put(came, Came),
        Next = fun() ->
            [First | Rest] = get(came),
            put(came, Rest),
            First
        end,
        echo_client:count(fun(_) -> {ok, {Next, fun left/0}} end, #{first => 7, last => 7}, Fold, none)
    end,
    Last = fun(#{value := Value}, _) -> Value end,
    {ok, {#{count := 1}, 7}} = Counted([{item, Item}, {ok, End}], Last),
    {error, {decode_error, _, _, _}} = Counted([{item, <<"nonsense">>}], Last),
    {error, {unexpected, count_item}} = Counted([{ok, Item}], Last),
    {error, {unexpected, count_response}} = Counted([{item, End}], Last),
    {error, lost} = Counted([{item, Item}, {error, lost}], Last),
    thrown =
        try
            Counted([{item, Item}], fun(_, _) -> throw(thrown) end)
        catch
            Thrown -> Thrown
        end,
    ok = last_left(6).

order() ->
    {write, <<"main">>} = echo_types:access_of({put, #{fork => <<"main">>, value => <<>>}}),
    unordered = echo_types:access_of({fail, #{reason => <<>>}}).
