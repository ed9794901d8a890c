// Package hostmetrics measures the machine it runs on: CPU in cores over a real window, memory as working set.
//
// The numbers mean what a kubelet's mean, so that they may stand beside metrics-server's: CPU is time spent working
// divided by the time that passed between two readings, memory is what cannot be reclaimed at once.
//
// The machine is the node. Its pods are, by what is found on it: the pods of a kubelet, by their cgroups; else the
// units of systemd and the containers of Docker, by theirs; else all processes, by unit or by command. What is no pod
// of Kubernetes is shown as one in a namespace of its own.
package hostmetrics
