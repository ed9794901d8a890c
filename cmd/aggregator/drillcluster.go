package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/tools/toolclient"
)

const (
	// clusterName is the name of the Cluster that startCluster registers, and of the Secret with its credentials.
	clusterName  = "started"
	clustersPath = "/apis/clusters.portico.dev/v1alpha1/clusters"
	secretsPath  = "/api/v1/namespaces/default/secrets"
)

// startCluster starts another front door as the API server of a cluster, and registers it with its administrator's certificate.
func (f *ownFront) startCluster(ctx context.Context) (name string, stop func() error, err error) {
	c := &ownFront{config: f.config, log: f.log}
	c.config.DataDir, c.config.SecurePort, c.config.EtcdUnixSocket = f.config.DataDir+"-cluster", 0, f.config.DataDir+"-cluster.etcd"
	stop = func() error {
		return errors.Join(f.unregister(context.WithoutCancel(ctx)), c.close(), os.RemoveAll(c.config.DataDir))
	}
	t, err := c.target(ctx)
	if err == nil {
		err = f.register(ctx, t.Config)
	}
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return clusterName, stop, nil
}

// register makes this front door serve the API server of a configuration as a Cluster.
func (f *ownFront) register(ctx context.Context, server *rest.Config) error {
	at, err := url.Parse(server.Host)
	if err != nil {
		return err
	}
	if err := rest.LoadTLSFiles(server); err != nil {
		return err
	}
	secret := corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Data: map[string][]byte{corev1.TLSCertKey: server.CertData, corev1.TLSPrivateKeyKey: server.KeyData},
	}
	cluster := v1alpha1.Cluster{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}, ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: v1alpha1.ClusterSpec{
			Server:      v1alpha1.ClusterServer{Endpoints: []string{at.Host}, CABundle: server.CAData, ServerName: at.Hostname()},
			Credentials: v1alpha1.ClusterCredentials{Secret: &v1alpha1.SecretReference{Namespace: metav1.NamespaceDefault, Name: clusterName}},
		},
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	for path, object := range map[string]any{secretsPath: secret, clustersPath: cluster} {
		body, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if err := client.Post().AbsPath(path).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Error(); err != nil {
			return fmt.Errorf("create in %s: %w", path, err)
		}
	}
	return nil
}

// unregister deletes the objects of register.
func (f *ownFront) unregister(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	client, err := f.client()
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range []string{clustersPath, secretsPath} {
		if err := client.Delete().AbsPath(path + "/" + clusterName).Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// client returns a client of the administrator.
func (f *ownFront) client() (rest.Interface, error) {
	config, err := f.admin()
	if err != nil {
		return nil, err
	}
	client, err := toolclient.New(config)
	if err != nil {
		return nil, err
	}
	return client.REST(), nil
}
