%% @private Sends what a worker says to processes of other nodes. A node that does not read holds up whoever sends to it, and nothing
%% else that the worker asks or is told is to wait for that. Ends after its worker, with the last of what it was handed.
-module(thalweg_courier).

-export([living/1, send/3]).
-export([begin_to_send/1, loop/1]).

%% Milliseconds without a message after which it hibernates: a process that runs no code of this module survives the loading of a newer one.
-define(LIE_DOWN, 1000).

%% @doc The courier of the calling worker: the one that it has, as long as that lives, or another.
-spec living(pid() | none) -> pid().
living(Courier) ->
    case is_pid(Courier) andalso is_process_alive(Courier) of
        true -> Courier;
        false -> spawn_opt(?MODULE, begin_to_send, [self()], [{message_queue_data, off_heap}])
    end.

-spec send(pid(), pid(), term()) -> ok.
send(Courier, To, Message) ->
    Courier ! {send, To, Message},
    ok.

%% @private
-spec begin_to_send(pid()) -> ok.
begin_to_send(Worker) -> loop(monitor(process, Worker)).

%% @private
-spec loop(reference()) -> ok.
loop(Worker) ->
    receive
        {send, To, Message} ->
            To ! Message,
            ?MODULE:loop(Worker);
        {'DOWN', Worker, process, _, _} -> ok
    after ?LIE_DOWN -> erlang:hibernate(?MODULE, loop, [Worker])
    end.
