package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"portico.dev/internal/filters"
)

// audit writes the audit event of a finished request. The event never contains bodies, headers or the values of query
// parameters that the Kubernetes API does not define.
func (h *Host) audit(c *filters.Context, r *http.Request, code int) {
	e := auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    auditv1.LevelMetadata, Stage: auditv1.StageResponseComplete, AuditID: types.UID(c.AuditID),
		RequestURI: filters.Bounded(filters.AuditedURI(r.URL)), UserAgent: filters.Bounded(r.UserAgent()),
		Verb:                     strings.ToLower(filters.Bounded(r.Method)),
		ResponseStatus:           &metav1.Status{Code: int32(code)},
		RequestReceivedTimestamp: metav1.NewMicroTime(c.Received), StageTimestamp: metav1.NewMicroTime(time.Now()),
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		e.SourceIPs = []string{host}
	}
	if who := c.User; who != nil {
		e.User = authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
		for key, values := range who.GetExtra() {
			if e.User.Extra == nil {
				e.User.Extra = make(map[string]authenticationv1.ExtraValue)
			}
			e.User.Extra[key] = values
		}
	}
	if info := c.Info; info != nil {
		e.Verb = info.Verb
		if info.IsResourceRequest {
			e.ObjectRef = &auditv1.ObjectReference{
				APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
				Namespace: info.Namespace, Name: filters.Bounded(info.Name),
			}
		}
	}
	line, err := json.Marshal(&e)
	if err == nil {
		h.auditing.Lock()
		_, err = h.config.AuditLog.Write(append(line, '\n'))
		h.auditing.Unlock()
	}
	if err != nil {
		h.limited.Error("failed to write an audit event", zap.String("audit-id", c.AuditID), zap.Error(err))
	}
}

// auditFile is the file of --audit-log-path. It is open while run runs.
type auditFile struct {
	path string
	done chan struct{} // closed when the file is open

	mu   sync.Mutex // guards file
	file *os.File
}

func newAuditFile(path string) *auditFile { return &auditFile{path: path, done: make(chan struct{})} }

// run keeps the file open until ctx ends.
func (f *auditFile) run(ctx context.Context) error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	f.set(file)
	close(f.done)
	<-ctx.Done()
	f.set(nil)
	if err := file.Close(); err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

func (f *auditFile) set(file *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.file = file
}

// Write implements io.Writer.
func (f *auditFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return 0, errors.New("the audit log is not open")
	}
	return f.file.Write(line)
}
