package coreapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"portico.dev/internal/store"
)

const (
	// margin is the fraction of a request's remaining time that is reserved to report that etcd did not respond, at most
	// maxMargin. Without it, k8s.io/apiserver's timeout response comes first and does not contain the cause.
	margin    = 0.05
	maxMargin = time.Second
)

// etcdErrorMapper converts etcd errors to a Status that clients understand; k8s.io/apiserver returns them as a 500 without a
// reason. It wraps etcd below the watch cache, so that reads through either return the same errors.
type etcdErrorMapper struct {
	storage.Interface
}

// withMargin returns a context that ends shortly before the request's deadline.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Duration(margin * float64(time.Until(deadline)))
	return context.WithDeadline(ctx, deadline.Add(-min(left, maxMargin)))
}

func (h etcdErrorMapper) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	return mapWriteError(h.Interface.Create(ctx, key, obj, out, ttl))
}

func (h etcdErrorMapper) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	return mapWriteError(h.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (h etcdErrorMapper) GuaranteedUpdate(ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	return mapWriteError(h.Interface.GuaranteedUpdate(ctx, key, into, ignoreNotFound, preconditions, update, cached))
}

func (h etcdErrorMapper) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	return mapReadError(h.Interface.Get(ctx, key, opts, into))
}

func (h etcdErrorMapper) GetList(ctx context.Context, key string, opts storage.ListOptions, into runtime.Object) error {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	return mapReadError(h.Interface.GetList(ctx, key, opts, into))
}

func (h etcdErrorMapper) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	version, err := h.Interface.GetCurrentResourceVersion(ctx)
	return version, mapReadError(err)
}

// retryAfterSeconds is the Retry-After value, about the time of an election.
const retryAfterSeconds = 1

// mapReadError converts an error about the state of etcd to a Status. It returns any other error unchanged.
func mapReadError(err error) error {
	switch classifyEtcdError(err) {
	case outOfSpace:
		return storageFull(err)
	case notTried, unreachable:
		return unavailable(err) // a read can be repeated in any case
	case timedOut:
		return apierrors.NewTimeoutError(fmt.Sprintf("etcd did not answer in time: %v", err), 0)
	}
	return err
}

// mapWriteError is mapReadError for a request that etcd may have executed despite the error. Such an error becomes a 504, like
// upstream's response after a deadline, without Retry-After: a client would repeat the request automatically, and could not
// detect the effect of a second create or patch.
func mapWriteError(err error) error {
	switch classifyEtcdError(err) {
	case outOfSpace:
		return storageFull(err)
	case notTried:
		return unavailable(err)
	case unreachable, timedOut:
		return apierrors.NewTimeoutError(fmt.Sprintf("etcd did not confirm the write, and may have made it or not: %v; read the object before you repeat it", err), 0)
	}
	return err
}

func unavailable(err error) error {
	unavailable := apierrors.NewServiceUnavailable(fmt.Sprintf("etcd does not answer: %v", err))
	unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return unavailable
}

// storageFull returns a 507: the request is valid, but retries fail until an operator frees space. It has the reason of
// kube-apiserver's 500, so that clients which check the reason react in the same way. The error does not guarantee that nothing
// was written: etcd executes the write that reaches its quota, and still returns this error.
func storageFull(err error) error {
	message := fmt.Sprintf("etcd is full and did not confirm the write: %v; reads and deletions still work; "+
		"the operator of this server has to make room: delete, compact, defragment, disarm the NOSPACE alarm", err)
	if disk := (*store.DiskFullError)(nil); errors.As(err, &disk) {
		message = fmt.Sprintf("the write was refused: %v", disk)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: metav1.StatusReasonInternalError, Message: message,
	}}
}

// etcdFailure classifies an error by its cause in etcd.
type etcdFailure int

const (
	noFailure   etcdFailure = iota
	outOfSpace              // etcd's quota is used up, or its disk is full
	notTried                // etcd did not execute the request; a retry may succeed
	unreachable             // no reachable member, or no leader
	timedOut                // the deadline was exceeded
)

// isFailureOfEtcd reports whether an error concerns the state of etcd and not an object. The error may be a Status already.
func isFailureOfEtcd(err error) bool {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return classifyEtcdError(err) != noFailure
	}
	switch known.Status().Code {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return true
	}
	return false
}

func classifyEtcdError(err error) etcdFailure {
	if err == nil {
		return noFailure
	}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return noFailure // already a Status
	}
	if disk := (*store.DiskFullError)(nil); errors.As(err, &disk) {
		return outOfSpace
	}
	if lost := (*store.QuorumError)(nil); errors.As(err, &lost) {
		if lost.Begun {
			return unreachable
		}
		return notTried
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return timedOut
	}
	if droppedProposal(err) {
		return notTried
	}
	var named rpctypes.EtcdError
	if !errors.As(err, &named) && !errors.As(rpctypes.Error(err), &named) {
		if s, ok := status.FromError(err); ok {
			return classifyCode(s.Code()) // from the connection, not from etcd
		}
		return noFailure
	}
	switch {
	case errors.Is(named, rpctypes.ErrNoSpace):
		return outOfSpace
	case errors.Is(named, rpctypes.ErrNoLeader), errors.Is(named, rpctypes.ErrTooManyRequests):
		return notTried
	}
	return classifyCode(named.Code())
}

// droppedProposal reports whether an etcd member refused a write because it has just lost its leader. The error has no code.
func droppedProposal(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) {
		return answer.GRPCStatus().Message() == raft.ErrProposalDropped.Error()
	}
	return errors.Is(err, raft.ErrProposalDropped) // from the embedded etcd
}

func classifyCode(code codes.Code) etcdFailure {
	switch code {
	case codes.Unavailable: // a leader change, a proposal timeout or a broken connection
		return unreachable
	case codes.DeadlineExceeded:
		return timedOut
	}
	return noFailure
}
