// Package kubelet tests the commands of kubectl that use kubelets. It runs kwok's kubelet, which simulates a Node and a Pod, and
// runs real commands.
package kubelet
