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

// The modes of the log.
const (
	// ModeBatch queues events: a request never waits for the disk, and a kill loses what was queued.
	ModeBatch = "batch"
	// ModeBlocking writes each event before its request is over.
	ModeBlocking = "blocking"
)

// Config says where events go. Without a log or a webhook no Auditor is needed.
type Config struct {
	// PolicyFile is the audit policy. Default: Everything.
	PolicyFile string

	// LogPath is a file that receives an event a line, "-" standard output. Default none.
	LogPath string
	// LogMode is ModeBatch or ModeBlocking. Default ModeBatch.
	LogMode string
	// LogMaxAge (days), LogMaxBackups and LogMaxSize (MB) say when the file is rotated and old ones are removed.
	// Default: never removed, rotated at 100 MB.
	LogMaxAge, LogMaxBackups, LogMaxSize int
	// LogCompress compresses rotated files.
	LogCompress bool

	// WebhookConfigFile is a kubeconfig of the server that receives EventLists. Default none.
	WebhookConfigFile string
	// WebhookBatchMaxSize and WebhookBatchMaxWait make a batch. Default 400 events, 30 s.
	WebhookBatchMaxSize int
	WebhookBatchMaxWait time.Duration
	// WebhookInitialBackoff is the pause before a batch is tried again. Default 10 s.
	WebhookInitialBackoff time.Duration

	// Dial makes the connections to the webhook. Nil: they are direct.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics *metrics.Audit
	Logger  *zap.Logger
}

// Enabled says whether events go anywhere.
func (c Config) Enabled() bool { return c.LogPath != "" || c.WebhookConfigFile != "" }

// Auditor encodes events and hands them to the sinks.
type Auditor struct {
	policy   atomic.Pointer[Policy]
	queues   []*queue
	blocking *blockingWriter // nil: the log is not in blocking mode
	scratch  sync.Pool       // of *[]byte, in which events are encoded
}

// New opens the log, so that a path that cannot be written is found at the start.
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
	// The queue keeps count in both modes.
	q := newQueue("log", log, logBatching, c.Metrics, c.Logger)
	if c.LogMode == ModeBlocking {
		a.blocking = &blockingWriter{queue: q}
	} else {
		a.queues = append(a.queues, q)
	}
	return a, nil
}

// LoadPolicy is the policy of the settings.
func (c Config) LoadPolicy() (*Policy, error) {
	if c.PolicyFile == "" {
		return Everything(), nil
	}
	return LoadPolicy(c.PolicyFile)
}

// SetPolicy has requests that begin from now on audited by another policy.
func (a *Auditor) SetPolicy(p *Policy) { a.policy.Store(p) }

// Level is that of the policy that is in force.
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

// Run sends events until ctx ends, and then those that are still queued.
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

// Annotation is passed beside an event and not in its map, which is costly to make for every request.
type Annotation struct{ Key, Value string }

// Process encodes an event and hands it to the sinks. It is called with the events of one request one after another. more are further annotations, in the order of their keys; an empty value is
// none, and one of the event itself with the same key is replaced.
func (a *Auditor) Process(e *auditinternal.Event, more []Annotation) {
	room, ok := a.scratch.Get().(*[]byte)
	if !ok {
		room = new([]byte)
		*room = make([]byte, 0, 2*typicalEventBytes)
	}
	line, err := encode((*room)[:0], e, more)
	if err != nil {
		return // only a body that is no JSON could do it, and bodies are what the decoder made
	}
	line = append(line, '\n')
	for _, q := range a.queues {
		q.enqueue(line)
	}
	if a.blocking != nil {
		a.blocking.write(line)
	}
	if cap(line) <= maxScratch {
		*room = line
		a.scratch.Put(room)
	}
}

// maxScratch bounds the room that is kept for the next event.
const maxScratch = 16 << 10

// maxEvent bounds one event. What is larger goes without its bodies, as upstream's truncation does it.
const maxEvent = 1 << 20

const truncatedAnnotation = "audit.k8s.io/truncated"

// encode appends an event to b. more are as for Process.
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
		// What is wrong with a secret may quote it; the client is told, the log is not.
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

// merged is a copy of an event with more annotations.
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

// blockingWriter writes to the log in the goroutine of the request.
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
	d.one.text = nil // the caller's
	d.queue.report(written, 1-written, err)
}

func (d *blockingWriter) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.sink.close()
}

// Policy decides how much of a request is audited, and at which of its stages.
type Policy struct{ rules audit.PolicyRuleEvaluator }

// Everything is the policy without a file: every request once, when it is over, without bodies. Requests that have no
// end of their own, such as watches, are audited when they begin too.
func Everything() *Policy {
	return &Policy{policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
	})}
}

// LoadPolicy reads a file of kind Policy, audit.k8s.io/v1.
func LoadPolicy(file string) (*Policy, error) {
	loaded, err := policy.LoadPolicyFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return &Policy{policy.NewPolicyRuleEvaluator(loaded)}, nil
}

// carriesCredentials reports the resources whose bodies hold what lets a reader act as somebody else.
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

// Level is the policy's level for one request, never above Metadata for those that carry credentials.
func (p *Policy) Level(a authorizer.Attributes) audit.RequestAuditConfig {
	c := p.rules.EvaluatePolicyRule(a)
	if auditinternal.LevelMetadata.Less(c.Level) && carriesCredentials(a.GetAPIGroup(), a.GetResource(), a.GetSubresource()) {
		c.Level = auditinternal.LevelMetadata
	}
	return c
}
