package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/fleet/limits"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/nodes/egress"
	"portico.dev/internal/proxy"
)

// members are the clusters that are served now. They are replaced as a whole.
type members struct{ byName, byHost map[string]*member }

// member is a cluster as its object describes it. It does not change.
type member struct {
	name   string
	object *v1alpha1.Cluster
	link   *link // nil if spec.server was never valid
	limits *limits.Limits
	apis   []schema.GroupVersion // of spec.apiServices
	writer identity.Writer
	tokens *identity.Tokens // nil like link
	access *identity.Access // nil like link
	// credentials is the name and version of the Secret. problem is why it cannot be used, or nil.
	credentials string
	problem     error
	invalid     error // why spec.server cannot be used, or nil
}

// link is the connection to a cluster. It outlives changes of the object, except those that outlives names.
type link struct {
	*cluster.Cluster
	credentials credentials
	trust       trust
	stop        func()
}

// credentials are those of the front door in a cluster.
type credentials struct {
	cluster.StaticCredentials
	frontProxy bool // requests of the front door itself need a user
}

// Apply implements cluster.Credentials.
func (c *credentials) Apply(ctx context.Context, header http.Header) error {
	if err := c.StaticCredentials.Apply(ctx, header); err != nil {
		return err
	}
	if !c.frontProxy || len(header[proxy.RequestHeaders.User]) > 0 { // package identity asks as other users
		return nil
	}
	return identity.WriteOwn(header)
}

// tunnelRetry is the time after which the file of a tunnel that could not be used is read again.
const tunnelRetry = 30 * time.Second

// sync makes members of all Clusters. Connections run until ctx ends or they are not needed any more. It returns the time after which
// it must be called again, or 0.
func (f *Fleet) sync(ctx context.Context) (next time.Duration) {
	before, now := f.members.Load(), &members{byName: map[string]*member{}, byHost: map[string]*member{}}
	objects := f.objects()
	f.followSecrets(objects)
	for _, object := range objects {
		m := f.member(ctx, before.byName[object.Name], object)
		now.byName[m.name] = m
		if _, ok := errors.AsType[*tunnelError](m.invalid); ok {
			next = tunnelRetry
		}
		for _, host := range object.Spec.Hosts {
			switch {
			case slices.Contains(f.config.OwnNames, host):
				f.log.Warn("the host name of a Cluster is one of the front door itself, and is not used", zap.String("cluster", m.name), zap.String("host", host))
			case now.byHost[host] == nil: // the oldest Cluster has it
				now.byHost[host] = m
			}
		}
	}
	f.members.Store(now)
	for name, m := range now.byName {
		if old := before.byName[name]; old == nil || old.object != m.object || old.credentials != m.credentials {
			f.statuses.note(name)
		}
	}
	for name, old := range before.byName {
		after := now.byName[name]
		if old.link != nil && (after == nil || after.link != old.link) {
			old.link.stop()
		}
		if after == nil {
			f.config.Metrics.Forget(name)
		}
	}
	return next
}

// followSecrets sets the Secrets whose events matter, before they are read: an event in between would be missed.
func (f *Fleet) followSecrets(objects []*v1alpha1.Cluster) {
	names := sets.New[string]()
	for _, object := range objects {
		if s := object.Spec.Credentials.Secret; s != nil {
			names.Insert(s.Namespace + "/" + s.Name)
		}
	}
	f.secrets.Store(&names)
}

// objects returns the Clusters, the oldest first.
func (f *Fleet) objects() []*v1alpha1.Cluster {
	var all []*v1alpha1.Cluster
	for _, object := range f.config.Clusters.GetStore().List() {
		all = append(all, object.(*v1alpha1.Cluster))
	}
	slices.SortFunc(all, func(a, b *v1alpha1.Cluster) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// member returns the member of an object. before is the member of the same name, or nil. A Cluster that cannot be used is a member
// too: clients would take a 404 for the absence of their objects.
func (f *Fleet) member(ctx context.Context, before *member, object *v1alpha1.Cluster) *member {
	m := &member{name: object.Name, object: object, apis: groupVersionsOf(object.Spec.APIServices), writer: newWriter(&object.Spec.Identity)}
	if before == nil || before.link == nil || !f.outlives(before, object) {
		before = &member{}
		m.link, m.invalid = f.connect(ctx, object)
	} else if m.link, m.invalid = before.link, before.invalid; !equality.Semantic.DeepEqual(before.object.Spec, object.Spec) {
		m.invalid = m.link.Update(serverOf(object), maxInFlight(object))
	}
	if m.invalid != nil {
		f.log.Error("the cluster cannot be used", zap.String("cluster", m.name), zap.Error(m.invalid))
	}
	m.limits = limits.New(object, before.limits, f.config.Metrics)
	if m.link == nil {
		return m
	}
	if m.credentials = f.versionOf(object.Spec.Credentials.Secret); m.credentials != "" && m.credentials == before.credentials {
		m.problem = before.problem // a new certificate would need new connections
	} else {
		m.problem = f.useCredentials(&m.link.credentials, object.Spec.Credentials.Secret)
	}
	if m.tokens, m.access = before.tokens, before.access; m.tokens == nil {
		mode := object.Spec.Identity.Mode
		m.tokens, m.access = identity.NewTokens(m.link, mode), identity.NewAccess(m.link, mode)
	}
	return m
}

// outlives reports whether the connection of a member is kept for a new version of its object. Requests in progress have the
// identity of a user in one mode, and must not be sent with the credentials of the other. In mode FrontProxy, a connection has one
// certificate and one set of API servers, which are known to trust it.
func (f *Fleet) outlives(m *member, object *v1alpha1.Cluster) bool {
	was, is := &m.object.Spec, &object.Spec
	if m.object.UID != object.UID || was.Identity.Mode != is.Identity.Mode || was.Server.Tunnel != is.Server.Tunnel {
		return false
	}
	return is.Identity.Mode != v1alpha1.FrontProxy || m.credentials == f.versionOf(is.Credentials.Secret) &&
		equality.Semantic.DeepEqual(was.Server, is.Server)
}

// versionOf returns the name and the version of a Secret, or "" if there is none.
func (f *Fleet) versionOf(ref *v1alpha1.SecretReference) string {
	if ref == nil {
		return ""
	}
	secret, err := f.config.SecretLister.Secrets(ref.Namespace).Get(ref.Name)
	if err != nil {
		return ""
	}
	return ref.Namespace + "/" + ref.Name + " " + secret.ResourceVersion
}

// refusal returns why requests cannot be sent to the cluster, or nil. ofToken is set for a request with a token of the cluster.
func (m *member) refusal(ctx context.Context, ofToken bool) error {
	switch {
	case m.invalid != nil:
		return fmt.Errorf("spec.server of Cluster %s cannot be used: %w", m.name, m.invalid)
	case ofToken:
		return nil
	case m.problem != nil:
		return fmt.Errorf("the credentials for cluster %s cannot be used: %w", m.name, m.problem)
	case m.object.Spec.Identity.Mode == v1alpha1.FrontProxy:
		return m.link.trust.check(ctx, m)
	}
	return nil
}

// newWriter returns the writer of the identity of users of the front door.
func newWriter(c *v1alpha1.ClusterIdentity) identity.Writer {
	if c.Mode == v1alpha1.FrontProxy {
		return identity.FrontProxy(identity.RulesOf(*c))
	}
	return identity.Impersonation(identity.RulesOf(*c))
}

// connect opens the connection to a cluster, which runs until ctx ends or it is stopped.
func (f *Fleet) connect(ctx context.Context, object *v1alpha1.Cluster) (*link, error) {
	l, t := &link{}, f.config.Transport
	var tunnel *egress.Selector
	var err error
	if name := object.Spec.Server.Tunnel; name != "" {
		if tunnel, err = f.config.Tunnel(name); err != nil {
			return nil, &tunnelError{name, err}
		}
		t.Tunnel = tunnel.Cluster()
	}
	l.credentials.frontProxy = object.Spec.Identity.Mode == v1alpha1.FrontProxy
	l.Cluster, err = cluster.New(cluster.Config{
		Name: object.Name, Server: serverOf(object), Credentials: &l.credentials, Identify: identify, Prefix: prefixOf,
		MaxInFlight: maxInFlight(object), Transport: t, Proxy: f.config.Proxy, Logger: f.log,
	})
	if err != nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	f.links.Go(func() { f.run(ctx, l, tunnel) })
	f.links.Go(func() { f.statuses.follow(ctx, object.Name, l) })
	return l, nil
}

// run runs a connection until ctx ends, and its tunnel, unless nil, a little longer.
func (f *Fleet) run(ctx context.Context, l *link, tunnel *egress.Selector) {
	var running sync.WaitGroup
	defer running.Wait()
	if tunnel != nil {
		through, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		running.Go(func() {
			if err := tunnel.Run(through, f.log); err != nil {
				f.log.Error("the files of a tunnel are not reloaded", zap.Error(err))
			}
		})
	}
	_ = l.Run(ctx) // it ends with ctx only
}

// tunnelError means that a tunnel cannot be used. Somebody may add its file.
type tunnelError struct {
	name string
	err  error
}

func (e *tunnelError) Error() string { return fmt.Sprintf("tunnel %q: %v", e.name, e.err) }
func (e *tunnelError) Unwrap() error { return e.err }

func serverOf(c *v1alpha1.Cluster) cluster.Server {
	s := &c.Spec.Server
	return cluster.Server{Endpoints: s.Endpoints, ServerName: s.ServerName, CABundle: s.CABundle, Insecure: s.InsecureSkipTLSVerify}
}

func maxInFlight(c *v1alpha1.Cluster) int {
	return int(ptr.Deref(c.Spec.Limits.MaxRequestsInFlight, 0))
}

// useCredentials makes a connection use the credentials in a Secret. The certificate with which the front door identifies itself to
// extension servers is never used: the author of a Cluster could send it to one of them.
func (f *Fleet) useCredentials(c *credentials, ref *v1alpha1.SecretReference) error {
	if ref == nil {
		return errors.New("spec.credentials.secret is missing")
	}
	secret, err := f.config.SecretLister.Secrets(ref.Namespace).Get(ref.Name)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(secret.Data[corev1.ServiceAccountTokenKey]))
	if c.frontProxy && token != "" { // all users would have the rights of the token
		return fmt.Errorf("secret %s/%s: mode FrontProxy requires a certificate, not a token", ref.Namespace, ref.Name)
	}
	if err := c.Use(token, secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return fmt.Errorf("secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return nil
}
