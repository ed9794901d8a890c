// Package metricsapi serves metrics.k8s.io: what nodes and pods use, in the two versions and the exact shape that
// metrics-server gives.
//
// The numbers come from a Source, which keeps its latest Measurement in a Cache; a request reads the cache and waits for
// nobody. There are three:
//
//   - HostSource measures the machine it runs on. Its numbers mean what a kubelet's mean, so that they may stand beside
//     metrics-server's. The machine is the node; its pods are those of a kubelet, by their cgroups, else the units of
//     systemd and the containers of Docker, else all processes, by unit or by command. What is no pod of Kubernetes is
//     shown as one in a namespace of its own.
//   - KubeletSource reads every node's kubelet at /metrics/resource, as metrics-server does. The token that is sent goes
//     to whatever address a Node's status names, and a node may write its own status. What keeps the token from a stranger
//     is that the address must prove itself with a certificate of the kubelets' CA: that is what Insecure gives up.
//   - PrometheusSource queries a Prometheus server.
package metricsapi
