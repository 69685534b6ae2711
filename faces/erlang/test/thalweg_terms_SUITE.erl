%% Every kind of term, to Python and back, and every kind of value, to Erlang and back.
-module(thalweg_terms_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        table, random_terms, random_values, what_has_no_value, what_python_cannot_say, what_erlang_cannot_say,
        prefixes_and_noise, depth, depth_to_the_level
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

echo(Term) -> thalweg:call(sample, echo, [Term]).

%% The table of the documentation, row by row.
table(_Config) ->
    Rows = [
        {1, <<"int">>},
        {-(1 bsl 63), <<"int">>},
        {1 bsl 64, <<"int">>},
        {-(1 bsl 3000), <<"int">>},
        {1.5, <<"float">>},
        {true, <<"bool">>},
        {false, <<"bool">>},
        {none, <<"NoneType">>},
        {<<"text">>, <<"str">>},
        {<<"žluťoučký"/utf8>>, <<"str">>},
        {<<255, 0>>, <<"bytes">>},
        {ok, <<"Atom">>},
        {'žluť', <<"Atom">>},
        {'ÿ', <<"Atom">>},
        {[1, 2], <<"list">>},
        {"text", <<"list">>},
        {{1, <<"a">>, {}}, <<"tuple">>},
        {#{<<"a">> => #{1 => [none]}}, <<"dict">>},
        {self(), <<"Pid">>},
        {make_ref(), <<"Reference">>}
    ],
    [
        begin
            {ok, Kind} = thalweg:call(sample, kind, [Term]),
            {ok, Term} = echo(Term)
        end
     || {Term, Kind} <- Rows
    ],
    {ok, <<"bytes">>} = thalweg:call(sample, kind, [{bytes, <<"text">>}]),
    {ok, <<"text">>} = echo({bytes, <<"text">>}),
    {ok, infinity} = thalweg:eval("float('inf')"),
    {ok, negative_infinity} = thalweg:eval("float('-inf')"),
    {ok, nan} = thalweg:eval("float('nan')"),
    {ok, [1]} = thalweg:eval("{1}"),
    {ok, <<"ab">>} = thalweg:eval("bytearray(b'ab')"),
    {ok, <<"ab">>} = thalweg:eval("memoryview(b'ab')").

random_terms(_Config) ->
    rand:seed(exsss, {1, 2, 3}),
    [
        begin
            Term = term(3),
            {ok, Bytes} = thalweg_nif:encode(Term),
            {ok, Term} = thalweg_nif:decode(Bytes),
            {ok, Term} = echo(Term)
        end
     || _ <- lists:seq(1, 1000)
    ].

%% Python makes values, says them, hears them back, and compares.
random_values(_Config) ->
    ok = element(1, thalweg:exec(
        "import random\n"
        "from thalweg._native import decode_term, encode_term\n"
        "from thalweg.erlang import Atom\n"
        "chance = random.Random(1)\n"
        "def value(depth):\n"
        "    kind = chance.randrange(10 if depth else 7)\n"
        "    match kind:\n"
        "        case 0: return None\n"
        "        case 1: return chance.random() < 0.5\n"
        "        case 2: return chance.randrange(-1 << 80, 1 << 80) >> chance.randrange(80)\n"
        "        case 3: return chance.uniform(-1e300, 1e300)\n"
        "        case 4: return ''.join(chr(chance.choice((65, 233, 8364, 128512))) for _ in range(chance.randrange(40)))\n"
        "        case 5: return b'\\xff' + chance.randbytes(chance.randrange(40))\n"
        "        case 6: return Atom('ok')\n"
        "        case 7: return [value(depth - 1) for _ in range(chance.randrange(20))]\n"
        "        case 8: return tuple(value(depth - 1) for _ in range(chance.randrange(5)))\n"
        "        case 9: return {str(key): value(depth - 1) for key in range(chance.randrange(20))}\n"
        "values = [value(4) for _ in range(500)]\n"
        "for each in values:\n"
        "    assert decode_term(encode_term(each)) == each\n"
    )),
    {ok, Values} = thalweg:eval("values"),
    500 = length(Values),
    {ok, true} = thalweg:eval("values == back", #{back => Values}).

what_has_no_value(_Config) ->
    Without = [fun() -> ok end, <<1:3>>, [1 | 2], hd(erlang:ports()), [{a, #{b => fun ?MODULE:all/0}}]],
    [{error, {no_python_value, _}} = echo(Term) || Term <- Without],
    [{error, {no_python_value, _}} = thalweg:cast(sample, echo, [Term]) || Term <- Without],
    [{error, {no_python_value, _}}] = thalweg:async_gather([{sample, echo, [fun() -> ok end]}]),
    {ok, 1} = echo(1),
    %% What are no arguments at all is the caller's mistake.
    Calls = [
        fun(A) -> thalweg:call(math, sqrt, A) end, fun(A) -> thalweg:cast(math, sqrt, A) end,
        fun(A) -> thalweg:spawn_call(math, sqrt, A) end, fun(A) -> thalweg_stream:open(builtins, range, A) end
    ],
    [{Wrong, {'EXIT', {badarg, _}}} = {Wrong, catch Call(Wrong)} || Call <- Calls, Wrong <- [foo, 4, <<"4">>, {4}, #{}]],
    [{error, {no_python_value, <<"an improper list">>}} = Call([4 | 4]) || Call <- Calls -- [lists:nth(3, Calls)]],
    {error, {no_python_value, <<"an improper list">>}} = thalweg:await(thalweg:spawn_call(math, sqrt, [4 | 4])).

%% Keys that Python cannot have, or cannot tell apart.
what_python_cannot_say(_Config) ->
    {error, {exception, <<"TypeError">>, _, _}} = echo(#{[1] => 1}),
    {error, {exception, <<"ValueError">>, _, _}} = echo(#{1 => a, 1.0 => b}),
    %% Names as well, of keywords and of variables.
    Twice = #{left => 1, <<"left">> => 2},
    {error, {exception, <<"ValueError">>, _, _}} = thalweg:call(sample, add, [], #{keywords => Twice}),
    {error, {exception, <<"ValueError">>, _, _}} = thalweg:eval("left", Twice),
    {error, {exception, <<"ValueError">>, _, _}} = thalweg:exec("left", Twice),
    {ok, 1} = echo(1).

what_erlang_cannot_say(_Config) ->
    {error, {exception, <<"TypeError">>, Words, _}} = thalweg:call(sample, no_value, []),
    {match, _} = re:run(Words, "object has no value in Erlang"),
    {error, {no_erlang_value, _}} = thalweg:eval("__import__('thalweg.erlang').erlang.Atom('no such atom as this')"),
    {error, {exception, <<"UnicodeEncodeError">>, _, _}} = thalweg:eval("'\\ud800'").

%% No bytes bring either side down.
prefixes_and_noise(_Config) ->
    rand:seed(exsss, {4, 5, 6}),
    {ok, Bytes} = thalweg_nif:encode(term(3)),
    [{error, _} = thalweg_nif:decode(binary:part(Bytes, 0, N)) || N <- lists:seq(0, byte_size(Bytes) - 1)],
    Noise = [rand:bytes(rand:uniform(64)) || _ <- lists:seq(1, 5000)],
    [true = lists:member(element(1, thalweg_nif:decode(Some)), [ok, error]) || Some <- Noise],
    %% Nor is anything what it is not: a process is one, and a reference.
    [Pid, Reference | Others] = [{Term, term_to_binary(Term)} || Term <- [self(), make_ref(), ok, 5, [], #{}, <<"x">>]],
    [
        {Type, Term, {error, {no_erlang_value, _}}} = {Type, Term, thalweg_nif:decode(<<16#c7, (byte_size(Form)), Type, Form/binary>>)}
     || {Type, Wrong} <- [{3, [Reference | Others]}, {4, [Pid | Others]}], {Term, Form} <- Wrong
    ],
    heard(Noise).

heard(Noise) ->
    {ok, none} = thalweg:exec(
        "from thalweg._native import decode_term\n"
        "def heard(some):\n"
        "    try:\n"
        "        decode_term(some)\n"
        "    except (ValueError, TypeError):\n"
        "        pass\n"
        "    return True\n"
    ),
    {ok, Count} = thalweg:eval("sum(map(heard, noise))", #{noise => [{bytes, Some} || Some <- Noise]}),
    Count = length(Noise).

depth(_Config) ->
    Deep = lists:foldl(fun(_, Inner) -> [Inner] end, [], lists:seq(1, 300)),
    {error, {no_python_value, _}} = echo(Deep),
    {error, {exception, <<"ValueError">>, _, _}} = thalweg:call(sample, deep, [300]),
    {error, {exception, <<"ValueError">>, _, _}} =
        thalweg:eval("(a := [], a.append(a), a)[2]"),
    {ok, _} = thalweg:call(sample, deep, [200]).

%% What is said of it is where it is: a value itself is a level, and what carries it is one or two.
depth_to_the_level(_Config) ->
    ok = thalweg:register(echo, fun([Value]) -> Value end),
    ok = thalweg:register(nested, fun([Depth]) -> nested(Depth) end),
    Source = <<"from thalweg import erlang\ndef nested(n):\n    value = 1\n    for _ in range(n):\n        value = [value]\n    return value\n">>,
    {ok, none} = thalweg:exec(Source),
    Says = fun(Code) -> fun(Depth) -> thalweg:eval(Code, #{depth => Depth}) end end,
    [
        [{What, Depth, IsTaken} = {What, Depth, is_taken(Act(Depth))} || {Depth, IsTaken} <- [{Most - 1, true}, {Most, true}, {Most + 1, false}]]
     || {What, Most, Act} <- [
            {argument, 255, fun(Depth) -> thalweg:call(builtins, bool, [nested(Depth)]) end},
            {result, 255, Says("nested(depth)")},
            {callbacks_result, 255, Says("erlang.call('nested', depth) and True")},
            {keyword, 254, fun(Depth) -> thalweg:call(builtins, dict, [], #{keywords => #{a => nested(Depth)}}) end},
            {variable, 254, fun(Depth) -> thalweg:eval("value and True", #{value => nested(Depth)}) end},
            {callbacks_argument, 253, Says("erlang.call('echo', nested(depth)) and True")}
        ]
    ],
    ok = thalweg:unregister(echo),
    ok = thalweg:unregister(nested).

is_taken({ok, _}) -> true;
is_taken({error, _}) -> false.

%% So many lists around a number.
nested(0) -> 1;
nested(Depth) -> [nested(Depth - 1)].

%% A random term of those that come back as they are.
term(0) -> leaf();
term(Depth) ->
    case rand:uniform(7) of
        1 -> [term(Depth - 1) || _ <- lists:seq(1, rand:uniform(20) - 1)];
        2 -> list_to_tuple([term(Depth - 1) || _ <- lists:seq(1, rand:uniform(6) - 1)]);
        3 -> maps:from_list([{integer_to_binary(N), term(Depth - 1)} || N <- lists:seq(1, rand:uniform(20) - 1)]);
        _ -> leaf()
    end.

leaf() ->
    case rand:uniform(10) of
        1 -> rand:uniform(300) - 150;
        2 -> (rand:uniform(1 bsl 62) - (1 bsl 61)) bsr rand:uniform(60);
        3 -> (rand:uniform(1 bsl 62) bsl rand:uniform(200)) * (2 * rand:uniform(2) - 3);
        4 -> rand:normal() * 1.0e10;
        5 -> rand:bytes(rand:uniform(300) - 1);
        6 -> unicode:characters_to_binary([rand:uniform(16#4ff) || _ <- lists:seq(1, rand:uniform(40) - 1)]);
        7 -> lists:nth(rand:uniform(5), [true, false, none, undefined, 'ok then']);
        8 -> self();
        9 -> make_ref();
        10 -> <<>>
    end.
