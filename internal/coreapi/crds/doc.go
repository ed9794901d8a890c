// Package crds is custom resources: their definitions, and the group-versions that those define.
//
// The REST machinery is k8s.io/apiextensions-apiserver's handler and its controllers: structural schemas, pruning,
// defaulting, CEL, conversion, conditions and finalization are upstream's to the letter. The server around them is not
// used. It would bring a second generic API server with hooks ordered by channels, one of which ends the process when a
// stop comes at the wrong moment, and documents that are built whether or not anybody asks.
//
// What is ours is what the front door needs to know: which group-versions are served now (Served), what they look like
// (Documents), and when either changed (Config.Changed).
package crds
