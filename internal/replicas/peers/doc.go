// Package peers lets a replica of the front door forward requests to other replicas: requests for a backend that only
// they reach, and requests for group-versions that only they serve (KEP-4020 describes the second for
// kube-apiserver).
//
// Each process generates a key and a certificate when it starts. It publishes the address at which it is reached and
// the fingerprint of the certificate under its lease in etcd (Description). A process that can write to etcd is
// trusted with everything else too, so that no further authority is needed, and nothing has to be configured or
// renewed. Connections between replicas use TLS, and both sides present these certificates; the server does so only
// for the name ServerName. The client checks that the server is a live replica. The server also accepts a replica
// until departedLife after its lease has ended.
//
// A replica that forwards a request has authenticated, authorized, audited and counted it. It identifies the user in
// a Statement that it signs with the key of its certificate. The Statement is valid for one method and target, for
// seconds. The receiving replica does not trust any other header about the user. It authorizes the request again,
// sends it to the backend or to its local groups, and never forwards it, so that a request is forwarded at most once.
//
// internal/dispatch decides which requests are forwarded (peers.go, remote.go, unrouted.go), from the verdicts that replicas
// publish (internal/apiservice, replicas.go).
package peers
