# Modules are those of go.work, so a new one needs no line here.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Debian keeps nutcracker where only root looks.
export PATH := $(PATH):/usr/sbin

MODULES = $(shell go list -m -f '{{.Dir}}')
LINTER = GOWORK=off go tool -modfile=$(CURDIR)/lab/tools/go.mod golangci-lint

.PHONY: help run demo test test-all pictures soak bench bench-faults lint redis-server

help: ## print this
	@sed -nE 's/^([a-z-]+):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: ## serve on 127.0.0.1:8080, in memory
	go run ./service/cmd/weir serve --http 127.0.0.1:8080

demo: ## serve made-up traffic, to look at on http://127.0.0.1:6070
	go run ./service/cmd/weir serve --demo --http 127.0.0.1:8080

test: redis-server ## every module, by itself, with -race; a fifth of the random histories
	for dir in $(MODULES); do (cd $$dir && go vet ./...); done
	for dir in $(MODULES); do (cd $$dir && export GOWORK=off && go build -o /dev/null ./... && go vet ./... && go test -short -race -count=1 ./...); done

pictures: ## draws docs/pictures and the table beside them, from the simulator, and takes that of the dashboard (needs chromium)
	go run ./lab/pictures docs/pictures
	go test ./lab/pictures -update
	cd lab && go test -count=1 -tags long -run TestLongPictures/light ./dashboard -screenshots $(CURDIR)/docs/pictures
	mv docs/pictures/light.png docs/pictures/dashboard.png && rm docs/pictures/light-key.png

test-all: redis-server ## all of them, through go.work, what takes long (build tag long; needs nutcracker and chromium, fetches nginx, Caddy, HAProxy and Prometheus), 20,000 runs of each fuzz target
	grep -rHoE --include='*_test.go' '^func Fuzz\w+' . | sed 's/func //' | while IFS=: read -r file target; do \
		(cd $$(dirname $$file) && go test -run '^$$' -fuzz "^$$target$$" -fuzztime 20000x .); \
	done
	cd lab && go test -count=1 ./properties -rapid.checks=20000
	go test -count=1 . ./storetest
	for dir in $(MODULES); do (cd $$dir && go test -short -count=1 -tags long -timeout 20m ./...); done

soak: redis-server ## a mixed load on the service while Redis fails again and again; DURATION=30m takes longer than 5 minutes
	cd lab && go test -count=1 -timeout 0 -v -run TestSoak ./soak -duration $(or $(DURATION),5m)

bench: redis-server ## the benchmarks, as ratios to the floor of the same run; writes the tables of docs/redis.md
	go test -run '^$$' -bench . -cpu 1,2 -count 5 . ./policy | tee /dev/stderr | go run ./lab/ratios
	cd service && go test -run '^$$' -bench . -count 5 ./decide | tee /dev/stderr | (cd ../lab && go run ./ratios)
	go run ./service/cmd/weir bench
	cd lab && go test -run '^$$' -bench Cost -benchtime 1x -timeout 1h ./rediscost

bench-faults: redis-server ## how long calls take while Redis fails, and how soon it is used again: a table
	cd lab && go test -tags long -run '^$$' -bench Faults -benchtime 1x ./faults

lint: ## gofmt, go vet, go mod tidy and the linters of .golangci.yml
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	for dir in $(MODULES); do (cd $$dir && go vet -tags long ./... && GOWORK=off go mod tidy -diff && $(LINTER) run --build-tags long ./...); done

# Tests start servers of their own; they never talk to one that is running.
redis-server:
	@command -v redis-server valkey-server >/dev/null || { \
		echo 'The tests need redis-server or valkey-server, which is not on PATH. Installing redis-server with apt-get:'; \
		sudo=; ((EUID == 0)) || sudo='sudo -n'; \
		$$sudo apt-get update -q && $$sudo apt-get install -y -q --no-install-recommends redis-server; \
	} || { \
		echo 'That failed; install it yourself: package redis-server (Debian, Ubuntu), valkey (Fedora), redis or valkey (brew)' >&2; \
		exit 1; \
	}
