# The front door. `make` lists what there is. Everything is built in build/, with CMake presets of the same names.
#   TORCH=2.11.0          the LibTorch to fetch and build on, 2.11 to 2.15
#   CINCH_TORCH_DIR=DIR   a LibTorch you have, instead
#   PREFIX=/usr/local     where `make install` puts cinch
TORCH ?= 2.11.0
PREFIX ?= /usr/local
CINCH_TORCH_DIR ?=
# A file that includes LibTorch takes up to 2 GB to compile.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/^MemAvailable/ { n = int($$2 / 2000000); print n < 1 ? 1 : n < cores ? n : cores }' /proc/meminfo)
FUZZ_SECONDS ?= 10
SOAK_ROUNDS ?= 20

ifeq ($(CINCH_TORCH_DIR),)
flavour := $(TORCH)
torch_dir := $(CURDIR)/build/torch-$(TORCH)
else
flavour := own
torch_dir := $(abspath $(CINCH_TORCH_DIR))
endif
release := build/release-$(flavour)
fuzz := build/fuzz-$(flavour)
export TORCH CINCH_TORCH_DIR
export CCACHE_SLOPPINESS = pch_defines,time_macros,include_file_mtime,include_file_ctime
export CINCH_FUZZ_SECONDS = $(FUZZ_SECONDS)

setup = @scripts/setup.sh
# configure FOLDER PRESET OPTIONS
configure = @cmake --preset $(2) -B $(1) -DCINCH_TORCH_DIR=$(torch_dir) $(3) --log-level=WARNING >/dev/null
build = cmake --build $(1) -j $(JOBS) --target

help:
	@echo 'make inspect   the cinch program without LibTorch: inspect, replay, diff, record; a few minutes'
	@echo 'make demo      fit a GPT of 10 million parameters into a memory budget and train it on real text'
	@echo 'make test      build everything, run every test'
	@echo 'make build     build everything'
	@echo 'make install   libraries, headers, package and the cinch program into PREFIX=$(PREFIX)'
	@echo 'make bench     speed and memory, measured here'
	@echo 'make fuzz      every file parser under libFuzzer, FUZZ_SECONDS=$(FUZZ_SECONDS) each (clang)'
	@echo 'make soak      the long runs: SOAK_ROUNDS=$(SOAK_ROUNDS) random jobs, predicted against measured'
	@echo 'make format    clang-format over the sources'
	@echo
	@echo 'Variables: TORCH=$(TORCH) (2.11 to 2.15), CINCH_TORCH_DIR=DIR (a LibTorch you have), PREFIX, JOBS=$(JOBS)'

inspect:
	$(setup) no-torch
	$(call configure,build/inspect,release,-DCINCH_TORCH=OFF -DCINCH_TESTS=OFF --no-warn-unused-cli)
	@echo 'building the cinch program without LibTorch in build/inspect'
	@cmake --build build/inspect -j $$(nproc) --target cinch
	@echo 'done: build/inspect/bin/cinch inspect SNAPSHOT'

demo:
	$(setup)
	$(call configure,$(release),release,-DCINCH_TESTS=OFF)
	@echo 'building the cinch program in $(release)'
	@$(call build,$(release)) cinch
	@scripts/demo.sh $(release)/bin/cinch

build:
	$(setup) test
	$(call configure,$(release),release,-DCINCH_TESTS=ON)
	@echo 'building everything in $(release)'
	@$(call build,$(release)) all

test: build
	@scripts/tidy.sh $(release)
	@ctest --test-dir $(release) --output-on-failure

install:
	$(setup)
	$(call configure,$(release),release,-DCINCH_TESTS=OFF)
	@$(call build,$(release)) all
	@cmake --install $(release) --prefix $(abspath $(PREFIX)) >/dev/null
	@echo 'installed cinch in $(PREFIX)'

bench:
	$(setup) test
	$(call configure,$(release),release,-DCINCH_BENCHMARKS=ON)
	@$(call build,$(release)) bench

fuzz:
	$(setup) fuzz
	$(call configure,$(fuzz),fuzz,)
	@$(call build,$(fuzz)) run_fuzzers

soak: build
	@CINCH_SOAK=$(SOAK_ROUNDS) ctest --test-dir $(release) --output-on-failure --no-tests=error -L soak

format:
	$(setup) lint
	@git ls-files -z '*.h' '*.cc' | xargs -0 clang-format -i

.PHONY: help inspect demo build test install bench fuzz soak format
