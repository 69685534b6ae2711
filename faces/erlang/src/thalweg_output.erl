%% @private What a worker prints and logs, on its way to Erlang's logger: a process that owns the worker's port.
%%
%% It never waits. A bounded number of lines in a second it hands to a process beside it, which the logger may hold up as long as it
%% likes; what is beyond them is thrown away as it came, and one line says how much that was. So neither what is read here nor
%% what waits there grows with what a worker says, and what a worker is told never waits behind it.
-module(thalweg_output).

-export([start_link/3, ready/1, printed/1, log/4, logged/3]).
-export([init/4, loop/1, begin_to_say/2, sayer/2]).

%% Lines in a second, as many as Erlang's own handlers take; and the bytes of one: what is longer counts as several.
-define(LINES_MAX, 500).
-define(LINE_BYTES_MAX, 8192).
-define(WINDOW, 1000).
%% Milliseconds without a word after which both processes hibernate: a process that runs no code of this module survives the loading
%% of a newer one.
-define(LIE_DOWN, 1000).
%% Lines of a worker's log are said to be taken so many at a time: a part of as many as may wait (`native/connection/lines.rs').
-define(TAKEN, 64).
%% What is kept of what a worker prints before it is ready, and the lines of it that are told.
-define(KEPT_BYTES_MAX, 65536).
-define(KEPT_LINES_MAX, 50).

-record(state, {
    port :: port(),
    worker :: pid(),
    %% The process that hands lines to the logger.
    sayer :: pid(),
    is_ready = false :: boolean(),
    %% What is no whole line yet; the end of all that was printed while the worker is not ready.
    rest = <<>> :: binary(),
    %% Lines that may be said before the window ends. It begins with the first of them.
    room = ?LINES_MAX :: non_neg_integer(),
    left_out_bytes = 0 :: non_neg_integer(),
    %% Lines of the worker's log that are not said to be taken yet.
    taken = 0 :: non_neg_integer(),
    %% The beginning of the line that comes next was left out, and so is its end.
    is_cut = false :: boolean()
}).

%% @doc Starts a worker's program. The port's messages that are no output go to the caller: how it ended, be that before this
%% returns; then its number may be `none'. A program that cannot be run is `worker_failed'.
-spec start_link(file:filename_all(), list(), map()) -> {ok, pid(), port(), non_neg_integer() | none} | {error, term()}.
start_link(Program, Wishes, Meta) -> proc_lib:start_link(?MODULE, init, [self(), Program, Wishes, Meta]).

%% @doc Has lines logged from here on, those that are there included.
-spec ready(pid()) -> ok.
ready(Output) ->
    Output ! ready,
    ok.

%% @doc The last lines that a worker printed before it was ready.
-spec printed(pid()) -> [binary()].
printed(Output) ->
    Monitor = monitor(process, Output),
    Output ! {printed, self(), Monitor},
    receive
        {Monitor, Lines} ->
            demonitor(Monitor, [flush]),
            Lines;
        {'DOWN', Monitor, process, _, _} -> []
    end.

%% @doc Logs a line as if the worker had printed it.
-spec log(pid(), logger:level(), binary(), map()) -> ok.
log(Output, Level, Words, Meta) ->
    Output ! {log, Level, Words, Meta},
    ok.

%% @doc Logs a line that came over a connection, and says there that it was taken.
-spec logged(pid(), thalweg_nif:connection(), {logger:level(), binary(), map()}) -> ok.
logged(Output, Connection, Line) ->
    Output ! {logged, Connection, Line},
    ok.

-spec init(pid(), file:filename_all(), list(), map()) -> ok.
init(Worker, Program, Wishes, Meta) ->
    _ = process_flag(trap_exit, true),
    _ = process_flag(message_queue_data, off_heap),
    try open_port({spawn_executable, Program}, Wishes) of
        Port ->
            OsPid = os_pid(Port),
            Sayer = spawn(?MODULE, begin_to_say, [self(), Meta#{os_pid => OsPid}]),
            proc_lib:init_ack({ok, self(), Port, OsPid}),
            loop(#state{port = Port, worker = Worker, sayer = Sayer})
    catch
        error:Reason -> proc_lib:init_ack({error, {worker_failed, Reason, []}})
    end.

%% A program that has ended already has none: what it printed, and how it ended, is on its way all the same.
-spec os_pid(port()) -> non_neg_integer() | none.
os_pid(Port) ->
    case erlang:port_info(Port, os_pid) of
        {os_pid, OsPid} -> OsPid;
        undefined -> none
    end.

%% @private
-spec loop(#state{}) -> ok.
loop(#state{port = Port, worker = Worker, sayer = Sayer} = State) ->
    receive
        {Port, {data, Chunk}} -> ?MODULE:loop(take(State, Chunk));
        {log, Level, Words, Meta} -> ?MODULE:loop(say(State, Level, Words, Meta));
        {logged, Connection, {Level, Words, Meta}} -> ?MODULE:loop(taken(say(State, Level, Words, Meta), Connection));
        {Port, {exit_status, _}} = Ended ->
            %% The receiver of this has had everything that was printed.
            Worker ! Ended,
            ?MODULE:loop(State);
        ready -> ?MODULE:loop(begin_lines(State));
        window ->
            %% The next one begins when all of this one is said.
            Sayer ! {reached, self()},
            ?MODULE:loop(State);
        reached -> ?MODULE:loop(begin_window(State));
        {printed, From, Reference} ->
            From ! {Reference, kept_lines(State)},
            ?MODULE:loop(State);
        {'EXIT', Worker, _} -> finish(State);
        _ -> ?MODULE:loop(State)
    after ?LIE_DOWN -> proc_lib:hibernate(?MODULE, loop, [State])
    end.

%% Before it is ready, it is not known yet which of its words matter: the last ones, should it fail.
-spec take(#state{}, binary()) -> #state{}.
take(#state{is_ready = false, rest = Rest} = State, Chunk) ->
    State#state{rest = last_bytes(<<Rest/binary, Chunk/binary>>, ?KEPT_BYTES_MAX)};
take(#state{rest = Rest} = State, Chunk) -> take_lines(State#state{rest = <<>>}, <<Rest/binary, Chunk/binary>>).

-spec take_lines(#state{}, binary()) -> #state{}.
take_lines(State, <<>>) -> State;
take_lines(#state{room = 0} = State, Bytes) ->
    leave_out(State#state{is_cut = binary:last(Bytes) =/= $\n}, byte_size(Bytes));
take_lines(State, Bytes) ->
    case binary:match(Bytes, <<"\n">>, [{scope, {0, min(byte_size(Bytes), ?LINE_BYTES_MAX + 1)}}]) of
        {At, 1} ->
            <<Line:At/binary, _, Left/binary>> = Bytes,
            take_lines(take_line(State, Line), Left);
        nomatch when byte_size(Bytes) > ?LINE_BYTES_MAX ->
            <<Line:?LINE_BYTES_MAX/binary, Left/binary>> = Bytes,
            take_lines(take_line(State, Line), Left);
        nomatch -> State#state{rest = Bytes}
    end.

-spec take_line(#state{}, binary()) -> #state{}.
take_line(#state{is_cut = true} = State, Line) -> leave_out(State#state{is_cut = false}, byte_size(Line) + 1);
take_line(State, Line) -> say(State, notice, Line, #{}).

-spec say(#state{}, logger:level(), binary(), map()) -> #state{}.
say(#state{room = 0} = State, _Level, Words, _Meta) -> leave_out(State, byte_size(Words));
say(#state{room = Room, sayer = Sayer} = State, Level, Words, Meta) ->
    _ = [erlang:send_after(?WINDOW, self(), window) || Room =:= ?LINES_MAX],
    Sayer ! {say, Level, Words, Meta},
    State#state{room = max(0, Room - 1 - byte_size(Words) div (?LINE_BYTES_MAX + 1))}.

-spec taken(#state{}, thalweg_nif:connection()) -> #state{}.
taken(#state{taken = Taken} = State, _Connection) when Taken + 1 < ?TAKEN -> State#state{taken = Taken + 1};
taken(State, Connection) -> leave_out(State#state{taken = 0}, thalweg_nif:taken(Connection, ?TAKEN)).

-spec leave_out(#state{}, non_neg_integer()) -> #state{}.
leave_out(#state{left_out_bytes = Before} = State, Bytes) -> State#state{left_out_bytes = Before + Bytes}.

-spec begin_window(#state{}) -> #state{}.
begin_window(#state{left_out_bytes = 0} = State) -> State#state{room = ?LINES_MAX};
begin_window(#state{left_out_bytes = Bytes} = State) ->
    Words = [integer_to_binary(Bytes), <<" bytes that it printed or logged too fast were left out">>],
    say(State#state{room = ?LINES_MAX, left_out_bytes = 0}, warning, iolist_to_binary(Words), #{}).

-spec begin_lines(#state{}) -> #state{}.
begin_lines(#state{rest = Kept} = State) -> take_lines(State#state{is_ready = true, rest = <<>>}, Kept).

%% What is still to be said is said, but for what a worker that did not start was told by its end.
-spec finish(#state{}) -> ok.
finish(#state{is_ready = false}) -> ok;
finish(#state{rest = <<>>} = State) ->
    _ = begin_window(State),
    ok;
finish(#state{rest = Rest} = State) -> finish(take_line(State#state{rest = <<>>}, Rest)).

-spec kept_lines(#state{}) -> [binary()].
kept_lines(#state{is_ready = true}) -> [];
kept_lines(#state{rest = Kept}) ->
    Lines = binary:split(Kept, <<"\n">>, [global, trim]),
    lists:nthtail(max(0, length(Lines) - ?KEPT_LINES_MAX), Lines).

-spec last_bytes(binary(), pos_integer()) -> binary().
last_bytes(Bytes, Max) when byte_size(Bytes) > Max -> binary:copy(binary:part(Bytes, byte_size(Bytes), -Max));
last_bytes(Bytes, _Max) -> Bytes.

%% @private
-spec begin_to_say(pid(), map()) -> ok.
begin_to_say(Output, Meta) -> sayer(monitor(process, Output), Meta).

%% @private Ends when no process is left that could hand it something, and says before what it was handed.
-spec sayer(reference(), map()) -> ok.
sayer(Output, Meta) ->
    receive
        {say, Level, Words, More} ->
            logger:log(Level, "~ts", [printable(Words)], maps:merge(Meta, More)),
            ?MODULE:sayer(Output, Meta);
        {reached, From} ->
            From ! reached,
            ?MODULE:sayer(Output, Meta);
        {'DOWN', Output, process, _, _} -> ok
    after ?LIE_DOWN -> erlang:hibernate(?MODULE, sayer, [Output, Meta])
    end.

-spec printable(binary()) -> string() | binary().
printable(Line) ->
    case unicode:characters_to_list(Line) of
        Text when is_list(Text) -> Text;
        _ -> io_lib:format("~p", [Line])
    end.
