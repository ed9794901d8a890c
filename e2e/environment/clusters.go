package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/e2e/programs"
	"portico.dev/internal/fleet"
	"portico.dev/internal/fleet/v1alpha1"
)

// ClustersFlag is the flag of a front door that RegisterCluster needs.
const ClustersFlag = "--runtime-config=clusters.portico.dev/v1alpha1=true"

// clusterMaxInFlight is maxInFlight for a cluster.
const clusterMaxInFlight = 1000

// ClusterPath returns the path of a cluster at a front door.
func ClusterPath(name string) string { return fleet.PathPrefix + name }

// RegisterCluster creates a Cluster whose API servers are backends, and permits alice to read there. The front door sends users in
// impersonation headers over connections with a client certificate. It waits until all backends are ready and alice can read. Grant
// has been called before.
func (d *FrontDoor) RegisterCluster(ctx context.Context, name string, backends ...*Server) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{
		corev1.TLSCertKey: d.y.orders.Client.Certificate, corev1.TLSPrivateKeyKey: d.y.orders.Client.Key,
	}}
	if _, err := d.Client.CoreV1().Secrets(Namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the Secret: %w", err)
	}
	if err := d.permitCluster(ctx, name); err != nil {
		return err
	}
	cluster := &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClusterSpec{
			Server:      v1alpha1.ClusterServer{CABundle: d.y.ca.PEM(), ServerName: d.y.orders.BackendServerName},
			Credentials: v1alpha1.ClusterCredentials{Secret: &v1alpha1.SecretReference{Namespace: Namespace, Name: name}},
			Identity:    v1alpha1.ClusterIdentity{Mode: v1alpha1.Impersonate},
			Limits:      v1alpha1.ClusterLimits{MaxRequestsInFlight: ptr.To[int32](clusterMaxInFlight)},
		},
	}
	for _, b := range backends {
		cluster.Spec.Server.Endpoints = append(cluster.Spec.Server.Endpoints, b.Address)
	}
	body, err := json.Marshal(cluster)
	if err != nil {
		return err
	}
	path, client := "/apis/"+v1alpha1.GroupVersion.String()+"/clusters", d.Client.Discovery().RESTClient()
	if err := client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create the Cluster: %w", err)
	}
	return d.awaitCluster(ctx, path+"/"+name, name)
}

// permitCluster permits alice to read in a cluster.
func (d *FrontDoor) permitCluster(ctx context.Context, name string) error {
	meta := metav1.ObjectMeta{Name: "cluster-" + name}
	_, err := d.Client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get", "list"}, APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{name},
	}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the role: %w", err)
	}
	_, err = d.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind the role: %w", err)
	}
	return nil
}

// awaitCluster waits until all API servers of a Cluster are ready, and alice can read.
func (d *FrontDoor) awaitCluster(ctx context.Context, path, name string) error {
	alice, err := NewClient(d.Server, true)
	if err != nil {
		return err
	}
	defer alice.CloseIdleConnections()
	read := Ask{Method: http.MethodGet, Path: ClusterPath(name) + Path(0) + "/small", Token: UserToken}
	return programs.Poll(d.exited, func() error {
		data, err := d.Client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return err
		}
		var cluster v1alpha1.Cluster
		if err := json.Unmarshal(data, &cluster); err != nil {
			return err
		}
		if len(cluster.Status.Endpoints) == 0 {
			return errors.New("the status of the Cluster has no endpoints")
		}
		for _, e := range cluster.Status.Endpoints {
			if !e.Ready {
				return fmt.Errorf("%s of the Cluster is not ready: %s", e.Address, e.Message)
			}
		}
		return Send(ctx, d.Server, read, "", alice)
	})
}

// RestartableBackend is a backend that can be stopped, and started again at the same address.
type RestartableBackend struct {
	*Server
	y     *Environment
	child *Child // nil while it is stopped
}

// RestartableBackend starts a backend.
func (y *Environment) RestartableBackend() (*RestartableBackend, error) {
	b := &RestartableBackend{y: y}
	y.ends = append(y.ends, b.Stop)
	return b, b.start("")
}

// Stop ends the process of the backend, and with it its connections.
func (b *RestartableBackend) Stop() error {
	if b.child == nil {
		return nil
	}
	child := b.child
	b.child = nil
	return child.Stop()
}

// Start starts the backend again. Its counts begin at zero.
func (b *RestartableBackend) Start() error { return b.start(b.Address) }

func (b *RestartableBackend) start(address string) (err error) {
	orders := b.y.orders
	orders.Listen = address
	if b.child, err = Spawn("backend", orders); err != nil {
		return err
	}
	b.Server = b.y.serverOf("backend", b.child)
	return nil
}
