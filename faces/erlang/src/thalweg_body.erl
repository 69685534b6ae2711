%% @private A request's body on its way to an application that asks for it, piece by piece.
%%
%% What is short, or there already, is read at once and goes along with the request. Any other body is read from the socket by a
%% process of its own, no more at a time than one piece and no sooner than the application asks: so a body of any length takes the
%% memory of a piece, who sends it is held up by TCP until it is wanted, and a client that waits for `100 Continue' is told so when
%% it is. Of a body in chunks nobody knows how long it is, so it comes that way in any case, and is refused where it goes beyond what it
%% may have, or is none. That process ends with the connection's; it alone reads from the socket until the body is over, and never writes there:
%% the connection does, which hears of each piece that is asked for, and of its coming ({@link next/4}).
-module(thalweg_body).

-export([begin_with/4, argument/1, next/4, is_read/1, rest/1]).
-export([from_python/1]).
-export_type([body/0]).

%% What is read at once, and what is read at a time.
-define(AT_ONCE_BYTES_MAX, 65536).
-define(PIECE_BYTES_MAX, 65536).

%% Whole, with what came behind it; or the process that reads it, and whether all of it was read.
-opaque body() :: {whole, binary(), binary()} | {pieces, pid(), boolean()}.

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
        {ok, Body, Rest} -> {ok, {whole, Body, Rest}};
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
    {ok, {pieces, spawn(fun() -> pieces(monitor(process, State#state.owner), State) end), false}}.

%% @doc What Python is given for it.
-spec argument(body()) -> {bytes, binary()} | pid().
argument({whole, Body, _}) -> {bytes, Body};
argument({pieces, Reader, _}) -> Reader.

%% @doc What comes next of the answer, or the status with which the body is to be refused. It is not late as long as the body is: that has its own time. Before there is an answer a
%% client that waits for it is told to go on, through the socket.
-spec next(thalweg_stream:stream(), timeout(), body(), gen_tcp:socket() | none) -> {{data, term()} | done | {error, term()}, body()}.
next(Stream, Timeout, {whole, _, _} = Body, _Socket) -> {thalweg_stream:next(Stream, Timeout), Body};
next(Stream, Timeout, Body, Socket) -> next(Stream, {Timeout, Timeout}, thalweg_stream:reference(Stream), Body, Socket).

-spec next(thalweg_stream:stream(), {timeout(), timeout()}, reference(), body(), gen_tcp:socket() | none) ->
    {{data, term()} | done | {error, term()}, body()}.
next(Stream, {Now, Timeout}, Reference, {pieces, Reader, _} = Body, Socket) ->
    receive
        {thalweg, Reference, {data, _} = Data} ->
            ok = thalweg_stream:grant(Stream, 1),
            {Data, Body};
        {thalweg, Reference, End} -> {End, Body};
        {Reader, continue} ->
            _ = [gen_tcp:send(Socket, <<"HTTP/1.1 100 Continue\r\n\r\n">>) || Socket =/= none],
            next(Stream, {Now, Timeout}, Reference, Body, Socket);
        {Reader, {refused, _} = Refused} ->
            ok = thalweg_stream:close(Stream),
            {{error, Refused}, Body};
        {Reader, asked} -> next(Stream, {infinity, Timeout}, Reference, Body, Socket);
        {Reader, {came, IsOver}} -> next(Stream, {Timeout, Timeout}, Reference, {pieces, Reader, IsOver}, Socket)
    after Now ->
        ok = thalweg_stream:close(Stream),
        {{error, timeout}, Body}
    end.

%% @doc Whether all of it was read, so that another request may follow.
-spec is_read(body()) -> boolean().
is_read({whole, _, _}) -> true;
is_read({pieces, _, IsRead}) -> IsRead.

%% @doc What came behind a body that was read, which is over.
-spec rest(body()) -> binary().
rest({whole, _, Rest}) -> Rest;
rest({pieces, Reader, true}) ->
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

%% The same, over where the last chunk is there already: then nobody has to ask for what is none.
-spec over(#state{}) -> #state{}.
over(#state{left = Chunks, buffer = Buffer} = State) ->
    case thalweg_chunks:take(Chunks, Buffer, 1) of
        {over, Rest} -> State#state{left = 0, buffer = Rest};
        _ -> State
    end.
