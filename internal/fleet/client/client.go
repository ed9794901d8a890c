// Package client contains the typed client and the informer of clusters.portico.dev.
package client

import (
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients/typedclient"
	"portico.dev/internal/fleet/v1alpha1"
)

var resource = v1alpha1.GroupVersion.WithResource("clusters")

// Clusters is a client of Clusters.
type Clusters = gentype.ClientWithList[*v1alpha1.Cluster, *v1alpha1.ClusterList]

// New returns a client of Clusters.
func New(config *rest.Config) (*Clusters, error) {
	return typedclient.New(config, resource, v1alpha1.AddToScheme,
		func() *v1alpha1.Cluster { return &v1alpha1.Cluster{} }, func() *v1alpha1.ClusterList { return &v1alpha1.ClusterList{} })
}

// NewInformer returns an informer of all Clusters.
func NewInformer(c *Clusters) cache.SharedIndexInformer {
	return typedclient.NewInformer(c, &v1alpha1.Cluster{})
}
