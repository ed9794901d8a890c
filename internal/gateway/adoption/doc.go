// Package adoption puts an APIService behind a gateway, and releases it again.
//
// The spec of an adopted APIService refers to the gateway's Service, and its annotations hold the original server. A
// gateway and a release need only these annotations, so that both work independently of each other, and operators can
// write an adopted APIService by hand. trust.go handles the gateway's authority in the ConfigMap with the front
// proxies that extension servers must trust.
//
// The package works on objects in memory only.
package adoption
