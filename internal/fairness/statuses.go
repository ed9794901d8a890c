package fairness

import (
	"context"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

// statusWriter is the client of the library's controller, which writes nothing but the statuses of FlowSchemas. It writes
// them with context.TODO, from a goroutine that nothing waits for; here each write ends with ctx, and wait waits for it.
type statusWriter struct {
	client.FlowcontrolV1Interface
	ctx context.Context

	mu     sync.Mutex // guards that no write begins after wait
	ended  bool
	writes sync.WaitGroup
}

func (w *statusWriter) FlowSchemas() client.FlowSchemaInterface {
	return schemaStatusWriter{w.FlowcontrolV1Interface.FlowSchemas(), w}
}

// wait returns when no write is under way, and none will begin. Call it after the end of ctx.
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
