%% @doc A process that events are collected by: timers, sockets, whatever is sent to it; taken in batches by {@link poll/2}.
%%
%% A timer is the virtual machine's own and goes straight to this process: no other one is in between. One that is
%% cancelled is not told of any more, whether it is due, on its way or polled for.
%% Sockets that are handed over ({@link socket/3}) have their messages told by number, in the kinds of docs/loop.md; with a worker
%% beside they are posted into its event loop instead. No stream has a hole: where a piece of one finds no room, its socket is closed and
%% nothing more of it is told but that. An error of a datagram is told among the datagrams, and ends nothing.
%%
%% Nothing is lost without a word. Its owner is sent `{thalweg_events, Process, {overloaded, Current, Max}}' when an event found no
%% room, or `{refused, Why}' when one for a worker has no value in Python, is of a kind that there is none of there, or is longer than
%% a frame, once until it asks {@link refused/1}, and `{thalweg_events, Process, {worker_down, Pool, Index}}' when the worker that events go to has ended. What
%% shows only in the worker (a map whose key is a list there) is a warning in its log. Of a socket that was to tell of so many messages only, and has, it is sent `{passive, Socket, Number}':
%% a receiver that wants more of it says so by `inet:setopts/2'.
-module(thalweg_events).

-export([start_link/0, start_link/1, stop/1]).
-export([timer/3, cancel/2, poll/2, post/4, post_checked/4, refused/1, socket/3, to_worker/3]).
-export([init/2, loop/3]).
-export_type([event/0, callback_number/0, news/0]).

-type callback_number() :: non_neg_integer().
%% By the kinds of docs/loop.md.
-type event() :: {Kind :: 0..255, callback_number(), Payload :: term()}.
-type timer() :: reference().
%% An event as it waits.
-type kept() :: event() | {timeout, timer(), callback_number()}.
%% What the owner is sent, behind `thalweg_events' and the process.
-type news() ::
    {overloaded, Current :: non_neg_integer(), Max :: pos_integer()}
    | {refused, Why :: term()}
    | {worker_down, Pool :: atom(), Index :: pos_integer()}
    | {passive, port(), callback_number()}.

-define(TIMER, 3).
-define(DATA, 30).
-define(CLOSED, 31).
-define(ERROR, 32).
%% Milliseconds until a worker that had no room for the end of a socket is asked again.
-define(AGAIN, 10).
%% A poll returns this many at most, however fast they come.
-define(TOGETHER, 4096).
%% Milliseconds without an event after which it hibernates: a process that runs no code of this module survives the loading of a newer one.
-define(LIE_DOWN, 1000).

-define(IS_NUMBER(Number), (is_integer(Number) andalso Number >= 0 andalso Number < 1 bsl 64)).
-define(IS_KIND(Kind), (is_integer(Kind) andalso Kind >= 0 andalso Kind =< 255)).

%% Beside the events that are kept and their number, which are the loop's arguments: most turns change nothing else.
-record(state, {
    capacity :: pos_integer(),
    refused = 0 :: non_neg_integer(),
    %% The owner was told so, and has not asked since.
    is_told = false :: boolean(),
    %% Whose end is the end of it all.
    owner :: {reference(), pid()},
    %% The process that polls: its reference, its pid, its timer, and the monitor of it.
    poller = none :: none | {reference(), pid(), reference(), reference()},
    sockets = #{} :: #{port() => callback_number()},
    worker = none :: none | thalweg_nif:connection(),
    %% The monitor of that worker, and its place.
    place = none :: none | {reference(), {Pool :: atom(), Index :: pos_integer()}},
    %% The timers among the events, once one of those was taken back: what was stays there until it is left out.
    due = none :: none | #{timer() => kept | taken_back},
    taken_back = 0 :: non_neg_integer()
}).

-spec start_link() -> {ok, pid()} | {error, thalweg_options:wrong()}.
start_link() -> start_link(#{}).

%% @doc `capacity' events wait at most, and beside them the end of each socket; what comes beyond is refused and counted
%% ({@link refused/1}).
-spec start_link(#{capacity => pos_integer()}) -> {ok, pid()} | {error, thalweg_options:wrong()}.
start_link(Options) ->
    case thalweg_options:check(events, Options) of
        ok -> {ok, proc_lib:spawn_opt(?MODULE, init, [self(), Options], [link, {message_queue_data, off_heap}])};
        {error, Wrong} -> {error, Wrong}
    end.

-spec stop(pid()) -> ok.
stop(Process) -> ask(Process, stop).

%% @doc Tells of a number after so many milliseconds, once.
-spec timer(pid(), non_neg_integer(), callback_number()) -> timer().
timer(Process, Milliseconds, Number) when ?IS_NUMBER(Number) -> erlang:start_timer(Milliseconds, Process, Number);
timer(_Process, _Milliseconds, _Number) -> error(badarg).

%% @doc Takes a timer back. `true': it was not told of and will not be.
-spec cancel(pid(), timer() | {timer(), callback_number()}) -> boolean().
cancel(Process, {Timer, _Number}) -> cancel(Process, Timer);
cancel(Process, Timer) ->
    case erlang:cancel_timer(Timer) of
        false -> ask(Process, {forget, Timer});
        _ -> true
    end.

%% @doc Every event there is, once there is one, or none after the timeout in milliseconds. One process polls at a time: a new
%% poll takes over from the one before, which is told that there is nothing.
-spec poll(pid(), timeout()) -> [event()].
poll(Process, Timeout) ->
    Patience = thalweg:patience(Timeout),
    Monitor = monitor(process, Process),
    Process ! {poll, Monitor, self(), Patience},
    receive
        {Monitor, Events} ->
            demonitor(Monitor, [flush]),
            Events;
        {'DOWN', Monitor, process, _, Reason} -> exit(Reason)
    end.

%% @doc Tells of an event. From any process; whether there is room for it is found out later: the owner is told, and it is counted
%% ({@link refused/1}).
-spec post(pid(), 0..255, callback_number(), term()) -> ok.
post(Process, Kind, Number, Payload) when ?IS_KIND(Kind), ?IS_NUMBER(Number) ->
    Process ! {Kind, Number, Payload},
    ok;
post(_Process, _Kind, _Number, _Payload) -> error(badarg).

%% @doc As {@link post/4}, and waits until there was room for it, or none. A worker's answer is not waited for.
-spec post_checked(pid(), 0..255, callback_number(), term()) -> ok | {error, term()}.
post_checked(Process, Kind, Number, Payload) when ?IS_KIND(Kind), ?IS_NUMBER(Number) ->
    ask(Process, {post, {Kind, Number, Payload}});
post_checked(_Process, _Kind, _Number, _Payload) -> error(badarg).

%% @doc How many events were refused. The owner is told anew when another one is.
-spec refused(pid()) -> non_neg_integer().
refused(Process) -> ask(Process, refused).

%% @doc Has the messages of a socket told under a number. The caller has to own the socket, and hands it over.
-spec socket(pid(), port(), callback_number()) -> ok | {error, term()}.
socket(Process, Socket, Number) when is_port(Socket), node(Socket) =:= node(), ?IS_NUMBER(Number) ->
    %% First: what it says may be there before the hand-over is done.
    Before = ask(Process, {socket, Socket, Number}),
    case hand_over(Process, Socket) of
        ok -> ok;
        {error, Reason} ->
            %% As if there had been no poll.
            _ = ask(Process, {socket, Socket, Before}),
            {error, Reason}
    end;
socket(_Process, _Socket, _Number) -> error(badarg).

-spec hand_over(pid(), port()) -> ok | {error, term()}.
hand_over(Process, Socket) ->
    case erlang:port_info(Socket, name) of
        {name, "udp_inet"} -> gen_udp:controlling_process(Socket, Process);
        undefined -> {error, closed};
        _ -> gen_tcp:controlling_process(Socket, Process)
    end.

%% @doc Has events posted into the event loop of a pool's worker, under the numbers that its mailbox gave, instead of kept.
-spec to_worker(pid(), atom(), pos_integer()) -> ok | {error, no_worker}.
to_worker(Process, Pool, Index) ->
    case thalweg_directory:placed(Pool, Index) of
        {ok, Connection, Worker} -> ask(Process, {worker, Connection, Worker, {Pool, Index}});
        none -> {error, no_worker}
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
    loop([], 0, #state{owner = {monitor(process, Parent), Parent}, capacity = maps:get(capacity, Options, 1 bsl 20)}).

%% @private The latest event first. Of a timer the event is the message that it sent until it is told of: it may be taken back.
-spec loop([kept()], non_neg_integer(), #state{}) -> ok.
loop(Events, Count, State) ->
    receive
        {Kind, Number, _} = Event when ?IS_KIND(Kind), ?IS_NUMBER(Number) ->
            tell(Event, Events, Count, State);
        {timeout, _, Number} = Due when ?IS_NUMBER(Number) -> tell(Due, Events, Count, State);
        {poll, Reference, From, Timeout} -> poll(Events, Count, begin_poll(State, Count, Reference, From, Timeout));
        {timeout, Timer, poll} -> ?MODULE:loop(Events, Count, end_poll(State, Timer));
        {ask, Reference, From, stop} ->
            From ! {Reference, ok},
            ok;
        {ask, Reference, From, {forget, Timer}} ->
            %% Whatever was sent before the timer was taken back is here by now.
            case with_due(Events, State) of
                #state{due = #{Timer := kept}} = Known ->
                    From ! {Reference, true},
                    take_back(Timer, Events, Count - 1, Known);
                Known ->
                    From ! {Reference, false},
                    ?MODULE:loop(Events, Count, Known)
            end;
        {ask, Reference, From, {post, Event}} ->
            case no_room(Event, Count, State) of
                false ->
                    From ! {Reference, ok},
                    told(Event, Events, Count, State);
                Why ->
                    From ! {Reference, {error, Why}},
                    ?MODULE:loop(Events, Count, refuse(Why, State))
            end;
        {ask, Reference, From, Request} ->
            {Answer, Next} = answer(State, Request),
            From ! {Reference, Answer},
            ?MODULE:loop(Events, Count, Next);
        {'DOWN', Owner, process, _, _} when Owner =:= element(1, State#state.owner) -> ok;
        {'DOWN', Watch, process, _, _} when element(1, State#state.place) =:= Watch ->
            {Pool, Index} = element(2, State#state.place),
            ok = tell_owner({worker_down, Pool, Index}, State),
            ?MODULE:loop(Events, Count, State#state{place = none});
        {'DOWN', Watch, process, _, _} -> ?MODULE:loop(Events, Count, abandon(State, Watch));
        %% Whoever closes a socket here is told nothing of its end.
        {'DOWN', _, port, Socket, _} -> ?MODULE:loop(Events, Count, without(Socket, State));
        {end_of_socket, End} -> tell_end(End, Events, Count, State);
        Message ->
            case of_socket(State, Message) of
                none -> ?MODULE:loop(Events, Count, State);
                {piece, Socket, Event} -> tell_piece(Socket, Event, Events, Count, State);
                {datagram, Event} -> tell(Event, Events, Count, State);
                {ended, Socket, End} -> tell_end(End, Events, Count, without(Socket, State));
                {passive, Socket, Number} ->
                    ok = tell_owner({passive, Socket, Number}, State),
                    ?MODULE:loop(Events, Count, State)
            end
    after ?LIE_DOWN -> lie_down(Events, Count, State)
    end.

%% Which timers are among the events. That is found out once, and kept up until they are delivered: one that is taken back is then
%% found without a look through all of them.
-spec with_due([kept()], #state{}) -> #state{}.
with_due(Events, #state{due = none} = State) ->
    State#state{due = maps:from_list([{Timer, kept} || {timeout, Timer, _} <- Events])};
with_due(_Events, State) -> State.

%% Its event is left out when the events are delivered, or before, once there are more of those than of others.
-spec take_back(timer(), [kept()], non_neg_integer(), #state{}) -> ok.
take_back(Timer, Events, Count, #state{due = Due, taken_back = Before} = State) when Before < Count ->
    ?MODULE:loop(Events, Count, State#state{due = Due#{Timer := taken_back}, taken_back = Before + 1});
take_back(Timer, Events, Count, #state{due = Due} = State) ->
    ?MODULE:loop(left_in(Events, Due#{Timer := taken_back}), Count, forgotten(State)).

-spec left_in([kept()], none | #{timer() => kept | taken_back}) -> [kept()].
left_in(Events, none) -> Events;
left_in(Events, Due) -> [Event || Event <- Events, not is_taken_back(Event, Due)].

-spec is_taken_back(kept(), none | #{timer() => kept | taken_back}) -> boolean().
is_taken_back({timeout, Timer, _}, #{} = Due) -> maps:get(Timer, Due, kept) =:= taken_back;
is_taken_back(_Event, _Due) -> false.

%% Nothing of what is among the events now was taken back.
-spec forgotten(#state{}) -> #state{}.
forgotten(State) -> State#state{due = none, taken_back = 0}.

%% Goes on with an event more.
-spec keep(kept(), [kept()], non_neg_integer(), #state{}) -> ok.
keep({timeout, Timer, _} = Event, Events, Count, #state{due = #{} = Due} = State) ->
    ?MODULE:loop([Event | Events], Count + 1, State#state{due = Due#{Timer => kept}});
keep(Event, Events, Count, State) -> ?MODULE:loop([Event | Events], Count + 1, State).

%% Where many wait, to look through all of them is too much.
-spec lie_down([kept()], non_neg_integer(), #state{}) -> ok.
lie_down([], 0, State) -> proc_lib:hibernate(?MODULE, loop, [[], 0, State]);
lie_down(Events, Count, State) -> ?MODULE:loop(Events, Count, State).

-spec tell(kept(), [kept()], non_neg_integer(), #state{}) -> ok.
tell(Event, Events, Count, #state{worker = none, poller = none, capacity = Capacity} = State) when Count < Capacity ->
    keep(Event, Events, Count, State);
tell(Event, Events, Count, State) ->
    case no_room(Event, Count, State) of
        false -> told(Event, Events, Count, State);
        Why -> ?MODULE:loop(Events, Count, refuse(Why, State))
    end.

%% Why an event finds no room. One for a worker that finds some is there.
-spec no_room(kept(), non_neg_integer(), #state{}) -> false | term().
no_room(_Event, Count, #state{worker = none, capacity = Capacity}) when Count < Capacity -> false;
no_room(_Event, Count, #state{worker = none, capacity = Capacity}) -> {overloaded, Count, Capacity};
no_room(Event, _Count, #state{worker = Connection}) ->
    case post_to(Connection, Event) of
        ok -> false;
        {error, Why} -> Why
    end.

%% Goes on from an event that has room.
-spec told(kept(), [kept()], non_neg_integer(), #state{}) -> ok.
told(Event, Events, Count, #state{worker = none, poller = none} = State) -> keep(Event, Events, Count, State);
told(Event, Events, Count, #state{worker = none, capacity = Capacity} = State) ->
    %% A poll is woken once for everything that is here.
    gather([Event | Events], min(Capacity - Count - 1, ?TOGETHER), State);
told(_Event, Events, Count, State) -> ?MODULE:loop(Events, Count, State).

%% A piece of a stream that finds no room ends it: what comes behind it would not follow on what came before.
-spec tell_piece(port(), event(), [kept()], non_neg_integer(), #state{}) -> ok.
tell_piece(Socket, {_, Number, _} = Event, Events, Count, State) ->
    case no_room(Event, Count, State) of
        false -> told(Event, Events, Count, State);
        Why -> tell_end({?ERROR, Number, <<"overloaded">>}, Events, Count, cut(Socket, Why, State))
    end.

%% The end of a socket finds room: there is one for each.
-spec tell_end(event(), [kept()], non_neg_integer(), #state{}) -> ok.
tell_end(End, Events, Count, #state{worker = none, poller = none} = State) -> ?MODULE:loop([End | Events], Count + 1, State);
tell_end(End, Events, _Count, #state{worker = none} = State) -> deliver([End | Events], State);
tell_end(End, Events, Count, #state{worker = Connection} = State) ->
    case post_to(Connection, End) of
        ok -> ?MODULE:loop(Events, Count, State);
        {error, {overloaded, _, _}} ->
            _ = erlang:send_after(?AGAIN, self(), {end_of_socket, End}),
            ?MODULE:loop(Events, Count, State);
        {error, Why} -> ?MODULE:loop(Events, Count, refuse(Why, State))
    end.

-spec refuse(term(), #state{}) -> #state{}.
refuse(Why, #state{refused = Refused, is_told = IsTold} = State) ->
    case news_of(Why) of
        {news, News} when not IsTold ->
            ok = tell_owner(News, State),
            State#state{refused = Refused + 1, is_told = true};
        _ -> State#state{refused = Refused + 1}
    end.

%% Of a worker that has ended the owner is told by itself.
-spec news_of(term()) -> {news, news()} | none.
news_of({overloaded, _, _} = Why) -> {news, Why};
news_of({no_python_value, _} = Why) -> {news, {refused, Why}};
news_of({no_such_kind, _} = Why) -> {news, {refused, Why}};
news_of({fault, frame_too_large, _} = Why) -> {news, {refused, Why}};
news_of(_Why) -> none.

-spec tell_owner(news(), #state{}) -> ok.
tell_owner(News, #state{owner = {_, Owner}}) ->
    Owner ! {?MODULE, self(), News},
    ok.

%% Closed at once: what may still wait to be written is dropped.
-spec cut(port(), term(), #state{}) -> #state{}.
cut(Socket, Why, State) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    _ = gen_tcp:close(Socket),
    refuse(Why, without(Socket, State)).

-spec without(port(), #state{}) -> #state{}.
without(Socket, #state{sockets = Sockets} = State) -> State#state{sockets = maps:remove(Socket, Sockets)}.

-spec post_to(thalweg_nif:connection(), kept()) -> ok | {error, term()}.
post_to(Connection, Event) ->
    {Kind, Number, Payload} = as_told(Event),
    thalweg_nif:post(Connection, Kind, Number, Payload).

-spec as_told(kept()) -> event().
as_told({timeout, _Timer, Number}) -> {?TIMER, Number, none};
as_told(Event) -> Event.

-spec gather([kept()], non_neg_integer(), #state{}) -> ok.
gather(Events, 0, State) -> deliver(Events, State);
gather(Events, Room, State) ->
    receive
        {Kind, Number, _} = Event when ?IS_KIND(Kind), ?IS_NUMBER(Number) ->
            gather([Event | Events], Room - 1, State);
        {timeout, _, Number} = Due when ?IS_NUMBER(Number) -> gather([Due | Events], Room - 1, State)
    after 0 -> deliver(Events, State)
    end.

-spec deliver([kept()], #state{}) -> ok.
deliver(Events, #state{poller = {Reference, From, _, _}, due = Due} = State) ->
    Left = forgotten(release(State)),
    case is_there(From) of
        true ->
            From ! {Reference, in_order(left_in(Events, Due), [])},
            ?MODULE:loop([], 0, Left);
        %% What it would have been told is told to the next.
        false ->
            Kept = left_in(Events, Due),
            ?MODULE:loop(Kept, length(Kept), Left)
    end.

-spec in_order([kept()], [event()]) -> [event()].
in_order([], Told) -> Told;
in_order([Event | Earlier], Told) -> in_order(Earlier, [as_told(Event) | Told]).

%% A process of another node is taken to be there: its end is told, and comes late at the worst.
-spec is_there(pid()) -> boolean().
is_there(Process) -> node(Process) =/= node() orelse is_process_alive(Process).

%% There is no poller any more.
-spec release(#state{}) -> #state{}.
release(#state{poller = {_, _, Timer, Watch}} = State) ->
    _ = erlang:cancel_timer(Timer),
    true = demonitor(Watch, [flush]),
    State#state{poller = none}.

%% The process that polled has ended.
-spec abandon(#state{}, reference()) -> #state{}.
abandon(#state{poller = {_, _, _, Watch}} = State, Watch) -> release(State);
abandon(State, _Watch) -> State.

%% What is there already is what a poll is told.
-spec poll([kept()], non_neg_integer(), #state{}) -> ok.
poll(Events, Count, #state{poller = none} = State) -> ?MODULE:loop(Events, Count, State);
poll(Events, 0, State) -> ?MODULE:loop(Events, 0, State);
poll(Events, _Count, State) -> deliver(Events, State).

-spec begin_poll(#state{}, non_neg_integer(), reference(), pid(), timeout()) -> #state{}.
begin_poll(#state{poller = {Old, Before, _, _}} = State, Count, Reference, From, Timeout) ->
    Before ! {Old, []},
    begin_poll(release(State), Count, Reference, From, Timeout);
begin_poll(State, 0, Reference, From, 0) ->
    From ! {Reference, []},
    State;
begin_poll(State, Count, Reference, From, Timeout) ->
    Timer =
        case Count > 0 orelse Timeout =:= infinity of
            true -> make_ref();
            false -> erlang:start_timer(Timeout, self(), poll)
        end,
    %% A process that is answered at once need not be watched.
    Watch =
        case Count > 0 of
            true -> make_ref();
            false -> monitor(process, From)
        end,
    State#state{poller = {Reference, From, Timer, Watch}}.

-spec end_poll(#state{}, reference()) -> #state{}.
end_poll(#state{poller = {Reference, From, Timer, _}} = State, Timer) ->
    From ! {Reference, []},
    release(State);
end_poll(State, _Timer) -> State.

-spec answer(#state{}, term()) -> {term(), #state{}}.
answer(#state{refused = Refused} = State, refused) -> {Refused, State#state{is_told = false}};
answer(#state{sockets = Sockets} = State, {socket, Socket, Number}) ->
    Before = maps:get(Socket, Sockets, none),
    case Number of
        none -> {Before, without(Socket, State)};
        _ ->
            _ = [monitor(port, Socket) || Before =:= none],
            {Before, State#state{sockets = Sockets#{Socket => Number}}}
    end;
answer(#state{place = Before} = State, {worker, Connection, Worker, Place}) ->
    _ = [demonitor(Watch, [flush]) || {Watch, _} <- [Before]],
    {ok, State#state{worker = Connection, place = {monitor(process, Worker), Place}}}.

%% What sockets say, in the kinds of the event loop.
-spec of_socket(#state{}, term()) ->
    {piece | ended, port(), event()} | {datagram, event()} | {passive, port(), callback_number()} | none.
of_socket(#state{sockets = Sockets}, Message) when is_tuple(Message), is_map_key(element(2, Message), Sockets) ->
    Socket = element(2, Message),
    Number = map_get(Socket, Sockets),
    case Message of
        {tcp, _, Data} -> {piece, Socket, {?DATA, Number, iolist_to_binary(Data)}};
        {udp, _, _, _, Data} -> {datagram, {?DATA, Number, iolist_to_binary(Data)}};
        {udp, _, _, _, _Ancillary, Data} -> {datagram, {?DATA, Number, iolist_to_binary(Data)}};
        {tcp_closed, _} -> {ended, Socket, {?CLOSED, Number, none}};
        {udp_closed, _} -> {ended, Socket, {?CLOSED, Number, none}};
        {tcp_error, _, Reason} -> {ended, Socket, {?ERROR, Number, atom_to_binary(Reason)}};
        %% A datagram that was refused, say: the socket is as it was.
        {udp_error, _, Reason} -> {datagram, {?ERROR, Number, atom_to_binary(Reason)}};
        {Passive, _} when Passive =:= tcp_passive; Passive =:= udp_passive -> {passive, Socket, Number};
        _ -> none
    end;
of_socket(_State, _Message) -> none.
