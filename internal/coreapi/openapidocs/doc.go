// Package openapidocs holds the OpenAPI documents of the local groups, made when the program is built: one of version 3
// for each group-version, and one of version 2 for all.
//
// What the local groups serve is fixed, so what describes them is too. Building the documents at start costs 50 ms and
// 20 MiB, and the first client that asks for the index, for which every document must be hashed, another 140 ms and
// 60 MiB. Here they are bytes in the binary, compressed, and their hashes are constants.
//
// The generator runs the local groups on an etcd of its own for a moment, asks them what they serve, and describes that:
// a resource that is added to coreapi is described here after the next go generate, and not before.
package openapidocs

//go:generate go run ./gen
