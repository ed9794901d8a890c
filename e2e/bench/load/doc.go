// Package load measures the front door at sizes that the other benchmarks do not cover: requests over many
// APIServices, each with a separate backend; ten thousand client connections; tens of thousands of RBAC bindings that
// change continuously; and a hundred megabytes of OpenAPI.
package load
