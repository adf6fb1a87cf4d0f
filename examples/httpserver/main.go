// Command httpserver greets each user, at most sixty times a minute, however many
// processes of it run.
package main

import (
	"io"
	"log"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/redisstore"
)

func main() {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	limited := httplimit.Middleware(httplimit.Options{Limiter: weir.New(weir.Options{Store: store}), Rules: perUser})
	server := http.Server{Addr: "localhost:9000", Handler: limited(http.HandlerFunc(greet)), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func perUser(r *http.Request) []httplimit.Rule {
	user, _, _ := r.BasicAuth() // verify it
	return []httplimit.Rule{{Name: "per-user", Request: weir.Request{Key: "user:" + user, Limit: weir.PerMinute(60)}}}
}

func greet(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "hello\n") // the caller may have gone
}
