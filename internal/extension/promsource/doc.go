// Package promsource asks a Prometheus server: instant queries for whoever wants samples, node and pod metrics for metricsapi.
package promsource
