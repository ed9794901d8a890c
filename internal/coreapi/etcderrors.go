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
	// margin is the part of a request's time that is left to report that etcd did not answer, at most maxMargin. Without
	// it the library's own answer, that the request took too long, comes first and does not say why.
	margin    = 0.05
	maxMargin = time.Second
)

// etcdErrorMapper turns errors of etcd into a Status that clients understand; the library passes them on as a 500 without a
// reason. It is between a watch cache and etcd, so that reads of either give the same errors.
type etcdErrorMapper struct {
	storage.Interface
}

// withMargin ends a little before the request does.
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

// retryAfterSeconds is how many seconds a client is asked to wait. An election takes about as long.
const retryAfterSeconds = 1

// mapReadError turns an error of etcd about itself into a Status. Any other error is returned as it is.
func mapReadError(err error) error {
	switch classifyEtcdError(err) {
	case outOfSpace:
		return storageFull(err)
	case notTried, unreachable:
		return unavailable(err) // a read may be made again whatever became of it
	case timedOut:
		return apierrors.NewTimeoutError(fmt.Sprintf("etcd did not answer in time: %v", err), 0)
	}
	return err
}

// mapWriteError is mapReadError for a request that etcd may have carried out although its answer is an error. That is
// 504, as upstream's for a request that outlived its deadline, and names no time to come back: clients that are given one
// repeat the request by themselves, and what would become of a second create or patch is not theirs to find out.
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

// storageFull is 507, which says that the request was understood and that repeating it is of no use until somebody makes
// room. The reason is the one that kube-apiserver's 500 has, so that clients which look at it do what they do there. It does
// not promise that nothing was written: the write that finds the quota used up is made, and answered with this error too.
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

// etcdFailure is what an error of etcd says about etcd.
type etcdFailure int

const (
	noFailure   etcdFailure = iota
	outOfSpace              // it has used up its quota, or its disk has no room
	notTried                // it did nothing, and may do it in a moment
	unreachable             // no member could be reached, or none of them leads
	timedOut                // the time was over first
)

func classifyEtcdError(err error) etcdFailure {
	if err == nil {
		return noFailure
	}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return noFailure // it is a Status already
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

// droppedProposal reports whether a member of etcd that has just lost its leader has refused a write. It has no code for that.
func droppedProposal(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) {
		return answer.GRPCStatus().Message() == raft.ErrProposalDropped.Error()
	}
	return errors.Is(err, raft.ErrProposalDropped) // of the etcd in this process
}

func classifyCode(code codes.Code) etcdFailure {
	switch code {
	case codes.Unavailable: // a leader that changed, a proposal that timed out, a connection that broke
		return unreachable
	case codes.DeadlineExceeded:
		return timedOut
	}
	return noFailure
}
