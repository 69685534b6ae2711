%% @doc The streams of a `thalweg serve' on this machine, through the socket or the shared memory in its store's directory.
%%
%% A tail's pieces come as messages `{thalweg, Reference, {frame, Frame}}', no more of them than there is credit, and are read by
%% {@link message/1}; {@link next/2} waits for one, reads it, and gives its credit back. A process that receives them by itself knows them by
%% {@link thalweg_client:reference/1}, and gives credit back by {@link thalweg_client:grant/2}. Everything else that the server does
%% is `log_client', with {@link thalweg_client:transport/1}.
-module(thalweg_log).

-export([connect/1, connect/2, append/3, read/3, tail/3, tail/4, next/1, next/2, message/1, close/1]).
-export_type([piece/0]).

%% What was appended, and where it ends: a later tail from there goes on behind it.
-type piece() :: {data, binary(), Next :: binary()}.

-spec connect(iodata()) -> {ok, thalweg_client:client()} | {error, term()}.
connect(Endpoint) -> connect(Endpoint, #{}).

%% @doc With `reconnect' a client outlives its server: calls and tails that were under way fail, and the next ones connect anew.
-spec connect(iodata(), thalweg_client:options()) -> {ok, thalweg_client:client()} | {error, term()}.
connect(Endpoint, Options) when is_map(Options) -> thalweg_client:connect(Endpoint, Options#{schema => log_types:schema_hash()});
connect(_Endpoint, _Options) -> error(badarg).

%% @doc Appends; returns when it is durable, with the stream's new end.
-spec append(thalweg_client:client(), thalweg:name(), binary()) -> {ok, Next :: binary()} | {refused, binary()} | {error, term()}.
append(Client, Name, Data) when is_binary(Data) ->
    Request = #{name => text(Name), data => Data, content_type => undefined, producer => undefined, close => false},
    case log_client:append(thalweg_client:transport(Client), Request) of
        {ok, #{next := Next}} -> {ok, Next};
        Other -> Other
    end;
append(_Client, _Name, _Data) -> error(badarg).

%% @doc What a stream holds from an offset on, as much of it as one answer carries.
-spec read(thalweg_client:client(), thalweg:name(), binary()) -> {ok, piece()} | {refused, binary()} | {error, term()}.
read(Client, Name, Offset) ->
    case log_client:read(thalweg_client:transport(Client), from(Name, Offset)) of
        {ok, #{data := Data, next := Next}} -> {ok, {data, Data, Next}};
        Other -> Other
    end.

-spec tail(thalweg_client:client(), thalweg:name(), binary()) -> {ok, thalweg_client:stream()} | {error, term()}.
tail(Client, Name, Offset) -> tail(Client, Name, Offset, 64).

%% @doc What a stream holds from an offset on, `<<"-1">>' from its beginning, and then whatever is appended, until it is closed.
-spec tail(thalweg_client:client(), thalweg:name(), binary(), pos_integer()) -> {ok, thalweg_client:stream()} | {error, term()}.
tail(Client, Name, Offset, Credit) ->
    Frame = log_types:encode_request({tail, from(Name, Offset)}),
    thalweg_client:stream(Client, Frame, #{credit => Credit}).

%% An offset is text as well, and no atom.
-spec from(thalweg:name(), binary()) -> map().
from(Name, Offset) when is_binary(Offset) -> #{name => text(Name), offset => text(Offset)};
from(_Name, _Offset) -> error(badarg).

%% What generated code would refuse in words of its own.
-spec text(thalweg:name()) -> binary().
text(Name) when is_atom(Name) -> atom_to_binary(Name);
text(Name) when is_binary(Name) ->
    case unicode:characters_to_binary(Name) of
        Name -> Name;
        _ -> error(badarg)
    end;
text(_Name) -> error(badarg).

-spec next(thalweg_client:stream()) -> piece() | {closed, binary()} | {refused, binary()} | {error, term()}.
next(Tail) -> next(Tail, infinity).

%% @doc The next piece; a tail for which none comes in time is closed. Behind its end it is `badarg'.
-spec next(thalweg_client:stream(), timeout()) -> piece() | {closed, binary()} | {refused, binary()} | {error, term()}.
next(Tail, Timeout) ->
    case thalweg_client:next(Tail, Timeout) of
        {item, Frame} -> message({frame, Frame});
        End -> message(End)
    end.

%% @doc What a tail's message says.
-spec message({frame | ok, binary()} | {error, term()}) -> piece() | {closed, binary()} | {refused, binary()} | {error, term()}.
message({error, Reason}) -> {error, Reason};
message({Kind, Frame}) when Kind =:= frame orelse Kind =:= ok, is_binary(Frame) ->
    case {Kind, log_types:decode_response(Frame)} of
        {frame, {ok, {tail_item, #{data := Data, next := Next}}}} -> {data, Data, Next};
        {ok, {ok, {tail_response, #{next := Next}}}} -> {closed, Next};
        {ok, {ok, {error_response, #{message := Words}}}} -> {refused, Words};
        %% In the words of generated clients.
        {_, {ok, {Name, _}}} -> {error, {unexpected, Name}};
        {_, {error, Reason}} -> {error, Reason}
    end;
message(_Message) -> error(badarg).

%% @doc Wants no more of it.
-spec close(thalweg_client:stream()) -> ok.
close(Tail) -> thalweg_client:cancel(Tail).
