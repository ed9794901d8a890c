// Package rules reads prometheus-adapter's rule files: which series are metrics, what they describe, what to ask for them.
//
// A rule file is what people have who served custom metrics so far, so it is served as it is. Its templates were made
// for trusted text, and requests bring text that is not: what goes into a query is therefore checked or quoted here,
// whatever the template does with it. Three things are stricter than in prometheus-adapter, none of which a rule that
// works notices: object names match as they are and not as regular expressions, a metric label selector may only use
// names that Prometheus labels can have, and a mistake anywhere in the file names its line and stops the start.
package rules
