%% @doc What Erlang and every worker share: values by name, counters that are added to in one step, and channels by number.
-module(thalweg_shared).

-export([get/1, get/2, put/2, delete/1, add/2, names/0]).
-export([create/0, from_python/1, add_channel/1, remove_channel/2, channel/1]).

-compile({no_auto_import, [get/1, put/2]}).

-define(TABLE, ?MODULE).

-spec get(term()) -> term().
get(Name) -> get(Name, none).

%% @doc A value, or what else to say.
-spec get(term(), term()) -> term().
get(Name, Otherwise) ->
    case ets:lookup(?TABLE, {value, Name}) of
        [{_, Value}] -> Value;
        [] -> Otherwise
    end.

-spec put(term(), term()) -> ok.
put(Name, Value) ->
    true = ets:insert(?TABLE, {{value, Name}, Value}),
    ok.

-spec delete(term()) -> ok.
delete(Name) ->
    true = ets:delete(?TABLE, {value, Name}),
    ok.

%% @doc Adds to a number, which is 0 to begin with, and returns what it is now: one atomic step.
-spec add(term(), integer()) -> integer().
add(Name, Amount) -> ets:update_counter(?TABLE, {value, Name}, Amount, {{value, Name}, 0}).

-spec names() -> [term()].
names() -> [Name || [Name] <- ets:match(?TABLE, {{value, '$1'}, '_'})].

%% @private The table belongs to the caller.
-spec create() -> ok.
create() ->
    _ = ets:new(?TABLE, [named_table, public, {read_concurrency, true}, {write_concurrency, true}]),
    ok.

%% @private What Python asks.
-spec from_python(list()) -> term().
from_python([<<"get">>, Name, Otherwise]) -> get(Name, Otherwise);
from_python([<<"put">>, Name, Value]) -> put(Name, Value);
from_python([<<"delete">>, Name]) -> delete(Name);
from_python([<<"add">>, Name, Amount]) -> add(Name, Amount);
from_python([<<"names">>]) -> names().

%% @private A channel's number. It is never used twice.
-spec add_channel(pid()) -> pos_integer().
add_channel(Channel) ->
    Number = ets:update_counter(?TABLE, channels, 1, {channels, 0}),
    true = ets:insert(?TABLE, {{channel, Number}, Channel}),
    Number.

%% @private Forgets a channel's number. Where the application ended first the table went with it, and the number may be
%% another channel's by now.
-spec remove_channel(pos_integer(), pid()) -> ok.
remove_channel(Number, Channel) ->
    try ets:delete_object(?TABLE, {{channel, Number}, Channel}) of
        true -> ok
    catch
        error:badarg -> ok
    end.

%% @private
-spec channel(pos_integer()) -> pid() | none.
channel(Number) ->
    case ets:lookup(?TABLE, {channel, Number}) of
        [{_, Channel}] ->
            case is_process_alive(Channel) of
                true -> Channel;
                false ->
                    true = ets:delete(?TABLE, {channel, Number}),
                    none
            end;
        [] -> none
    end.
