package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/metrics"
)

// Modes of the audit log.
const (
	// ModeBatch queues events. Requests never wait for the disk, but queued events are lost if the process is killed.
	ModeBatch = "batch"
	// ModeBlocking writes each event before its request completes.
	ModeBlocking = "blocking"
)

// Config configures the audit sinks. An Auditor is needed only with a log or a webhook.
type Config struct {
	// PolicyFile is the audit policy. Default Everything.
	PolicyFile string

	// LogPath is a file for events, one per line, or "-" for standard output. Default none.
	LogPath string
	// LogMode is ModeBatch or ModeBlocking. Default ModeBatch.
	LogMode string
	// LogMaxAge (days), LogMaxBackups and LogMaxSize (MB) configure rotation and removal of log files. By default
	// files are rotated at 100 MB and never removed.
	LogMaxAge, LogMaxBackups, LogMaxSize int
	// LogCompress compresses rotated files.
	LogCompress bool

	// WebhookConfigFile is a kubeconfig for the server that receives EventLists. Default none.
	WebhookConfigFile string
	// WebhookBatchMaxSize and WebhookBatchMaxWait limit a batch. Default 400 events and 30 s.
	WebhookBatchMaxSize int
	WebhookBatchMaxWait time.Duration
	// WebhookInitialBackoff is the first pause before a batch is retried. Default 10 s.
	WebhookInitialBackoff time.Duration

	// Dial opens connections to the webhook. If nil, connections are direct.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics *metrics.Audit
	Logger  *zap.Logger
}

// Enabled reports whether a sink is configured.
func (c Config) Enabled() bool { return c.LogPath != "" || c.WebhookConfigFile != "" }

// Auditor encodes events and sends them to the sinks.
type Auditor struct {
	policy   atomic.Pointer[Policy]
	queues   []*queue
	blocking *blockingWriter // nil unless the log is in blocking mode
}

// New returns an Auditor. It opens the log, so that a path that cannot be written is an error at the start.
func New(c Config) (*Auditor, error) {
	a := &Auditor{}
	policy, err := c.LoadPolicy()
	if err != nil {
		return nil, err
	}
	a.SetPolicy(policy)
	if c.WebhookConfigFile != "" {
		w, err := newWebhook(c.WebhookConfigFile, orDefault(c.WebhookInitialBackoff, 10*time.Second), c.Dial)
		if err != nil {
			return nil, err
		}
		b := batching{maxEvents: orDefault(c.WebhookBatchMaxSize, 400), wait: orDefault(c.WebhookBatchMaxWait, 30*time.Second)}
		a.queues = append(a.queues, newQueue("webhook", w, b, c.Metrics, c.Logger))
	}
	if c.LogPath == "" {
		return a, nil
	}
	log, err := openLog(c)
	if err != nil {
		return nil, err
	}
	// The queue counts events in both modes.
	q := newQueue("log", log, logBatching, c.Metrics, c.Logger)
	if c.LogMode == ModeBlocking {
		a.blocking = &blockingWriter{queue: q}
	} else {
		a.queues = append(a.queues, q)
	}
	return a, nil
}

// LoadPolicy returns the configured policy.
func (c Config) LoadPolicy() (*Policy, error) {
	if c.PolicyFile == "" {
		return Everything(), nil
	}
	return LoadPolicy(c.PolicyFile)
}

// SetPolicy sets the policy for requests that begin from now on.
func (a *Auditor) SetPolicy(p *Policy) { a.policy.Store(p) }

// Level returns the level of the current policy.
func (a *Auditor) Level(attributes authorizer.Attributes) audit.RequestAuditConfig {
	return a.policy.Load().Level(attributes)
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Run sends events until ctx ends, and then the remaining queued events.
func (a *Auditor) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, q := range a.queues {
		g.Go(func() error { return q.run(ctx) })
	}
	if a.blocking != nil {
		g.Go(func() error {
			<-ctx.Done()
			return a.blocking.close()
		})
	}
	return g.Wait()
}

// Annotation is an additional annotation of an event. Annotations are passed separately because creating a map for
// each request is expensive.
type Annotation struct{ Key, Value string }

// Process encodes an event and sends it to the sinks. Calls for the events of a request must not be concurrent. more
// are additional annotations sorted by key. They replace annotations of the event with the same key. Empty values are
// ignored.
func (a *Auditor) Process(e *auditinternal.Event, more []Annotation) {
	out := newQueued()
	line, err := encode(out.line, e, more)
	if err != nil {
		out.free()
		return // possible only for a body that is not JSON, and bodies come from the decoder
	}
	out.line = append(line, '\n')
	if a.blocking != nil {
		a.blocking.write(out.line)
	}
	if len(a.queues) == 0 {
		out.free()
		return
	}
	for _, q := range a.queues[1:] {
		another := newQueued()
		another.line = append(another.line, out.line...)
		q.enqueue(another)
	}
	a.queues[0].enqueue(out)
}

// maxScratch is the maximum size of the memory of an event that is kept for reuse.
const maxScratch = 16 << 10

// maxEvent is the maximum size of an event. Larger events are written without bodies, as in upstream's truncation.
const maxEvent = 1 << 20

const truncatedAnnotation = "audit.k8s.io/truncated"

// encode appends an encoded event to b. For more see Process.
func encode(b []byte, e *auditinternal.Event, more []Annotation) ([]byte, error) {
	if len(e.Annotations) > 0 {
		e, more = merged(e, more), nil
	}
	if ref := e.ObjectRef; isSimple(e) && (ref == nil || !carriesCredentials(ref.APIGroup, ref.Resource, ref.Subresource)) {
		if line := appendEvent(b, e, more); len(line)-len(b) <= maxEvent {
			return line, nil
		}
	}
	e = merged(e, more)
	var out auditv1.Event
	if err := auditv1.Convert_audit_Event_To_v1_Event(e, &out, nil); err != nil {
		return nil, err
	}
	out.Kind, out.APIVersion = "Event", auditv1.SchemeGroupVersion.String()
	if ref, status := out.ObjectRef, out.ResponseStatus; ref != nil && status != nil && carriesCredentials(ref.APIGroup, ref.Resource, ref.Subresource) {
		// The message of an error about a secret may quote the secret. It is returned to the client but not logged.
		out.ResponseStatus = &metav1.Status{Status: status.Status, Reason: status.Reason, Code: status.Code}
	}
	line, err := json.Marshal(&out)
	if err == nil && len(line) <= maxEvent {
		return append(b, line...), nil
	}
	out.RequestObject, out.ResponseObject = nil, nil
	annotations := map[string]string{truncatedAnnotation: "true"}
	maps.Copy(annotations, out.Annotations)
	out.Annotations = annotations
	line, err = json.Marshal(&out)
	return append(b, line...), err
}

// merged returns a copy of an event with additional annotations.
func merged(e *auditinternal.Event, more []Annotation) *auditinternal.Event {
	if len(more) == 0 {
		return e
	}
	with := *e
	with.Annotations = make(map[string]string, len(e.Annotations)+len(more))
	maps.Copy(with.Annotations, e.Annotations)
	for _, a := range more {
		if a.Value != "" {
			with.Annotations[a.Key] = a.Value
		}
	}
	return &with
}

// blockingWriter writes to the log on the goroutine of the request.
type blockingWriter struct {
	mu    sync.Mutex // one line at a time
	queue *queue
	one   batch
}

func (d *blockingWriter) write(line []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.one.text, d.one.ends = line, append(d.one.ends[:0], len(line))
	written, err := d.queue.sink.send(context.Background(), &d.one)
	d.one.text = nil // owned by the caller
	d.queue.report(written, 1-written, err)
}

func (d *blockingWriter) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.sink.close()
}

// Policy determines the audit level and stages of a request.
type Policy struct{ rules audit.PolicyRuleEvaluator }

// Everything returns the default policy: all requests are audited once, when they are complete, without bodies.
// Long-running requests, such as watches, are also audited when they begin.
func Everything() *Policy {
	return &Policy{policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
	})}
}

// LoadPolicy reads a file with a Policy of audit.k8s.io/v1.
func LoadPolicy(file string) (*Policy, error) {
	loaded, err := policy.LoadPolicyFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return &Policy{policy.NewPolicyRuleEvaluator(loaded)}, nil
}

// carriesCredentials reports whether the bodies of a resource contain credentials.
func carriesCredentials(group, resource, subresource string) bool {
	switch resource {
	case "secrets":
		return group == "" && subresource == ""
	case "serviceaccounts":
		return group == "" && subresource == "token"
	case "tokenreviews":
		return group == "authentication.k8s.io" && subresource == ""
	}
	return false
}

// Level returns the policy's level for a request, at most Metadata for requests that carry credentials.
func (p *Policy) Level(a authorizer.Attributes) audit.RequestAuditConfig {
	c := p.rules.EvaluatePolicyRule(a)
	if auditinternal.LevelMetadata.Less(c.Level) && carriesCredentials(a.GetAPIGroup(), a.GetResource(), a.GetSubresource()) {
		c.Level = auditinternal.LevelMetadata
	}
	return c
}
