// Package sharedreads lets equal reads of an extension server share one response, where the owner of an APIRoute allows it.
//
// Of the requests with one key that come at a time, the first one is sent, and the others wait for its response. It is kept for the maximum
// age of the policy, and longer for the time in which the server fails, if the policy says so. What makes requests equal is the caller's to
// decide, by the key; so is who may see a response: requests are authorized before they come here, and nothing about rights is kept.
//
// Only complete responses with code 200 are shared, up to a size. A response that turns out to be larger goes to its own client as it
// comes, and the requests that waited for it are sent on their own. So are those that waited for a response with another code.
//
// The bytes of all responses that are kept or being received are bounded; the least recently used ones go first.
package sharedreads
