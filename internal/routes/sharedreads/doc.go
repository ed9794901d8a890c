// Package sharedreads lets equal reads of an extension server share one response, if the owner of an APIRoute allows it.
//
// Of concurrent requests with one key, the first one is sent, and the others wait for its response. The response is kept
// for the maximum age of the policy, and longer while the server fails, if the policy allows it. The key, which the caller
// chooses, determines which requests are equal. The caller also authorizes requests before it calls this package.
// Authorization decisions are not cached here.
//
// Only complete responses with code 200 are shared, up to a size limit. A response that exceeds the limit is streamed to
// its client, and the requests that waited for it are sent separately. The same applies to requests that waited for a
// response with another code.
//
// The total size of all responses that are kept or being received is limited. The least recently used ones are evicted
// first.
package sharedreads
