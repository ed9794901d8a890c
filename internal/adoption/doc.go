// Package adoption is how an APIService is put behind a gateway and taken out again.
//
// An adopted APIService names the gateway's Service in its spec, and in annotations the server that it had before. The annotations are
// all that a gateway reads of an adoption, and all that a release needs, so that both work without each other, and a person can write
// an adopted APIService by hand. trust.go is the other half: the gateway's authority in the ConfigMap by which extension servers know
// front proxies.
//
// Everything here works on objects in memory.
package adoption
