// Package proxied compares what a request costs on its way to an extension server: straight there, through a bare
// httputil.ReverseProxy, and through the front door as an administrator and as an ordinary user.
//
// Everybody is loaded by turns in one run, and the turns are repeated: absolute numbers belong to one machine and one
// moment, ratios of one round do not. A ratio is therefore taken in each round, and the median of these is shown.
package proxied
