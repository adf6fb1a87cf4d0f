package grpclimit

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir"
)

// refusal is the error of a call that does not go on: a status, which its
// caller is sent, and the cause, if there is one, which stays here.
type refusal struct {
	status *status.Status
	cause  error
}

// Error is for those who may see the cause.
func (r *refusal) Error() string {
	text := r.status.Err().Error()
	if r.cause != nil {
		text += ": " + r.cause.Error()
	}
	return text
}

// GRPCStatus is what gRPC sends for the error.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.cause }

// denial is the status of a call that was not admitted.
func (v *verdict) denial() *status.Status {
	switch {
	case v.Reason == weir.StoreDenied:
		return v.status(codes.Unavailable, "the limits of this call cannot be asked: try again later")
	case v.RetryAfter > 0:
		return v.status(codes.ResourceExhausted, v.over()+": try again in "+v.RetryAfter.String())
	}
	return v.status(codes.ResourceExhausted, v.over()+", whenever it is tried")
}

// over names the limits that denied.
func (v *verdict) over() string {
	var names []string
	for _, violation := range v.violations() {
		names = append(names, strconv.Quote(violation.GetQuotaId()))
	}
	return strings.TrimSpace("over the limit " + strings.Join(names, ", "))
}

// violations are the limits each of which, by itself, denied the call.
func (v *verdict) violations() (all []*errdetails.QuotaFailure_Violation) {
	for i := range v.Rows {
		r, d := &v.requests[i], &v.Rows[i]
		if !d.Allowed && d.Reason != weir.StoreDenied && r.Mode == weir.Enforce {
			all = append(all, &errdetails.QuotaFailure_Violation{
				QuotaId: r.name(), QuotaValue: d.Limit, Description: "the limit is " + r.Limit.String(),
			})
		}
	}
	return all
}

// status has as its details how long to wait and which limits denied.
func (v *verdict) status(code codes.Code, text string) *status.Status {
	var details []protoadapt.MessageV1
	if v.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(v.RetryAfter)})
	}
	if all := v.violations(); len(all) > 0 {
		details = append(details, &errdetails.QuotaFailure{Violations: all})
	}
	bare := status.New(code, text)
	if full, err := bare.WithDetails(details...); err == nil {
		return full
	}
	return bare
}

// name is text that a message can carry.
func (r *Request) name() string {
	if r.Name == "" {
		return "default"
	}
	return strings.ToValidUTF8(r.Name, "?")
}
