%% @private Looks at one connection when its descriptor says so, and again and again while answers come faster than waking
%% would take. The answers that it finds go straight into the mailboxes of their callers. While calls are under way it looks now and then
%% whether their callers are still there. Its own mailbox lies off its heap.
-module(thalweg_router).

-export([start_link/2, start/2, stop/1]).
-export([init/4, look/1, sleep/1, hear/2]).

%% Milliseconds without anything to do after which it hibernates. A process that runs no code of this module survives the loading of
%% a newer one; one that has something to do goes on in the newer one.
-define(LIE_DOWN, 1000).
%% Milliseconds after which a caller's end is heard of, at the latest: to watch every caller would cost every call.
-define(TEND, 500).

%% @doc Begins to connect. Returns once there is a connection object; calls may be made at once and wait for the connection.
-spec start_link(iodata(), thalweg_nif:wishes()) -> {ok, pid(), thalweg_nif:connection()} | {error, term()}.
start_link(Endpoint, Wishes) -> start(link, Endpoint, Wishes).

%% @doc As {@link start_link/2}, for a process that goes on without its connection, which ends with the process all the same.
-spec start(iodata(), thalweg_nif:wishes()) -> {ok, pid(), thalweg_nif:connection()} | {error, term()}.
start(Endpoint, Wishes) -> start(monitor, Endpoint, Wishes).

-spec start(link | monitor, iodata(), thalweg_nif:wishes()) -> {ok, pid(), thalweg_nif:connection()} | {error, term()}.
start(Bond, Endpoint, Wishes) ->
    Options = [{message_queue_data, off_heap} | [link || Bond =:= link]],
    Tag = make_ref(),
    Router = proc_lib:spawn_opt(?MODULE, init, [{self(), Tag}, Bond, Endpoint, Wishes], Options),
    Monitor = monitor(process, Router),
    receive
        {Tag, Answer} ->
            demonitor(Monitor, [flush]),
            case Answer of
                {ok, Connection} -> {ok, Router, Connection};
                {error, Reason} -> {error, Reason}
            end;
        %% Without the native half nothing works, and the caller is told so.
        {'DOWN', Monitor, process, _, Reason} -> {error, Reason}
    end.

%% @doc Ends the connection.
-spec stop(pid()) -> ok.
stop(Router) ->
    Router ! stop,
    ok.

-spec init({pid(), reference()}, link | monitor, iodata(), thalweg_nif:wishes()) -> no_return().
init({Parent, Tag}, Bond, Endpoint, Wishes) ->
    case thalweg_nif:open(Endpoint, self(), Wishes) of
        {ok, Connection} ->
            _ = [monitor(process, Parent) || Bond =:= monitor],
            Parent ! {Tag, {ok, Connection}},
            look(Connection);
        {error, Reason} ->
            unlink(Parent),
            Parent ! {Tag, {error, Reason}},
            exit(normal)
    end.

%% @private One look; then other processes have a turn, or none needs one.
-spec look(thalweg_nif:connection()) -> no_return().
look(Connection) ->
    case thalweg_nif:turn(Connection) of
        again ->
            _ = hear(Connection, 0),
            true = erlang:yield(),
            ?MODULE:look(Connection);
        idle -> ?MODULE:sleep(Connection);
        {down, Reason} ->
            %% What was still brought is told first.
            ok = unpack_all(Connection),
            thalweg_nif:close(Connection),
            exit({shutdown, {down, Reason}})
    end.

%% @private
-spec sleep(thalweg_nif:connection()) -> no_return().
sleep(Connection) ->
    case hear(Connection, ?LIE_DOWN) of
        look -> look(Connection);
        heard -> sleep(Connection);
        nothing -> erlang:hibernate(?MODULE, sleep, [Connection])
    end.

%% @private Receives one message, if one comes in time, asleep or between two looks. `look' asks for a look.
-spec hear(thalweg_nif:connection(), timeout()) -> look | heard | nothing.
hear(Connection, Patience) ->
    receive
        {select, Connection, _, ready_input} -> look;
        %% A caller found that the connection ended, or that there is more.
        look -> look;
        %% There are calls that were not answered at once.
        tend ->
            _ = erlang:send_after(?TEND, self(), callers),
            heard;
        callers ->
            _ =
                case thalweg_nif:tend(Connection) of
                    %% There are more of them, and whoever wrote here meanwhile comes first.
                    again -> self() ! callers;
                    true -> self() ! tend;
                    false -> done
                end,
            heard;
        large ->
            _ = unpack(Connection),
            heard;
        stop -> close(Connection);
        {'DOWN', _, process, _, _} -> close(Connection);
        _ -> heard
    after Patience -> nothing
    end.

%% What takes long to read keeps no other answer waiting.
-spec unpack(thalweg_nif:connection()) -> pid().
unpack(Connection) -> spawn(fun() -> thalweg_nif:unpack(Connection) end).

%% Until nothing that was brought is left, be it that another process is reading it.
-spec unpack_all(thalweg_nif:connection()) -> ok.
unpack_all(Connection) ->
    case thalweg_nif:unpack(Connection) of
        busy ->
            timer:sleep(1),
            unpack_all(Connection);
        %% A panic, too, which leaves what was not read to `close'.
        _ -> ok
    end.

-spec close(thalweg_nif:connection()) -> no_return().
close(Connection) ->
    thalweg_nif:close(Connection),
    exit(normal).
