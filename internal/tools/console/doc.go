// Package console serves a web page about the APIServices of one cluster to a browser on the same machine, or shows
// the same content in a terminal.
//
// The console is a client of any API server, configured by a kubeconfig. It polls, with a deadline for each request
// and a limit for each response, and keeps a few minutes of history in memory. A Portico front door or gateway adds
// more content: the verdicts of replicas, endpoints, latency, debts. If some data cannot be read, its section
// describes the data and the reason.
//
// Access to the page grants the permissions of the kubeconfig. The server therefore listens on the loopback interface
// only, and creates a single session, for the client that presents the token printed by the command (guard.go).
package console
