%% @private The directory first, then pools: one supervisor each. What all share, and the callbacks, are kept as long as this.
-module(thalweg_sup).
-behaviour(supervisor).

-export([start_link/0, init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = thalweg_shared:create(),
    ok = thalweg_callbacks:create(),
    Flags = #{strategy => one_for_one, intensity => 10, period => 10},
    {ok, {Flags, [#{id => thalweg_directory, start => {thalweg_directory, start_link, []}}]}}.
