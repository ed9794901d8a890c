// Package limits refuses requests to a cluster because of its limits of rates, or while it is in maintenance.
package limits
