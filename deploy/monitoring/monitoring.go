// Package monitoring has the alert rules of this directory for the program that prints them.
package monitoring

import _ "embed" // for Alerts

// Alerts is alerts.yaml.
//
//go:embed alerts.yaml
var Alerts string
