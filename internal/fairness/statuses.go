package fairness

import (
	"context"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

// statusWriter is the client of k8s.io/apiserver's controller, which writes only the statuses of FlowSchemas. The controller
// writes them with context.TODO from a goroutine that it does not wait for. Here each write ends with ctx, and wait waits for
// it.
type statusWriter struct {
	client.FlowcontrolV1Interface
	ctx context.Context

	mu     sync.Mutex // ensures that no write begins after wait
	ended  bool
	writes sync.WaitGroup
}

func (w *statusWriter) FlowSchemas() client.FlowSchemaInterface {
	return schemaStatusWriter{w.FlowcontrolV1Interface.FlowSchemas(), w}
}

// wait prevents further writes and waits for writes in progress. It must be called after the end of ctx.
func (w *statusWriter) wait() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.writes.Wait()
}

func (w *statusWriter) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.writes.Add(1)
	}
	return !w.ended
}

type schemaStatusWriter struct {
	client.FlowSchemaInterface
	writer *statusWriter
}

func (s schemaStatusWriter) ApplyStatus(
	_ context.Context, schema *apply.FlowSchemaApplyConfiguration, opts metav1.ApplyOptions,
) (*flowcontrolv1.FlowSchema, error) {
	if !s.writer.begin() {
		return nil, context.Canceled
	}
	defer s.writer.writes.Done()
	return s.FlowSchemaInterface.ApplyStatus(s.writer.ctx, schema, opts)
}
