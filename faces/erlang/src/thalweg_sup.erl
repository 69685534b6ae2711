%% @private The directory and the callbacks first, then pools: one supervisor each. What all share is kept as long as this.
-module(thalweg_sup).
-behaviour(supervisor).

-export([start_link/0, init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = thalweg_shared:create(),
    Child = fun(Module) -> #{id => Module, start => {Module, start_link, []}} end,
    Flags = #{strategy => one_for_one, intensity => 10, period => 10},
    {ok, {Flags, [Child(thalweg_directory), Child(thalweg_callbacks)]}}.
