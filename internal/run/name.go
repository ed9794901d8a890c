package run

import (
	"crypto/rand"
	"os"
	"strings"
)

// InstanceName returns the host name with a random suffix. It differs after a restart, and is valid as a part of an object
// name.
func InstanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "replica"
	}
	return strings.ToLower(host + "-" + rand.Text()[:6])
}
