// Package scale measures what becomes of the front door when it has much to remember: APIServices by the thousand, RBAC
// bindings by the ten thousand, and idle watches through it.
package scale
