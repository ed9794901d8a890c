// Package scale measures a front door with much state: thousands of APIServices, tens of thousands of RBAC bindings,
// and idle watches.
package scale
