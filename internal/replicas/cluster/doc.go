// Package cluster lets a front door join a cluster of front doors with an embedded etcd. It contains join tokens, and
// the transfer of the keys and settings that all members share.
//
// # Trust
//
// A join token contains the hash of the public key of the cluster's CA, an ID, and a secret of 256 bits. A joining
// front door trusts only a server with a certificate for [ServerName] that this CA has signed. It does not depend on
// the certificate authorities of the machine, on addresses, or on DNS. The server trusts a client with the secret of
// a token that has not expired. It stores only hashes of secrets, so that a reader of etcd, or of a backup of it,
// cannot join.
//
// # Encryption
//
// With the transferred keys, a front door can act as any user. They are sent over TLS to the holder of the secret,
// and are also encrypted with a key that is derived from that secret and a random number of the joining front door.
// Therefore a proxy that terminates TLS cannot read them, and the response to another request, or of another time, is
// refused.
//
// # Limits
//
// Requests are read up to [maxRequest], served for a few clients at a time, and limited for each address (limit.go).
package cluster
