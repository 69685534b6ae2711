%% What the virtual machine's interface for machine code does by itself: `floors.rs' has the other half.
-module(floors).
-export([load/1, nothing/0, nothing_dirty/0, send/3, watched/0, ring/1, hush/1]).
-nifs([nothing/0, nothing_dirty/0, send/3, watched/0, ring/1, hush/1]).

load(Library) -> erlang:load_nif(Library, 0).

nothing() -> erlang:nif_error(not_loaded).
nothing_dirty() -> erlang:nif_error(not_loaded).
send(_Pid, _Messages, _Items) -> erlang:nif_error(not_loaded).
watched() -> erlang:nif_error(not_loaded).
ring(_Watched) -> erlang:nif_error(not_loaded).
hush(_Watched) -> erlang:nif_error(not_loaded).
