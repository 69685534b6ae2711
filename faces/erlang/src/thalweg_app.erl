%% @private The application: its native half, its supervisor, and the pool that its environment asks for.
-module(thalweg_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    %% What is wrong with it the virtual machine has said by then.
    case code:ensure_loaded(thalweg_nif) of
        {module, _} -> begin_all();
        {error, _} -> {error, {no_native_half, native_half()}}
    end.

-spec native_half() -> file:filename().
native_half() -> filename:join([filename:dirname(filename:dirname(code:which(?MODULE))), "priv", "thalweg_nif.so"]).

-spec begin_all() -> {ok, pid()} | {error, term()}.
begin_all() ->
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
