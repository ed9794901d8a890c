// Package aggregator configures, builds and runs the front API server.
//
// config.go has the settings, prepare.go makes keys, trust and a bound listener from them, wire.go builds all parts, order.go
// has the order in which they start, and run.go starts and stops them. The other files are named after the parts that they
// configure: flags, validation and wiring of one part are together. adapt.go converts the types of one part into those of
// another. dev.go is `aggregator dev`, with an extension server that is registered through the public API like any other.
package aggregator
