package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// Five calls a second to each host, and at most a hundred an hour in all. With a
// store of package redisstore the limits are those of all processes.
func ExampleTransport() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()

	client := &http.Client{Transport: &httplimit.Transport{
		Limiter: weir.New(weir.Options{}),
		Requests: func(r *http.Request) []weir.Request {
			return []weir.Request{
				{Key: "host:" + r.URL.Host, Limit: weir.PerSecond(5)},
				{Key: "budget", Limit: weir.PerHour(100)},
			}
		},
	}}
	response, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	fmt.Println(response.Status)
	// Output: 404 Not Found
}
