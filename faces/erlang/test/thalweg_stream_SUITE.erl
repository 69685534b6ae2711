%% Generators: to their end, to an error, closed half-way, and left by their readers.
-module(thalweg_stream_SUITE).
-compile([export_all, nowarn_export_all]).

all() ->
    [
        generator, asynchronous, many, batches, not_a_generator, error_midway, error_at_once, no_erlang_value, no_erlang_value_is_heard_of_at_once, values_come_as_they_are_made,
        closed, closed_while_it_runs, interrupted_once, not_interrupted_while_it_is_closed, owner_ends, owner_ends_while_it_runs, owner_is_watched_once, credit_is_kept,
        modules_in_place_of_others, coroutines_beside_credit, messages, pool_ends, ends_that_were_taken, timeouts_that_are_none
    ].

init_per_suite(Config) -> thalweg_test:start(Config, #{size => 1}).
end_per_suite(Config) -> thalweg_test:stop(Config).

end_per_testcase(_Case, _Config) -> thalweg_test:none_left().

generator(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count, [1, 5]),
    {[1, 2, 3, 4, 5], done} = thalweg_test:collect(Stream, []),
    {ok, Named} = thalweg_stream:open(sample, count, [], #{keywords => #{first => 1, last => 2}}),
    {[1, 2], done} = thalweg_test:collect(Named, []).

%% A call finds what a stream finds: the module that is there by its name now, and none where there is none.
modules_in_place_of_others(_Config) ->
    [
        begin
            {ok, none} = thalweg:call(sample, put_in_place, [N]),
            {ok, N} = thalweg:call(anew, value, []),
            {ok, Stream} = thalweg_stream:open(anew, values, []),
            {[N], done} = thalweg_test:collect(Stream, [])
        end
     || N <- [1, 2]
    ],
    {ok, none} = thalweg:exec(<<"import sys; del sys.modules['anew']">>),
    {error, {exception, <<"ModuleNotFoundError">>, _, _}} = thalweg:call(anew, value, []).

asynchronous(_Config) ->
    [
        begin
            {ok, Stream} = thalweg_stream:open(sample, Function, [5]),
            {[0, 1, 2, 3, 4], done} = thalweg_test:collect(Stream, [])
        end
     || Function <- [count_later, 'CountsLater']
    ].

%% Far beyond the credit, beside calls.
many(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count, [1, 20000]),
    {ok, Sum} = thalweg_stream:fold(
        fun(Value, Sum) ->
            case Value rem 5000 of
                0 -> {ok, Value} = thalweg:call(sample, echo, [Value]);
                _ -> ok
            end,
            Sum + Value
        end,
        0,
        Stream
    ),
    Sum = 20000 * 20001 div 2.

%% Several values in one message, whatever is left at the end, and what came before an error.
batches(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count, [1, 10], #{batch => 4}),
    {[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]], done} = thalweg_test:collect(Stream, []),
    {ok, Failing} = thalweg_stream:open(sample, count_and_fail, [3], #{batch => 64}),
    {[[0, 1, 2]], {error, {exception, <<"ValueError">>, _, _}}} = thalweg_test:collect(Failing, []),
    {ok, Later} = thalweg_stream:open(sample, count_later, [2], #{batch => 64}),
    {[[0], [1]], done} = thalweg_test:collect(Later, []),
    {ok, Many} = thalweg_stream:open(sample, count, [1, 100000], #{batch => 64, credit => 4}),
    {ok, 100000} = thalweg_stream:fold(fun(Values, Count) -> Count + length(Values) end, 0, Many),
    {ok, Open} = thalweg_stream:open(sample, count_for_ever, [<<"batches">>], #{batch => 64}),
    {data, [1 | _]} = thalweg_stream:next(Open),
    ok = thalweg_stream:close(Open),
    is_closed(<<"batches">>).

not_a_generator(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, echo, [[1, 2]]),
    {[1, 2], done} = thalweg_test:collect(Stream, []),
    {ok, Wrong} = thalweg_stream:open(sample, echo, [1]),
    {error, {exception, <<"TypeError">>, _, _}} = thalweg_stream:next(Wrong).

error_midway(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count_and_fail, [3]),
    {[0, 1, 2], {error, {exception, <<"ValueError">>, <<"no more">>, _}}} = thalweg_test:collect(Stream, []).

error_at_once(_Config) ->
    {ok, Stream} = thalweg_stream:open(no_such_module, f, []),
    {error, {exception, <<"ModuleNotFoundError">>, _, _}} = thalweg_stream:next(Stream),
    {error, {no_python_value, _}} = thalweg_stream:open(sample, echo, [fun() -> ok end]),
    {error, no_worker} = thalweg_stream:open(sample, count, [1, 2], #{pool => nowhere}).

%% Nothing comes behind an end, however it came, and nobody waits for it; nor does anything to who did not open the stream.
ends_that_were_taken(_Config) ->
    [
        begin
            {ok, Stream} = thalweg_stream:open(sample, Function, [3]),
            {_, _} = thalweg_test:collect(Stream, []),
            nothing_more(Stream)
        end
     || Function <- [count_later, count_and_fail]
    ],
    {ok, Closed} = thalweg_stream:open(sample, count_later, [3]),
    {data, 0} = thalweg_stream:next(Closed),
    ok = thalweg_stream:close(Closed),
    nothing_more(Closed),
    {ok, Late} = thalweg_stream:open(sample, bring_nothing, []),
    {error, timeout} = thalweg_stream:next(Late, 10),
    nothing_more(Late),
    %% What was told before is taken all the same, be the end known or not.
    {ok, Whole} = thalweg_stream:open(sample, count, [1, 50]),
    thalweg_test:until(fun() -> thalweg:load(default) =:= [0] end),
    {Values, done} = thalweg_test:collect(Whole, []),
    50 = length(Values),
    nothing_more(Whole),
    %% Of another process's there is never anything.
    {ok, Ours} = thalweg_stream:open(sample, count_for_ever, [<<"ours">>]),
    {_, Monitor} = spawn_monitor(fun() -> nothing_more(Ours) end),
    receive {'DOWN', Monitor, process, _, Reason} -> normal = Reason end,
    {data, 1} = thalweg_stream:next(Ours),
    ok = thalweg_stream:close(Ours).

nothing_more(Stream) ->
    [{'EXIT', {badarg, _}} = (catch thalweg_stream:next(Stream, Timeout)) || Timeout <- [0, 60000, infinity]],
    {'EXIT', {badarg, _}} = (catch thalweg_stream:fold(fun(_, Sum) -> Sum end, 0, Stream)),
    ok.

%% A value that is no term here is the end, and the generator's too.
no_erlang_value(_Config) ->
    [
        begin
            {ok, Stream} = thalweg_stream:open(sample, count_the_unknown, [Name], Options),
            Reference = thalweg_stream:reference(Stream),
            {Known, {error, {no_erlang_value, _}}} = thalweg_test:collect(Stream, []),
            is_closed(Name),
            [] = waiting(Reference)
        end
     || {Name, Known, Options} <- [{<<"unknown">>, [1], #{}}, {<<"unknown together">>, [], #{batch => 2}}]
    ],
    ok = thalweg_test:none_left().

%% The generator hears of that though nothing else is said to its worker, be the value read apart for its length.
no_erlang_value_is_heard_of_at_once(_Config) ->
    [
        begin
            {ok, Stream} = thalweg_stream:open(sample, bring_the_unknown, [self(), Length], #{credit => 1}),
            {error, {no_erlang_value, _}} = thalweg_stream:next(Stream, infinity),
            receive closed -> ok end
        end
     || Length <- [0, 1 bsl 17]
    ].

%% What is there does not wait for what comes next.
values_come_as_they_are_made(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count_slowly_and_block, [4]),
    [{data, N} = thalweg_stream:next(Stream) || N <- [0, 1, 2, 3]],
    ok = thalweg_stream:close(Stream),
    {ok, 1} = thalweg:call(sample, echo, [1]).

closed(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count_for_ever, [<<"closed">>]),
    {data, 1} = thalweg_stream:next(Stream),
    ok = thalweg_stream:close(Stream),
    is_closed(<<"closed">>),
    ok = thalweg_test:none_left().

%% However busy a generator is, or what is to become one.
closed_while_it_runs(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count_and_spin, [<<"spinning">>]),
    {data, 1} = thalweg_stream:next(Stream),
    ok = thalweg_stream:close(Stream),
    is_closed(<<"spinning">>),
    {ok, Never} = thalweg_stream:open(sample, spin, []),
    {error, timeout} = thalweg_stream:next(Never, 50),
    {ok, 1} = thalweg:call(sample, echo, [1]).

%% However its owner's other calls end meanwhile, each of which interrupts as well.
interrupted_once(_Config) ->
    Self = self(),
    [
        begin
            {Owner, Monitor} = spawn_monitor(fun() ->
                Other = thalweg:spawn_call(sample, sleep, [3600]),
                {ok, Stream} = thalweg_stream:open(sample, count_and_spin_and_clean, [Self]),
                {data, 1} = thalweg_stream:next(Stream),
                receive
                    close ->
                        ok = thalweg_stream:close(Stream),
                        receive cleaning -> thalweg:cancel(Other) end
                end
            end),
            receive begun -> ok end,
            _ = case End of close -> Owner ! close; kill -> exit(Owner, kill) end,
            receive cleaning -> Owner ! cleaning end,
            receive
                cleaned -> ok
            after 60000 -> ct:fail({interrupted_again, End})
            end,
            receive
                {'DOWN', Monitor, process, Owner, _} -> ok
            end
        end
     || End <- [close, kill]
    ],
    ok = thalweg_test:none_left().

%% An interrupt that comes late, to a generator that is being closed already, comes to nothing.
not_interrupted_while_it_is_closed(_Config) ->
    Self = self(),
    [
        begin
            {_, Monitor} = spawn_monitor(fun() ->
                {ok, Stream} = thalweg_stream:open(sample, Function, [Self], Options),
                {data, _} = thalweg_stream:next(Stream),
                _ = [ok = thalweg_stream:close(Stream) || End =:= close]
            end),
            receive
                {'DOWN', Monitor, process, _, normal} -> ok
            end,
            receive
                closed -> ok
            after 60000 -> ct:fail({interrupted, Function, Options, End})
            end
        end
     || {Function, Options} <- [
            {count_unheard, #{credit => 4}},
            {count_unheard, #{credit => 4, batch => 2}},
            {count_until_unwanted, #{credit => 1 bsl 16}}
        ],
        End <- [close, ends]
    ],
    {ok, 1} = thalweg:call(sample, echo, [1]).

owner_ends_while_it_runs(_Config) ->
    {_, Monitor} = spawn_monitor(fun() ->
        {ok, Stream} = thalweg_stream:open(sample, count_and_spin, [<<"left">>]),
        {data, 1} = thalweg_stream:next(Stream)
    end),
    receive
        {'DOWN', Monitor, _, _, normal} -> is_closed(<<"left">>)
    end.

owner_ends(_Config) ->
    {_, Monitor} = spawn_monitor(fun() ->
        {ok, Stream} = thalweg_stream:open(sample, count_for_ever, [<<"owner">>]),
        {data, 1} = thalweg_stream:next(Stream)
    end),
    receive
        {'DOWN', Monitor, _, _, normal} -> is_closed(<<"owner">>)
    end.

%% However many streams it opens; and its end is heard of whichever it leaves.
owner_is_watched_once(_Config) ->
    Ended = fun() ->
        {ok, Stream} = thalweg_stream:open(sample, count, [1, 2]),
        {[1, 2], done} = thalweg_test:collect(Stream, [])
    end,
    {_, Monitor} = spawn_monitor(fun() ->
        [Ended() || _ <- lists:seq(1, 50)],
        {monitored_by, Watching} = process_info(self(), monitored_by),
        [_] = [Connection || Connection <- Watching, is_reference(Connection)],
        {ok, Left} = thalweg_stream:open(sample, count_for_ever, [<<"watched">>]),
        {data, 1} = thalweg_stream:next(Left)
    end),
    receive
        {'DOWN', Monitor, _, _, Reason} -> normal = Reason
    end,
    is_closed(<<"watched">>).

is_closed(Name) ->
    thalweg_test:until(fun() -> thalweg:call(sample, what_was_closed, []) =:= {ok, Name} end).

%% A generator goes no further than it has credit for, and somewhat: what is made ahead is bounded.
credit_is_kept(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count_for_ever, [<<"credit">>], #{credit => 4}),
    Reference = thalweg_stream:reference(Stream),
    thalweg_test:until(fun() -> length(waiting(Reference)) =:= 4 end),
    {ok, 1} = thalweg:call(sample, echo, [1]),
    4 = length(waiting(Reference)),
    ok = thalweg_stream:grant(Stream, 2),
    thalweg_test:until(fun() -> length(waiting(Reference)) =:= 6 end),
    ok = thalweg_stream:close(Stream),
    [] = waiting(Reference).

%% A generator that waits for credit is in nobody's way.
coroutines_beside_credit(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count, [1, 1000], #{credit => 2}),
    Callers = [
        spawn_monitor(fun() -> [{ok, 1} = thalweg:call(sample, one, []) || _ <- lists:seq(1, 500)] end)
     || _ <- lists:seq(1, 8)
    ],
    {ok, 1000} = thalweg_stream:fold(fun(_, Count) -> Count + 1 end, 0, Stream),
    [receive {'DOWN', Monitor, _, _, Reason} -> normal = Reason end || {_, Monitor} <- Callers].

waiting(Reference) ->
    {messages, Messages} = process_info(self(), messages),
    [Value || {thalweg, Of, {data, Value}} <- Messages, Of =:= Reference].

messages(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count, [1, 2]),
    Reference = thalweg_stream:reference(Stream),
    [receive {thalweg, Reference, Message} -> Message = Expected end || Expected <- [{data, 1}, {data, 2}, done]].

pool_ends(_Config) ->
    {ok, _} = thalweg:start_pool(brief, thalweg_test:pool(#{size => 1})),
    {ok, Stream} = thalweg_stream:open(sample, count_for_ever, [<<"pool">>], #{pool => brief}),
    {data, 1} = thalweg_stream:next(Stream),
    ok = thalweg:stop_pool(brief),
    {_, {error, {fault, _, _}}} = thalweg_test:collect(Stream, []).

%% They are refused before anything is waited for, and the stream goes on.
timeouts_that_are_none(_Config) ->
    {ok, Stream} = thalweg_stream:open(sample, count, [1, 2]),
    [
        {Timeout, {'EXIT', {badarg, _}}} = {Timeout, catch thalweg_stream:next(Stream, Timeout)}
     || Timeout <- [-1, 1.5, soon, 1 bsl 32]
    ],
    {[1, 2], done} = thalweg_test:collect(Stream, []).
