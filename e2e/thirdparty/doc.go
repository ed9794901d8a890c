// Package thirdparty runs unmodified third-party extension servers behind the front door.
//
// Each server is built from the module that a nested go.mod pins, and started with the flags of its manifests. The tests register
// it with a Service and an APIService, use all of its resources, and then restart it, rotate and expire its certificates, and
// delete its APIService and its namespace. Every step is a row of docs/compatibility.md (package compat).
package thirdparty
