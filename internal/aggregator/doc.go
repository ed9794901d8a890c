// Package aggregator configures, builds and runs the front API server.
//
// config.go contains the settings. prepare.go loads keys and trust bundles from them, and binds the listener. wire.go
// builds all parts, order.go defines the order in which they start, and run.go starts and stops them. The other files
// are named after the parts that they configure, each with the flags, validation and wiring of one part. adapt.go
// converts the types of one part into the types of another. dev.go implements `aggregator dev`, with an extension
// server that is registered through the public API like any other.
package aggregator
