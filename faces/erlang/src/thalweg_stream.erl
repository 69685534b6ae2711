%% @doc What a generator in Python brings, value by value.
%%
%% Values come as `{thalweg, Reference, {data, Value}}', then `{thalweg, Reference, done}' or
%% `{thalweg, Reference, {error, Reason}}'. So many may be on their way as there is credit: {@link next/2} gives it back as values
%% are taken, and a process that receives the messages by itself calls {@link grant/2}. A generator whose process ends is closed.
-module(thalweg_stream).

-export([open/3, open/4, next/1, next/2, grant/2, close/1, fold/3, reference/1]).
-export_type([stream/0]).

-opaque stream() :: {reference(), thalweg_nif:connection(), non_neg_integer()}.

-define(CREDIT, 64).

-spec open(thalweg:name(), thalweg:name(), list()) -> {ok, stream()} | {error, term()}.
open(Module, Function, Arguments) -> open(Module, Function, Arguments, #{}).

%% @doc Calls a function for what it brings: a generator, an asynchronous one, or anything else that can be iterated. With
%% `batch' the values come in lists of so many at most, each of which takes one of the credit.
-spec open(thalweg:name(), thalweg:name(), list(), thalweg:options()) -> {ok, stream()} | {error, term()}.
open(Module, Function, Arguments, Options) ->
    ok = thalweg_options:demand(stream, Options),
    {_, Connections, Within} = thalweg:route(Options),
    Reference = make_ref(),
    Call = {Module, Function, Arguments, maps:get(keywords, Options, #{}), maps:get(batch, Options, none), Within},
    case thalweg_nif:stream(Connections, Reference, Call, maps:get(credit, Options, ?CREDIT)) of
        {pending, Connection, Number} -> {ok, {Reference, Connection, Number}};
        {error, Reason} -> {error, Reason}
    end.

-spec next(stream()) -> {data, term()} | done | {error, term()}.
next(Stream) -> next(Stream, 5000).

%% @doc The next value; `done' is the end, and so is an error. In time, or the stream is closed. A stream whose end was taken already,
%% or that another process opened, is `badarg'.
-spec next(stream(), timeout()) -> {data, term()} | done | {error, term()}.
next({_, Connection, Number} = Stream, Timeout) ->
    case thalweg:receive_of(Stream, thalweg:patience(Timeout)) of
        {told, {data, _} = Data} ->
            ok = thalweg_nif:grant(Connection, Number, 1),
            Data;
        {told, End} -> End;
        late ->
            ok = close(Stream),
            {error, timeout};
        none -> error(badarg)
    end;
next(_Stream, _Timeout) -> error(badarg).

%% @doc Lets so many values more come.
-spec grant(stream(), pos_integer()) -> ok.
grant({_, Connection, Number}, Values) -> thalweg_nif:grant(Connection, Number, Values);
grant(_Stream, _Values) -> error(badarg).

%% @doc Closes the generator: nothing more comes, and nothing that came before is left.
-spec close(stream()) -> ok.
close({Reference, Connection, Number}) ->
    ok = thalweg_nif:cancel(Connection, Number),
    thalweg:flush(Reference);
close(_Stream) -> error(badarg).

%% @doc Every value in turn.
-spec fold(fun((term(), Sum) -> Sum), Sum, stream()) -> {ok, Sum} | {error, term()}.
fold(Function, Sum, Stream) when is_function(Function, 2) ->
    case next(Stream, infinity) of
        {data, Value} -> fold(Function, Function(Value, Sum), Stream);
        done -> {ok, Sum};
        {error, Reason} -> {error, Reason}
    end;
fold(_Function, _Sum, _Stream) -> error(badarg).

%% @doc What its messages are told by.
-spec reference(stream()) -> reference().
reference({Reference, _, _}) -> Reference;
reference(_Stream) -> error(badarg).
