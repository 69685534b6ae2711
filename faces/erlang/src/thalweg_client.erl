%% @doc Clients of services: what generated Erlang calls through.
%%
%% A client belongs to the process that connects, and ends with it; any process may call. It is there at once: calls wait for
%% the connection, and fail if it does not come about. An error is `{fault, Name, Words}', by the table of docs/faults.md.
%%
%% What comes of a request or a stream is a message `{thalweg, Reference, What}', `{frame, Frame}' for an item: {@link await/2} and
%% {@link next/2} wait for it. A process that receives by itself knows it by {@link reference/1}, and calls {@link grant/2} for each item that
%% it took.
-module(thalweg_client).

-export([connect/1, connect/2, close/1, in_flight/1]).
-export([call/2, call/3, send/2, send/3, await/2, cancel/1]).
-export([stream/2, stream/3, next/1, next/2, grant/2, reference/1]).
-export([transport/1, transport/2, stream_transport/1, stream_transport/2]).
-export_type([client/0, request/0, stream/0, options/0]).

-opaque client() :: {pid(), thalweg_nif:connection()}.
-opaque request() :: {reference(), thalweg_nif:connection(), non_neg_integer()}.
-opaque stream() :: {reference(), thalweg_nif:connection(), non_neg_integer()}.
-type options() :: #{
    %% Of connecting: the schema's hash, shared memory on a plain socket, milliseconds, and calls in flight.
    schema => <<_:256>>,
    shared => boolean(),
    connect_within => non_neg_integer(),
    %% Whether the next call makes a connection that was lost anew; otherwise it stays lost, and the client with it.
    reconnect => boolean(),
    %% Whether a server that another user runs, other than root, is refused.
    same_user_only => boolean(),
    in_flight_max => pos_integer(),
    %% Of a call: milliseconds, which both ends keep.
    deadline => non_neg_integer(),
    %% Of a stream: items on their way, as many as the server says unless said here.
    credit => pos_integer()
}.
-type error() :: {error, term()}.
-type next() :: fun(() -> {item, binary()} | {ok, binary()} | error()).
-type stream_transport() :: fun((iodata()) -> {ok, {next(), fun(() -> ok)}} | error()).

-spec connect(iodata()) -> {ok, client()} | error().
connect(Endpoint) -> connect(Endpoint, #{}).

%% @doc Begins to connect.
-spec connect(iodata(), options()) -> {ok, client()} | error().
connect(Endpoint, Options) ->
    Path = iolist_to_binary(Endpoint),
    case thalweg_options:check(connection, Options) of
        ok -> begin_to_connect(Path, Options);
        {error, Wrong} -> {error, Wrong}
    end.

-spec begin_to_connect(binary(), options()) -> {ok, client()} | error().
begin_to_connect(Path, Options) ->
    Wishes = {
        maps:get(schema, Options, <<0:256>>),
        maps:get(in_flight_max, Options, 1024),
        maps:get(connect_within, Options, 5000),
        maps:get(shared, Options, false),
        maps:get(reconnect, Options, false),
        maps:get(same_user_only, Options, true)
    },
    case thalweg_router:start(Path, Wishes) of
        {ok, Router, Connection} -> {ok, {Router, Connection}};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Ends the connection: calls that are under way are told so.
-spec close(client()) -> ok.
close({Router, _}) ->
    Monitor = monitor(process, Router),
    thalweg_router:stop(Router),
    receive
        {'DOWN', Monitor, process, _, _} -> ok
    end;
close(_Client) -> error(badarg).

%% @doc Calls and streams that have not ended.
-spec in_flight(client()) -> non_neg_integer().
in_flight({_, Connection}) -> thalweg_nif:load(Connection);
in_flight(_Client) -> error(badarg).

-spec call(client(), iodata()) -> {ok, binary()} | error().
call(Client, Frame) -> call(Client, Frame, #{}).

%% @doc Sends a request and waits for the frame that answers it.
-spec call(client(), iodata(), options()) -> {ok, binary()} | error().
call({_, Connection}, Frame, Options) ->
    ok = thalweg_options:demand(request, Options),
    Reference = make_ref(),
    case thalweg_nif:request(Connection, Reference, whole(Frame), {true, maps:get(deadline, Options, none)}) of
        {pending, _, _} ->
            receive
                {thalweg, Reference, Result} -> Result
            end;
        Result -> Result
    end;
call(_Client, _Frame, _Options) -> error(badarg).

-spec send(client(), iodata()) -> {ok, request()} | error().
send(Client, Frame) -> send(Client, Frame, #{}).

%% @doc Sends a request. What comes of it is waited for, or cancelled.
-spec send(client(), iodata(), options()) -> {ok, request()} | error().
send({_, Connection}, Frame, Options) ->
    ok = thalweg_options:demand(request, Options),
    Reference = make_ref(),
    case thalweg_nif:request(Connection, Reference, whole(Frame), {false, maps:get(deadline, Options, none)}) of
        {pending, _, Number} -> {ok, {Reference, Connection, Number}};
        {error, Reason} -> {error, Reason}
    end;
send(_Client, _Frame, _Options) -> error(badarg).

%% In one piece before it goes over: pieces that come to much are put together here, where other processes have their turns meanwhile.
-spec whole(iodata()) -> binary().
whole(Frame) -> iolist_to_binary(Frame).

%% @doc Waits for the frame that answers a request, which is cancelled if that does not come in time. Of one that was answered
%% already, or that another process sent, it is `badarg'.
-spec await(request(), timeout()) -> {ok, binary()} | error().
await({_, _, _} = Request, Timeout) ->
    case thalweg:receive_of(Request, thalweg:patience(Timeout)) of
        {told, Result} -> Result;
        late ->
            ok = cancel(Request),
            {error, timeout};
        none -> error(badarg)
    end;
await(_Request, _Timeout) -> error(badarg).

%% @doc Cancels a request or a stream. Nothing more comes of it, and nothing that came of it is left.
-spec cancel(request() | stream()) -> ok.
cancel({Reference, Connection, Number}) ->
    ok = thalweg_nif:cancel(Connection, Number),
    thalweg:flush(Reference);
cancel(_Request) -> error(badarg).

-spec stream(client(), iodata()) -> {ok, stream()} | error().
stream(Client, Frame) -> stream(Client, Frame, #{}).

%% @doc Sends a request that a stream answers. It is cancelled when the process ends.
-spec stream(client(), iodata(), options()) -> {ok, stream()} | error().
stream({_, Connection}, Frame, Options) ->
    ok = thalweg_options:demand(stream_request, Options),
    Reference = make_ref(),
    Wishes = {maps:get(credit, Options, 0), maps:get(deadline, Options, none)},
    case thalweg_nif:request_stream(Connection, Reference, whole(Frame), Wishes) of
        {pending, _, Number} -> {ok, {Reference, Connection, Number}};
        {error, Reason} -> {error, Reason}
    end;
stream(_Client, _Frame, _Options) -> error(badarg).

-spec next(stream()) -> {item, binary()} | {ok, binary()} | error().
next(Stream) -> next(Stream, infinity).

%% @doc The next frame of a stream: an item, after which one more may come, or the end. Behind that it is `badarg'.
-spec next(stream(), timeout()) -> {item, binary()} | {ok, binary()} | error().
next({_, Connection, Number} = Stream, Timeout) ->
    case thalweg:receive_of(Stream, thalweg:patience(Timeout)) of
        {told, {frame, Frame}} ->
            ok = thalweg_nif:grant(Connection, Number, 1),
            {item, Frame};
        {told, End} -> End;
        late ->
            ok = cancel(Stream),
            {error, timeout};
        none -> error(badarg)
    end;
next(_Stream, _Timeout) -> error(badarg).

%% @doc Lets so many items more come.
-spec grant(stream(), pos_integer()) -> ok.
grant({_, Connection, Number}, Items) -> thalweg_nif:grant(Connection, Number, Items);
grant(_Stream, _Items) -> error(badarg).

%% @doc What its messages are told by.
-spec reference(request() | stream()) -> reference().
reference({Reference, _, _}) -> Reference;
reference(_Request) -> error(badarg).

-spec transport(client()) -> fun((iodata()) -> {ok, binary()} | error()).
transport(Client) -> transport(Client, #{}).

%% @doc What generated clients send requests by.
-spec transport(client(), options()) -> fun((iodata()) -> {ok, binary()} | error()).
transport(Client, Options) ->
    ok = thalweg_options:demand(request, Options),
    fun(Frame) -> call(Client, Frame, Options) end.

-spec stream_transport(client()) -> stream_transport().
stream_transport(Client) -> stream_transport(Client, #{}).

%% @doc What generated clients open streams by, read them by, and leave them by.
-spec stream_transport(client(), options()) -> stream_transport().
stream_transport(Client, Options) ->
    ok = thalweg_options:demand(stream_request, Options),
    fun(Frame) ->
        case stream(Client, Frame, Options) of
            {ok, Stream} -> {ok, {fun() -> next(Stream) end, fun() -> cancel(Stream) end}};
            {error, Reason} -> {error, Reason}
        end
    end.
