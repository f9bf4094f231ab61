// connect-go, over HTTP/2 without TLS.

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	getProcedure  = "/e2e.Store/Get"
	putProcedure  = "/e2e.Store/Put"
	echoProcedure = "/e2e.Store/Echo"
)

func connectClient() client {
	return client{
		name:  "connect-go",
		off:   hasNone,
		needs: "`profile.API()`; `connect.WithHTTPGet` lets procedures without side effects be retried",
		rule:  profile.API(),
		h2c:   true,
		size:  1 << 20,
		serve: func(testing.TB, string) http.Handler { return fakeConnect() },
		open: func(_ testing.TB, s setup) session {
			get := connect.NewClient[emptypb.Empty, wrapperspb.BytesValue](s.http, s.url+getProcedure,
				connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
			put := connect.NewClient[wrapperspb.BytesValue, wrapperspb.BytesValue](s.http, s.url+putProcedure)
			value := func(resp *connect.Response[wrapperspb.BytesValue], err error) ([]byte, error) {
				if err != nil {
					return nil, err
				}
				return resp.Msg.Value, nil
			}
			return session{
				download: func(ctx context.Context) error {
					return are(content(1 << 20))(value(get.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))))
				},
				upload: func(ctx context.Context, b []byte) error {
					return are(sum(b))(value(put.CallUnary(ctx, connect.NewRequest(&wrapperspb.BytesValue{Value: b}))))
				},
				own: asError[*connect.Error],
			}
		},
	}
}

// fakeConnect has a procedure that returns a message, a procedure that returns the
// hash of a message, and a procedure that returns every message of a stream.
func fakeConnect() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(getProcedure, connect.NewUnaryHandler(getProcedure,
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[wrapperspb.BytesValue], error) {
			return connect.NewResponse(&wrapperspb.BytesValue{Value: content(1 << 20)}), nil
		}, connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithCompressMinBytes(1<<30))) // the content is random
	mux.Handle(putProcedure, connect.NewUnaryHandler(putProcedure,
		func(_ context.Context, req *connect.Request[wrapperspb.BytesValue]) (*connect.Response[wrapperspb.BytesValue], error) {
			return connect.NewResponse(&wrapperspb.BytesValue{Value: sum(req.Msg.Value)}), nil
		}))
	mux.Handle(echoProcedure, connect.NewBidiStreamHandler(echoProcedure,
		func(_ context.Context, s *connect.BidiStream[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
			for {
				m, err := s.Receive()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err == nil {
					err = s.Send(m)
				}
				if err != nil {
					return err
				}
			}
		}))
	return mux
}

func TestConnectUploads(t *testing.T) { hundredUploads(t, connectClient()) }

// In a bidirectional stream each message is answered before the next is sent. If the
// stream is refused at its start, it depends on the moment whether the base
// transport waits for a Read of the request's body. If it does, the stream is not
// retried, and the client gets its own error. If it does not, the messages so far
// are sent again, and the stream goes on.
func TestConnectStreams(t *testing.T) {
	b := newBench(t, connectClient())
	hc, r := under(t, base(t, b.network, true), profile.API(), nil)
	talk := func() error {
		s := connect.NewClient[wrapperspb.BytesValue, wrapperspb.BytesValue](hc, b.url+echoProcedure).CallBidiStream(bounded(t))
		defer func() { _ = s.CloseResponse() }()
		for i := range 100 {
			want := bytes.Repeat([]byte{byte(i)}, 10_000)
			if err := s.Send(&wrapperspb.BytesValue{Value: want}); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			got, err := s.Receive()
			if err := are(want)(got.GetValue(), err); err != nil {
				return err
			}
		}
		return s.CloseRequest()
	}
	require.NoError(t, talk())
	assert.Empty(t, r.told())
	b.answer(busyUntil(2))
	err := talk()
	told := r.told()
	require.Len(t, told, 1)
	if told[0].Reason == transport.ReasonRetry {
		require.NoError(t, err)
		assert.Equal(t, 2, b.seen(), "requests that arrived")
	} else {
		assert.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		assert.Equal(t, transport.ReasonNotReplayable, told[0].Reason)
		assert.Equal(t, 1, b.seen(), "requests that arrived")
	}
	require.NoError(t, talk())
}
