// Package load measures the front door at sizes that no other page has: requests over many APIServices with a backend of their own each, ten thousand
// connections of clients, tens of thousands of RBAC bindings of which some change all the time, and a hundred megabytes of OpenAPI.
package load
