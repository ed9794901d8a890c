// Package chart tests the Helm chart of deploy/chart, with Helm's own library. It is a module of its own, so that what Helm needs is no
// dependency of ours. What an API server makes of the chart is tested in e2e/deploy.
package chart
