package clusters

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
	"portico.dev/internal/fleet/v1alpha1"
)

func clusterResource() registry.Resource {
	return registry.Resource{
		Name: "clusters", Singular: "cluster", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &v1alpha1.Cluster{}, List: &v1alpha1.ClusterList{},
		Samples: []string{
			"metadata: {name: berlin}\n" +
				"spec: {server: {endpoints: [\"192.0.2.1:6443\"], serverName: api.example.com}}",
			"metadata: {name: berlin}\n" +
				"spec:\n" +
				"  hosts: [berlin.example.com]\n" +
				"  server: {endpoints: [\"api-1.example.com:6443\", \"[2001:db8::1]:6443\"], serverName: api.example.com}\n" +
				"  credentials: {secret: {namespace: ns, name: s}}\n" +
				"  identity: {mode: FrontProxy, userPrefix: \"front:\", groupPrefix: \"front:\", tokens: None}\n" +
				"  apiServices: [v1beta1.metrics.k8s.io]\n" +
				"  limits:\n" +
				"    maxRequestsInFlight: 10\n" +
				"    rates: [{name: lists, requestsPerSecond: 1, verbs: [list], resources: [pods, pods/exec, deployments.apps]}]\n" +
				"  maintenance: {mode: ReadOnly, message: an upgrade, exemptGroups: [operators]}\n" +
				"  shared: [{resources: [pods, deployments.apps], maxAge: 2s, staleIfError: 1m, watches: true}]",
		},
		Rules:    validate.WithStatus(validateCluster, validateClusterUpdate, validateClusterStatus),
		Defaults: defaults.Of(defaultCluster),
		Warnings: validate.Warn(warningsOfCluster),
		Columns:  clusterColumns,
		// Kubernetes does not have this kind. The directory is the one for custom resources.
		Directory: v1alpha1.GroupVersion.Group + "/clusters", WatchCache: true, Generations: true,
		Spec:   registry.SpecOf(func(c *v1alpha1.Cluster) *v1alpha1.ClusterSpec { return &c.Spec }),
		Status: registry.StatusOf(func(c *v1alpha1.Cluster) *v1alpha1.ClusterStatus { return &c.Status }),
		Warn:   warnCluster, Authorize: authorizeSecret,
	}
}

func clusterColumns() columns.Printer {
	return columns.Show(func(c *v1alpha1.Cluster, now time.Time) []any {
		return []any{
			c.Name, fmt.Sprintf("%d/%d", readyEndpoints(c), len(c.Spec.Server.Endpoints)),
			columns.Condition(c.Status.Conditions, v1alpha1.ConditionAvailable), c.Status.Version, columns.AgeOf(c, now),
			strings.Join(c.Spec.Hosts, ","),
		}
	}, columns.Name(), columns.Text("Endpoints", "How many of the API servers are ready"),
		columns.Text("Available", "Whether an API server of the cluster is ready, and why not"),
		columns.Text("Version", "The version of an API server of the cluster"), columns.Age(),
		columns.Wide(columns.Text("Hosts", "The host names of the front door by which clients reach the cluster")))
}

// readyEndpoints returns the number of endpoints in the spec that are ready. The status may still contain removed ones.
func readyEndpoints(c *v1alpha1.Cluster) int {
	n := 0
	for _, e := range c.Status.Endpoints {
		if e.Ready && slices.Contains(c.Spec.Server.Endpoints, e.Address) {
			n++
		}
	}
	return n
}

// defaultServerName is in the certificates of all API servers that kubeadm and most other installers make.
const defaultServerName = "kubernetes.default.svc"

func defaultCluster(c *v1alpha1.Cluster) {
	defaults.Set(&c.Spec.Server.ServerName, defaultServerName)
	defaults.Set(&c.Spec.Identity.Mode, v1alpha1.Impersonate)
	defaults.Set(&c.Spec.Identity.Tokens, v1alpha1.ServiceAccountTokens)
	defaults.Point(&c.Spec.Limits.MaxRequestsInFlight, 400)
	for i := range c.Spec.Limits.Rates {
		r := &c.Spec.Limits.Rates[i]
		defaults.Point(&r.Burst, r.RequestsPerSecond)
	}
}

func warningsOfCluster(c *v1alpha1.Cluster) []string {
	var warnings []string
	switch s := &c.Spec.Server; {
	case s.InsecureSkipTLSVerify:
		warnings = append(warnings, "spec.server.insecureSkipTLSVerify: any server at the addresses receives the credentials and all requests; use caBundle")
	case len(s.CABundle) == 0 && s.ServerName == defaultServerName:
		warnings = append(warnings, "spec.server.caBundle is empty: no authority that the system trusts signs certificates for "+
			defaultServerName+", so no connection will succeed")
	}
	for _, g := range c.Spec.Identity.SystemGroups {
		rights := "the rights of " + g
		if g == user.SystemPrivilegedGroup {
			rights = "all rights"
		}
		warnings = append(warnings, fmt.Sprintf("spec.identity.systemGroups: members of %s at the front door have %s in the cluster", g, rights))
	}
	return warnings
}

// authorizeSecret refuses a Cluster if its author may not read the Secret, because its endpoints receive the content. Updates that change
// neither are not refused.
func authorizeSecret(ctx context.Context, e *registry.Environment, obj, old runtime.Object) *field.Error {
	c := obj.(*v1alpha1.Cluster)
	s := c.Spec.Credentials.Secret
	before, _ := old.(*v1alpha1.Cluster)
	switch {
	case s == nil, before != nil && reflect.DeepEqual(before.Spec.Credentials, c.Spec.Credentials) && reflect.DeepEqual(before.Spec.Server, c.Spec.Server):
		return nil
	case e.Allowed(ctx, "get", authorizer.AttributesRecord{Resource: "secrets", Namespace: s.Namespace, Name: s.Name}):
		return nil
	}
	return field.Forbidden(field.NewPath("spec", "credentials", "secret"),
		fmt.Sprintf("you need the right to get Secret %s/%s, because the endpoints receive its content", s.Namespace, s.Name))
}

// warnCluster warns about a Secret that does not exist, and about host names of other Clusters.
func warnCluster(ctx context.Context, e *registry.Environment, obj runtime.Object) []string {
	c := obj.(*v1alpha1.Cluster)
	var warnings []string
	if s := c.Spec.Credentials.Secret; s != nil {
		_, err := e.Storage(corev1.Resource("secrets")).Get(registry.ReadContext(ctx, "", "secrets", s.Namespace, s.Name), s.Name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			warnings = append(warnings, fmt.Sprintf("spec.credentials.secret: Secret %s/%s does not exist: requests to the cluster fail until it does", s.Namespace, s.Name))
		}
	}
	if len(c.Spec.Hosts) == 0 {
		return warnings
	}
	clusters := v1alpha1.Resource("clusters")
	all, err := e.Storage(clusters).List(registry.ReadContext(ctx, clusters.Group, clusters.Resource, "", ""), &metainternalversion.ListOptions{ResourceVersion: "0"})
	list, ok := all.(*v1alpha1.ClusterList)
	if err != nil || !ok {
		return warnings
	}
	for _, other := range list.Items {
		for _, host := range other.Spec.Hosts {
			if other.Name != c.Name && slices.Contains(c.Spec.Hosts, host) {
				warnings = append(warnings, fmt.Sprintf("spec.hosts: Cluster %s has the host name %s too: requests for it go to one of the two", other.Name, host))
			}
		}
	}
	return warnings
}
