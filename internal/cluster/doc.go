// Package cluster is how a front door joins others whose etcd is embedded: join tokens, and the hand-over of what all of them share.
//
// # What is trusted
//
// A join token has the hash of the public key of the cluster's CA, an ID, and a secret of 256 bits. Who joins believes the server that shows a
// certificate for [ServerName] signed by that CA, and no other: no certificate authority of the machine, no address, no DNS. The server believes
// whoever knows the secret of a token that has not expired. It stores hashes of secrets, so that who reads etcd, or a backup of it, cannot join.
//
// # What is checked twice
//
// What is handed over is the keys with which a front door can act as any user. They are sent over TLS to the holder of the secret, and encrypted
// once more by a key that is derived from that secret and a random number of the one who joins. So whatever ends TLS in between cannot read them,
// and the answer to another request, or of another time, is refused.
//
// # What is bounded
//
// Requests are read up to [maxRequest], answered for a few clients at a time, and limited for each address (limit.go).
package cluster
