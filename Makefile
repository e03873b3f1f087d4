# The commands for users and developers. Meson does the building; CONTRIBUTING.md has more.
#
#:   make            builds into build/; says which packages are missing, and installs none
#:   make pgo        builds into build-pgo/, optimised by a profile of the benchmarks; takes three times as long
#:   make setup      installs the Debian packages that building and testing need
#:   make demo       builds, then shows three acts on one panel: processors, waiting, kills (DEMO_SECONDS=60)
#:   make cluster    builds, then runs three nodes on PostgreSQL with a standby, to play with; CLUSTER_SECONDS ends it
#:   make run        builds, then runs the server on ./data
#:   make test       every test; T=name runs those whose name contains it
#:   make bench      side by side with the peers; writes bench/results/
#:   make lint       format, rules of the sources and clang-tidy; changes nothing
#:   make check      lint, both compilers, faults of clusters, packages, sanitizers, coverage, the model, fuzzers; MILLRACE_SECONDS=30 bounds each, FUZZ_SECONDS=60 a fuzzer
#:   make fuzz       every fuzzer, FUZZ_SECONDS=600 each
#:   make soak       a server under full load and faults for SOAK_SECONDS=3600, or SOAK_NODES=3 nodes; report and plots in bench/results/
#:   make mutants    tries every bug planted in the sources, or M=name, until a test finds it; writes the table in docs/testing.md
#:   make install    into PREFIX (/usr/local), below DESTDIR
#:   make deb        Debian packages in dist/: millrace, libmillrace0, libmillrace-dev
#:   make npm        packages for npm in dist/: the client, and the command for Linux; publishes nothing
#:   make dist       in dist/: the source package, and the command for any Linux as a tarball
#:   make format     clang-format, in place
#:   make acceptance writes docs/acceptance.md anew
#:   make docs       the documentation as a site of static HTML, in dist/docs/
#:   make protocol   writes docs/protocol.md anew
#:   make records    writes the tables of docs/format.md anew
#:   make clean      removes what was built
PREFIX ?= /usr/local
DESTDIR ?=
DEMO_SECONDS ?= 60
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 3600
BUILD := build

.NOTPARALLEL: # ninja builds with all cores; the steps here have an order
.PHONY: all pgo fuzz mutants soak configured setup setup-build demo cluster run test bench lint check install deb npm dist docs format acceptance protocol records clean help

# A build takes minutes: on a terminal ninja shows how far it is. Only `make` itself says what came of it.
all: configured
	@before=$$(stat -c %y $(BUILD)/millrace 2>/dev/null); \
	if [ -t 1 ]; then ninja -C $(BUILD); else ninja -C $(BUILD) --quiet; fi || exit; \
	[ -n "$(filter-out all,$(MAKECMDGOALS))" ] || [ "$$before" = "$$(stat -c %y $(BUILD)/millrace)" ] || \
	echo "built $(BUILD)/millrace; try $(BUILD)/millrace dev, or make install"

pgo: configured
	@tools/pgo $(BUILD)-pgo

configured:
	@tools/setup --check build
	@[ -f $(BUILD)/build.ninja ] || tools/setup --check page || echo "Without them the page is left out." >&2
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD) >/dev/null || meson setup $(BUILD)

# Before the build, so that the page is part of it.
setup-build:
	@tools/setup build
	@tools/setup page || echo "Without them the page is left out." >&2

setup: setup-build
	@tools/setup test
	@tools/setup browser || echo "Without it the page is not tested." >&2

demo: setup-build all
	@DEMO_SECONDS=$(DEMO_SECONDS) tools/demo $(BUILD)

cluster: setup-build all
	@tools/setup cluster
	@tools/cluster $(BUILD)

run: all
	@$(BUILD)/millrace serve

test: setup all
	@tools/run-tests $(BUILD) $(T)

# bench/run builds the peers in C and C++ whose packages are installed.
bench: configured
	@tools/setup bench || echo "What is missing is skipped." >&2
	@ninja -C $(BUILD) --quiet
	@bench/all

lint: all
	@tools/setup test check
	@tools/check lint

check: all
	@tools/setup test bench package check
	@tools/check

fuzz: all
	@tools/setup check
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/check fuzzers

soak: all
	@SOAK_SECONDS=$(SOAK_SECONDS) tools/soak $(BUILD)

mutants: configured
	@tools/setup test
	@[ -f $(BUILD)-mutants/build.ninja ] || meson setup $(BUILD)-mutants -Dmutants=true -Doptimization=g -Dhttp=disabled >/dev/null
	@tools/mutants $(BUILD)-mutants $(M)

install: all
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --quiet >$(BUILD)/install.log || { cat $(BUILD)/install.log; exit 1; }
	@echo "installed into $(DESTDIR)$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true
	@[ -n "$(DESTDIR)" ] || tools/installed "$(PREFIX)"

deb: all
	@tools/setup package
	@tools/pack deb

npm: all
	@tools/setup page
	@tools/pack npm

dist: all
	@tools/pack source binary

format:
	@find include src test examples bench tools -name '*.[ch]' | xargs clang-format -i

acceptance:
	@tools/acceptance > docs/acceptance.md

docs: all
	@tools/setup docs
	@tools/docs $(BUILD) dist/docs
	@echo "the first page is dist/docs/index.html"

protocol: all
	@$(BUILD)/millrace help --protocol > docs/protocol.md

records:
	@tools/record-tables docs/format.md

clean:
	rm -rf $(BUILD) $(BUILD)-* dist

help:
	@sed -n 's/^#: //p' Makefile
