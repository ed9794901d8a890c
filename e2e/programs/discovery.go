package programs

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// CheckDiscovery returns an error if clients cannot see the resources of some group-versions in discovery, for
// example because an extension server has not responded since the start.
func CheckDiscovery(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make a discovery client: %w", err)
	}
	_, _, failed, err := client.GroupsAndMaybeResources()
	if err != nil {
		return fmt.Errorf("get discovery: %w", err)
	}
	if len(failed) > 0 {
		return fmt.Errorf("discovery is not complete: %v", failed)
	}
	return nil
}
