// Package shared measures the cost of equal reads that share a response: through a front door with an APIRoute that
// has sharedReads, through one without it, through a bare httputil.ReverseProxy, and through nginx without and with
// its cache, if nginx is installed. The floors are servers that only write an object from memory.
package shared
