// Package remote asks backends for the documents that describe them: in the background, bounded, never on a request.
//
// Discovery and OpenAPI both want documents from the same backends in the same manner: at once when something changed,
// then once in a while, less often while a backend fails, and never so that one backend waits for another. That manner
// lives here; what is asked and what is made of the answer lives with them.
//
// What is promised: a request goes out on the probe lane, so that it never competes with clients for connections; it
// carries the front door's own identity and nothing of any client; redirects are not followed; every body has a limit
// and every round a deadline; the bodies being read at one time are few, so that a thousand backends that answer at once
// cost the memory of a handful.
package remote
