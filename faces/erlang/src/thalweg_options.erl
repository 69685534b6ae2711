%% @private What may stand in a map of options: which options there are wherever some are taken, and what each of them may be.
%%
%% Knows nothing of what they are for. A function that starts something answers `{error, {bad_option, Option, Words}}' ({@link check/2}); a call, and
%% whatever else is made again and again, fails with `badarg' as it does of any argument that is none, and the words go with it
%% ({@link demand/2}). Either way nothing has begun.
-module(thalweg_options).

-export([check/2, demand/2, format_error/2]).
-export_type([wrong/0]).

-type wrong() :: {bad_option, Option :: term(), Words :: binary()}.
%% What takes them.
-type taker() ::
    pool | call | begun | gather | source | stream | channel | events | answer | answer_stream | server | connection | request | stream_request.
%% What an option may be.
-type type() ::
    any | atom | map | boolean | schema | runner | address | binary | timeout | name | names | environment
    | {integer, Least :: integer()}
    | {integer, Least :: integer(), Most :: integer()}
    | {one_of, [atom()]}
    | {none_or, type()}.

%% What the native half counts with, and the longest that the virtual machine waits.
-define(NATIVE_MAX, 16#ffffffff).
%% So many milliseconds, and what a wait adds to them.
-define(MILLISECONDS_MAX, 16#7fffffff).
%% Characters of a wrong value that are told.
-define(CHARACTERS_MAX, 200).

%% The options that there are.
-spec known(taker()) -> #{atom() => type()}.
known(pool) ->
    #{
        size => {integer, 1},
        python => name,
        venv => name,
        directory => name,
        environment => environment,
        path => names,
        in_flight_max => {integer, 1, ?NATIVE_MAX},
        start_within => {integer, 1, ?MILLISECONDS_MAX},
        shut_down_within => {integer, 0, ?MILLISECONDS_MAX}
    };
known(call) -> #{pool => atom, keywords => map, timeout => timeout, affinity => any};
%% What comes of it is waited for elsewhere, or not at all.
known(begun) -> #{pool => atom, keywords => map, affinity => any};
%% Each of several calls has its own keywords.
known(gather) -> #{pool => atom, timeout => timeout, affinity => any};
known(source) -> #{pool => atom, timeout => timeout, affinity => any, namespace => any};
known(stream) ->
    #{
        pool => atom, keywords => map, affinity => any, credit => {integer, 1, ?NATIVE_MAX},
        batch => {none_or, {integer, 1, ?NATIVE_MAX}}
    };
known(channel) -> #{kind => {one_of, [terms, bytes]}, capacity => {integer, 1}};
known(events) -> #{capacity => {integer, 1}};
known(answer) -> #{pool => atom, runner => runner, timeout => timeout};
known(answer_stream) -> #{pool => atom, runner => runner};
known(server) ->
    #{
        app => binary,
        pool => atom,
        runner => runner,
        timeout => timeout,
        ip => address,
        port => {integer, 0, 65535},
        idle_ms_max => {integer, 1, ?MILLISECONDS_MAX},
        body_bytes_max => {integer, 1},
        connections_max => {integer, 1}
    };
known(connection) ->
    #{
        schema => schema,
        shared => boolean,
        connect_within => {integer, 0, ?MILLISECONDS_MAX},
        reconnect => boolean,
        same_user_only => boolean,
        in_flight_max => {integer, 1, ?NATIVE_MAX}
    };
known(request) -> #{deadline => {none_or, {integer, 0}}};
known(stream_request) -> #{deadline => {none_or, {integer, 0}}, credit => {integer, 1, ?NATIVE_MAX}}.

%% Those that have to be said.
-spec required(taker()) -> [atom()].
required(server) -> [app];
required(_Taker) -> [].

%% @doc Whether options are what they may be: for functions that start something.
-spec check(taker(), map()) -> ok | {error, wrong()}.
check(Taker, Options) when is_map(Options) ->
    case [Option || Option <- required(Taker), not is_map_key(Option, Options)] of
        [] -> of_each(known(Taker), maps:next(maps:iterator(Options)));
        [Option | _] -> {error, {bad_option, Option, <<"it has to be said">>}}
    end;
check(_Taker, _Options) -> error(badarg).

%% @doc The same for functions that are called often: what is wrong is a wrong argument.
-spec demand(taker(), map()) -> ok.
demand(_Taker, Options) when Options =:= #{} -> ok;
demand(Taker, Options) ->
    case check(Taker, Options) of
        ok -> ok;
        {error, Wrong} -> erlang:error(badarg, [Taker, Options], [{error_info, #{module => ?MODULE, cause => Wrong}}])
    end.

%% @doc What the shell, and a crash report, say of it.
-spec format_error(term(), erlang:stacktrace()) -> #{general => binary()}.
format_error(_Reason, [{_, _, _, Info} | _]) ->
    #{cause := {bad_option, Option, Words}} = proplists:get_value(error_info, Info),
    #{general => unicode:characters_to_binary(io_lib:format("~tp: ~ts", [Option, Words]))}.

-spec of_each(#{atom() => type()}, none | {term(), term(), maps:iterator()}) -> ok | {error, wrong()}.
of_each(_Known, none) -> ok;
of_each(Known, {Option, Value, Others}) ->
    case Known of
        #{Option := Type} ->
            case is_one(Type, Value) of
                true -> of_each(Known, maps:next(Others));
                false -> {error, {bad_option, Option, said("~ts, not ~tp", [words(Type), Value])}}
            end;
        _ ->
            Names = lists:join(", ", [atom_to_list(Name) || Name <- lists:sort(maps:keys(Known))]),
            {error, {bad_option, Option, said("no such option, there are ~ts", [Names])}}
    end.

-spec said(string(), list()) -> binary().
said(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments, [{chars_limit, ?CHARACTERS_MAX}])).

-spec is_one(type(), term()) -> boolean().
is_one(any, _Value) -> true;
is_one(atom, Value) -> is_atom(Value);
is_one(map, Value) -> is_map(Value);
is_one(boolean, Value) -> is_boolean(Value);
is_one(binary, Value) -> is_binary(Value);
is_one(schema, Value) -> is_binary(Value) andalso byte_size(Value) =:= 32;
is_one(runner, Value) -> is_binary(Value) andalso length(binary:split(Value, <<":">>)) =:= 2;
is_one(address, Value) -> Value =:= any orelse Value =:= loopback orelse inet:is_ip_address(Value);
is_one(timeout, Value) -> Value =:= infinity orelse is_one({integer, 0, ?NATIVE_MAX}, Value);
is_one(name, Value) -> is_text(Value) andalso Value =/= <<>> andalso Value =/= [];
is_one(names, Value) -> is_list_of(fun(Name) -> is_one(name, Name) end, Value);
is_one(environment, Value) -> is_list_of(fun is_variable/1, Value);
is_one({integer, Least}, Value) -> is_integer(Value) andalso Value >= Least;
is_one({integer, Least, Most}, Value) -> is_integer(Value) andalso Value >= Least andalso Value =< Most;
is_one({one_of, Words}, Value) -> lists:member(Value, Words);
is_one({none_or, Type}, Value) -> Value =:= none orelse is_one(Type, Value).

-spec is_list_of(fun((term()) -> boolean()), term()) -> boolean().
is_list_of(Is, [Item | Items]) -> Is(Item) andalso is_list_of(Is, Items);
is_list_of(_Is, End) -> End =:= [].

%% As the operating system takes a variable of an environment.
-spec is_variable(term()) -> boolean().
is_variable({[_ | _] = Name, Value}) ->
    is_text(Name) andalso not lists:member($=, Name) andalso (Value =:= false orelse is_list(Value) andalso is_text(Value));
is_variable(_Other) -> false.

%% A string or UTF-8, without what ends one for the operating system.
-spec is_text(term()) -> boolean().
is_text(Text) when is_binary(Text) -> is_text(unicode:characters_to_list(Text));
is_text(Text) -> is_list_of(fun is_character/1, Text).

-spec is_character(term()) -> boolean().
is_character(Character) when is_integer(Character), Character > 0, Character < 16#d800 -> true;
is_character(Character) -> is_integer(Character) andalso Character > 16#dfff andalso Character =< 16#10ffff.

-spec words(type()) -> iodata().
words(atom) -> "an atom";
words(map) -> "a map";
words(boolean) -> "true or false";
words(binary) -> "a binary";
words(schema) -> "a hash of 32 bytes";
words(runner) -> "a binary, <<\"module:function\">>";
words(address) -> "an address, {127, 0, 0, 1}";
words(timeout) -> "milliseconds or infinity";
words(name) -> "a path, a string or a binary of UTF-8";
words(names) -> "a list of paths, strings or binaries of UTF-8";
words(environment) -> "a list of {Name, Value}, strings, or {Name, false}";
words({integer, Least}) -> ["an integer from ", integer_to_list(Least), " on"];
words({integer, Least, Most}) -> ["an integer from ", integer_to_list(Least), " to ", integer_to_list(Most)];
words({one_of, Words}) -> lists:join(" or ", [atom_to_list(Word) || Word <- Words]);
words({none_or, Type}) -> ["none or ", words(Type)].
