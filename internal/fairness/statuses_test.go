package fairness_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	"k8s.io/client-go/kubernetes"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/fairness"
)

// slowStatuses is a client whose status writes last until their context ends.
type slowStatuses struct {
	kubernetes.Interface
	begun, ended chan struct{}
}

func (s *slowStatuses) FlowcontrolV1() client.FlowcontrolV1Interface {
	return slowFlowcontrol{s.Interface.FlowcontrolV1(), s}
}

type slowFlowcontrol struct {
	client.FlowcontrolV1Interface
	*slowStatuses
}

func (s slowFlowcontrol) FlowSchemas() client.FlowSchemaInterface {
	return slowSchemas{s.FlowcontrolV1Interface.FlowSchemas(), s.slowStatuses}
}

type slowSchemas struct {
	client.FlowSchemaInterface
	*slowStatuses
}

func (s slowSchemas) ApplyStatus(
	ctx context.Context, _ *apply.FlowSchemaApplyConfiguration, _ metav1.ApplyOptions,
) (*flowcontrolv1.FlowSchema, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
	}
	select {
	case s.ended <- struct{}{}:
	default:
	}
	return nil, ctx.Err()
}

// k8s.io/apiserver writes statuses from a separate goroutine with a context that never ends.
func TestRunReturnsAfterPendingStatusWrites(t *testing.T) {
	env := newTestEnv(t)
	slow := &slowStatuses{env.client, make(chan struct{}, 1), make(chan struct{}, 1)}
	f, err := fairness.New(fairness.Config{Client: slow, Seats: 600})
	if err != nil {
		t.Fatal(err)
	}
	// A schema without a level gets the condition Dangling, which causes a status write.
	_, err = env.client.FlowcontrolV1().FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "without-a-level"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         100,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "unknown"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	select {
	case <-slow.begun:
	case err := <-ended:
		t.Fatalf("Run ended before a status was written: %v, want it to run", err)
	case <-time.After(patience):
		t.Fatalf("no status write began within %s, want one", patience)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience / 2):
		t.Fatal("Run waits for a status write without a deadline, want it to return")
	}
	select {
	case <-slow.ended:
	default:
		t.Error("status write is still running after Run returned, want it ended")
	}
}

// A process may be stopped while it starts.
func TestRunThatEndsDuringItsStartLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	unreachable, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"}) // nothing listens there
	if err != nil {
		t.Fatal(err)
	}
	f, err := fairness.New(fairness.Config{Client: unreachable, Seats: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Run(ctx); err != nil {
		t.Errorf("Run with an ended context = %v, want nil", err)
	}
	goleak.VerifyNone(t, before)
}
