package cluster

import "time"

// EndAfterServer returns the timeout of a request that the API server ends after timeout, with a response that says so.
func EndAfterServer(timeout time.Duration) time.Duration { return timeout + 2*time.Second }
