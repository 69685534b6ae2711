%% @doc Channels: bounded queues that Erlang and Python write to and read from.
%%
%% Who writes is told `ok', or `busy' when there is no room: nothing is queued then, and who wrote tries again. A channel of
%% terms counts values, one of bytes counts bytes. Closing lets what is there be read. A channel ends with its owner.
-module(thalweg_channel).
-behaviour(gen_server).

-export([open/0, open/1, number/1, write/2, read/1, read/2, close/1, size/1]).
-export([from_python/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([channel/0, options/0]).

-type channel() :: pid() | pos_integer().
-type options() :: #{kind => terms | bytes, capacity => pos_integer()}.

-record(state, {
    kind :: terms | bytes,
    capacity :: pos_integer(),
    queue = queue:new() :: queue:queue(),
    size = 0 :: non_neg_integer(),
    readers = queue:new() :: queue:queue({gen_server:from(), reference()}),
    is_closed = false :: boolean()
}).

-spec open() -> {ok, channel()}.
open() -> open(#{}).

%% @doc A channel of the process that opens it.
-spec open(options()) -> {ok, channel()}.
open(Options) -> gen_server:start(?MODULE, {self(), Options}, []).

%% @doc What Python's `Channel' is made with.
-spec number(pid()) -> pos_integer().
number(Channel) -> gen_server:call(Channel, number).

-spec write(channel(), term()) -> ok | busy | {error, closed}.
write(Channel, Value) -> ask(Channel, {write, Value}).

-spec read(channel()) -> {ok, term()} | {error, closed | timeout}.
read(Channel) -> read(Channel, 5000).

%% @doc The next value, or all bytes that are there.
-spec read(channel(), timeout()) -> {ok, term()} | {error, closed | timeout}.
read(Channel, Timeout) -> ask(Channel, {read, Timeout}).

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
from_python([<<"read">>, Number, none]) -> read(Number, infinity);
from_python([<<"read">>, Number, Seconds]) -> read(Number, round(Seconds * 1000));
from_python([<<"close">>, Number]) -> close(Number).

-spec word(ok | busy | {error, closed}) -> ok | busy | closed.
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
    _ = monitor(process, Owner),
    Kind = maps:get(kind, Options, terms),
    Usual = case Kind of terms -> 1024; bytes -> 1 bsl 20 end,
    Number = thalweg_shared:add_channel(self()),
    put(number, Number),
    {ok, #state{kind = Kind, capacity = maps:get(capacity, Options, Usual)}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}} | {stop, normal, term(), #state{}}.
handle_call(number, _From, State) -> {reply, get(number), State};
handle_call(size, _From, #state{size = Size} = State) -> {reply, Size, State};
handle_call({write, _}, _From, #state{is_closed = true} = State) -> {reply, {error, closed}, State};
handle_call({write, Value}, _From, #state{size = Size, capacity = Capacity} = State) ->
    Weight = weight(State, Value),
    case Size + Weight =< Capacity orelse Size =:= 0 of
        true -> {reply, ok, serve(State#state{queue = queue:in(Value, State#state.queue), size = Size + Weight})};
        false -> {reply, busy, State}
    end;
handle_call({read, Timeout}, From, #state{size = 0, readers = Readers} = State) ->
    case State#state.is_closed of
        true -> {stop, normal, {error, closed}, State};
        false ->
            Timer = case Timeout of infinity -> make_ref(); _ -> erlang:start_timer(Timeout, self(), From) end,
            {noreply, State#state{readers = queue:in({From, Timer}, Readers)}}
    end;
handle_call({read, _}, _From, State) ->
    {Value, Left} = take(State),
    {reply, {ok, Value}, Left};
handle_call(close, _From, #state{size = 0, readers = Readers} = State) ->
    _ = [gen_server:reply(From, {error, closed}) || {From, _} <- queue:to_list(Readers)],
    {stop, normal, ok, State};
handle_call(close, _From, State) -> {reply, ok, State#state{is_closed = true}}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({timeout, Timer, From}, #state{readers = Readers} = State) ->
    case queue:member({From, Timer}, Readers) of
        true ->
            gen_server:reply(From, {error, timeout}),
            {noreply, State#state{readers = queue:delete({From, Timer}, Readers)}};
        false -> {noreply, State}
    end;
handle_info({'DOWN', _, process, _, _}, #state{readers = Readers} = State) ->
    _ = [gen_server:reply(From, {error, closed}) || {From, _} <- queue:to_list(Readers)],
    {stop, normal, State};
handle_info(_Message, State) -> {noreply, State}.

%% Whoever has waited longest gets what is there.
-spec serve(#state{}) -> #state{}.
serve(#state{size = Size, readers = Readers} = State) ->
    case Size > 0 andalso queue:out(Readers) of
        {{value, {From, Timer}}, Left} ->
            _ = erlang:cancel_timer(Timer),
            {Value, Next} = take(State),
            gen_server:reply(From, {ok, Value}),
            serve(Next#state{readers = Left});
        _ -> State
    end.

-spec take(#state{}) -> {term(), #state{}}.
take(#state{kind = bytes, queue = Queue} = State) ->
    {iolist_to_binary(queue:to_list(Queue)), State#state{queue = queue:new(), size = 0}};
take(#state{queue = Queue, size = Size} = State) ->
    {{value, Value}, Left} = queue:out(Queue),
    {Value, State#state{queue = Left, size = Size - 1}}.

-spec weight(#state{}, term()) -> pos_integer().
weight(#state{kind = bytes}, Bytes) -> max(1, iolist_size(Bytes));
weight(_State, _Value) -> 1.
