package adminapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirlimit/weir/service/wire"
)

const (
	// mostWatchers is how many may read /api/events at once.
	mostWatchers = 32
	// sendTime is how long an event may take to be sent.
	sendTime = 10 * time.Second
)

func (a *api) state(*http.Request, *entry) (any, error) { return a.State(), nil }

// events sends the state at once and each second, until the client hangs up or
// the service stops.
func (a *api) events(w http.ResponseWriter, r *http.Request, _ *entry) {
	select {
	case a.watchers <- struct{}{}:
		defer func() { <-a.watchers }()
	default:
		wire.NewProblem(http.StatusServiceUnavailable, "", "32 clients read events already, which is all there may be: close one, or GET /api/state").Write(w)
		return
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // or the server takes a request that lasts for one that does not end
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx passes on what there is
	w.WriteHeader(http.StatusOK)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for a.send(w, c) == nil {
		select {
		case <-again.C:
		case <-r.Context().Done():
			return
		case <-a.Stopping:
			return
		}
	}
}

// send sends an event.
func (a *api) send(w http.ResponseWriter, c *http.ResponseController) error {
	_ = c.SetWriteDeadline(time.Now().Add(sendTime)) // not every writer has one
	text, err := json.Marshal(a.State())
	if err != nil {
		return err
	}
	if _, err := w.Write(append(append([]byte("event: state\ndata: "), text...), "\n\n"...)); err != nil {
		return err
	}
	return c.Flush()
}
