// Package chart tests the Helm chart of deploy/chart with Helm's Go packages. It is a separate module, so that Portico does not
// depend on Helm's dependencies. Package deploy (e2e/deploy) tests the chart with an API server.
package chart
