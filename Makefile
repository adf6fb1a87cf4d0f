# Modules are those of go.work, so a new one needs no line here.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULES = $(shell go list -m -f '{{.Dir}}')
LINTER = GOWORK=off go tool -modfile=$(CURDIR)/lab/tools/go.mod golangci-lint

.PHONY: help run test test-all bench lint

help: ## print this
	@sed -nE 's/^([a-z-]+):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: ## serve on 127.0.0.1:8080, in memory
	go run ./service/cmd/weir serve --http 127.0.0.1:8080

test: ## all that needs Go alone: every module with -race, then by itself, without go.work
	for dir in $(MODULES); do (cd $$dir && go vet ./... && go test -race -count=1 ./...); done
	for dir in $(MODULES); do (cd $$dir && export GOWORK=off && go build ./... && go vet ./... && go test -count=1 ./...); done

test-all: ## what takes longer: 20,000 runs of each fuzz target, long random histories (proxies, browsers, faults: none yet)
	grep -rHoE --include='*_test.go' '^func Fuzz\w+' . | sed 's/func //' | while IFS=: read -r file target; do \
		(cd $$(dirname $$file) && go test -run '^$$' -fuzz "^$$target$$" -fuzztime 20000x .); \
	done
	cd lab && go test -count=1 ./properties -rapid.checks=20000
	@echo 'test-all: no test needs a proxy, a browser or long faults yet'

bench: ## the benchmarks, as ratios to the floor of the same run
	go test -run '^$$' -bench . -cpu 1,2 -count 5 . ./policy | tee /dev/stderr | go run ./lab/ratios

lint: ## gofmt, go vet, go mod tidy and the linters of .golangci.yml
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	for dir in $(MODULES); do (cd $$dir && go vet ./... && GOWORK=off go mod tidy -diff && $(LINTER) run ./...); done
