// Command crawler fetches pages, no faster than their host allows, however many
// crawlers run: they keep to one limit, which they share in Redis.
//
//	crawler -store redis://127.0.0.1:6379 -limit 5/s https://example.org/a https://example.org/b
//
// It prints a line a page, its status and URL, and fails if one is missing.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/redisstore"
)

func main() {
	url := flag.String("store", "redis://127.0.0.1:6379", "`URL` of the Redis that the crawlers share")
	text := flag.String("limit", "5/s", "what a host allows")
	jitter := flag.Duration("jitter", 100*time.Millisecond, "how much longer one call may take to arrive than another")
	flag.Parse()
	if err := crawl(*url, *text, *jitter, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "crawler:", err)
		os.Exit(1)
	}
}

// crawl fetches all pages, and returns the error of one of them.
func crawl(url, text string, jitter time.Duration, pages []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	limit, err := weir.ParseLimit(text)
	if err != nil {
		return err
	}
	limit.Window += jitter // as a call that is sent later may arrive sooner
	store, err := redisstore.Open(redisstore.Options{URL: url})
	if err != nil {
		return err
	}
	limiter := weir.New(weir.Options{Store: store})
	defer func() { _ = limiter.Close() }()
	client := &http.Client{Transport: &httplimit.Transport{
		Limiter: limiter,
		Requests: func(r *http.Request) []weir.Request {
			return []weir.Request{{Key: r.URL.Host, Limit: limit}}
		},
	}}

	var calls sync.WaitGroup
	failed := make(chan error, len(pages))
	for _, page := range pages {
		calls.Go(func() {
			if err := fetch(ctx, client, page); err != nil {
				failed <- err
			}
		})
	}
	calls.Wait()
	close(failed)
	return <-failed
}

func fetch(ctx context.Context, client *http.Client, page string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, response.StatusCode, page)
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", page, response.Status)
	}
	return nil
}
