package grpclimit

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
)

// UnaryClient returns an interceptor that makes calls wait until their limits
// admit them. The package's comment tells how a call ends that cannot wait.
func UnaryClient(o Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, message, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if o.Requests != nil {
			if _, err := decide(ctx, o.Limiter.WaitAll, o.Requests(ctx, method, message)); err != nil {
				return err
			}
		}
		return invoker(ctx, method, message, reply, cc, opts...)
	}
}

// StreamClient returns an interceptor that makes streams wait until their limits
// admit them, and SendMsg until those of the message do. A SendMsg that cannot
// wait returns why, and ends the stream.
func StreamClient(o Options) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if o.Requests != nil {
			if _, err := decide(ctx, o.Limiter.WaitAll, o.Requests(ctx, method, nil)); err != nil {
				return nil, err
			}
		}
		if o.Messages == nil {
			return streamer(ctx, desc, cc, method, opts...)
		}
		inner, end := context.WithCancel(ctx)
		opts = append(slices.Clip(opts), grpc.OnFinish(func(error) { end() }))
		stream, err := streamer(inner, desc, cc, method, opts...)
		if err != nil {
			end()
			return nil, err
		}
		wait := func(message any) error {
			_, err := decide(inner, o.Limiter.WaitAll, o.Messages(ctx, method, message))
			return unsent(ctx, inner, err)
		}
		return &clientStream{ClientStream: stream, wait: wait, end: end}, nil
	}
}

// unsent returns what SendMsg does when a message did not pass because of err:
// as for any stream it is io.EOF if the stream has ended, of which RecvMsg tells.
func unsent(caller, stream context.Context, err error) error {
	if err == nil || caller.Err() != nil || stream.Err() == nil {
		return err
	}
	return io.EOF
}

// clientStream limits the messages that are sent.
type clientStream struct {
	grpc.ClientStream

	wait func(message any) error
	end  context.CancelFunc
}

// SendMsg waits until the message passes and sends it.
func (s *clientStream) SendMsg(message any) error {
	if err := s.wait(message); err != nil {
		s.end()
		return err
	}
	return s.ClientStream.SendMsg(message)
}
