package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/fleet/limits"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/proxy"
)

// members are the clusters that are served now. They are replaced as a whole.
type members struct {
	byName, byHost map[string]*member
	secrets        sets.Set[string] // "namespace/name" of the credentials
}

// member is a cluster as its object describes it. It does not change.
type member struct {
	name   string
	object *v1alpha1.Cluster
	link   *link
	limits *limits.Limits
	writer identity.Writer
	tokens *identity.Tokens
	// credentials is the version of the Secret. problem is why it cannot be used, or nil.
	credentials string
	problem     error
}

// link is the connection to a cluster. It outlives changes of the object.
type link struct {
	*cluster.Cluster
	credentials credentials
	stop        func()
}

// credentials are those of the front door in a cluster.
type credentials struct {
	cluster.StaticCredentials
	frontProxy atomic.Bool // requests of the front door itself need a user
}

// Apply implements cluster.Credentials.
func (c *credentials) Apply(ctx context.Context, header http.Header) error {
	if err := c.StaticCredentials.Apply(ctx, header); err != nil {
		return err
	}
	if !c.frontProxy.Load() || len(header[proxy.RequestHeaders.User]) > 0 { // package identity asks as other users
		return nil
	}
	return identity.WriteOwn(header)
}

// sync makes members of all Clusters. Connections run until ctx ends or they are not needed any more.
func (f *Fleet) sync(ctx context.Context) {
	before := f.members.Load()
	now := &members{byName: map[string]*member{}, byHost: map[string]*member{}, secrets: sets.New[string]()}
	objects := f.objects()
	for _, object := range objects {
		if s := object.Spec.Credentials.Secret; s != nil {
			now.secrets.Insert(s.Namespace + "/" + s.Name)
		}
		m, err := f.member(ctx, before.byName[object.Name], object)
		if err != nil {
			f.log.Error("the cluster cannot be served", zap.String("cluster", object.Name), zap.Error(err))
			continue
		}
		now.byName[m.name] = m
		for _, host := range object.Spec.Hosts {
			if now.byHost[host] == nil { // the oldest Cluster has it
				now.byHost[host] = m
			}
		}
	}
	f.members.Store(now)
	for name, old := range before.byName {
		if now.byName[name] == nil {
			old.link.stop()
			f.config.Metrics.Forget(name)
		}
	}
}

// objects returns the Clusters, the oldest first.
func (f *Fleet) objects() []*v1alpha1.Cluster {
	var all []*v1alpha1.Cluster
	for _, object := range f.config.Clusters.GetStore().List() {
		all = append(all, object.(*v1alpha1.Cluster))
	}
	slices.SortFunc(all, func(a, b *v1alpha1.Cluster) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return all
}

// member returns the member of an object. before is the member of the same name, or nil.
func (f *Fleet) member(ctx context.Context, before *member, object *v1alpha1.Cluster) (*member, error) {
	m := &member{name: object.Name, object: object, writer: newWriter(&object.Spec.Identity)}
	if before == nil {
		var err error
		if m.link, err = f.connect(ctx, object); err != nil {
			return nil, err
		}
		before = &member{}
	} else if m.link = before.link; !equality.Semantic.DeepEqual(before.object.Spec, object.Spec) {
		if err := m.link.Update(serverOf(object), maxInFlight(object)); err != nil {
			return nil, err
		}
	}
	mode := object.Spec.Identity.Mode
	m.link.credentials.frontProxy.Store(mode == v1alpha1.FrontProxy)
	m.credentials, m.problem = f.useCredentials(&m.link.credentials, object.Spec.Credentials.Secret, before.credentials)
	if m.tokens = before.tokens; m.tokens == nil || before.object.Spec.Identity.Mode != mode {
		m.tokens = identity.NewTokens(m.link, mode)
	}
	m.limits = limits.New(object, before.limits, f.config.Metrics)
	return m, nil
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
	l := &link{}
	var err error
	l.Cluster, err = cluster.New(cluster.Config{
		Name: object.Name, Server: serverOf(object), Credentials: &l.credentials, Identify: identify, Prefix: prefixOf,
		MaxInFlight: maxInFlight(object), Transport: f.config.Transport, Proxy: f.config.Proxy, Logger: f.log,
	})
	if err != nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	f.links.Go(func() { _ = l.Run(ctx) }) // it ends with ctx only
	f.links.Go(func() { f.statuses.follow(ctx, object.Name, l) })
	return l, nil
}

func serverOf(c *v1alpha1.Cluster) cluster.Server {
	s := &c.Spec.Server
	return cluster.Server{Endpoints: s.Endpoints, ServerName: s.ServerName, CABundle: s.CABundle, Insecure: s.InsecureSkipTLSVerify}
}

func maxInFlight(c *v1alpha1.Cluster) int {
	return int(ptr.Deref(c.Spec.Limits.MaxRequestsInFlight, 0))
}

// useCredentials makes a connection use the credentials in a Secret, or the certificate of the front door if ref is nil. used is the
// version of the Secret that it uses. It returns the new version.
func (f *Fleet) useCredentials(c *credentials, ref *v1alpha1.SecretReference, used string) (version string, err error) {
	if ref == nil {
		c.UseCertificate(f.config.Certificate)
		return "", nil
	}
	secret, err := f.config.SecretLister.Secrets(ref.Namespace).Get(ref.Name)
	if err != nil {
		return "", err
	}
	if used == secret.ResourceVersion {
		return used, nil // a new certificate would need new connections
	}
	token := strings.TrimSpace(string(secret.Data[corev1.ServiceAccountTokenKey]))
	if err := c.Use(token, secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return "", fmt.Errorf("secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return secret.ResourceVersion, nil
}
