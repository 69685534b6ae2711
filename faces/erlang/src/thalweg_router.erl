%% @private Looks at one connection when its descriptor says so, and again and again while answers come faster than waking
%% would take. Whoever it finds answers for gets them straight into the mailbox. Its own mailbox lies off its heap.
-module(thalweg_router).

-export([start_link/2]).
-export([init/3, sleep/1]).

%% @doc Begins to connect. Returns once there is a connection object; calls may be made at once and wait for the connection.
-spec start_link(iodata(), thalweg_nif:wishes()) -> {ok, pid(), thalweg_nif:connection()} | {error, term()}.
start_link(Endpoint, Wishes) ->
    Options = [link, {message_queue_data, off_heap}],
    Tag = make_ref(),
    Router = proc_lib:spawn_opt(?MODULE, init, [{self(), Tag}, Endpoint, Wishes], Options),
    receive
        {Tag, {ok, Connection}} -> {ok, Router, Connection};
        {Tag, {error, Reason}} -> {error, Reason}
    end.

-spec init({pid(), reference()}, iodata(), thalweg_nif:wishes()) -> no_return().
init({Parent, Tag}, Endpoint, Wishes) ->
    case thalweg_nif:open(Endpoint, self(), Wishes) of
        {ok, Connection} ->
            Parent ! {Tag, {ok, Connection}},
            look(Connection);
        {error, Reason} ->
            unlink(Parent),
            Parent ! {Tag, {error, Reason}},
            exit(normal)
    end.

%% One look; then everybody else has a turn, or nobody needs one.
-spec look(thalweg_nif:connection()) -> no_return().
look(Connection) ->
    case thalweg_nif:turn(Connection) of
        again ->
            erlang:yield(),
            look(Connection);
        idle -> sleep(Connection);
        {down, Reason} ->
            thalweg_nif:close(Connection),
            exit({shutdown, {down, Reason}})
    end.

-spec sleep(thalweg_nif:connection()) -> no_return().
sleep(Connection) ->
    receive
        {select, Connection, _, ready_input} -> look(Connection);
        stop ->
            thalweg_nif:close(Connection),
            exit(normal);
        _ -> sleep(Connection)
    after 60000 ->
        erlang:hibernate(?MODULE, sleep, [Connection])
    end.
