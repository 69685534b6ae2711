%% @private The application: its supervisor, and the pool that its environment asks for.
-module(thalweg_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    case thalweg_sup:start_link() of
        {ok, Supervisor} ->
            case application:get_env(thalweg, pool, #{}) of
                none -> {ok, Supervisor};
                Options ->
                    case thalweg:start_pool(default, Options) of
                        {ok, _} -> {ok, Supervisor};
                        {error, Reason} -> {error, Reason}
                    end
            end;
        {error, Reason} -> {error, Reason}
    end.

-spec stop(term()) -> ok.
stop(_State) -> ok.
