package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/decide"
)

// errorClass is why a request could not be decided.
type errorClass uint8

const (
	unknownDomain errorClass = iota
	inlineLimit
	invalidRequest
	canceled
	storeFailed
	errorClasses
)

var errorClassNames = [...]string{"unknown_domain", "inline_limit", "invalid", "canceled", "store"}

func (c errorClass) String() string { return errorClassNames[c] }

func classOf(err error) errorClass {
	if _, ok := errors.AsType[*decide.UnknownDomainError](err); ok {
		return unknownDomain
	}
	if _, ok := errors.AsType[*weir.InvalidError](err); ok {
		return invalidRequest
	}
	_, ofStore := errors.AsType[*weir.StoreError](err)
	switch {
	case errors.Is(err, decide.ErrInline):
		return inlineLimit
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && !ofStore:
		return canceled
	}
	return storeFailed
}

// storeError is why a store did not answer.
type storeError uint8

const (
	notAsked storeError = iota // because of the errors before
	timedOut
	disconnected
	misconfigured
	refused
	storeErrors
)

var storeErrorNames = [...]string{"not_asked", "timeout", "connection", "settings", "refused"}

func (e storeError) String() string { return storeErrorNames[e] }

func storeErrorOf(took time.Duration, err error) storeError {
	failed, ok := errors.AsType[*weir.StoreError](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case took == 0:
		return notAsked
	case ok && failed.Settings:
		return misconfigured
	case errors.Is(err, context.DeadlineExceeded):
		return timedOut
	case network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return disconnected
	}
	return refused
}
