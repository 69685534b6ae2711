%% @private A request's body on its way to an application that asks for it, piece by piece.
%%
%% What is short, or there already, is read at once and goes along with the request. Any other body is read from the socket by a
%% process of its own, no more at a time than one piece and no sooner than the application asks: so a body of any length takes the
%% memory of a piece, its sender is held up by TCP until it is wanted, and a client that waits for `100 Continue' is told so when
%% it is. The length of a body in chunks is not known, so it comes that way in any case, and is refused where it goes beyond what it
%% may have, or is none. That process ends with the connection's; it alone reads from the socket until the body is over, and never writes there:
%% the connection does, which hears of each piece that is asked for, and of its coming ({@link next/5}).
-module(thalweg_body).

-export([begin_with/4, argument/1, next/5, is_read/1, rest/2]).
-export([from_python/1]).
-export_type([body/0]).

%% What is read at once, and what is read at a time.
-define(AT_ONCE_BYTES_MAX, 65536).
-define(PIECE_BYTES_MAX, 65536).

-record(body, {
    %% All of it, where it was read at once, or the process that reads it.
    whole = <<>> :: binary(),
    reader = none :: pid() | none,
    is_read :: boolean(),
    %% What came behind it, but for what the reader has, and whether the socket tells that its client is gone.
    early = <<>> :: binary(),
    is_watched = false :: boolean()
}).

-opaque body() :: #body{}.

%% How long a body is, or that it comes in chunks, of so many bytes in all at the most.
-type size() :: non_neg_integer() | {chunks, Most :: non_neg_integer()}.

-record(state, {
    socket :: gen_tcp:socket(),
    owner :: pid(),
    %% What came and was not asked for, and how much of the body is still to be said.
    buffer :: binary(),
    left :: non_neg_integer() | thalweg_chunks:chunks(),
    idle :: timeout(),
    %% Of a body in chunks: milliseconds that may still be waited for what fills a piece, and how many bytes it lacks.
    patience :: timeout(),
    lacks = ?PIECE_BYTES_MAX :: pos_integer(),
    %% Nothing comes before the client is told to go on.
    waits :: boolean()
}).

%% @doc The body of a request: its size, and whether the client waits for `100 Continue'. `late' where it does not come in time, `closed'
%% where it does not come.
-spec begin_with(gen_tcp:socket(), binary(), {size(), boolean()}, timeout()) -> {ok, body()} | late | closed.
begin_with(Socket, Buffer, {Length, Waits}, Idle) when
    is_integer(Length), Length =< byte_size(Buffer); is_integer(Length), Length =< ?AT_ONCE_BYTES_MAX, not Waits
->
    case thalweg_request:body(Socket, Buffer, Length, Idle) of
        {ok, Body, Rest} -> {ok, #body{whole = Body, early = Rest, is_read = true}};
        {error, timeout} -> late;
        {error, _} -> closed
    end;
begin_with(Socket, Buffer, {Size, Waits}, Idle) ->
    Left =
        case Size of
            {chunks, Most} -> thalweg_chunks:new(Most);
            Length -> Length
        end,
    %% Of a client that sends already nothing is waited for (RFC 9110, 10.1.1).
    State = #state{
        socket = Socket, owner = self(), buffer = Buffer, left = Left, idle = Idle, patience = Idle, waits = Waits andalso Buffer =:= <<>>
    },
    {ok, #body{reader = spawn(fun() -> pieces(monitor(process, State#state.owner), State) end), is_read = false}}.

%% @doc What Python is given for it.
-spec argument(body()) -> {bytes, binary()} | pid().
argument(#body{reader = none, whole = Body}) -> {bytes, Body};
argument(#body{reader = Reader}) -> Reader.

%% @doc What comes next of the answer, or the status with which the body is to be refused, or that the client is gone. It is not late
%% as long as the body is: that has its own time. Before there is an answer a client that waits for it is told to go on.
-spec next(thalweg_stream:stream(), timeout(), body(), gen_tcp:socket(), head | parts) ->
    {{data, term()} | done | {error, term()}, body()}.
next(Stream, Timeout, Body, Socket, Stage) ->
    await(Stream, {Timeout, Timeout}, thalweg_stream:reference(Stream), watching(Body, Socket), {Socket, Stage}).

-spec await(thalweg_stream:stream(), {timeout(), timeout()}, reference(), body(), {gen_tcp:socket(), head | parts}) ->
    {{data, term()} | done | {error, term()}, body()}.
await(Stream, {Now, Timeout} = Times, Reference, #body{reader = Reader, early = Early} = Body, {Socket, Stage} = To) ->
    receive
        {thalweg, Reference, {data, _} = Data} ->
            ok = thalweg_stream:grant(Stream, 1),
            {Data, Body};
        {thalweg, Reference, End} -> {End, Body};
        {tcp, Socket, Bytes} ->
            %% Of the next request. More of it is left where it is, and the client's end with that.
            await(Stream, Times, Reference, Body#body{early = <<Early/binary, Bytes/binary>>}, To);
        %% Nothing more will be asked. Whether the answer can still be taken shows when it is sent.
        {tcp_closed, Socket} -> await(Stream, Times, Reference, Body, To);
        {tcp_error, Socket, _} ->
            ok = thalweg_stream:close(Stream),
            {{error, gone}, Body};
        {Reader, continue} ->
            _ = [gen_tcp:send(Socket, <<"HTTP/1.1 100 Continue\r\n\r\n">>) || Stage =:= head],
            await(Stream, Times, Reference, Body, To);
        {Reader, {refused, _} = Refused} ->
            ok = thalweg_stream:close(Stream),
            {{error, Refused}, Body};
        {Reader, asked} -> await(Stream, {infinity, Timeout}, Reference, Body, To);
        {Reader, {came, IsOver}} ->
            await(Stream, {Timeout, Timeout}, Reference, watching(Body#body{is_read = IsOver}, Socket), To)
    after Now ->
        ok = thalweg_stream:close(Stream),
        {{error, timeout}, Body}
    end.

%% Where the socket is not read any more, it tells of a client that takes no answer any more.
-spec watching(body(), gen_tcp:socket()) -> body().
watching(#body{is_read = true, is_watched = false} = Body, Socket) ->
    _ = inet:setopts(Socket, [{active, once}]),
    Body#body{is_watched = true};
watching(Body, _Socket) -> Body.

%% @doc Whether all of it was read, so that another request may follow.
-spec is_read(body()) -> boolean().
is_read(#body{is_read = IsRead}) -> IsRead.

%% @doc What came behind a body that was read, which is over. The socket is read from as before.
-spec rest(body(), gen_tcp:socket()) -> binary().
rest(#body{is_read = true, reader = Reader, early = Early}, Socket) ->
    _ = inet:setopts(Socket, [{active, false}]),
    Late =
        receive
            {tcp, Socket, Bytes} -> Bytes
        after 0 -> <<>>
        end,
    iolist_to_binary([behind(Reader), Early, Late]).

-spec behind(pid() | none) -> binary().
behind(none) -> <<>>;
behind(Reader) ->
    Monitor = monitor(process, Reader),
    Reader ! {rest, self(), Monitor},
    receive
        {Monitor, Rest} ->
            demonitor(Monitor, [flush]),
            Rest;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end.

%% @private What Python asks: the next piece and whether more may follow, or `closed' where the client is gone, or late.
-spec from_python([pid()]) -> {{bytes, binary()}, boolean()} | closed.
from_python([Reader]) when is_pid(Reader) ->
    Monitor = monitor(process, Reader),
    Reader ! {piece, self(), Monitor},
    receive
        {Monitor, Piece} ->
            demonitor(Monitor, [flush]),
            Piece;
        {'DOWN', Monitor, process, _, _} -> closed
    end.

-spec pieces(reference(), #state{}) -> ok.
pieces(Monitor, #state{owner = Owner, left = Left, buffer = Buffer} = State) ->
    receive
        {piece, From, Tag} when Left =:= 0 ->
            From ! {Tag, {{bytes, <<>>}, false}},
            pieces(Monitor, State);
        {piece, From, Tag} ->
            Owner ! {self(), asked},
            _ = [Owner ! {self(), continue} || State#state.waits],
            case piece(State) of
                {ok, Bytes, Next} ->
                    IsOver = Next#state.left =:= 0,
                    Owner ! {self(), {came, IsOver}},
                    From ! {Tag, {{bytes, Bytes}, not IsOver}},
                    pieces(Monitor, Next);
                {refused, _} = Refused ->
                    Owner ! {self(), Refused},
                    From ! {Tag, closed},
                    ok;
                closed ->
                    Owner ! {self(), {came, false}},
                    From ! {Tag, closed},
                    ok
            end;
        {rest, From, Tag} ->
            From ! {Tag, Buffer},
            ok;
        {'DOWN', Monitor, process, _, _} -> ok
    end.

-spec piece(#state{}) -> {ok, binary(), #state{}} | {refused, pos_integer()} | closed.
piece(#state{left = Left} = State) when not is_integer(Left) -> chunks(State, [], 0);
piece(#state{socket = Socket, buffer = <<>>, left = Left, idle = Idle} = State) ->
    case gen_tcp:recv(Socket, min(Left, ?PIECE_BYTES_MAX), Idle) of
        {ok, Bytes} -> {ok, Bytes, State#state{left = Left - byte_size(Bytes), waits = false}};
        {error, _} -> closed
    end;
piece(#state{buffer = Buffer, left = Left} = State) ->
    {Bytes, Rest} = split_binary(Buffer, min(Left, byte_size(Buffer))),
    {ok, Bytes, State#state{buffer = Rest, left = Left - byte_size(Bytes)}}.

%% What came of a body in chunks, as many of them as a piece holds; none once it is over.
-spec chunks(#state{}, [binary()], non_neg_integer()) -> {ok, binary(), #state{}} | {refused, pos_integer()} | closed.
chunks(State, Parts, ?PIECE_BYTES_MAX = Size) -> gathered(over(State), Parts, Size);
chunks(#state{left = Chunks, buffer = Buffer} = State, Parts, Size) ->
    case thalweg_chunks:take(Chunks, Buffer, ?PIECE_BYTES_MAX - Size) of
        {data, Bytes, Rest, Next} -> chunks(State#state{left = Next, buffer = Rest}, [Bytes | Parts], Size + byte_size(Bytes));
        {over, Rest} -> gathered(State#state{left = 0, buffer = Rest}, Parts, Size);
        {more, Rest, Next} when Size > 0 -> gathered(State#state{left = Next, buffer = Rest}, Parts, Size);
        {more, Rest, Next} ->
            case more(State) of
                {ok, Bytes, Later} -> chunks(Later#state{left = Next, buffer = <<Rest/binary, Bytes/binary>>}, Parts, Size);
                closed -> closed
            end;
        {refused, Status} -> {refused, Status}
    end.

-spec gathered(#state{}, [binary()], non_neg_integer()) -> {ok, binary(), #state{}}.
gathered(#state{lacks = Lacks, idle = Idle} = State, Parts, Size) ->
    Next =
        case Lacks - Size of
            Left when Left > 0 -> State#state{lacks = Left};
            _ -> State#state{lacks = ?PIECE_BYTES_MAX, patience = Idle}
        end,
    {ok, iolist_to_binary(lists:reverse(Parts)), Next#state{waits = false}}.

%% What comes next. All that is waited for what fills a piece is counted together, however it comes: bytes that come one by one
%% are no reason to wait for ever.
-spec more(#state{}) -> {ok, binary(), #state{}} | closed.
more(#state{socket = Socket, patience = Patience} = State) ->
    Began = erlang:monotonic_time(millisecond),
    case gen_tcp:recv(Socket, 0, Patience) of
        {ok, Bytes} ->
            Waited = erlang:monotonic_time(millisecond) - Began,
            {ok, Bytes, State#state{patience = max(0, Patience - Waited)}};
        {error, _} -> closed
    end.

%% The same, over where the last chunk is there already: then no request for more is needed.
-spec over(#state{}) -> #state{}.
over(#state{left = Chunks, buffer = Buffer} = State) ->
    case thalweg_chunks:take(Chunks, Buffer, 1) of
        {over, Rest} -> State#state{left = 0, buffer = Rest};
        _ -> State
    end.
