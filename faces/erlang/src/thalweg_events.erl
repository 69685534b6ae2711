%% @doc A process that events are collected by: timers, sockets, whatever is sent to it; taken in batches by {@link poll/2}.
%%
%% A timer is the virtual machine's own and goes straight to this process: no other one is in between. One that is
%% cancelled is not told of any more, whether it is due, on its way or polled for.
%% Sockets that are handed over ({@link socket/3}) have their messages told by number, in the kinds of docs/loop.md; with a worker
%% beside they are posted into its event loop instead.
-module(thalweg_events).

-export([start_link/0, start_link/1, stop/1]).
-export([timer/3, cancel/2, poll/2, post/4, refused/1, socket/3, to_worker/3]).
-export([init/2]).
-export_type([event/0, callback_number/0]).

-type callback_number() :: non_neg_integer().
%% By the kinds of docs/loop.md.
-type event() :: {Kind :: 0..255, callback_number(), Payload :: term()}.
-type timer() :: reference().

-define(TIMER, 3).
-define(DATA, 30).
-define(CLOSED, 31).
-define(ERROR, 32).

-record(state, {
    capacity :: pos_integer(),
    events = [] :: [event()],
    count = 0 :: non_neg_integer(),
    refused = 0 :: non_neg_integer(),
    poller = none :: none | {reference(), pid(), reference()},
    sockets = #{} :: #{term() => callback_number()},
    worker = none :: none | thalweg_nif:connection()
}).

-spec start_link() -> {ok, pid()}.
start_link() -> start_link(#{}).

%% @doc `capacity' events wait at most; what comes beyond is refused and counted ({@link refused/1}).
-spec start_link(#{capacity => pos_integer()}) -> {ok, pid()}.
start_link(Options) ->
    {ok, proc_lib:spawn_opt(?MODULE, init, [self(), Options], [link, {message_queue_data, off_heap}])}.

-spec stop(pid()) -> ok.
stop(Process) -> ask(Process, stop).

%% @doc Tells of a number after so many milliseconds, once.
-spec timer(pid(), non_neg_integer(), callback_number()) -> timer().
timer(Process, Milliseconds, Number) -> erlang:send_after(Milliseconds, Process, {?TIMER, Number, none}).

%% @doc Takes a timer back. `true': it was not told of and will not be.
-spec cancel(pid(), timer() | {timer(), callback_number()}) -> boolean().
cancel(Process, {Timer, Number}) ->
    case erlang:cancel_timer(Timer) of
        false -> ask(Process, {forget, {?TIMER, Number, none}});
        _ -> true
    end;
cancel(_Process, Timer) -> erlang:cancel_timer(Timer) =/= false.

%% @doc Every event there is, once there is one, or after so many milliseconds none. One process polls at a time: who polls
%% anew takes over from the one before, who is told that there is nothing.
-spec poll(pid(), timeout()) -> [event()].
poll(Process, Timeout) ->
    Monitor = monitor(process, Process),
    Process ! {poll, Monitor, self(), Timeout},
    receive
        {Monitor, Events} ->
            demonitor(Monitor, [flush]),
            Events;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end.

%% @doc Tells of an event. From any process.
-spec post(pid(), 0..255, callback_number(), term()) -> ok.
post(Process, Kind, Number, Payload) ->
    Process ! {Kind, Number, Payload},
    ok.

%% @doc How many events there was no room for.
-spec refused(pid()) -> non_neg_integer().
refused(Process) -> ask(Process, refused).

%% @doc Has the messages of a socket told under a number. The caller has to own the socket, and hands it over.
-spec socket(pid(), port(), callback_number()) -> ok | {error, term()}.
socket(Process, Socket, Number) ->
    ok = ask(Process, {socket, Socket, Number}),
    case erlang:port_info(Socket, name) of
        {name, "udp_inet"} -> gen_udp:controlling_process(Socket, Process);
        _ -> gen_tcp:controlling_process(Socket, Process)
    end.

%% @doc Has events posted into the event loop of a pool's worker, under the numbers that its mailbox gave, instead of kept.
-spec to_worker(pid(), atom(), pos_integer()) -> ok | {error, no_worker}.
to_worker(Process, Pool, Index) ->
    {Connections, _} = thalweg_directory:workers(Pool),
    case Index =< tuple_size(Connections) of
        true -> ask(Process, {worker, element(Index, Connections)});
        false -> {error, no_worker}
    end.

-spec ask(pid(), term()) -> term().
ask(Process, Request) ->
    Monitor = monitor(process, Process),
    Process ! {ask, Monitor, self(), Request},
    receive
        {Monitor, Answer} ->
            demonitor(Monitor, [flush]),
            Answer;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end.

%% The process

-spec init(pid(), map()) -> no_return().
init(Parent, Options) ->
    _ = monitor(process, Parent),
    loop(#state{capacity = maps:get(capacity, Options, 1 bsl 20)}).

-spec loop(#state{}) -> ok.
loop(State) ->
    receive
        {Kind, Number, Payload} when is_integer(Kind), is_integer(Number) ->
            loop(tell(State, {Kind, Number, Payload}));
        {poll, Reference, From, Timeout} -> loop(begin_poll(State, Reference, From, Timeout));
        {timeout, Timer, poll} -> loop(end_poll(State, Timer));
        {ask, Reference, From, Request} ->
            case answer(State, Request) of
                {stop, Answer} ->
                    From ! {Reference, Answer},
                    ok;
                {Answer, Next} ->
                    From ! {Reference, Answer},
                    loop(Next)
            end;
        {'DOWN', _, process, _, _} -> ok;
        Message -> loop(of_socket(State, Message))
    end.

-spec tell(#state{}, event()) -> #state{}.
tell(#state{worker = none, count = Count, capacity = Capacity} = State, _) when Count >= Capacity ->
    State#state{refused = State#state.refused + 1};
tell(#state{worker = none, events = Events, count = Count} = State, Event) ->
    deliver(State#state{events = [Event | Events], count = Count + 1});
tell(#state{worker = Connection} = State, {Kind, Number, Payload}) ->
    case thalweg_nif:post(Connection, Kind, Number, Payload) of
        ok -> State;
        {error, _} -> State#state{refused = State#state.refused + 1}
    end.

-spec deliver(#state{}) -> #state{}.
deliver(#state{poller = none} = State) -> State;
deliver(#state{poller = {Reference, From, Timer}, events = Events} = State) ->
    _ = erlang:cancel_timer(Timer),
    From ! {Reference, lists:reverse(Events)},
    State#state{poller = none, events = [], count = 0}.

-spec begin_poll(#state{}, reference(), pid(), timeout()) -> #state{}.
begin_poll(#state{poller = {Old, Before, Timer}} = State, Reference, From, Timeout) ->
    _ = erlang:cancel_timer(Timer),
    Before ! {Old, []},
    begin_poll(State#state{poller = none}, Reference, From, Timeout);
begin_poll(#state{count = 0} = State, Reference, From, 0) ->
    From ! {Reference, []},
    State;
begin_poll(#state{count = Count} = State, Reference, From, Timeout) ->
    Timer =
        case Timeout of
            infinity -> make_ref();
            _ when Count > 0 -> make_ref();
            _ -> erlang:start_timer(Timeout, self(), poll)
        end,
    Polled = State#state{poller = {Reference, From, Timer}},
    case Count of
        0 -> Polled;
        _ -> deliver(Polled)
    end.

-spec end_poll(#state{}, reference()) -> #state{}.
end_poll(#state{poller = {Reference, From, Timer}} = State, Timer) ->
    From ! {Reference, []},
    State#state{poller = none};
end_poll(State, _Timer) -> State.

-spec answer(#state{}, term()) -> {stop, ok} | {term(), #state{}}.
answer(_State, stop) -> {stop, ok};
answer(#state{refused = Refused} = State, refused) -> {Refused, State};
answer(#state{sockets = Sockets} = State, {socket, Socket, Number}) ->
    {ok, State#state{sockets = Sockets#{Socket => Number}}};
answer(State, {worker, Connection}) -> {ok, State#state{worker = Connection}};
answer(#state{events = Events, count = Count} = State, {forget, Event}) ->
    %% Whatever was sent before the timer was taken back is here by now.
    Left = lists:delete(Event, Events),
    Forgotten = Count - length(Left),
    {Forgotten > 0, State#state{events = Left, count = length(Left)}}.

%% What sockets say, in the kinds of the event loop.
-spec of_socket(#state{}, term()) -> #state{}.
of_socket(#state{sockets = Sockets} = State, Message) ->
    case Message of
        {tcp, Socket, Data} -> socket_event(State, Sockets, Socket, ?DATA, iolist_to_binary(Data));
        {udp, Socket, _, _, Data} -> socket_event(State, Sockets, Socket, ?DATA, iolist_to_binary(Data));
        {tcp_closed, Socket} -> socket_gone(State, Socket, ?CLOSED, none);
        {udp_closed, Socket} -> socket_gone(State, Socket, ?CLOSED, none);
        {tcp_error, Socket, Reason} -> socket_gone(State, Socket, ?ERROR, atom_to_binary(Reason));
        {udp_error, Socket, Reason} -> socket_gone(State, Socket, ?ERROR, atom_to_binary(Reason));
        _ -> State
    end.

-spec socket_event(#state{}, map(), term(), 0..255, term()) -> #state{}.
socket_event(State, Sockets, Socket, Kind, Payload) ->
    case Sockets of
        #{Socket := Number} -> tell(State, {Kind, Number, Payload});
        _ -> State
    end.

-spec socket_gone(#state{}, term(), 0..255, term()) -> #state{}.
socket_gone(#state{sockets = Sockets} = State, Socket, Kind, Payload) ->
    Told = socket_event(State, Sockets, Socket, Kind, Payload),
    Told#state{sockets = maps:remove(Socket, Sockets)}.
