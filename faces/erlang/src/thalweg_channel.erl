%% @doc Channels: bounded queues that Erlang and Python write to and read from.
%%
%% A writer is told `ok', or `busy' when there is no room: nothing is queued then, and the writer tries again. A channel of
%% terms counts values, one of bytes counts bytes. Closing lets what is there be read. A channel ends with its owner. A reader
%% that ends while it waits takes nothing along. A wrong argument is answered `{error, badarg}', and the channel goes on.
-module(thalweg_channel).
-behaviour(gen_server).

-export([open/0, open/1, number/1, write/2, read/1, read/2, close/1, size/1]).
-export([from_python/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([channel/0, options/0]).

-type channel() :: pid() | pos_integer().
-type options() :: #{kind => terms | bytes, capacity => pos_integer()}.

%% A timer goes no further; a reader that waits longer than that is answered then.
-define(MILLISECONDS_MAX, 1 bsl 40).

%% A reader that waits for a value. Without a timeout the timer is one that never was.
-record(reader, {
    from :: gen_server:from(),
    timer :: reference(),
    monitor :: reference()
}).

-record(state, {
    number :: pos_integer(),
    owner :: reference(),
    kind :: terms | bytes,
    capacity :: pos_integer(),
    queue = queue:new() :: queue:queue(),
    size = 0 :: non_neg_integer(),
    %% Readers by their turns, the one that has waited longest first; and the turn of each by its timer and by its monitor, so that one
    %% that leaves is found at once, however many wait.
    readers = gb_trees:empty() :: gb_trees:tree(pos_integer(), #reader{}),
    turns = #{} :: #{reference() => pos_integer()},
    last_turn = 0 :: non_neg_integer(),
    is_closed = false :: boolean()
}).

-spec open() -> {ok, channel()} | {error, thalweg_options:wrong()}.
open() -> open(#{}).

%% @doc A channel of the process that opens it.
-spec open(options()) -> {ok, channel()} | {error, thalweg_options:wrong()}.
open(Options) ->
    case thalweg_options:check(channel, Options) of
        ok -> gen_server:start(?MODULE, {self(), Options}, []);
        {error, Wrong} -> {error, Wrong}
    end.

%% @doc What Python's `Channel' is made with.
-spec number(pid()) -> pos_integer().
number(Channel) when is_pid(Channel) -> gen_server:call(Channel, number);
number(_Channel) -> error(badarg).

-spec write(channel(), term()) -> ok | busy | {error, closed | badarg}.
write(Channel, Value) -> ask(Channel, {write, Value}).

-spec read(channel()) -> {ok, term()} | {error, closed | timeout | badarg}.
read(Channel) -> read(Channel, 5000).

%% @doc The next value, or all bytes that are there. A timeout of zero or less does not wait.
-spec read(channel(), infinity | integer()) -> {ok, term()} | {error, closed | timeout | badarg}.
read(Channel, Timeout) ->
    case ask(Channel, {read, Timeout}) of
        {ok, _Kind, Value} -> {ok, Value};
        {error, Reason} -> {error, Reason}
    end.

-spec close(channel()) -> ok.
close(Channel) ->
    _ = ask(Channel, close),
    ok.

%% @doc What waits to be read.
-spec size(channel()) -> non_neg_integer() | {error, closed}.
size(Channel) -> ask(Channel, size).

%% @private What Python asks.
-spec from_python(list()) -> term().
from_python([<<"write">>, Number, Value]) -> word(write(Number, Value));
from_python([<<"read">>, Number, Endless]) when Endless =:= none; Endless =:= infinity -> read_for_python(Number, infinity);
from_python([<<"read">>, Number, Seconds]) -> read_for_python(Number, round(Seconds * 1000));
from_python([<<"close">>, Number]) -> close(Number).

%% Bytes stay bytes, be they UTF-8 or not: a piece may end anywhere.
-spec read_for_python(channel(), infinity | integer()) -> {ok, term()} | {error, closed | timeout | badarg}.
read_for_python(Channel, Timeout) ->
    case ask(Channel, {read, Timeout}) of
        {ok, bytes, Bytes} -> {ok, {bytes, Bytes}};
        {ok, terms, Value} -> {ok, Value};
        {error, Reason} -> {error, Reason}
    end.

-spec word(ok | busy | {error, closed | badarg}) -> ok | busy | closed.
word({error, badarg}) -> throw(badarg);
word({error, Reason}) -> Reason;
word(Word) -> Word.

-spec ask(channel(), term()) -> term().
ask(Number, Request) when is_integer(Number) ->
    case thalweg_shared:channel(Number) of
        none -> {error, closed};
        Channel -> ask(Channel, Request)
    end;
ask(Channel, Request) ->
    try gen_server:call(Channel, Request, infinity)
    catch exit:_ -> {error, closed}
    end.

-spec init({pid(), options()}) -> {ok, #state{}}.
init({Owner, Options}) ->
    process_flag(message_queue_data, off_heap),
    Kind = maps:get(kind, Options, terms),
    Usual = case Kind of terms -> 1024; bytes -> 1 bsl 20 end,
    Number = thalweg_shared:add_channel(self()),
    Capacity = maps:get(capacity, Options, Usual),
    {ok, #state{number = Number, owner = monitor(process, Owner), kind = Kind, capacity = Capacity}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}} | {stop, normal, term(), #state{}}.
handle_call(number, _From, #state{number = Number} = State) -> {reply, Number, State};
handle_call(size, _From, #state{size = Size} = State) -> {reply, Size, State};
handle_call({write, _}, _From, #state{is_closed = true} = State) -> {reply, {error, closed}, State};
handle_call({write, Value}, _From, #state{size = Size, capacity = Capacity} = State) ->
    case weighed(State, Value) of
        {Kept, Weight} when Size + Weight =< Capacity; Size =:= 0 ->
            {reply, ok, serve(State#state{queue = queue:in(Kept, State#state.queue), size = Size + Weight})};
        {_, _} -> {reply, busy, State};
        badarg -> {reply, {error, badarg}, State}
    end;
handle_call({read, Timeout}, _From, State) when Timeout =/= infinity, not is_integer(Timeout) ->
    {reply, {error, badarg}, State};
handle_call({read, _}, _From, #state{size = 0, is_closed = true} = State) -> {stop, normal, {error, closed}, State};
handle_call({read, Timeout}, _From, #state{size = 0} = State) when is_integer(Timeout), Timeout =< 0 ->
    {reply, {error, timeout}, State};
handle_call({read, Timeout}, {Pid, _} = From, #state{size = 0} = State) ->
    Timer =
        case Timeout of
            infinity -> make_ref();
            _ -> erlang:start_timer(min(Timeout, ?MILLISECONDS_MAX), self(), read)
        end,
    Reader = #reader{from = From, timer = Timer, monitor = monitor(process, Pid)},
    {noreply, with_reader(Reader, State)};
handle_call({read, _}, _From, State) ->
    {Value, Left} = take(State),
    {reply, {ok, State#state.kind, Value}, Left};
handle_call(close, _From, #state{size = 0} = State) ->
    refuse_readers(State),
    {stop, normal, ok, State};
handle_call(close, _From, State) -> {reply, ok, State#state{is_closed = true}}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({timeout, Timer, read}, State) ->
    case without_reader(Timer, State) of
        {Reader, Next} ->
            gen_server:reply(Reader#reader.from, {error, timeout}),
            {noreply, Next};
        none -> {noreply, State}
    end;
handle_info({'DOWN', Owner, process, _, _}, #state{owner = Owner} = State) ->
    refuse_readers(State),
    {stop, normal, State};
handle_info({'DOWN', Monitor, process, _, _}, State) ->
    case without_reader(Monitor, State) of
        {_, Next} -> {noreply, Next};
        none -> {noreply, State}
    end;
handle_info(_Message, State) -> {noreply, State}.

%% Its number leads nowhere from here on.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{number = Number}) -> thalweg_shared:remove_channel(Number, self()).

-spec refuse_readers(#state{}) -> ok.
refuse_readers(#state{readers = Readers}) ->
    lists:foreach(fun(#reader{from = From}) -> gen_server:reply(From, {error, closed}) end, gb_trees:values(Readers)).

-spec with_reader(#reader{}, #state{}) -> #state{}.
with_reader(#reader{timer = Timer, monitor = Monitor} = Reader, #state{readers = Readers, turns = Turns, last_turn = Last} = State) ->
    Turn = Last + 1,
    State#state{readers = gb_trees:insert(Turn, Reader, Readers), turns = Turns#{Timer => Turn, Monitor => Turn}, last_turn = Turn}.

%% The reader with this timer or monitor, which does not wait any more, and the others.
-spec without_reader(reference(), #state{}) -> {#reader{}, #state{}} | none.
without_reader(Reference, #state{readers = Readers, turns = Turns} = State) ->
    case Turns of
        #{Reference := Turn} ->
            {Reader, Left} = gb_trees:take(Turn, Readers),
            {Reader, forget_reader(Reader, State#state{readers = Left})};
        _ -> none
    end.

%% The reader that has waited longest, and the others.
-spec first_reader(#state{}) -> {#reader{}, #state{}} | none.
first_reader(#state{readers = Readers} = State) ->
    case gb_trees:is_empty(Readers) of
        true -> none;
        false ->
            {_, Reader, Left} = gb_trees:take_smallest(Readers),
            {Reader, forget_reader(Reader, State#state{readers = Left})}
    end.

%% What still comes of its timer or monitor leads to no reader: to look for that in the mailbox costs a look through all of it.
-spec forget_reader(#reader{}, #state{}) -> #state{}.
forget_reader(#reader{timer = Timer, monitor = Monitor}, #state{turns = Turns} = State) ->
    _ = erlang:cancel_timer(Timer),
    true = demonitor(Monitor),
    State#state{turns = maps:without([Timer, Monitor], Turns)}.

%% The process that has waited longest, and is still there, gets what is there.
-spec serve(#state{}) -> #state{}.
serve(#state{size = Size} = State) ->
    case Size > 0 andalso first_reader(State) of
        {#reader{from = {Pid, _} = From}, Left} ->
            case is_there(Pid) of
                true ->
                    {Value, Next} = take(Left),
                    gen_server:reply(From, {ok, State#state.kind, Value}),
                    serve(Next);
                false -> serve(Left)
            end;
        _ -> State
    end.

%% One that was ended just now may not have been told of yet. Of another node there is only what was told of.
-spec is_there(pid()) -> boolean().
is_there(Pid) -> node(Pid) =/= node() orelse is_process_alive(Pid).

-spec take(#state{}) -> {term(), #state{}}.
take(#state{kind = bytes, queue = Queue} = State) ->
    {iolist_to_binary(queue:to_list(Queue)), State#state{queue = queue:new(), size = 0}};
take(#state{queue = Queue, size = Size} = State) ->
    {{value, Value}, Left} = queue:out(Queue),
    {Value, State#state{queue = Left, size = Size - 1}}.

%% What is kept of a value, and how much of the capacity it takes.
-spec weighed(#state{}, term()) -> {term(), pos_integer()} | badarg.
weighed(#state{kind = bytes}, Bytes) ->
    try iolist_to_binary(Bytes) of
        Kept -> {Kept, max(1, byte_size(Kept))}
    catch
        error:badarg -> badarg
    end;
weighed(_State, Value) -> {Value, 1}.
