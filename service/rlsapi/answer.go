package rlsapi

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/service/decide"
)

// units are those of limits, the longest first.
var units = [...]struct {
	unit   rls.RateLimitResponse_RateLimit_Unit
	length time.Duration
}{
	{rls.RateLimitResponse_RateLimit_YEAR, 365 * 24 * time.Hour},
	{rls.RateLimitResponse_RateLimit_MONTH, 30 * 24 * time.Hour},
	{rls.RateLimitResponse_RateLimit_WEEK, 7 * 24 * time.Hour},
	{rls.RateLimitResponse_RateLimit_DAY, 24 * time.Hour},
	{rls.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{rls.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{rls.RateLimitResponse_RateLimit_SECOND, time.Second},
}

// length is how long a unit is; 0 if it is none.
func length(unit rls.RateLimitResponse_RateLimit_Unit) time.Duration {
	for _, u := range units {
		if u.unit == unit {
			return u.length
		}
	}
	return 0
}

func (a *api) encode(r *rls.RateLimitRequest, answer *decide.Answer) (*rls.RateLimitResponse, error) {
	all := make([]rls.RateLimitResponse_DescriptorStatus, len(answer.Statuses))
	statuses := make([]*rls.RateLimitResponse_DescriptorStatus, len(all))
	for i := range all {
		statuses[i] = &all[i]
		encodeStatus(statuses[i], &answer.Statuses[i])
	}
	told, err := metadata(r, answer.Statuses)
	if err != nil {
		return nil, status.Error(codes.Internal, "the metadata of a rule cannot be sent: "+err.Error())
	}
	return &rls.RateLimitResponse{
		OverallCode: codeOf(answer.Allowed), Statuses: statuses, ResponseHeadersToAdd: a.headers(answer), DynamicMetadata: told,
	}, nil
}

func codeOf(allowed bool) rls.RateLimitResponse_Code {
	if allowed {
		return rls.RateLimitResponse_OK
	}
	return rls.RateLimitResponse_OVER_LIMIT
}

func encodeStatus(out *rls.RateLimitResponse_DescriptorStatus, s *decide.Status) {
	out.Code = codeOf(s.Allowed)
	if !s.Matched {
		return
	}
	out.LimitRemaining = clamp(s.Remaining)
	if s.Unlimited {
		return
	}
	wait := s.ResetAfter
	if !s.Allowed && s.RetryAfter > 0 {
		wait = s.RetryAfter
	}
	// Envoy tells its clients the seconds alone.
	out.DurationUntilReset = &durationpb.Duration{Seconds: int64((wait + time.Second - 1) / time.Second)}
	out.CurrentLimit = currentLimit(s)
}

// currentLimit states a limit in the longest unit that its window is a multiple
// of; in none if the window is no multiple of a second.
func currentLimit(s *decide.Status) *rls.RateLimitResponse_RateLimit {
	out := &rls.RateLimitResponse_RateLimit{Name: s.LimitName, RequestsPerUnit: clamp(s.Stated.Max)}
	for _, u := range units {
		if window := s.Stated.Window; window > 0 && window%u.length == 0 {
			out.Unit = u.unit
			if n := window / u.length; n > 1 {
				out.UnitMultiplier = wrapperspb.UInt32(uint32(n)) // 366 days at most
			}
			break
		}
	}
	return out
}

func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// headers are the fields for Envoy to add to the response to its client.
func (a *api) headers(answer *decide.Answer) []*core.HeaderValue {
	var rows []httplimit.Row
	if a.Fields.Dialect != httplimit.None {
		for i := range answer.Rows {
			if r := &answer.Rows[i]; !r.Shadow {
				rows = append(rows, httplimit.Row{Decision: r.Decision, Name: r.Name, Window: r.Window})
			}
		}
	}
	h := make(http.Header)
	a.Fields.Write(h, &answer.Decision, rows)
	if len(h) == 0 {
		return nil
	}
	var out []*core.HeaderValue
	for _, name := range slices.Sorted(maps.Keys(h)) {
		out = append(out, &core.HeaderValue{Key: name, Value: h.Get(name)})
	}
	return out
}

// metadata tells of the request and of the rules that admitted it, as
// envoyproxy/ratelimit does; nil if they have nothing to tell.
func metadata(r *rls.RateLimitRequest, statuses []decide.Status) (*structpb.Struct, error) {
	var merged map[string]any
	for i := range statuses {
		if s := &statuses[i]; s.Allowed && len(s.Metadata) > 0 {
			merged = merge(merged, s.Metadata)
		}
	}
	if merged == nil {
		return nil, nil //nolint:nilnil // there need not be any
	}
	descriptors := make([]any, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		var entries []any
		for _, e := range d.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
		fields := map[string]any{"entries": entries}
		if own := d.GetHitsAddend(); own != nil {
			fields["hitsAddend"] = own.GetValue()
		}
		descriptors[i] = fields
	}
	fields := map[string]any{"domain": r.GetDomain(), "descriptors": descriptors, "metadata": merged}
	if hits := r.GetHitsAddend(); hits != 0 {
		fields["hitsAddend"] = hits
	}
	return structpb.NewStruct(fields)
}

// merge returns a new map of what is in either; of what both have the first
// counts, unless both are maps.
func merge(first, second map[string]any) map[string]any {
	out := maps.Clone(second)
	for key, value := range first {
		a, ok := value.(map[string]any)
		b, both := second[key].(map[string]any)
		if ok && both {
			value = merge(a, b)
		}
		out[key] = value
	}
	return out
}
