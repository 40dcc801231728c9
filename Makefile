# The front door.  Meson does the work; the scripts in tools/ hold the logic.
.POSIX:
.PHONY: all build install deb demo test bench format clean help

BUILD = build
PREFIX = /usr/local
DESTDIR =
ONLY =
QUICK =
FUZZ_SECONDS =
export HAWSER_BUILD = $(BUILD)

all: build

help:
	@echo 'make demo     build, run a program on a remote (software) GPU, and a model behind HTTP'
	@echo 'make test     every check: release, sanitizers, fuzzers, lint; the last line sums up'
	@echo '              ONLY=lint|release|asan|tsan|fuzz runs one stage; FUZZ_SECONDS=N a target;'
	@echo '              LEAKS=1 looks for leaks on arm64 too, which takes minutes'
	@echo 'make bench    run every benchmark: JSON and a page in $(BUILD)/bench/;'
	@echo '              QUICK=1 takes less than ten minutes'
	@echo 'make build    the release build; the program is $(BUILD)/hawser'
	@echo 'make install  install that build under PREFIX=$(PREFIX); DESTDIR=DIR stages it in DIR'
	@echo 'make deb      Debian packages in $(BUILD)/debian, built and tried in a Debian of their own; needs root'
	@echo 'make format   lay out the C files'
	@echo 'make clean    remove $(BUILD)/'
	@echo 'Missing packages are installed first; HAWSER_NO_INSTALL=1 skips that.'

build:
	@tools/install-deps
	@tools/build

# The log may be root's, of an earlier installation.
install: build
	@tools/build --prefix '$(PREFIX)'
	@rm -f '$(BUILD)/release/meson-logs/install-log.txt'
	@DESTDIR='$(DESTDIR)' meson install --no-rebuild -C '$(BUILD)/release'

deb:
	@tools/deb

demo: build
	@tools/build demo-program
	@tools/demo

test:
	@tools/install-deps --tests
	@FUZZ_SECONDS='$(FUZZ_SECONDS)' python3 -B tools/run-tests $(ONLY)

bench: build
	@QUICK='$(QUICK)' tools/bench

format:
	@tools/format

clean:
	rm -rf '$(BUILD)'
