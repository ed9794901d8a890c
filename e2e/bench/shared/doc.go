// Package shared measures what equal reads cost that share a response: through a front door whose APIRoute has sharedReads, through one
// without, through a bare httputil.ReverseProxy, and through nginx without and with its cache, where nginx is installed.
// The floors are servers that do nothing but write an object from memory.
package shared
