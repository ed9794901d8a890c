// Package metricsapi serves metrics.k8s.io, the resource usage of nodes and pods. Versions and output are identical to
// metrics-server's.
//
// The data come from a source, which keeps its latest Measurement in a Cache. Requests are served from the cache and never
// wait. There are three sources:
//
//   - HostSource measures the machine it runs on. Its values have the same meaning as a kubelet's, so that they can be
//     compared with metrics-server's. The machine is the node. Its pods are the pods of a kubelet, found by their
//     cgroups; otherwise the units of systemd and the containers of Docker; otherwise all processes, grouped by unit or
//     command. Items other than Kubernetes pods are shown as pods in a separate namespace.
//   - KubeletSource scrapes /metrics/resource of every node's kubelet, as metrics-server does. It sends its token to
//     the address in the status of a Node, which the node itself can write. The token is safe only because the server
//     at that address must present a certificate of the kubelets' CA. Insecure disables this protection.
//   - PrometheusSource queries a Prometheus server.
package metricsapi
