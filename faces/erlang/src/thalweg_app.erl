%% @private The application: its native half, its supervisor, and the pool that its environment asks for.
-module(thalweg_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

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
            case begin_pool(application:get_env(thalweg, pool, #{})) of
                {ok, _} -> {ok, Supervisor};
                {error, Reason} ->
                    %% It would end with this process, and be in the way of whoever starts the application again before that.
                    true = unlink(Supervisor),
                    ok = gen_server:stop(Supervisor, shutdown, infinity),
                    {error, Reason}
            end;
        {error, Reason} -> {error, Reason}
    end.

-spec begin_pool(none | thalweg_pool:options()) -> {ok, none | pid()} | {error, term()}.
begin_pool(none) -> {ok, none};
begin_pool(Options) -> thalweg:start_pool(default, Options).

%% Its supervisor would end one pool after the other.
-spec prep_stop(term()) -> term().
prep_stop(State) ->
    ok = thalweg_pool:stop_all(),
    State.

-spec stop(term()) -> ok.
stop(_State) -> ok.
