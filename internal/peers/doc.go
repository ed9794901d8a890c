// Package peers lets a replica of the front door hand requests to others: those for a backend that only they reach, and those
// for group-versions that only they serve (KEP-4020 has the second of these for kube-apiserver).
//
// Each process makes a key and a certificate of its own when it starts, and publishes the address at which it is reached and the
// fingerprint of the certificate, under its lease in etcd (Description). Who can write there is believed about everything else
// too, so there is no further authority, and nothing to configure or to renew. A connection between replicas is TLS in which both
// sides show these certificates; the server does for the name ServerName alone, and both check that the other's is that of a
// replica which lives.
//
// A replica that hands a request on has authenticated, authorized, audited and counted it. It says whose it is in a Statement
// that it signs with the key of its certificate: valid for one method and target, for seconds. The other one believes no other
// header about that. It authorizes the request again, sends it to the backend or to its local groups, and never hands it on, so
// that there is one hop at the most.
package peers
