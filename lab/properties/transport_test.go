package properties

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// sender is a function that sends.
type sender func(*http.Request) (*http.Response, error)

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

var (
	bareItem = rapid.SampledFrom([]string{
		`"a"`, `"b"`, `"a\"b\\c, ;"`, `""`, `a`, `*`, `a/b:c`, `1`, `-0`, `15.25`, `999999999999999`, `:aGk=:`, `::`, `?1`, `@1700000000`,
	})
	parameter = rapid.Custom(func(t *rapid.T) string {
		key := rapid.SampledFrom([]string{"r", "r", "t", "t", "w", "q", "pk", "*x", "a.b-c_d*"}).Draw(t, "key")
		value := rapid.OneOf(rapid.SampledFrom([]string{"0", "0", "1", "60", "-1", "3599", "0.5"}), bareItem).Draw(t, "value")
		return rapid.SampledFrom([]string{";", "; "}).Draw(t, "separator") + key + rapid.SampledFrom([]string{"=" + value, "=" + value, "=" + value, ""}).Draw(t, "value")
	})
	item = rapid.Custom(func(t *rapid.T) string {
		r := rapid.SampledFrom([]string{"", ";r=0", ";r=0;t=5", ";r=0;t=70"}).Draw(t, "remaining")
		return bareItem.Draw(t, "value") + r + strings.Join(rapid.SliceOfN(parameter, 0, 3).Draw(t, "parameters"), "")
	})
	innerList = rapid.Custom(func(t *rapid.T) string {
		return "(" + strings.Join(rapid.SliceOfN(item, 0, 3).Draw(t, "items"), " ") + rapid.SampledFrom([]string{")", " )", ");r=0;t=9"}).Draw(t, "end")
	})
)

// fields draws the lines of a field: lists, some of which have a character that
// was not there.
func fields(t *rapid.T, name string) []string {
	lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		comma := rapid.SampledFrom([]string{",", ", ", " ,\t"}).Draw(t, "comma")
		line := strings.Join(rapid.SliceOfN(rapid.OneOf(item, item, item, innerList), 1, 3).Draw(t, "members"), comma)
		if rapid.IntRange(0, 2).Draw(t, "breaks") > 0 {
			return line
		}
		at := rapid.IntRange(0, len(line)).Draw(t, "at")
		return line[:at] + rapid.SampledFrom(strings.Split(` |"|\|;|,|=|(|)|%|@|:|?|.|-|0|a|R|~|é|`+"\t", "|")).Draw(t, "character") + line[at:]
	}), 0, 2)
	return lines.Draw(t, name)
}

// TestRateLimitIsRead holds that Transport reads from RateLimit what a parser of
// RFC 9651 does, and nothing from what that refuses.
func TestRateLimitIsRead(t *testing.T) {
	pauses := 0
	rapid.Check(t, func(t *rapid.T) {
		h := http.Header{"Ratelimit": fields(t, "RateLimit"), "Ratelimit-Policy": fields(t, "RateLimit-Policy")}
		var got time.Duration
		lim := weir.New(weir.Options{})
		transport := &httplimit.Transport{
			Limiter: lim,
			Base: sender(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}, nil
			}),
			Learned: func(_ string, pause time.Duration, _ error) { got = pause },
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		want := pauseOf(h)
		if got != want {
			t.Fatalf("%q: it pauses %s, want %s", h, got, want)
		}
		if want > 0 {
			pauses++
		}
		if err := lim.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if pauses == 0 {
		t.Error("none of the fields asked to pause")
	}
}

// pauseOf is what the oracle makes of the fields.
func pauseOf(h http.Header) time.Duration {
	windows := make(map[any]int64)
	for _, item := range items(h.Values("Ratelimit-Policy")) {
		w, _ := item.Params.Get("w")
		windows[item.Value], _ = w.(int64)
	}
	var pause int64
	for _, item := range items(h.Values("Ratelimit")) {
		r, _ := item.Params.Get("r")
		t, ok := item.Params.Get("t")
		seconds, whole := t.(int64)
		if !ok || !whole {
			seconds = windows[item.Value]
		}
		if r == int64(0) {
			pause = max(pause, seconds)
		}
	}
	return time.Duration(min(pause, 3600)) * time.Second
}

func items(lines []string) (all []httpsfv.Item) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			if b, ok := item.Value.([]byte); ok {
				item.Value = fmt.Sprintf("bytes %q", b)
			}
			all = append(all, item)
		}
	}
	return all
}

// TestPauseOnRedis: what one process is told makes another pause, by the
// server's clock, and many that are told at once do not add up.
func TestPauseOnRedis(t *testing.T) {
	const n, pause = 4, 700 * time.Millisecond
	server := redistest.Start(t, redistest.Options{})
	var together sync.WaitGroup
	together.Add(n)
	base := sender(func(r *http.Request) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody}
		if r.URL.Path == "/first" {
			response.StatusCode = http.StatusTooManyRequests
			response.Header.Set("Retry-After", "0.7")
			together.Done()
			together.Wait()
		}
		return response, nil
	})
	var fleet []*httplimit.Transport
	for range n {
		store, err := redisstore.Open(redisstore.Options{URL: server.URL(), Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		lim := weir.New(weir.Options{Store: store})
		t.Cleanup(func() { _ = lim.Close() })
		fleet = append(fleet, &httplimit.Transport{Limiter: lim, Base: base, Learned: func(_ string, got time.Duration, err error) {
			if got != pause || err != nil {
				t.Errorf("learned %s, %v", got, err)
			}
		}})
	}
	get := func(transport http.RoundTripper, path string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test"+path, nil)
		if err == nil {
			_, err = transport.RoundTrip(r)
		}
		return err
	}
	ended := make(chan error, n)
	for _, transport := range fleet {
		go func() { ended <- get(transport, "/first") }()
	}
	together.Wait()
	told := time.Now()
	for range n {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	learned := time.Now()
	if err := get(fleet[0], "/second"); err != nil {
		t.Fatal(err)
	}
	if time.Since(told) < pause || time.Since(learned) > 2*pause {
		t.Errorf("the next call was %s after they were told, %s after they had learned it", time.Since(told), time.Since(learned))
	}
}
