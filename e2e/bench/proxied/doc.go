// Package proxied compares the cost of a request to an extension server: directly, through a bare
// httputil.ReverseProxy, and through the front door as an administrator and as an ordinary user.
//
// All servers are loaded alternately in one run, and the turns are repeated. Absolute numbers depend on the machine
// and the moment, but ratios within one round do not. Therefore ratios are computed in each round, and their median
// is reported.
package proxied
