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
    case filelib:is_regular(in_venv(Venv)) of
        true -> check(maps:remove(venv, Options#{python => in_venv(Venv)}));
        false -> {error, {no_such_venv, Venv}}
    end;
check(Options) ->
    case find(Options) of
        false -> {error, {no_such_interpreter, wanted(Options)}};
        _ -> ok
    end.

%% @doc Its path.
-spec interpreter(thalweg_pool:options()) -> file:filename_all().
interpreter(#{venv := Venv}) -> in_venv(Venv);
interpreter(Options) ->
    case find(Options) of
        false -> error({no_such_interpreter, wanted(Options)});
        Path -> Path
    end.

%% From the root on: a relative one would be looked for in $PATH, and from another directory.
-spec in_venv(file:filename_all()) -> file:filename_all().
in_venv(Venv) -> filename:absname(filename:join(Venv, "bin/python")).

%% @doc What is set for a worker. Modules are looked for in the pool's folders first, then where it says in its environment, or this
%% virtual machine's does.
-spec environment(thalweg_pool:options()) -> [{string(), string() | false}].
environment(#{path := [_ | _] = Path} = Options) ->
    Given = maps:get(environment, Options, []),
    %% Of what is said twice the last counts.
    Before =
        case lists:keyfind("PYTHONPATH", 1, lists:reverse(Given)) of
            {_, false} -> "";
            {_, Value} -> Value;
            false -> os:getenv("PYTHONPATH", "")
        end,
    Old = [Before || Before =/= ""],
    Given ++ [{"PYTHONPATH", lists:flatten(lists:join($:, [unicode:characters_to_list(P) || P <- Path] ++ Old))}];
environment(Options) -> maps:get(environment, Options, []).

-spec wanted(thalweg_pool:options()) -> file:filename_all().
wanted(Options) -> maps:get(python, Options, os:getenv("THALWEG_PYTHON", "python3")).

%% As everywhere, a name with a slash is a path from here, and any other is looked for in $PATH.
-spec find(thalweg_pool:options()) -> file:filename_all() | false.
find(Options) ->
    Wanted = unicode:characters_to_list(wanted(Options)),
    case lists:member($/, Wanted) of
        true -> os:find_executable(filename:absname(Wanted));
        false -> os:find_executable(Wanted)
    end.
