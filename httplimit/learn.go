package httplimit

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// A pause is a token bucket that is overfull until it ends. A unit drains in
// pauseUnit. Calls take one unit with a Burst of pauseBurst, so that without a
// pause they do not notice it, up to 20,000 a second. Who learns of a pause
// takes its length, with a Burst of just that, and what others have learned
// already fills the bucket as well: so pauses never add up. The longest wins,
// and ends at most pauseMargin units late.
const (
	pauseUnit   = time.Second / pauseRate
	pauseRate   = 20_000
	pauseBurst  = 1000
	pauseMargin = 20 // calls that may come in between

	defaultMaxPause = time.Hour
	longestPause    = 24 * time.Hour
	pauseTries      = 8
)

func (t *Transport) learnKey(r *http.Request) string {
	if t.LearnKey == nil {
		return strings.ToLower(r.URL.Host)
	}
	return t.LearnKey(r)
}

// unpaused is admitted as long as calls of a name need not pause.
func unpaused(key string) weir.Request {
	return weir.Request{
		Key:   "httplimit.pause:" + key,
		Group: key,
		Limit: weir.Limit{Max: pauseRate, Window: time.Second, Burst: pauseBurst},
		// Without the store nothing is known of a pause, and the rest decides.
		OnFailure: weir.OnFailureAllow,
	}
}

// learn makes calls pause for as long as a response asks.
func (t *Transport) learn(ctx context.Context, key string, r *http.Response) {
	if key == "" {
		return
	}
	most := t.MaxPause
	if most <= 0 {
		most = defaultMaxPause
	}
	d := min(asked(r, time.Now()), most, longestPause)
	if d <= 0 {
		return
	}
	err := t.pause(ctx, key, d)
	if t.Learned != nil {
		t.Learned(key, d, err)
	}
}

// pause makes calls wait until d has passed, if they need not wait longer anyway.
func (t *Transport) pause(ctx context.Context, key string, d time.Duration) error {
	r := unpaused(key)
	r.Cost = int64((d+pauseUnit-1)/pauseUnit) + pauseBurst - 1
	r.Limit.Burst = r.Cost + pauseMargin
	// A try fails only if meanwhile another has recorded a pause, so that there
	// is one, or many calls have come, which the next try then knows of.
	for range pauseTries {
		answer, err := t.Limiter.AllowAll(ctx, r)
		if err != nil || answer.Allowed || answer.Remaining <= pauseMargin {
			return err
		}
		r.Cost = answer.Remaining - pauseMargin
	}
	return nil
}
