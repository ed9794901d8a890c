// Package clusters compares the cost of a request to an existing cluster: directly, through proxies that only forward it, and
// through a front door with a Cluster. It also measures how a front door and a TCP load balancer use an API server that was
// restarted.
package clusters
