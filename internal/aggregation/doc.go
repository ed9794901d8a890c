// Package aggregation assembles the parts that the front door and the gateway have in common: connections to
// backends, the routing table, the merged documents, the proxy, the handlers of group-versions, and the chain before
// them. Each program passes the parts that only it has.
package aggregation
