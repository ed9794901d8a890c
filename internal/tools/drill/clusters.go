package drill

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/drill/faulty"
	"portico.dev/internal/tools/toolclient"
)

const (
	// apiServers is how many API servers the subject has.
	apiServers = 3
	// clustersPath is the path of Clusters.
	clustersPath = "/apis/clusters.portico.dev/v1alpha1/clusters"
	// credentialsName is the name of the copy of the Secret of a Cluster.
	credentialsName = "credentials"
)

// clusters is the setting of drills about Clusters. The subject and the bystander are copies of an existing Cluster whose
// endpoints are relays to its API servers, so that only the path of the drill to them fails.
type clusters struct {
	*Stage
	spec        v1alpha1.ClusterSpec // of the existing Cluster
	credentials corev1.Secret
	relays      []*relay // of the subject
	otherRelay  *relay   // of the bystander
	created     []string // namespaces in the cluster
}

// newClusters makes the relays, which do not listen yet.
func newClusters(ctx context.Context, s *Stage) (setting, error) {
	c := &clusters{Stage: s}
	existing, err := s.target.cluster(ctx)
	if err != nil {
		return nil, err
	}
	c.spec = existing.Spec
	ref := c.spec.Credentials.Secret
	if ref == nil {
		return nil, fmt.Errorf("the Cluster %s has no credentials", existing.Name)
	}
	if err := s.get(ctx, secretsPath(ref.Namespace)+"/"+ref.Name, &c.credentials); err != nil {
		return nil, fmt.Errorf("read the credentials of Cluster %s: %w", existing.Name, err)
	}
	if s.subject, c.relays, err = c.actor(Subject, s.Namespace, apiServers); err != nil {
		return nil, err
	}
	bystander, others, err := c.actor(OtherCluster, s.Namespace+"-other", 1)
	if err != nil {
		return nil, err
	}
	s.bystander, c.otherRelay = bystander, others[0]
	s.record.history.Registration = s.subject.cluster
	return c, nil
}

func secretsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/secrets" }

// actor returns a Cluster with n relays. If the existing Cluster has fewer endpoints, several relays lead to the same one.
func (s *clusters) actor(who, name string, n int) (*actor, []*relay, error) {
	a, relays := &actor{component: component{who: who, cluster: name, stores: true}}, make([]*relay, n)
	for i := range relays {
		endpoint := s.spec.Server.Endpoints[i%len(s.spec.Server.Endpoints)]
		made, err := newRelay(endpoint, cmp.Or(s.target.Bind, "127.0.0.1"), &s.spec.Server, &s.credentials)
		if err != nil {
			return nil, nil, fmt.Errorf("relay to %s: %w", endpoint, err)
		}
		if relays[i] = made; i == 0 {
			a.Server = made.server
		} else {
			a.replicas = append(a.replicas, made.server)
		}
	}
	return a, relays, nil
}

// serverName returns the name in the serving certificates of the API servers.
func serverName(s *v1alpha1.ClusterServer) string {
	return cmp.Or(s.ServerName, "kubernetes.default.svc")
}

// setUp implements setting.
func (s *clusters) setUp(ctx context.Context) error {
	secret := corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: credentialsName, Labels: s.labels()}, Data: s.credentials.Data,
	}
	if err := s.createJSON(ctx, secretsPath(s.Namespace), secret); err != nil {
		return err
	}
	for _, a := range s.actors() {
		if err := s.createJSON(ctx, clustersPath, s.copyOf(a)); err != nil {
			return err
		}
	}
	for _, a := range s.actors() {
		if err := s.awaitCluster(ctx, a); err != nil {
			return err
		}
		s.created = append(s.created, a.cluster) // even if the response is lost
		namespace := corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: a.cluster, Labels: s.labels()},
		}
		if err := s.createJSON(ctx, a.path()+"/api/v1/namespaces", namespace); err != nil {
			return err
		}
		if err := s.createObject(ctx, a, s.Namespace, "kept"); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) createJSON(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return s.create(ctx, path, string(body))
}

// copyOf returns the Cluster of an actor. The administrators of the front door are administrators there, as the right to
// create it is the right to use its credentials.
func (s *clusters) copyOf(a *actor) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: a.cluster, Labels: s.labels()},
		Spec: v1alpha1.ClusterSpec{
			Server:      v1alpha1.ClusterServer{ServerName: relayName},
			Credentials: v1alpha1.ClusterCredentials{Secret: &v1alpha1.SecretReference{Namespace: s.Namespace, Name: credentialsName}},
			Identity:    s.spec.Identity,
		},
	}
	for _, server := range a.servers() {
		c.Spec.Server.Endpoints = append(c.Spec.Server.Endpoints, s.endpointOf(server))
		c.Spec.Server.CABundle = append(c.Spec.Server.CABundle, server.CABundle()...)
	}
	if groups := c.Spec.Identity.SystemGroups; !slices.Contains(groups, pki.AdminGroup) {
		c.Spec.Identity.SystemGroups = append(slices.Clone(groups), pki.AdminGroup)
	}
	return c
}

// endpointOf returns the address of a relay, which must listen.
func (s *clusters) endpointOf(relay *faulty.Server) string {
	return net.JoinHostPort(cmp.Or(s.target.Advertise, "127.0.0.1"), strconv.Itoa(int(relay.Port())))
}

// awaitCluster waits until all API servers of a Cluster are ready and requests reach them.
func (s *clusters) awaitCluster(ctx context.Context, a *actor) error {
	var why string
	took, served, err := s.until(ctx, openWithin, func(ctx context.Context) bool {
		var seen v1alpha1.Cluster
		if err := s.get(ctx, clustersPath+"/"+a.cluster, &seen); err != nil {
			why = err.Error()
			return false
		}
		for _, name := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionPermitted} {
			if c := meta.FindStatusCondition(seen.Status.Conditions, name); c == nil || c.Status != metav1.ConditionTrue {
				why = name + " is not True"
				if c != nil {
					why += ": " + c.Message
				}
				return false
			}
		}
		if slices.ContainsFunc(seen.Status.Endpoints, func(e v1alpha1.EndpointStatus) bool { return !e.Ready }) {
			why = "not all API servers are ready"
			return false
		}
		if err := s.get(ctx, a.path()+"/api/v1/namespaces?limit=1", &struct{}{}); err != nil {
			why = "a list of namespaces: " + err.Error()
			return false
		}
		return true
	})
	if err == nil && !served {
		err = fmt.Errorf("the front door did not serve Cluster %s within %s: %s; can it reach this process? see --advertise-address",
			a.cluster, took.Round(time.Second), why)
	}
	return err
}

// clients implements setting.
func (s *clusters) clients() []func(context.Context, int) {
	document := func(path, accept string) func(context.Context, int) {
		c := call{who: Documents, verb: "get", method: http.MethodGet, path: s.subject.path() + path, accept: accept, saw: sourceOf}
		return func(ctx context.Context, _ int) { s.traffic.send(ctx, c) }
	}
	return append(s.Stage.clients(), document("/apis", discoveryType), document("/openapi/v3", jsonType))
}

// Sources of a document of a cluster.
const (
	fromMemory    = "from memory"
	fromAPIServer = "from an API server"
)

func sourceOf(header http.Header, _ []byte) string {
	if strings.Contains(strings.Join(header.Values("Warning"), ","), "does not answer") {
		return fromMemory
	}
	return fromAPIServer
}

// available implements setting.
func (s *clusters) available(ctx context.Context) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	asked := time.Now()
	var seen v1alpha1.Cluster
	if err := s.get(ctx, clustersPath+"/"+s.subject.cluster, &seen); err != nil {
		return Observation{}, err
	}
	c := meta.FindStatusCondition(seen.Status.Conditions, v1alpha1.ConditionAvailable)
	if c == nil {
		return Observation{}, errNoCondition
	}
	return Observation{At: asked, Status: string(c.Status), Reason: c.Reason, Message: c.Message}, nil
}

// unregister implements setting.
func (s *clusters) unregister(ctx context.Context) (left []string) {
	for _, r := range s.relays {
		r.phase.Store(running)
	}
	for _, name := range s.created {
		path := component{cluster: name}.path() + "/api/v1/namespaces/" + name
		if err := s.deleteUntilGone(ctx, path); err != nil {
			left = append(left, fmt.Sprintf("namespace %s in the cluster %s: %v", name, s.target.Cluster, err))
		}
	}
	for _, a := range s.actors() {
		if err := s.deleteUntilGone(ctx, clustersPath+"/"+a.cluster); err != nil {
			left = append(left, fmt.Sprintf("cluster %s: %v", a.cluster, err))
		}
	}
	for _, r := range append(s.relays, s.otherRelay) {
		r.close()
	}
	return left
}

// deleteUntilGone deletes an object and waits until it is gone.
func (s *Stage) deleteUntilGone(ctx context.Context, path string) error {
	var last error
	took, gone, err := s.until(ctx, removeFinalizers, func(ctx context.Context) bool {
		last = s.client.REST().Delete().AbsPath(path).Do(ctx).Error()
		return apierrors.IsNotFound(last)
	})
	switch {
	case err != nil || gone:
		return err
	case last != nil:
		return last
	}
	return fmt.Errorf("it was still there after %s", took.Round(time.Second))
}

// refusesClusters returns the reason why the target has no Cluster for a drill, or an empty string.
func (t Target) refusesClusters(ctx context.Context) string {
	switch {
	case t.Gateway != nil || t.APIRoute:
		return "it is about the API servers of a Cluster, not about an extension server"
	case t.Cluster == "" && t.StartCluster == nil:
		return "it needs a Cluster of the front door, whose API servers it relays to: name one with --cluster"
	case t.Cluster == "":
		return ""
	}
	found, err := t.cluster(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the front door has no Cluster %s, or does not serve %s", t.Cluster, v1alpha1.GroupVersion)
	case err != nil:
		return fmt.Sprintf("read the Cluster %s: %v", t.Cluster, err)
	case len(found.Spec.Server.Endpoints) == 0:
		return fmt.Sprintf("the Cluster %s has no endpoints", t.Cluster)
	case found.Spec.Maintenance != nil:
		return fmt.Sprintf("the Cluster %s is in maintenance", t.Cluster)
	}
	return ""
}

// cluster reads the existing Cluster.
func (t Target) cluster(ctx context.Context) (*v1alpha1.Cluster, error) {
	client, err := toolclient.New(t.Config)
	if err != nil {
		return nil, err
	}
	body, err := client.REST().Get().AbsPath(clustersPath+"/"+t.Cluster).SetHeader("Accept", jsonType).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	found := &v1alpha1.Cluster{}
	return found, json.Unmarshal(body, found)
}
