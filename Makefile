# make prints this list; each target is one line to read.

GO      ?= go
BENCH   ?= .
COUNT   ?= 6
FUZZ    ?= 10s
TIMEOUT ?= 8m
SOAK    ?= 100
UPLOADS ?= 200
SEED    ?= 1
SEEDS   ?= $(if $(filter command line environment,$(origin SEED)),1,1000)
TIMES   ?= 1

# RACE=-race tests with the race detector, as make ci does. That takes twice as long, and needs
# a C compiler.
RACE ?=

# Every module of the repository: the root first.
MODULES := . $(patsubst %/go.mod,%,$(wildcard */go.mod))

# The modules that get a tag. tools/release/README.md says why the others do not.
RELEASED := . otel fleet cmd

# The directories that make test tests, and those that make test-rest tests. make clients and
# make e2e test the others.
TESTED := $(RELEASED) lab/simulate lab/page
REST   := $(filter-out clients e2e lab $(RELEASED),$(MODULES)) e2e/http3 e2e/recipes $(filter-out lab/simulate lab/page,$(patsubst %/,%,$(wildcard lab/*/)))

# TIDY runs go mod tidy in all MODULES, with the flags $(1). It does not read cmd/go.work, so
# for cmd it gets copies of go.mod and go.sum in which the root is replaced.
TIDY = mkdir -p bin && for m in $(filter-out cmd,$(MODULES)); do $(GO) -C $$m mod tidy $(1) || exit 1; done; \
	cp cmd/go.mod bin/cmd.mod && cp cmd/go.sum bin/cmd.sum && $(GO) mod edit -replace $$($(GO) list -m)=.. bin/cmd.mod && \
	GOWORK=off $(GO) -C cmd mod tidy $(1) -modfile ../bin/cmd.mod

# TEST tests two directories at a time. At its exit a test waits for reports of the race
# detector, a second if it is not told otherwise. make lint runs go vet.
TEST = printf '%s\n' $(1) | GORACE=atexit_sleep_ms=100 CGO_ENABLED=$(if $(RACE),1,0) xargs -P 2 -I '{}' \
	env GO='$(GO)' tools/gotest '{}' $(RACE) -vet=off -shuffle=on -timeout $(TIMEOUT) ./...

# The packages that users import. API has those of the other released modules, too, and
# docs/api lists their exported names.
PUBLIC := classify debug failover faults policy policy/backoff policy/profile policy/rulefile retry transport
API    := $(PUBLIC) $(filter-out . cmd,$(RELEASED))

# The systems that everything is checked for, and those that the packages are built for.
# The tests run on Linux.
SYSTEMS := windows/amd64 darwin/arm64 js/wasm
BUILDS  := freebsd/amd64 openbsd/amd64 netbsd/amd64

.PHONY: help demo fleet test test-rest lint tidy words api cross bench compare fuzz simulate never-worse soak uploads clients e2e examples browser redis outages storm storm-fleet storm-literature version release-check ci

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

demo: ## seven faults, with a plain client and with aplomb
	@$(GO) -C cmd run ./aplomb demo

fleet: ## three worker processes share a quota, alone and as a fleet over Redis
	@$(GO) -C lab run ./fleet

test: ## the tests of the released modules, of the debug page, and 50 random stories, in random order (RACE)
	@command -v "$${APLOMB_REDIS_SERVER:-redis-server}" >/dev/null || echo "no redis-server found: testing fleets over memory only"
	@$(call TEST,$(TESTED))

test-rest: ## the tests of the experiments, the comparisons, the larger examples and the tools
	@$(call TEST,$(REST))

# The linters read the source of each dependency. For e2e these are the SDKs, so it gets
# go vet alone.
lint: bin/staticcheck bin/errcheck ## gofmt, go vet, staticcheck, errcheck, go mod tidy, the exported API and its documentation
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:" $$out; exit 1; }
	@! $(GO) list -deps $(addprefix ./,$(PUBLIC)) | grep '^golang.org/x/net\|testify' || { echo "users would compile these packages, which are only for tests"; exit 1; }
	@$(GO) -C tools run ./api -check -dir .. -out ../docs/api $(API)
	@$(GO) -C tools run ./pkgdoc $(addprefix ../,$(API) cmd/aplomb)
	@$(call TIDY,-diff)
	@for m in $(MODULES); do $(GO) -C $$m vet ./... || exit 1; done
	@for m in $(filter-out e2e,$(MODULES)); do (cd $$m && $(CURDIR)/bin/staticcheck ./... && $(CURDIR)/bin/errcheck -exclude $(CURDIR)/tools/errcheck.txt ./...) || exit 1; done

tidy: ## go mod tidy in every module
	@$(call TIDY) && cp bin/cmd.sum cmd/go.sum && $(GO) mod edit -dropreplace $$($(GO) list -m) bin/cmd.mod && cp bin/cmd.mod cmd/go.mod

words: ## how many words the README and the pages of docs have, and those on the way to a recipe
	@$(GO) test -run '^TestWords$$' -v -count 1 ./internal/snippets | grep -o '  *[0-9][0-9]* .*[a-z].*'

api: ## write the exported API to docs/api
	@$(GO) -C tools run ./api -dir .. -out ../docs/api $(API)

cross: ## go vet for other systems, tests included, but no cmd for js; the packages alone for the BSDs
	@for s in $(SYSTEMS); do echo "$$s"; GOOS=$${s%/*} GOARCH=$${s#*/} $(GO) vet ./... || exit 1; done
	@for s in $(filter-out js/%,$(SYSTEMS)); do echo "$$s: cmd"; GOOS=$${s%/*} GOARCH=$${s#*/} $(GO) -C cmd vet ./... || exit 1; done
	@for s in $(BUILDS); do echo "$$s"; GOOS=$${s%/*} GOARCH=$${s#*/} $(GO) build $(addprefix ./,$(PUBLIC)) || exit 1; done

bench: bin/benchstat ## benchmarks, summed up by benchstat (BENCH, COUNT)
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... | tee bin/bench.txt | grep -v '^ok\|no test files' && bin/benchstat bin/bench.txt

compare: ## aplomb beside other clients that retry, 75 s, as Markdown (ONLY: a regular expression of questions, such as outages)
	@$(GO) -C lab run ./bench -only '$(ONLY)'
	@if echo outages | grep -Eq -e '$(ONLY)'; then printf '\n## Outages\n\n'; $(GO) -C lab test -count 1 -run '^TestOutages$$' -v ./bench | grep '^|'; fi

fuzz: ## every fuzz target for a short time (FUZZ)
	@for m in $(RELEASED); do for p in $$($(GO) -C $$m list ./...); do for f in $$($(GO) -C $$m test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "$$p $$f"; $(GO) -C $$m test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ) -fuzzminimizetime 10x $$p || exit 1; done; done; done

simulate: ## random rules, callers, servers and fleets in virtual time (SEEDS, SEED, TIMES, ONLY=fleets)
	@APLOMB_ONLY=$(ONLY) APLOMB_SEED=$(SEED) APLOMB_SEEDS=$(SEEDS) APLOMB_TIMES=$(TIMES) $(GO) -C lab test -count 1 -run '^TestSeeds$$' -v -timeout 3h ./simulate

never-worse: ## the same random story over net/http alone and over aplomb, compared in virtual time (SEEDS, SEED, ONLY=theme)
	@APLOMB_ONLY=$(ONLY) APLOMB_SEED=$(SEED) APLOMB_SEEDS=$(SEEDS) $(GO) -C lab test -count 1 -run '^TestNeverWorse$$' -v -timeout 3h ./paired

soak: TIMEOUT = 3h
soak uploads: RACE = -race
soak: export APLOMB_SOAK = $(SOAK)
soak: ## all tests in full length, an hour: more seeds, rounds and bytes; SOAK downloads of 256 MiB per protocol
	@$(call TEST,$(TESTED) $(REST))
	@APLOMB_SOAK_TIME=60s $(GO) -C e2e test -run '^TestSoak$$' -v -count 1 .

uploads: ## 8 MiB from bodies that share one reader, UPLOADS times per shape and protocol
	@CGO_ENABLED=$(if $(RACE),1,0) APLOMB_UPLOADS=$(UPLOADS) $(GO) test $(RACE) -run '^TestUploadsOfOneReader$$' -v -timeout 3h ./transport

# The race detector would compile the SDKs a second time, so it is left to GOFLAGS=-race.
clients: ## the clients of providers, mostly in virtual time, 90 s with an empty build cache (UPDATE=1: write docs/clients.md)
	@GO='$(GO)' tools/gotest clients -shuffle=on -timeout $(TIMEOUT) $(if $(UPDATE),. -update,.)

e2e: ## well-known clients over a bad network, and the dashboard with its alerts, 4 min with an empty build cache (UPDATE=1: write docs/clients.md)
	@GO='$(GO)' tools/gotest e2e -shuffle=on -parallel 16 -timeout $(TIMEOUT) $(if $(UPDATE),. -update,.)
	@GO='$(GO)' tools/gotest e2e -shuffle=on -timeout $(TIMEOUT) ./dashboard

# FITS runs a program, and checks that its output fits a terminal of 80 columns.
FITS = sh -c 'mkdir -p bin; timeout 120 "$$@" >bin/example.txt; code=$$?; cat bin/example.txt; \
	test $$code = 0 && test $$(LC_ALL=C.UTF-8 wc -L <bin/example.txt) -le 80' fits

examples: ## run every example program; the output of the short ones fits 80 columns
	@for d in $$($(GO) list -f '{{if eq .Name "main"}}{{.Dir}}{{end}}' ./examples/...); do echo "== examples/$${d##*/}"; $(FITS) $(GO) run $$d || exit 1; done
	@for d in metrics fleet; do echo "== lab/$$d"; $(FITS) $(GO) -C lab run ./$$d || exit 1; done
	@$(GO) -C cmd build -o ../bin/aplomb ./aplomb
	@for c in waits demo; do echo "== aplomb $$c"; $(FITS) bin/aplomb $$c || exit 1; done

browser: ## install headless Chromium with apt-get, for the test of the debug page
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || { apt-get -q update && apt-get -qy install --no-install-recommends chromium-headless-shell fonts-dejavu-core; } || echo "no headless Chromium: the test of the page will be skipped"

redis: ## install redis-server with apt-get, for the tests of fleet and for make fleet
	@command -v redis-server >/dev/null || { apt-get -q update && apt-get -qy install --no-install-recommends redis-server; }

outages: ## outages in virtual time, over aplomb and over others, 60 s, as Markdown (ONLY, CLIENTS: regular expressions of stories and clients)
	@$(GO) -C lab test -count 1 -run '^TestTable$$' -v ./outages -only '$(ONLY)' $(if $(CLIENTS),-clients '$(CLIENTS)') | grep -v '^ *\(===\|---\|ok\|PASS\)'

storm: ## the experiment about retry storms, 110 s, with a picture
	@$(GO) -C lab run ./storm

storm-fleet: ## the same with 50 processes, alone and in a fleet over Redis, 5 times in 6 min
	@$(GO) -C lab run ./storm -processes 50 -watched 40s -runs 5 -details

storm-literature: ## published experiments about retries, in virtual time; writes their tables into lab/storm/README.md
	@$(GO) -C lab test ./storm/literature -count 1 -run '^TestTables$$' -update

version: ## VERSION=v0.2.0: the released modules require this version of the root
	@for m in $(filter-out .,$(RELEASED)); do $(GO) -C $$m mod edit -require "$$($(GO) list -m)@$(VERSION)" || exit 1; done
	@$(MAKE) --no-print-directory tidy

release-check: ## users outside the repository can require the tagged modules of the newest commit (PROXY: the published ones)
	@PROXY=$(PROXY) tools/release/check $(RELEASED)

# CI has the steps of a change, in order. make browser and make redis install what is
# missing, make test has 50 stories of make simulate, and make e2e installs nginx.
CI := browser redis lint cross test test-rest clients e2e simulate examples release-check

ci: ## what a change must pass, with the race detector
	@for t in $(CI); do printf '\n== make %s\n' $$t; $(MAKE) --no-print-directory RACE=-race $$t || exit 1; done
	@printf '\n== make never-worse\n'; $(MAKE) --no-print-directory never-worse SEEDS=500

bin/staticcheck: tools/go.mod
	@$(GO) -C tools build -o ../$@ honnef.co/go/tools/cmd/staticcheck

bin/errcheck: tools/go.mod
	@$(GO) -C tools build -o ../$@ github.com/kisielk/errcheck

bin/benchstat: tools/go.mod
	@$(GO) -C tools build -o ../$@ golang.org/x/perf/cmd/benchstat
