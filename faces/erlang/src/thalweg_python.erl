%% @private Which interpreter runs a pool, and what it is told by its environment.
-module(thalweg_python).

-export([check/1, interpreter/1, environment/1]).

%% @doc Whether there is such an interpreter, and where it is to run: what the operating system would say of that goes nowhere.
-spec check(thalweg_pool:options()) -> ok | {error, term()}.
check(#{directory := Directory} = Options) ->
    case filelib:is_dir(Directory) of
        true -> check(maps:remove(directory, Options));
        false -> {error, {no_such_directory, Directory}}
    end;
check(#{venv := Venv} = Options) ->
    case filelib:is_regular(filename:join(Venv, "bin/python")) of
        true -> check(maps:remove(venv, Options#{python => filename:join(Venv, "bin/python")}));
        false -> {error, {no_such_venv, Venv}}
    end;
check(Options) ->
    case find(Options) of
        false -> {error, {no_such_interpreter, wanted(Options)}};
        _ -> ok
    end.

%% @doc Its path.
-spec interpreter(thalweg_pool:options()) -> file:filename_all().
interpreter(#{venv := Venv}) -> filename:join(Venv, "bin/python");
interpreter(Options) ->
    case find(Options) of
        false -> error({no_such_interpreter, wanted(Options)});
        Path -> Path
    end.

%% @doc Where modules are looked for.
-spec environment(thalweg_pool:options()) -> [{string(), string()}].
environment(#{path := [_ | _] = Path}) ->
    Old = [Value || Value <- [os:getenv("PYTHONPATH", "")], Value =/= ""],
    [{"PYTHONPATH", lists:flatten(lists:join($:, [unicode:characters_to_list(P) || P <- Path] ++ Old))}];
environment(_Options) -> [].

-spec wanted(thalweg_pool:options()) -> file:filename_all().
wanted(Options) -> maps:get(python, Options, os:getenv("THALWEG_PYTHON", "python3")).

-spec find(thalweg_pool:options()) -> file:filename_all() | false.
find(Options) -> os:find_executable(unicode:characters_to_list(wanted(Options))).
