// Command httpserver greets each user, at most sixty times a minute, however many
// processes of it run.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

func main() {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	lim := weir.New(weir.Options{Store: store})
	log.Fatal(http.ListenAndServe("localhost:9000", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth() // verify it
		d, err := lim.Allow(r.Context(), "user:"+user, weir.PerMinute(60))
		switch {
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !d.Allowed:
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			fmt.Fprintln(w, "hello,", user, d.Remaining)
		}
	})))
}
