package rlsapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// Handler serves what envoyproxy/ratelimit serves over HTTP: POST /json with a
// RateLimitRequest in JSON, and GET /healthcheck. The status is 200 if /json
// answers OK, 429 OVER_LIMIT, 400 of a bad request and 500 of another failure;
// of /healthcheck it is 200 if the service is ready, and 500 if it is not.
func Handler(o Options) http.Handler {
	a := newAPI(o)
	mux := http.NewServeMux()
	mux.HandleFunc("/json", a.serveJSON)
	mux.HandleFunc("/healthcheck", a.healthcheck)
	return http.NewCrossOriginProtection().Handler(mux)
}

func (a *api) healthcheck(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "the method "+strconv.Quote(r.Method)+" is not served here: use GET")
	case !a.Ready():
		refuse(w, http.StatusInternalServerError, "the service is not ready")
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "OK")
	}
}

func (a *api) serveJSON(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "the method "+strconv.Quote(r.Method)+" is not served here: use POST")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is larger than 1 MiB: send less at once")
		return
	}
	var request rls.RateLimitRequest
	if err == nil {
		err = protojson.Unmarshal(body, &request)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, `the body is no RateLimitRequest: want JSON such as {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}: `+err.Error())
		return
	}
	response, err := a.ShouldRateLimit(r.Context(), &request)
	var text []byte
	if err == nil {
		text, err = protojson.Marshal(response)
	}
	switch {
	case status.Code(err) == codes.InvalidArgument:
		refuse(w, http.StatusBadRequest, status.Convert(err).Message())
	case err != nil:
		refuse(w, http.StatusInternalServerError, status.Convert(err).Message())
	default:
		write(w, response.GetOverallCode(), text)
	}
}

func write(w http.ResponseWriter, code rls.RateLimitResponse_Code, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if code == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	// protojson puts spaces in at random; the encoder takes them out. It fails
	// only if the caller has gone.
	_ = json.NewEncoder(w).Encode(json.RawMessage(text))
}

// refuse answers as RFC 9457 writes errors.
func refuse(w http.ResponseWriter, code int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(code), "status": code, "detail": detail})
}
