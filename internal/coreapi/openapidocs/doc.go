// Package openapidocs contains the OpenAPI documents of the local groups, prepared by go generate: one of version 3 for each
// group-version, and one of version 2 for all that are on by default. Group-versions that are off by default have their own documents
// of version 2, and are not mentioned in those of other group-versions.
//
// The local groups are fixed, so their documents are too. Building the documents at startup takes 50 ms and 20 MiB, and the
// first request for the index, which contains the hash of every document, another 140 ms and 60 MiB. Here the documents are
// compressed bytes in the binary, and their hashes are constants.
//
// The generator briefly runs the local groups with a temporary etcd, reads their discovery, and describes it: a resource that
// is added to coreapi appears here after the next go generate.
package openapidocs

//go:generate go run ./gen
