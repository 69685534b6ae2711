%% The event process: timers, batches, sockets, and a worker's loop behind it.
-module(thalweg_events_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        posted, timers, never_early, cancelled, cancelled_among_equals, cancelled_among_many, cancelled_while_polled, nothing_in_time, poll_takes_over,
        who_polled_is_no_more, bounded, told_whether_there_is_room, a_stream_without_room, streams_of_one_number, the_end_of_a_stream_without_room, wrong_arguments, strays, not_handed_over, closed_here,
        tcp, udp, udp_with_ancillary_data, an_error_of_a_datagram, so_many_messages_and_no_more, into_a_worker, a_kind_that_a_worker_does_not_know, descriptors_into_a_worker, sockets_into_a_worker, a_worker_without_room, a_worker_is_looked_at_once, a_worker_that_takes_nothing, without_a_value_in_python, without_a_value_in_the_worker, a_worker_that_ended, ends_with_its_owner
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1}).
end_per_suite(Config) -> thalweg_test:stop(Config).

init_per_testcase(_Case, Config) ->
    {ok, Events} = thalweg_events:start_link(),
    [{events, Events} | Config].
end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

events(Config) -> proplists:get_value(events, Config).

%% So many events, in however many batches.
take(_Events, 0) -> [];
take(Events, Count) ->
    Batch = thalweg_events:poll(Events, infinity),
    Batch ++ take(Events, Count - length(Batch)).

posted(Config) ->
    Events = events(Config),
    [ok = thalweg_events:post(Events, 1, N, none) || N <- lists:seq(1, 1000)],
    Expected = [{1, N, none} || N <- lists:seq(1, 1000)],
    Expected = take(Events, 1000).

timers(Config) ->
    Events = events(Config),
    [thalweg_events:timer(Events, Milliseconds, Milliseconds) || Milliseconds <- [3000, 1000, 2000, 0]],
    [{3, 0, none}, {3, 1000, none}, {3, 2000, none}, {3, 3000, none}] = take(Events, 4).

never_early(Config) ->
    Events = events(Config),
    Started = erlang:monotonic_time(microsecond),
    _ = thalweg_events:timer(Events, 20, 1),
    [{3, 1, none}] = thalweg_events:poll(Events, infinity),
    true = erlang:monotonic_time(microsecond) - Started >= 20000.

cancelled(Config) ->
    Events = events(Config),
    Timer = thalweg_events:timer(Events, 3600000, 1),
    true = thalweg_events:cancel(Events, Timer),
    false = thalweg_events:cancel(Events, Timer),
    %% One that is due already and was not told of is taken back as well.
    Due = thalweg_events:timer(Events, 0, 2),
    thalweg_test:until(fun() -> erlang:read_timer(Due) =:= false end),
    true = thalweg_events:cancel(Events, {Due, 2}),
    [] = thalweg_events:poll(Events, 0),
    false = thalweg_events:cancel(Events, {Due, 2}).

%% A timer is taken back and no other, be their numbers the same.
cancelled_among_equals(Config) ->
    Events = events(Config),
    [First, Second] = Timers = [thalweg_events:timer(Events, 0, 4) || _ <- [1, 2]],
    [thalweg_test:until(fun() -> erlang:read_timer(Timer) =:= false end) || Timer <- Timers],
    ok = thalweg_events:post(Events, 3, 4, none),
    true = thalweg_events:cancel(Events, {Second, 4}),
    false = thalweg_events:cancel(Events, {Second, 4}),
    true = thalweg_events:cancel(Events, First),
    false = thalweg_events:cancel(Events, First),
    [{3, 4, none}] = thalweg_events:poll(Events, 0).

cancelled_among_many(_Config) ->
    %% However many are due: what each of them takes is counted, not timed.
    [Few, Many] = [work_of_cancelling(Count) || Count <- [1000, 16000]],
    {Few, Many, true} = {Few, Many, Many < 3 * Few},
    %% What is left is told, in order, among whatever else there is and comes meanwhile.
    {ok, Events} = thalweg_events:start_link(#{capacity => 400}),
    Timers = due(Events, 200),
    [ok = thalweg_events:post(Events, 7, Number, none) || Number <- lists:seq(1, 100)],
    {Cancelled, [Left | Rest]} = lists:split(150, Timers),
    [true = thalweg_events:cancel(Events, Timer) || Timer <- Cancelled],
    [Later] = due(Events, 1),
    [true = thalweg_events:cancel(Events, Timer) || Timer <- Rest],
    [false = thalweg_events:cancel(Events, Timer) || Timer <- Cancelled ++ Rest],
    ok = thalweg_events:post_checked(Events, 7, 101, none),
    Told = [{3, 151, none}] ++ [{7, Number, none} || Number <- lists:seq(1, 100)] ++ [{3, 1, none}, {7, 101, none}],
    Told = thalweg_events:poll(Events, 0),
    [false = thalweg_events:cancel(Events, Timer) || Timer <- [Left, Later]],
    %% What was taken back takes no room.
    [true = thalweg_events:cancel(Events, Timer) || _ <- [1, 2, 3], Timer <- due(Events, 400)],
    [ok = thalweg_events:post_checked(Events, 7, Number, none) || Number <- lists:seq(1, 400)],
    {error, {overloaded, 400, 400}} = thalweg_events:post_checked(Events, 7, 401, none),
    400 = length(thalweg_events:poll(Events, 0)),
    ok = thalweg_events:stop(Events).

%% Reductions for each of so many timers that are due already and are taken back.
work_of_cancelling(Count) ->
    {ok, Events} = thalweg_events:start_link(),
    Timers = due(Events, Count),
    Work = fun() -> element(2, process_info(Events, reductions)) end,
    Before = Work(),
    [true = thalweg_events:cancel(Events, Timer) || Timer <- Timers],
    After = Work(),
    [] = thalweg_events:poll(Events, 0),
    ok = thalweg_events:stop(Events),
    (After - Before) / Count.

%% Timers that the process has been told of.
due(Events, Count) ->
    Timers = [thalweg_events:timer(Events, 0, Number) || Number <- lists:seq(1, Count)],
    thalweg_test:until(fun() -> not lists:any(fun(Timer) -> is_integer(erlang:read_timer(Timer)) end, Timers) end),
    thalweg_test:until(fun() -> process_info(Events, message_queue_len) =:= {message_queue_len, 0} end),
    Timers.

cancelled_while_polled(Config) ->
    Events = events(Config),
    Self = self(),
    [
        begin
            Timer = thalweg_events:timer(Events, Delay, 1),
            Poller = spawn_link(fun() -> Self ! {polled, self(), thalweg_events:poll(Events, 20)} end),
            Taken = thalweg_events:cancel(Events, {Timer, 1}),
            receive
                {polled, Poller, Told} -> true = (Told =:= []) =:= Taken
            end
        end
     || Delay <- [0, 1, 2, 3600000], _ <- lists:seq(1, 20)
    ].

nothing_in_time(Config) ->
    [] = thalweg_events:poll(events(Config), 0),
    [] = thalweg_events:poll(events(Config), 10).

poll_takes_over(Config) ->
    Events = events(Config),
    Self = self(),
    First = spawn_link(fun() -> Self ! {first, thalweg_events:poll(Events, infinity)} end),
    %% It waits for the answer, so it has asked.
    thalweg_test:until(fun() -> process_info(First, current_function) =:= {current_function, {thalweg_events, poll, 2}} end),
    thalweg_test:until(fun() -> process_info(First, status) =:= {status, waiting} end),
    [] = thalweg_events:poll(Events, 10),
    receive
        {first, []} -> ok
    end.

%% What a poller that is no more would have been told is told to the next.
who_polled_is_no_more(Config) ->
    Events = events(Config),
    [
        begin
            {Poller, Monitor} = spawn_monitor(fun() -> thalweg_events:poll(Events, infinity) end),
            thalweg_test:until(fun() ->
                {monitors, Watched} = process_info(Events, monitors),
                lists:member({process, Poller}, Watched)
            end),
            exit(Poller, kill),
            _ = [receive {'DOWN', Monitor, _, _, _} -> ok end || IsToldOf],
            ok = thalweg_events:post(Events, 1, 7, kept),
            [{1, 7, kept}] = thalweg_events:poll(Events, 1000)
        end
     || IsToldOf <- [true, false]
    ],
    {monitors, [{process, _}]} = process_info(Events, monitors).

bounded(_Config) ->
    {ok, Events} = thalweg_events:start_link(#{capacity => 10}),
    [ok = thalweg_events:post(Events, 1, N, none) || N <- lists:seq(1, 15)],
    thalweg_test:until(fun() -> element(2, process_info(Events, message_queue_len)) =:= 0 end),
    %% Once, however many they are, until somebody asks.
    [{overloaded, 10, 10}] = news(Events),
    10 = length(thalweg_events:poll(Events, 0)),
    5 = thalweg_events:refused(Events),
    [ok = thalweg_events:post(Events, 1, N, none) || N <- lists:seq(1, 11)],
    6 = thalweg_events:refused(Events),
    [{overloaded, 10, 10}] = news(Events).

%% What an owner was told so far.
news(Events) ->
    receive
        {thalweg_events, Events, News} -> [News | news(Events)]
    after 0 -> []
    end.

told_whether_there_is_room(_Config) ->
    {ok, Events} = thalweg_events:start_link(#{capacity => 2}),
    [ok = thalweg_events:post_checked(Events, 1, N, none) || N <- [1, 2]],
    {error, {overloaded, 2, 2}} = thalweg_events:post_checked(Events, 1, 3, none),
    1 = thalweg_events:refused(Events),
    [{1, 1, none}, {1, 2, none}] = thalweg_events:poll(Events, 0),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {polled, thalweg_events:poll(Events, infinity)} end),
    ok = thalweg_events:post_checked(Events, 1, 4, none),
    receive
        {polled, [{1, 4, none}]} -> ok
    end.

%% What comes behind a piece that found no room is not told: it would be taken for what follows.
a_stream_without_room(_Config) ->
    Events = full(),
    {Client, Accepted} = connected(),
    ok = thalweg_events:socket(Events, Accepted, 7),
    ok = inet:setopts(Accepted, [{active, true}]),
    ok = gen_tcp:send(Client, <<"lost">>),
    {error, closed} = gen_tcp:recv(Client, 0, 10000),
    [{1, 1, none}, {1, 1, none}, {32, 7, <<"overloaded">>}] = thalweg_events:poll(Events, 0),
    [] = thalweg_events:poll(Events, 50),
    1 = thalweg_events:refused(Events).

%% The one that lost something ends, whatever others there are.
streams_of_one_number(_Config) ->
    Events = full(),
    Both = [connected() || _ <- [1, 2]],
    [
        begin
            ok = thalweg_events:socket(Events, Accepted, 7),
            ok = inet:setopts(Accepted, [{active, true}])
        end
     || {_, Accepted} <- Both
    ],
    [{First, _}, {Second, _}] = Both,
    ok = gen_tcp:send(Second, <<"lost">>),
    {error, closed} = gen_tcp:recv(Second, 0, 10000),
    [{1, 1, none}, {1, 1, none}, {32, 7, <<"overloaded">>}] = thalweg_events:poll(Events, 0),
    ok = gen_tcp:send(First, <<"told">>),
    [{30, 7, <<"told">>}] = take(Events, 1).

%% Who closes behind the piece that was lost has not ended as it should.
the_end_of_a_stream_without_room(_Config) ->
    Events = full(),
    {Client, Accepted} = connected(),
    ok = thalweg_events:socket(Events, Accepted, 7),
    true = erlang:suspend_process(Events),
    ok = inet:setopts(Accepted, [{active, true}]),
    ok = gen_tcp:send(Client, <<"lost">>),
    ok = gen_tcp:close(Client),
    thalweg_test:until(fun() -> erlang:port_info(Accepted) =:= undefined end),
    true = erlang:resume_process(Events),
    [{1, 1, none}, {1, 1, none}, {32, 7, <<"overloaded">>}] = thalweg_events:poll(Events, 0),
    [] = thalweg_events:poll(Events, 50).

%% A process of events with room for two, which are there.
full() ->
    {ok, Events} = thalweg_events:start_link(#{capacity => 2}),
    [ok = thalweg_events:post(Events, 1, 1, none) || _ <- [1, 2]],
    Events.

%% Both ends of a connection.
connected() ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    {ok, Accepted} = gen_tcp:accept(Listener),
    {Client, Accepted}.

wrong_arguments(Config) ->
    Events = events(Config),
    {ok, Socket} = gen_udp:open(0),
    [
        {'EXIT', {badarg, _}} = (catch Act())
     || Act <- [
            fun() -> thalweg_events:post_checked(Events, 256, 1, none) end,
            fun() -> thalweg_events:timer(Events, 1, -1) end,
            fun() -> thalweg_events:timer(Events, soon, 1) end,
            fun() -> thalweg_events:poll(Events, soon) end,
            fun() -> thalweg_events:socket(Events, self(), 1) end,
            fun() -> thalweg_events:socket(Events, Socket, one) end,
            fun() -> thalweg_events:socket(Events, Socket, -1) end,
            fun() -> thalweg_events:post(Events, -5, 1, none) end,
            fun() -> thalweg_events:post(Events, 1, -1, none) end,
            fun() -> thalweg_events:poll(Events, -1) end,
            fun() -> thalweg_events:poll(Events, 1 bsl 60) end
        ]
    ],
    [] = thalweg_events:poll(Events, 0),
    ok = gen_udp:close(Socket).

%% Messages that are no events, whichever process sends them, are nothing at all, whether they would be kept or posted.
strays(Config) ->
    {ok, Events} = thalweg_events:start_link(),
    Strays = [
        {-1, 1, none}, {256, 1, none}, {1, -1, none}, {1, 1 bsl 64, none}, {timeout, make_ref(), -1}, {timeout, make_ref(), soon}, {}, {1}, odd,
        {poll, 1}, {'DOWN', make_ref(), process, self(), none}, {udp, 1, 2, 3, 4}
    ],
    [
        begin
            ok = Turn(),
            [Events ! Stray || Stray <- Strays],
            0 = thalweg_events:refused(Events),
            [] = thalweg_events:poll(Events, 0)
        end
     || Turn <- [fun() -> ok end, fun() -> thalweg_events:to_worker(Events, default, 1) end]
    ],
    ok = thalweg_events:stop(Events),
    [] = thalweg_events:poll(events(Config), 0).

%% A socket that is not handed over has no number.
not_handed_over(Config) ->
    Events = events(Config),
    {ok, Other} = thalweg_events:start_link(),
    {Client, Accepted} = connected(),
    ok = thalweg_events:socket(Events, Accepted, 7),
    {error, not_owner} = thalweg_events:socket(Other, Accepted, 8),
    Other ! {tcp, Accepted, <<"another's">>},
    [] = thalweg_events:poll(Other, 0),
    ok = inet:setopts(Accepted, [{active, true}]),
    ok = gen_tcp:send(Client, <<"x">>),
    [{30, 7, <<"x">>}] = thalweg_events:poll(Events, 5000),
    ok = gen_tcp:close(Client),
    [{31, 7, none}] = thalweg_events:poll(Events, 5000),
    {ok, Closed} = gen_udp:open(0),
    ok = gen_udp:close(Closed),
    {error, closed} = thalweg_events:socket(Events, Closed, 9),
    Events ! {udp, Closed, {127, 0, 0, 1}, 1, <<"nobody's">>},
    [] = thalweg_events:poll(Events, 0),
    ok = thalweg_events:stop(Other).

%% Nothing is kept of a socket that is closed over here, of which no message tells.
closed_here(Config) ->
    Events = events(Config),
    {_Client, Accepted} = connected(),
    ok = thalweg_events:socket(Events, Accepted, 7),
    ok = gen_tcp:close(Accepted),
    [] = thalweg_events:poll(Events, 0),
    %% Under which number it was, as one that hands a socket over asks, and takes back.
    Reference = make_ref(),
    Events ! {ask, Reference, self(), {socket, Accepted, none}},
    none = receive {Reference, Number} -> Number end.

tcp(Config) ->
    Events = events(Config),
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Accepted} = gen_tcp:accept(Listener),
    ok = thalweg_events:socket(Events, Accepted, 7),
    ok = inet:setopts(Accepted, [{active, true}]),
    ok = gen_tcp:send(Client, <<"hello">>),
    [{30, 7, <<"hello">>}] = take(Events, 1),
    ok = gen_tcp:close(Client),
    [{31, 7, none}] = take(Events, 1).

udp(Config) -> datagram(Config, []).

%% What the system says about a datagram comes beside it.
udp_with_ancillary_data(Config) -> datagram(Config, [{recvtos, true}]).

datagram(Config, Options) ->
    Events = events(Config),
    {ok, Receiver} = gen_udp:open(0, [binary, {active, true}, {ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = inet:port(Receiver),
    ok = thalweg_events:socket(Events, Receiver, 8),
    {ok, Sender} = gen_udp:open(0, [binary]),
    ok = gen_udp:send(Sender, {127, 0, 0, 1}, Port, <<"datagram">>),
    [{30, 8, <<"datagram">>}] = take(Events, 1),
    gen_udp:close(Sender).

%% A datagram that nobody took is told of, and what comes later is told.
an_error_of_a_datagram(Config) ->
    Events = events(Config),
    Here = {127, 0, 0, 1},
    {ok, Gone} = gen_udp:open(0, [{ip, Here}]),
    {ok, Port} = inet:port(Gone),
    ok = gen_udp:close(Gone),
    {ok, Socket} = gen_udp:open(0, [binary, {active, true}, {ip, Here}]),
    {ok, Own} = inet:port(Socket),
    ok = gen_udp:connect(Socket, Here, Port),
    ok = thalweg_events:socket(Events, Socket, 8),
    ok = gen_udp:send(Socket, <<"to nobody">>),
    [{32, 8, <<"econnrefused">>}] = take(Events, 1),
    {ok, Later} = gen_udp:open(Port, [binary, {ip, Here}]),
    ok = gen_udp:send(Later, Here, Own, <<"later">>),
    [{30, 8, <<"later">>}] = take(Events, 1),
    [ok = gen_udp:close(Open) || Open <- [Later, Socket]].

%% A socket that has told as much as it was to is the owner's affair, whose it is to ask for more.
so_many_messages_and_no_more(Config) ->
    {Client, Stream} = connected(),
    {ok, Datagrams} = gen_udp:open(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Datagrams),
    {ok, Sender} = gen_udp:open(0, [binary]),
    Events = events(Config),
    [
        begin
            ok = thalweg_events:socket(Events, Socket, 9),
            [
                begin
                    ok = inet:setopts(Socket, [{active, 1}]),
                    ok = Send(Data),
                    [{30, 9, Data}] = take(Events, 1),
                    receive {thalweg_events, Events, News} -> {passive, Socket, 9} = News end
                end
             || Data <- [<<"first">>, <<"second">>]
            ]
        end
     || {Socket, Send} <- [
            {Stream, fun(Data) -> gen_tcp:send(Client, Data) end},
            {Datagrams, fun(Data) -> gen_udp:send(Sender, {127, 0, 0, 1}, Port, Data) end}
        ]
    ],
    [ok = gen_udp:close(Open) || Open <- [Sender, Datagrams]],
    ok = gen_tcp:close(Client).

%% A number in the worker's mailbox hears of timers and of sockets that are Erlang's.
into_a_worker(Config) ->
    Events = events(Config),
    {ok, Number} = thalweg:call(sample, listen, [self()]),
    ok = thalweg_events:to_worker(Events, default, 1),
    {error, no_worker} = thalweg_events:to_worker(Events, default, 9),
    ok = thalweg_events:post(Events, 30, Number, <<"data">>),
    _ = thalweg_events:timer(Events, 1, Number),
    receive
        {<<"event">>, 30, Data} -> <<"data">> = Data
    end,
    receive
        {<<"event">>, 3, none} -> ok
    end,
    %% A number that nobody gave.
    ok = thalweg_events:post(Events, 30, 1 bsl 40, none),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% A worker's loop tells of the kinds that there are; who polls is told of any.
a_kind_that_a_worker_does_not_know(Config) ->
    Events = events(Config),
    ok = thalweg_events:post_checked(Events, 99, 1, polled),
    [{99, 1, polled}] = thalweg_events:poll(Events, 0),
    {ok, Number} = thalweg:call(sample, listen, [self()]),
    ok = thalweg_events:to_worker(Events, default, 1),
    [{error, {no_such_kind, Kind}} = thalweg_events:post_checked(Events, Kind, Number, x) || Kind <- [0, 4, 99, 255]],
    ok = thalweg_events:post(Events, 23, Number, x),
    5 = thalweg_events:refused(Events),
    [{refused, {no_such_kind, 0}}] = news(Events),
    Known = [1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 30, 31],
    [ok = thalweg_events:post_checked(Events, Kind, Number, <<"x">>) || Kind <- Known],
    Known = [receive {<<"event">>, Kind, _} -> Kind after 60000 -> none end || Kind <- Known].

%% Each descriptor of a number is told of.
descriptors_into_a_worker(Config) ->
    Events = events(Config),
    {ok, Number} = thalweg:call(sample, listen, [self()]),
    ok = thalweg_events:to_worker(Events, default, 1),
    %% All of it is there when the loop goes on.
    Busy = thalweg:spawn_call(time, sleep, [0.2]),
    [ok = thalweg_events:post_checked(Events, 1, Number, Descriptor) || Descriptor <- [5, 6, 7]],
    {ok, none} = thalweg:await(Busy),
    [5, 6, 7] = [receive {<<"event">>, 1, Told} -> Told after 60000 -> none end || _ <- [5, 6, 7]].

%% What Erlang's own sockets say is an event of the worker's loop.
sockets_into_a_worker(Config) ->
    Events = events(Config),
    [{ok, Stream}, {ok, Datagrams}] = [thalweg:call(sample, listen, [self()]) || _ <- [tcp, udp]],
    ok = thalweg_events:to_worker(Events, default, 1),
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Accepted} = gen_tcp:accept(Listener),
    ok = thalweg_events:socket(Events, Accepted, Stream),
    ok = inet:setopts(Accepted, [{active, true}]),
    ok = gen_tcp:send(Client, <<"hello">>),
    <<"hello">> = told(30),
    ok = gen_tcp:close(Client),
    none = told(31),
    {ok, Receiver} = gen_udp:open(0, [binary, {active, true}, {ip, {127, 0, 0, 1}}]),
    {ok, ReceiverPort} = inet:port(Receiver),
    ok = thalweg_events:socket(Events, Receiver, Datagrams),
    {ok, Sender} = gen_udp:open(0, [binary]),
    ok = gen_udp:send(Sender, {127, 0, 0, 1}, ReceiverPort, <<"datagram">>),
    <<"datagram">> = told(30),
    ok = gen_udp:close(Sender).

%% A mailbox that is full has what is posted wait, in order, until it has room.
a_worker_without_room(Config) ->
    Events = events(Config),
    {ok, Number} = thalweg:call(sample, listen, [self()]),
    ok = thalweg_events:to_worker(Events, default, 1),
    {ok, Before} = thalweg:call(sample, capacity, [1]),
    %% All of it is there when the loop goes on.
    Busy = thalweg:spawn_call(time, sleep, [0.2]),
    [ok = thalweg_events:post(Events, 30, Number, N) || N <- lists:seq(1, 200)],
    {ok, none} = thalweg:await(Busy),
    Expected = lists:seq(1, 200),
    Expected = [told(30) || _ <- Expected],
    {ok, 1} = thalweg:call(sample, capacity, [Before]),
    0 = thalweg_events:refused(Events).

%% Room that is waited for is looked for at one time, however many calls find none meanwhile.
a_worker_is_looked_at_once(_Config) ->
    Options = #{pool => narrow},
    {ok, _} = thalweg:start_pool(narrow, thalweg_test:pool(#{size => 1})),
    {ok, Events} = thalweg_events:start_link(),
    {ok, Number} = thalweg:call(sample, listen, [self()], Options),
    {ok, none} = thalweg:call(sample, count_called_later, [], Options),
    {ok, Before} = thalweg:call(sample, capacity, [0], Options),
    ok = thalweg_events:to_worker(Events, narrow, 1),
    ok = thalweg_events:post_checked(Events, 30, Number, <<"late">>),
    [{ok, N} = thalweg:call(sample, echo, [N], Options) || N <- lists:seq(1, 50)],
    {ok, Looks} = thalweg:call(sample, what_is_called_later, [], Options),
    {true, Looks} = {Looks =< 1, Looks},
    {ok, 0} = thalweg:call(sample, capacity, [Before], Options),
    <<"late">> = told(30),
    ok = thalweg:stop_pool(narrow).

%% One that has no room for long is overloaded, which the owner is told, and who asks.
a_worker_that_takes_nothing(_Config) ->
    {ok, _} = thalweg:start_pool(narrow, thalweg_test:pool(#{size => 1, in_flight_max => 4})),
    {ok, Events} = thalweg_events:start_link(),
    {ok, Number} = thalweg:call(sample, listen, [self()], #{pool => narrow}),
    {ok, Before} = thalweg:call(sample, capacity, [0], #{pool => narrow}),
    ok = thalweg_events:to_worker(Events, narrow, 1),
    [ok = thalweg_events:post_checked(Events, 30, Number, N) || N <- lists:seq(1, 4)],
    {error, {overloaded, 4, 4}} = thalweg_events:post_checked(Events, 30, Number, 5),
    ok = thalweg_events:post(Events, 30, Number, 6),
    2 = thalweg_events:refused(Events),
    [{overloaded, 4, 4}] = news(Events),
    ok = thalweg:stop_pool(narrow),
    true = Before > 0.

%% What cannot even be said to a worker is refused, which the owner is told, once until it asks.
without_a_value_in_python(Config) ->
    Events = events(Config),
    {ok, Number} = thalweg:call(sample, listen, [self()]),
    ok = thalweg_events:to_worker(Events, default, 1),
    [ok = thalweg_events:post(Events, 30, Number, fun() -> ok end) || _ <- [1, 2]],
    2 = thalweg_events:refused(Events),
    [{refused, {no_python_value, _}}] = news(Events),
    TooLarge = binary:copy(<<"x">>, 17 bsl 20),
    {error, {fault, frame_too_large, _}} = thalweg_events:post_checked(Events, 30, Number, TooLarge),
    3 = thalweg_events:refused(Events),
    [{refused, {fault, frame_too_large, _}}] = news(Events),
    ok = thalweg_events:post(Events, 30, Number, <<"told">>),
    <<"told">> = told(30).

%% What only the worker finds to be no value is warned of there.
without_a_value_in_the_worker(Config) ->
    Events = events(Config),
    {ok, Number} = thalweg:call(sample, listen, [self()]),
    ok = thalweg_events:to_worker(Events, default, 1),
    thalweg_pool_SUITE:with_log(fun() ->
        ok = thalweg_events:post(Events, 30, Number, #{[1] => 1}),
        Of = integer_to_binary(Number),
        receive
            {logged, warning, <<"an event (kind 30, number ", Rest/binary>>} ->
                <<Of:(byte_size(Of))/binary, ") is lost: TypeError: ", _/binary>> = Rest
        end
    end),
    ok = thalweg_events:post(Events, 30, Number, <<"told">>),
    <<"told">> = told(30).

a_worker_that_ended(_Config) ->
    {ok, _} = thalweg:start_pool(mortal, thalweg_test:pool(#{size => 1})),
    {ok, Events} = thalweg_events:start_link(),
    ok = thalweg_events:to_worker(Events, mortal, 1),
    [Worker] = thalweg:workers(mortal),
    _ = os:cmd("kill -KILL " ++ integer_to_list(Worker)),
    receive
        {thalweg_events, Events, News} -> {worker_down, mortal, 1} = News
    after 60000 -> error(not_told)
    end,
    {error, {fault, _, _}} = thalweg_events:post_checked(Events, 30, 1, none),
    1 = thalweg_events:refused(Events),
    %% The next one is somebody else, whom nobody was sent to.
    thalweg_test:until(fun() -> thalweg_events:to_worker(Events, mortal, 1) =:= ok end),
    ok = thalweg_events:post_checked(Events, 30, 1 bsl 40, none),
    [] = news(Events),
    ok = thalweg:stop_pool(mortal).

told(Kind) ->
    receive
        {<<"event">>, Kind, Payload} -> Payload
    end.

ends_with_its_owner(_Config) ->
    Self = self(),
    Owner = spawn(fun() ->
        {ok, Events} = thalweg_events:start_link(),
        Self ! {events, Events},
        receive stop -> ok end
    end),
    receive
        {events, Events} -> ok
    end,
    Monitor = monitor(process, Events),
    Owner ! stop,
    receive
        {'DOWN', Monitor, _, _, _} -> ok
    end.
