// Package report formats drill results: a text table, JSON, JUnit, and an HTML page with a timeline of each drill.
// All formats derive from the same drill.Result and make no judgments of their results.
package report
