// Package aggregator configures, builds and runs the front API server: config.go is the settings, wire.go builds the parts, order.go
// starts and stops them in order.
//
// config.go says what can be set, prepare.go turns settings into keys, trust and a bound listener, wire.go builds the
// rooms, adapt.go hands what one offers to the next, order.go puts them in order, run.go starts and stops them. dev.go
// adds the demonstration: one extension server that is registered through the public API like any other.
package aggregator
