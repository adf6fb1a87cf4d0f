package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"unicode/utf8"
)

// FuzzBodies checks that whatever is sent is answered by a decision or by a
// problem, and that only valid JSON gets a decision.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"key":"search:alice","limit":"5/minute","algorithm":"sliding-log","cost":1}`,
		`{"key_base64":"/w==","limit":"10/s burst=20","cost":0,"last":"1s"}`,
		`{"domain":"slack","attributes":{"category":"errors"},"cost":2}`,
		`{"checks":[{"key":"global","limit":"100/30m"},{"key":"\ud83d\ude00","limit":"10/30m","cost":3}],"cost":1}`,
		`{"requests":[{"domain":"slack"},{"domain":"slakc"},7]}`,
		`{"receipt":"AQxzZWFyY2g6YWxpY2UABYCOzhwB.AQ","cost":1}`,
		`{"key":"a","limit":"50000/h buckets=60","last":"20s"}`,
		`{"key":"\ud800","limit":"1/us","limit":"1/us"} x`,
	} {
		f.Add([]byte(body))
	}
	d := open(f, true, slack)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/check", "/v1/batch", "/v1/charge", "/v1/refund", "/v1/count", "/v1/reset"} {
			w := d.post(path, string(body))
			var answer map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatalf("%s answered %s", path, w.Body)
			}
			kind := w.Header().Get("Content-Type")
			if w.Code != http.StatusOK {
				if kind != "application/problem+json" || answer["detail"] == "" || w.Code >= 500 {
					t.Errorf("%s: status %d, %s, %s", path, w.Code, kind, w.Body)
				}
				continue
			}
			if kind != "application/json" || !json.Valid(body) || !utf8.Valid(body) {
				t.Errorf("%s: %s was answered by %s, %s", path, body, kind, w.Body)
			}
		}
	})
}
