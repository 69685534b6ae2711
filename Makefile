# Two commands: `make serve` needs Rust and a C compiler; `make test` installs what the tests need and runs everything.

# In continuous integration build caches live outside the checkout; they are reused where they exist and
# never required.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/thalweg
ifeq ($(CI),true)
export CARGO_TARGET_DIR ?= $(CACHE)/target
# A fresh checkout has no earlier build that an increment would be of.
export CARGO_INCREMENTAL ?= 0
endif
# The pinned Node.js, when the machine's own is too old (see .ci/tools).
export PATH := $(CACHE)/node/bin:$(PATH)

.PHONY: serve test tools format bench clean

serve:
	cargo run --release --bin thalweg -- serve --data ./data

test: tools
	cargo xtask ci

# What the tests need beyond these, or exactly what is missing.
tools:
	@CACHE="$(CACHE)" .ci/tools

format:
	cargo fmt --all

bench:
	cargo xtask bench streams
	cargo xtask bench log
	cargo xtask bench ipc
	cargo xtask bench rpc
	cargo xtask bench state
	cargo xtask bench loop
	cargo xtask bench erlang

clean:
	cargo clean
	rm -rf conformance/node_modules examples/*/node_modules
