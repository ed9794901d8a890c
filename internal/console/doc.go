// Package console serves a page about the APIServices of one cluster to a browser on the same machine, or shows the same in a terminal.
//
// The console is a client of the API server, by a kubeconfig: it works with any. It polls, each question with a deadline and each answer
// with a limit, and keeps a few minutes of what it saw in memory. With a Portico front door or gateway the page has more: the verdicts of
// replicas, endpoints, latency, debts. Where something cannot be read, its section says what, and why.
//
// Whoever can open the page acts with the rights of the kubeconfig. The server therefore listens on the loopback interface only, and
// gives its session to the one who has the token that the command printed, once (guard.go).
package console
