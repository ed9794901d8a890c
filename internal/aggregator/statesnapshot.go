package aggregator

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/metrics"
	"portico.dev/internal/respond"
	"portico.dev/internal/run"
	"portico.dev/internal/server"
	"portico.dev/internal/store"
)

// A replica with a state snapshot starts from it if no member of etcd responds: readers of etcd read the snapshot.
// The replica then serves backends, but not local groups. When etcd is back, every cache is filled from it again.
// Only then are local groups served, and only then do the parts start that write to etcd: the replica's own key, the
// election, the controllers.

// StateSnapshotConfig lets a replica start while an external etcd is unreachable.
type StateSnapshotConfig struct {
	// File contains the state from which this replica starts. Default none: a start waits for etcd.
	File string
	// MaxAge is the maximum age of that state, at a start and while it is served. Default a day.
	MaxAge time.Duration
	// Wait is how long a start waits for etcd. It has no flag. Default 10 s.
	Wait time.Duration
}

func defaultStateSnapshot() StateSnapshotConfig { return StateSnapshotConfig{MaxAge: 24 * time.Hour} }

// leastStateAge is the minimum of MaxAge: the file is rewritten after a quarter of MaxAge.
const leastStateAge = time.Minute

func (c *StateSnapshotConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.File, "state-snapshot-file", c.File, "file for an encrypted snapshot of the state that is required to proxy to extension servers. This replica starts from it if no member of the external etcd answers; default none: the start waits for etcd")
	fs.DurationVar(&c.MaxAge, "state-snapshot-max-age", c.MaxAge, "maximum age of the state in --state-snapshot-file; older state is neither loaded nor served")
}

func (c *Config) validateStateSnapshot(bad func(flag, format string, args ...any)) {
	s := &c.StateSnapshot
	switch {
	case s.File == "":
		if s.MaxAge != defaultStateSnapshot().MaxAge {
			bad("state-snapshot-max-age", "is only of use together with --state-snapshot-file")
		}
		return
	case len(c.EtcdServers) == 0:
		bad("state-snapshot-file", "is for an external etcd: give --etcd-servers; the embedded one starts with this process")
	case filepath.Base(s.File) == string(filepath.Separator) || filepath.Base(s.File) == ".":
		bad("state-snapshot-file", "%q is not the name of a file", s.File)
	}
	if s.MaxAge < leastStateAge {
		bad("state-snapshot-max-age", "%s is too short; use at least %s", s.MaxAge, leastStateAge)
	}
}

// The contents of a state snapshot. It must contain everything that a start waits for, and everything that
// authorization depends on. It does not contain Secrets.
var (
	// snapshotObjects are the directories of objects in etcd.
	snapshotObjects = []string{
		"namespaces", "serviceaccounts", "resourcequotas", "limitranges", "services/specs", "services/endpoints", "endpointslices", "servicecidrs",
		"roles", "rolebindings", "clusterroles", "clusterrolebindings",
		"apiregistration.k8s.io/apiservices", "routing.portico.dev/apiroutes", "apiextensions.k8s.io/customresourcedefinitions",
		"flowschemas", "prioritylevelconfigurations",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"priorityclasses", "runtimeclasses", "storageclasses", "ingressclasses",
	}
	// frequentObjects change constantly. Tokens are bound to them.
	frequentObjects = []string{"pods", "minions"}
	// snapshotKeys are prefixes of Portico's own keys: cleanup debts, and the latest documents of backends.
	snapshotKeys = []string{"debts/", "discovery/", "openapi/"}
)

// stateSnapshot returns the configuration of the snapshot. It is nil without a file.
func (h *parts) stateSnapshot() (*store.StateSnapshotConfig, error) {
	c := h.cfg.StateSnapshot
	if c.File == "" {
		return nil, nil
	}
	data, err := os.ReadFile(h.signingKey)
	if err != nil {
		return nil, fmt.Errorf("key of the state snapshot: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("key of the state snapshot: %s has no key", h.signingKey)
	}
	return &store.StateSnapshotConfig{
		File: c.File, MaxAge: c.MaxAge, Wait: c.Wait,
		// A process with the key that signs service account tokens can act as any service account, and read the
		// objects that a snapshot contains.
		Secret:  block.Bytes,
		Objects: snapshotObjects, Frequent: frequentObjects, Own: snapshotKeys,
	}, nil
}

func (h *parts) registerStateMetrics() {
	metrics.NewStateSnapshot(h.Registry, func() time.Duration {
		at, without := h.withoutEtcd()
		if !without {
			return 0
		}
		return time.Since(at)
	}, h.store.StateSaved)
}

// withoutEtcd reports whether this replica has started from a state snapshot and still serves it, and returns the
// time of the snapshot.
func (h *parts) withoutEtcd() (at time.Time, without bool) {
	at, without = h.store.StartedFrom()
	if !without {
		return time.Time{}, false
	}
	select {
	case <-h.etcdIsBack:
		return time.Time{}, false
	default:
		return at, true
	}
}

// stateTooOld returns an error while this replica serves a state that is older than MaxAge.
func (h *parts) stateTooOld() error {
	at, without := h.withoutEtcd()
	if !without {
		return nil
	}
	return checkAge(at, h.cfg.StateSnapshot.MaxAge, time.Now())
}

func checkAge(of time.Time, most time.Duration, now time.Time) error {
	if now.Sub(of) <= most {
		return nil
	}
	return fmt.Errorf("etcd does not answer, and the state of %s is older than --state-snapshot-max-age (%s)", of.UTC().Format(time.RFC3339), most)
}

// stateChecks returns the checks of /readyz for state snapshots.
func (h *parts) stateChecks() []server.Check {
	if h.cfg.StateSnapshot.File == "" {
		return nil
	}
	return []server.Check{{
		Name: "state-snapshot",
		Ask:  func(context.Context) error { return h.stateTooOld() },
		Note: func() string {
			at, without := h.withoutEtcd()
			if !without {
				return ""
			}
			return fmt.Sprintf("serving the state of %s, %s old", at.UTC().Format(time.RFC3339), time.Since(at).Round(time.Second))
		},
	}}
}

// stateWarning returns the warning for clients while a state snapshot is served. It is empty at other times.
func (h *parts) stateWarning() string {
	at, without := h.withoutEtcd()
	if !without {
		return ""
	}
	return fmt.Sprintf("etcd does not answer: this server started without it, from its state of %s (%s ago)", at.UTC().Format(time.RFC3339), roughly(time.Since(at)))
}

// roughly returns d to the minute, so that a client that shows each distinct warning once shows few.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return "less than a minute"
	}
	minutes := int(d.Minutes())
	if hours := minutes / 60; hours > 0 {
		return fmt.Sprintf("%dh%dm", hours, minutes%60)
	}
	return fmt.Sprintf("%dm", minutes)
}

// onlyWithEtcd refuses requests for local groups while a state snapshot is served: the snapshot does not contain all
// objects, and its objects may be outdated. Reviews and discovery do not need objects of clients, and extension
// servers need both.
func (h *parts) onlyWithEtcd(next http.Handler) http.Handler {
	if h.cfg.StateSnapshot.File == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, without := h.withoutEtcd()
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !without || ok && (!info.IsResourceRequest || info.APIGroup == authorizationv1.GroupName || info.APIGroup == authenticationv1.GroupName) {
			next.ServeHTTP(w, r)
			return
		}
		why := "etcd answers again, and its state is being read"
		if err := h.store.Lost(); err != nil {
			why = "etcd does not answer: " + err.Error()
		}
		refusal := apierrors.NewServiceUnavailable(why + "; this server started without etcd, and serves only extension servers until it is back")
		refusal.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		respond.Error(w, r, refusal)
	})
}

// onceEtcdIsBack delays a part that writes to etcd, or acts on the objects in it. In a start from a state snapshot,
// the parts after it do not wait for it.
func (h *parts) onceEtcdIsBack(ready <-chan struct{}, f func(context.Context) error) (<-chan struct{}, func(context.Context) error) {
	if h.cfg.StateSnapshot.File == "" {
		return ready, f
	}
	begun := make(chan struct{})
	return begun, func(ctx context.Context) error {
		if _, without := h.withoutEtcd(); without {
			close(begun)
			select {
			case <-h.etcdIsBack:
				return f(ctx)
			case <-ctx.Done():
				return nil
			}
		}
		if ready == nil {
			close(begun)
			return f(ctx)
		}
		ended := make(chan error, 1)
		go func() { ended <- f(ctx) }()
		select {
		case <-ready:
			close(begun)
			return <-ended
		case err := <-ended:
			return err
		}
	}
}

// runStateSnapshot waits for etcd if this replica has started from a snapshot, and then keeps the file up to date.
func (h *parts) runStateSnapshot(ctx context.Context) error {
	if at, without := h.withoutEtcd(); without {
		if !h.awaitEtcd(ctx) {
			return nil
		}
		close(h.etcdIsBack)
		h.log.Info("etcd is reachable again; serving local groups", zap.Duration("age of the state that was served", time.Since(at).Round(time.Second)))
	}
	return h.store.SaveState(ctx)
}

// awaitEtcd returns true when all caches have been filled from etcd, and false if ctx ends first.
func (h *parts) awaitEtcd(ctx context.Context) bool {
	select {
	case <-h.store.UsesEtcd():
	case <-ctx.Done():
		return false
	}
	if h.core.AwaitEtcd(ctx) != nil {
		return false
	}
	const poll = 50 * time.Millisecond
	informers := h.snapshotInformers()
	if crds := h.core.CRDs().Informer(); crds.HasSynced() { // otherwise --runtime-config disables them
		informers = append(informers, crds)
	}
	for _, informer := range informers {
		for isOfSnapshot(informer) {
			if !run.Pause(ctx, poll) {
				return false
			}
		}
	}
	return true
}

func isOfSnapshot(informer cache.SharedIndexInformer) bool {
	revision := informer.LastSyncResourceVersion()
	return revision == "" || store.IsStateRevision(revision)
}

// awaitInformers returns when the shared informers have read all available objects, or ctx has ended.
func (h *parts) awaitInformers(ctx context.Context) {
	if _, without := h.withoutEtcd(); !without {
		h.informers.WaitForCacheSync(ctx.Done())
		h.services.WaitForCacheSync(ctx.Done())
		return
	}
	var checks []cache.DoneChecker
	for _, informer := range h.snapshotInformers() {
		checks = append(checks, informer.HasSyncedChecker())
	}
	cache.WaitFor(ctx, "", checks...)
}

// snapshotInformers returns the shared informers of objects in a snapshot: all but the informer of Secrets. That one
// may list up to half a minute after etcd is back, and token lookups request Secrets that it lacks from the API.
func (h *parts) snapshotInformers() []cache.SharedIndexInformer {
	secrets := h.informers.Secrets().Informer()
	all := slices.DeleteFunc(h.informers.Running(), func(informer cache.SharedIndexInformer) bool { return informer == secrets })
	return append(all, h.services.Apiregistration().V1().APIServices().Informer())
}
