%% @private A pool: the supervisor of the places of its workers. They are told apart by their index; `thalweg_directory' says
%% which workers there are.
-module(thalweg_pool).
-behaviour(supervisor).

-export([start_link/2, init/1]).
-export_type([options/0]).

-type options() :: #{
    %% How many; as many as processors, but for one.
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
    %% Milliseconds that applications in a worker may take to shut down.
    shut_down_within => non_neg_integer()
}.

-spec start_link(atom(), options()) -> {ok, pid()} | {error, term()}.
start_link(Name, Options) -> supervisor:start_link(?MODULE, {Name, Options}).

-spec init({atom(), options()}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init({Name, Options}) ->
    %% One of its name that failed, or is long gone, may have had more places.
    ok = thalweg_directory:forget(Name),
    Size = maps:get(size, Options, max(1, erlang:system_info(logical_processors) - 1)),
    Place = fun(Index) ->
        #{
            id => Index,
            start => {thalweg_place, start_link, [Name, Index, Options]},
            %% It bounds what it waits for by itself.
            shutdown => infinity
        }
    end,
    Flags = #{strategy => one_for_one, intensity => Size, period => 10},
    {ok, {Flags, [Place(Index) || Index <- lists:seq(1, Size)]}}.
