// Package metricsapi is metrics.k8s.io: what nodes use, in the two versions and the exact shape that metrics-server gives.
package metricsapi
