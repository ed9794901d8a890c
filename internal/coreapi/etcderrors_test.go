package coreapi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"portico.dev/internal/store"
)

func TestEtcdErrorsMapToStatusCodes(t *testing.T) {
	for _, c := range []struct {
		name        string
		err         error
		read, write int32 // 0: the error is returned unchanged
	}{
		{"no space", rpctypes.ErrNoSpace, 507, 507},
		{"no space, from the embedded etcd", rpctypes.ErrGRPCNoSpace, 507, 507},
		{"no room on the disk", fmt.Errorf("put: %w", &store.DiskFullError{Dir: "d"}), 507, 507},
		{"no leader", rpctypes.ErrNoLeader, 503, 503},
		{"no member answers", fmt.Errorf("put: %w", &store.QuorumError{}), 503, 503},
		{"no member answers any more", fmt.Errorf("put: %w", &store.QuorumError{Begun: true}), 503, 504},
		{"too many requests", rpctypes.ErrTooManyRequests, 503, 503},
		{"a leader that changed", rpctypes.ErrLeaderChanged, 503, 504},
		{"a proposal that timed out", rpctypes.ErrTimeout, 503, 504},
		{"a proposal that a leader took with it", rpctypes.ErrGRPCTimeoutDueToLeaderFail, 503, 504},
		{"a member that has just lost its leader", fmt.Errorf("put: %w", status.Error(codes.Unknown, "raft proposal dropped")), 503, 503},
		{"a member that has just lost its leader, in this process", raft.ErrProposalDropped, 503, 503},
		{"a connection that broke", status.Error(codes.Unavailable, "transport is closing"), 503, 504},
		{"a connection that is slow", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), 504, 504},
		{"the request's own time", fmt.Errorf("get: %w", context.DeadlineExceeded), 504, 504},
		{"a client that went", context.Canceled, 0, 0},
		{"a compacted version", rpctypes.ErrCompacted, 0, 0},
		{"a message that is too large for the connection", status.Error(codes.ResourceExhausted, "trying to send message larger than max"), 0, 0},
		{"a conflict", storage.NewResourceVersionConflictsError("k", 1), 0, 0},
		{"what has its words already", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p"), 0, 0},
		{"anything else", errors.New("unexpected"), 0, 0},
		{"nothing", nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for told, want := range map[error]int32{mapReadError(c.err): c.read, mapWriteError(c.err): c.write} {
				var is *apierrors.StatusError
				switch {
				case want == 0 && told != c.err:
					t.Errorf("mapped error = %v, want %v unchanged", told, c.err)
				case want != 0 && (!errors.As(told, &is) || is.ErrStatus.Code != want):
					t.Errorf("mapped error = %#v, want a Status with the code %d", told, want)
				case want == 503 && is.ErrStatus.Details.RetryAfterSeconds == 0, want == 504 && is.ErrStatus.Details.RetryAfterSeconds != 0:
					t.Errorf("status = %+v, want retryAfterSeconds only with the code 503: the outcome of a write with 504 is unknown", is.ErrStatus)
				}
			}
		})
	}
}
