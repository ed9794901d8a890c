package coreapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/store"
)

// againAfter is how many seconds a client is asked to wait. An election takes about as long.
const againAfter = 1

// troubleOfRead turns an error of etcd about itself into a Status. Any other error is returned as it is.
func troubleOfRead(err error) error {
	switch kindOf(err) {
	case full:
		return storageFull(err)
	case refused, away:
		return comeAgain(err) // a read may be made again whatever became of it
	case late:
		return apierrors.NewTimeoutError(fmt.Sprintf("etcd did not answer in time: %v", err), 0)
	}
	return err
}

// troubleOfWrite is troubleOfRead for a request that etcd may have carried out although its answer is an error. That is
// 504, as upstream's for a request that outlived its deadline, and names no time to come back: clients that are given one
// repeat the request by themselves, and what would become of a second create or patch is not theirs to find out.
func troubleOfWrite(err error) error {
	switch kindOf(err) {
	case full:
		return storageFull(err)
	case refused:
		return comeAgain(err)
	case away, late:
		return apierrors.NewTimeoutError(fmt.Sprintf("etcd did not confirm the write, and may have made it or not: %v; read the object before you repeat it", err), 0)
	}
	return err
}

func comeAgain(err error) error {
	unavailable := apierrors.NewServiceUnavailable(fmt.Sprintf("etcd does not answer: %v", err))
	unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: againAfter}
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

// trouble is what an error of etcd says about etcd.
type trouble int

const (
	none    trouble = iota
	full            // it has used up its quota, or its disk has no room
	refused         // it did nothing, and may do it in a moment
	away            // no member could be reached, or none of them leads
	late            // the time was over first
)

func kindOf(err error) trouble {
	if err == nil {
		return none
	}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return none // somebody below has found words already
	}
	if disk := (*store.DiskFullError)(nil); errors.As(err, &disk) {
		return full
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return late
	}
	var named rpctypes.EtcdError
	if !errors.As(err, &named) && !errors.As(rpctypes.Error(err), &named) {
		if s, ok := status.FromError(err); ok {
			return kindOfCode(s.Code()) // from the connection, not from etcd
		}
		return none
	}
	switch {
	case errors.Is(named, rpctypes.ErrNoSpace):
		return full
	case errors.Is(named, rpctypes.ErrNoLeader), errors.Is(named, rpctypes.ErrTooManyRequests):
		return refused
	}
	return kindOfCode(named.Code())
}

func kindOfCode(code codes.Code) trouble {
	switch code {
	case codes.Unavailable: // a leader that changed, a proposal that timed out, a connection that broke
		return away
	case codes.DeadlineExceeded:
		return late
	}
	return none
}
