# The front door.  Meson does the work; the scripts in tools/ hold the logic.
.POSIX:
.PHONY: all build demo test bench format clean help

BUILD = build
ONLY =
FUZZ_SECONDS =
export HAWSER_BUILD = $(BUILD)

all: build

help:
	@echo 'make demo     build, start a server on the software GPU, measure it, stop it'
	@echo 'make test     every check: release, sanitizers, fuzzers, lint; the last line sums up'
	@echo '              ONLY=lint|release|asan|tsan|fuzz runs one stage; FUZZ_SECONDS=N a target;'
	@echo '              LEAKS=1 looks for leaks on arm64 too, which takes minutes'
	@echo 'make bench    measure the RPC, JSON in $(BUILD)/bench/'
	@echo 'make build    the release build, $(BUILD)/release'
	@echo 'make format   lay out the C files'
	@echo 'make clean    remove $(BUILD)/'
	@echo 'Missing packages are installed first; HAWSER_NO_INSTALL=1 skips that.'

build:
	@tools/install-deps
	@tools/build

demo: build
	@tools/demo

test:
	@tools/install-deps
	@FUZZ_SECONDS='$(FUZZ_SECONDS)' python3 -B tools/run-tests $(ONLY)

bench: build
	@tools/bench

format:
	@tools/format

clean:
	rm -rf '$(BUILD)'
