%% The client that takes single steps and says how each ended: what is wrong is at the other end, and is for the program
%% that started this to report. The steps stand in conformance/matrix/README.md.
-module(echo_probe).
-export([run/3]).

-define(REQUEST, #{count => 7, total => 9, name => <<"step">>}).
%% More than a frame may have unless said otherwise.
-define(LARGE_BYTES, ((16 bsl 20) + 1)).

run(Endpoint, Within, Steps) ->
    Options = #{schema => echo_types:schema_hash(), connect_within => list_to_integer(Within)},
    case thalweg_client:connect(Endpoint, Options) of
        {ok, Client} -> [io:format("~s~n", [said(take(Client, Step))]) || Step <- Steps];
        Error -> io:format("~s~n", [said(Error)])
    end.

take(Client, "echo") -> ask(Client, #{});
take(Client, "late") -> ask(Client, #{deadline => 50});
take(Client, "cancel") ->
    {ok, Call} = thalweg_client:send(Client, echo_types:encode_request({fields, ?REQUEST})),
    ok = thalweg_client:cancel(Call),
    {error, {fault, cancelled, <<>>}};
take(Client, "large") -> thalweg_client:call(Client, binary:copy(<<0>>, ?LARGE_BYTES));
take(Client, [$x | Hex]) -> thalweg_client:call(Client, binary:decode_hex(list_to_binary(Hex))).

ask(Client, Options) -> echo_client:fields(thalweg_client:transport(Client, Options), ?REQUEST).

said({ok, Frame}) when is_binary(Frame) -> "ok";
said({ok, #{count := 7, total := 9, name := <<"step">>}}) -> "ok";
said({refused, _}) -> "refused";
said({error, {fault, Name, _}}) -> atom_to_list(Name);
said({error, {decode_error, _, _, _}}) -> "decode";
said({error, {unexpected, _}}) -> "decode";
said(Other) -> io_lib:format("~0p", [Other]).
