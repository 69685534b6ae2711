%% @private A pool: the supervisor of the places of its workers. They are told apart by their index; `thalweg_directory' says
%% which workers there are. They end at the same time: no caller waits for another worker's end to be told so.
%%
%% The supervisor of all pools never waits for one: a pool is there at once, the process that starts it waits for its workers, and it ends by
%% itself before that supervisor is told so.
-module(thalweg_pool).
-behaviour(supervisor).
-compile({no_auto_import, [size/1]}).

-export([start/2, stop/1, stop_all/0, size/1, start_link/2, init/1]).
-export_type([options/0]).

-type options() :: #{
    %% How many; as many as there are schedulers, but for one.
    size => pos_integer(),
    %% The interpreter, or a virtual environment.
    python => file:filename_all(),
    venv => file:filename_all(),
    %% Where it runs, and what is set there.
    directory => file:filename_all(),
    environment => [{string(), string() | false}],
    %% Folders that modules are looked for in.
    path => [file:filename_all()],
    %% Calls that one worker may have in flight.
    in_flight_max => pos_integer(),
    %% Milliseconds that a worker may take to start.
    start_within => pos_integer(),
    %% Milliseconds that what is in flight in a worker, and its applications, may take to come to their end.
    shut_down_within => non_neg_integer()
}.

%% @doc Starts a pool, and returns when all of its workers are ready, or when it is gone because one of them could not be. That is
%% seen to by another process: the caller may be gone before.
-spec start(atom(), options()) -> {ok, pid()} | {error, term()}.
start(Name, Options) ->
    {Self, Tag} = {self(), make_ref()},
    {_, Monitor} = spawn_monitor(fun() -> Self ! {Tag, begin_whole(Name, Options)} end),
    receive
        {Tag, Outcome} ->
            demonitor(Monitor, [flush]),
            Outcome;
        %% The pool, or the application, was ended meanwhile.
        {'DOWN', Monitor, process, _, Reason} -> {error, Reason}
    end.

-spec begin_whole(atom(), options()) -> {ok, pid()} | {error, term()}.
begin_whole(Name, Options) ->
    %% Temporary: however it ends, what else the application has goes on.
    Child = #{
        id => {pool, Name}, start => {?MODULE, start_link, [Name, Options]}, restart => temporary, type => supervisor, shutdown => infinity
    },
    case supervisor:start_child(thalweg_sup, Child) of
        {ok, Pool} when is_pid(Pool) ->
            case all_ready([Place || {_, Place, _, _} <- supervisor:which_children(Pool), is_pid(Place)]) of
                ok -> {ok, Pool};
                {error, Reason} ->
                    _ = stop(Name),
                    {error, Reason}
            end;
        {error, {already_started, _}} -> {error, {already_started, Name}};
        {error, already_present} -> {error, {already_started, Name}};
        {error, Reason} -> {error, Reason}
    end.

-spec all_ready([pid()]) -> ok | {error, term()}.
all_ready([]) -> ok;
all_ready([Place | Others]) ->
    case thalweg_place:ready(Place) of
        ok -> all_ready(Others);
        {error, Reason} -> {error, Reason}
    end.

%% @doc Ends a pool, and returns when its name may be another's.
-spec stop(atom()) -> ok | {error, not_found}.
stop(Name) ->
    %% First: afterwards the name may be another pool's.
    ok = thalweg_directory:forget(Name),
    case named(Name) of
        none -> {error, not_found};
        Pool ->
            _ = try gen_server:stop(Pool, shutdown, infinity) catch exit:_ -> ok end,
            until_forgotten(Name, Pool)
    end.

%% @doc Ends all pools, at the same time.
-spec stop_all() -> ok.
stop_all() ->
    Stopping = [spawn_monitor(fun() -> stop(Name) end) || {{pool, Name}, _, _, _} <- supervisor:which_children(thalweg_sup)],
    lists:foreach(fun({_, Monitor}) -> receive {'DOWN', Monitor, process, _, _} -> ok end end, Stopping).

-spec until_forgotten(atom(), pid()) -> ok.
until_forgotten(Name, Pool) ->
    case named(Name) of
        Pool -> until_forgotten(Name, Pool);
        _ -> ok
    end.

-spec named(atom()) -> pid() | none.
named(Name) ->
    case lists:keyfind({pool, Name}, 1, supervisor:which_children(thalweg_sup)) of
        {_, Pool, _, _} when is_pid(Pool) -> Pool;
        _ -> none
    end.

-spec start_link(atom(), options()) -> {ok, pid()} | ignore | {error, term()}.
start_link(Name, Options) ->
    case supervisor:start_link(?MODULE, {Name, Options}) of
        {ok, Pool} ->
            _ = [{ok, _} = supervisor:start_child(Pool, [Index]) || Index <- lists:seq(1, size(Options))],
            {ok, Pool};
        Other -> Other
    end.

-spec init({atom(), options()}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init({Name, Options}) ->
    %% One of its name that failed, or is long gone, may have had more places.
    ok = thalweg_directory:forget(Name),
    %% It bounds what it waits for by itself.
    Place = #{id => place, start => {thalweg_place, start_link, [Name, Options]}, shutdown => infinity},
    %% Of the supervisors that there are, the one that ends its children at the same time.
    {ok, {#{strategy => simple_one_for_one, intensity => size(Options), period => 10}, [Place]}}.

%% @doc How many workers it has. Schedulers are as many as processors that this process may use: those of the machine may be more,
%% or unknown.
-spec size(options()) -> pos_integer().
size(Options) -> maps:get(size, Options, max(1, erlang:system_info(schedulers_online) - 1)).
