// Package crds serves custom resource definitions and the custom resources that they define.
//
// It uses k8s.io/apiextensions-apiserver's handler and controllers: structural schemas, pruning, defaulting, CEL, conversion,
// conditions and finalization are upstream's. It does not use upstream's server, which would add a second generic API server
// with hooks ordered by channels, one of which terminates the process if a stop comes at the wrong moment, and documents that
// are built without demand.
//
// Package crds itself provides the state that the front door needs: the served group-versions (Served), their OpenAPI documents
// (Documents), and a notification of changes (Config.Changed).
package crds
