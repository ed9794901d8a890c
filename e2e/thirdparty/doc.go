// Package thirdparty runs extension servers that others wrote, unmodified, behind the front door.
//
// Each is built from the module that a nested go.mod pins, started as its own manifests start it, registered with a Service
// and an APIService, asked for everything it has, and then put through what happens to servers in their lives: restarts,
// rotations, expiry, deletion. Every step is a line of docs/compatibility.md (package compat).
package thirdparty
